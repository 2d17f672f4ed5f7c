"""Exercises of chapter 2, causal attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlib.causal import causal_attention, causal_mask
from attnlib.dense import dense_attention
from attnlib.single_query import softmax
from attnlib.teaching.exercises.kinds import (
    AnyOf,
    Choice,
    Function,
    Numbers,
    Parts,
    inside,
    rows_sum_to_one,
    sees_no_later_token,
)
from attnlib.teaching.exercises.running_example import K, Q, V, drawn

# --- 1 and 3: a weighted sum, and who has most influence on it ------------------------------------

WEIGHTS = np.array([0.1, 0.6, 0.3])

A_WEIGHTED_SUM = Numbers(
    right=lambda: WEIGHTS @ V,
    checked="Both entries agree with α V.",
    slips={
        "You added the values without their weights.": lambda: V.sum(axis=0),
        "You took the plain mean: each value wants its own weight.": lambda: V.mean(axis=0),
        "You gave the weights to the values in reversed order.": lambda: WEIGHTS[::-1] @ V,
        "These are the weighted values, one a row: they still have to be added.": (
            lambda: WEIGHTS[:, np.newaxis] * V
        ),
        "You left token 2 out: position 2 sees itself, too.": lambda: WEIGHTS[:2] @ V[:2],
    },
    laws=[inside(V)],
)


def contributions() -> np.ndarray:
    return np.linalg.norm(WEIGHTS[:, np.newaxis] * V, axis=1)


def moved_without(*, renormalised: bool) -> list[float]:
    """Return how far the output moves when each token is left out."""
    distances = []
    for j in range(3):
        rest = np.delete(WEIGHTS, j)
        rest = rest / rest.sum() if renormalised else rest
        distances.append(np.linalg.norm(rest @ np.delete(V, j, axis=0) - WEIGHTS @ V))
    return distances


INFLUENCE = Parts(
    {
        "by weight": Numbers(
            right=lambda: np.argmax(WEIGHTS),
            checked="Its weight is the largest.",
            digits=0,
            slips={
                "By weight alone the values play no part.": lambda: np.argmax(contributions()),
                "That one has the smallest weight.": lambda: np.argmin(WEIGHTS),
            },
        ),
        "by contribution": Numbers(
            right=lambda: np.argmax(contributions()),
            checked="Its value is so long that it makes up for the weight.",
            digits=0,
            slips={
                "That is the largest weight. Multiply each by the length of its value.": (
                    lambda: np.argmax(WEIGHTS)
                ),
                "That one contributes least.": lambda: np.argmin(contributions()),
            },
        ),
        "left out": Numbers(
            right=lambda: np.argmax(moved_without(renormalised=True)),
            checked="Without it the output moves farthest.",
            digits=0,
            slips={
                "You did not divide the other weights by their sum.": (
                    lambda: np.argmax(moved_without(renormalised=False))
                ),
                "Without that one the output moves least.": (
                    lambda: np.argmin(moved_without(renormalised=True))
                ),
            },
        ),
    }
)

# --- 2: fill the triangle -------------------------------------------------------------------------

TABLE = np.array([[2, 5, 1], [4, 4, 3], [1, 3, 4]])
VISIBLE = causal_mask(3)


def rows_divided(table: np.ndarray, axis: int = 1) -> np.ndarray:
    sums = table.sum(axis=axis, keepdims=True)
    return table / np.where(sums == 0, 1, sums)


WRONG_TRIANGLES: dict[str, Callable[[], np.ndarray]] = {
    "You did not mask: a token must not see a later one.": lambda: rows_divided(TABLE),
    "You masked after the softmax: the rows were divided by the sum of all three shares.": (
        lambda: rows_divided(TABLE) * VISIBLE
    ),
    "You kept what lies above the diagonal and masked what lies below.": (
        lambda: rows_divided(TABLE * VISIBLE.T)
    ),
    "You masked the diagonal, too: a token sees itself.": (
        lambda: rows_divided(TABLE * np.tri(3, k=-1))
    ),
    "You divided columns by their sums: softmax runs over the keys of one query, a row.": (
        lambda: rows_divided(TABLE * VISIBLE, axis=0)
    ),
}

FILL_THE_TRIANGLE = Parts(
    {
        "weights": Numbers(
            right=lambda: rows_divided(TABLE * VISIBLE),
            checked="Each row divided by the sum of what it sees.",
            slips=WRONG_TRIANGLES,
            laws=[sees_no_later_token, rows_sum_to_one],
            ragged=True,
        ),
        "outputs": Numbers(
            right=lambda: rows_divided(TABLE * VISIBLE) @ V,
            checked="Each row mixes the values it sees.",
            slips={
                says: (lambda weights=weights: weights() @ V)
                for says, weights in WRONG_TRIANGLES.items()
            },
            laws=[inside(V)],
        ),
        "never used": Numbers(
            right=lambda: np.sort(TABLE[~VISIBLE]),
            checked="All that lies above the diagonal.",
            through=np.sort,
            shape=(3,),
            slips={
                "Those lie below the diagonal: they are used.": (
                    lambda: np.sort(TABLE[np.tri(3, k=-1, dtype=bool)])
                ),
                "Those lie on the diagonal: a token sees itself.": (
                    lambda: np.sort(np.diagonal(TABLE))
                ),
            },
        ),
    }
)

# --- 4: find the leak -----------------------------------------------------------------------------

LEAKING = np.array([0.1, 0.2, 0.6, 0.1])


def masked_properly() -> np.ndarray:
    return softmax(np.where(causal_mask(1, 4, offset=2)[0], np.log(LEAKING), -np.inf))


WRONG_REMOVALS: dict[str, Callable[[], np.ndarray]] = {
    "You crossed the term out and no more: these sum to 0.9.": lambda: LEAKING[:3],
    "You shared the weight out equally. Shares keep their ratios, so divide by the sum.": (
        lambda: LEAKING[:3] + LEAKING[3] / 3
    ),
    "You gave the weight to the last token. Shares keep their ratios, so divide by the sum.": (
        lambda: np.add(LEAKING[:3], [0, 0, LEAKING[3]])
    ),
    "You removed token 2: position 2 sees itself.": (
        lambda: np.delete(LEAKING, 2) / np.delete(LEAKING, 2).sum()
    ),
}

FIND_THE_LEAK = Parts(
    {
        "term": Numbers(
            right=lambda: np.flatnonzero(~causal_mask(1, 4, offset=2)[0])[0],
            checked="Token 3 comes after position 2.",
            digits=0,
            slips={"A position sees itself: token 2 is allowed.": lambda: 2},
        ),
        "weights": AnyOf(
            [
                Numbers(
                    right=lambda: masked_properly()[:3],
                    checked="In the ratio 1 to 2 to 6, with sum 1.",
                    slips=WRONG_REMOVALS,
                    laws=[rows_sum_to_one],
                ),
                Numbers(masked_properly, checked="In the ratio 1 to 2 to 6, and nothing for 3."),
            ]
        ),
        "why": Choice(
            right="c",
            options={
                "a": "v₃ may well be 0; its weight still stood in the sum.",
                "b": "The others keep their order, and even their ratios.",
                "c": "The weights left over would no longer sum to 1.",
            },
        ),
    }
)

# --- 5: the mask, and how many pairs it shows -----------------------------------------------------


def positions(m: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(m)[:, np.newaxis], np.arange(m)


def mask_from(compare: Callable) -> Callable[[int], np.ndarray]:
    """Return a function that makes a mask by comparing query and key positions."""
    return lambda m: compare(*positions(m))


LENGTHS = (1, 2, 5)

MASK = Parts(
    {
        "mask": Function(
            right=causal_mask,
            call="mask(m)",
            inputs=lambda: [(m,) for m in LENGTHS],
            checked="Equal to the library's for 1, 2 and 5 tokens.",
            slips={
                "The diagonal is missing: a token sees itself.": mask_from(lambda i, j: j < i),
                "It shows one key too many to the right of the diagonal.": mask_from(
                    lambda i, j: j <= i + 1
                ),
                "It is inverted: in this book True means may attend.": mask_from(
                    lambda i, j: j > i
                ),
                "It is transposed: rows are queries, columns are keys.": mask_from(
                    lambda i, j: j >= i
                ),
                "This is a mask to be added to scores; a boolean one is wanted.": mask_from(
                    lambda i, j: np.where(j <= i, 0.0, -np.inf)
                ),
                "It hides nothing.": mask_from(lambda i, j: (j <= i) | (j > i)),
            },
        ),
        "pairs": Numbers(
            right=lambda: [causal_mask(m).sum() for m in LENGTHS],
            checked="m(m + 1)/2 each.",
            digits=0,
            slips={
                "You counted all pairs.": lambda: np.square(LENGTHS),
                "You did not count the diagonal: a token sees itself.": (
                    lambda: [np.tri(m, k=-1).sum() for m in LENGTHS]
                ),
            },
        ),
    }
)

# --- 6: a scale of zero ---------------------------------------------------------------------------

SCALE_OF_ZERO = Parts(
    {
        "outputs": Numbers(
            right=lambda: causal_attention(Q, K, V, scale=0.0),
            checked="Each row is the mean of the values so far.",
            slips={
                "These are sums: divide each by the number of tokens so far.": (
                    lambda: np.cumsum(V, axis=0)
                ),
                "You divided every row by 3. The first sees one token, the second two.": (
                    lambda: np.cumsum(V, axis=0) / 3
                ),
                "You took the mean of all three in each row: nothing was masked.": (
                    lambda: dense_attention(Q, K, V, scale=0.0)
                ),
                "These are the values: each token sees the earlier ones, too.": lambda: V,
                "These are the outputs with the usual scale.": lambda: causal_attention(Q, K, V),
            },
            laws=[inside(V)],
        ),
        "name": Choice(
            right=("running mean", "running average", "cumulative mean", "cumulative average"),
            options={
                **dict.fromkeys(
                    ("running mean", "running average", "cumulative mean", "cumulative average"),
                    "The mean of all there has been so far.",
                ),
                **dict.fromkeys(
                    ("mean", "average", "a mean", "an average"),
                    "Yes, but of what? It grows as the tokens come in.",
                ),
                **dict.fromkeys(
                    ("moving average", "moving mean", "rolling mean", "rolling average"),
                    "That one forgets: it looks at a window. Here nothing is dropped.",
                ),
                **dict.fromkeys(
                    ("sum", "running sum", "cumulative sum"),
                    "Weights sum to 1, so it is no sum.",
                ),
            },
        ),
    }
)

# --- 7: which law catches which mistake -----------------------------------------------------------

MISTAKES = Parts(
    {
        "by the third only": Choice(
            right="a",
            options={
                "a": "It leaks nothing, but position 0 is left with nothing to see.",
                **dict.fromkeys("bcde", "That one leaks, so the first two laws catch it."),
                "f": "That one passes the third check, too.",
            },
        ),
        "by none": Choice(
            right="f",
            options={
                "a": "The third check catches it: the first output is not the first value.",
                **dict.fromkeys("bcde", "That one leaks, so the first two laws catch it."),
                "f": "Divided by the sum of what is left, the weights are right again.",
            },
        ),
    }
)

# --- 8: a function --------------------------------------------------------------------------------


def scaled(Q: np.ndarray, K: np.ndarray) -> np.ndarray:
    return Q @ K.T / np.sqrt(Q.shape[1])


def masked_with(make_mask: Callable, *, fill: float = -np.inf) -> Callable:
    """Return attention with a mask that is not the causal one, or with another fill."""

    def attention(Q, K, V):
        return softmax(np.where(make_mask(len(Q)), scaled(Q, K), fill)) @ V

    return attention


def with_scale(factor: Callable[[int, int], float]) -> Callable:
    """Return causal attention with a scale of its own, made from width and length."""
    return lambda Q, K, V: causal_attention(Q, K, V, scale=factor(Q.shape[1], len(Q)))


def softmax_over_queries(Q, K, V):
    return softmax(np.where(causal_mask(len(Q)), scaled(Q, K), -np.inf), axis=0) @ V


def zeros_after_softmax(Q, K, V):
    return softmax(scaled(Q, K)) * causal_mask(len(Q)) @ V


def nan_from_infinity(Q, K, V):
    return softmax(scaled(Q, K) + np.where(causal_mask(len(Q)), 1.0, 0.0) * -np.inf) @ V


def nan_leaks(attention: Callable) -> bool:
    """Return whether a NaN in the last value reaches an earlier output."""
    values = V.astype(float)
    values[2] = np.nan
    return bool(np.isnan(attention(Q, K.astype(float), values)[:2]).any())


def sequences_to_try() -> list[tuple]:
    """Return small sequences whose sizes all differ, then the running example."""
    sizes = ((2, 1, 3), (3, 5, 2), (4, 3, 5))
    small = [drawn((m, E), (m, E), (m, Ev), seed=m) for m, E, Ev in sizes]
    return [*small, (Q, K.astype(float), V.astype(float))]


WRITE_IT = Function(
    right=causal_attention,
    call="attention(Q, K, V)",
    inputs=sequences_to_try,
    checked=(
        "Four sequences agree with the library, and the laws hold: later tokens never matter, "
        "a prefix gives the prefix of the output."
    ),
    slips={
        "Nothing is masked.": dense_attention,
        "The mask is inverted: np.where(mask, scores, -inf) keeps what is True.": masked_with(
            lambda m: ~causal_mask(m)
        ),
        "The diagonal is masked: a token sees itself.": masked_with(
            lambda m: np.tri(m, k=-1, dtype=bool)
        ),
        "One key too many is seen, to the right of the diagonal.": masked_with(
            lambda m: np.tri(m, k=1, dtype=bool)
        ),
        "The mask is transposed: rows are queries, columns are keys.": masked_with(
            lambda m: causal_mask(m).T
        ),
        "You masked after the softmax: the rows no longer sum to 1.": zeros_after_softmax,
        "Masked scores are set to 0, and e⁰ is 1: use −inf.": masked_with(causal_mask, fill=0.0),
        "−inf times 0 is NaN: put −inf in by selection, np.where.": nan_from_infinity,
        "The softmax runs over the queries; it must run over the keys, axis 1.": (
            softmax_over_queries
        ),
        "You forgot the scale.": with_scale(lambda d, m: 1.0),
        "You multiplied by √d instead of dividing.": with_scale(lambda d, m: np.sqrt(d)),
        "You divided by d instead of √d, as if the scale were applied twice.": with_scale(
            lambda d, m: 1 / d
        ),
        "You took the root of the length; the scale belongs to the width of the query.": (
            with_scale(lambda d, m: 1 / np.sqrt(m))
        ),
        "You used the keys in place of the queries.": lambda Q, K, V: causal_attention(K, K, V),
        "You averaged the values so far: nothing depends on the query.": with_scale(
            lambda d, m: 0.0
        ),
    },
    laws={"kind": "attention", "promises": ("causal",)},
    remarks={
        "A NaN in a later value still leaks, since 0 · NaN is NaN: the library multiplies what is "
        "visible only.": nan_leaks,
    },
)

EXERCISES = {
    1: A_WEIGHTED_SUM,
    2: FILL_THE_TRIANGLE,
    3: INFLUENCE,
    4: FIND_THE_LEAK,
    5: MASK,
    6: SCALE_OF_ZERO,
    7: MISTAKES,
    8: WRITE_IT,
}
