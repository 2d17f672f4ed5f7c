"""Formulas are set while the pages are built: as HTML for the site, as MathML for an EPUB."""

from __future__ import annotations

import re

import pytest

from tests.web.test_extensions import build
from web.mathematics.typesetter import Typesetter, TypesettingError

CONFIGURATION = """
extensions = ["myst_parser", "static_math"]
html_theme = "basic"
myst_enable_extensions = ["dollarmath"]
version = release = "1"
"""
PAGE = r"""# A

One of $a < b_1$ and $a < b_1$.

$$
\frac{a}{b} \tag{2.1}
$$

$$
a &= 1 \\
b &= 2
$$
"""


@pytest.fixture(scope="module")
def typesetter():
    return Typesetter()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return build(folder, {"conf.py": CONFIGURATION, "index.md": PAGE})


@pytest.mark.slow
def test_a_page_shows_its_formulas_without_a_script(built):
    assert built.code == 0, built.said
    page = built.page()
    assert len(page.select("span.math > mjx-container > mjx-math")) == 2
    assert len(page.select("div.math > mjx-container[display] > mjx-math")) == 2
    assert "mathjax" not in " ".join(str(script) for script in page.select("script")).lower()


@pytest.mark.slow
def test_a_formula_in_a_sentence_stays_with_the_sign_that_touches_it(built):
    first, second = built.page().select(".math-and-sign")
    assert [len(first.contents), len(second.contents)] == [1, 2]
    assert second.contents[1] == "."


@pytest.mark.slow
def test_a_screen_reader_gets_mathml_that_keeps_the_source(built):
    page = built.page()
    sources = [note.text for note in page.select("math annotation")]
    assert sources[:3] == ["a < b_1", "a < b_1", r"\frac{a}{b} \tag{2.1}"]
    assert page.select_one("span.math math msub").text == "b1"
    assert all(drawn["aria-hidden"] == "true" for drawn in page.select("mjx-math"))


@pytest.mark.slow
def test_without_scripts_a_formula_by_itself_can_be_scrolled_by_keyboard(built):
    formulas = built.page().select("mjx-container")
    assert [formula.get("tabindex") for formula in formulas] == [None, None, "0", "0"]


@pytest.mark.slow
def test_lines_may_be_ended_and_a_number_stands_in_the_formula(built):
    one, two = built.page().select("div.math math")
    assert "(2.1)" in one.text
    assert len(two.select("mtr")) == 2


@pytest.mark.slow
def test_the_style_sheet_has_every_glyph_and_font_of_the_pages(built):
    sheet = (built.folder / "_static/mathematics.css").read_text("utf-8")
    glyphs = {name for glyph in built.page().select("mjx-c") for name in glyph["class"]}
    missing = {name for name in glyphs if name.startswith("mjx-c") and f".{name}" not in sheet}
    assert missing == set()
    assert "../mathjax/output/chtml/fonts/woff-v2/MathJax_Math-Italic.woff" in sheet


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [r"\unknown", r"\frac{1}{", r"a & b"])
def test_a_formula_with_a_mistake_stops_the_build(tmp_path, wrong):
    done = build(tmp_path, {"conf.py": CONFIGURATION, "index.md": f"# A\n\nSee ${wrong}$.\n"})
    assert done.code != 0
    assert f": {wrong}" in done.said
    assert "index.md:3" in done.said


@pytest.mark.slow
def test_an_epub_gets_mathml_alone_with_the_number_beside_it(tmp_path):
    done = build(tmp_path, {"conf.py": CONFIGURATION, "index.md": PAGE}, builder="epub")
    text = (done.folder / "index.xhtml").read_text("utf-8")
    assert "<mjx-" not in text
    assert re.search(
        r'<div class="math">\s*<math .*?</math><span class="number">\(2\.1\)</span>', text
    )
    assert "data-mjx" not in text
    assert "annotation" not in text


def test_a_formula_is_set_alike_each_time(typesetter):
    assert typesetter.html(r"\sqrt{d}", False) == Typesetter().html(r"\sqrt{d}", False)


def test_a_mistake_names_the_formula_and_the_next_one_is_set(typesetter):
    with pytest.raises(TypesettingError, match=r"Undefined control sequence .*: \\nothing"):
        typesetter.html(r"\nothing", True)
    assert "mjx-mfrac" in typesetter.html(r"\frac12", True)


def test_a_formula_is_as_large_as_the_text_around_it_wants(typesetter):
    assert "font-size: calc(1ex / 0.46)" in typesetter.style_sheet("")
