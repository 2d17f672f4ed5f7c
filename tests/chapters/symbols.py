r"""Which symbols the formulas of a page use, and which of them nobody has defined.

A formula is read as a reader would: a letter (or Greek letter, or upright name) with what hangs on
it. ``d_h`` is a name, because h is one of the labels in chapters/notation.toml; in ``q_2`` the 2 is
an index, and the table's ``q_i`` defines it. ``m^2`` is m to a power, ``W^{head}`` is a name,
``Q^{[1]}`` belongs to a head. Commands that mean something, such as ``\odot``, must stand in the
page's table of signs; those that only set type are listed here.

Symbols that one page alone uses stand in tests/chapters/local_symbols.toml, with the words of that
page that say what they are: the words must be there, and no later than the symbol's first use.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from tests.chapters.documents import CHAPTERS, Passage

NOTATION = tomllib.loads((CHAPTERS / "notation.toml").read_text(encoding="utf-8"))
LOCAL = tomllib.loads(Path(__file__).with_name("local_symbols.toml").read_text(encoding="utf-8"))
LABELS = frozenset(NOTATION["labels"])

# --- formulas in a text ---------------------------------------------------------------------------

_CODE = re.compile(
    r"^(```+|~~~+).*?^\1 *$|(?<!`)(`+)(?!`).+?(?<!`)\2(?!`)", re.MULTILINE | re.DOTALL
)
_FORMULA = re.compile(r"\$\$(?P<display>.+?)\$\$|\$(?P<inline>[^$]+?)\$", re.DOTALL)
_DOCSTRING_FORMULA = re.compile(
    r":math:`(?P<inline>[^`]+)`|^(?P<indent> *)\.\. math::(?P<display>[^\n]*(?:\n(?:(?P=indent) +\S"
    r"[^\n]*| *(?=\n)))*)",
    re.MULTILINE,
)


def formulas(text: str) -> list[str]:
    """Return the formulas of a Markdown text, without their dollar signs."""
    without_code = _CODE.sub(" ", re.sub(r"^\s*>\s?", "", text, flags=re.MULTILINE))
    return [m["display"] or m["inline"] for m in _FORMULA.finditer(without_code)]


def docstring_formulas(text: str) -> list[str]:
    """Return the formulas of a docstring in reStructuredText."""
    return [m["display"] or m["inline"] for m in _DOCSTRING_FORMULA.finditer(text)]


# --- symbols in a formula -------------------------------------------------------------------------


def _commands(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GREEK = _commands(
    r"\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta \iota \kappa"
    r" \lambda \mu \nu \xi \pi \rho \sigma \tau \upsilon \phi \varphi \chi \psi \omega \Gamma"
    r" \Delta \Theta \Lambda \Xi \Pi \Sigma \Upsilon \Phi \Psi \Omega \ell"
)
_UPRIGHT = _commands(r"\mathrm \operatorname \mathbb \mathbf \mathcal \mathsf")
_IGNORED_WITH_ARGUMENT = _commands(r"\text \tag \begin \end \textbf \label \hspace \color")
# Commands that only set type, and those that everybody knows: three dots, arrows, equal signs.
_TYPE = _commands(
    r"\frac \tfrac \dfrac \left \right \bigl \bigr \Bigl \Bigr \biggl \biggr \big \Big \quad \qquad"
    r" \dots \cdots \ldots \vdots \ddots \cr \hline \times \div \pm \to \mapsto \longrightarrow"
    r" \rightarrow \xrightarrow \Rightarrow \implies \iff \equiv \colon \mid \vert \limits \cdot"
    r" \displaystyle \textstyle \underbrace \overbrace \phantom \substack \lbrace \rbrace \prime"
    r" \boxed \middle \circ"
)
_SYNONYMS = {r"\leq": r"\le", r"\geq": r"\ge", r"\neq": r"\ne", r"\lt": "<", r"\gt": ">"}
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[A-Za-z]|\d+(?:[.,]\d+)*|[^\s]", re.DOTALL)


@dataclass(frozen=True)
class Symbol:
    """A letter with what hangs on it, or a command that is a sign."""

    base: str
    sub: tuple[str, ...] = ()
    sup: tuple[str, ...] = ()
    primes: int = 0
    source: str = field(default="", compare=False)

    def readings(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Return each way to read it: its name, and the parts that are formulas themselves."""
        found = []
        for (sub, inner), (sup, more) in product(_sub_readings(self.sub), _sup_readings(self.sup)):
            found.append((self.base + "'" * self.primes + sub + sup, [*inner, *more]))
        return found


