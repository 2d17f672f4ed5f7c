"""The tests themselves: each one asserts, is named after what it holds, and hides no failure."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(TESTS.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef

# Calls that assert: pytest's contexts, NumPy's and PyTorch's own checks, and helpers check_….
ASSERTING = re.compile(r"^(raises|warns|fail|assert_\w+|check_\w+)$")


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def called_names(node: ast.AST) -> Iterator[str]:
    """Return the last name of everything that is called inside `node`: a.b.c() is c."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            function = call.func
            if isinstance(function, ast.Attribute):
                yield function.attr
            elif isinstance(function, ast.Name):
                yield function.id


def asserts(function: Function) -> bool:
    """Tell whether a function asserts, itself or through a call that does."""
    by_itself = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return by_itself or any(ASSERTING.match(name) for name in called_names(function))


@functools.cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file))


each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))


@each_file
def test_every_test_asserts(file):
    tests = [f for f in functions(parsed(file)) if f.name.startswith("test_")]
    assert [test.name for test in tests if not asserts(test)] == []


@each_file
def test_every_check_helper_asserts(file):
    helpers = [f for f in functions(parsed(file)) if f.name.startswith("check_")]
    assert [helper.name for helper in helpers if not asserts(helper)] == []


@each_file
def test_names_state_a_fact_and_carry_no_number(file):
    tests = [f.name for f in functions(parsed(file)) if f.name.startswith("test_")]
    assert [name for name in tests if re.search(r"_\d+$", name) or name.count("_") < 3] == []
    for scope in ast.walk(parsed(file)):
        if isinstance(scope, ast.Module | ast.ClassDef):
            own = [node.name for node in scope.body if isinstance(node, Function)]
            own = [name for name in own if name.startswith("test_")]
            assert len(own) == len(set(own)), "the later of two tests of one name hides the earlier"


@each_file
def test_nothing_is_expected_to_fail_and_every_skip_has_its_reason(file):
    for node in ast.walk(parsed(file)):
        name = getattr(node, "attr", None)
        assert name != "xfail"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = {keyword.arg for keyword in node.keywords}
            if node.func.attr in ("skipif", "importorskip"):
                assert "reason" in given, f"line {node.lineno}"
            if node.func.attr == "skip":
                assert node.args or "reason" in given, f"line {node.lineno}"


def test_the_reference_stands_on_its_own():
    """The oracle imports no code under test, and leaves no computation to a library."""
    tree = parsed(TESTS / "reference.py")
    modules = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert modules == {"__future__", "math", "collections.abc", "typing", "numpy"}
    assert not any(isinstance(node, ast.MatMult) for node in ast.walk(tree))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "np"
    }
    assert used <= {
        "asarray",
        "ndarray",
        "zeros",
        "ndindex",
        "broadcast_shapes",
        "float64",
        "bool_",
    }


def test_a_test_without_an_assertion_would_be_found():
    source = "def test_of_nothing_at_all():\n    compute(1)\n"
    assert not asserts(ast.parse(source).body[0])
    for line in ("assert compute(1)", "check_close(1, 2)", "np.testing.assert_allclose(1, 1)"):
        assert asserts(ast.parse(source + "    " + line).body[0])


def test_every_module_of_attnlib_has_a_file_of_tests():
    """`functional.py` has several, by subject."""
    modules = {file.stem for file in (TESTS.parent / "attnlib").glob("*.py")}
    wanted = {name for name in modules if not name.startswith("_")}
    found = {file.stem.removeprefix("test_") for file in (TESTS / "attnlib").glob("test_*.py")}
    missing = {name for name in wanted if not any(f.startswith(name) for f in found)}
    assert missing == set()
