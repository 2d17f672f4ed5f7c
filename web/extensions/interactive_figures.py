"""Give the scripts of the interactive figures to the pages that have such a figure alone.

A figure belongs to a code cell with the tag ``interactive-<name>``; web/js/interactive_figures.js
puts it below the cell's picture, which stays for readers without scripts.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SCRIPTS = ("attention_numbers.js", "interactive_figures.js")
STYLE = "interactive.css"


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Add scripts and style to a page whose cells ask for them."""
    if "tag_interactive-" in context.get("body", ""):
        app.add_css_file(STYLE)
        for script in SCRIPTS:
            app.add_js_file(script)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step with Sphinx."""
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
