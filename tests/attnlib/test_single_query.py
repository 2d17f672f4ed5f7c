"""Chapter 1: one query.  Rows S1 to S5 of the curriculum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from attnlib import (
    attention_gradients,
    attention_steps,
    single_query_attention,
    softmax,
)
from attnlib.gradients import softmax_jacobian
from tests import reference

LOGS = np.log([1.0, 2.0, 3.0])


@pytest.fixture
def example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The running example: width 4, scores ln 1, ln 2, ln 3, so that the weights are sixths."""
    q = [math.log(2), math.log(3), math.log(2), math.log(3)]
    K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
    V = [[1, 2], [3, 0], [4, 5]]
    return np.array(q), np.array(K), np.array(V)


class TestSoftmax:
    def test_of_logarithms_is_their_shares(self):
        shares = [Fraction(count, 6) for count in (1, 2, 3)]
        np.testing.assert_allclose(softmax(LOGS), np.array(shares, dtype=float), rtol=1e-15)

    def test_agrees_with_the_loop_along_each_axis(self):
        scores = np.random.default_rng(1).normal(size=(2, 3, 5))
        for axis in (0, 1, 2, -1, -2, -3):
            expected = np.apply_along_axis(
                lambda row: reference.softmax(row.tolist()), axis, scores
            )
            np.testing.assert_allclose(softmax(scores, axis=axis), expected, rtol=1e-14)

    def test_default_axis_is_the_last(self):
        scores = np.random.default_rng(2).normal(size=(2, 5))
        np.testing.assert_array_equal(softmax(scores), softmax(scores, axis=1))

    def test_a_shift_of_all_scores_changes_nothing(self):
        scores = np.array([0.25, -1.0, 2.0])
        np.testing.assert_allclose(softmax(scores + 512.0), softmax(scores), rtol=1e-12)

    def test_neither_overflows_nor_underflows(self):
        huge = softmax([[800.0, 799.0, -5.0], [-800.0, -801.0, -802.0]])
        np.testing.assert_allclose(huge[0, :2], [1 / (1 + math.exp(-1)), 1 / (1 + math.e)])
        np.testing.assert_allclose(huge[1], reference.softmax([2.0, 1.0, 0.0]))

    def test_a_row_of_only_minus_infinity_gives_zeros(self):
        rows = softmax([[-np.inf, -np.inf, -np.inf], [0.0, -np.inf, 0.0]])
        np.testing.assert_array_equal(rows, [[0.0, 0.0, 0.0], [0.5, 0.0, 0.5]])

    def test_nothing_to_share_gives_an_empty_row(self):
        assert softmax(np.zeros((3, 0))).shape == (3, 0)
        assert softmax(np.zeros((0, 3))).shape == (0, 3)

    def test_does_not_hide_what_is_not_a_number(self):
        assert np.isnan(softmax([0.0, np.nan, 1.0])).all()
        assert np.isnan(softmax([0.0, np.inf, 1.0])).all()

    def test_integers_become_float64_and_floats_keep_their_dtype(self):
        assert softmax([1, 2]).dtype == np.float64
        assert softmax(np.array([1, 2], dtype=np.int8)).dtype == np.float64
        assert softmax(np.array([1, 2], dtype=np.float32)).dtype == np.float32

    def test_leaves_its_input_as_it_was(self):
        scores = LOGS.copy()
        softmax(scores)
        np.testing.assert_array_equal(scores, LOGS)

    def test_is_exactly_zero_only_far_below_the_largest_score(self):
        """Row S13: in exact arithmetic never; in floats beyond about 104 and 746."""
        for dtype, reach in ((np.float32, 103), (np.float64, 745)):
            near = softmax(np.array([0.0, -reach], dtype=dtype))
            far = softmax(np.array([0.0, -reach - 1], dtype=dtype))
            assert near[1] > 0.0
            assert far[1] == 0.0

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_agrees_with_pytorch(self, dtype):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        scores = np.random.default_rng(3).normal(scale=5, size=(4, 7)).astype(dtype)
        expected = torch.softmax(torch.from_numpy(scores), dim=-1).numpy()
        np.testing.assert_allclose(
            softmax(scores), expected, rtol=1e-5 if dtype == "float32" else 1e-13
        )


