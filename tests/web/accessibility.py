"""Checking a page that is open in the browser with axe-core."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")

# Most of a page's elements are coloured words of code and glyphs of formulas, thousands of each and
# all alike. One of each kind stays, so that checking a page takes a second and not a minute.
THIN_OUT = r"""() => {
  const seen = new Set();
  for (const word of document.querySelectorAll(".highlight pre span")) {
    const kind = `${word.closest(".cell_input, .output") ? 1 : 0} ${word.className}`;
    if (seen.has(kind)) word.replaceWith(...word.childNodes);
    seen.add(kind);
  }
  const formulas = [...document.querySelectorAll("mjx-container")];
  const widths = formulas.map((formula) => formula.offsetWidth);
  for (const [index, formula] of formulas.entries()) {
    const kind = `formula ${formula.hasAttribute("display")}`;
    formula.querySelector("annotation")?.remove(); // nobody sees or hears it
    // A screen reader reads MathML aloud; axe counts no text in it, as if it were silent.
    const said = formula.querySelector("math")?.textContent ?? "";
    if (seen.has(kind)) formula.replaceChildren(said);
    else formula.querySelector("math")?.replaceWith(said);
    seen.add(kind);
    if (!formula.hasAttribute("display")) { // what scrolls with formulas must not scroll without
      formula.style.cssText = `display: inline-block; overflow: hidden; width: ${widths[index]}px`;
    }
  }
  document.body.normalize();
}"""

# Colours are all that differs between light and dark, and asking for them takes most of the time:
# pages of each kind are asked for theirs, wide in both schemes; every page for all else, in light.
COLOURS = ["color-contrast", "link-in-text-block"]
COLOURED = {"chapters/index", "chapters/01_single_query", "chapters/bibliography", "search", "page"}

RUN = """async ([part, options]) => {
  const fixed = {resultTypes: ["violations"], preload: false, iframes: false};
  const found = await axe.run(part ?? document, {...fixed, ...options});
  return found.violations.flatMap(({id, impact, nodes}) => nodes.map((node) =>
    [`${id} (${impact}): ${node.target}`, node.html.slice(0, 200), node.failureSummary].join("\\n"),
  ));
}"""


def violations(page: Page, name: str, scheme: str) -> list[str]:
    """Return what axe finds wrong with a page, of any impact; the page is changed by it."""
    coloured = name in COLOURED and page.viewport_size["width"] > 1000
    if scheme == "dark" and not coloured:
        return []
    options = {"rules": {rule: {"enabled": coloured} for rule in COLOURS}}
    if scheme == "dark":
        options = {"runOnly": {"type": "rule", "values": COLOURS}}
    page.evaluate(THIN_OUT)
    page.evaluate(AXE)
    return page.evaluate(RUN, [None, options])


def violations_within(page: Page, part: str) -> list[str]:
    """Return what axe finds wrong with the elements of a selector, which stay as they are."""
    page.evaluate(AXE)
    return page.evaluate(RUN, [part, {}])
