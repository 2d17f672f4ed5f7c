"""Find a Chromium for the browser tests, or fetch one.

Looked for in this order: a Chromium or Chrome on PATH, Playwright's own download, Debian's package
(installed if this is root on a machine with apt-get), a fresh download by Playwright.
Run as a script (``make test`` does), it prints the path of the browser.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DOWNLOAD = [sys.executable, "-m", "playwright", "install", "chromium"]

# A quiet browser: no sandbox, which root cannot have, and no calls home that a test would see.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find() -> str | None:
    """Return the path of a Chromium that is already here."""
    on_path = filter(None, map(shutil.which, NAMES))
    return next(on_path, None) or downloaded()


def downloaded() -> str | None:
    """Return the path of the browser that Playwright downloaded earlier, if it did."""
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def fetch() -> None:
    """Install Debian's package when root, else have Playwright download its browser."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "--quiet"], check=False)
        subprocess.run(
            ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"], check=False
        )
    if find() is None:
        subprocess.run(DOWNLOAD, check=False)


def main() -> None:
    """Print the path of a Chromium, fetching one where there is none."""
    if find() is None:
        fetch()
    path = find()
    if path is None:
        sys.exit(f"The browser tests need Chromium. Install it, or run:\n    {' '.join(DOWNLOAD)}")
    print(f"Browser tests run in {path}")


if __name__ == "__main__":
    main()
