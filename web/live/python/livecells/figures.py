"""Figures: what `plt.show()` does inside a cell, and as what a figure is shown."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {"png": "image/png", "svg": "image/svg+xml"}


def draw_for_the_page() -> None:
    """Let Matplotlib, once it is imported, show its figures on the page."""
    os.environ["MPLBACKEND"] = "module://livecells.backend"


def show_figures(display: Callable) -> None:
    """Display all open figures, and close them."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return
    try:
        for manager in helpers.Gcf.get_all_fig_managers():
            display(manager.canvas.figure)
    finally:
        helpers.Gcf.destroy_all()


def use_formats(formatters: dict[str, Any], formats: Iterable[str]) -> None:
    """Show figures as pictures of these kinds, and of no other."""
    from matplotlib.figure import Figure

    for kind, mime in KINDS.items():
        formatters[mime].for_type(Figure, saver(kind) if kind in formats else nothing)


def saver(kind: str) -> Callable[[Figure], bytes | str]:
    """Return a function that draws a figure as a picture of one kind."""

    def save(figure: Figure) -> bytes | str:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, bbox_inches="tight")
        return buffer.getvalue() if kind == "png" else buffer.getvalue().decode("utf-8")

    return save


def nothing(figure: Figure) -> None:
    """Have no picture of this kind."""
