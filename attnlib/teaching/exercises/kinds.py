"""The kinds of answer that an exercise can ask for.

``Numbers``   a number, list or array: ``right`` computes it, ``slips`` the classic wrong ones
``Choice``    a letter or word out of a few, each with what there is to say about it
``Statement`` true or false
``Order``     the steps of something, by their letters; several orders may be right
``Function``  a function of the reader's, tried on small inputs
``Parts``     several of these; the answer is a list with one entry for each part

Each has ``judge(answer)``, which returns a `Verdict`.  Every text says something to the reader, in
whole sentences.  ``checked`` is what a right answer is told.
"""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from attnlib.teaching.exercises.answers import (
    Unreadable,
    article,
    call,
    place,
    read_numbers,
    shape_in_words,
    shown,
    word,
)

WIDTH = 72  # of a printed line


class Verdict(NamedTuple):
    """Whether an answer passed, and what to tell the reader."""

    passed: bool
    message: str


class Exercise(Protocol):
    """What every kind can do."""

    def judge(self, answer: Any) -> Verdict:
        """Say whether an answer is right; raise `Unreadable` where it cannot be understood."""


def verdict_on(exercise: Exercise, answer: Any) -> Verdict:
    """Judge an answer, whatever it is, and lay out the message in short lines."""
    try:
        passed, message = exercise.judge(answer)
    except Unreadable as reason:
        passed, message = False, str(reason)
    except Exception:  # an object that raises when it is looked at
        passed, message = False, f"This {article(answer).split()[1]} cannot be read as an answer."
    opening = "Right." if passed else "Not yet."
    return Verdict(passed, _short_lines(f"{opening} {message}"))


def _short_lines(message: str) -> str:
    return "\n".join(
        textwrap.fill(line, WIDTH, break_long_words=False, subsequent_indent=_indent(line))
        for line in message.splitlines()
    )


def _indent(line: str) -> str:
    return " " * (len(line) - len(line.lstrip()))


# --- numbers ------------------------------------------------------------------------------------

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
        The shape of the answer, where `through` changes it.
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
        broken = (law(numbers) for law in self.laws)
        return Verdict(False, next(filter(None, broken), None) or self._difference(numbers, right))

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


