"""Give every figure its alternative text, and refuse figures that have none.

A figure made with ``figure.set_label("...")`` carries its description as the ``<title>`` of the
SVG, so that every viewer of the notebook has it. In the book it becomes the ``alt`` attribute.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


def fill_alt_texts(app: Sphinx, doctree: nodes.document) -> None:
    """Take missing alternative texts from the images' titles; warn where there is no title."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt"):
            image["alt"] = svg_title(Path(app.srcdir, image["uri"]))
        if not image["alt"]:
            logger.warning(
                "image without alternative text (in a notebook: figure.set_label(...)): %s",
                image["uri"],
                location=image,
                type="book",
                subtype="alt",
            )


def svg_title(path: Path) -> str:
    """Return the title of an SVG file; an empty string if it has none or is no SVG."""
    if path.suffix != ".svg" or not path.exists():
        return ""
    title = ElementTree.parse(path).getroot().find("{http://www.w3.org/2000/svg}title")
    return "" if title is None or not title.text else " ".join(title.text.split())


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the check with Sphinx."""
    app.connect("doctree-read", fill_alt_texts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
