"""Run nbval with its companion in a process of its own, as `make test` does in the main one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from tests.chapters.documents import ROOT


def run_nbval(
    folder: Path,
    *paths: Path,
    options: tuple[str, ...] = (),
    settings: dict[str, str] | None = None,
) -> list[str | None]:
    """Return what is said of each code cell in order, None if it passes.

    ``folder`` takes the report; ``settings`` are environment variables added to those of this run.
    """
    report = folder / "nbval.xml"
    # The companion by name, wherever the notebooks are, and not a second time where it lies.
    companion = ["--noconftest", "-p", "conftest"]
    command = [sys.executable, "-m", "pytest", *companion, "-p", "no:cacheprovider"]
    where = ["--rootdir", ROOT, "-c", ROOT / "pyproject.toml", "--junit-xml", report]
    done = subprocess.run(
        [*command, "--nbval", *(options or ["--nbval-current-env"]), *where, *paths],
        cwd=ROOT,
        env={**os.environ, **(settings or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    cases = ElementTree.parse(report).iter("testcase")
    verdicts = [(case, _trouble(case)) for case in cases]
    return [
        text and f"{case.get('classname')}, {case.get('name')}\n{text}" for case, text in verdicts
    ]


def _trouble(case: ElementTree.Element) -> str | None:
    parts = [case.find(kind) for kind in ("failure", "error", "skipped")]
    texts = [f"{part.get('message')}\n{part.text}" for part in parts if part is not None]
    return "\n".join(texts) or None
