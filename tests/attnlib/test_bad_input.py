"""Wrong calls: one table for each public function, and what each call must be told.

A row is the call as a user would type it, the exception, and regular expressions of which each must
be found in the message: the argument as in the signature, what was needed, and what came.  In a
call, `f(2, 3)` is a float array of that shape, `i`, `b` and `c` are of integers, bools and complex
numbers, `single` is float32, `other` is of the other library, `far` is on another device.
"""

# ruff: noqa: E501 (a row of a table is one line, however long the call)

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import attnlib
from tests.kinds import FLOAT64_KINDS, HAS_TORCH, Kind, check_unchanged, snapshot

if HAS_TORCH:
    import torch

    import attnlib.nn

NUMPY, TORCH = ("numpy",), ("torch",)


class Bad:
    """One wrong call, the exception that it raises, and what its message says."""

    def __init__(
        self,
        call: str,
        error: type[Exception] | tuple[type[Exception], ...],
        *message: str,
        on: tuple[str, ...] = NUMPY + TORCH,
    ) -> None:
        self.call, self.error, self.message, self.on = call, error, message, on

    @property
    def needs_torch(self) -> bool:
        return any(word in self.call for word in ("other(", "torch.", "nn."))


class Arrays:
    """Makes the arrays of a call, and remembers what they held."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.made: list[Any] = []
        self.before: list[Any] = []

    def _remember(self, array: Any) -> Any:
        self.made.append(array)
        self.before += snapshot(array)
        return array

    def _of(self, kind: Kind, shape: tuple[int, ...]) -> Any:
        return self._remember(kind.floats(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)))

    def f(self, *shape: int) -> Any:
        return self._of(self.kind, shape)

    def single(self, *shape: int) -> Any:
        return self._of(Kind(self.kind.library, "float32", self.kind.device), shape)

    def other(self, *shape: int) -> Any:
        return self._of(
            Kind("torch" if self.kind.library == "numpy" else "numpy", "float64"), shape
        )

    def i(self, *shape: int) -> Any:
        return self._remember(self.kind.plain(np.arange(np.prod(shape)).reshape(shape) % 2))

    def b(self, *shape: int) -> Any:
        return self.i(*shape) > 0

    def c(self, *shape: int) -> Any:
        return self._remember(self.kind.plain(np.ones(shape, dtype=complex)))

    def far(self, *shape: int) -> Any:
        return self.f(*shape).to("meta")

    def mha(self, **options: int) -> attnlib.MultiHeadAttention:
        """Return a module of width 12 with 6 heads of width 2."""
        kv_width = 2 * options.get("num_kv_heads", 6)
        weights = [self.f(12, width) for width in (12, kv_width, kv_width, 12)]
        return attnlib.MultiHeadAttention(*weights, 6, **options)

    def cached(self, *lead: int, max_length: int | None = None) -> attnlib.KVCache:
        """Return a cache that holds 3 tokens, keys of width 4 and values of width 5."""
        cache = attnlib.KVCache(max_length)
        cache.append(self.f(*lead, 3, 4), self.f(*lead, 3, 5))
        return cache

    def names(self) -> dict[str, Any]:
        """Return what a call may refer to."""
        own = ("f", "single", "other", "i", "b", "c", "far", "mha", "cached")
        names = {name: getattr(self, name) for name in own}
        names |= {name: getattr(attnlib, name) for name in attnlib.__all__}
        return names | ({"torch": torch, "nn": attnlib.nn} if HAS_TORCH else {}) | {"np": np}


def table(*rows: Bad) -> pytest.MarkDecorator:
    """Run a test for each row on each library; the id of a run is the library and the call."""
    return pytest.mark.parametrize(
        ("kind", "bad"),
        [
            pytest.param(kind, row, id=f"{kind.library}: {row.call}")
            for row in rows
            for kind in FLOAT64_KINDS
            if kind.library in row.on and (HAS_TORCH or not row.needs_torch)
        ],
    )


def check_refused(kind: Kind, bad: Bad) -> None:
    """Assert the exception and what its message says, and that no input was changed."""
    arrays = Arrays(kind)
    with pytest.raises(bad.error) as caught:
        eval(bad.call, arrays.names())
    message = str(caught.value)
    for pattern in bad.message:
        assert re.search(pattern, message), f"nothing like {pattern!r} in: {message}"
    check_unchanged(arrays.before, *arrays.made)


# fmt: off
# --- chapter functions: array_like in, NumPy out -------------------------------------------------


@table(
    Bad("softmax('abc')", TypeError, r"\bscores\b", on=NUMPY),
    Bad("softmax([[1, 2], [3]])", ValueError, r"\bscores\b", on=NUMPY),
    Bad("softmax(c(3))", TypeError, r"\bscores\b", "complex", on=NUMPY),
    Bad("softmax(None)", TypeError, r"\bscores\b", on=NUMPY),
    Bad("softmax(f(2, 3), axis=2)", ValueError, "axis 2", on=NUMPY),
    Bad("softmax(other(3))", TypeError, r"\bscores\b", "torch", on=NUMPY),
)
def test_softmax_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad(
        "attention_steps(f(4), f(4, 7), f(7, 3))", ValueError, r"\bK\b", r"\(4, 7\)", "E", on=NUMPY
    ),
    Bad(
        "attention_steps(f(4), f(7, 4), f(3, 7))", ValueError, r"\bV\b", r"\(3, 7\)", "S", on=NUMPY
    ),
    Bad("attention_steps(f(1, 4), f(7, 4), f(7, 3))", ValueError, r"\bq\b", r"\(1, 4\)", on=NUMPY),
    Bad("attention_steps(f(4), f(4), f(7, 3))", ValueError, r"\bK\b", r"\(4,\)", on=NUMPY),
    Bad("attention_steps(f(4), f(7, 4), f(7))", ValueError, r"\bV\b", r"\(7,\)", on=NUMPY),
    Bad("attention_steps(f(4), f(7, 4), f(7, 3), scale=np.nan)", ValueError, "scale", on=NUMPY),
    Bad("attention_steps(f(4), f(7, 4), f(7, 3), scale=np.inf)", ValueError, "scale", on=NUMPY),
    Bad("attention_steps(f(4), f(7, 4), f(7, 3), scale='1')", TypeError, "scale", on=NUMPY),
    Bad("attention_steps(f(4), f(7, 4), f(7, 3), 0.5)", TypeError, "positional", on=NUMPY),
    Bad("attention_steps(c(4), f(7, 4), f(7, 3))", TypeError, r"\bq\b", "complex", on=NUMPY),
    Bad("attention_steps(['a'], [['b']], [[1]])", TypeError, r"\bq\b", on=NUMPY),
    Bad("attention_steps([1, 2], [[1, 0], [3]], f(2, 3))", ValueError, r"\bK\b", on=NUMPY),
    Bad("attention_steps(f(4), other(7, 4), f(7, 3))", TypeError, r"\bK\b", "torch", on=NUMPY),
)
def test_attention_steps_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad(
        "single_query_attention(f(4), f(4, 7), f(7, 3))",
        ValueError,
        r"\bK\b",
        r"\(4, 7\)",
        on=NUMPY,
    ),
    Bad(
        "single_query_attention(f(4), f(7, 4), f(6, 3))",
        ValueError,
        r"\bV\b",
        r"\(6, 3\)",
        on=NUMPY,
    ),
    Bad(
        "single_query_attention(f(2, 4), f(7, 4), f(7, 3))",
        ValueError,
        r"\bq\b",
        r"\(2, 4\)",
        on=NUMPY,
    ),
    Bad("single_query_attention(f(4), f(2, 7, 4), f(7, 3))", ValueError, r"\bK\b", on=NUMPY),
    Bad(
        "single_query_attention(f(4), f(7, 4), f(7, 3), scale=-np.inf)",
        ValueError,
        "scale",
        on=NUMPY,
    ),
    Bad(
        "single_query_attention(other(4), f(7, 4), f(7, 3))", TypeError, r"\bq\b", "torch", on=NUMPY
    ),
)
def test_single_query_attention_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad("causal_attention(f(5, 4), f(4, 5), f(5, 3))", ValueError, r"\bK\b", r"\(4, 5\)", on=NUMPY),
    Bad("causal_attention(f(5, 4), f(5, 4), f(3, 5))", ValueError, r"\bV\b", r"\(3, 5\)", on=NUMPY),
    Bad("causal_attention(f(4), f(5, 4), f(5, 3))", ValueError, r"\bQ\b", r"\(4,\)", on=NUMPY),
    Bad("causal_attention(f(5, 4), f(5, 4), f(5))", ValueError, r"\bV\b", r"\(5,\)", on=NUMPY),
    Bad("causal_attention(f(5, 4), f(5, 4), f(5, 3), scale=np.nan)", ValueError, "scale", on=NUMPY),
    Bad("causal_attention(c(5, 4), f(5, 4), f(5, 3))", TypeError, r"\bQ\b", "complex", on=NUMPY),
    Bad("causal_attention(f(5, 4), f(5, 4), other(5, 3))", TypeError, r"\bV\b", "torch", on=NUMPY),
)
def test_causal_attention_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad(
        "causal_attention_at(5, f(5, 4), f(5, 4), f(5, 3))",
        (ValueError, IndexError),
        r"\bi\b",
        "5",
        on=NUMPY,
    ),
    Bad(
        "causal_attention_at(-1, f(5, 4), f(5, 4), f(5, 3))",
        (ValueError, IndexError),
        r"\bi\b",
        "-1",
        on=NUMPY,
    ),
    Bad(
        "causal_attention_at(1.5, f(5, 4), f(5, 4), f(5, 3))", TypeError, r"\bi\b", "1.5", on=NUMPY
    ),
    Bad(
        "causal_attention_at(1, f(5, 4), f(4, 5), f(5, 3))",
        ValueError,
        r"\bK\b",
        r"\(4, 5\)",
        on=NUMPY,
    ),
    Bad(
        "causal_attention_at(1, f(5, 4), f(5, 4), f(6, 3))",
        ValueError,
        r"\bV\b",
        r"\(6, 3\)",
        on=NUMPY,
    ),
)
def test_causal_attention_at_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad("dense_attention(f(5, 4), f(4, 7), f(7, 3))", ValueError, r"\bK\b", r"\(4, 7\)", on=NUMPY),
    Bad("dense_attention(f(5, 4), f(7, 4), f(3, 7))", ValueError, r"\bV\b", r"\(3, 7\)", on=NUMPY),
    Bad("dense_attention(f(4), f(7, 4), f(7, 3))", ValueError, r"\bQ\b", r"\(4,\)", on=NUMPY),
    Bad("dense_attention(f(5, 4), f(7, 4), f(7, 3), scale=np.inf)", ValueError, "scale", on=NUMPY),
    Bad("dense_attention(f(5, 4), f(7, 4), [['x']])", TypeError, r"\bV\b", on=NUMPY),
    Bad("dense_attention(f(5, 4), other(7, 4), f(7, 3))", TypeError, r"\bK\b", "torch", on=NUMPY),
)
def test_dense_attention_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 5)", ValueError, "num_heads", "5", "12", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 0)", ValueError, "num_heads", "0", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 2.0)", TypeError, "num_heads", on=NUMPY),
    Bad("multi_head_attention(f(5, 11), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 3)", ValueError, "w_q", r"\(12, 12\)", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 9), f(12, 12), f(12, 12), f(12, 12), 3)", ValueError, "w_k", r"\(12, 12\)", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(11, 12), f(12, 12), 3)", ValueError, "w_v", r"\(11, 12\)", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(12, 12), f(9, 12), 3)", ValueError, "w_o", r"\(9, 12\)", on=NUMPY),
    Bad("multi_head_attention(f(12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 3)", ValueError, r"\bx\b", r"\(12,\)", on=NUMPY),
    Bad("multi_head_attention(f(5, 12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 3, True)", TypeError, "positional", on=NUMPY),
    Bad("multi_head_attention(other(5, 12), f(12, 12), f(12, 12), f(12, 12), f(12, 12), 3)", TypeError, r"\bx\b", "torch", on=NUMPY),
)
def test_multi_head_attention_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


# --- the function ---------------------------------------------------------------------------------

# What stands after query, key and value goes where the … is.  L = 5, S = 7, E = 4, Ev = 3; four axes: B = 2, H = 6.
QKV = "f(5, 4), f(7, 4), f(7, 3)…"
FOUR = "f(2, 6, 5, 4), f(2, 6, 7, 4), f(2, 6, 7, 3)…"
GROUPED = "f(6, 5, 4), f(2, 7, 4), f(2, 7, 3)…, enable_gqa=True"
ARRAYS = [
    ("([[1.0]], f(7, 4), f(7, 3)…)", TypeError, r"\bquery\b", "list"),
    ("(f(5, 4), None, f(7, 3)…)", TypeError, r"\bkey\b", "None"),
    ("(i(5, 4), i(7, 4), i(7, 3)…)", TypeError, r"\bquery\b", "int64", "float"),
    ("(f(5, 4), f(7, 4), i(7, 3)…)", TypeError, r"\bvalue\b", "int64", "float"),
    ("(f(5, 4), b(7, 4), f(7, 3)…)", TypeError, r"\bkey\b", "bool"),
    ("(c(5, 4), c(7, 4), c(7, 3)…)", TypeError, r"\bquery\b", "complex128"),
    ("(f(5, 4), other(7, 4), f(7, 3)…)", TypeError, r"\bkey\b", "(?i)numpy", "torch"),
    ("(f(5, 4), f(7, 4), single(7, 3)…)", ValueError, r"\bvalue\b", "float32", "float64"),
    # shapes
    ("(f(5, 4), f(4, 7), f(7, 3)…)", ValueError, r"\bkey\b", r"\bE\b", r"\(4, 7\)"),
    ("(f(5, 4), f(7, 1), f(7, 3)…)", ValueError, r"\bkey\b", r"\bE\b", r"\(7, 1\)"),
    ("(f(5, 4), f(7, 4), f(6, 3)…)", ValueError, r"\bvalue\b", r"\bS\b", r"\(6, 3\)"),
    ("(f(5, 4), f(7, 4), f(1, 3)…)", ValueError, r"\bvalue\b", r"\bS\b", r"\(1, 3\)"),
    ("(f(5, 4), f(1, 4), f(7, 3)…)", ValueError, r"\bvalue\b", r"\bS\b", r"\(7, 3\)"),
    ("(f(), f(7, 4), f(7, 3)…)", ValueError, r"\bquery\b", r"\(\)"),
    ("(f(5, 4), f(4), f(7, 3)…)", ValueError, r"\bkey\b", r"\(4,\)"),
    ("(f(5, 4), f(7, 4), f(7)…)", ValueError, r"\bvalue\b", r"\(7,\)"),
    ("(f(4), f(2, 7, 4), f(2, 7, 3)…)", ValueError, r"\bkey\b", r"\(S, E\)", r"\(2, 7, 4\)"),
    ("(f(3), f(7, 4), f(7, 3)…)", ValueError, r"\bkey\b", r"\bE\b", r"\(7, 4\)"),
    ("(f(2, 5, 4), f(3, 7, 4), f(3, 7, 3)…)", ValueError, r"\bquery\b", r"\(2, 5, 4\)", r"\(3, 7, 4\)"),
    ("(f(2, 6, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 3)…)", ValueError, r"\bkey\b", "enable_gqa"),
]
OPTIONS = [
    # attn_mask
    (f"({QKV}, attn_mask=i(5, 7))", TypeError, "attn_mask", "int64", r"\.astype\(bool\)|\.bool\(\)"),
    (f"({QKV}, attn_mask=c(5, 7))", TypeError, "attn_mask", "complex128"),
    (f"({QKV}, attn_mask=b(7, 5))", ValueError, "attn_mask", r"\(L, S\)", r"\(5, 7\)", r"\(7, 5\)"),
    (f"({QKV}, attn_mask=b(5, 6))", ValueError, "attn_mask", r"\(L, S\)", r"\(5, 6\)"),
    (f"({QKV}, attn_mask=f(5))", ValueError, "attn_mask", r"\(L, S\)", r"\(5,\)"),
    (f"({QKV}, attn_mask=b(2, 5, 7))", ValueError, "attn_mask", r"\(L, S\)", r"\(2, 5, 7\)"),
    (f"({FOUR}, attn_mask=b(2, 5, 7))", ValueError, "attn_mask", r"\bL, S\)", r"\(2, 5, 7\)"),
    (f"({FOUR}, attn_mask=b(2, 7))", ValueError, "attn_mask", r"\bL, S\)", r"\(2, 7\)"),
    (f"({QKV}, attn_mask=[[True] * 7] * 5)", TypeError, "attn_mask", "list"),
    (f"({QKV}, attn_mask=other(5, 7))", TypeError, "attn_mask", "(?i)numpy", "torch"),
    (f"({QKV}, attn_mask=True)", TypeError, "attn_mask", "bool"),
    # key_mask
    (f"({QKV}, key_mask=i(7))", TypeError, "key_mask", "int64", r"\.astype\(bool\)|\.bool\(\)"),
    (f"({QKV}, key_mask=f(7))", TypeError, "key_mask", "float64", "bool"),
    (f"({QKV}, key_mask=b(5))", ValueError, "key_mask", r"\(S,\)", r"\(7,\)", r"\(5,\)"),
    (f"({QKV}, key_mask=b(1, 7))", ValueError, "key_mask", r"\(S,\)", r"\(1, 7\)"),
    (f"({FOUR}, key_mask=b(2, 5))", ValueError, "key_mask", r"\*batch, S", r"\(2, 7\)", r"\(2, 5\)"),
    (f"({FOUR}, key_mask=b(6, 7))", ValueError, "key_mask", r"\*batch, S", r"\(2, 7\)", r"\(6, 7\)"),
    (f"({FOUR}, key_mask=b(2, 6, 7))", ValueError, "key_mask", r"\*batch, S", r"\(2, 6, 7\)"),
    (f"({QKV}, key_mask=[True] * 7)", TypeError, "key_mask", "list"),
    (f"({QKV}, key_mask=other(7))", TypeError, "key_mask", "(?i)numpy", "torch"),
    (f"({GROUPED}, key_mask=b(6, 7))", ValueError, "key_mask", "add a batch axis", r"\(6, 7\)"),
    (f"({GROUPED}, key_mask=b(2, 7))", ValueError, "key_mask", "add a batch axis", r"\(2, 7\)"),
    # positions
    (f"({QKV}, causal_offset=2)", ValueError, "causal_offset", "is_causal", "window"),
    (f"({QKV}, causal_offset=-1)", ValueError, "causal_offset", "is_causal", "window"),
    (f"({QKV}, is_causal=True, causal_offset=1.0)", TypeError, "causal_offset", "1.0"),
    (f"({QKV}, is_causal=True, causal_offset='2')", TypeError, "causal_offset", "2"),
    (f"({QKV}, is_causal=True, causal_offset=None)", TypeError, "causal_offset", "None"),
    (f"({QKV}, is_causal=True, causal_offset=True)", TypeError, "causal_offset", "True"),
    (f"({FOUR}, is_causal=True, causal_offset=f(2))", TypeError, "causal_offset", "float64"),
    (f"({FOUR}, is_causal=True, causal_offset=b(2))", TypeError, "causal_offset", "bool"),
    (f"({FOUR}, is_causal=True, causal_offset=i(3))", ValueError, "causal_offset", r"\*batch", r"\(3,\)"),
    (f"({FOUR}, is_causal=True, causal_offset=i(2, 6))", ValueError, "causal_offset", r"\(2, 6\)"),
    (f"({FOUR}, causal_offset=1 + i(2))", ValueError, "causal_offset", "is_causal", "window"),
    (f"({GROUPED}, is_causal=True, causal_offset=i(6))", ValueError, "causal_offset", "add a batch axis"),
    (f"({QKV}, window=3)", TypeError, "window", r"\(left, right\)"),
    (f"({QKV}, window=(1,))", ValueError, "window", r"\(left, right\)"),
    (f"({QKV}, window=(1, 2, 3))", ValueError, "window", r"\(left, right\)"),
    (f"({QKV}, window=(-1, 0))", ValueError, "window", "-1"),
    (f"({QKV}, window=(1, -2))", ValueError, "window", "-2"),
    (f"({QKV}, window=(1.5, 0))", TypeError, "window", "1.5"),
    (f"({QKV}, window=(True, 0))", TypeError, "window", "True"),
    # scale and softcap
    (f"({QKV}, scale=np.nan)", ValueError, "scale", "finite", "nan"),
    (f"({QKV}, scale=-np.inf)", ValueError, "scale", "finite", "inf"),
    (f"({QKV}, scale='auto')", TypeError, "scale"),
    (f"({QKV}, softcap=0.0)", ValueError, "softcap", "0"),
    (f"({QKV}, softcap=-2)", ValueError, "softcap", "-2"),
    (f"({QKV}, softcap=np.inf)", ValueError, "softcap", "inf"),
    (f"({QKV}, softcap=np.nan)", ValueError, "softcap", "nan"),
    (f"({QKV}, softcap='30')", TypeError, "softcap"),
    # heads
    ("(f(6, 5, 4), f(4, 7, 4), f(4, 7, 3)…, enable_gqa=True)", ValueError, r"\bkey\b", "Hkv", "6", "4"),
    ("(f(2, 5, 4), f(6, 7, 4), f(6, 7, 3)…, enable_gqa=True)", ValueError, r"\bkey\b", "Hkv", "2", "6"),
    ("(f(6, 5, 4), f(3, 7, 4), f(2, 7, 3)…, enable_gqa=True)", ValueError, r"\bvalue\b", "Hkv", r"\(2, 7, 3\)"),
    (f"({QKV}, enable_gqa=True)", ValueError, r"\bquery\b", "enable_gqa", r"\(5, 4\)"),
    ("(f(6, 5, 4), f(7, 4), f(7, 3)…, enable_gqa=True)", ValueError, r"\bkey\b", "enable_gqa", r"\(7, 4\)"),
    # flags, and what does not exist
    (f"({QKV}, is_causal=b(5, 7))", TypeError, "is_causal", "True or False"),
    (f"({QKV}, is_causal='yes')", TypeError, "is_causal", "True or False"),
    (f"({QKV}, dropout_p=0.1)", TypeError, "dropout_p"),
    (f"({QKV}, causal=True)", TypeError, r"'causal'|\bcausal\b", "unexpected|unknown"),
]
SINGLE_QUERY = [
    ("(f(4), f(7, 4), f(7, 3)…, is_causal=True)", ValueError, "is_causal", "slice", r"\(1, E\)", "causal_offset=i"),
    ("(f(4), f(7, 4), f(7, 3)…, window=(1, 0))", ValueError, "window", "slice", r"\(1, E\)", "causal_offset=i"),
    ("(f(4), f(7, 4), f(7, 3)…, attn_mask=b(1, 7))", ValueError, "attn_mask", r"\(S,\)", r"\(1, 7\)"),
    ("(f(4), f(7, 4), f(7, 3)…, key_mask=b(1, 7))", ValueError, "key_mask", r"\(S,\)", r"\(1, 7\)"),
]


def rows_for(function: str, fourth: str = "") -> list[Bad]:
    """Return the shared rows as calls of `function`, with `fourth` after the three arrays."""
    rows = [*ARRAYS, *OPTIONS, *SINGLE_QUERY]
    return [Bad(function + call.replace("…", fourth), *told) for call, *told in rows]


@table(
    *rows_for("scaled_dot_product_attention"),
    Bad("scaled_dot_product_attention(f(5, 4), far(7, 4), f(7, 3))", ValueError, r"\bkey\b", "cpu", "meta", on=TORCH),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), far(5, 7))", ValueError, "attn_mask", "cpu", "meta", on=TORCH),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), key_mask=far(7) > 0)", ValueError, "key_mask", "cpu", "meta", on=TORCH),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), return_weights='yes')", TypeError, "return_weights", "True or False"),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), dropout_p=0.0)", TypeError, "dropout_p", "no dropout"),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), dropout_p=0.1, is_causal=True)", TypeError, "dropout_p", "no dropout"),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4))", TypeError, "value"),
    Bad("scaled_dot_product_attention(f(5, 4), f(7, 4), f(7, 3), None, True)", TypeError, "positional"),
)
def test_scaled_dot_product_attention_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    *rows_for("attention_gradients", ", f(5, 3)"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), f(5, 4))", ValueError, "grad_output", r"\(5, 3\)", r"\(5, 4\)"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), f(1, 3))", ValueError, "grad_output", r"\(5, 3\)", r"\(1, 3\)"),
    Bad("attention_gradients(f(4), f(7, 4), f(7, 3), f(1, 3))", ValueError, "grad_output", r"\(3,\)", r"\(1, 3\)"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), single(5, 3))", ValueError, "grad_output", "float32", "float64"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), other(5, 3))", TypeError, "grad_output", "(?i)numpy", "torch"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), None)", TypeError, "grad_output", "None"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3))", TypeError, "grad_output"),
    Bad("attention_gradients(f(5, 4), f(7, 4), f(7, 3), f(5, 3), return_weights=True)", TypeError, "return_weights"),
)
def test_attention_gradients_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


# --- modules and cache ----------------------------------------------------------------------------


@table(
    Bad("MultiHeadAttention(i(12, 12), i(12, 12), i(12, 12), i(12, 12), 6)", TypeError, "w_q", "int64"),
    Bad("MultiHeadAttention([[1.0]], f(1, 1), f(1, 1), f(1, 1), 1)", TypeError, "w_q", "list"),
    Bad("MultiHeadAttention(f(12), f(12, 12), f(12, 12), f(12, 12), 6)", ValueError, "w_q", r"\(12,\)"),
    Bad("MultiHeadAttention(f(12, 12), other(12, 12), f(12, 12), f(12, 12), 6)", TypeError, "w_k", "(?i)numpy", "torch"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), single(12, 12), f(12, 12), 6)", ValueError, "w_v", "float32"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 5)", ValueError, "num_heads", "5", "12"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 0)", ValueError, "num_heads", "0"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), -6)", ValueError, "num_heads", "-6"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6.0)", TypeError, "num_heads", "6.0"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 8), f(12, 8), f(12, 12), 6, num_kv_heads=4)", ValueError, "num_kv_heads", "4", "6"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6, num_kv_heads=2)", ValueError, "w_k", r"\(12, 12\)"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 10), f(12, 12), 6)", ValueError, "w_v", r"\(12, 10\)"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(10, 12), 6)", ValueError, "w_o", r"\(10, 12\)"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6, b_q=f(11))", ValueError, "b_q", r"\(11,\)"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6, b_k=f(1, 12))", ValueError, "b_k", r"\(1, 12\)"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6, b_v=i(12))", TypeError, "b_v", "int64"),
    Bad("MultiHeadAttention(f(12, 12), f(12, 12), f(12, 12), f(12, 12), 6, b_o=other(12))", TypeError, "b_o", "(?i)numpy", "torch"),
    Bad("MultiHeadAttention(f(12, 12), far(12, 12), f(12, 12), f(12, 12), 6)", ValueError, "w_k", "meta", on=TORCH),
    Bad("MultiHeadAttention.random(12, 5, seed=0)", ValueError, "num_heads", "5", "12", on=NUMPY),
    Bad("MultiHeadAttention.random(12, 6, num_kv_heads=4, seed=0)", ValueError, "num_kv_heads", "4", on=NUMPY),
    Bad("MultiHeadAttention.random(12, 6)", TypeError, "seed", on=NUMPY),
    Bad("MultiHeadAttention.random(12.0, 6, seed=0)", TypeError, "d_model", on=NUMPY),
    Bad("MultiHeadAttention.random(0, 6, seed=0)", ValueError, "d_model", on=NUMPY),
)
def test_making_a_module_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


MODULE_CALLS = [
    ("(f(2, 5, 11))", ValueError, r"\bquery\b", r"\bD\b", "12", r"\(2, 5, 11\)"),
    ("(f(12))", ValueError, r"\bquery\b", r"\(12,\)"),
    ("(f(2, 3, 5, 12))", ValueError, r"\bquery\b", r"\(2, 3, 5, 12\)"),
    ("(i(2, 5, 12))", TypeError, r"\bquery\b", "int64"),
    ("([[0.0] * 12])", TypeError, r"\bquery\b", "list"),
    ("(other(2, 5, 12))", TypeError, r"\bquery\b", "(?i)numpy", "torch"),
    ("(single(2, 5, 12))", ValueError, r"\bquery\b", "float32", "float64"),
    ("(f(2, 5, 12), f(3, 8, 12))", ValueError, r"\bkey\b", r"\(3, 8, 12\)"),
    ("(f(2, 5, 12), f(8, 12))", ValueError, r"\bkey\b", r"\(8, 12\)"),
    ("(f(2, 5, 12), f(2, 8, 9))", ValueError, r"\bkey\b", r"\(2, 8, 9\)"),
    ("(f(2, 5, 12), f(2, 8, 12), f(2, 7, 12))", ValueError, r"\bvalue\b", r"\(2, 7, 12\)"),
    ("(f(2, 5, 12), f(2, 8, 12), other(2, 8, 12))", TypeError, r"\bvalue\b", "(?i)numpy", "torch"),
    ("(f(2, 5, 12), attn_mask=b(2, 5, 5))", ValueError, "attn_mask", r"mask\[:, None\]", r"\(2, 5, 5\)"),
    ("(f(2, 5, 12), attn_mask=b(12, 5, 5))", ValueError, "attn_mask", r"mask\[:, None\]", r"\(12, 5, 5\)"),
    ("(f(2, 5, 12), attn_mask=b(5, 6))", ValueError, "attn_mask", r"\(5, 6\)"),
    ("(f(2, 5, 12), attn_mask=b(2, 3, 5, 5))", ValueError, "attn_mask", r"\(2, 3, 5, 5\)"),
    ("(f(2, 5, 12), attn_mask=i(5, 5))", TypeError, "attn_mask", "int64", r"\.astype\(bool\)|\.bool\(\)"),
    ("(f(5, 12), attn_mask=b(2, 5, 5))", ValueError, "attn_mask", r"\(2, 5, 5\)"),
    ("(f(2, 5, 12), key_mask=i(2, 5))", TypeError, "key_mask", "int64", r"\.astype\(bool\)|\.bool\(\)"),
    ("(f(2, 5, 12), key_mask=b(5, 2))", ValueError, "key_mask", r"\(5, 2\)"),
    ("(f(2, 5, 12), key_mask=b(2, 4))", ValueError, "key_mask", r"\(2, 4\)"),
    ("(f(5, 12), key_mask=b(2, 5))", ValueError, "key_mask", r"\(2, 5\)"),
    ("(f(2, 5, 12), is_causal='yes')", TypeError, "is_causal"),
    ("(f(2, 5, 12), cache=KVCache())", ValueError, "is_causal", "cache"),
    ("(f(2, 1, 12), f(2, 1, 12), cache=KVCache(), is_causal=True)", ValueError, "cache", r"\bkey\b"),
    ("(f(2, 1, 12), value=f(2, 1, 12), cache=KVCache(), is_causal=True)", ValueError, "cache", r"\bvalue\b"),
    ("(f(2, 1, 12), cache=[], is_causal=True)", TypeError, "cache", "list"),
    ("(f(2, 1, 12), cache=cached(3, 6), is_causal=True)", ValueError, "cache", r"\(3, 6"),
    ("(f(2, 1, 12), cache=cached(2, 4), is_causal=True)", ValueError, "cache", r"\(2, 4"),
]


@table(
    *[Bad("mha()" + call, error, *message) for call, error, *message in MODULE_CALLS],
    Bad("mha()(far(2, 5, 12))", ValueError, r"\bquery\b", "cpu", "meta", on=TORCH),
    Bad("mha().head(6, f(2, 5, 12))", (ValueError, IndexError), r"\bj\b", "6"),
    Bad("mha().head(-7, f(2, 5, 12))", (ValueError, IndexError), r"\bj\b", "-7"),
    Bad("mha().head(1.0, f(2, 5, 12))", TypeError, r"\bj\b", "1.0"),
    Bad("mha().head(f(2, 5, 12), 1)", TypeError, r"\bj\b"),
    Bad("mha(num_kv_heads=2).to_torch()", ValueError, "num_kv_heads|grouped"),
    Bad("MultiHeadAttention.from_torch(torch.nn.Linear(3, 4))", TypeError, "MultiheadAttention", "Linear", on=TORCH),
    Bad("MultiHeadAttention.from_torch(mha())", TypeError, "MultiheadAttention", "MultiHeadAttention", on=TORCH),
)
def test_calling_a_module_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    *[
        Bad("nn.MultiHeadAttention.from_numpy(MultiHeadAttention.random(12, 6, seed=0))" + call, error, *message, on=TORCH)
        for call, error, *message in MODULE_CALLS
        if "cache" not in call
    ],
    Bad("nn.MultiHeadAttention(12, 5)", ValueError, "num_heads", "5", "12", on=TORCH),
    Bad("nn.MultiHeadAttention(12, 6, num_kv_heads=4)", ValueError, "num_kv_heads", "4", "6", on=TORCH),
    Bad("nn.MultiHeadAttention(12, 6.0)", TypeError, "num_heads", on=TORCH),
    Bad("nn.MultiHeadAttention('12', 6)", TypeError, "d_model", on=TORCH),
    Bad("nn.MultiHeadAttention.from_numpy(torch.nn.Linear(3, 4))", TypeError, "MultiHeadAttention", "Linear", on=TORCH),
    Bad("nn.MultiHeadAttention.from_torch(torch.nn.Linear(3, 4))", TypeError, "MultiheadAttention", "Linear", on=TORCH),
)
def test_torch_module_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


@table(
    Bad("KVCache(0)", ValueError, "max_length", "0", on=NUMPY),
    Bad("KVCache(max_length=-3)", ValueError, "max_length", "-3", on=NUMPY),
    Bad("KVCache(2.5)", TypeError, "max_length", "2.5", on=NUMPY),
    Bad("KVCache('8')", TypeError, "max_length", "8", on=NUMPY),
    Bad("KVCache().append(i(2, 3, 4), i(2, 3, 4))", TypeError, r"\bk\b", "int64"),
    Bad("KVCache().append([[[1.0]]], [[[1.0]]])", TypeError, r"\bk\b", "list"),
    Bad("KVCache().append(f(2, 3, 4), other(2, 3, 4))", TypeError, r"\bv\b", "(?i)numpy", "torch"),
    Bad("KVCache().append(f(2, 3, 4), single(2, 3, 4))", ValueError, r"\bv\b", "float32", "float64"),
    Bad("KVCache().append(f(2, 3, 4), f(2, 6, 5))", ValueError, r"\bv\b", r"\(2, 6, 5\)"),
    Bad("KVCache().append(f(2, 3, 4), f(3, 3, 5))", ValueError, r"\bv\b", r"\(3, 3, 5\)"),
    Bad("KVCache().append(f(4), f(5))", ValueError, r"\bk\b", r"\(4,\)"),
    Bad("KVCache().append(f(2, 3, 4))", TypeError, r"'v'"),
    Bad("cached(2).append(f(6, 1, 4), f(6, 1, 5))", ValueError, r"\bk\b", r"\(6, 1, 4\)"),
    Bad("cached(2).append(f(2, 1, 6), f(2, 1, 5))", ValueError, r"\bk\b", r"\(2, 1, 6\)"),
    Bad("cached(2).append(f(2, 1, 4), f(2, 1, 6))", ValueError, r"\bv\b", r"\(2, 1, 6\)"),
    Bad("cached(2).append(single(2, 1, 4), single(2, 1, 5))", ValueError, r"\bk\b", "float32", "float64"),
    Bad("cached(2).append(other(2, 1, 4), other(2, 1, 5))", TypeError, r"\bk\b", "(?i)numpy", "torch"),
    Bad("cached(2, max_length=4).append(f(2, 2, 4), f(2, 2, 5))", ValueError, "max_length", r"\b4\b", r"\b2\b"),
    Bad("cached(2).append(far(2, 1, 4), far(2, 1, 5))", ValueError, r"\bk\b", "cpu", "meta", on=TORCH),
    Bad("KVCache().append(f(2, 3, 4).requires_grad_(), f(2, 3, 5))", ValueError, "grad", "no_grad|detach", on=TORCH),
)
def test_cache_says_what_is_wrong(kind, bad):
    check_refused(kind, bad)


# fmt: on
def test_every_public_name_has_a_table():
    """Adding a public function without a table goes red."""
    rows = [
        parameter.values[1].call
        for function in list(globals().values())
        for mark in getattr(function, "pytestmark", [])
        if mark.name == "parametrize" and callable(function)
        for parameter in mark.args[1]
    ]
    for name in attnlib.__all__:
        assert any(call.startswith(name) for call in rows), f"no wrong call of {name}"
