"""Inputs of the measurements, and the calls that are set against each other.

A function that makes inputs takes ``Sizes``; a function that makes a call takes ``Inputs`` and
returns a callable without arguments, so that nothing but the call itself is timed. torch is
imported where it is needed, so that a process that measures NumPy alone has none.
"""

import atexit
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

Call = Callable[[], Any]


class Sizes(NamedTuple):
    """The axes of a call, in the letters of the notation page."""

    lead: tuple[int, ...]
    """Batch and query heads: every axis before length."""
    L: int
    E: int
    S: int | None = None
    """Keys; None: as many as queries."""
    Ev: int | None = None
    """Width of value; None: that of the keys."""
    kv_heads: int | None = None
    """Key/value heads; None: as many as query heads."""
    window: int | None = None
    """Keys that a query sees, its own among them."""
    dtype: str = "float32"

    @property
    def keys(self) -> int:
        return self.L if self.S is None else self.S

    def __str__(self) -> str:
        text = f"({', '.join(map(str, (*self.lead, self.L, self.E)))})"
        parts = (
            ("S ", self.S),
            ("Ev ", self.Ev),
            ("key/value heads ", self.kv_heads),
            ("window ", self.window),
            ("", None if self.dtype == "float32" else self.dtype),
        )
        return text + "".join(f" {name}{part}" for name, part in parts if part is not None)


def tiny(sizes: Sizes) -> Sizes:
    """The same call, so small that it takes no time: for tests."""
    lead = tuple(min(axis, 2) for axis in sizes.lead)
    kv_heads = None
    if sizes.kv_heads is not None:
        lead, kv_heads = (*lead[:-1], 4), 2
    return Sizes(
        lead,
        min(sizes.L, 40),
        min(sizes.E, 8),
        None if sizes.S is None else min(sizes.S, 72),
        None if sizes.Ev is None else min(sizes.Ev, 12),
        kv_heads,
        None if sizes.window is None else min(sizes.window, 9),
        sizes.dtype,
    )


@dataclass(frozen=True)
class Inputs:
    """One call of ``scaled_dot_product_attention``, as arrays or as tensors."""

    query: Any
    key: Any
    value: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    """What else attnlib is given."""
    visible: Any = None
    """The pairs that the options allow, as one mask: for those who know no such options."""
    grad_output: Any = None


# --- inputs ---------------------------------------------------------------------------------------


def dense(sizes: Sizes, *, query_scale: float = 1.0, **options: Any) -> Inputs:
    """Standard normal query, key, value and output gradient."""
    random = np.random.default_rng(7)
    key_lead = sizes.lead if sizes.kv_heads is None else (*sizes.lead[:-1], sizes.kv_heads)
    width = sizes.E if sizes.Ev is None else sizes.Ev

    def draw(*shape: int) -> np.ndarray:
        kind = sizes.dtype if sizes.dtype != "float16" else "float32"
        return random.standard_normal(shape, dtype=kind).astype(sizes.dtype, copy=False)

    if sizes.kv_heads is not None:
        options = {"enable_gqa": True, **options}
    return Inputs(
        query=draw(*sizes.lead, sizes.L, sizes.E) * np.dtype(sizes.dtype).type(query_scale),
        key=draw(*key_lead, sizes.keys, sizes.E),
        value=draw(*key_lead, sizes.keys, width),
        grad_output=draw(*sizes.lead, sizes.L, width),
        options=options,
    )


def causal(sizes: Sizes, **options: Any) -> Inputs:
    """Query i sees keys 0 … i."""
    return _with_band(sizes, dense(sizes, is_causal=True, **options), 0, None)


def prefill(sizes: Sizes) -> Inputs:
    """The queries are the last of the tokens: a chunk of a prompt, after those in the cache."""
    offset = sizes.keys - sizes.L
    return _with_band(sizes, dense(sizes, is_causal=True, causal_offset=offset), offset, None)


