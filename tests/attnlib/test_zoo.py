"""The zoo: every bug is caught by the laws named for it, and the right code by none."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pytest

from attnlib import softmax
from attnlib.teaching import zoo
from attnlib.teaching.implementations import implementations
from attnlib.teaching.laws import LAWS, broken_laws
from attnlib.teaching.notebook import source_without_docstring
from attnlib.teaching.zoo import ANIMALS, animal, broken_by, difference, recognise

each_animal = pytest.mark.parametrize("one", ANIMALS, ids=lambda one: one.name)
TWINS = {one.twin: one for one in ANIMALS}


class TestEveryAnimal:
    @each_animal
    def test_is_killed_by_the_laws_named_for_it(self, one):
        assert one.killed_by
        assert set(one.killed_by) <= set(broken_by(one))

    @each_animal
    def test_gives_numbers_and_raises_nothing(self, one):
        """Bugs that raise find themselves."""
        broken = broken_laws(one.function, kind=one.kind, promises=one.promises)
        assert not any("Error" in found.counterexample.came for found in broken)

    @each_animal
    def test_looks_like_its_twin(self, one):
        assert inspect.signature(one.function) == inspect.signature(one.twin)
        lines = source_without_docstring(one.function).splitlines()
        assert len(lines) <= 12
        assert 1 <= len(difference(one).splitlines()) <= 6

    @each_animal
    def test_has_a_symptom_a_cause_and_a_fix(self, one):
        for text in (one.symptom, one.cause, one.fix):
            assert text.endswith(".")
            assert len(text) <= 110
        assert one.symptom != one.cause

    @each_animal
    def test_says_where_it_was_met_or_that_nobody_knows(self, one):
        if one.report:
            assert one.report.startswith("https://github.com/")
            assert one.reported != zoo.NO_REPORT
        else:
            assert one.reported == zoo.NO_REPORT

    @each_animal
    def test_is_recognised_by_its_numbers(self, one):
        assert recognise(one.function, kind=one.kind, promises=one.promises) is one


class TestRightCode:
    @pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
    def test_beside_an_animal_is_broken_by_no_law(self, twin):
        one = TWINS[twin]
        assert broken_laws(twin, kind=one.kind, promises=one.promises) == []

    @pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.__name__)
    def test_beside_an_animal_is_taken_for_none(self, twin):
        one = TWINS[twin]
        assert recognise(twin, kind=one.kind, promises=one.promises) is None

    @pytest.mark.parametrize("name", ["dense_attention", "causal_attention", "loop"])
    def test_of_the_library_is_taken_for_no_animal(self, name):
        right = implementations()[name]
        assert recognise(right.function, promises=tuple(right.promises)) is None


class TestZoo:
    def test_has_at_least_twenty_animals_with_names_of_their_own(self):
        assert len(ANIMALS) >= 20
        assert len({one.name for one in ANIMALS}) == len(ANIMALS)
        assert len({one.function for one in ANIMALS}) == len(ANIMALS)

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
    def test_has_food_for_every_law(self, law):
        """A law that catches nothing might as well not be there."""
        assert any(law.name in one.killed_by for one in ANIMALS)

    def test_has_every_function_of_the_module_as_animal_or_twin(self):
        functions = {
            member
            for name, member in vars(zoo).items()
            if inspect.isfunction(member) and member.__module__ == zoo.__name__
            if inspect.signature(member).return_annotation is inspect.Signature.empty
        }
        assert functions == {one.function for one in ANIMALS} | set(TWINS)

    def test_finds_animals_by_name(self):
        assert all(animal(one.name) is one for one in ANIMALS)
        with pytest.raises(ValueError, match=r"name: needs one of multiplied-by-root-d, .*'lion'"):
            animal("lion")

    def test_examples_in_docstrings_run(self):
        assert doctest.testmod(zoo).failed == 0
        assert doctest.testmod(zoo).attempted >= 5


class TestRecognition:
    def test_does_not_depend_on_how_the_bug_is_written(self):
        def mine(Q, K, V):
            scores = np.einsum("ie,je->ij", Q, K)
            return softmax(scores / Q.shape[1] ** -0.5) @ V

        assert recognise(mine) is animal("multiplied-by-root-d")

    def test_sees_a_bug_of_masks_in_causal_code(self):
        def mine(Q, K, V):
            weights = softmax(Q @ K.T / np.sqrt(Q.shape[1]))
            return np.tril(weights) @ V

        assert recognise(mine, promises=("causal",)) is animal("mask-after-softmax")

    def test_knows_none_for_a_bug_of_another_kind(self):
        assert recognise(lambda Q, K, V: np.zeros((len(Q), V.shape[1]))) is None
        assert recognise(lambda Q, K, V: None) is None
