"""Refuse notebooks whose stored outputs cannot be shown to a reader.

The book does not run its notebooks: it shows the outputs stored in them. A cell that was never
run, or that ended in an error nobody asked for, stops the build with the file and cell named.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)


def check_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Warn about every cell of a notebook whose outputs are missing or broken."""
    path = app.env.doc2path(docname)
    if not path.endswith(".ipynb"):
        return
    try:
        notebook = json.loads(source[0])
    except json.JSONDecodeError as error:
        raise ExtensionError(f"{path} is not a notebook: {error}") from error
    for position, fault in faults(notebook):
        logger.warning(
            "cell %d: %s", position, fault, location=docname, type="book", subtype="outputs"
        )


def faults(notebook: dict[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield position (counted from 1, text cells included) and fault of each broken cell."""
    for position, cell in enumerate(notebook["cells"], start=1):
        if cell["cell_type"] != "code" or not "".join(cell["source"]).strip():
            continue
        if cell["execution_count"] is None:
            yield position, "was never run"
        if "raises-exception" in cell["metadata"].get("tags", []):
            continue
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                yield position, f"ended in {output['ename']}: {output['evalue']}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the check with Sphinx."""
    app.connect("source-read", check_notebook)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
