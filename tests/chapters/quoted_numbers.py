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

What needs an entry: each decimal (``0.25``, ``6.1e-6``, ``10^{-6}``), fraction (``1/6``,
``\\frac{1}{6}``, ``\\tfrac16``), percentage and ratio ("3 times", "2.5×") in a Markdown cell, in a
string or a comment of a code cell, in a caption or an alt text. What an f-string's braces print
is computed already and is not seen here. Free are integers, years, link targets, versions after
the name of a library, and labels such as "Exercise 1.2", ``\\tag{1.2}`` or "(1.2)" for an equation
so tagged. Quote the source as it is written: ``**0.6**`` with its stars, ``\\tfrac{1}{6}`` with its
braces; in a ``>`` block the marks at the beginning of a line are left out.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real
from pathlib import Path

from tests.chapters.documents import Passage
from tests.chapters.printed_numbers import PrintedNumber, find_numbers


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
    if _only_repeats(value):
        raise ValueError(f"computed({phrase!r}, ...) types its value instead of computing it")
    return Entry(phrase, value=value)


def given(phrase: str, reason: str, *, times: int = 1) -> Entry:
    """Say that the numbers of the phrase are inputs, and why."""
    if not reason.strip():
        raise ValueError(f"given({phrase!r}, ...) needs a reason")
    return Entry(phrase, reason=reason, times=times)


def load_entries(path: Path) -> list[Entry]:
    """Load a chapter's list; a chapter without numbers needs none."""
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location(f"numbers_of_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.NUMBERS


def find_problems(
    passages: list[Passage], entries: list[Entry], equations: Collection[str] = ()
) -> list[str]:
    """Return what is wrong: numbers nobody lists, phrases that are gone, values that differ.

    ``equations`` are the tags of the book's equations: "(1.2)" is a label if "1.2" is one.
    """
    quotable = [_Quotable(one.place, _one_line(one.text), equations) for one in passages]
    listed, problems = set(), []
    for entry in entries:
        quotes = [quote for text in quotable for quote in text.quotes(entry.phrase)]
        listed.update(number for quote in quotes for number in quote.numbers)
        problems += _problems_of_entry(entry, quotes)
    unlisted = [n for text in quotable for n in text.numbers if not n.printed.is_integer]
    problems += [f"{n} is in no list" for n in unlisted if n not in listed]
    return problems


@dataclass(frozen=True)
class _Number:
    """A printed number that knows where it stands."""

    place: str
    text: str
    printed: PrintedNumber

    def __str__(self) -> str:
        start, end = self.printed.start, self.printed.end
        around = self.text[max(0, start - 30) : end + 30]
        return f"{self.place}: {self.text[start:end]!r} in {around!r}"


@dataclass(frozen=True)
class _Quote:
    """A phrase at one of the places where it stands."""

    place: str
    numbers: tuple[_Number, ...]


class _Quotable:
    """A passage on one line, with its numbers."""

    def __init__(self, place: str, text: str, equations: Collection[str]) -> None:
        self.place, self.text = place, text
        self.numbers = [_Number(place, text, one) for one in find_numbers(text, equations)]

    def quotes(self, phrase: str) -> Iterator[_Quote]:
        """Yield each place where the phrase stands without cutting a number in two."""
        for match in re.finditer(re.escape(_one_line(phrase)), self.text):
            start, end = match.span()
            touched = [n for n in self.numbers if n.printed.start < end and n.printed.end > start]
            if all(start <= n.printed.start and n.printed.end <= end for n in touched):
                yield _Quote(self.place, tuple(touched))


def _one_line(text: str) -> str:
    without_quote_marks = re.sub(r"^\s*>\s?", "", text, flags=re.MULTILINE)
    return re.sub(r"\s+", " ", without_quote_marks).strip()


def _problems_of_entry(entry: Entry, quotes: list[_Quote]) -> list[str]:
    phrase = repr(entry.phrase)
    if not quotes:
        return [f"{phrase} stands nowhere in the chapter"]
    if entry.value is not None:
        values = _flattened(entry.value())
        return [p for quote in quotes for p in _differences(phrase, quote, values)]
    if len(quotes) != entry.times:
        places = ", ".join(quote.place for quote in quotes)
        return [f"{phrase} stands {len(quotes)} times, not {entry.times}: {places}"]
    if all(number.printed.is_integer for number in quotes[0].numbers):
        return [f"{phrase} has no number that needs an entry"]
    return []


def _differences(phrase: str, quote: _Quote, values: list[float | Fraction]) -> list[str]:
    """Compare the values with the numbers that need an entry, or else with all numbers."""
    needed = [number for number in quote.numbers if not number.printed.is_integer]
    numbers = needed if len(values) == len(needed) > 0 else list(quote.numbers)
    if not values or len(values) != len(numbers):
        return [
            f"{quote.place}: {phrase} has {len(needed)} numbers that need an entry, "
            f"{len(quote.numbers)} in all; its function computes {len(values)}"
        ]
    return [
        f"{number} is stale: computed {value}"
        for number, value in zip(numbers, values, strict=True)
        if not number.printed.agrees_with(value)
    ]


def _flattened(value: object) -> list[float | Fraction]:
    if hasattr(value, "tolist"):  # arrays of either kind, and NumPy's scalars
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [number for part in value for number in _flattened(part)]
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"a computed number must be real and finite, got {value!r}")
    return [Fraction(value) if isinstance(value, Rational) else value]


_WRAPPERS = {"Fraction", "array", "float", "np"}


def _only_repeats(value: Callable[[], object]) -> bool:
    """Tell whether a function only returns constants, bare or wrapped."""
    code = getattr(value, "__code__", None)
    return code is not None and not code.co_freevars and set(code.co_names) <= _WRAPPERS
