"""Exercises of chapter 9, order and positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from attnlib.positions import rotate
from attnlib.teaching.exercises.kinds import Choice, Numbers, Parts, rows_sum_to_one
from attnlib.teaching.exercises.running_example import SHARES

# --- 1: read the clock ----------------------------------------------------------------------------

HANDS = (90, 30)  # degrees from one position to the next


def clock(position: int, *, swapped: bool = False) -> np.ndarray:
    """Return the row of a position: sine and cosine of the fast hand, then of the slow one."""
    angles = np.radians(position * np.array(HANDS))
    pair = (np.cos(angles), np.sin(angles)) if swapped else (np.sin(angles), np.cos(angles))
    return np.stack(pair, axis=-1).ravel()


def turns(degrees: int) -> int:
    return 360 // math.gcd(360, degrees)


READ_THE_CLOCK = Parts(
    {
        "row 4": Numbers(
            right=lambda: clock(4),
            checked="The fast hand is back, the slow one stands at 120°.",
            slips={
                "Sine comes first, then cosine.": lambda: clock(4, swapped=True),
                "That is row 3.": lambda: clock(3),
                "That is row 5.": lambda: clock(5),
            },
        ),
        "dot product": Numbers(
            right=lambda: clock(1) @ clock(4),
            checked="The same as for any two positions at this distance.",
            slips={
                "That is at distance 4; from 1 to 4 it is 3.": lambda: clock(0) @ clock(4),
                "That is at distance 0.": lambda: clock(1) @ clock(1),
            },
        ),
        "the same again": Numbers(
            right=lambda: math.lcm(*map(turns, HANDS)),
            checked="The first number of positions after which both hands are back.",
            digits=0,
            slips={
                "Only the fast hand is back then.": lambda: turns(HANDS[0]),
                "Earlier: both hands are back at the least common multiple.": (
                    lambda: math.prod(map(turns, HANDS))
                ),
            },
        ),
    }
)

# --- 2 and 3: quarter turns -----------------------------------------------------------------------

PLACES = ((0, 0), (1, 2), (7, 5), (2, 1))


def turned(vector: np.ndarray, position: int, *, direction: int = 1) -> np.ndarray:
    return rotate(np.array([vector], float), [direction * position], [np.pi / 2])[0]


def products(turn_query: Callable = turned, turn_key: Callable = turned) -> list[float]:
    q, k = np.array([3, 1]), np.array([1, 2])
    return [turn_query(q, i) @ turn_key(k, j) for i, j in PLACES]


def backwards(vector: np.ndarray, position: int) -> np.ndarray:
    return turned(vector, position, direction=-1)


def left_alone(vector: np.ndarray, position: int) -> np.ndarray:
    return vector


TURN_BY_HAND = Numbers(
    right=products,
    checked="Only the distance j − i counts.",
    slips={
        "You turned query and key in opposite directions.": lambda: products(turn_key=backwards),
        "You turned by i − j, to the right where it should be to the left, or the queries only.": (
            lambda: products(backwards, backwards)
        ),
        "You turned the keys only: the query stands at a position, too.": (
            lambda: products(turn_query=left_alone)
        ),
        "You turned nothing.": lambda: products(left_alone, left_alone),
    },
)


def scores_by_distance(query_and_key: np.ndarray) -> np.ndarray:
    """Return how much higher the key just before stands than itself, 2 and 3 before."""
    q, k = query_and_key
    score = [q @ turned(k, -distance) for distance in range(4)]
    return np.sign(np.round([score[1] - score[distance] for distance in (0, 2, 3)], 9))


THE_TOKEN_BEFORE = Numbers(
    right=lambda: scores_by_distance(np.array([[0, -1], [1, 0]])),
    checked="The key just before scores highest, and with it every fourth before that.",
    through=scores_by_distance,
    shape=(2, 2),
    slips={
        "These score highest on the key just after: turn the query the other way.": (
            lambda: scores_by_distance(np.array([[0, 1], [1, 0]]))
        ),
        "These score highest on the token itself.": (
            lambda: scores_by_distance(np.array([[1, 0], [1, 0]]))
        ),
        "These score highest two tokens before.": (
            lambda: scores_by_distance(np.array([[-1, 0], [1, 0]]))
        ),
        "All four distances score alike.": lambda: np.zeros(3),
    },
)

# --- 4: distance as a bias ------------------------------------------------------------------------


def biased(step: int, i: int, *, sign: int = 1) -> list[float]:
    """Return causal weights of token i whose shares lose a factor with each step back."""
    factors = [Fraction(1, step) ** (sign * (i - j)) for j in range(i + 1)]
    lost = [int(share) * factor for share, factor in zip(SHARES[i], factors, strict=False)]
    return [float(share / sum(lost)) for share in lost]


def slope(step: int, i: int) -> Numbers:
    return Numbers(
        right=lambda: biased(step, i),
        checked="Each step back divides a share.",
        slips={
            "Far tokens gained: a step back divides, counted from the query.": (
                lambda: biased(step, i, sign=-1)
            ),
            "These are the weights without the bias.": lambda: biased(1, i),
        },
        laws=[rows_sum_to_one],
    )


DISTANCE_AS_A_BIAS = Parts(
    {f"slope ln {step}, token {i}": slope(step, i) for step in (2, 3) for i in (1, 2)}
)

# --- 5: layouts -----------------------------------------------------------------------------------

PAIRED = np.arange(8).reshape(4, 2)  # a pair a row, interleaved

LAYOUT = Parts(
    {
        "columns": Numbers(
            right=lambda: PAIRED.T.ravel(),
            checked="First entry of each pair, then second entry of each.",
            digits=0,
            slips={
                "That is the way back, from half-split to interleaved.": (
                    lambda: np.argsort(PAIRED.T.ravel())
                ),
                "Second entries come in the second half.": lambda: PAIRED.T[::-1].ravel(),
                "That is the order that they have already.": lambda: PAIRED.ravel(),
            },
        ),
        "only W_q": Choice(
            right="b",
            options={
                "a": "A dot product multiplies entries that stand in the same place.",
                "b": "Entries of different pairs meet, and the scores are wrong.",
                "c": "No shape changes, so nothing complains.",
            },
        ),
    }
)

# --- 6: what the mask knows -----------------------------------------------------------------------

WHAT_THE_MASK_KNOWS = Parts(
    {
        "last token": Numbers(
            right=lambda: math.factorial(6),
            checked="All others stand on its left, in any order.",
            digits=0,
            slips={
                "The last token keeps its place: six others are left.": lambda: math.factorial(7),
                "The order on the left does not matter at all.": lambda: 1,
            },
        ),
        "token at place 3": Numbers(
            right=lambda: math.factorial(3) ** 2,
            checked="Three on the left, three on the right, each in any order.",
            digits=0,
            slips={
                "Those on the right may change places, too.": lambda: math.factorial(3),
                "The two sides are shuffled independently: multiply.": (
                    lambda: 2 * math.factorial(3)
                ),
                "No token may change sides.": lambda: math.factorial(6),
            },
        ),
    }
)

# --- 7: which law catches which bug ---------------------------------------------------------------

WHICH_LAW = Parts(
    {
        "escapes": Choice(
            right="d",
            options={
                "a": "Moving all positions catches it: the values turn along.",
                "b": "Moving all positions catches it: the keys stay behind.",
                "c": "The cache catches it: there the positions differ.",
                "d": "It is another convention, right by itself: only another program shows it.",
            },
        ),
        "seen only with a cache": Choice(
            right="c",
            options={
                "a": "Without a cache it is seen, too: move all positions.",
                "b": "Without a cache it is seen, too: move all positions.",
                "c": "In a full pass every token has its right position.",
                "d": "A cache with the same layout gives the same.",
            },
        ),
    }
)

EXERCISES = {
    1: READ_THE_CLOCK,
    2: TURN_BY_HAND,
    3: THE_TOKEN_BEFORE,
    4: DISTANCE_AS_A_BIAS,
    5: LAYOUT,
    6: WHAT_THE_MASK_KNOWS,
    7: WHICH_LAW,
}
