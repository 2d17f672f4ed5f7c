"""Answers that are functions: tried on small inputs, held against classic slips and laws."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnlib.teaching import laws
from attnlib.teaching.exercises.kinds.answers import Unreadable, article, call, read_numbers, shown
from attnlib.teaching.exercises.kinds.verdicts import Verdict

TEXT = ("text",)  # in the place of a shape


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
    laws : mapping, optional
        How `attnlib.teaching.laws.broken_laws` is to ask about the function: ``kind`` and
        ``promises``.  Options are asked about where the reader's function takes them.  The zoo of
        the same kind then names the bugs that no slip names.
    sequence : callable, optional
        Makes of the reader's function one of that kind, such as `laws.row_by_row`.
    remarks : mapping of str to callable
        What to add to a right answer where the callable, given the function, says so.
    """

    right: Callable
    call: str
    inputs: Callable[[], Sequence[tuple]]
    checked: str
    slips: Mapping[str, Callable] = field(default_factory=dict)
    laws: Mapping[str, Any] | None = None
    sequence: Callable[[Callable], Callable] | None = None
    remarks: Mapping[str, Callable[[Callable], bool]] = field(default_factory=dict)

    def judge(self, answer: Any) -> Verdict:
        """Try the function on every input; name the slip that gives the same, and the law."""
        if not callable(answer):
            raise Unreadable(
                f"A function is wanted, {self.call}; this is {article(answer)}. "
                "Hand in its name, without parentheses."
            )
        for look in (self._refusal, self._difference):
            troubles = (look(answer, arguments) for arguments in self.inputs())
            trouble = next(filter(None, troubles), None)
            if trouble is not None:  # laws speak of numbers: none where there is no result
                law = self._broken_law(answer) if look == self._difference else None
                said = filter(None, [self._bug(answer), law, trouble])
                return Verdict(False, "\n".join(said))
        if law := self._broken_law(answer):
            return Verdict(False, "\n".join(filter(None, [self._bug(answer), law])))
        remarks = [says for says, is_so in self.remarks.items() if _holds(is_so, answer)]
        return Verdict(True, "\n".join([self.checked, *remarks]))

    def _refusal(self, answer: Callable, arguments: tuple) -> str | None:
        """Return why there is no result to compare: an error, no numbers, another shape."""
        own = copy.deepcopy(arguments)
        try:
            result = call(answer, own)
        except (Exception, SystemExit) as error:
            said = f": {error}".rstrip(": ")
            return f"Given {self._given(arguments)}, it raises {type(error).__name__}{said}."
        if result is None:
            return "It returns None. Is the line with return missing?"
        if not all(map(_unchanged, arguments, own)):
            return "It changes its inputs. Work on a copy."
        try:
            shape, _ = _numbers_of(result)
        except Exception:
            return f"It returns {article(result)} that cannot be read as numbers."
        wanted, _ = _outcome(self.right, arguments)
        if shape != wanted:
            given = self._given(arguments)
            if TEXT in (shape, wanted):
                right = call(self.right, copy.deepcopy(arguments))
                return f"Given {given}, it returns {shown(result)} instead of {shown(right)}."
            return f"Given {given}, the result has shape {shape}; it should be {wanted}."
        return None

    def _difference(self, answer: Callable, arguments: tuple) -> str | None:
        """Return where the numbers differ from the right ones."""
        result, right = (call(f, copy.deepcopy(arguments)) for f in (answer, self.right))
        (_, own), (_, needed) = _numbers_of(result), _numbers_of(right)
        if _close(own, needed):
            return None
        given = f"Given {self._given(arguments)}"
        if np.isnan(own).any():
            return f"{given}, {np.isnan(own).mean():.0%} of the result is NaN."
        if own.size <= 12:
            return f"{given}, it returns {shown(result)} instead of {shown(right)}."
        place = int(np.argmin(np.isclose(own, needed, rtol=1e-5, atol=1e-8)))
        numbers = f"{shown(own[place])} instead of {shown(needed[place])}"
        return f"{given}, number {place} of the result is {numbers}."

    def _bug(self, answer: Callable) -> str | None:
        """Name the slip that gives the reader's results on every input, or ask the zoo."""
        theirs = [(arguments, _outcome(answer, arguments)) for arguments in self.inputs()]
        for says, slip in self.slips.items():
            if all(_same_outcome(own, _outcome(slip, given)) for given, own in theirs):
                return says
        return self._animal(answer)

    def _animal(self, answer: Callable) -> str | None:
        if self.laws is None:
            return None
        from attnlib.teaching import zoo  # takes a while to look through: only where it is needed

        try:
            animal = zoo.recognise(self._sequence(answer), **self.laws)
        except (Exception, SystemExit):  # what it raises is told already
            return None
        return animal and f"{animal.cause} {animal.fix}"

    def _broken_law(self, answer: Callable) -> str | None:
        if self.laws is None:
            return None
        try:
            broken = laws.broken_laws(self._sequence(answer), **self.laws)
        except (Exception, SystemExit):
            return None
        if not broken:
            return None
        law, example = broken[0]
        given = example.given[:1].lower() + example.given[1:]
        return (
            f"It breaks a law: {law.sentence} "
            f"Given {given}, came {example.came}, needed {example.needed}."
        )

    def _sequence(self, answer: Callable) -> Callable:
        return self.sequence(answer) if self.sequence else answer

    def _given(self, arguments: tuple) -> str:
        names = self.call.partition("(")[2].rstrip(")").split(", ")
        pairs = list(zip(names, arguments, strict=True))
        if sum(map(_size, arguments)) <= 16:
            return ", ".join(f"{name} = {shown(argument)}" for name, argument in pairs)
        return ", ".join(
            f"{name} = {shown(argument)}"
            if _size(argument) == 1
            else f"{name} {' × '.join(map(str, np.shape(argument)))}"
            for name, argument in pairs
        )


def _holds(is_so: Callable[[Callable], bool], answer: Callable) -> bool:
    try:
        return call(is_so, [answer])
    except (Exception, SystemExit):
        return False


def _unchanged(before: Any, after: Any) -> bool:
    return callable(before) or _same_outcome(_numbers_of(before), _numbers_of(after))


def _size(argument: Any) -> int:
    return sum(map(_size, argument)) if isinstance(argument, tuple) else np.size(argument)


def _close(numbers: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two results are equal within rounding, NaN at the same places included."""
    return numbers.shape == other.shape and np.allclose(
        numbers, other, rtol=1e-5, atol=1e-8, equal_nan=True
    )


def _numbers_of(result: Any) -> tuple[tuple, np.ndarray]:
    """Return the shape of a result and its numbers; of several results, the shape of each.

    A text has numbers, too, those of its characters.
    """
    if isinstance(result, str):
        return TEXT, np.array([float(ord(character)) for character in result])
    if not isinstance(result, tuple):
        try:
            numbers = read_numbers(result)
        except Unreadable:
            if not isinstance(result, list):  # a list may stand for several results
                raise
        else:
            return numbers.shape, numbers.ravel()
    entries = [read_numbers(entry) for entry in result]
    return tuple(entry.shape for entry in entries), np.concatenate([e.ravel() for e in entries])


def _outcome(function: Callable, arguments: tuple) -> tuple[tuple, np.ndarray] | str:
    """Return the numbers of what a function gives, or the kind of error that it raises."""
    try:
        return _numbers_of(call(function, copy.deepcopy(arguments)))
    except (Exception, SystemExit) as error:
        return type(error).__name__


def _same_outcome(first: Any, second: Any) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str) and first == second
    return first[0] == second[0] and _close(first[1], second[1])
