"""The numbers that chapter 3 quotes, recomputed: fractions by `Fraction`, measures on its data."""

import math
from fractions import Fraction

import numpy as np

from attnlib import softmax
from attnlib.dense import causal_pairs, effective_keys, window_pairs
from tests.chapters.quoted_numbers import computed, given

COUNTS = [[1, 3, 2], [1, 2, 1], [1, 2, 3]]  # exp(score), a query a row
OTHER_COUNTS = [[1, 2, 2], [1, 4, 5]]  # the two queries of another sequence
VALUES = [[1, 2], [3, 0], [4, 5]]


def weights(counts):
    """The exact weights that belong to exponentials of scores."""
    return [Fraction(count, sum(counts)) for count in counts]


def output(counts, values=VALUES):
    """The exact attention output."""
    return [
        sum(weight * v for weight, v in zip(weights(counts), column, strict=True))
        for column in zip(*values, strict=True)
    ]


def running(counts):
    """The factor, the total, the output and their quotient after each key."""
    peak, total, summed, states = Fraction(0), Fraction(0), [Fraction(0)] * 2, []
    for count, value in zip(counts, VALUES, strict=True):
        new_peak = max(peak, Fraction(count))
        shrink, fresh = peak / new_peak, count / new_peak
        total = shrink * total + fresh
        summed = [shrink * o + fresh * v for o, v in zip(summed, value, strict=True)]
        peak = new_peak
        states.append((shrink, total, summed, [o / total for o in summed]))
    return states


def running_work(j):
    """How the total and the output after key j are worked out: all numbers, as printed."""
    (_, old_total, old_sum, _), (shrink, total, summed, _) = running(COUNTS[2])[j - 1 : j + 1]
    fresh = Fraction(COUNTS[2][j], max(COUNTS[2][: j + 1]))
    return [[shrink, old_total, fresh, total], [shrink, old_sum, VALUES[j], summed]]


def sum_without_shrinking():
    """The vector o at the end when the factor is left out of it; each peak is new, so e^0 = 1."""
    return [sum(column) for column in zip(*VALUES, strict=True)]


def dropped_share():
    """The weight that the window 2 takes from the last query."""
    return weights(COUNTS[2])[0]


def windowed():
    """The output of the last query over tokens 1 and 2."""
    return output(COUNTS[2][1:], VALUES[1:])


def window_difference():
    """What the window 2 changes in the output of the last query."""
    return [kept - dense for kept, dense in zip(windowed(), output(COUNTS[2]), strict=True)]


def random_weights(sharpness):
    """The weights of 40 queries on 512 keys, seed 3."""
    random = np.random.default_rng(3)
    queries, keys = random.standard_normal((40, 64)), random.standard_normal((512, 64))
    return softmax(sharpness * (queries @ keys.T / np.sqrt(64)))


def share_above(sharpness):
    """The share of those weights above 1/1024."""
    return np.mean(random_weights(sharpness) > 1 / 1024)


def float32_bytes(count):
    """How many bytes so many float32 numbers take."""
    return count * np.dtype(np.float32).itemsize


def window_error(shuffled):
    """The error of a causal window of 16 on 256 drifting tokens, seed 5."""
    m, random = 256, np.random.default_rng(5)
    tokens = random.standard_normal((m, 32))
    for t in range(1, m):
        tokens[t] = 0.9 * tokens[t - 1] + np.sqrt(1 - 0.9**2) * tokens[t]
    values = random.standard_normal((m, 7))
    order = random.permutation(m) if shuffled else np.arange(m)
    tokens, values = tokens[order], values[order]
    scores = 2 * tokens @ tokens.T / np.sqrt(32)
    distance = np.arange(m)[:, None] - np.arange(m)
    exact, kept = (
        softmax(np.where((distance >= 0) & (distance < width), scores, -np.inf)) @ values
        for width in (m, 16)
    )
    return np.sqrt(np.mean((kept - exact) ** 2) / np.mean(exact**2))


def entropy_in_units_of_ln_2():
    """The entropy of 1/2, 1/4, 1/4, divided by ln 2: a sum of weight times halvings."""
    return sum(Fraction(1, 2**halvings) * halvings for halvings in (1, 2, 2))


