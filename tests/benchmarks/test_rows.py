"""Every row of the benchmarks: it can be made, and its two sides compute the same."""

from __future__ import annotations

import dataclasses
import itertools
import tempfile
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from attnlib.engines import numpy_tiled
from benchmarks import operations
from benchmarks.calls import Sizes, dense, import_of, library, library_without, tiny
from benchmarks.rows import Group, Row, all_groups, find
from benchmarks.tricks import GROUPS as TRICKS
from tests.kinds import needs_torch

GROUPS = [group for _, group in all_groups()]
ROWS = [(group, row) for group in GROUPS for row in group.rows if group.measured != "own"]

each_row = pytest.mark.parametrize(
    ("group", "row"), ROWS, ids=[f"{group.name}: {row.name}" for group, row in ROWS]
)


def made_tiny(row: Row) -> Row:
    return dataclasses.replace(row, sizes=tiny(row.sizes))


@needs_torch
@each_row
def test_both_sides_of_a_row_agree(group: Group, row: Row):
    sides = operations.both_sides(made_tiny(row))
    apart = operations.check_agreement(row, sides)
    if row.tolerance is None:
        assert all(side() is not None for side in sides.values())
    else:
        assert apart <= row.tolerance


def test_names_of_rows_are_unique():
    assert len({group.name for group in GROUPS}) == len(GROUPS)
    for group in GROUPS:
        assert len({row.name for row in group.rows}) == len(group.rows)
        assert all(find(group.name, row.name) == (group, row) for row in group.rows)


def test_only_rows_that_compare_different_things_have_no_tolerance():
    different = {group.name for group, row in ROWS if row.tolerance is None}
    assert different == {"window length", "window", "cache", "skipping"}


@needs_torch
def test_a_row_with_a_wrong_result_is_not_timed():
    _, row = find("forward", "(1, 8, 1024, 64)")
    wrong = dataclasses.replace(made_tiny(row), ours=lambda inputs: library(inputs, scale=0.5))
    with pytest.raises(operations.DifferenceError, match="differ by"):
        operations.check_agreement(wrong, operations.both_sides(wrong))


@pytest.mark.parametrize("group", TRICKS, ids=lambda group: group.name)
def test_the_engine_without_a_trick_goes_another_way_to_the_same_result(group: Group):
    row = group.rows[-1]
    if row.tolerance is None:
        assert group.against == "all pairs"  # nothing is switched off: another call is compared
        return
    inputs = row.make(Sizes((3,), 310, 8, dtype="float64"))  # more than one task, tile and step
    changes = {name: recorded(change) for name, change in row.theirs.keywords["changes"].items()}
    found = library_without(inputs, changes)()
    np.testing.assert_allclose(found, row.ours(inputs)(), atol=1e-12)
    assert all(change.calls for change in changes.values() if callable(change))


def recorded(change: Any) -> Any:
    """A function that counts its calls in place of another; what is no function stays."""
    if not callable(change):
        return change

    def recorder(*arguments: Any) -> Any:
        recorder.calls += 1
        return change(*arguments)

    recorder.calls = 0
    return recorder


def test_a_trick_is_switched_off_while_the_call_runs_and_not_after():
    workers, before = Mock(return_value=1), numpy_tiled.worker_count
    changes = {"_WHOLE": 0, "worker_count": workers}  # 0: the call is cut up and asks for workers
    assert library_without(dense(Sizes((), 4, 4)), changes)().shape == (4, 4)
    workers.assert_called_once_with()
    assert numpy_tiled.worker_count is before
    with pytest.raises(AttributeError):
        library_without(dense(Sizes((), 4, 4)), {"_no_such_trick": 0})()


def test_imports_are_timed_with_compiled_code_even_where_it_may_not_be_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    timed = import_of("attnlib.causal")
    assert [path.parent.name for path in tmp_path.rglob("causal*.pyc")] == ["attnlib"]
    assert timed() > 0


def test_tiny_sizes_keep_what_makes_a_row_special():
    every = [tiny(row.sizes) for _, row in ROWS]
    for sizes, (_, row) in zip(every, ROWS, strict=True):
        assert np.prod(sizes.lead) * sizes.L * sizes.keys <= 4 * 40 * 72
        assert (sizes.L == 1) == (row.sizes.L == 1)
        assert (sizes.Ev is None) == (row.sizes.Ev is None)
        assert (sizes.window is None) == (row.sizes.window is None)
        assert (sizes.kv_heads is None) == (row.sizes.kv_heads is None)
        assert sizes.dtype == row.sizes.dtype
    assert any(sizes.window and sizes.window < sizes.L for sizes in every)
    assert any(sizes.kv_heads and sizes.kv_heads < sizes.lead[-1] for sizes in every)


def test_inputs_are_the_same_every_time():
    for _, row in itertools.islice(ROWS, 0, None, 10):
        sizes = tiny(row.sizes)
        first, second = row.make(sizes), row.make(sizes)
        assert np.array_equal(np.asarray(first.query), np.asarray(second.query))
        assert first.query is not second.query
