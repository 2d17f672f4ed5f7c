"""The page of laws is what asking every law finds, and nothing on it is broken."""

import functools

from attnlib.teaching.laws import LAWS
from web.tools import laws_page


@functools.cache
def fresh():
    return laws_page.page()


def test_the_stored_page_is_what_asking_every_law_finds():
    stored = laws_page.PAGE.read_text(encoding="utf-8")
    assert stored == fresh(), "run: python web/tools/laws_page.py"


def test_every_law_stands_in_all_tables_of_its_kind():
    rows = fresh().splitlines()
    for law in LAWS:
        assert sum(row.startswith(f"| `{law.name}` |") for row in rows) == 3


def test_no_implementation_breaks_a_law():
    assert laws_page.BROKEN not in fresh()
    assert fresh().count(laws_page.HOLDS) > 100


def test_a_broken_law_would_stand_on_the_page(monkeypatch):
    def wrong():
        from attnlib.teaching.laws import describe
        from attnlib.teaching.zoo import inverted_mask

        return {"wrong": describe(inverted_mask)}

    monkeypatch.setattr(laws_page, "implementations", wrong)
    assert f"| `masked-pairs` | {laws_page.BROKEN} |" in laws_page.page()
