"""The worksheet is printed on one side of A4, and its key, when it is open, on a second page."""

from __future__ import annotations

import re

import pytest

from tests.web.browser import chromium_browser
from web.tools import worksheet
from web.tools.server import served

pytestmark = pytest.mark.slow  # needs the built site and a browser

BLANKS = """() => [...document.querySelectorAll(".worksheet td")]
  .filter((cell) => !cell.closest(".worksheet-key") && !cell.textContent.trim())
  .map((cell) => [cell.clientWidth, cell.clientHeight])"""


@pytest.fixture(scope="module")
def page(site):
    with chromium_browser() as browser, served(site) as url:
        page = browser.new_page()
        page.goto(f"{url}/chapters/worksheet.html")
        yield page


def printed_pages(page):
    """Return how many sheets of A4 a browser prints, with the margins that it sets by itself."""
    pdf = page.pdf(format="A4", margin=dict.fromkeys(("top", "right", "bottom", "left"), "1cm"))
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def set_key(page, *, opened):
    page.evaluate("open => document.querySelector('.worksheet-key').open = open", opened)


@pytest.mark.parametrize(("opened", "sheets"), [(False, 1), (True, 2)], ids=["closed", "open"])
def test_the_sheet_fills_one_page_and_an_open_key_another(page, opened, sheets):
    set_key(page, opened=opened)
    assert printed_pages(page) == sheets


def test_what_a_closed_key_says_is_not_printed(page):
    set_key(page, opened=False)
    page.emulate_media(media="print")
    assert not page.locator(".worksheet-key").is_visible()
    page.emulate_media(media="screen")
    assert page.locator(".worksheet-key summary").is_visible()


def test_blank_cells_are_large_enough_to_write_in(page):
    page.set_viewport_size({"width": 718, "height": 1046})  # A4 within margins of 1 cm
    page.emulate_media(media="print")
    sizes = page.evaluate(BLANKS)
    page.emulate_media(media="screen")
    assert len(sizes) == sum(row.count("|   ") for row in worksheet.steps(key=False).splitlines())
    width, height = (min(size) * 25.4 / 96 for size in zip(*sizes, strict=True))
    assert width >= 12  # millimetres
    assert height >= 6
