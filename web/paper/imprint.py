"""What stands in the imprint of every form of the book: title, version, date, commit."""

from __future__ import annotations

import os
import subprocess
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ASKED = "SOURCE_DATE_EPOCH"  # what reproducible builds call the moment that they all name


@dataclass(frozen=True)
class Facts:
    """The imprint of one build."""

    title: str
    subtitle: str
    author: str
    language: str
    version: str
    address: str
    commit: str
    changed: bool
    moment: datetime

    @property
    def date(self) -> str:
        """The day of the commit, as ISO 8601 writes it."""
        return self.moment.date().isoformat()


def facts() -> Facts:
    """Gather the imprint from the project's own files and from Git, where there is Git."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return Facts(
        title=config["title"],
        subtitle=config["sphinx"]["config"]["myst_html_meta"]["description"].strip(),
        author=config["author"],
        language=config["sphinx"]["config"]["language"],
        version=project["version"],
        address=project["urls"]["Repository"],
        commit=git("rev-parse", "--short=12", "HEAD") or "unknown",
        changed=bool(git("status", "--porcelain", "--untracked-files=no")),
        moment=moment(os.environ.get(ASKED) or git("log", "-1", "--format=%ct")),
    )


def moment(seconds: str) -> datetime:
    """Return the moment that all files of a build carry; the first that zip knows if none is given.

    >>> moment("86400").isoformat()
    '1980-01-01T00:00:00+00:00'
    """
    first = datetime(1980, 1, 1, tzinfo=UTC)
    return max(first, datetime.fromtimestamp(int(seconds or 0), UTC))


def git(*arguments: str) -> str:
    """Return what Git answers; an empty string where there is no Git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
