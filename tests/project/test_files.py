"""What stands in the files of the repository, and what must not."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tests.project.repository import ROOT, project, texts

# Only style sheets, scripts and templates of the site: what they name is loaded by a browser.
LOADED = re.compile(r"(?:https?:)?//(?!www\.w3\.org/)[\w-]+\.[\w.-]+")


def own_browser_files():
    return {
        path: text
        for path, text in texts().items()
        if path.startswith("web/") and path.endswith((".css", ".js", ".mjs", ".svg", ".html"))
    }


def test_no_browser_file_names_another_host():
    named = {path: LOADED.findall(text) for path, text in own_browser_files().items()}
    assert named
    assert {path: hosts for path, hosts in named.items() if hosts} == {}


def test_nothing_is_installed_from_another_index_than_the_reader_s_own():
    pattern = re.compile(r"(?:--(?:extra-)?index" r"-url|\"resolved\": *\"http|registry *= *http)")
    assert [path for path, text in texts().items() if pattern.search(text)] == []


def test_no_path_of_somebody_s_machine_is_left_in_a_file():
    homes = {str(ROOT.parent), str(Path.home())} - {"/", "/home", "/root", "/tmp"}
    for path, text in texts().items():
        assert not [home for home in homes if f"{home}/" in text], path


def test_citation_and_changes_name_the_version_of_the_package():
    citation = yaml.safe_load(texts()["CITATION.cff"])
    changes = re.findall(r"^## (\S+)", texts()["CHANGELOG.md"], re.MULTILINE)
    assert citation["version"] == changes[0] == project()["version"]
    assert citation["repository-code"] == project()["urls"]["Repository"]


def test_text_and_code_are_under_their_two_licences():
    assert texts()["LICENSE"].startswith("MIT License")
    assert "creativecommons.org/licenses/by/4.0/" in texts()["LICENSE-text"]
    assert project()["license"] == "MIT"
    for path in ("README.md", "chapters/index.md", "_config.yml"):
        assert "CC BY 4.0" in texts()[path]
        assert "MIT" in texts()[path]


def test_the_readme_fits_a_screen_and_its_links_lead_somewhere():
    readme = texts()["README.md"]
    assert len(readme.splitlines()) <= 70
    links = re.findall(r"(?:\]\(|src=\")([^)\"]+)", readme)
    assert links
    for link in links:
        assert link.startswith("https://") or (ROOT / link).exists(), link


def test_every_folder_is_on_the_map_of_the_readme():
    folders = {path.partition("/")[0] for path in texts() if "/" in path}
    shown = {folder for folder in folders if not folder.startswith(".")}
    assert [folder for folder in sorted(shown) if f"{folder}/" not in texts()["README.md"]] == []
