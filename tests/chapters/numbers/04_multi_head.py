"""The numbers that chapter 4 quotes, recomputed from its two tables of whole numbers."""

import math
from fractions import Fraction

from tests.chapters.quoted_numbers import computed, given

COUNTS = ([[1, 3, 2], [1, 2, 1], [1, 2, 3]], [[1, 1, 1], [3, 1, 1], [1, 4, 1]])
VALUES = ([[1, 2], [3, 0], [4, 5]], [[2, 0], [0, 2], [1, 1]])
OUTPUT_PROJECTION = [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]


def weights(head, token, visible=3):
    """The exact weights of a token on the first `visible` keys."""
    counts = COUNTS[head][token][:visible]
    return [Fraction(count, sum(counts)) for count in counts]


def output(head, token, visible=3):
    """The exact output of a head."""
    return weighted_sum(weights(head, token, visible), VALUES[head][:visible])


def weighted_sum(row, matrix):
    columns = zip(*matrix, strict=True)
    return [sum(w * x for w, x in zip(row, column, strict=True)) for column in columns]


def merged(token):
    return output(0, token) + output(1, token)


def added(head, token):
    """What a head adds to the output: its own rows of the output projection decide."""
    return weighted_sum(output(head, token), OUTPUT_PROJECTION[2 * head : 2 * head + 2])


NUMBERS = [
    # Two heads by hand
    computed(
        r"| token 0 | 1, 3, 2 | $\tfrac16, \tfrac36, \tfrac26$ "
        r"| 1, 1, 1 | $\tfrac13, \tfrac13, \tfrac13$ |",
        lambda: [weights(0, 0), weights(1, 0)],
    ),
    computed(
        r"| token 1 | 1, 2, 1 | $\tfrac14, \tfrac24, \tfrac14$ "
        r"| 3, 1, 1 | $\tfrac35, \tfrac15, \tfrac15$ |",
        lambda: [weights(0, 1), weights(1, 1)],
    ),
    computed(
        r"| token 2 | 1, 2, 3 | $\tfrac16, \tfrac26, \tfrac36$ "
        r"| 1, 4, 1 | $\tfrac16, \tfrac46, \tfrac16$ |",
        lambda: [weights(0, 2), weights(1, 2)],
    ),
    computed(
        r"\tfrac16 [1, 2] + \tfrac26 [3, 0] + \tfrac36 [4, 5] = [\tfrac{19}{6}, \tfrac{17}{6}]",
        lambda: [weights(0, 2), output(0, 2)],
    ),
    computed(
        r"\tfrac16 [2, 0] + \tfrac46 [0, 2] + \tfrac16 [1, 1] = [\tfrac12, \tfrac32]",
        lambda: [weights(1, 2), output(1, 2)],
    ),
    # Merge, then mix
    computed(
        r"For token 2 that is $[\tfrac{19}{6}, \tfrac{17}{6}, \tfrac12, \tfrac32]$",
        lambda: merged(2),
    ),
    computed(
        r"[\tfrac{19}{6} + \tfrac12, \; \tfrac{17}{6} + \tfrac32, \; \tfrac12, \; \tfrac32] "
        r"= [\tfrac{11}{3}, \tfrac{13}{3}, \tfrac12, \tfrac32]",
        lambda: [
            [merged(2)[0], merged(2)[2], merged(2)[1], merged(2)[3], merged(2)[2:]],
            weighted_sum(merged(2), OUTPUT_PROJECTION),
        ],
    ),
    computed(r"head 1 adds $[\tfrac{19}{6}, \tfrac{17}{6}, 0, 0]$", lambda: [1, *added(0, 2)]),
    computed(r"head 2 adds $[\tfrac12, \tfrac32, \tfrac12, \tfrac32]$", lambda: [2, *added(1, 2)]),
    # How wide is a head?
    computed(r"$1/\sqrt{64} = \tfrac18$", lambda: 1 / math.sqrt(768 // 12)),
    given(r"\sqrt{64/768}", "the two widths of the model in the example"),
    computed(r"\approx 0.289$", lambda: (1 / math.sqrt(768)) / (1 / math.sqrt(64))),
    # A causal head
    computed(
        r"$\tfrac13 [1, 2] + \tfrac23 [3, 0] = [\tfrac73, \tfrac23]$",
        lambda: [weights(0, 1, 2), output(0, 1, 2)],
    ),
    computed(
        r"$\tfrac34 [2, 0] + \tfrac14 [0, 2] = [\tfrac32, \tfrac12]$",
        lambda: [weights(1, 1, 2), output(1, 1, 2)],
    ),
    # What different projections buy
    computed(
        r"$[\tfrac{19}{6}, \tfrac{17}{6}, \tfrac{19}{6}, \tfrac{17}{6}]$: a copy",
        lambda: [output(0, 2), output(0, 2)],
    ),
    # Exercises
    computed(r"where the causal output is $[\tfrac73, \tfrac23]$", lambda: output(0, 1, 2)),
    computed(
        r"Head 1: $\tfrac16 [1, 2] + \tfrac36 [3, 0] + \tfrac26 [4, 5] = [3, 2]$",
        lambda: weights(0, 0),
    ),
]
