"""Exercises of chapter 1, one query."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike

from attnlib.single_query import attention_steps, single_query_attention, softmax
from attnlib.teaching.exercises.kinds import (
    Choice,
    Function,
    Numbers,
    Parts,
    inside,
    rows_sum_to_one,
)
from attnlib.teaching.exercises.running_example import K, Q, V, drawn
from attnlib.teaching.laws import row_by_row

q = Q[2]

# --- 1 and 2: a scale that is given ---------------------------------------------------------------

SMALL_Q, SMALL_K, GIVEN_D = np.array([2, 1]), np.array([[1, 0], [3, 2]]), 4
DOT_PRODUCTS = SMALL_Q @ SMALL_K.T
SCALES = {
    "You multiplied by √d instead of dividing.": np.sqrt(GIVEN_D),
    "You forgot the scale: these come from the dot products themselves.": 1.0,
    "You took d from the vectors, which have two entries; it is given as 4.": 1 / np.sqrt(2),
    "You divided by d instead of √d.": 1 / GIVEN_D,
}


def scores_with(scale: float):
    return lambda: DOT_PRODUCTS * scale


def weights_with(scale: float):
    return lambda: softmax(DOT_PRODUCTS * scale)


def divided_by_sum(numbers: ArrayLike) -> np.ndarray:
    return np.asarray(numbers) / np.sum(numbers)


BY_HAND = Parts(
    {
        "dot products": Numbers(
            right=lambda: DOT_PRODUCTS,
            checked="q meets every key.",
            slips={
                "You forgot the transpose: the query meets the columns of K, not its rows.": (
                    lambda: SMALL_Q @ SMALL_K
                ),
                "You multiplied entry by entry; a dot product adds up as well.": (
                    lambda: SMALL_Q * SMALL_K
                ),
                "This is q * K.T, entry by entry: write @ for the matrix product.": (
                    lambda: SMALL_Q * SMALL_K.T
                ),
                "These are divided already: a dot product comes before the scale.": scores_with(
                    1 / np.sqrt(GIVEN_D)
                ),
            },
        ),
        "scores": Numbers(
            right=scores_with(1 / np.sqrt(GIVEN_D)),
            checked="Divided by √4.",
            slips={says: scores_with(scale) for says, scale in SCALES.items()},
        ),
        "weights": Numbers(
            right=weights_with(1 / np.sqrt(GIVEN_D)),
            checked="They sum to 1, with odds of e to the difference of the scores.",
            slips={
                **{says: weights_with(scale) for says, scale in SCALES.items()},
                "You divided the scores by their sum: first take the exponential of each.": (
                    lambda: divided_by_sum(DOT_PRODUCTS)
                ),
                "These are the exponentials: divide them by their sum.": (
                    lambda: np.exp(DOT_PRODUCTS / np.sqrt(GIVEN_D))
                ),
            },
            laws=[rows_sum_to_one],
        ),
    }
)


def exponents_of_odds() -> np.ndarray:
    """Return the exponents of the odds: divided by √d, left alone, multiplied by √d."""
    root = np.sqrt(GIVEN_D)
    return np.array([1 / root, 1, root]) * (DOT_PRODUCTS[1] - DOT_PRODUCTS[0])


SPOT_THE_ERROR = Parts(
    {
        "error": Choice(
            right="b",
            options={
                "a": "The dot products are right: 2·1 + 1·0 and 2·3 + 1·2.",
                "b": "The scale stands below the line: divide.",
                "c": "A query is never scaled before it meets the keys here. Look at the factor.",
                "d": "The scale belongs to the dot products. Softmax comes after it.",
            },
        ),
        "exponents": Numbers(
            right=exponents_of_odds,
            checked="e to the difference of the scores, in each case.",
            slips={
                "These are the odds. Give their exponents, the differences of the scores.": (
                    lambda: np.exp(exponents_of_odds())
                ),
                "This is the order multiplied, left alone, divided; begin with divided.": (
                    lambda: exponents_of_odds()[::-1]
                ),
            },
        ),
        "width": Numbers(
            right=lambda: SMALL_K.shape[1],
            checked="Only because d is given as 4 is √4 right.",
            digits=0,
            slips={
                "That is the d of the exercise. How many entries do these vectors have?": (
                    lambda: GIVEN_D
                ),
            },
        ),
    }
)

# --- 3 and 4: another query, another order --------------------------------------------------------

OTHER_Q = np.log([2, 1, 2, 1])


def by_shares(shares: ArrayLike) -> np.ndarray:
    return divided_by_sum(shares)


ANOTHER_QUERY = Parts(
    {
        "weights": Numbers(
            right=lambda: attention_steps(OTHER_Q, K, V).weights,
            checked="Shares 1, 2, 1 of 4.",
            slips={
                "You forgot the scale.": lambda: attention_steps(OTHER_Q, K, V, scale=1).weights,
                "You multiplied by √d instead of dividing.": (
                    lambda: attention_steps(OTHER_Q, K, V, scale=2).weights
                ),
                "These are the shares: divide them by their sum.": (
                    lambda: np.exp(attention_steps(OTHER_Q, K, V).scores)
                ),
                "A score of 0 has the share e⁰ = 1, not 0.": (
                    lambda: divided_by_sum(attention_steps(OTHER_Q, K, V).scores)
                ),
                "These are the weights of the running example's own query.": (
                    lambda: attention_steps(q, K, V).weights
                ),
            },
            laws=[rows_sum_to_one],
        ),
        "output": Numbers(
            right=lambda: single_query_attention(OTHER_Q, K, V),
            checked="The values, mixed with these weights.",
            slips={
                "You forgot the scale.": lambda: single_query_attention(OTHER_Q, K, V, scale=1),
                "You added the values times their shares: divide by the sum of the shares.": (
                    lambda: np.exp(attention_steps(OTHER_Q, K, V).scores) @ V
                ),
                "You took the plain mean of the values.": lambda: V.mean(axis=0),
                "This is the output of the running example's own query.": (
                    lambda: single_query_attention(q, K, V)
                ),
            },
            laws=[inside(V)],
        ),
    }
)

ORDER = [2, 0, 1]
ANOTHER_ORDER = Parts(
    {
        "weights": Numbers(
            right=lambda: attention_steps(q, K[ORDER], V).weights,
            checked="Each weight moves with its key.",
            slips={
                "The weights move with their keys: the first row of K is now key 2.": (
                    lambda: attention_steps(q, K, V).weights
                ),
                "You sent row 0 to place 2. Here row 2 stands first: K[[2, 0, 1]].": (
                    lambda: attention_steps(q, K[np.argsort(ORDER)], V).weights
                ),
            },
            laws=[rows_sum_to_one],
        ),
        "output": Numbers(
            right=lambda: single_query_attention(q, K[ORDER], V[ORDER]),
            checked="The same sum in another order (Law 1.4).",
            slips={
                "Only the keys moved here; move the values with them.": (
                    lambda: single_query_attention(q, K[ORDER], V)
                ),
            },
            laws=[inside(V)],
        ),
        "only keys moved": Numbers(
            right=lambda: single_query_attention(q, K[ORDER], V),
            checked="Each value got the weight of another key.",
            slips={
                "The values stay where they were, so each gets the weight of another key.": (
                    lambda: single_query_attention(q, K, V)
                ),
                "You moved the values and left the keys.": (
                    lambda: single_query_attention(q, K, V[ORDER])
                ),
            },
            laws=[inside(V)],
        ),
    }
)

# --- 5 to 7: design a query, a scale of 0, entries with a mean ------------------------------------


def designed(first: float, second: float):
    """Return the weights of a query whose dot products with keys 1 and 2 are these."""
    return lambda: attention_steps(np.array([first, second, 0, 0]), K, V).weights


DESIGN = Numbers(
    right=lambda: by_shares([2, 1, 1]),
    checked="Its weights are 1/2, 1/4, 1/4; every query with these two sums does as well.",
    through=lambda query: attention_steps(query, K, V).weights,
    shape=(4,),
    slips={
        "The signs are wrong: key 0 gets the smallest weight.": designed(
            2 * np.log(2), 2 * np.log(2)
        ),
        "You forgot the scale: the dot products must lie √d times as far apart as the scores.": (
            designed(-np.log(2), -np.log(2))
        ),
        "You applied the scale the wrong way round: dot products are √d times the scores.": (
            designed(-np.log(2) / 2, -np.log(2) / 2)
        ),
        "Each entry is twice too large: two entries add up to one dot product.": designed(
            -4 * np.log(2), -4 * np.log(2)
        ),
        "The half lies on key 1; it belongs to key 0.": lambda: by_shares([1, 2, 1]),
        "The half lies on key 2; it belongs to key 0.": lambda: by_shares([1, 1, 2]),
    },
)

SCALE_OF_ZERO = Parts(
    {
        "weights": Numbers(
            right=lambda: attention_steps(q, K, V, scale=0).weights,
            checked="All scores are 0, so all weights are equal.",
            slips={
                "These are the scores. Equal scores get equal weights, with sum 1.": (
                    lambda: attention_steps(q, K, V, scale=0).scores
                ),
                "These are the shares e⁰: divide by their sum.": (
                    lambda: np.exp(attention_steps(q, K, V, scale=0).scores)
                ),
                "These are the weights with the usual scale.": (
                    lambda: attention_steps(q, K, V).weights
                ),
            },
            laws=[rows_sum_to_one],
        ),
        "output": Numbers(
            right=lambda: single_query_attention(q, K, V, scale=0),
            checked="The plain mean of the values.",
            slips={
                "You added the values: the mean divides by their number.": lambda: V.sum(axis=0),
                "Scores of 0 do not make the output 0: softmax makes equal weights of them.": (
                    lambda: np.zeros(2)
                ),
                "This is the output with the usual scale.": (
                    lambda: single_query_attention(q, K, V)
                ),
            },
            laws=[inside(V)],
        ),
        "negative scale": Numbers(
            right=lambda: np.argmax(attention_steps(q, K, V, scale=-1 / 2).weights),
            checked="The key that matches worst gets most.",
            digits=0,
            slips={
                "That key matches best. Now all signs are turned.": (
                    lambda: np.argmax(attention_steps(q, K, V).weights)
                ),
                "That key stays in the middle.": (
                    lambda: np.argsort(attention_steps(q, K, V).weights)[1]
                ),
            },
        ),
    }
)

ENTRIES = np.array([0, 2])


def all_dot_products() -> list[int]:
    return [a * c + b * d for a, b, c, d in itertools.product(ENTRIES, repeat=4)]


WITH_A_MEAN = Parts(
    {
        "mean": Numbers(right=ENTRIES.mean, checked="Halfway between 0 and 2."),
        "variance": Numbers(
            right=ENTRIES.var,
            checked="Each entry is 1 away from the mean.",
            slips={
                "This is the mean of the squares. Subtract the square of the mean.": (
                    lambda: np.mean(ENTRIES**2)
                ),
            },
        ),
        "variance of q·k": Numbers(
            right=lambda: np.var(all_dot_products()),
            checked="The law and all 16 cases agree.",
            slips={
                "This is σ⁴d. With a mean there is a second term, 2σ²μ² for each entry.": (
                    lambda: 2 * ENTRIES.var() ** 2
                ),
                "This is for d = 1. Variances of independent terms add.": (
                    lambda: np.var([a * c for a, c in itertools.product(ENTRIES, repeat=2)])
                ),
                "This is the mean of the squares. Subtract the square of the mean.": (
                    lambda: np.mean(np.square(all_dot_products()))
                ),
                "This is the standard deviation; its square is the variance.": (
                    lambda: np.std(all_dot_products())
                ),
            },
        ),
    }
)

# --- 8: a function --------------------------------------------------------------------------------


def with_weights(make_weights):
    """Return an attention function from what makes weights of dot products and d."""
    return lambda q, K, V: make_weights(q @ K.T, len(q)) @ V


def without_shift(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum()


def queries_to_try() -> list[tuple]:
    """Return small inputs whose sizes all differ, then the chapter's own, then large scores."""
    small = [drawn((E,), (S, E), (S, Ev), seed=E) for E, S, Ev in ((1, 2, 3), (2, 3, 1), (5, 7, 3))]
    large = (np.array([800.0, 900.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    return [*small, (q, K.astype(float), V.astype(float)), (*large, small[1][2])]


WRITE_IT = Function(
    right=single_query_attention,
    call="attention(q, K, V)",
    inputs=queries_to_try,
    checked=(
        "Five inputs agree with the library: sizes that all differ, the running example, "
        "and scores too large for a softmax without shift."
    ),
    slips={
        "You forgot the scale.": with_weights(lambda dots, d: softmax(dots)),
        "You multiplied by √d instead of dividing.": with_weights(
            lambda dots, d: softmax(dots * np.sqrt(d))
        ),
        "You divided by d instead of √d, as if the scale were applied twice.": with_weights(
            lambda dots, d: softmax(dots / d)
        ),
        "You took the root of the number of keys; the scale belongs to the width of the query.": (
            with_weights(lambda dots, d: softmax(dots / np.sqrt(len(dots))))
        ),
        "You took the root of the width of a value; the scale belongs to the query's width.": (
            lambda q, K, V: softmax(q @ K.T / np.sqrt(V.shape[1])) @ V
        ),
        "You scaled after the softmax; the scores must be scaled, not the weights.": with_weights(
            lambda dots, d: softmax(dots) / np.sqrt(d)
        ),
        "The softmax is missing.": with_weights(lambda dots, d: dots / np.sqrt(d)),
        "You divided the scores by their sum, without exponentials.": with_weights(
            lambda dots, d: divided_by_sum(dots / np.sqrt(d))
        ),
        "You took the exponentials and did not divide by their sum.": with_weights(
            lambda dots, d: np.exp(dots / np.sqrt(d))
        ),
        "It is right but for large scores: subtract the largest before the exponential.": (
            with_weights(lambda dots, d: without_shift(dots / np.sqrt(d)))
        ),
        "These are the weights. They still have to mix the values.": (
            lambda q, K, V: attention_steps(q, K, V).weights
        ),
        "You averaged the values: nothing depends on the query.": lambda q, K, V: V.mean(axis=0),
        "You used the keys as values.": lambda q, K, V: attention_steps(q, K, K).output,
    },
    laws={"kind": "attention"},
    sequence=row_by_row,
)

EXERCISES = {
    1: BY_HAND,
    2: SPOT_THE_ERROR,
    3: ANOTHER_QUERY,
    4: ANOTHER_ORDER,
    5: DESIGN,
    6: SCALE_OF_ZERO,
    7: WITH_A_MEAN,
    8: WRITE_IT,
}
