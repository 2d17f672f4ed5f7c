"""Comments that state a shape, held against the alphabet of axes and the values themselves.

A comment states a shape if it begins with a list in brackets, ``# (m, d_h): one row a query``, if
it is a bare list of short names, ``# B, Hq, L, E``, or if it counts, ``# 7 tokens, width 5``. Every
name is a letter of the axes in chapters/notation.toml, a symbol of the book that stands for one, a
word for an axis (see `WORDS`), or arithmetic of these such as ``H·E`` and ``i + 1``.

`run` executes a chapter's cells and looks at the value of the line on which the comment stands,
inside functions too: the number of axes and each number must be right; a letter has one size in a
cell, the one that a variable of that name has, and the one that it has in the arrays that the book
names (`Q` is (L, E), and so on) where the cell uses them.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from tests.chapters.documents import CHAPTERS, plain_python, read_notebook, tags
from tests.chapters.symbols import NOTATION, formulas

# Words for axes, as chapters write them beside a reshape, and words that count.
WORDS = {"batch", "sequences", "heads", "tokens", "queries", "keys", "features", "positions"}
# What the book names, with the letters of its last axes.
ARRAYS = {
    **{"Q": "L E", "K": "S E", "V": "S Ev", "query": "L E", "key": "S E", "value": "S Ev"},
    **{"x": "L D"},
}
# Letters of code and of the book that say the same in a shape.
SAME = {"m": "L", "n": "S", "d_model": "D", "tau": "H", "τ": "H"}

_ITEM = r"(?:[A-Za-z_τ·*+\-/ 0-9]|\.\.\.|…)+"
_IN_BRACKETS = re.compile(rf"\((?P<items>{_ITEM}(?:,{_ITEM})*),?\)(?=$|[\s:;,.])")
_BARE = re.compile(rf"(?P<items>{_ITEM}(?:,{_ITEM})+)(?=$|[:;])")
_COUNT = re.compile(
    rf"(?P<number>\d+) (?P<word>{'|'.join(sorted(WORDS))})\b|\bwidth (?P<width>\d+)\b"
)
_NAME = re.compile(r"[A-Za-zτ]\w*")


def axis_letters() -> set[str]:
    """Return the letters of the table of axes, the book's symbols for them, and for positions."""
    letters = {
        name for entry in NOTATION["axes"] for name in re.findall(r"`(\w+)`", entry["letter"])
    }
    symbols = {
        formula.replace("\\tau", "tau").replace("{", "").replace("}", "")
        for entry in NOTATION["axes"]
        for formula in formulas(entry["symbol"])
    }
    return letters | symbols | {"τ", "i", "j"}


LETTERS = axis_letters()


@dataclass(frozen=True)
class ShapeComment:
    """What a comment says: its items in order, or the numbers that it counts."""

    line: int
    text: str
    items: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    width: int | None = None

    def unknown_names(self) -> list[str]:
        """Return the names that are no axis."""
        names = [name for item in self.items for name in _NAME.findall(item)]
        return [name for name in names if name not in LETTERS | WORDS]

    def problems(self, shape: tuple[int, ...], sizes: dict[str, int]) -> list[str]:
        """Compare with the shape of a value; ``sizes`` gives and takes the sizes of letters."""
        if not self.items:
            return self._problems_of_counts(shape)
        stated = [item for item in self.items if item not in ("...", "…")]
        is_open = len(stated) < len(self.items)
        if len(shape) < len(stated) or (len(shape) > len(stated) and not is_open):
            return [f"{self.text!r} names {len(stated)} axes, the value has shape {shape}"]
        found = []
        for item, size in zip(stated, shape[len(shape) - len(stated) :], strict=True):
            wanted = _size(item, sizes)
            if wanted is None and _NAME.fullmatch(item):
                sizes[SAME.get(item, item)] = size
            elif wanted not in (None, size):
                found.append(f"{self.text!r}: {item} is {wanted}, the value has shape {shape}")
        return found

    def _problems_of_counts(self, shape: tuple[int, ...]) -> list[str]:
        missing = [number for number in self.counts if number not in shape]
        found = [f"{self.text!r}: no axis of size {n}, shape {shape}" for n in missing]
        if self.width is not None and shape[-1:] != (self.width,):
            found.append(f"{self.text!r}: the value has shape {shape}")
        return found


def _size(item: str, sizes: dict[str, int]) -> int | None:
    """Return the size that an item stands for, None if a letter in it has none yet."""
    names = {SAME.get(name, name) for name in _NAME.findall(item)}
    if not names <= sizes.keys():
        return None
    expression = _NAME.sub(lambda m: f"({sizes[SAME.get(m[0], m[0])]})", item)
    expression = expression.replace("·", "*").strip()
    return eval(re.sub(r"(?<=[\d)]) *(?=\()", "*", expression), {"__builtins__": {}})


