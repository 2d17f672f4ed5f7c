"""Exercises that say what went wrong: ``exercises.check("causal-1", answer)``.

The name is the chapter's file without its number, and the number of the exercise: exercise 2.1,
in ``02_causal.ipynb``, is ``causal-1``.  An answer is what the exercise asks for: a number, a
list, an array, a word, a letter or a function.  Only NumPy is needed, so a browser can do it.

To add a chapter, write a module of its name in this folder, such as ``generation.py``, with one
dictionary.  It is found by itself::

    from attnlib.teaching.exercises.kinds import Choice, Function, Numbers, Parts

    EXERCISES = {
        1: Numbers(
            right=lambda: causal_attention(Q, K, V)[2],
            checked="These are the two entries of the output, to four digits.",
            slips={"You forgot the scale.": lambda: causal_attention(Q, K, V, scale=1.0)[2]},
        ),
        2: Parts({"work": Numbers(...), "reason": Choice(right="b", options={"a": ..., "b": ...})}),
    }

``right`` computes what is expected and each slip computes what that slip gives: no result is
typed.  ``kinds`` describes the kinds of answer.  `tests/attnlib/test_exercises.py` then holds that
no stub passes, that the chapter's solution passes, and that every slip is named.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import Any

from attnlib.teaching.exercises.kinds import Exercise, verdict_on

NOT_ANSWERED = "Not answered yet: put your answer in place of None."


@dataclass(frozen=True)
class Result:
    """What `check` found.

    Attributes
    ----------
    name : str
        The exercise.
    passed : bool or None
        True, False, or None where there was nothing to judge.
    message : str
        What `check` printed.
    """

    name: str
    passed: bool | None
    message: str

    def __bool__(self) -> bool:
        return self.passed is True

    def _ipython_display_(self) -> None:
        """Show nothing: `check` has printed the message already."""


def check(name: str, answer: Any = None) -> Result:
    """Say whether an answer is right and, if it is not, what went wrong.

    Parameters
    ----------
    name : str
        The exercise, such as ``"causal-3"`` for Exercise 2.3.
    answer : object, optional
        A number, list, array, string or function, as the exercise asks.  None: not answered yet.

    Returns
    -------
    Result
        ``passed`` is True, False or, without an answer or with an unknown name, None;
        ``message`` is the text that was printed.  A result counts as true only if it passed.

    Notes
    -----
    Never raises, whatever the answer is.  A wrong answer is told the law that it breaks, with
    the smallest counterexample, or the classic slip that gives exactly this answer.

    Examples
    --------
    >>> result = check("causal-1")
    Not answered yet: put your answer in place of None.
    >>> result.passed is None
    True
    """
    result = _result(name, answer)
    _print(result.message)
    return result


def names() -> list[str]:
    """Return the names of all exercises, chapter by chapter."""
    return list(_registry())


def exercise(name: str) -> Exercise:
    """Return the exercise of this name, one of the `kinds`.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    Exercise
        What judges an answer.

    Raises
    ------
    KeyError
        If there is none.
    """
    return _registry()[name]


@cache
def _registry() -> dict[str, Exercise]:
    found = {}
    for module in pkgutil.iter_modules(__path__):
        exercises = importlib.import_module(f"{__name__}.{module.name}").__dict__.get("EXERCISES")
        for number, exercise in (exercises or {}).items():
            found[f"{module.name.replace('_', '-')}-{number}"] = exercise
    return found


def _result(name: Any, answer: Any) -> Result:
    known = _registry()
    if not issubclass(type(name), str):  # isinstance would ask the object, which may raise
        example = next(iter(known))
        return Result("?", None, f"The name of an exercise is a string, such as {example!r}.")
    if name not in known:
        return Result(name, None, _unknown(name))
    if answer is None or answer is ...:
        return Result(name, None, NOT_ANSWERED)
    passed, message = verdict_on(known[name], answer)
    return Result(name, passed, message)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name.lower(), names(), n=1)
    question = f" Did you mean {close[0]!r}?" if close else ""
    numbers: dict[str, list[str]] = {}
    for known in names():
        chapter, _, number = known.rpartition("-")
        numbers.setdefault(chapter, []).append(number)
    lines = [f"  {chapter}-{', '.join(each)}" for chapter, each in numbers.items()]
    return "\n".join([f"No exercise is called {name[:40]!r}.{question} There are:", *lines])


def _print(message: str) -> None:
    try:
        print(message)
    except UnicodeEncodeError:  # a console that knows ASCII only
        print(message.encode("ascii", "replace").decode())


__all__ = ["NOT_ANSWERED", "Result", "check", "exercise", "names"]
