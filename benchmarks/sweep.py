"""Time and memory against length, for the book's picture: dense attention, float32, one thread.

Ways that keep all scores stop where those would need more than a computer at hand has. The limit
is what the two matrix products alone take, at the speed of a large product in the same rounds.
"""

from statistics import median
from typing import Any

import numpy as np

from benchmarks import calls
from benchmarks.calls import Call, Sizes
from benchmarks.rows import Row

HEADS, WIDTH = 4, 64
LENGTHS = tuple(2**exponent for exponent in range(6, 15))
MOST_SCORES = HEADS * 8192**2

ATTNLIB, THREE_LINES = "attnlib on NumPy", "three lines of NumPy"
FUSED, MATH = "PyTorch, fused", "PyTorch, all scores"
LIMIT = "matrix products alone"
SERIES = {
    ATTNLIB: calls.library,
    FUSED: calls.pytorch,
    THREE_LINES: calls.three_lines,
    MATH: calls.pytorch_math,
}
_KEEPS_SCORES = (THREE_LINES, MATH)
_PRODUCT = 1024  # rows and columns of the large product
_PRODUCT_NAME = "large product"


def row_at(length: int) -> Row:
    """The call at one length."""
    sizes = Sizes((1, HEADS), length, WIDTH)
    return Row(str(sizes), sizes, calls.dense, calls.library, calls.pytorch)


def series_at(length: int) -> list[str]:
    """The ways to attend that can be measured at one length."""
    few = HEADS * length**2 <= MOST_SCORES
    return [name for name in SERIES if few or name not in _KEEPS_SCORES]


def calls_at(length: int) -> dict[str, Call]:
    """Their calls, and the large product."""
    row = row_at(length)
    inputs = row.make(row.sizes)
    sides = {name: SERIES[name](inputs) for name in series_at(length)}
    return sides | {_PRODUCT_NAME: _large_product()}


def _large_product() -> Call:
    left, right = np.random.default_rng(3).standard_normal((2, _PRODUCT, _PRODUCT)).astype("f4")
    result = np.empty_like(left)
    return lambda: np.matmul(left, right, out=result)


def point(length: int, seconds: dict[str, list[float]], peaks: dict[str, int]) -> dict[str, Any]:
    """One length's entry in the results."""
    times = {name: median(numbers) for name, numbers in seconds.items()}
    rate = 2 * _PRODUCT**3 / times.pop(_PRODUCT_NAME)
    operations = 2 * 2 * HEADS * length**2 * WIDTH  # two products, a multiplication and a sum each
    return {"length": length, "seconds": times | {LIMIT: operations / rate}, "bytes": peaks}
