"""Hold NumPy's BLAS to one thread while worker threads of our own share the work.

BLAS splits one matrix product among its threads; an engine that splits its work into tasks does
better with one worker a core, each with products of its own. Both at once is slower than either,
so while workers run BLAS is held to one thread, for the whole process: a call of NumPy on another
thread is slower meanwhile, never wrong. The number of threads it had comes back when the last
caller is done, also after an error.

OpenBLAS, which NumPy's wheels bring, is reached through ctypes, looked up on first use. Without
ctypes, with another BLAS, or without threads (a browser), there is one worker, and BLAS is left
as it is.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np


class _Control(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], None]


_lock = threading.Lock()
_callers: set[object] = set()
_threads_before = 1


def worker_count() -> int:
    """How many workers can run at once: the cores this process may use, if BLAS can be held."""
    if _control() is None:
        return 1
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread; callers may overlap.

    A caller is noted before BLAS is changed, so that an interrupt on the way in is undone.
    """
    global _threads_before
    control = _control()
    if control is None:
        yield
        return
    caller = object()
    try:
        with _lock:
            if not _callers:
                _threads_before = control.get()
            _callers.add(caller)
            if len(_callers) == 1:
                control.set(1)
        yield
    finally:
        with _lock:
            if caller in _callers:
                _callers.remove(caller)
                if not _callers:
                    control.set(_threads_before)


@cache
def _control() -> _Control | None:
    """The two functions of NumPy's own OpenBLAS, or None."""
    try:
        import ctypes
    except ImportError:
        return None
    for path in _libraries():
        try:
            library = ctypes.CDLL(str(path))  # loaded already: this finds it again
        except OSError:
            continue
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                set_ = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and set_ is not None:
                    get.restype, get.argtypes = ctypes.c_int, []
                    set_.restype, set_.argtypes = None, [ctypes.c_int]
                    return _Control(get, set_)
    return None


def _libraries() -> list[Path]:
    """OpenBLAS in NumPy wheels: beside the package on Linux and Windows, inside it on macOS."""
    package = Path(np.__file__).parent
    folders = (package.parent / "numpy.libs", package / ".dylibs")
    return [path for folder in folders for path in sorted(folder.glob("*openblas*"))]
