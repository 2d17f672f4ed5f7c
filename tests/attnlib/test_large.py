"""Sizes at which the engines cut a call into tiles, threads, strips or cheaper calls.

At the small sizes of the other tests an engine may take a plainer path, so that every promise is
held here once more where a call has many scores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from attnlib import attention_gradients, scaled_dot_product_attention
from tests import equation, reference
from tests.attnlib.test_properties import calls
from tests.kinds import (
    KINDS,
    TORCH_KINDS,
    Kind,
    check_close,
    check_unchanged,
    needs_torch,
    snapshot,
    to_numpy,
)

pytestmark = pytest.mark.slow

# Queries and keys: none alike, some one more or one less than a power of two.
LENGTHS = [(1, 4099), (2, 33_000), (65, 1030), (257, 513), (140, 600), (1025, 129), (600, 1)]
# Half precision takes the path of float32, after a cast; one kind of each is enough for the slow.
FULL_PRECISION = [kind for kind in KINDS if kind.dtype in ("float64", "float32")]
each_full_precision = pytest.mark.parametrize("kind", FULL_PRECISION, ids=str)
LEADS = [(), (2,), (2, 3), (1, 1, 2)]


def large_call(seed: int, lead: tuple[int, ...], L: int, S: int, E: int = 5, Ev: int = 3) -> list:
    random = np.random.default_rng(seed)
    shapes = (*lead, L, E), (*lead, S, E), (*lead, S, Ev)
    return [random.normal(size=shape) for shape in shapes]


@st.composite
def large_options(draw: st.DrawFn, lead: tuple[int, ...], L: int, S: int) -> dict[str, Any]:
    """Draw options that matter at a size: long windows, far offsets, padding anywhere."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    items = lead[:-1] if len(lead) > 1 else lead
    options: dict[str, Any] = {"is_causal": draw(st.booleans())}
    reach = st.none() | st.sampled_from([0, 1, 40, S // 2, 5000])
    options["window"] = draw(st.none() | st.tuples(reach, reach))
    if options["is_causal"] or options["window"] is not None:
        offsets = [0, S - L, -L // 2, 7, S // 2, S - 1, -3, L + S]
        options["causal_offset"] = draw(st.sampled_from(offsets))
        if items and draw(st.booleans()):
            options["causal_offset"] = random.choice(offsets, size=items)
    padding = draw(st.sampled_from(["none", "end", "start", "holes", "all"]))
    if padding != "none":
        lengths = random.integers(0, S + 1, size=(*items, 1))
        positions = np.arange(S)
        options["key_mask"] = {
            "end": lambda: positions < lengths,
            "start": lambda: positions >= lengths,
            "holes": lambda: random.random((*items, S)) < 0.7,
            "all": lambda: np.zeros(S, dtype=bool),
        }[padding]()
        if draw(st.booleans()):
            options["key_mask"] = options["key_mask"].reshape(-1, S)[0]
    options["scale"] = draw(st.none() | st.sampled_from([-0.5, 0.0, 1.0]))
    options["softcap"] = draw(st.none() | st.sampled_from([0.5, 4.0]))
    return options


@st.composite
def large_masks(draw: st.DrawFn, lead: tuple[int, ...], L: int, S: int) -> np.ndarray | None:
    """Draw a mask with or without a pattern, for all or for each head."""
    pattern = draw(
        st.sampled_from(["none", "all", "causal", "blocks", "random", "bias", "rows", "columns"])
    )
    if pattern == "none":
        return None
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (*(lead if draw(st.booleans()) else lead[-1:] if draw(st.booleans()) else ()), L, S)
    i, j = np.arange(L)[:, None], np.arange(S)
    if pattern == "rows":
        return random.random((L, 1)) < 0.5
    if pattern == "columns":
        return random.random((1, S)) < 0.5
    allowed = {
        "all": np.ones((L, S), dtype=bool),
        "causal": j <= i + (S - L),
        "blocks": i // 100 == j // 100,
    }
    if pattern in allowed:
        return np.broadcast_to(allowed[pattern], shape).copy()
    seen = random.random(shape) < 0.6
    return seen if pattern == "random" else np.where(seen, random.normal(size=shape), -np.inf)


def made_for(kind: Kind, mask: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    if mask is not None:
        mask = kind.plain(mask) if mask.dtype == bool else kind.floats(mask)
    return mask, {
        name: kind.plain(option) if isinstance(option, np.ndarray) else option
        for name, option in options.items()
    }


class TestEquation:
    @settings(max_examples=100)
    @given(call=calls())
    def test_in_one_piece_is_the_loop(self, call):
        output, weights, *_ = equation.attention(*call.arrays, call.mask, **call.options)
        expected, expected_weights = reference.attention(*call.arrays, call.mask, **call.options)
        np.testing.assert_allclose(output, expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(weights, expected_weights, rtol=1e-12, atol=1e-13)


class TestLargeCalls:
    @settings(max_examples=80)
    @given(data=st.data())
    def test_give_the_output_and_weights_of_the_equation(self, data):
        kind = data.draw(st.sampled_from(KINDS))
        L, S = data.draw(st.sampled_from(LENGTHS))
        lead = data.draw(st.sampled_from(LEADS))
        numbers = large_call(data.draw(st.integers(0, 99)), lead, L, S)
        mask, options = made_for(
            kind,
            plain_mask := data.draw(large_masks(lead, L, S)),
            plain_options := data.draw(large_options(lead, L, S)),
        )
        note(f"{kind} {lead} {L} {S} {plain_options}")
        arrays = [kind.floats(array) for array in numbers]
        rounded_mask = plain_mask if plain_mask is None else to_numpy(mask)
        expected, expected_weights, *_ = equation.attention(
            *(to_numpy(array) for array in arrays), rounded_mask, **plain_options
        )
        before = snapshot(*arrays)
        output = scaled_dot_product_attention(*arrays, mask, **options)
        check_close(output, expected, kind, factor=10)
        weighted, weights = scaled_dot_product_attention(
            *arrays, mask, return_weights=True, **options
        )
        check_close(weighted, expected, kind, factor=10)
        check_close(weights, expected_weights, kind, factor=10)
        assert (to_numpy(weights)[expected_weights == 0.0] == 0.0).all()
        check_unchanged(before, *arrays)

    @pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": (40, 3)}], ids=str)
    @pytest.mark.parametrize("kv_heads", [1, 2])
    def test_of_grouped_heads_give_those_of_the_equation(self, kind, kv_heads, options):
        numbers = large_call(1, (2, 4), 65, 513)
        query, key, value = numbers[0], numbers[1][:, :kv_heads], numbers[2][:, :kv_heads]
        arrays = [kind.floats(array) for array in (query, key, value)]
        expected, *_ = equation.attention(
            *(to_numpy(array) for array in arrays), enable_gqa=True, **options
        )
        output = scaled_dot_product_attention(*arrays, enable_gqa=True, **options)
        check_close(output, expected, kind, factor=10)
        one_token = [arrays[0][..., :1, :], *arrays[1:]]
        first, *_ = equation.attention(*(to_numpy(a) for a in one_token), enable_gqa=True)
        output = scaled_dot_product_attention(*one_token, enable_gqa=True)
        check_close(output, first, kind, factor=10)

    @pytest.mark.parametrize(("L", "S"), [(257, 513), (2, 33_000)])
    def test_with_great_and_uneven_scores_keep_every_row_right(self, kind, L, S):
        """A running maximum must grow, stay and grow again from tile to tile."""
        query, key, value = large_call(2, (2,), L, S)
        ramp = 8 * np.sin(np.arange(S) / (S / 11.0))[:, None]
        for steep in (key * ramp, key * ramp[::-1], np.abs(key) * np.linspace(0, 9, S)[:, None]):
            arrays = [kind.floats(array) for array in (3 * query, steep, value)]
            expected, *_ = equation.attention(*(to_numpy(array) for array in arrays))
            check_close(scaled_dot_product_attention(*arrays), expected, kind, factor=100)


class TestLargePoison:
    @each_full_precision
    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf], ids=str)
    @pytest.mark.parametrize("where", ["key_mask", "holes", "causal", "window"])
    @pytest.mark.parametrize(("L", "S"), [(257, 513), (2, 33_000)])
    def test_in_keys_that_no_query_may_see_changes_nothing(self, kind, where, poison, L, S):
        query, key, value = (kind.floats(array) for array in large_call(3, (2,), L, S))
        positions = np.arange(S)
        options, off = {
            "key_mask": ({"key_mask": kind.plain(positions < 400)}, positions >= 400),
            "holes": ({"key_mask": kind.plain(positions % 50 != 7)}, positions % 50 == 7),
            "causal": ({"is_causal": True, "causal_offset": 10}, positions > L + 9),
            "window": ({"window": (30, 2), "causal_offset": 100}, positions < 70),
        }[where]
        expected = to_numpy(scaled_dot_product_attention(query, key, value, **options))
        assert np.isfinite(expected).all()
        for array in (key, value):
            array[..., off, :] = poison
            output = scaled_dot_product_attention(query, key, value, **options)
            check_close(output, expected, kind, factor=2)

    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf], ids=str)
    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.library == "numpy"], ids=str)
    def test_on_numpy_no_masked_pair_changes_the_result(self, kind, poison):
        query, key, value = (kind.floats(array) for array in large_call(4, (2,), 300, 700))
        seen = np.random.default_rng(5).random((300, 700)) < 0.5
        i, j = np.arange(300)[:, None], np.arange(700)
        requests = {
            "bool": ({"attn_mask": seen}, seen),
            "float": ({"attn_mask": kind.floats(np.where(seen, 0.5, -np.inf))}, seen),
            "causal": ({"is_causal": True, "causal_offset": 300}, j <= i + 300),
            "window": ({"window": (100, 9), "causal_offset": 300}, np.abs(j - i - 254.5) < 55),
        }
        for options, allowed in requests.values():
            expected = scaled_dot_product_attention(query, key, value, **options)
            for array in (key, value):
                untouched = array[:, 350].copy()
                array[:, 350] = poison
                output = scaled_dot_product_attention(query, key, value, **options)
                array[:, 350] = untouched
                blind = ~allowed[:, 350]
                assert 0 < blind.sum() < 300
                check_close(output[:, blind], expected[:, blind], kind, factor=2)

    def test_in_an_allowed_pair_is_not_hidden(self, kind):
        query, key, value = (kind.floats(array) for array in large_call(6, (2,), 257, 513))
        query[0, 100, 0] = float("nan")
        key[1, 300, 0] = float("nan")
        output = to_numpy(scaled_dot_product_attention(query, key, value))
        assert np.isnan(output[0, 100]).all()
        assert np.isfinite(np.delete(output[0], 100, axis=0)).all()
        assert np.isnan(output[1]).all()