def _sub_readings(sub: tuple[str, ...]) -> list[tuple[str, list[tuple[str, ...]]]]:
    if not sub:
        return [("", [])]
    readings = []
    label = _label(sub)
    if label in LABELS:
        readings.append((f"_{{{label}}}", []))
    if _SYNONYMS.get(sub[0], sub[0]) in (r"\le", "<", r"\ge", ">"):
        readings.append((rf"_{{{_SYNONYMS.get(sub[0], sub[0])} #}}", [sub[1:]]))
    else:
        readings.append((f"_{{{','.join('#' * _number_of_indices(sub))}}}", [sub]))
    return readings


def _sup_readings(sup: tuple[str, ...]) -> list[tuple[str, list[tuple[str, ...]]]]:
    if not sup:
        return [("", [])]
    if sup == (r"\top",):
        return [("", [sup])]
    if sup[0] == "[" and sup[-1] == "]":
        return [("^{[#]}", [sup[1:-1]])]
    if sup in (("+",), ("-",), ("*",)):
        return [(f"^{{{sup[0]}}}", [])]
    label = _label(sup)
    return [(f"^{{{label}}}", [])] * (label in LABELS) + [("", [sup])]


def _label(tokens: tuple[str, ...]) -> str:
    return "".join(t for t in tokens if t not in {"{", "}", *_UPRIGHT, r"\text"})


def _number_of_indices(tokens: tuple[str, ...]) -> int:
    """Return 2 for i,j and for ij, 1 for i and for i + 1."""
    parts = "".join(t if len(t) == 1 else "n" for t in tokens).split(",")
    return sum(len(part) if re.fullmatch("[a-z]+", part) else 1 for part in parts)


def symbols(formula: str | tuple[str, ...], names: tuple[str, ...] = ()) -> Iterator[Symbol]:
    """Yield the symbols of a formula in order; ``names`` are bases of several letters, as dQ."""
    tokens = _tokens(formula, names) if isinstance(formula, str) else list(formula)
    place = 0
    while place < len(tokens):
        token, place = tokens[place], place + 1
        if token in _IGNORED_WITH_ARGUMENT:
            environment, place = _argument(tokens, place)
            if token == r"\begin" and "".join(environment) == "array":
                _, place = _argument(tokens, place)
        elif token in _UPRIGHT:
            inside, place = _argument(tokens, place)
            base = rf"{token}{{{''.join(inside)}}}"
            symbol, place = _with_scripts(base, tokens, place)
            yield symbol
        elif token in _GREEK or token in names or re.fullmatch("[A-Za-z]", token):
            symbol, place = _with_scripts(token, tokens, place)
            yield symbol
        elif re.fullmatch(r"\\[A-Za-z]+", token) and token not in _TYPE:
            yield Symbol(_SYNONYMS.get(token, token), source=token)


def _tokens(formula: str, names: tuple[str, ...]) -> list[str]:
    found = _TOKEN
    if names:
        longest = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
        found = re.compile(rf"(?<![A-Za-z\\])(?:{longest})(?![A-Za-z])|{_TOKEN.pattern}", re.DOTALL)
    return found.findall(formula)


def _with_scripts(base: str, tokens: list[str], place: int) -> tuple[Symbol, int]:
    sub: tuple[str, ...] = ()
    sup: tuple[str, ...] = ()
    start, primes = place, 0
    while place < len(tokens) and tokens[place] in ("_", "^", "'"):
        if tokens[place] == "'":
            primes, place = primes + 1, place + 1
        elif tokens[place] == "_":
            sub, place = _argument(tokens, place + 1)
        else:
            sup, place = _argument(tokens, place + 1)
    source = base + "".join(tokens[start:place])
    return Symbol(base, sub, sup, primes, source), place


