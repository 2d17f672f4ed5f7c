"""The kinds of answer that an exercise can ask for.

``Numbers``   a number, list or array: ``right`` computes it, ``slips`` the classic wrong ones
``Choice``    a letter or word out of a few, each with what there is to say about it
``Statement`` true or false
``Order``     the steps of something, by their letters; several orders may be right
``Function``  a function of the reader's, tried on small inputs
``AnyOf``     one of several kinds
``Parts``     several of these; the answer is a list with one entry for each part

Each has ``judge(answer)``, which returns a `Verdict`.  Every text says something to the reader, in
whole sentences.  ``checked`` is what a right answer is told.
"""

from attnlib.teaching.exercises.kinds.functions import Function
from attnlib.teaching.exercises.kinds.numbers import (
    Numbers,
    inside,
    rows_sum_to_one,
    sees_no_later_token,
)
from attnlib.teaching.exercises.kinds.parts import AnyOf, Parts
from attnlib.teaching.exercises.kinds.verdicts import Exercise, Verdict, verdict_on
from attnlib.teaching.exercises.kinds.words import Choice, Order, Statement

__all__ = [
    "AnyOf",
    "Choice",
    "Exercise",
    "Function",
    "Numbers",
    "Order",
    "Parts",
    "Statement",
    "Verdict",
    "inside",
    "rows_sum_to_one",
    "sees_no_later_token",
    "verdict_on",
]
