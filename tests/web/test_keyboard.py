"""A page by keyboard alone: where Tab leads, and that what has the focus is seen to have it."""

from __future__ import annotations

import pytest

from tests.web.browser import PHONE, View, opened

pytestmark = pytest.mark.slow  # needs the built site and a browser

CHAPTER = "chapters/01_single_query"  # has one of each: figures to move, exercises, wide formulas
MOST = 200  # stops; a page that holds the focus for ever has more

# One of each kind of stop is enough: three sections, that of the figure and that of an exercise.
SHORTENED = """() => {
  const sections = [...document.querySelectorAll(".bd-article section section")].slice(3);
  const stay = [sections.find((section) => section.querySelector(".interactive")),
    sections.find((section) => section.querySelector(".exercise"))];
  for (const section of sections) if (!stay.includes(section)) section.remove();
}"""

# Transitions would show a ring only after a while.
STILL = "*, ::before, ::after { transition: none !important; scroll-behavior: auto !important }"
STOP = """() => {
  const stop = document.activeElement;
  const box = stop.getBoundingClientRect();
  const style = getComputedStyle(stop);
  let opacity = 1;
  for (let node = stop; node; node = node.parentElement) opacity *= getComputedStyle(node).opacity;
  const around = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none";
  return {
    who: `${stop.tagName} ${stop.className} ${stop.getAttribute("aria-label") ?? stop.innerText}`,
    end: stop === document.body,
    shown: opacity === 1 && box.width > 0 && box.bottom > 0 && box.top < innerHeight,
    ringed: around || style.boxShadow !== "none",
    part: stop.matches("pre, .output, .pst-scrollable-table-container, .math, .math *"),
    scrolls: stop.scrollWidth > stop.clientWidth || stop.scrollHeight > stop.clientHeight,
  };
}"""


@pytest.fixture(scope="module", params=[1280, PHONE])
def stops(request, browser, home):
    """Return all that Tab leads to on a chapter's page, in this order."""
    with opened(browser, View(CHAPTER, request.param), home) as (page, _):
        page.add_style_tag(content=STILL)
        page.evaluate(SHORTENED)
        page.wait_for_timeout(500)  # what comes near the screen is measured
        return list(walk(page))


def walk(page):
    for _ in range(MOST):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop["end"]:
            return
        yield stop
    raise AssertionError("the focus does not leave the page")


def test_what_has_the_focus_is_seen_to_have_it(stops):
    assert len(stops) > 30
    assert [stop["who"] for stop in stops if not (stop["shown"] and stop["ringed"])] == []


def test_the_first_stop_leads_past_the_bars(stops):
    assert "Skip to main content" in stops[0]["who"]


def test_no_code_table_or_formula_is_a_stop_unless_it_scrolls(stops):
    assert [stop["who"] for stop in stops if stop["part"] and not stop["scrolls"]] == []


def test_code_can_be_copied_and_outputs_are_no_stops(browser, home):
    with opened(browser, View(CHAPTER), home) as (page, _):
        page.wait_for_selector(".cell_input .copybtn", state="attached")
        cells = page.locator(".cell_input div.highlight").count()
        assert page.locator(".cell_input .copybtn").count() == cells > 0
        assert page.locator(".cell_output .copybtn").count() == 0


def test_the_skip_link_takes_the_focus_into_the_article(browser, home):
    with opened(browser, View(CHAPTER), home) as (page, _):
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize("width", [PHONE, 320])
def test_the_number_of_a_wide_formula_is_reached_with_the_arrow_keys(browser, home, width):
    with opened(browser, View(CHAPTER, width), home) as (page, _):
        page.add_style_tag(content=STILL)
        formula = page.locator("div.math.wide:has(mjx-labels)").first
        formula.focus()
        number = formula.locator("mjx-labels mjx-mtd")
        edge = "box => box.getBoundingClientRect().right"
        assert number.evaluate(edge) > formula.evaluate(edge)
        for _ in range(10):
            page.keyboard.press("ArrowRight")
        page.wait_for_timeout(300)
        assert number.evaluate(edge) <= formula.evaluate(edge) + 1


def test_a_formula_in_a_sentence_that_is_wider_than_a_phone_scrolls(browser, home):
    with opened(browser, View(CHAPTER, 320), home) as (page, _):
        page.locator("#four-steps").scroll_into_view_if_needed()
        wide = page.locator("span.math.wide").first
        wide.focus()
        assert wide.evaluate("formula => formula.scrollWidth > formula.clientWidth")
        assert wide.evaluate("formula => formula.getBoundingClientRect().right <= innerWidth")
