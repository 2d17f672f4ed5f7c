"""Measurements that chapters show: made by ``benchmarks``, committed, installed with the library.

A record is a JSON file in this folder.  It lies inside the package, so that a notebook that was
opened without the repository, on Colab for example, reads the same numbers as the book.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

__all__ = ["load", "names"]


def names() -> list[str]:
    """Return the names of all records.

    Returns
    -------
    list of str
        In alphabetical order.
    """
    paths = (path.name for path in files(__name__).iterdir())
    return sorted(path.removesuffix(".json") for path in paths if path.endswith(".json"))


def load(name: str) -> dict[str, Any]:
    """Return a record.

    Parameters
    ----------
    name : str
        File name without its ending.

    Returns
    -------
    dict
        What was measured, with what (machine, versions, commit), and the results.

    Raises
    ------
    ValueError
        If there is no such record; the message names those that there are.

    Examples
    --------
    >>> load("precision")["reference"]
    'attnlib on NumPy, float64'
    """
    if name not in names():
        raise ValueError(f"name: needs one of {', '.join(names())}, got {name!r}")
    return json.loads(files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
