"""Measuring: sides alternate, ratios are taken round by round, peaks leave the result out."""

from __future__ import annotations

import gc
import sys
import threading
import time

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.measure import Budget

THREE_ROUNDS = Budget(fewest_rounds=3, most_rounds=3, seconds=0.0, sample=1.0)
MEBIBYTE = 1 << 20


class Clock:
    """A timer for which a call of a side takes as long as that side says."""

    def __init__(self):
        self.log = []

    def __call__(self, call, calls):
        self.log.append((call(), calls))
        return {"a": 1.0, "b": 4.0}[call()] * calls


def test_sides_alternate_and_take_turns_in_being_first():
    clock = Clock()
    seconds = measure.interleave(
        {"a": lambda: "a", "b": lambda: "b"}, timer=clock, budget=THREE_ROUNDS
    )
    assert seconds == {"a": [1.0] * 3, "b": [4.0] * 3}
    calibration, rounds = clock.log[:2], clock.log[2:]
    assert [name for name, _ in calibration] == ["a", "b"]
    assert [name for name, _ in rounds] == ["a", "b", "b", "a", "a", "b"]


def test_no_garbage_is_collected_during_a_sample():
    seen = []

    def timer(call, calls):
        seen.append(gc.isenabled())
        return 1.0

    measure.interleave({"a": lambda: None}, timer=timer, budget=THREE_ROUNDS)
    assert seen[1:] == [False] * 3
    assert gc.isenabled()


def test_short_calls_are_repeated_until_a_sample_is_long_enough():
    budget = THREE_ROUNDS._replace(sample=0.5)
    calls = measure.calls_in_sample(lambda: None, lambda call, calls: 0.01 * calls, budget)
    assert calls == 50
    assert measure.calls_in_sample(lambda: None, lambda call, calls: 2.0 * calls, budget) == 1


def test_calls_too_short_for_the_clock_are_counted_all_the_same():
    def coarse(call, calls):
        return (calls // 10) * 0.1  # ticks every ten calls

    calls = measure.calls_in_sample(lambda: None, coarse, THREE_ROUNDS._replace(sample=1.0))
    assert 50 <= calls <= 200


@pytest.mark.parametrize(
    ("rounds", "seconds", "expected"),
    [(4, 99.0, True), (5, 0.5, True), (5, 2.0, False), (9, 0.0, False)],
)
def test_rounds_go_on_for_the_fewest_rounds_and_then_for_the_time(rounds, seconds, expected):
    assert measure.goes_on(rounds, seconds, Budget(5, 9, 1.0, 0.1)) is expected


def test_a_ratio_is_the_median_of_the_ratios_of_the_rounds():
    # The machine was twice as slow in the last two rounds, for both sides alike.
    assert measure.ratio([1.0, 1.0, 2.0, 2.2], [2.0, 2.0, 4.0, 4.0]) == pytest.approx(0.5)
    assert measure.ratio([1.0, 6.0, 3.0], [1.0, 2.0, 4.0]) == 1.0  # medians alone give 3 / 2
    with pytest.raises(ValueError, match="zip"):
        measure.ratio([1.0], [1.0, 2.0])


def test_twice_as_fast_and_twice_as_slow_have_the_geometric_mean_one():
    assert measure.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert measure.geometric_mean([0.25, 1.0, 1.0, 1.0]) == pytest.approx(0.25**0.25)


def test_a_summary_names_median_fastest_and_spread():
    assert measure.summary([4.0, 1.0, 2.0, 3.0, 5.0]) == {
        "median": 3.0,
        "fastest": 1.0,
        "spread": pytest.approx(2 / 3),
        "rounds": 5,
    }


def test_the_cpu_clock_counts_work_and_not_sleep():
    assert measure.cpu_seconds(lambda: time.sleep(0.05), 2) < 0.05
    assert measure.wall_seconds(lambda: time.sleep(0.05), 2) >= 0.1
    assert measure.cpu_seconds(lambda: sum(range(200_000)), 1) > 0


def test_the_cpu_clock_counts_the_work_of_other_threads():
    def work_elsewhere():
        thread = threading.Thread(target=lambda: sum(range(400_000)))
        thread.start()
        thread.join()

    before = time.thread_time()
    counted = measure.cpu_seconds(work_elsewhere, 1)
    assert counted > 2 * (time.thread_time() - before)


def test_calls_that_measure_themselves_are_added_up():
    assert measure.own_seconds(lambda: 0.25, 4) == 1.0


def test_a_difference_is_the_largest_one_in_any_part_of_a_result():
    first, second = np.zeros((2, 3)), np.zeros((2, 3))
    second[1, 2] = -0.5
    assert measure.difference(first, second) == 0.5
    assert measure.difference((first, first), [first, second]) == 0.5
    assert measure.difference(first, first) == 0.0


def test_a_difference_to_nan_is_within_no_tolerance():
    assert not measure.difference(np.zeros(2), np.array([0.0, np.nan])) <= 1e9


def test_the_peak_of_numpy_counts_what_is_temporary_and_not_the_result():
    def call():
        temporary = np.ones(3 * MEBIBYTE, np.uint8)
        return temporary[: 2 * MEBIBYTE] + temporary[:1]

    assert measure.numpy_peak(call) == pytest.approx(3 * MEBIBYTE, abs=4096)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which is Linux's")
def test_the_resident_peak_counts_what_is_temporary_and_not_the_result():
    def call():
        temporary = np.ones(96 * MEBIBYTE, np.uint8)
        return temporary[: 32 * MEBIBYTE] + temporary[:1]

    assert measure.resident_peak(call) == pytest.approx(96 * MEBIBYTE, rel=0.05)
