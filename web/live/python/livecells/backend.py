"""The backend of Matplotlib in live cells: drawn by Agg, shown by the page."""

from __future__ import annotations

from matplotlib.backend_bases import FigureManagerBase as FigureManager
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas
from matplotlib.figure import Figure

from livecells import session
from livecells.figures import show_figures, use_formats

__all__ = ["FigureCanvas", "FigureManager", "show"]


def show(*args: object, **kwargs: object) -> None:
    """Show all open figures, and close them."""
    show_figures(session.shell.display)


# Until a chapter chooses otherwise. This module is imported with the first figure; a choice that
# was made before it stays.
if not session.shell.display_formatter.formatters["image/svg+xml"].lookup_type(Figure):
    use_formats(session.shell.display_formatter.formatters, ["png"])
