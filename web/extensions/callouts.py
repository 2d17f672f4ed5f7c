"""Turn portable block quotes into callout boxes.

A Markdown block quote that opens with a bold label, such as
``> **Exercise 1.2** (two queries). Compute ...``, reads well on Colab, on GitHub and in
JupyterLab, none of which know Sphinx directives. In the book it becomes a box with a title,
a colour for its kind and, where the label has a number, an anchor (``#exercise-1-2``).

A bold label that names no known kind is a warning: it is almost always a typing error.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

KINDS = (
    "common mistake",
    "definition",
    "example",
    "exercise",
    "key idea",
    "law",
    "question",
    "solution",
)
LABEL = re.compile(rf"(?P<kind>{'|'.join(KINDS)})(?P<number> \d+(\.\d+)*)?[.:]?", re.IGNORECASE)

logger = logging.getLogger(__name__)


class Callouts(SphinxTransform):
    """Replace every block quote that opens with a bold label by a box."""

    default_priority = 400

    def apply(self, **kwargs: object) -> None:
        for quote in list(self.document.findall(nodes.block_quote)):
            strong = opening_label(quote)
            if strong is None:
                continue
            label = LABEL.fullmatch(strong.astext())
            if label is None:
                warn(quote, "no callout is called %r", strong.astext())
                continue
            box = make_box(quote, strong, label)
            if label["number"]:
                self.give_anchor(box, strong.astext())
            quote.replace_self(box)

    def give_anchor(self, box: nodes.admonition, label: str) -> None:
        """Let other pages link to the box as they link to a heading."""
        anchor = nodes.make_id(label)
        if anchor in self.document.ids:
            warn(box, "the label %r is used twice on this page", label)
            return
        box["ids"].append(anchor)
        self.document.ids[anchor] = box
        # MyST looks link fragments up here: fragment -> (line, id, text of an empty link).
        slugs = self.env.metadata[self.env.docname].setdefault("myst_slugs", {})
        slugs[anchor] = (box.line, anchor, box[0].astext())
        self.document.myst_slugs = slugs


def opening_label(quote: nodes.block_quote) -> nodes.strong | None:
    """Return the bold text that opens a block quote, if it opens with one."""
    paragraph = quote[0] if len(quote) else None
    if not isinstance(paragraph, nodes.paragraph):
        return None
    for child in paragraph:
        if child.astext():  # MyST puts an empty text node before bold type
            return child if isinstance(child, nodes.strong) else None
    return None


def make_box(
    quote: nodes.block_quote, strong: nodes.strong, label: re.Match[str]
) -> nodes.admonition:
    """Build the box: the label and a name in brackets become its title."""
    paragraph = quote[0]
    following = paragraph[paragraph.index(strong) + 1 :]
    name, text = split_name(following)
    title = nodes.title("", "", nodes.inline("", label[0].rstrip(".:"), classes=["callout-label"]))
    if name:
        title += [nodes.Text(" "), *name]
    kind = label["kind"].lower().replace(" ", "-")
    box = nodes.admonition("", title, classes=["callout", kind])
    if text:
        box += nodes.paragraph("", "", *text)
    box += quote[1:]
    box.source, box.line = quote.source, quote.line
    return box


def split_name(inline: list[nodes.Node]) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Split ``(name with $x$). Text`` into the bracketed name and the text after it."""
    inline = trim_start(inline, r"\s*")
    end = end_of_bracket(inline)
    if end is None:
        return [], trim_start(inline, r"[.:]?\s*")
    position, length = end
    last = inline[position].astext()
    name = [*inline[:position], nodes.Text(last[:length])]
    rest = [nodes.Text(last[length:]), *inline[position + 1 :]]
    return name, trim_start(rest, r"\s*[.:]?\s*")


def end_of_bracket(inline: list[nodes.Node]) -> tuple[int, int] | None:
    """Find where the bracket that opens the text closes: a node's position, a length of its text.

    Only plain text counts: brackets in mathematics or code open and close nothing here.
    """
    if not inline or not inline[0].astext().startswith("("):
        return None
    depth = 0
    for position, node in enumerate(inline):
        characters = node.astext() if isinstance(node, nodes.Text) else ""
        for length, character in enumerate(characters, start=1):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if depth == 0:
                return position, length
    return None


def trim_start(inline: list[nodes.Node], pattern: str) -> list[nodes.Node]:
    """Remove a leading pattern from the first text node, and the node if nothing is left."""
    if not inline or not isinstance(inline[0], nodes.Text):
        return inline
    rest = re.sub(rf"^{pattern}", "", inline[0].astext())
    return [nodes.Text(rest), *inline[1:]] if rest else inline[1:]


def warn(node: nodes.Node, message: str, *values: object) -> None:
    """Report a fault in a page; with ``-W`` it stops the build."""
    logger.warning(message, *values, location=node, type="book", subtype="callout")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_transform(Callouts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
