"""Numbers that a chapter quotes, recomputed: no result in the book is typed by hand.

A chapter's list stands beside the tests: ``tests/chapters/numbers/02_causal.py`` belongs to
``chapters/02_causal.ipynb``. It holds one list, ``NUMBERS``::

    from tests.chapters.quoted_numbers import computed, given

    from attnlib import softmax

    NUMBERS = [
        computed("the weights are 0.0474 and 0.9526", lambda: softmax([1, 4])),
        computed(r"$\\tfrac16, \\tfrac26, \\tfrac36$", lambda: exact_weights([1, 2, 3])),
        given("the weights 0.1, 0.6, 0.3", "what exercise 2.1 hands to the reader"),
    ]

``computed(phrase, value)``
    The phrase stands in the chapter exactly as quoted (line breaks and runs of spaces count as
    one space). ``value`` takes no argument and computes the numbers of the phrase: one number,
    or any nesting of lists, tuples and arrays, flattened in the order in which the numbers appear
    in the phrase. Every place where the phrase stands is checked.
    It lists either all numbers of the phrase that need checking, or all its numbers, integers
    included: ``computed("outputs $[3, 11/4]$", f)`` takes one value (11/4) or two (3, 11/4).
    A decimal must be the value rounded (or, before an ellipsis, cut off) to the digits printed;
    a fraction must equal the value (exactly if that is an int or a Fraction, else to 12 digits).
    A percentage is a share: "60 %" wants 0.6.
``given(phrase, reason, times=1)``
    The numbers of the phrase are inputs, not results. The phrase stands ``times`` times in the
    chapter, so that a short phrase cannot excuse numbers elsewhere: quote enough words.

What needs an entry: each decimal (``0.25``, ``6.1e-6``, ``10^{-6}``), fraction (``1/6``, ``\\frac{1}{6}``,
``\\tfrac16``), percentage and ratio ("3 times", "2.5×") in a Markdown cell, in a string or a comment
of a code cell, in a caption or an alt text. Strings made by a code cell's f-string fields are
computed already and are not seen here. Free are integers, years, link targets, versions after the
name of a library, and labels such as "Exercise 1.2", ``\\tag{1.2}`` or "(1.2)" for an equation so tagged.
Quote the source as it is written: ``**0.6**`` with its stars, ``\\tfrac{1}{6}`` with its braces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A quoted phrase; ``value`` recomputes its numbers, or ``reason`` says why they are inputs."""

    phrase: str
    value: Callable[[], object] | None = None
    reason: str = ""
    times: int | None = None


def computed(phrase: str, value: Callable[[], object]) -> Entry:
    """Say that the numbers of the phrase are results, and how to compute them again."""
    if not callable(value):
        raise TypeError(f"computed({phrase!r}, ...) needs a function without arguments")
    return Entry(phrase, value=value)


def given(phrase: str, reason: str, *, times: int = 1) -> Entry:
    """Say that the numbers of the phrase are inputs, and why."""
    if not reason.strip():
        raise ValueError(f"given({phrase!r}, ...) needs a reason")
    return Entry(phrase, reason=reason, times=times)