def windowed(sizes: Sizes) -> Inputs:
    """Query i sees itself and the keys before it, ``window`` of them in all."""
    left = sizes.window - 1
    return _with_band(sizes, dense(sizes, is_causal=True, window=(left, 0)), 0, left)


def _with_band(sizes: Sizes, inputs: Inputs, offset: int, left: int | None) -> Inputs:
    if sizes.L * sizes.keys > 1 << 27:
        return inputs  # nobody is given a mask of that size
    visible = np.tri(sizes.L, sizes.keys, offset, dtype=bool)
    if left is not None:
        visible &= ~np.tri(sizes.L, sizes.keys, offset - left - 1, dtype=bool)
    return replace(inputs, visible=visible)


def causal_mask(sizes: Sizes) -> Inputs:
    """The causal mask, given as a boolean array."""
    mask = np.tri(sizes.L, sizes.keys, dtype=bool)
    return replace(dense(sizes, attn_mask=mask), visible=mask)


def random_mask(sizes: Sizes, *, per_head: bool) -> Inputs:
    """Half of the pairs, drawn at random; each head its own, or one mask for all."""
    lead = sizes.lead if per_head else ()
    mask = np.random.default_rng(8).random((*lead, sizes.L, sizes.keys)) < 0.5
    return replace(dense(sizes, attn_mask=mask), visible=mask)


def padded(sizes: Sizes) -> Inputs:
    """Items of different lengths: between a quarter of the keys and all of them are real."""
    real = np.linspace(sizes.keys / 4, sizes.keys, sizes.lead[0]).astype(int)
    return _with_key_mask(sizes, np.arange(sizes.keys) < real[:, None])


def half_padded(sizes: Sizes) -> Inputs:
    """The second half of the keys is padding."""
    mask = np.arange(sizes.keys) < sizes.keys // 2
    return _with_key_mask(sizes, np.broadcast_to(mask, (sizes.lead[0], sizes.keys)).copy())


def with_holes(sizes: Sizes) -> Inputs:
    """A key in eight is switched off, anywhere."""
    mask = np.random.default_rng(9).random((sizes.lead[0], sizes.keys)) < 7 / 8
    return _with_key_mask(sizes, mask)


def _with_key_mask(sizes: Sizes, mask: np.ndarray) -> Inputs:
    return replace(dense(sizes, key_mask=mask), visible=mask[:, None, None])


def tensors(make: Callable[[Sizes], Inputs]) -> Callable[[Sizes], Inputs]:
    """The same inputs as tensors."""
    return lambda sizes: map_arrays(make(sizes), _tensor)


def map_arrays(inputs: Inputs, change: Callable[[Any], Any]) -> Inputs:
    """Inputs with every array changed, in the options too."""

    def maybe(entry: Any) -> Any:
        return change(entry) if hasattr(entry, "shape") else entry

    return Inputs(
        *map(maybe, (inputs.query, inputs.key, inputs.value)),
        {name: maybe(option) for name, option in inputs.options.items()},
        *map(maybe, (inputs.visible, inputs.grad_output)),
    )


def _tensor(array: Any) -> Any:
    import torch

    return array if isinstance(array, torch.Tensor) else torch.from_numpy(array)


# --- calls ----------------------------------------------------------------------------------------


def library(inputs: Inputs, **changes: Any) -> Call:
    """``attnlib.scaled_dot_product_attention``."""
    from attnlib import scaled_dot_product_attention

    arrays = inputs.query, inputs.key, inputs.value
    return partial(scaled_dot_product_attention, *arrays, **{**inputs.options, **changes})


def library_twice(inputs: Inputs) -> Call:
    """attnlib on twice the length: the inputs, and the same once more."""
    arrays = (np.concatenate([x, x], axis=-2) for x in (inputs.query, inputs.key, inputs.value))
    return library(Inputs(*arrays, inputs.options))


def library_gradients(inputs: Inputs) -> Call:
    """``attnlib.attention_gradients``, which computes the weights itself."""
    from attnlib import attention_gradients

    arrays = inputs.query, inputs.key, inputs.value, inputs.grad_output
    return partial(attention_gradients, *arrays, **inputs.options)


