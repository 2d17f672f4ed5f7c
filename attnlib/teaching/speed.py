"""What the clock said: tables and a picture of a record of ``benchmarks``, for chapter 3.

The record is ``attnlib.teaching.records.load("speed")``; ``make bench`` measures a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnlib.teaching.notebook import COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = ("o", "s", "^", "D")
_TRICKS = "what each trick buys"


def conditions(record: Mapping[str, Any]) -> str:
    """Return one sentence that says where a record was measured, and with what.

    Parameters
    ----------
    record : mapping
        What ``python -m benchmarks`` wrote.

    Returns
    -------
    str
        Processor, cores, versions and commit.
    """
    machine = record["machine"]
    numpy, torch = machine["numpy"], machine["torch"]
    blas = ", ".join(f"{pool['internal_api']} {pool['version']}" for pool in numpy["blas"])
    return (
        f"Measured at commit {record['commit'][:7]}: "
        f"{machine['processor']}, {machine['cores']} cores with {machine['flags'][-1]}, "
        f"Python {machine['python']}, NumPy {numpy['version']} with {blas}, "
        f"PyTorch {torch['version']}."
    )


def ratios(record: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return a Markdown table of how long attnlib takes, as a multiple of something else.

    Parameters
    ----------
    record : mapping
        What ``python -m benchmarks`` wrote.
    names : iterable of str
        The groups of rows to show.

    Returns
    -------
    str
        A line for each group: geometric mean and largest of the ratios of its rows.
    """
    lines = ["| attnlib on NumPy | against | mean | largest |", "|---|---|---|---|"]
    for name in names:
        group = _group(record, name)
        cells = group["work"], group["against"], _times(group["mean"]), _times(group["largest"])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def what_tricks_buy(record: Mapping[str, Any]) -> str:
    """Return a Markdown table of how much longer the NumPy engine takes without each trick.

    Parameters
    ----------
    record : mapping
        What ``python -m benchmarks`` wrote.

    Returns
    -------
    str
        A line for each trick, the one that buys most first.
    """
    groups = [group for group in record["groups"] if group["table"] == _TRICKS]
    groups.sort(key=lambda group: group["mean"])
    lines = ["| trick | time without it |", "|---|---|"]
    lines += [f"| {group['work']} | {_times(1 / group['mean'])} |" for group in groups]
    return "\n".join(lines)


def time_and_memory(points: Sequence[Mapping[str, Any]], *, alt: str) -> Figure:
    """Draw time and memory against length on logarithmic axes, one line for each way to attend.

    Parameters
    ----------
    points : sequence of mapping
        What a record has under "sweep": for each "length" the "seconds" and the "bytes" by name.
        A name without bytes is a limit, and drawn dashed.
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


def _group(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    for group in record["groups"]:
        if group["name"] == name:
            return group
    known = ", ".join(group["name"] for group in record["groups"])
    raise ValueError(f"names: the record has no group {name!r}, it has {known}")


def _times(ratio: float) -> str:
    """A ratio with two places, fewer where it is large; its sign stays on its line."""
    return f"{ratio:.{2 if ratio < 10 else 0}f}\N{NO-BREAK SPACE}×"


def _draw(
    ax: Axes, points: Sequence[Mapping[str, Any]], kind: str, unit: float, label: str
) -> None:
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
