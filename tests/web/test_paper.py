"""The small steps on the way from the site to PDF, EPUB and archive."""

from __future__ import annotations

import hashlib
import io
import zipfile
from datetime import UTC, datetime

import pytest
from bs4 import BeautifulSoup

from web.paper import archive, epub, epub_package, epub_page, imprint, joined

PAGES = ["chapters/one", "chapters/two"]
NOW = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
FACTS = imprint.Facts("T & U", "s", "a", "en", "1.0", "https://b.example", "c0ffee", False, NOW)


def page(body, head=""):
    return epub_page.parse(
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>{body}</body></html>'
    )


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("two.html#mask", "#chapters-two--mask"),
        ("two.html", "#chapters-two"),
        ("#here", "#chapters-one--here"),
        ("https://elsewhere.example/two.html", "https://elsewhere.example/two.html"),
        ("../genindex.html", None),
    ],
)
def test_links_lead_to_their_place_on_the_one_page(address, target):
    assert joined.inner_target(address, "chapters/one", PAGES) == target


def test_an_article_is_unfolded_and_bare_of_buttons_and_of_dead_links():
    html = """<article class="bd-article"><section id="top"><h1>One<a class="headerlink">#</a></h1>
        <details><summary>Hint</summary>look</details><button>Copy</button>
        <a href="../genindex.html">index</a><img src="../_images/a.svg"></section></article>"""
    text = joined.article(html, "chapters/one", PAGES)
    assert text.select_one("details").has_attr("open")
    assert text.select("button, a") == []
    assert "index" in text.text
    assert text.img["src"] == "_images/a.svg"
    assert text.section["id"] == "chapters-one--top"


def test_the_contents_name_every_heading_and_keep_a_place_for_its_page():
    html = '<section id="a"><h1>One</h1><section id="b"><h2>Two</h2></section></section>'
    lines = BeautifulSoup(joined.contents([BeautifulSoup(html, "html.parser")]), "html.parser")
    assert [line["data-place"] for line in lines.select(".page")] == ["a", "b"]
    assert [line.text for line in lines.select("li")] == ["One", "Two"]


def test_all_pages_of_the_contents_are_printed_in_their_order():
    toc = "root: a\nparts: [{chapters: [{file: b}]}, {chapters: [{file: c}, {file: d}]}]"
    assert joined.pages_of(toc) == ["a", "b", "c", "d"]


def test_links_lead_to_pages_of_the_epub_or_nowhere():
    document = page(
        '<a href="two.html#x">1</a><a href="gone.html">2</a><a href="https://e.example/">3</a>'
    )
    epub_page.lead_to_pages(document, lambda path: path == "two.xhtml")
    links = document.getElementsByTagName("a")
    assert [link.getAttribute("href") for link in links] == [
        "two.xhtml#x",
        "",
        "https://e.example/",
    ]


def test_a_folded_cell_has_one_line_in_its_head():
    document = page('<details><summary aria-label="t"><p>Show</p><p>Hide</p></summary></details>')
    epub_page.simplify_summaries(document)
    assert "<summary>Show</summary>" in document.toxml()


def test_no_script_and_no_foreign_style_is_left_in_a_head():
    document = page("<p/>", '<script src="a.js"/><link href="theme.css"/><title>t</title>')
    epub_page.clean_head(document)
    text = document.toxml()
    assert "script" not in text
    assert "theme.css" not in text
    assert text.count("<link") == len(epub_page.SHEETS)


def test_the_package_lists_every_file_and_states_what_readers_must_know():
    files = {"a.xhtml": "<math/>", "nav.xhtml": '<nav epub:type="toc"/>', "b.svg": ""}
    text = epub_package.package(FACTS, files, ["a.xhtml"])
    assert text.count("<item ") == 3
    assert 'href="a.xhtml" media-type="application/xhtml+xml" properties="mathml"' in text
    assert 'properties="nav"' in text
    assert '<itemref idref="f-a.xhtml"/>' in text
    assert "T &amp; U" in text


def test_names_in_a_drawing_are_given_once():
    drawing = '<g id="a"/><g id="a"/><g id="b"/><g id="a"/>'
    assert epub.unique_names(drawing) == '<g id="a"/><g id="a-2"/><g id="b"/><g id="a-3"/>'


def test_an_archive_is_the_same_bytes_whenever_it_is_made():
    files = {"mimetype": b"m", "a/b": b"text" * 100}
    once = epub_package.archive(files, NOW)
    assert once == epub_package.archive(files, NOW)
    first, second = zipfile.ZipFile(io.BytesIO(once)).infolist()
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
    assert (second.date_time, second.compress_type) == (NOW.timetuple()[:6], zipfile.ZIP_DEFLATED)


def test_checksums_are_those_of_the_files():
    text = archive.checksums({"b": b"2", "a": b"1"}).decode()
    assert text == "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in (("a", b"1"), ("b", b"2"))
    )


def test_the_date_asked_for_is_the_date_of_every_file(monkeypatch):
    monkeypatch.setenv(imprint.ASKED, str(int(NOW.timestamp())))
    assert imprint.facts().moment == NOW
    assert imprint.moment("") == datetime(1980, 1, 1, tzinfo=UTC)
