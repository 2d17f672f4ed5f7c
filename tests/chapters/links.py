"""Where the links between the book's pages lead, without building the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from docutils.nodes import make_id

from tests.chapters.documents import CHAPTERS, ROOT, read_notebook, typed_passages

_HEADING = re.compile(r"^(?P<level>#{1,3}) +(?P<title>.+?) *$", re.MULTILINE)
_LABEL = re.compile(r"^> \*\*(?P<label>[A-Z][a-z ]+ \d+\.\d+)\*\*", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*)\]\((?P<target>[^()\s]+)\)")
_FENCED = re.compile(r"^(```+|~~~+).*?^\1 *$", re.MULTILINE | re.DOTALL)
_DOCUMENTED = re.compile(r"^\.\. auto(?:function|class):: +(?P<name>[\w.]+)", re.MULTILINE)


@dataclass(frozen=True)
class Link:
    """A link as it is written, and where."""

    text: str
    target: str
    place: str


def markdown(path: Path) -> list[tuple[str, str]]:
    """Return the Markdown texts of a page with their places, code blocks left out."""
    if path.suffix == ".md":
        return [(one.place, _FENCED.sub("", one.text)) for one in typed_passages(path)]
    cells = enumerate(read_notebook(path).cells, start=1)
    return [(f"cell {n}", _FENCED.sub("", c.source)) for n, c in cells if c.cell_type == "markdown"]


def slug(title: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    plain = re.sub(r"[`*$]", "", title.lower())
    return re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")


@cache
def headings(path: Path) -> dict[str, str]:
    """Return the headings of a page by their anchors."""
    titles = [m["title"] for _, text in markdown(path) for m in _HEADING.finditer(text)]
    return {slug(title): title for title in titles}


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return all anchors of a page: headings, numbered boxes, and functions on the API page."""
    labels = {make_id(m["label"]) for _, text in markdown(path) for m in _LABEL.finditer(text)}
    names = set()
    if path.name == "api.md":
        names = {m["name"] for m in _DOCUMENTED.finditer(path.read_text(encoding="utf-8"))}
    return frozenset(headings(path).keys() | labels | names)


def links(path: Path) -> list[Link]:
    """Return the links of a page."""
    return [
        Link(m["text"], m["target"], f"{path.name}, {place}")
        for place, text in markdown(path)
        for m in _LINK.finditer(text)
    ]


def problem_of(link: Link, page: Path) -> str | None:
    """Say what is wrong with a link that stays inside the repository."""
    if re.match(r"[a-z]+:", link.target):
        return None
    name, _, anchor = link.target.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"{link.place}: there is no {link.target}"
    if ROOT not in target.parents:
        return f"{link.place}: {link.target} is outside the repository"
    if anchor and target.parent == CHAPTERS and anchor not in anchors(target):
        return f"{link.place}: {name or page.name} has no section #{anchor}"
    return None
