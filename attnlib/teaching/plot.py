"""Pictures of attention: rows are queries, columns are keys, in every one.

Each function returns a Matplotlib figure whose label, the alternative text, says what is seen.
Matplotlib is imported when a picture is drawn, not before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attnlib.teaching.notebook import COLOURS, GRID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# Text drawn on a coloured cell keeps its colour on a dark page: these are not the ink and paper
# that change there (see attnlib.teaching.notebook). Of a darker grey or an off-white, neither
# would stand out 4.5 to 1 from the middle of a colour scale.
DARK_TEXT, LIGHT_TEXT = "#010101", "#fefefe"
EXCLUDED = "#d9d9d9"
LARGEST_PRINTED = 12  # cells a side; beyond it numbers would not be legible
# Colours from 0 up, and from 0 both ways: above it blue, below it red, which colour-blind readers
# tell apart.
UPWARDS, BOTH_WAYS = "Blues", "RdBu"


@dataclass(frozen=True)
class Stage:
    """One matrix on the way from dot products to outputs, as `stages` draws it.

    Attributes
    ----------
    title : str
        Its name, such as "scores".
    matrix : array_like, shape (L, S) or (L, Ev)
        The numbers, which give the colours.
    text : sequence of sequences of str, optional
        What to print in the cells, for example fractions.  Default: the numbers.
    visible : array_like of bool, same shape, optional
        True = may attend.  Other cells are drawn grey and hatched.
    columns : sequence of str, optional
        Names of the columns.  Default: ``k₀``, ``k₁``, …
    limits : tuple of float, optional
        Ends of the colour scale.  Default: from 0 to the largest number; if there are numbers
        below 0, as far below it as above.
    """

    title: str
    matrix: ArrayLike
    text: Sequence[Sequence[str]] | None = None
    visible: ArrayLike | None = None
    columns: Sequence[str] | None = None
    limits: tuple[float, float] | None = None


def heatmap(
    matrix: ArrayLike,
    *,
    alt: str,
    title: str = "",
    visible: ArrayLike | None = None,
    text: Sequence[Sequence[str]] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    label: str = "weight",
    limits: tuple[float, float] = (0.0, 1.0),
    signed: bool = False,
) -> Figure:
    """Draw one matrix with a query a row and a key a column.

    Parameters
    ----------
    matrix : array_like, shape (L, S)
        Weights or scores.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.
    title : str, optional
        Heading of the picture.
    visible : array_like of bool, shape (L, S), optional
        True = may attend.  Other cells are drawn grey and hatched.
    text : sequence of sequences of str, optional
        What to print in the cells, for example fractions.  Default: the numbers.
    query_labels, key_labels : sequence of str, optional
        Tick labels.  Default: positions from 0.
    label : str, default "weight"
        Name of the colour scale.
    limits : tuple of float, default (0, 1)
        Ends of the colour scale.
    signed : bool, default False
        Draw 0 in white, numbers above it blue and numbers below it red, equally far in both
        directions, and do without `limits`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    names = {"query_labels": query_labels, "key_labels": key_labels}
    return heatmaps(
        [matrix],
        alt=alt,
        titles=[title],
        visible=visible,
        texts=None if text is None else [text],
        label=label,
        limits=limits,
        signed=signed,
        **names,
    )


