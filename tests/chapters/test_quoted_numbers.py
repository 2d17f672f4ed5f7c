"""The checker of the lists of numbers bites: stale, unlisted, missing, excused too widely."""

from fractions import Fraction

import nbformat
import numpy as np
import pytest

from tests.chapters.documents import Passage, typed_passages
from tests.chapters.quoted_numbers import computed, find_problems, given, load_entries


def exact_weights(counts):
    return [Fraction(count, sum(counts)) for count in counts]


def problems(text, *entries):
    return find_problems([Passage("cell 3", text)], list(entries))


def only_problem(text, *entries):
    (problem,) = problems(text, *entries)
    return problem


def test_a_listed_number_passes():
    entry = computed("weights 1/6, 2/6", lambda: exact_weights([1, 2, 3])[:2])
    assert problems("the weights 1/6, 2/6 of", entry) == []


def test_line_breaks_and_quote_marks_do_not_matter():
    text = "> **Example.** the weights\n> 0.17 and\n> 0.33 of"
    entry = computed("weights 0.17 and 0.33", lambda: np.array(exact_weights([1, 2, 3]))[:2])
    assert problems(text, entry) == []


def test_a_stale_number_names_cell_and_number():
    problem = only_problem("about 0.34", computed("about 0.34", lambda: exact_weights([1, 2])[0]))
    assert "cell 3: '0.34'" in problem
    assert "stale" in problem


def test_a_stale_number_is_found_at_each_place_of_its_phrase():
    entry = computed("about 0.34", lambda: exact_weights([1, 2])[0])
    assert len(problems("about 0.34 and again about 0.34", entry)) == 2


def test_an_unlisted_number_names_cell_and_number():
    problem = only_problem("a weight of 0.25 here")
    assert problem.startswith("cell 3: '0.25' in 'a weight of 0.25 here'")


def test_a_missing_phrase_is_named():
    assert "'gone 0.5' stands nowhere" in only_problem("no", given("gone 0.5", "an input"))
    assert "'gone 0.5' stands nowhere" in only_problem(
        "no", computed("gone 0.5", lambda: exact_weights([1, 1])[0])
    )


def test_a_phrase_does_not_match_inside_a_longer_number():
    found = problems("weights 0.55 and 11/6", given("0.5", "input"), given("1/6", "input"))
    assert sum("stands nowhere" in problem for problem in found) == 2


def test_a_given_phrase_excuses_no_other_place():
    assert "stands 2 times, not 1" in only_problem("0.5 and 0.5", given("0.5", "an input"))
    assert problems("0.5 and 0.5", given("0.5", "an input", times=2)) == []


def test_a_given_phrase_without_such_a_number_is_refused():
    assert "no number" in only_problem("in 3 tokens", given("in 3 tokens", "an input"))


def test_integers_of_a_phrase_may_be_checked_too():
    output = [Fraction(3), Fraction(11, 4)]
    assert problems("output [3, 11/4]", computed("output [3, 11/4]", lambda: output)) == []
    assert problems("output [3, 11/4]", computed("output [3, 11/4]", lambda: output[1])) == []
    assert "'2'" in only_problem("output [2, 11/4]", computed("output [2, 11/4]", lambda: output))


def test_too_few_values_are_refused():
    entry = computed("0.5, 0.25, 0.25", lambda: exact_weights([1, 1]))
    assert "computes 2" in problems("0.5, 0.25, 0.25", entry)[0]


@pytest.mark.parametrize("value", [np.nan, np.inf, True, "0.5"])
def test_a_value_that_is_no_finite_number_is_refused(value):
    entry = computed("0.5", lambda: [value])
    with pytest.raises(ValueError, match="real and finite"):
        problems("0.5", entry)


@pytest.mark.parametrize(
    "typed", [lambda: 3.1, lambda: [0.1, 0.6], lambda: Fraction(1, 6), lambda: np.array([0.5])]
)
def test_a_typed_value_is_not_a_computed_one(typed):
    with pytest.raises(ValueError, match="types its value"):
        computed("3.1", typed)


def test_an_input_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        given("0.5", " ")


def test_a_chapter_without_numbers_needs_no_list(tmp_path):
    assert load_entries(tmp_path / "09_none.py") == []


def test_a_list_is_loaded_by_path(tmp_path):
    path = tmp_path / "02_causal.py"
    path.write_text(
        "from tests.chapters.quoted_numbers import given\n\nNUMBERS = [given('0.5', 'an input')]\n"
    )
    (entry,) = load_entries(path)
    assert (entry.phrase, entry.reason) == ("0.5", "an input")


def test_every_typed_text_of_a_notebook_is_read(tmp_path):
    source = """%matplotlib inline
# comment 1.5
weight = 0.25
print(f"printed {weight:.2f}, typed 2.5")
figure.set_label("label 3.5")
axis.plot(x, color="0.5")"""
    shown = {"figure": {"caption": "caption 4.5"}, "image": {"alt": "alt 5.5"}}
    cells = [
        nbformat.v4.new_markdown_cell("prose 0.5"),
        nbformat.v4.new_code_cell(source, metadata={"mystnb": shown}),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "small.ipynb")
    found = find_problems(typed_passages(tmp_path / "small.ipynb"), [])
    assert [problem.split("'")[1] for problem in found] == [
        "0.5",
        "1.5",
        "2.5",
        "3.5",
        "4.5",
        "5.5",
    ]
    assert [problem.split(":")[0] for problem in found] == ["cell 1", *["cell 2"] * 5]
