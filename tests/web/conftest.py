"""The built site, always up to date, for every test that looks at it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site() -> Path:
    """Return the folder of the site; `make` builds it first if a page or the library changed."""
    build = ROOT / "_build"
    build.mkdir(exist_ok=True)
    with FileLock(build / ".lock"):  # pytest may run in several processes
        done = subprocess.run(["make", "book"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"make book\n{done.stdout}{done.stderr}"
    return build / "html"
