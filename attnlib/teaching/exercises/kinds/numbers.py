"""Answers that are numbers, and the laws that numbers can break."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlib.teaching.exercises.kinds.answers import place, read_numbers, shape_in_words, shown
from attnlib.teaching.exercises.kinds.verdicts import Verdict

ArrayLaw = Callable[[np.ndarray], "str | None"]


@dataclass(frozen=True)
class Numbers:
    """A number, or a list or array of them.

    Attributes
    ----------
    right : callable
        Takes nothing and computes what is expected.
    checked : str
        What a right answer is told.
    slips : mapping of str to callable
        What to say to a slip, and how to compute what the slip gives, in any shape.
    laws : sequence of callable
        Each takes the answer and returns the law that it breaks, with where, or None.
    through : callable, optional
        Computes from the answer what is compared: for "find a query whose weights are …".
    shape : tuple of int, optional
        The shape of the answer, where `through` changes it.  The laws are then asked first.
    ragged : bool
        Rows may leave out the zeros at their right ends.
    digits : int
        How many decimals count; 0 for whole numbers, where nothing is rounded.
    """

    right: Callable[[], Any]
    checked: str
    slips: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    laws: Sequence[ArrayLaw] = ()
    through: Callable[[np.ndarray], Any] | None = None
    shape: tuple[int, ...] | None = None
    ragged: bool = False
    digits: int = 4

    def judge(self, answer: Any) -> Verdict:
        """Compare with what is expected, then with every slip, then with the laws."""
        numbers = read_numbers(answer, ragged=self.ragged)
        right = np.asarray(self.right(), float)
        wanted = right.shape if self.shape is None else self.shape
        if self.through is not None and numbers.shape == wanted:
            if broken := self._broken_law(numbers):
                return Verdict(False, broken)
            numbers = np.asarray(self.through(numbers), float)
            wanted = right.shape
        if self._same(numbers, right):
            return Verdict(True, self.checked)
        for slip, value in self.slips.items():
            if self._same(numbers, np.asarray(value(), float)):
                return Verdict(False, slip)
        if numbers.shape != wanted:
            return Verdict(False, _other_shape(numbers, wanted))
        if not np.isfinite(numbers).all():
            return Verdict(False, "NaN or infinity is among your numbers.")
        broken = None if self.through else self._broken_law(numbers)
        return Verdict(False, broken or self._difference(numbers, right))

    def _broken_law(self, numbers: np.ndarray) -> str | None:
        return next(filter(None, (law(numbers) for law in self.laws)), None)

    def _same(self, numbers: np.ndarray, other: np.ndarray) -> bool:
        return numbers.shape == other.shape and not self._off(numbers, other).any()

    def _off(self, numbers: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return where two arrays differ by more than rounding."""
        absolute, relative = (0.6 * 10.0**-self.digits, 2e-3) if self.digits else (1e-9, 0.0)
        with np.errstate(invalid="ignore"):
            return ~(np.abs(numbers - other) <= absolute + relative * np.abs(other))

    def _difference(self, numbers: np.ndarray, right: np.ndarray) -> str:
        factor = _common_factor(numbers, right)
        if factor is not None:
            return f"All your numbers are the right ones times {factor:.4g}."
        if numbers.ndim == 2 and self._same(numbers.T, right):
            return "These are the right numbers, with rows and columns exchanged."
        if self._same(np.sort(numbers, axis=None), np.sort(right, axis=None)):
            return "These are the right numbers in another order."
        if self.digits and np.all(np.abs(numbers - right) <= 0.006 + 0.01 * np.abs(right)):
            return f"This is close. Give {self.digits} decimals, and round at the end only."
        first = tuple(int(axis) for axis in np.argwhere(self._off(numbers, right))[0])
        direction = "large" if numbers[first] > right[first] else "small"
        too = f"{shown(numbers[first])} is too {direction}."
        return f"The first that differs is {place(first)}: {too}" if numbers.ndim else too


def _other_shape(numbers: np.ndarray, wanted: Sequence[int]) -> str:
    return (
        f"The answer has {shape_in_words(wanted)}; yours has {shape_in_words(numbers.shape)}."
        if numbers.size != np.prod(wanted, dtype=int)
        else f"The answer has shape {tuple(wanted)}; yours has shape {numbers.shape}."
    )


def _common_factor(numbers: np.ndarray, right: np.ndarray) -> float | None:
    """Return the factor by which all numbers are off, where there is one."""
    if numbers.size < 2 or not np.any(right) or not np.all(np.isfinite(numbers)):
        return None
    largest = np.unravel_index(np.argmax(np.abs(right)), right.shape)
    factor = numbers[largest] / right[largest]
    return float(factor) if factor and np.allclose(numbers, factor * right, rtol=2e-3) else None


def rows_sum_to_one(weights: np.ndarray) -> str | None:
    """Law 1.1, for weights."""
    if np.any(weights < 0):
        return f"Weights are never negative (Law 1.1); you have {shown(weights.min())}."
    for i, total in enumerate(np.atleast_2d(weights).sum(axis=1)):
        if abs(total - 1) > 5e-3:
            row = f"row {i} sums" if weights.ndim == 2 else "yours sum"
            return f"Weights sum to 1 (Law 1.1); {row} to {shown(total)}."
    return None


def inside(values: Any) -> ArrayLaw:
    """Law 1.3, for outputs: a mixture stays inside its values."""

    def law(output: np.ndarray) -> str | None:
        low, high = np.min(values, axis=0), np.max(values, axis=0)
        for index in np.argwhere((output < low - 1e-3) | (output > high + 1e-3)):
            column = int(index[-1])
            return (
                "A mixture lies between the smallest and the largest value of its column "
                f"(Law 1.3); {shown(output[tuple(index)])} in column {column} does not lie "
                f"between {shown(low[column])} and {shown(high[column])}."
            )
        return None

    return law


def sees_no_later_token(weights: np.ndarray) -> str | None:
    """Law of causality, for a square of weights: nothing above the diagonal."""
    for i, j in np.argwhere(np.triu(np.abs(weights) > 1e-3, k=1)):
        return (
            f"A token never attends to a later one; you give token {j} a weight of "
            f"{shown(weights[i, j])} at position {i}."
        )
    return None
