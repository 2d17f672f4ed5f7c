"""Exercises of chapter 8, masks in practice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attnlib.causal import causal_mask
from attnlib.functional import scaled_dot_product_attention
from attnlib.single_query import softmax
from attnlib.teaching.exercises.kinds import Choice, Function, Numbers, Parts, rows_sum_to_one
from attnlib.teaching.exercises.running_example import SHARES, K, Q, V, drawn

# --- 1: padding in the middle ---------------------------------------------------------------------

ROWS = [0, 3, 2]  # row 3 is the padding


def with_zeros(rows: np.ndarray) -> np.ndarray:
    return np.vstack([rows, np.zeros(rows.shape[1])])[ROWS]


def sentence_c(*, real: list[bool], scale: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and weights of the two tokens, the padding's own query left out."""
    q, k, v = (with_zeros(rows) for rows in (Q, K, V))
    both = scaled_dot_product_attention(
        q, k, v, key_mask=np.array(real), scale=scale, return_weights=True
    )
    return both[0][::2], both[1][::2]


MASKED, UNMASKED = {"real": [True, False, True]}, {"real": [True, True, True]}

IN_THE_MIDDLE = Parts(
    {
        "weights": Numbers(
            right=lambda: sentence_c(**MASKED)[1][:, ::2],
            checked="Shares 1, 2 and 1, 3, divided by their sums.",
            slips={
                "You forgot the scale.": lambda: sentence_c(**MASKED, scale=1.0)[1][:, ::2],
                "The padding still takes part in the sum.": (
                    lambda: sentence_c(**UNMASKED)[1][:, ::2]
                ),
                "These are the shares: divide them by their sums.": lambda: SHARES[::2, ::2],
            },
            laws=[rows_sum_to_one],
        ),
        "with the mask": Numbers(
            right=lambda: sentence_c(**MASKED)[0],
            checked="The two values, mixed with these weights.",
            slips={
                "That is without a mask: the padding takes part.": (
                    lambda: sentence_c(**UNMASKED)[0]
                ),
                "Between them stands token 1 of sentence A here; sentence C has padding there.": (
                    lambda: scaled_dot_product_attention(Q, 1.0 * K, 1.0 * V)[::2]
                ),
            },
        ),
        "without a mask": Numbers(
            right=lambda: sentence_c(**UNMASKED)[0],
            checked="The padding has a share of 1, and a value of zeros.",
            slips={
                "That is with the mask.": lambda: sentence_c(**MASKED)[0],
                "A score of 0 is a share of 1, not of 0, but its value is zeros.": (
                    lambda: sentence_c(**MASKED)[1] @ with_zeros(V) / 2
                ),
            },
        ),
    }
)

# --- 2: count the empty rows ----------------------------------------------------------------------

LENGTHS = np.array([5, 3, 0])[:, np.newaxis]
ON_THE_RIGHT, ON_THE_LEFT = np.arange(5) < LENGTHS, np.arange(5) >= 5 - LENGTHS


def empty(real: np.ndarray, *, counted: np.ndarray | None = None, causal: bool = True) -> int:
    """Return how many rows see nothing, of those that are counted."""
    seen = (causal_mask(5) if causal else True) & real[:, np.newaxis, :]
    rows = ~seen.any(axis=2)
    return int(np.sum(rows if counted is None else rows & counted))


EMPTY_ROWS = Numbers(
    right=lambda: [empty(ON_THE_RIGHT), empty(ON_THE_LEFT)],
    checked="The sequence without tokens has five on either side; on the left, two more.",
    digits=0,
    slips={
        "These are exchanged: on the left, padding comes before every token.": (
            lambda: [empty(ON_THE_LEFT), empty(ON_THE_RIGHT)]
        ),
        "You counted all rows of padding. Behind the tokens, padding sees them.": (
            lambda: [np.sum(~ON_THE_RIGHT), np.sum(~ON_THE_LEFT)]
        ),
        "You left out the sequence without tokens.": (
            lambda: [empty(ON_THE_RIGHT[:2]), empty(ON_THE_LEFT[:2])]
        ),
        "You forgot that attention is causal.": (
            lambda: [empty(ON_THE_RIGHT, causal=False), empty(ON_THE_LEFT, causal=False)]
        ),
        "Queries of padding count, too.": (
            lambda: [
                empty(ON_THE_RIGHT, counted=ON_THE_RIGHT),
                empty(ON_THE_LEFT, counted=ON_THE_LEFT),
            ]
        ),
    },
)

# --- 3: corners -----------------------------------------------------------------------------------