def _argument(tokens: list[str], place: int) -> tuple[tuple[str, ...], int]:
    """Return one token, or what stands between braces, and where the formula goes on."""
    if place == len(tokens) or tokens[place] != "{":
        return tuple(tokens[place : place + 1]), place + 1
    depth = 0
    for end in range(place, len(tokens)):
        depth += {"{": 1, "}": -1}.get(tokens[end], 0)
        if depth == 0:
            return tuple(tokens[place + 1 : end]), end + 1
    return tuple(tokens[place + 1 :]), len(tokens)


# --- what is defined ------------------------------------------------------------------------------


def names_defined_by(cell: str) -> set[str]:
    """Return the names that a cell of the table, such as ``$q_i$, $k_j$``, defines."""
    letters = [formula for formula in formulas(cell) if not formula.startswith("[")]
    found = [symbol for formula in letters for symbol in symbols(formula)]
    return {symbol.readings()[0][0] for symbol in found}


def book_wide_names() -> set[str]:
    """Return all that the notation page defines."""
    defined = set().union(*(names_defined_by(entry["symbol"]) for entry in NOTATION["symbols"]))
    for entry in NOTATION["signs"]:
        signs = [s for formula in formulas(entry["sign"]) for s in _all_symbols(formula)]
        defined |= {s.base for s in signs if s.base.startswith("\\") and s.base not in _GREEK}
    return defined | {"e"}


def _all_symbols(formula: str | tuple[str, ...]) -> Iterator[Symbol]:
    """Yield the symbols of a formula and of everything above and below its letters."""
    for symbol in symbols(formula):
        yield symbol
        for part in (symbol.sub, symbol.sup):
            yield from _all_symbols(part)


@dataclass
class Page:
    """A page (or the docstrings of a module) with the formulas of each of its passages."""

    name: str
    passages: list[Passage]
    find_formulas: Callable[[str], list[str]] = formulas

    def problems(self, book: set[str], local: dict[str, str]) -> list[str]:
        """Return the symbols that nobody defined, and what is wrong with the page's own list."""
        bases = tuple(name for name in local if re.fullmatch("[A-Za-z]{2,}", name))
        own = {_local_name(name, bases): phrase for name, phrase in local.items()}
        first_use, found = {}, {}
        for number, passage in enumerate(self.passages):
            for formula in self.find_formulas(passage.text):
                for name, symbol in _used(formula, book | own.keys(), bases):
                    first_use.setdefault(name, number)
                    if name not in book and name not in own:
                        found.setdefault(name, (symbol, passage.place, formula))
        unknown = [
            f"{self.name}, {place}: ${symbol.source}$ in ${_shortened(formula)}$ is in no table"
            for symbol, place, formula in found.values()
        ]
        return unknown + [
            f"{self.name}: {problem}"
            for name, phrase in own.items()
            if (problem := self._problem_of_definition(name, phrase, first_use, book))
        ]

    def _problem_of_definition(self, name, phrase, first_use, book) -> str | None:
        if name in book:
            return f"{name} is in the book's table already"
        if name not in first_use:
            return f"{name} is listed and not used"
        places = [n for n, one in enumerate(self.passages) if _flat(phrase) in _flat(one.text)]
        if not places:
            return f"{name} is said to be defined by {phrase!r}, which stands nowhere"
        if places[0] > first_use[name]:
            return f"{name} is used before {phrase!r} says what it is"
        return None

    def used(self, book: set[str]) -> set[str]:
        """Return the names of all symbols on the page, as the book's table reads them."""
        return {
            name
            for passage in self.passages
            for formula in self.find_formulas(passage.text)
            for name, _ in _used(formula, book)
        }


def _local_name(name: str, bases: tuple[str, ...]) -> str:
    (symbol,) = symbols(name, bases)
    return symbol.readings()[0][0]


def _used(
    formula: str | tuple[str, ...], known: set[str], bases: tuple[str, ...] = ()
) -> Iterator[tuple[str, Symbol]]:
    """Yield each symbol with its name: the first reading that is known, else the last."""
    for symbol in symbols(formula, bases):
        readings = symbol.readings()
        name, parts = next((r for r in readings if r[0] in known), readings[-1])
        yield name, symbol
        for part in parts:
            yield from _used(part, known, bases)


def _flat(text: str) -> str:
    return " ".join(re.sub(r"^\s*>\s?", "", text, flags=re.MULTILINE).split())


def _shortened(formula: str) -> str:
    flat = " ".join(formula.split())
    return flat if len(flat) <= 60 else flat[:57] + "..."
