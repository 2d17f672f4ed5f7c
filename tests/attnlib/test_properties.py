"""Random calls of every shape that the contract allows, against the float64 loop.

Hypothesis draws the kind of array, the shapes, what broadcasts, the memory layout, masks,
positions, windows, groups and numbers; the same examples on every run (see `tests/conftest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from attnlib import (
    KVCache,
    MultiHeadAttention,
    attention_gradients,
    causal_attention,
    dense_attention,
    scaled_dot_product_attention,
)
from attnlib.dense import tiled_attention
from tests import reference
from tests.kinds import (
    FLOAT64_KINDS,
    KINDS,
    NUMPY_FLOAT64,
    Kind,
    check_close,
    check_unchanged,
    needs_torch,
    snapshot,
    to_numpy,
)

Shape = tuple[int, ...]


@dataclass
class RandomCall:
    """A call in float64 NumPy arrays, and how each array lies in memory."""

    arrays: list[np.ndarray]
    mask: np.ndarray | None
    options: dict[str, Any]
    layouts: list[str] = field(default_factory=lambda: ["plain"] * 3)

    def made_for(self, kind: Kind) -> tuple[list[Any], Any, dict[str, Any]]:
        """Return arrays, mask and options as arrays of `kind`."""
        arrays = [
            laid_out(kind.floats(array), layout)
            for array, layout in zip(self.arrays, self.layouts, strict=True)
        ]
        mask = self.mask
        if mask is not None:
            mask = kind.plain(mask) if mask.dtype == bool else kind.floats(mask)
        options = {
            name: kind.plain(option) if isinstance(option, np.ndarray) else option
            for name, option in self.options.items()
        }
        return arrays, mask, options


def laid_out(array: Any, layout: str) -> Any:
    """Return the numbers of `array` in another memory layout."""
    if layout == "transposed" and array.ndim > 1:
        swapped = array.swapaxes(-1, -2)
        copied = swapped.copy() if isinstance(array, np.ndarray) else swapped.contiguous()
        return copied.swapaxes(-1, -2)
    if layout == "spread":
        wide = np.repeat(to_numpy(array), 2, axis=-1)
        if isinstance(array, np.ndarray):
            return wide.astype(array.dtype)[..., ::2]
        return array.repeat_interleave(2, dim=-1)[..., ::2]
    if layout == "backwards" and isinstance(array, np.ndarray) and array.ndim > 1:
        return array[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    return array


@st.composite
def stretched(draw: st.DrawFn, shape: Shape) -> Shape:
    """Draw a shape that broadcasts to `shape`: some axes are 1, some leading ones are missing."""
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    kept = draw(st.integers(0, len(shape)))
    return tuple(1 if one else size for one, size in zip(ones, shape, strict=True))[kept:]


sizes = st.integers(0, 5)
widths = st.integers(1, 4)
layouts = st.sampled_from(["plain", "transposed", "spread", "backwards"])
windows = st.none() | st.tuples(*[st.none() | st.integers(0, 4)] * 2)


@st.composite
def calls(draw: st.DrawFn) -> RandomCall:
    """Draw one call that the contract allows."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    L, S, E, Ev = draw(sizes), draw(sizes), draw(widths), draw(widths)
    enable_gqa = draw(st.booleans())
    batch: Shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    if enable_gqa:
        heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        lead = (*batch, heads * group)
        own = [(*draw(stretched(batch)), count) for count in (heads * group, heads, heads)]
    else:
        lead = (*batch, *([draw(st.integers(1, 3))] if batch or draw(st.booleans()) else []))
        own = [draw(stretched(lead)) for _ in range(3)]
        if draw(st.booleans()):
            own = [lead] * 3
    # What is drawn may be smaller than `lead`: only the arrays say what the call's axes are.
    lead = (
        (*np.broadcast_shapes(*(shape[:-1] for shape in own)), lead[-1])
        if enable_gqa
        else np.broadcast_shapes(*own)
    )
    size = draw(st.sampled_from([0.1, 1.0, 3.0]))
    shapes = zip(own, ((L, E), (S, E), (S, Ev)), strict=True)
    arrays = [random.normal(scale=size, size=(*first, *last)) for first, last in shapes]

    mask = None
    mask_kind = draw(st.sampled_from(["none", "bool", "float"]))
    if mask_kind != "none":
        shape = draw(stretched((*lead, L, S)))
        allowed = random.random(shape or (1,)) < draw(st.sampled_from([0.2, 0.7, 1.0]))
        mask = allowed
        if mask_kind == "float":
            mask = np.where(allowed, random.normal(size=allowed.shape), -np.inf)

    options: dict[str, Any] = {"enable_gqa": enable_gqa}
    items = lead[:-1] if len(lead) > 1 or enable_gqa else lead
    options["is_causal"] = draw(st.booleans())
    options["window"] = draw(windows)
    if options["is_causal"] or options["window"] is not None:
        offset: Any = draw(st.integers(-3, 5))
        if items and draw(st.booleans()):
            offset = random.integers(-3, 5, size=items)
        options["causal_offset"] = offset
    padding = draw(st.sampled_from(["none", "one for all", "one for each item"]))
    if padding == "one for all":
        options["key_mask"] = random.random(S) < 0.7
    elif padding == "one for each item" and items:
        options["key_mask"] = random.random((*items, S)) < 0.7
    options["scale"] = draw(st.none() | st.sampled_from([0.0, -0.5, 1.0, 2]))
    options["softcap"] = draw(st.none() | st.sampled_from([0.5, 4]))
    return RandomCall(arrays, mask, options, [draw(layouts) for _ in range(3)])


