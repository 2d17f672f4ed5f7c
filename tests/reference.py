"""Attention written from its equations as plain Python loops in float64: the independent oracle.

Nothing here imports `attnlib`, and no number is computed by a NumPy operation: arrays are only
containers to read numbers from and to put numbers into.  Slow, and meant to be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Index = tuple[int, ...]
Window = tuple[int | None, int | None]


def softmax(scores: list[float], allowed: list[bool] | None = None) -> list[float]:
    """Return exp(s_j) / Σ exp(s_k), the sum over allowed positions; nothing allowed gives zeros."""
    if allowed is None:
        allowed = [score != -math.inf for score in scores]
    seen = [score for score, may in zip(scores, allowed, strict=True) if may]
    if not seen:
        return [0.0] * len(scores)
    highest = max(seen)
    exps = [
        math.exp(score - highest) if may else 0.0
        for score, may in zip(scores, allowed, strict=True)
    ]
    total = sum(exps)
    return [number / total for number in exps]


def dot(a: list[float], b: list[float]) -> float:
    """Return Σ_e a_e b_e, one product after the other."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    *,
    is_causal: bool = False,
    causal_offset: Any = 0,
    scale: float | None = None,
    enable_gqa: bool = False,
    key_mask: Any = None,
    window: Window | None = None,
    softcap: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return output (…, Hq, L, Ev) and weights (…, Hq, L, S)."""
    query, key, value = (np.asarray(array, dtype=np.float64) for array in (query, key, value))
    mask = None if attn_mask is None else np.asarray(attn_mask)
    if query.ndim == 1:
        output, weights = attention(
            query[None], key, value, mask, scale=scale, key_mask=key_mask, softcap=softcap
        )
        return output[0], weights[0]

    lead = _leading_shape(query, key, value, enable_gqa)
    group = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    L, E, S, Ev = *query.shape[-2:], *value.shape[-2:]
    scale = 1.0 / math.sqrt(E) if scale is None else float(scale)

    output, weights = np.zeros((*lead, L, Ev)), np.zeros((*lead, L, S))
    for place in np.ndindex(*lead):
        kv_place = (*place[:-1], place[-1] // group) if enable_gqa else place
        item = place[:-1] if len(place) > 1 else place  # the item of the batch that this head is of
        offset = int(_per_item(causal_offset, item, ndim=0))
        real = [True] * S if key_mask is None else _per_item(key_mask, item, ndim=1).tolist()
        keys = [_row(key, (*kv_place, j)) for j in range(S)]
        values = [_row(value, (*kv_place, j)) for j in range(S)]
        for i in range(L):
            q, scores, allowed = _row(query, (*place, i)), [0.0] * S, [False] * S
            for j in range(S):
                bias = 0.0 if mask is None else _bias(_entry(mask, (*place, i, j)))
                visible = _visible(i + offset, j, is_causal, window)
                allowed[j] = real[j] and visible and bias != -math.inf
                if allowed[j]:
                    score = scale * dot(q, keys[j])
                    scores[j] = (softcap * math.tanh(score / softcap) if softcap else score) + bias
            weights[(*place, i)] = row = softmax(scores, allowed)
            seen = [j for j in range(S) if allowed[j]]
            for e in range(Ev):
                output[(*place, i, e)] = dot([row[j] for j in seen], [values[j][e] for j in seen])
    return output, weights


def attention_gradients(
    query: Any, key: Any, value: Any, grad_output: Any, attn_mask: Any = None, **options: Any
) -> list[np.ndarray]:
    """Return d⟨output, grad_output⟩ by query, key and value, by finite differences."""
    arrays = [np.asarray(array, dtype=np.float64) for array in (query, key, value)]

    def loss_of(which: int) -> Callable[[np.ndarray], float]:
        def loss(changed: np.ndarray) -> float:
            changed_arrays = [*arrays[:which], changed, *arrays[which + 1 :]]
            output, _ = attention(*changed_arrays, attn_mask, **options)
            weights = np.asarray(grad_output, dtype=np.float64)
            return dot(output.ravel().tolist(), weights.ravel().tolist())

        return loss

    return [finite_differences(loss_of(which), array) for which, array in enumerate(arrays)]


def finite_differences(
    function: Callable[[np.ndarray], float], array: np.ndarray, step: float = 1e-4
) -> np.ndarray:
    """Return the gradient of `function` by five-point central differences, error O(step⁴)."""
    gradient = np.zeros(array.shape)
    for index in np.ndindex(*array.shape):

        def along(distance: float, index: Index = index) -> float:
            moved = array.copy()
            moved[index] += distance
            return function(moved)

        near, far = along(step) - along(-step), along(2 * step) - along(-2 * step)
        gradient[index] = (8.0 * near - far) / (12.0 * step)
    return gradient


def linear(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Return y = x W + b for each row x of a (…, L, D) array."""
    y = np.zeros((*x.shape[:-1], w.shape[1]))
    columns = w.T.tolist()
    for place in np.ndindex(*x.shape[:-1]):
        row = x[place].tolist()
        for e, column in enumerate(columns):
            y[(*place, e)] = dot(row, column) + (0.0 if b is None else float(b[e]))
    return y


