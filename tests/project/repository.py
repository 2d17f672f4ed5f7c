"""The files of the repository, as git would take them, and what pyproject.toml says."""

from __future__ import annotations

import functools
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def project() -> dict:
    """Return the table [project] of pyproject.toml."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]


@functools.cache
def files() -> tuple[Path, ...]:
    """Return every file that is tracked or about to be, vendored ones aside."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return tuple(path for path in paths if path.is_file() and "web/vendor" not in path.as_posix())


@functools.cache
def texts() -> dict[str, str]:
    """Return the text of every file that is text, by its path in the repository."""
    found = {}
    for path in files():
        data = path.read_bytes()
        if b"\0" not in data:
            found[path.relative_to(ROOT).as_posix()] = data.decode("utf-8")
    return found
