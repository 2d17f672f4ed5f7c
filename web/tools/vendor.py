"""Fetch the browser files that the site serves itself, and check them by checksum.

``make vendor`` (maintainers, needs npm) writes ``web/vendor`` anew; ``make book`` runs the check
alone and needs neither npm nor the network.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

WEB = Path(__file__).resolve().parents[1]
VENDOR = WEB / "vendor"
SUMS = "SHA256SUMS"

# npm package and version -> the files taken from it, under the name they get in web/vendor.
PACKAGES = {
    "mathjax@3.2.2": {
        "LICENSE": "mathjax/LICENSE",
        # "full": with every TeX extension, so that no macro makes the page load another file.
        "es5/tex-chtml-full.js": "mathjax/tex-chtml-full.js",
        "es5/output/chtml/fonts/woff-v2": "mathjax/output/chtml/fonts/woff-v2",
    },
}

# Folder with a package-lock.json, which pins what its modules import -> folder of their bundles.
BUNDLES = {
    "live/editor": ("live", ["editor.js", "shim.js"]),
    "mathematics": ("typesetter", ["typeset.js"]),
}


def fetch(target: Path) -> None:
    """Write all vendored files and their checksums into an empty or existing folder."""
    shutil.rmtree(target, ignore_errors=True)
    fetch_packages(target)
    bundle_modules(target)
    (target / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in checksums(target)))


def fetch_packages(target: Path) -> None:
    """Copy the wanted files of the npm packages."""
    for package, wanted in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            unpack(package, Path(folder))
            for source, name in wanted.items():
                copy(Path(folder, "package", source), target / name)


def bundle_modules(target: Path) -> None:
    """Bundle each module with all that it imports, with the licences of what is in it."""
    for home, (place, modules) in BUNDLES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(shutil.copytree(WEB / home, Path(scratch, "modules")))
            subprocess.run(["npm", "ci", "--silent"], cwd=folder, check=True)
            packages = set()
            for module in modules:
                packages |= bundle(folder, module, target / place / module)
            (target / place / "LICENSE").write_text(licences(folder, packages), encoding="utf-8")


def bundle(folder: Path, source: str, target: Path) -> set[str]:
    """Bundle one module with all it imports; return the packages that are in it."""
    options = ["--bundle", "--format=esm", "--minify", "--legal-comments=none", "--metafile=meta"]
    command = ["npx", "esbuild", source, *options, f"--outfile={target}", "--log-level=warning"]
    subprocess.run(command, cwd=folder, check=True)
    inputs = json.loads((folder / "meta").read_text(encoding="utf-8"))["inputs"]
    modules = [name.split("/") for name in inputs if name.startswith("node_modules/")]
    return {"/".join(parts[1 : 3 if parts[1][0] == "@" else 2]) for parts in modules}


def licences(folder: Path, packages: set[str]) -> str:
    """Return the licences of the packages in the bundles, each under the package's name."""
    texts = []
    for package in sorted(packages):
        paths = sorted((folder / "node_modules" / package).glob("LICEN[CS]E*"))
        if not paths:
            raise FileNotFoundError(f"{package} has no licence file")
        texts += [f"{package}\n\n{paths[-1].read_text(encoding='utf-8').strip()}\n"]
    return f"\n{'-' * 72}\n\n".join(texts)


def unpack(package: str, folder: Path) -> None:
    """Download one npm package, whose integrity npm checks, and unpack it."""
    subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")


def copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, without the timestamps of the archive."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, target)


def checksums(folder: Path) -> list[tuple[str, str]]:
    """Return name and SHA-256 of every file below a folder, the list of checksums aside."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return [
        (path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    ]


def differences(folder: Path) -> list[str]:
    """Name every file that is missing, unlisted or changed since its checksum was written."""
    lines = (folder / SUMS).read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    found = dict(checksums(folder))
    return sorted(
        name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name)
    )


def main() -> None:
    """Fetch the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the checksums only")
    if not parser.parse_args().check:
        fetch(VENDOR)
    elif changed := differences(VENDOR):
        sys.exit(f"web/vendor differs from its checksums ({', '.join(changed)}); run: make vendor")


if __name__ == "__main__":
    main()
