r"""Set formulas while the book is built: MathJax, run by a JavaScript engine that pip installs.

A page then shows its formulas without a script. The elements are those that MathJax makes in a
browser, so they look the same; a style sheet for all of them goes with them.
"""

from __future__ import annotations

import atexit
import re
from html import escape
from pathlib import Path

from py_mini_racer import MiniRacer

BUNDLE = Path(__file__).resolve().parents[1] / "vendor/typesetter/typeset.js"
# A page's own text sets the size. MathJax's small letters are 0.431 em high, its digits 0.644 em;
# the digits of a sans serif rise less above its small letters. Between the size at which small
# letters agree and the one at which digits do, a formula looks as large as its sentence.
# Formulas in outputs of live cells are of this size too (web/live/page/mathematics.js).
MATCH_HEIGHT = 'mjx-container[jax="CHTML"] {\n  font-size: calc(1ex / 0.46);\n}\n'
MATHML = re.compile(r"(<math\b[^>]*>)(.*)(</math>)", re.DOTALL)
MISTAKE = re.compile(r'data-mjx-error="([^"]*)"')


class TypesettingError(ValueError):
    """MathJax does not understand a formula."""


class Typesetter:
    """Sets formulas, and keeps count of the styles that they need."""

    def __init__(self) -> None:
        self._engine = MiniRacer()
        atexit.register(self._engine.close)  # an engine left open keeps the process from ending
        self._engine.eval(BUNDLE.read_text(encoding="utf-8"))
        self._known: dict[tuple[str, bool], str] = {}

    def html(self, tex: str, display: bool) -> str:
        """Return a formula as HTML, in which MathML stands for screen readers.

        The MathML keeps the TeX, for the search. A formula by itself may be wider than its column,
        and is scrolled by keyboard.
        """
        note = f'<annotation encoding="application/x-tex">{escape(tex, quote=False)}</annotation>'
        found = MATHML.sub(
            lambda m: f"{m[1]}<semantics><mrow>{m[2]}</mrow>{note}</semantics>{m[3]}",
            self._set(tex, display),
        )
        return found.replace("<mjx-container", '<mjx-container tabindex="0"') if display else found

    def mathml(self, tex: str, display: bool) -> str:
        """Return a formula as MathML alone, for readers that set it themselves."""
        element = MATHML.search(self._set(tex, display))[0]
        return re.sub(r' data-[a-z-]+="[^"]*"', "", element)  # MathJax's private notes

    def style_sheet(self, fonts: str) -> str:
        """Return the styles of the formulas set so far; ``fonts`` is the folder of the fonts."""
        return f"{self._engine.call('styleSheet', fonts).strip()}\n\n{MATCH_HEIGHT}"

    def _set(self, tex: str, display: bool) -> str:
        if (tex, display) not in self._known:
            found = self._engine.call("typeset", tex, display)
            if mistake := MISTAKE.search(found):
                raise TypesettingError(f"{mistake[1]}: {tex}")
            self._known[tex, display] = found
        return self._known[tex, display]