class TestOneQuery:
    def test_weights_and_output_of_the_running_example_are_exact_fractions(self, example):
        q, K, V = example
        weights = [Fraction(count, 6) for count in (1, 2, 3)]
        output = [sum(w * int(v) for w, v in zip(weights, column, strict=True)) for column in V.T]
        assert output == [Fraction(19, 6), Fraction(17, 6)]

        steps = attention_steps(q, K, V)
        np.testing.assert_allclose(steps.dot_products, 2 * LOGS, atol=1e-15)
        np.testing.assert_allclose(steps.scores, LOGS, atol=1e-15)
        np.testing.assert_allclose(steps.weights, np.array(weights, dtype=float), rtol=1e-14)
        np.testing.assert_allclose(steps.output, np.array(output, dtype=float), rtol=1e-14)

    def test_without_the_scale_the_weights_would_be_fourteenths(self, example):
        q, K, V = example
        weights = [Fraction(count, 14) for count in (1, 4, 9)]
        actual = attention_steps(q, K, V, scale=1.0).weights
        np.testing.assert_allclose(actual, np.array(weights, dtype=float), rtol=1e-14)

    def test_output_agrees_with_the_loop(self):
        random = np.random.default_rng(4)
        q, K, V = random.normal(size=5), random.normal(size=(7, 5)), random.normal(size=(7, 3))
        for scale in (None, 0.0, -0.5, 3):
            expected, weights = reference.attention(q, K, V, scale=scale)
            np.testing.assert_allclose(single_query_attention(q, K, V, scale=scale), expected)
            steps = attention_steps(q, K, V, scale=scale)
            np.testing.assert_allclose(steps.output, expected)
            np.testing.assert_allclose(steps.weights, weights)

    def test_output_agrees_with_pytorch(self):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        random = np.random.default_rng(5)
        q, K, V = random.normal(size=(1, 6)), random.normal(size=(4, 6)), random.normal(size=(4, 3))
        tensors = [torch.from_numpy(array) for array in (q, K, V)]
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors).numpy()
        np.testing.assert_allclose(single_query_attention(q[0], K, V), expected[0], rtol=1e-13)

    def test_steps_are_those_of_the_equation_in_its_order(self, example):
        steps = attention_steps(*example)
        assert steps._fields == ("dot_products", "scores", "weights", "output")
        q, K, V = example
        np.testing.assert_allclose(steps.dot_products, [reference.dot(q, k) for k in K], atol=1e-15)
        np.testing.assert_allclose(steps.scores, steps.dot_products / math.sqrt(len(q)))
        np.testing.assert_allclose(steps.weights, reference.softmax(steps.scores.tolist()))
        np.testing.assert_allclose(steps.output, steps.weights @ V)

    def test_the_last_step_is_the_output(self, example):
        np.testing.assert_array_equal(
            attention_steps(*example).output, single_query_attention(*example)
        )

    def test_lists_of_integers_are_computed_in_float64(self):
        output = single_query_attention([2, 1], [[1, 0], [3, 2]], [[1], [2]])
        assert output.dtype == np.float64
        assert (
            attention_steps([2, 1], [[1, 0], [3, 2]], [[1], [2]]).dot_products.dtype == np.float64
        )

    def test_float32_stays_float32(self, example):
        q, K, V = (array.astype(np.float32) for array in example)
        assert all(step.dtype == np.float32 for step in attention_steps(q, K, V))
        assert single_query_attention(q, K, V).dtype == np.float32

    def test_nothing_to_attend_gives_zeros(self):
        output = single_query_attention([1.0, 2.0], np.zeros((0, 2)), np.zeros((0, 3)))
        np.testing.assert_array_equal(output, [0.0, 0.0, 0.0])

    def test_leaves_its_inputs_as_they_were(self, example):
        q, K, V = (array.astype(np.float64) for array in example)
        before = q.copy(), K.copy(), V.copy()
        steps = attention_steps(q, K, V)
        single_query_attention(q, K, V)
        for array, old in zip((q, K, V), before, strict=True):
            np.testing.assert_array_equal(array, old)
        assert not any(np.shares_memory(step, array) for step in steps for array in (q, K, V))