def corners(*, diagonal: int = 0) -> list[int]:
    """Return the pairs of the four masks a to d."""
    sizes = [(2, 5), (5, 2)]
    return [
        int(causal_mask(m, n, offset=max(offset + diagonal, -m)).sum())
        for m, n in sizes
        for offset in (0, n - m)
    ]


CORNERS = Parts(
    {
        "pairs": Numbers(
            right=corners,
            checked="3 and 9, then the other way round.",
            digits=0,
            slips={
                "You left the diagonal out: a query sees its own position.": (
                    lambda: corners(diagonal=-1)
                ),
                "One key too many in each row: j ≤ i + offset.": lambda: corners(diagonal=1),
                "You counted all pairs.": lambda: [10, 10, 10, 10],
                "That is the bottom right before the top left.": (
                    lambda: [corners()[place] for place in (1, 0, 3, 2)]
                ),
            },
        ),
        "continued": Choice(
            right="b",
            options={
                "a": "That takes the new tokens for tokens 0 and 1.",
                "b": "Three tokens come before the first new one: the offset is 3.",
                "c": "The two new tokens are the queries: m is 2.",
                "d": "The two new tokens are the queries: m is 2.",
            },
        ),
    }
)

# --- 4: translate ---------------------------------------------------------------------------------


def may_attend(blocked: np.ndarray, padding: np.ndarray) -> np.ndarray:
    """Return which pairs may meet, from two masks in which True hides."""
    return ~(blocked | padding[:, np.newaxis, :])


