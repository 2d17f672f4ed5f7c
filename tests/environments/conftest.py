"""The package as built once for all tests of a process, and a note on the Pythons there were."""

from __future__ import annotations

import sys

import pytest

from tests.environments.environments import absent, copy_package, interpreters, run


@pytest.fixture(scope="session")
def distributions(tmp_path_factory):
    """Build the sdist, and the wheel from it; return their folder."""
    folder = tmp_path_factory.mktemp("build")
    source = copy_package(folder / "attnlib")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    return folder / "dist"


@pytest.fixture(scope="session")
def wheel(distributions):
    (path,) = distributions.glob("*.whl")
    return path


@pytest.fixture(autouse=True)
def note_pythons(record_property):
    """Say at the end of the run which Pythons there were."""
    record_property("note", f"Python present: {', '.join(interpreters())}")
    record_property("note", f"Python absent: {', '.join(absent()) or 'none'}")
