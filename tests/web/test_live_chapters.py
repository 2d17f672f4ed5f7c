"""Every chapter made live in a real browser, and run to its end."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.web.browser import View, chromium_browser, opened, served
from tests.web.live import LivePage, code_cells, difference, differences, has_tag
from tests.web.pages import notebook_pages, soup

pytestmark = pytest.mark.slow  # needs the built site and a browser


@pytest.fixture(scope="module")
def browser():
    """One browser for all chapters: it loads the engine once."""
    with chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def home(site):
    with served(site) as url:
        yield url


@pytest.mark.parametrize("chapter", notebook_pages())
def test_a_live_chapter_shows_the_outputs_of_the_book(browser, home, site, chapter):
    if not soup(site / f"{chapter}.html").select(".live-start"):
        check_torch_is_its_subject(chapter)
        return
    cells = code_cells(chapter)
    with opened(browser, View(chapter), home) as (page, visit):
        live = LivePage(page)
        assert live.press() == "All cells have run"
        assert list(differences(cells, live.outputs)) == []
    assert (visit.errors, visit.foreign) == ([], [])


def check_torch_is_its_subject(chapter):
    """Check that a page without a button is one whose cells mostly need torch."""
    shown = [cell for cell in code_cells(chapter).values() if not has_tag(cell, "hide-input")]
    assert sum(has_tag(cell, "torch") for cell in shown) > len(shown) / 3


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
