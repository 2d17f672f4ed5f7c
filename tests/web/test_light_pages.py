"""How the pages are made light: on small texts, and on the built site."""

from __future__ import annotations

import re
import sys

import pytest

from tests.web.pages import ROOT, soup

sys.path.insert(0, str(ROOT / "web/extensions"))

import light_pages

from web.paper.joined import pages_of

SCRIPT = (
    'var regular={"file":[1,2,[],"f1","M0"]};'
    'var solid={bars:[4,5,["navicon"],"f2","M1"],"file":[3,4,[],"f1","M9z"]}'
)


def test_an_icon_becomes_the_solid_drawing_of_its_name():
    page = '<i class="fas fa-file" data-mode="auto" title="File"></i>'
    assert light_pages.lighten(page, "page", light_pages.Icons(SCRIPT)) == (
        '<svg class="svg-inline--fa fas fa-file" data-mode="auto" aria-hidden="true" '
        'fill="currentColor" viewBox="0 0 3 4"><path d="M9z"/></svg>'
    )


def test_an_icon_that_the_theme_lacks_stops_the_build():
    with pytest.raises(ValueError, match="fa-nothing"):
        light_pages.Icons(SCRIPT).shape(["fas", "fa-nothing"])


def test_only_the_page_of_the_search_loads_the_index_of_the_search():
    page = '<script src="../searchindex.js"></script><script src="../a.js?v=1"></script>'
    icons = light_pages.Icons(SCRIPT)
    assert light_pages.lighten(page, "search", icons) == page
    lightened = light_pages.lighten(page, "page", icons)
    assert lightened == '<script defer src="../a.js?v=1"></script>'


@pytest.mark.slow
def test_no_page_of_the_site_needs_the_script_or_the_font_of_the_icons(site):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    icons = re.compile(r"(^|\s)fa-(?!lg)")
    for path in pages:
        left = [tag for tag in soup(path).find_all(class_=icons) if tag.name != "svg"]
        assert not left, f"{path.relative_to(site)}: {left[0]}"
    assert not list(site.rglob("fontawesome.js"))


def test_the_theme_measures_nothing_or_the_build_stops():
    script = f"all.forEach(e=>{{{light_pages.MEASURING}}})"
    assert light_pages.without_measuring(script) == "all.forEach(e=>{0})"
    with pytest.raises(ValueError, match="parts that scroll"):
        light_pages.without_measuring("all.forEach(e=>{})")


@pytest.fixture
def static(tmp_path):
    (tmp_path / "styles").mkdir()
    for name, text in {
        "basic.css": "p { color: black }",
        "own.css": 'i { background: url("own.svg") }',
        "styles/theme.css": '@charset "UTF-8";@import "../basic.css"; b { top: 0 }\n'
        "a { background: url(../img/a.png) } u { background: url(data:image/png;base64,AA==) }",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_page_asks_for_one_sheet_that_holds_all_in_their_order(static):
    page = (
        '<link href="../_static/styles/theme.css?v=1" rel="stylesheet" />\n<link rel="icon" '
        'href="../_static/logo.svg" />\n<link rel="stylesheet" href="../_static/own.css" />\n'
    )
    joined = light_pages.Sheets(static).join(page)
    (name,) = re.findall(r'href="../_static/(book-\w+\.css)"', joined)
    assert joined.count("stylesheet") == 1
    assert 'rel="icon"' in joined
    text = (static / name).read_text("utf-8")
    places = [text.index(rule) for rule in ("p { color", "b { top", "a { back", "i { back")]
    assert places == sorted(places)


def test_addresses_in_a_joined_sheet_lead_where_they_led(static):
    sheets = light_pages.Sheets(static)
    text = (static / sheets.file_of(("styles/theme.css", "own.css"))).read_text("utf-8")
    assert 'url("img/a.png")' in text
    assert 'url("own.svg")' in text
    assert "url(data:image/png;base64,AA==)" in text
    assert "@" not in text


def test_sheets_are_joined_once_and_their_parts_removed(static):
    sheets = light_pages.Sheets(static)
    assert sheets.file_of(("own.css", "basic.css")) == sheets.file_of(("own.css", "basic.css"))
    sheets.remove_parts()
    assert not (static / "own.css").exists()
    assert (static / "styles/theme.css").exists()


def test_scripts_wait_for_the_page_unless_others_wait_for_them():
    page = '<script src="../documentation_options.js"></script><script src="../a.js"></script>'
    lightened = light_pages.lighten(page, "page", light_pages.Icons(SCRIPT))
    assert lightened == page.replace('<script src="../a.js"', '<script defer src="../a.js"')


@pytest.mark.slow
def test_no_page_of_the_site_waits_for_more_than_one_sheet_and_one_script(site):
    for name in pages_of((ROOT / "_toc.yml").read_text(encoding="utf-8")):
        page = soup(site / f"{name}.html")
        assert len(page.select("link[rel=stylesheet]")) == 1, name
        waited_for = [script["src"] for script in page.select("script[src]:not([defer], [async])")]
        assert [re.sub(r".*/|\?.*", "", source) for source in waited_for] == [light_pages.OPTIONS]