# --- letters and words ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A letter or a word out of a few.

    Attributes
    ----------
    right : str or sequence of str
        The right answer, or all that count as right.
    options : mapping of str to str
        Every answer that is expected, and what to say about it, the right ones included.
    """

    right: str | Sequence[str]
    options: Mapping[str, str]

    def judge(self, answer: Any) -> Verdict:
        """Look the word up, without regard to case or marks around it."""
        options = {word(option): says for option, says in self.options.items()}
        right = {word(one) for one in ([self.right] if isinstance(self.right, str) else self.right)}
        given = word(answer)
        if given not in options:
            letters = all(len(option) == 1 for option in options)
            wanted = f"one of the letters {', '.join(options)}" if letters else "another word"
            return Verdict(False, f"{shown(given)} is not it. What is wanted is {wanted}.")
        return Verdict(given in right, options[given])


@dataclass(frozen=True)
class Statement:
    """True or false.

    Attributes
    ----------
    right : bool
        Which of the two it is.
    because : str
        The reason, told to a right answer.
    hint : str
        What a wrong answer is told.
    """

    right: bool
    because: str
    hint: str

    def judge(self, answer: Any) -> Verdict:
        """Take True and False, and the words for them."""
        given = {"t": "true", "f": "false", "yes": "true", "no": "false"}
        said = word(answer)
        said = given.get(said, said)
        if said not in ("true", "false"):
            raise Unreadable("True or False is wanted.")
        passed = (said == "true") == self.right
        return Verdict(passed, self.because if passed else self.hint)


@dataclass(frozen=True)
class Order:
    """The steps of something, in order.

    Attributes
    ----------
    steps : mapping of str to str
        The letter of each step, and the step in words.
    before : mapping of pair of str to str
        For two letters, why the first step must come before the second.
    remarks : mapping of str to str
        What to say about an order that is right, by its letters.
    """

    steps: Mapping[str, str]
    before: Mapping[tuple[str, str], str]
    remarks: Mapping[str, str]

    def judge(self, answer: Any) -> Verdict:
        """Hold the order against every "before"; any that breaks none is right."""
        order = self._letters(answer)
        for (first, second), why in self.before.items():
            if order.index(first) > order.index(second):
                return Verdict(
                    False, f'"{self.steps[second]}" stands before "{self.steps[first]}". {why}'
                )
        return Verdict(True, self.remarks["".join(order)])

    def _letters(self, answer: Any) -> list[str]:
        entries = answer.replace(",", " ") if isinstance(answer, str) else answer
        entries = entries.split() if isinstance(entries, str) and " " in entries else entries
        letters = [word(entry) for entry in entries]
        if sorted(letters) != sorted(self.steps):
            raise Unreadable(f"Each of the letters {', '.join(self.steps)} is wanted once.")
        return letters


# --- several parts -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Several answers, handed in as a list in this order, or as a dictionary by name.

    Attributes
    ----------
    parts : mapping of str to Exercise
        The parts by name.
    """

    parts: Mapping[str, Exercise]

    def judge(self, answer: Any) -> Verdict:
        """Judge each part; one line for each that is not right, or for each if all are."""
        verdicts = {}
        for (name, part), own in zip(self.parts.items(), self._entries(answer), strict=True):
            if own is None:
                verdicts[name] = Verdict(False, "not answered yet.")
                continue
            try:
                verdicts[name] = part.judge(own)
            except Unreadable as reason:
                verdicts[name] = Verdict(False, str(reason))
        passed = all(verdict.passed for verdict in verdicts.values())
        right = [name for name, verdict in verdicts.items() if verdict.passed]
        lines = [
            f"  {name}: {verdict.message}"
            for name, verdict in verdicts.items()
            if verdict.passed == passed
        ]
        opening = "All parts." if passed else f"Right: {', '.join(right)}." if right else ""
        return Verdict(passed, "\n".join([opening, *lines]))

    def _entries(self, answer: Any) -> list[Any]:
        wanted = f"A list of {len(self.parts)} answers is wanted: {', '.join(self.parts)}."
        if isinstance(answer, dict):
            if set(answer) != set(self.parts):
                raise Unreadable(wanted)
            return [answer[name] for name in self.parts]
        if not isinstance(answer, (list, tuple, np.ndarray)) or np.ndim(answer[:0]) < 1:
            raise Unreadable(wanted)
        if len(answer) != len(self.parts):
            raise Unreadable(f"{wanted} Yours has {len(answer)}.")
        return list(answer)


# --- functions ----------------------------------------------------------------------------------

Law = Callable[[Callable], "str | None"]


