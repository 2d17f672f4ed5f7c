"""Make one page that Sphinx wrote for an EPUB right: links, folded parts, styles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from xml.dom.minidom import Document, Element, parseString

SHEETS = ("pygments.css", "book.css")


def parse(text: str) -> Document:
    """Return the document of a page."""
    return parseString(text.encode())


def elements(document: Document, name: str, kind: str = "") -> Iterator[Element]:
    """Yield the elements of a name, and of a class where one is given."""
    for element in list(document.getElementsByTagName(name)):
        if not kind or kind in element.getAttribute("class").split():
            yield element


def text_of(node: Element) -> str:
    """Return the text in an element."""
    return "".join(
        child.data if child.nodeType == child.TEXT_NODE else text_of(child)
        for child in node.childNodes
    )


def simplify_summaries(document: Document) -> None:
    """Leave one line of text in the heads of folded cells, which have one for each state."""
    for summary in elements(document, "summary"):
        lines = [
            child
            for child in summary.childNodes
            if child.nodeType == child.ELEMENT_NODE and child.tagName == "p"
        ]
        if lines:
            line = text_of(lines[0])
            while summary.firstChild:
                summary.removeChild(summary.firstChild)
            summary.appendChild(document.createTextNode(line))
            summary.removeAttribute("aria-label")


def lead_to_pages(document: Document, in_book: Callable[[str], bool]) -> None:
    """Let links lead to the pages of the EPUB; a link to a page that it lacks becomes text."""
    for link in elements(document, "a"):
        address = re.sub(r"\.html(?=#|$)", ".xhtml", link.getAttribute("href"))
        if re.match(r"[a-z]+:", link.getAttribute("href")):
            continue
        if in_book(address.partition("#")[0]):
            link.setAttribute("href", address)
        else:
            link.removeAttribute("href")


def clean_head(document: Document) -> None:
    """Leave the title and the book's own styles; scripts have no place in an EPUB."""
    for name in ("script", "meta", "link"):
        for element in elements(document, name):
            if not element.getAttribute("charset"):
                element.parentNode.removeChild(element)
    head = document.getElementsByTagName("head")[0]
    for sheet in SHEETS:
        link = document.createElement("link")
        link.setAttribute("rel", "stylesheet")
        link.setAttribute("type", "text/css")
        link.setAttribute("href", f"../_static/{sheet}")
        head.appendChild(link)


def headings(document: Document) -> Iterator[tuple[int, str, str]]:
    """Yield level, text and anchor of the headings that stand in the table of contents."""
    for section in elements(document, "section"):
        for child in section.childNodes:
            if child.nodeType == child.ELEMENT_NODE and child.tagName in {"h1", "h2"}:
                yield (
                    int(child.tagName[1]),
                    " ".join(text_of(child).split()),
                    section.getAttribute("id"),
                )
