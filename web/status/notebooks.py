"""Run the notebooks of the chapters once, as the tests do, and say what came out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from web.paper.joined import pages_of

ROOT = Path(__file__).resolve().parents[2]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
FAULTS = ("failure", "error", "skipped")


def pages() -> list[str]:
    """Return the chapters that are notebooks, in the order of _toc.yml."""
    files = pages_of((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [file for file in files if (ROOT / f"{file}.ipynb").exists()]


def title(page: str) -> str:
    """Return the heading of a notebook."""
    cells = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    return re.search(r"^# +(.+?) *$", text, re.MULTILINE)[1]


def run(names: list[str]) -> dict[str, dict]:
    """Run notebooks one after the other with nbval; return time and verdict of each page.

    The time is that of all cells, the start of the kernel included; each runs on one thread.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env"]
        options = ["-p", "no:cacheprovider", "-q", "--junit-xml", str(report)]
        paths = [f"{name}.ipynb" for name in names]
        environment = {**os.environ, **ONE_THREAD}
        subprocess.run([*command, *options, *paths], cwd=ROOT, env=environment, check=False)
        return results(report.read_text(encoding="utf-8"))


def results(report: str) -> dict[str, dict]:
    """Return what a report in JUnit's format says of each notebook, by page.

    >>> case = '<testcase classname="chapters.one.ipynb" name="Cell 0" time="1.25"/>'
    >>> results(f"<testsuite>{case}</testsuite>")
    {'chapters/one': {'seconds': 1.25, 'cells': {'passed': 1, 'failed': 0}}}
    """
    found: dict[str, dict] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        page = case.get("classname").removesuffix(".ipynb").replace(".", "/")
        one = found.setdefault(page, {"seconds": 0.0, "cells": {"passed": 0, "failed": 0}})
        failed = any(case.find(fault) is not None for fault in FAULTS)
        one["cells"]["failed" if failed else "passed"] += 1
        one["seconds"] = round(one["seconds"] + float(case.get("time")), 3)
    return found
