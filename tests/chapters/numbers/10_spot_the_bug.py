"""The numbers of chapter 10, recomputed: what the animals give for the running example."""

from fractions import Fraction

import numpy as np

from tests.chapters.quoted_numbers import computed

LN2, LN3 = np.log(2), np.log(3)
Q = np.array([[LN3, LN2, LN3, LN2], [LN2, 0, LN2, 0], [LN2, LN3, LN2, LN3]])
K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
V = [[1, 2], [3, 0], [4, 5]]
SHARES = [[round(share) for share in row] for row in np.exp(Q @ K.T / np.sqrt(4))]


def weights(shares):
    return [Fraction(share, sum(shares)) for share in shares]


def output(row):
    return [sum(w * value[c] for w, value in zip(row, V, strict=False)) for c in (0, 1)]


# Multiplied by √d = 2 where it should be divided by it, a score is four times as large.
MULTIPLIED = weights([share**4 for share in SHARES[2]])
COLUMNS = [sum(column) for column in zip(*SHARES, strict=True)]
OVER_QUERIES = [Fraction(share, column) for share, column in zip(SHARES[0], COLUMNS, strict=True)]
TOO_FAR = weights(SHARES[0][:2])
EQUAL = weights([1, 1, 1])

NUMBERS = [
    computed(
        r"and its weights $\tfrac16$, $\tfrac26$ and $\tfrac36$. Now add",
        lambda: weights([1, 2, 3]),
    ),
    computed(
        r"The weights are $\tfrac{2}{12}$, $\tfrac{4}{12}$ and $\tfrac{6}{12}$",
        lambda: weights([2 * share for share in (1, 2, 3)]),
    ),
    computed(
        r"are $\tfrac{1}{98}$, $\tfrac{16}{98}$ and $\tfrac{81}{98}$. Which", lambda: MULTIPLIED
    ),
    computed(r"The first row is $\tfrac13$, $\tfrac37$, $\tfrac26$.", lambda: OVER_QUERIES),
    computed(
        r"The suspect's row is $\tfrac14 [1, 2]$ ${}+ \tfrac34 [3, 0]$ "
        r"$= [\tfrac{10}{4}, \tfrac24]$.",
        lambda: [TOO_FAR, output(TOO_FAR)],
    ),
    computed(
        r"$\tfrac13 [1, 2]$ ${}+ \tfrac13 [3, 0]$ ${}+ \tfrac13 [4, 5]$ $= [\tfrac83, \tfrac73]$.",
        lambda: [EQUAL, output(EQUAL)],
    ),
    computed("With $d = 4$, the number 0.5 is a good", lambda: [4, 1 / np.sqrt(4)]),
]
