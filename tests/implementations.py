"""Every way in which this project computes one head of attention, behind one call.

Each entry takes float64 NumPy arrays Q (L, E), K (S, E), V (S, Ev) and gives the output (L, Ev)
as a float64 NumPy array, so that a law can run over all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import attnlib
from attnlib.dense import tiled_attention
from tests import reference
from tests.kinds import FLOAT64_KINDS, HAS_TORCH, Kind, to_numpy

Attention = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def _loop(*, is_causal: bool) -> Attention:
    return lambda Q, K, V: reference.attention(Q, K, V, is_causal=is_causal)[0]


def _function(kind: Kind, *, is_causal: bool) -> Attention:
    def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        arrays = [kind.floats(array) for array in (Q, K, V)]
        return to_numpy(attnlib.scaled_dot_product_attention(*arrays, is_causal=is_causal))

    return attend


def _one_head(E: int, Ev: int) -> attnlib.MultiHeadAttention:
    """Return a module whose projections are identities: one head that is the attention itself."""
    return attnlib.MultiHeadAttention(np.eye(E), np.eye(E), np.eye(Ev), np.eye(Ev), 1)


def _module(*, is_causal: bool) -> Attention:
    def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        return _one_head(Q.shape[-1], V.shape[-1])(Q, K, V, is_causal=is_causal)

    return attend


def _torch_module(*, is_causal: bool) -> Attention:
    def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        import torch

        import attnlib.nn

        module = attnlib.nn.MultiHeadAttention.from_numpy(_one_head(Q.shape[-1], V.shape[-1]))
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in (Q, K, V)]
        return to_numpy(module(*tensors, is_causal=is_causal))

    return attend


def _query_by_query(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    return np.stack([attnlib.single_query_attention(q, K, V) for q in Q])


def _prefix_by_prefix(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    rows = range(len(Q))
    return np.stack([attnlib.single_query_attention(Q[i], K[: i + 1], V[: i + 1]) for i in rows])


def _position_by_position(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    return np.stack([attnlib.causal_attention_at(i, Q, K, V) for i in range(len(Q))])


def _with_a_cache(kind: Kind) -> Attention:
    """Give one token at a time to a cache, and let its query attend to what is there."""

    def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        cache, rows = attnlib.KVCache(), []
        for i in range(len(Q)):
            cache.append(kind.floats(K[None, i : i + 1]), kind.floats(V[None, i : i + 1]))
            query = kind.floats(Q[None, i : i + 1])
            output = attnlib.scaled_dot_product_attention(query, cache.keys, cache.values)
            rows.append(to_numpy(output)[0, 0])
        return np.stack(rows)

    return attend


DENSE: dict[str, Attention] = {
    "loop": _loop(is_causal=False),
    "single_query_attention": _query_by_query,
    "dense_attention": attnlib.dense_attention,
    "tiled_attention": lambda Q, K, V: tiled_attention(Q, K, V, tile=2),
    "MultiHeadAttention": _module(is_causal=False),
    **{f"function on {kind}": _function(kind, is_causal=False) for kind in FLOAT64_KINDS},
}
CAUSAL: dict[str, Attention] = {
    "loop": _loop(is_causal=True),
    "single_query_attention": _prefix_by_prefix,
    "causal_attention_at": _position_by_position,
    "causal_attention": attnlib.causal_attention,
    "MultiHeadAttention": _module(is_causal=True),
    **{f"function on {kind}": _function(kind, is_causal=True) for kind in FLOAT64_KINDS},
    **{f"KVCache on {kind}": _with_a_cache(kind) for kind in FLOAT64_KINDS},
}
if HAS_TORCH:
    DENSE["nn.MultiHeadAttention"] = _torch_module(is_causal=False)
    CAUSAL["nn.MultiHeadAttention"] = _torch_module(is_causal=True)
