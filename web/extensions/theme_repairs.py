"""Small repairs to what the theme and other extensions put on the pages."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

EMPTY_HEADER = re.compile(r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>")


def drop_thebe(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Leave out Thebe, which the book does not use and which fails on every page.

    Jupyter Book always loads sphinx-thebe, whose script declares one constant twice; browsers
    report that as an error.
    """
    for kind in ("script_files", "css_files"):
        context[kind] = [asset for asset in context.get(kind, []) if not is_thebe(asset)]


def is_thebe(asset: Any) -> bool:
    """Tell whether a script or style sheet, linked or written out, belongs to Thebe."""
    return "thebe" in f"{asset.filename} {asset.attributes.get('body', '')}".lower()


def add_short_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let ``#attnlib.causal_mask`` lead to ``attnlib.causal.causal_mask`` too.

    The pages of source code link back to the documentation of a whole module under one prefix,
    that of its first documented name, which may be the package's.
    """
    signatures = list(doctree.findall(addnodes.desc_signature))
    taken = {anchor for signature in signatures for anchor in signature["ids"]}
    for signature in signatures:
        package = signature.get("module", "").partition(".")[0]
        short = f"{package}.{signature['fullname']}"
        if short not in taken:
            taken.add(short)
            signature["ids"].append(short)


def clear_empty_headers(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Make the empty corner of a table a plain cell: as a header it announces nothing."""
    if body := context.get("body"):
        context["body"] = EMPTY_HEADER.sub("<td></td>", body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the repairs with Sphinx."""
    app.connect("html-page-context", drop_thebe, priority=900)  # after all others added their files
    app.connect("html-page-context", clear_empty_headers)
    app.connect("doctree-read", add_short_anchors)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
