"""The numbers of chapter 6, recomputed in exact fractions."""

import math
from fractions import Fraction

import numpy as np

from tests.chapters.quoted_numbers import computed, given

# The running example: e to the score of each query on the keys that it sees.
SHARES = [[1], [1, 2], [1, 2, 3]]
K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
V = np.array([[1, 2], [3, 0], [4, 5]])
REPORTS = np.array([[1, 1], [0, 3], [2, -1]])
SCALE = Fraction(1, 2)


def weights(i):
    """The exact weights of query i, with zeros for the keys it does not see."""
    row = [Fraction(share, sum(SHARES[i])) for share in SHARES[i]]
    return np.array(row + [Fraction(0)] * (3 - len(row)))


def output(i):
    return weights(i) @ V


def d_weights(i):
    """The slopes of the weights, those of masked pairs included."""
    return V @ REPORTS[i]


def mean(i):
    return weights(i) @ d_weights(i)


def d_scores(i):
    return weights(i) * (d_weights(i) - mean(i))


def d_query(i):
    return SCALE * d_scores(i) @ K


def d_value(j):
    return sum(weights(i)[j] * REPORTS[i] for i in range(3))


def all_of(row):
    return [row(i) for i in range(3)]


def row_of_the_sheet(j):
    """Token, weight, slope, minus the mean, slope of the score, factor of q, gradient of v."""
    slope = d_weights(2)[j]
    factor = SCALE * d_scores(2)[j]
    fractions = [weights(2)[j], slope - mean(2), d_scores(2)[j], factor]
    return [j, fractions[0], slope, *fractions[1:], *(weights(2)[j] * REPORTS[2])]


def jacobian_in_parts():
    """The two matrices of Example 6.1 and their difference, each times 36."""
    diagonal, table = np.diag(weights(2)), np.outer(weights(2), weights(2))
    unit = Fraction(1, 36)
    parts = [diagonal, table], [diagonal - table]
    return [unit, *(36 * np.array(parts[0])).flat, unit, *(36 * np.array(parts[1])).flat]


def slope_of_scale():
    """Coefficients of ln 4 in rows 1 and 2, of ln 9 in row 2, then of ln 2 and of ln 3."""
    in_row_1, (in_row_2, of_ln_9) = d_scores(1)[1], d_scores(2)[1:]
    return in_row_1, in_row_2, of_ln_9, 2 * (in_row_1 + in_row_2), 2 * of_ln_9


