"""Compare two drawings of a figure: equal but for what another processor's rounding may move.

Both drawings must come from the same release of Matplotlib, since each lays text out its own way.
"""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

PIXEL_RMS = 2.0  # of 255, over a whole PNG
BITMAP_LEVELS = 6  # of 255, each pixel of a bitmap inside an SVG: a few steps of a colour map
COORDINATE = 0.05  # points, each number of an SVG

# Alternative text and the labels that Matplotlib repeats as comments: compared to the letter.
_WORDS = re.compile(r"<title>.*?</title>|<!--.*?-->", re.DOTALL)
_BITMAP = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")
# Names made from a hash of what they stand for, coordinates included.
_HASHED_NAME = re.compile(r"(?<=[#\"])(?:[hmp]|image|C[0-9a-f]+_[0-9a-f]+_)[0-9a-f]{10}(?=[\"), ])")
_NUMBER = re.compile(r"(?<![#\w.-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])")


def png_difference(stored: str, new: str) -> str | None:
    """Say how two base64 PNG drawings differ, or return None."""
    try:
        before, after = _pixels(stored), _pixels(new)
    except OSError:
        return "the stored or the new figure is no PNG image"
    if before.shape != after.shape:
        return f"the figure changed its size from {before.shape} to {after.shape}"
    rms = float(np.sqrt(np.mean((before - after) ** 2)))
    return f"the figure's pixels changed (RMS {rms:.1f} of 255)" if rms > PIXEL_RMS else None


def svg_difference(stored: str, new: str) -> str | None:
    """Say how two SVG drawings differ, or return None."""
    if _WORDS.findall(stored) != _WORDS.findall(new):
        return "the figure's alternative text or a label in it changed"
    before, after = _BITMAP.findall(stored), _BITMAP.findall(new)
    if len(before) == len(after):
        changes = map(_bitmap_difference, before, after)
        if change := next(filter(None, changes), None):
            return change
    stored, new = _outline(stored), _outline(new)
    if _NUMBER.sub("0", stored) != _NUMBER.sub("0", new):
        return "the figure's elements or styles changed"
    moved = _numbers(stored) - _numbers(new)
    largest = float(np.max(np.abs(moved), initial=0.0))
    return f"the figure's lines moved by {largest:.2f} points" if largest > COORDINATE else None


def _pixels(data: str) -> np.ndarray:
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    return np.asarray(image.convert("RGBA"), dtype=float)


def _bitmap_difference(stored: str, new: str) -> str | None:
    before, after = _pixels(stored), _pixels(new)
    if before.shape != after.shape:
        return "a bitmap in the figure changed its size"
    largest = float(np.max(np.abs(before - after)))
    return f"a colour changed by {largest:.0f} of 255" if largest > BITMAP_LEVELS else None


def _outline(svg: str) -> str:
    """Return the drawing without words and bitmaps, its hashed names numbered by appearance."""
    svg = _BITMAP.sub("", _WORDS.sub("", svg))
    names: dict[str, str] = {}
    return _HASHED_NAME.sub(lambda name: names.setdefault(name[0], f"name{len(names)}"), svg)


def _numbers(svg: str) -> np.ndarray:
    return np.array(_NUMBER.findall(svg), dtype=float)


DIFFERENCES = {"image/png": png_difference, "image/svg+xml": svg_difference}
