"""Every chapter's notebook keeps the rules for files; nbval proves what its cells compute."""

import re

import pytest

from attnlib.teaching import exercises
from tests.chapters.documents import NOTEBOOKS, read_notebook
from tests.chapters.notebook_rules import RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_chapter_keeps_the_rule(path, rule):
    faults = rule(read_notebook(path))
    assert not faults, "\n".join([f"{path.name}: {rule.__doc__}", *faults])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_each_exercise_is_checked_under_the_name_of_its_chapter(path):
    chapter = path.stem.partition("_")[2].replace("_", "-")
    stated = re.findall(r"^> \*\*Exercise \d+\.(\d+)\*\*", _source(path), re.MULTILINE)
    checked = set(re.findall(r'exercises\.check\("([^"]+)"', _source(path)))
    known = {name for name in exercises.names() if name.rpartition("-")[0] == chapter}
    assert checked == known == {f"{chapter}-{number}" for number in stated}


def test_there_are_as_many_exercises_and_levels_as_promised():
    for path in NOTEBOOKS:
        source = _source(path)
        levels = re.findall(
            r"^> \*Level: (?:warm-up|core|challenge)\. About \d+ minutes\.\*", source, re.MULTILINE
        )
        exercises_there = len(re.findall(r"^> \*\*Exercise ", source, re.MULTILINE))
        assert 6 <= exercises_there <= 10, path.name
        assert len(levels) == exercises_there == source.count("<summary>Hint</summary>"), path.name


def _source(path):
    return "\n".join(cell.source for cell in read_notebook(path).cells)


def test_there_are_chapters():
    assert len(NOTEBOOKS) >= 4
