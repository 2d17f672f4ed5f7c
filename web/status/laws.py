"""Ask every law of every implementation and of every bug of the zoo, and say what came out."""

from __future__ import annotations

import importlib
import re

from attnlib.teaching import zoo
from attnlib.teaching.implementations import implementations
from attnlib.teaching.laws import LAWS, Implementation, Law

MODULES = ("attnlib", "attnlib.dense", "attnlib.gradients")
CHAPTER = re.compile(r"\bChapter\s+(\d+),\s+\*")


def asked() -> list[dict]:
    """Return for each law the implementations that hold it and those that break it."""
    found = implementations()
    return [verdict(law, found) for law in LAWS]


def verdict(law: Law, found: dict[str, Implementation]) -> dict:
    """Return which of the implementations hold a law and which break it."""
    answers = {
        name: law.counterexample(one) is None for name, one in found.items() if law.applies_to(one)
    }
    return {
        "name": law.name,
        "held_by": [name for name, holds in answers.items() if holds],
        "broken_by": [name for name, holds in answers.items() if not holds],
    }


def bugs() -> list[dict]:
    """Return for each bug of the zoo the laws that it breaks."""
    return [{"name": one.name, "killed_by": list(zoo.broken_by(one))} for one in zoo.ANIMALS]


def chapters_of(implementation: str) -> list[int]:
    """Return the chapters that derive an implementation, as its docstring names them.

    >>> chapters_of("tiled_attention")
    [3]
    """
    documented = function(implementation.partition(",")[0])
    return sorted({int(number) for number in CHAPTER.findall(documented.__doc__ or "")})


def function(name: str) -> object:
    """Return the public function or class of this name; None for one that is not public."""
    module, _, last = f"attnlib.{name}".rpartition(".")
    for place in MODULES if module == "attnlib" else (module,):
        if found := getattr(importlib.import_module(place), last, None):
            return found
    return None


def by_chapter(laws: list[dict], killed: list[dict], number: int) -> dict:
    """Return what was found about the functions that one chapter derives.

    A law is held if all of them hold it; a bug is killed if one of the laws asked catches it.
    """
    functions = [name for name in implementations() if number in chapters_of(name)]
    of_them = set(functions)
    some = [law for law in laws if of_them & {*law["held_by"], *law["broken_by"]}]
    broken = [law["name"] for law in some if of_them & {*law["broken_by"]}]
    names = {law["name"] for law in some}
    return {
        "functions": functions,
        "laws_held": [law["name"] for law in some if law["name"] not in broken],
        "laws_broken": broken,
        "bugs_killed": [bug["name"] for bug in killed if names & set(bug["killed_by"])],
    }
