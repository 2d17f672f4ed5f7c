"""The numbers that chapter 1 quotes; how entries work: tests/chapters/quoted_numbers.py."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np

from attnlib import attention_steps, softmax
from tests.chapters.quoted_numbers import computed, given

# The running example: the exponentials of its scores are 1, 2, 3.
SHARES = [1, 2, 3]
EXAMPLE_Q = np.log([2, 3, 2, 3])
EXAMPLE_K = [[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]]
EXAMPLE_V = [[1, 2], [3, 0], [4, 5]]

# Rows S3 and S4: d is given as 4.
Q, K = [2, 1], [[1, 0], [3, 2]]


def exact_weights():
    return [Fraction(share, sum(SHARES)) for share in SHARES]


def exact_output():
    return exact_weights() @ np.array(EXAMPLE_V)


def row_of_the_sheet(j):
    """Token, dot product and score as ln of an integer, share, weight, value, product."""
    steps = attention_steps(EXAMPLE_Q, EXAMPLE_K, EXAMPLE_V)
    numbers = [steps.dot_products[j], steps.scores[j]]
    inside_ln = [round(math.exp(number)) for number in numbers]
    np.testing.assert_allclose(np.log(inside_ln), numbers, atol=1e-15)
    weight, value = exact_weights()[j], EXAMPLE_V[j]
    return [j, *inside_ln, SHARES[j], weight, *value, *(weight * x for x in value)]


def scaled_by(scale):
    return attention_steps(Q, K, [[0], [0]], scale=scale)


def odds(scale):
    first, second = scaled_by(scale).weights
    return second / first


def scores_and_weights(scale):
    steps = scaled_by(scale)
    return [*steps.scores, *steps.weights]


def slip_without_transpose():
    return np.array(Q) @ np.array(K)


def jacobian(weights):
    return np.diag(weights) - np.outer(weights, weights)


def jacobian_in_parts():
    """The factor 1/36, and what it leaves of the exact Jacobian."""
    thirty_sixths = 36 * jacobian(exact_weights())
    return [Fraction(1, 36), *thirty_sixths.flat]


@functools.cache
def unscaled_jacobians():
    """Row S5: the size of the Jacobian in each unscaled trial at d = 4096, as in the chapter."""
    rng, sizes = np.random.default_rng(0), []
    for d in 2 ** np.arange(13):
        for _ in range(200):
            weights = softmax(rng.normal(size=d) @ rng.normal(size=(8, d)).T)
            sizes.append(np.linalg.norm(jacobian(weights)))
    return np.array(sizes[-200:])


def bound_of_half_the_trials():
    """The power of ten that the median stays below, which is what the chapter says of it."""
    return Fraction(1, 10**10) if np.median(unscaled_jacobians()) < 1e-10 else 1


def variance_of_zeros_and_twos():
    cases = [a * c + b * d for a, b, c, d in itertools.product([0, 2], repeat=4)]
    mean = Fraction(sum(cases), len(cases))
    return sum((case - mean) ** 2 for case in cases) / len(cases)


NUMBERS = [
    given(r"\frac{\ln 1}{2} = \ln 1", "half of a logarithm, written as a fraction"),
    given(r"\frac{\ln 4}{2} = \ln 2", "half of a logarithm, written as a fraction"),
    given(r"\frac{\ln 9}{2} = \ln 3", "half of a logarithm, written as a fraction"),
    # Softmax and the four steps: rows S1 and S2
    computed(r"The weights are $\tfrac16$, $\tfrac26$ and $\tfrac36$", exact_weights),
    computed(
        r"| 0 | $\ln 1$ | $\ln 1$ | 1 | $\tfrac16$ | $[1, 2]$ | $[\tfrac16, \tfrac26]$ |",
        lambda: row_of_the_sheet(0),
    ),
    computed(
        r"| 1 | $\ln 4$ | $\ln 2$ | 2 | $\tfrac26$ | $[3, 0]$ | $[\tfrac66, 0]$ |",
        lambda: row_of_the_sheet(1),
    ),
    computed(
        r"| 2 | $\ln 9$ | $\ln 3$ | 3 | $\tfrac36$ | $[4, 5]$ "
        r"| $[\tfrac{12}{6}, \tfrac{15}{6}]$ |",
        lambda: row_of_the_sheet(2),
    ),
    computed(r"$[\tfrac{19}{6}, \tfrac{17}{6}]$", exact_output),
    computed("2/6 is printed as 1/3", lambda: [exact_weights()[1]] * 2),
    computed("3/6 as 1/2", lambda: [exact_weights()[2]] * 2),
    computed("weights 1/6, 2/6, 3/6", exact_weights),
    computed("the output: 19/6 and 17/6", exact_output),
    # A scale that is given, and the error: rows S3 and S4
    computed(
        r"$2 \cdot 1 + 1 \cdot 0 = 2$ and $2 \cdot 3 + 1 \cdot 2 = 8$",
        lambda: [
            2,
            1,
            1,
            0,
            scaled_by(1).dot_products[0],
            2,
            3,
            1,
            2,
            scaled_by(1).dot_products[1],
        ],
    ),
    computed(r"the odds are $e^3 \approx 20.1$", lambda: odds(1 / 2)),
    computed("the weights are 0.0474 and 0.9526", lambda: scaled_by(1 / 2).weights),
    computed("$[1, 4]$ | 0.0474 and 0.9526 |", lambda: scores_and_weights(1 / 2)),
    computed("$[2, 8]$ | 0.0025 and 0.9975 |", lambda: scores_and_weights(1)),
    computed(
        r"$[4, 16]$ | $6.14 \cdot 10^{-6}$ and 0.99999 |",
        lambda: scores_and_weights(2),
    ),
    computed(r"| $e^3 \approx 20.1$ |", lambda: odds(1 / 2)),
    computed(r"| $e^6 \approx 403.4$ |", lambda: odds(1)),
    computed(r"| $e^{12} \approx 162754.8$ |", lambda: odds(2)),
    computed("would be 0.0142 and 0.9858", lambda: scaled_by(None).weights),
    computed("gives $[5, 2]$", slip_without_transpose),
    # Why scale: row S5
    computed(r"weights $\tfrac16, \tfrac26, \tfrac36$ it is", exact_weights),
    computed(
        r"\frac{1}{36} \begin{bmatrix} 5 & -2 & -3 \\ -2 & 8 & -6 \\ -3 & -6 & 9 \end{bmatrix}",
        jacobian_in_parts,
    ),
    computed("*mean* of what reaches the scores is 0.03", lambda: np.mean(unscaled_jacobians())),
    computed("stay below $10^{-10}$", bound_of_half_the_trials),
    given(r"| $1 \times$ `Ev` |", "a shape, not a ratio"),
    # Exercises
    given(r"$\tfrac12, \tfrac14, \tfrac14$", "the weights that exercise 1.5 asks for"),
    given("scale -1/2:", "the scale that exercise 1.6 tries"),
    computed(r"= 2 \cdot (1 + 2) = 6$", lambda: [2, 1, 2, variance_of_zeros_and_twos()]),
]
