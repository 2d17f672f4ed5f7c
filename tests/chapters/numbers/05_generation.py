"""The numbers of chapter 5, recomputed: exact where they are fractions."""

from fractions import Fraction

import numpy as np

from tests.chapters.quoted_numbers import computed, given

# The running example: e to the score of each query (row) on each key (column).
SHARES = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]
V = np.array([[1, 2], [3, 0], [4, 5]])


def weights(i, seen):
    """The exact weights of query i on the first so many keys."""
    shares = SHARES[i][:seen]
    return [Fraction(share, sum(shares)) for share in shares]


def output(i, seen):
    return list(weights(i, seen) @ V[:seen])


def seen_with(offset, row):
    """How many of the three keys row `row` of a chunk sees."""
    return min(row + offset + 1, 3)


def row_of_offsets(offset):
    """The outputs of queries 1 and 2 as a chunk with this offset."""
    return [output(1, seen_with(offset, 0)), output(2, seen_with(offset, 1))]


NUMBERS = [
    # One token a step
    computed(
        r"| 1, 2 | $\tfrac13, \tfrac23$ | $[\tfrac73, \tfrac23]$ | 2 |",
        lambda: [weights(1, 2), output(1, 2)],
    ),
    computed(
        r"| 1, 2, 3 | $\tfrac16, \tfrac26, \tfrac36$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$ | 3 |",
        lambda: [weights(2, 3), output(2, 3)],
    ),
    # Append first
    computed(
        r"| 1 | $[\tfrac73, \tfrac23]$ | $[1, 2]$ |",
        lambda: [1, *output(1, 2), *output(1, 1)],
    ),
    computed(
        r"| 2 | $[\tfrac{19}{6}, \tfrac{17}{6}]$ | $[\tfrac73, \tfrac23]$ |",
        lambda: [output(2, 3), output(2, 2)],
    ),
    computed(r"the weights are $\tfrac13$ and $\tfrac23$", lambda: weights(2, 2)),
    # A wrong offset
    computed(
        r"| 0 | key 0 | $[1, 2]$ | keys 0, 1 | $[\tfrac73, \tfrac23]$ |",
        lambda: [0, 0, *row_of_offsets(0)[0], 0, 1, *row_of_offsets(0)[1]],
    ),
    computed(
        r"$[\tfrac73, \tfrac23]$ | keys 0, 1, 2 | $[\tfrac{19}{6}, \tfrac{17}{6}]$ |",
        lambda: row_of_offsets(1),
    ),
    computed(
        r"$[\tfrac{11}{4}, \tfrac74]$ | keys 0, 1, 2 | $[\tfrac{19}{6}, \tfrac{17}{6}]$ |",
        lambda: row_of_offsets(2),
    ),
    # Exercises
    given("such as `1 / 6`", "an example of how a fraction is typed"),
]
