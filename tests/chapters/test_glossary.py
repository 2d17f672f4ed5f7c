"""The glossary has each word that a chapter defines, in order, and says where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.chapters.documents import CHAPTERS, NOTEBOOKS
from tests.chapters.links import markdown

GLOSSARY = CHAPTERS / "glossary.md"
TERM = re.compile(
    r"^\*\*(?P<name>[^*]+)\*\*\.\s(?P<text>.+?)\s(?P<links>\[[^\]]+\]\([^()]+\)"
    r"(?:,\s\[[^\]]+\]\([^()]+\))*)$",
    re.DOTALL,
)
DEFINITION = re.compile(r"^> \*\*Definition (?P<number>\d+\.\d+)\*\* \((?P<names>[^)]+)\)", re.M)


@dataclass(frozen=True)
class Term:
    name: str
    text: str
    targets: tuple[str, ...]
    letter: str


def paragraphs():
    """Return the paragraphs below the letters, each with its letter."""
    found, letter = [], ""
    for paragraph in GLOSSARY.read_text(encoding="utf-8").split("\n\n")[2:]:
        if paragraph.startswith("## "):
            letter = paragraph[3:].strip()
        else:
            found.append((letter, paragraph.strip()))
    return found


def terms():
    matches = [(letter, TERM.match(paragraph)) for letter, paragraph in paragraphs()]
    return [
        Term(m["name"], m["text"], tuple(re.findall(r"\(([^()]+)\)", m["links"])), letter)
        for letter, m in matches
        if m
    ]


def definitions():
    """Return chapter, number and the words of each numbered definition."""
    return [
        (path.name, m["number"], m["names"])
        for path in NOTEBOOKS
        for _, text in markdown(path)
        for m in DEFINITION.finditer(text)
    ]


def sentences(text):
    """Return how many sentences a text has; what stands in mathematics or quotes ends none."""
    return len(re.findall(r"[.?!](?=\s|$)", re.sub(r"\$[^$]+\$|\"[^\"]+\"", "x", text)))


def test_every_paragraph_is_a_term_its_meaning_and_a_link():
    assert [text for _, text in paragraphs() if not TERM.match(text)] == []
    assert len(terms()) >= 60


def test_terms_stand_in_the_order_of_the_alphabet_under_their_letters():
    names = [term.name.casefold().replace("-", " ") for term in terms()]
    assert names == sorted(set(names))
    assert [t.name for t in terms() if t.name[0].upper() != t.letter] == []


@pytest.mark.parametrize("term", terms(), ids=lambda term: term.name)
def test_a_term_is_explained_in_one_or_two_sentences(term):
    assert term.text[0].isupper()
    assert sentences(term.text) in (1, 2), term.text
    for target in term.targets:
        assert re.match(r"\d\d_\w+\.ipynb#|notation\.md#", target)


@pytest.mark.parametrize(("chapter", "number", "names"), definitions())
def test_every_definition_of_a_chapter_has_its_terms(chapter, number, names):
    anchor = f"{chapter}#definition-{number.replace('.', '-')}"
    linked = " ".join(term.name for term in terms() if anchor in term.targets)
    words = set(re.findall(r"[a-z]+", names)) - {"and", "for", "of", "one"}
    assert linked, f"no term links to Definition {number} ({names})"
    assert words & set(re.findall(r"[a-z]+", linked.lower()))
