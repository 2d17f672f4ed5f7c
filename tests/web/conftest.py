"""The built site, always up to date, for every test that looks at it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import BrowserContext

from tests.web.browser import chromium_browser
from web.tools.server import served

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


@pytest.fixture(scope="module")
def home(site: Path) -> Iterator[str]:
    """Serve the site; return its address."""
    with served(site) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    """Start a browser with an empty profile."""
    with chromium_browser() as browser:
        yield browser
