"""Exercises of chapter 4, multi-head attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attnlib.causal import causal_attention
from attnlib.dense import dense_attention
from attnlib.multi_head import merge_heads, multi_head_attention, split_heads
from attnlib.single_query import softmax
from attnlib.teaching.exercises.kinds import Choice, Function, Numbers, Order, Parts, Statement
from attnlib.teaching.exercises.running_example import SHARES, V, drawn

# --- the running example with two heads: tokens, projections, W^head ------------------------------

X = np.eye(3, 4)
INSIDE_LN = np.array([[*SHARES[:, 1:].tolist(), [1, 1]], [[1, 1], [3, 1], [1, 4], [1, 1]]])
W_Q = np.sqrt(2) * np.log(INSIDE_LN)
W_K = np.array([np.eye(4, 2, -1), np.eye(4, 2)])
W_V = np.zeros((2, 4, 2))
W_V[:, :3] = [V, [[2, 0], [0, 2], [1, 1]]]
W_O = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])


def heads(attention: Callable = dense_attention) -> np.ndarray:
    """Return the outputs of both heads."""
    return np.array([attention(X @ W_Q[j], X @ W_K[j], X @ W_V[j]) for j in range(2)])


def side_by_side(both: np.ndarray) -> np.ndarray:
    return np.concatenate(list(both), axis=1)


# --- 1 and 2: the width of a head -----------------------------------------------------------------


def width_and_scale(num_heads: int, width: int = 768) -> Numbers:
    head = width // num_heads
    return Numbers(
        right=lambda: [head, 1 / np.sqrt(head)],
        checked=f"{width} features shared by {num_heads}; one over the root of that.",
        slips={
            "The scale belongs to the width of a head, not of the model.": (
                lambda: [head, 1 / np.sqrt(width)]
            ),
            "This is the root. The scale is one over it.": lambda: [head, np.sqrt(head)],
            "The scale is one over the root of the width.": lambda: [head, 1 / head],
            "The heads share the width of the model.": lambda: [width, 1 / np.sqrt(width)],
            "That is the number of heads; how many features are left for each?": (
                lambda: [num_heads, 1 / np.sqrt(num_heads)]
            ),
        },
    )


WIDTH = Parts({"12 heads": width_and_scale(12), "8 heads": width_and_scale(8)})

TRUE_OR_FALSE = Parts(
    {
        "several heads": Statement(
            right=False,
            because="One head gives d/τ numbers; only the merged row has d.",
            hint="The heads share the width: what does one of them have?",
        ),
        "one head": Statement(
            right=True,
            because="Then d_h = d.",
            hint="With τ = 1 nothing is shared.",
        ),
    }
)

# --- 3: order the steps ---------------------------------------------------------------------------

ORDER = Order(
    steps={
        "a": "weighted sum",
        "b": "softmax",
        "c": "dot products",
        "d": "mask where needed",
        "e": "project to q, k, v",
        "f": "scale",
    },
    before={
        ("e", "c"): "Before the projection there are no queries and keys to multiply.",
        ("e", "f"): "Scaling H would scale keys and values as well as queries.",
        ("c", "d"): "A mask switches off pairs, and a pair's number is its dot product.",
        ("c", "b"): "Softmax makes weights of the pairs' numbers: they must be there.",
        ("f", "b"): "Scores are scaled. Weights that are scaled no longer sum to 1.",
        ("d", "b"): "Masking after the softmax leaves rows that do not sum to 1.",
        ("b", "a"): "The sum is weighted by what softmax gives.",
    },
    remarks={
        "ecfdba": "This is the usual order.",
        "efcdba": "The usual order scales the dot products; the query may be scaled before, as "
        "here, since (c q)·k = c (q·k).",
        "ecdfba": "The usual order scales first. To mask first is right with a positive scale, "
        "as here; a negative one would make +∞ of −∞.",
    },
)

ORDER_THE_STEPS = Parts(
    {
        "steps": ORDER,
        "merging and W^head": Choice(
            right="after",
            options={
                "before": "They work on what the heads have put out.",
                "inside": "They belong to no single head: they need the outputs of all.",
                "after": "They join what the heads have put out.",
            },
        ),
    }
)

# --- 4 and 6: merge, mix, change places -----------------------------------------------------------

BY_HAND = Numbers(
    right=lambda: (side_by_side(heads()) @ W_O)[0],
    checked="Both heads, merged in head order and multiplied by W^head.",
    slips={
        "These are the merged heads. W^head is missing.": lambda: side_by_side(heads())[0],
        "You merged head 2 first.": lambda: (side_by_side(heads()[::-1]) @ W_O)[0],
        "You averaged the heads. They stand side by side.": lambda: heads().mean(axis=0)[0],
        "You added the heads. They stand side by side.": lambda: heads().sum(axis=0)[0],
        "You multiplied by the transpose of W^head.": lambda: (side_by_side(heads()) @ W_O.T)[0],
        "You masked: token 0 saw only itself. Here it sees all three.": (
            lambda: (side_by_side(heads(causal_attention)) @ W_O)[0]
        ),
        "This is what head 1 adds. Head 2 is missing.": lambda: (heads()[0] @ W_O[:2])[0],
        "This is what head 2 adds. Head 1 is missing.": lambda: (heads()[1] @ W_O[2:])[0],
        "You scaled by 1/√d. Inside a head it is 1/√d_h.": (
            lambda: (side_by_side(heads(lambda *qkv: dense_attention(*qkv, scale=1 / 2))) @ W_O)[0]
        ),
    },
)


def block_order() -> np.ndarray:
    """Return the rows of W^head in the order that goes with head 2 first."""
    rows = np.arange(4).reshape(2, 2)
    return rows[::-1].ravel()


CHANGE_PLACES = Numbers(
    right=block_order,
    checked="The blocks change places; inside a block nothing moves.",
    digits=0,
    slips={
        "Left alone, W^head gives head 2 the rows of head 1.": lambda: np.arange(4),
        "The rows inside a block keep their order: each belongs to one feature.": (
            lambda: np.arange(4)[::-1]
        ),
        "You changed the rows inside each block; the blocks must change places.": (
            lambda: np.arange(4).reshape(2, 2)[:, ::-1].ravel()
        ),
    },
)

# --- 5: debug a head from its symptom -------------------------------------------------------------

CAUSES = {
    "a": "Split or merge by a reshape alone deals tokens to heads, so it shows in the order.",
    "b": "With K in place of Q nothing depends on the query.",
    "c": "1/√d for 1/√d_h is too small a scale: the weights come out too even.",
    "d": "A wrong head index lets one head use what belongs to another.",
    "e": "With K and V swapped the keys are mixed, so the values are not what comes out.",
}


def symptom(cause: str) -> Choice:
    """Return the question which of the causes makes a symptom."""
    others = {letter: f"{says} Is that this symptom?" for letter, says in CAUSES.items()}
    return Choice(right=cause, options={**others, cause: CAUSES[cause]})


DEBUG = Parts({f"symptom {n}": symptom(cause) for n, cause in enumerate("bdeca", start=1)})

# --- 7 and 8: the cache ---------------------------------------------------------------------------


def cache_bytes(
    *, layers: int = 1, kept: int = 12, size: int = 2, parts: int = 2, tokens: int = 1000
) -> int:
    return parts * layers * kept * tokens * 64 * size


def cache_size(checked: str, **what: int) -> Numbers:
    """Return the question how large such a cache is."""
    others = {
        "That is half of it: keys and values are both kept, two bytes a number.": {"parts": 1},
        "Those are bits: a byte has eight.": {"size": 16},
        "A number has two bytes here, not four.": {"size": 4},
        "That is one token: the cache holds 1,000.": {"tokens": 1},
    }
    slips = {says: (lambda o=other: cache_bytes(**what, **o)) for says, other in others.items()}
    if "kept" in what:
        slips["Three heads share, so 12/3 pairs of keys and values are left, not 3."] = lambda: (
            cache_bytes(**{**what, "kept": 3})
        )
        slips["This is the model without sharing."] = lambda: cache_bytes(**{**what, "kept": 12})
        slips["This is one layer; the model has 24."] = lambda: cache_bytes(kept=what["kept"])
    return Numbers(lambda: cache_bytes(**what), checked=checked, slips=slips, digits=0)


CACHE = Parts(
    {
        "one layer": cache_size("Keys and values, 12 heads, 64 numbers of two bytes a token."),
        "all layers": cache_size("24 times that.", layers=24),
        "shared": cache_size("A third: 4 heads' keys and values are left.", layers=24, kept=4),
    }
)

APPEND_LATE = Parts(
    {
        "step 0": Choice(
            right="a",
            options={
                "a": "The cache is empty: there is nothing to attend to.",
                "b": "For that its own key and value would have to be in the cache.",
                "c": "The book's functions return zeros where there is nothing to attend to.",
                "d": "It needs its own value, which is not in the cache yet.",
            },
        ),
        "mask": Choice(
            right="strict",
            options={
                "strict": "Token i sees 0 … i − 1, without itself.",
                "generous": "That would show it one token too many.",
                "inverted": "That would show it the later tokens.",
                "right": "The token itself is missing.",
            },
        ),
        "right later": Statement(
            right=False,
            because="The token's own weight is above 0, so leaving it out changes the output, "
            "but for the rare case that the output is the token's own value already.",
            hint="Which weight is missing, and can it be 0?",
        ),
    }
)

# --- 9: a function --------------------------------------------------------------------------------


def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray, *, width: int, axis: int = -1):
    return softmax(Q @ K.swapaxes(-1, -2) / np.sqrt(width), axis=axis) @ V


def head_by_head(
    *,
    project: Callable = np.matmul,
    split: Callable = split_heads,
    choose: Callable = lambda Q, K, V: (Q, K, V),
    width: Callable = lambda head, model: head,
    axis: int = -1,
    join: Callable = merge_heads,
    mix: Callable = np.matmul,
) -> Callable:
    """Return multi-head attention with one of its steps exchanged for another."""

    def multi_head(x, w_q, w_k, w_v, w_o, num_heads):
        Q, K, V = choose(*(split(project(x, w), num_heads) for w in (w_q, w_k, w_v)))
        of_head = width(w_q.shape[1] // num_heads, x.shape[-1])
        return mix(join(attend(Q, K, V, width=of_head, axis=axis)), w_o)

    return multi_head


def split_by_reshape(projected: np.ndarray, num_heads: int) -> np.ndarray:
    L, width = projected.shape
    return projected.reshape(num_heads, L, width // num_heads)


def split_interleaved(projected: np.ndarray, num_heads: int) -> np.ndarray:
    L, width = projected.shape
    return projected.reshape(L, width // num_heads, num_heads).transpose(2, 0, 1)


def merge_by_reshape(outputs: np.ndarray) -> np.ndarray:
    H, L, E = outputs.shape
    return outputs.reshape(L, H * E)


def averaged(outputs: np.ndarray) -> np.ndarray:
    """Average over heads; repeated, so that W^head still fits."""
    return np.concatenate([outputs.mean(axis=0)] * len(outputs), axis=1)


def without_output_projection(merged: np.ndarray, w_o: np.ndarray) -> np.ndarray:
    return merged


def as_one_head(x, w_q, w_k, w_v, w_o, num_heads):
    return multi_head_attention(x, w_q, w_k, w_v, w_o, 1)


def causal_heads(x, w_q, w_k, w_v, w_o, num_heads):
    return multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads, is_causal=True)


def batch_is_mixed_up(multi_head: Callable) -> bool:
    """Return whether a batch, where it is accepted, gives what its items do not give."""
    shapes = ((2, 3, 6), (6, 6), (6, 6), (6, 6), (6, 6))
    batch, *weights = drawn(*shapes, seed=3, size=0.6)
    alone = [multi_head(item, *weights, 3) for item in batch]
    together = multi_head(batch, *weights, 3)
    return np.shape(together) == batch.shape and not np.allclose(together, alone)


def projections_to_try() -> list[tuple]:
    """Return small inputs whose sizes differ, the last with heads wider than the model's share."""
    inputs = []
    for L, D, H, E in ((2, 6, 3, 2), (4, 6, 2, 3), (3, 5, 2, 4)):
        shapes = ((L, D), (D, H * E), (D, H * E), (D, H * E), (H * E, D))
        inputs.append((*drawn(*shapes, seed=L, size=0.6), H))
    return inputs


