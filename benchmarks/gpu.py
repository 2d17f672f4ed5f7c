"""``python -m benchmarks.gpu``: the rows of the torch engine on a GPU, checked and timed.

Every result is compared with the equation in float64 on the same device, and its error set
beside PyTorch's own. Times are those of CUDA events. With ``--device cpu`` everything but the
events is the same, so that the script can be tried where there is no GPU.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import calls, machine, measure, run, tables
from benchmarks.calls import Call, Inputs, Sizes
from benchmarks.rows import TORCH, Row

_LARGE = Sizes((1, 16), 4096, 128)
_MORE = (
    Row("all pairs", _LARGE, calls.dense, calls.library, calls.pytorch),
    Row("causal", _LARGE, calls.causal, calls.library, partial(calls.pytorch, is_causal=True)),
    Row(
        "window of 256",
        _LARGE._replace(L=8192, window=256),
        calls.windowed,
        calls.library,
        calls.pytorch,
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; 0 if all results agree, 1 if one does not, 2 without the device."""
    options = _parser().parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("No GPU: torch.cuda.is_available() is False, so nothing was measured.")
        return 2
    budget = measure.BUDGETS["quick" if options.quick else "full"]
    record = _facts(options.device) | {"rows": []}
    chosen = [pair for pair in rows() if options.rows in f"{pair[0].name} {pair[1]}"]
    progress = run.Progress(len(chosen))
    for row, dtype in chosen:
        progress.show(f"{row.name} {dtype}")
        record["rows"].append(measured(row, dtype, options.device, budget))
        progress.step()
    progress.close()
    print(report(record))
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(not all(row["agrees"] for row in record["rows"]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows with this in a name")
    parser.add_argument("--quick", action="store_true", help="three rounds a row")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the record goes")
    return parser


def rows() -> Iterator[tuple[Row, str]]:
    """Every row of the torch engine, in its own dtype and in bfloat16."""
    named = [
        Row(f"{group.name}: {row.name}", row.sizes, row.make, row.ours, row.theirs)
        for group in TORCH
        if group.measured == "cpu"
        for row in group.rows
    ]
    for row in (*named, *_MORE):
        yield row, row.sizes.dtype
        if row.sizes.dtype == "float32":
            yield row, "bfloat16"


def measured(row: Row, dtype: str, device: str, budget: measure.Budget) -> dict[str, Any]:
    """Errors against float64, then the times of both sides."""
    inputs = on_device(row.make(row.sizes), dtype, device)
    sides = {"ours": row.ours(inputs), "theirs": row.theirs(inputs)}
    exact = equation(inputs)
    errors = {name: measure.difference(call(), exact) for name, call in sides.items()}
    rounding = torch.finfo(getattr(torch, dtype)).eps * float(exact.abs().max())
    del exact
    timer = event_seconds if device == "cuda" else measure.wall_seconds
    seconds = measure.interleave(sides, timer=timer, budget=budget)
    return {
        "row": row.name,
        "dtype": dtype,
        **{name: measure.summary(seconds[name]) | {"error": errors[name]} for name in sides},
        "ratio": measure.ratio(seconds["ours"], seconds["theirs"]),
        "agrees": errors["ours"] <= 2 * errors["theirs"] + 2 * rounding,
    }


def on_device(inputs: Inputs, dtype: str, device: str) -> Inputs:
    """The inputs as tensors there, the floating ones in `dtype`."""

    def move(array: Any) -> torch.Tensor:
        tensor = torch.as_tensor(array)
        wanted = getattr(torch, dtype) if tensor.is_floating_point() else tensor.dtype
        return tensor.to(device, wanted)

    return calls.map_arrays(inputs, move)


def equation(inputs: Inputs) -> torch.Tensor:
    """Attention in float64, as it stands in the book."""
    query, key, value = (x.double() for x in (inputs.query, inputs.key, inputs.value))
    if query.ndim > 3:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if inputs.visible is not None:
        scores = scores.masked_fill(~inputs.visible, -math.inf)
    return scores.softmax(dim=-1) @ value


def event_seconds(call: Call, number: int) -> float:
    """Time between two events on the GPU, around so many calls."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(number):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3


def report(record: dict[str, Any]) -> str:
    """The record as a table."""
    lines = [("row", "dtype", "ours", "theirs", "ratio", "error: ours", "error: theirs", "")]
    for row in record["rows"]:
        ours, theirs = row["ours"], row["theirs"]
        lines.append(
            (
                row["row"],
                row["dtype"],
                tables.seconds(ours["median"]),
                tables.seconds(theirs["median"]),
                f"{tables.number(row['ratio'])} ×",
                f"{ours['error']:.1e}",
                f"{theirs['error']:.1e}",
                "" if row["agrees"] else "**differs**",
            )
        )
    return f"{record['card']}, PyTorch {record['torch']}\n\n{tables.aligned(lines)}"


def _facts(device: str) -> dict[str, Any]:
    """Card, versions, commit, date."""
    card, capability = "no GPU: run on the CPU", None
    if device == "cuda":
        card = torch.cuda.get_device_name()
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
    return {
        "date": machine.now(),
        **machine.commit(),
        "card": card,
        "capability": capability,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
    }


if __name__ == "__main__":
    sys.exit(main())
