"""The numbers of the worksheet's key, computed by the library from the matrices on the sheet.

The page is written by web/tools/worksheet.py, which calculates in fractions. Nothing of it is
used here.
"""

import numpy as np

from attnlib import (
    attention_steps,
    causal_attention_at,
    dense_attention,
    scaled_dot_product_attention,
)
from attnlib.causal import causal_mask
from tests.chapters.quoted_numbers import computed

LN2, LN3, LN4 = np.log([2, 3, 4])
Q = np.array([[LN3, LN2, LN3, LN2], [LN2, 0, LN2, 0], [LN2, LN3, LN2, LN3]])
K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]], dtype=float)
V = np.array([[1, 2], [3, 0], [4, 5]], dtype=float)
Q_2 = np.sqrt(2) * np.array([[0, 0], [LN3, 0], [0, LN4]])
K_2 = np.array([[1, 0], [0, 1], [0, 0]], dtype=float)
V_2 = np.array([[2, 0], [0, 2], [1, 1]], dtype=float)
W_HEAD = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])

STEPS = attention_steps(Q[2], K, V)
MERGED = np.concatenate([dense_attention(Q, K, V), dense_attention(Q_2, K_2, V_2)], axis=1)


def weights_of(i, query=Q, key=K, value=V, mask=None):
    """Return the weights of query i, those of 0 left out."""
    _, weights = scaled_dot_product_attention(query, key, value, mask, return_weights=True)
    return weights[i][weights[i] > 0]


def twice(row):
    """Return a row for the place where it stands as fractions, then as decimals."""
    return [row, row]


def causal_row(i):
    weights = weights_of(i, mask=causal_mask(3))
    return [twice(weights), twice(causal_attention_at(i, Q, K, V))]


def dense_row(i, *head):
    return twice(weights_of(i, *head))


NUMBERS = [
    # One query
    computed(
        r"| $\tfrac{1}{6}$ | $[\tfrac{1}{6}, \tfrac{2}{6}]$ |",
        lambda: [STEPS.weights[0], STEPS.weights[0] * V[0]],
    ),
    computed(
        r"| $\tfrac{2}{6}$ | $[\tfrac{6}{6}, \tfrac{0}{6}]$ |",
        lambda: [STEPS.weights[1], STEPS.weights[1] * V[1]],
    ),
    computed(
        r"| $\tfrac{3}{6}$ | $[\tfrac{12}{6}, \tfrac{15}{6}]$ |",
        lambda: [STEPS.weights[2], STEPS.weights[2] * V[2]],
    ),
    computed(
        r"| 6 | 1 | $[\tfrac{19}{6}, \tfrac{17}{6}]$ ≈ 3.1667, 2.8333 |",
        lambda: [np.exp(STEPS.scores).sum(), STEPS.weights.sum(), twice(STEPS.output)],
    ),
    # Causal
    computed(
        r"| $\tfrac{1}{3}, \tfrac{2}{3}$ ≈ 0.3333, 0.6667 | "
        r"$[\tfrac{7}{3}, \tfrac{2}{3}]$ ≈ 2.3333, 0.6667 |",
        lambda: causal_row(1),
    ),
    computed(
        r"| $\tfrac{1}{6}, \tfrac{2}{6}, \tfrac{3}{6}$ ≈ 0.1667, 0.3333, 0.5 | "
        r"$[\tfrac{19}{6}, \tfrac{17}{6}]$ ≈ 3.1667, 2.8333 |",
        lambda: causal_row(2),
    ),
    # Dense
    computed(
        r"| $\tfrac{1}{6}, \tfrac{3}{6}, \tfrac{2}{6}$ ≈ 0.1667, 0.5, 0.3333 | $[3, 2]$ |",
        lambda: [dense_row(0)],
    ),
    computed("≈ 0.1667, 0.5, 0.3333 | $[3, 2]$ |", lambda: [weights_of(0), MERGED[0, :2]]),
    computed(
        r"| $\tfrac{1}{4}, \tfrac{2}{4}, \tfrac{1}{4}$ = 0.25, 0.5, 0.25 | "
        r"$[\tfrac{11}{4}, \tfrac{7}{4}]$ = 2.75, 1.75 |",
        lambda: [dense_row(1), twice(MERGED[1, :2])],
    ),
    # Two heads
    computed(
        r"| $\tfrac{1}{3}, \tfrac{1}{3}, \tfrac{1}{3}$ ≈ 0.3333, 0.3333, 0.3333 |",
        lambda: dense_row(0, Q_2, K_2, V_2),
    ),
    computed(
        r"| $\tfrac{3}{5}, \tfrac{1}{5}, \tfrac{1}{5}$ = 0.6, 0.2, 0.2 | "
        r"$[\tfrac{7}{5}, \tfrac{3}{5}]$ = 1.4, 0.6 |",
        lambda: [dense_row(1, Q_2, K_2, V_2), twice(MERGED[1, 2:])],
    ),
    computed(
        r"| $\tfrac{1}{6}, \tfrac{4}{6}, \tfrac{1}{6}$ ≈ 0.1667, 0.6667, 0.1667 | "
        r"$[\tfrac{1}{2}, \tfrac{3}{2}]$ = 0.5, 1.5 |",
        lambda: [dense_row(2, Q_2, K_2, V_2), twice(MERGED[2, 2:])],
    ),
    computed(
        "| token 0 | $[3, 2, 1, 1]$ | $[4, 3, 1, 1]$ |", lambda: [0, MERGED[0], MERGED[0] @ W_HEAD]
    ),
    computed(
        r"| $[\tfrac{11}{4}, \tfrac{7}{4}, \tfrac{7}{5}, \tfrac{3}{5}]$ | "
        r"$[\tfrac{83}{20}, \tfrac{47}{20}, \tfrac{7}{5}, \tfrac{3}{5}]$ = 4.15, 2.35, 1.4, 0.6 |",
        lambda: [MERGED[1], twice(MERGED[1] @ W_HEAD)],
    ),
    computed(
        r"| $[\tfrac{19}{6}, \tfrac{17}{6}, \tfrac{1}{2}, \tfrac{3}{2}]$ | "
        r"$[\tfrac{11}{3}, \tfrac{13}{3}, \tfrac{1}{2}, \tfrac{3}{2}]$ "
        r"≈ 3.6667, 4.3333, 0.5, 1.5 |",
        lambda: [MERGED[2], twice(MERGED[2] @ W_HEAD)],
    ),
]
