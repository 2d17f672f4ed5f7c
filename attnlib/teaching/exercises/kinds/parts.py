"""Answers of several parts, or of one of several kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnlib.teaching.exercises.kinds.answers import Unreadable
from attnlib.teaching.exercises.kinds.verdicts import Exercise, Verdict, judged


@dataclass(frozen=True)
class AnyOf:
    """One question with answers of several kinds, such as three numbers, or four with a zero.

    Attributes
    ----------
    kinds : sequence of Exercise
        The first says what is wrong where none of them passes.
    """

    kinds: Sequence[Exercise]

    def judge(self, answer: Any) -> Verdict:
        """Pass if one of the kinds passes."""
        verdicts = [judged(kind, answer) for kind in self.kinds]
        return next((verdict for verdict in verdicts if verdict.passed), verdicts[0])


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
            verdicts[name] = (
                Verdict(False, "not answered yet.") if own is None else judged(part, own)
            )
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
