"""`scaled_dot_product_attention`: NaN and infinity, masked and allowed."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib import scaled_dot_product_attention
from tests.attnlib.test_functional_shapes import random_arrays
from tests.kinds import FLOAT64_KINDS, KINDS, check_close, to_numpy

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)
NUMPY_KINDS = [kind for kind in KINDS if kind.library == "numpy"]
each_poison = pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf], ids=str)
FOUR_AXES = ((2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))  # B = 2, H = 6, L = 5, S = 7

# Options that switch keys 5 and 6 off for every query.
SWITCHED_OFF = {
    "key_mask": lambda kind: {"key_mask": kind.plain(np.arange(7) < 5)},
    "key_mask per item": lambda kind: {"key_mask": kind.plain(np.tile(np.arange(7) < 5, (2, 1)))},
    "causal": lambda kind: {"is_causal": True},
    "causal per item": lambda kind: {"is_causal": True, "causal_offset": kind.plain([0, -2])},
    "window": lambda kind: {"window": (None, 1), "causal_offset": -1},
    "key_mask and causal": lambda kind: {
        "key_mask": kind.plain(np.arange(7) != 5),
        "window": (2, None),
        "is_causal": True,
        "causal_offset": 0,
    },
}
each_switch = pytest.mark.parametrize("switch", SWITCHED_OFF.values(), ids=SWITCHED_OFF.keys())


class TestMaskedPairs:
    @each_poison
    @each_switch
    def test_keys_that_no_query_may_see_never_change_the_result(self, kind, switch, poison):
        options = switch(kind)
        q, K, V = random_arrays(kind, *FOUR_AXES)
        expected, expected_weights = scaled_dot_product_attention(
            q, K, V, return_weights=True, **options
        )
        expected_alone = scaled_dot_product_attention(q, K, V, **options)
        for array in (K, V):
            array[:, :, 5:] = poison
            output, weights = scaled_dot_product_attention(q, K, V, return_weights=True, **options)
            check_close(output, to_numpy(expected), kind)
            check_close(weights, to_numpy(expected_weights), kind)
            alone = scaled_dot_product_attention(q, K, V, **options)
            check_close(alone, to_numpy(expected_alone), kind)

    @each_float64_kind
    @each_poison
    def test_padding_of_different_lengths_never_changes_the_result(self, kind, poison):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        real = np.arange(7) < np.array([[3], [6]])
        options = {"key_mask": kind.plain(real)}
        expected = to_numpy(scaled_dot_product_attention(q, K, V, **options))
        for item in range(2):
            K[item, :, ~real[item]] = poison
            V[item, :, ~real[item]] = poison
        check_close(scaled_dot_product_attention(q, K, V, **options), expected, kind)
        grouped = scaled_dot_product_attention(q, K[:, :2], V[:, :2], enable_gqa=True, **options)
        assert np.isfinite(to_numpy(grouped)).all()

    @each_float64_kind
    @each_poison
    def test_a_mask_on_top_of_padding_does_not_let_it_in(self, kind, poison):
        """key_mask keeps its promise also when an attn_mask comes with it."""
        q, K, V = random_arrays(kind, *FOUR_AXES)
        options = {"key_mask": kind.plain(np.arange(7) < 5)}
        masks = kind.plain(np.tri(5, 7, k=1, dtype=bool)), kind.floats(np.linspace(-1, 1, 7))
        for mask in masks:
            expected = to_numpy(scaled_dot_product_attention(q, K, V, mask, **options))
            K[:, :, 5:] = V[:, :, 5:] = poison
            check_close(scaled_dot_product_attention(q, K, V, mask, **options), expected, kind)
            K[:, :, 5:] = V[:, :, 5:] = 0.0

    @each_poison
    @pytest.mark.filterwarnings("ignore:invalid value")  # rows that do see the poison
    @pytest.mark.parametrize("kind", NUMPY_KINDS, ids=str)
    def test_on_numpy_no_masked_pair_changes_the_result(self, kind, poison):
        """Also for a key that other queries may see: each pair counts by itself."""
        q, K, V = random_arrays(kind, *FOUR_AXES)
        seen = np.random.default_rng(70).random((5, 7)) < 0.6
        seen[:, 2] = [True, False, True, False, False]
        masks = {
            "bool": (kind.plain(seen), {}),
            "float": (kind.floats(np.where(seen, 0.5, -np.inf)), {}),
            "causal": (None, {"is_causal": True, "causal_offset": 0}),
            "window": (None, {"window": (1, 0), "causal_offset": 1}),
        }
        for mask, options in masks.values():
            expected, weights = scaled_dot_product_attention(
                q, K, V, mask, return_weights=True, **options
            )
            visible = (weights > 0).all(axis=(0, 1))[:, 2]
            for which in ("key", "value", "both"):
                poisoned_key, poisoned_value = K.copy(), V.copy()
                if which != "value":
                    poisoned_key[:, :, 2] = poison
                if which != "key":
                    poisoned_value[:, :, 2] = poison
                for output in (
                    scaled_dot_product_attention(q, poisoned_key, poisoned_value, mask, **options),
                    scaled_dot_product_attention(
                        q, poisoned_key, poisoned_value, mask, return_weights=True, **options
                    )[0],
                ):
                    check_close(output[:, :, ~visible], expected[:, :, ~visible], kind)

    @each_poison
    @pytest.mark.parametrize("kind", NUMPY_KINDS, ids=str)
    def test_on_numpy_masked_poison_raises_no_warning(self, kind, poison):
        """Warnings are errors here; one masked key holds poison for all queries."""
        q, K, V = random_arrays(kind, *FOUR_AXES)
        seen = np.ones((5, 7), dtype=bool)
        seen[:, 3] = False
        expected = scaled_dot_product_attention(q, K, V, seen)
        K[:, :, 3] = V[:, :, 3] = poison
        check_close(scaled_dot_product_attention(q, K, V, seen), expected, kind)
        assert np.isfinite(expected.astype(np.float64)).all()

    @each_float64_kind
    def test_poison_in_a_query_that_sees_nothing_gives_zeros(self, kind):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        q[:, :, 0] = float("nan")
        options = {"is_causal": True, "causal_offset": -1}
        output = scaled_dot_product_attention(q, K, V, **options)
        assert (to_numpy(output)[:, :, 0] == 0.0).all()
        assert np.isfinite(to_numpy(output)).all()


class TestAllowedPairs:
    """What is not a number in an allowed score is shown, not hidden."""

    pytestmark = pytest.mark.filterwarnings("ignore:invalid value")

    @each_float64_kind
    @pytest.mark.parametrize("weighted", [False, True], ids=["output alone", "with weights"])
    def test_nan_in_a_query_reaches_its_row_and_no_other(self, kind, weighted):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        q[0, 1, 2, 3] = float("nan")
        result = scaled_dot_product_attention(q, K, V, return_weights=weighted)
        output = to_numpy(result[0] if weighted else result)
        assert np.isnan(output[0, 1, 2]).all()
        assert np.isfinite(np.delete(output[0, 1], 2, axis=0)).all()
        assert np.isfinite(output[1]).all()

    @each_float64_kind
    def test_nan_in_a_visible_key_reaches_all_rows_that_see_it(self, kind):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        K[1, 0, 6, 0] = float("nan")
        output = to_numpy(scaled_dot_product_attention(q, K, V))
        assert np.isnan(output[1, 0]).all()
        assert np.isfinite(output[0]).all()
        output = to_numpy(scaled_dot_product_attention(q, K, V, is_causal=True, causal_offset=2))
        assert np.isnan(output[1, 0, 4]).all()

    @each_float64_kind
    @pytest.mark.parametrize("poison", [np.nan, np.inf], ids=str)
    def test_a_float_mask_that_is_not_finite_reaches_its_row(self, kind, poison):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        bias = np.zeros((5, 7))
        bias[3, 1] = poison
        for weighted in (False, True):
            result = scaled_dot_product_attention(
                q, K, V, kind.floats(bias), return_weights=weighted
            )
            output = to_numpy(result[0] if weighted else result)
            assert np.isnan(output[3]).all()
            assert np.isfinite(np.delete(output, 3, axis=0)).all()

    @each_float64_kind
    def test_a_score_of_plus_infinity_gives_nan(self, kind):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        q[2], K[3] = 1.0, float("inf")
        output = to_numpy(scaled_dot_product_attention(q, K, V))
        assert np.isnan(output[2]).all()

    @pytest.mark.parametrize("length", [5, 300])  # a call in one piece, and one in tiles
    def test_scores_of_minus_infinity_alone_give_zeros(self, kind, length):
        q, K, V = random_arrays(kind, (length, 4), (257, 4), (257, 3))
        q[...], K[...] = 1.0, float("-inf")
        output, weights = scaled_dot_product_attention(q, K, V, return_weights=True)
        assert (to_numpy(output) == 0).all()
        assert (to_numpy(weights) == 0).all()
        assert (to_numpy(scaled_dot_product_attention(q, K, V)) == 0).all()

    @each_float64_kind
    def test_not_finite_values_show_in_their_column(self, kind):
        q, K, V = random_arrays(kind, (5, 4), (7, 4), (7, 3))
        V[4, 1] = float("inf")
        V[4, 2] = float("nan")
        output = to_numpy(scaled_dot_product_attention(q, K, V))
        assert np.isfinite(output[:, 0]).all()
        assert (output[:, 1] == np.inf).all()
        assert np.isnan(output[:, 2]).all()
