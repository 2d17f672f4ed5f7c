"""One table makes the notation page, and every symbol and every stated shape agrees with it."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.chapters.documents import (
    CHAPTERS,
    NOTEBOOKS,
    ROOT,
    Passage,
    plain_python,
    read_notebook,
    typed_passages,
)
from tests.chapters.shape_comments import (
    LETTERS,
    read_comment,
    run,
    run_cell,
    shape_comments,
)
from tests.chapters.symbols import (
    LOCAL,
    NOTATION,
    Page,
    book_wide_names,
    docstring_formulas,
    formulas,
    names_defined_by,
    symbols,
)
from web.tools.notation import PAGE, with_tables

DOCUMENTS = [*NOTEBOOKS, *sorted(CHAPTERS.glob("*.md"))]
LIBRARY = sorted((ROOT / "attnlib").rglob("*.py"))
BOOK = book_wide_names()
AXES = {name for entry in NOTATION["axes"] for name in re.findall(r"`(\w+)`", entry["letter"])}


def module_name(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    named = [(getattr(node, "name", "module"), ast.get_docstring(node)) for node in nodes]
    return [Passage(name, text) for name, text in named if text]


@functools.cache
def code_cells(path):
    cells = enumerate(read_notebook(path).cells, start=1)
    return [(n, plain_python(cell.source)) for n, cell in cells if cell.cell_type == "code"]


@functools.cache
def names_in_code():
    """Return every name that stands in a chapter's code or in the library."""
    code = [source for path in NOTEBOOKS for _, source in code_cells(path)]
    code += [path.read_text(encoding="utf-8") for path in LIBRARY]
    return {name for source in code for name in re.findall(r"[A-Za-z_]\w*", source)}


class TestPage:
    def test_is_what_the_table_makes(self):
        stored = PAGE.read_text(encoding="utf-8")
        assert stored == with_tables(stored, NOTATION), "run: python web/tools/notation.py"

    def test_follows_a_change_of_the_table(self):
        entry = {**NOTATION["symbols"][0], "meaning": "something else"}
        changed = {**NOTATION, "symbols": [entry, *NOTATION["symbols"][1:]]}
        stored = PAGE.read_text(encoding="utf-8")
        assert with_tables(stored, changed) != stored

    def test_without_its_marks_is_refused(self):
        with pytest.raises(ValueError, match="'symbols'"):
            with_tables("# Notation\n", NOTATION)


class TestTable:
    def test_defines_no_symbol_twice(self):
        names = [
            name for entry in NOTATION["symbols"] for name in names_defined_by(entry["symbol"])
        ]
        assert sorted(names) == sorted(set(names))

    @pytest.mark.parametrize("entry", NOTATION["symbols"], ids=lambda entry: entry["symbol"])
    def test_measures_shapes_in_symbols_that_it_defines(self, entry):
        page = Page("shape", [Passage("shape", entry["shape"])])
        assert page.problems(BOOK, {}) == []

    @pytest.mark.parametrize("entry", NOTATION["symbols"], ids=lambda entry: entry["symbol"])
    def test_names_code_that_exists(self, entry):
        shown = re.findall(r"`([^`]+)`", entry["code"])
        names = {name for one in shown for name in re.findall(r"[A-Za-z_]\w*", one)}
        assert names
        assert names <= names_in_code()

    def test_has_no_row_that_no_chapter_uses(self):
        pages = [Page(path.name, typed_passages(path)) for path in DOCUMENTS if path != PAGE]
        used = set().union(*(page.used(BOOK) for page in pages))
        rows = [names_defined_by(entry["symbol"]) for entry in NOTATION["symbols"]]
        assert [row for row in rows if row and not row & used] == []


class TestSymbols:
    @pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
    def test_of_a_page_are_defined_there_or_in_the_table(self, path):
        page = Page(path.name, typed_passages(path))
        problems = page.problems(BOOK, LOCAL.get(path.name, {}))
        assert not problems, "\n".join(problems)

    @pytest.mark.parametrize("path", LIBRARY, ids=module_name)
    def test_of_docstrings_are_defined_there_or_in_the_table(self, path):
        page = Page(module_name(path), docstrings(path), docstring_formulas)
        problems = page.problems(BOOK | AXES, LOCAL.get(page.name, {}))
        assert not problems, "\n".join(problems)

    def test_lists_belong_to_pages_that_exist(self):
        assert set(LOCAL) <= {path.name for path in DOCUMENTS} | set(map(module_name, LIBRARY))


def problems_of(*texts, local=None):
    passages = [Passage(f"cell {n}", text) for n, text in enumerate(texts, start=1)]
    return Page("page", passages).problems(BOOK, local or {})


