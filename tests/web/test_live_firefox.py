"""A chapter made live in Debian's Firefox, where it is installed."""

from __future__ import annotations

import pytest

from tests.web.firefox import find, firefox
from tests.web.live import OUTPUTS, code_cells, differences
from web.tools.server import served

pytestmark = [
    pytest.mark.slow,  # needs the built site and a browser
    pytest.mark.skipif(find() is None, reason="Firefox is not installed"),
]

CHAPTER = "chapters/01_single_query"
STATE = "document.querySelector('.live-toolbar')?.dataset.state"
RESTS = f"['ready', 'failed', 'broken'].includes({STATE}) && !document.querySelector("
RESTS += "'.cell[data-live=running], .cell[data-live=waiting]')"
PRESS = "[...document.querySelectorAll('button')].find(b => b.textContent === arguments[0]).click()"
WRITE = """
const editor = document.querySelector(`.live-cell-${arguments[0]} .cm-content`);
editor.focus();
document.execCommand("selectAll");
document.execCommand("insertText", false, arguments[1]);
document.querySelector(`.live-cell-${arguments[0]} .live-button`).click();
"""


@pytest.fixture(scope="module")
def page(site):
    """A live page in Firefox, all of whose cells have run."""
    with served(site) as home, firefox() as page:
        page.visit(f"{home}/{CHAPTER}.html")
        page.run("document.querySelector('.live-start button').click()")
        page.wait_for(RESTS)
        yield page


def shown(page, index):
    script = f"return ({OUTPUTS})(document.querySelector('.live-cell-{index}'))"
    return [tuple(output) for output in page.run(script)]


def test_a_live_chapter_shows_the_outputs_of_the_book(page):
    assert page.run("return document.querySelector('.live-status').textContent") == (
        "All cells have run"
    )
    changes = differences(code_cells(CHAPTER), lambda index: shown(page, index))
    assert list(changes) == []


def test_an_edit_changes_what_a_cell_shows(page):
    (cell,) = [i for i, c in code_cells(CHAPTER).items() if c["source"][0].startswith("colours =")]
    page.run(WRITE, cell, "print(6 * 7)")
    page.wait_for(RESTS)
    assert shown(page, cell) == [("text", "42\n")]


def test_an_endless_loop_is_stopped(page):
    (cell,) = [i for i, c in code_cells(CHAPTER).items() if c["source"][0].startswith("colours =")]
    page.run(WRITE, cell, "while True: pass")
    page.wait_for("document.querySelector('.cell[data-live=running]')")
    page.run(PRESS, "Stop")
    page.wait_for(RESTS)
    page.run(WRITE, cell, "print('on')")
    page.wait_for(RESTS)
    assert shown(page, cell) == [("text", "on\n")]
