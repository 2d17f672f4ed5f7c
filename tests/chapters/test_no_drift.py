"""What the chapters say of the library is so: its code, its calls, and the links both ways.

A docstring names the section that derives its function, ``Chapter 1, *Softmax*``. At its end that
chapter lists the function, with a link to its description and to its tests.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import textwrap

import pytest

from attnlib.teaching import notebook
from tests.attnlib.test_package import PUBLIC_MODULES, defined_in, look_up
from tests.chapters.documents import CHAPTERS, NOTEBOOKS, ROOT, plain_python, read_notebook
from tests.chapters.links import headings, links, markdown
from tests.chapters.notebook_rules import ADDRESS

# Where a chapter defines a function that the library has too, but another way, and why.
OTHERWISE: dict[tuple[str, str], str] = {}

MODULES = [f"attnlib.{name}" for name in (*PUBLIC_MODULES, "positions")]
TESTS = f"{ADDRESS}/blob/main/"


def public():
    """Return what the public modules define by dotted name; results with names aside."""
    return {
        f"{module}.{name}": member
        for module in MODULES
        for name, member in defined_in(importlib.import_module(module)).items()
        if not hasattr(member, "_fields")
    }


PUBLIC = public()
BY_NAME = {dotted.rpartition(".")[2]: member for dotted, member in PUBLIC.items()}


def code_cells(path):
    cells = enumerate(read_notebook(path).cells, start=1)
    return [(n, cell, plain_python(cell.source)) for n, cell in cells if cell.cell_type == "code"]


# --- code that is shown ---------------------------------------------------------------------------


def shown_functions(path):
    """Return what a chapter shows with `show_source`: number of the cell, function, output."""
    found = []
    for number, cell, source in code_cells(path):
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("show_source"):
                name = ast.unparse(call.args[0]).rpartition(".")[2]
                outputs = [o.data.get("text/markdown", "") for o in cell.outputs if "data" in o]
                found.append((number, name, outputs))
    return found


def bare(function):
    """Return a function as comparable text: no docstring, no annotations, no comments."""
    function = ast.parse(ast.unparse(function)).body[0]
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(function)


def definitions(source):
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]


def differing_copies(path):
    """Return the definitions of a chapter that bear a public name and are not the library's."""
    sources = [(f"cell {number}", source) for number, _, source in code_cells(path)]
    for number, cell in enumerate(read_notebook(path).cells, start=1):
        fences = re.findall(r"^```python\n(.*?)^```", cell.source, re.M | re.S)
        sources += [(f"cell {number}", code) for code in fences if cell.cell_type == "markdown"]
    for place, source in sources:
        for node in definitions(source):
            library = BY_NAME.get(node.name)
            if library is None or (path.name, node.name) in OTHERWISE:
                continue
            (own,) = ast.parse(textwrap.dedent(inspect.getsource(library))).body
            if bare(node) != bare(own):
                yield f"{place}: {node.name} is not the library's"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_code_shown_as_the_library_s_is_the_library_s(path):
    for number, name, outputs in shown_functions(path):
        code = notebook.source_without_docstring(BY_NAME[name])
        assert outputs == [f"```python\n{code}\n```"], f"cell {number} shows an old {name}"


def test_chapters_show_code_of_the_library():
    assert sum(len(shown_functions(path)) for path in NOTEBOOKS) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_definition_with_the_name_of_a_library_function_is_its_definition(path):
    assert list(differing_copies(path)) == []


def test_exceptions_are_still_there():
    defined = {
        (path.name, node.name)
        for path in NOTEBOOKS
        for _, _, source in code_cells(path)
        for node in definitions(source)
    }
    assert set(OTHERWISE) <= defined
    assert all(reason.strip() for reason in OTHERWISE.values())


def test_a_copy_is_compared_without_its_docstring_and_annotations():
    shown = 'def f(x: int, *, y=1) -> int:\n    """Doc."""\n    return x + y  # so\n'
    copy, other = "def f(x, *, y=1):\n    return x + y", "def f(x, *, y=1):\n    return x - y"
    first, second, third = (ast.parse(one).body[0] for one in (shown, copy, other))
    assert bare(first) == bare(second) != bare(third)


# --- calls in the text ----------------------------------------------------------------------------


