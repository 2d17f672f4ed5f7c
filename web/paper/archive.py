"""Put all of the book into one archive: ``make archive``.

Site, with PDF and EPUB in it (``offer.py``), notebooks and wheel, with a manifest that says what
they were made from and a list of checksums. Made twice from the same commit on one machine, all but
the PDF are the same bytes; a PDF carries identifiers that Chromium draws anew.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a script sees its own folder only

from web.paper import imprint, offer  # noqa: E402
from web.paper.epub_package import archive  # noqa: E402

PAPER = ROOT / "_build/paper"
SITE = ROOT / "_build/html"
NAME = "attention-number-by-number"
TOOLS = ("jupyter-book", "matplotlib", "numpy", "pikepdf", "playwright", "sphinx", "torch")


def main() -> None:
    """Gather the files and write the archive."""
    facts = imprint.facts()
    missing = {f"{NAME}.pdf", f"{NAME}.epub"} - offer.books(SITE).keys()
    if missing:
        sys.exit(f"The site lacks {sorted(missing)}: run `make archive`, which makes them first.")
    files = {**tree(SITE, "site"), **notebooks(), **wheel(facts)}
    files["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    files["LICENSE-text"] = (ROOT / "LICENSE-text").read_bytes()
    files["manifest.json"] = manifest(facts, files)
    files["SHA256SUMS"] = checksums(files)
    folder = f"{NAME}-{facts.version}"
    target = PAPER / f"{folder}.zip"
    target.write_bytes(
        archive({f"{folder}/{name}": files[name] for name in sorted(files)}, facts.moment)
    )
    size = target.stat().st_size / 1e6
    print(f"{target.relative_to(ROOT)}: {len(files)} files, {size:.1f} MB")


def tree(folder: Path, name: str) -> dict[str, bytes]:
    """Return the files of a folder under a new name for it."""
    return {
        f"{name}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def notebooks() -> dict[str, bytes]:
    """Return the chapters as notebooks, with their stored outputs."""
    return {f"notebooks/{path.name}": path.read_bytes() for path in ROOT.glob("chapters/*.ipynb")}


def wheel(facts: imprint.Facts) -> dict[str, bytes]:
    """Build the library's wheel from a copy, so that no old build gets into it, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        shutil.copytree(
            ROOT / "attnlib", source / "attnlib", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        subprocess.run(
            [
                sys.executable,
                "-m",
                "build",
                "--wheel",
                "--no-isolation",
                "--outdir",
                folder,
                source,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, imprint.ASKED: str(int(facts.moment.timestamp()))},
        )
        return {path.name: path.read_bytes() for path in Path(folder).glob("*.whl")}


def manifest(facts: imprint.Facts, files: dict[str, bytes]) -> bytes:
    """Return what the archive was made from, and the size of each of its files, as JSON."""
    content = {
        "title": facts.title,
        "version": facts.version,
        "commit": facts.commit,
        "uncommitted_changes": facts.changed,
        "date": facts.moment.isoformat(),
        "address": facts.address,
        "made_with": {
            "python": platform.python_version(),
            **{tool: importlib.metadata.version(tool) for tool in TOOLS},
        },
        "files": {name: len(files[name]) for name in sorted(files)},
    }
    return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def checksums(files: dict[str, bytes]) -> bytes:
    """Return the checksums of all files in the form that ``sha256sum --check`` reads.

    >>> checksums({"empty": b""}).decode()[:16]
    'e3b0c44298fc1c14'
    """
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "".join(lines).encode()


if __name__ == "__main__":
    main()
