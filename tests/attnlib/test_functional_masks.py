"""`scaled_dot_product_attention`: what each mask, position and window lets a query see."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attnlib import scaled_dot_product_attention
from tests.attnlib.test_functional_shapes import check_against_loop, random_arrays
from tests.kinds import FLOAT64_KINDS, TORCH_KINDS, check_close, check_equal_bits, to_numpy

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)
FOUR_AXES = ((2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))  # B = 2, H = 6, L = 5, S = 7


def random_bools(*shape: int, share: float = 0.6, seed: int = 50) -> np.ndarray:
    return np.random.default_rng(seed).random(shape) < share


class TestAttnMask:
    @pytest.mark.parametrize(
        "shape",
        [
            *[(2, 6, 5, 7), (1, 6, 5, 7), (2, 1, 5, 7), (2, 1, 1, 7), (2, 6, 5, 1), (1, 1, 1, 1)],
            *[(6, 1, 7), (5, 7), (1, 7), (5, 1), (7,), (1,)],
        ],
        ids=str,
    )
    def test_broadcasts_to_the_scores(self, kind, shape):
        arrays = random_arrays(kind, *FOUR_AXES)
        check_against_loop(kind, arrays, kind.plain(random_bools(*shape)))
        bias = np.random.default_rng(51).normal(size=shape)
        check_against_loop(kind, arrays, kind.floats(bias))

    def test_true_means_may_attend(self, kind):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        only_third = kind.plain(np.arange(7) == 3)
        expected = np.tile(to_numpy(V)[3], (5, 1))
        check_close(scaled_dot_product_attention(q, K, V, only_third), expected, kind)

    @each_float64_kind
    def test_bool_mask_is_minus_infinity_where_false(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        seen = random_bools(6, 5, 7)
        by_bool = scaled_dot_product_attention(*arrays, kind.plain(seen))
        by_float = scaled_dot_product_attention(*arrays, kind.floats(np.where(seen, 0.0, -np.inf)))
        check_close(by_bool, to_numpy(by_float), kind)

    @each_float64_kind
    def test_all_true_changes_nothing(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        masked = scaled_dot_product_attention(*arrays, kind.plain(np.ones((5, 7), dtype=bool)))
        check_close(masked, to_numpy(scaled_dot_product_attention(*arrays)), kind)

    @each_float64_kind
    def test_a_finite_sentinel_is_plain_arithmetic(self, kind):
        """The smallest float does not exclude: a row of it is uniform, not empty."""
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        bias = np.zeros((5, 7))
        bias[2] = np.finfo(np.float64).min
        bias[3, :4] = np.finfo(np.float64).min
        output, weights = scaled_dot_product_attention(
            q, K, V, kind.floats(bias), scale=0.0, return_weights=True
        )
        np.testing.assert_allclose(to_numpy(weights)[2], np.full(7, 1 / 7), rtol=1e-12)
        np.testing.assert_allclose(to_numpy(weights)[3], [0, 0, 0, 0, 1 / 3, 1 / 3, 1 / 3])
        np.testing.assert_allclose(to_numpy(output)[2], to_numpy(V).mean(axis=0), rtol=1e-12)

    @each_float64_kind
    def test_zeros_and_ones_as_floats_are_added(self, kind):
        arrays = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        check_against_loop(kind, arrays, kind.floats(random_bools(5, 7)))

    def test_may_have_another_float_dtype(self, kind):
        arrays = random_arrays(kind, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6))
        bias = np.round(np.random.default_rng(52).normal(size=(3, 5, 7)) * 4) / 4  # exact in each
        bias[0, 1, 2:] = -np.inf
        others = ["float16", "float32", "float64"]
        for other in [*others, "bfloat16"] if kind.library == "torch" else others:
            mask = type(kind)(kind.library, other, kind.device).floats(bias)
            check_against_loop(kind, arrays, mask)
            check_against_loop(kind, arrays, mask, is_causal=True)

    @each_float64_kind
    def test_adding_one_number_to_a_row_changes_nothing(self, kind):
        arrays = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        column = kind.floats(np.linspace(-300, 300, 5)[:, None])
        shifted = scaled_dot_product_attention(*arrays, column)
        check_close(shifted, to_numpy(scaled_dot_product_attention(*arrays)), kind, factor=1000)

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_agrees_with_pytorch(self, kind):
        import torch

        arrays = random_arrays(kind, (2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 4))
        seen = random_bools(2, 1, 5, 7)
        seen[1, 0, 2] = False
        for mask in (kind.plain(seen), kind.floats(np.where(seen, 0.25, -1.5))):
            expected = torch.nn.functional.scaled_dot_product_attention(*arrays, mask)
            check_close(
                scaled_dot_product_attention(*arrays, mask), to_numpy(expected), kind, factor=4
            )


class TestKeyMask:
    def test_true_means_a_real_token(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        check_against_loop(kind, arrays, key_mask=kind.plain(random_bools(2, 7)))
        check_against_loop(kind, arrays, key_mask=kind.plain(random_bools(7)))

    @each_float64_kind
    @pytest.mark.parametrize(
        ("lead", "batch"),
        [((), ()), ((2,), (2,)), ((2, 3), (2,)), ((2, 4, 3), (2, 4)), ((2, 4, 1, 3), (2, 4, 1))],
        ids=str,
    )
    def test_has_one_row_for_each_item_of_the_batch(self, kind, lead, batch):
        """*batch is all axes before the last three, or axis 0 of a 3-D call."""
        arrays = random_arrays(kind, (*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 3))
        real = random_bools(*batch, 7)
        check_against_loop(kind, arrays, key_mask=kind.plain(real))
        check_against_loop(kind, arrays, key_mask=kind.plain(real[(0,) * len(batch)]))

    @each_float64_kind
    def test_counts_the_batch_of_all_inputs_together(self, kind):
        for shapes in (
            ((6, 5, 4), (2, 6, 7, 4), (2, 1, 7, 3)),
            ((2, 6, 5, 4), (7, 4), (7, 3)),
            ((1, 6, 5, 4), (1, 1, 7, 4), (2, 6, 7, 3)),
        ):
            arrays = random_arrays(kind, *shapes)
            check_against_loop(kind, arrays, key_mask=kind.plain(random_bools(2, 7)))

    @each_float64_kind
    def test_padded_batch_is_its_items_one_by_one(self, kind):
        lengths = (7, 3, 5)
        q, K, V = random_arrays(kind, (3, 2, 6, 4), (3, 2, 7, 4), (3, 2, 7, 5))
        real = kind.plain(np.arange(7) < np.array(lengths)[:, None])
        padded = scaled_dot_product_attention(q, K, V, key_mask=real)
        for item, length in enumerate(lengths):
            alone = scaled_dot_product_attention(q[item], K[item, :, :length], V[item, :, :length])
            check_close(padded[item], to_numpy(alone), kind)

    @each_float64_kind
    def test_equals_a_bool_mask_with_axes_for_heads_and_queries(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        real = random_bools(2, 7)
        as_mask = scaled_dot_product_attention(*arrays, kind.plain(real[:, None, None, :]))
        check_close(
            scaled_dot_product_attention(*arrays, key_mask=kind.plain(real)),
            to_numpy(as_mask),
            kind,
        )


class TestPositions:
    @pytest.mark.parametrize("offset", [-9, -2, 0, 1, 2, 6, 40])
    def test_causal_key_is_visible_up_to_the_position(self, kind, offset):
        arrays = random_arrays(kind, *FOUR_AXES)
        check_against_loop(kind, arrays, is_causal=True, causal_offset=offset)

    @pytest.mark.parametrize(
        "window",
        [
            *[(0, 0), (1, 0), (0, 1), (2, 1), (50, 60)],
            *[(None, 0), (0, None), (None, 2), (3, None), (None, None)],
        ],
        ids=str,
    )
    def test_window_limits_the_distance_on_both_sides(self, kind, window):
        arrays = random_arrays(kind, *FOUR_AXES)
        check_against_loop(kind, arrays, window=window)
        check_against_loop(kind, arrays, window=window, causal_offset=2)
        check_against_loop(kind, arrays, window=window, causal_offset=-3)
        check_against_loop(kind, arrays, window=window, is_causal=True)

    @each_float64_kind
    def test_window_alone_is_two_sided(self, kind):
        zeros = kind.floats(np.zeros((5, 2)))
        _, weights = scaled_dot_product_attention(
            zeros, zeros, zeros, window=(1, 2), return_weights=True
        )
        expected = [[-1 <= j - i <= 2 for j in range(5)] for i in range(5)]
        assert (to_numpy(weights) > 0).tolist() == expected

    @each_float64_kind
    def test_window_open_to_the_left_and_closed_to_the_right_is_causal(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        windowed = scaled_dot_product_attention(*arrays, window=(None, 0), causal_offset=1)
        causal = scaled_dot_product_attention(*arrays, is_causal=True, causal_offset=1)
        check_close(windowed, to_numpy(causal), kind)

    @each_float64_kind
    def test_zero_offset_is_top_left(self, kind):
        zeros = kind.floats(np.zeros((3, 2)))
        keys = kind.floats(np.zeros((5, 2)))
        _, weights = scaled_dot_product_attention(
            zeros, keys, keys, is_causal=True, return_weights=True
        )
        assert (to_numpy(weights) > 0).sum(axis=1).tolist() == [1, 2, 3]

    @each_float64_kind
    def test_offset_gives_the_rows_of_the_full_pass(self, kind):
        q, K, V = random_arrays(kind, (2, 7, 4), (2, 7, 4), (2, 7, 3))
        full = to_numpy(scaled_dot_product_attention(q, K, V, is_causal=True))
        for start in range(7):
            rest = scaled_dot_product_attention(
                q[:, start:], K, V, is_causal=True, causal_offset=start
            )
            check_close(rest, full[:, start:], kind)

    @each_float64_kind
    def test_each_item_may_stand_elsewhere(self, kind):
        for lead, batch in (((3,), (3,)), ((3, 2), (3,)), ((2, 3, 4), (2, 3))):
            arrays = random_arrays(kind, (*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 6))
            offsets = np.random.default_rng(53).integers(-4, 8, size=batch)
            for integers in (offsets, offsets.astype(np.int32)):
                given = kind.plain(integers)
                check_against_loop(kind, arrays, is_causal=True, causal_offset=given)
                check_against_loop(kind, arrays, window=(1, 2), causal_offset=given)

    @each_float64_kind
    def test_an_integer_of_any_type_is_an_offset(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        expected = scaled_dot_product_attention(*arrays, is_causal=True, causal_offset=2)
        for offset in (np.int64(2), np.int32(2), kind.plain(2)):
            output = scaled_dot_product_attention(*arrays, is_causal=True, causal_offset=offset)
            check_equal_bits(output, expected)

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_agrees_with_pytorch(self, kind):
        import torch

        function = torch.nn.functional.scaled_dot_product_attention
        for L, S in ((5, 5), (3, 7), (7, 3)):
            arrays = random_arrays(kind, (2, 6, L, 4), (2, 6, S, 4), (2, 6, S, 4))
            expected = function(*arrays, is_causal=True)
            output = scaled_dot_product_attention(*arrays, is_causal=True)
            check_close(output, to_numpy(expected), kind, factor=4)


class TestComposition:
    """Masks, causal, window and key_mask intersect; float masks are still added."""

    @pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=4)), ids=str)
    def test_each_combination_is_that_of_the_loop(self, kind, wanted):
        by_mask, causal, windowed, padded = wanted
        arrays = random_arrays(kind, *FOUR_AXES)
        options = {
            "is_causal": causal,
            "window": (3, 1) if windowed else None,
            "key_mask": kind.plain(random_bools(2, 7, share=0.7)) if padded else None,
            "causal_offset": kind.plain([1, 3]) if causal or windowed else 0,
            "softcap": 2.5,
        }
        bias = np.random.default_rng(54).normal(size=(6, 5, 7))
        masks = (kind.plain(bias > -0.5), kind.floats(bias)) if by_mask else (None,)
        for mask in masks:
            check_against_loop(kind, arrays, mask, **options)

    @each_float64_kind
    def test_bool_masks_intersect_with_causal(self, kind):
        zeros = kind.floats(np.zeros((4, 2)))
        seen = random_bools(4, 4, share=0.5)
        _, weights = scaled_dot_product_attention(
            zeros, zeros, zeros, kind.plain(seen), is_causal=True, return_weights=True
        )
        assert ((to_numpy(weights) > 0) == (seen & np.tri(4, dtype=bool))).all()


class TestNothingToAttend:
    def test_gives_zeros_in_output_and_weights(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        empty = np.ones((2, 1, 5, 7), dtype=bool)
        empty[1, 0, 2] = False
        for mask in (kind.plain(empty), kind.floats(np.where(empty, 0.5, -np.inf))):
            output, weights = scaled_dot_product_attention(*arrays, mask, return_weights=True)
            assert (to_numpy(output)[1, :, 2] == 0).all()
            assert (to_numpy(weights)[1, :, 2] == 0).all()
            check_against_loop(kind, arrays, mask)

    @pytest.mark.parametrize(
        "options",
        [
            {"is_causal": True, "causal_offset": -5},
            {"is_causal": True, "causal_offset": -100},
            {"window": (0, 0), "causal_offset": 7},
            {"window": (2, None), "causal_offset": 90},
        ],
        ids=str,
    )
    def test_gives_zeros_when_every_row_is_empty(self, kind, options):
        arrays = random_arrays(kind, *FOUR_AXES)
        output, weights = scaled_dot_product_attention(*arrays, return_weights=True, **options)
        check_close(output, np.zeros((2, 6, 5, 3)), kind)
        check_close(weights, np.zeros((2, 6, 5, 7)), kind)
        check_close(scaled_dot_product_attention(*arrays, **options), np.zeros((2, 6, 5, 3)), kind)

    def test_gives_zeros_for_an_item_of_only_padding(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        real = kind.plain([[False] * 7, [True] * 5 + [False] * 2])
        check_against_loop(kind, arrays, key_mask=real)
        output = scaled_dot_product_attention(*arrays, key_mask=real)
        assert (to_numpy(output)[0] == 0).all()

    @each_float64_kind
    def test_gives_zeros_when_only_the_intersection_is_empty(self, kind):
        arrays = random_arrays(kind, (5, 4), (5, 4), (5, 3))
        later = np.triu(np.ones((5, 5), dtype=bool), k=1)
        output = scaled_dot_product_attention(*arrays, kind.plain(later), is_causal=True)
        check_close(output, np.zeros((5, 3)), kind)


class TestWeights:
    def test_rows_sum_to_one_and_masked_places_are_exactly_zero(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        seen = random_bools(2, 6, 5, 7)
        seen[0, 1, 2] = False
        for mask in (kind.plain(seen), kind.floats(np.where(seen, 1.0, -np.inf))):
            _, weights = scaled_dot_product_attention(*arrays, mask, return_weights=True)
            weights = to_numpy(weights)
            assert (weights[~seen] == 0.0).all()
            assert (weights[seen] > 0.0).all()
            sums = np.where(seen.any(axis=-1), 1.0, 0.0)
            np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=7 * kind.tolerance)

    def test_have_an_axis_for_heads_and_none_is_averaged(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        _, weights = scaled_dot_product_attention(*arrays, return_weights=True)
        assert tuple(weights.shape) == (2, 6, 5, 7)
        assert len(np.unique(to_numpy(weights)[0, :, 0, 0])) == 6

    def test_times_the_values_are_the_output(self, kind):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        output, weights = scaled_dot_product_attention(
            q, K, V, is_causal=True, causal_offset=1, return_weights=True
        )
        check_close(output, to_numpy(weights) @ to_numpy(V), kind, factor=4)