@needs_torch
class TestLargeGradients:
    @each_full_precision
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"is_causal": True},
            {"is_causal": True, "causal_offset": -40},
            {"window": (50, 4), "causal_offset": 200, "softcap": 2.0},
            {"scale": -0.5},
        ],
        ids=str,
    )
    def test_are_those_of_autograd_through_the_equation(self, kind, options):
        import torch

        numbers = large_call(7, (2,), 257, 513)
        arrays = [kind.floats(array) for array in numbers]
        grad_output = kind.floats(np.random.default_rng(8).normal(size=(2, 257, 3)))
        leaves = [torch.from_numpy(to_numpy(array)).requires_grad_() for array in arrays]
        ones = [np.ones_like(array) for array in numbers]
        _, seen, *_ = equation.attention(*ones, **options)
        scores = leaves[0] @ leaves[1].mT * options.get("scale", 5**-0.5)
        if "softcap" in options:
            scores = options["softcap"] * torch.tanh(scores / options["softcap"])
        exps = torch.exp(scores) * torch.from_numpy(seen > 0)
        output = exps / exps.sum(dim=-1, keepdim=True).clamp(min=1e-300) @ leaves[2]
        expected = torch.autograd.grad(output, leaves, torch.from_numpy(to_numpy(grad_output)))
        actual = attention_gradients(*arrays, grad_output, **options)
        for gradient, right in zip(actual, expected, strict=True):
            check_close(gradient, right.numpy(), kind, factor=40)