def heatmaps(
    matrices: Sequence[ArrayLike],
    *,
    alt: str,
    titles: Sequence[str],
    visible: ArrayLike | None = None,
    texts: Sequence[Sequence[Sequence[str]]] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    label: str = "weight",
    limits: tuple[float, float] = (0.0, 1.0),
    signed: bool = False,
) -> Figure:
    """Draw matrices side by side on one shared colour scale, so that colours can be compared.

    Parameters
    ----------
    matrices : sequence of array_like, each of shape (L, S)
        Weights or scores, for example one matrix a head.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.
    titles : sequence of str
        One heading a matrix.
    visible : array_like of bool, shape (L, S) or one such matrix a heatmap, optional
        True = may attend.  Other cells are drawn grey and hatched.
    texts : sequence, optional
        For each matrix, what to print in its cells.  Default: the numbers.
    query_labels, key_labels : sequence of str, optional
        Tick labels.  Default: positions from 0.
    label : str, default "weight"
        Name of the colour scale.
    limits : tuple of float, default (0, 1)
        Ends of the colour scale.
    signed : bool, default False
        Draw 0 in white, numbers above it blue and numbers below it red, equally far in both
        directions, and do without `limits`.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt

    arrays = [np.asarray(matrix, dtype=float) for matrix in matrices]
    if signed:
        limits = _both_ways(*arrays)
    L, S = arrays[0].shape
    width = min(1.6 + len(arrays) * (0.55 * min(S, 8) + 0.9), 9.0)
    height = 1.2 + 0.45 * min(L, 8)
    masks = None if visible is None else np.broadcast_to(visible, (len(arrays), L, S))
    figure, axes = plt.subplots(1, len(arrays), figsize=(width, height), squeeze=False)
    for number, (ax, array) in enumerate(zip(axes[0], arrays, strict=True)):
        mask = None if masks is None else masks[number]
        colours = BOTH_WAYS if signed else UPWARDS
        image = ax.imshow(array, vmin=limits[0], vmax=limits[1], cmap=colours)
        ax.set_title(titles[number])
        _label_axes(ax, array.shape, query_labels, key_labels, first=number == 0)
        if mask is not None:
            _grey_out(ax, mask)
        if max(array.shape) <= LARGEST_PRINTED:
            printed = None if texts is None else texts[number]
            _print_numbers(ax, array, printed, image, mask)
    figure.colorbar(image, ax=list(axes[0]), label=label, shrink=0.9)
    figure.set_label(alt)
    return figure


def patterns(masks: Sequence[ArrayLike], *, alt: str, titles: Sequence[str]) -> Figure:
    """Draw which pairs several kinds of attention look at, side by side.

    Parameters
    ----------
    masks : sequence of array_like of bool, each of shape (L, S)
        True = the pair is looked at: a dark cell.  Other cells are light.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.
    titles : sequence of str
        One heading a mask.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    rows = math.ceil(len(masks) / 3)  # more than three beside each other are tiny on a phone
    columns = math.ceil(len(masks) / rows)
    size = (1.9 * columns + 0.4, 2.1 * rows + 0.2)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False)
    for number, (ax, mask) in enumerate(zip(axes.flat, masks, strict=False)):
        array = np.asarray(mask, dtype=float)
        ax.imshow(array, vmin=0.0, vmax=1.0, cmap=ListedColormap([EXCLUDED, COLOURS[0]]))
        ax.set_title(titles[number])
        _label_axes(ax, array.shape, None, None, first=number % columns == 0)
        _rule_cells(ax, array.shape)
    for ax in axes.flat[len(masks) :]:
        ax.set_axis_off()
    figure.set_label(alt)
    return figure


def stages(panels: Sequence[Stage], *, alt: str, width: int = 2) -> Figure:
    """Draw a whole example in one picture: its stages in reading order, numbers in the cells.

    Parameters
    ----------
    panels : sequence of Stage
        The stages, for example dot products, scores, weights and output.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.
    width : int, default 2
        How many stages stand beside each other.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt

    arrays = [np.asarray(panel.matrix, dtype=float) for panel in panels]
    rows = math.ceil(len(panels) / width)
    most = max(max(array.shape) for array in arrays)
    size = (width * (0.6 * most + 0.5), rows * (0.45 * most + 0.75))
    figure, axes = plt.subplots(rows, width, figsize=size, squeeze=False)
    for ax, panel, array in zip(axes.flat, panels, arrays, strict=False):
        signed = bool((array < 0).any())
        limits = panel.limits or (_both_ways(array) if signed else (0.0, float(array.max())))
        colours = BOTH_WAYS if signed else UPWARDS
        image = ax.imshow(array, vmin=limits[0], vmax=limits[1], cmap=colours, aspect="auto")
        ax.set_title(panel.title)
        names = panel.columns or [f"$k_{{{j}}}$" for j in range(array.shape[1])]
        ax.set_xticks(range(array.shape[1]), names)
        ax.set_yticks(range(array.shape[0]), [f"$q_{{{i}}}$" for i in range(array.shape[0])])
        ax.spines[:].set(visible=True, color=GRID)
        ax.tick_params(length=0)
        visible = None if panel.visible is None else np.asarray(panel.visible)
        if visible is not None:
            _grey_out(ax, visible)
        _print_numbers(ax, array, panel.text, image, visible)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    figure.set_label(alt)
    return figure


def steps_picture(
    rows: Sequence[tuple[str, Sequence[float], Sequence[str]]],
    *,
    alt: str,
    key_labels: Sequence[str] | None = None,
    output: tuple[Sequence[float], Sequence[str]] | None = None,
) -> Figure:
    """Draw the steps of one query as rows of numbers, from dot products down to the output.

    A row with a number below 0 has colours that go both ways from 0, blue above and red below.

    Parameters
    ----------
    rows : sequence of (name, numbers, printed)
        One step a row: its name, a number for each key (the colour), and what to print there.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.
    key_labels : sequence of str, optional
        Names of the columns.  Default: ``k₀``, ``k₁``, …
    output : (numbers, printed), optional
        The output, drawn last: a number for each of its entries, and what to print there.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt

    S = len(rows[0][1])
    names = key_labels if key_labels is not None else [f"$k_{{{j}}}$" for j in range(S)]
    rows = [*rows, *([] if output is None else [("output", *output)])]
    figure, axes = plt.subplots(len(rows), 1, figsize=(1.8 + 1.1 * S, 0.75 * len(rows)))
    for ax, (name, numbers, printed) in zip(np.atleast_1d(axes), rows, strict=True):
        array = np.asarray(numbers, dtype=float)[np.newaxis]
        signed = bool((array < 0).any())
        limits = _both_ways(array) if signed else (0.0, max(float(array.max()), 1e-9))
        colours = BOTH_WAYS if signed else UPWARDS
        image = ax.imshow(array, vmin=limits[0], vmax=limits[1], cmap=colours, aspect="auto")
        ax.set_yticks([0], [name])
        ax.set_xticks([])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        _print_numbers(ax, array, [printed], image, None)
    top, bottom = np.atleast_1d(axes)[[0, -1]]
    top.set_xticks(range(S), names)
    top.xaxis.tick_top()
    if output is not None:
        bottom.set_xticks(range(len(output[0])), [f"entry {c}" for c in range(len(output[0]))])
    figure.set_label(alt)
    return figure


