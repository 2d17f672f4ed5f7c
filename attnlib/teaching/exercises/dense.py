"""Exercises of chapter 3, dense attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from attnlib.causal import causal_mask
from attnlib.dense import causal_pairs, dense_attention, effective_keys
from attnlib.single_query import attention_steps, softmax
from attnlib.teaching.exercises.kinds import (
    Function,
    Numbers,
    Parts,
    Statement,
    inside,
    rows_sum_to_one,
)
from attnlib.teaching.exercises.running_example import SHARES, K, Q, V, drawn

# --- 1: all pairs by hand -------------------------------------------------------------------------

FOURTH = np.log([5, 2, 5, 2])

ALL_PAIRS = Parts(
    {
        "weights": Numbers(
            right=lambda: attention_steps(FOURTH, K, V).weights,
            checked="Shares 1, 5, 2 of 8.",
            slips={
                "You forgot the scale.": lambda: attention_steps(FOURTH, K, V, scale=1).weights,
                "These are the shares: divide them by their sum.": (
                    lambda: np.exp(attention_steps(FOURTH, K, V).scores)
                ),
                "Key 0 has the score 0 and so the share e⁰ = 1: it counts.": (
                    lambda: np.array([0, 5, 2]) / (5 + 2)
                ),
            },
            laws=[rows_sum_to_one],
        ),
        "output": Numbers(
            right=lambda: dense_attention([FOURTH], K, V)[0],
            checked="The values, mixed with these weights.",
            slips={
                "You forgot the scale.": lambda: dense_attention([FOURTH], K, V, scale=1)[0],
                "You added the values times their shares: divide by the sum of the shares.": (
                    lambda: np.exp(attention_steps(FOURTH, K, V).scores) @ V
                ),
                "Key 0 has the score 0 and so the share e⁰ = 1: it counts.": (
                    lambda: np.array([5, 2]) @ V[1:] / (5 + 2)
                ),
                "You took the plain mean of the values.": lambda: V.mean(axis=0),
            },
            laws=[inside(V)],
        ),
    }
)

# --- 2: count before you run ----------------------------------------------------------------------

CAUSAL = causal_mask(8)
BACK = np.arange(8)[:, np.newaxis] - np.arange(8)  # how far key j lies behind query i


def counted(cells: np.ndarray, checked: str, slips: dict[str, Callable]) -> Numbers:
    """Return the exercise of counting these cells."""
    return Numbers(right=cells.sum, checked=checked, slips=slips, digits=0)


COUNT = Parts(
    {
        "causal": counted(
            CAUSAL,
            "Half of the square and half of the diagonal.",
            {
                "You counted all pairs.": lambda: CAUSAL.size,
                "You left the diagonal out: a token sees itself.": lambda: (BACK > 0).sum(),
                "That is half of the square. The diagonal is not cut in half.": (
                    lambda: CAUSAL.size / 2
                ),
            },
        ),
        "bidirectional": counted(
            np.ones((8, 8), bool),
            "Every token sees every token.",
            {"These are the causal pairs; here no pair is left out.": CAUSAL.sum},
        ),
        "cross": counted(
            np.ones((8, 5), bool),
            "Each query meets each key.",
            {
                "You counted the queries twice; there are only 5 keys.": lambda: 8 * 8,
                "You added. Each of the 8 queries meets each of the 5 keys.": lambda: 8 + 5,
            },
        ),
        "window": counted(
            CAUSAL & (BACK < 3),
            "3 a token, but for the first two.",
            {
                "The first two tokens see fewer than 3 keys.": lambda: 3 * 8,
                "A window of 3 is the token itself and two before it.": (
                    (CAUSAL & (BACK <= 3)).sum
                ),
                "The token itself belongs to the window.": (CAUSAL & (BACK < 3) & (BACK > 0)).sum,
            },
        ),
        "stride": counted(
            CAUSAL & (BACK % 4 == 0),
            "One key, then two from token 4 on.",
            {
                "m²/(2s) is about right for long sequences; count the cells.": (
                    lambda: 8 * 8 / (2 * 4)
                ),
                "A token sees itself, 0 steps back, too.": (
                    (CAUSAL & (BACK % 4 == 0) & (BACK > 0)).sum
                ),
                "You forgot that attention is causal.": (BACK % 4 == 0).sum,
            },
        ),
        "top-2": counted(
            CAUSAL,
            "All must be known before two can be chosen.",
            {
                "That many are kept. How many are computed before the choice?": (
                    lambda: np.minimum(CAUSAL.sum(axis=1), 2).sum()
                ),
                "That is two a token. How many are computed before the choice?": lambda: 2 * 8,
                "You forgot that attention is causal.": lambda: CAUSAL.size,
            },
        ),
    }
)

# --- 3: effective keys ----------------------------------------------------------------------------

UNEVEN = np.array([1 / 2, 1 / 4, 1 / 4])


def entropy() -> float:
    return -float(np.sum(UNEVEN * np.log(UNEVEN)))


EFFECTIVE = Parts(
    {
        "N": Numbers(
            right=lambda: effective_keys(UNEVEN),
            checked="e to the entropy.",
            slips={
                "This is the entropy. N is e to it.": entropy,
                "This is the entropy in bits. N is 2 to it.": lambda: entropy() / math.log(2),
                "With logarithms to base e, N is e to the entropy, not 2 to it.": (
                    lambda: 2 ** entropy()
                ),
                "The sign of the entropy is lost: N is at least 1.": lambda: math.exp(-entropy()),
                "This is 1 / Σ α², another measure of spread.": lambda: 1 / np.sum(UNEVEN**2),
                "3 would need equal weights.": lambda: 3,
            },
        ),
        "weights": Numbers(
            right=lambda: 2,
            checked="As spread out as two equal keys.",
            through=effective_keys,
            shape=(3,),
            slips={
                "Three equal weights have 3 effective keys.": lambda: 3,
                "With all weight on one key there is 1.": lambda: 1,
                "These are the weights of the first part.": lambda: effective_keys(UNEVEN),
            },
            laws=[rows_sum_to_one],
        ),
    }
)

# --- 4 and 5: the running softmax -----------------------------------------------------------------


def running(order: list[int], *, shrink: bool = True) -> tuple[int, Fraction, list[Fraction]]:
    """Return how often the peak moves after the first key, and t and o at the end."""
    moves, peak, total, output = -1, Fraction(0), Fraction(0), [Fraction(0)] * 2
    for j in order:
        share = Fraction(int(SHARES[2, j]))
        if share > peak:
            factor = peak / share if shrink else 1
            moves, peak = moves + 1, share
            total, output = total * factor, [entry * factor for entry in output]
        fresh = share / peak
        total += fresh
        output = [entry + fresh * int(value) for entry, value in zip(output, V[j], strict=True)]
    return moves, total, output


def as_floats(entries: list[Fraction]) -> list[float]:
    return [float(entry) for entry in entries]


RUNNING_ORDER = [2, 0, 1]

ANOTHER_ORDER = Parts(
    {
        "moves": Numbers(
            right=lambda: running(RUNNING_ORDER)[0],
            checked="The largest score came first.",
            digits=0,
            slips={
                "That is the order 0, 1, 2 of the example.": lambda: running([0, 1, 2])[0],
                "The first key sets the peak; that is not counted.": lambda: 1,
            },
        ),
        "t": Numbers(
            right=lambda: float(running(RUNNING_ORDER)[1]),
            checked="The shares, divided by the largest, 3.",
            slips={
                "These are the shares themselves. Each is divided by the peak's, 3.": (
                    lambda: SHARES[2].sum()
                ),
                "You added the first two keys only.": (
                    lambda: float(running(RUNNING_ORDER[:2])[1])
                ),
            },
        ),
        "o": Numbers(
            right=lambda: as_floats(running(RUNNING_ORDER)[2]),
            checked="The values times these.",
            slips={
                "You divided by t already: that is the output.": lambda: dense_attention(Q, K, V)[
                    2
                ],
                "You used the shares themselves. Each is divided by the peak's, 3.": (
                    lambda: SHARES[2] @ V
                ),
                "You added the first two keys only.": (
                    lambda: as_floats(running(RUNNING_ORDER[:2])[2])
                ),
            },
        ),
    }
)

Summary = tuple[float, float, np.ndarray]


def summary(q: np.ndarray, K: np.ndarray, V: np.ndarray) -> Summary:
    """Return (p, t, o) of some keys: peak, total, output not yet divided."""
    scores = K @ q / math.sqrt(len(q))
    exponentials = np.exp(scores - scores.max())
    return float(scores.max()), float(exponentials.sum()), exponentials @ V


def merged_with(peak: Callable, first_factor: Callable, second_factor: Callable) -> Callable:
    """Return a merge of two summaries; the factors take the own peak and the new one."""

    def merge(first: Summary, second: Summary) -> Summary:
        new = peak(first[0], second[0])
        a, b = first_factor(first[0], new), second_factor(second[0], new)
        return new, a * first[1] + b * second[1], a * first[2] + b * second[2]

    return merge


def shrunk(own: float, new: float) -> float:
    return np.exp(own - new)


def not_shrunk(own: float, new: float) -> float:
    return 1.0


def grown(own: float, new: float) -> float:
    return np.exp(new - own)


merge = merged_with(max, shrunk, shrunk)


def shrunk_total_only(first: Summary, second: Summary) -> Summary:
    peak, total, _ = merge(first, second)
    return peak, total, first[2] + second[2]


def shrunk_output_only(first: Summary, second: Summary) -> Summary:
    peak, _, output = merge(first, second)
    return peak, first[1] + second[1], output


def divided_already(first: Summary, second: Summary) -> Summary:
    peak, total, output = merge(first, second)
    return peak, total, output / total


def halves_to_try() -> list[tuple[Summary, Summary]]:
    """Return pairs of summaries: the second peak higher, then the first, then far apart."""
    pairs = []
    for E, S, Ev, cut in ((1, 2, 3, 1), (3, 5, 2, 2), (5, 9, 2, 4)):
        q, K, V = drawn((E,), (S, E), (S, Ev), seed=E)
        halves = summary(q, K[:cut], V[:cut]), summary(q, K[cut:], V[cut:])
        pairs += [halves, halves[::-1]]
    low, high = (1.0, 1.5, np.array([0.5])), (1000.0, 2.5, np.array([2.0]))
    return [*pairs, (low, high), (high, low)]


TWO_HALVES = Function(
    right=merge,
    call="merge(first, second)",
    inputs=halves_to_try,
    checked="Three splits agree, each half first once, and peaks of 1 and 1000 do not overflow.",
    slips={
        "You forgot the factors: each side was measured from its own peak.": merged_with(
            max, not_shrunk, not_shrunk
        ),
        "The factors are the wrong way round: each side must shrink, e to p − p′.": merged_with(
            max, grown, grown
        ),
        "You shrink the first side only; its peak may be the higher one.": merged_with(
            max, shrunk, not_shrunk
        ),
        "You shrink the second side only; its peak may be the higher one.": merged_with(
            max, not_shrunk, shrunk
        ),
        "You took the smaller peak: right on paper, but the factors overflow.": merged_with(
            min, shrunk, shrunk
        ),
        "Peaks do not add up: the new one is the larger of the two.": merged_with(
            lambda a, b: a + b, shrunk, shrunk
        ),
        "t has its factors, o does not.": shrunk_total_only,
        "o has its factors, t does not.": shrunk_output_only,
        "You divided o by t already; the next merge needs it undivided.": divided_already,
    },
)

# --- 6 and 7: memory and work ---------------------------------------------------------------------


def longest(
    gibibytes: float, *, heads: int = 12, size: int = 4, unit: int = 2**30, up: int = 0
) -> int:
    return math.isqrt(int(gibibytes * unit) // (size * heads)) + up


def both(**changed: int) -> Callable[[], list[int]]:
    return lambda: [longest(gibibytes, **changed) for gibibytes in (8, 16)]


HOW_LONG = Numbers(
    right=both(),
    checked="Both lengths, rounded down; twice the memory, √2 times the length.",
    digits=0,
    slips={
        "You forgot the 12 heads.": both(heads=1),
        "A float32 has four bytes, not eight.": both(size=8),
        "You counted numbers as bytes: a float32 has four.": both(size=1),
        "A GiB is 2³⁰ bytes, not 10⁹.": both(unit=10**9),
        "You rounded up: one token more does not fit.": both(up=1),
        "Twice the memory is not twice the length: the scores grow with the square.": (
            lambda: [longest(8), 2 * longest(8)]
        ),
    },
)

SCRATCH = [causal_pairs(t) for t in range(1, 201)]
CACHED = list(range(1, 201))

STEP_AND_TOTAL = Parts(
    {
        "from scratch": Numbers(
            right=lambda: [SCRATCH[-1], sum(SCRATCH)],
            checked="Last step, and all of them.",
            digits=0,
            slips={
                "You counted all pairs of each step; attention is causal.": (
                    lambda: [200**2, sum(t**2 for t in CACHED)]
                ),
                "The earlier steps are shorter: add up over t.": (
                    lambda: [SCRATCH[-1], 200 * SCRATCH[-1]]
                ),
                "These are the numbers with a cache.": lambda: [CACHED[-1], sum(CACHED)],
            },
        ),
        "with a cache": Numbers(
            right=lambda: [CACHED[-1], sum(CACHED)],
            checked="One row a step.",
            digits=0,
            slips={
                "The earlier steps are shorter: add up over t.": lambda: [200, 200 * 200],
                "The new token sees itself, too: t scores in step t.": (
                    lambda: [199, sum(range(200))]
                ),
                "These are the numbers from scratch.": lambda: [SCRATCH[-1], sum(SCRATCH)],
            },
        ),
        "fair": Statement(
            right=False,
            because="One step and a whole run are unlike things.",
            hint="One side is a single step, the other a whole run.",
        ),
    }
)

# --- 8: stacked windows ---------------------------------------------------------------------------


def known(layers: int, window: int, position: int = 15) -> np.ndarray:
    """Return the positions that the output at a position knows of."""
    i, j = np.arange(16)[:, np.newaxis], np.arange(16)
    sees = ((j <= i) & (i - j < window)).astype(int)
    return np.flatnonzero(np.linalg.matrix_power(sees, layers)[position])


def reach(layers: int, window: int) -> int:
    return layers * (window - 1)


STACKED = Parts(
    {
        "positions": Numbers(
            right=lambda: known(4, 3),
            checked="Two more from each layer.",
            digits=0,
            slips={
                "That is one layer. What do those positions know already?": lambda: known(1, 3),
                "Each layer adds w − 1 positions: one of the window is the token itself.": (
                    lambda: known(4, 4)
                ),
                "Position 15 knows itself, too.": lambda: known(4, 3)[:-1],
            },
        ),
        "reach": Function(
            right=reach,
            call="reach(layers, window)",
            inputs=lambda: [(1, 1), (1, 4), (2, 3), (4, 3), (5, 7)],
            checked="Each layer adds w − 1 positions.",
            slips={
                "Each layer adds w − 1: one of the window is the token itself.": (
                    lambda layers, window: layers * window
                ),
                "You counted the position itself; how far back does it reach?": (
                    lambda layers, window: layers * (window - 1) + 1
                ),
                "The number of layers is missing.": lambda layers, window: window - 1,
                "Layers add; they do not multiply.": lambda layers, window: (window - 1) ** layers,
            },
        ),
    }
)

# --- 9: a function --------------------------------------------------------------------------------


def with_weights(make_weights: Callable) -> Callable:
    """Return attention whose weights are made from dot products and width."""
    return lambda Q, K, V: make_weights(Q @ K.T, Q.shape[1]) @ V


def pairs_to_try() -> list[tuple]:
    """Return small inputs whose sizes all differ, then the running example."""
    sizes = ((1, 2, 3, 4), (2, 3, 1, 4), (4, 3, 5, 2))
    small = [drawn((L, E), (S, E), (S, Ev), seed=L) for L, S, E, Ev in sizes]
    return [*small, (Q, K.astype(float), V.astype(float))]


WRITE_IT = Function(
    right=dense_attention,
    call="attention(Q, K, V)",
    inputs=pairs_to_try,
    checked=(
        "Four inputs agree with the library, and all laws hold that can be asked about it: "
        "weights, order of keys and queries, shifted scores, scaling."
    ),
    slips={
        "You forgot the scale.": with_weights(lambda dots, d: softmax(dots)),
        "You multiplied by √d instead of dividing.": with_weights(
            lambda dots, d: softmax(dots * np.sqrt(d))
        ),
        "You divided by d instead of √d, as if the scale were applied twice.": with_weights(
            lambda dots, d: softmax(dots / d)
        ),
        "The softmax runs over the queries; it must run over the keys, axis 1.": with_weights(
            lambda dots, d: softmax(dots / np.sqrt(d), axis=0)
        ),
        "The softmax runs over all pairs at once; it must run over the keys, axis 1.": (
            with_weights(lambda dots, d: softmax(dots.ravel() / np.sqrt(d)).reshape(dots.shape))
        ),
        "You scaled after the softmax; the scores must be scaled, not the weights.": with_weights(
            lambda dots, d: softmax(dots) / np.sqrt(d)
        ),
        "The softmax is missing.": with_weights(lambda dots, d: dots / np.sqrt(d)),
        "You took the exponentials and did not divide by their sum.": with_weights(
            lambda dots, d: np.exp(dots / np.sqrt(d))
        ),
        "You took the root of the number of keys; the scale belongs to the width.": with_weights(
            lambda dots, d: softmax(dots / np.sqrt(dots.shape[1]))
        ),
        "These are the weights. They still have to mix the values.": (
            lambda Q, K, V: softmax(Q @ K.T / np.sqrt(Q.shape[1]))
        ),
        "You masked: here every query sees every key.": (
            lambda Q, K, V: (
                softmax(
                    np.where(causal_mask(len(Q), len(K)), Q @ K.T / np.sqrt(Q.shape[1]), -np.inf)
                )
                @ V
            )
        ),
        "You averaged the values: nothing depends on the query.": (
            lambda Q, K, V: dense_attention(Q, K, V, scale=0.0)
        ),
    },
    laws={"kind": "attention"},
)

EXERCISES = {
    1: ALL_PAIRS,
    2: COUNT,
    3: EFFECTIVE,
    4: ANOTHER_ORDER,
    5: TWO_HALVES,
    6: HOW_LONG,
    7: STEP_AND_TOTAL,
    8: STACKED,
    9: WRITE_IT,
}
