"""A record of results as a run writes it, and what every record must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SIDE = {"median": float, "fastest": float, "spread": float, "rounds": int}
GROUP = {
    "table": str,
    "name": str,
    "work": str,
    "against": str,
    "measured": str,
    "unit": str,
    "target": {"each": (float, int, None), "mean": (float, None), "slack": float},
    "mean": (float, None),
    "largest": (float, None),
    "met": (bool, None),
    "whole": bool,
}
ROW = {"group": str, "row": str, "ours": SIDE, "theirs": SIDE, "value": float, "met": (bool, None)}
RECORD = {
    "schema": int,
    "date": str,
    "commit": (str, None),
    "dirty": (bool, None),
    "budget": str,
    "load": (float, None),
    "interrupted": bool,
    "machine": {
        "processor": str,
        "cores": int,
        "flags": [str],
        "system": str,
        "python": str,
        "numpy": {"version": str, "blas": [dict]},
        "torch": {"version": str, "instructions": str, "mkl": bool},
    },
    "threads": {"cpu": int, "own": int, "wall": int, "memory": int},
    "groups": [GROUP],
    "rows": [ROW],
    "sweep": [{"length": int, "seconds": dict, "bytes": dict}],
}


def record_of(groups: Sequence[dict], rows: Sequence[dict], points: Sequence[dict]) -> dict:
    """A whole record around measured parts."""
    return {
        "schema": 1,
        "date": "2026-01-02T03:04+00:00",
        "commit": "abcdef0123456789",
        "dirty": True,
        "budget": "full",
        "load": 0.1,
        "interrupted": False,
        "machine": {
            "processor": "A processor",
            "cores": 2,
            "flags": ["avx2"],
            "system": "Linux x86_64",
            "python": "3.11.7",
            "numpy": {
                "version": "2.4.6",
                "blas": [{"internal_api": "openblas", "version": "0.3", "architecture": "Haswell"}],
            },
            "torch": {"version": "2.13.0", "instructions": "AVX2", "mkl": True},
        },
        "threads": {"cpu": 1, "own": 2, "wall": 2, "memory": 2},
        "groups": list(groups),
        "rows": list(rows),
        "sweep": list(points),
    }


def check_schema(found: Any, wanted: Any, place: str = "record") -> None:
    """Compare names and types all the way down."""
    if isinstance(wanted, dict):
        for name, part in wanted.items():
            assert name in found, f"{place} has no {name}"
            check_schema(found[name], part, f"{place}.{name}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), place
        for number, entry in enumerate(found):
            check_schema(entry, wanted[0], f"{place}[{number}]")
    else:
        types = wanted if isinstance(wanted, tuple) else (wanted,)
        types = tuple(type(None) if one is None else one for one in types)
        assert type(found) in types, f"{place} is {found!r}, wanted {types}"
