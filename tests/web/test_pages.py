"""Every page in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import functools
import gzip
from urllib.parse import unquote, urlsplit

import pytest

from tests.web.browser import NARROWEST, PHONE, View, look, opened
from tests.web.pages import notebook_pages, table_of_contents
from web.tools.server import served

pytestmark = pytest.mark.slow  # needs the built site and a browser

SCHEMES = ("light", "dark")
ADDED = ("search", "genindex", "_modules/attnlib/single_query")  # one of each kind
VIEWS = [
    View(page, width, scheme)
    for page in (*table_of_contents(), *ADDED)
    for width in (1280, PHONE)
    for scheme in SCHEMES
]
HEAVIEST = 500_000  # bytes of all that a page loads, compressed as servers do
PACKED = {".woff", ".woff2", ".png"}  # compressed already
each_view = pytest.mark.parametrize("view", VIEWS, ids=str)


@pytest.fixture(scope="module")
def visits(browser, home):
    """Return the visit of a view; each view is opened once for all tests."""
    made = {}

    def visit(view):
        if view not in made:
            made[view] = look(browser, view, home)
        return made[view]

    return visit


@each_view
def test_no_error_is_reported(visits, view):
    assert visits(view).errors == []


@each_view
def test_no_other_host_is_asked(visits, view):
    assert visits(view).foreign == []


@each_view
def test_all_mathematics_is_set(visits, view):
    seen = visits(view).seen
    assert seen["mistakes"] == []
    assert seen["set"] == seen["formulas"]
    assert [sign for sign in ("$", r"\(", r"\[") if sign in seen["text"]] == []


@pytest.mark.parametrize("page", notebook_pages())
def test_every_chapter_has_mathematics_and_a_figure(visits, page):
    seen = visits(View(page)).seen
    assert seen["formulas"]
    assert seen["images"]


@each_view
def test_the_page_does_not_scroll_sideways(visits, view):
    seen = visits(view).seen
    assert seen["width"] <= view.width
    assert view.width != PHONE or seen["narrowest"] <= NARROWEST


@each_view
def test_every_figure_is_shown_and_described(visits, view):
    for image in visits(view).seen["images"]:
        assert image["loaded"], image
        assert len(image["description"].split()) >= 4, image


@each_view
def test_the_page_follows_the_reader_s_colour_scheme(visits, view):
    seen = visits(view).seen
    brightness = sum(map(int, seen["background"].removeprefix("rgb(").rstrip(")").split(",")))
    assert seen["theme"] == view.scheme
    assert (brightness > 3 * 128) == (view.scheme == "light")


@each_view
def test_axe_finds_no_violation_of_any_impact(visits, view):
    assert visits(view).seen["violations"] == []


@functools.cache
def compressed_size(path):
    """Return the bytes of a file as a server sends it."""
    content = path.read_bytes()
    return len(content if path.suffix in PACKED else gzip.compress(content))


@pytest.mark.parametrize("page", [*table_of_contents(), *ADDED])
def test_no_page_is_heavier_than_its_budget(visits, site, home, page):
    paths = {unquote(urlsplit(url).path).lstrip("/") for url in visits(View(page)).asked}
    sizes = {path: compressed_size(site / path) for path in paths if (site / path).is_file()}
    assert f"{page}.html" in sizes
    assert sum(sizes.values()) <= HEAVIEST, sorted(sizes.items(), key=lambda item: -item[1])[:9]


@pytest.mark.parametrize("page", ["chapters/index", "chapters/01_single_query", "search"])
def test_a_page_works_from_a_folder_without_a_server(browser, site, page):
    seen = look(browser, View(page), site.as_uri())
    assert (seen.errors, seen.foreign) == ([], [])
    assert seen.seen["set"] == seen.seen["formulas"]


def test_a_search_finds_the_chapter_that_explains_a_word(browser, home):
    with opened(browser, View("search"), home, "?q=softmax") as (page, visit):
        page.wait_for_selector("#search-results li a")
        found = page.locator("#search-results li a").evaluate_all("links => links.map(a => a.href)")
    assert visit.errors == []
    assert any("chapters/01_single_query.html" in link for link in found)


BROKEN = {
    "errors": "<script>throw new Error('broken')</script>",
    "foreign": "<img src='http://elsewhere.invalid/a.png' alt='a picture from another host'>",
    "text": "<p>a formula left as $x$</p>",
    "mistakes": "<mjx-merror>unknown</mjx-merror>",
    "width": "<p style='width: 2000px'>too wide</p>",
    "images": "<article class='bd-article'><img src='here.svg'></article>",
    "violations": "<button></button>",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_page_is_noticed(browser, tmp_path, fault):
    """Each fault leaves its mark on the visit: these tests can fail."""
    tmp_path.joinpath("page.html").write_text(f"<!doctype html><body>{BROKEN[fault]}", "utf-8")
    view = View("page")
    with served(tmp_path) as url:
        visit = look(browser, view, url)
    marks = {
        "errors": visit.errors,
        "foreign": visit.foreign,
        "text": "$" in visit.seen["text"],
        "mistakes": visit.seen["mistakes"],
        "width": visit.seen["width"] > view.width,
        "violations": [said for said in visit.seen["violations"] if said.startswith("button-name")],
        "images": [image for image in visit.seen["images"] if not image["description"]],
    }
    assert marks[fault]