WRITE_IT = Function(
    right=multi_head_attention,
    call="multi_head(x, w_q, w_k, w_v, w_o, num_heads)",
    inputs=projections_to_try,
    checked=(
        "Three layers agree with the library, one of them with heads whose width is free, "
        "and the laws hold: looped heads are fused heads, shuffled tokens shuffle the outputs."
    ),
    slips={
        "W^head is missing: these are the merged heads.": head_by_head(
            mix=without_output_projection
        ),
        "The split is a reshape alone: it deals tokens to heads. Swap the axes after it.": (
            head_by_head(split=split_by_reshape)
        ),
        "The merge is a reshape alone: swap the axes before it.": head_by_head(
            join=merge_by_reshape
        ),
        "Split and merge are reshapes alone; they undo each other, but the heads are wrong.": (
            head_by_head(split=split_by_reshape, join=merge_by_reshape)
        ),
        "Features are dealt out to the heads in turn; a head owns features side by side.": (
            head_by_head(split=split_interleaved)
        ),
        "You scaled by 1/√d, the width of the model. Inside a head it is 1/√d_h.": head_by_head(
            width=lambda head, model: model
        ),
        "You forgot the scale.": head_by_head(width=lambda head, model: 1),
        "You multiplied by √d_h instead of dividing.": head_by_head(
            width=lambda head, model: 1 / head
        ),
        "You divided by d_h instead of √d_h, as if the scale were applied twice.": head_by_head(
            width=lambda head, model: head**2
        ),
        "The softmax runs over the queries; it must run over the keys, the last axis.": (
            head_by_head(axis=-2)
        ),
        "You averaged the heads; they must be merged side by side.": head_by_head(join=averaged),
        "There are no heads: you attended once in the full width.": as_one_head,
        "You masked: without being asked, a token sees all tokens.": causal_heads,
        "K and V are swapped.": head_by_head(choose=lambda Q, K, V: (Q, V, K)),
        "K stands in place of Q: nothing depends on the query.": head_by_head(
            choose=lambda Q, K, V: (K, K, V)
        ),
        "All heads use the projections of head 0: look at the head's index.": head_by_head(
            choose=lambda *qkv: tuple(np.repeat(part[:1], len(part), axis=0) for part in qkv)
        ),
        "The heads are merged in reversed order.": head_by_head(
            join=lambda outputs: merge_heads(outputs[::-1])
        ),
        "You used the keys as values: w_v is missing.": head_by_head(
            choose=lambda Q, K, V: (Q, K, K)
        ),
    },
    laws={"kind": "multi-head", "promises": ("width",)},
    remarks={
        "A batch gives other numbers than its items one by one: batch and heads are mixed up.": (
            batch_is_mixed_up
        ),
    },
)

EXERCISES = {
    1: WIDTH,
    2: TRUE_OR_FALSE,
    3: ORDER_THE_STEPS,
    4: BY_HAND,
    5: DEBUG,
    6: CHANGE_PLACES,
    7: CACHE,
    8: APPEND_LATE,
    9: WRITE_IT,
}