POINT = RandomCall([np.ones((1, 1))] * 3, None, {})


class TestEveryCall:
    @settings(max_examples=400)
    @given(call=calls(), kind=st.sampled_from(KINDS))
    @example(call=POINT, kind=NUMPY_FLOAT64)
    def test_gives_the_output_and_weights_of_the_loop(self, call, kind):
        arrays, mask, options = call.made_for(kind)
        note(f"{kind}: shapes {[tuple(a.shape) for a in arrays]}, mask {mask}, {options}")
        rounded = [to_numpy(array) for array in arrays]
        expected, expected_weights = reference.attention(
            *rounded, None if mask is None else to_numpy(mask), **call.options
        )
        inputs = [*arrays, *([] if mask is None else [mask])]
        before = snapshot(*inputs)
        output, weights = scaled_dot_product_attention(
            *arrays, mask, return_weights=True, **options
        )
        check_close(output, expected, kind, factor=10)
        check_close(weights, expected_weights, kind, factor=10)
        assert (to_numpy(weights)[expected_weights == 0.0] == 0.0).all()
        alone = scaled_dot_product_attention(*arrays, mask, **options)
        check_close(alone, expected, kind, factor=10)
        check_unchanged(before, *inputs)

    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS), S=sizes, E=widths, Ev=widths,
        masked=st.booleans(), padded=st.booleans(),
    )  # fmt: skip
    def test_of_a_single_query_gives_that_of_the_loop(self, seed, kind, S, E, Ev, masked, padded):
        random = np.random.default_rng(seed)
        arrays = [kind.floats(random.normal(size=shape)) for shape in ((E,), (S, E), (S, Ev))]
        mask = kind.floats(random.normal(size=S)) if masked else None
        key_mask = kind.plain(random.random(S) < 0.7) if padded else None
        expected, expected_weights = reference.attention(
            *(to_numpy(array) for array in arrays),
            to_numpy(mask) if masked else None,
            key_mask=to_numpy(key_mask) if padded else None,
        )
        output, weights = scaled_dot_product_attention(
            *arrays, mask, key_mask=key_mask, return_weights=True
        )
        check_close(output, expected, kind, factor=10)
        check_close(weights, expected_weights, kind, factor=10)


