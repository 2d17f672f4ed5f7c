"""The running example of chapters 1 to 4, and small numbers to try a function on."""

from __future__ import annotations

import numpy as np

# exp(score) of every pair: its rows divided by their sums are the dense weights.
SHARES = np.array([[1, 3, 2], [1, 2, 1], [1, 2, 3]])
Q = np.log(SHARES[:, [1, 2, 1, 2]])
K = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
V = np.array([[1, 2], [3, 0], [4, 5]])


def drawn(*shapes: tuple[int, ...], seed: int, size: float = 1.0) -> tuple[np.ndarray, ...]:
    """Return random arrays of these shapes, with one decimal so that they can be read."""
    random = np.random.default_rng(seed)
    return tuple(np.round(random.normal(scale=size, size=shape), 1) for shape in shapes)
