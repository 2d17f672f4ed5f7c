"""Which pages the book has, and reading them once they are built."""

from __future__ import annotations

import functools
from pathlib import Path

import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[2]


def table_of_contents() -> list[str]:
    """Return the pages of _toc.yml in reading order, as paths without ending."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [toc["root"], *chapters]


def notebook_pages() -> list[str]:
    """Return those pages that are notebooks."""
    return [page for page in table_of_contents() if (ROOT / f"{page}.ipynb").exists()]


def redirects() -> dict[str, str]:
    """Return the table of old pages in _config.yml, each with its new address, seen from it."""
    configuration = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    return configuration["sphinx"]["config"]["redirects"]


@functools.cache
def soup(path: Path) -> BeautifulSoup:
    """Return a built page, parsed once."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
