"""What each trick of the NumPy engine buys: the engine as it is, against itself without the trick.

A trick is switched off by replacing a private name of ``attnlib.engines.numpy_tiled`` while the
call runs. The results stay equal, which a test holds, so that only time is compared.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks import calls
from benchmarks.calls import Inputs, Sizes
from benchmarks.rows import Group, Row


def _group(
    name: str,
    work: str,
    changes: Mapping[str, Any],
    sizes: tuple[Sizes, ...],
    make: Callable[[Sizes], Inputs] = calls.dense,
    **more: Any,
) -> Group:
    without = partial(calls.library_without, changes=changes)
    rows = tuple(Row(str(s), s, make, calls.library, without) for s in sizes)
    return Group(name, work, "the engine without it", rows, **more)


def _never(*_: Any) -> bool:
    return False


_short, _middle, _long = (
    Sizes((16, 12), 128, 64),
    Sizes((1, 8), 1024, 64),
    Sizes((1, 8), 4096, 64),
)

GROUPS = (
    _group(
        "tiles",
        "tiles that stay in the cache, not one matrix of scores",
        {"_WHOLE": 1 << 62},
        (_middle, _long),
    ),
    _group(
        "bound",
        "a bound on the scores, so that no maximum is needed",
        {"_is_bounded": _never},
        (_middle, _long),
    ),
    _group(
        "staircase",
        "narrow tiles down the causal diagonal",
        {"_STAIR": 1 << 62},
        (_middle,),
        calls.causal,
    ),
    _group(
        "whole",
        "tiny inputs in one piece",
        {"_WHOLE": 0},
        (Sizes((), 16, 16), Sizes((1, 4), 64, 64)),
    ),
    _group(
        "workers",
        "two workers",
        {"worker_count": lambda: 1},
        (_middle, _long),
        measured="wall",
    ),
)
