"""Print the book as a PDF: ``make pdf``.

The pages of the built site are joined into one (``joined.py``) and printed by Chromium, twice: the
first printing tells the page numbers that stand in the table of contents of the second.
"""

from __future__ import annotations

import html
import mimetypes
import sys
from pathlib import Path

from playwright.sync_api import Page, Route, sync_playwright
from pypdf import PdfReader, PdfWriter

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.paper import imprint, joined  # noqa: E402
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

TOO_WIDE = """() => {
  const edge = document.body.getBoundingClientRect().right + 1;
  const wide = [...document.querySelectorAll("main *")]
    .filter((one) => !one.closest("mjx-assistive-mml, svg *"))
    .filter((one) => one.getBoundingClientRect().right > edge);
  return wide
    .filter((one) => !wide.includes(one.parentElement))
    .map((one) => `${one.closest("article").id}: ${one.tagName} ${one.className} ` +
      one.parentElement.textContent.trim().slice(0, 60));
}"""

FILL_IN = """(pages) => {
  for (const place of document.querySelectorAll("[data-place]"))
    place.textContent = pages[place.dataset.place] ?? "";
}"""


def main() -> None:
    """Print the book, check what was printed, and say what there is."""
    facts = imprint.facts()
    sheet = (Path(__file__).with_name("print.css")).read_text(encoding="utf-8")
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    book = joined.join(SITE, toc, opening(facts), sheet)
    PDF.parent.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=[*chromium.FLAGS]
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.route("**/*", lambda route: answer(route, book))
        print_book(page, PDF)
        browser.close()
    finish(PDF, facts)
    reader = PdfReader(PDF)
    faults = list(printing_faults(reader))
    if faults:
        PDF.unlink()
        sys.exit("The PDF is not as it should be:\n" + "\n".join(faults))
    size = PDF.stat().st_size / 1e6
    print(f"{PDF.relative_to(ROOT)}: {len(reader.pages)} pages, {size:.1f} MB")


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


def print_book(page: Page, target: Path) -> None:
    """Print the joined page twice, with the page numbers of the first printing in the second."""
    width = round((PAPER_WIDTH - 2 * MARGIN) * PIXELS)
    page.set_viewport_size({"width": width, "height": 1000})
    page.emulate_media(media="print", color_scheme="light")
    page.goto(HOME)
    page.evaluate(SETTLE)
    page.evaluate(FIT)
    wide = page.evaluate(TOO_WIDE)
    if wide:
        sys.exit("Wider than the page:\n" + "\n".join(wide))
    for _ in range(2):
        page.pdf(path=target, prefer_css_page_size=True, tagged=True, outline=True)
        page.evaluate(FILL_IN, page_numbers(PdfReader(target)))


def page_numbers(reader: PdfReader) -> dict[str, int]:
    """Return the page, counted from 1, of every place that some link leads to."""
    places = reader.named_destinations
    return {
        name.removeprefix("/"): reader.get_destination_page_number(place) + 1
        for name, place in places.items()
    }


def finish(path: Path, facts: imprint.Facts) -> None:
    """Give the PDF its title and date, and let a reader show the title and the outline."""
    writer = PdfWriter(clone_from=path)
    moment = facts.moment.strftime("D:%Y%m%d%H%M%SZ")
    writer.add_metadata(
        {
            "/Title": facts.title,
            "/Author": facts.author,
            "/Subject": facts.subtitle,
            "/CreationDate": moment,
            "/ModDate": moment,
        }
    )
    writer.create_viewer_preferences().display_doctitle = True
    writer.page_mode = "/UseOutlines"
    writer.write(path)


def printing_faults(reader: PdfReader) -> list[str]:
    """Return what a good PDF must not lack: tags, language, outline, live links."""
    catalog = reader.trailer["/Root"]
    faults = []
    if not catalog.get("/MarkInfo", {}).get("/Marked") or "/StructTreeRoot" not in catalog:
        faults.append("it is not tagged")
    if not catalog.get("/Lang"):
        faults.append("it names no language")
    if not reader.outline:
        faults.append("it has no outline")
    dead = dead_links(reader)
    if dead:
        faults.append(f"links lead nowhere: {sorted(dead)}")
    return faults


def dead_links(reader: PdfReader) -> set[str]:
    """Return the names of places that links lead to and that the PDF does not have."""
    places = set(reader.named_destinations)
    links = [
        note.get_object().get("/Dest") or note.get_object().get("/A", {}).get("/D")
        for page in reader.pages
        for note in page.get("/Annots", [])
    ]
    return {str(link) for link in links if isinstance(link, str)} - places


if __name__ == "__main__":
    main()
