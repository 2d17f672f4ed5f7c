"""Other Pythons and package versions than the book's own: which there are, and making them.

An environment is made once, with pip, below the running one (so inside .venv), and kept until
what it must hold changes.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
CACHE = Path(sys.prefix) / "environments"
OLDEST, NEWEST = (3, 11), (3, 14)  # the Pythons that attnlib supports and NumPy has wheels for
_ASK = "import platform, venv; print(platform.python_version())"


def run(*command: str | Path, **options: object) -> str:
    """Run a command and return its output; if it fails, say what it printed."""
    done = subprocess.run(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}"
    return done.stdout


@functools.cache
def interpreters() -> dict[str, Path]:
    """Return the Pythons that can make an environment: {"3.11.7": path}, one for each 3.x."""
    newest = {}
    for python in _candidates():
        version = _version(python)
        minor = version.rpartition(".")[0]
        if version and minor not in newest and OLDEST <= _numbers(minor) <= NEWEST:
            newest[minor] = (version, python)
    return dict(sorted(newest.values(), key=lambda found: _numbers(found[0])))


def absent() -> list[str]:
    """Return the supported Pythons that this machine lacks."""
    present = {version.rpartition(".")[0] for version in interpreters()}
    supported = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    return [minor for minor in supported if minor not in present]


def _candidates() -> list[Path]:
    """Return the running Python, then those of pyenv, newest first, then those on PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    on_path = [path for folder in folders for path in folder.glob("python3.*")]
    return [
        Path(sys.executable),
        *sorted(pyenv.glob("3.*/bin/python"), key=lambda p: _numbers(p.parts[-3]), reverse=True),
        *(path for path in on_path if re.fullmatch(r"python3\.\d+", path.name)),
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _version(python: Path) -> str:
    done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def environment(
    name: str, python: Path, requirements: Sequence[str], bare: Sequence[str] = ()
) -> Path:
    """Return the Python of an environment with these requirements, made now if there is none.

    What ``bare`` lists is installed without what it requires in turn.
    """
    contents = "\n".join([str(python.resolve()), _version(python), *requirements, "", *bare])
    folder = CACHE / f"{name}-{hashlib.sha256(contents.encode()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with FileLock(CACHE / f"{name}.lock"):
        if not (folder / "complete").exists():
            for outdated in CACHE.glob(f"{name}-{'[0-9a-f]' * 12}"):
                shutil.rmtree(outdated)
            own = new_environment(python, folder)
            pip_install(own, *requirements)
            if bare:
                pip_install(own, "--no-deps", *bare)
            (folder / "complete").touch()
    return folder / "bin/python"


def new_environment(python: Path, folder: Path) -> Path:
    """Make an empty environment, without pip, and return its Python."""
    run(python, "-m", "venv", "--without-pip", folder)
    return folder / "bin/python"


def pip_install(python: Path, *what: str | Path) -> None:
    """Install into the environment of another Python, with the running one's pip."""
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *what)


def pip_uninstall(python: Path, package: str) -> None:
    """Remove a package from the environment of another Python, if it is there."""
    run(sys.executable, "-m", "pip", "--python", python, "uninstall", "--quiet", "--yes", package)


def pinned(*names: str) -> list[str]:
    """Return the requirements of the book's environment for these packages."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    requirements = [line.partition("#")[0].strip() for line in lines if re.match(r"\w", line)]
    found = {Requirement(line).name: line for line in requirements}
    return [found[name] for name in names]


def lend(package: str, folder: Path) -> Path:
    """Link an installed package and what it requires into a folder, and return the folder.

    That makes it importable elsewhere under the same Python, without a second copy of gigabytes.
    """
    folder.mkdir(exist_ok=True)
    for name in _with_requirements(package, set()):
        distribution = importlib.metadata.distribution(name)
        for entry in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            link = folder / entry
            if not link.exists():
                link.symlink_to(distribution.locate_file(entry))
    return folder


def _with_requirements(package: str, seen: set[str]) -> set[str]:
    if package not in seen:
        seen.add(package)
        for line in importlib.metadata.requires(package) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                _with_requirements(requirement.name, seen)
    return seen


def copy_package(folder: Path) -> Path:
    """Copy what the package is built from, so that a build leaves nothing in the checkout."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    shutil.copytree(ROOT / "attnlib", folder / "attnlib", ignore=ignored)
    return folder
