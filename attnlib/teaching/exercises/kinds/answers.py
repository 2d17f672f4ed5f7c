"""Read what a reader hands in: any object, told apart without ever raising."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

_NOT_NUMBERS = {
    dict: "This is a dictionary; numbers are wanted, as a list or an array.",
    set: "This is a set, which has no order; numbers are wanted, as a list or an array.",
    frozenset: "This is a set, which has no order; numbers are wanted, as a list or an array.",
    bytes: "These are bytes; numbers are wanted, as a list or an array.",
}


class Unreadable(Exception):
    """The answer cannot be understood; the message says what is wanted."""


def read_numbers(answer: Any, *, ragged: bool = False) -> np.ndarray:
    """Return an answer as a float array; fractions may be typed, as ``"1/6"`` too.

    With `ragged`, rows of different lengths are filled up with zeros on the right.
    """
    for kind, advice in _NOT_NUMBERS.items():
        if isinstance(answer, kind):
            raise Unreadable(advice)
    if callable(answer):
        raise Unreadable("This is a function; the numbers that it returns are wanted: call it.")
    try:
        return _float_array(_filled(answer) if ragged else answer)
    except Unreadable:
        raise
    except Exception:
        raise Unreadable(
            f"This cannot be read as numbers: it is {article(answer)}. "
            "Hand in a number, or a list or an array of numbers, with rows of one length."
        ) from None


def _float_array(answer: Any) -> np.ndarray:
    array = np.asarray(answer)
    if array.dtype.kind in "OUS":  # fractions, or numbers that somebody typed as text
        return (
            np.vectorize(_one_number, otypes=[float])(array) if array.size else array.astype(float)
        )
    if array.dtype.kind not in "biuf":
        raise Unreadable(f"Real numbers are wanted; these are of type {array.dtype}.")
    return array.astype(float)


def _one_number(entry: Any) -> float:
    if isinstance(entry, (str, bytes)):
        return float(Fraction(str(entry).replace(" ", "")))
    if entry is None:
        raise Unreadable("One entry is still None.")
    return float(entry)


def _filled(answer: Any) -> Any:
    """Fill the rows of a table with zeros on the right; leave anything else alone."""
    if not isinstance(answer, (list, tuple)):
        return answer
    if not all(isinstance(row, (list, tuple, np.ndarray)) for row in answer):
        return answer
    width = max(map(len, answer), default=0)
    return [[*row, *[0] * (width - len(row))] for row in answer]


def word(answer: Any) -> str:
    """Return a word or letter as it is compared: lower case, without marks around it."""
    if isinstance(answer, (bool, np.bool_)):
        return str(bool(answer)).lower()
    if not isinstance(answer, str):
        raise Unreadable(f"A word or a letter in quotes is wanted; this is {article(answer)}.")
    return " ".join(answer.casefold().replace("-", " ").split()).strip(" .,;:!?()[]'\"")


def article(value: Any) -> str:
    """Return what a value is, in words: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def shape_in_words(shape: Sequence[int]) -> str:
    """Return a shape as a reader says it: "one number", "3 numbers", "2 × 3 numbers"."""
    if not shape:
        return "one number"
    return " × ".join(map(str, shape)) + (" number" if tuple(shape) == (1,) else " numbers")


def place(index: Sequence[int]) -> str:
    """Return where an entry stands: "entry 2", "row 1, column 0"."""
    if len(index) == 2:
        return f"row {index[0]}, column {index[1]}"
    return "entry " + ", ".join(map(str, index))


def shown(value: Any) -> str:
    """Return a short text for a value, with numbers rounded to four decimals."""
    try:
        if callable(value):
            return getattr(value, "__name__", "a function")
        if isinstance(value, (bool, np.bool_, str)):
            return repr(value)[:80]
        if isinstance(value, tuple):
            return "(" + ", ".join(map(shown, value)) + ")"
        return _rounded(np.asarray(value))
    except Exception:
        return article(value)


def _rounded(array: np.ndarray) -> str:
    """Return numbers with at most four decimals, a whole number without any."""
    if array.ndim:
        return "[" + ", ".join(map(_rounded, array)) + "]"
    if array.dtype.kind == "b":
        return str(bool(array))
    return f"{round(float(array), 4) + 0.0:.10g}"  # + 0.0: no -0


def call(function: Callable, arguments: Sequence[Any]) -> Any:
    """Call a reader's function quietly: what it warns of is seen in what it returns."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*arguments)