class TestTheCheckerOfSymbols:
    @pytest.mark.parametrize(
        "formula",
        [
            r"q_2 \cdot k_{j} / \sqrt{d_h}",
            r"\alpha_{2,0} + \alpha_{i, j+1} + \alpha_i",
            r"K_{\leq 2}^{[1]} = (H W_k^{[1]})_{\le 2}",
            r"m^2 d, \; e^{s_0 - s_1}, \; 10^{-6}",
            r"W^{head} \in \mathbb{R}^{\tau d_h \times d}",
            r"\begin{array}{lr} q'_0 & \text{some words} \mathrm{head}_\tau \end{array} \tag{1.1}",
            r"Q K^\top",
        ],
    )
    def test_knows_what_the_table_defines(self, formula):
        assert problems_of(f"so ${formula}$ is") == []

    @pytest.mark.parametrize(
        ("formula", "symbol"),
        [
            (r"q_2 \cdot y", "y"),
            ("d_g", "d_g"),
            (r"\sqrt{d_k}", "d_k"),
            (r"\beta_{i,j}", r"\beta_{i,j}"),
            (r"\alpha_{i,j,l}", r"\alpha_{i,j,l}"),
            ("q_l", "l"),
            ("m^r", "r"),
            ("W^O", "O"),
            ("V'", "V'"),
            (r"\mathrm{Attention}(Q)", r"\mathrm{Attention}"),
            (r"Q \otimes K", r"\otimes"),
            (r"K_{< r}", r"K_{<r}"),
        ],
    )
    def test_names_what_nobody_defined(self, formula, symbol):
        assert any(f"cell 1: ${symbol}$" in problem for problem in problems_of(f"so ${formula}$"))

    def test_reads_display_formulas_and_quotes_and_no_code(self):
        assert len(problems_of("> so\n>\n> $$\n> y\n> $$")) == 1
        assert problems_of("`$y$`, ``$y$`` and\n\n```\n$y$\n```\n") == []

    def test_lets_a_page_define_its_own(self):
        assert problems_of("Let $y$ be 2.", "So $y$.", local={"y": "Let $y$ be"}) == []
        assert problems_of("Let $dQ$ be 2.", local={"dQ": "Let $dQ$ be"}) == []
        assert problems_of("Let $y_i$ and $y_2$", local={"y_i": "Let $y_i$"}) == []

    @pytest.mark.parametrize(
        ("texts", "phrase", "problem"),
        [
            (("So $y$.", "Let $y$ be 2."), "Let $y$ be", "used before"),
            (("So $y$.",), "Let $y$ be", "stands nowhere"),
            (("Let it be 2.",), "Let it be", "not used"),
        ],
    )
    def test_refuses_a_list_that_does_not_fit_the_page(self, texts, phrase, problem):
        (found,) = problems_of(*texts, local={"y": phrase})
        assert problem in found

    def test_refuses_a_second_meaning_for_a_symbol_of_the_book(self):
        (found,) = problems_of("Let $m$ be 2.", local={"m": "Let $m$ be"})
        assert "in the book's table already" in found

    def test_reads_the_formulas_of_docstrings(self):
        text = "Say :math:`y`.\n\n.. math:: a\n\n.. math::\n\n   b\n   c\n\nParameters\n"
        found = [symbol.base for one in docstring_formulas(text) for symbol in symbols(one)]
        assert found == ["y", "a", "b", "c"]

    def test_finds_every_formula_of_a_text(self):
        assert formulas("$a$, $b$\n\n$$ c \\tag{1.1} $$") == ["a", "b", " c \\tag{1.1} "]


DOCSTRING_SHAPE = re.compile(r"\bshapes? (?:``)?\((?!\w+ \w)(?P<items>[^()]*)\)")


class TestShapes:
    @pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
    def test_in_comments_are_written_in_the_alphabet(self, path):
        unknown = [
            f"cell {number}: {comment.text!r} names {', '.join(comment.unknown_names())}"
            for number, source in code_cells(path)
            for comment in shape_comments(source)
            if comment.unknown_names()
        ]
        assert not unknown, "\n".join(unknown)

    @pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
    def test_in_comments_are_those_of_the_values(self, path):
        problems = run(path)
        assert not problems, "\n".join(problems)

    @pytest.mark.parametrize("path", LIBRARY, ids=module_name)
    def test_in_comments_of_the_library_are_written_in_the_alphabet(self, path):
        comments = shape_comments(path.read_text(encoding="utf-8"))
        assert [c.text for c in comments if c.unknown_names()] == []

    @pytest.mark.parametrize("path", LIBRARY, ids=module_name)
    def test_in_docstrings_are_written_in_the_alphabet(self, path):
        stated = [m for one in docstrings(path) for m in DOCSTRING_SHAPE.finditer(one.text)]
        named = {name for m in stated for name in re.findall(r"(?<!\*)\b[A-Za-z]\w*", m["items"])}
        assert named <= LETTERS | {"m"}, "letters of the axes stand in chapters/notation.toml"


