"""Tracebacks that begin in the reader's own cell."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

CELL = "Cell "  # cells are named "Cell 1", "Cell 2", …


def traceback_of(error: BaseException, cell: str) -> dict[str, Any]:
    """Describe an exception as notebooks store it, with the line of the cell that raised it."""
    within = from_first_cell(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename == cell:
        within = None
    lines = traceback.format_exception(type(error), error, within)
    return {
        "ename": type(error).__name__,
        "evalue": str(error),
        "traceback": "".join(lines).rstrip("\n").split("\n"),
        "line": line_in(error, within, cell),
    }


def from_first_cell(trace: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this package, which stand above those of the cell."""
    while trace and not trace.tb_frame.f_code.co_filename.startswith(CELL):
        trace = trace.tb_next
    return trace


def line_in(error: BaseException, trace: TracebackType | None, cell: str) -> int | None:
    """Return the line of a cell at which the exception left it."""
    if isinstance(error, SyntaxError) and error.filename == cell:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == cell]
    return lines[-1] if lines else None
