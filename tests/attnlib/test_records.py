"""Records travel with the package: they are found, read, and plain JSON."""

import json
from importlib.resources import files

import pytest

from attnlib.teaching import records


def test_the_record_of_chapter_seven_is_there():
    assert "precision" in records.names()


@pytest.mark.parametrize("name", records.names())
def test_every_record_names_machine_and_commit_of_its_runs(name: str):
    record = records.load(name)
    text = files("attnlib.teaching.records").joinpath(f"{name}.json").read_text(encoding="utf-8")
    assert json.loads(text) == record
    assert "commit" in text
    assert "processor" in text


def test_an_unknown_record_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ValueError, match=r"name: needs one of .*precision.*, got 'speed of light'"):
        records.load("speed of light")
