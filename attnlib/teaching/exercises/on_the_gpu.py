"""Exercises of chapter 7, on the GPU.  None of them needs one, nor PyTorch."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from functools import cache

import numpy as np

from attnlib.teaching import records
from attnlib.teaching.exercises.kinds import Choice, Numbers, Parts, Statement

FLOAT16, BFLOAT16 = 11, 8  # binary digits that are kept


def rounded(number: Fraction, digits: int, *, to_nearest: bool = True) -> Fraction:
    """Return the number with so many binary digits, ties to even, or the rest cut off."""
    doublings = Fraction(1)
    while abs(number) * doublings < 2 ** (digits - 1):
        doublings *= 2
    while abs(number) * doublings >= 2**digits:
        doublings /= 2
    scaled = number * doublings
    return (round(scaled) if to_nearest else scaled.__floor__()) / doublings


# --- 1 and 3: rounded rows and sums ---------------------------------------------------------------

ROW = [Fraction(2, 10), Fraction(1, 10), Fraction(7, 10)]


def stored_row(digits: int = FLOAT16, *, to_nearest: bool = True) -> list[Fraction]:
    return [rounded(number, digits, to_nearest=to_nearest) for number in ROW]


def as_floats(numbers: list[Fraction]) -> list[float]:
    return [float(number) for number in numbers]


ROUND_A_ROW = Parts(
    {
        "weights": Numbers(
            right=lambda: as_floats(stored_row()),
            checked="Eleven binary digits each.",
            digits=0,  # fractions: nothing is rounded a second time
            slips={
                "These are the weights before they are stored.": lambda: as_floats(ROW),
                "You kept eight binary digits, as bfloat16 does; float16 keeps eleven.": (
                    lambda: as_floats(stored_row(BFLOAT16))
                ),
                "You cut the rest off; round to the nearest.": (
                    lambda: as_floats(stored_row(to_nearest=False))
                ),
            },
        ),
        "sum": Numbers(
            right=lambda: float(sum(stored_row())),
            checked="A little more than 1.",
            digits=0,
            slips={
                "That was the sum before the weights were stored.": lambda: 1,
                "That is the sum in bfloat16.": lambda: float(sum(stored_row(BFLOAT16))),
            },
        ),
    }
)


@cache
def stuck_at(digits: int) -> float:
    """Return the sum of 1024 weights of 1/1024, rounded after each addition."""
    step = Fraction(1, 1024)
    total = step
    for _ in range(1023):
        total = rounded(total + step, digits)
    return float(total)


STUCK = Numbers(
    right=lambda: stuck_at(BFLOAT16),
    checked="From there on half the distance to the next number is the step: a tie.",
    digits=0,
    slips={
        "In bfloat16 the sum does not get that far.": lambda: stuck_at(FLOAT16),
        "There half the distance is twice the step. It is stuck earlier, at a tie.": lambda: 1 / 2,
        "There the step is still as large as the distance: the sum goes on.": lambda: 1 / 8,
    },
)

# --- 2 and 4: groups and memory -------------------------------------------------------------------


def cache_bytes(*, heads: int = 2, parts: int = 2, size: int = 2) -> int:
    return parts * heads * 1000 * 64 * size


GROUPS = Parts(
    {
        "key head": Numbers(
            right=lambda: np.repeat([0, 1], 8 // 2)[5],
            checked="Query heads 4 to 7 share it.",
            digits=0,
            slips={
                "Count from 0: there are key heads 0 and 1.": lambda: 2,
                "Heads 0 to 3 use that one.": lambda: 0,
            },
        ),
        "bytes": Numbers(
            right=cache_bytes,
            checked="Keys and values of two heads.",
            digits=0,
            slips={
                "The cache keeps the 2 heads of keys and values, not the 8 of queries.": (
                    lambda: cache_bytes(heads=8)
                ),
                "That is half: keys and values are both kept, at two bytes a number.": (
                    lambda: cache_bytes(parts=1)
                ),
                "Those are bits.": lambda: cache_bytes(size=16),
            },
        ),
    }
)


def vector_bytes(*, arrays: int = 4, size: int = 2) -> int:
    return arrays * 32 * 16384 * 128 * size


def score_bytes(*, heads: int = 32, size: int = 2) -> int:
    return heads * 16384**2 * size


MEMORY = Parts(
    {
        "vectors": Numbers(
            right=vector_bytes,
            checked="Four arrays.",
            digits=0,
            slips={
                "The output counts, too: four arrays.": lambda: vector_bytes(arrays=3),
                "bfloat16 has two bytes.": lambda: vector_bytes(size=4),
                "That is one of the four arrays.": lambda: vector_bytes(arrays=1),
            },
        ),
        "scores": Numbers(
            right=score_bytes,
            checked="A square for each head.",
            digits=0,
            slips={
                "That is one head; there are 32.": lambda: score_bytes(heads=1),
                "bfloat16 has two bytes.": lambda: score_bytes(size=4),
            },
        ),
        "fits": Statement(
            right=score_bytes() < 80 * 10**9,
            because="For one layer and one sequence; batches and gradients need more.",
            hint="Compare with 80 billion.",
        ),
    }
)

# --- 5 and 6: the path, and what rounding can do --------------------------------------------------

PATH = Choice(
    right="d",
    options={
        "a": "On a CPU the kernel takes masks. On a GPU it would not.",
        "b": "is_causal is what the kernel likes best.",
        "c": "The kernel knows shared heads.",
        "d": "Dropout on a CPU goes the slow way.",
        "e": "Half precision stays on the fast path.",
        "f": "On a CPU the kernel takes float64. On a GPU it would not.",
    },
)

DIFFERENCE, LARGEST = 0.002, 2.0


def can_be_rounding(digits: int) -> bool:
    """Whether a rounding or a few, each of half a step, can make the difference."""
    return 8 * LARGEST * 2.0**-digits > DIFFERENCE


ROUNDING_OR_BUG = Parts(
    {
        "float32": Statement(
            right=can_be_rounding(24),
            because="Its roundings are ten thousand times smaller.",
            hint="Take a few times 2 to the power −24, times 2.",
        ),
        "bfloat16": Statement(
            right=can_be_rounding(BFLOAT16),
            because="A single rounding can be larger.",
            hint="Take 2 to the power −8, times 2.",
        ),
        "then": Choice(
            right="b",
            options={
                "a": "Then a small bug may hide in the rounding for ever.",
                "b": "A bug stays as large as it is, and rounding shrinks.",
                "c": "Rounding grows with the values, so that tells nothing.",
            },
        ),
    }
)

# --- 7: where the error comes from ----------------------------------------------------------------


def attend(arrays: list[np.ndarray], places: Collection[str]) -> np.ndarray:
    """Compute attention in float64, but for float16 in the places named."""

    def stored(x: np.ndarray, place: str) -> np.ndarray:
        return x.astype(np.float16).astype(float) if place in places else x

    q, k, v = (stored(x, "inputs") for x in arrays)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    sums = exponentials.sum(axis=-1, keepdims=True)
    return stored(stored(exponentials, "weights") @ v / sums, "output")


@cache
def mean_error(*places: str) -> float:
    record = records.load("precision")
    sizes, random = record["sizes"], np.random.default_rng(record["seed"])
    lengths = sizes["L"], sizes["S"], sizes["S"]
    shapes = [(sizes["B"], sizes["Hq"], length, sizes["E"]) for length in lengths]
    arrays = [random.normal(size=shape) for shape in shapes]
    return float(np.abs(attend(arrays, places) - attend(arrays, ())).mean())


WHERE_FROM = Parts(
    {
        "place": Choice(
            right="inputs",
            options={
                "inputs": "Every score and every value carries their rounding.",
                "exponentials": "They cost about half as much: half of the errors cancel.",
                "output": "It is rounded once, at the end.",
            },
        ),
        "ratio": Numbers(
            right=lambda: mean_error("weights", "output") / mean_error("output"),
            checked="What separates the flash kernel from the math path.",
            digits=2,
            slips={
                "That is the exponentials alone against the output alone.": (
                    lambda: mean_error("weights") / mean_error("output")
                ),
                "That is the other way round.": (
                    lambda: mean_error("output") / mean_error("weights", "output")
                ),
                "That is with the inputs rounded, too.": (
                    lambda: mean_error("inputs", "weights", "output") / mean_error("output")
                ),
            },
        ),
    }
)

EXERCISES = {
    1: ROUND_A_ROW,
    2: GROUPS,
    3: STUCK,
    4: MEMORY,
    5: PATH,
    6: ROUNDING_OR_BUG,
    7: WHERE_FROM,
}
