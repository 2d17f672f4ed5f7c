"""Chapter 3: dense attention, its cost, tiles.  Rows S13 to S15 of the curriculum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnlib import causal_attention, dense_attention, scaled_dot_product_attention, softmax
from attnlib.dense import (
    causal_pairs,
    effective_keys,
    strided_pairs,
    tiled_attention,
    window_pairs,
)
from tests import reference
from tests.implementations import DENSE

every_implementation = pytest.mark.parametrize("attend", DENSE.values(), ids=DENSE.keys())


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Five queries and seven keys of width 4, values of width 3."""
    random = np.random.default_rng(30)
    return random.normal(size=(5, 4)), random.normal(size=(7, 4)), random.normal(size=(7, 3))


class TestDense:
    @every_implementation
    def test_agrees_with_the_loop(self, attend, arrays):
        expected, _ = reference.attention(*arrays)
        np.testing.assert_allclose(attend(*arrays), expected, rtol=1e-12)

    @every_implementation
    def test_outputs_of_the_running_example_are_exact_fractions(self, attend):
        counts = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]
        V = [[1, 2], [3, 0], [4, 5]]
        exact = [
            [sum(Fraction(c, sum(row)) * v for c, v in zip(row, column, strict=True))
             for column in zip(*V, strict=True)]
            for row in counts
        ]  # fmt: skip
        assert exact == [
            [3, 2], [Fraction(11, 4), Fraction(7, 4)], [Fraction(19, 6), Fraction(17, 6)]
        ]  # fmt: skip
        Q = [[math.log(row[1]), math.log(row[2])] * 2 for row in counts]
        K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
        output = attend(np.array(Q), np.array(K, dtype=float), np.array(V, dtype=float))
        np.testing.assert_allclose(output, np.array(exact, dtype=float), rtol=1e-12)

    @every_implementation
    def test_each_query_is_answered_on_its_own(self, attend, arrays):
        Q, K, V = arrays
        order = [3, 0, 4, 2, 1]
        np.testing.assert_allclose(attend(Q[order], K, V), attend(Q, K, V)[order], rtol=1e-12)

    @every_implementation
    def test_order_of_the_keys_does_not_matter(self, attend, arrays):
        Q, K, V = arrays
        order = [6, 2, 5, 0, 1, 4, 3]
        np.testing.assert_allclose(attend(Q, K[order], V[order]), attend(Q, K, V), rtol=1e-12)

    @every_implementation
    def test_output_lies_between_the_smallest_and_the_largest_value(self, attend, arrays):
        Q, K, V = arrays
        output = attend(5 * Q, K, V)
        assert (output >= V.min(axis=0) - 1e-12).all()
        assert (output <= V.max(axis=0) + 1e-12).all()

    @every_implementation
    def test_values_enter_linearly(self, attend, arrays):
        Q, K, V = arrays
        other = np.cos(np.arange(21.0)).reshape(7, 3)
        combined = attend(Q, K, 2 * V - 3 * other)
        np.testing.assert_allclose(
            combined, 2 * attend(Q, K, V) - 3 * attend(Q, K, other), rtol=1e-10, atol=1e-12
        )

    @every_implementation
    def test_moving_all_keys_by_one_vector_changes_nothing(self, attend, arrays):
        Q, K, V = arrays
        moved = attend(Q, K + np.array([3.0, -1.0, 0.5, 2.0]), V)
        np.testing.assert_allclose(moved, attend(Q, K, V), rtol=1e-10)

    @every_implementation
    def test_large_scores_neither_overflow_nor_lose_the_winner(self, attend, arrays):
        Q, K, V = arrays
        expected, _ = reference.attention(1e4 * Q, K, V)
        np.testing.assert_allclose(attend(1e4 * Q, K, V), expected, rtol=1e-9)

    def test_scale_is_honoured(self, arrays):
        for scale in (0.0, -0.75, 2):
            expected, _ = reference.attention(*arrays, scale=scale)
            np.testing.assert_allclose(dense_attention(*arrays, scale=scale), expected, rtol=1e-12)
            tiled = tiled_attention(*arrays, tile=3, scale=scale)
            np.testing.assert_allclose(tiled, expected, rtol=1e-12)

    def test_integers_become_float64_and_float32_stays(self, arrays):
        assert dense_attention([[1, 2]], [[0, 1], [2, 3]], [[1], [5]]).dtype == np.float64
        assert dense_attention(*(array.astype(np.float32) for array in arrays)).dtype == np.float32

    def test_nothing_to_attend_gives_zeros(self, arrays):
        Q, K, V = arrays
        for attend in (dense_attention, lambda *arrays: tiled_attention(*arrays, tile=2)):
            assert attend(Q, K[:0], V[:0]).tolist() == np.zeros((5, 3)).tolist()
            assert attend(Q[:0], K, V).shape == (0, 3)

    def test_leaves_its_inputs_as_they_were(self, arrays):
        before = [array.copy() for array in arrays]
        outputs = dense_attention(*arrays), tiled_attention(*arrays, tile=3)
        for array, old in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, old)
            assert not any(np.shares_memory(output, array) for output in outputs)

    def test_agrees_with_pytorch(self, arrays):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        tensors = [torch.from_numpy(array) for array in arrays]
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors).numpy()
        np.testing.assert_allclose(dense_attention(*arrays), expected, rtol=1e-12)


