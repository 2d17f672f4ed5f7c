"""From seconds to what is recorded: values of rows, and whether targets are met."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.measure import geometric_mean, ratio, summary
from benchmarks.rows import Group


def row_record(
    group: Group, ours: Sequence[float], theirs: Sequence[float], difference: float | None = None
) -> dict[str, Any]:
    """Both sides in a few numbers, the row's value, and whether that is within its bound."""
    sides = {"ours": summary(ours), "theirs": summary(theirs)}
    value = row_value(group, ours, theirs)
    return {**sides, "value": value, "met": is_met(group, value, sides), "difference": difference}


def row_value(group: Group, ours: Sequence[float], theirs: Sequence[float]) -> float:
    """A ratio, or ours in the group's unit."""
    return ratio(ours, theirs) if group.unit == "×" else median(ours) / group.unit_size


def is_met(group: Group, value: float, sides: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether a value is within its group's bound, or ours within the slack; None: no bound."""
    if group.each is None:
        return None
    more = sides["ours"]["median"] - sides["theirs"]["median"]
    return value <= group.each or (group.slack > 0 and more <= group.slack)


def group_record(table: str, group: Group, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A group in words and numbers, with what its rows come to."""
    values = [row["value"] for row in rows if "value" in row]
    is_whole = len(values) == len(group.rows)
    mean = geometric_mean(values) if values and group.unit == "×" else None
    return {
        "table": table,
        "name": group.name,
        "work": group.work,
        "against": group.against,
        "measured": group.measured,
        "unit": group.unit,
        "target": {"each": group.each, "mean": group.mean, "slack": group.slack},
        "mean": mean,
        "largest": max(values, default=None),
        "met": _is_group_met(group, rows, mean) if is_whole else None,
        "whole": is_whole,
    }


def _is_group_met(
    group: Group, rows: Sequence[Mapping[str, Any]], mean: float | None
) -> bool | None:
    if group.each is None and group.mean is None:
        return None
    within_mean = group.mean is None or mean <= group.mean
    return within_mean and not any(row["met"] is False for row in rows)
