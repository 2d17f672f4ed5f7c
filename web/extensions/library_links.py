"""Links between the library's documentation and the chapters, in both directions.

A docstring says in plain words where its function is derived, ``Chapter 1, *Softmax*``, so that it
reads well in a terminal; on the page it becomes a link. A section that does not exist is a warning.
And every documented function is an anchor for the links of other pages, ``api.md#attnlib.softmax``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging

SECTION = re.compile(r"Chapter\s+(?P<number>\d+),\s+\*(?P<title>[^*]+)\*")
HEADING = re.compile(r"^#{1,3} +(.+?) *$", re.MULTILINE)

logger = logging.getLogger(__name__)


def link_sections(
    app: Sphinx, what: str, name: str, documented: Any, options: Any, lines: list[str]
) -> None:
    """Turn the sections that a docstring names into links."""
    folder = Path(app.srcdir, "chapters")
    is_html = app.builder.format == "html"

    def link(match: re.Match[str]) -> str:
        title = " ".join(match["title"].split())
        chapter = find_chapter(folder, int(match["number"]))
        if chapter is None or title not in headings(chapter):
            logger.warning(
                "the docstring of %s names a section that does not exist: Chapter %s, %s",
                *(name, match["number"], title),
                type="book",
                subtype="section",
            )
            return match[0]
        text = f"Chapter {match['number']}, {title}"
        return f"`{text} <{chapter.stem}.html#{nodes.make_id(title)}>`__" if is_html else text

    lines[:] = SECTION.sub(link, "\n".join(lines)).split("\n")


def find_chapter(folder: Path, number: int) -> Path | None:
    """Return the notebook of a chapter, None if there is none of that number."""
    return next(folder.glob(f"{number:02}_*.ipynb"), None)


def headings(notebook: Path) -> list[str]:
    """Return the headings of a notebook as they are written."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    return [title for text in texts for title in HEADING.findall(text)]


def add_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let other pages link to a function as they link to a heading."""
    # MyST looks link fragments up here: fragment -> (line, id, text of an empty link).
    slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for signature in doctree.findall(addnodes.desc_signature):
        for anchor in signature["ids"]:
            slugs.setdefault(anchor, (signature.line, anchor, anchor))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both directions with Sphinx."""
    app.connect("autodoc-process-docstring", link_sections)
    app.connect("doctree-read", add_anchors, priority=600)  # after the short anchors are there
    return {"parallel_read_safe": True, "parallel_write_safe": True}
