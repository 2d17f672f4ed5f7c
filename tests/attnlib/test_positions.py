"""Positions: waves and rotations make scores depend on the distance, and leave lengths alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlib import causal_attention, dense_attention, scaled_dot_product_attention
from attnlib.positions import (
    alibi_bias,
    alibi_slopes,
    frequencies,
    rotate,
    sinusoidal_positions,
)

LAYOUTS = pytest.mark.parametrize("interleaved", [True, False], ids=["interleaved", "halves"])


def rows(*shape: int, seed: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def rotated_by_loop(x, positions, omega, interleaved):
    """The definition, an entry at a time, for a matrix."""
    turned, pairs = np.empty_like(x), x.shape[1] // 2
    for i, position in enumerate(positions):
        for c in range(pairs):
            a, b = (2 * c, 2 * c + 1) if interleaved else (c, c + pairs)
            angle = position * omega[c]
            turned[i, a] = x[i, a] * math.cos(angle) - x[i, b] * math.sin(angle)
            turned[i, b] = x[i, a] * math.sin(angle) + x[i, b] * math.cos(angle)
    return turned


class TestOrder:
    def test_shuffled_tokens_shuffle_dense_outputs_and_change_causal_ones(self):
        Q, K, V = rows(7, 5), rows(7, 5, seed=1), rows(7, 3, seed=2)
        order = [3, 6, 0, 2, 5, 1, 4]
        shuffled = dense_attention(Q[order], K[order], V[order])
        np.testing.assert_allclose(shuffled, dense_attention(Q, K, V)[order], atol=1e-14)
        causal = causal_attention(Q[order], K[order], V[order])
        assert not np.allclose(causal, causal_attention(Q, K, V)[order])

    @LAYOUTS
    def test_with_rotation_by_place_shuffled_tokens_do_not_shuffle_outputs(self, interleaved):
        Q, K, V = rows(7, 6), rows(7, 6, seed=1), rows(7, 3, seed=2)
        order, places = [3, 6, 0, 2, 5, 1, 4], np.arange(7)

        def attend(Q, K, V):
            turned = (rotate(x, places, interleaved=interleaved) for x in (Q, K))
            return dense_attention(*turned, V)

        assert not np.allclose(attend(Q[order], K[order], V[order]), attend(Q, K, V)[order])


class TestSinusoidal:
    def test_rows_are_sines_and_cosines_of_the_formula(self):
        table = sinusoidal_positions(5, 6)
        for i in range(5):
            for c in range(3):
                angle = i / 10_000 ** (2 * c / 6)
                np.testing.assert_allclose(
                    table[i, 2 * c : 2 * c + 2], [math.sin(angle), math.cos(angle)], atol=1e-15
                )

    def test_the_dot_product_of_two_rows_depends_on_their_distance_alone(self):
        table = sinusoidal_positions(40, 12)
        products = table @ table.T
        for distance in (0, 1, 5, 31):
            diagonal = np.diagonal(products, distance)
            expected = np.cos(distance * frequencies(12)).sum()
            np.testing.assert_allclose(diagonal, np.full(40 - distance, expected), atol=1e-12)

    def test_without_positions_there_are_no_rows(self):
        assert sinusoidal_positions(0, 6).shape == (0, 6)


class TestRotation:
    @LAYOUTS
    def test_is_that_of_the_loop(self, interleaved):
        x, positions = rows(5, 6), [0, 3, 1, 100, 7]
        by_loop = rotated_by_loop(x, positions, frequencies(6), interleaved)
        np.testing.assert_allclose(
            rotate(x, positions, interleaved=interleaved), by_loop, atol=1e-14
        )

    @LAYOUTS
    def test_scores_depend_on_the_difference_of_positions_only(self, interleaved):
        Q, K, places = rows(7, 6), rows(5, 6, seed=1), (np.arange(7), np.arange(5))

        def scores(shift):
            turned = [
                rotate(x, place + shift, interleaved=interleaved)
                for x, place in zip((Q, K), places, strict=True)
            ]
            return turned[0] @ turned[1].T

        for shift in (1, 12, 1000):
            np.testing.assert_allclose(scores(shift), scores(0), atol=1e-11)
        assert not np.allclose(scores(0), Q @ K.T)

    def test_scores_change_when_only_the_keys_move(self):
        q, k = rows(1, 6), rows(1, 6, seed=1)
        here, there = (rotate(q, [4]) @ rotate(k, [place]).T for place in (1, 2))
        assert not np.allclose(here, there)

    def test_lengths_of_rows_stay(self):
        x = rows(2, 3, 7, 6)
        turned = rotate(x, np.arange(7))
        assert turned.shape == x.shape
        np.testing.assert_allclose(
            np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), atol=1e-14
        )

    def test_a_quarter_turn_a_position_is_exact(self):
        turned = rotate(np.tile([1, 2], (5, 1)), range(5), [np.pi / 2])
        np.testing.assert_allclose(turned, [[1, 2], [-2, 1], [-1, -2], [2, -1], [1, 2]], atol=1e-14)

    def test_one_layout_is_the_other_with_entries_reordered(self):
        x, places, order = rows(7, 6), np.arange(7), [0, 2, 4, 1, 3, 5]
        halves = rotate(x[:, order], places, interleaved=False)
        np.testing.assert_allclose(halves, rotate(x, places)[:, order], atol=1e-14)

    def test_mixed_layouts_give_other_scores(self):
        Q, K, places = rows(7, 6), rows(7, 6, seed=1), np.arange(7)
        same = rotate(Q, places) @ rotate(K, places).T
        mixed = rotate(Q, places, interleaved=False) @ rotate(K, places).T
        assert not np.allclose(same, mixed)

    def test_with_a_cache_rows_turned_one_by_one_are_those_of_the_whole(self):
        x = rows(7, 6)
        one_by_one = [rotate(x[i : i + 1], [i])[0] for i in range(7)]
        np.testing.assert_allclose(one_by_one, rotate(x, range(7)), atol=1e-15)

    def test_inputs_stay_and_single_precision_stays_single(self):
        x = rows(7, 6).astype(np.float32)
        before = x.copy()
        assert rotate(x, range(7)).dtype == np.float32
        np.testing.assert_array_equal(x, before)


class TestDistanceBias:
    def test_entries_are_those_of_the_formula(self):
        bias = alibi_bias(alibi_slopes(2), 3, 5, offset=2)
        assert bias.shape == (2, 3, 5)
        for h, slope in enumerate((1 / 16, 1 / 256)):
            for i in range(3):
                for j in range(5):
                    assert bias[h, i, j] == -slope * abs(i + 2 - j)

    def test_token_by_token_is_the_full_causal_pass(self):
        query, key, value = rows(2, 7, 4), rows(2, 7, 4, seed=1), rows(2, 7, 3, seed=2)
        slopes = alibi_slopes(2)
        full = scaled_dot_product_attention(
            query, key, value, alibi_bias(slopes, 7), is_causal=True
        )
        for i in range(7):
            seen = slice(0, i + 1)
            bias = alibi_bias(slopes, 1, i + 1, offset=i)
            new = scaled_dot_product_attention(
                query[:, i : i + 1], key[:, seen], value[:, seen], bias
            )
            np.testing.assert_allclose(new[:, 0], full[:, i], atol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: frequencies(5), ValueError, "width: needs an even number, got 5"),
        (lambda: frequencies(0), ValueError, "width: needs an integer of at least 2, got 0"),
        (lambda: frequencies(4.0), TypeError, "width: needs an integer, got 4.0"),
        (lambda: sinusoidal_positions(-1, 4), ValueError, "length: .* got -1"),
        (lambda: rotate([[1, 2, 3]], [0]), ValueError, "width: needs an even number, got 3"),
        (lambda: rotate([[1, 2]], [0, 1]), ValueError, r"positions: needs shape \(L,\)"),
        (lambda: rotate([1, 2], [0]), ValueError, r"x: needs shape \(..., L, E\), got \(2,\)"),
        (lambda: rotate([[1, 2]], [0], [1, 1]), ValueError, r"omega: needs shape \(E / 2,\)"),
        (lambda: alibi_slopes(0), ValueError, "num_heads: .* got 0"),
        (lambda: alibi_bias([1], -1), ValueError, "L: .* got -1"),
        (lambda: alibi_bias([[1]], 2), ValueError, "slopes: needs shape"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call()
