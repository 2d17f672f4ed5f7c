"""requirements.txt is the whole environment, pinned; pyproject.toml's loose bounds contain it."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.project.repository import ROOT, project

LINES = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
IN_TURN = LINES.index("# What those need in turn")
# PyTorch's builds for CUDA need these in the versions that the build itself names.
OF_CUDA = ("cuda-", "nvidia-", "triton")


def pins(lines):
    """Return the pinned version of each package by its canonical name."""
    stated = [line.partition("#")[0].strip() for line in lines]
    found = [Requirement(line) for line in stated if line and not line.startswith("-")]
    assert all(len(one.specifier) == 1 and str(one.specifier).startswith("==") for one in found)
    return {canonicalize_name(one.name): str(one.specifier)[2:] for one in found}


PINS = pins(LINES)
DIRECT = pins(LINES[:IN_TURN])


def needs(package):
    """Yield what an installed package needs here, without its extras."""
    for line in importlib.metadata.requires(package) or []:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def imported_packages(folder):
    """Return the packages of other people that the code in a folder imports."""
    distributions = importlib.metadata.packages_distributions()
    for path in Path(ROOT, folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - sys.stdlib_module_names:
                yield from map(canonicalize_name, distributions.get(top, []))


def test_the_package_itself_is_installed_from_the_checkout():
    assert "-e ." in LINES


@pytest.mark.parametrize("package", DIRECT)
def test_every_direct_requirement_says_what_it_is_for(package):
    (line,) = [
        line for line in LINES[:IN_TURN] if canonicalize_name(line.split("==")[0]) == package
    ]
    assert len(line.partition("# ")[2]) > 5


def test_the_environment_has_exactly_the_pinned_releases():
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name in PINS}
    assert installed == PINS


def test_whatever_a_pinned_package_needs_is_pinned_too():
    needed = {(package, need) for package in PINS for need in needs(package)}
    assert {
        (package, need)
        for package, need in needed
        if need not in PINS and not need.startswith(OF_CUDA)
    } == set()


def test_nothing_is_pinned_without_need():
    in_turn = {need for package in PINS for need in needs(package)}
    assert PINS.keys() - DIRECT.keys() - in_turn == set()


@pytest.mark.parametrize("folder", ["attnlib", "tests", "web"])
def test_whatever_the_project_imports_is_a_direct_requirement(folder):
    imported = set(imported_packages(folder))
    assert imported
    assert imported - DIRECT.keys() - {"attnlib"} == set()


def test_the_pins_lie_within_the_bounds_of_the_package():
    optional = project()["optional-dependencies"].values()
    for line in [*project()["dependencies"], *(line for lines in optional for line in lines)]:
        bound = Requirement(line)
        assert bound.specifier.contains(PINS[bound.name]), line


def test_the_minimum_environment_has_the_lower_bounds_of_the_package():
    lines = (ROOT / "tests/environments/minimum.txt").read_text(encoding="utf-8").splitlines()
    minimum = pins(lines)
    optional = project()["optional-dependencies"].values()
    for line in [*project()["dependencies"], *(line for lines in optional for line in lines)]:
        (bound,) = Requirement(line).specifier
        assert bound.operator == ">="
        assert minimum[Requirement(line).name].startswith(bound.version)
