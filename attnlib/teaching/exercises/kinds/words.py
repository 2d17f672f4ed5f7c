"""Answers that are letters or words: a choice, true or false, the order of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnlib.teaching.exercises.kinds.answers import Unreadable, shown, word
from attnlib.teaching.exercises.kinds.verdicts import Verdict


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
        if not isinstance(answer, (str, list, tuple)):  # others may never end
            raise Unreadable("A string or a list of letters is wanted.")
        entries = answer.replace(",", " ") if isinstance(answer, str) else answer
        entries = entries.split() if isinstance(entries, str) and " " in entries else entries
        letters = [word(entry) for entry in entries]
        if sorted(letters) != sorted(self.steps):
            raise Unreadable(f"Each of the letters {', '.join(self.steps)} is wanted once.")
        return letters
