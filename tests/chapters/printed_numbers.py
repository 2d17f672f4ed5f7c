"""Find the numbers printed in a text, and tell whether a computed value would print the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class PrintedNumber:
    """A number where it stands; ``step`` is the unit of its last digit, None if it is exact."""

    start: int
    end: int
    value: Fraction
    step: Fraction | None = None
    cut_off: bool = False
    is_integer: bool = False

    def agrees_with(self, computed: float | Fraction) -> bool:
        """Tell whether the computed value, printed with these digits, gives this number."""
        if self.step is None:
            is_exact = isinstance(computed, int | Fraction)
            slack = 0 if is_exact else abs(self.value) * Fraction(1, 10**12)
            return abs(Fraction(computed) - self.value) <= slack
        steps, printed = Fraction(computed) / self.step, self.value / self.step
        if self.cut_off:
            return int(steps) == printed and steps * printed >= 0
        return abs(steps - printed) <= Fraction(1, 2) + Fraction(1, 10**6)


# What is no number is blanked out first; blanks keep every position as it is. A word that could
# also announce a result ("the solution 3.1") makes a label only with a capital.
_LABELLED = (
    "(?i:chapter|section|exercise|figure|table|equation|listing|show solution|common mistake)s?|"
    "(?:Solution|Hint|Example|Definition|Law|Theorem|Proposition|Lemma|Corollary|Remark|"
    "Mistake|Algorithm|Fact|Check)s?"
)
_VERSIONED = "NumPy|PyTorch|torch|Python|Matplotlib|IPython|CUDA|OpenBLAS|[Vv]ersion|CC BY"
_NO_NUMBER = [
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"(?<=\])\((?![\d.]+\))[^()\s]+\)",  # target of a link
        r"^\[[^\]]+\]:\s*\S+",  # definition of a link
        r"<?https?://[^\s<>]+>?",
        r"</?[A-Za-z][^<>]*>",  # HTML tag
        r"\\(?:tag|label|ref|eqref)\{[^{}]*\}",
        r"^#+[ \t]+[1-9]\d*(?:\.\d+)*",  # number of a heading
        r"\barXiv[: ]\s*\d{4}\.\d{4,5}",
        r"\b10\.\d{4,9}/\S+",  # DOI
        rf"\b(?:{_VERSIONED})\s*(?:[≥<>=~]=?\s*)?v?\d+(?:\.\d+)+",
        # "Exercises 1.2, 1.3 and 1.4": the labels that follow belong to the same chapter.
        rf"\b(?:{_LABELLED})\s+\(?(?P<chapter>[1-9]\d?)(?:\.[1-9]\d?)*\)?(?!\d)"
        r"(?:(?:\s*[,–-]\s*|,?\s+(?:and|or|to)\s+)\(?(?P=chapter)\.[1-9]\d?\)?(?!\d))*",
    )
]
_TAG = re.compile(r"\((\d+\.\d+)\)")
# A TeX command right before a digit must not look like the beginning of a name.
_COMMAND = re.compile(r"\\(?!(?:[td]?frac|times|cdot|l?dots)(?![A-Za-z]))(?:[A-Za-z]+|[,;:! ])")


def _blank(match: re.Match[str]) -> str:
    return " " * len(match.group())


def _without_labels(text: str, equations: Collection[str]) -> str:
    for pattern in _NO_NUMBER:
        text = pattern.sub(_blank, text)
    text = _TAG.sub(lambda tag: _blank(tag) if tag[1] in equations else tag[0], text)
    return _COMMAND.sub(_blank, text)


# The forms of a number, in the order in which they claim their digits.
_TOP, _BOTTOM = (rf"(?:\{{\s*(?P<{n}>\d+)\s*\}}|\s*(?P<{n}_digit>\d))" for n in ("top", "bottom"))
_FREE = r"(?:(?<![\w.])|(?<=\\cdot)|(?<=\\times))"  # not inside a name, a version, a number
_END = r"(?!\d|\.\d)"
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")
_TEX_FRACTION = re.compile(rf"\\[td]?frac{_TOP}{_BOTTOM}")
_FRACTION = re.compile(rf"(?<!/){_FREE}(?P<top>\d+) ?[/⁄] ?(?P<bottom>\d+)(?![./]?\d|\s*\^)")
_VULGAR_FRACTION = re.compile("[¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_POWER_OF_TEN = re.compile(
    rf"{_FREE}(?:(?P<factor>\d+(?:\.\d+)?)\s*(?:\\times|\\cdot|×|·)\s*)?"
    r"10(?:\^\{\s*(?P<braced>[-−]?\d+)\s*\}|\^(?P<digit>\d)|(?P<raised>⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))"
)
_DECIMAL = re.compile(
    rf"{_FREE}(?P<digits>\d*\.\d+|\d+(?=[eE]))(?:[eE](?P<power>[-−+]?\d+))?{_END}"
)
_INTEGER = re.compile(rf"{_FREE}(?:\d{{1,3}}(?:\{{?,\}}?\d{{3}})+|\d+)(?!\w|\.\d)")


def _fraction(match: re.Match[str]) -> tuple[Fraction, None]:
    parts = match.groupdict()
    top, bottom = (parts[n] or parts[f"{n}_digit"] for n in ("top", "bottom"))
    return Fraction(int(top), int(bottom)), None


def _vulgar_fraction(match: re.Match[str]) -> tuple[Fraction, None]:
    return Fraction(unicodedata.numeric(match[0])).limit_denominator(10), None


def _scaled(digits: str, power: str) -> tuple[Fraction, Fraction]:
    scale = Fraction(10) ** int(power.translate(_SUPERSCRIPTS))
    decimals = len(digits.partition(".")[2])
    return Fraction(digits) * scale, scale / 10**decimals


def _power_of_ten(match: re.Match[str]) -> tuple[Fraction, Fraction | None]:
    factor, power = match["factor"] or "1", match["braced"] or match["digit"] or match["raised"]
    value, step = _scaled(factor, power)
    return value, None if step >= 1 and "." not in factor else step


def _decimal(match: re.Match[str]) -> tuple[Fraction, Fraction]:
    return _scaled(match["digits"], match["power"] or "0")


def _integer(match: re.Match[str]) -> tuple[Fraction, None]:
    return Fraction(re.sub(r"\D", "", match[0])), None


_FORMS = [
    (_TEX_FRACTION, _fraction),
    (_FRACTION, _fraction),
    (_VULGAR_FRACTION, _vulgar_fraction),
    (_POWER_OF_TEN, _power_of_ten),
    (_DECIMAL, _decimal),
    (_INTEGER, _integer),
]

_SIGN = re.compile(r"(?<![\w)\]}.])[-−]$")
_FACTOR_OF = re.compile(r"\bfactor of (?:about |nearly |almost )?\$?$", re.IGNORECASE)
_CUT_OFF = re.compile(r" ?(?:…|\.\.\.|\\l?dots)")
_PERCENT = re.compile(r"\s*(?:\\?%|per ?cent\b)")
_TIMES = re.compile(
    r"[- ]times\b(?!\s*(?:[\d$`]|infinity))|-fold\b|\s*\\times\s*\$"
    r"|\s?×(?!\s*(?:[\d(√\\]|[A-Za-z]\b|[A-Za-z]_))"  # "4× faster", but not "4 × d" or "4 × 3"
)


def _in_context(
    text: str, form: re.Pattern[str], match: re.Match[str], value: Fraction, step: Fraction | None
) -> PrintedNumber:
    """Add what stands around the digits: a sign, an ellipsis, a per cent sign, "times"."""
    start, end = match.span()
    is_integer = step is None and form in (_INTEGER, _POWER_OF_TEN)
    is_ratio = bool(_FACTOR_OF.search(text, 0, start))
    if _SIGN.search(text, 0, start):
        start, value = start - 1, -value
    if cut_off := step and _CUT_OFF.match(text, end):
        end = cut_off.end()
    if percent := _PERCENT.match(text, end):
        end, value, step, is_integer = (
            percent.end(),
            value / 100,
            (step or 1) / Fraction(100),
            False,
        )
    elif times := _TIMES.match(text, end):
        end, is_ratio = times.end(), True
    if is_ratio and is_integer:
        step, is_integer = Fraction(1), False
    return PrintedNumber(start, end, value, step, bool(cut_off), is_integer)


def find_numbers(text: str, equations: Collection[str] = ()) -> list[PrintedNumber]:
    """Find the numbers of a text in order; ``equations`` are the tags in use, such as "1.2"."""
    text = _without_labels(text, equations)
    rest, found = text, []
    for form, read in _FORMS:
        found += [_in_context(text, form, match, *read(match)) for match in form.finditer(rest)]
        rest = form.sub(_blank, rest)
    return sorted(found, key=lambda number: number.start)
