"""The extension that makes pages live, on a small book of its own: with live cells and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from bs4 import BeautifulSoup

from tests.web.pages import ROOT

pytestmark = pytest.mark.slow  # fetches the engine if it must

CONFIGURATION = """
extensions = ["myst_nb", "live_cells"]
html_theme = "basic"
html_copy_source = False
html_show_sphinx = False
nb_execution_mode = "off"
live_left_out = ["c"]
"""


def notebook(title, *tags):
    """Return a notebook with a code cell for each of the given tags."""
    cells = [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": f"# {title}"}]
    for number, tag in enumerate(tags):
        cell = {"cell_type": "code", "id": f"cell-{number}", "source": f"print({number})"}
        metadata = {"tags": [tag] if tag else []}
        cells.append({**cell, "metadata": metadata, "execution_count": 1, "outputs": []})
    python = {"language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": python, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the folders of the same book with live cells (1) and without (0)."""
    source = tmp_path_factory.mktemp("book")
    (source / "conf.py").write_text(CONFIGURATION, encoding="utf-8")
    (source / "index.md").write_text("# Book\n\n```{toctree}\na\nb\nc\n```\n", encoding="utf-8")
    (source / "a.ipynb").write_text(notebook("A", "", "torch", "hide-input"), encoding="utf-8")
    (source / "b.ipynb").write_text(notebook("B", "remove-cell", "torch"), encoding="utf-8")
    (source / "c.ipynb").write_text(notebook("C", ""), encoding="utf-8")
    return {live: build(source, source.parent / f"out-{live}", live) for live in ("0", "1")}


def build(source, target, live):
    extensions = os.pathsep.join([str(ROOT / "web/extensions"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": extensions, "LIVE": live}
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-E", "-d", f"{target}-trees"]
    subprocess.run([*command, source, target], env=environment, check=True)
    return target


def page(folder, name):
    return BeautifulSoup((folder / f"{name}.html").read_text(encoding="utf-8"), "html.parser")


def test_a_page_has_a_button_below_its_title_if_its_cells_run(built):
    live = page(built["1"], "a")
    assert live.select_one("h1 + .live-start button").get_text() == (
        "Edit and run the code of this page"
    )
    for name in ("b", "c", "index"):  # all of torch, left out, no notebook
        assert not page(built["1"], name).select(".live-start")


def test_the_button_knows_where_everything_is(built):
    known = page(built["1"], "a").select_one(".live-start").attrs
    for name in ("data-assets", "data-cells", "data-engine"):
        assert (built["1"] / known[name]).exists(), name
    assert (built["1"] / known["data-root"] / "service_worker.js").is_file()
    sizes = [path.stat().st_size for path in (built["1"] / known["data-engine"]).glob("*.gz")]
    assert known["data-bytes"] == str(sum(sizes))


def test_without_live_cells_nothing_of_them_is_left(built):
    assert not (built["0"] / "live").exists()
    assert not (built["0"] / "service_worker.js").exists()
    assert "live" not in (built["0"] / "a.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["index", "a", "b", "c"])
def test_a_site_without_live_cells_is_complete_in_every_other_way(built, name):
    live, plain = page(built["1"], name), page(built["0"], name)
    for button in live.select(".live-start"):
        button.find_next_sibling("script").decompose()
        button.decompose()
    for cell in live.select(".cell"):
        cell["class"] = [c for c in cell["class"] if not c.startswith("live-cell-")]
    assert "".join(str(live).split()) == "".join(str(plain).split())
