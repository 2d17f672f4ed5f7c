"""Exercises of chapter 6, gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlib.causal import causal_attention, causal_mask
from attnlib.gradients import attention_gradients, softmax_jacobian
from attnlib.single_query import attention_steps, softmax
from attnlib.teaching import zoo
from attnlib.teaching.exercises.kinds import Choice, Function, Numbers, Parts, Statement
from attnlib.teaching.exercises.kinds.answers import shown
from attnlib.teaching.exercises.running_example import K, Q, V, drawn


def sums_to_zero(numbers: np.ndarray) -> str | None:
    """Laws 6.1 and 6.2, for a Jacobian and for the slopes of a row of scores."""
    for i, total in enumerate(np.atleast_2d(numbers).sum(axis=1)):
        if abs(total) > 5e-3:
            law = "Each row of a Jacobian sums to 0 (Law 6.1)" if numbers.ndim == 2 else None
            law = law or "The slopes of one row of scores sum to 0 (Law 6.2)"
            row = f"row {i} sums" if numbers.ndim == 2 else "yours sum"
            return f"{law}; {row} to {shown(total)}."
    return None


# --- 1: a Jacobian --------------------------------------------------------------------------------

EVEN = np.array([1, 2, 1]) / 4


def sixteenths(jacobian: np.ndarray) -> np.ndarray:
    return 16 * jacobian


A_JACOBIAN = Numbers(
    right=lambda: sixteenths(softmax_jacobian(EVEN)),
    checked="Symmetric, and each row sums to 0.",
    digits=0,
    slips={
        "Those are fractions; in sixteenths the numbers are whole.": (
            lambda: softmax_jacobian(EVEN)
        ),
        "You subtracted nothing: this is the diagonal alone.": (lambda: sixteenths(np.diag(EVEN))),
        "The diagonal is missing: this is the table of products, without its sign.": (
            lambda: sixteenths(np.outer(EVEN, EVEN))
        ),
        "The diagonal is missing: add the weights there.": (
            lambda: sixteenths(-np.outer(EVEN, EVEN))
        ),
        "You added the products: they are subtracted.": (
            lambda: sixteenths(np.diag(EVEN) + np.outer(EVEN, EVEN))
        ),
        "All signs are turned.": lambda: sixteenths(-softmax_jacobian(EVEN)),
        "On the diagonal the square is missing: α − α².": (
            lambda: sixteenths(np.diag(EVEN) - np.outer(EVEN, EVEN) * (1 - np.eye(3)))
        ),
    },
    laws=[sums_to_zero],
)

# --- 2: zero or not -------------------------------------------------------------------------------

ZERO_OR_NOT = Parts(
    {
        "(a)": Statement(
            right=True,
            because="A mixture of equal values is that value (Law 1.3).",
            hint="Does the output move when only the weights do?",
        ),
        "(b)": Statement(
            right=False,
            because="A value that moves takes the output with it.",
            hint="The values are equal now, but here one of them moves.",
        ),
        "(c)": Statement(
            right=True,
            because="All scores of a row stay equal, so no weight moves.",
            hint="What do the scores of one query do when the query moves?",
        ),
        "(d)": Statement(
            right=False,
            because="One key leaves the others, and its score with it.",
            hint="Here a single key moves, and the others stay.",
        ),
        "(e)": Statement(
            right=True,
            because="A masked pair has weight 0, so its score has slope 0 (Law 6.4).",
            hint="What is its weight for each of the queries?",
        ),
    }
)

# --- 3: another report ----------------------------------------------------------------------------

WEIGHTS = attention_steps(Q[2], K, V).weights
REPORT = np.array([1, 1])


def d_weights() -> np.ndarray:
    return V @ REPORT


def mean_slope() -> float:
    return float(WEIGHTS @ d_weights())


def d_scores() -> np.ndarray:
    return WEIGHTS * (d_weights() - mean_slope())


WRONG_SLOPES: dict[str, Callable[[], np.ndarray]] = {
    "The mean is forgotten: subtract it from each slope first.": lambda: WEIGHTS * d_weights(),
    "That is the plain mean; each slope counts with its weight.": (
        lambda: WEIGHTS * (d_weights() - d_weights().mean())
    ),
    "The weights are forgotten: multiply each difference by its weight.": (
        lambda: d_weights() - mean_slope()
    ),
    "All signs are turned.": lambda: -d_scores(),
}

ANOTHER_REPORT = Parts(
    {
        "dα": Numbers(
            right=d_weights,
            checked="The report times each value.",
            slips={
                "That is for the report [2, -1].": lambda: V @ [2, -1],
                "Those are the values times their weights, too: that comes later.": (
                    lambda: WEIGHTS * d_weights()
                ),
            },
        ),
        "mean": Numbers(
            right=mean_slope,
            checked="Each slope counts with its weight. It is dO · o, too.",
            slips={
                "That is the plain mean; each slope counts with its weight.": (
                    lambda: d_weights().mean()
                ),
                "That is the sum: count each slope with its weight.": lambda: d_weights().sum(),
            },
        ),
        "ds": Numbers(
            right=d_scores,
            checked="They sum to 0.",
            slips=WRONG_SLOPES,
            laws=[sums_to_zero],
        ),
        "dq": Numbers(
            right=lambda: d_scores() @ K / 2,
            checked="The keys, each with its slope, times the scale.",
            slips={
                "The scale is forgotten: times 1/2.": lambda: d_scores() @ K,
                "The scale is in there twice.": lambda: d_scores() @ K / 4,
                **{
                    says: (lambda slopes=slopes: slopes() @ K / 2)
                    for says, slopes in WRONG_SLOPES.items()
                },
            },
        ),
    }
)

# --- 4: back through softmax, in one line ---------------------------------------------------------


def back_through_softmax(weights, d_weights):
    return weights * (d_weights - weights @ d_weights)


def rows_to_try() -> list[tuple]:
    """Return weights with slopes: the running example first, then rows of other lengths."""
    example = (WEIGHTS, V @ np.array([2.0, -1]))
    pairs = [drawn((n,), (n,), seed=n) for n in (2, 5, 7)]
    return [example, *((softmax(scores), slopes) for scores, slopes in pairs)]


IN_ONE_LINE = Function(
    right=back_through_softmax,
    call="d_scores(weights, d_weights)",
    inputs=rows_to_try,
    checked="Four rows agree with the product of slopes and Jacobian.",
    slips={
        "The mean is forgotten: the slopes of one row of scores sum to 0 (Law 6.2).": (
            lambda weights, d_weights: weights * d_weights
        ),
        "That is the plain mean; in (6.4) each slope counts with its weight.": (
            lambda weights, d_weights: weights * (d_weights - d_weights.mean())
        ),
        "The weights are forgotten: multiply each difference by its weight.": (
            lambda weights, d_weights: d_weights - weights @ d_weights
        ),
        "It divides by the weights where it should multiply.": (
            lambda weights, d_weights: (d_weights - weights @ d_weights) / weights
        ),
        "All signs are turned.": lambda weights, d_weights: (
            -back_through_softmax(weights, d_weights)
        ),
        "That holds for independent entries, like a sigmoid: α(1 − α).": (
            lambda weights, d_weights: weights * (1 - weights) * d_weights
        ),
        "That is the Jacobian: multiply the slopes by it.": (
            lambda weights, d_weights: softmax_jacobian(weights)
        ),
    },
)

# --- 5: the same row added to every key -----------------------------------------------------------


def column_sum() -> float:
    """Return the largest sum of a column of dK, on a sequence of five tokens."""
    queries, keys, values, report = drawn((5, 3), (5, 3), (5, 2), (5, 2), seed=5)
    gradient = attention_gradients(queries, keys, values, report, is_causal=True).dK
    return float(np.abs(gradient.sum(axis=0)).max())


EVERY_KEY = Parts(
    {
        "sums": Numbers(
            right=column_sum,
            checked="The loss does not move when all keys move together.",
            slips={
                "Weights sum to 1. Here slopes are added, and no output changes.": (
                    lambda: WEIGHTS.sum()
                )
            },
        ),
        "with a mask": Statement(
            right=True,
            because="A mask takes keys out of a row; what is left moves together as before.",
            hint="Add a vector to all keys of a causal example and look at the outputs.",
        ),
    }
)

# --- 6: the gradient of the scale -----------------------------------------------------------------

REPORTS = np.array([[1, 1], [0, 3], [2, -1]])


def slopes_of_scores(reports: np.ndarray) -> np.ndarray:
    """Return dS of the causal running example."""
    scores = np.where(causal_mask(len(Q)), Q @ K.T / 2, -np.inf)
    weights = softmax(scores)
    slopes = reports @ V.T
    return weights * (slopes - np.sum(weights * slopes, axis=1, keepdims=True))


def scale_slope(*, factor: float = 1.0) -> float:
    return float(np.sum(slopes_of_scores(REPORTS) * (Q @ K.T))) * factor


GRADIENT_OF_THE_SCALE = Numbers(
    right=scale_slope,
    checked="Every score moves by its dot product.",
    slips={
        "You used the scores: a score moves with the scale by its *dot product*.": (
            lambda: scale_slope(factor=0.5)
        ),
        "The sign is turned.": lambda: scale_slope(factor=-1.0),
        "That is the loss.": lambda: np.sum(causal_attention(Q, K, V) * REPORTS),
        "That is query 2 alone: query 1 hears the scale, too.": (
            lambda: np.sum(slopes_of_scores(REPORTS)[2] * (Q @ K.T)[2])
        ),
        "That is query 1 alone: query 2 hears the scale, too.": (
            lambda: np.sum(slopes_of_scores(REPORTS)[1] * (Q @ K.T)[1])
        ),
    },
)

# --- 7: debug a backward pass ---------------------------------------------------------------------

FOUND = {
    "a": "With (a) the rows of dS sum to something else, and masked pairs stay at zero.",
    "b": "With (b) a factor is wrong, which neither row sums nor zeros show.",
    "c": "With (c) the rows of dS still sum to 0, but later keys receive something.",
    "d": "With (d) the vector is wrong, which neither row sums nor zeros show.",
}

DEBUG_A_BACKWARD_PASS = Parts(
    {
        "row sums": Choice(right="a", options=FOUND),
        "report on query 1": Choice(right="c", options=FOUND),
        "small steps": Numbers(
            right=lambda: len(FOUND),
            checked="They compare with a right result, so nothing escapes.",
            digits=0,
            slips={
                "Small steps find those two as well: they compare all numbers.": (
                    lambda: len(FOUND) - 2
                )
            },
        ),
    }
)

# --- 8: a key for two heads -----------------------------------------------------------------------


A_KEY_FOR_TWO_HEADS = Function(
    right=lambda dK: np.sum(dK, axis=0),
    call="shared(dK)",
    inputs=lambda: [drawn((h, n, E), seed=h) for h, n, E in ((2, 3, 4), (3, 5, 2))],
    checked="Two heads and three heads agree: what several paths bring is added.",
    slips={
        "The mean is too small by the number of heads: slopes of several paths add up.": (
            lambda dK: np.mean(dK, axis=0)
        ),
        "That is the first head alone.": lambda dK: dK[0],
        "You added up the keys: the heads are axis 0.": lambda dK: np.sum(dK, axis=1),
        "You added up the features: the heads are axis 0.": lambda dK: np.sum(dK, axis=2),
        "You added up everything: one slope for each entry of the key is wanted.": np.sum,
        "You took the larger one: both heads count.": lambda dK: np.max(dK, axis=0),
    },
)

# --- 9: let the query learn -----------------------------------------------------------------------


def trained(*, step: float = 0.5, steps: int = 400, scale: float = 0.5) -> tuple[float, np.ndarray]:
    """Return the loss and the weights after these steps against the gradient.

    `scale` is the factor that the gradient is given; the scores have theirs in any case.
    """
    query, slopes = Q[2].copy(), V @ np.array([2.0, -1])
    for _ in range(steps):
        weights = softmax(query @ K.T / 2)
        query -= step * scale * (slopes @ softmax_jacobian(weights)) @ K
    weights = softmax(query @ K.T / 2)
    return float(weights @ slopes), weights


LET_THE_QUERY_LEARN = Parts(
    {
        "loss": Numbers(
            right=lambda: trained()[0],
            checked="It creeps towards 0, the smallest of the three.",
            digits=3,
            slips={
                "The query goes with the slope: subtract it.": lambda: trained(step=-0.5)[0],
                "That is the loss before the first step.": lambda: trained(steps=0)[0],
                "Two factors of 1/2 are wanted, the step and the scale in dq.": (
                    lambda: trained(step=1.0)[0]
                ),
                "The scale and the step are forgotten: each is 1/2.": (
                    lambda: trained(step=1.0, scale=1.0)[0]
                ),
            },
        ),
        "token": Numbers(
            right=lambda: np.argmin(V @ [2, -1]),
            checked="Its value gives the smallest loss.",
            digits=0,
            slips={
                "That value gives the largest loss.": lambda: np.argmax(V @ [2, -1]),
                "That is where the weight was before.": lambda: np.argmax(WEIGHTS),
            },
        ),
    }
)

# --- 10: a function -------------------------------------------------------------------------------


def backward_with(
    d_scores: Callable = lambda P, dP: P * (dP - np.sum(P * dP, axis=1, keepdims=True)),
    finish: Callable = lambda dQ, dK, dV: (dQ, dK, dV),
    *,
    scaled: bool = True,
) -> Callable:
    """Return the backward pass with one of its equations exchanged for another."""

    def gradients(Q, K, V, grad_output):
        scale = 1 / np.sqrt(Q.shape[1])
        P = softmax(Q @ K.T * scale)
        dS = d_scores(P, grad_output @ V.T) * (scale if scaled else 1)
        return finish(dS @ K, dS.T @ Q, P.T @ grad_output)

    return gradients


def reports_to_try() -> list[tuple]:
    """Return small queries, keys, values and reports whose sizes all differ."""
    sizes = ((1, 2, 3, 4), (2, 3, 4, 1), (4, 3, 5, 2))
    return [drawn((L, E), (S, E), (S, Ev), (L, Ev), seed=L + S) for L, S, E, Ev in sizes]


WRITE_IT = Function(
    right=lambda Q, K, V, grad_output: attention_gradients(Q, K, V, grad_output),
    call="gradients(Q, K, V, grad_output)",
    inputs=reports_to_try,
    checked="Three sets of gradients agree, and each is the slope of the loss.",
    slips={
        "Softmax's row sum is missing in dS: a weight that grows takes from the others.": (
            zoo.row_sum_forgotten
        ),
        "dQ and dK lack the scale: the scores had it.": zoo.gradient_scale_forgotten,
        "dS is dP: the softmax is left out on the way back.": backward_with(lambda P, dP: dP),
        "The sum in dS runs over the queries; it belongs to one query, a row.": backward_with(
            lambda P, dP: P * (dP - np.sum(P * dP, axis=0, keepdims=True))
        ),
        "The mean in dS is not weighted: multiply dP by P before you add.": backward_with(
            lambda P, dP: P * (dP - dP.mean(axis=1, keepdims=True))
        ),
        "All signs are turned: these lead away from the loss.": backward_with(
            finish=lambda dQ, dK, dV: (-dQ, -dK, -dV)
        ),
        "You return dK, dQ, dV: the order is that of the arguments.": backward_with(
            finish=lambda dQ, dK, dV: (dK, dQ, dV)
        ),
    },
    laws={"kind": "gradients"},
)

EXERCISES = {
    1: A_JACOBIAN,
    2: ZERO_OR_NOT,
    3: ANOTHER_REPORT,
    4: IN_ONE_LINE,
    5: EVERY_KEY,
    6: GRADIENT_OF_THE_SCALE,
    7: DEBUG_A_BACKWARD_PASS,
    8: A_KEY_FOR_TWO_HEADS,
    9: LET_THE_QUERY_LEARN,
    10: WRITE_IT,
}
