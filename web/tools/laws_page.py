"""Write the page of laws: each law asked of every implementation and of every animal of the zoo.

Run as ``python web/tools/laws_page.py``, from the folder of the project; it needs PyTorch, as half
of the implementations are on tensors. The page is stored, so that it reads the same on GitHub; a
test holds it equal to what this program finds.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnlib.teaching import zoo
from attnlib.teaching.implementations import implementations
from attnlib.teaching.laws import KINDS, LAWS, OPTIONS, PROMISES, Implementation, Law

PAGE = Path(__file__).resolve().parents[2] / "chapters" / "laws.md"

HOLDS, BROKEN, NOT_ASKED = "✓", "**broken**", "–"

INTRODUCTION = """# Laws

A law is a sentence that every right implementation of attention holds, on every input. This page
asks each law of each implementation in the book, and of each bug in the zoo. What stands in the
tables was found by running them; a test compares. [Chapter 10](10_spot_the_bug.ipynb) shows the
laws at work.

## What they say
"""

ASKING = """## Ask about your own function

Anywhere `attnlib` is installed, in Colab too (its first cell in each chapter installs it):

```python
import numpy as np
from attnlib.teaching.laws import broken_laws


def attention(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True) @ V


for law, counterexample in broken_laws(attention):
    print(law.sentence, counterexample, sep="\\n")
```

It prints nothing, as nothing is broken. Say what the function computes, and what it can do:
"""

OWN = """Options are read off the signature. Where it does not name them, give `options=[...]`.
Promises cannot be seen from outside: give `promises=[...]`. In float32 give `tolerance=1e-5`. A
function of PyTorch tensors needs a small wrapper that makes tensors of arrays and arrays of the
result. `broken_laws` never raises what your function raises: an error, or a result of another
shape, is a counterexample.
"""


def page() -> str:
    """Return the page as Markdown, every law asked anew."""
    found = implementations()
    parts = [INTRODUCTION, _sentences(), "## Who holds them\n", KEY]
    for kind, heading in HEADINGS.items():
        some = {name: one for name, one in found.items() if one.kind == kind}
        laws = [law for law in LAWS if law.kind == kind]
        parts += [f"### {heading}\n", _held(laws, some)]
    parts += ["## What they catch\n", _caught(), ASKING, _choices(), OWN]
    return "\n".join(parts)


KEY = f"""{HOLDS} the law holds · {NOT_ASKED} it cannot be asked: the implementation has no such
option, or makes no such promise. In float64, on a CPU.
"""
HEADINGS = {
    "attention": "One head",
    "multi-head": "Many heads",
    "gradients": "Gradients",
}


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _sentences() -> str:
    rows = [(f"`{law.name}`", law.kind, law.sentence, law.comparison) for law in LAWS]
    return _table(("law", "asked of", "it says", "compared"), rows)


def _held(laws: Sequence[Law], some: dict[str, Implementation]) -> str:
    """A row for each law, a column for each implementation, named by a letter."""
    letters = string.ascii_uppercase[: len(some)]
    legend = [(letter, f"`{name}`") for letter, name in zip(letters, some, strict=True)]
    rows = [(f"`{law.name}`", *(_answer(law, one) for one in some.values())) for law in laws]
    return "\n".join(
        [_table(("column", "implementation"), legend), _table(("law", *letters), rows)]
    )


def _answer(law: Law, implementation: Implementation) -> str:
    if not law.applies_to(implementation):
        return NOT_ASKED
    return HOLDS if law.counterexample(implementation) is None else BROKEN


def _caught() -> str:
    rows = [
        (f"`{name}`", str(len(animals)), ", ".join(animals))
        for name, animals in zoo.catches().items()
    ]
    return _table(("law", "animals", "which"), rows)


def _choices() -> str:
    rows = [
        (f"`{group}`", f"`{name}`", says)
        for group, some in (("kind", KINDS), ("options", OPTIONS), ("promises", PROMISES))
        for name, says in some.items()
    ]
    return _table(("argument", "may be", "it means"), rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
