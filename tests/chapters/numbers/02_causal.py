"""The numbers of chapter 2, recomputed: exact where they are fractions."""

import math
from fractions import Fraction

import numpy as np

from tests.chapters.quoted_numbers import computed, given

LN2, LN3 = np.log(2), np.log(3)
Q = np.array([[LN3, LN2, LN3, LN2], [LN2, 0, LN2, 0], [LN2, LN3, LN2, LN3]])
K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
V = [[1, 2], [3, 0], [4, 5]]
COUNTS = [[round(count) for count in row] for row in np.exp(Q @ K.T / np.sqrt(4))]

# Exercises 2.1 and 2.3, then 2.4.
ALPHA = [Fraction(1, 10), Fraction(6, 10), Fraction(3, 10)]
LEAKING = [Fraction(1, 10), Fraction(2, 10), Fraction(6, 10), Fraction(1, 10)]


def shares(counts):
    return [Fraction(count, sum(counts)) for count in counts]


def causal(i):
    return shares(COUNTS[i][: i + 1])


def zeroed(i):
    """Return the weights of row i when those of the future are erased after softmax."""
    return shares(COUNTS[i])[: i + 1]


def output(weights, values=V):
    return [sum(w * value[c] for w, value in zip(weights, values, strict=False)) for c in (0, 1)]


def length(vector):
    return math.hypot(*vector)


def contribution(j):
    return length([ALPHA[j] * entry for entry in V[j]])


def without(j):
    """Return the weights of exercise 2.3 when token j is left out."""
    return [alpha / (1 - ALPHA[j]) for place, alpha in enumerate(ALPHA) if place != j]


def moved_without(j):
    others = [value for place, value in enumerate(V) if place != j]
    return length(np.subtract(output(without(j), others), output(ALPHA)).astype(float))


NUMBERS = [
    # By hand
    computed(r"the weights are $\tfrac13$ and $\tfrac23$.", lambda: causal(1)),
    computed(
        r"$\tfrac13 [1, 2]$ ${}+ \tfrac23 [3, 0]$ $= [\tfrac73, \tfrac23]$",
        lambda: [causal(1), output(causal(1))],
    ),
    computed(r"the weights are $\tfrac16$, $\tfrac26$ and $\tfrac36$", lambda: causal(2)),
    computed(
        r"$\tfrac16 [1, 2]$ ${}+ \tfrac26 [3, 0]$ ${}+ \tfrac36 [4, 5]$ "
        r"$= [\tfrac{19}{6}, \tfrac{17}{6}]$",
        lambda: [causal(2), output(causal(2))],
    ),
    computed(
        r"it prints $\tfrac26$ as 1/3 and $\tfrac36$ as 1/2",
        lambda: [causal(2)[1], causal(2)[1], causal(2)[2], causal(2)[2]],
    ),
    # One row, two readings
    computed(
        r"$\tfrac16 \cdot 1$ ${}+ \tfrac26 \cdot 3$ ${}+ \tfrac36 \cdot 4$ $= \tfrac{19}{6}$",
        lambda: [causal(2), output(causal(2))[0]],
    ),
    computed(
        r"$[\tfrac16, \tfrac26]$ ${}+ [\tfrac66, 0]$ ${}+ [\tfrac{12}{6}, \tfrac{15}{6}]$",
        lambda: [[w * entry for entry in value] for w, value in zip(causal(2), V, strict=True)],
    ),
    # A mask
    computed(
        r"\tfrac13 & \tfrac23 & 0 \\ \tfrac16 & \tfrac26 & \tfrac36",
        lambda: [causal(1), causal(2)],
    ),
    computed(
        r"Row 1 had $\tfrac14$ on its own past and $\tfrac24$ on itself. Now it has $\tfrac13$ and "
        r"$\tfrac23$.",
        lambda: [1, zeroed(1), causal(1)],
    ),
    # Where the mask goes
    computed(r"The scale is $\tfrac12$ here", lambda: 1 / math.sqrt(K.shape[1])),
    computed(r"and $\tfrac12 \cdot (-\infty)$", lambda: 1 / math.sqrt(K.shape[1])),
    computed(
        r"the weights were $\tfrac14, \tfrac24, \tfrac14$. With the last one erased, $\tfrac34$ is",
        lambda: [shares(COUNTS[1]), sum(zeroed(1))],
    ),
    computed(
        r"| 0 | $[1, 2]$ | $[\tfrac16, \tfrac26]$ | $\tfrac16$ |",
        lambda: [0, output(causal(0)), output(zeroed(0)), sum(zeroed(0))],
    ),
    computed(
        r"| 1 | $[\tfrac73, \tfrac23]$ | $[\tfrac74, \tfrac24]$ | $\tfrac34$ |",
        lambda: [1, output(causal(1)), output(zeroed(1)), sum(zeroed(1))],
    ),
    computed(
        r"| 2 | $[\tfrac{19}{6}, \tfrac{17}{6}]$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$ | $1$ |",
        lambda: [2, output(causal(2)), output(zeroed(2)), sum(zeroed(2))],
    ),
    computed(
        r"The 4 in $\tfrac14$ and $\tfrac24$ is a sum",
        lambda: [sum(COUNTS[1]), zeroed(1)],
    ),
    computed(
        r"$\tfrac14$ and $\tfrac24$, divided by $\tfrac34$, are $\tfrac13$ and $\tfrac23$ again",
        lambda: [zeroed(1), sum(zeroed(1)), [w / sum(zeroed(1)) for w in zeroed(1)]],
    ),
    # Below half of the smallest number, 2 ** -1074 (2 ** -149 in float32), exp rounds to 0.
    computed(
        "by about 746 or more (104 in float32)",
        lambda: [math.ceil(1075 * math.log(2)), math.ceil(150 * math.log(2))],
    ),
    # Exercises
    given("in its left context, with weights 0.1, 0.6 and 0.3.", "handed to the reader"),
    computed(
        r"Without token 1 the weights 0.1 and 0.3 become $\tfrac14$ and $\tfrac34$.",
        lambda: [1, ALPHA[0], ALPHA[2], without(1)],
    ),
    computed("By weight it is token 1, with 0.6.", lambda: [np.argmax(ALPHA), max(ALPHA)]),
    computed(
        "it is token 2: 1.921 against 1.8, since", lambda: [2, contribution(2), contribution(1)]
    ),
    computed(
        "the output moves by 2.554 without it, and by 1.466 without token 2",
        lambda: [moved_without(1), moved_without(2), 2],
    ),
    given(
        r"$0.1\, v_0$ ${}+ 0.2\, v_1$ ${}+ 0.6\, v_2$ ${}+ 0.1\, v_3$", "what exercise 2.4 accuses"
    ),
    given(r"The term $0.1\, v_3$. Token 3", "quoted from exercise 2.4"),
    computed(
        r"the weights are $\tfrac19$, $\tfrac29$ and $\tfrac69$.",
        lambda: [alpha / sum(LEAKING[:3]) for alpha in LEAKING[:3]],
    ),
    computed("leaves weights that sum to 0.9 only", lambda: sum(LEAKING[:3])),
]
