"""Every chapter made live in a real browser, and run to its end."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import yaml

from tests.web.browser import View, chromium_browser, opened
from tests.web.live import LivePage, code_cells, difference, differences
from tests.web.pages import ROOT, notebook_pages, soup

pytestmark = pytest.mark.slow  # needs the built site and a browser


CONFIGURATION = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
LEFT_OUT = CONFIGURATION["sphinx"]["config"]["live_left_out"]

# Setting the formulas of a page takes longer than most of its cells; other tests do it.
NO_MATHJAX = {
    "content_type": "text/javascript",
    "body": "const done = Promise.resolve();"
    "window.MathJax = {startup: {promise: done}, typesetPromise: () => done}",
}


@pytest.fixture(scope="module")
def browser():
    """One browser for all chapters, which loads the engine once and sets no formulas."""
    with chromium_browser() as browser:
        browser.route("**/tex-chtml-full.js", lambda route: route.fulfill(**NO_MATHJAX))
        yield browser


@pytest.mark.parametrize("chapter", notebook_pages())
def test_a_live_chapter_shows_the_outputs_of_the_book(browser, home, site, chapter):
    if not soup(site / f"{chapter}.html").select(".live-start"):
        assert chapter in LEFT_OUT
        return
    with opened(browser, View(chapter), home) as (page, visit):
        live = LivePage(page)
        assert live.press() == "All cells have run"
        assert list(differences(code_cells(chapter), live.outputs)) == []
    assert (visit.errors, visit.foreign) == ([], [])


STORED = {
    "text": ("text", "sum 0.3333 of 3\n"),
    "image": ("image", '<svg><title>a line</title><path d="M 1.0 2.0"/></svg>'),
    "error": ("live-error", "ValueError"),
}


@pytest.mark.parametrize(
    ("stored", "shown", "equal"),
    [
        ("text", ("text", "sum 0.3334  of 3\n"), True),
        ("text", ("text", "sum 0.3433 of 3\n"), False),
        ("text", ("text", "mean 0.3333 of 3\n"), False),
        ("text", ("text", "sum 0.3333\n"), False),
        ("text", ("stderr", "sum 0.3333 of 3\n"), False),
        ("image", ("image", '<svg><title>a line</title><path d="M 1.01 2.0"/></svg>'), True),
        ("image", ("image", '<svg><title>a line</title><path d="M 1.0 3.0"/></svg>'), False),
        ("error", ("live-error", "Traceback …\nValueError: none"), True),
        ("error", ("live-error", "Traceback …\nTypeError: none"), False),
    ],
)
def test_a_changed_output_is_noticed_and_a_rounded_one_is_not(stored, shown, equal):
    if shown[0] == "image":
        shown = ("image", f"data:image/svg+xml;charset=utf-8,{quote(shown[1])}")
    assert (difference(STORED[stored], shown) is None) == equal