class TestScale:
    """Rows S3 and S4: q = [2, 1], K = [[1, 0], [3, 2]] and a width d that is given as 4."""

    q, K, V = (2, 1), ((1, 0), (3, 2)), ((1, 0), (0, 1))

    def test_given_width_of_four_halves_the_dot_products(self):
        steps = attention_steps(self.q, self.K, self.V, scale=1 / math.sqrt(4))
        assert steps.dot_products.tolist() == [2, 8]
        assert steps.scores.tolist() == [1, 4]
        assert steps.weights.round(4).tolist() == [0.0474, 0.9526]

    def test_derived_scale_takes_the_width_of_the_vectors(self):
        steps = attention_steps(self.q, self.K, self.V)
        np.testing.assert_allclose(steps.scores, [2 / math.sqrt(2), 8 / math.sqrt(2)], rtol=1e-15)

    def test_multiplying_by_the_root_saturates_the_weights(self):
        steps = attention_steps(self.q, self.K, self.V, scale=math.sqrt(4))
        assert steps.scores.tolist() == [4, 16]
        assert float(f"{steps.weights[0]:.2e}") == 6.14e-6
        assert steps.weights[1].round(5) == 0.99999

    def test_leaving_the_scale_out_is_in_between(self):
        steps = attention_steps(self.q, self.K, self.V, scale=1.0)
        assert steps.scores.tolist() == [2, 8]
        assert steps.weights.round(4).tolist() == [0.0025, 0.9975]

    @pytest.mark.parametrize(("scale", "exponent"), [(1 / 2, 3), (1, 6), (2, 12)])
    def test_odds_are_the_exponential_of_the_score_difference(self, scale, exponent):
        weights = attention_steps(self.q, self.K, self.V, scale=scale).weights
        assert weights[1] / weights[0] == pytest.approx(math.exp(exponent), rel=1e-12)

    def test_slips_on_a_square_matrix_raise_nothing_and_give_other_numbers(self):
        q, K = np.array(self.q), np.array(self.K)
        assert (q @ K).tolist() == [5, 2]
        assert (q * K.T).shape == (2, 2)
        assert (q @ K.T).tolist() == [2, 8]

    def test_a_scale_of_zero_is_honoured(self):
        assert attention_steps(self.q, self.K, self.V, scale=0.0).weights.tolist() == [0.5, 0.5]


class TestWhyScale:
    """Row S5, on the two ends of the curve: width 1 and width 4096."""

    n, trials = 16, 30

    def _measure(self, d: int, scale: float) -> dict[str, float]:
        """Return means over the trials of what saturates, and of the norms of the gradients."""
        random = np.random.default_rng(d)
        rows = []
        for _ in range(self.trials):
            q, K, V = (
                random.normal(size=d),
                random.normal(size=(self.n, d)),
                random.normal(size=(self.n, 3)),
            )
            weights = attention_steps(q, K, V, scale=scale).weights
            jacobian = softmax_jacobian(weights)
            grad_output = np.ones((1, 3))
            dQ, dK, dV = attention_gradients(q[None], K, V, grad_output, scale=scale)
            rows.append(
                {
                    "largest": weights.max(),
                    "entropy": -sum(w * math.log(w) for w in weights if w > 0),
                    "jacobian": np.linalg.norm(jacobian),
                    "query": np.linalg.norm(dQ) / np.linalg.norm(K),
                    "key": np.linalg.norm(dK) / np.linalg.norm(q),
                    "value": np.linalg.norm(dV),
                }
            )
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def test_variance_of_a_dot_product_grows_with_the_width(self):
        d, sigma, mu, count = 64, 1.5, 0.5, 20_000
        random = np.random.default_rng(6)
        for mean in (0.0, mu):
            q, k = random.normal(mean, sigma, size=(2, count, d))
            expected = d * (sigma**4 + 2 * sigma**2 * mean**2)
            assert np.var((q * k).sum(axis=1)) == pytest.approx(expected, rel=0.05)

    def test_unscaled_weights_saturate_and_scaled_weights_do_not(self):
        narrow, wide = self._measure(1, 1.0), self._measure(4096, 1.0)
        scaled = self._measure(4096, 1 / math.sqrt(4096))
        assert wide["largest"] > 0.95 > 0.6 > narrow["largest"]
        assert wide["entropy"] < 0.2 < 1.5 < narrow["entropy"]
        assert wide["jacobian"] < 0.1 * narrow["jacobian"]
        assert scaled["largest"] < 0.6
        assert scaled["entropy"] > 1.5
        assert scaled["jacobian"] > 10 * wide["jacobian"]

    def test_unscaled_gradients_of_query_and_key_vanish_and_those_of_value_do_not(self):
        narrow, wide = self._measure(1, 1.0), self._measure(4096, 1.0)
        scaled = self._measure(4096, 1 / math.sqrt(4096))
        for name in ("query", "key"):
            assert wide[name] < 0.1 * narrow[name]
            # The scale itself divides these gradients by √d; what reaches the scores survives.
            assert scaled[name] * math.sqrt(4096) > 5 * wide[name]
        assert wide["value"] > narrow["value"]
        assert scaled["value"] > 0.1
