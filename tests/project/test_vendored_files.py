"""The browser files in web/vendor are those whose checksums stand beside them."""

from __future__ import annotations

import shutil

import pytest

from web.tools.vendor import PACKAGES, SUMS, VENDOR, differences


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(VENDOR, tmp_path / "vendor")


def test_all_files_are_the_listed_ones():
    assert differences(VENDOR) == []


def test_a_changed_file_is_noticed(copy):
    name = "mathjax/tex-chtml-full.js"
    (copy / name).write_text("other code", encoding="utf-8")
    assert differences(copy) == [name]


def test_a_missing_file_is_noticed(copy):
    (copy / "mathjax/LICENSE").unlink()
    assert differences(copy) == ["mathjax/LICENSE"]


def test_an_added_file_is_noticed(copy):
    (copy / "mathjax/extra.js").write_text("more code", encoding="utf-8")
    assert differences(copy) == ["mathjax/extra.js"]


def test_every_vendored_package_is_pinned_and_has_its_licence():
    for package, wanted in PACKAGES.items():
        name, _, version = package.rpartition("@")
        assert version[0].isdigit()
        assert "LICENSE" in wanted
        assert f"{name}/LICENSE" in (VENDOR / SUMS).read_text(encoding="utf-8")
