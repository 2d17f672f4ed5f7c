"""The package as built once for all tests here, and a note on which environments there were."""

from __future__ import annotations

import sys

import pytest

from tests.environments.environments import NOTES, absent, copy_package, interpreters, run


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("environments")
    terminalreporter.line(f"Python present: {', '.join(interpreters())}")
    terminalreporter.line(f"Python absent: {', '.join(absent()) or 'none'}")
    for note in NOTES:
        terminalreporter.line(note)
