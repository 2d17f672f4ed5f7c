"""Correctness under the speed: however the work is cut up, whoever else is calling, at any limit.

The engines' tiles, blocks, groups, strips and threads are made small (`tuning.py`), so that calls
of a few queries meet every edge that long ones have; real sizes around the usual edges come after.
The reference is the float64 loop where it is fast enough, and its equal in matrices (`equation.py`)
where it is not.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, note, settings
from hypothesis import strategies as st

import attnlib.engines
from attnlib import attention_gradients, scaled_dot_product_attention
from tests import equation, reference
from tests.attnlib.engines.tuning import USUAL, all_sizes, drawn_sizes, tuned
from tests.kinds import (
    HAS_TORCH,
    KINDS,
    NUMPY_FLOAT64,
    TORCH_KINDS,
    Kind,
    check_close,
    check_equal_bits,
    needs_torch,
    to_numpy,
)

pytestmark = pytest.mark.slow

NUMPY_KINDS = [kind for kind in KINDS if kind.library == "numpy"]
NUMPY_FLOAT32 = Kind("numpy", "float32")
each_numpy_kind = pytest.mark.parametrize("kind", NUMPY_KINDS, ids=str)
ROOT = Path(__file__).parents[3]


# --- calls ----------------------------------------------------------------------------------------


@dataclass
class Call:
    """One call: query, key and value in float64, the shape and layout they get, and options."""

    numbers: list[np.ndarray]
    options: dict[str, Any]
    shapes: list[tuple[int, ...]] | None = None
    layouts: tuple[str, ...] = ("plain",) * 3

    def arrays(self, kind: Kind) -> list[Any]:
        """Return query, key and value as arrays of `kind`, laid out in memory as asked."""
        arrays = [
            laid_out(kind.floats(numbers), layout)
            for numbers, layout in zip(self.numbers, self.layouts, strict=True)
        ]
        if self.shapes is None:
            return arrays
        return [
            np.broadcast_to(array, shape) if isinstance(array, np.ndarray) else array.expand(shape)
            for array, shape in zip(arrays, self.shapes, strict=True)
        ]

    def options_for(self, kind: Kind) -> dict[str, Any]:
        return {name: self._converted(option, kind) for name, option in self.options.items()}

    def plain_options(self, kind: Kind) -> dict[str, Any]:
        """The options with numbers as `kind` rounds them, for the references."""
        return {
            name: to_numpy(option) if hasattr(option, "dtype") else option
            for name, option in self.options_for(kind).items()
        }

    @staticmethod
    def _converted(option: Any, kind: Kind) -> Any:
        if not isinstance(option, np.ndarray):
            return option
        return kind.floats(option) if option.dtype.kind == "f" else kind.plain(option)

    def attend(self, kind: Kind, **more: Any) -> Any:
        return scaled_dot_product_attention(*self.arrays(kind), **self.options_for(kind), **more)

    def gradients(self, kind: Kind) -> Any:
        """Return the three gradients, for a fixed gradient of the output."""
        arrays, options = self.arrays(kind), self.options_for(kind)
        return attention_gradients(*arrays, self.grad_output(kind), **options)

    def grad_output(self, kind: Kind) -> Any:
        numbers = np.random.default_rng(500).integers(-16, 17, size=self._output_shape(kind))
        return kind.floats(numbers / 8)  # exact in every float dtype

    def _output_shape(self, kind: Kind) -> tuple[int, ...]:
        query, key, value = (array.shape for array in self.arrays(kind))
        if self.options.get("enable_gqa"):
            batch = np.broadcast_shapes(query[:-3], key[:-3], value[:-3])
            return (*batch, *query[-3:-1], value[-1])
        lead = np.broadcast_shapes(query[:-2], key[:-2], value[:-2])
        return (*lead, query[-2], value[-1])

    def solved(self, kind: Kind, **more: Any) -> equation.Solution:
        """What the call gives, from the numbers as `kind` rounds them."""
        arrays = map(to_numpy, self.arrays(kind))
        return equation.attention(*arrays, **self.plain_options(kind), **more)

    def solved_gradients(self, kind: Kind, **more: Any) -> list[np.ndarray]:
        arrays = [*map(to_numpy, self.arrays(kind)), to_numpy(self.grad_output(kind))]
        return equation.gradients(*arrays, **self.plain_options(kind), **more)


def laid_out(array: Any, layout: str) -> Any:
    """Return the numbers of `array` in another memory layout."""
    if layout == "widths outside":
        return _stored_swapped(array, -1, -2)
    if layout == "lengths outside" and array.ndim > 2:
        return _stored_swapped(array, -2, -3)  # (…, length, heads, width), as projections leave it
    if layout == "every other":
        wide = np.repeat(array, 2, axis=-2) if isinstance(array, np.ndarray) else None
        return (array.repeat_interleave(2, dim=-2) if wide is None else wide)[..., ::2, :]
    if layout == "backwards" and isinstance(array, np.ndarray):
        reverse = (slice(None, None, -1),) * array.ndim
        return array[reverse].copy()[reverse]
    return array


def _stored_swapped(array: Any, first: int, second: int) -> Any:
    swapped = array.swapaxes(first, second)
    swapped = swapped.copy() if isinstance(array, np.ndarray) else swapped.contiguous()
    return swapped.swapaxes(first, second)


LAYOUTS = ["plain", "widths outside", "lengths outside", "every other", "backwards"]
lengths = st.integers(0, 13)
widths = st.integers(1, 6)
bounds = st.none() | st.integers(0, 9)


@st.composite
def stretched(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that broadcasts to `shape`, mostly the whole of it."""
    form = draw(st.sampled_from(["whole", "whole", "ones", "short"]))
    if form == "whole" or not shape:
        return shape
    if form == "short":
        return shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else size for size in shape)


