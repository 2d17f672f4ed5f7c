"""The finder behind the lists of numbers: what it takes for a number, and what agrees with one."""

from fractions import Fraction

import pytest

from tests.chapters.printed_numbers import find_numbers


def needing_an_entry(text, equations=()):
    numbers = find_numbers(text, equations)
    return {text[n.start : n.end]: n.value for n in numbers if not n.is_integer}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weights 0.0474 and −0.5", {"0.0474": "237/5000", "−0.5": "-1/2"}),
        ("a range 0.1–0.3, a difference x-0.5", {"0.1": "1/10", "0.3": "3/10", "0.5": "1/2"}),
        (r"$\tfrac16, \frac{2}{6}$, $-\dfrac{1}{13}$", None),
        ("[19/6, 17/6] and ½.", {"19/6": "19/6", "17/6": "17/6", "½": "1/2"}),
        (r"$\approx0.5\cdot0.25$", {"0.5": "1/2", "0.25": "1/4"}),
        (r"$6.1 \times 10^{-6}$, 6.1e-6", {r"6.1 \times 10^{-6}": "6.1e-6", "6.1e-6": "6.1e-6"}),
        ("10⁻⁶ or $10^{-6}$", {"10⁻⁶": "1e-6", "10^{-6}": "1e-6"}),
        (r"60 %, $12.5\,\%$, 5 per cent", {"60 %": ".6", r"12.5\,\%": ".125", "5 per cent": ".05"}),
        (r"3 times, 4× faster, $5\times$ more", {"3 times": "3", "4×": "4", r"5\times$": "5"}),
        ("a factor of 7, a 2.5-fold gain", {"7": "7", "2.5-fold": "2.5"}),
        ("0.333… of it", {"0.333…": ".333"}),
        ("|token|0.1|-0.6|", {"0.1": "1/10", "-0.6": "-6/10"}),
        ("the solution 3.1 and Exercise 1.2, 0.6", {"3.1": "3.1", "0.6": "0.6"}),
    ],
)
def test_results_in_prose_math_and_tables_are_found(text, expected):
    if expected is None:
        expected = {r"\tfrac16": "1/6", r"\frac{2}{6}": "1/3", r"-\dfrac{1}{13}": "-1/13"}
    assert needing_an_entry(text) == {quote: Fraction(value) for quote, value in expected.items()}


@pytest.mark.parametrize(
    "text",
    [
        "2 × 2 and 4 × d, 2 times 3, 0 times infinity, since 2017, 1,200 words",
        "## 1.2 The scale",
        "Exercises 1.2, 1.3 and 1.4; Section 3.4; Figure 2.1; **Common mistake 2.1**",
        r"\tag{1.2}, as (1.2) says",
        "NumPy 1.26, torch 2.13.0, version 2.1, CC BY 4.0",
        "[text](page_0.5.md), https://example.org/0.5, arXiv:1706.03762, doi 10.1000/0.5",
        '<img width="0.5">',
        r"$\frac{1}{\sqrt{d}}$, $m(m+1)/2$, $10^3$, float32",
    ],
)
def test_integers_labels_and_addresses_are_free(text):
    assert needing_an_entry(text, equations={"1.2"}) == {}


def test_a_label_in_brackets_is_free_only_if_an_equation_bears_it():
    assert needing_an_entry("as (1.2) says", equations={"1.3"}) == {"1.2": Fraction("1.2")}


@pytest.mark.parametrize(
    ("printed", "value", "agrees"),
    [
        ("0.0474", 0.04742587317756678, True),
        ("0.0475", 0.04742587317756678, False),
        ("0.13", 0.125, True),
        ("0.12", 0.125, True),
        ("-0.5", 0.5, False),
        ("60 %", 0.6, True),
        ("61 %", 0.6, False),
        ("3 times", 2.96, True),
        ("3 times", 2.4, False),
        ("0.666…", 2 / 3, True),
        ("0.667…", 2 / 3, False),
        ("6.14e-6", 6.1441746e-6, True),
        ("1/6", Fraction(1, 6), True),
        ("2/12", 0.1 + 1 / 15, True),
        ("1/6", 0.1667, False),
        ("1/3", Fraction(333333333333333, 10**15), False),
        ("3", 3, True),
        ("3", 3.01, False),
    ],
)
def test_a_value_agrees_if_it_prints_the_same_digits(printed, value, agrees):
    (number,) = find_numbers(printed)
    assert number.agrees_with(value) == agrees
