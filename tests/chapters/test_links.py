"""Every link from one page of the book to another leads to a place that exists."""

from __future__ import annotations

import pytest

from tests.chapters.documents import CHAPTERS, NOTEBOOKS
from tests.chapters.links import Link, anchors, links, problem_of, slug

DOCUMENTS = [*NOTEBOOKS, *sorted(CHAPTERS.glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_a_page_lead_somewhere(path):
    found = links(path)
    problems = [problem for one in found if (problem := problem_of(one, path))]
    assert not problems, "\n".join(problems)
    assert found


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("01_single_query.ipynb#softmax", None),
        ("#definition-1-2", None),
        ("notation.md#which-way-round-is-a-mask", None),
        ("api.md#attnlib.softmax", None),
        ("https://example.org/nowhere", None),
        ("01_single_query.ipynb#soft-max", "no section #soft-max"),
        ("#definition-1-99", "no section #definition-1-99"),
        ("api.md#attnlib.hardmax", "no section #attnlib.hardmax"),
        ("00_nothing.ipynb", "there is no 00_nothing.ipynb"),
        ("../../elsewhere.md", "there is no"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(target, problem):
    said = problem_of(Link("there", target, "here"), NOTEBOOKS[0])
    assert (said is None) == (problem is None)
    assert problem is None or problem in said


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("The formula, head by head", "the-formula-head-by-head"),
        ("How dense is dense?", "how-dense-is-dense"),
        ("Why the heads need $W^{head}$", "why-the-heads-need-whead"),
        ("One query: `attnlib.single_query`", "one-query-attnlibsingle_query"),
    ],
)
def test_a_heading_has_the_anchor_that_the_site_gives_it(title, anchor):
    assert slug(title) == anchor


def test_headings_boxes_and_functions_are_anchors():
    assert {"four-steps", "law-1-1"} <= anchors(NOTEBOOKS[0])
    assert "attnlib.dense.tiled_attention" in anchors(CHAPTERS / "api.md")
