"""The Sphinx extensions of web/extensions, on small pages of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

pytestmark = pytest.mark.slow  # builds pages

EXTENSIONS = Path(__file__).parents[2] / "web/extensions"
CONFIGURATION = """
extensions = ["myst_nb", "callouts", "alt_text", "tagged_math", "stored_outputs"]
html_theme = "basic"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
"""


class Built:
    """What Sphinx made of a few pages, and what it said about them."""

    def __init__(self, folder, done):
        self.folder, self.said, self.code = folder, done.stderr, done.returncode

    def page(self, name="index"):
        return BeautifulSoup((self.folder / f"{name}.html").read_text("utf-8"), "html.parser")


def build(folder, pages, builder="html"):
    """Build pages, given as text by file name, with the extensions; warnings are errors."""
    for name, text in {"conf.py": CONFIGURATION, **pages}.items():
        (folder / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(EXTENSIONS), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-b", builder]
    done = subprocess.run(
        [*command, folder, folder / "out"], env=environment, capture_output=True, text=True
    )
    return Built(folder / "out", done)


def contents(*names):
    """Return a table of contents, so that no page counts as lost."""
    return "\n".join(["", "```{toctree}", *names, "```", ""])


def svg(title):
    return f'<svg xmlns="http://www.w3.org/2000/svg">{title}<rect width="9" height="9"/></svg>'


def notebook(*cells):
    """Return the text of a notebook that consists of a title and these code cells."""
    title = {"cell_type": "markdown", "id": "title", "metadata": {}, "source": "# A"}
    python = {"language_info": {"name": "python"}}
    whole = {"cells": [title, *cells], "metadata": python, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole)


def cell(count=1, tags=(), error=False):
    output = {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["no"]}
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": f"cell-{count}",
        "metadata": {"tags": list(tags)},
        "outputs": [output] if error else [],
        "source": "1 / 0",
    }


BOXES = """# Boxes

> **Exercise 1.2** (two queries). Compute *both* weights.
>
> * first
> * second

> **Definition 1.1** (softmax of $s$ (a row)): the weights.

> **Key idea.** A weight is a share.

> **Common mistake 1.1** Swapped axes.

> **Law 1.1** (rows sum to one).

> **Example 1.1** (open bracket and more.

> Said by *somebody*, and **bold** later.

[there](#exercise-1-2) and [](other.md#law-9-1)
"""

GOOD = {
    "index.md": BOXES + contents("other", "images", "formulas", "notebook"),
    "other.md": "# O\n\n> **Law 9.1** (far away). Holds.\n\n[back](index.md#definition-1-1)\n",
    "images.md": "# I\n\n![](titled.svg)\n\n![On the page](titled.svg)\n",
    "titled.svg": svg("<title>A weight &amp; its\nvalue</title>"),
    "formulas.md": "# F\n\n$$ a = b \\tag{2.1} $$\n\n$$ c = d $$\n",
    "notebook.ipynb": notebook(cell(1), cell(2, tags=["raises-exception"], error=True)),
}

# A page with one fault, and what must be said about it.
FAULTS = {
    "typo.md": ("# A\n\n> **Exersise 1.1** (typo). Text.\n", "no callout is called 'Exersise 1.1'"),
    "twice.md": ("# A\n\n> **Law 1.1** A.\n\n> **Law 1.1** B.\n", "'Law 1.1' is used twice"),
    "heading.md": ("# Law 2.1\n\n> **Law 2.1** A.\n", "'Law 2.1' is used twice"),
    "untitled.md": ("# A\n\n![](untitled.svg)\n", "without alternative text"),
    "empty.md": ("# A\n\n![](empty.svg)\n", "without alternative text"),
    "bitmap.md": ("# A\n\n![](bitmap.png)\n", "without alternative text"),
    "unrun.ipynb": (notebook(cell(1), cell(None)), "cell 3: was never run"),
    "failed.ipynb": (notebook(cell(1, error=True)), "cell 2: ended in ValueError: no"),
}
IMAGES = {
    "untitled.svg": svg(""),
    "empty.svg": svg("<title></title>"),
    "bitmap.png": "no title inside",
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return build(tmp_path_factory.mktemp("good"), GOOD)


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    pages = {name: text for name, (text, _) in FAULTS.items()}
    index = {"index.md": "# Faults\n" + contents(*(Path(name).stem for name in FAULTS))}
    return build(tmp_path_factory.mktemp("faulty"), {**index, **pages, **IMAGES})


def test_pages_in_order_build_without_a_word(good):
    assert (good.said, good.code) == ("", 0)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_stops_the_build_and_names_the_page(faulty, name):
    message = FAULTS[name][1]
    lines = [line for line in faulty.said.splitlines() if f"/{name}" in line]
    assert faulty.code != 0
    assert [line for line in lines if message in line], faulty.said


def test_a_file_that_is_no_notebook_stops_the_build(tmp_path):
    built = build(tmp_path, {"index.ipynb": notebook(cell(1))[:-1]})
    assert built.code != 0
    assert re.search(r"index\.ipynb is not a notebook", built.said)


class TestCallouts:
    @pytest.fixture
    def boxes(self, good):
        return good.page().select(".admonition.callout")

    @pytest.mark.parametrize(
        ("position", "kind", "title", "text"),
        [
            (0, "exercise", "Exercise 1.2 (two queries)", "Compute both weights."),
            (1, "definition", r"Definition 1.1 (softmax of \(s\) (a row))", "the weights."),
            (2, "key-idea", "Key idea", "A weight is a share."),
            (3, "common-mistake", "Common mistake 1.1", "Swapped axes."),
            (4, "law", "Law 1.1 (rows sum to one)", None),
            (5, "example", "Example 1.1", "(open bracket and more."),
        ],
    )
    def test_replace_labelled_quotes(self, boxes, position, kind, title, text):
        heading, *body = boxes[position].find_all("p", recursive=False)
        assert kind in boxes[position]["class"]
        assert heading.text == title
        assert [paragraph.text for paragraph in body] == ([text] if text else [])

    def test_keep_the_rest_of_the_quote(self, boxes):
        assert [item.text.strip() for item in boxes[0].select("li")] == ["first", "second"]
        assert boxes[0].em.text == "both"

    def test_leave_other_quotes_alone(self, good, boxes):
        (quote,) = good.page().select("blockquote")
        assert "Said by" in quote.text
        assert len(boxes) == 6

    def test_with_a_number_can_be_linked_to_from_every_page(self, good, boxes):
        links = {link["href"]: link.text for link in good.page().select("a.reference")}
        assert boxes[0]["id"] == "exercise-1-2"
        assert links["#exercise-1-2"] == "there"
        assert links["other.html#law-9-1"] == "Law 9.1 (far away)"
        assert good.page("other").select('a[href="index.html#definition-1-1"]')


def test_alternative_texts_come_from_the_svg_or_from_the_page(good):
    images = good.page("images").select("img")
    assert [image["alt"] for image in images] == ["A weight & its value", "On the page"]


def test_a_hand_written_number_stays_on_the_page(good):
    assert r"\tag{2.1}" in good.page("formulas").select_one("div.math").text


def test_a_hand_written_number_stands_in_a_plain_equation_in_latex(tmp_path):
    built = build(tmp_path, {"index.md": GOOD["formulas.md"]}, "latex")
    (tex,) = built.folder.glob("*.tex")
    text = tex.read_text(encoding="utf-8")
    assert r"\begin{equation}a = b \tag{2.1}\end{equation}" in text
