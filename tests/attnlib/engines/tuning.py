"""Change how the engines cut up their work: every number that only speed should depend on.

An engine keeps such numbers (rows of a block, keys of a tile, scores from which a shortcut pays) as
private whole-number constants of its module. They are looked up here, not listed, so that one that
comes later is varied too. Small values make a call of a few queries go through many tiles, blocks,
groups, strips and threads.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

import attnlib.engines
from tests.kinds import HAS_TORCH, Kind

FAR = 1 << 40  # numbers beyond are positions outside of every array, not sizes
Sizes = dict[str, int]

MODULES = [
    importlib.import_module(f"attnlib.engines.{module.name}")
    for module in pkgutil.iter_modules(attnlib.engines.__path__)
    if HAS_TORCH or "torch" not in module.name
]


def _constants(module: ModuleType) -> Sizes:
    return {
        name: number
        for name, number in vars(module).items()
        if re.fullmatch(r"_[A-Z][A-Z0-9_]*", name) and type(number) is int and 1 < number < FAR
    }


def _of_library(library: str) -> list[ModuleType]:
    other = {"numpy": "torch", "torch": "numpy"}[library]
    return [module for module in MODULES if other not in module.__name__]


USUAL = {
    library: {name: size for module in _of_library(library) for name, size in
              _constants(module).items()}
    for library in ("numpy", "torch")
}  # fmt: skip
"""The sizes of each engine as they stand, by name."""


def all_sizes(library: str, size: int) -> Sizes:
    """Return the same size for everything."""
    return dict.fromkeys(USUAL[library], size)


def drawn_sizes(library: str) -> st.SearchStrategy[Sizes]:
    """Draw each size of an engine: mostly small, sometimes the usual one."""
    return st.fixed_dictionaries(
        {
            name: st.sampled_from(sorted({1, 2, 3, 5, 8, 21, usual}))
            for name, usual in USUAL[library].items()
        }
    )


@contextmanager
def tuned(kind: Kind, sizes: Sizes | None = None, *, workers: int | None = None) -> Iterator[None]:
    """Let the engine for arrays of `kind` work with these sizes, and with so many threads."""
    changes: dict[str, Any] = dict(sizes or {})
    if workers is not None:
        changes["worker_count"] = lambda: workers
    modules = _of_library(kind.library)
    before = [
        {name: vars(module)[name] for name in changes if name in vars(module)} for module in modules
    ]
    assert kind.library == "torch" or changes.keys() == {n for names in before for n in names}
    try:
        for module, names in zip(modules, before, strict=True):
            _set(module, {name: changes[name] for name in names})
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            _set(module, names)


def _set(module: ModuleType, values: dict[str, Any]) -> None:
    vars(module).update(values)
    for function in vars(module).values():  # what was made for other sizes
        if values and hasattr(function, "cache_clear"):
            function.cache_clear()
