"""A page on paper: text and figures, without what only a screen needs."""

from __future__ import annotations

import functools

import pytest

from tests.web.browser import View, chromium_browser, opened
from tests.web.pages import notebook_pages, table_of_contents
from web.tools.server import served

pytestmark = pytest.mark.slow  # needs the built site and a browser

SHEET = 680  # the pixels that A4 leaves between margins of 15 mm
PRINTED = """() => {
  const shown = (selector) => [...document.querySelectorAll(selector)]
    .filter((node) => node.checkVisibility() && node.getClientRects().length);
  const steering = "button, nav.bd-links, .bd-sidebar-primary, .bd-sidebar-secondary, " +
    ".bd-header, .bd-header-article, .prev-next-area, .bd-footer";
  const edge = document.documentElement.clientWidth;
  return {
    steering: shown(steering).map((node) => node.className || node.id || node.tagName),
    wide: shown(".bd-article pre").filter((pre) =>
      pre.scrollWidth > pre.clientWidth + 1 || pre.getBoundingClientRect().right > edge + 1
    ).map((pre) => pre.textContent.slice(0, 80)),
    code: shown(".bd-article pre").length,
    titles: shown("h1").map((title) => title.textContent),
    solutions: document.querySelectorAll("details.hide[open]").length,
  };
}"""


@pytest.fixture(scope="module")
def printed(site):
    """Return a function that tells what a page shows on paper; it opens each page once."""
    with served(site) as home, chromium_browser() as browser:

        @functools.cache
        def visit(page):
            with opened(browser, View(page, SHEET), home) as (opened_page, _):
                opened_page.emulate_media(media="print")
                return opened_page.evaluate(PRINTED)

        yield visit


@pytest.mark.parametrize("page", table_of_contents())
def test_paper_shows_the_text_alone_with_one_title(printed, page):
    seen = printed(page)
    assert seen["steering"] == []
    assert len(seen["titles"]) == 1


@pytest.mark.parametrize("page", notebook_pages())
def test_no_code_runs_off_the_paper_and_solutions_stay_folded(printed, page):
    seen = printed(page)
    assert seen["code"]
    assert seen["wide"] == []
    assert seen["solutions"] == 0


def test_a_page_that_is_read_in_the_dark_is_printed_in_light_colours(site):
    theme = "document.documentElement.dataset.theme"
    with served(site) as home, chromium_browser() as browser:
        dark = View("chapters/01_single_query", scheme="dark")
        with opened(browser, dark, home) as (page, _):
            themes = [page.evaluate(theme)]
            for moment in ("beforeprint", "afterprint"):
                page.evaluate("moment => dispatchEvent(new Event(moment))", moment)
                themes.append(page.evaluate(theme))
    assert themes == ["dark", "light", "dark"]
