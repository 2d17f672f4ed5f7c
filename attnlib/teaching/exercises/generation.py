"""Exercises of chapter 5, generation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlib.causal import causal_attention, causal_mask
from attnlib.dense import causal_pairs
from attnlib.functional import scaled_dot_product_attention
from attnlib.multi_head import merge_heads, multi_head_attention, split_heads
from attnlib.single_query import attention_steps
from attnlib.teaching import zoo
from attnlib.teaching.exercises.kinds import (
    Choice,
    Function,
    Numbers,
    Parts,
    Statement,
    inside,
    rows_sum_to_one,
)
from attnlib.teaching.exercises.running_example import K, V, drawn

# --- 1: a fourth token ----------------------------------------------------------------------------

Q_3 = np.log([2, 1, 2, 1])
KEYS, VALUES = np.vstack([K, np.ones(4)]), np.vstack([V, [0, 6]])
FOURTH = attention_steps(Q_3, KEYS, VALUES)
UNSCALED = attention_steps(Q_3, KEYS, VALUES, scale=1.0)
WITHOUT_ITSELF = attention_steps(Q_3, KEYS[:3], VALUES[:3])

A_FOURTH_TOKEN = Parts(
    {
        "weights": Numbers(
            right=lambda: FOURTH.weights,
            checked="The shares 1, 2, 1, 2, divided by their sum.",
            slips={
                "These are the shares: divide each by their sum.": lambda: np.exp(FOURTH.scores),
                "You forgot the scale: halve the dot products first.": lambda: UNSCALED.weights,
                "Token 3 is missing: it is appended before it attends.": (
                    lambda: WITHOUT_ITSELF.weights
                ),
            },
            laws=[rows_sum_to_one],
        ),
        "output": Numbers(
            right=lambda: FOURTH.output,
            checked="Four values, each with its weight.",
            slips={
                "You added the values with their shares: divide by the sum of the shares.": (
                    lambda: np.exp(FOURTH.scores) @ VALUES
                ),
                "You forgot the scale: halve the dot products first.": lambda: UNSCALED.output,
                "The value of token 3 is missing: it is appended before it attends.": (
                    lambda: WITHOUT_ITSELF.output
                ),
                "You took the plain mean: each value wants its own weight.": (
                    lambda: VALUES.mean(axis=0)
                ),
            },
            laws=[inside(VALUES)],
        ),
    }
)

# --- 2: three masks -------------------------------------------------------------------------------

CHUNKS = ((0, 3), (3, 5), (5, 6))


def wrong_masks(start: int, stop: int) -> dict[str, Callable[[], np.ndarray]]:
    """Return what to say to a wrong mask of rows start to stop - 1, and the mask."""
    rows, offset = stop - start, start
    new = causal_mask(rows, rows)
    wrong = {
        "The offset is missing: this mask begins at row 0 of the triangle.": (
            lambda: causal_mask(rows, stop)
        ),
        "The offset is one too small: a token sees itself.": (
            lambda: causal_mask(rows, stop, offset=offset - 1)
        ),
        "The offset is one too large: a token sees the one after it.": (
            lambda: causal_mask(rows, stop, offset=offset + 1)
        ),
        "The tokens in the cache are missing: they have columns, too.": lambda: new,
        "It is inverted: 1 means may attend.": (lambda: ~causal_mask(rows, stop, offset=offset)),
        "It is transposed: rows are queries, columns are keys.": (
            lambda: causal_mask(rows, stop, offset=offset).T
        ),
    }
    if rows > 2:  # with two rows it is the mask whose offset is one too large
        wrong["It hides nothing."] = lambda: np.ones((rows, stop))
    right = causal_mask(rows, stop, offset=offset)
    return {says: mask for says, mask in wrong.items() if not np.array_equal(mask(), right)}


def mask_of_rows(start: int, stop: int) -> Numbers:
    return Numbers(
        right=lambda: causal_mask(stop - start, stop, offset=start),
        checked="Rows of the triangle, as far as their keys go.",
        digits=0,
        slips=wrong_masks(start, stop),
    )


THREE_MASKS = Parts(
    {
        name: mask_of_rows(*rows)
        for name, rows in zip(("first", "second", "third"), CHUNKS, strict=True)
    }
)

# --- 3: weigh a cache -----------------------------------------------------------------------------

MIB, GIB = 2**20, 2**30


def cache_bytes(*, kinds: int = 2, layers: int = 48, number: int = 2) -> int:
    """Return the bytes of the cache of the exercise, or of one with a slip."""
    return kinds * layers * 1600 * 1024 * number


WEIGH_A_CACHE = Parts(
    {
        "MiB": Numbers(
            right=lambda: cache_bytes() / MIB,
            checked="Two rows of 1,600 numbers for each token and layer.",
            digits=0,
            slips={
                "Keys and values are two rows: the first 2 of (5.2) is missing.": (
                    lambda: cache_bytes(kinds=1) / MIB
                ),
                "A number takes two bytes, not four.": lambda: cache_bytes(number=4) / MIB,
                "Every layer keeps a cache: that is one of 48.": (
                    lambda: cache_bytes(layers=1) / MIB
                ),
                "These are bytes. A MiB has 2**20 of them.": lambda: cache_bytes(),
                "A MiB has 2**20 bytes, not a million.": lambda: cache_bytes() / 1e6,
            },
        ),
        "texts": Numbers(
            right=lambda: 16 * GIB // cache_bytes(),
            checked="As many whole texts as fit.",
            digits=0,
            slips={
                "That is one more than fit: round down.": lambda: 16 * GIB // cache_bytes() + 1,
                "Half a text does not count: round down.": lambda: 16 * GIB / cache_bytes(),
                "Keys and values are two rows: the first 2 of (5.2) is missing.": (
                    lambda: 16 * GIB // cache_bytes(kinds=1)
                ),
                "A GiB has 2**30 bytes.": lambda: 16 * 10**9 // cache_bytes(),
            },
        ),
    }
)

# --- 4: debug a cache from its symptom ------------------------------------------------------------

BUGS = {
    "a": "With (a) each row of a chunk sees all of it, and single tokens are right.",
    "b": "With (b) a text finds the tokens of another, and the first text finds none.",
    "c": "With (c) a single token sees key 0 and nothing else.",
    "d": "With (d) a later token sees the keys up to the first decoded one, not its own.",
    "e": "With (e) a token finds all but itself, and a first chunk finds nothing.",
}
DEBUG_A_CACHE = Parts(
    {
        f"symptom {number}": Choice(right=letter, options=BUGS)
        for number, letter in enumerate("cedba", start=1)
    }
)

# --- 5: other ways to grow ------------------------------------------------------------------------

STEPS = 1000


def rows_copied(grow: Callable[[int], int], *, count: str = "rows") -> int:
    """Count what is copied in 1,000 appends; `count` names what a slip counts instead."""
    room, copied = 0, 0
    for length in range(STEPS):
        if length == room:
            room = grow(room)
            copied += {"rows": length, "new room": room, "copies": min(length, 1)}[count]
    return copied


def by_100(room: int) -> int:
    return room + 100


def by_half(room: int) -> int:
    return max(16, room * 3 // 2)


def slips_of(grow: Callable[[int], int]) -> dict[str, Callable[[], int]]:
    return {
        "You counted the copies: count the rows that each of them moves.": (
            lambda: rows_copied(grow, count="copies")
        ),
        "You counted the new rooms: only the old rows are copied.": (
            lambda: rows_copied(grow, count="new room")
        ),
        "That is doubling.": lambda: rows_copied(lambda room: max(16, 2 * room)),
        "That is growing by one row each time.": lambda: rows_copied(lambda room: room + 1),
    }


OTHER_WAYS = Parts(
    {
        "by 100": Numbers(
            right=lambda: rows_copied(by_100),
            checked="Each copy moves 100 rows more than the last.",
            digits=0,
            slips=slips_of(by_100),
        ),
        "by half": Numbers(
            right=lambda: rows_copied(by_half),
            checked="More copies than with doubling, and less empty room.",
            digits=0,
            slips=slips_of(by_half),
        ),
        "which": Choice(
            right="by half",
            options={
                "by half": "What is copied stays below a multiple of the last copy.",
                "by 100": "Ten times the tokens cost it about a hundred times the copies.",
                "both": "By 100, ten times the tokens cost about a hundred times the copies.",
                "neither": "By half, the copies before the last add up to twice the last.",
            },
        ),
    }
)

# --- 6: a cache that forgets ----------------------------------------------------------------------


def forgetting(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    return with_window(2)(Q, K, V)


def with_window(left: int) -> Callable:
    """Return causal attention that sees so many tokens to the left, itself not counted."""
    return lambda Q, K, V: scaled_dot_product_attention(
        *(np.asarray(array, float) for array in (Q, K, V)), is_causal=True, window=(left, 0)
    )


def empty_rows_seen(Q, K, V):
    """Attend to all three rows of the cache from the start, those not yet written being zero."""
    keys, values = np.zeros_like(K, shape=(3, K.shape[1])), np.zeros_like(V, shape=(3, V.shape[1]))
    rows = []
    for i in range(len(Q)):
        keys[i % 3], values[i % 3] = K[i], V[i]
        rows.append(attention_steps(Q[i], keys, values).output)
    return np.array(rows)


def attend_before_append(Q, K, V):
    return np.array(
        [
            attention_steps(Q[i], K[max(0, i - 3) : i], V[max(0, i - 3) : i]).output
            for i in range(len(Q))
        ]
    )


def texts_to_try() -> list[tuple]:
    sizes = ((2, 1, 3), (5, 3, 2), (8, 2, 4))
    return [drawn((m, E), (m, E), (m, Ev), seed=m) for m, E, Ev in sizes]


A_CACHE_THAT_FORGETS = Function(
    right=forgetting,
    call="forgetting(Q, K, V)",
    inputs=texts_to_try,
    checked=(
        "Three texts agree with attention in a window of three. The rows stand in any order, "
        "and Law 1.4 says that it does not matter."
    ),
    slips={
        "Nothing is forgotten: every step sees all tokens so far.": causal_attention,
        "Rows that nobody has written yet are seen: use the filled ones alone.": empty_rows_seen,
        "The window is one too small: itself and two before it are three.": with_window(1),
        "The window is one too large: itself and two before it are three.": with_window(3),
        "The token is not in the cache when it attends: write first.": attend_before_append,
    },
)

# --- 7: when is it worth it -----------------------------------------------------------------------


def smallest(reached: Callable[[int], bool]) -> int:
    return next(m for m in range(1, 100_000) if reached(m))


def pairs_from_scratch(m: int) -> int:
    return sum(causal_pairs(i + 1) for i in range(m))


def visible_pairs(sizes: tuple[int, ...]) -> int:
    stops = np.cumsum(sizes)
    return sum(
        int(causal_mask(size, stop, offset=stop - size).sum())
        for size, stop in zip(sizes, stops, strict=True)
    )


WORTH_IT = Parts(
    {
        "smallest m": Numbers(
            right=lambda: smallest(lambda m: pairs_from_scratch(m) >= 100 * causal_pairs(m)),
            checked="The factor is (m + 2)/3.",
            digits=0,
            slips={
                "That is for more than 100: at least 100 is wanted.": (
                    lambda: smallest(lambda m: pairs_from_scratch(m) > 100 * causal_pairs(m))
                ),
                "You compared one step with one step, (i + 2)/2. Compare the sums.": (
                    lambda: smallest(lambda m: causal_pairs(m) >= 100 * m)
                ),
                "You compared all steps with the last one alone.": (
                    lambda: smallest(lambda m: pairs_from_scratch(m) >= 100 * m)
                ),
                "The factor is (m + 2)/3, not m/3.": lambda: smallest(lambda m: m >= 3 * 100),
            },
        ),
        "pairs": Numbers(
            right=lambda: visible_pairs((4, 2, 1)),
            checked="Each pair of the triangle once.",
            digits=0,
            slips={
                "Those are all pairs: a token sees no later one.": lambda: np.square(7),
                "You left out the cache: a chunk sees the tokens before it, too.": (
                    lambda: sum(causal_pairs(size) for size in (4, 2, 1))
                ),
                "Inside a chunk no token sees a later one.": (
                    lambda: 4 * 4 + 2 * (4 + 2) + 1 * (4 + 2 + 1)
                ),
                "That is without a cache: each chunk computes the triangle again.": (
                    lambda: sum(causal_pairs(stop) for stop in (4, 6, 7))
                ),
            },
        ),
        "another number": Statement(
            right=False,
            because="A pair is computed in the chunk of its query, once, however the text is cut.",
            hint="Count the visible pairs of another division, such as seven chunks of one.",
        ),
    }
)

# --- 8: two texts, one cache ----------------------------------------------------------------------

REAL = np.array([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]], bool)

TWO_TEXTS = Parts(
    {
        "key_mask": Numbers(
            right=lambda: REAL,
            checked="Only the two rows of padding are switched off.",
            digits=0,
            slips={
                "It is inverted: True is a real token.": lambda: ~REAL,
                "The new token is missing: the mask covers the cache after the append.": (
                    lambda: REAL[:, :4]
                ),
                "The padding stands on the left.": lambda: REAL[:, ::-1],
                "The long text comes first, and it has no padding.": lambda: REAL[::-1],
                "The padding is seen.": lambda: np.ones_like(REAL),
                "One row for each text: the long text has a mask, too.": lambda: REAL[1],
            },
        ),
        "offset": Numbers(
            right=lambda: REAL.shape[1] - 1,
            checked="The rows in the cache before the call, padding included.",
            digits=0,
            slips={
                "Padding counts: the offset is the number of rows in the cache.": (
                    lambda: REAL[1].sum() - 1
                ),
                "That is the length after the append.": lambda: REAL.shape[1],
                "With offset 0 the new token sees row 0 alone.": lambda: REAL.shape[1] * 0,
            },
        ),
    }
)

# --- 9: a function --------------------------------------------------------------------------------


def piece_by_piece(
    see: Callable[[int, int], np.ndarray | bool], *, forget: bool = False
) -> Callable:
    """Return heads whose tokens come in pieces; `see` makes the mask from start and end."""

    def heads(x, w_q, w_k, w_v, w_o, num_heads, lengths):
        query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
        outputs, start = [], 0
        for length in lengths:
            end = start + length
            kept = slice(start if forget else 0, end)
            visible = see(start, end)
            outputs.append(zoo.attend(query[:, start:end], key[:, kept], value[:, kept], visible))
            start = end
        return merge_heads(np.concatenate(outputs, axis=1)) @ w_o

    return heads


def counts_heads(x, w_q, w_k, w_v, w_o, num_heads, lengths):
    return zoo.cache_counts_heads(x, w_q, w_k, w_v, w_o, num_heads, chunks=lengths)


def full_pass(x, w_q, w_k, w_v, w_o, num_heads, lengths):
    return multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads, is_causal=True)


def pieces_to_try() -> list[tuple]:
    """Return small layers with the lengths in which their tokens arrive."""
    cases = []
    for (m, D, H, E), lengths in (
        ((2, 3, 1, 4), (1, 1)),
        ((4, 6, 3, 2), (1, 3)),
        ((6, 4, 2, 3), (3, 1, 2)),
    ):
        shapes = ((m, D), (D, H * E), (D, H * E), (D, H * E), (H * E, D))
        cases.append((*drawn(*shapes, seed=m, size=0.6), H, lengths))
    return cases


WRITE_IT = Function(
    right=full_pass,
    call="heads(x, w_q, w_k, w_v, w_o, num_heads, lengths)",
    inputs=pieces_to_try,
    checked="Three layers agree with the full causal pass, however their tokens arrive.",
    slips={
        "The cache counts heads where it should count tokens: look at the axis.": counts_heads,
        "The mask of a piece starts at position 0; shift it by what is in the cache.": (
            piece_by_piece(lambda start, end: np.tri(end - start, end, dtype=bool))
        ),
        "Inside a piece a token sees later ones: a piece needs its triangle.": piece_by_piece(
            lambda start, end: True
        ),
        "The cache is not read: each piece sees itself alone.": piece_by_piece(
            lambda start, end: np.tri(end - start, dtype=bool), forget=True
        ),
        "A token does not see itself: append its key and value before it attends.": (
            piece_by_piece(lambda start, end: np.tri(end - start, end, k=start - 1, dtype=bool))
        ),
        "Nothing is masked: a token sees all that comes later.": (
            lambda x, w_q, w_k, w_v, w_o, num_heads, lengths: multi_head_attention(
                x, w_q, w_k, w_v, w_o, num_heads
            )
        ),
    },
)

EXERCISES = {
    1: A_FOURTH_TOKEN,
    2: THREE_MASKS,
    3: WEIGH_A_CACHE,
    4: DEBUG_A_CACHE,
    5: OTHER_WAYS,
    6: A_CACHE_THAT_FORGETS,
    7: WORTH_IT,
    8: TWO_TEXTS,
    9: WRITE_IT,
}
