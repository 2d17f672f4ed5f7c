"""Print and figure settings that every chapter shares.

Figures are shown as SVG that is the same to the byte on every run, follows a dark page, and
carries its own alternative text: what ``fig.set_label("...")`` says becomes the SVG's title.
"""

from __future__ import annotations

import ast
import functools
import importlib.abc
import importlib.util
import inspect
import io
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colours that stay apart for colour-blind readers and stand out on white and on black: four of
# the palette of Okabe and Ito (2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")

# Lines and letters are drawn in these and change on a dark page; colours inside a heatmap, and
# text on top of them, are other shades and stay.
INK, PAPER, GRID = "#000000", "#ffffff", "#cccccc"
DARK_INK, DARK_PAPER, DARK_GRID = "#e6e6e6", "#121212", "#5a5a5a"

# The browser hands the page's colour scheme to the image, so the picture follows the theme
# switch.  Tick marks are <use> copies, which only selectors without an ancestor reach.
DARK_STYLE = f"""
@media (prefers-color-scheme: dark) {{
svg.attnlib-figure {{ fill: {DARK_INK} }}
path[style*='fill: {PAPER}'] {{ fill: {DARK_PAPER} !important }}
path[style*='fill: {INK}'] {{ fill: {DARK_INK} !important }}
path[style*='stroke: {INK}'], use[style*='stroke: {INK}'] {{ stroke: {DARK_INK} !important }}
path[style*='stroke: {PAPER}'] {{ stroke: {DARK_PAPER} !important }}
path[style*='stroke: {GRID}'] {{ stroke: {DARK_GRID} !important }}
}}
"""

FIGURE_STYLE = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.figsize": (6.0, 3.4),
    "font.size": 10.0,
    "grid.color": GRID,
    "image.cmap": "Blues",
    "legend.frameon": False,
    "svg.fonttype": "path",  # the reader's machine need not have the font
    "svg.hashsalt": "attnlib",  # else the ids in the file are random
}


def setup() -> None:
    """Set how a notebook prints numbers and shows figures.

    Numbers are printed with four decimals, so that the last bits, which differ from one
    processor to the next, are not shown.  Matplotlib is styled when it is imported: a page that
    only prints need not wait for it.  Outside IPython, or without Matplotlib, what cannot be
    set is left alone.

    Examples
    --------
    >>> setup()
    >>> import numpy as np
    >>> print(np.array([1 / 3, 2 / 3]))
    [0.3333 0.6667]
    """
    np.set_printoptions(precision=4, suppress=True, linewidth=88)
    if "matplotlib" in sys.modules:
        _style_figures()
    else:
        sys.meta_path.insert(0, _StyleOnImport())


def figure_to_svg(figure: Figure) -> str:
    """Return a Matplotlib figure as SVG text that never changes from run to run.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The figure.  Its label is the alternative text.

    Returns
    -------
    str
        An ``<svg>`` element without prolog, ready to stand in a page or in a file.

    Raises
    ------
    ValueError
        If the figure has no label: a reader who cannot see it needs one.
    """
    if not figure.get_label():
        raise ValueError('figure: needs its alternative text, fig.set_label("what is seen")')
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Title": figure.get_label()}
    figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]  # without the XML prolog it may stand inside HTML
    text = text.replace("<svg ", '<svg class="attnlib-figure" role="img" ', 1)
    return text.replace('<style type="text/css">', f'<style type="text/css">{DARK_STYLE}', 1)


def show_source(function: Callable) -> None:
    """Show the code of a library function, without its docstring, as the page's own code.

    The text is read from the library, so that a chapter cannot show code that the library no
    longer has.

    Parameters
    ----------
    function : callable
        A function written in Python.
    """
    from IPython.display import Markdown, display

    display(Markdown(f"```python\n{source_without_docstring(function)}\n```"))


def source_without_docstring(function: Callable) -> str:
    """Return the source of a function without its docstring.

    Parameters
    ----------
    function : callable
        A function written in Python.

    Returns
    -------
    str
        The code from ``def`` (or its decorators) to the last line.
    """
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    definition = ast.parse("\n".join(lines)).body[0]
    if ast.get_docstring(definition) is not None:
        docstring = definition.body[0]
        del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(lines)


class _StyleOnImport(importlib.abc.MetaPathFinder):
    """Styles figures as soon as Matplotlib is there, and is gone then."""

    def find_spec(self, name, path=None, target=None):
        if name != "matplotlib":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            spec.loader.exec_module = functools.partial(_load_and_style, spec.loader)
        return spec


def _load_and_style(loader, module) -> None:
    del loader.exec_module  # the loader's own again; others may use the same loader
    loader.exec_module(module)
    _style_figures()


def _style_figures() -> None:
    import matplotlib as mpl

    mpl.rcParams.update(FIGURE_STYLE)
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLOURS)
    shell = _running_kernel()
    if shell is None:
        return
    from matplotlib.figure import Figure
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    set_matplotlib_formats("svg")
    shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, figure_to_svg)


def _running_kernel():
    """Return the IPython shell of a notebook kernel, or None elsewhere."""
    if importlib.util.find_spec("IPython") is None:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return shell if hasattr(shell, "kernel") else None
