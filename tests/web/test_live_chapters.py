"""Every chapter made live in a real browser, and run to its end."""

from __future__ import annotations

import pytest

from tests.web.browser import View, chromium_browser, opened, served
from tests.web.live import LivePage, code_cells, difference, has_tag, stored_outputs
from tests.web.pages import notebook_pages, soup

pytestmark = pytest.mark.slow  # needs the built site and a browser


@pytest.fixture(scope="module")
def browser():
    """One browser for all chapters: it loads the engine once."""
    with chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def home(site):
    with served(site) as url:
        yield url


def differences(live, cells):
    """Yield how the outputs of a page differ from the stored ones."""
    for index, cell in cells.items():
        if has_tag(cell, "torch") or has_tag(cell, "remove-cell"):
            continue
        stored, shown = stored_outputs(cell), live.outputs(index)
        if len(stored) != len(shown):
            yield f"cell {index}: {len(stored)} outputs became {len(shown)}: {shown}"
        for before, after in zip(stored, shown, strict=False):
            if change := difference(before, after):
                yield f"cell {index}: {change}"


@pytest.mark.parametrize("chapter", notebook_pages())
def test_a_live_chapter_shows_the_outputs_of_the_book(browser, home, site, chapter):
    if not soup(site / f"{chapter}.html").select(".live-start"):
        check_torch_is_its_subject(chapter)
        return
    cells = code_cells(chapter)
    with opened(browser, View(chapter), home) as (page, visit):
        live = LivePage(page)
        live.press()
        assert live.status == "All cells have run"
        assert list(differences(live, cells)) == []
    assert (visit.errors, visit.foreign) == ([], [])


def check_torch_is_its_subject(chapter):
    """Check that a page without a button is one whose cells mostly need torch."""
    shown = [cell for cell in code_cells(chapter).values() if not has_tag(cell, "hide-input")]
    assert sum(has_tag(cell, "torch") for cell in shown) > len(shown) / 3
