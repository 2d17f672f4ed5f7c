"""What becomes of an answer: passed or not, and what to tell the reader."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple, Protocol

from attnlib.teaching.exercises.kinds.answers import Unreadable, article

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
    passed, message = judged(exercise, answer)
    opening = "Right." if passed else "Not yet."
    return Verdict(passed, _short_lines(f"{opening} {message}"))


def judged(exercise: Exercise, answer: Any) -> Verdict:
    try:
        return exercise.judge(answer)
    except Unreadable as reason:
        return Verdict(False, str(reason))
    except (Exception, SystemExit):  # an object that raises when it is looked at
        return Verdict(False, f"It is {article(answer)}, which cannot be read as an answer.")


def _short_lines(message: str) -> str:
    return "\n".join(
        textwrap.fill(
            line,
            WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent=_indent(line),
        )
        for line in message.splitlines()
    )


def _indent(line: str) -> str:
    return " " * 4 if line.startswith(" ") else ""
