"""What a record of results was made from, in one number: whether it has changed since."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def of_chapter(page: str) -> str:
    """Return the SHA-256 of a notebook, its stored outputs included."""
    return hashlib.sha256((ROOT / f"{page}.ipynb").read_bytes()).hexdigest()


def of_library() -> str:
    """Return the SHA-256 of all that is in attnlib, with the names of its files."""
    digest = hashlib.sha256()
    for path in sorted(ROOT.joinpath("attnlib").rglob("*")):
        if path.suffix in {".py", ".json"}:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()
