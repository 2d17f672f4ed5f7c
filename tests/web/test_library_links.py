"""The library's documentation leads to the chapters, and the chapters to its functions."""

from __future__ import annotations

import json
import re

import pytest

from tests.web.test_extensions import build, contents

pytestmark = pytest.mark.slow  # builds pages

CONFIGURATION = """
extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc", "library_links"]
html_theme = "basic"
myst_heading_anchors = 3
nb_execution_mode = "off"
import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parent))
"""
DOCSTRING = '''
def softmax(scores):
    """Turn scores into weights.

    Notes
    -----
    Derived in Chapter 1, *From scores
    to weights*; and nowhere else.
    """
'''
API = """# API

```{eval-rst}
.. autofunction:: library.softmax
```
"""


def chapter(title):
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": f"# A\n\n## {title}"}]
    python = {"language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": python, "nbformat": 4, "nbformat_minor": 5})


def built(
    folder,
    title="From scores to weights",
    link="api.md#library.softmax",
    builder="html",
    section="From scores\n    to weights",
):
    (folder / "chapters").mkdir()
    pages = {
        "conf.py": CONFIGURATION,
        "library.py": DOCSTRING.replace("From scores\n    to weights", section),
        "index.md": "# I\n" + contents("chapters/01_one", "chapters/api", "chapters/other"),
        "chapters/01_one.ipynb": chapter(title),
        "chapters/api.md": API,
        "chapters/other.md": f"# O\n\n[the function]({link})\n",
    }
    return build(folder, pages, builder)


def test_a_docstring_leads_to_the_section_that_it_names(tmp_path):
    done = built(tmp_path)
    assert (done.said, done.code) == ("", 0)
    link = done.page("chapters/api").find("a", string="Chapter 1, From scores to weights")
    assert link["href"] == "01_one.html#from-scores-to-weights"
    assert done.page("chapters/01_one").find(id="from-scores-to-weights")


def test_a_section_with_an_apostrophe_is_found_too(tmp_path):
    done = built(tmp_path, title="The library's scores", section="The library's scores")
    link = done.page("chapters/api").find("a", href=True, string=re.compile("Chapter 1, The"))
    assert done.page("chapters/01_one").find(id=link["href"].partition("#")[2])


def test_a_page_leads_to_a_function(tmp_path):
    link = built(tmp_path).page("chapters/other").find("a", string="the function")
    assert link["href"] == "api.html#library.softmax"


def test_other_formats_name_the_section_without_a_link(tmp_path):
    done = built(tmp_path, builder="text")
    assert (done.said, done.code) == ("", 0)
    text = (done.folder / "chapters/api.txt").read_text(encoding="utf-8")
    assert "Chapter 1, From scores to weights" in text


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"title": "From scores"}, "library.softmax names a section that does not exist"),
        ({"link": "api.md#library.hardmax"}, "library.hardmax"),
    ],
)
def test_what_leads_nowhere_stops_the_build(tmp_path, changed, said):
    done = built(tmp_path, **changed)
    assert done.code != 0
    assert said in done.said
