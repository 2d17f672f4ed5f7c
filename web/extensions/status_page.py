"""Fill the status page from the record that ``make status`` wrote: web/status/status.json.

The page holds words and marks, ``<!-- status: laws -->``; each mark is replaced by a table. What
has changed since the record was made is found while the site is built. A test that demands a new
record for each edit of a chapter would be in the way of daily work, and a page that hides the edit
would say too much; so the page tells.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Sphinx knows the folder of its extensions only

from web.status import fingerprints  # noqa: E402

PAGE = "chapters/status"
RECORD = ROOT / "web/status/status.json"
ADDRESS = "../status.json"  # html_extra_path in _config.yml puts the record there
MARK = re.compile(r"<!-- status: (\w+) -->")
NONE = "–"


def filled(text: str, record: dict) -> str:
    """Return the page with a table, or a sentence, in the place of each mark."""
    return MARK.sub(lambda mark: PARTS[mark[1]](record), text)


def made(record: dict) -> str:
    """Say when and from what the record was made, and what has changed since."""
    date, _, time = record["date"].partition("T")
    known = record["library"] == fingerprints.of_library()
    library = "has not changed since" if known else "**has changed since**"
    return (
        f"The check was made on {date} at {time[:5]} UTC, at commit `{record['commit'][:12]}`"
        f"{', with uncommitted changes' if record['dirty'] else ''}. The library {library}.\n\n"
        f"{total(record)}\n\n"
        f'The same as data: <a href="{ADDRESS}">status.json</a>.'
    )


def total(record: dict) -> str:
    """Say in one sentence how many passed."""
    chapters, laws, bugs = record["chapters"], record["laws"], record["bugs"]
    whole = sum(not chapter["cells"]["failed"] for chapter in chapters)
    held = sum(not law["broken_by"] for law in laws)
    killed = sum(bool(bug["killed_by"]) for bug in bugs)
    return (
        f"Passed: **{whole} of {len(chapters)}** chapters. Held: **{held} of {len(laws)}** laws. "
        f"Killed: **{killed} of {len(bugs)}** bugs."
    )


def chapters(record: dict) -> str:
    """Return the table of run times and verdicts."""
    rows = [
        (
            linked(chapter),
            f"{chapter['seconds']:.1f}",
            share(chapter["cells"]["passed"], sum(chapter["cells"].values())),
            last_change(chapter),
        )
        for chapter in record["chapters"]
    ]
    return table(("chapter", "time", "cells passed", "last change"), rows)


def last_change(chapter: dict) -> str:
    """Return the day of a chapter's last change before the check, and whether there was a later."""
    there = (ROOT / f"{chapter['page']}.ipynb").exists()
    same = there and chapter["sha256"] == fingerprints.of_chapter(chapter["page"])
    return chapter["changed"] if same else "**after the check**"


def functions(record: dict) -> str:
    """Return the table of what the laws say about the functions of each chapter."""
    rows = [(linked(chapter), *found(chapter)) for chapter in record["chapters"]]
    return table(("chapter", "laws held", "bugs killed"), rows)


def found(chapter: dict) -> tuple[str, str]:
    """Return the laws that a chapter's functions hold, and the bugs that these laws kill."""
    if not chapter["functions"]:
        return NONE, NONE
    held, broken = len(chapter["laws_held"]), len(chapter["laws_broken"])
    return share(held, held + broken), str(len(chapter["bugs_killed"]))


def laws(record: dict) -> str:
    """Return the table of laws: who was asked, who holds them, what they kill."""
    rows = [
        (
            f"`{law['name']}`",
            share(len(law["held_by"]), len(law["held_by"]) + len(law["broken_by"])),
            str(sum(law["name"] in bug["killed_by"] for bug in record["bugs"])),
        )
        for law in record["laws"]
    ]
    return table(("law", "held by", "bugs killed"), rows)


def versions(record: dict) -> str:
    """Return the table of versions, and of the machine."""
    machine = record["machine"]
    rows = [
        ("Python", machine["python"]),
        ("NumPy", machine["numpy"]["version"]),
        ("Matplotlib", machine["matplotlib"]),
        ("PyTorch", machine["torch"]["version"]),
        ("processor", machine["processor"]),
        ("cores", str(machine["cores"])),
        ("load at the beginning", f"{record['load']:.1f}"),
        ("system", machine["system"]),
    ]
    return table(("what", "which"), rows)


PARTS = {
    "made": made,
    "chapters": chapters,
    "functions": functions,
    "laws": laws,
    "versions": versions,
}


def linked(chapter: dict) -> str:
    """Return the number and the title of a chapter as a link, as the book's first page has it."""
    name = chapter["page"].rpartition("/")[2]
    return f"{int(name.partition('_')[0])} · [{chapter['title']}]({name}.ipynb)"


def share(part: int, whole: int) -> str:
    """Return how many of how many; in bold where some are missing.

    >>> share(2, 2), share(1, 2)
    ('2 of 2', '**1 of 2**')
    """
    return f"{part} of {whole}" if part == whole else f"**{part} of {whole}**"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the marks while Sphinx reads the page."""
    if page == PAGE:
        app.env.note_dependency(str(RECORD))
        source[0] = filled(source[0], json.loads(RECORD.read_text(encoding="utf-8")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step with Sphinx."""
    app.connect("source-read", fill_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
