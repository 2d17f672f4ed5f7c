"""The numbers on the landing page; how entries work: tests/chapters/quoted_numbers.py."""

from fractions import Fraction

import numpy as np

from tests.chapters.quoted_numbers import computed

WEIGHTS = [Fraction(share, 1 + 2 + 3) for share in (1, 2, 3)]
OUTPUT = WEIGHTS @ np.array([[1, 2], [3, 0], [4, 5]])

NUMBERS = [
    computed("the weights 1/6, 2/6, 3/6", lambda: WEIGHTS),
    computed("the output [19/6, 17/6]", lambda: OUTPUT),
]