@needs_torch
class TestLargeTensors:
    """What the small tests say of torch transforms and of devices, where there is much to save."""

    def test_only_on_the_cpu_a_choice_looks_at_values(self):
        import torch

        query, key, value = (torch.ones(2, 3, size, 5, device="meta") for size in (257, 513, 513))
        for options in (
            {"key_mask": torch.ones(2, 513, dtype=torch.bool, device="meta")},
            {"attn_mask": torch.ones(257, 513, dtype=torch.bool, device="meta")},
            {"is_causal": True, "causal_offset": torch.zeros(2, dtype=torch.int64, device="meta")},
        ):
            output = scaled_dot_product_attention(query, key, value, **options)
            assert output.device.type == "meta"
            assert output.shape == (2, 3, 257, 5)

    @pytest.mark.parametrize("kind", [k for k in TORCH_KINDS if k.dtype == "float64"], ids=str)
    def test_vmap_over_masks_is_a_loop_over_them(self, kind):
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        query, key, value = (kind.floats(array) for array in large_call(9, (2,), 65, 513))
        seen = kind.plain(np.random.default_rng(10).random((3, 65, 513)) < 0.5)
        real = kind.plain(np.arange(513) < np.array([[500], [3], [0]]))

        def function(mask, key_mask):
            return scaled_dot_product_attention(query, key, value, mask, key_mask=key_mask)

        expected = torch.stack([function(*pair) for pair in zip(seen, real, strict=True)])
        with sdpa_kernel(SDPBackend.MATH):
            mapped = torch.func.vmap(function)(seen, real)
        check_close(mapped, to_numpy(expected), kind, factor=10)
