"""What a measuring process can be asked: each function takes and returns what JSON can hold."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine, measure, sweep
from benchmarks.calls import Call, tiny
from benchmarks.rows import Row, find

_TIMERS = {"cpu": measure.cpu_seconds, "own": measure.own_seconds}


class DifferenceError(Exception):
    """Two sides that should agree do not: their times would mean nothing."""


class _Prepared:
    """The call of the running wall-clock measurement, between requests."""

    call: Call | None = None
    calls = 1


def describe() -> dict[str, Any]:
    """The machine and the libraries."""
    return machine.describe()


def compare(group: str, row: str, budget: str) -> dict[str, Any]:
    """Seconds of both sides, interleaved, and how far their results are apart."""
    found, case = find(group, row)
    sides = both_sides(case)
    apart = check_agreement(case, sides)
    timer = _TIMERS[found.measured]
    return {
        "seconds": measure.interleave(sides, timer=timer, budget=measure.BUDGETS[budget]),
        "apart": apart,
    }


def both_sides(row: Row) -> dict[str, Call]:
    """The two calls of a row, each on inputs of its own."""
    sides = {"ours": row.ours(row.make(row.sizes)), "theirs": row.theirs(row.make(row.sizes))}
    _hold_torch()
    return sides


def check_agreement(row: Row, sides: dict[str, Call]) -> float | None:
    """How far the results are apart; raises if that is more than the row allows."""
    if row.tolerance is None:
        return None
    apart = measure.difference(sides["ours"](), sides["theirs"]())
    if not apart <= row.tolerance:
        raise DifferenceError(f"results differ by {apart:.2e}, more than {row.tolerance:.0e}")
    return apart


def prepare(group: str, row: str, side: str, budget: str) -> None:
    """Make the call of one side, ready to be sampled."""
    _, case = find(group, row)
    call = getattr(case, side)(case.make(case.sizes))
    _hold_torch()
    _Prepared.call = call
    _Prepared.calls = measure.calls_in_sample(call, measure.wall_seconds, measure.BUDGETS[budget])


def sample() -> dict[str, float]:
    """One sample of the prepared call: seconds a call, and how busy others kept the machine."""
    busy, own = _busy_seconds(), _own_seconds()
    taken = measure.wall_seconds(_Prepared.call, _Prepared.calls)
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    return {
        "seconds": taken / _Prepared.calls,
        "taken": taken,
        "others": max(0.0, others) / taken,
    }


def peak(group: str, row: str, side: str) -> int:
    """The most bytes that one side holds beyond its result. For a fresh process."""
    _, case = find(group, row)
    return peak_of(getattr(case, side), case)


def peak_of(side: Callable[[Any], Call], row: Row) -> int:
    side(row.make(tiny(row.sizes)))()  # imports, thread pools and tables are not what is asked
    call = side(row.make(row.sizes))
    # A process that measures NumPy has not imported torch, and tracemalloc sees all of NumPy.
    return measure.resident_peak(call) if "torch" in sys.modules else measure.numpy_peak(call)


def sweep_times(length: int, budget: str) -> dict[str, list[float]]:
    """Seconds of every way to attend, at one length."""
    calls = sweep.calls_at(length)
    _hold_torch()
    return measure.interleave(calls, budget=measure.BUDGETS[budget])


def sweep_peak(length: int, series: str) -> int:
    """The most bytes that one way to attend holds, at one length. For a fresh process."""
    return peak_of(sweep.SERIES[series], sweep.row_at(length))


def _hold_torch() -> None:
    """PyTorch takes its threads from the environment; what it may not have read is said again."""
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(int(threads))


def _busy_seconds() -> float:
    """CPU time of the whole machine since it started; 0 where it does not say."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    ticks = [int(number) for number in path.read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system
