"""The search page: it finds what the book writes, and shows it as text."""

from __future__ import annotations

import re

import pytest

from tests.web.browser import View, chromium_browser, opened
from web.tools.server import served

pytestmark = pytest.mark.slow  # needs the built site and a browser

# What a reader may look for, and a page that must be among the results.
QUERIES = {
    "softmax": "chapters/01_single_query.html",
    "scaled_dot_product_attention": "chapters/api.html",
    "causal_mask": "chapters/02_causal.html",
    "W_q": "chapters/04_multi_head.html",
    "d_h": "chapters/notation.html",
    "τ": "chapters/notation.html",
    "head": "chapters/04_multi_head.html",
}
FORMULAS = {
    r"\(d_h = 2\)": "d_h = 2",
    r"\[\frac{q K^\top}{\sqrt{d}} \tag{1.1}\]": "(q K^⊤)/√d (1.1)",
    r"\(W_q^{[j]}\)": "W_q^[j]",
    r"\mathrm{Softmax}\left(\tfrac{1}{2}\right)": "Softmax(1/2)",
    r"\alpha_{i,j} \le 1": "α_i,j ≤ 1",
    r"\frac{\exp(s_0)}{\sum_j e^{s_j}}": "(exp(s_0))/(Σ_j e^s_j)",
    r"\begin{bmatrix} 1 & 2 \\ 3 & 0 \end{bmatrix}": "1 2 3 0",
    r"\{0, \dots, m\}": "{0, …, m}",
    r"\{\tau d_h\}": "{τd_h}",
}
RAW = re.compile(r"\\(?!n\b)[a-zA-Z(\[{]|\^\{|_\{|\$")  # but code may hold a "\n"


@pytest.fixture(scope="module")
def search_page(site):
    """Return a function that opens the search page with a query."""
    with served(site) as home, chromium_browser() as browser:
        yield lambda query: opened(browser, View("search"), home, f"?q={query}")


def found(page):
    """Return the links and the texts of all results, once they are complete."""
    page.wait_for_function("document.querySelector('#search-results .search-summary').innerText")
    page.wait_for_load_state("networkidle")  # each summary is made from a page of its own
    links = page.locator("#search-results li a").evaluate_all("all => all.map(a => a.href)")
    return links, page.locator("#search-results li").all_inner_texts()


@pytest.mark.parametrize("query", QUERIES)
def test_a_search_finds_the_page_and_shows_no_latex(search_page, query):
    with search_page(query) as (page, visit):
        links, texts = found(page)
    assert visit.errors == []
    assert any(QUERIES[query] in link for link in links)
    assert [text for text in texts if RAW.search(text)] == []
    assert any(len(text) > 100 for text in texts)  # summaries are there at all


@pytest.mark.parametrize("query", ["softmax", "W_q", "τ"])
def test_a_summary_shows_the_words_that_were_looked_for(search_page, query):
    with search_page(query) as (page, _):
        _, texts = found(page)
    assert all(query.lower() in text.lower() for text in texts)


def test_a_formula_is_written_out_as_text(search_page):
    with search_page("softmax") as (page, _):
        shown = page.evaluate("sources => sources.map(searchText.plain)", list(FORMULAS))
    assert shown == list(FORMULAS.values())


def test_no_formula_of_the_book_keeps_a_command(search_page, site):
    pages = [path.read_text("utf-8") for path in sorted((site / "chapters").glob("*.html"))]
    with search_page("softmax") as (page, _):
        texts = page.evaluate(
            """pages => pages.flatMap((page) => {
              const made = new DOMParser().parseFromString(page, "text/html");
              return [...made.querySelectorAll(".math")].map((node) => searchText.plain(
                (node.querySelector("annotation") ?? node).textContent));
            })""",
            pages,
        )
    assert len(texts) > 1000
    assert sorted({text for text in texts if RAW.search(text)}) == []
