"""The NumPy engine from inside: what it computes, what it skips, and what it keeps in memory.

Results show none of this, so these tests enter the engine and spy on its parts. That the results
are right is held at the public functions.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlib import attention_gradients, scaled_dot_product_attention
from attnlib.engines import _blas_threads, numpy_tiled
from attnlib.engines._validate import Call, validate
from tests import reference

MEBIBYTE = 2**20


def random_arrays(*shapes: tuple[int, ...], dtype: str = "float64", seed: int = 710) -> list:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def sequences(L: int, S: int, *, heads: int = 1, E: int = 8, dtype: str = "float32") -> list:
    """Return query, key and value whose scores are small enough to be bounded."""
    return random_arrays((heads, L, E), (heads, S, E), (heads, S, E + 3), dtype=dtype)


def tiled_call(L: int, S: int, **options: Any) -> Call:
    """Return a call as the tiled part of the engine sees it."""
    return numpy_tiled._broadcast(validate(*sequences(L, S, E=1), **options))


def cut(monkeypatch, **sizes: int) -> None:
    """Cut calls into small tiles, blocks and groups, whatever their size."""
    small = {"WHOLE": 0, "QUERIES": 7, "KEYS": 5, "MOST_KEYS": 11, "TILE": 60, "STAIR": 3}
    for name, size in (small | {"GROUP": 60} | sizes).items():
        monkeypatch.setattr(numpy_tiled, f"_{name}", size)


def count_calls(monkeypatch, name: str) -> list:
    """Return a list that grows by the arguments of each call of an engine's function."""
    calls, function = [], getattr(numpy_tiled, name)

    def spy(*arguments, **options):
        calls.append(arguments)
        return function(*arguments, **options)

    monkeypatch.setattr(numpy_tiled, name, spy)
    return calls


def float_mask(*shape: int) -> np.ndarray:
    mask = np.random.default_rng(712).normal(size=shape)
    return np.where(mask > 0.9, -np.inf, mask)


