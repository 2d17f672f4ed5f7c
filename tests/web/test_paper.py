"""The small steps on the way from the site to PDF, EPUB and archive."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import zipfile
from datetime import UTC, datetime

import pytest
from bs4 import BeautifulSoup
from pikepdf import Array, Dictionary, Name, Pdf, Stream

from tests.web.pages import ROOT
from web.paper import (
    archive,
    epub,
    epub_package,
    epub_page,
    imprint,
    joined,
    offer,
    pdf,
)

PAGES = ["chapters/one", "chapters/two"]
NOW = datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC)
FACTS = imprint.Facts("T & U", "s", "a", "en", "1.0", "https://b.example", "c0ffee", False, NOW)


def page(body, head=""):
    return epub_page.parse(
        f'<html xmlns="http://www.w3.org/1999/xhtml"><head>{head}</head><body>{body}</body></html>'
    )


@pytest.fixture
def printed():
    """A PDF as Chromium prints it, as far as the checks look: two pages, two places, one link."""
    book = Pdf.new()
    first, second = book.add_blank_page(), book.add_blank_page()
    book.Root.Dests = Dictionary(
        {"/one": Array([first.obj, Name.Fit]), "/two": Array([second.obj, Name.Fit])}
    )
    first.Annots = Array([Dictionary(Subtype=Name.Link, Dest=Name.two)])
    book.Root.MarkInfo = Dictionary(Marked=True)
    book.Root.StructTreeRoot = Dictionary()
    book.Root.Lang = "en"
    book.Root.Outlines = Dictionary(First=Dictionary(Title="One"))
    pdf.finish(book, FACTS)
    return book


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


def test_the_contents_learn_the_pages_of_their_places(printed):
    assert pdf.page_numbers(printed) == {"one": 1, "two": 2}


def test_a_pdf_with_title_tags_language_outline_and_live_links_has_no_fault(printed):
    assert pdf.printing_faults(printed, FACTS.title) == []


def no_title(book):
    book.docinfo["/Title"] = "book.invalid"


def no_tags(book):
    book.Root.MarkInfo.Marked = False


def no_language(book):
    del book.Root.Lang


def no_outline(book):
    book.Root.Outlines = Dictionary()


def dead_link(book):
    book.pages[0].Annots.append(Dictionary(Subtype=Name.Link, Dest=Name.gone))


def bitmap(book):
    Stream(book, b"", Subtype=Name.Image, Width=2023, Height=400)  # is in the book from now on


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (no_title, "it has not the title of the book"),
        (no_tags, "it is not tagged"),
        (no_language, "it names no language"),
        (no_outline, "it has no outline"),
        (dead_link, "a link leads nowhere: gone"),
        (bitmap, "a bitmap is large: 2023 x 400"),
    ],
)
def test_each_fault_of_a_pdf_is_found(printed, spoil, fault):
    spoil(printed)
    assert pdf.printing_faults(printed, FACTS.title) == [fault]


def test_a_pdf_opens_with_its_outline_under_its_own_title(printed, tmp_path):
    pdf.save(printed, tmp_path / "book.pdf")
    with Pdf.open(tmp_path / "book.pdf") as book:
        assert book.docinfo["/Title"] == FACTS.title
        assert book.open_metadata()["dc:title"] == FACTS.title
        assert book.Root.ViewerPreferences.DisplayDocTitle
        assert book.Root.PageMode == Name.UseOutlines
        assert pdf.printing_faults(book, FACTS.title) == []


def small_book(text):
    return (
        '<!DOCTYPE html><html lang="en"><title>book.invalid</title><main><article id="a">'
        f'<h1 id="top">One</h1>{text}<a href="#top">up</a></article></main></html>'
    )


@pytest.mark.slow
def test_a_book_is_printed_with_tags_and_the_pages_of_its_contents(tmp_path):
    contents = '<a href="#b">Two <i data-place="b"></i></a><h2 id="b" style="break-before:page">'
    pdf.print_book(small_book(contents), tmp_path / "book.pdf")
    with Pdf.open(tmp_path / "book.pdf") as book:
        pdf.finish(book, FACTS)
        assert pdf.printing_faults(book, FACTS.title) == []
        assert pdf.page_numbers(book) == {"top": 1, "b": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="#gone">there</a>', "Links lead nowhere:\ngone"),
        ('<i data-place="gone"></i>', "No page is known for these entries of the contents:\ngone"),
        (f"<pre>{'x' * 200}</pre>", "Wider than the page:\na: #text xxx"),
        ('<hr style="width: 900px">', "Wider than the page:\\na: HR"),
    ],
)
def test_no_book_is_printed_that_runs_off_the_page_or_leads_nowhere(text, fault, tmp_path):
    with pytest.raises(SystemExit, match=fault):
        pdf.print_book(small_book(text), tmp_path / "book.pdf")


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


@pytest.mark.slow
def test_the_epub_has_no_setting_of_an_extension_that_it_does_without(tmp_path):
    """In a process of its own: an extension looks at every object that there is."""
    prepare = (
        "import sys; from pathlib import Path; from web.paper import epub_pages as made; "
        "made.application(Path(sys.argv[1]), made.epub_config('1.0', 'https://b.example'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", prepare, tmp_path / "pages"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr  # a warning stops `make epub`


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


LANDING = f"<p>Start here.</p><p>{offer.MARK}Or make it.</p>"


def site_with(landing, folder):
    (folder / "chapters").mkdir()
    (folder / offer.LANDING).write_text(landing, encoding="utf-8")
    return folder


def links(site):
    page = BeautifulSoup((site / offer.LANDING).read_text(encoding="utf-8"), "html.parser")
    return [link["href"] for link in page.select("a")]


def test_the_landing_page_offers_the_books_that_lie_in_the_site_and_no_other(tmp_path):
    site = site_with(LANDING, tmp_path)
    assert links(site) == []
    for name in ("book.epub", "book.pdf", "book.pdf"):
        (tmp_path / name).write_bytes(b"0" * 1_260_000)
        offer.offer(tmp_path / name, site)
        assert {(site / "chapters" / link).resolve() for link in links(site)} == {
            path.resolve() for path in (site / offer.FOLDER).iterdir()
        }
    assert links(site) == ["../books/book.pdf", "../books/book.epub"]
    text = (site / offer.LANDING).read_text(encoding="utf-8")
    assert text.count("PDF</a> (1.3 MB)") == 1
    assert "Or make it." in text


def test_the_landing_page_has_a_place_for_the_books(site):
    page = (site / offer.LANDING).read_text(encoding="utf-8")
    assert len(offer.PLACE.findall(page)) == 1


def test_a_landing_page_without_a_place_for_the_books_is_a_fault(tmp_path):
    (tmp_path / "book.pdf").touch()
    with pytest.raises(ValueError, match="no mark"):
        offer.offer(tmp_path / "book.pdf", site_with("<p>Start here.</p>", tmp_path))


def test_the_offer_is_not_printed_into_the_book_itself():
    html = f"""<article class="bd-article"><section id="top"><p>{offer.MARK}<span class="books">Take
        the <a href="../books/book.pdf">PDF</a>.</span>Or make it.</p></section></article>"""
    assert joined.article(html, "chapters/one", PAGES).text.split() == ["Or", "make", "it."]
