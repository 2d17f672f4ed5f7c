"""Tables and picture from a record: what they say, and that the columns line up."""

from __future__ import annotations

import json

import pytest

from benchmarks import tables
from benchmarks.evaluate import group_record, row_record
from benchmarks.rows import find
from benchmarks.sweep import ATTNLIB, FUSED, LIMIT, THREE_LINES
from tests.benchmarks.records import record_of

FORWARD, FIRST = find("forward", "(1, 12, 512, 64)")
NAMES = [row.name for row in FORWARD.rows]
POINTS = [
    {
        "length": 64,
        "seconds": {ATTNLIB: 0.002, FUSED: 0.003, THREE_LINES: 0.004, LIMIT: 0.001},
        "bytes": {ATTNLIB: 1 << 20, FUSED: 2 << 20, THREE_LINES: 4 << 20},
    },
    {
        "length": 128,
        "seconds": {ATTNLIB: 0.02, FUSED: 0.03, LIMIT: 0.01},
        "bytes": {ATTNLIB: 1 << 20, FUSED: 3 << 20},
    },
]


def record(ratios: list[float | None], points=()) -> dict:
    rows = [
        {"group": "forward", "row": name}
        | ({"error": "out of memory"} if ratio is None else row_record(FORWARD, [ratio], [1.0]))
        for name, ratio in zip(NAMES, ratios, strict=True)
    ]
    return record_of([group_record("NumPy engine", FORWARD, rows)], rows, points)


def lines_of(text: str, start: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {start}")]


def test_a_met_target_is_called_met_with_its_mean_and_its_largest_value():
    text = tables.report(record([0.8] * 5 + [1.02]))
    (line,) = lines_of(text, "all pairs")
    assert "mean ≤ 1.00 ×, each ≤ 1.05 ×" in line
    assert "mean 0.83 ×, largest 1.02 ×" in line
    assert line.endswith("| met        |") or line.endswith("| met |")


def test_a_missed_row_is_named_in_both_tables():
    text = tables.report(record([0.8] * 5 + [1.06]))
    assert text.count("**missed**") == 2
    assert "**missed**" in lines_of(text, "forward: (1, 1, 16384, 64)")[0]


def test_a_failed_row_says_why_and_leaves_its_group_without_a_verdict():
    text = tables.report(record([None] + [0.8] * 5))
    (line,) = lines_of(text, f"forward: {FIRST.name}")
    assert "out of memory" in line
    assert "**failed**" in line
    assert "in part" in lines_of(text, "all pairs")[0]


def test_columns_line_up_on_a_terminal():
    for table in tables.report(record([0.8] * 6, POINTS)).split("\n\n"):
        if table.startswith("|"):
            lines = table.strip().splitlines()
            assert len({len(line) for line in lines}) == 1
            assert len({line.count("|") for line in lines}) == 1


def test_the_head_says_what_was_measured_where():
    head = tables.header(record([0.8] * 6))
    for part in (
        "abcdef012345 with changes",
        "A processor",
        "avx2",
        "Haswell",
        "2.4.6",
        "full run",
    ):
        assert part in head
    assert "interrupted" in tables.header(record([0.8] * 6) | {"interrupted": True})


def test_a_way_that_was_not_measured_at_a_length_has_empty_cells():
    text = tables.sweep_table(POINTS)
    (line,) = lines_of(text, "128")
    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        "128",
        "20.0 ms",
        "30.0 ms",
        "",
        "10.0 ms",
        "1.00 MiB",
        "3.00 MiB",
        "",
    ]


@pytest.mark.parametrize(
    ("amount", "text"),
    [(2.5, "2.50 s"), (0.0123, "12.3 ms"), (4.2e-5, "42.0 µs"), (123e-6, "123 µs"), (None, "")],
)
def test_seconds_are_printed_in_the_unit_that_fits(amount, text):
    assert tables.seconds(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"), [(1 / 15, "0.067"), (1.05, "1.05"), (13.66, "13.7"), (1536.0, "1536")]
)
def test_numbers_have_as_many_places_as_are_read(amount, text):
    assert tables.number(amount) == text


def test_a_record_survives_json_with_the_same_tables():
    before = record([0.8] * 6, POINTS)
    assert tables.report(json.loads(json.dumps(before))) == tables.report(before)
