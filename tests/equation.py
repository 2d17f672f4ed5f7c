"""The equation in one piece: float64 matrices, for sizes at which `reference.py` is slow.

Nothing here imports `attnlib`.  `tests/attnlib/test_large.py` holds it equal to the loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    attn_mask: np.ndarray | None = None,
    *,
    is_causal: bool = False,
    causal_offset: Any = 0,
    scale: float | None = None,
    enable_gqa: bool = False,
    key_mask: np.ndarray | None = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return output (…, Hq, L, Ev) and weights (…, Hq, L, S) of finite float64 arrays."""
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, group, axis=-3), np.repeat(value, group, axis=-3)
    lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    (L, E), S = query.shape[-2:], key.shape[-2]

    scores = (query @ np.swapaxes(key, -1, -2)) * (E**-0.5 if scale is None else scale)
    scores = np.broadcast_to(scores, (*lead, L, S)).copy()
    if softcap is not None:
        scores = softcap * np.tanh(scores / softcap)
    allowed = _visible(lead, L, S, causal_offset, is_causal, window)
    if key_mask is not None:
        allowed = allowed & (key_mask if key_mask.ndim == 1 else _per_item(key_mask, lead, axes=1))
    if attn_mask is not None and attn_mask.dtype == bool:
        allowed = allowed & attn_mask
    elif attn_mask is not None:
        allowed = allowed & (attn_mask != -np.inf)
        scores = scores + np.where(attn_mask == -np.inf, 0.0, attn_mask)

    scores = np.where(allowed, scores, -np.inf)
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exps = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    totals = exps.sum(axis=-1, keepdims=True)
    weights = exps / np.where(totals == 0.0, 1.0, totals)
    return weights @ value, weights


def _visible(
    lead: tuple[int, ...], L: int, S: int, causal_offset: Any, is_causal: bool, window: Any
) -> np.ndarray:
    """Return which key position each query position may see, (…, L, S)."""
    offset = np.asarray(causal_offset)
    offset = offset if offset.ndim == 0 else _per_item(offset, lead, axes=0)[..., None, None]
    distance = np.arange(S) - (np.arange(L)[:, None] + offset)
    left, right = window or (None, None)
    visible = np.ones(distance.shape, dtype=bool)
    if is_causal:
        visible = visible & (distance <= 0)
    if left is not None:
        visible = visible & (distance >= -left)
    return visible & (distance <= right) if right is not None else visible


def _per_item(array: np.ndarray, lead: tuple[int, ...], *, axes: int) -> np.ndarray:
    """Give an array of one entry (or row) for each item axes for heads and queries."""
    heads = (1,) * (len(lead) - (array.ndim - axes))
    if axes == 0:
        return array.reshape(*array.shape, *heads)
    return array.reshape(*array.shape[:-1], *heads, 1, array.shape[-1])
