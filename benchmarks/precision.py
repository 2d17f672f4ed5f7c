"""``python -m benchmarks.precision``: how far attention in fewer bits is from float64.

Every case is one way to compute the same attention: a device, a kernel, a dtype. Its inputs are
rounded to the dtype first. Two errors follow:

* of the *arithmetic*: against float64 on the same rounded inputs;
* in *all*: against float64 on the inputs before rounding.

The record goes into the package (`attnlib.teaching.records`), where chapter 7 reads it. A run on
a machine without a GPU leaves the rows of the GPU as they were, and the other way round; rows
that nobody has measured say so.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as pytorch_attention

import attnlib
from benchmarks import machine

RECORD = machine.ROOT / "attnlib" / "teaching" / "records" / "precision.json"
SEED = 7
NOT_MEASURED = "not measured yet"
REFUSED = "refused by the kernel"
KERNELS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
}
_HALVES = ("bfloat16", "float16")


class Sizes(NamedTuple):
    """All different, as everywhere; a multiple of 8 as width, which every kernel takes."""

    B: int = 2
    Hq: int = 3
    L: int = 385
    S: int = 513
    E: int = 64


class Case(NamedTuple):
    """One way to compute attention."""

    device: str
    kernel: str
    """"NumPy" and "attnlib" are the library's engines, the others are PyTorch's kernels."""
    dtype: str
    """"TF32" is float32 whose matrix products may be rounded to TF32."""


CASES = [
    *(Case("cpu", "NumPy", dtype) for dtype in ("float32", "float16")),
    *(Case("cpu", "math", dtype) for dtype in ("float64", "float32", *_HALVES)),
    *(Case("cpu", "flash", dtype) for dtype in ("float64", "float32", *_HALVES)),
    *(Case("cpu", "attnlib", dtype) for dtype in _HALVES),
    *(Case("cuda", "math", dtype) for dtype in ("float64", "float32", "TF32", *_HALVES)),
    *(Case("cuda", "efficient", dtype) for dtype in ("float32", "TF32", *_HALVES)),
    *(Case("cuda", "flash", dtype) for dtype in _HALVES),
    *(Case("cuda", "cuDNN", dtype) for dtype in _HALVES),
    *(Case("cuda", "attnlib", dtype) for dtype in ("float32", *_HALVES)),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one device and write the record; 2 without the device."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No GPU: torch.cuda.is_available() is False, so nothing was measured.")
        return 2
    old = json.loads(options.output.read_text("utf-8")) if options.output.exists() else {}
    record = renewed(old, options.device)
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(report(record))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, default=RECORD, metavar="FILE")
    return parser


def renewed(old: dict[str, Any], device: str) -> dict[str, Any]:
    """The record with the rows of one device measured anew and all others kept."""
    conditions = {"seed": SEED, "sizes": Sizes()._asdict()}
    if any(old.get(name) != wanted for name, wanted in conditions.items()):
        old = {}  # rows measured on other inputs say nothing beside these
    kept = {Case(row["device"], row["kernel"], row["dtype"]): row for row in old.get("rows", [])}
    inputs = make_inputs(Sizes())
    rows = []
    for case in CASES:
        if case.device == device:
            rows.append({**case._asdict(), **measured(case, *inputs)})
        else:
            rows.append(kept.get(case, {**case._asdict(), "state": NOT_MEASURED}))
    return {
        "what": "error of one attention call, no mask, by device, kernel and dtype",
        "inputs": "query, key and value drawn in this order, standard normal, float64",
        **conditions,
        "reference": "attnlib on NumPy, float64",
        "output": size(attnlib.scaled_dot_product_attention(*inputs)),
        "runs": old.get("runs", {}) | {device: facts(device)},
        "rows": rows,
    }


def make_inputs(sizes: Sizes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Query, key and value in float64."""
    random = np.random.default_rng(SEED)
    lengths = (sizes.L, sizes.S, sizes.S)
    query, key, value = (random.normal(size=(*sizes[:2], n, sizes.E)) for n in lengths)
    return query, key, value


def measured(case: Case, *inputs: np.ndarray) -> dict[str, Any]:
    """Largest and mean errors of a case, or why there are none."""
    rounded = [round_to(case.dtype, array) for array in inputs]
    try:
        result = computed(case, rounded)
    except RuntimeError:  # what PyTorch raises when no kernel that is allowed takes the call
        return {"state": REFUSED}
    exact = attnlib.scaled_dot_product_attention(*inputs)
    same = attnlib.scaled_dot_product_attention(*rounded)
    return {
        "state": "measured",
        "arithmetic": size(result - same),
        "all": size(result - exact),
    }


def size(array: np.ndarray) -> dict[str, float]:
    """Largest and mean absolute value."""
    return {"largest": float(np.abs(array).max()), "mean": float(np.abs(array).mean())}


def round_to(dtype: str, array: np.ndarray) -> np.ndarray:
    """The nearest numbers that the dtype has, as float64."""
    tensor = torch.from_numpy(array).to(_stored(dtype))
    return tensor.to(torch.float64).numpy()


def _stored(dtype: str) -> torch.dtype:
    return getattr(torch, "float32" if dtype == "TF32" else dtype)


def computed(case: Case, rounded: Sequence[np.ndarray]) -> np.ndarray:
    """The case's output as float64."""
    if case.kernel == "NumPy":
        arrays = [array.astype(case.dtype) for array in rounded]
        return attnlib.scaled_dot_product_attention(*arrays).astype(np.float64)
    tensors = [torch.from_numpy(x).to(case.device, _stored(case.dtype)) for x in rounded]
    with tf32(case.dtype == "TF32"):
        return _call(case.kernel)(*tensors).to("cpu", torch.float64).numpy()


def _call(kernel: str) -> Callable[..., torch.Tensor]:
    if kernel == "attnlib":
        return attnlib.scaled_dot_product_attention

    def call(*tensors: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(KERNELS[kernel]):
            return pytorch_attention(*tensors)

    return call


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in matrix products of float32; only GPUs know it."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def facts(device: str) -> dict[str, Any]:
    """Machine, versions, commit, date."""
    found = {"date": machine.now(), **machine.commit(), "machine": machine.describe()}
    if device == "cuda":
        found["card"] = torch.cuda.get_device_name()
        found["cuda"] = torch.version.cuda
        found["cudnn"] = torch.backends.cudnn.version()
    return found


def report(record: dict[str, Any]) -> str:
    """The record as a table."""
    lines = [f"{'device':7}{'kernel':10}{'dtype':10}{'largest':>10}{'mean':>10}{'in all':>10}"]
    for row in record["rows"]:
        start = f"{row['device']:7}{row['kernel']:10}{row['dtype']:10}"
        if row["state"] == "measured":
            numbers = (*row["arithmetic"].values(), row["all"]["largest"])
            lines.append(start + "".join(f"{number:10.1e}" for number in numbers))
        else:
            lines.append(f"{start}  {row['state']}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
