"""Sources as the bibliography has them, and the places where the book's pages name them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pybtex.database import Entry, Person, parse_file
from pybtex.richtext import Text

from tests.chapters.documents import CHAPTERS

SOURCES = parse_file(str(CHAPTERS / "references.bib")).entries


def plain(latex: str) -> str:
    """Return a field of the bibliography as Unicode text."""
    if "\\" in latex:  # an accent; reading LaTeX takes long
        latex = Text.from_latex(latex).render_as("text")
    return latex.translate({ord("{"): "", ord("}"): ""}).replace("--", "–")


def family_name(person: Person) -> str:
    """Return a family name; an organisation is all family name."""
    return plain(" ".join([*person.prelast_names, *person.last_names]))


def full_name(person: Person) -> str:
    """Return all names of a person, family name last."""
    given = [plain(name) for name in (*person.first_names, *person.middle_names)]
    return " ".join([*given, family_name(person)])


def label(entry: Entry) -> str:
    """Return how the text names a source: "Dao et al. (2022)"."""
    names = [family_name(person) for person in entry.persons["author"]]
    if len(names) > 2 or names[-1] == "others":
        return f"{names[0]} et al. ({entry.fields['year']})"
    return f"{' and '.join(names)} ({entry.fields['year']})"


def link(entry: Entry) -> str:
    """Return the address of a source."""
    fields = entry.fields
    return f"https://doi.org/{fields['doi']}" if "doi" in fields else fields["url"]


def citation(entry: Entry) -> str:
    """Return a source in full, as Markdown: who, when, what, where."""
    names = [full_name(person) for person in entry.persons["author"]]
    if names[-1] == "others":
        who = f"{', '.join(names[:-1])} and others"
    elif len(names) == 1:
        who = names[0]
    else:
        who = f"{', '.join(names[:-1])} and {names[-1]}"
    title = f"[{plain(entry.fields['title'])}]({link(entry)})"
    return f"{who} ({entry.fields['year']}). {title}. {_where(entry)}."


def _where(entry: Entry) -> str:
    fields = {name: plain(value) for name, value in entry.fields.items()}
    place = fields.get("booktitle") or fields.get("journal")
    if place is None:
        return fields.get("howpublished") or fields.get("publisher") or fields["institution"]
    volume = f" {fields['volume']}" if "volume" in fields else ""
    number = f"({fields['number']})" if "number" in fields else ""
    pages = f", pages {fields['pages']}" if "pages" in fields else ""
    return f"*{place}*{volume}{number}{pages}"


@dataclass(frozen=True)
class Mention:
    """A place where a text names a source."""

    label: str
    place: str


# "Dao et al. (2022)", "Jain and Wallace (2019)", "(Child et al., 2019; Beltagy et al., 2020)".
_NAME = r"[A-Z][\w’'-]+"
_MENTION = re.compile(
    rf"(?P<names>{_NAME}(?: et al\.| and {_NAME}| Contributors)?)(?:,? \(|,? )"
    r"(?P<year>(?:19|20)\d\d)\b"
)
_NO_NAME = re.compile(r"^(?:In|Since|Until|By|Of|From|January|June|Version|NumPy|Python)\b")


def mentions(text: str, place: str) -> list[Mention]:
    """Return the sources that a text names by author and year."""
    found = _MENTION.finditer(" ".join(re.sub(r"^\s*>\s?", "", text, flags=re.MULTILINE).split()))
    return [
        Mention(f"{m['names']} ({m['year']})", place)
        for m in found
        if not _NO_NAME.match(m["names"])
    ]
