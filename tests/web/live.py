"""Driving a live page: pressing its buttons, waiting until it rests, reading what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from bs4 import BeautifulSoup
from playwright.sync_api import Locator, Page

from tests.chapters.figures import svg_difference
from tests.web.pages import ROOT

PATIENCE = 300_000  # milliseconds; only a page that hangs takes this long
NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
TOLERANCE = 2e-3  # of a number, or of one: what is printed is rounded to four decimals

# Of Markdown, what a reader does not see; backslashes and the signs that set off formulas too.
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
MARKS = re.compile(r"^```.*$|^[|:-]+$|[*`|$\\()]|\s", re.MULTILINE)

# The outputs of one cell as a reader finds them: kind and content.
OUTPUTS = """cell => [...cell.querySelectorAll('.cell_output > *')].map(output => {
  if (output.matches('img')) return ['image', output.src];
  const kind = ['live-error', 'text_markdown', 'text_html', 'text_latex', 'stderr']
    .find(name => output.classList.contains(name));
  return [kind ?? 'text', output.textContent];
})"""


class LivePage:
    """A page of the book and what can be done with it once its button is pressed."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def press(self) -> str:
        """Press the button; wait until all cells have run or one has failed."""
        self.page.locator(".live-start button").click()
        return self.wait_until_it_rests()

    def wait_until_it_rests(self) -> str:
        """Wait until no cell runs and none waits; return what the page says."""
        self.wait_for("['failed', 'broken'].includes(state) || state === 'ready' && !busy")
        return self.status

    def wait_for(self, condition: str) -> None:
        """Wait for a condition on the bar's state and on whether cells are to run."""
        look = """() => {
          const state = document.querySelector('.live-toolbar')?.dataset.state;
          const cells = (name) => document.querySelectorAll(`.cell[data-live=${name}]`).length;
          const [running, busy] = [cells("running"), cells("running") + cells("waiting")];
          return CONDITION;
        }"""
        script = look.replace("CONDITION", condition)
        self.page.wait_for_function(script, timeout=PATIENCE, polling=300)

    @property
    def status(self) -> str:
        return self.page.locator(".live-status").inner_text()

    def button(self, name: str) -> Locator:
        """Return a button of the bar."""
        return self.page.locator(".live-toolbar").get_by_role("button", name=name)

    def cell(self, index: int) -> Locator:
        """Return the cell at a place in the notebook."""
        return self.page.locator(f".live-cell-{index}")

    def editor(self, index: int) -> Locator:
        return self.cell(index).locator(".cm-content")

    def write(self, index: int, code: str) -> None:
        """Replace the code of a cell by the keyboard alone."""
        self.editor(index).focus()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(code)

    def run(self, index: int) -> str:
        """Run the cell whose editor has the focus; return the text that it then shows."""
        self.page.keyboard.press("ControlOrMeta+Enter")
        self.wait_until_it_rests()
        return self.text(index)

    def outputs(self, index: int) -> list[tuple[str, str]]:
        return [tuple(output) for output in self.cell(index).evaluate(OUTPUTS)]

    def text(self, index: int) -> str:
        """Return all that a cell shows as text."""
        return "\n".join(content for kind, content in self.outputs(index) if kind != "image")


def code_cells(page: str) -> dict[int, dict[str, Any]]:
    """Return the code cells of a chapter by their place in the notebook."""
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return {index: cell for index, cell in enumerate(cells) if cell["cell_type"] == "code"}


def has_tag(cell: dict[str, Any], tag: str) -> bool:
    return tag in cell["metadata"].get("tags", [])


def stored_outputs(cell: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the outputs of a notebook's cell in the form that OUTPUTS gives them."""
    return merged([stored_output(output) for output in cell["outputs"]])


def stored_output(output: dict[str, Any]) -> tuple[str, str]:
    if output["output_type"] == "stream":
        return "stderr" if output["name"] == "stderr" else "text", "".join(output["text"])
    if output["output_type"] == "error":
        return "live-error", output["ename"]
    data = {kind: "".join(content) for kind, content in output["data"].items()}
    for kind, name in {"text/html": "text_html", "text/latex": "text_latex"}.items():
        if kind in data:
            return name, data[kind]
    if "image/svg+xml" in data:
        return "image", data["image/svg+xml"]
    if "text/markdown" in data:
        return "text_markdown", data["text/markdown"]
    return "text", data["text/plain"]


def merged(outputs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join what was printed in several pieces."""
    joined: list[tuple[str, str]] = []
    for kind, content in outputs:
        if joined and kind == joined[-1][0] and kind in {"text", "stderr"}:
            content = joined.pop()[1] + content
        joined.append((kind, content))
    return joined


def differences(
    cells: dict[int, dict[str, Any]], outputs: Callable[[int], list[tuple[str, str]]]
) -> Iterator[str]:
    """Say how the outputs of a page differ from the stored ones, cell by cell."""
    for index, cell in cells.items():
        if has_tag(cell, "torch") or has_tag(cell, "remove-cell"):
            continue
        stored, shown = stored_outputs(cell), outputs(index)
        if len(stored) != len(shown):
            yield f"cell {index}: {len(stored)} outputs became {len(shown)}: {shown}"
        for before, after in zip(stored, shown, strict=False):
            if change := difference(before, after):
                yield f"cell {index}: {change}"


def difference(stored: tuple[str, str], shown: tuple[str, str]) -> str | None:
    """Say how a stored output differs from one that the page shows, or return None."""
    (kind, before), (shown_kind, after) = stored, shown
    if kind != shown_kind:
        return f"{kind} became {shown_kind}: {after}"
    if kind == "image":
        return svg_difference(before, svg_of(after))
    if kind == "live-error":
        return None if before in after else f"{before} became {after}"
    if kind == "text_markdown":
        before, after = (MARKS.sub("", LINK.sub(r"\1", text)) for text in (before, after))
    if kind == "text_html":
        before = BeautifulSoup(before, "html.parser").get_text()
    return text_difference(before, after)


def svg_of(address: str) -> str:
    """Return the drawing in a data address as the browser was given it."""
    return unquote(address.partition(",")[2])


def text_difference(before: str, after: str) -> str | None:
    """Compare words exactly and numbers within the tolerance."""
    words = [NUMBER.sub("#", text).split() for text in (before, after)]
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (before, after)]
    close = all(abs(a - b) <= TOLERANCE * max(1, abs(a)) for a, b in zip(*numbers, strict=False))
    return None if words[0] == words[1] and close else f"{before}\nbecame\n{after}"
