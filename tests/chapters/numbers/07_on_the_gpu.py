"""The numbers that chapter 7 quotes: rounded by hand again, or read from the committed record."""

from fractions import Fraction

import numpy as np

from attnlib.teaching import records
from tests.chapters.quoted_numbers import computed, given

WEIGHTS = [Fraction(share, 1 + 2 + 3) for share in (1, 2, 3)]


def doublings(number, digits):
    """How often a number below 1 is doubled until it has so many binary digits before the dot."""
    count = 0
    while number * 2**count < 2 ** (digits - 1):
        count += 1
    return count


def rounded(number, digits):
    scale = 2 ** doublings(number, digits)
    return Fraction(round(number * scale), scale)


def row(digits):
    return [rounded(weight, digits) for weight in WEIGHTS]


def equal_weight(count):
    return Fraction(1, count)


def gap(number, digits):
    """The distance to the next number of the format."""
    return Fraction(1, 2 ** doublings(number, digits))


def stuck_at(count, digits):
    """Where a sum of equal weights is stuck when it is rounded after each addition."""
    total = equal_weight(count)
    while rounded(total + equal_weight(count), digits) > total:
        total = rounded(total + equal_weight(count), digits)
    return total


def measured(kernel, dtype):
    (found,) = [
        one
        for one in records.load("precision")["rows"]
        if (one["device"], one["kernel"], one["dtype"]) == ("cpu", kernel, dtype)
    ]
    return found


def largest(kernel, dtype):
    row = measured(kernel, dtype)
    return row["arithmetic"]["largest"], row["all"]["largest"]


def doubled_weights(shares, digits):
    """Each weight, and the power of two by which rounding multiplies it."""
    weights = [Fraction(share, sum(shares)) for share in shares]
    return [[weight, 2 ** doublings(weight, digits)] for weight in weights]


def mean(kernel, dtype):
    return measured(kernel, dtype)["arithmetic"]["mean"]


THIRD = Fraction(1, 3)

NUMBERS = [
    # Fewer bits
    computed(r"about $1.8 \cdot 10^{308}$", lambda: int(np.finfo(np.float64).max)),
    computed(r"about $3.4 \cdot 10^{38}$", lambda: float(np.finfo(np.float32).max)),
    computed(
        r"$\tfrac13$ becomes $\tfrac{4096}{3}$, about 1365.33.",
        lambda: [THIRD, *[THIRD * 2 ** doublings(THIRD, 11)] * 2],
    ),
    computed(r"a third is $\tfrac{1365}{4096}$", lambda: rounded(THIRD, 11)),
    computed("about 170.67, rounded 171", lambda: THIRD * 2 ** doublings(THIRD, 8)),
    computed(r"in bfloat16 a third is $\tfrac{171}{512}$", lambda: rounded(THIRD, 8)),
    computed(r"the running example, $\tfrac16, \tfrac26, \tfrac36$. What", lambda: WEIGHTS),
    computed(r"they are $\tfrac{1365}{8192}, \tfrac{1365}{4096}, \tfrac12$. Over", lambda: row(11)),
    computed(r"2730 + 4096}{8192} = \tfrac{8191}{8192}$", lambda: sum(row(11))),
    computed(
        r"$\tfrac{171}{1024}, \tfrac{171}{512}, \tfrac12$, with the sum $\tfrac{1025}{1024}$",
        lambda: [row(8), sum(row(8))],
    ),
    computed(r"$2^{-11}$ is about 0.0005", lambda: np.exp2(-11)),
    computed(r"$2^{-8}$ is about 0.004", lambda: np.exp2(-8)),
    # Sums need more digits than numbers
    computed(r"4096 equal weights of $\tfrac{1}{4096}$", lambda: equal_weight(4096)),
    computed(
        r"From $\tfrac12$ on, the neighbours in float16 are $\tfrac{1}{2048}$ apart. Adding "
        r"$\tfrac{1}{4096}$ leads",
        lambda: [stuck_at(4096, 11), gap(stuck_at(4096, 11), 11), equal_weight(4096)],
    ),
    computed(r"which is back to $\tfrac12$.", lambda: stuck_at(4096, 11)),
    # What was measured
    computed(
        "stand in the ratio 7.99 to 1", lambda: mean("math", "bfloat16") / mean("math", "float16")
    ),
    computed(
        "the largest error is 0.00012 from the arithmetic and 0.00040 in all",
        lambda: list(largest("math", "float16")),
    ),
    computed(
        "its mean error is 1.57 times that of math",
        lambda: mean("flash", "float16") / mean("math", "float16"),
    ),
    given("a difference of 0.0003 between outputs below 1", "an example of a small difference"),
    given("A difference of 0.03 is a bug", "an example of a large difference"),
    # Exercises
    given("The weights 0.2, 0.1 and 0.7 are stored", "what exercise 7.1 hands to the reader"),
    computed(
        r"$\tfrac15 \cdot 8192$, $\tfrac{1}{10} \cdot 16384$ and $\tfrac{7}{10} \cdot 2048$",
        lambda: doubled_weights([2, 1, 7], 11),
    ),
    computed(r"1024 weights of $\tfrac{1}{1024}$ are added", lambda: equal_weight(1024)),
    computed(
        r"Between $\tfrac14$ and $\tfrac12$ there are 128 numbers",
        lambda: [stuck_at(1024, 8), 2 * stuck_at(1024, 8)],
    ),
    computed(
        r"From $\tfrac14$ on, neighbours are $\tfrac14 / 128 = \tfrac{1}{512}$ apart, and half of "
        r"that is $\tfrac{1}{1024}$: a tie. $\tfrac14$ is $\tfrac{128}{512}$",
        lambda: [
            *[stuck_at(1024, 8)] * 2,
            gap(stuck_at(1024, 8), 8),
            gap(stuck_at(1024, 8), 8) / 2,
            *[stuck_at(1024, 8)] * 2,
        ],
    ),
    computed(r"The sum is stuck at $\tfrac14$.", lambda: stuck_at(1024, 8)),
    given("Their outputs differ by at most 0.002.", "what exercise 7.6 hands to the reader"),
    given("so 0.002 is a bug", "quoted from exercise 7.6"),
    computed(r"$2^{-8} \cdot 2$ is about 0.008", lambda: 2 * np.exp2(-8)),
    given("so 0.002 can be rounding", "quoted from exercise 7.6"),
]
