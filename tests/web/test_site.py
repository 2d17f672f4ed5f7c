"""What the built HTML says, read without a browser."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import attnlib
from tests.web.pages import ROOT, notebook_pages, redirects, soup, table_of_contents

pytestmark = pytest.mark.slow  # needs the built site

# What a browser fetches by itself; following a link is the reader's own choice.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# Pages that Sphinx adds to those of _toc.yml.
ADDED = {"index", "genindex", "py-modindex", "search", "_modules/index"}


def pages(site):
    """Return all HTML files of the site but those inside its assets."""
    return sorted(p for p in site.rglob("*.html") if "_static" not in p.relative_to(site).parts)


def docnames(site):
    return {path.relative_to(site).with_suffix("").as_posix() for path in pages(site)}


@functools.cache
def ids(path):
    return {tag["id"] for tag in soup(path).find_all(id=True)}


def broken_links(site):
    """Yield every link within the site whose file or anchor does not exist."""
    for path in pages(site):
        for tag in soup(path).find_all("a", href=True):
            url = urlsplit(tag["href"])
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            anchor = unquote(url.fragment)
            if not target.is_file():
                yield f"{path.relative_to(site)}: no file {tag['href']}"
            elif anchor and target.suffix == ".html" and anchor not in ids(target):
                yield f"{path.relative_to(site)}: no anchor {tag['href']}"


def foreign_assets(site):
    """Yield everything that a page or style sheet would fetch from another host."""
    for path in pages(site):
        for name, attribute in FETCHED.items():
            for tag in soup(path).find_all(name, attrs={attribute: True}):
                fetches = name != "link" or not {"canonical", "next", "prev"} & set(tag["rel"])
                if fetches and urlsplit(tag[attribute]).netloc:
                    yield f"{path.relative_to(site)}: {tag[attribute]}"
    for path in site.rglob("*.css"):
        for url in re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: {url}"


def test_every_link_within_the_site_leads_somewhere(site):
    assert list(broken_links(site)) == []


def test_no_page_loads_anything_from_another_host(site):
    assert list(foreign_assets(site)) == []


def missing_assets(site):
    """Yield everything that a page would fetch and that does not lie in the folder of the site."""
    for path in pages(site):
        for name, attribute in FETCHED.items():
            for tag in soup(path).find_all(name, attrs={attribute: True}):
                url = urlsplit(tag[attribute])
                own = not (url.scheme or url.netloc)
                if own and not (path.parent / unquote(url.path or path.name)).is_file():
                    yield f"{path.relative_to(site)}: {tag[attribute]}"


def test_all_that_a_page_loads_lies_beside_it(site):
    assert list(missing_assets(site)) == []


def test_the_site_has_the_pages_of_the_table_of_contents_and_no_stale_one(site):
    sources = {name for name in docnames(site) if name.startswith("_modules/attnlib/")}
    assert docnames(site) - sources - ADDED - set(redirects()) == set(table_of_contents())


@pytest.mark.parametrize("page", table_of_contents())
def test_every_page_is_reached_from_the_first_one(site, page):
    navigation = soup(site / "chapters/index.html").find("nav", class_="bd-links")
    reached = {(site / "chapters" / a["href"]).resolve() for a in navigation.find_all("a")}
    here = site / "chapters/index.html"
    assert (site / f"{page}.html").resolve() in {*reached, here.resolve()}


def test_opening_the_folder_leads_to_the_first_page(site):
    refresh = soup(site / "index.html").find("meta", attrs={"http-equiv": "Refresh"})
    assert refresh["content"].endswith("url=chapters/index.html")


@pytest.mark.parametrize("page", notebook_pages())
def test_a_chapter_opens_on_colab_from_the_project_s_address(site, page):
    with (ROOT / "pyproject.toml").open("rb") as file:
        address = tomllib.load(file)["project"]["urls"]["Repository"]
    repository = urlsplit(address).path
    colab = f"https://colab.research.google.com/github{repository}/blob/main/{page}.ipynb"
    assert colab in {a["href"] for a in soup(site / f"{page}.html").find_all("a", href=True)}


@pytest.mark.parametrize("page", table_of_contents())
def test_a_page_has_one_title_and_a_description(site, page):
    html = soup(site / f"{page}.html")
    assert len(html.select(".bd-article h1")) == 1
    assert html.find("meta", attrs={"name": "description"})["content"]


@pytest.mark.parametrize("page", notebook_pages())
def test_no_block_quote_of_a_chapter_lost_its_box(site, page):
    source = (ROOT / f"{page}.ipynb").read_text(encoding="utf-8")
    written = re.findall(r'"> \*\*([A-Z][a-z ]+[\d.]*)\*\*', source)
    shown = soup(site / f"{page}.html").select(".callout > .admonition-title > .callout-label")
    assert sorted(label.text for label in shown) == sorted(text.rstrip(".") for text in written)
    assert shown


@pytest.mark.parametrize("page", notebook_pages())
def test_every_solution_of_a_chapter_is_folded_under_its_own_name(site, page):
    html = soup(site / f"{page}.html")
    exercises = {box["id"].removeprefix("exercise-") for box in html.select(".callout.exercise")}
    assert exercises
    for cell in html.select(".tag_hide-input"):
        if "# @title Solution" in cell.text:
            number = re.search(r"@title Solution ([\d.]+)", cell.text)[1]
            assert cell.find("summary").text.split()[:3] == ["Show", "solution", number]
            assert number.replace(".", "-") in exercises


def public_modules():
    """Yield the modules that a reader may import.

    The engines work behind `functional`, the entries of the chapters behind `exercises`, and
    what the page of laws asks behind that page.
    """
    behind = (
        "attnlib.engines",
        "attnlib.teaching.exercises.",
        "attnlib.teaching.implementations",
    )
    for found in pkgutil.walk_packages(attnlib.__path__, "attnlib."):
        if "._" not in found.name and not found.name.startswith(behind):
            yield importlib.import_module(found.name)


def public_names():
    """Yield the full names of the functions and classes that a reader may import."""
    for module in public_modules():
        for name, value in vars(module).items():
            defined_here = getattr(value, "__module__", None) == module.__name__
            if name.startswith("_") or not defined_here or not callable(value):
                continue
            if name not in getattr(module, "__all__", name):
                continue
            exported = getattr(attnlib, name, None) is value
            yield f"attnlib.{name}" if exported else f"{module.__name__}.{name}"


def test_the_page_of_the_library_has_every_public_name(site):
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, target: target)
    documented = inventory["py:function"].keys() | inventory["py:class"].keys()
    assert set(public_names()) - documented == set()


def test_the_licences_of_vendored_files_are_served_with_them(site):
    vendored = {path.read_bytes() for path in Path(ROOT, "web/vendor").glob("*/LICENSE*")}
    assert vendored
    assert vendored <= {path.read_bytes() for path in site.rglob("LICENSE*")}


def test_the_second_build_has_nothing_to_do(site):
    asked = ["make", "--question", "_build/.site"]
    assert subprocess.run(asked, cwd=ROOT, capture_output=True, text=True).returncode == 0
