"""Small repairs to what the theme and its extensions put on every page."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx


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


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the repair with Sphinx; it runs after all other extensions added their files."""
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
