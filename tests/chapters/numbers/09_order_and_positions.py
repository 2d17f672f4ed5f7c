"""The numbers that chapter 9 quotes, recomputed: exact where they are fractions."""

import math
from fractions import Fraction

from tests.chapters.quoted_numbers import computed

COUNTS = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]
K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
V = [[1, 2], [3, 0], [4, 5]]
DEGREES = [90, 30]


def divided(shares):
    return [Fraction(share) / sum(shares) for share in shares]


def output(weights, tokens=(0, 1, 2)):
    return [sum(w * V[j][c] for w, j in zip(weights, tokens, strict=True)) for c in (0, 1)]


def causal(i, tokens):
    """The weights of token i on the tokens that stand up to it, in their order."""
    return divided([COUNTS[i][j] for j in tokens])


def hand(position, c):
    """Sine and cosine of a hand of the clock."""
    angle = math.radians(position * DEGREES[c])
    return [math.sin(angle), math.cos(angle)]


def row(position):
    return [*hand(position, 0), *hand(position, 1)]


def dot(i, j):
    return sum(a * b for a, b in zip(row(i), row(j), strict=True))


def rational(numbers):
    """The factors of roots of three, beside numbers that are halves."""
    return [
        n if abs(2 * n) % 1 < 1e-12 or abs(2 * n) % 1 > 1 - 1e-12 else n / math.sqrt(3)
        for n in numbers
    ]


def quarter_turns(pair, times):
    for _ in range(times):
        pair = [-pair[1], pair[0]]
    return pair


def turned_share(i, j):
    """The share of query i on key j when pairs make a quarter turn a position, exactly.

    A dot product is a sum of logarithms, and the scale halves it: entries 0 and 1 of query and
    key stand there twice, so the share is the product of the numbers inside the logarithms.
    """
    inside = COUNTS[i][1:]  # of entries 0 and 1: ln(share on key 1), ln(share on key 2)
    key = quarter_turns(K[j][:2], (j - i) % 4)
    return math.prod(
        (Fraction(number) ** entry for number, entry in zip(inside, key, strict=True)),
        start=Fraction(1),
    )


def with_bias(i, step):
    return [Fraction(COUNTS[i][j], step ** abs(i - j)) for j in range(3)]


NUMBERS = [
    # What attention cannot see
    computed(
        r"$\tfrac16, \tfrac36, \tfrac26$ | $[3, 2]$",
        lambda: [divided(COUNTS[0]), output(divided(COUNTS[0]))],
    ),
    computed(
        r"$\tfrac14, \tfrac24, \tfrac14$ | $[\tfrac{11}{4}, \tfrac74]$",
        lambda: [divided(COUNTS[1]), output(divided(COUNTS[1]))],
    ),
    computed(
        r"$\tfrac16, \tfrac26, \tfrac36$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$",
        lambda: [divided(COUNTS[2]), output(divided(COUNTS[2]))],
    ),
    computed(
        r"$\tfrac13 [4, 5] + \tfrac23 [3, 0] = [\tfrac{10}{3}, \tfrac53]$",
        lambda: [causal(1, [2, 1]), output(causal(1, [2, 1]), [2, 1])],
    ),
    computed(
        r"*Man* gets $[\tfrac{19}{6}, \tfrac{17}{6}]$ after",
        lambda: output(causal(2, [1, 0, 2]), [1, 0, 2]),
    ),
    # Waves
    computed(r"30°: $\;\tfrac12,\; \tfrac12\sqrt3$", lambda: rational(hand(1, 1))),
    computed(r"60°: $\;\tfrac12\sqrt3,\; \tfrac12$", lambda: rational(hand(2, 1))),
    computed(r"$p_1 = [1, 0, \tfrac12, \tfrac12\sqrt3]$", lambda: rational(row(1)[2:])),
    computed(r"p_0 \cdot p_1 &= 0 + \tfrac12\sqrt3", lambda: rational([dot(0, 1)])),
    computed(
        r"p_2 &= 0 + \tfrac14\sqrt3 + \tfrac14\sqrt3 = \tfrac12\sqrt3",
        lambda: rational(
            [*(a * b for a, b in zip(hand(1, 1), hand(2, 1), strict=True)), dot(1, 2)]
        ),
    ),
    computed(r"p_2 \cdot p_3 &= 0 + \tfrac12\sqrt3", lambda: rational([dot(2, 3)])),
    computed(r"p_0 \cdot p_2 &= -1 + \tfrac12 = -\tfrac12", lambda: [hand(2, 1)[1], dot(0, 2)]),
    computed(
        r"p_1 \cdot p_3 &= -1 + \tfrac12 = -\tfrac12",
        lambda: [sum(a * b for a, b in zip(hand(1, 1), hand(3, 1), strict=True)), dot(1, 3)],
    ),
    # The running example, turned
    computed(r"score $-\ln 3$, share $\tfrac13$;", lambda: turned_share(2, 1)),
    computed(r"The shares $1, \tfrac13, 3$ stand", lambda: [turned_share(2, j) for j in range(3)]),
    computed(
        r"The weights are $\tfrac{3}{13}, \tfrac{1}{13}, \tfrac{9}{13}$.",
        lambda: divided([turned_share(2, j) for j in range(3)]),
    ),
    computed(r"Token 2 gave itself $\tfrac36$ before.", lambda: [2, divided(COUNTS[2])[2]]),
    # A bias for distance
    computed(r"for $e^{-\ln 2} = \tfrac12$", lambda: math.exp(-math.log(2))),
    computed(r"They become $\tfrac14, 1, 3$, which", lambda: with_bias(2, 2)),
    computed(r"$\tfrac{1}{17}, \tfrac{4}{17}, \tfrac{12}{17}$", lambda: divided(with_bias(2, 2))),
    # Exercises
    computed(r"$p_4 = [0, 1, \tfrac12\sqrt3, -\tfrac12]$", lambda: rational(hand(4, 1))),
    computed(
        r"a factor of $\tfrac12$ or $\tfrac13$.",
        lambda: [math.exp(-math.log(2)), math.exp(-math.log(3))],
    ),
]
