"""The project's address stands in pyproject.toml, and every other use of it is the same."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
import yaml

from tests.project.repository import ROOT, project, texts

ADDRESS = project()["urls"]["Repository"]
OWNER, NAME = urlsplit(ADDRESS).path.strip("/").split("/")
# Any address on the host that names the project or its owner, also behind git+ or Colab's prefix.
USE = re.compile(
    rf"(?:github\.com|colab\.research\.google\.com/github)/(?=[^\s)\"'>]*(?:{OWNER}/|{NAME}))"
    r"(?P<repository>[\w.-]+/[\w.-]+?)(?=\.git\b|[/@#)\s\"'>`\\,;]|$)"
)


def uses(text):
    return {match["repository"] for match in USE.finditer(text)}


def test_every_use_is_the_address_of_pyproject():
    wrong = {path: uses(text) - {f"{OWNER}/{NAME}"} for path, text in texts().items()}
    assert {path: found for path, found in wrong.items() if found} == {}


@pytest.mark.parametrize("path", ["README.md", "CITATION.cff", "_config.yml", "chapters/index.md"])
def test_the_address_is_used_where_a_reader_looks_for_it(path):
    assert f"{OWNER}/{NAME}" in uses(texts()[path])


def test_every_chapter_installs_the_library_from_the_address():
    chapters = [text for path, text in texts().items() if path.endswith(".ipynb")]
    assert chapters
    for text in chapters:
        assert f"attnlib @ git+{ADDRESS}@main" in text


def test_the_book_is_configured_with_the_address_and_the_published_branch():
    repository = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]
    assert repository == {"url": ADDRESS, "path_to_book": "", "branch": "main"}


@pytest.mark.parametrize(
    "text",
    [
        f"https://github.com/{OWNER}/another-name/issues",
        f"git+https://github.com/somebody-else/{NAME}@main",
        f"https://colab.research.google.com/github/somebody-else/{NAME}/blob/main/a.ipynb",
    ],
)
def test_another_address_is_noticed(text):
    (found,) = uses(text)
    assert found != f"{OWNER}/{NAME}"
