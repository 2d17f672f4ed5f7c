"""From seconds to verdicts: each kind of target, met and missed."""

from __future__ import annotations

import pytest

from benchmarks.evaluate import group_record, row_record
from benchmarks.rows import MEBIBYTE, Group, find

_, ROW = find("tiny", "(4, 4)")


def group(rows: int = 1, **fields) -> Group:
    return Group("a group", "work", "others", (ROW,) * rows, **fields)


def record(of: Group, *ratios: float) -> dict:
    rows = [row_record(of, [ratio], [1.0]) for ratio in ratios]
    return group_record("a table", of, rows)


@pytest.mark.parametrize(("ratio", "met"), [(1.05, True), (1.06, False)])
def test_a_bound_on_each_holds_for_the_value_of_a_row(ratio, met):
    row = row_record(group(each=1.05), [ratio] * 3, [1.0] * 3)
    assert row["value"] == pytest.approx(ratio)
    assert row["met"] is met


@pytest.mark.parametrize(("more", "met"), [(9e-6, True), (11e-6, False)])
def test_slack_lets_a_short_call_take_some_microseconds_more(more, met):
    assert row_record(group(each=1.03, slack=10e-6), [1e-6 + more], [1e-6])["met"] is met


def test_without_slack_microseconds_do_not_count():
    assert row_record(group(each=1.03), [1.04e-6], [1e-6])["met"] is False


def test_a_value_with_a_unit_is_ours_alone():
    memory = group(each=8, unit="MiB", unit_size=MEBIBYTE, measured="memory")
    row = row_record(memory, [3 * MEBIBYTE], [999 * MEBIBYTE])
    assert (row["value"], row["met"]) == (3.0, True)
    assert row_record(memory, [9 * MEBIBYTE], [999 * MEBIBYTE])["met"] is False
    per_append = group(each=6, unit="µs", unit_size=8192 / 1e6)
    assert row_record(per_append, [8192 * 5e-6], [1.0])["value"] == pytest.approx(5)


def test_a_group_is_met_if_the_mean_is_within_its_bound_and_every_row_in_its_own():
    bounds = group(2, each=1.0, mean=0.8)
    assert record(bounds, 0.5, 1.0)["met"] is True
    assert record(bounds, 0.5, 1.1)["met"] is False
    assert record(bounds, 0.9, 1.0)["met"] is False
    assert record(bounds, 0.5, 1.0)["mean"] == pytest.approx(0.5**0.5)


def test_a_mean_alone_lets_single_rows_be_slower():
    assert record(group(2, mean=0.8), 0.4, 1.2)["met"] is True


def test_a_group_without_a_target_is_neither_met_nor_missed():
    assert record(group(), 3.0)["met"] is None


def test_a_group_of_which_a_row_is_missing_or_failed_has_no_verdict():
    bounds = group(2, each=1.0)
    part = record(bounds, 0.5)
    assert (part["whole"], part["met"]) == (False, None)
    failed = group_record("a table", bounds, [row_record(bounds, [0.5], [1.0]), {"error": "no"}])
    assert (failed["whole"], failed["met"]) == (False, None)
    nothing = group_record("a table", bounds, [{"error": "no"}, {"error": "no"}])
    assert (nothing["largest"], nothing["met"]) == (None, None)


def test_a_mean_is_taken_of_ratios_only():
    memory = group(2, each=8, unit="MiB", unit_size=1.0)
    rows = [row_record(memory, [bytes_held], [1.0]) for bytes_held in (0.0, 3.0)]
    assert group_record("a table", memory, rows)["mean"] is None
