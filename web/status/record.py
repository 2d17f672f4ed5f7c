"""Make the record that the status page shows: ``make status``.

Each notebook runs once and its outputs are compared with the stored ones; every law is asked of
every implementation and of every bug of the zoo. What came out, and on what machine, with which
versions and from which commit, goes into ``status.json`` beside this file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from benchmarks import machine  # noqa: E402
from web.status import fingerprints, laws, notebooks  # noqa: E402

RECORD = Path(__file__).with_name("status.json")
# All that decides what comes out.
SOURCES = ("attnlib", "chapters", "conftest.py", "requirements.txt", "web/status/*.py")


def made() -> dict:
    """Run everything and return the record."""
    state = machine.commit(*SOURCES)
    begun = {"schema": 1, "date": machine.now(), **state, "load": round(os.getloadavg()[0], 1)}
    asked, killed = laws.asked(), laws.bugs()
    pages = notebooks.pages()
    ran = notebooks.run(pages)
    return {
        **begun,
        "machine": {**machine.describe(), "matplotlib": matplotlib.__version__},
        "library": fingerprints.of_library(),
        "chapters": [
            {
                "page": page,
                "title": notebooks.title(page),
                **ran[page],
                **laws.by_chapter(asked, killed, number(page)),
                "changed": last_change(page),
                "sha256": fingerprints.of_chapter(page),
            }
            for page in pages
        ],
        "laws": asked,
        "bugs": killed,
    }


def number(page: str) -> int:
    """Return the number of a chapter.

    >>> number("chapters/02_causal")
    2
    """
    return int(re.search(r"/(\d+)_", page)[1])


def last_change(page: str) -> str:
    """Return the day of the last commit that touched a notebook.

    It belongs into the record, as a clone that builds the site may hold the last commit alone.
    """
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%cs", "--", f"{page}.ipynb"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def problems(record: dict) -> list[str]:
    """Say what did not pass.

    >>> problems({"chapters": [], "laws": [], "bugs": [{"name": "fly", "killed_by": []}]})
    ['no law kills fly']
    """
    failed = [
        f"{chapter['page']}: {chapter['cells']['failed']} cells failed"
        for chapter in record["chapters"]
        if chapter["cells"]["failed"]
    ]
    broken = [f"{name} breaks {law['name']}" for law in record["laws"] for name in law["broken_by"]]
    alive = [f"no law kills {bug['name']}" for bug in record["bugs"] if not bug["killed_by"]]
    return failed + broken + alive


def main() -> None:
    """Write the record, also one of failures, and say what did not pass."""
    os.chdir(ROOT)
    record = made()
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {RECORD.relative_to(ROOT)}")
    if found := problems(record):
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
