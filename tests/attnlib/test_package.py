"""The package as a whole: public names, signatures, docstrings, imports, length of functions."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType

import numpydoc.validate
import pytest

import attnlib
from tests.kinds import HAS_TORCH, needs_torch

PUBLIC = {
    *("softmax", "attention_steps", "single_query_attention"),
    *("causal_attention", "causal_attention_at", "dense_attention", "multi_head_attention"),
    *("attention_gradients", "scaled_dot_product_attention", "MultiHeadAttention", "KVCache"),
}
CHAPTER_MODULES = ("single_query", "causal", "dense", "multi_head", "positions")
PUBLIC_MODULES = (*CHAPTER_MODULES, "generation", "gradients", "functional", *["nn"] * HAS_TORCH)
FOLDER = Path(attnlib.__file__).parent


def module_names() -> list[str]:
    """Return every module of the package that can be imported here."""
    found = pkgutil.walk_packages(attnlib.__path__, "attnlib.")
    with_torch = {"attnlib.nn", "attnlib.engines.torch_fused"}
    return [m.name for m in found if HAS_TORCH or m.name not in with_torch]


def defined_in(module: ModuleType) -> dict[str, object]:
    """Return the public functions and classes that `module` itself defines."""
    return {
        name: member
        for name, member in vars(module).items()
        if not name.startswith("_")
        and inspect.isroutine(member) | inspect.isclass(member)
        and member.__module__ == module.__name__
    }


def documented() -> list[str]:
    """Return the dotted name of everything that a user may call or read in the public modules."""
    names = []
    for module in PUBLIC_MODULES:
        for name, member in defined_in(importlib.import_module(f"attnlib.{module}")).items():
            if hasattr(member, "_fields"):  # a result with names, described by what returns it
                continue
            names.append(f"attnlib.{module}.{name}")
            if inspect.isclass(member):
                names += [
                    f"attnlib.{module}.{name}.{own}"
                    for own, value in vars(member).items()
                    if (not own.startswith("_") or own == "__call__")
                    and isinstance(value, FunctionType | classmethod | property)
                    and own not in ("forward", "extra_repr")  # torch's hooks
                ]
    return names


class TestPublicNames:
    def test_are_those_of_the_contract(self):
        assert set(attnlib.__all__) == PUBLIC
        assert len(attnlib.__all__) == len(PUBLIC)

    def test_hide_nothing_and_add_nothing(self):
        found = {name for name in vars(attnlib) if not name.startswith("_")}
        submodules = {name for name in found if isinstance(getattr(attnlib, name), ModuleType)}
        assert found - submodules == PUBLIC
        assert {"attnlib." + name for name in submodules} <= set(module_names())

    def test_contents_page_is_short_and_only_lists(self):
        source = (FOLDER / "__init__.py").read_text(encoding="utf-8")
        assert len(source.splitlines()) < 40
        docstring, *rest = ast.parse(source).body
        assert isinstance(docstring, ast.Expr)
        assert all(isinstance(statement, ast.ImportFrom | ast.Assign) for statement in rest)

    def test_modules_of_the_contract_are_there(self):
        names = set(module_names())
        wanted = {
            *PUBLIC_MODULES,
            "engines",
            "engines._validate",
            "engines.numpy_tiled",
            "teaching",
        }
        assert {"attnlib." + name for name in wanted} <= names

    @pytest.mark.parametrize("name", PUBLIC_MODULES)
    def test_modules_have_no_public_name_that_is_only_imported(self, name):
        """What a module offers to `from … import …` by its own name is defined there."""
        module = importlib.import_module(f"attnlib.{name}")
        assert defined_in(module)
        for public in getattr(module, "__all__", []):
            assert public in defined_in(module)


SIGNATURES = {
    "softmax": "(scores, axis=-1)",
    "attention_steps": "(q, K, V, *, scale=None)",
    "single_query_attention": "(q, K, V, *, scale=None)",
    "causal_attention": "(Q, K, V, *, scale=None)",
    "causal_attention_at": "(i, Q, K, V, *, scale=None)",
    "dense_attention": "(Q, K, V, *, scale=None)",
    "multi_head_attention": "(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False)",
    "attention_gradients": (
        "(query, key, value, grad_output, attn_mask=None, *, is_causal=False, causal_offset=0, "
        "scale=None, enable_gqa=False, key_mask=None, window=None, softcap=None)"
    ),
    "scaled_dot_product_attention": (
        "(query, key, value, attn_mask=None, *, is_causal=False, causal_offset=0, scale=None, "
        "enable_gqa=False, key_mask=None, window=None, softcap=None, return_weights=False)"
    ),
    "MultiHeadAttention": (
        "(w_q, w_k, w_v, w_o, num_heads, *, num_kv_heads=None, "
        "b_q=None, b_k=None, b_v=None, b_o=None)"
    ),
    "MultiHeadAttention.__call__": (
        "(self, query, key=None, value=None, *, attn_mask=None, is_causal=False, key_mask=None, "
        "cache=None, return_weights=False)"
    ),
    "MultiHeadAttention.random": ("(d_model, num_heads, *, num_kv_heads=None, bias=False, seed)"),
    "MultiHeadAttention.from_torch": "(module)",
    "MultiHeadAttention.to_torch": "(self)",
    "KVCache": "(max_length=None)",
    "KVCache.append": "(self, k, v)",
    "KVCache.reset": "(self)",
    "KVCache.__len__": "(self)",
}
TORCH_SIGNATURES = {
    "MultiHeadAttention": (
        "(d_model, num_heads, *, num_kv_heads=None, bias=True, device=None, dtype=None)"
    ),
    "MultiHeadAttention.forward": SIGNATURES["MultiHeadAttention.__call__"],
    "MultiHeadAttention.from_torch": "(module)",
    "MultiHeadAttention.to_torch": "(self)",
    "MultiHeadAttention.to_numpy": "(self)",
}


def look_up(owner: object, dotted: str) -> object:
    for part in dotted.split("."):
        owner = getattr(owner, part)
    return owner


def plain_signature(function: object) -> str:
    """Return the parameters without annotations, and without a `**` that only refuses."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return str(inspect.Signature(parameters))


