"""Give the search page the script that shows formulas as text: web/js/search_text.js."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SCRIPT = "search_text.js"


def add_script(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Load the script on the search page alone.

    It stands before Sphinx's own search tools and waits until they are loaded, so that it changes
    them before they start.
    """
    if page == "search":
        app.add_js_file(SCRIPT)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step with Sphinx."""
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
