"""Every chapter's notebook keeps the rules for files; nbval proves what its cells compute."""

import pytest

from tests.chapters.documents import NOTEBOOKS, read_notebook
from tests.chapters.notebook_rules import RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_chapter_keeps_the_rule(path, rule):
    faults = rule(read_notebook(path))
    assert not faults, "\n".join([f"{path.name}: {rule.__doc__}", *faults])


def test_there_are_chapters():
    assert len(NOTEBOOKS) >= 4
