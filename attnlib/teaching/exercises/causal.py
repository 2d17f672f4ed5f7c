"""Exercises of chapter 2, causal attention."""

from __future__ import annotations

import numpy as np

from attnlib.teaching.exercises.kinds import Numbers, inside

WEIGHTS = np.array([0.1, 0.6, 0.3])
V = np.array([[1, 2], [3, 0], [4, 5]])

EXERCISES = {
    1: Numbers(
        right=lambda: WEIGHTS @ V,
        checked="Both entries of the weighted sum agree with α V.",
        slips={
            "You added the values without their weights.": lambda: V.sum(axis=0),
            "You took the plain mean: each value wants its own weight.": lambda: V.mean(axis=0),
            "You gave the weights to the values in reversed order.": lambda: WEIGHTS[::-1] @ V,
            "These are the weighted values, one a row: they still have to be added.": (
                lambda: WEIGHTS[:, np.newaxis] * V
            ),
        },
        laws=[inside(V)],
    ),
}
