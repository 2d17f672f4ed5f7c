"""Time from pressing the button of a live page to its first output, as a reader waits for it.

Each round starts with a browser that has never been here, visits a page, and visits it again once
its files are kept. Needs the built site and an idle machine.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from benchmarks import machine  # noqa: E402
from web.tools import chromium  # noqa: E402
from web.tools.server import served  # noqa: E402

SITE = ROOT / "_build" / "html"
PAGES = ("chapters/01_single_query", "chapters/04_multi_head")
ROUNDS = 3
PATIENCE = 300_000  # milliseconds
FIRST = "document.querySelector('.cell[data-live=done]')"


def main() -> None:
    """Print a line per visit and the medians of each page."""
    state = machine.commit("chapters", "web", "_config.yml", "attnlib")
    print(f"commit {state['commit']}{' with changes' if state['dirty'] else ''}")
    path = chromium.find()
    with sync_playwright() as playwright, served(SITE) as home:
        for name in PAGES:
            rounds = []
            for _ in range(ROUNDS):
                with tempfile.TemporaryDirectory() as profile:
                    browser = playwright.chromium.launch_persistent_context(
                        profile, executable_path=path, args=list(chromium.FLAGS)
                    )
                    rounds.append([seconds(browser, f"{home}/{name}.html") for _ in range(2)])
                    browser.close()
                print(f"{name}: first visit {rounds[-1][0]:.2f} s, second {rounds[-1][1]:.2f} s")
            first, second = map(statistics.median, zip(*rounds, strict=True))
            print(f"{name}: medians {first:.2f} s and {second:.2f} s")


def seconds(browser: BrowserContext, address: str) -> float:
    """Visit a page and press its button; return the seconds until a cell is done."""
    page = browser.new_page()
    page.goto(address)
    button = page.locator(".live-start button")
    button.wait_for()
    start = time.perf_counter()
    button.click()
    page.wait_for_function(FIRST, timeout=PATIENCE, polling=20)
    taken = time.perf_counter() - start
    page.wait_for_selector(".live-toolbar[data-kept]", timeout=PATIENCE)
    page.close()
    return taken


if __name__ == "__main__":
    main()