NUMBERS = [
    # All pairs
    computed(
        r"| $q_0$ | 1, 3, 2 | 6 | $\tfrac16, \tfrac36, \tfrac26$ | $[3, 2]$ |",
        lambda: [COUNTS[0], sum(COUNTS[0]), weights(COUNTS[0]), output(COUNTS[0])],
    ),
    computed(
        r"| 1, 2, 1 | 4 | $\tfrac14, \tfrac24, \tfrac14$ | $[\tfrac{11}{4}, \tfrac{7}{4}]$ |",
        lambda: [COUNTS[1], sum(COUNTS[1]), weights(COUNTS[1]), output(COUNTS[1])],
    ),
    computed(
        r"| 1, 2, 3 | 6 | $\tfrac16, \tfrac26, \tfrac36$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$ |",
        lambda: [COUNTS[2], sum(COUNTS[2]), weights(COUNTS[2]), output(COUNTS[2])],
    ),
    computed(r"$\tfrac56$ of its weight goes to", lambda: sum(weights(COUNTS[0])[1:])),
    computed(
        r"$\tfrac14, \tfrac24$ become $\tfrac13, \tfrac23$, the causal weights",
        lambda: [weights(COUNTS[1])[:2], weights(COUNTS[1][:2])],
    ),
    # One sequence or two
    computed(
        r"$\tfrac15, \tfrac25, \tfrac25$ and $\tfrac1{10}, \tfrac4{10}, \tfrac5{10}$",
        lambda: [weights(counts) for counts in OTHER_COUNTS],
    ),
    computed(
        r"$[3, \tfrac{12}{5}]$ and $[\tfrac{33}{10}, \tfrac{27}{10}]$",
        lambda: [output(counts) for counts in OTHER_COUNTS],
    ),
    # How dense is dense?
    computed(r"$150 \ln 2 \approx 103.97$", lambda: 150 * math.log(2)),
    computed(r"$1075 \ln 2 \approx 745.13$", lambda: 1075 * math.log(2)),
    computed(
        r"For the weights $\tfrac16, \tfrac26, \tfrac36$ we get $N \approx 2.75$ of",
        lambda: [weights(COUNTS[2]), effective_keys([1 / 6, 2 / 6, 3 / 6])],
    ),
    given(r"$\varepsilon = \tfrac{1}{1024}$", "the bound that the chapter states"),
    computed("None of the 20,480 weights", lambda: np.count_nonzero(random_weights(16))),
    computed("only 59 % of them are above", lambda: share_above(1)),
    computed(
        "only 7 %: there a row is as spread out as 10.6 equal keys",
        lambda: [share_above(4), np.mean(effective_keys(random_weights(4)))],
    ),
    # Counting pairs
    computed("the scores fill 64 GiB", lambda: float32_bytes(131_072**2) / 2**30),
    computed("the vectors fit into 128 MiB", lambda: float32_bytes(4 * 131_072 * 64) / 2**20),
    # The running softmax
    computed(
        r"| $\tfrac12$ | $\tfrac32$ | $[\tfrac72, 1]$ | $[\tfrac73, \tfrac23]$ |",
        lambda: running(COUNTS[2])[1],
    ),
    computed(
        r"| $\tfrac23$ | 2 | $[\tfrac{19}{3}, \tfrac{17}{3}]$ | $[\tfrac{19}{6}, \tfrac{17}{6}]$ |",
        lambda: running(COUNTS[2])[2],
    ),
    computed(
        r"$t = \tfrac12 \cdot 1 + 1 = \tfrac32$ and "
        r"$o = \tfrac12 [1, 2] + [3, 0] = [\tfrac72, 1]$",
        lambda: running_work(1),
    ),
    computed(
        r"$t = \tfrac23 \cdot \tfrac32 + 1 = 2$ and "
        r"$o = \tfrac23 [\tfrac72, 1] + [4, 5] = [\tfrac{19}{3}, \tfrac{17}{3}]$",
        lambda: running_work(2),
    ),
    # What is lost and saved
    computed(r"with $\delta = \tfrac16$. The weights", dropped_share),
    computed(
        r"become $\tfrac25, \tfrac35$, and the output $[\tfrac{18}{5}, 3]$ in place of "
        r"$[\tfrac{19}{6}, \tfrac{17}{6}]$",
        lambda: [weights(COUNTS[2][1:]), windowed(), output(COUNTS[2])],
    ),
    computed(r"difference is $[\tfrac{13}{30}, \tfrac16]$", window_difference),
    computed(
        r"which is $\tfrac16 ([\tfrac{18}{5}, 3] - [1, 2])$",
        lambda: [dropped_share(), windowed(), VALUES[0]],
    ),
    computed(
        "The window computes 12.1 % of the scores",
        lambda: window_pairs(256, 16) / causal_pairs(256),
    ),
    computed("On the tokens in order its error is 0.053", lambda: window_error(shuffled=False)),
    computed("On the same tokens shuffled it is 0.654", lambda: window_error(shuffled=True)),
    # Common mistakes
    computed(
        r"$[8, 7] / 2 = [4, \tfrac72]$",
        lambda: [
            sum_without_shrinking(),
            running(COUNTS[2])[-1][1],
            [o / running(COUNTS[2])[-1][1] for o in sum_without_shrinking()],
        ],
    ),
    # Exercises
    given(
        r"weights $\tfrac12, \tfrac14, \tfrac14$ by hand", "what exercise 3.3 hands to the reader"
    ),
    given(
        r"$-\ln \tfrac12 = \ln 2$ and $-\ln \tfrac14 = 2 \ln 2$", "the same weights, in the hint"
    ),
    computed(
        r"$\tfrac12 \ln 2 + \tfrac14 \cdot 2 \ln 2 + \tfrac14 \cdot 2 \ln 2 = \tfrac32 \ln 2$",
        lambda: [*weights([2, 1, 1]), entropy_in_units_of_ln_2()],
    ),
    computed("$N = 2^{3/2}$", entropy_in_units_of_ln_2),
]