class TestSignatures:
    @pytest.mark.parametrize("name", SIGNATURES)
    def test_are_those_of_the_contract(self, name):
        assert plain_signature(look_up(attnlib, name)) == SIGNATURES[name]

    @needs_torch
    @pytest.mark.parametrize("name", TORCH_SIGNATURES)
    def test_of_the_torch_module_are_those_of_the_contract(self, name):
        module = importlib.import_module("attnlib.nn")
        assert plain_signature(look_up(module, name)) == TORCH_SIGNATURES[name]

    def test_of_one_head_is_that_of_a_call_with_a_number_before_it(self):
        head = plain_signature(attnlib.MultiHeadAttention.head)
        call = SIGNATURES["MultiHeadAttention.__call__"].replace(" cache=None,", "")
        assert head.replace(" cache=None,", "") == call.replace("(self, ", "(self, j, ")

    def test_only_one_function_takes_unknown_names_and_it_refuses_them(self):
        for name in PUBLIC - {"scaled_dot_product_attention"}:
            kinds = {p.kind for p in inspect.signature(getattr(attnlib, name)).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds
            assert inspect.Parameter.VAR_POSITIONAL not in kinds

    def test_a_cache_shows_its_keys_and_values_as_properties(self):
        for name in ("keys", "values"):
            prop = getattr(attnlib.KVCache, name)
            assert isinstance(prop, property)
            assert prop.fset is None

    @needs_torch
    def test_engines_define_the_same_functions_with_the_same_parameters(self):
        engines = [
            importlib.import_module(f"attnlib.engines.{name}")
            for name in ("numpy_tiled", "torch_fused")
        ]
        ours, theirs = (
            {name: plain_signature(function) for name, function in defined_in(engine).items()}
            for engine in engines
        )
        assert ours
        assert ours == theirs

    @pytest.mark.parametrize("name", documented())
    def test_every_parameter_and_result_has_a_type(self, name):
        function = look_up(attnlib, name.removeprefix("attnlib."))
        if isinstance(function, property):
            function = function.fget
        if inspect.isclass(function):
            function = function.__init__
            if function is object.__init__:
                return
        signature = inspect.signature(function)
        untyped = [
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.annotation is parameter.empty and parameter.name not in ("self", "cls")
        ]
        assert not untyped
        assert signature.return_annotation is not signature.empty


# The checks of numpydoc that this project holds: sections and their order, parameters, results.
CHECKS = {
    *("GL02", "GL03", "GL05", "GL06", "GL07", "GL08", "GL09", "GL10"),
    *("SS01", "SS02", "SS03", "SS04", "SS06"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR07", "PR09", "PR10"),
    *("RT01", "RT03", "RT04", "RT05", "YD01", "SA02", "SA03", "SA04"),
}


class TestDocstrings:
    @pytest.mark.parametrize("name", documented())
    def test_hold_the_checks_of_numpydoc(self, name):
        result = numpydoc.validate.validate(name)
        checks = CHECKS - ({"PR04"} if "As in " in result["docstring"] else set())
        errors = [f"{code}: {text}" for code, text in result["errors"] if code in checks]
        assert [error for error in errors if "{'**unsupported'}" not in error] == []

    @pytest.mark.parametrize("name", sorted(PUBLIC))
    def test_start_with_the_equation(self, name):
        docstring = inspect.getdoc(getattr(attnlib, name))
        before_parameters, found, _ = docstring.partition("\nParameters\n---")
        assert found
        assert ".. math::" in before_parameters

    @pytest.mark.parametrize("name", sorted(PUBLIC))
    def test_have_an_example_errors_and_the_chapter(self, name):
        docstring = inspect.getdoc(getattr(attnlib, name))
        assert "\nRaises\n------\n" in docstring
        assert "\nExamples\n--------\n" in docstring
        assert ">>> " in docstring
        assert re.search(r"Chapter \d+, \*", docstring)  # the section that derives it

    @pytest.mark.parametrize(
        "name", ["scaled_dot_product_attention", "MultiHeadAttention.__call__"]
    )
    def test_say_what_true_means_and_what_an_empty_row_gives(self, name):
        docstring = " ".join(inspect.getdoc(look_up(attnlib, name)).split())
        assert "True = may attend" in docstring
        assert "True = real token" in docstring
        assert re.search(r"nothing", docstring)
        assert re.search(r"zero|output bias", docstring)

    def test_of_the_function_says_where_it_follows_pytorch(self):
        docstring = " ".join(inspect.getdoc(attnlib.scaled_dot_product_attention).split())
        assert re.search(r"attn_mask` alone .* as in PyTorch", docstring)

    @pytest.mark.parametrize("name", [n for n in module_names() if ".teaching" not in n])
    def test_examples_run_and_give_what_they_show(self, name):
        runner = doctest.DocTestRunner(verbose=False)
        for examples in doctest.DocTestFinder().find(importlib.import_module(name)):
            if HAS_TORCH or not any("torch" in example.source for example in examples.examples):
                runner.run(examples)
        assert runner.failures == 0

    def test_every_module_says_what_it_is_for(self):
        for name in ("attnlib", *module_names()):
            assert inspect.getdoc(importlib.import_module(name)), name


def code_lines(function: ast.FunctionDef, source: str) -> int:
    """Return how many lines of a function hold code: not blank, no comment, no docstring."""
    docstring = function.body[0]
    has_docstring = isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
    skipped = set(range(docstring.lineno, docstring.end_lineno + 1)) if has_docstring else set()
    lines = source.splitlines()
    signature_end = function.body[0].lineno - 1  # a signature over several lines counts as one
    return 1 + sum(
        1
        for number in range(signature_end + 1, function.end_lineno + 1)
        if number not in skipped and lines[number - 1].split("#")[0].strip()
    )


class TestChapterModules:
    @pytest.mark.parametrize("name", CHAPTER_MODULES)
    def test_functions_are_short_enough_to_print(self, name):
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
        assert functions
        too_long = {f.name: code_lines(f, source) for f in functions if code_lines(f, source) > 15}
        assert too_long == {}

    @pytest.mark.parametrize("name", CHAPTER_MODULES)
    def test_do_not_touch_torch(self, name):
        tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        top_level = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        imported = {alias.name for node in top_level for alias in node.names}
        assert not any(imported_name.startswith("torch") for imported_name in imported)

    def test_lines_are_counted_without_docstring_comments_and_blanks(self):
        source = textwrap.dedent('''\
            def function(
                a,
                b,
            ):
                """One line.

                Another.
                """
                # why
                total = a + b

                return total  # so
            ''')
        assert code_lines(ast.parse(source).body[0], source) == 3


USE_EVERYTHING = """
import numpy as np
x, w = np.ones((2, 5, 12)), np.ones((12, 12))
attnlib.softmax([1, 2])
attnlib.attention_steps([1, 2], [[1, 0], [3, 2]], [[1], [2]])
attnlib.single_query_attention([1, 2], [[1, 0], [3, 2]], [[1], [2]])
attnlib.causal_attention(x[0], x[0], x[0])
attnlib.causal_attention_at(3, x[0], x[0], x[0])
attnlib.dense_attention(x[0], x[0], x[0])
attnlib.multi_head_attention(x, w, w, w, w, 6, is_causal=True)
attnlib.scaled_dot_product_attention(x, x, x, is_causal=True, key_mask=np.arange(5) < 4)
attnlib.scaled_dot_product_attention(x, x, x, window=(1, 1), softcap=2.0, return_weights=True)
attnlib.attention_gradients(x, x, x, x, np.tri(5, dtype=bool))
cache = attnlib.KVCache()
attnlib.MultiHeadAttention.random(12, 6, seed=1)(x, is_causal=True, cache=cache)
assert len(cache) == 5
"""


def run_python(code: str, *flags: str) -> subprocess.CompletedProcess:
    """Run `code` in a fresh interpreter that finds this checkout's attnlib."""
    return subprocess.run(
        [sys.executable, "-W", "error", *flags, "-c", code],
        cwd=FOLDER.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class TestImports:
    """Each in a fresh process, as this one has imported everything."""

    def test_importing_imports_neither_torch_nor_matplotlib(self):
        done = run_python("import sys, attnlib; print({'torch', 'matplotlib'} & {*sys.modules})")
        assert (done.stdout.strip(), done.stderr) == ("set()", "")

    def test_using_everything_on_numpy_imports_neither(self):
        code = "import sys, attnlib" + USE_EVERYTHING
        done = run_python(code + "print({'torch', 'matplotlib', 'threadpoolctl'} & {*sys.modules})")
        assert (done.stdout.strip(), done.stderr) == ("set()", "")

    @pytest.mark.parametrize("missing", ["torch", "matplotlib", "ctypes"])
    def test_everything_on_numpy_works_where_it_is_missing(self, missing):
        code = f"import sys; sys.modules[{missing!r}] = None; import attnlib" + USE_EVERYTHING
        done = run_python(code)
        assert (done.returncode, done.stderr) == (0, "")

    def test_torch_module_says_what_is_missing(self):
        done = run_python("import sys; sys.modules['torch'] = None; import attnlib.nn")
        assert done.returncode == 1
        assert re.search(r"(ImportError|ModuleNotFoundError): .*torch", done.stderr)

    def test_works_with_assertions_switched_off(self):
        done = run_python("import attnlib" + USE_EVERYTHING, "-O")
        assert (done.returncode, done.stderr) == (0, "")

    @needs_torch
    def test_torch_tensors_work_when_torch_is_imported_after(self):
        code = (
            "import attnlib, torch; x = torch.ones(2, 5, 4); "
            "print(type(attnlib.scaled_dot_product_attention(x, x, x)).__name__)"
        )
        done = run_python(code)
        assert (done.stdout.strip(), done.stderr) == ("Tensor", "")
