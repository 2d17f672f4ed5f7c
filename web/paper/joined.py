"""Join the pages of the built site into one page, from which the PDF is printed.

Every anchor gets the name of its page in front, so that no two are the same, and every link from
page to page becomes a link inside the one page.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

# What only makes sense on a screen.
OF_SCREENS = (
    "script, noscript, .headerlink, .live-start, button, .copybtn, .prev-next-area, "
    ".viewcode-link, details.hide > summary, .books"
)


def pages_of(toc: str) -> list[str]:
    """Return the names of all pages in the order of the table of contents."""
    contents = yaml.safe_load(toc)
    entries = [entry for part in contents["parts"] for entry in part["chapters"]]
    return [contents["root"], *(entry["file"] for entry in entries)]


def article(html: str, page: str, pages: list[str]) -> Tag:
    """Return the text of one page, ready to stand beside the others."""
    text = BeautifulSoup(html, "html.parser").select_one("article.bd-article")
    for unwanted in text.select(OF_SCREENS):
        unwanted.decompose()
    for folded in text.select("details"):
        folded["open"] = ""
    for cell in text.select("details.hide"):
        cell.name = "div"  # without its head, which only says that the code can be hidden
    for element in text.select("[id]"):
        element["id"] = anchor(page, element["id"])
    for link in text.select("a[href]"):
        lead(link, page, pages)
    for image in text.select("img[src]"):
        image["src"] = beside(page, image["src"])
    text["id"] = anchor(page)
    return text


def lead(link: Tag, page: str, pages: list[str]) -> None:
    """Let a link lead to its place in the one page; without such a place it becomes plain text."""
    target = inner_target(link["href"], page, pages)
    if target is None:
        link.unwrap()
    else:
        link["href"] = target


def inner_target(address: str, page: str, pages: list[str]) -> str | None:
    """Return where a link leads in the one page: another site stays, a page left out is None.

    >>> inner_target("02_causal.html#mask", "chapters/01_query", ["chapters/02_causal"])
    '#chapters-02_causal--mask'
    """
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return address
    goal = beside(page, unquote(parts.path)).removesuffix(".html") if parts.path else page
    return f"#{anchor(goal, parts.fragment)}" if goal in {page, *pages} else None


def anchor(page: str, name: str = "") -> str:
    """Return the name that an anchor of a page has in the one page."""
    return "--".join(filter(None, [page.replace("/", "-"), name]))


def beside(page: str, path: str) -> str:
    """Return a path that is given as seen from a page as seen from the folder of the site."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def style_sheets(html: str, page: str) -> list[str]:
    """Return the addresses of the style sheets that a page uses, from the folder of the site."""
    links = BeautifulSoup(html, "html.parser").select("link[rel=stylesheet][href]")
    return [beside(page, link["href"].partition("?")[0]) for link in links]


def contents(articles: list[Tag]) -> str:
    """Return a table of contents: chapters and sections, with a place for the page numbers."""
    lines = []
    for text in articles:
        for heading in text.select("h1, h2"):
            if len(heading.get_text()) == 1:
                continue  # the letters of the glossary
            place = heading.find_parent("section")["id"]
            label = "".join(str(child) for child in heading.children)
            lines.append(
                f'<li class="level-{heading.name}"><a href="#{place}"><span>{label}</span>'
                f'<span class="page" data-place="{place}"></span></a></li>'
            )
    return "<ol>" + "\n".join(lines) + "</ol>"


def join(site: Path, toc: str, opening: str, sheet: str) -> str:
    """Return the one page: an opening, the table of contents, and the text of all pages."""
    pages = pages_of(toc)
    sources = {page: (site / f"{page}.html").read_text(encoding="utf-8") for page in pages}
    root, html = next(iter(sources.items()))
    articles = [article(text, page, pages) for page, text in sources.items()]
    head = "\n".join(
        [f'<link rel="stylesheet" href="{path}">' for path in style_sheets(html, root)]
        + [f"<style>{sheet}</style>"]
    )
    return (
        '<!DOCTYPE html>\n<html lang="en" data-theme="light" data-mode="light">\n<head>\n'
        f'<meta charset="utf-8">\n{head}\n</head>\n<body>\n'
        f'<header class="opening">{opening}</header>\n'
        '<nav class="pages"><p class="pages-title">Contents</p>\n'
        f"{contents(articles[1:])}</nav>\n<main>\n"
        + "\n".join(map(str, articles))
        + "\n</main>\n</body>\n</html>\n"
    )
