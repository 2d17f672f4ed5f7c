"""What every chapter function does with its arguments: make float arrays, check the shapes.

Chapters 1 to 4 work on small NumPy arrays that a reader may type as lists.  The engines have
their own door (`attnlib.engines._validate`), which takes torch tensors and batches too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

KEPT_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def float_arrays(**named: tuple[Any, str]) -> list[np.ndarray]:
    """Return the named values as float arrays whose axes agree.

    Each keyword is an argument name, each value a pair ``(array_like, axes)``; ``axes`` names
    the axes in the letters of the notation page, for example ``"S E"``.  The first array that
    has a letter sets its size for all others.  A leading ``...`` stands for batch axes.
    """
    sizes: dict[str, int] = {}
    arrays = []
    for name, (value, axes) in named.items():
        array = float_array(name, value)
        _check_shape(name, array.shape, axes.split(), sizes)
        arrays.append(array)
    return arrays


def float_array(name: str, value: Any) -> np.ndarray:
    """Return `value` as a float array; float32 and float64 stay, other numbers become float64."""
    if type(value).__module__.partition(".")[0] == "torch":
        raise TypeError(
            f"{name}: chapter functions take NumPy arrays, got a torch tensor; "
            "use attnlib.scaled_dot_product_attention, or pass a NumPy array"
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: needs rows of one length, got {value!r}") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name}: needs real numbers, got dtype {array.dtype}")
    return array if array.dtype in KEPT_DTYPES else array.astype(np.float64)


def scale_or_default(scale: float | None, width: int) -> float:
    """Return `scale`, or 1/√width where it is None."""
    if scale is None:
        return 1.0 / math.sqrt(max(width, 1))  # vectors without entries: every score is 0
    if not isinstance(scale, (int, float, np.integer, np.floating)) or isinstance(scale, bool):
        raise TypeError(f"scale: needs a number or None, got {scale!r}")
    if not math.isfinite(scale):
        raise ValueError(f"scale: needs a finite number, got {scale!r}")
    return float(scale)


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return `value` as an int of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: needs an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: needs an integer of at least {least}, got {value}")
    return int(value)


def _check_shape(
    name: str, shape: tuple[int, ...], letters: list[str], sizes: dict[str, int]
) -> None:
    batched = letters[0] == "..."
    fixed = letters[1:] if batched else letters
    tail = shape[len(shape) - len(fixed) :] if len(shape) >= len(fixed) else ()
    right_rank = len(shape) >= len(fixed) if batched else len(shape) == len(fixed)
    known = {letter: sizes[letter] for letter in fixed if letter in sizes}
    if not right_rank or any(
        sizes.get(letter, size) != size for letter, size in zip(fixed, tail, strict=True)
    ):
        needed = "(" + ", ".join(letters) + ("," if len(letters) == 1 else "") + ")"
        given = ", ".join(f"{letter} = {size}" for letter, size in known.items())
        raise ValueError(
            f"{name}: needs shape {needed}{' with ' + given if given else ''}, got {shape}"
        )
    sizes.update(zip(fixed, tail, strict=True))