def masks_to_try() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a small causal mask with one padded key, then two of other sizes."""
    cases = [(~causal_mask(2, 3, offset=1), np.array([[False, False, True], [True, False, False]]))]
    for B, m, n in ((3, 4, 5), (4, 2, 3)):
        drawn_masks = drawn((m, n), (B, n), seed=m)
        cases.append(tuple(mask > 0 for mask in drawn_masks))
    return cases


TRANSLATE = Function(
    right=may_attend,
    call="may_attend(blocked, padding)",
    inputs=masks_to_try,
    checked="Three pairs of masks, each pair of the batch at its own place.",
    slips={
        "This is what is hidden. Flip it: True = may attend.": (
            lambda blocked, padding: blocked | padding[:, np.newaxis, :]
        ),
        "A pair is hidden if one mask or the other hides it, not only if both do.": (
            lambda blocked, padding: ~(blocked & padding[:, np.newaxis, :])
        ),
        "You flipped only one of the two masks.": (
            lambda blocked, padding: ~blocked & padding[:, np.newaxis, :]
        ),
        "You flipped only one of them; the other hides where it is True, too.": (
            lambda blocked, padding: blocked & ~padding[:, np.newaxis, :]
        ),
        "The padding is missing.": (
            lambda blocked, padding: ~blocked & np.ones((len(padding), 1, 1), bool)
        ),
    },
)

# --- 5: the mean of a sentence --------------------------------------------------------------------


def sentence_b() -> np.ndarray:
    """Return the three rows of output of the padded sentence B, with the key mask."""
    q, k, v = (np.vstack([rows[:2], np.zeros(rows.shape[1])]) for rows in (Q, K, V))
    return scaled_dot_product_attention(q, k, v, key_mask=np.array([True, True, False]))


MEAN = Parts(
    {
        "over all rows": Numbers(
            right=lambda: sentence_b().mean(axis=0),
            checked="The padding's row [2, 1] is among them.",
            slips={
                "That is right for the sentence; what does the mean over three rows give?": (
                    lambda: sentence_b()[:2].mean(axis=0)
                ),
                "The third row is not zeros: a query of zeros weighs both tokens alike.": (
                    lambda: sentence_b()[:2].sum(axis=0) / 3
                ),
            },
        ),
        "over the tokens": Numbers(
            right=lambda: sentence_b()[:2].mean(axis=0),
            checked="The two rows that stand for tokens.",
            slips={
                "The padding's row is still among them.": lambda: sentence_b().mean(axis=0),
                "That is the mean of the values, not of the outputs.": lambda: V[:2].mean(axis=0),
                "Divide by the number of tokens, 2.": lambda: sentence_b()[:2].sum(axis=0) / 3,
            },
        ),
    }
)

# --- 6: padded or packed --------------------------------------------------------------------------

COUNTS = [5, 3, 2]
REAL = np.arange(5) < np.array(COUNTS)[:, np.newaxis]
TEXT = np.repeat([0, 1, 2], COUNTS)
OWN = TEXT[:, np.newaxis] == TEXT
IN_BATCH = causal_mask(5) & REAL[:, np.newaxis, :]


def pairs(padded: object, packed: object = None, across: object = None) -> Callable[[], list[int]]:
    """Return the three numbers, with the right ones where nothing is given."""
    own, other = causal_mask(10) & OWN, causal_mask(10) & ~OWN
    chosen = (padded, own if packed is None else packed, other if across is None else across)
    return lambda: [int(np.sum(mask)) for mask in chosen]


PADDED_OR_PACKED = Numbers(
    right=pairs(IN_BATCH),
    checked="Packed, fewer pairs than padded; with the mask forgotten, more than twice as many.",
    digits=0,
    slips={
        "The key mask takes pairs away in the padded batch.": pairs([causal_mask(5).sum() * 3]),
        "Queries of padding count, too, in the padded batch.": pairs(
            IN_BATCH & REAL[:, :, np.newaxis]
        ),
        "Without the mask all causal pairs are seen; how many of them connect two texts?": pairs(
            IN_BATCH, across=causal_mask(10)
        ),
        "You forgot that attention is causal.": pairs(REAL.sum() * 5, OWN, ~OWN),
    },
)

# --- 7: how low is low ----------------------------------------------------------------------------

ROW = np.array([-12.0, -11.0, 0.0])
# So far below the other a score has a weight of 0: half of the smallest number rounds to it.
FAR, FAR_IN_FLOAT32 = (math.ceil(bits * math.log(2)) for bits in (1075, 150))


def hidden_by(amount: float) -> np.ndarray:
    return softmax(ROW + np.array([0.0, 0.0, amount]))


HOW_LOW = Parts(
    {
        "added": Numbers(
            right=lambda: hidden_by(-10),
            checked="The hidden key has the largest weight.",
            slips={
                "These are the right weights: what does adding −10 give?": (
                    lambda: hidden_by(-np.inf)
                ),
                "You left the third score as it is.": lambda: hidden_by(0),
            },
            laws=[rows_sum_to_one],
        ),
        "right": Numbers(
            right=lambda: hidden_by(-np.inf),
            checked="Two keys, one apart.",
            slips={"The third key still takes part.": lambda: hidden_by(-10)},
            laws=[rows_sum_to_one],
        ),
        "bound": Numbers(
            right=lambda: -FAR - 100,
            checked="746 below the largest visible score, which may be 100 below the hidden one.",
            digits=0,
            slips={
                "The hidden score may itself stand 100 above the largest visible one.": (
                    lambda: -FAR
                ),
                "The 100 have to be added to the 746, not taken away.": lambda: 100 - FAR,
                "The sign: what is added must be negative.": lambda: FAR + 100,
                "That is for float32, where 104 are enough.": lambda: -FAR_IN_FLOAT32 - 100,
            },
        ),
    }
)

# --- 8: ask any function --------------------------------------------------------------------------


Attention = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def probed(attention: Attention) -> np.ndarray:
    """Return the weights of three equal keys when the mask has True for the first alone."""
    mask = np.array([[True, False, False]])
    return attention(np.zeros((1, 2)), np.zeros((3, 2)), np.eye(3), mask)[0]


def true_means(attention: Attention) -> str:
    """Return "may", "must not" or "neither"."""
    answers = {"may": [1, 0, 0], "must not": [0, 1 / 2, 1 / 2]}
    found = [name for name, row in answers.items() if np.allclose(probed(attention), row)]
    return found[0] if found else "neither"


def the_book_s(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return scaled_dot_product_attention(q, k, v, mask)


def flipped(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return scaled_dot_product_attention(q, k, v, ~mask)


def as_numbers(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return scaled_dot_product_attention(q, k, v, mask.astype(float))


def no_mask(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return scaled_dot_product_attention(q, k, v)


ASK = Function(
    right=true_means,
    call="true_means(attention)",
    inputs=lambda: [(one,) for one in (the_book_s, flipped, as_numbers, no_mask)],
    checked="Tried on four functions: the three, and one that does not look at the mask.",
    slips={
        "The two answers are exchanged: weight on the key with True means it may be seen.": (
            lambda attention: {"may": "must not", "must not": "may"}.get(
                true_means(attention), "neither"
            )
        ),
        "What is not one of the two is not yet the other: a mask may be a mere bias.": (
            lambda attention: "may" if true_means(attention) == "may" else "must not"
        ),
        "A key with some weight is not yet the only one seen: look at the others, too.": (
            lambda attention: "may" if probed(attention)[0] > 0 else "must not"
        ),
    },
)

EXERCISES = {
    1: IN_THE_MIDDLE,
    2: EMPTY_ROWS,
    3: CORNERS,
    4: TRANSLATE,
    5: MEAN,
    6: PADDED_OR_PACKED,
    7: HOW_LOW,
    8: ASK,
}
