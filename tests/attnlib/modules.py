"""The two multi-head modules, NumPy-style and `torch.nn`, behind one way to make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnlib import MultiHeadAttention
from tests.kinds import KINDS, TORCH_KINDS, Kind

BATCHED, UNBATCHED = (2, 5, 12), (5, 12)  # B = 2, L = 5, D = 12; 6 heads of width 2 or 4


def random_weights(
    D: int = 12,
    num_heads: int = 6,
    num_kv_heads: int | None = None,
    *,
    E: int = 2,
    bias: bool = True,
    key_width: int | None = None,
    value_width: int | None = None,
    seed: int = 90,
) -> dict[str, np.ndarray]:
    """Return the weights of one module as float64 arrays."""
    random = np.random.default_rng(seed)
    kv_width = (num_kv_heads or num_heads) * E
    shapes = {
        "w_q": (D, num_heads * E),
        "w_k": (key_width or D, kv_width),
        "w_v": (value_width or D, kv_width),
        "w_o": (num_heads * E, D),
    }
    if bias:
        shapes |= {"b_" + name[2:]: shape[1:] for name, shape in shapes.items()}
    return {name: random.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}


def build(
    front: str, kind: Kind, weights: dict[str, Any], num_heads: int, num_kv_heads: int | None = None
) -> Any:
    """Return a module of the `front` with `weights`, in the dtype of `kind`."""
    if front == "MultiHeadAttention":
        arrays = {name: kind.floats(array) for name, array in weights.items()}
        return MultiHeadAttention(**arrays, num_heads=num_heads, num_kv_heads=num_kv_heads)
    import torch

    import attnlib.nn

    module = MultiHeadAttention(**weights, num_heads=num_heads, num_kv_heads=num_kv_heads)
    copy = attnlib.nn.MultiHeadAttention.from_numpy(module)
    return copy.to(device=kind.device, dtype=getattr(torch, kind.dtype))


FRONTS = [("MultiHeadAttention", kind) for kind in KINDS] + [("nn", kind) for kind in TORCH_KINDS]
DOUBLE_FRONTS = [(front, kind) for front, kind in FRONTS if kind.dtype == "float64"]


def _ids(fronts: list[tuple[str, Kind]]) -> list[str]:
    return [f"{front}-{kind}" for front, kind in fronts]


each_front = pytest.mark.parametrize(("front", "kind"), FRONTS, ids=_ids(FRONTS))
each_double_front = pytest.mark.parametrize(
    ("front", "kind"), DOUBLE_FRONTS, ids=_ids(DOUBLE_FRONTS)
)
