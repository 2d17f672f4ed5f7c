"""Offer PDF and EPUB on the landing page once they are made.

A book lies in the folder ``books`` of the built site, and the landing page, which has a mark where
the links belong, names those that lie there. A site without them shows no link.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

SITE = Path(__file__).resolve().parents[2] / "_build/html"
LANDING = "chapters/index.html"
FOLDER = "books"
MARK = "<!-- books -->"
PLACE = re.compile(rf'{MARK}(?:<span class="books">.*?</span>)?')


def offer(book: Path, site: Path = SITE) -> None:
    """Put a book into the site, and name it on the landing page."""
    (site / FOLDER).mkdir(exist_ok=True)
    shutil.copy(book, site / FOLDER)
    landing = site / LANDING
    page = landing.read_text(encoding="utf-8")
    landing.write_text(with_links(page, books(site)), encoding="utf-8")


def books(site: Path) -> dict[str, int]:
    """Return the books that lie in a site, the PDF first, and how many bytes they have."""
    paths = sorted((site / FOLDER).glob("*"), reverse=True)
    return {path.name: path.stat().st_size for path in paths}


def with_links(page: str, books: dict[str, int]) -> str:
    """Return the landing page with links to books.

    >>> with_links("<!-- books -->Or make it.", {})
    '<!-- books --><span class="books"></span>Or make it.'
    """
    if MARK not in page:
        raise ValueError(f"the landing page has no mark {MARK}")
    links = [
        f'the <a href="../{FOLDER}/{name}">{kind(name)}</a> ({size / 1e6:.1f} MB)'
        for name, size in books.items()
    ]
    sentence = f"Take {' or '.join(links)}. " if links else ""
    return PLACE.sub(f'{MARK}<span class="books">{sentence}</span>', page)


def kind(name: str) -> str:
    """Return the kind of a book as people call it.

    >>> kind("book.epub")
    'EPUB'
    """
    return Path(name).suffix[1:].upper()
