"""The numbers of the chapter on masks, recomputed: exact where they are fractions."""

import math
from fractions import Fraction

import numpy as np

from attnlib import softmax
from tests.chapters.quoted_numbers import computed

SHARES = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]
V = [[1, 2], [3, 0], [4, 5]]
PADDING = [0, 0]
CROSS = [[1, 2], [1, 4]]  # the shares of Example 3.2 on the two tokens of sentence B
TEXT = np.array([0, 0, 0, 1, 1])
SAME_TEXT = TEXT[:, np.newaxis] == TEXT


def weights(shares):
    return [Fraction(share, sum(shares)) for share in shares]


def output(shares, values=V):
    alpha = weights(shares)
    return [sum(a * v[c] for a, v in zip(alpha, values, strict=True)) for c in (0, 1)]


def alone(i):
    """Return the weights and the output of query i over the two tokens of sentence B."""
    return [weights(SHARES[i][:2]), output(SHARES[i][:2], V[:2])]


def padded(i):
    """Return the same with a row of zeros behind them, which nobody hides."""
    shares = [*SHARES[i][:2], 1]
    return [weights(shares), output(shares, [*V[:2], PADDING])]


def mean_of_b(*rows):
    return [sum(row[c] for row in rows) / len(rows) for c in (0, 1)]


OUTPUTS_OF_B = [output(SHARES[0][:2], V[:2]), output(SHARES[1][:2], V[:2])]
OUTPUT_OF_PADDING = output([1, 1], V[:2])


NUMBERS = [
    # Two sentences in one array
    computed(
        r"| $q_0$, alone | 1, 3 | $\tfrac14, \tfrac34$ | $[\tfrac52, \tfrac12]$ |",
        lambda: alone(0),
    ),
    computed(
        r"1, 3, **1** | $\tfrac15, \tfrac35, \tfrac15$ | $[2, \tfrac25]$ |",
        lambda: [*SHARES[0][:2], math.exp(0), padded(0)],
    ),
    computed(
        r"| $q_1$, alone | 1, 2 | $\tfrac13, \tfrac23$ | $[\tfrac73, \tfrac23]$ |",
        lambda: alone(1),
    ),
    computed(
        r"1, 2, **1** | $\tfrac14, \tfrac24, \tfrac14$ | $[\tfrac74, \tfrac12]$ |",
        lambda: [*SHARES[1][:2], math.exp(0), padded(1)],
    ),
    # A row that sees nothing
    computed(
        r"| $\tfrac13, \tfrac13, \tfrac13$ | $[\tfrac83, \tfrac73]$ |",
        lambda: [weights([1, 1, 1]), output([1, 1, 1])],
    ),
    computed(
        r"| $\tfrac16, \tfrac26, \tfrac36$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$ |",
        lambda: [weights(SHARES[2]), output(SHARES[2])],
    ),
    computed(
        "the neighbours of one billion are 64 apart", lambda: float(np.spacing(np.float32(1e9)))
    ),
    # More keys than queries
    computed(
        r"the weights are $\tfrac13, \tfrac23$ and $\tfrac15, \tfrac45$, the outputs "
        r"$[\tfrac73, \tfrac23]$ and $[\tfrac{13}{5}, \tfrac25]$.",
        lambda: [*map(weights, CROSS), *[output(shares, V[:2]) for shares in CROSS]],
    ),
    computed(r"it sees all three: $[\tfrac{19}{6}, \tfrac{17}{6}]$.", lambda: output(SHARES[2])),
    # Left or right?
    computed(
        r"Its output must then be $[\tfrac{19}{6}, \tfrac{17}{6}]$.", lambda: output(SHARES[2])
    ),
    computed(
        r"wrong in the same way: $[\tfrac{19}{7}, \tfrac{17}{7}]$.",
        lambda: output([1, *SHARES[2]], [PADDING, *V]),
    ),
    # Many texts in one row
    computed(
        "Here 13 of the 25 pairs are seen. A program saves the other 12",
        lambda: [np.sum(SAME_TEXT), SAME_TEXT.size, np.sum(~SAME_TEXT)],
    ),
    computed(r"Example 3.4 found $[\tfrac{18}{5}, 3]$.", lambda: output(SHARES[2][1:], V[1:])),
    # Exercises
    computed(
        r"With it the mean is $[\tfrac{41}{18}, \tfrac{13}{18}]$.",
        lambda: mean_of_b(*OUTPUTS_OF_B, OUTPUT_OF_PADDING),
    ),
    computed(
        r"Over the two tokens it is $[\tfrac{29}{12}, \tfrac{7}{12}]$.",
        lambda: mean_of_b(*OUTPUTS_OF_B),
    ),
    computed("gets two thirds of the weight, 0.6652.", lambda: softmax([-12, -11, 0 - 10])[2]),
    computed("at least 746 below the largest.", lambda: math.ceil(1075 * math.log(2))),
    computed("so $-846$ is enough", lambda: -math.ceil(1075 * math.log(2)) - 100),
]