def multi_head(
    query: Any,
    weights: dict[str, Any],
    num_heads: int,
    *,
    key: Any = None,
    value: Any = None,
    num_kv_heads: int | None = None,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Return output (…, L, D) and weights (…, Hq, L, S) of project → heads → merge → project.

    `weights` holds w_q, w_k, w_v, w_o and, where wanted, b_q, b_k, b_v, b_o.
    """
    query = np.asarray(query, dtype=np.float64)
    key = query if key is None else np.asarray(key, dtype=np.float64)
    value = key if value is None else np.asarray(value, dtype=np.float64)
    num_kv_heads = num_kv_heads or num_heads
    arrays = {name: np.asarray(array, dtype=np.float64) for name, array in weights.items()}
    q = _split(linear(query, arrays["w_q"], arrays.get("b_q")), num_heads)
    k = _split(linear(key, arrays["w_k"], arrays.get("b_k")), num_kv_heads)
    v = _split(linear(value, arrays["w_v"], arrays.get("b_v")), num_kv_heads)
    heads, attention_weights = attention(q, k, v, enable_gqa=num_kv_heads != num_heads, **options)
    return linear(_merge(heads), arrays["w_o"], arrays.get("b_o")), attention_weights


def _split(x: np.ndarray, num_heads: int) -> np.ndarray:
    """(…, L, τ E) → (…, τ, L, E): head h owns the features h E … (h + 1) E − 1."""
    *batch, L, width = x.shape
    E = width // num_heads
    heads = np.zeros((*batch, num_heads, L, E))
    for place in np.ndindex(*heads.shape):
        *item, h, i, e = place
        heads[place] = x[(*item, i, h * E + e)]
    return heads


def _merge(heads: np.ndarray) -> np.ndarray:
    """(…, τ, L, E) → (…, L, τ E), in head order."""
    *batch, num_heads, L, E = heads.shape
    merged = np.zeros((*batch, L, num_heads * E))
    for place in np.ndindex(*heads.shape):
        *item, h, i, e = place
        merged[(*item, i, h * E + e)] = heads[place]
    return merged


def _leading_shape(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, enable_gqa: bool
) -> tuple[int, ...]:
    """Return the axes before length, broadcast; grouped heads count as the query's heads."""
    if not enable_gqa:
        return np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    return (*batch, query.shape[-3])


def _visible(position: int, j: int, is_causal: bool, window: Window | None) -> bool:
    left, right = window or (None, None)
    return (
        (not is_causal or j <= position)
        and (left is None or -left <= j - position)
        and (right is None or j - position <= right)
    )


def _bias(entry: Any) -> float:
    """Return what a mask entry adds to a score: False excludes as −inf does, True adds nothing."""
    if isinstance(entry, np.bool_):
        return 0.0 if entry else -math.inf
    return float(entry)


def _per_item(array: Any, item: Index, *, ndim: int) -> Any:
    """Read an option that is one for all (of rank `ndim`), or one for each item of the batch."""
    array = np.asarray(array)
    return array if array.ndim == ndim else array[item]


def _row(array: np.ndarray, place: Index) -> list[float]:
    """Read the vector at `place`, where missing leading axes and axes of size 1 stretch."""
    return array[_stretched(place, array.shape[:-1])].tolist()


def _entry(mask: np.ndarray, place: Index) -> Any:
    """Read the mask at `place`, where missing leading axes and axes of size 1 stretch."""
    return mask[_stretched(place, mask.shape)]


def _stretched(place: Index, shape: tuple[int, ...]) -> Index:
    own = place[len(place) - len(shape) :]
    return tuple(0 if size == 1 else i for i, size in zip(own, shape, strict=True))
