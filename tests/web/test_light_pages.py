"""How the pages are made light: on small texts, and on the built site."""

from __future__ import annotations

import re
import sys

import pytest

from tests.web.pages import ROOT, soup

sys.path.insert(0, str(ROOT / "web/extensions"))

import light_pages

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
    assert light_pages.lighten(page, "page", icons) == '<script src="../a.js?v=1"></script>'


@pytest.mark.slow
def test_no_page_of_the_site_needs_the_script_or_the_font_of_the_icons(site):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    icons = re.compile(r"(^|\s)fa-(?!lg)")
    for path in pages:
        left = [tag for tag in soup(path).find_all(class_=icons) if tag.name != "svg"]
        assert not left, f"{path.relative_to(site)}: {left[0]}"
    assert not list(site.rglob("fontawesome.js"))
