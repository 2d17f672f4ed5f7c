"""The status page shows one record of results, whole and of this book, and nothing beside it."""

from __future__ import annotations

import copy
import doctest
import json
import re
from datetime import date, datetime

import pytest

from attnlib.teaching.implementations import implementations
from attnlib.teaching.laws import LAWS
from attnlib.teaching.zoo import ANIMALS
from tests.benchmarks.records import RECORD as SPEED
from tests.benchmarks.records import check_schema
from tests.web.pages import ROOT, notebook_pages, soup
from web.extensions import status_page
from web.status import fingerprints, laws, notebooks
from web.status import record as making

RERUN = "run: make status"
SCHEMA = {
    "schema": int,
    "date": str,
    "commit": str,
    "dirty": bool,
    "load": float,
    "machine": {**SPEED["machine"], "matplotlib": str},
    "library": str,
    "chapters": [
        {
            "page": str,
            "title": str,
            "seconds": float,
            "cells": {"passed": int, "failed": int},
            "functions": [str],
            "laws_held": [str],
            "laws_broken": [str],
            "bugs_killed": [str],
            "changed": str,
            "sha256": str,
        }
    ],
    "laws": [{"name": str, "held_by": [str], "broken_by": [str]}],
    "bugs": [{"name": str, "killed_by": [str]}],
}
RECORD = json.loads(status_page.RECORD.read_text(encoding="utf-8"))
WRITTEN = (ROOT / f"{status_page.PAGE}.md").read_text(encoding="utf-8")
HELD, BUGS = len(RECORD["chapters"][0]["laws_held"]), len(RECORD["bugs"])
BROKEN = {"name": "spin", "held_by": ["loop"], "broken_by": ["spool", "reel"]}
NUMBER = re.compile(r"\d+(?:\.\d+)*")


def fresh():
    """Return the record as if it had been made from the files that are there now."""
    record = copy.deepcopy(RECORD)
    record["library"] = fingerprints.of_library()
    for chapter in record["chapters"]:
        chapter["sha256"] = fingerprints.of_chapter(chapter["page"])
    return record


def changed(*path, value):
    """Return a fresh record with one entry replaced."""
    record = fresh()
    place = record
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return record


class TestRecord:
    def test_holds_what_its_schema_says(self):
        check_schema(RECORD, SCHEMA)

    def test_with_an_entry_of_another_kind_or_without_it_is_refused(self):
        for broken in (changed("chapters", 0, "seconds", value="3"), {**RECORD, "laws": {}}):
            with pytest.raises(AssertionError, match=r"record\."):
                check_schema(broken, SCHEMA)

    def test_names_moments_commit_and_contents(self):
        assert datetime.fromisoformat(RECORD["date"]).utcoffset() is not None
        assert re.fullmatch(r"[0-9a-f]{40}", RECORD["commit"])
        for chapter in RECORD["chapters"]:
            assert date.fromisoformat(chapter["changed"]) <= date.fromisoformat(RECORD["date"][:10])
        sums = [RECORD["library"], *(chapter["sha256"] for chapter in RECORD["chapters"])]
        assert [one for one in sums if not re.fullmatch(r"[0-9a-f]{64}", one)] == []

    def test_has_every_chapter_every_law_and_every_bug(self):
        assert [chapter["page"] for chapter in RECORD["chapters"]] == notebook_pages(), RERUN
        assert [law["name"] for law in RECORD["laws"]] == [law.name for law in LAWS], RERUN
        assert [bug["name"] for bug in RECORD["bugs"]] == [one.name for one in ANIMALS], RERUN

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
    def test_asked_a_law_of_every_implementation_that_it_applies_to(self, law):
        (entry,) = [entry for entry in RECORD["laws"] if entry["name"] == law.name]
        some = {name for name, one in implementations().items() if law.applies_to(one)}
        assert {*entry["held_by"], *entry["broken_by"]} == some, RERUN
        assert some

    def test_says_that_all_passed_at_a_commit(self):
        assert making.problems(RECORD) == []
        assert not RECORD["dirty"]
        for chapter in RECORD["chapters"]:
            assert chapter["cells"]["passed"] > 10
            assert chapter["seconds"] > 0

    def test_agrees_with_itself_about_each_chapter(self):
        for chapter in RECORD["chapters"]:
            again = laws.by_chapter(RECORD["laws"], RECORD["bugs"], making.number(chapter["page"]))
            assert {name: chapter[name] for name in again} == again, RERUN


class TestMaking:
    def test_finds_every_implementation_of_the_library_in_a_chapter(self):
        lost = [name for name in implementations() if not laws.chapters_of(name)]
        assert lost == ["loop"]

    def test_counts_what_failed_erred_or_was_left_out(self):
        verdicts = ("", "<failure/>", "<error/>", "<skipped/>", "")
        cases = "".join(
            f'<testcase classname="chapters.one.ipynb" time="0.5">{verdict}</testcase>'
            for verdict in verdicts
        )
        found = notebooks.results(f"<testsuite>{cases}</testsuite>")
        assert found == {"chapters/one": {"seconds": 2.5, "cells": {"passed": 2, "failed": 3}}}

    @pytest.mark.parametrize(
        ("path", "value", "said"),
        [
            (("chapters", 1, "cells", "failed"), 2, "chapters/02_causal: 2 cells failed"),
            (("laws", 0, "broken_by"), ["loop"], "loop breaks rows-sum-to-one"),
            (("bugs", 0, "killed_by"), [], "no law kills multiplied-by-root-d"),
        ],
    )
    def test_names_what_did_not_pass(self, path, value, said):
        assert making.problems(changed(*path, value=value)) == [said]

    def test_notices_a_law_that_an_implementation_breaks(self):
        from attnlib.teaching.laws import describe, law
        from attnlib.teaching.zoo import inverted_mask

        found = laws.verdict(law("masked-pairs"), {"wrong": describe(inverted_mask)})
        assert (found["held_by"], found["broken_by"]) == ([], ["wrong"])

    @pytest.mark.parametrize("module", [laws, notebooks, making, status_page])
    def test_does_what_its_examples_say(self, module):
        assert doctest.testmod(module).failed == 0


