"""What is measured, as data: tables of groups of rows, each group with its target.

A row sets a call of ours against one of theirs. Its value is the ratio of their times (ours /
theirs) unless its group says otherwise, so smaller is better everywhere. A group's target bounds
each value, or their geometric mean, or both; a group without one is reported all the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks import calls
from benchmarks.calls import Call, Inputs, Sizes

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Row:
    """Two calls on the same inputs."""

    name: str
    sizes: Sizes
    make: Callable[[Sizes], Inputs]
    ours: Callable[[Inputs], Call]
    theirs: Callable[[Inputs], Call]
    tolerance: float | None = 1e-4
    """By how much the results may differ; None where the calls compute different things."""


@dataclass(frozen=True)
class Group:
    """Rows that share a target: one line of a table of targets."""

    name: str
    work: str
    """What is measured, in words."""
    against: str
    rows: tuple[Row, ...]
    each: float | None = None
    """No value may be larger."""
    mean: float | None = None
    """The geometric mean of the values may not be larger."""
    slack: float = 0.0
    """Ours may also take so many seconds more than theirs, whatever the ratio is."""
    measured: str = "cpu"
    """"cpu": CPU time on one thread each, in one process. "wall": time on the clock with two
    threads each, each side in its own process. "memory": peak beyond the result, each side in
    its own process, on all cores. "own": calls return their seconds."""
    unit: str = "×"
    """"×": ours / theirs. Another unit: ours alone, divided by ``unit_size``."""
    unit_size: float = 1.0


def tables() -> dict[str, tuple[Group, ...]]:
    """All tables by name."""
    from benchmarks.tricks import GROUPS as TRICKS

    return {"NumPy engine": NUMPY, "torch engine": TORCH, "what each trick buys": TRICKS}


def all_groups() -> Iterator[tuple[str, Group]]:
    """Every group, with the name of its table."""
    for table, groups in tables().items():
        for group in groups:
            yield table, group


def find(group_name: str, row_name: str) -> tuple[Group, Row]:
    """A row by its names."""
    for _, group in all_groups():
        for row in group.rows:
            if (group.name, row.name) == (group_name, row_name):
                return group, row
    raise LookupError(f"no row {row_name!r} in a group {group_name!r}")


def _rows(
    sizes: tuple[Sizes, ...],
    make: Callable[[Sizes], Inputs] = calls.dense,
    theirs: Callable[[Inputs], Call] = calls.pytorch,
    prefix: str = "",
    *,
    ours: Callable[[Inputs], Call] = calls.library,
    tolerance: float | None = 1e-4,
) -> tuple[Row, ...]:
    return tuple(Row(f"{prefix}{s}", s, make, ours, theirs, tolerance) for s in sizes)


_causal_pytorch = partial(calls.pytorch, is_causal=True)

# --- the NumPy engine -----------------------------------------------------------------------------

SIX = (
    Sizes((1, 12), 512, 64),
    Sizes((4, 8), 512, 64),
    Sizes((1, 8), 1024, 64),
    Sizes((1, 8), 4096, 64),
    Sizes((1, 32), 2048, 128),
    Sizes((1, 1), 16384, 64),
)
_BATCHED, _MIDDLE, _LONG = SIX[1:4]
_LONGEST = Sizes((1, 1), 32768, 64)
_DOUBLE = tuple(sizes._replace(dtype="float64") for sizes in SIX)
_CACHE = Sizes((1, 32), 1, 128, S=16384)
_GROUPED_CACHE = _CACHE._replace(kv_heads=8)
_WINDOW = Sizes((1, 8), 8192, 64, window=256)
_LONG_WINDOW = Sizes((1, 2), 16384, 64, window=256)
_APPENDS = Sizes((8,), 1, 64, S=8192)
_BACKWARD = (SIX[0], _MIDDLE, _LONG)
_TINY = tuple(
    Sizes(lead, L, E, dtype=dtype)
    for dtype in ("float32", "float64")
    for lead, L, E in (
        ((), 4, 2),
        ((), 4, 4),
        ((), 16, 16),
        ((), 64, 64),
        ((1, 4), 4, 4),
        ((1, 4), 64, 64),
    )
)


def _hard_rows() -> tuple[Row, ...]:
    """Calls on which scores cannot be bounded, or masks must be read."""
    large, large_causal = (partial(make, query_scale=16.0) for make in (calls.dense, calls.causal))
    one, many = (partial(calls.random_mask, per_head=per_head) for per_head in (False, True))
    near = 1e-3  # a softmax of large scores passes on more of their rounding
    return (
        *_rows(SIX[:4], large, prefix="queries × 16 ", tolerance=near),
        *_rows(SIX[2:4], large_causal, _causal_pytorch, "queries × 16, causal ", tolerance=near),
        *_rows((_BATCHED, _MIDDLE), one, prefix="one mask "),
        *_rows((_BATCHED, _MIDDLE), many, prefix="a mask for each head "),
        *_rows((_BATCHED,), calls.padded, prefix="padding of many lengths "),
        *_rows((_MIDDLE, _LONG), calls.half_padded, prefix="half padding "),
        *_rows((_BATCHED,), calls.with_holes, prefix="holes among the keys "),
    )


def _gradient_rows(is_causal: bool, with_forward: bool, prefix: str = "") -> tuple[Row, ...]:
    make = calls.causal if is_causal else calls.dense
    theirs = partial(calls.pytorch_backward, is_causal=is_causal, with_forward=with_forward)
    return _rows(_BACKWARD, make, theirs, prefix, ours=calls.library_gradients)


def _memory_rows() -> tuple[Row, ...]:
    mask = partial(calls.random_mask, per_head=False)
    return (
        *_rows((*SIX[2:], _LONGEST)),
        *_rows((_LONG, _LONGEST), calls.causal, _causal_pytorch, "causal "),
        *_rows((_LONG._replace(dtype="float16"),), tolerance=1e-3),
        *_rows((_LONG,), mask, prefix="one mask "),
        *_rows((_LONG,), calls.half_padded, prefix="half padding "),
    )


NUMPY = (
    Group("forward", "all pairs", "PyTorch, fused", _rows(SIX), each=1.05, mean=1.0),
    Group(
        "causal",
        "causal",
        "PyTorch, fused",
        _rows(SIX, calls.causal, _causal_pytorch),
        each=1.0,
        mean=0.82,
    ),
    Group(
        "float64",
        "float64, all pairs and causal",
        "PyTorch, fused",
        (
            *_rows(_DOUBLE, tolerance=1e-10),
            *_rows(_DOUBLE, calls.causal, _causal_pytorch, "causal ", tolerance=1e-10),
        ),
        mean=0.8,
    ),
    Group(
        "hard",
        "large-norm queries, boolean masks, key padding",
        "PyTorch as called",
        _hard_rows(),
        each=1.25,
    ),
    Group(
        "backward",
        "backward pass, outputs computed anew",
        "PyTorch, fused backward alone",
        _gradient_rows(is_causal=False, with_forward=False),
        each=0.95,
    ),
    Group(
        "backward causal",
        "the same, causal",
        "PyTorch, fused backward alone",
        _gradient_rows(is_causal=True, with_forward=False),
        each=0.9,
    ),
    Group(
        "gradients",
        "from inputs to gradients, all pairs and causal",
        "PyTorch, fused forward and backward",
        (
            *_gradient_rows(is_causal=False, with_forward=True),
            *_gradient_rows(is_causal=True, with_forward=True, prefix="causal "),
        ),
    ),
    Group(
        "two threads",
        "two threads, time on the clock, all pairs and causal",
        "PyTorch, fused",
        (*_rows(SIX), *_rows(SIX, calls.causal, _causal_pytorch, "causal ")),
        mean=0.95,
        measured="wall",
    ),
    Group(
        "three lines",
        "all pairs",
        "three lines of NumPy",
        _rows(SIX, calls.dense, calls.three_lines),
        each=1 / 2,
    ),
    Group(
        "three lines causal",
        "causal",
        "three lines of NumPy",
        _rows(SIX, calls.causal, calls.three_lines),
        each=1 / 3,
    ),
    Group(
        "memory",
        "peak memory beyond the output",
        "PyTorch as called",
        _memory_rows(),
        each=8,
        measured="memory",
        unit="MiB",
        unit_size=MEBIBYTE,
    ),
    Group(
        "window length",
        "causal window of 256, twice the length",
        "the same, this length",
        (Row(str(_WINDOW), _WINDOW, calls.windowed, calls.library_twice, calls.library, None),),
        each=2.2,
    ),
    Group(
        "window",
        "causal window of 256",
        "the same without a window",
        _rows(
            (_LONG_WINDOW,),
            calls.windowed,
            partial(calls.library, window=None),
            tolerance=None,
        ),
        each=1 / 15,
    ),
    Group(
        "decoding grouped",
        "one query on a cache, grouped heads",
        "PyTorch with enable_gqa",
        _rows((_GROUPED_CACHE, _GROUPED_CACHE._replace(S=32768))),
        each=0.3,
    ),
    Group(
        "decoding",
        "one query on a cache, plain heads",
        "PyTorch, fused",
        _rows((_CACHE, Sizes((1, 8), 1, 64, S=16384))),
        each=0.7,
    ),
    Group(
        "tiny",
        "tiny inputs",
        "three lines of NumPy",
        _rows(_TINY, calls.dense, calls.three_lines),
        each=1.1,
    ),
    Group(
        "tiny causal",
        "tiny inputs, causal",
        "three lines of NumPy",
        _rows(_TINY, calls.causal, calls.three_lines),
        each=0.8,
    ),
    Group(
        "cache",
        "one append to a cache, mean of 8,192",
        "all of them; np.concatenate, once, at half of the length",
        (Row("(8, 8192, 64)", _APPENDS, calls.dense, calls.appends, calls.concatenation, None),),
        each=6,
        unit="µs",
        unit_size=8192 / 1e6,
    ),
    Group(
        "import",
        "import attnlib",
        "import numpy",
        (
            Row(
                "in a fresh Python",
                Sizes((), 1, 1),
                calls.dense,
                lambda _: calls.import_of("attnlib"),
                lambda _: calls.import_of("numpy"),
                None,
            ),
        ),
        each=1.15,
        measured="own",
    ),
)


# --- the torch engine -----------------------------------------------------------------------------

_FUSED = (
    Sizes((1, 4), 64, 64),
    SIX[0],
    _MIDDLE,
    _MIDDLE._replace(dtype="float64"),
)
_THREE_AXES = Sizes((8,), 2048, 64)
_SHORT_WINDOW = _LONG._replace(window=256)
_CHUNK = Sizes((1, 8), 256, 64, S=4096)
_ONE_QUERY = Sizes((4, 8), 1, 64, S=4096)

_dense, _causal, _windowed, _prefill, _with_holes, _half_padded, _causal_mask = map(
    calls.tensors,
    (
        calls.dense,
        calls.causal,
        calls.windowed,
        calls.prefill,
        calls.with_holes,
        calls.half_padded,
        calls.causal_mask,
    ),
)

TORCH = (
    Group(
        "fused",
        "calls that PyTorch runs fused",
        "PyTorch as called",
        (
            *_rows(_FUSED, _dense),
            *_rows(_FUSED, _causal, _causal_pytorch, "causal "),
            *_rows((_ONE_QUERY,), _dense, prefix="decoding "),
        ),
        each=1.03,
        slack=10e-6,
    ),
    Group(
        "holes",
        "keys switched off here and there: NaN in them must not come through",
        "PyTorch with a boolean mask",
        _rows((_BATCHED, Sizes((2, 8), 1024, 64)), _with_holes),
        each=1.15,
        slack=10e-6,
    ),
    Group(
        "holes decoding",
        "the same, one query on a cache",
        "PyTorch with a boolean mask",
        _rows((_ONE_QUERY,), _with_holes),
        each=1.6,
        slack=10e-6,
    ),
    Group(
        "three axes",
        "inputs with three axes",
        "PyTorch as called",
        (
            *_rows((_THREE_AXES,), _dense),
            *_rows((_THREE_AXES,), _causal, _causal_pytorch, "causal "),
        ),
        each=0.25,
    ),
    Group(
        "value width",
        "values wider or narrower than keys",
        "PyTorch as called",
        _rows((_MIDDLE._replace(Ev=128), _MIDDLE._replace(E=192, Ev=128)), _dense),
        each=0.5,
    ),
    Group(
        "torch decoding grouped",
        "one query on a cache, grouped heads",
        "PyTorch with enable_gqa",
        _rows((_GROUPED_CACHE,), _dense),
        each=0.3,
    ),
    Group(
        "float16",
        "half precision",
        "PyTorch as called",
        _rows((_MIDDLE._replace(dtype="float16"),), _dense, tolerance=1e-2),
        each=0.7,
    ),
    Group(
        "causal mask",
        "a boolean mask that is the causal one",
        "PyTorch as called",
        _rows((_MIDDLE, _LONG), _causal_mask),
        each=0.6,
    ),
    Group(
        "padding",
        "half of the keys are padding",
        "PyTorch with a boolean mask",
        _rows((Sizes((4, 8), 1024, 64), _LONG), _half_padded),
        each=0.6,
    ),
    Group(
        "torch window",
        "causal window of 256",
        "PyTorch with a boolean mask",
        _rows((_SHORT_WINDOW,), _windowed),
        each=0.12,
    ),
    Group(
        "prefill",
        "a chunk of a prompt after a cache",
        "PyTorch with a boolean mask",
        _rows((_CHUNK,), _prefill),
    ),
    Group(
        "torch memory",
        "peak memory beyond the output",
        "PyTorch as called",
        (
            *_rows((_SHORT_WINDOW,), _windowed),
            *_rows((_CHUNK,), _prefill, prefix="chunk "),
            *_rows((_THREE_AXES,), _dense),
        ),
        measured="memory",
        unit="MiB",
        unit_size=MEBIBYTE,
    ),
)
