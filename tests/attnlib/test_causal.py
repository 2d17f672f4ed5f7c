"""Chapter 2: causal attention.  Rows S6 to S12 of the curriculum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from attnlib import (
    causal_attention,
    causal_attention_at,
    scaled_dot_product_attention,
    single_query_attention,
    softmax,
)
from attnlib.causal import causal_mask
from tests import reference
from tests.implementations import CAUSAL

every_implementation = pytest.mark.parametrize("attend", CAUSAL.values(), ids=CAUSAL.keys())

# PyTorch's kernels multiply masked values by zero, so that NaN leaks from a key that some queries
# may see; attnlib promises more only for keys that no query may see, and on NumPy.
SELECTING = {
    name: attend
    for name, attend in CAUSAL.items()
    if not name.startswith(("function on torch", "nn."))
}


@pytest.fixture
def sequence() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six tokens with queries and keys of width 4 and values of width 3."""
    random = np.random.default_rng(20)
    return random.normal(size=(6, 4)), random.normal(size=(6, 4)), random.normal(size=(6, 3))


@pytest.fixture
def example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The running example, whose causal weights are [1], [1/3, 2/3], [1/6, 2/6, 3/6]."""
    two, three = math.log(2), math.log(3)
    Q = [[three, two, three, two], [two, 0, two, 0], [two, three, two, three]]
    K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    return np.array(Q), np.array(K), np.array([[1, 2], [3, 0], [4, 5]])


def attention_from_weights(weights: list[float], V: list[list[float]]) -> np.ndarray:
    """Let `attnlib` attend with given weights: their logarithms are the scores."""
    return single_query_attention([1.0], np.log(weights)[:, None], V, scale=1.0)


class TestMask:
    def test_is_true_on_and_below_the_diagonal(self):
        mask = causal_mask(3)
        assert mask.dtype == np.bool_
        assert mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]

    def test_starts_top_left_when_lengths_differ(self):
        assert causal_mask(2, 4).tolist() == [
            [True, False, False, False],
            [True, True, False, False],
        ]
        assert causal_mask(3, 2).tolist() == [[True, False], [True, True], [True, True]]

    @pytest.mark.parametrize("offset", [-3, -1, 0, 2, 9])
    def test_offset_moves_the_queries(self, offset):
        mask = causal_mask(3, 5, offset=offset)
        expected = [[j <= i + offset for j in range(5)] for i in range(3)]
        assert mask.tolist() == expected

    def test_may_be_empty(self):
        assert causal_mask(0).shape == (0, 0)
        assert causal_mask(3, 0).shape == (3, 0)

    def test_is_what_the_flag_means(self, sequence):
        Q, K, V = sequence
        for offset in (-2, 0, 1):
            masked = scaled_dot_product_attention(Q[:4], K, V, causal_mask(4, 6, offset=offset))
            flagged = scaled_dot_product_attention(
                Q[:4], K, V, is_causal=True, causal_offset=offset
            )
            np.testing.assert_allclose(masked, flagged, rtol=1e-14)


class TestLeftContext:
    @every_implementation
    def test_agrees_with_the_loop(self, attend, sequence):
        expected, _ = reference.attention(*sequence, is_causal=True)
        np.testing.assert_allclose(attend(*sequence), expected, rtol=1e-12)

    @every_implementation
    def test_outputs_of_the_running_example_are_exact_fractions(self, attend, example):
        Q, K, V = (array.astype(np.float64) for array in example)
        counts = [[1], [1, 2], [1, 2, 3]]
        rows = [[Fraction(count, sum(row)) for count in row] for row in counts]
        outputs = [
            [sum(w * int(v) for w, v in zip(row, column, strict=False)) for column in V.T]
            for row in rows
        ]
        assert outputs[1] == [Fraction(7, 3), Fraction(2, 3)]
        assert outputs[2] == [Fraction(19, 6), Fraction(17, 6)]
        np.testing.assert_allclose(attend(Q, K, V), np.array(outputs, dtype=float), rtol=1e-12)

    def test_slicing_and_masking_agree_at_every_position(self, sequence):
        Q, K, V = sequence
        masked = causal_attention(Q, K, V)
        for i in range(6):
            sliced = single_query_attention(Q[i], K[: i + 1], V[: i + 1])
            np.testing.assert_allclose(masked[i], sliced, rtol=1e-14)
            np.testing.assert_allclose(causal_attention_at(i, Q, K, V), sliced, rtol=1e-14)

    @every_implementation
    def test_a_position_sees_itself(self, attend, sequence):
        Q, K, V = sequence
        own = V.copy()
        own[2] += 1.0
        change = attend(Q, K, own) - attend(Q, K, V)
        assert np.abs(change[:2]).max() < 1e-12
        assert (change[2:] > 1e-6).all()

    @every_implementation
    def test_first_output_is_the_first_value(self, attend, sequence):
        Q, K, V = sequence
        np.testing.assert_allclose(attend(Q, K, V)[0], V[0], rtol=1e-14)

    def test_a_scale_reaches_every_position(self, sequence):
        for scale in (0.0, -1.5, 0.25):
            expected, _ = reference.attention(*sequence, is_causal=True, scale=scale)
            np.testing.assert_allclose(
                causal_attention(*sequence, scale=scale), expected, rtol=1e-12
            )
            for i in (0, 3):
                row = causal_attention_at(i, *sequence, scale=scale)
                np.testing.assert_allclose(row, expected[i], rtol=1e-12)

    def test_lists_of_integers_are_computed_in_float64(self, example):
        _, K, V = example
        Q = [[0, 1, 2, 3], [1, 0, 0, 1], [2, 2, 0, 1]]
        expected, _ = reference.attention(Q, K, V, is_causal=True)
        output = causal_attention(Q, K.tolist(), V.tolist())
        assert output.dtype == np.float64
        np.testing.assert_allclose(output, expected, rtol=1e-14)
        np.testing.assert_allclose(causal_attention_at(1, Q, K.tolist(), V.tolist()), expected[1])

    def test_float32_stays_float32(self, sequence):
        arrays = [array.astype(np.float32) for array in sequence]
        assert causal_attention(*arrays).dtype == np.float32
        assert causal_attention_at(3, *arrays).dtype == np.float32

    def test_an_empty_sequence_gives_an_empty_output(self):
        assert causal_attention(np.zeros((0, 4)), np.zeros((0, 4)), np.zeros((0, 3))).shape == (
            0,
            3,
        )

    def test_leaves_its_inputs_as_they_were(self, sequence):
        before = [array.copy() for array in sequence]
        output = causal_attention(*sequence)
        row = causal_attention_at(0, *sequence)
        for array, old in zip(sequence, before, strict=True):
            np.testing.assert_array_equal(array, old)
            assert not np.shares_memory(output, array)
            assert not np.shares_memory(row, array)

    def test_agrees_with_pytorch(self, sequence):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        tensors = [torch.from_numpy(array) for array in sequence]
        function = torch.nn.functional.scaled_dot_product_attention
        expected = function(*tensors, is_causal=True).numpy()
        np.testing.assert_allclose(causal_attention(*sequence), expected, rtol=1e-12)


class TestMatrixForm:
    def test_row_times_matrix_and_weighted_sum_are_the_same_numbers(self, sequence):
        Q, K, V = sequence
        _, weights = scaled_dot_product_attention(Q, K, V, is_causal=True, return_weights=True)
        output = causal_attention(Q, K, V)
        for i in range(6):
            as_product = weights[i, : i + 1] @ V[: i + 1]
            as_sum = sum(weights[i, j] * V[j] for j in range(i + 1))
            np.testing.assert_allclose(output[i], as_product, rtol=1e-13)
            np.testing.assert_allclose(output[i], as_sum, rtol=1e-13)

    def test_weights_are_zero_above_the_diagonal_and_rows_sum_to_one(self, sequence):
        Q, K, V = sequence
        _, weights = scaled_dot_product_attention(Q, K, V, is_causal=True, return_weights=True)
        above = np.triu_indices(6, k=1)
        assert (weights[above] == 0.0).all()
        assert (weights[np.tril_indices(6)] > 0.0).all()
        np.testing.assert_allclose(weights.sum(axis=1), np.ones(6), rtol=1e-14)

    def test_mask_goes_in_after_the_scale_and_before_the_softmax(self, sequence):
        Q, K, V = sequence
        scores = Q @ K.T / 2.0
        masked = softmax(np.where(causal_mask(6), scores, -np.inf)) @ V
        np.testing.assert_allclose(causal_attention(Q, K, V), masked, rtol=1e-13)

        masked_after = np.where(causal_mask(6), softmax(scores), 0.0)
        assert (masked_after[:-1].sum(axis=1) < 1.0).all()
        assert np.abs(masked_after @ V - masked).max() > 0.1

    @pytest.mark.filterwarnings("ignore:invalid value")
    def test_minus_infinity_before_the_scale_breaks_at_zero_and_below(self, sequence):
        Q, K, V = sequence
        dot_products = np.where(causal_mask(6), Q @ K.T, -np.inf)
        assert np.isnan(dot_products * 0.0).any()
        assert (dot_products * -0.5 == np.inf).any()
        for scale in (0.0, -0.5):
            expected, _ = reference.attention(Q, K, V, is_causal=True, scale=scale)
            np.testing.assert_allclose(causal_attention(Q, K, V, scale=scale), expected, rtol=1e-12)


class TestInfluence:
    """Rows S9 and S10: values [1, 2], [3, 0], [4, 5] with weights 0.1, 0.6, 0.3."""

    V = ((1.0, 2.0), (3.0, 0.0), (4.0, 5.0))
    weights = (0.1, 0.6, 0.3)

    def test_output_is_the_weighted_sum(self):
        exact = [
            sum(Fraction(str(w)) * int(v) for w, v in zip(self.weights, column, strict=True))
            for column in zip(*self.V, strict=True)
        ]
        assert exact == [Fraction("3.1"), Fraction("1.7")]
        output = attention_from_weights(self.weights, self.V)
        np.testing.assert_allclose(output, [3.1, 1.7], rtol=1e-14)

    def test_by_weight_token_one_influences_most(self):
        weights = softmax(np.log(self.weights))
        assert int(weights.argmax()) == 1
        np.testing.assert_allclose(weights, self.weights, rtol=1e-14)

    def test_by_size_of_contribution_token_two_influences_most(self):
        contributions = softmax(np.log(self.weights))[:, None] * np.array(self.V)
        sizes = np.linalg.norm(contributions, axis=1)
        assert int(sizes.argmax()) == 2
        assert sizes.round(3).tolist() == [0.224, 1.8, 1.921]

    def test_by_leaving_one_out_token_one_influences_most(self):
        key, value = np.log(self.weights)[:, None], np.array(self.V)
        whole = scaled_dot_product_attention(np.ones((1, 1)), key, value, scale=1.0)
        changes = []
        for left_out in range(3):
            rest = np.arange(3) != left_out
            output = scaled_dot_product_attention(
                np.ones((1, 1)), key, value, scale=1.0, key_mask=rest
            )
            changes.append(float(np.linalg.norm(output - whole)))
        assert int(np.argmax(changes)) == 1
        assert [round(change, 3) for change in changes[1:]] == [2.554, 1.466]


class TestBrokenCausality:
    """Row S11: position 2 computed as 0.1 v_0 + 0.2 v_1 + 0.6 v_2 + 0.1 v_3."""

    weights = (Fraction(1, 10), Fraction(2, 10), Fraction(6, 10), Fraction(1, 10))

    def test_removing_the_future_term_gives_ninths(self):
        seen = self.weights[:3]
        proper = [weight / sum(seen) for weight in seen]
        assert proper == [Fraction(1, 9), Fraction(2, 9), Fraction(6, 9)]

        K = np.log(np.array(self.weights, dtype=float))[:, None]
        output = causal_attention_at(2, np.ones((4, 1)), K, np.eye(4), scale=1.0)
        np.testing.assert_allclose(output, [*np.array(proper, dtype=float), 0.0], rtol=1e-14)

    def test_setting_the_weight_to_zero_without_renormalising_is_not_enough(self):
        K = np.log(np.array(self.weights, dtype=float))[:, None]
        weights = softmax(K[:, 0])
        assert weights[:3].sum() == pytest.approx(0.9)
        masked = causal_attention(np.ones((4, 1)), K, np.eye(4), scale=1.0)
        assert masked[2].sum() == pytest.approx(1.0)


class TestLaws:
    """Row S12."""

    @every_implementation
    def test_later_tokens_change_nothing(self, attend, sequence):
        Q, K, V = sequence
        for i in range(5):
            changed = [array.copy() for array in sequence]
            for array in changed:
                array[i + 1 :] = 9.0 - array[i + 1 :]
            np.testing.assert_allclose(
                attend(*changed)[: i + 1], attend(Q, K, V)[: i + 1], rtol=1e-12
            )

    def test_later_tokens_change_no_bit_in_chapter_code(self, sequence):
        Q, K, V = sequence
        for i in range(5):
            changed = [array.copy() for array in sequence]
            for array in changed:
                array[i + 1 :] = 9.0 - array[i + 1 :]
            for j in range(i + 1):
                np.testing.assert_array_equal(
                    causal_attention_at(j, *changed), causal_attention_at(j, Q, K, V)
                )
            np.testing.assert_array_equal(
                causal_attention(*changed)[: i + 1], causal_attention(Q, K, V)[: i + 1]
            )

    @pytest.mark.filterwarnings("ignore:invalid value")  # rows that do see the poisoned values
    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("attend", SELECTING.values(), ids=SELECTING.keys())
    def test_later_values_that_are_not_finite_do_not_leak(self, attend, poison, sequence):
        Q, K, V = sequence
        expected, _ = reference.attention(Q, K, V, is_causal=True)
        for i in (0, 3):
            poisoned = V.copy()
            poisoned[i + 1 :] = poison
            output = attend(Q, K, poisoned)
            np.testing.assert_allclose(output[: i + 1], expected[: i + 1], rtol=1e-12)

    @pytest.mark.filterwarnings("ignore:invalid value")
    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("attend", SELECTING.values(), ids=SELECTING.keys())
    def test_later_keys_that_are_not_finite_do_not_leak(self, attend, poison, sequence):
        Q, K, V = sequence
        expected, _ = reference.attention(Q, K, V, is_causal=True)
        for i in (0, 3):
            poisoned = K.copy()
            poisoned[i + 1 :] = poison
            output = attend(Q, poisoned, V)
            np.testing.assert_allclose(output[: i + 1], expected[: i + 1], rtol=1e-12)

    @every_implementation
    def test_output_of_a_prefix_is_the_prefix_of_the_output(self, attend, sequence):
        Q, K, V = sequence
        whole = attend(Q, K, V)
        for length in range(1, 6):
            prefix = attend(Q[:length], K[:length], V[:length])
            np.testing.assert_allclose(prefix, whole[:length], rtol=1e-12)
