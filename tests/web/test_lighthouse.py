"""What judges the pages with Lighthouse: the server, the choice of pages, the aims, the record."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request

import pytest

from web.lighthouse import measure
from web.tools.server import served

GOOD = dict.fromkeys(measure.LEAST["desktop"], 100) | dict.fromkeys(measure.METRICS, 1)


def test_the_landing_page_and_every_chapter_are_judged():
    pages = measure.chapters()
    assert pages[0] == "chapters/index"
    assert [page[9:11] for page in pages[1:]] == [f"{number:02}" for number in range(1, 11)]


def test_text_is_sent_compressed_and_a_picture_as_it_is(tmp_path):
    (tmp_path / "page.html").write_text("<p>words</p>" * 99, encoding="utf-8")
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    with served(tmp_path, measure.CompressingHandler) as address:
        with urllib.request.urlopen(f"{address}/page.html") as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(answer.read()).startswith(b"<p>words")
        with urllib.request.urlopen(f"{address}/dot.png") as answer:
            assert answer.headers["Content-Encoding"] is None
            assert answer.read() == b"\x89PNG"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/nothing.html")


def test_a_score_below_its_aim_is_named_with_its_page():
    slow = GOOD | {"performance": 90}
    assert list(measure.below({"a": {"desktop": GOOD, "mobile": slow}})) == []
    assert list(measure.below({"a": {"desktop": slow, "mobile": GOOD}})) == [
        "a, desktop: performance 90, aim 95"
    ]


def test_the_table_has_a_line_for_each_page_and_form():
    lines = list(measure.table({"a": {"desktop": GOOD, "mobile": GOOD | {"seo": 97}}}))
    assert len(lines) == 4
    assert lines[3].startswith("| a | mobile | 100 | 100 | 100 | 97 |")
    assert {line.count("|") for line in lines} == {lines[0].count("|")}


def test_the_committed_record_is_a_whole_run_without_a_fault():
    record = json.loads(measure.SCORES.read_text(encoding="utf-8"))
    assert record["runs"] >= 5
    assert record["dirty"] is False
    assert list(record["pages"]) == measure.chapters()
    for page, forms in record["pages"].items():
        for form, numbers in forms.items():
            perfect = [numbers[name] for name in ("accessibility", "best-practices", "seo")]
            assert perfect == [100, 100, 100], f"{page}, {form}"
            assert 0 < numbers["performance"] <= 100
