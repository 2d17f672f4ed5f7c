"""What each trick of the NumPy engine buys: the engine as it is, against itself without the trick.

A trick is switched off by replacing a private name of ``attnlib.engines.numpy_tiled`` while the
call runs. The results stay equal, which a test holds, so that only time is compared.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from benchmarks import calls
from benchmarks.calls import Inputs, Sizes
from benchmarks.rows import Group, Row

_TINY = (Sizes((), 16, 16), Sizes((1, 4), 64, 64))
_SHORT = Sizes((16, 12), 128, 64)
_MIDDLE = Sizes((1, 8), 1024, 64)
_LONG = Sizes((1, 8), 4096, 64)


def _group(
    name: str,
    work: str,
    without: Mapping[str, Any],
    sizes: tuple[Sizes, ...],
    make: Callable[[Sizes], Inputs] = calls.dense,
    measured: str = "cpu",
) -> Group:
    theirs = partial(calls.library_without, changes=without)
    rows = tuple(Row(str(s), s, make, calls.library, theirs) for s in sizes)
    return Group(name, work, "the engine without that", rows, measured=measured)


def _never(*_: Any) -> bool:
    return False


def _a_head_at_a_time(call: Any, _: int) -> Any:
    return np.ndindex(call.lead)


def _new_array(scratch: Any, _: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, scratch.dtype)


def _rows_of_keys(scratch: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return scratch.array(name, shape)


GROUPS = (
    _group(
        "tiles",
        "tiles that stay in the cache: no whole matrix of scores",
        {"_WHOLE": 1 << 62},
        (_MIDDLE, _LONG),
    ),
    _group(
        "bound",
        "scores known to be small: no maximum is taken",
        {"_is_bounded": _never},
        (_MIDDLE, _LONG),
    ),
    Group(
        "skipping",
        "causal: tiles that nobody may see are skipped",
        "all pairs",
        tuple(
            Row(
                str(sizes),
                sizes,
                calls.causal,
                calls.library,
                partial(calls.library, is_causal=False),
                None,
            )
            for sizes in (_MIDDLE, _LONG)
        ),
    ),
    _group(
        "staircase",
        "causal: narrow tiles along the diagonal",
        {"_STAIR": 1 << 62},
        (_MIDDLE,),
        calls.causal,
    ),
    _group(
        "columns",
        "scores in memory query by query within a key: statistics run along vectors",
        {"_Scratch.scores": _rows_of_keys},
        (_MIDDLE, _LONG),
    ),
    _group("buffers", "buffers used again", {"_Scratch.array": _new_array}, (_MIDDLE,)),
    _group("heads", "several heads in one product", {"_groups": _a_head_at_a_time}, (_SHORT,)),
    _group("whole", "tiny inputs in one piece", {"_WHOLE": 0}, _TINY),
    _group(
        "workers",
        "two workers, on the clock",
        {"worker_count": lambda: 1},
        (_MIDDLE, _LONG),
        measured="wall",
    ),
    _group(
        "BLAS",
        "BLAS held to one thread in each of them, on the clock",
        {"one_blas_thread": nullcontext},
        (_MIDDLE,),
        measured="wall",
    ),
)
