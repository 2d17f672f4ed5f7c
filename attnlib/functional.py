"""Attention for every day: one function for NumPy arrays and torch tensors.

Arguments are validated once, then the engine that fits the arrays computes.
"""

from types import ModuleType
from typing import Any, NoReturn

from attnlib.engines import numpy_tiled
from attnlib.engines._validate import array_kind, validate


def scaled_dot_product_attention(
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
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    return_weights: bool = False,
    **unsupported: Any,
) -> Any:
    call = validate(
        query,
        key,
        value,
        attn_mask,
        is_causal=is_causal,
        causal_offset=causal_offset,
        scale=scale,
        enable_gqa=enable_gqa,
        key_mask=key_mask,
        window=window,
        softcap=softcap,
        return_weights=return_weights,
    )
    output, weights = engine_for(call.query).attention(call)
    if call.single_query:
        output, weights = output[0], weights[0] if return_weights else None
    return (output, weights) if return_weights else output


def engine_for(array: Any) -> ModuleType:
    """The engine that computes on arrays of this kind; torch is needed only where it has come."""
    if array_kind(array) == "numpy":
        return numpy_tiled
    from attnlib.engines import torch_fused

    return torch_fused
