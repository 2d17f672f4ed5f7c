"""What other programs show of a page: its description, and the card that leads to it."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.web.pages import notebook_pages, soup, table_of_contents

pytestmark = pytest.mark.slow  # needs the built site


def card(path):
    """Return the tags of a page's card, and fail where one is given twice."""
    tags = soup(path).select('head meta[property^="og:"]')
    made = {tag["property"]: tag["content"] for tag in tags}
    assert len(made) == len(tags)
    return made


def descriptions(path):
    return [tag["content"] for tag in soup(path).select('head meta[name="description"]')]


@pytest.mark.parametrize("page", table_of_contents())
def test_a_page_has_one_description_and_its_card_says_the_same(site, page):
    (description,) = descriptions(site / f"{page}.html")
    assert 20 <= len(description) <= 320
    assert card(site / f"{page}.html")["og:description"] == description


@pytest.mark.parametrize("page", notebook_pages())
def test_a_chapter_is_described_by_its_question(site, page):
    (description,) = descriptions(site / f"{page}.html")
    assert description.endswith("?")
    assert description.startswith(card(site / f"{page}.html")["og:title"])


def test_no_two_pages_have_the_same_description(site):
    described = [descriptions(site / f"{page}.html")[0] for page in table_of_contents()]
    assert len(set(described)) == len(described)


@pytest.mark.parametrize("page", table_of_contents())
def test_the_picture_of_the_card_is_there_in_the_size_of_cards(site, page):
    path = site / f"{page}.html"
    picture = card(path)["og:image"]
    with Image.open(path.parent / picture) as image:
        assert image.size == (1200, 630)
    assert len(card(path)["og:image:alt"].split()) >= 4


@pytest.mark.parametrize("page", [*table_of_contents(), "search", "genindex"])
def test_every_page_shows_the_book_s_icon(site, page):
    path = site / f"{page}.html"
    (icon,) = soup(path).select('head link[rel~="icon"]')
    assert "<svg" in (path.parent / icon["href"]).read_text("utf-8")
