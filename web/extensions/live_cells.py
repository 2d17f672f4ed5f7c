"""One button on each chapter page that makes its code cells run in the reader's browser.

A page carries the button, a few lines of script and the place of each cell. All else lies in
``live/``, in folders named after their content, and is asked for when the button is pressed:

* ``live/engine-<hash>/``: Python, NumPy and Matplotlib (made by ``web/tools/live_engine.py``);
* ``live/page-<hash>/``: scripts, styles, the editor, the library of this checkout, and the code
  of all cells.

``live_left_out`` in _config.yml names chapters that get no button; ``LIVE=0`` in the environment
leaves all of it out.
"""

from __future__ import annotations

import hashlib
import html
import io
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # Sphinx knows the folder of its extensions only

from web.tools import live_engine  # noqa: E402

LIVE = ROOT / "web/live"
EDITOR = ROOT / "web/vendor/live"
TORCH = "torch"  # the tag of cells that no browser can run
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same archive on every day


class LivePages:
    """The buttons of one build, and the files that they lead to."""

    def __init__(self, app: Sphinx) -> None:
        self.app = app
        self.engine = live_engine.prepare()
        self.engine_size = sum(path.stat().st_size for path in self.engine.glob("*.gz"))
        self.start = (LIVE / "start.js").read_text(encoding="utf-8")

    def collect(self, app: Sphinx, env: Any) -> None:
        """Gather the files of all pages; the folder is named after them."""
        sources = {page: Path(env.doc2path(page)) for page in env.found_docs}
        left_out = set(app.config.live_left_out)
        found = {page: code_cells(path) for page, path in sources.items() if page not in left_out}
        self.cells = {page: cells for page, cells in found.items() if any(map(runs, cells))}
        self.files = page_files(self.cells)
        self.folder = f"page-{content_hash(self.files)}"

    def add_button(
        self, app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
    ) -> None:
        """Put the button below the title of a page that has cells to run."""
        if page in self.cells:
            title, end, rest = context["body"].partition("</h1>")
            context["body"] = f"{title}{end}{self.button(page, context['pathto'])}{rest}"

    def button(self, page: str, pathto: Callable[..., str]) -> str:
        """Return the button, what its script needs to know, and the script."""
        assets = pathto(f"live/{self.folder}/", resource=True)
        data = {
            "page": page,
            "root": pathto("", resource=True) or "./",
            "assets": assets,
            "cells": f"{assets}cells/{page}.json",
            "engine": pathto(f"live/{self.engine.name}/", resource=True),
            "bytes": self.engine_size,
            "mathjax": pathto(f"_static/{self.app.config.mathjax_path}", resource=True),
        }
        known = "".join(f' data-{key}="{html.escape(str(data[key]))}"' for key in data)
        return (
            f'<div class="live-start"{known}>\n'
            '<button type="button">Edit and run the code of this page</button>\n'
            '<span class="live-note" role="status">in your browser, which first loads Python: '
            f"{self.engine_size / 1e6:.0f} MB, once</span>\n</div>\n"
            f"<script>{self.start}</script>\n"
        )

    def write_files(self, app: Sphinx, error: Exception | None) -> None:
        """Write into the site what the buttons lead to."""
        if error is None:
            site = Path(app.outdir)
            for name, content in self.files.items():
                live_engine.write(site / "live" / self.folder / name, content)
            shutil.copytree(self.engine, site / "live" / self.engine.name, dirs_exist_ok=True)
            shutil.copyfile(LIVE / "service_worker.js", site / "service_worker.js")


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook, those that its page does not show included."""
    if path.suffix != ".ipynb":
        return []
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        {
            "id": cell["id"],
            "index": index,
            "source": "".join(cell["source"]),
            "tags": cell["metadata"].get("tags", []),
        }
        for index, cell in enumerate(cells)
        if cell["cell_type"] == "code" and cell["source"]
    ]


def runs(cell: dict[str, Any]) -> bool:
    """Tell whether a browser can run a cell, one that only sets up Colab aside."""
    return not {TORCH, "remove-cell"} & set(cell["tags"])


def page_files(cells: dict[str, list[dict[str, Any]]]) -> dict[str, bytes]:
    """Return name and content of all files that live pages ask for, the engine's aside."""
    own = [LIVE / "live.css", *LIVE.glob("page/*.js"), *LIVE.glob("engine/*.js")]
    files = {path.relative_to(LIVE).as_posix(): path.read_bytes() for path in own}
    files |= {f"vendor/{path.name}": path.read_bytes() for path in EDITOR.iterdir()}
    files |= {f"cells/{page}.json": json.dumps(code).encode() for page, code in cells.items()}
    files["python.zip"] = python_archive()
    return {**files, "files.json": json.dumps(sorted(files)).encode()}


def python_archive() -> bytes:
    """Return the library of this checkout and the runtime of the cells as a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in (ROOT / "attnlib", *sorted((LIVE / "python").iterdir())):
            for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.json")]):
                name = path.relative_to(folder.parent).as_posix()
                archive.writestr(zipfile.ZipInfo(name, EPOCH), path.read_bytes())
    return buffer.getvalue()


def content_hash(files: dict[str, bytes]) -> str:
    """Return a short hash of names and contents."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def name_cells(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each cell a class with its place in the notebook, by which a script finds it."""
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code":
            cell["classes"].append(f"live-cell-{cell['cell_index']}")


def connect(app: Sphinx) -> None:
    """Let a build of HTML pages have its buttons."""
    if app.builder.name not in {"html", "dirhtml"} or os.environ.get("LIVE", "1") == "0":
        return
    pages = LivePages(app)
    app.connect("env-updated", pages.collect)
    app.connect("doctree-resolved", name_cells)
    app.connect("html-page-context", pages.add_button)
    app.connect("build-finished", pages.write_files)


def setup(app: Sphinx) -> dict[str, bool]:
    """Wait until Sphinx knows what it builds."""
    app.add_config_value("live_left_out", [], "html", types=[list])  # pages mainly about torch
    app.connect("builder-inited", connect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
