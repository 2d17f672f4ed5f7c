"""Print the book as a PDF: ``make pdf``.

The pages of the built site are joined into one (``joined.py``) and printed by Chromium, twice: the
first printing, a plain one, tells the page numbers that stand in the table of contents of the
second, which has tags and an outline.
"""

from __future__ import annotations

import html
import mimetypes
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pikepdf import Array, Dictionary, Name, ObjectStreamMode, Pdf, Stream
from playwright.sync_api import Page, Route, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.paper import imprint, joined, offer  # noqa: E402
from web.tools import chromium  # noqa: E402

SITE = ROOT / "_build/html"
PDF = ROOT / "_build/paper/attention-number-by-number.pdf"
HOME = "http://book.invalid/"  # never looked up: every request is answered from the site's folder
PAPER_WIDTH, MARGIN = 210, 22  # of web/paper/print.css, in millimetres
PIXELS = 96 / 25.4
PATIENCE = 600_000  # milliseconds for some thousand formulas on a busy machine

# Pictures and fonts are there, those too that would wait to be seen.
SETTLE = """async () => {
  const images = [...document.images];
  images.forEach((image) => (image.loading = "eager"));
  await Promise.all(images.map((image) => image.decode()));
  await document.fonts.ready;
}"""

# A formula that is wider than its place, which a screen would scroll, is set smaller.
FIT = """() => {
  for (const formula of document.querySelectorAll("main mjx-container[display]")) {
    const size = parseFloat(getComputedStyle(formula).fontSize);
    const ratio = formula.parentElement.clientWidth / formula.scrollWidth;
    if (ratio < 1) formula.style.fontSize = `${0.97 * ratio * size}px`;
  }
}"""

# Elements and bare text that reach beyond the edge; not what is there for screen readers only.
TOO_WIDE = """() => {
  const edge = document.body.getBoundingClientRect().right + 1;
  const left_out = (node) => node.matches?.("mjx-assistive-mml, svg > *");
  const nodes = document.createTreeWalker(
    document.querySelector("main"),
    NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT,
    (node) => (left_out(node) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT),
  );
  const range = document.createRange();
  const wide = new Set();
  while (nodes.nextNode()) {
    const node = nodes.currentNode;
    if (node.nodeType === Node.TEXT_NODE) range.selectNode(node);
    const box = (node.nodeType === Node.TEXT_NODE ? range : node).getBoundingClientRect();
    if (box.right > edge) wide.add(node);
  }
  return [...wide]
    .filter((one) => ![...one.childNodes].some((child) => wide.has(child)))
    .map((one) => `${one.parentElement.closest("article")?.id}: ${one.nodeName} ` +
      one.parentElement.textContent.trim().slice(0, 60));
}"""

# Chromium silently leaves out a link whose place is missing.
DEAD_LINKS = """() => [...document.querySelectorAll('a[href^="#"]')]
  .map((link) => decodeURIComponent(link.hash.slice(1)))
  .filter((name) => !document.getElementById(name))
"""

# Returns the places whose page is not known.
FILL_IN = """(pages) => {
  const entries = [...document.querySelectorAll("[data-place]")];
  for (const entry of entries) entry.textContent = pages[entry.dataset.place] ?? "";
  return entries.filter((entry) => !entry.textContent).map((entry) => entry.dataset.place);
}"""

LARGEST_BITMAP = 1000  # pixels on a side: heatmaps are smaller, a drawing or a shadow would not be


def main() -> None:
    """Print the book, check what was printed, and say what there is."""
    facts = imprint.facts()
    PDF.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "printed.pdf")
        print_book(joined_book(facts), printed)
        with Pdf.open(printed) as book:
            finish(book, facts)
            stop_at("The PDF is not as it should be:", printing_faults(book, facts.title))
            save(book, PDF)
            count = len(book.pages)
    offer.offer(PDF)
    print(f"{PDF.relative_to(ROOT)}: {count} pages, {PDF.stat().st_size / 1e6:.1f} MB")


def joined_book(facts: imprint.Facts) -> str:
    """Return the one page that is printed."""
    sheet = Path(__file__).with_name("print.css").read_text(encoding="utf-8")
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    return joined.join(SITE, toc, opening(facts), sheet)


def stop_at(message: str, faults: list[str]) -> None:
    """End the program where there are faults, and name them."""
    if faults:
        sys.exit("\n".join([message, *faults]))


def opening(facts: imprint.Facts) -> str:
    """Return the first page: title, version, licences, and where the book lives."""
    lines = [
        f"Version {facts.version}, {facts.date}, commit {facts.commit}",
        f'<a href="{facts.address}">{facts.address}</a>',
        "Text and figures: CC BY 4.0. Code: MIT.",
    ]
    return (
        f'<p class="title">{html.escape(facts.title)}</p>\n'
        f'<p class="subtitle">{html.escape(facts.subtitle)}</p>\n'
        f'<p class="imprint">{"<br>".join(lines)}</p>'
    )