OPTIONS = {
    "dense": {},
    "causal": {"is_causal": True},
    "causal with empty rows": {"is_causal": True, "causal_offset": -4},
    "offset for each item": {"is_causal": True, "causal_offset": np.array([2, -30])},
    "window": {"window": (6, 3)},
    "wide window": {"window": (17, 0), "causal_offset": 2},
    "padding": {"key_mask": np.arange(23) < np.array([[9], [23]])},
    "padding with holes": {"key_mask": np.arange(23) % np.array([[4], [30]]) != 2},
    "bool mask": {"attn_mask": np.random.default_rng(711).random((6, 19, 23)) < 0.4},
    "float mask": {"attn_mask": float_mask(19, 23)},
    "softcap": {"softcap": 0.7, "scale": -1.3},
    "groups": {"enable_gqa": True},
    "large scores": {"scale": 60.0},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def call_for(options: dict[str, Any], dtype: str = "float64") -> list:
    """Return arrays with B = 2, Hq = 6, L = 19, S = 23, E = 4, Ev = 5."""
    heads = 2 if "enable_gqa" in options else 6
    return random_arrays((2, 6, 19, 4), (2, heads, 23, 4), (2, heads, 23, 5), dtype=dtype)


def split_mask(options: dict[str, Any]) -> tuple[np.ndarray | None, dict[str, Any]]:
    others = {name: option for name, option in options.items() if name != "attn_mask"}
    return options.get("attn_mask"), others


EXPECTED = {
    name: reference.attention(*call_for(options), **options) for name, options in OPTIONS.items()
}


class TestCuts:
    """No result depends on how a call is cut up."""

    @pytest.mark.parametrize("name", OPTIONS)
    @pytest.mark.parametrize(
        "sizes",
        [{}, {"QUERIES": 2, "KEYS": 2, "TILE": 4}, {"QUERIES": 16, "TILE": 400}, {"STAIR": 1}],
        ids=str,
    )
    def test_change_nothing_but_the_time(self, monkeypatch, name, sizes):
        cut(monkeypatch, **sizes)
        options, (output, weights) = OPTIONS[name], EXPECTED[name]
        results = scaled_dot_product_attention(*call_for(options), return_weights=True, **options)
        np.testing.assert_allclose(results[0], output, atol=1e-12)
        np.testing.assert_allclose(results[1], weights, atol=1e-12)
        assert np.all(results[1][weights == 0] == 0)

    @each_option
    def test_change_no_gradient(self, monkeypatch, options):
        arrays = [*call_for(options), *random_arrays((2, 6, 19, 5), seed=713)]
        mask, others = split_mask(options)
        whole = attention_gradients(*arrays, mask, **others)
        cut(monkeypatch)
        in_pieces = attention_gradients(*arrays, mask, **others)
        for piecewise, at_once in zip(in_pieces, whole, strict=True):
            np.testing.assert_allclose(piecewise, at_once, atol=1e-11)

    @each_option
    def test_between_threads_change_no_bit(self, monkeypatch, options):
        arrays = call_for(options, "float32")
        grad_output, *_ = random_arrays((2, 6, 19, 5), dtype="float32")
        mask, others = split_mask(options)

        def results() -> list[np.ndarray]:
            output = scaled_dot_product_attention(*arrays, mask, **others)
            return [output, *attention_gradients(*arrays, grad_output, mask, **others)]

        cut(monkeypatch, WORK_PER_THREAD=1)
        monkeypatch.setattr(numpy_tiled, "worker_count", lambda: 1)
        alone = results()
        monkeypatch.setattr(numpy_tiled, "worker_count", lambda: 4)
        for shared, by_one in zip(results(), alone, strict=True):
            np.testing.assert_array_equal(shared, by_one)


class TestTiles:
    @given(
        length=st.integers(1, 40),
        keys=st.integers(1, 40),
        offset=st.integers(-45, 45),
        left=st.none() | st.integers(0, 45),
        right=st.none() | st.integers(0, 45),
    )
    def test_hold_every_visible_pair_once(self, length, keys, offset, left, right):
        with pytest.MonkeyPatch.context() as monkeypatch:
            cut(monkeypatch)
            call = tiled_call(length, keys, window=(left, right), causal_offset=offset)
            held = np.zeros((length, keys), dtype=int)
            for task in numpy_tiled._tasks(call):
                for tile in numpy_tiled._tiles(task):
                    held[task.start : task.stop][tile.rows, tile.keys] += allowed_in(tile)
        distance = np.arange(keys) - np.arange(length)[:, None] - offset
        low, high = -100 if left is None else -left, 100 if right is None else right
        np.testing.assert_array_equal(held, (low <= distance) & (distance <= high))

    @pytest.mark.parametrize(
        ("options", "share"),
        [
            ({}, 1.0),
            ({"is_causal": True}, 0.5),
            ({"is_causal": True, "causal_offset": 2048}, 1.0),
            ({"is_causal": True, "causal_offset": -1024}, 1 / 8),
            ({"window": (127, 128)}, 1 / 8),
            ({"key_mask": np.arange(2048) < 512}, 1 / 4),
            ({"key_mask": np.arange(2048) >= 1536, "is_causal": True}, 1 / 32),
        ],
        ids=str,
    )
    def test_cost_what_they_attend_to(self, options, share):
        pairs = scored_pairs(tiled_call(2048, 2048, **options))
        assert share * 2048**2 <= pairs <= 1.3 * share * 2048**2

    def test_of_a_window_grow_with_the_length_and_not_with_its_square(self):
        half, full = (scored_pairs(tiled_call(m, m, window=(63, 0))) for m in (2048, 4096))
        assert full < 2.1 * half

    @pytest.mark.parametrize(
        ("lead", "length", "number"),
        [((), 512, 1), ((), 1024, 8), ((12,), 512, 12), ((4,), 512, 8), ((), 16384, 32)],
    )
    def test_are_dealt_in_tasks_enough_to_share(self, lead, length, number):
        query, key, value = (np.ones((*lead, length, 64), np.float32) for _ in range(3))
        call = numpy_tiled._broadcast(validate(query, key, value))
        assert len(numpy_tiled._tasks(call)) == number

    @pytest.mark.parametrize("as_float", [False, True])
    def test_that_a_mask_empties_are_skipped(self, monkeypatch, as_float):
        mask = np.tri(512, dtype=bool)
        if as_float:
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        cut(monkeypatch, QUERIES=64, KEYS=64, MOST_KEYS=64, TILE=128 * 64)
        products = count_calls(monkeypatch, "_scores")
        scaled_dot_product_attention(*sequences(512, 512), mask)
        assert len(products) == 8 * 9 // 2  # of 8 x 8 tiles, those on and below the diagonal

    def test_that_padding_empties_are_skipped(self, monkeypatch):
        cut(monkeypatch, QUERIES=64, KEYS=64, MOST_KEYS=64, TILE=64 * 64)
        products = count_calls(monkeypatch, "_scores")
        real = np.repeat([True, False, False, True], 64)
        scaled_dot_product_attention(*sequences(64, 256), key_mask=real)
        assert len(products) == 2


def allowed_in(tile: Any) -> np.ndarray:
    """Return the pairs of a tile that its edge leaves, from its own numbers."""
    rows, keys = tile.rows.stop - tile.rows.start, tile.keys.stop - tile.keys.start
    allowed = np.ones((rows, keys), dtype=bool)
    if tile.edge is not None:
        part = allowed[tile.edge.rows, tile.edge.keys]
        distance = np.arange(part.shape[1]) - np.arange(part.shape[0])[:, None]
        part &= (tile.edge.low <= distance) & (distance <= tile.edge.high)
    return allowed


def scored_pairs(call: Call) -> int:
    """Return how many scores the tiles of a call hold."""
    tiles = (tile for task in numpy_tiled._tasks(call) for tile in numpy_tiled._tiles(task))
    return sum((t.rows.stop - t.rows.start) * (t.keys.stop - t.keys.start) for t in tiles)


class TestMemory:
    """Beyond its result a call keeps a few tiles, however long the sequence is."""

    @pytest.mark.parametrize(
        ("dtype", "options"),
        [
            ("float64", {}),
            ("float16", {}),
            ("float16", {"scale": 100.0}),
            ("float32", {"is_causal": True}),
            ("float32", {"window": (100, 0)}),
            ("float32", {"softcap": 5.0}),
            ("float32", {"key_mask": np.arange(4096) % 3 > 0}),
            ("float32", {"attn_mask": np.arange(4096) % 3 > 0}),
            ("float32", {"attn_mask": np.linspace(-1, 1, 4096)[:, None]}),
        ],
        ids=[
            "double",
            "half",
            "running",
            "causal",
            "window",
            "softcap",
            "padding",
            "bool",
            "float",
        ],
    )
    def test_does_not_grow_with_the_score_matrix(self, dtype, options):
        arrays = sequences(4096, 4096, dtype=dtype)
        scores = 4096 * 4096 * np.dtype(dtype).itemsize
        peak, output = peak_of(scaled_dot_product_attention, *arrays, **options)
        assert peak < output.nbytes + 8 * MEBIBYTE < scores

    def test_of_gradients_does_not_grow_with_the_score_matrix(self):
        arrays = sequences(4096, 4096)
        peak, gradients = peak_of(attention_gradients, *arrays, np.ones_like(arrays[2]))
        assert peak < sum(gradient.nbytes for gradient in gradients) + 8 * MEBIBYTE

    @pytest.mark.parametrize("length", [1, 2], ids=["one query", "several queries"])
    def test_does_not_hold_keys_repeated_for_their_group(self, length):
        query, key, value = random_arrays(
            (32, length, 64), (2, 8192, 64), (2, 8192, 64), dtype="float32"
        )
        peak, _ = peak_of(scaled_dot_product_attention, query, key, value, enable_gqa=True)
        assert peak < key.nbytes

    def test_does_not_hold_broadcast_keys(self):
        """Half precision is copied a tile at a time, once for all that share the tile."""
        query, key, value = random_arrays((8, 2, 64), (1, 8192, 64), (8192, 64), dtype="float16")
        peak, _ = peak_of(scaled_dot_product_attention, query, key, value)
        assert peak < 4 * MEBIBYTE

    def test_does_not_hold_a_cast_copy_of_all_keys(self):
        query, key, value = random_arrays((1, 3, 64), (1, 32768, 64), (1, 32768, 64))
        query, key, value = (array.astype("float16") for array in (query, key, value))
        peak, _ = peak_of(scaled_dot_product_attention, query, key, value)
        assert peak < 4 * MEBIBYTE < key.nbytes * 2


def peak_of(function: Any, *arguments: Any, **options: Any) -> tuple[int, Any]:
    """Return the largest number of bytes allocated during a call, and its result."""
    tracemalloc.start()
    try:
        result = function(*arguments, **options)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


class TestBoundedScores:
    def test_need_no_maximum(self, monkeypatch):
        running = count_calls(monkeypatch, "_attend_running")
        scaled_dot_product_attention(*sequences(300, 300))
        assert running == []

    @pytest.mark.parametrize("number", [np.nan, np.inf, 1e30, 15.0])
    @pytest.mark.parametrize("which", [0, 1], ids=["query", "key"])
    def test_are_not_assumed_where_they_may_be_large(self, monkeypatch, number, which):
        bounded = count_calls(monkeypatch, "_attend_bounded")
        arrays = sequences(300, 300)
        arrays[which][0, [7, 290]], arrays[1 - which][...] = number, 1.0  # in both blocks
        scaled_dot_product_attention(*arrays)
        assert bounded == []

    @pytest.mark.parametrize("sign", [-1, 1])
    def test_are_exact_up_to_the_bound(self, monkeypatch, sign):
        """All scores of a row at the bound: the sums are as far from 1 as they may get."""
        running = count_calls(monkeypatch, "_attend_running")
        bound = numpy_tiled._safe_score(np.dtype(np.float32)) * 0.999
        query, key, value = sequences(300, 300, E=1)
        query[...], key[...] = sign, bound
        np.testing.assert_allclose(
            scaled_dot_product_attention(query, key, value),
            np.broadcast_to(value.mean(axis=1, keepdims=True), value.shape),
            atol=1e-6,
        )
        assert running == []

    def test_with_huge_values_are_computed_again_with_a_maximum(self):
        """Exponentials near 2^40 times values near 2^100 overflow, their quotient does not."""
        query, key, value = sequences(300, 300, E=1)
        query[...], key[...], value[...] = 5.0, 5.0, 2.0**100
        np.testing.assert_allclose(scaled_dot_product_attention(query, key, value), value)


class TestCare:
    def test_is_not_taken_with_finite_arrays(self, monkeypatch):
        careful = count_calls(monkeypatch, "_selected_product")
        scaled_dot_product_attention(*sequences(300, 300), is_causal=True)
        attention_gradients(*sequences(300, 300), *random_arrays((1, 300, 11), dtype="float32"))
        assert careful == []

    def test_is_taken_only_by_blocks_that_need_it(self, monkeypatch):
        cut(monkeypatch, QUERIES=64, KEYS=64, MOST_KEYS=64, TILE=64 * 64, STAIR=64)
        careful = count_calls(monkeypatch, "_selected_product")
        query, key, value = sequences(256, 256)
        value[0, 200] = np.nan  # seen as masked by the block of queries 192 to 255 alone
        output = scaled_dot_product_attention(query, key, value, is_causal=True)
        assert np.isfinite(output[0, :200]).all()
        assert np.isnan(output[0, 200:]).all()
        assert len(careful) == 4  # its tiles

    def test_selects_instead_of_multiplying(self):
        left, right = random_arrays((4, 3), (3, 5))
        allowed = np.array([[True, False, True], [True, True, False], [False] * 3, [True] * 3])
        clean = np.where(allowed, left, 0) @ right
        left[~allowed] = np.nan
        right[1, 2] = np.inf
        product = numpy_tiled._selected_product(left, right, allowed=allowed)
        clean[[1, 3], 2] = np.inf * np.sign(left[[1, 3], 1])
        np.testing.assert_allclose(product, clean)


class TestShortcuts:
    def test_small_calls_are_one_tile(self, monkeypatch):
        tiles = count_calls(monkeypatch, "_scores")
        scaled_dot_product_attention(*sequences(30, 30), is_causal=True)
        assert tiles == []

    @pytest.mark.parametrize("options", [{}, {"is_causal": True, "causal_offset": 4095}], ids=str)
    def test_a_decoding_step_reads_each_key_once_for_its_group(self, monkeypatch, options):
        tasks = count_calls(monkeypatch, "_attend")
        query, key, value = random_arrays((32, 1, 8), (4, 4096, 8), (4, 4096, 8))
        output = scaled_dot_product_attention(query, key, value, enable_gqa=True, **options)
        assert [call.query.shape for call, *_ in tasks] == [(4, 8, 8)] * len(tasks)
        repeated = scaled_dot_product_attention(query, *(x.repeat(8, 0) for x in (key, value)))
        np.testing.assert_allclose(output, repeated, atol=1e-12)


class TestWorkers:
    @pytest.fixture
    def blas_threads(self, monkeypatch):
        """A BLAS of our own, with five threads; the history of its setting."""
        history = [5]
        control = _blas_threads._Control(lambda: history[-1], history.append)
        monkeypatch.setattr(_blas_threads, "_control", lambda: control)
        return history

    def test_hold_blas_to_one_thread_and_give_it_back(self, blas_threads):
        scaled_dot_product_attention(*sequences(300, 300))
        assert blas_threads == [5, 1, 5]

    def test_small_calls_leave_blas_alone(self, blas_threads):
        scaled_dot_product_attention(*sequences(30, 30))
        assert blas_threads == [5]

    def test_give_blas_back_when_the_last_of_several_callers_is_done(self, blas_threads):
        with _blas_threads.one_blas_thread():
            with _blas_threads.one_blas_thread():
                assert blas_threads == [5, 1]
            assert blas_threads == [5, 1]
        assert blas_threads == [5, 1, 5]

    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_give_blas_back_when_holding_it_is_interrupted(self, monkeypatch, moment):
        history = [5]

        def interrupted(count):
            if moment == "after":
                history.append(count)
            if count == 1:
                raise KeyboardInterrupt
            if moment == "before":
                history.append(count)

        control = _blas_threads._Control(lambda: history[-1], interrupted)
        monkeypatch.setattr(_blas_threads, "_control", lambda: control)
        with pytest.raises(KeyboardInterrupt), _blas_threads.one_blas_thread():
            pass
        assert history[-1] == 5
        assert not _blas_threads._callers

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    @pytest.mark.parametrize("in_thread", [False, True], ids=["in the caller", "in a thread"])
    def test_stop_at_an_error_and_leave_the_next_call_right(
        self, monkeypatch, blas_threads, error, in_thread
    ):
        cut(monkeypatch, WORK_PER_THREAD=1)
        monkeypatch.setattr(numpy_tiled, "worker_count", lambda: 2)
        caller, attend = threading.current_thread(), numpy_tiled._attend
        both_work, stopped, met, finished = threading.Barrier(2), threading.Event(), set(), []

        class Queue(deque):
            def clear(self):
                super().clear()
                stopped.set()

        def fail(*arguments):
            thread = threading.current_thread()
            if thread not in met:
                met.add(thread)
                both_work.wait(timeout=60)
            if (thread is not caller) is in_thread:
                raise error("stop")
            stopped.wait(timeout=60)
            finished.append(thread)
            return attend(*arguments)

        arrays, threads = sequences(30, 40, dtype="float64"), threading.active_count()
        monkeypatch.setattr(numpy_tiled, "deque", Queue)
        monkeypatch.setattr(numpy_tiled, "_attend", fail)
        with pytest.raises(error, match="stop"):
            scaled_dot_product_attention(*arrays)
        assert len(finished) == 1  # the task at hand, no more
        assert blas_threads[-1] == 5
        assert threading.active_count() == threads
        monkeypatch.setattr(numpy_tiled, "_attend", attend)
        output = scaled_dot_product_attention(*arrays)
        np.testing.assert_allclose(output, reference.attention(*arrays)[0], atol=1e-12)

    @pytest.mark.parametrize(
        ("key_shape", "units"),
        [((2, 6), 12), ((2, 1), 2), ((1, 6), 6), ((1, 1), 1)],
        ids=str,
    )
    def test_add_to_gradients_of_their_own(self, monkeypatch, key_shape, units):
        """Tasks whose keys are the same memory are one unit of work, all others are not."""
        cut(monkeypatch)
        shapes = [(2, 6, 19, 4), (*key_shape, 23, 4), (*key_shape, 23, 5)]
        call = numpy_tiled._broadcast(validate(*random_arrays(*shapes)))
        of_unit = [
            {call.key[task.group].__array_interface__["data"][0] for task in unit}
            for unit in numpy_tiled._units(numpy_tiled._tasks(call), shapes)
        ]
        assert len(of_unit) == units
        assert sum(len(keys) for keys in of_unit) == len(set.union(*of_unit))

    def test_concurrent_callers_do_not_disturb_each_other(self, monkeypatch):
        cut(monkeypatch, WORK_PER_THREAD=1)
        calls = [sequences(40 + i, 50 + i, dtype="float64") for i in range(6)]
        results: dict[int, np.ndarray] = {}

        def run(i: int) -> None:
            results[i] = scaled_dot_product_attention(*calls[i], is_causal=True)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, arrays in enumerate(calls):
            np.testing.assert_allclose(
                results[i], reference.attention(*arrays, is_causal=True)[0], atol=1e-12
            )
