"""Correctness under the speed: however the work is cut up, whoever else is calling, at any limit.

The engines' tiles, blocks, groups, strips and threads are made small (`tuning.py`), so that calls
of a few queries meet every edge that long ones have; real sizes around the usual edges come after.
The reference is the float64 loop where it is fast enough, and its equal in NumPy (`whole.py`) where
it is not.
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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, note, settings
from hypothesis import strategies as st

import attnlib.engines
from attnlib import attention_gradients, scaled_dot_product_attention
from tests import reference
from tests.attnlib.engines import whole
from tests.attnlib.engines.tuning import USUAL, all_sizes, drawn_sizes, tuned
from tests.kinds import (
    HAS_TORCH,
    KINDS,
    NUMPY_FLOAT64,
    TORCH_KINDS,
    Kind,
    check_close,
    check_equal_bits,
    to_numpy,
)

NUMPY_KINDS = [kind for kind in KINDS if kind.library == "numpy"]
NUMPY_FLOAT32 = Kind("numpy", "float32")
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
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

    def solved(self, kind: Kind, **more: Any) -> whole.Whole:
        """What the call gives, from the numbers as `kind` rounds them."""
        arrays = map(to_numpy, self.arrays(kind))
        return whole.attention(*arrays, **self.plain_options(kind), **more)

    def solved_gradients(self, kind: Kind, **more: Any) -> list[np.ndarray]:
        arrays = [*map(to_numpy, self.arrays(kind)), to_numpy(self.grad_output(kind))]
        return whole.gradients(*arrays, **self.plain_options(kind), **more)


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


# --- the references, and the tools of these tests --------------------------------------------------


class TestReference:
    """`whole.py` computes what the loops compute."""

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


# --- every way of cutting up the work ---------------------------------------------------------------


class TestEveryCut:
    @settings(max_examples=250)
    @given(
        call=calls(), kind=st.sampled_from(NUMPY_KINDS), sizes=drawn_sizes("numpy"),
        workers=st.sampled_from([1, 3]),
    )  # fmt: skip
    def test_numpy_engine_gives_what_the_loop_gives(self, call, kind, sizes, workers):
        note(f"{kind}, {sizes}, {workers} workers, {call}")
        with tuned(kind, sizes, workers=workers):
            self._check(call, kind)

    @needs_torch
    @settings(max_examples=200)
    @given(
        call=calls(), kind=st.sampled_from(TORCH_KINDS), sizes=drawn_sizes("torch"),
        as_on_a_gpu=st.booleans(),
    )  # fmt: skip
    def test_torch_engine_gives_what_the_loop_gives(self, call, kind, sizes, as_on_a_gpu):
        note(f"{kind}, {sizes}, as on a GPU: {as_on_a_gpu}, {call}")
        with tuned(kind, sizes), device_that_hides_values(as_on_a_gpu):
            self._check(call, kind, rounding(kind) * (5 if as_on_a_gpu else 1))

    @staticmethod
    def _check(call: Call, kind: Kind, factor: float | None = None) -> None:
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


# --- real sizes around the usual edges --------------------------------------------------------------

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
def long_solution(lengths: tuple[int, int], name: str) -> whole.Whole:
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
