"""The kinds of array that attnlib serves, as far as this machine has them, and how to compare."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

HAS_TORCH = find_spec("torch") is not None
if HAS_TORCH:
    import torch
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")

# What one rounding, or a few of them, may change in numbers of size one.
TOLERANCES = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}


@dataclass(frozen=True)
class Kind:
    """One combination of library, float dtype and device."""

    library: str
    dtype: str
    device: str = "cpu"

    def __str__(self) -> str:
        return "-".join(
            [self.library, *([self.device] if self.device != "cpu" else []), self.dtype]
        )

    @property
    def tolerance(self) -> float:
        """What results of this kind may differ from float64 by, at size one."""
        factor = 4 if self.device == "cuda" else 1  # fused kernels round the weights to half too
        return factor * TOLERANCES[self.dtype]

    def floats(self, values: Any) -> Any:
        """Return `values` as an array of this kind, always a new one."""
        array = np.array(values, dtype=np.float64)
        if self.library == "numpy":
            return array.astype(self.dtype)
        return torch.from_numpy(array).to(self.device, getattr(torch, self.dtype))

    def plain(self, values: Any) -> Any:
        """Return bools or integers as a new array of this library and device."""
        array = np.array(values)
        return array if self.library == "numpy" else torch.from_numpy(array).to(self.device)

    def dtype_of(self, array: Any) -> str:
        """Return the name of the dtype that `array` has, without the library's prefix."""
        return str(array.dtype).removeprefix("torch.")

    def __contains__(self, array: Any) -> bool:
        """Tell whether `array` is of this library, dtype and device."""
        if self.library == "numpy":
            return type(array) is np.ndarray and array.dtype == self.dtype
        return (
            isinstance(array, torch.Tensor)
            and self.dtype_of(array) == self.dtype
            and array.device.type == self.device
        )


def present_kinds() -> list[Kind]:
    """Return every kind that this machine has."""
    kinds = [Kind("numpy", dtype) for dtype in ("float64", "float32", "float16")]
    if HAS_TORCH:
        kinds += [Kind("torch", dtype) for dtype in TOLERANCES]
        if torch.cuda.is_available():
            kinds += [Kind("torch", dtype, "cuda") for dtype in TOLERANCES]
    return kinds


def absent_kinds() -> list[str]:
    """Return what could not be tested here, each with its reason."""
    if not HAS_TORCH:
        return ["torch (not installed)"]
    return [] if torch.cuda.is_available() else ["torch on CUDA (no device)"]


KINDS = present_kinds()
FLOAT64_KINDS = [kind for kind in KINDS if kind.dtype == "float64"]
TORCH_KINDS = [kind for kind in KINDS if kind.library == "torch"]
NUMPY_FLOAT64 = KINDS[0]


def to_numpy(array: Any) -> np.ndarray:
    """Return `array` as NumPy: floats as float64, bools and integers as they are."""
    if isinstance(array, np.ndarray | np.generic):
        return array.astype(np.float64) if array.dtype.kind == "f" else array
    array = array.detach().cpu()
    return (array.double() if array.is_floating_point() else array).numpy()


def check_close(actual: Any, expected: Any, kind: Kind, *, factor: float = 1.0) -> None:
    """Assert that `actual` is of `kind` and equals the float64 array `expected` within rounding.

    The tolerance is relative for numbers above one, absolute below; NaN must meet NaN.
    """
    assert actual in kind, f"expected {kind}, got {type(actual)} of {actual.dtype}"
    expected = np.asarray(expected, dtype=np.float64)
    assert tuple(actual.shape) == expected.shape
    tolerance = factor * kind.tolerance
    np.testing.assert_allclose(to_numpy(actual), expected, rtol=tolerance, atol=tolerance)


def check_equal_bits(actual: Any, expected: Any) -> None:
    """Assert that two arrays hold the same numbers, bit for bit (NaN meets NaN)."""
    np.testing.assert_array_equal(to_numpy(actual), to_numpy(expected), strict=True)


def snapshot(*arrays: Any) -> list[tuple[np.ndarray, tuple[int, ...]]]:
    """Return copies of what `arrays` hold now, with their strides."""
    return [(to_numpy(array).copy(), _strides(array)) for array in arrays]


def check_unchanged(before: list[tuple[np.ndarray, tuple[int, ...]]], *arrays: Any) -> None:
    """Assert that `arrays` hold what they held at the snapshot."""
    for (numbers, strides), array in zip(before, arrays, strict=True):
        np.testing.assert_array_equal(to_numpy(array), numbers, strict=True)
        assert _strides(array) == strides


def _strides(array: Any) -> tuple[int, ...]:
    return tuple(array.strides if isinstance(array, np.ndarray) else array.stride())