@st.composite
def masks(draw: st.DrawFn, random: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Draw an attn_mask for scores of `shape`, or None: scattered, in blocks, or a triangle."""
    form = draw(st.sampled_from(["none", "scattered", "blocks", "triangle"]))
    if form == "none":
        return None
    shape = draw(stretched(shape)) or (1,)
    share = draw(st.sampled_from([0.1, 0.6, 1.0]))
    seen = random.random(shape) < share
    if form == "blocks":
        size = draw(st.integers(2, 6))
        index = np.ix_(*(np.arange(size_) // size for size_ in shape))
        seen = seen[index]
    elif form == "triangle" and len(shape) > 1:
        seen = np.broadcast_to(np.tri(*shape[-2:], draw(st.integers(-3, 6)), dtype=bool), shape)
    if draw(st.booleans()):
        return seen.copy()
    return np.where(seen, random.normal(size=shape), -np.inf)


@st.composite
def key_masks(draw: st.DrawFn, random: np.random.Generator, items: tuple[int, ...], S: int) -> Any:
    """Draw a key_mask, or None: padding after, before or between real tokens."""
    form = draw(st.sampled_from(["none", "after", "before", "between"]))
    if form == "none":
        return None
    shape = (*items, S) if draw(st.booleans()) else (S,)
    counts = random.integers(0, S, endpoint=True, size=(*shape[:-1], 1))
    if form == "after":
        return np.arange(S) < counts
    if form == "before":
        return np.arange(S) >= counts
    return random.random(shape) < 0.7


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw one call that the contract allows."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    L, S, E, Ev = draw(lengths), draw(lengths), draw(widths), draw(widths)
    batch = draw(st.sampled_from([(), (2,), (3,), (1, 2)]))
    options: dict[str, Any] = {"enable_gqa": draw(st.booleans())}
    if options["enable_gqa"]:
        heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        own = [(*draw(stretched(batch)), count) for count in (heads * group, heads, heads)]
        first = np.broadcast_shapes(*(shape[:-1] for shape in own))
        lead, items = (*first, heads * group), first
    else:
        own = [draw(stretched((*batch, draw(st.just(3)))))] + [draw(stretched((*batch, 3)))] * 2
        lead = np.broadcast_shapes(*own)
        items = lead[:-1] if len(lead) > 1 else lead
    shapes = [(*mine, *last) for mine, last in zip(own, ((L, E), (S, E), (S, Ev)), strict=True)]
    size = draw(st.sampled_from([0.1, 1.0, 3.0]))
    numbers = [random.normal(scale=size, size=draw(shared(shape))) for shape in shapes]

    options["attn_mask"] = draw(masks(random, (*lead, L, S)))
    options["key_mask"] = draw(key_masks(random, items, S))
    options["is_causal"] = draw(st.booleans())
    options["window"] = draw(st.none() | st.tuples(bounds, bounds))
    if options["is_causal"] or options["window"] is not None:
        each = items and draw(st.booleans())
        options["causal_offset"] = (
            random.integers(-5, 9, size=items) if each else draw(st.integers(-5, 9))
        )
    options["scale"] = draw(st.sampled_from([None, None, 0.0, -0.5, 1.0]))
    options["softcap"] = draw(st.sampled_from([None, None, 0.5, 4.0]))
    layouts = tuple(draw(st.sampled_from(LAYOUTS)) for _ in range(3))
    return Call(numbers, options, shapes, layouts)


@st.composite
def shared(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw the shape itself, or one whose first axis is shared: stride 0 in memory."""
    return (1, *shape[1:]) if len(shape) > 2 and draw(st.integers(0, 4)) == 0 else shape


def normal(*shape: int, seed: int = 501, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(scale=size, size=shape)


def seen(*shape: int, seed: int = 502) -> np.ndarray:
    """Return a bool mask, True = may attend, whose second row is empty."""
    mask = np.random.default_rng(seed).random(shape) < 0.7
    mask[..., 1, :] = False
    return mask


B, Hq, Hkv, L, S, E, Ev = 2, 4, 2, 10, 11, 3, 5
OPTIONS = {
    "dense": {},
    "causal": {"is_causal": True},
    "causal with empty rows": {"is_causal": True, "causal_offset": -3},
    "offset for each item": {"is_causal": True, "causal_offset": np.array([4, -2])},
    "window": {"window": (2, 1), "causal_offset": 2},
    "window to the left": {"window": (3, None), "is_causal": True},
    "window for each item": {"window": (1, 2), "causal_offset": np.array([-4, 5])},
    "bool mask": {"attn_mask": seen(L, S)},
    "bool mask for each head": {"attn_mask": seen(B, Hq, L, S)},
    "triangle": {"attn_mask": np.tri(L, S, 1, dtype=bool)},
    "float mask": {"attn_mask": np.where(seen(Hq, L, S), normal(Hq, L, S), -np.inf)},
    "padding": {"key_mask": np.arange(S) < 7},
    "padding for each item": {"key_mask": seen(B, S)},
    "negative scale": {"scale": -0.75},
    "scale zero": {"scale": 0.0},
    "softcap": {"softcap": 0.8, "is_causal": True},
    "all at once": {
        "attn_mask": seen(Hq, L, S),
        "key_mask": np.arange(S) != 0,
        "is_causal": True,
        "causal_offset": 1,
        "window": (6, None),
        "softcap": 2.0,
        "scale": 0.5,
    },
}
each_option = pytest.mark.parametrize("name", OPTIONS)


def small_call(name: str = "dense", seed: int = 503) -> Call:
    """Return the call of one entry of OPTIONS, with grouped heads."""
    shapes = (B, Hq, L, E), (B, Hkv, S, E), (B, Hkv, S, Ev)
    numbers = [normal(*shape, seed=seed + number) for number, shape in enumerate(shapes)]
    return Call(numbers, {"enable_gqa": True, **OPTIONS[name]})


def check_gradients(actual: Any, expected: Any, kind: Kind, *, factor: float) -> None:
    """Assert that gradients agree, within a tolerance that grows with the largest of them."""
    for gradient, right in zip(actual, expected, strict=True):
        size = max(1.0, float(np.abs(right).max(initial=0)))
        check_close(gradient / size, right / size, kind, factor=factor)


def rounding(kind: Kind) -> float:
    """The factor on the tolerance of `kind`: half precision is rounded once, at the end."""
    return 1 if kind.dtype in ("float16", "bfloat16") else 10


# --- the references, and the tools of these tests -------------------------------------------------


class TestReference:
    """`equation.py` computes what the loops compute."""

    @settings(max_examples=80)
    @given(call=calls())
    def test_in_one_piece_is_the_loop(self, call):
        output, weights = reference.attention(*call.arrays(NUMPY_FLOAT64), **call.options)
        solved = call.solved(NUMPY_FLOAT64)
        np.testing.assert_allclose(solved.output, output, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(solved.weights, weights, rtol=1e-12, atol=1e-12)

    @each_option
    def test_gradients_are_finite_differences(self, name):
        call = small_call(name)
        call.numbers = [numbers[..., :1] for numbers in call.numbers]
        grad_output = to_numpy(call.grad_output(NUMPY_FLOAT64))
        for which in range(3):
            direction = normal(*call.numbers[which].shape, seed=504)

            def along(step: float, which: int = which, direction: np.ndarray = direction) -> float:
                numbers = list(call.numbers)
                numbers[which] = numbers[which] + step * direction
                output, _ = reference.attention(*numbers, **call.options)
                return float((output * grad_output).sum())

            near, far = along(1e-3) - along(-1e-3), along(2e-3) - along(-2e-3)
            expected = (8 * near - far) / 12e-3
            actual = (call.solved_gradients(NUMPY_FLOAT64)[which] * direction).sum()
            np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-9)


class TestTuning:
    def test_finds_the_sizes_of_each_engine(self):
        assert len(USUAL["numpy"]) >= 4
        assert not HAS_TORCH or len(USUAL["torch"]) >= 2

    def test_small_sizes_make_many_tiles_and_threads(self, monkeypatch):
        """Seen in the number of matrix products, and of threads that compute them."""
        products: list[int] = []
        matmul = np.matmul

        def spy(*arrays: Any, **options: Any) -> Any:
            products.append(threading.get_ident())
            return matmul(*arrays, **options)

        monkeypatch.setattr(np, "matmul", spy)
        call = small_call("causal")
        call.attend(NUMPY_FLOAT64)
        usual = len(products)
        products.clear()
        with tuned(NUMPY_FLOAT64, all_sizes("numpy", 1), workers=3):
            for _ in range(20):  # a thread that comes late may find nothing left
                call.attend(NUMPY_FLOAT64)
        assert len(products) > 20 * 10 * usual
        assert len(set(products)) > 1

    @needs_torch
    def test_small_sizes_make_many_strips(self):
        from torch.overrides import TorchFunctionMode

        class Counter(TorchFunctionMode):
            operations = 0

            def __torch_function__(self, function, types, args=(), kwargs=None):
                self.operations += 1
                return function(*args, **(kwargs or {}))

        kind, call, counts = TORCH_KINDS[0], small_call("window"), []
        for sizes in (USUAL["torch"], all_sizes("torch", 1)):
            with tuned(kind, sizes), Counter() as counter:
                call.attend(kind)
            counts.append(counter.operations)
        assert counts[1] > 3 * counts[0] > 0


# --- every way of cutting up the work -------------------------------------------------------------


class TestEveryCut:
    @settings(max_examples=250)
    @given(
        call=calls(), kind=st.sampled_from(NUMPY_KINDS), sizes=drawn_sizes("numpy"),
        workers=st.sampled_from([1, 3]),
    )  # fmt: skip
    def test_numpy_engine_gives_what_the_loop_gives(self, call, kind, sizes, workers):
        note(f"{kind}, {sizes}, {workers} workers, {call}")
        with tuned(kind, sizes, workers=workers):
            self.check_case(call, kind)

    @needs_torch
    @settings(max_examples=200)
    @given(
        call=calls(), kind=st.sampled_from(TORCH_KINDS), sizes=drawn_sizes("torch"),
        as_on_a_gpu=st.booleans(),
    )  # fmt: skip
    def test_torch_engine_gives_what_the_loop_gives(self, call, kind, sizes, as_on_a_gpu):
        note(f"{kind}, {sizes}, as on a GPU: {as_on_a_gpu}, {call}")
        with tuned(kind, sizes), device_that_hides_values(as_on_a_gpu):
            self.check_case(call, kind, rounding(kind) * (5 if as_on_a_gpu else 1))

    @staticmethod
    def check_case(call: Call, kind: Kind, factor: float | None = None) -> None:
        factor = factor or rounding(kind)
        arrays = map(to_numpy, call.arrays(kind))
        expected, expected_weights = reference.attention(*arrays, **call.plain_options(kind))
        output, weights = call.attend(kind, return_weights=True)
        check_close(output, expected, kind, factor=factor)
        check_close(weights, expected_weights, kind, factor=factor)
        assert (to_numpy(weights)[expected_weights == 0] == 0).all()
        check_close(call.attend(kind), expected, kind, factor=factor)

    @settings(max_examples=250)
    @given(
        call=calls(), kind=st.sampled_from(NUMPY_KINDS), sizes=drawn_sizes("numpy"),
        workers=st.sampled_from([1, 3]),
    )  # fmt: skip
    def test_numpy_engine_gives_the_gradients_of_the_equations(self, call, kind, sizes, workers):
        note(f"{kind}, {sizes}, {workers} workers, {call}")
        with tuned(kind, sizes, workers=workers):
            actual = call.gradients(kind)
        check_gradients(actual, call.solved_gradients(kind), kind, factor=2 * rounding(kind))

    @needs_torch
    @settings(max_examples=100)
    @given(
        call=calls(), kind=st.sampled_from(TORCH_KINDS), sizes=drawn_sizes("torch"),
        as_on_a_gpu=st.booleans(),
    )  # fmt: skip
    def test_torch_engine_gives_the_gradients_of_the_equations(
        self, call, kind, sizes, as_on_a_gpu
    ):
        note(f"{kind}, {sizes}, as on a GPU: {as_on_a_gpu}, {call}")
        with tuned(kind, sizes), device_that_hides_values(as_on_a_gpu):
            actual = call.gradients(kind)
        factor = rounding(kind) * (5 if as_on_a_gpu else 2)
        check_gradients(actual, call.solved_gradients(kind), kind, factor=factor)


@contextmanager
def device_that_hides_values(wanted: bool) -> Iterator[None]:
    """Let the torch engine take CPU tensors for tensors of a GPU, if it is wanted."""
    from attnlib.engines import torch_fused

    before = torch_fused._on_cpu
    if wanted:
        torch_fused._on_cpu = lambda tensor: False
    try:
        yield
    finally:
        torch_fused._on_cpu = before


# --- real sizes around the usual edges ------------------------------------------------------------

EDGES = [
    (127, 129), (128, 128), (129, 127), (255, 257), (256, 256), (257, 255), (511, 513), (512, 512),
    (513, 511), (17, 4097),
]  # fmt: skip
each_edge = pytest.mark.parametrize("lengths", EDGES, ids=str)


def long_options(L: int, S: int) -> dict[str, dict[str, Any]]:
    random = np.random.default_rng(505)
    scattered = random.random((L, S)) < 0.5
    i, j = np.arange(L)[:, None], np.arange(S)
    return {
        "dense": {},
        "causal": {"is_causal": True},
        "causal to the last key": {"is_causal": True, "causal_offset": S - L},
        "window": {"is_causal": True, "window": (60, 0), "causal_offset": max(0, S - L)},
        "window on both sides": {"window": (101, 37), "causal_offset": 5},
        "padding for each item": {"key_mask": j < np.array([[S - 1], [S // 3]])},
        "padding between": {"key_mask": random.random(S) < 0.9},
        "scattered mask": {"attn_mask": scattered},
        "mask of blocks": {"attn_mask": (i // 96 + j // 96) % 3 != 1},
        "float mask": {"attn_mask": np.where(scattered, -np.abs(i - j) / 8, -np.inf)},
        "softcap": {"softcap": 2.0, "is_causal": True},
    }


@cache
def long_call(lengths: tuple[int, int], name: str) -> Call:
    """Return a call of two items, in numbers that every float dtype holds exactly."""
    L, S = lengths
    shapes = (2, L, 8), (2, S, 8), (2, S, 6)
    numbers = [
        np.clip(np.round(8 * normal(*shape, seed=506 + n)), -31, 31) / 8
        for n, shape in enumerate(shapes)
    ]
    return Call(numbers, long_options(*lengths)[name])


@cache
def long_solution(lengths: tuple[int, int], name: str) -> equation.Solution:
    return long_call(lengths, name).solved(NUMPY_FLOAT64)


@cache
def long_gradients(lengths: tuple[int, int], name: str) -> list[np.ndarray]:
    return long_call(lengths, name).solved_gradients(NUMPY_FLOAT64)


LONG_OPTIONS = list(long_options(1, 1))


class TestRealSizes:
    @each_edge
    def test_give_the_output_of_the_equation(self, kind, lengths):
        for name in LONG_OPTIONS:
            output = long_call(lengths, name).attend(kind)
            check_close(output, long_solution(lengths, name).output, kind, factor=rounding(kind))

    @each_edge
    @each_numpy_kind
    def test_give_the_weights_of_the_equation(self, kind, lengths):
        for name in LONG_OPTIONS[::3]:
            _, weights = long_call(lengths, name).attend(kind, return_weights=True)
            check_close(weights, long_solution(lengths, name).weights, kind, factor=rounding(kind))

    @each_edge
    @pytest.mark.parametrize("kind", [NUMPY_FLOAT64, NUMPY_FLOAT32], ids=str)
    def test_give_the_gradients_of_the_equation(self, kind, lengths):
        for name in LONG_OPTIONS:
            call = long_call(lengths, name)
            check_gradients(call.gradients(kind), long_gradients(lengths, name), kind, factor=20)


# --- the same result, whatever the sizes, threads and other callers -------------------------------


def result(call: Call, kind: Kind) -> list[np.ndarray]:
    """Output, weights and gradients of a call."""
    arrays = *call.attend(kind, return_weights=True), call.attend(kind), *call.gradients(kind)
    return [to_numpy(array) for array in arrays]


@contextmanager
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


FEW_KINDS = [kind for kind in KINDS if kind.dtype == "float32" and kind.device == "cpu"]
each_of_few_kinds = pytest.mark.parametrize("kind", FEW_KINDS, ids=str)
each_of_few_options = pytest.mark.parametrize(
    "name",
    [
        "dense",
        "causal",
        "window for each item",
        "bool mask",
        "padding for each item",
        "all at once",
    ],
)


class TestSameResult:
    @each_of_few_options
    @each_of_few_kinds
    def test_comes_of_all_sizes_and_thread_counts_but_for_rounding(self, kind, name):
        call = small_call(name)
        expected = result(call, kind)
        largest = max(1.0, *(float(np.abs(array).max()) for array in expected))
        for size, workers in ((2, 3), (3, 1), (7, 5), (64, 2)):
            with tuned(kind, all_sizes(kind.library, size), workers=workers):
                for array, right in zip(result(call, kind), expected, strict=True):
                    np.testing.assert_allclose(
                        array, right, rtol=0, atol=2 * kind.tolerance * largest
                    )

    @each_of_few_options
    @each_of_few_kinds
    def test_is_bit_identical_from_run_to_run(self, kind, name):
        call = small_call(name)
        with tuned(kind, all_sizes(kind.library, 3), workers=4), hasty_threads():
            expected = result(call, kind)
            for _ in range(3):
                for array, right in zip(result(call, kind), expected, strict=True):
                    check_equal_bits(array, right)

    @pytest.mark.parametrize("name", ["dense", "scattered mask"])
    def test_of_real_sizes_is_bit_identical_from_run_to_run(self, kind, name):
        call = long_call((513, 511), name)
        expected = result(call, kind)
        for _ in range(3):
            for array, right in zip(result(call, kind), expected, strict=True):
                check_equal_bits(array, right)

    @each_of_few_kinds
    def test_is_bit_identical_beside_other_callers(self, kind):
        """Threads that call at once, with different calls, get what each gets alone."""
        wanted = [small_call(name) for name in OPTIONS]
        with tuned(kind, all_sizes(kind.library, 4), workers=3), hasty_threads():
            expected = [result(call, kind) for call in wanted]
            with ThreadPoolExecutor(6) as pool:
                found = list(pool.map(lambda call: result(call, kind), wanted * 2))
        for arrays, rights in zip(found, expected * 2, strict=True):
            for array, right in zip(arrays, rights, strict=True):
                check_equal_bits(array, right)


# --- the limits of numbers ------------------------------------------------------------------------

FLOAT_BITS = {"float32": 150, "float64": 1075}  # exp of so many ln 2 is beyond all numbers


def scores_of(size: float, pattern: str, kind: Kind, values: float = 1.0) -> Call:
    """A call whose scores lie in [−size, size]: a product of one query and one key entry each."""
    S = 48
    keys = {
        "at both ends": np.repeat([-1.0, 1.0], S // 2),
        "at the low end": np.full(S, -1.0),
        "at the high end": np.full(S, 1.0),
        "one at the high end": np.array([-1.0] * (S - 1) + [1.0]),
        "spread": np.linspace(-1, 1, S),
    }[pattern]
    queries = size * np.concatenate([[1.0, -1.0], np.linspace(-1, 1, 30)])
    numbers = [queries[:, None], keys[:, None], values * normal(S, 5, seed=507).clip(-3, 3)]
    return Call([to_numpy(kind.floats(array)) for array in numbers], {"scale": 1.0})


each_pattern = pytest.mark.parametrize(
    "pattern",
    ["at both ends", "at the low end", "at the high end", "one at the high end", "spread"],
)
each_wide_kind = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.dtype in FLOAT_BITS and kind.device == "cpu"], ids=str
)


class TestScores:
    """Scores of every size: wherever an engine ends one way of computing and starts another."""

    @each_pattern
    @each_wide_kind
    def test_of_every_size_give_the_exact_weights(self, kind, pattern):
        """Also just below and just above each power of two, where bounds are likely to stand."""
        bits = FLOAT_BITS[kind.dtype]
        for size in range(0, bits, bits // 30):  # 0, 5, 10, … and 0, 35, 70, …
            for nearly in (1 - 1e-6, 1 + 1e-6):
                self.check_case(scores_of(size * math.log(2) * nearly, pattern, kind), kind)

    @each_pattern
    @each_wide_kind
    @pytest.mark.parametrize("size", [1e3, 1e5, 1e9, 1e30])
    def test_of_large_norms_give_the_exact_weights(self, kind, pattern, size):
        self.check_case(scores_of(size, pattern, kind), kind, factor=10 + size / 10)

    @staticmethod
    def check_case(call: Call, kind: Kind, factor: float = 20) -> None:
        expected = call.solved(kind, dtype=np.longdouble)
        factor = min(factor, 0.01 / kind.tolerance)  # at most a hundredth
        for size in (16, 1 << 20):
            with tuned(kind, all_sizes(kind.library, size)):
                output = call.attend(kind)
            check_close(output, expected.output, kind, factor=factor)

    @each_numpy_kind
    @pytest.mark.parametrize("size", [1, 3, 16, 1 << 20])
    def test_of_one_huge_entry_leave_the_other_rows_as_they_were(self, kind, size):
        huge = 6e4 if kind.dtype == "float16" else 1e25
        for array, index in ((0, (5, 2)), (1, (7, 1))):
            call = Call([normal(23, 4, seed=508), normal(31, 4, seed=509), normal(31, 3)], {})
            call.numbers[array][index] = huge
            with tuned(kind, all_sizes("numpy", size), workers=2):
                output = call.attend(kind)
            check_close(output, call.solved(kind).output, kind, factor=rounding(kind))

    @pytest.mark.parametrize("size", [1, 3, 16, 1 << 20])
    def test_beyond_all_numbers_are_nan_in_their_own_row_alone(self, size):
        """+inf is not hidden; −inf by overflow is a weight of zero beside finite scores."""
        kind = NUMPY_FLOAT32
        call = Call([normal(23, 1, seed=510), normal(31, 1, seed=511), normal(31, 3)], {})
        call.numbers[0][4] = 1e30
        call.numbers[1][9], call.numbers[1][10] = 1e30, -1e30
        call.numbers[1][11:] *= 1e-30
        call.options = {"attn_mask": np.ones((23, 31), bool)}
        call.options["attn_mask"][:, 9:11] = False  # only rows 4 and 5 see what overflows
        call.options["attn_mask"][4, 9] = call.options["attn_mask"][5, 10] = True
        call.numbers[0][5] = 1e30
        with tuned(kind, all_sizes("numpy", size), workers=2):
            output = call.attend(kind)
        assert np.isnan(output[4]).all()
        call.numbers[1][10] = 0
        call.options["attn_mask"][5, 10] = False
        rows = np.arange(23) != 4
        check_close(output[rows], call.solved(kind).output[rows], kind, factor=10)


EXPONENTS = {"float32": (-126, -100, -60, 60, 100, 120), "float64": (-1022, -800, 800, 1015)}


class TestValues:
    """Values of every size come out as exactly as values of size one."""

    @each_pattern
    @each_wide_kind
    @pytest.mark.parametrize("bits", [1, 26, 39.99])
    def test_scale_the_output(self, kind, pattern, bits):
        if kind.dtype == "float64":
            bits *= 7.5
        for exponent in EXPONENTS[kind.dtype]:
            call = scores_of(bits * math.log(2), pattern, kind, values=2.0**exponent)
            expected = call.solved(kind, dtype=np.longdouble).output
            for size in (16, 1 << 20):
                with tuned(kind, all_sizes(kind.library, size)):
                    output = to_numpy(call.attend(kind))
                scaled = np.ldexp(output, -exponent), np.ldexp(expected, -exponent)
                # At the low end products with weights below one are denormal: fewer bits.
                tolerance = 20 * kind.tolerance
                np.testing.assert_allclose(*scaled, rtol=tolerance, atol=tolerance)

    @each_numpy_kind
    @pytest.mark.parametrize("size", [1, 3, 16, 1 << 20])
    def test_that_are_denormal_stay_within_a_few_of_the_smallest_number(self, kind, size):
        smallest = float(np.finfo(kind.dtype).smallest_subnormal)
        call = Call([normal(23, 4), normal(31, 4, seed=512), normal(31, 3)], {"is_causal": True})
        call.numbers[2] = np.round(call.numbers[2] * 500) * smallest
        with tuned(kind, all_sizes("numpy", size), workers=2):
            output = to_numpy(call.attend(kind))
        difference = (output - call.solved(kind).output) / smallest
        assert np.abs(difference).max() <= 31

    @each_numpy_kind
    @pytest.mark.parametrize("size", [1, 3, 16, 1 << 20])
    def test_next_to_the_largest_number_do_not_overflow(self, kind, size):
        """One such value, or many whose sum is a number, however large the scores are."""
        largest = float(np.finfo(kind.dtype).max)
        call = Call([normal(23, 4, size=2), normal(31, 4, seed=513, size=2), normal(31, 3)], {})
        for values in (np.eye(31)[:, :3], normal(31, 3, seed=514).clip(-3, 3) / 100):
            call.numbers[2] = values * largest
            with tuned(kind, all_sizes("numpy", size), workers=2):
                output = call.attend(kind)
            expected = call.solved(kind).output / largest
            check_close(output / type(output.flat[0])(largest), expected, kind, factor=10)


class TestPoison:
    @settings(max_examples=80)
    @given(
        call=calls(), kind=st.sampled_from(NUMPY_KINDS), sizes=drawn_sizes("numpy"),
        workers=st.sampled_from([1, 2]), poison=st.sampled_from([np.nan, np.inf, -np.inf]),
        share=st.sampled_from([0.1, 0.5]), seed=st.integers(0, 2**32 - 1),
    )  # fmt: skip
    def test_reaches_only_rows_that_see_it(self, call, kind, sizes, workers, poison, share, seed):
        """In a tile as in a whole call: a masked pair never changes the result."""
        note(f"{kind}, {sizes}, {workers} workers, {poison}, {call}")
        _, weights = reference.attention(*call.arrays(NUMPY_FLOAT64), **call.options)
        keys = np.random.default_rng(seed).random(weights.shape[-1]) < share
        with tuned(kind, sizes, workers=workers):
            expected = to_numpy(call.attend(kind))
            for array in call.numbers[1:]:
                array[..., keys, :] = poison
            output, found = (to_numpy(array) for array in call.attend(kind, return_weights=True))
            alone = to_numpy(call.attend(kind))
        sees_it = (weights[..., keys] > 0).any(axis=-1)
        tolerance = rounding(kind) * kind.tolerance
        for array in (output, alone):
            np.testing.assert_allclose(
                array[~sees_it], expected[~sees_it], rtol=tolerance, atol=tolerance
            )
            assert not np.isfinite(array[sees_it]).any()
        np.testing.assert_allclose(
            found[~sees_it], weights[~sees_it], rtol=0, atol=max(tolerance, 1e-3)
        )

    @settings(max_examples=60)
    @given(
        call=calls(), kind=st.sampled_from(NUMPY_KINDS), sizes=drawn_sizes("numpy"),
        poison=st.sampled_from([np.nan, np.inf, -np.inf]),
    )  # fmt: skip
    def test_that_no_query_sees_reaches_no_gradient(self, call, kind, sizes, poison):
        note(f"{kind}, {sizes}, {poison}, {call}")
        _, weights = reference.attention(*call.arrays(NUMPY_FLOAT64), **call.options)
        unseen = (weights == 0).all(axis=tuple(range(weights.ndim - 1)))
        with tuned(kind, sizes):
            expected = call.gradients(kind)
            for array in call.numbers[1:]:
                array[..., unseen, :] = poison
            actual = call.gradients(kind)
        check_gradients(actual, map(to_numpy, expected), kind, factor=2 * rounding(kind))


# --- no less exact than PyTorch -------------------------------------------------------------------

ACCURACY = {
    "dense": ({}, 1.0),
    "causal": ({"is_causal": True}, 1.0),
    "large norms": ({}, 4.0),
    "very large norms, causal": ({"is_causal": True}, 12.0),
    "low scores": ({"scale": -1.0}, 1.0),
    "float mask": ({"attn_mask": normal(300, 333, seed=515)}, 1.0),
    "bool mask": ({"attn_mask": np.random.default_rng(516).random((300, 333)) < 0.3}, 1.0),
}


@needs_torch
class TestAccuracy:
    """Errors against a wider dtype, over several seeds, are at most 1.5 times PyTorch's."""

    @pytest.mark.parametrize("name", ACCURACY)
    @pytest.mark.parametrize("kind", [k for k in KINDS if k.device == "cpu"], ids=str)
    def test_of_the_output_is_that_of_pytorch(self, kind, name):
        self.check_case(kind, name, self._pytorch_output, lambda call: [call.attend(kind)])

    @pytest.mark.parametrize("name", ACCURACY)
    @pytest.mark.parametrize("kind", [k for k in KINDS if k.dtype == "float32"], ids=str)
    def test_of_the_gradients_is_that_of_pytorch(self, kind, name):
        self.check_case(
            kind, name, self._pytorch_gradients, lambda call: list(call.gradients(kind))
        )

    def check_case(self, kind: Kind, name: str, theirs: Callable, ours: Callable) -> None:
        errors: dict[str, list[np.ndarray]] = {"ours": [], "theirs": []}
        for seed in range(4):
            call = self._call(kind, name, seed)
            right = self._right(call, kind, of_gradients=theirs == self._pytorch_gradients)
            for side, results in (("ours", ours(call)), ("theirs", theirs(call, kind))):
                errors[side].append(
                    np.concatenate(
                        [
                            (to_numpy(array) - exact).ravel() / np.abs(exact).max()
                            for array, exact in zip(results, right, strict=True)
                        ]
                    )
                )
        ours_, theirs_ = (np.concatenate(errors[side]) for side in ("ours", "theirs"))
        assert np.sqrt(np.mean(ours_**2)) <= 1.5 * np.sqrt(np.mean(theirs_**2))
        assert np.abs(ours_).max() <= 2 * np.abs(theirs_).max()

    @staticmethod
    def _call(kind: Kind, name: str, seed: int) -> Call:
        options, size = ACCURACY[name]
        L, S = (75, 80) if kind.dtype == "float64" else (300, 333)  # long doubles are slow
        options = {
            option: value[:L, :S] if option == "attn_mask" else value
            for option, value in options.items()
        }
        shapes = (1, 2, L, 16), (1, 2, S, 16), (1, 2, S, 16)
        numbers = [normal(*shape, seed=600 + 3 * seed + n) for n, shape in enumerate(shapes)]
        numbers[0] *= size
        return Call(numbers, options)

    @staticmethod
    def _right(call: Call, kind: Kind, of_gradients: bool) -> list[np.ndarray]:
        dtype = np.longdouble if kind.dtype == "float64" else np.float64
        if of_gradients:
            return call.solved_gradients(kind, dtype=dtype)
        return [call.solved(kind, dtype=dtype).output]

    @staticmethod
    def _tensors(call: Call, kind: Kind) -> tuple[list[Any], dict[str, Any]]:
        of_torch = Kind("torch", kind.dtype)
        return call.arrays(of_torch), call.options_for(of_torch)

    def _pytorch_output(self, call: Call, kind: Kind) -> list[Any]:
        import torch

        tensors, options = self._tensors(call, kind)
        return [torch.nn.functional.scaled_dot_product_attention(*tensors, **options)]

    def _pytorch_gradients(self, call: Call, kind: Kind) -> list[Any]:
        import torch

        tensors, options = self._tensors(call, kind)
        leaves = [tensor.requires_grad_() for tensor in tensors]
        output = torch.nn.functional.scaled_dot_product_attention(*leaves, **options)
        grad_output = call.grad_output(Kind("torch", kind.dtype))
        return list(torch.autograd.grad(output, leaves, grad_output))


# --- memory ---------------------------------------------------------------------------------------

MIB = 2**20
H = 8
MEMORY = {
    "float32": ("float32", 3072, 3072, {}),
    "float16": ("float16", 2048, 2048, {}),
    "float64": ("float64", 2048, 2048, {}),
    "causal": ("float32", 4096, 4096, {"is_causal": True}),
    "window": ("float32", 4096, 4096, {"is_causal": True, "window": (256, 0)}),
    "window in float16": ("float16", 4096, 4096, {"window": (128, 128)}),
    "bool mask": ("float32", 2048, 2048, {"attn_mask": lambda r, L, S: r.random((L, S)) < 0.5}),
    "float mask": ("float32", 2048, 2048, {"attn_mask": lambda r, L, S: r.random((L, S), "f4")}),
    "wider float mask": ("float16", 2048, 2048, {"attn_mask": lambda r, L, S: r.random((L, S))}),
    "padding": ("float32", 2048, 2048, {"key_mask": lambda r, L, S: r.random((1, S)) < 0.5}),
    "softcap": ("float32", 2048, 2048, {"softcap": 3.0}),
    "large norms": ("float32", 2048, 2048, {"scale": 40.0}),
    "grouped heads in float16": ("float16", 2048, 2048, {}),
    "one query": ("float32", 1, 65536, {}),
    "one query, grouped heads": ("float32", 1, 65536, {}),
    "one query in float16": ("float16", 1, 8192, {}),
    "few queries in float16": ("float16", 3, 32768, {}),
    "wide window": ("float32", 2048, 2048, {"window": (1024, 1024)}),
    "wide window, large norms": ("float32", 2048, 2048, {"window": (2047, 0), "scale": 40.0}),
    "wide window in float64": ("float64", 2048, 2048, {"window": (1500, 700)}),
    "bool mask in float64": (
        "float64",
        2048,
        2048,
        {"attn_mask": lambda r, L, S: r.random((L, S)) < 0.5},
    ),
}

GRADIENTS = {
    "float32": ("float32", 64, {}),
    "causal": ("float32", 64, {"is_causal": True}),
    "float16": ("float16", 64, {}),
    "float64": ("float64", 64, {}),
    "softcap": ("float32", 64, {"softcap": 3.0}),
    "softcap in float64": ("float64", 64, {"softcap": 3.0}),
    "bool mask": ("float32", 64, {"attn_mask": lambda r, L, S: r.random((L, S)) < 0.5}),
    "bool mask in float64": ("float64", 16, {"attn_mask": lambda r, L, S: r.random((L, S)) < 0.5}),
    "wide window": ("float32", 64, {"window": (1024, 1024)}),
}


def peak_beyond(function: Callable[[], tuple[np.ndarray, ...]]) -> float:
    """Return the most memory that a call had, less what it returns, in MiB."""
    tracemalloc.start()
    try:
        returned = function()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - sum(array.nbytes for array in returned)) / MIB


class TestMemory:
    """On two threads; each has tiles of its own. Most score matrices would take 64 MiB and more."""

    @pytest.mark.parametrize("name", MEMORY)
    def test_beyond_the_output_is_8_mib_at_most(self, name):
        dtype, L, S, made = MEMORY[name]
        heads = 2 if "grouped" in name else H
        width = 16 if L > 16 else 64  # copies of keys are what few queries can spend on
        random = np.random.default_rng(517)
        query, key, value = (
            random.normal(size=(1, count, length, width)).astype(dtype)
            for count, length in ((H, L), (heads, S), (heads, S))
        )
        options = {n: o(random, L, S) if callable(o) else o for n, o in made.items()}
        options["enable_gqa"] = heads != H
        kind = Kind("numpy", dtype)
        small_call().attend(kind)  # what only the first call needs
        with tuned(kind, workers=2):
            beyond = peak_beyond(
                lambda: (scaled_dot_product_attention(query, key, value, **options),)
            )
        assert beyond <= 8

    @pytest.mark.parametrize("length", [1, 15], ids="{} queries".format)
    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("stored", ["by columns", "backwards"])
    def test_beyond_the_output_is_8_mib_however_keys_are_stored(self, stored, dtype, length):
        random = np.random.default_rng(519)
        query = random.normal(size=(1, H, length, 64)).astype(dtype)
        if stored == "by columns":
            arrays = [
                random.normal(size=(1, H, 64, 16384)).astype(dtype).swapaxes(-1, -2)
                for _ in range(2)
            ]
        else:
            arrays = [
                random.normal(size=(1, H, 16384, 64)).astype(dtype)[..., ::-1] for _ in range(2)
            ]
        kind = Kind("numpy", dtype)
        small_call().attend(kind)
        with tuned(kind, workers=2):
            beyond = peak_beyond(lambda: (scaled_dot_product_attention(query, *arrays),))
        assert beyond <= 8

    @pytest.mark.parametrize("name", GRADIENTS)
    def test_beyond_the_gradients_is_8_mib_at_most(self, name):
        dtype, width, made = GRADIENTS[name]
        random = np.random.default_rng(518)
        arrays = [random.normal(size=(1, H, 2048, width)).astype(dtype) for _ in range(4)]
        options = {n: o(random, 2048, 2048) if callable(o) else o for n, o in made.items()}
        kind = Kind("numpy", dtype)
        small_call().gradients(kind)
        with tuned(kind, workers=2):
            beyond = peak_beyond(lambda: attention_gradients(*arrays, **options))
        in_float32 = 3 * arrays[0].size * 4 / MIB if dtype == "float16" else 0  # sums of them
        assert beyond <= 8 + in_float32

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    @pytest.mark.parametrize("length", [1, 15], ids="{} queries".format)
    def test_beyond_the_gradients_of_few_queries_is_8_mib_at_most(self, length, dtype):
        random = np.random.default_rng(520)
        query, grad_output = (random.normal(size=(H, length, 64)).astype(dtype) for _ in range(2))
        key, value = (random.normal(size=(H, 16384, 64)).astype(dtype) for _ in range(2))
        kind = Kind("numpy", dtype)
        small_call().gradients(kind)
        with tuned(kind, workers=2):
            beyond = peak_beyond(lambda: attention_gradients(query, key, value, grad_output))
        assert beyond <= 8


# --- other callers, errors, interrupts, processes -------------------------------------------------


def blas_threads() -> list[int]:
    """Return how many threads each BLAS that can be told so would use."""
    return [
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        if library["internal_api"] == "openblas"
    ]


@pytest.fixture
def two_blas_threads() -> Iterator[list[int]]:
    """Let BLAS use two threads, whatever the machine has."""
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        yield blas_threads()


def check_no_thread_is_left(before: int) -> None:
    """Assert that there are no more threads than before, once those that stop have stopped."""
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() <= before


def before_each_operation(monkeypatch: pytest.MonkeyPatch, action: Callable[[], Any]) -> None:
    """Let `action` run before each of NumPy's products and exponentials, in whatever thread."""

    def first_act(function: Callable, *arrays: Any, **options: Any) -> Any:
        action()
        return function(*arrays, **options)

    for name in ("matmul", "exp", "exp2"):
        monkeypatch.setattr(np, name, partial(first_act, getattr(np, name)))


def repeat(function: Callable[..., Any], *arguments: Any, times: int = 200) -> None:
    """Call again and again: of several threads, one that comes late may find nothing left to do."""
    for _ in range(times):
        function(*arguments)


each_function = pytest.mark.parametrize("function", [Call.attend, Call.gradients])


class TestCallers:
    KIND = NUMPY_FLOAT32
    SIZES = all_sizes("numpy", 4)

    @each_function
    def test_find_blas_held_to_one_thread_while_workers_run_and_given_back_after(
        self, monkeypatch, two_blas_threads, function
    ):
        seen_inside: list[list[int]] = []

        def look() -> None:
            if len(seen_inside) < 5:
                seen_inside.append(blas_threads())

        with tuned(self.KIND, self.SIZES, workers=3), monkeypatch.context() as patched:
            before_each_operation(patched, look)
            function(small_call(), self.KIND)
        assert len(two_blas_threads) > 0, "NumPy's BLAS is not OpenBLAS: nothing is held"
        assert [1] * len(two_blas_threads) in seen_inside
        assert blas_threads() == two_blas_threads

    def test_that_overlap_give_blas_back_when_the_last_is_done(self, two_blas_threads):
        with tuned(self.KIND, self.SIZES, workers=3), hasty_threads():
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda name: small_call(name).attend(self.KIND), [*OPTIONS] * 3))
            assert blas_threads() == two_blas_threads

    @each_function
    @pytest.mark.parametrize("where", ["in the calling thread", "in another thread"])
    @pytest.mark.parametrize("after", [0, 7, 40])
    def test_see_an_error_of_any_worker_and_leave_nothing_behind(
        self, monkeypatch, two_blas_threads, function, where, after
    ):
        call, caller = small_call("causal"), threading.get_ident()
        threads, counts = threading.active_count(), {"calls": 0}

        def fail() -> None:
            if (threading.get_ident() == caller) != (where == "in the calling thread"):
                time.sleep(1e-4)  # leave work to the others
                return
            counts["calls"] += 1
            if counts["calls"] > after:
                raise MemoryError

        with tuned(self.KIND, self.SIZES, workers=3), hasty_threads():
            expected = result(call, self.KIND)
            with monkeypatch.context() as patched:
                before_each_operation(patched, fail)
                with pytest.raises(MemoryError):
                    repeat(function, call, self.KIND)
            assert blas_threads() == two_blas_threads
            check_no_thread_is_left(threads)
            for array, right in zip(result(call, self.KIND), expected, strict=True):
                check_equal_bits(array, right)


class TestInterrupts:
    """Ctrl-C raises KeyboardInterrupt in the main thread, between any two steps."""

    KIND = NUMPY_FLOAT32
    ENGINES = str(Path(attnlib.engines.__file__).parent)

    @pytest.mark.parametrize("workers", [1, 3])
    @pytest.mark.parametrize("name", ["dense", "padding for each item"])
    @each_function
    def test_at_any_line_of_an_engine_leave_the_next_call_right(self, function, name, workers):
        call, threads = small_call(name), threading.active_count()
        with tuned(self.KIND, all_sizes("numpy", 5), workers=workers):
            expected = result(call, self.KIND)
            lines = self._lines_run(lambda: function(call, self.KIND), stop_at=None)
            stops = range(1, lines, max(1, lines // 20))
            interrupted = 0
            for line in stops:
                try:
                    self._lines_run(lambda: function(call, self.KIND), stop_at=line)
                except KeyboardInterrupt:
                    interrupted += 1
                array = call.attend(self.KIND)
                check_equal_bits(array, expected[2])
            # How much is left to the caller where other threads work too is up to the machine.
            assert interrupted == len(stops) if workers == 1 else interrupted
            for array, right in zip(result(call, self.KIND), expected, strict=True):
                check_equal_bits(array, right)
        check_no_thread_is_left(threads)

    def _lines_run(self, function: Callable[[], Any], stop_at: int | None) -> int:
        """Run `function`, and raise KeyboardInterrupt at one of the engine's lines.

        Not where BLAS is held: a trace can raise between a lock and its release, where a signal
        is not let in.
        """
        lines = 0

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal lines
            file = frame.f_code.co_filename
            if not file.startswith(self.ENGINES) or file.endswith("_blas_threads.py"):
                return None
            lines += event == "line"
            if event == "line" and lines == stop_at:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)
        return lines

    @each_function
    @pytest.mark.parametrize("after", [0, 7, 40])
    def test_inside_a_call_give_blas_back_and_end_its_threads(
        self, monkeypatch, two_blas_threads, function, after
    ):
        call, caller = small_call("causal"), threading.get_ident()
        threads, counts = threading.active_count(), {"calls": 0}

        def interrupt() -> None:
            if threading.get_ident() != caller:
                time.sleep(1e-4)  # leave work to the others
                return
            counts["calls"] += 1
            if counts["calls"] > after:
                raise KeyboardInterrupt

        with tuned(self.KIND, all_sizes("numpy", 4), workers=3):
            expected = result(call, self.KIND)
            with monkeypatch.context() as patched:
                before_each_operation(patched, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    repeat(function, call, self.KIND)
            assert blas_threads() == two_blas_threads
            check_no_thread_is_left(threads)
            for array, right in zip(result(call, self.KIND), expected, strict=True):
                check_equal_bits(array, right)

    @each_function
    @pytest.mark.parametrize("started", [0, 1, 2])
    def test_while_its_threads_start_is_what_the_caller_sees(self, monkeypatch, function, started):
        """Some run already, others have not begun: neither kind may hide the interrupt."""
        call, threads, starts = small_call("causal"), threading.active_count(), []
        start = threading.Thread.start

        def interrupted_start(thread: threading.Thread) -> None:
            starts.append(thread)
            if len(starts) > started:
                raise KeyboardInterrupt
            start(thread)

        with tuned(self.KIND, all_sizes("numpy", 4), workers=4):
            expected = result(call, self.KIND)
            with monkeypatch.context() as patched:
                patched.setattr(threading.Thread, "start", interrupted_start)
                with pytest.raises(KeyboardInterrupt):
                    function(call, self.KIND)
            check_no_thread_is_left(threads)
            for array, right in zip(result(call, self.KIND), expected, strict=True):
                check_equal_bits(array, right)

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers on this system")
    @each_function
    def test_by_a_signal_inside_a_long_call_leave_the_next_call_right(self, function):
        call, threads = long_call((512, 512), "dense"), threading.active_count()
        with tuned(self.KIND, all_sizes("numpy", 100), workers=3):
            expected = result(call, self.KIND)
            start = time.perf_counter()
            function(call, self.KIND)
            seconds = time.perf_counter() - start
            for share in np.linspace(0.02, 0.98, 15):
                with pytest.raises(KeyboardInterrupt), interrupting_signal(share * seconds):
                    repeat(function, call, self.KIND, times=10_000)  # however fast it may be
                check_equal_bits(call.attend(self.KIND), expected[2])
            for array, right in zip(result(call, self.KIND), expected, strict=True):
                check_equal_bits(array, right)
        check_no_thread_is_left(threads)


@contextmanager
def interrupting_signal(seconds: float) -> Iterator[None]:
    """Let a timer's signal do after so many seconds what Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


FORK = """
import multiprocessing, os, signal, sys
import numpy as np
from attnlib import attention_gradients, scaled_dot_product_attention

random = np.random.default_rng(1)
arrays = [random.normal(size=(4, 400, 16)).astype("float32") for _ in range(4)]

def results(_=None):
    signal.alarm(120)  # a child that waits for a thread it does not have must not wait for ever
    output = scaled_dot_product_attention(*arrays[:3], is_causal=True)
    return [output, *attention_gradients(*arrays, is_causal=True)]

def agree(found):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))

expected = results()
child = os.fork()
if child == 0:
    os._exit(0 if agree(results()) else 1)
assert os.waitpid(child, 0)[1] == 0, "the child of a fork"
assert agree(results()), "the parent after a fork"
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(agree(found) for found in pool.map(results, range(4))), "a pool of processes"
assert agree(results()), "the parent after a pool"
print("all agree")
"""


class TestFork:
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
    @pytest.mark.parametrize("workers", [1, 3])
    def test_after_use_computes_right_in_the_child(self, workers):
        many = f"import attnlib.engines.numpy_tiled as e; e.worker_count = lambda: {workers}\n"
        many += "e._WORK_PER_THREAD = 1\n"
        done = subprocess.run(
            [sys.executable, "-c", many + FORK],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout == "all agree\n", done.stderr


# --- derivatives ----------------------------------------------------------------------------------


def by_elementary_operations(call: Call, kind: Kind) -> tuple[Any, list[Any]]:
    """The output of a call and its float64 leaves, by operations that autograd knows singly."""
    import torch

    leaves = [torch.from_numpy(to_numpy(array)).requires_grad_() for array in call.arrays(kind)]
    options = call.plain_options(kind)
    query, key, value = leaves
    group = query.shape[-3] // key.shape[-3]
    key, value = (array.repeat_interleave(group, dim=-3) for array in (key, value))
    scale = query.shape[-1] ** -0.5 if options.get("scale") is None else options["scale"]
    scores = query @ key.mT * scale
    if options.get("softcap") is not None:
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    bias = torch.from_numpy(as_bias(options, tuple(scores.shape)))
    allowed = bias > -torch.inf
    exps = torch.where(allowed, scores + torch.where(allowed, bias, 0.0), 0.0).exp() * allowed
    weights = exps / exps.sum(dim=-1, keepdim=True).clamp(min=1e-300)
    return weights @ value, leaves


def as_bias(options: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """All that masks, positions and padding say, as one float mask."""
    positions = {
        name: options[name]
        for name in ("is_causal", "causal_offset", "window", "key_mask")
        if options.get(name) is not None
    }
    allowed = np.broadcast_to(equation.visible(shape, shape[:-3], **positions), shape)
    bias = np.where(allowed, 0.0, -np.inf)
    mask = options.get("attn_mask")
    if mask is None:
        return bias
    return bias + (np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask)


@needs_torch
class TestBackward:
    @each_option
    @pytest.mark.parametrize("kind", [NUMPY_FLOAT64, NUMPY_FLOAT32], ids=str)
    def test_of_numpy_at_every_size_of_tile_is_that_of_autograd(self, kind, name):
        import torch

        call = small_call(name)
        output, leaves = by_elementary_operations(call, kind)
        grad_output = torch.from_numpy(to_numpy(call.grad_output(kind)))
        expected = [array.numpy() for array in torch.autograd.grad(output, leaves, grad_output)]
        for size in (2, 3, 5, 8, 21, 1 << 20):
            with tuned(kind, all_sizes("numpy", size), workers=1 + size % 2):
                check_gradients(call.gradients(kind), expected, kind, factor=10)


@needs_torch
class TestDerivatives:
    """In strips of two queries, as long calls are in strips of many."""

    KIND = Kind("torch", "float64")

    @classmethod
    def _function(cls, name: str) -> tuple[Callable, list[Any]]:
        call = small_call(name)
        options = call.options_for(cls.KIND)
        return lambda *arrays: scaled_dot_product_attention(*arrays, **options), [
            array.requires_grad_() for array in call.arrays(cls.KIND)
        ]

    @each_option
    def test_are_those_of_finite_differences(self, name):
        import torch

        function, leaves = self._function(name)
        with tuned(self.KIND, all_sizes("torch", 2)):
            assert torch.autograd.gradcheck(function, leaves, fast_mode=True)

    @each_option
    def test_of_second_order_are_too_under_the_math_backend(self, name):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        function, leaves = self._function(name)
        with tuned(self.KIND, all_sizes("torch", 2)), sdpa_kernel(SDPBackend.MATH):
            assert torch.autograd.gradgradcheck(function, leaves, fast_mode=True)

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # inside PyTorch
    @pytest.mark.parametrize("name", [name for name in OPTIONS if "softcap" not in OPTIONS[name]])
    def test_forward_and_mapped_are_those_of_pytorch_under_the_math_backend(self, name):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        ours, leaves = self._function(name)
        arrays = tuple(leaf.detach() for leaf in leaves)
        tangents = tuple(leaf.detach() for leaf in small_call(seed=520).arrays(self.KIND))
        options = small_call(name).plain_options(self.KIND)
        bias = torch.from_numpy(as_bias(options, (B, Hq, L, S)))

        def theirs(*arrays: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(
                *arrays, bias, scale=options.get("scale"), enable_gqa=True
            )

        stacks = [torch.stack([array, tangent, array - tangent])
                  for array, tangent in zip(arrays, tangents, strict=True)]  # fmt: skip
        with tuned(self.KIND, all_sizes("torch", 2)), sdpa_kernel(SDPBackend.MATH):
            for derived in (
                lambda function: torch.func.jvp(function, arrays, tangents)[1],
                lambda function: torch.func.vmap(function)(*stacks),
            ):
                torch.testing.assert_close(derived(ours), derived(theirs), rtol=1e-9, atol=1e-11)
