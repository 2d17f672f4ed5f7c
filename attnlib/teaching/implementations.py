"""Every way in which this library computes attention, described for the laws.

`implementations` gives them by name; the page *Laws* and the tests ask each of them every law that
applies.  Those on tensors are there where PyTorch is installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np

import attnlib
from attnlib.dense import tiled_attention
from attnlib.gradients import dense_attention_gradients
from attnlib.teaching.laws import Implementation, describe, row_by_row

CAUSAL_CHAPTER_CODE = ("causal", "exact", "nan")


def loop_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    attn_mask: np.ndarray | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> np.ndarray:
    """Return attention computed as plain Python loops, one number after the other.

    Parameters
    ----------
    query : ndarray, shape (L, E)
        The queries.
    key : ndarray, shape (S, E)
        The keys.
    value : ndarray, shape (S, Ev)
        The values.
    attn_mask : ndarray of bool, shape (L, S), optional
        True = may attend.
    is_causal : bool, default False
        Query i sees the keys 0 … i.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    ndarray, shape (L, Ev)
        Zeros for a query that may attend to nothing.
    """
    output = np.zeros((len(query), value.shape[1]))
    scale = 1.0 / math.sqrt(query.shape[1]) if scale is None else scale
    for i, q in enumerate(query):
        seen = [j for j in range(len(key)) if attn_mask is None or attn_mask[i, j]]
        seen = [j for j in seen if j <= i or not is_causal]
        scores = [scale * sum(a * b for a, b in zip(q, key[j], strict=True)) for j in seen]
        exponentials = [math.exp(score - max(scores)) for score in scores]
        for e in range(value.shape[1]):
            products = zip(exponentials, (value[j, e] for j in seen), strict=True)
            output[i, e] = sum(a * v for a, v in products) / (sum(exponentials) or 1.0)
    return output


def implementations() -> dict[str, Implementation]:
    """Return what this library computes attention with, by name.

    Returns
    -------
    dict of str to Implementation
        Ready for `attnlib.teaching.laws.Law.counterexample`.
    """
    single = attnlib.single_query_attention
    found = {
        "loop": describe(loop_attention, promises=["exact", "nan"]),
        "single_query_attention": describe(row_by_row(single)),
        "single_query_attention, prefixes": describe(
            row_by_row(single, is_causal=True), promises=CAUSAL_CHAPTER_CODE
        ),
        "causal_attention_at": describe(_position_by_position, promises=CAUSAL_CHAPTER_CODE),
        "causal_attention": describe(attnlib.causal_attention, promises=CAUSAL_CHAPTER_CODE),
        "dense_attention": describe(attnlib.dense_attention),
        "tiled_attention": describe(_by_tiles_of_two),
        "scaled_dot_product_attention": describe(
            attnlib.scaled_dot_product_attention, promises=["nan"]
        ),
        "KVCache": describe(_through_a_cache(np.asarray), promises=["causal", "nan"]),
        "multi_head_attention": describe(
            attnlib.multi_head_attention, kind="multi-head", promises=["batch", "width"]
        ),
        "MultiHeadAttention": describe(
            _module(lambda module: module, np.asarray),
            kind="multi-head",
            promises=["batch", "width"],
        ),
        "dense_attention_gradients": describe(dense_attention_gradients, kind="gradients"),
        "attention_gradients": describe(attnlib.attention_gradients, kind="gradients"),
    }
    return found | (_on_tensors() if find_spec("torch") is not None else {})


def _on_tensors() -> dict[str, Implementation]:
    import torch

    import attnlib.nn

    function = attnlib.scaled_dot_product_attention
    options = describe(function).options
    gradients = attnlib.attention_gradients
    return {
        "scaled_dot_product_attention, PyTorch": describe(
            _given_tensors(function), options=options
        ),
        "KVCache, PyTorch": describe(_through_a_cache(torch.from_numpy), promises=["causal"]),
        "nn.MultiHeadAttention": describe(
            _module(attnlib.nn.MultiHeadAttention.from_numpy, torch.from_numpy),
            kind="multi-head",
            promises=["batch"],
        ),
        "attention_gradients, PyTorch": describe(
            _given_tensors(gradients),
            kind="gradients",
            options=options & {"is_causal", "attn_mask"},
        ),
    }


def _position_by_position(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, *, scale: float | None = None
) -> np.ndarray:
    rows = range(len(Q))
    return np.stack([attnlib.causal_attention_at(i, Q, K, V, scale=scale) for i in rows])


def _by_tiles_of_two(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, *, scale: float | None = None
) -> np.ndarray:
    return tiled_attention(Q, K, V, tile=2, scale=scale)


def _through_a_cache(to_array: Callable) -> Callable:
    """Give the tokens to a cache in chunks, and let the new queries attend to what it holds."""

    def attend(
        Q: np.ndarray, K: np.ndarray, V: np.ndarray, *, chunks: Iterable[int] | None = None
    ) -> np.ndarray:
        cache, outputs = attnlib.KVCache(), []
        for new in _slices(chunks, len(Q)):
            seen = len(cache)
            cache.append(to_array(K[np.newaxis, new]), to_array(V[np.newaxis, new]))
            output = attnlib.scaled_dot_product_attention(
                to_array(Q[np.newaxis, new]),
                cache.keys,
                cache.values,
                is_causal=True,
                causal_offset=seen,
            )
            outputs.append(np.asarray(output)[0])
        return np.concatenate(outputs)

    return attend


def _module(convert: Callable, to_array: Callable) -> Callable:
    """Make a module of the weights, and call it: with a cache where the tokens come in chunks."""

    def attend(
        x: np.ndarray,
        w_q: np.ndarray,
        w_k: np.ndarray,
        w_v: np.ndarray,
        w_o: np.ndarray,
        num_heads: int,
        *,
        is_causal: bool = False,
        chunks: Iterable[int] | None = None,
    ) -> np.ndarray:
        module = convert(attnlib.MultiHeadAttention(w_q, w_k, w_v, w_o, num_heads))
        if chunks is None:
            return _to_numpy(module(to_array(x), is_causal=is_causal))
        cache = attnlib.KVCache()
        pieces = [to_array(x[new]) for new in _slices(chunks, len(x))]
        outputs = [_decoded(module, piece, cache) for piece in pieces]
        return np.concatenate(outputs)

    return attend


def _decoded(module: Any, piece: Any, cache: attnlib.KVCache) -> np.ndarray:
    if hasattr(module, "requires_grad_"):  # a cache refuses tensors that require gradients
        module.requires_grad_(False)
    return _to_numpy(module(piece, is_causal=True, cache=cache))


def _given_tensors(function: Callable) -> Callable:
    """Let a function that takes tensors take and return NumPy arrays."""

    def convert(option: Any) -> Any:
        import torch

        is_array = isinstance(option, np.ndarray)
        return torch.from_numpy(np.ascontiguousarray(option)) if is_array else option

    def attend(*arrays: Any, **options: Any) -> Any:
        tensors = [convert(array) for array in arrays]
        result = function(*tensors, **{name: convert(o) for name, o in options.items()})
        if isinstance(result, tuple):
            return tuple(map(_to_numpy, result))
        return _to_numpy(result)

    return attend


def _slices(chunks: Iterable[int] | None, total: int) -> Iterable[slice]:
    end = 0
    for length in [total] if chunks is None else chunks:
        end += length
        yield slice(end - length, end)


def _to_numpy(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.detach().numpy()