def library_without(inputs: Inputs, changes: Mapping[str, Any]) -> Call:
    """attnlib with parts of its NumPy engine replaced: how much slower is it without them?"""
    call = library(inputs)

    def changed() -> Any:
        with ExitStack() as stack:
            for name, change in changes.items():
                stack.enter_context(mock.patch(f"attnlib.engines.numpy_tiled.{name}", change))
            return call()

    return changed


def pytorch(inputs: Inputs, *, is_causal: bool = False) -> Call:
    """``F.scaled_dot_product_attention`` on the same call; what it has no word for is a mask."""
    from torch.nn.functional import scaled_dot_product_attention

    inputs = map_arrays(inputs, _tensor)
    options: dict[str, Any] = {"is_causal": True} if is_causal else {}
    if not is_causal and inputs.visible is not None:
        options["attn_mask"] = inputs.visible
    if inputs.options.get("enable_gqa"):
        options["enable_gqa"] = True
    arrays = inputs.query, inputs.key, inputs.value
    return partial(scaled_dot_product_attention, *arrays, **options)


def pytorch_math(inputs: Inputs, *, is_causal: bool = False) -> Call:
    """PyTorch without its fused kernels: all scores in memory."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    call = pytorch(inputs, is_causal=is_causal)

    def by_equation() -> Any:
        with sdpa_kernel(SDPBackend.MATH):
            return call()

    return by_equation


def pytorch_backward(inputs: Inputs, *, is_causal: bool = False, with_forward: bool) -> Call:
    """PyTorch's gradients by query, key and value, with or without the forward pass."""
    import torch

    inputs = map_arrays(inputs, _tensor)
    leaves = tuple(x.requires_grad_() for x in (inputs.query, inputs.key, inputs.value))
    forward = pytorch(inputs, is_causal=is_causal)
    if with_forward:
        return lambda: torch.autograd.grad(forward(), leaves, inputs.grad_output)
    output = forward()
    return partial(torch.autograd.grad, output, leaves, inputs.grad_output, retain_graph=True)


def three_lines(inputs: Inputs) -> Call:
    """Attention as it is usually written in NumPy."""
    query, key, value = inputs.query, inputs.key, inputs.value
    length, keys, width = query.shape[-2], key.shape[-2], query.shape[-1]

    def call() -> np.ndarray:
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(width)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ value

    def causal_call() -> np.ndarray:
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(width)
        scores = np.where(np.tri(length, keys, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ value

    return causal_call if inputs.options.get("is_causal") else call


def appends(inputs: Inputs) -> Call:
    """Fill a ``KVCache`` with all keys, token by token."""
    from attnlib import KVCache

    keys, values = inputs.key, inputs.value
    tokens = [(keys[..., i : i + 1, :], values[..., i : i + 1, :]) for i in range(keys.shape[-2])]

    def call() -> tuple[np.ndarray, np.ndarray]:
        cache = KVCache()
        for key, value in tokens:
            cache.append(key, value)
        return cache.keys, cache.values

    return call


def concatenation(inputs: Inputs) -> Call:
    """What one append costs on average when all is copied: with half of the tokens there."""
    half = inputs.key.shape[-2] // 2
    pairs = [
        (array[..., :half, :].copy(), array[..., half : half + 1, :])
        for array in (inputs.key, inputs.value)
    ]
    return lambda: [np.concatenate(pair, axis=-2) for pair in pairs]


def import_of(module: str) -> Call:
    """CPU seconds that a fresh Python takes to import a module, compiled on an earlier import.

    Where an environment variable forbids Python to keep what it compiles, a package installed from
    a checkout is compiled each time, and one that pip compiled is not: no comparison.
    """
    compiled = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    code = (
        "import time; start = time.process_time(); "
        f"import {module}; print(time.process_time() - start)"
    )
    environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def call() -> float:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return float(done.stdout)

    call()  # compiles
    return call
