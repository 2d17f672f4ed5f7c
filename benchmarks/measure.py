"""Time and memory of a call, in the process that makes it.

Sides are interleaved: every round times each of them once, so that a slower or busier minute
slows them all. A ratio is the median over rounds of the ratio within a round.
"""

import ctypes
import gc
import math
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

Call = Callable[[], Any]
Timer = Callable[[Call, int], float]


class Budget(NamedTuple):
    """How long to measure."""

    fewest_rounds: int
    most_rounds: int
    seconds: float
    """Rounds go on until one side has taken so long in all."""
    sample: float
    """Short calls are repeated until a sample takes so long."""


FULL = Budget(fewest_rounds=5, most_rounds=60, seconds=1.5, sample=0.02)
QUICK = Budget(fewest_rounds=3, most_rounds=3, seconds=0.0, sample=0.005)
BUDGETS = {"full": FULL, "quick": QUICK}


def cpu_seconds(call: Call, calls: int) -> float:
    """CPU time of the process: all its threads count, so that work cannot hide on another one."""
    start = time.process_time()
    for _ in range(calls):
        call()
    return time.process_time() - start


def wall_seconds(call: Call, calls: int) -> float:
    """Time on the clock."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return time.perf_counter() - start


def own_seconds(call: Call, calls: int) -> float:
    """What the calls say that they took: they measure themselves, in processes of their own."""
    return sum(call() for _ in range(calls))


def calls_in_sample(call: Call, timer: Timer, budget: Budget) -> int:
    """How many calls make a sample long enough for the clock."""
    calls = 1
    while (seconds := timer(call, calls)) < budget.sample / 4:
        calls *= 4
    return max(1, math.ceil(budget.sample * calls / seconds))


def interleave(
    sides: Mapping[str, Call], *, timer: Timer = cpu_seconds, budget: Budget = FULL
) -> dict[str, list[float]]:
    """Seconds a call for every side, one number a round."""
    calls = {name: calls_in_sample(call, timer, budget) for name, call in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    taken = dict.fromkeys(sides, 0.0)
    order = list(sides)
    was_collecting = gc.isenabled()
    gc.collect()
    gc.disable()  # a collection would fall on one side
    try:
        while goes_on(len(seconds[order[0]]), max(taken.values()), budget):
            for name in order:
                sample = timer(sides[name], calls[name])
                taken[name] += sample
                seconds[name].append(sample / calls[name])
            order.reverse()
    finally:
        if was_collecting:
            gc.enable()
    return seconds


def goes_on(rounds: int, seconds: float, budget: Budget) -> bool:
    """Whether to measure one more round after so many, the slowest side having taken so long."""
    if rounds < budget.fewest_rounds:
        return True
    return rounds < budget.most_rounds and seconds < budget.seconds


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over rounds of ours / theirs."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def geometric_mean(numbers: Sequence[float]) -> float:
    """The mean that suits ratios: twice as fast and twice as slow give 1."""
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def summary(seconds: Sequence[float]) -> dict[str, float | int]:
    """A side's rounds in a few numbers; ``spread`` is the distance of the quartiles / median."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return {
        "median": float(middle),
        "fastest": float(min(seconds)),
        "spread": float((high - low) / middle) if middle else 0.0,
        "rounds": len(seconds),
    }


def difference(ours: Any, theirs: Any) -> float:
    """The largest absolute difference of two results, each an array, a tensor or a tuple."""
    pairs = zip(_arrays(ours), _arrays(theirs), strict=True)
    return max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs)


def _arrays(result: Any) -> list[np.ndarray]:
    if isinstance(result, tuple | list):
        return [array for part in result for array in _arrays(part)]
    if hasattr(result, "detach"):
        result = result.detach().cpu().double()
    return [np.asarray(result, dtype=np.float64)]


def _size(result: Any) -> int:
    if isinstance(result, tuple | list):
        return sum(map(_size, result))
    return getattr(result, "nbytes", 0)


def numpy_peak(call: Call) -> int:
    """The most bytes that a call of NumPy holds at once, its result not counted."""
    gc.collect()
    tracemalloc.start()
    try:
        result = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak - _size(result)


def resident_peak(call: Call) -> int:
    """By how many bytes a call raises the memory of the process, its result not counted.

    For libraries that tracemalloc does not see. Linux only, and right only for the first large
    call of a process: later ones may use memory that earlier ones left behind.
    """
    gc.collect()
    _return_freed_memory()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = _status("VmRSS")
    result = call()
    return _status("VmHWM") - before - _size(result)


def _return_freed_memory() -> None:
    """Give what the allocator keeps back to the system, so that using it again is seen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise LookupError(f"/proc/self/status has no {field}")
