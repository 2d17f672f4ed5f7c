"""Take the picture of a page that stands in the README: ``python web/tools/picture.py``."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.tools import chromium  # noqa: E402

PAGE = ROOT / "_build/html/chapters/01_single_query.html"
PICTURE = ROOT / "web/images/page.png"
WIDTH, HEIGHT = 1200, 900


def main() -> None:
    """Open the page in Chromium, scroll to the softmax, and store what is seen in few colours."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=[*chromium.FLAGS]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(PAGE.as_uri())
        page.evaluate("document.getElementById('softmax').scrollIntoView()")
        page.wait_for_timeout(500)  # the theme marks the section in its list
        shot = page.screenshot()
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(96).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