def read_comment(text: str, line: int = 1) -> ShapeComment | None:
    """Return what a comment says of a shape, None if it says nothing of the kind."""
    text = text.lstrip("# ").rstrip()
    match = _IN_BRACKETS.match(text) or _BARE.match(text)
    items = tuple(item.strip() for item in match["items"].split(",")) if match else ()
    in_brackets = text.startswith("(")
    is_shape = bool(items) and all(_is_axis(item, in_brackets=in_brackets) for item in items)
    if is_shape and (in_brackets or LETTERS & set(items) or WORDS & set(items)):
        return ShapeComment(line, text, items)
    counts = list(_COUNT.finditer(text))
    if not counts or counts[0].start() > 0:
        return None
    numbers = tuple(int(m["number"]) for m in counts if m["number"])
    widths = [int(m["width"]) for m in counts if m["width"]]
    return ShapeComment(line, text, counts=numbers, width=widths[0] if widths else None)


def _is_axis(item: str, *, in_brackets: bool) -> bool:
    """Tell an axis from the words of a sentence."""
    if item in WORDS or item in ("...", "…"):
        return True
    longest = 7 if in_brackets else 4
    return not re.search(r"\w \w", item) and all(len(n) <= longest for n in _NAME.findall(item))


def shape_comments(source: str) -> list[ShapeComment]:
    """Return the shape comments of Python code that stand behind code, with their lines."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip():
            comment = read_comment(token.string, token.start[0])
            found += [comment] if comment else []
    return found


# --- running a chapter ----------------------------------------------------------------------------

_WATCH = "_value_of_line"


class _Watch(ast.NodeTransformer):
    """Hand the value of every line with a shape comment to a function that looks at it."""

    def __init__(self, lines: set[int]) -> None:
        self.lines, self.watched = lines, set()

    def generic_visit(self, node: ast.AST) -> ast.AST | list[ast.AST]:
        super().generic_visit(node)
        line = getattr(node, "end_lineno", None)
        if not isinstance(node, ast.stmt) or line not in self.lines:
            return node
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            self.watched.add(line)
            return [node, *(_call(line, _as_read(part)) for t in targets for part in _parts(t))]
        if isinstance(node, ast.Return | ast.Expr) and node.value:
            self.watched.add(line)
            node.value = _call(line, node.value).value
        return node


def _parts(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def _as_read(target: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(target), mode="eval").body


def _call(line: int, value: ast.expr) -> ast.Expr:
    watch = ast.Name(_WATCH, ast.Load())
    return ast.Expr(ast.Call(watch, [ast.Constant(line), value], []))


def run(path: Path) -> list[str]:
    """Run a chapter up to its last shape comment; return what is wrong with any of them."""
    cells = [
        (number, plain_python(cell.source), "raises-exception" in tags(cell))
        for number, cell in enumerate(read_notebook(path).cells, start=1)
        if cell.cell_type == "code"
    ]
    with_shapes = [number for number, source, _ in cells if shape_comments(source)]
    last, namespace, found = max(with_shapes, default=0), {"__name__": "__main__"}, []
    with _as_in_a_notebook():
        for number, source, raises in cells:
            if number > last:
                break
            try:
                found += [f"{path.name}, cell {number}: {p}" for p in run_cell(source, namespace)]
            except Exception:
                if not raises:
                    raise
    return found


@contextlib.contextmanager
def _as_in_a_notebook() -> Iterator[None]:
    """Keep what a chapter prints, draws, warns of and sets to itself."""
    folder = Path.cwd()
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
        np.printoptions(),
        mpl.rc_context({"backend": "agg"}),
    ):
        try:
            os.chdir(CHAPTERS)
            yield
        finally:
            os.chdir(folder)
            plt.close("all")


def run_cell(source: str, namespace: dict) -> list[str]:
    """Run one cell in a namespace; return what is wrong with its shape comments."""
    comments = {comment.line: comment for comment in shape_comments(source)}
    tree, problems, sizes, seen = ast.parse(source), [], {}, set()
    watch = _Watch(set(comments))
    tree = ast.fix_missing_locations(watch.visit(tree))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    def look(line: int, value: object) -> object:
        seen.add(line)
        known = {**_sizes_of_names(names, namespace), **sizes}
        problems.extend(comments[line].problems(_shape(value), known))
        sizes.update(known)
        return value

    namespace[_WATCH] = look
    exec(compile(tree, "<cell>", "exec"), namespace)
    for line, comment in comments.items():
        if line not in watch.watched:
            problems.append(f"{comment.text!r} stands on no value")
        elif line not in seen:
            problems.append(f"{comment.text!r} stands on a line that never ran")
    return problems


def _shape(value: object) -> tuple[int, ...]:
    if hasattr(value, "shape"):
        return tuple(value.shape)
    inner = _shape(value[0]) if isinstance(value, list | tuple) and value else ()
    return (len(value), *inner) if isinstance(value, list | tuple) else ()


def _sizes_of_names(names: set[str], namespace: dict) -> dict[str, int]:
    """Return the sizes of letters as the cell's own variables have them."""
    sizes = {}
    for name, letters in ARRAYS.items():
        shape = _shape(namespace.get(name)) if name in names else ()
        last = letters.split()
        if len(shape) >= len(last):
            sizes.update(zip(last, shape[len(shape) - len(last) :], strict=True))
    for letter in LETTERS - {"i", "j"}:
        if letter in names and type(namespace.get(letter)) is int:
            sizes[SAME.get(letter, letter)] = namespace[letter]
    return sizes
