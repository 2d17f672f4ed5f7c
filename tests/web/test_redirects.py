"""Old addresses lead to the pages that took their place."""

from __future__ import annotations

import posixpath

import pytest

from tests.web.accessibility import violations
from tests.web.browser import View, opened
from tests.web.pages import ROOT, notebook_pages, redirects, soup, table_of_contents
from tests.web.test_extensions import build, contents

pytestmark = pytest.mark.slow  # needs the built site and a browser

TEMPLATE = ROOT / "web/extensions/redirect.html"
CONFIGURATION = f"""
extensions = ["myst_parser", "sphinx_reredirects"]
html_theme = "basic"
redirect_html_template_file = {str(TEMPLATE)!r}
redirects = {{"old": "new.html", "deep/old": "../new.html"}}
"""
NEW = "# New\n\n## Second part\n"


def target(old):
    """Return the page that an old address leads to, from the folder of the site."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(old), redirects()[old]))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    pages = {"conf.py": CONFIGURATION, "index.md": "# I\n" + contents("new"), "new.md": NEW}
    return build(tmp_path_factory.mktemp("redirects"), pages)


def test_a_small_site_with_old_addresses_builds_without_a_word(small):
    assert (small.said, small.code) == ("", 0)


@pytest.mark.parametrize(("old", "address"), [("old", "new.html"), ("deep/old", "../new.html")])
def test_an_old_address_has_language_title_canonical_address_and_a_plain_link(small, old, address):
    page = small.page(old)
    assert page.html["lang"] == "en"
    assert page.title.text == page.h1.text == "This page has moved"
    assert page.find("link", rel="canonical")["href"] == address
    assert page.main.a["href"] == address
    assert page.noscript.meta["content"] == f"0; url={address}"


@pytest.mark.parametrize("old", ["old", "deep/old"])
def test_the_reader_arrives_at_the_place_that_the_old_address_names(browser, small, old):
    with opened(browser, View(old), small.folder.as_uri(), "#second-part") as (page, visit):
        page.wait_for_url("**/new.html#second-part")
        assert page.title().startswith("New")
    assert visit.errors == []


def test_a_reader_without_scripts_arrives_too(browser, small):
    plain = browser.browser.new_context(java_script_enabled=False)
    with opened(plain, View("old"), small.folder.as_uri()) as (page, visit):
        page.wait_for_url("**/new.html")
        assert page.title().startswith("New")
    plain.close()
    assert visit.errors == []


def test_axe_finds_no_violation_on_the_way(browser, small, tmp_path):
    html = (small.folder / "old.html").read_text(encoding="utf-8")
    script = html[html.index("<script>") : html.index("</script>")]
    tmp_path.joinpath("old.html").write_text(html.replace(script, "<script>"), "utf-8")
    with opened(browser, View("old"), tmp_path.as_uri()) as (page, _):
        assert violations(page, "page", "light") == []


@pytest.mark.parametrize("old", redirects())
def test_an_old_address_of_the_book_leads_to_a_page_of_the_book(site, old):
    assert target(old).removesuffix(".html") in table_of_contents()
    assert soup(site / f"{old}.html").main.a["href"] == redirects()[old]
    assert old not in table_of_contents()


def test_every_chapter_is_reached_by_its_name_without_its_number():
    names = {page: posixpath.basename(page).partition("_")[2] for page in notebook_pages()}
    assert names
    assert {page: target(f"chapters/{name}") for page, name in names.items()} == {
        page: f"{page}.html" for page in names
    }