class TestTheReaderOfShapeComments:
    @pytest.mark.parametrize(
        ("comment", "items"),
        [
            ("# (m, d_h)", ("m", "d_h")),
            ("# (m, d_h): one row a query", ("m", "d_h")),
            ("# B, Hq, L, E", ("B", "Hq", "L", "E")),
            ("# (..., L, H·E)", ("...", "L", "H·E")),
            ("# tokens, heads, features", ("tokens", "heads", "features")),
            ("# (i + 1, d)", ("i + 1", "d")),
            ("# (3,)", ("3",)),
        ],
    )
    def test_finds_a_shape(self, comment, items):
        assert read_comment(comment).items == items

    def test_finds_numbers_of_things(self):
        comment = read_comment("# 7 tokens, width 5")
        assert (comment.counts, comment.width) == ((7,), 5)

    @pytest.mark.parametrize(
        "comment",
        [
            "# head 1, a query a row",
            "# why not",
            "# (a title)",
            "# W_q, W_k and W_v",
            "# w_q, w_k, w_v, w_o",
            "# i - j",
            "# so, as before, the rows sum to one",
            "# the last 7 tokens",
        ],
    )
    def test_leaves_other_comments_alone(self, comment):
        assert read_comment(comment) is None

    def test_reads_only_what_stands_behind_code(self):
        assert shape_comments("# (L, E)\nx = 1\n") == []
        assert [c.line for c in shape_comments("x = 1\ny = 2  # (L, E)\n")] == [2]

    @pytest.mark.parametrize("comment", ["# (N, E)", "# (seq, D)", "# batch, time, D"])
    def test_names_a_letter_that_is_no_axis(self, comment):
        shape = read_comment(comment)
        assert shape.unknown_names()


SETUP = "import numpy as np\nQ, K = np.ones((5, 3)), np.ones((7, 3))\nL = 5\n"


class TestTheRunOfShapeComments:
    @pytest.mark.parametrize(
        "line",
        [
            "scores = Q @ K.T  # (L, S)",
            "scores = Q @ K.T  # (m, n)",
            "scores = Q @ K.T  # queries, keys",
            "a, b = np.ones((2, L, 6))  # (L, 6)",
            "x = np.ones((2, L, 6))  # (..., L, D)",
            "x = np.ones((2, 4, 6))  # 4 tokens, width 6",
            "x = np.ones((6, 9))  # (6, 3·E)",
            "def f(q):\n    return q @ K.T  # (L, S)\n\nf(Q)",
            "rows = [Q[0], Q[1]]  # (2, E)",
            "Q @ K.T  # (L, S)",
        ],
    )
    def test_passes_a_shape_that_is_right(self, line):
        assert run_cell(SETUP + line, {}) == []

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("scores = Q @ K.T  # (S, L)", "S is 7"),
            ("scores = Q @ K.T  # (n, m)", "n is 7"),
            ("scores = Q @ K.T  # (B, L, S)", "names 3 axes"),
            ("scores = Q @ K.T  # (L, 8)", "8 is 8"),
            ("a = np.ones((2, 4))  # (B, D)\nb = np.ones((3, 4))  # (B, D)", "B is 2"),
            ("x = np.ones((4, 6))  # 5 tokens, width 6", "no axis of size 5"),
            ("x = np.ones((4, 6))  # 4 tokens, width 4", "'4 tokens, width 4'"),
            ("x = np.ones((6, 9))  # (6, 2·E)", "2·E is 6"),
            ("def f(q):\n    return q @ K.T  # (S, L)\n\nf(Q)", "S is 7"),
            ("def f(q):\n    return q @ K.T  # (L, S)", "never ran"),
            ("if L:  # (L, S)\n    pass", "stands on no value"),
        ],
    )
    def test_names_a_shape_that_is_wrong(self, line, problem):
        (found, *_) = run_cell(SETUP + line, {})
        assert problem in found

    def test_leaves_the_values_as_they_are(self):
        namespace = {}
        run_cell("x = 1\ndef f():\n    return [1, 2]  # (2,)\n\ny = f()", namespace)
        assert namespace["y"] == [1, 2]
