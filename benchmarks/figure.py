"""The book's picture of time and memory against length, from a record of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnlib.teaching.notebook import COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D")


def time_and_memory(points: Sequence[dict[str, Any]], *, alt: str) -> Figure:
    """Draw time and memory against length on logarithmic axes, one line for each way to attend.

    Parameters
    ----------
    points : sequence of dict
        What a record of results has under "sweep": for each "length" the "seconds" and the
        "bytes" by name. A name without bytes is a limit, and drawn dashed.
    alt : str
        Alternative text: what is seen, for a reader who cannot see it.

    Returns
    -------
    matplotlib.figure.Figure
        The figure; its label is `alt`.
    """
    import matplotlib.pyplot as plt

    # One above the other: beside each other their letters would be tiny on a phone.
    figure, (times, peaks) = plt.subplots(2, 1, figsize=(5.6, 6.4), sharex=True)
    _draw(times, points, "seconds", 1e-3, "milliseconds")
    _draw(peaks, points, "bytes", 1 << 20, "MiB beyond the output")
    handles, labels = times.get_legend_handles_labels()
    peaks.set_xlabel("length")
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    figure.set_label(alt)
    return figure


def _draw(ax: Axes, points: Sequence[dict[str, Any]], kind: str, unit: float, label: str) -> None:
    for number, name in enumerate(points[0][kind]):
        pairs = [(point["length"], point[kind].get(name, 0) / unit) for point in points]
        lengths, heights = zip(*(pair for pair in pairs if pair[1] > 0), strict=True)
        if name in points[0]["bytes"]:
            style = {"color": COLOURS[number % 4], "marker": _MARKERS[number % 4], "markersize": 4}
        else:
            style = {"color": INK, "linestyle": "--"}
        ax.plot(lengths, heights, label=name, **style)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylabel(label)
    ax.set_xticks([point["length"] for point in points][::2])
    ax.xaxis.set_major_formatter(lambda length, _: f"{length:.0f}")
    ax.grid(True, color=GRID, linewidth=0.6)