NUMBERS = [
    # A slope for every number
    computed(
        r"its weights $\tfrac16, \tfrac26, \tfrac36$, its output "
        r"$o = [\tfrac{19}{6}, \tfrac{17}{6}]$",
        lambda: [weights(2), output(2)],
    ),
    computed(r"The loss is $\tfrac72$", lambda: output(2) @ REPORTS[2]),
    # Back through the weighted sum
    computed(
        r"$\tfrac36 [2, -1] = [1, -\tfrac12]$",
        lambda: [weights(2)[2], *REPORTS[2], *(weights(2)[2] * REPORTS[2])],
    ),
    computed(
        r"$[2, -1] \cdot [1, 2] = 0$, then $[2, -1] \cdot [3, 0] = 6$ and "
        r"$[2, -1] \cdot [4, 5] = 3$",
        lambda: [[REPORTS[2], V[j], d_weights(2)[j]] for j in range(3)],
    ),
    # Back through softmax
    computed(r"In units of $\tfrac1{36}$ the", lambda: Fraction(1, sum(SHARES[2]) ** 2)),
    computed(
        r"\frac{1}{36} \left( "
        r"\begin{bmatrix} 6 & 0 & 0 \\ 0 & 12 & 0 \\ 0 & 0 & 18 \end{bmatrix} - "
        r"\begin{bmatrix} 1 & 2 & 3 \\ 2 & 4 & 6 \\ 3 & 6 & 9 \end{bmatrix} "
        r"\right) = \frac{1}{36} "
        r"\begin{bmatrix} 5 & -2 & -3 \\ -2 & 8 & -6 \\ -3 & -6 & 9 \end{bmatrix}",
        jacobian_in_parts,
    ),
    computed(
        r"$\tfrac16 \cdot 0 + \tfrac26 \cdot 6 + \tfrac36 \cdot 3 = \tfrac72$",
        lambda: [*(pair for pair in zip(weights(2), d_weights(2), strict=True)), mean(2)],
    ),
    computed(r"$-\tfrac72, \tfrac52, -\tfrac12$. Times", lambda: d_weights(2) - mean(2)),
    computed(r"that is $-\tfrac7{12}, \tfrac{10}{12}, -\tfrac3{12}$", lambda: d_scores(2)),
    # Back through the scores
    computed(r"with $c = \tfrac12$", lambda: 1 / math.sqrt(K.shape[1])),
    computed(
        r"$dq = \tfrac12 (\tfrac{10}{12} k_1 - \tfrac3{12} k_2)$ "
        r"$= [\tfrac5{12}, -\tfrac18, \tfrac5{12}, -\tfrac18]$",
        lambda: [SCALE, d_scores(2)[1], -d_scores(2)[2], d_query(2)],
    ),
    computed(r"the mean of the $d\alpha_j$ is $\tfrac72$", lambda: mean(2)),
    computed(
        r"| 0 | $\tfrac16$ | 0 | $-\tfrac72$ | $-\tfrac7{12}$ | $-\tfrac7{24}\, q$ "
        r"| $[\tfrac26, -\tfrac16]$ |",
        lambda: row_of_the_sheet(0),
    ),
    computed(
        r"| 1 | $\tfrac26$ | 6 | $\tfrac52$ | $\tfrac{10}{12}$ | $\tfrac5{12}\, q$ "
        r"| $[\tfrac46, -\tfrac26]$ |",
        lambda: row_of_the_sheet(1),
    ),
    computed(
        r"| 2 | $\tfrac36$ | 3 | $-\tfrac12$ | $-\tfrac3{12}$ | $-\tfrac18\, q$ "
        r"| $[\tfrac66, -\tfrac36]$ |",
        lambda: row_of_the_sheet(2),
    ),
    computed("prints 10/12 as 5/6", lambda: [d_scores(2)[1]] * 2),
    computed("and 3/12 as 1/4", lambda: [-d_scores(2)[2]] * 2),
    computed("Weights: 1/6, 2/6, 3/6.", lambda: weights(2)),
    computed("Minus their mean: −7/2, 5/2, −1/2.", lambda: d_weights(2) - mean(2)),
    computed("Slopes of the scores: −7/12, 10/12, −3/12;", lambda: d_scores(2)),
    # All queries at once
    computed(
        r"P = \begin{bmatrix} 1 & 0 & 0 \\ \tfrac13 & \tfrac23 & 0 \\ "
        r"\tfrac16 & \tfrac26 & \tfrac36 \end{bmatrix}",
        lambda: all_of(weights),
    ),
    computed(
        r"dO\, V^\top = \begin{bmatrix} 3 & 3 & 9 \\ 6 & 0 & 15 \\ 0 & 6 & 3 \end{bmatrix}",
        lambda: all_of(d_weights),
    ),
    computed(
        r"are $3$, $\tfrac13 \cdot 6 = 2$ and $\tfrac72$",
        lambda: [mean(0), weights(1)[0], d_weights(1)[0], mean(1), mean(2)],
    ),
    computed(
        r"dS = \begin{bmatrix} 0 & 0 & 0 \\ \tfrac43 & -\tfrac43 & 0 \\ "
        r"-\tfrac7{12} & \tfrac{10}{12} & -\tfrac3{12} \end{bmatrix}",
        lambda: all_of(d_scores),
    ),
    computed(
        r"dV = \begin{bmatrix} \tfrac43 & \tfrac{11}6 \\ \tfrac23 & \tfrac53 \\ "
        r"1 & -\tfrac12 \end{bmatrix}",
        lambda: all_of(d_value),
    ),
    computed(
        r"dQ = \begin{bmatrix} 0 & 0 & 0 & 0 \\ -\tfrac23 & 0 & -\tfrac23 & 0 \\ "
        r"\tfrac5{12} & -\tfrac18 & \tfrac5{12} & -\tfrac18 \end{bmatrix}",
        lambda: all_of(d_query),
    ),
    computed(
        r"$1 \cdot [1, 1]$ ${}+ \tfrac13 [0, 3]$ ${}+ \tfrac16 [2, -1]$ "
        r"$= [\tfrac43, \tfrac{11}6]$",
        lambda: [
            *([weights(i)[0], *REPORTS[i]] for i in range(3)),
            d_value(0),
        ],
    ),
    computed("Row 1: 4/3 and −4/3.", lambda: [1, *d_scores(1)[:2]]),
    computed("Row 2: −7/12, 10/12 and −3/12.", lambda: [2, *d_scores(2)]),
    # No table is kept
    computed("a table of 16,777,216 weights", lambda: np.square(4096)),
    computed(r"$e^{\ln 2 - \ln 6} = \tfrac26$", lambda: weights(2)[1]),
    computed(
        r"$[2, -1] \cdot [\tfrac{19}6, \tfrac{17}6] = \tfrac{21}6 = \tfrac72$",
        lambda: [*REPORTS[2], *output(2), *[REPORTS[2] @ output(2)] * 2],
    ),
    # Exercises
    given("such as `1 / 6`", "an example of how a fraction is typed"),
    given(r"the weights $\tfrac14, \tfrac24, \tfrac14$", "what exercise 6.1 hands to the reader"),
    computed(
        r"$-\tfrac43 \ln 4 + \tfrac{10}{12} \ln 4 - \tfrac3{12} \ln 9$ $= -\ln 2 - \tfrac12 \ln 3$",
        lambda: [slope_of_scale()[0], slope_of_scale()[1], -slope_of_scale()[2], Fraction(1, 2)],
    ),
    given(r"the step $\eta = \tfrac12$", "what exercise 6.9 hands to the reader"),
]