@needs_torch
class TestEveryGradient:
    """Against autograd through the equation, written in elementary torch operations."""

    @staticmethod
    def _plain_attention(arrays: list[Any], call: RandomCall) -> Any:
        import torch

        query, key, value = arrays
        options = call.options
        if options["enable_gqa"]:
            group = query.shape[-3] // key.shape[-3]
            key, value = (array.repeat_interleave(group, dim=-3) for array in (key, value))
        scale = query.shape[-1] ** -0.5 if options["scale"] is None else options["scale"]
        scores = scale * (query.unsqueeze(-2) * key.unsqueeze(-3)).sum(dim=-1)
        if options["softcap"] is not None:
            scores = options["softcap"] * torch.tanh(scores / options["softcap"])
        numbers = [array.detach().numpy() for array in arrays]
        # The loop tells which pairs may be seen: with equal scores those that have a weight.
        allowed = call.mask if call.mask is None or call.mask.dtype == bool else call.mask > -np.inf
        zeros = [np.zeros_like(array) for array in numbers]
        _, weights = reference.attention(*zeros, allowed, **{**options, "scale": 1.0})
        if call.mask is not None and call.mask.dtype != bool:
            scores = scores + torch.from_numpy(np.where(allowed, call.mask, 0.0))
        seen = torch.from_numpy(weights > 0)
        exps = torch.where(seen, scores, 0.0).exp() * seen
        shares = exps / exps.sum(dim=-1, keepdim=True).clamp(min=1e-300)
        return (shares.unsqueeze(-1) * value.unsqueeze(-3)).sum(dim=-2)

    @settings(max_examples=120)
    @given(call=calls(), kind=st.sampled_from(FLOAT64_KINDS), seed=st.integers(0, 2**32 - 1))
    def test_is_that_of_autograd(self, call, kind, seed):
        import torch

        leaves = [torch.from_numpy(array.copy()).requires_grad_() for array in call.arrays]
        plain = self._plain_attention(leaves, call)
        grad = np.random.default_rng(seed).normal(size=tuple(plain.shape))
        expected = torch.autograd.grad(
            plain, leaves, torch.from_numpy(grad), allow_unused=True, materialize_grads=True
        )
        arrays, mask, options = call.made_for(kind)
        note(f"{kind}: shapes {[tuple(a.shape) for a in arrays]}, mask {mask}, {options}")
        gradients = attention_gradients(*arrays, kind.floats(grad), mask, **options)
        for gradient, right in zip(gradients, expected, strict=True):
            check_close(gradient, right.numpy(), kind, factor=300)


class TestEveryMatrix:
    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 2**32 - 1), L=sizes, S=sizes, E=widths, Ev=widths,
        tile=st.integers(1, 7), scale=st.none() | st.floats(-3, 3),
    )  # fmt: skip
    def test_chapter_code_gives_the_output_of_the_loop(self, seed, L, S, E, Ev, tile, scale):
        random = np.random.default_rng(seed)
        Q, K, V = (random.normal(size=shape) for shape in ((L, E), (S, E), (S, Ev)))
        expected, _ = reference.attention(Q, K, V, scale=scale)
        np.testing.assert_allclose(
            dense_attention(Q, K, V, scale=scale), expected, rtol=1e-10, atol=1e-12
        )
        tiled = tiled_attention(Q, K, V, tile=tile, scale=scale)
        np.testing.assert_allclose(tiled, expected, rtol=1e-10, atol=1e-12)
        causal, _ = reference.attention(K, K, V, scale=scale, is_causal=True)
        np.testing.assert_allclose(
            causal_attention(K, K, V, scale=scale), causal, rtol=1e-10, atol=1e-12
        )


class TestEveryGeneration:
    @settings(max_examples=60)
    @given(
        seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(FLOAT64_KINDS),
        cuts=st.lists(st.integers(1, 3), min_size=1, max_size=4),
        heads=st.sampled_from([(1, 1), (2, 1), (4, 2), (3, 3)]), batched=st.booleans(),
    )  # fmt: skip
    def test_full_pass_is_chunks(self, seed, kind, cuts, heads, batched):
        random = np.random.default_rng(seed)
        num_heads, num_kv_heads = heads
        plain = MultiHeadAttention.random(
            12, num_heads, num_kv_heads=num_kv_heads, bias=True, seed=seed
        )
        names = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
        module = MultiHeadAttention(
            **{name: kind.floats(getattr(plain, name)) for name in names},
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
        )
        x = kind.floats(random.normal(size=(*[2] * batched, sum(cuts), 12)))
        full = to_numpy(module(x, is_causal=True))
        cache, start = KVCache(), 0
        for size in cuts:
            rows = slice(start, start + size)
            output = module(x[..., rows, :], is_causal=True, cache=cache)
            check_close(output, full[..., rows, :], kind, factor=20)
            start += size
            assert len(cache) == start
