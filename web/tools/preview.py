"""Draw the picture of the cards that lead to a page: ``python web/tools/preview.py``."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.tools import chromium  # noqa: E402

DRAWING = ROOT / "web/images/one_query.svg"
PICTURE = ROOT / "web/images/preview.png"
WIDTH, HEIGHT = 1200, 630  # the size that cards are made for
CARD = """<!doctype html><meta charset="utf-8"><style>
body {{ background: #fff; color: #1b2430; display: grid; font: 600 52px sans-serif; gap: 30px;
  height: {height}px; justify-items: center; align-content: center; margin: 0; }}
svg {{ height: auto; width: 1040px; }}
</style><div>Attention, Number by Number</div>{drawing}"""


def main() -> None:
    """Show the title and the book's first picture in Chromium, and store it in few colours."""
    card = CARD.format(height=HEIGHT, drawing=DRAWING.read_text(encoding="utf-8"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=[*chromium.FLAGS]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.set_content(card)
        shot = page.screenshot()
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(64).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
