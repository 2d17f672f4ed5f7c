"""The worksheet is what its program writes, and it asks for what its key answers.

Its numbers are recomputed by the library (tests/chapters/numbers/worksheet.py); that it prints on
one side of A4 is seen in a browser (tests/web/test_worksheet.py).
"""

import re

from web.tools import worksheet


def rows(text):
    """Return the cells of every row of the tables, headings and rules left out."""
    tables = re.findall(r"^(?:\|.*\n)+", text, re.MULTILINE)
    lines = [line for each in tables for line in each.splitlines()[2:]]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_stored_page_is_what_its_program_writes():
    stored = worksheet.PAGE.read_text(encoding="utf-8")
    assert stored == worksheet.worksheet(), "run: python web/tools/worksheet.py"


def test_sheet_and_key_have_the_same_rows_and_only_the_key_is_full():
    sheet, key = (rows(worksheet.steps(key=answers)) for answers in (False, True))
    assert len(sheet) == len(key) == 16
    assert all(cell for row in key for cell in row)
    for asked, answered in zip(sheet, key, strict=True):
        assert "" in asked
        assert [cell or answer for cell, answer in zip(asked, answered, strict=True)] == answered


def test_no_answer_stands_on_the_sheet():
    assert not re.search(r"tfrac|\d\.\d", worksheet.steps(key=False))