class TestPage:
    def test_has_no_number_that_was_typed(self):
        assert NUMBER.findall(WRITTEN) == []

    def test_has_a_place_for_each_part(self):
        assert status_page.MARK.findall(WRITTEN) == list(status_page.PARTS)

    @pytest.mark.parametrize(
        ("path", "value", "shown"),
        [
            (("chapters", 0, "cells"), {"passed": 7, "failed": 1}, "| **7 of 8** |"),
            (("chapters", 0, "sha256"), "0" * 64, "| **after the check** |"),
            (("chapters", 0, "seconds"), 12345.678, "| 12345.7 |"),
            (("chapters", 0, "laws_broken"), ["prefix"], f"| **{HELD} of {HELD + 1}** |"),
            (("laws", 0), BROKEN, "| `spin` | **1 of 3** | 0 |"),
            (("bugs", 0, "killed_by"), [], f"Killed: **{BUGS - 1} of {BUGS}** bugs"),
            (("library",), "0" * 64, "The library **has changed since**"),
            (("dirty",), True, "with uncommitted changes"),
            (("machine", "python"), "3.99", "| Python | 3.99 |"),
        ],
    )
    def test_shows_what_the_record_says(self, path, value, shown):
        assert shown not in status_page.filled(WRITTEN, fresh())
        assert shown in status_page.filled(WRITTEN, changed(*path, value=value))

    def test_says_that_a_chapter_changed_after_the_check(self, tmp_path, monkeypatch):
        chapter = RECORD["chapters"][0]
        copied = tmp_path / f"{chapter['page']}.ipynb"
        copied.parent.mkdir()
        copied.write_bytes((ROOT / f"{chapter['page']}.ipynb").read_bytes())
        for module in (fingerprints, status_page):
            monkeypatch.setattr(module, "ROOT", tmp_path)
        checked = {**chapter, "sha256": fingerprints.of_chapter(chapter["page"])}
        assert status_page.last_change(checked) == chapter["changed"]
        copied.write_text(copied.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        assert status_page.last_change(checked) == "**after the check**"


def rows(site):
    """Return the rows of each table on the built page, below its heading, as text."""
    page = soup(site / f"{status_page.PAGE}.html").select_one("article.bd-article")
    return {
        table.find_previous("h2").contents[0]: [
            [cell.text.strip() for cell in row.select("th, td")] for row in table.select("tr")
        ]
        for table in page.select("table")
    }


@pytest.mark.slow  # needs the built site
class TestBuiltPage:
    def test_has_a_row_with_the_results_of_each_chapter(self, site):
        _, *shown = rows(site)["Chapters"]
        assert shown == [
            [
                f"{number} · {chapter['title']}",
                f"{chapter['seconds']:.1f}",
                f"{chapter['cells']['passed']} of {chapter['cells']['passed']}",
                status_page.last_change(chapter).strip("*"),
            ]
            for number, chapter in enumerate(RECORD["chapters"], start=1)
        ]

    def test_has_a_row_for_the_functions_of_each_chapter(self, site):
        _, *shown = rows(site)["Laws and bugs by chapter"]
        for row, chapter in zip(shown, RECORD["chapters"], strict=True):
            held, killed = len(chapter["laws_held"]), len(chapter["bugs_killed"])
            some = [f"{held} of {held}", str(killed)]
            assert row[1:] == (some if chapter["functions"] else ["–", "–"])

    def test_has_a_row_for_each_law(self, site):
        _, *shown = rows(site)["Laws"]
        for row, law in zip(shown, RECORD["laws"], strict=True):
            held = len(law["held_by"])
            killed = [bug for bug in RECORD["bugs"] if law["name"] in bug["killed_by"]]
            assert row == [law["name"], f"{held} of {held}", str(len(killed))]

    def test_names_versions_and_machine(self, site):
        shown = dict(rows(site)["Made with"][1:])
        machine = RECORD["machine"]
        assert shown["Python"] == machine["python"]
        assert shown["NumPy"] == machine["numpy"]["version"]
        assert shown["Matplotlib"] == machine["matplotlib"]
        assert shown["PyTorch"] == machine["torch"]["version"]
        assert shown["processor"] == machine["processor"]
        assert shown["load at the beginning"] == f"{RECORD['load']:.1f}"

    def test_says_when_and_from_what_the_record_was_made(self, site):
        page = soup(site / f"{status_page.PAGE}.html").select_one("article.bd-article").text
        assert f"made on {RECORD['date'][:10]} at {RECORD['date'][11:16]} UTC" in page
        assert RECORD["commit"][:12] in page

    def test_gives_the_record_itself(self, site):
        page = soup(site / f"{status_page.PAGE}.html")
        (link,) = page.find_all("a", string="status.json")
        given = (site / "chapters" / link["href"]).read_bytes()
        assert given == status_page.RECORD.read_bytes()

    def test_prints_each_table_with_a_header(self, site):
        page = soup(site / f"{status_page.PAGE}.html").select_one("article.bd-article")
        heads = [
            [cell.text.strip() for cell in table.select("th")] for table in page.select("table")
        ]
        assert len(heads) == len(status_page.PARTS) - 1
        assert all(text for head in heads for text in head)
