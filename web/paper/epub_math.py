"""Formulas as MathML, which e-readers set and read aloud; written by the MathJax of the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from web.tools import chromium

MATHJAX = Path(__file__).resolve().parents[1] / "vendor/mathjax/tex-chtml-full.js"
TAG = re.compile(r"\\tag\{([^{}]*)\}")
PATIENCE = 600_000  # milliseconds for some thousand formulas on a busy machine

CONVERT = r"""async (formulas) => {
  await MathJax.startup.promise;
  return formulas.map(([tex, display]) => MathJax.tex2mml(tex, { display }));
}"""


@dataclass(frozen=True)
class Formula:
    """A formula in TeX, without the marks and the number around it."""

    tex: str
    display: bool
    number: str = ""


def formula(text: str, display: bool) -> Formula:
    r"""Read a formula as Sphinx writes it into a page.

    >>> formula(r"\\[a = b \\tag{2.1}\\]", display=True)
    Formula(tex='a = b', display=True, number='2.1')
    """
    inner = re.sub(r"^\s*\\[(\[]|\\[)\]]\s*$", "", text)
    number = TAG.search(inner)
    return Formula(TAG.sub("", inner).strip(), display, number[1] if number else "")


def mathml(formulas: set[Formula]) -> dict[Formula, str]:
    """Return each formula as a MathML element; stop if MathJax does not understand one."""
    ordered = sorted(formulas, key=lambda one: (one.tex, one.display, one.number))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=[*chromium.FLAGS]
        )
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.set_content("<!DOCTYPE html><title>formulas</title>")
        page.add_script_tag(content=MATHJAX.read_text(encoding="utf-8"))
        found = page.evaluate(CONVERT, [[one.tex, one.display] for one in ordered])
        browser.close()
    wrong = [one.tex for one, text in zip(ordered, found, strict=True) if "<merror" in text]
    if wrong:
        raise SystemExit("MathJax does not understand:\n" + "\n".join(wrong))
    return dict(zip(ordered, map(bare, found), strict=True))


def bare(element: str) -> str:
    """Return a MathML element without MathJax's private attributes and without line breaks."""
    return re.sub(r"\s*\n\s*", "", re.sub(r' data-[a-z-]+="[^"]*"', "", element))
