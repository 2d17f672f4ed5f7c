"""Every number that a chapter quotes is recomputed; how lists are written: quoted_numbers.py."""

import re
from pathlib import Path

import pytest

from tests.chapters.documents import CHAPTERS, NOTEBOOKS, typed_passages
from tests.chapters.quoted_numbers import find_problems, load_entries

NUMBERS = Path(__file__).parent / "numbers"
DOCUMENTS = [*NOTEBOOKS, *sorted(CHAPTERS.glob("*.md"))]


@pytest.fixture(scope="module")
def equations():
    texts = [passage.text for path in DOCUMENTS for passage in typed_passages(path)]
    return {tag for text in texts for tag in re.findall(r"\\tag\{([^{}]+)\}", text)}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_number_is_typed_by_hand(path, equations):
    entries = load_entries(NUMBERS / f"{path.stem}.py")
    problems = find_problems(typed_passages(path), entries, equations)
    assert not problems, "\n".join([f"{path.name}:", *problems])


def test_each_list_belongs_to_a_chapter():
    listed = {path.stem for path in NUMBERS.glob("*.py")}
    assert listed <= {path.stem for path in DOCUMENTS}
