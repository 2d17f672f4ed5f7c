"""Tables from a record of results, as Markdown whose columns line up on a terminal too."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

_VERDICTS = {True: "met", False: "**missed**", None: ""}


def report(record: Mapping[str, Any]) -> str:
    """Everything: the machine, for each table its targets and its rows, the sweep."""
    parts = [header(record)]
    for name in dict.fromkeys(group["table"] for group in record["groups"]):
        groups = [group for group in record["groups"] if group["table"] == name]
        parts += [f"## {name}", targets_table(groups), rows_table(groups, record["rows"])]
    if record["sweep"]:
        parts += ["## time and memory against length", sweep_table(record["sweep"])]
    return "\n\n".join(parts) + "\n"


def header(record: Mapping[str, Any]) -> str:
    """One paragraph that says what was measured where."""
    machine = record["machine"]
    blas = ", ".join(
        f"{pool['internal_api']} {pool['version']} ({pool['architecture']})"
        for pool in machine["numpy"]["blas"]
    )
    commit = (record["commit"] or "unknown")[:12] + (" with changes" if record["dirty"] else "")
    ended = ", interrupted" if record["interrupted"] else ""
    return (
        f"{record['date']}, commit {commit}, load {record['load']}, {record['budget']} run{ended}. "
        f"{machine['processor']}, {machine['cores']} cores ({' '.join(machine['flags'])}); "
        f"Python {machine['python']}, NumPy {machine['numpy']['version']} with {blas}, "
        f"PyTorch {machine['torch']['version']} ({machine['torch']['instructions']})."
    )


def targets_table(groups: Sequence[Mapping[str, Any]]) -> str:
    """One line for each group: its target and what was measured."""
    lines = [("work", "against", "target", "measured", "")]
    for group in groups:
        verdict = _VERDICTS[group["met"]] if group["whole"] else "in part"
        line = group["work"], group["against"], target(group), measured(group), verdict
        lines.append(line)
    return aligned(lines)


def target(group: Mapping[str, Any]) -> str:
    """A group's target in words."""
    bounds, unit = group["target"], group["unit"]
    parts = [
        f"{name} ≤ {number(bounds[name])} {unit}"
        for name in ("mean", "each")
        if bounds[name] is not None
    ]
    return ", ".join(parts) + (f" or {1e6 * bounds['slack']:.0f} µs" if bounds["slack"] else "")


def measured(group: Mapping[str, Any]) -> str:
    """The geometric mean of a group's ratios, and its largest value."""
    if group["largest"] is None:
        return "failed"
    largest = f"{number(group['largest'])} {group['unit']}"
    if group["mean"] is None or math.isclose(group["mean"], group["largest"]):
        return largest
    return f"mean {number(group['mean'])} {group['unit']}, largest {largest}"


def rows_table(groups: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each row: both sides, the value, its bound."""
    lines = [("row", "ours", "theirs", "value", "bound", "")]
    for group in groups:
        for row in rows:
            if row["group"] == group["name"]:
                lines.append((f"{group['name']}: {row['row']}", *_cells(group, row)))
    return aligned(lines)


def _cells(group: Mapping[str, Any], row: Mapping[str, Any]) -> Sequence[str]:
    if "error" in row:
        return "", "", row["error"], "", "**failed**"
    show = mebibytes if group["measured"] == "memory" else seconds
    each = group["target"]["each"]
    return (
        show(row["ours"]["median"]),
        show(row["theirs"]["median"]),
        f"{number(row['value'])} {group['unit']}",
        "" if each is None else f"≤ {number(each)}",
        _VERDICTS[row["met"]] + (" (disturbed)" if row.get("disturbed") else ""),
    )


def sweep_table(points: Sequence[Mapping[str, Any]]) -> str:
    """Time and memory of every way to attend, a line for each length."""
    times, peaks = (list(points[0][kind]) for kind in ("seconds", "bytes"))
    lines = [("length", *times, *(f"{name}: memory" for name in peaks))]
    for point in points:
        spent = (seconds(point["seconds"].get(name)) for name in times)
        held = (mebibytes(point["bytes"].get(name)) for name in peaks)
        lines.append((str(point["length"]), *spent, *held))
    return aligned(lines)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with columns of one width; the first line is its head."""
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(_line(cells, widths) for cells in (lines[0], rule, *lines[1:]))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def seconds(amount: float | None) -> str:
    """Seconds in a unit that leaves few digits; empty for None."""
    if amount is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if amount >= size:
            return f"{number(amount / size)} {unit}"
    return f"{number(amount / 1e-6)} µs"


def mebibytes(amount: float | None) -> str:
    """Bytes in MiB; empty for None."""
    return "" if amount is None else f"{number(amount / (1 << 20))} MiB"


def number(amount: float) -> str:
    """Three digits, or two places after the point of a ratio."""
    magnitude = abs(amount)
    places = 3 if magnitude < 0.1 else 2 if magnitude < 10 else 1 if magnitude < 100 else 0
    return f"{amount:.{places}f}"
