"""Measure rows and the sweep over lengths, and put it all into one record."""

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, TextIO

from benchmarks import machine, measure, sweep
from benchmarks.child import Child, MeasuringError
from benchmarks.evaluate import group_record, row_record
from benchmarks.rows import Group, Row, all_groups

Chosen = tuple[str, Group, Row]

SCHEMA = 1
_QUIET = 0.05  # how much of a core others may use during a sample that counts
_PAUSE = 0.05  # seconds in which idle worker threads of the side before fall asleep


class Progress:
    """A bar on standard error: how much is done, and what is being measured."""

    def __init__(self, steps: int, stream: TextIO = sys.stderr):
        self._steps, self._stream = steps, stream
        self._done, self._start = 0, time.monotonic()

    def show(self, doing: str) -> None:
        """Say what is being measured now."""
        if self._stream.isatty():
            self._stream.write("\r" + self._line(doing).ljust(100)[:100])
        else:
            self._stream.write(self._line(doing) + "\n")
        self._stream.flush()

    def step(self) -> None:
        """One more is done."""
        self._done += 1

    def close(self) -> None:
        """Clear the line."""
        if self._stream.isatty():
            self._stream.write("\r" + " " * 100 + "\r")

    def _line(self, doing: str) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        filled = 20 * self._done // max(1, self._steps)
        bar = "█" * filled + "·" * (20 - filled)
        return f"{bar} {self._done}/{self._steps} {minutes}:{seconds:02} {doing}"


class _OneThread:
    """One process for all rows on one thread; a new one after a failure."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def ask(self, operation: str, **arguments: Any) -> Any:
        if self._child is None:
            self._child = Child(threads=1)
        try:
            return self._child.ask(operation, **arguments)
        except MeasuringError:
            self.close()
            raise

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def chosen(pattern: str) -> list[Chosen]:
    """The rows whose full name, "table: group: row", has a match of the pattern."""
    return [
        (table, group, row)
        for table, group in all_groups()
        for row in group.rows
        if re.search(pattern, f"{table}: {group.name}: {row.name}", re.IGNORECASE)
    ]


def measure_all(
    rows: Sequence[Chosen],
    lengths: Sequence[int] = (),
    *,
    budget: str = "full",
    stream: TextIO = sys.stderr,
) -> dict[str, Any]:
    """Measure, and return the record that the tables and the picture are made from."""
    progress = Progress(len(rows) + len(lengths), stream)
    with Child(threads=0) as child:
        facts = child.ask("describe")
    record = {
        "schema": SCHEMA,
        "date": machine.now(),
        **machine.commit(),
        "budget": budget,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "machine": facts,
        "threads": {"cpu": 1, "own": facts["cores"], "wall": 2, "memory": facts["cores"]},
        "interrupted": False,
        "groups": [],
        "rows": [],
        "sweep": [],
    }
    try:
        for row in _measured_rows(rows, budget, progress):
            record["rows"].append(row)
        for point in _measured_lengths(lengths, budget, progress):
            record["sweep"].append(point)
    except KeyboardInterrupt:
        record["interrupted"] = True
    record["groups"] = _groups(record["rows"])
    progress.close()
    return record


def _groups(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    records = []
    for table, group in all_groups():
        own = [row for row in rows if row["group"] == group.name]
        if own:
            records.append(group_record(table, group, own))
    return records


def _measured_rows(
    rows: Sequence[Chosen], budget: str, progress: Progress
) -> Iterator[dict[str, Any]]:
    with closing(_OneThread()) as one_thread:
        for _, group, row in rows:
            progress.show(f"{group.name}: {row.name}")
            names = {"group": group.name, "row": row.name}
            try:
                if group.measured == "wall":
                    yield names | _on_the_clock(group, row, budget)
                elif group.measured == "memory":
                    yield names | _memory(group, row)
                else:
                    found = one_thread.ask("compare", **names, budget=budget)
                    yield names | row_record(group, **found["seconds"], difference=found["apart"])
            except MeasuringError as error:
                yield names | {"error": str(error)}
            progress.step()


def _on_the_clock(group: Group, row: Row, budget: str) -> dict[str, Any]:
    """Each side in a process of its own, as the idle threads of one would slow the other."""
    limits = measure.BUDGETS[budget]
    samples: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    with ExitStack() as stack:
        sides = {side: stack.enter_context(Child(threads=2)) for side in samples}
        for side, child in sides.items():
            child.ask("prepare", group=group.name, row=row.name, side=side, budget=budget)
        while _needs_more(samples, limits):
            for side, child in sides.items():
                time.sleep(_PAUSE)
                samples[side].append(child.ask("sample"))
    rounds = list(zip(samples["ours"], samples["theirs"], strict=True))
    quiet = [pair for pair in rounds if max(side["others"] for side in pair) <= _QUIET]
    disturbed = len(quiet) < 3
    ours, theirs = zip(*(rounds if disturbed else quiet), strict=True)
    sides = ([sample["seconds"] for sample in side] for side in (ours, theirs))
    return row_record(group, *sides) | {"disturbed": disturbed}


def _needs_more(samples: dict[str, list[dict[str, float]]], limits: measure.Budget) -> bool:
    taken = {side: sum(sample["taken"] for sample in part) for side, part in samples.items()}
    return measure.goes_on(len(samples["ours"]), max(taken.values()), limits)


def _memory(group: Group, row: Row) -> dict[str, Any]:
    """Each side in a fresh process; bytes take the place of seconds."""
    peaks = {}
    for side in ("ours", "theirs"):
        with Child(threads=0) as child:
            peaks[side] = [child.ask("peak", group=group.name, row=row.name, side=side)]
    return row_record(group, **peaks)


def _measured_lengths(
    lengths: Sequence[int], budget: str, progress: Progress
) -> Iterator[dict[str, Any]]:
    for length in lengths:
        progress.show(f"length {length}")
        with Child(threads=1) as child:
            seconds = child.ask("sweep_times", length=length, budget=budget)
        peaks = {}
        for series in sweep.series_at(length):
            with Child(threads=1) as child:
                peaks[series] = child.ask("sweep_peak", length=length, series=series)
        yield sweep.point(length, seconds, peaks)
        progress.step()