def wrong_calls(text):
    """Return the calls in a text's inline code that the library would refuse."""
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text):
        match = re.fullmatch(r"(?:attnlib\.)?(?:\w+\.)*(?P<name>\w+)\((?P<given>.*)\)", code)
        called = BY_NAME.get(match["name"]) if match else None
        if called is None or not match["given"]:
            continue
        try:
            call = ast.parse(code.replace("…", "..."), mode="eval").body
        except SyntaxError:
            continue
        parameters = inspect.signature(called).parameters.values()
        names = {p.name for p in parameters}
        places = [p for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD]
        unknown = {keyword.arg for keyword in call.keywords} - names
        if unknown or len(call.args) > len(places):
            yield code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_calls_that_the_text_quotes_fit_the_signature(path):
    assert [code for _, text in markdown(path) for code in wrong_calls(text)] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_names_of_the_library_that_the_text_quotes_exist(path):
    text = "\n".join(text for _, text in markdown(path))
    quoted = set(re.findall(r"`(attnlib(?:\.\w+)+)", text))
    assert [name for name in quoted if pydoc.locate(name) is None] == []


def test_a_call_that_does_not_fit_is_found():
    assert list(wrong_calls("say `causal_mask(L, S, shift=2)`")) == ["causal_mask(L, S, shift=2)"]
    assert list(wrong_calls("`attnlib.causal_mask(1, 2, 3)`")) == ["attnlib.causal_mask(1, 2, 3)"]
    assert list(wrong_calls("`causal_mask(1, 3, offset=2)` and `KVCache()`, `head(j)`")) == []


# --- links ----------------------------------------------------------------------------------------

SECTION = re.compile(r"Chapter\s+(\d+),\s+\*([^*]+)\*")


def sections(member):
    """Return the sections that a docstring names: number of the chapter, title."""
    text = " ".join(inspect.getdoc(member).split())
    return [(int(number), title) for number, title in SECTION.findall(text)]


def chapter(number):
    (path,) = CHAPTERS.glob(f"{number:02}_*.ipynb")
    return path


def documented_names():
    """Return the name that each function has on the API page."""
    page = (CHAPTERS / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"^\.\. auto(?:function|class):: +attnlib\.([\w.]+)", page, re.M)
    for name in names:
        importlib.import_module(f"attnlib.{name}".rpartition(".")[0])
    package = importlib.import_module("attnlib")
    return {look_up(package, name): f"attnlib.{name}" for name in names}


ROW = re.compile(
    r"^\| \[`(?P<name>\w+)`\]\(api\.md#(?P<anchor>[\w.]+)\) "
    r"\| \[(?P<file>[\w.]+)\]\((?P<test>[^()]+)\) \|$",
    re.MULTILINE,
)


def listed(path):
    """Return the functions that a chapter lists at its end: anchor on the API page, test."""
    _, text = markdown(path)[-1]
    rows = list(ROW.finditer(text))
    assert all(m["anchor"].endswith(f".{m['name']}") for m in rows)
    assert all(m["test"].endswith(f"/{m['file']}") for m in rows)
    return {m["anchor"]: m["test"] for m in rows}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_docstring_names_the_section_that_derives_its_function(name):
    named = sections(PUBLIC[name])
    assert named, "write Chapter N, *Title of the section*"
    for number, title in named:
        assert title in headings(chapter(number)).values(), f"Chapter {number} has no {title!r}"


def test_every_section_that_the_library_names_exists():
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "attnlib").rglob("*.py"))
    named = {(int(number), " ".join(title.split())) for number, title in SECTION.findall(text)}
    assert [one for one in named if one[1] not in headings(chapter(one[0])).values()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_chapter_lists_the_functions_that_name_it(path):
    names = documented_names()
    number = int(path.name[:2])
    derived = {names[m] for m in PUBLIC.values() if number in {n for n, _ in sections(m)}}
    assert set(listed(path)) == derived


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_chapter_leads_to_a_test_of_each_function(path):
    for anchor, test in listed(path).items():
        assert test.startswith(TESTS + "tests/")
        file = ROOT / test.removeprefix(TESTS)
        assert file.is_file(), test
        assert anchor.rpartition(".")[2] in file.read_text(encoding="utf-8"), test


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_links_to_the_project_s_files_lead_somewhere(path):
    here = [one.target for one in links(path) if one.target.startswith(ADDRESS)]
    files = [target.removeprefix(TESTS) for target in here if target.startswith(TESTS)]
    assert [file for file in files if not (ROOT / file.partition("#")[0]).exists()] == []