def answer(route: Route, book: str) -> None:
    """Answer a request of the page from the folder of the site, and from nowhere else."""
    path = SITE / route.request.url.removeprefix(HOME).partition("?")[0]
    if route.request.url == HOME:
        route.fulfill(body=book, content_type="text/html; charset=utf-8")
    elif route.request.url.startswith(HOME) and path.is_file():
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        route.fulfill(path=path, content_type=kind)
    else:
        route.abort()


def print_book(book: str, target: Path) -> None:
    """Print the joined page with Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=[*chromium.FLAGS]
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.route("**/*", lambda route: answer(route, book))
        lay_out(page)
        print_twice(page, target)
        browser.close()


def lay_out(page: Page) -> None:
    """Open the joined page as it looks on paper; no link is dead and nothing runs off the page."""
    width = round((PAPER_WIDTH - 2 * MARGIN) * PIXELS)
    page.set_viewport_size({"width": width, "height": 1000})
    page.emulate_media(media="print", color_scheme="light")
    page.goto(HOME)
    stop_at("Links lead nowhere:", page.evaluate(DEAD_LINKS))
    page.evaluate(SETTLE)
    page.evaluate(FIT)
    stop_at("Wider than the page:", page.evaluate(TOO_WIDE))


def print_twice(page: Page, target: Path) -> None:
    """Print the open page, with the page numbers of a first printing in the second."""
    page.pdf(path=target, prefer_css_page_size=True)
    with Pdf.open(target) as first:
        unknown = page.evaluate(FILL_IN, page_numbers(first))
    stop_at("No page is known for these entries of the contents:", unknown)
    page.pdf(path=target, prefer_css_page_size=True, tagged=True, outline=True)


def destinations(book: Pdf) -> dict[str, Array]:
    """Return the places that have a name, which links lead to."""
    return {
        name.removeprefix("/"): place
        for name, place in book.Root.get("/Dests", Dictionary()).items()
    }


def page_numbers(book: Pdf) -> dict[str, int]:
    """Return the page, counted from 1, of every place that some link leads to."""
    numbers = {page.objgen: number for number, page in enumerate(book.pages, 1)}
    return {name: numbers[place[0].objgen] for name, place in destinations(book).items()}


def finish(book: Pdf, facts: imprint.Facts) -> None:
    """Give the PDF its title and date, and let a reader show the title and the outline."""
    moment = facts.moment.strftime("D:%Y%m%d%H%M%SZ")
    book.docinfo["/Title"] = facts.title
    book.docinfo["/Author"] = facts.author
    book.docinfo["/Subject"] = facts.subtitle
    book.docinfo["/CreationDate"] = moment
    book.docinfo["/ModDate"] = moment
    with book.open_metadata(set_pikepdf_as_editor=False) as metadata:
        metadata.load_from_docinfo(book.docinfo)
    book.Root.ViewerPreferences = Dictionary(DisplayDocTitle=True)
    book.Root.PageMode = Name.UseOutlines


def save(book: Pdf, target: Path) -> None:
    """Write the PDF with its many small objects, most of them tags, compressed."""
    book.save(target, object_stream_mode=ObjectStreamMode.generate, deterministic_id=True)


def printing_faults(book: Pdf, title: str) -> list[str]:
    """Return what is amiss: a good PDF has title, tags, language, outline, and no dead links."""
    faults = []
    if book.docinfo.get("/Title") != title:
        faults.append("it has not the title of the book")
    if not book.Root.get("/MarkInfo", {}).get("/Marked") or "/StructTreeRoot" not in book.Root:
        faults.append("it is not tagged")
    if not book.Root.get("/Lang"):
        faults.append("it names no language")
    if "/First" not in book.Root.get("/Outlines", {}):
        faults.append("it has no outline")
    faults += [f"a link leads nowhere: {name}" for name in sorted(dead_links(book))]
    faults += [f"a bitmap is large: {width} x {height}" for width, height in large_bitmaps(book)]
    return faults


def dead_links(book: Pdf) -> set[str]:
    """Return the names of places that links lead to and that the PDF does not have."""
    links = [
        note.get("/Dest", note.get("/A", {}).get("/D"))
        for page in book.pages
        for note in page.get("/Annots", [])
    ]
    names = {str(link).removeprefix("/") for link in links if not isinstance(link, Array | None)}
    return names - set(destinations(book))


def large_bitmaps(book: Pdf) -> Iterator[tuple[int, int]]:
    """Yield width and height of pictures that should be drawings."""
    for thing in book.objects:
        if isinstance(thing, Stream) and thing.get("/Subtype") == Name.Image:
            size = int(thing.Width), int(thing.Height)
            if max(size) > LARGEST_BITMAP:
                yield size


if __name__ == "__main__":
    main()
