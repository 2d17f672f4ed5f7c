"""What nbval leaves out when it compares a notebook's stored outputs with a fresh run.

nbval looks at no PNG, compares SVG byte by byte, and passes a notebook whose outputs were removed.
Here figures are compared within a tolerance, and a cell without a stored run fails.
"""

from __future__ import annotations

import pytest
from nbval.plugin import IPyNbCell

from tests.chapters.figures import DIFFERENCES


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--figures",
        choices=("compare", "ignore"),
        default="compare",
        help="compare the figures in notebooks; ignore them under another release of Matplotlib",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take SVG out of nbval's own comparison, once for each notebook."""
    for notebook in {item.parent for item in items if isinstance(item, IPyNbCell)}:
        notebook.skip_compare += ("image/svg+xml",)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    if not isinstance(item, IPyNbCell):
        return (yield)
    if item.cell.execution_count is None:
        item.raise_cell_error("The cell has no stored run: make notebooks stores one")
    result = yield  # nbval runs the cell and compares text, HTML and streams
    if item.options["check"] and item.config.option.figures == "compare":
        _compare_figures(item)
    return result


def _compare_figures(item: IPyNbCell) -> None:
    for mime, difference in DIFFERENCES.items():
        stored, new = _pictures(item.cell.outputs, mime), _pictures(item.test_outputs, mime)
        if len(stored) != len(new):
            item.raise_cell_error(f"{len(stored)} figures ({mime}) stored, {len(new)} drawn")
        for before, after in zip(stored, new, strict=True):
            if problem := difference(before, after):
                item.raise_cell_error(f"Cell outputs differ: {problem}")


def _pictures(outputs: list, mime: str) -> list[str]:
    return [output.data[mime] for output in outputs if mime in output.get("data", {})]
