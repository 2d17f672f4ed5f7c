"""Sources are complete, listed once, and named on the pages as the bibliography has them."""

from __future__ import annotations

import re

import pytest

from tests.chapters.citations import SOURCES, citation, label, link, mentions
from tests.chapters.documents import CHAPTERS, NOTEBOOKS, ROOT, typed_passages

PAGES = [path for path in sorted(CHAPTERS.glob("*.md")) if path.stem != "further_reading"]
DOCUMENTS = [*NOTEBOOKS, *PAGES]
LABELS = {label(entry) for entry in SOURCES.values()}
FURTHER = (CHAPTERS / "further_reading.md").read_text(encoding="utf-8")
ENTRIES = [" ".join(one.split()) for one in re.findall(r"^\* (.*(?:\n  .*)*)", FURTHER, re.M)]
# Kinds of entry, with the fields that say where the source is to be found.
PLACES = {
    "article": {"journal", "volume"},
    "book": {"publisher"},
    "inproceedings": {"booktitle"},
    "misc": {"howpublished"},
    "techreport": {"institution"},
}


def mentioned(path):
    return [one for text in typed_passages(path) for one in mentions(text.text, text.place)]


@pytest.mark.parametrize("entry", SOURCES.values(), ids=SOURCES.keys())
def test_a_source_says_who_wrote_what_when_and_where_it_is(entry):
    assert {"title", "year"} | PLACES[entry.type] <= set(entry.fields)
    assert entry.persons["author"]
    assert link(entry).startswith("https://")


def test_sources_are_in_the_order_of_their_keys_and_no_address_comes_twice():
    links = [link(entry) for entry in SOURCES.values()]
    assert list(SOURCES) == sorted(SOURCES)
    assert len(set(links)) == len(links)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_source_that_a_page_names_is_in_the_bibliography(path):
    assert [one for one in mentioned(path) if one.label not in LABELS] == []


def test_every_source_is_named_by_a_page_or_by_the_library():
    named = {one.label for path in DOCUMENTS for one in mentioned(path)}
    for path in (ROOT / "attnlib").rglob("*.py"):
        named |= {one.label for one in mentions(path.read_text(encoding="utf-8"), path.name)}
    in_full = {label(entry) for entry in SOURCES.values() if citation(entry) in set(ENTRIES)}
    assert LABELS - named - in_full == set()


def test_further_reading_cites_each_source_in_full_and_once():
    complete = [citation(entry) for entry in SOURCES.values()]
    cited = [one for one in ENTRIES if one in complete]
    assert cited == ENTRIES
    assert len(ENTRIES) == len(set(ENTRIES)) > 30


def test_further_reading_says_of_each_source_why():
    items = re.split(r"^\* ", FURTHER, flags=re.M)[1:]
    reasons = [item.split("\n\n")[1] for item in items]
    assert all(reason.startswith("  ") and len(reason.split()) > 5 for reason in reasons)


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("by Dao et al. (2022), appendix B", ["Dao et al. (2022)"]),
        ("> Jain and\n> Wallace (2019) ask", ["Jain and Wallace (2019)"]),
        (
            "used (Child et al., 2019; Beltagy et al., 2020)",
            ["Child et al. (2019)", "Beltagy et al. (2020)"],
        ),
        ("PyTorch Contributors (2026)", ["PyTorch Contributors (2026)"]),
        ("In 2019 there were 2048 of Shazeer (2019)", ["Shazeer (2019)"]),
    ],
)
def test_a_mention_is_read_in_each_of_its_forms(text, labels):
    assert [one.label for one in mentions(text, "here")] == labels