@dataclass(frozen=True)
class Function:
    """A function that the reader writes.

    Attributes
    ----------
    right : callable
        The same function, right.
    call : str
        How it is called, such as ``"attention(q, K, V)"``.
    inputs : callable
        Takes nothing and returns the inputs to try, a tuple of arguments each, smallest first.
    checked : str
        What a right answer is told.
    slips : mapping of str to callable
        What to say to a slip, and a function with this slip.
    laws : sequence of callable
        Each takes the reader's function and returns the law that it breaks, with the smallest
        counterexample, or None.
    """

    right: Callable
    call: str
    inputs: Callable[[], Sequence[tuple]]
    checked: str
    slips: Mapping[str, Callable] = field(default_factory=dict)
    laws: Sequence[Law] = ()

    def judge(self, answer: Any) -> Verdict:
        """Try the function on every input; name the slip that gives the same, then the law."""
        if not callable(answer):
            raise Unreadable(
                f"A function is wanted, {self.call}; this is {article(answer)}. "
                "Hand in its name, without parentheses."
            )
        inputs = self.inputs()
        results, trouble = [], None
        for arguments in inputs:
            result, trouble = self._try(answer, arguments)
            results.append(result)
            trouble = trouble or self._difference(arguments, result)
            if trouble:
                break
        if trouble is None:
            return Verdict(True, self.checked)
        said = self._slip(answer, inputs) or ""
        broken = next(filter(None, (law(answer) for law in self.laws)), None) or ""
        return Verdict(False, "\n".join(filter(None, [said, broken, trouble])))

    def _try(self, answer: Callable, arguments: tuple) -> tuple[Any, str | None]:
        """Return what the function gives and, where that is no array of numbers, what is wrong."""
        own = copy.deepcopy(arguments)
        try:
            result = call(answer, own)
        except (Exception, SystemExit) as error:
            said = f": {error}".rstrip(": ")
            return None, f"On {self._inputs(arguments)} it raises {type(error).__name__}{said}."
        if result is None:
            return None, "It returns None. Is the line with return missing?"
        if any(not np.array_equal(a, b) for a, b in zip(own, arguments, strict=True)):
            return None, "It changes its inputs. Work on a copy."
        return result, None

    def _difference(self, arguments: tuple, result: Any) -> str | None:
        right = call(self.right, arguments)
        try:
            numbers = _flat(result)
        except (Unreadable, ValueError, TypeError):
            return f"It returns {article(result)}, not numbers."
        if shape_of(result) != shape_of(right):
            return (
                f"On {self._inputs(arguments)} the result has shape {shape_of(result)}; "
                f"it should be {shape_of(right)}."
            )
        if same(numbers, _flat(right)):
            return None
        if np.isnan(numbers).any():
            share = np.isnan(numbers).mean()
            return f"On {self._inputs(arguments)} {share:.0%} of the result is NaN."
        return (
            f"On {self._inputs(arguments)}\n  it returns {shown(result)}\n"
            f"  instead of {shown(right)}."
        )

    def _slip(self, answer: Callable, inputs: Sequence[tuple]) -> str | None:
        """Return the slip whose function gives the reader's results on every input."""
        theirs = [_outcome(answer, arguments) for arguments in inputs]
        for says, slip in self.slips.items():
            if all(
                _same_outcome(own, _outcome(slip, arguments))
                for own, arguments in zip(theirs, inputs, strict=True)
            ):
                return says
        return None

    def _inputs(self, arguments: tuple) -> str:
        names = self.call.partition("(")[2].rstrip(")").split(", ")
        small = sum(np.size(argument) for argument in arguments) <= 16
        texts = [
            f"{name} = {shown(argument)}"
            if small or not np.ndim(argument)
            else f"{name} {' × '.join(map(str, np.shape(argument)))}"
            for name, argument in zip(names, arguments, strict=False)
        ]
        return ", ".join(texts)


def same(numbers: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two results are equal within rounding, NaN at the same places included."""
    return numbers.shape == other.shape and np.allclose(
        numbers, other, rtol=1e-5, atol=1e-8, equal_nan=True
    )


def shape_of(result: Any) -> tuple:
    """Return the shape of a result; of a tuple, the shape of each entry."""
    if isinstance(result, tuple):
        return tuple(np.shape(entry) for entry in result)
    return np.shape(result)


def _flat(result: Any) -> np.ndarray:
    entries = result if isinstance(result, tuple) else [result]
    return np.concatenate([read_numbers(entry).ravel() for entry in entries])


def _outcome(function: Callable, arguments: tuple) -> tuple[tuple, np.ndarray] | str:
    """Return shape and numbers of what a function gives, or the kind of error that it raises."""
    try:
        result = call(function, copy.deepcopy(arguments))
        return shape_of(result), _flat(result)
    except (Exception, SystemExit) as error:
        return type(error).__name__


def _same_outcome(first: Any, second: Any) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str) and first == second
    return first[0] == second[0] and same(first[1], second[1])
