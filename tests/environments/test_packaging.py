"""attnlib is a package that pip builds and installs: sdist, wheel, and from a checkout."""

import email
import sys
import tarfile
import tomllib
import zipfile

import pytest

from tests.environments.environments import (
    ROOT,
    copy_package,
    new_environment,
    pip_install,
    pip_uninstall,
    run,
)

pytestmark = pytest.mark.slow  # builds the package, makes an environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "attnlib").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
USE = "import attnlib; print(attnlib.__file__, attnlib.softmax([0.0, 0.0]).sum())"


def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == SOURCES
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_sdist_builds_the_library_and_holds_its_licence(distributions):
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {*SOURCES, "pyproject.toml", "README.md", "LICENSE"}


def test_the_wheel_says_what_it_needs(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    metadata = email.message_from_bytes(archive.read(name))
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra")) == {"torch", "plot"}
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra" not in line]
    assert needed == PROJECT["dependencies"]


def test_wheel_and_checkout_install_in_a_fresh_environment(wheel, tmp_path):
    python = new_environment(sys.executable, tmp_path / "fresh")
    pip_install(python, wheel)
    by_wheel = run(python, "-c", USE, cwd=tmp_path)
    pip_uninstall(python, "attnlib")
    pip_install(python, copy_package(tmp_path / "checkout"))
    by_checkout = run(python, "-c", USE, cwd=tmp_path)
    assert by_wheel == by_checkout
    assert str(tmp_path / "fresh") in by_wheel
    assert by_wheel.endswith(" 1.0\n")