class TestDensity:
    """Row S13: no weight is zero in exact arithmetic; what matters is how many are not small."""

    @pytest.mark.parametrize(("dtype", "reach"), [("float32", 104), ("float64", 746)])
    def test_a_weight_is_zero_only_where_floats_end(self, dtype, reach):
        for difference, is_zero in ((reach - 1, False), (reach, True)):
            K = np.array([[0.0], [-difference]], dtype=dtype)
            V = np.array([[0.0], [1.0]], dtype=dtype)
            weights = softmax(np.ones((1, 1), dtype=dtype) @ K.T)
            output = dense_attention(np.ones((1, 1), dtype=dtype), K, V, scale=1.0)
            assert bool(weights[0, 1] == 0.0) is is_zero
            assert bool(output[0, 0] == 0.0) is is_zero

    def test_every_causal_pair_of_ordinary_data_has_a_weight(self):
        random = np.random.default_rng(31)
        Q, K, V = (random.normal(size=(16, 5)) for _ in range(3))
        _, weights = scaled_dot_product_attention(Q, K, V, is_causal=True, return_weights=True)
        assert np.count_nonzero(weights) == causal_pairs(16) == 136

    def test_effective_number_of_keys_is_the_exponential_of_the_entropy(self):
        weights = np.array([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.0, 0.5, 0.0]])
        np.testing.assert_allclose(effective_keys(weights), [4.0, 1.0, 2.0], rtol=1e-14)
        sixths = [1 / 6, 2 / 6, 3 / 6]
        entropy = -sum(w * math.log(w) for w in sixths)
        np.testing.assert_allclose(effective_keys(sixths), math.exp(entropy), rtol=1e-14)

    def test_effective_number_of_keys_lies_between_one_and_all(self):
        weights = softmax(np.random.default_rng(32).normal(scale=3, size=(4, 3, 8)))
        effective = effective_keys(weights)
        assert effective.shape == (4, 3)
        assert ((effective >= 1.0) & (effective <= 8.0)).all()