def balance_picture(
    values: ArrayLike, weights: ArrayLike, *, labels: Sequence[str], alt: str
) -> Figure:
    """Draw values of width 2 as points that pull on the output, each as hard as its weight.

    Parameters
    ----------
    values : array_like, shape (S, 2)
        The values, one point a row.
    weights : array_like, shape (S,)
        The weights of one query; a line is as thick as its weight.
    labels : sequence of str
        What to print beside each value.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt

    values, weights = np.asarray(values, dtype=float), np.asarray(weights, dtype=float)
    output = weights @ values
    centred = {"ha": "center", "va": "center"}
    figure, ax = plt.subplots(figsize=(5.4, 3.6))
    for value, weight, label in zip(values, weights, labels, strict=True):
        rope = zip(value, output, strict=True)
        ax.plot(*rope, color=COLOURS[0], linewidth=16 * weight, alpha=0.4)
        ax.plot(*value, marker="o", markersize=9, color=COLOURS[0])
        side = 1 if value[1] >= output[1] else -1  # away from the output, so off the line
        ax.annotate(label, value, (0, 16 * side), textcoords="offset points", **centred)
    ax.plot(*output, marker="D", markersize=9, color=COLOURS[1])
    ax.annotate("output", output, (12, 0), textcoords="offset points", va="center")
    ax.set(xlabel="entry 0", ylabel="entry 1")
    ax.margins(0.2)
    figure.set_label(alt)
    return figure


def _both_ways(*arrays: np.ndarray) -> tuple[float, float]:
    """Return limits as far below 0 as above it, so that the middle colour means 0."""
    largest = max(float(np.abs(array).max()) for array in arrays)
    return -largest, largest


def _label_axes(
    ax: Axes,
    shape: tuple[int, int],
    query_labels: Sequence[str] | None,
    key_labels: Sequence[str] | None,
    *,
    first: bool,
) -> None:
    L, S = shape
    for axis, size, labels in ((ax.yaxis, L, query_labels), (ax.xaxis, S, key_labels)):
        if labels is not None:
            axis.set_ticks(range(size), labels)
        elif size <= LARGEST_PRINTED:
            axis.set_ticks(range(size))
    ax.set_xlabel("key position" if key_labels is None else "key")
    if first:
        ax.set_ylabel("query position" if query_labels is None else "query")
    ax.spines[:].set(visible=True, color=GRID)  # a frame: weights near 0 look like the page
    ax.tick_params(length=0)


def _rule_cells(ax: Axes, shape: tuple[int, int]) -> None:
    """Draw lines between the cells, so that they can be counted; label every third of many."""
    for axis, size, rule in ((ax.yaxis, shape[0], ax.axhline), (ax.xaxis, shape[1], ax.axvline)):
        axis.set_ticks(range(0, size, 3 if size > 6 else 1))
        for edge in range(1, size):
            rule(edge - 0.5, color=LIGHT_TEXT, linewidth=0.6)


def _grey_out(ax: Axes, visible: np.ndarray) -> None:
    from matplotlib.patches import Rectangle

    for i, j in np.argwhere(~visible):
        cell = Rectangle(
            (j - 0.5, i - 0.5), 1, 1, facecolor=EXCLUDED, edgecolor="#a0a0a0", linewidth=0
        )
        cell.set_hatch("///")
        ax.add_patch(cell)


def _print_numbers(
    ax: Axes,
    array: np.ndarray,
    printed: Sequence[Sequence[str]] | None,
    image: AxesImage,
    visible: ArrayLike | None,
) -> None:
    shown = np.ones(array.shape, bool) if visible is None else np.asarray(visible)
    for (i, j), number in np.ndenumerate(array):
        if not shown[i, j]:
            continue
        text = f"{number:.2f}" if printed is None else printed[i][j]
        colour = _letters_on(image.cmap(image.norm(number)))
        ax.text(j, i, text, ha="center", va="center", color=colour, fontsize=9)


def _letters_on(cell: Sequence[float]) -> str:
    """Return the colour, of dark and light text, that stands out more from a cell."""
    from matplotlib.colors import to_rgb

    return max((DARK_TEXT, LIGHT_TEXT), key=lambda text: _contrast(to_rgb(text), cell))


def _contrast(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the contrast of two colours by the accessibility guidelines of the web, 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    parts = np.asarray(colour[:3])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))
