"""`scaled_dot_product_attention`: shapes, broadcasting, one query, grouped heads, empty axes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlib import scaled_dot_product_attention
from tests import reference
from tests.kinds import FLOAT64_KINDS, TORCH_KINDS, Kind, check_close, to_numpy

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)


def random_arrays(kind: Kind, *shapes: tuple[int, ...], seed: int = 40) -> list:
    """Return one normal array of `kind` for each shape."""
    random = np.random.default_rng(seed)
    return [kind.floats(random.normal(size=shape)) for shape in shapes]


def check_against_loop(kind: Kind, arrays: list, attn_mask=None, **options) -> None:
    """Assert that output and weights are those of the loop, with and without weights."""
    numbers = [to_numpy(array) for array in arrays]
    plain = {
        name: to_numpy(option) if hasattr(option, "shape") else option
        for name, option in options.items()
    }
    mask = None if attn_mask is None else to_numpy(attn_mask)
    expected, expected_weights = reference.attention(*numbers, mask, **plain)
    output, weights = scaled_dot_product_attention(
        *arrays, attn_mask, return_weights=True, **options
    )
    check_close(output, expected, kind, factor=3)
    check_close(weights, expected_weights, kind, factor=3)
    alone = scaled_dot_product_attention(*arrays, attn_mask, **options)
    check_close(alone, expected, kind, factor=3)


# query, key and value shapes; every letter has its own size: E = 4, Ev = 3, L = 5, S = 7.
SHAPES = {
    "matrices": ((5, 4), (7, 4), (7, 3)),
    "one batch axis": ((2, 5, 4), (2, 7, 4), (2, 7, 3)),
    "batch and heads": ((2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3)),
    "two batch axes and heads": ((2, 1, 6, 5, 4), (2, 1, 6, 7, 4), (2, 1, 6, 7, 3)),
    "equal widths": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
    "one head of keys for all": ((2, 6, 5, 4), (2, 1, 7, 4), (2, 1, 7, 3)),
    "one item of keys for all": ((2, 6, 5, 4), (6, 7, 4), (1, 6, 7, 3)),
    "keys without batch": ((2, 6, 5, 4), (7, 4), (7, 3)),
    "queries without batch": ((5, 4), (2, 6, 7, 4), (2, 6, 7, 3)),
    "key and value broadcast differently": ((2, 6, 5, 4), (2, 1, 7, 4), (6, 7, 3)),
    "values alone have a batch": ((5, 4), (7, 4), (2, 7, 3)),
    "one query": ((2, 6, 1, 4), (2, 6, 7, 4), (2, 6, 7, 3)),
    "one key": ((2, 6, 5, 4), (2, 6, 1, 4), (2, 6, 1, 3)),
    "width one": ((2, 6, 5, 1), (2, 6, 7, 1), (2, 6, 7, 1)),
    "more queries than keys": ((6, 7, 4), (6, 5, 4), (6, 5, 3)),
}
each_shape = pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())


class TestShapes:
    @each_shape
    def test_output_and_weights_are_those_of_the_loop(self, kind, shapes):
        check_against_loop(kind, random_arrays(kind, *shapes))

    @each_shape
    @each_float64_kind
    def test_causal_output_is_that_of_the_loop(self, kind, shapes):
        check_against_loop(kind, random_arrays(kind, *shapes), is_causal=True)

    @each_shape
    @each_float64_kind
    def test_masked_output_is_that_of_the_loop(self, kind, shapes):
        L, S = shapes[0][-2], shapes[1][-2]
        mask = np.random.default_rng(41).random((L, S)) < 0.6
        arrays = random_arrays(kind, *shapes)
        check_against_loop(kind, arrays, kind.plain(mask))
        check_against_loop(kind, arrays, kind.floats(np.where(mask, 0.5, -1.25)))

    def test_output_agrees_with_pytorch(self, kind):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        arrays = random_arrays(kind, (2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))
        tensors = [torch.from_numpy(to_numpy(array)) for array in arrays]
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors).numpy()
        check_close(scaled_dot_product_attention(*arrays), expected, kind, factor=3)


class TestSingleQuery:
    def test_a_vector_gives_a_vector(self, kind):
        q, K, V = random_arrays(kind, (4,), (7, 4), (7, 3))
        check_against_loop(kind, [q, K, V])
        output, weights = scaled_dot_product_attention(q, K, V, return_weights=True)
        assert tuple(output.shape) == (3,)
        assert tuple(weights.shape) == (7,)

    @each_float64_kind
    def test_masks_are_vectors_too(self, kind):
        arrays = random_arrays(kind, (4,), (7, 4), (7, 3))
        seen = np.array([True, False, True, True, False, True, False])
        check_against_loop(kind, arrays, kind.plain(seen))
        check_against_loop(kind, arrays, kind.floats(np.linspace(-2, 1, 7)))
        check_against_loop(kind, arrays, key_mask=kind.plain(seen))
        check_against_loop(kind, arrays, kind.plain(~seen), key_mask=kind.plain(seen))

    @each_float64_kind
    def test_scale_and_softcap_apply(self, kind):
        arrays = random_arrays(kind, (4,), (7, 4), (7, 3))
        check_against_loop(kind, arrays, scale=-0.5, softcap=0.75)

    @each_float64_kind
    @pytest.mark.parametrize(
        "options", [{"is_causal": True}, {"window": (1, 0)}], ids=["is_causal", "window"]
    )
    def test_has_no_position(self, kind, options):
        arrays = random_arrays(kind, (4,), (7, 4), (7, 3))
        with pytest.raises(ValueError, match=r"(?s)slice.*\(1, E\).*causal_offset=i"):
            scaled_dot_product_attention(*arrays, **options)

    @each_float64_kind
    def test_one_row_with_an_offset_is_the_advice_that_works(self, kind):
        q, K, V = random_arrays(kind, (4,), (7, 4), (7, 3))
        for i in (0, 3, 6):
            advised = scaled_dot_product_attention(q[None], K, V, is_causal=True, causal_offset=i)
            sliced = scaled_dot_product_attention(q, K[: i + 1], V[: i + 1])
            check_close(advised[0], to_numpy(sliced), kind, factor=3)


class TestGroupedHeads:
    @pytest.mark.parametrize(
        "shapes",
        [
            ((6, 5, 4), (2, 7, 4), (2, 7, 3)),
            ((6, 5, 4), (3, 7, 4), (3, 7, 3)),
            ((6, 5, 4), (1, 7, 4), (1, 7, 3)),
            ((6, 5, 4), (6, 7, 4), (6, 7, 3)),
            ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 3)),
            ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4)),
            ((2, 6, 5, 4), (1, 3, 7, 4), (3, 7, 3)),
            ((2, 1, 6, 5, 4), (2, 1, 2, 7, 4), (2, 1, 2, 7, 3)),
        ],
        ids=str,
    )
    def test_output_is_that_of_the_loop(self, kind, shapes):
        arrays = random_arrays(kind, *shapes)
        check_against_loop(kind, arrays, enable_gqa=True)
        check_against_loop(kind, arrays, enable_gqa=True, is_causal=True, causal_offset=1)

    @each_float64_kind
    def test_query_head_uses_the_head_of_its_group(self, kind):
        """Head h reads key/value head h // (Hq // Hkv): neighbours share, not every other one."""
        zeros = kind.floats(np.zeros((6, 1, 1)))
        keys = kind.floats(np.zeros((2, 1, 1)))
        values = kind.floats([[[10.0]], [[20.0]]])
        output = scaled_dot_product_attention(zeros, keys, values, enable_gqa=True)
        assert to_numpy(output).ravel().tolist() == [10, 10, 10, 20, 20, 20]

    @each_float64_kind
    def test_grouping_is_repeating_the_heads(self, kind):
        q, K, V = random_arrays(kind, (2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 3))
        grouped = scaled_dot_product_attention(q, K, V, enable_gqa=True)
        repeated = [kind.floats(np.repeat(to_numpy(array), 2, axis=1)) for array in (K, V)]
        check_close(grouped, to_numpy(scaled_dot_product_attention(q, *repeated)), kind, factor=3)

    @each_float64_kind
    def test_masks_follow_the_query_heads(self, kind):
        arrays = random_arrays(kind, (2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 3))
        random = np.random.default_rng(42)
        for shape in ((2, 6, 5, 7), (6, 1, 7), (2, 1, 5, 7), (5, 1)):
            check_against_loop(
                kind, arrays, kind.plain(random.random(shape) < 0.7), enable_gqa=True
            )
            check_against_loop(
                kind, arrays, kind.floats(random.normal(size=shape)), enable_gqa=True
            )
        key_mask = kind.plain(random.random((2, 7)) < 0.7)
        offsets = kind.plain([3, -1])
        check_against_loop(
            kind, arrays, enable_gqa=True, key_mask=key_mask, is_causal=True, causal_offset=offsets
        )
        check_against_loop(
            kind, arrays, enable_gqa=True, window=(1, 2), causal_offset=offsets, softcap=1.5
        )

    @each_float64_kind
    def test_one_mask_for_all_heads_works_without_a_batch_axis(self, kind):
        arrays = random_arrays(kind, (6, 5, 4), (2, 7, 4), (2, 7, 3))
        key_mask = kind.plain(np.arange(7) != 2)
        check_against_loop(
            kind, arrays, enable_gqa=True, key_mask=key_mask, is_causal=True, causal_offset=2
        )

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_agrees_with_pytorch(self, kind):
        import torch

        arrays = random_arrays(kind, (2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
        expected = torch.nn.functional.scaled_dot_product_attention(*arrays, enable_gqa=True)
        check_close(
            scaled_dot_product_attention(*arrays, enable_gqa=True),
            to_numpy(expected),
            kind,
            factor=4,
        )


class TestEmptyAxes:
    @pytest.mark.parametrize("is_causal", [False, True], ids=["dense", "causal"])
    @pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
    def test_without_keys_output_is_zero(self, kind, lead, is_causal):
        arrays = random_arrays(kind, (*lead, 5, 4), (*lead, 0, 4), (*lead, 0, 3))
        output, weights = scaled_dot_product_attention(
            *arrays, is_causal=is_causal, return_weights=True
        )
        check_close(output, np.zeros((*lead, 5, 3)), kind)
        check_close(weights, np.zeros((*lead, 5, 0)), kind)
        alone = scaled_dot_product_attention(*arrays, is_causal=is_causal)
        check_close(alone, np.zeros((*lead, 5, 3)), kind)

    @pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
    def test_without_queries_output_is_empty(self, kind, lead):
        arrays = random_arrays(kind, (*lead, 0, 4), (*lead, 7, 4), (*lead, 7, 3))
        output, weights = scaled_dot_product_attention(
            *arrays, is_causal=True, causal_offset=2, return_weights=True
        )
        check_close(output, np.zeros((*lead, 0, 3)), kind)
        check_close(weights, np.zeros((*lead, 0, 7)), kind)

    @pytest.mark.parametrize("lead", [(0,), (0, 3), (2, 0)], ids=str)
    def test_without_items_output_is_empty(self, kind, lead):
        arrays = random_arrays(kind, (*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 3))
        check_close(scaled_dot_product_attention(*arrays), np.zeros((*lead, 5, 3)), kind)

    def test_values_without_width_give_an_output_without_width(self, kind):
        arrays = random_arrays(kind, (2, 5, 4), (2, 7, 4), (2, 7, 0))
        output, weights = scaled_dot_product_attention(*arrays, return_weights=True)
        check_close(output, np.zeros((2, 5, 0)), kind)
        assert weights.shape == (2, 5, 7)

    @each_float64_kind
    def test_queries_and_keys_without_width_give_the_mean(self, kind):
        """The sum of no products is 0, so that all scores are equal."""
        q, K, V = random_arrays(kind, (2, 5, 0), (2, 7, 0), (2, 7, 3))
        mean = np.repeat(to_numpy(V).mean(axis=1, keepdims=True), 5, axis=1)
        check_close(scaled_dot_product_attention(q, K, V, scale=1.0), mean, kind)
        check_close(scaled_dot_product_attention(q, K, V), mean, kind)

    def test_single_query_without_keys_gives_zeros(self, kind):
        arrays = random_arrays(kind, (4,), (0, 4), (0, 3))
        check_close(scaled_dot_product_attention(*arrays), np.zeros(3), kind)


class TestScale:
    @pytest.mark.parametrize("scale", [None, 0.0, 1.0, -0.5, 3, 1e-30], ids=str)
    def test_any_finite_number_is_honoured(self, kind, scale):
        arrays = random_arrays(kind, (2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))
        check_against_loop(kind, arrays, scale=scale)
        check_against_loop(kind, arrays, scale=scale, is_causal=True)

    @each_float64_kind
    def test_default_is_the_root_of_the_query_width(self, kind):
        q, K, V = random_arrays(kind, (2, 5, 9), (2, 7, 9), (2, 7, 4))
        default = scaled_dot_product_attention(q, K, V)
        check_close(default, to_numpy(scaled_dot_product_attention(q, K, V, scale=1 / 3)), kind)

    @each_float64_kind
    def test_numpy_numbers_are_numbers(self, kind):
        arrays = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        for scale in (np.float64(0.25), np.float32(0.25)):
            check_against_loop(kind, arrays, scale=scale)

    @each_float64_kind
    def test_zero_scale_gives_the_mean_of_the_values(self, kind):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        mean = np.tile(to_numpy(V).mean(axis=0), (5, 1))
        check_close(scaled_dot_product_attention(q, K, V, scale=0.0), mean, kind)

    @each_float64_kind
    def test_scaling_the_query_first_is_scaling_the_dot_products(self, kind):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        scaled_first = scaled_dot_product_attention(q / math.sqrt(4), K, V, scale=1.0)
        check_close(scaled_first, to_numpy(scaled_dot_product_attention(q, K, V)), kind)


class TestSoftcap:
    @pytest.mark.parametrize("softcap", [0.5, 2, 50.0])
    def test_bends_the_scores_after_the_scale(self, kind, softcap):
        arrays = random_arrays(kind, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))
        check_against_loop(kind, arrays, softcap=softcap)
        check_against_loop(kind, arrays, softcap=softcap, scale=-1.5, is_causal=True)

    @each_float64_kind
    def test_comes_before_the_mask(self, kind):
        arrays = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        bias = np.random.default_rng(43).normal(scale=4, size=(5, 7))
        bias[1, :3] = -np.inf
        check_against_loop(kind, arrays, kind.floats(bias), softcap=0.75)
        check_against_loop(kind, arrays, kind.plain(bias > 0), softcap=0.75)

    @each_float64_kind
    def test_bounds_the_scores(self, kind):
        """With |score| ≤ c no weight is below e^(−2c) / S of the largest."""
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        _, weights = scaled_dot_product_attention(100 * q, K, V, softcap=0.5, return_weights=True)
        weights = to_numpy(weights)
        ratio = weights.min(axis=1) / weights.max(axis=1)
        assert (ratio >= math.exp(-2 * 0.5) * (1 - 1e-12)).all()
        assert ratio.min() < 0.4
