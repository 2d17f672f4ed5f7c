"""The chapters as files: their notebooks, and every text in them that somebody typed."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).parents[2]
CHAPTERS = ROOT / "chapters"
NOTEBOOKS = sorted(CHAPTERS.glob("*.ipynb"))


@dataclass(frozen=True)
class Passage:
    """A typed text and where it stands, such as "cell 7"."""

    place: str
    text: str


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook in the current format, not yet validated."""
    return nbformat.read(path, as_version=4)


def tags(cell: nbformat.NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return cell.metadata.get("tags", [])


def plain_python(source: str) -> str:
    """Return a code cell's source as Python, magics and all."""
    return TransformerManager().transform_cell(source)


def typed_passages(path: Path) -> list[Passage]:
    """Return every text of a notebook or Markdown page that was typed, not computed."""
    if path.suffix == ".md":
        return [Passage("page", path.read_text(encoding="utf-8"))]
    passages = []
    for number, cell in enumerate(read_notebook(path).cells, start=1):
        texts = [cell.source] if cell.cell_type == "markdown" else _typed_in_code(cell)
        passages += [Passage(f"cell {number}", text) for text in texts]
    return passages


def _typed_in_code(cell: nbformat.NotebookNode) -> list[str]:
    if cell.cell_type != "code":
        return []
    source = plain_python(cell.source)
    return [*_comments(source), *_strings(ast.parse(source)), *_captions(cell)]


def _comments(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def _strings(tree: ast.AST) -> list[str]:
    """Return the strings of the code; a format such as ``.2f`` is none, nor is a lone number."""
    formats = {
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.FormattedValue) and node.format_spec
        for part in ast.walk(node.format_spec)
    }
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in formats]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    strings = [node.value for node in found if isinstance(node.value, str)]
    return [text for text in strings if not re.fullmatch(r"[\d.]+", text)]


def _captions(cell: nbformat.NotebookNode) -> list[str]:
    shown = cell.metadata.get("mystnb", {})
    texts = (shown.get("figure", {}).get("caption"), shown.get("image", {}).get("alt"))
    return [text for text in texts if text]