class TestCost:
    """Rows S14 and S15: pairs counted by a loop that looks at each pair, and by formula."""

    @pytest.mark.parametrize("m", [0, 1, 2, 3, 10, 37])
    def test_causal_pairs_are_counted_by_the_formula(self, m):
        per_query = [sum(1 for j in range(m) if j <= i) for i in range(m)]
        assert per_query == [i + 1 for i in range(m)]
        assert causal_pairs(m) == sum(per_query) == m * (m + 1) // 2

    @pytest.mark.parametrize("m", [1, 2, 5, 11, 37])
    @pytest.mark.parametrize("w", [1, 2, 3, 7, 40])
    def test_window_pairs_are_counted_by_the_formula(self, m, w):
        counted = sum(1 for i in range(m) for j in range(m) if 0 <= i - j < w)
        assert window_pairs(m, w) == counted
        if w <= m:
            assert counted == w * m - w * (w - 1) // 2

    @pytest.mark.parametrize("m", [1, 2, 5, 12, 37])
    @pytest.mark.parametrize("s", [1, 2, 3, 5, 50])
    def test_strided_pairs_are_counted_by_the_formula(self, m, s):
        counted = sum(1 for i in range(m) for j in range(i + 1) if (i - j) % s == 0)
        assert strided_pairs(m, s) == counted

    def test_strided_pairs_are_about_half_of_the_square_by_the_stride(self):
        for s in (2, 7, 16):
            assert strided_pairs(2000, s) == pytest.approx(2000**2 / (2 * s), rel=0.01)

    def test_window_pairs_are_those_that_the_engine_attends_to(self):
        zeros = np.zeros((11, 2))
        for w in (1, 3, 4):
            _, weights = scaled_dot_product_attention(
                zeros, zeros, zeros, is_causal=True, window=(w - 1, 0), return_weights=True
            )
            assert np.count_nonzero(weights) == window_pairs(11, w)

    def test_loop_multiplies_as_many_pairs_as_the_formulas_say(self, monkeypatch):
        m, n = 6, 4
        random = np.random.default_rng(33)
        Q, K, V = (random.normal(size=(size, 3)) for size in (m, m, m))
        calls = []
        dot = reference.dot

        def counted_dot(a, b):
            calls.append(len(a))
            return dot(a, b)

        monkeypatch.setattr(reference, "dot", counted_dot)
        for options, keys, pairs in (
            ({"is_causal": True}, m, causal_pairs(m)),
            ({"is_causal": True, "window": (2, 0)}, m, window_pairs(m, 3)),
            ({}, m, m * m),
            ({}, n, m * n),
        ):
            calls.clear()
            reference.attention(Q, K[:keys], V[:keys], **options)
            outputs = m * V.shape[1]  # one dot product of weights and a value column each
            assert len(calls) - outputs == pairs


class TestDroppedKeys:
    """Law 3.3 of the chapter."""

    @given(st.data())
    def test_dropping_keys_moves_the_output_by_their_weight_times_what_sets_them_apart(self, data):
        keys = data.draw(st.integers(2, 9), label="S")
        kept = np.array(data.draw(st.lists(st.booleans(), min_size=keys, max_size=keys)))
        kept[data.draw(st.integers(0, keys - 1))] = True
        kept[(np.argmax(kept) + 1) % keys] = False
        random = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
        query, key = random.normal(size=(1, 4)), random.normal(size=(keys, 4))
        value = random.normal(size=(keys, 3))
        exact, weights = reference.attention(query, key, value)
        only_kept = dense_attention(query, key[kept], value[kept])
        only_dropped = dense_attention(query, key[~kept], value[~kept])
        dropped_weight = weights[0, ~kept].sum()
        np.testing.assert_allclose(
            only_kept - exact, dropped_weight * (only_kept - only_dropped), atol=1e-12
        )


class TestTiles:
    @pytest.mark.parametrize("tile", [1, 2, 3, 4, 7, 100])
    def test_tiles_and_a_running_softmax_give_dense_attention(self, tile, arrays):
        np.testing.assert_allclose(
            tiled_attention(*arrays, tile=tile), dense_attention(*arrays), rtol=1e-13
        )

    def test_running_maximum_survives_growing_and_falling_scores(self):
        V = np.arange(14.0).reshape(7, 2)
        for scores in (np.linspace(-900, 900, 7), np.linspace(900, -900, 7), np.zeros(7)):
            Q, K = np.ones((1, 1)), scores[:, None]
            expected, _ = reference.attention(Q, K, V)
            np.testing.assert_allclose(tiled_attention(Q, K, V, tile=2), expected, rtol=1e-13)

    def test_tiles_need_no_score_matrix(self):
        """Memory stays O(m d): far less than one m × n matrix of scores."""
        import tracemalloc

        m, n, d = 64, 4096, 4
        random = np.random.default_rng(34)
        Q, K, V = (random.normal(size=(size, d)) for size in (m, n, n))
        tracemalloc.start()
        tiled_attention(Q, K, V, tile=64)
        _, tiled_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        dense_attention(Q, K, V)
        _, dense_peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        scores = m * n * 8
        assert dense_peak > scores > 4 * tiled_peak

    def test_causal_attention_is_dense_attention_of_the_last_query(self, arrays):
        _, K, V = arrays
        last = causal_attention(K, K, V)[-1]
        np.testing.assert_allclose(last, dense_attention(K[-1:], K, V)[0], rtol=1e-13)
