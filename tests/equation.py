"""The equation in one piece, forward and backward: matrices in float64, where the loop is too slow.

Options are those of `scaled_dot_product_attention`; numbers must be finite. Computes in float64, or
in another dtype that is asked for. Nothing here imports `attnlib`; `test_large.py` and
`test_stress.py` hold it equal to the loops of `reference.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np


class Solution(NamedTuple):
    """One call, solved."""

    output: np.ndarray
    weights: np.ndarray
    slope: Any
    """What the softcap multiplies gradients of scores by, (…, L, S), or 1."""
    scale: float


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    enable_gqa: bool = False,
    dtype: Any = np.float64,
    **positions: Any,
) -> Solution:
    """Return output (…, Hq, L, Ev) and weights (…, Hq, L, S), with what gradients need."""
    query, key, value = (np.asarray(array, dtype) for array in (query, key, value))
    key, value = _for_each_head(query, key, value, enable_gqa)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    lead = np.broadcast_shapes(*(array.shape[:-2] for array in (query, key, value)))
    shape = (*lead, query.shape[-2], key.shape[-2])
    scores = np.broadcast_to(query @ key.swapaxes(-1, -2) * dtype(scale), shape)
    slope: Any = 1.0
    if softcap is not None:
        capped = np.tanh(scores / softcap)
        scores, slope = softcap * capped, 1 - capped**2
    items = lead[:-1] if len(lead) > 1 or enable_gqa else lead
    allowed = visible(shape, items, **positions)
    if attn_mask is not None and attn_mask.dtype == bool:
        allowed = allowed & attn_mask
    elif attn_mask is not None:
        allowed = allowed & (attn_mask != -np.inf)
        scores = scores + np.where(attn_mask == -np.inf, 0, attn_mask)
    scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exps = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = exps.sum(axis=-1, keepdims=True)
    weights = exps / np.where(total == 0, 1, total)
    return Solution(weights @ value, weights, slope, scale)


def gradients(
    query: Any,
    key: Any,
    value: Any,
    grad_output: Any,
    attn_mask: Any = None,
    *,
    enable_gqa: bool = False,
    dtype: Any = np.float64,
    **options: Any,
) -> list[np.ndarray]:
    """Return dQ, dK, dV, each of the shape of its array."""
    arrays = [np.asarray(array, dtype) for array in (query, key, value)]
    _, P, slope, scale = attention(
        *arrays, attn_mask, enable_gqa=enable_gqa, dtype=dtype, **options
    )
    Q, dO = arrays[0], np.asarray(grad_output, dtype)
    K, V = _for_each_head(*arrays, enable_gqa)
    dP = dO @ V.swapaxes(-1, -2)
    dS = P * (dP - np.sum(P * dP, axis=-1, keepdims=True)) * slope * dtype(scale)
    dQ, dK, dV = dS @ K, dS.swapaxes(-1, -2) @ Q, P.swapaxes(-1, -2) @ dO
    return [
        _summed_to(gradient, array.shape, enable_gqa and number > 0)
        for number, (gradient, array) in enumerate(zip((dQ, dK, dV), arrays, strict=True))
    ]


def visible(
    shape: tuple[int, ...],
    items: tuple[int, ...],
    *,
    is_causal: bool = False,
    causal_offset: Any = 0,
    window: tuple[int | None, int | None] | None = None,
    key_mask: Any = None,
) -> np.ndarray:
    """Return which pairs positions and padding allow, bool, broadcasts to scores of `shape`."""
    L, S = shape[-2:]
    each_item = (*items, *(1,) * (len(shape) - 2 - len(items)))
    offset = np.asarray(causal_offset)
    if offset.ndim:
        offset = offset.reshape(*each_item, 1, 1)
    distance = np.arange(S) - (np.arange(L)[:, None] + offset)
    left, right = window or (None, None)
    allowed = np.ones_like(distance, dtype=bool)
    if is_causal:
        allowed &= distance <= 0
    if left is not None:
        allowed &= distance >= -left
    if right is not None:
        allowed &= distance <= right
    if key_mask is not None:
        allowed = allowed & (key_mask if key_mask.ndim == 1 else key_mask.reshape(*each_item, 1, S))
    return allowed


def _for_each_head(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, enable_gqa: bool
) -> tuple[np.ndarray, np.ndarray]:
    if not enable_gqa:
        return key, value
    group = query.shape[-3] // key.shape[-3]
    return np.repeat(key, group, axis=-3), np.repeat(value, group, axis=-3)


def _summed_to(gradient: np.ndarray, shape: tuple[int, ...], grouped: bool) -> np.ndarray:
    """Sum over copies: the query heads of a group, and axes that were stretched."""
    if grouped:
        *batch, heads, length, width = gradient.shape
        gradient = gradient.reshape(*batch, shape[-3], heads // shape[-3], length, width)
        gradient = gradient.sum(axis=-3)
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    ones = tuple(axis for axis, size in enumerate(shape) if size == 1 != gradient.shape[axis])
    return gradient.sum(axis=ones, keepdims=True)
