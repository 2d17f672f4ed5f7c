"""The picture of the landing page is what its script draws."""

import re
from xml.etree import ElementTree

from tests.chapters.documents import CHAPTERS
from web.tools import one_query


def test_the_stored_picture_is_the_one_that_the_script_draws():
    assert one_query.PICTURE.read_text(encoding="utf-8") == one_query.draw()


def test_the_page_describes_the_picture_in_the_picture_s_own_words():
    page = (CHAPTERS / "index.md").read_text(encoding="utf-8")
    described, target = re.search(r"!\[(.+)\]\((\S+)\)\n", page).groups()
    title = ElementTree.fromstring(one_query.draw()).find("{http://www.w3.org/2000/svg}title")
    assert (CHAPTERS / target).resolve() == one_query.PICTURE
    assert described == title.text
