"""The numbers of the page of laws, recomputed."""

from fractions import Fraction

from tests.chapters.quoted_numbers import computed, given

SHARES = [1, 2, 3]

NUMBERS = [
    computed(
        "ln 1, ln 2, ln 3 give the weights 1/6, 2/6, 3/6, whatever E is.",
        lambda: [Fraction(share, sum(SHARES)) for share in SHARES],
    ),
    given("within 1e-7, the error of the differences", "how the law compares"),
    given("In float32 give `tolerance=1e-5`", "advice: rounding in float32, with room"),
]
