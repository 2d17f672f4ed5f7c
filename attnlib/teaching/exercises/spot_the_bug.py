"""Exercises of chapter 10, spot the bug."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlib.causal import causal_attention, causal_mask
from attnlib.single_query import softmax
from attnlib.teaching import laws, zoo
from attnlib.teaching.exercises.kinds import Choice, Function, Numbers, Parts, Verdict
from attnlib.teaching.exercises.running_example import K, Q, V, drawn

# --- 1: a mask the other way round ----------------------------------------------------------------


def weights_with(visible: np.ndarray, fill: float = -np.inf) -> np.ndarray:
    return softmax(np.where(visible, Q @ K.T / 2, fill))


INVERTED = ~causal_mask(3)
OTHER_MASKS: dict[str, tuple[np.ndarray, float]] = {
    "That is the right mask: invert it.": (causal_mask(3), -np.inf),
    "You kept the diagonal: where the right mask is True, this one is False.": (
        causal_mask(3).T,
        -np.inf,
    ),
    "The last query sees nothing. With −∞ everywhere its row is zeros, not a mean.": (
        INVERTED,
        -1e9,
    ),
    "You did not mask at all.": (np.ones((3, 3), dtype=bool), -np.inf),
}

A_MASK_INVERTED = Parts(
    {
        "weights": Numbers(
            right=lambda: weights_with(INVERTED),
            checked="All nine weights agree.",
            slips={
                says: (lambda given=given: weights_with(*given))
                for says, given in OTHER_MASKS.items()
            },
        ),
        "outputs": Numbers(
            right=lambda: weights_with(INVERTED) @ V,
            checked="All three outputs agree.",
            slips={
                says: (lambda given=given: weights_with(*given) @ V)
                for says, given in OTHER_MASKS.items()
            },
        ),
    }
)

# --- 2: the input that hides it -------------------------------------------------------------------

HIDDEN_BY = Choice(
    right="b",
    options={
        "a": "One key has the weight 1, so the output is that key. It should be the value.",
        "b": "Where keys and values are the same array, nobody can tell the products apart. "
        "So draw them apart, and of different widths.",
        "c": "Zero scores make the weights equal. The output is the mean of the keys, not values.",
        "d": "Equal queries have equal outputs: equally wrong.",
    },
)

# --- 3: a head and its symptoms -------------------------------------------------------------------

CAUSES = {
    "a": "every-head-reads-head-0",
    "b": "query-ignored",
    "c": "scaled-by-root-d-model",
    "d": "keys-and-values-swapped",
    "e": "split-by-reshape",
}


def diagnosis(letter: str) -> Choice:
    """One cause by its letter; a wrong letter is told what that cause would show."""
    shows = {given: zoo.animal(name).symptom for given, name in CAUSES.items()}
    options = {given: f"That one shows something else: {shows[given]}" for given in CAUSES}
    return Choice(right=letter, options={**options, letter: zoo.animal(CAUSES[letter]).cause})


SYMPTOMS = Parts(
    {
        "output ignores W_q": diagnosis("b"),
        "same keys in all heads": diagnosis("a"),
        "loaded weights give nonsense": diagnosis("d"),
        "too even with several heads": diagnosis("c"),
        "sees later tokens": diagnosis("e"),
    }
)

# --- 4: mend it -----------------------------------------------------------------------------------


def sequences() -> list[tuple]:
    return [drawn((m, E), (m, E), (m, Ev), seed=10) for m, E, Ev in laws.SEQUENCES]


MENDED = Function(
    right=causal_attention,
    call="attention(Q, K, V)",
    inputs=sequences,
    checked="It gives the right outputs and holds every law that can be asked of it.",
    laws={"promises": ("causal",)},
)

# --- 5: a bug of your own -------------------------------------------------------------------------


@dataclass(frozen=True)
class Bug:
    """A causal function that must break one law and hold another.

    Attributes
    ----------
    breaks, holds : str
        Names of the two laws.
    checked : str
        What a right answer is told.
    """

    breaks: str
    holds: str
    checked: str

    def judge(self, answer: Any) -> Verdict:
        """Ask the two laws."""
        if not isinstance(answer, Callable):
            return Verdict(False, "A function is wanted, attention(Q, K, V).")
        asked = laws.describe(answer, promises=["causal"])
        kept = laws.law(self.holds).counterexample(asked)
        if kept is not None:
            return Verdict(False, f"It breaks the law {self.holds}, which it should hold.\n{kept}")
        if laws.law(self.breaks).counterexample(asked) is None:
            return Verdict(False, f"It holds the law {self.breaks}, which it should break.")
        return Verdict(True, self.checked)


ONE_LAW_ONLY = Bug(
    breaks="prefix",
    holds="later-tokens",
    checked="It breaks the law prefix and holds the law later-tokens.",
)

# --- 6: three suspects ----------------------------------------------------------------------------


def suspect(number: int) -> Choice:
    """The name of one animal; any other animal's name is told which laws it would break."""
    right = zoo.case(number)
    options = {
        one.name: f"That one breaks {', '.join(one.killed_by)}."
        for one in zoo.ANIMALS
        if one.kind == right.kind
    }
    return Choice(right=right.name, options={**options, right.name: right.cause})


SUSPECTS = Parts({f"case {number}": suspect(number) for number in (10, 11, 12)})

# --- 7: gradients ---------------------------------------------------------------------------------


def factor(d: int) -> float:
    """How many times too large dQ is, measured at one place."""
    arrays = drawn((2, d), (3, d), (3, 5), (2, 5), seed=10)
    wrong, right = zoo.gradient_scale_forgotten(*arrays)[0], zoo.right_gradients(*arrays)[0]
    return float(wrong[0, 0] / right[0, 0])


TOO_LARGE = Parts(
    {
        "factor": Numbers(
            right=lambda: factor(9),
            checked="It is √d.",
            slips={
                "That is the factor for d = 4.": lambda: factor(4),
                "That is d. It is the root that is missing.": lambda: factor(9) ** 2,
            },
        ),
        "line": Choice(
            right="c",
            options={
                "a": "Wrong weights would make dV wrong too.",
                "b": "Without the mean the error would not be one factor for all numbers.",
                "c": "The scale multiplies the scores, so it multiplies their gradients on the "
                "way back to Q and K.",
            },
        ),
    }
)

EXERCISES = {
    1: A_MASK_INVERTED,
    2: HIDDEN_BY,
    3: SYMPTOMS,
    4: MENDED,
    5: ONE_LAW_ONLY,
    6: SUSPECTS,
    7: TOO_LARGE,
}
