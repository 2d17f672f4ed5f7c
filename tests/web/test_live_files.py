"""What live cells add to the built site, read without a browser."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile

import pytest

from tests.web.live import code_cells, has_tag
from tests.web.pages import ROOT, notebook_pages, soup, table_of_contents
from web.extensions import live_cells
from web.tools import live_engine

pytestmark = pytest.mark.slow  # needs the built site

MOST_BYTES = 5_000  # compressed, of a page whose button is not pressed
FOOTPRINT = re.compile(
    r'<div class="live-start".*?</div>\s*<script>.*?</script>| live-cell-\d+', re.S
)


@pytest.fixture(scope="module")
def folders(site):
    """Return the folders of the engine and of all else."""
    (engine,) = (site / "live").glob("engine-*")
    (page,) = (site / "live").glob("page-*")
    return engine, page


def with_button(site):
    return [
        page for page in table_of_contents() if soup(site / f"{page}.html").select(".live-start")
    ]


def test_every_chapter_has_one_button_unless_torch_is_its_subject(site):
    about_torch = {page for page in notebook_pages() if share_of_torch(page) > 1 / 4}
    buttons = {
        p: len(soup(site / f"{p}.html").select(".live-start button")) for p in notebook_pages()
    }
    assert buttons == {page: int(page not in about_torch) for page in notebook_pages()}
    assert set(with_button(site)) <= set(notebook_pages())


def share_of_torch(page):
    """Return which part of the cells that a page shows needs torch, exercises aside."""
    aside = ("hide-input", "remove-cell", "exercise")
    shown = [c for c in code_cells(page).values() if not any(has_tag(c, tag) for tag in aside)]
    return sum(has_tag(cell, "torch") for cell in shown) / len(shown)


def test_before_the_button_is_pressed_a_page_carries_little_more(site):
    style = re.search(
        r"/\* The button below a title.*", (ROOT / "web/css/cells.css").read_text(), re.S
    )
    for page in with_button(site):
        whole = (site / f"{page}.html").read_text(encoding="utf-8")
        without, found = FOOTPRINT.subn("", whole)
        assert found > len(code_cells(page)) / 2
        more = compressed(whole) - compressed(without) + compressed(style[0])
        assert 0 < more <= MOST_BYTES


def compressed(text):
    return len(gzip.compress(text.encode(), 6))


def test_no_page_names_a_file_of_live_cells_in_a_script_or_style_sheet(site):
    for page in table_of_contents():
        html = soup(site / f"{page}.html")
        named = [
            tag.get("src") or tag.get("href") for tag in html.select("script[src], link[href]")
        ]
        assert [name for name in named if "/live/" in name or "service_worker" in name] == []


def test_folders_are_named_after_what_is_in_them(folders):
    engine, page = folders
    assert live_engine.content_name(engine) == engine.name
    files = {p.relative_to(page).as_posix(): p.read_bytes() for p in page.rglob("*") if p.is_file()}
    assert f"page-{live_cells.content_hash(files)}" == page.name
    assert json.loads(files["files.json"]) == sorted(files.keys() - {"files.json"})


def test_the_engine_is_apart_and_everything_else_is_small(folders):
    engine, page = folders
    assert sum(p.stat().st_size for p in page.rglob("*") if p.is_file()) < 1_500_000
    assert {p.name for p in engine.iterdir()} == {
        *("library.zip.gz", "licences", "matplotlib.zip.gz", "python.wasm.gz")
    }


def test_licences_of_the_engine_and_of_the_editor_are_served(folders):
    engine, page = folders
    names = {p.stem.lower() for p in (engine / "licences").iterdir()}
    assert {"cpython", "numpy", "matplotlib", "openblas", "pillow", "fonttools"} <= names
    editor = (page / "vendor/LICENSE").read_text(encoding="utf-8")
    packages = json.loads((ROOT / "web/live/editor/package.json").read_text("utf-8"))[
        "dependencies"
    ]
    assert all(f"{name}\n\n" in editor for name in packages)


def test_the_code_that_runs_is_that_of_the_chapter_and_of_this_checkout(site, folders):
    _, page = folders
    for chapter in with_button(site):
        written = json.loads((page / f"cells/{chapter}.json").read_text(encoding="utf-8"))
        sources = {i: "".join(cell["source"]) for i, cell in code_cells(chapter).items()}
        assert {cell["index"]: cell["source"] for cell in written} == sources
    with zipfile.ZipFile(io.BytesIO((page / "python.zip").read_bytes())) as archive:
        packed = {name: archive.read(name) for name in archive.namelist()}
    library = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / "attnlib").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name: code for name, code in packed.items() if name.startswith("attnlib/")} == library


def test_every_cell_that_a_page_shows_can_be_found_by_its_script(site):
    for page in with_button(site):
        cells = soup(site / f"{page}.html").find_all("div", class_="cell")
        found = [name for cell in cells for name in cell["class"] if name.startswith("live-cell-")]
        shown = [i for i, cell in code_cells(page).items() if not has_tag(cell, "remove-cell")]
        assert found == [f"live-cell-{index}" for index in shown]
