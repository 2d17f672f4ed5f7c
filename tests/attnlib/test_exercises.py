"""`exercises.check` names what went wrong, whatever it is given, and never raises."""

import contextlib
import io
import itertools
import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.formatters import DisplayFormatter

from attnlib import causal_attention, dense_attention, single_query_attention, softmax
from attnlib.teaching import exercises, zoo
from attnlib.teaching.exercises import NOT_ANSWERED, exercise
from attnlib.teaching.exercises import multi_head as two_heads
from attnlib.teaching.exercises.kinds import (
    AnyOf,
    Choice,
    Function,
    Numbers,
    Order,
    Parts,
    Statement,
    verdict_on,
)
from tests.chapters.documents import NOTEBOOKS, read_notebook

NAMES = exercises.names()


def quietly(name, answer):
    """Return the result of a check, and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = exercises.check(name, answer)
    return result, printed.getvalue()


def on_one_line(message):
    return " ".join(message.split())


def questions(kind, path):
    """Yield every single question of an exercise with where it stands."""
    if isinstance(kind, Parts):
        for name, part in kind.parts.items():
            yield from questions(part, f"{path}, {name}")
    elif isinstance(kind, AnyOf):
        for number, part in enumerate(kind.kinds):
            yield from questions(part, f"{path} ({number})")
    else:
        yield path, kind


QUESTIONS = {path: kind for name in NAMES for path, kind in questions(exercise(name), name)}


def each(kind, *, when=lambda question: True):
    found = {path: one for path, one in QUESTIONS.items() if isinstance(one, kind) and when(one)}
    return pytest.mark.parametrize("question", found.values(), ids=found.keys())


def check_says(question, answer, beginning, passed=False):
    verdict = verdict_on(question, answer)
    assert on_one_line(verdict.message).startswith(on_one_line(beginning)), verdict.message
    assert verdict.passed is passed


class TestSlips:
    """Each wrong answer that somebody foresaw is told what is said about it, and nothing else."""

    @each(Numbers, when=lambda question: question.through is None)
    def test_of_numbers_are_told_apart(self, question):
        for says, slip in question.slips.items():
            check_says(question, slip(), f"Not yet. {says}")

    @each(Numbers, when=lambda question: question.through is None)
    def test_and_the_right_numbers_pass(self, question):
        check_says(question, question.right(), f"Right. {question.checked}", passed=True)

    @each(Numbers)
    def test_of_numbers_differ_from_what_is_right_and_from_each_other(self, question):
        values = [question.right(), *(slip() for slip in question.slips.values())]
        arrays = [np.asarray(value, float) for value in values]
        for one, other in itertools.combinations(arrays, 2):
            assert not question._same(one, other)

    @each(Function)
    def test_of_functions_are_told_apart(self, question):
        for says, slip in question.slips.items():
            check_says(question, slip, f"Not yet. {says}")

    @each(Function)
    def test_and_the_right_function_passes(self, question):
        check_says(question, question.right, f"Right. {question.checked}", passed=True)

    @each(Choice)
    def test_of_choices_are_every_option(self, question):
        right = [question.right] if isinstance(question.right, str) else question.right
        assert set(right) < set(question.options)
        for option, says in question.options.items():
            opening = "Right." if option in right else "Not yet."
            check_says(question, f" {option.upper()}. ", f"{opening} {says}", option in right)
        check_says(question, "some other word", "Not yet. 'some other word' is not it.")

    @each(Statement)
    def test_of_statements_are_their_opposites(self, question):
        words = {True: (True, np.True_, "true", "Yes", "T"), False: (False, "false", "no")}
        for said in words[question.right]:
            check_says(question, said, f"Right. {question.because}", passed=True)
        for said in words[not question.right]:
            check_says(question, said, f"Not yet. {question.hint}")
        check_says(question, "perhaps", "Not yet. True or False is wanted.")

    def test_there_is_a_question_of_every_kind(self):
        assert {type(question) for question in QUESTIONS.values()} >= {
            *(Choice, Function, Numbers, Order, Statement),
        }


class TestKnownSlips:
    """The slips that the curriculum names."""

    @pytest.mark.parametrize(
        ("name", "answer", "says"),
        [
            (
                "single-query-1",
                [[2, 8], [4, 16], [6.14e-6, 0.99999]],
                "scores: You multiplied by √d instead of dividing.",
            ),
            (
                "single-query-1",
                [[5, 2], [1, 4], [0.0474, 0.9526]],
                "dot products: You forgot the transpose",
            ),
            ("single-query-1", [[2, 8], [2, 8], [0.0025, 0.9975]], "weights: You forgot the scale"),
            ("causal-1", [8, 7], "You added the values without their weights."),
            ("causal-3", [1, 1, 1], "by contribution: That is the largest weight."),
            (
                "causal-4",
                [3, [0.1, 0.2, 0.6], "c"],
                "weights: You crossed the term out and no more",
            ),
            ("multi-head-1", [[64, 768**-0.5], [96, 96**-0.5]], "belongs to the width of a head"),
            ("multi-head-2", [True, True], "several heads: The heads share the width"),
            ("multi-head-4", [3, 2, 1, 1], "W^head is missing."),
        ],
    )
    def test_are_called_by_their_names(self, name, answer, says):
        result, _ = quietly(name, answer)
        assert result.passed is False
        assert says in on_one_line(result.message)

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (np.log([2, 2, 2, 2]), "The signs are wrong"),
            (-np.log([2, 1, 1, 2]), "You forgot the scale"),
            (-np.log([1, 1, 1, 1]), "The first that differs is entry 0"),
            ([[1, 2], [3, 4]], "The answer has shape (4,); yours has shape (2, 2)."),
        ],
    )
    def test_of_a_query_are_seen_through_its_weights(self, answer, says):
        check_says(exercise("single-query-5"), answer, f"Not yet. {says}")

    def test_through_a_measure_weights_are_held_to_their_law_first(self):
        result, _ = quietly("dense-3", [2**1.5, [1, 1, 0]])
        assert "Weights sum to 1 (Law 1.1); yours sum to 2." in on_one_line(result.message)
        assert quietly("dense-3", [2**1.5, [0, 0.5, 0.5]])[0].passed


class TestLaws:
    @pytest.mark.parametrize(
        ("name", "answer", "says"),
        [
            ("causal-1", [3.5, 9], "A mixture lies between the smallest and the largest"),
            ("single-query-3", [[0.5, 0.2, 0.2], [1, 1]], "Weights sum to 1 (Law 1.1)"),
            ("single-query-3", [[1.5, -0.2, -0.3], [1, 1]], "Weights are never negative (Law 1.1)"),
            (
                "causal-2",
                [[[0.7, 0.3, 0], [0.5, 0.5, 0], [0.1, 0.2, 0.7]], [[0, 0]] * 3, [1, 3, 5]],
                "A token never attends to a later one; you give token 1 a weight of 0.3 at "
                "position 0.",
            ),
        ],
    )
    def test_broken_by_numbers_are_named(self, name, answer, says):
        assert says in on_one_line(quietly(name, answer)[0].message)

    @pytest.mark.parametrize(
        ("name", "function", "sentence"),
        [
            ("single-query-8", lambda q, K, V: 0.7 * single_query_attention(q, K, V), "sum to one"),
            ("causal-8", lambda Q, K, V: dense_attention(Q, K, V, scale=0.3), "later token"),
            ("dense-9", lambda Q, K, V: dense_attention(Q, K - K[0], V, scale=0.3), "ln 3"),
            ("multi-head-9", lambda x, *_: x, "One head"),
        ],
    )
    def test_broken_by_functions_come_with_the_smallest_counterexample(
        self, name, function, sentence
    ):
        message = on_one_line(quietly(name, function)[0].message)
        assert re.match(rf"Not yet\. It breaks a law: .*{sentence}.* Given .* needed", message)

    def test_judge_options_that_only_the_readers_function_has(self):
        def with_mask(Q, K, V, *, attn_mask=None):
            scores = Q @ K.T / np.sqrt(Q.shape[1])
            return softmax(scores if attn_mask is None else np.where(attn_mask, scores, -1e9)) @ V

        message = on_one_line(quietly("dense-9", with_mask)[0].message)
        assert "A query that may attend to nothing gets zeros." in message

    def test_that_messages_quote_stand_in_the_chapters(self):
        prose = "\n".join(cell.source for path in NOTEBOOKS for cell in read_notebook(path).cells)
        said = "\n".join(
            quietly(name, answer)[0].message
            for name in NAMES
            for answer in ([[9, 9]] * 3, [9, 9], [[2, 2, 2]] * 3)
        )
        quoted = set(re.findall(r"\bLaw \d\.\d", said))
        assert quoted
        assert all(f"> **{law}**" in prose for law in quoted)


def matching(animal):
    """Return the function exercise that an animal could be an answer to."""
    if animal.kind == "attention":
        return "causal-8" if "causal" in animal.promises else "dense-9"
    if animal.kind == "multi-head":
        return "generation-9" if "causal" in animal.promises else "multi-head-9"
    return "gradients-10"


def as_answer(animal, function):
    """Return an animal or its twin as the exercise calls it."""
    if matching(animal) == "generation-9":
        return lambda *arguments: function(*arguments[:-1], chunks=arguments[-1])
    return function


TAME = {"nan-times-zero", "batch-and-heads-swapped"}  # right on what is asked, with a remark


class TestZoo:
    @pytest.mark.parametrize("animal", zoo.ANIMALS, ids=lambda animal: animal.name)
    def test_every_animal_is_recognised(self, animal):
        question = exercise(matching(animal))
        passed, message = verdict_on(question, as_answer(animal, animal.function))
        message = on_one_line(message)
        known = [*question.slips, f"{animal.cause} {animal.fix}"]
        if animal.name in TAME:
            assert passed
            assert any(on_one_line(remark) in message for remark in question.remarks)
        else:
            assert not passed
            assert any(message.startswith(f"Not yet. {on_one_line(says)}") for says in known)

    def test_no_two_animals_get_the_same_message(self):
        messages = []
        for animal in zoo.ANIMALS:
            answer = as_answer(animal, animal.function)
            messages.append((matching(animal), verdict_on(exercise(matching(animal)), answer)))
        assert len(set(messages)) == len(messages)

    @pytest.mark.parametrize("animal", zoo.ANIMALS, ids=lambda animal: animal.name)
    def test_the_right_code_beside_it_passes_without_a_remark(self, animal):
        question = exercise(matching(animal))
        passed, message = verdict_on(question, as_answer(animal, animal.twin))
        assert passed
        if animal.name in TAME:
            assert on_one_line(message) == on_one_line(f"Right. {question.checked}")


class TestOrder:
    """Exercise 4.3: every order that gives the right numbers passes, and no other."""

    STEPS = exercise("multi-head-3").parts["steps"]

    def run(self, order):
        """Return token 1's causal output when the steps are run in this order, or None."""
        x, seen = two_heads.X, np.array([True, True, False])
        things = {"H": dict.fromkeys("qkv", x)}

        def project():
            kept = things.pop("H")
            weights = {"q": two_heads.W_Q, "k": two_heads.W_K, "v": two_heads.W_V}
            things["qkv"] = {name: kept[name] @ weights[name][0] for name in "qkv"}

        def dot_products():
            qkv = things.pop("qkv")
            things.update(scores=qkv["q"][1] @ qkv["k"].T, values=qkv["v"])

        def scale():
            for name in ("scores", "weights"):
                if name in things:
                    things[name] = things[name] / np.sqrt(2)
                    return
            if "qkv" in things:
                things["qkv"]["q"] = things["qkv"]["q"] / np.sqrt(2)
            elif "H" in things:  # all that is made of it is scaled
                things["H"] = {name: kept / np.sqrt(2) for name, kept in things["H"].items()}
            else:
                things["output"] = things["output"] / np.sqrt(2)

        def mask():
            if "scores" in things:
                things["scores"] = np.where(seen, things["scores"], -np.inf)
            else:
                things["weights"] = np.where(seen, things["weights"], 0.0)

        def to_weights():
            things["weights"] = softmax(things.pop("scores"))

        def weighted_sum():
            things["output"] = things.pop("weights") @ things["values"]

        steps = dict(
            zip("abcdef", (weighted_sum, to_weights, dot_products, mask, project, scale),
                strict=True)
        )  # fmt: skip
        try:
            for letter in order:
                steps[letter]()
        except KeyError:
            return None
        return things["output"]

    def test_what_passes_is_what_gives_the_right_numbers(self):
        right = causal_attention(
            *(two_heads.X @ w[0] for w in (two_heads.W_Q, two_heads.W_K, two_heads.W_V))
        )[1]
        passing = set()
        for order in itertools.permutations("abcdef"):
            result = self.run(order)
            same = result is not None and np.allclose(result, right)
            verdict = verdict_on(self.STEPS, list(order))
            assert verdict.passed == same, order
            assert "cannot be read" not in verdict.message, order
            passing |= {"".join(order)} if same else set()
        assert passing == set(self.STEPS.remarks)
        assert len(passing) == 3

    def test_every_reason_can_be_told(self):
        told = {
            verdict_on(self.STEPS, "".join(o)).message for o in itertools.permutations("abcdef")
        }
        for why in self.STEPS.before.values():
            assert any(on_one_line(why) in on_one_line(message) for message in told)

    @pytest.mark.parametrize("answer", ["E, C, F, D, B, A", "e c f d b a", tuple("ecfdba")])
    def test_may_be_written_in_several_ways(self, answer):
        assert verdict_on(self.STEPS, answer).passed

    @pytest.mark.parametrize("answer", ["ecfdb", "ecfdbx", ["e"] * 6, 7, itertools.count()])
    def test_needs_each_letter_once(self, answer):
        check_says(self.STEPS, answer, "Not yet.")


class Hostile:
    """An object that raises whatever is asked of it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)

    __len__ = __iter__ = __eq__ = __array__ = __float__ = __bool__ = __repr__ = __getattribute__
    __hash__ = None


def raising(*arguments):
    raise SystemExit("the reader's function ends it all")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.complex_numbers(),
    st.binary(max_size=3), st.fractions(), st.decimals(), st.datetimes(),
)  # fmt: skip
ODD_OBJECTS = {
    "object": object(),
    "class": type,
    "function that raises": raising,
    "function that returns nothing": lambda *_: None,
    "function that returns what raises": lambda *_: Hostile(),
    "built-in function": print,
    "too large for a float": 10**400,
    "array without axes": np.array(7),
    "array without entries": np.zeros((0, 3)),
    "array of text": np.array(["x"]),
    "array of objects": np.array([None, 1]),
    "masked": np.ma.masked,
    "date": np.datetime64("2020"),
    "range": range(3),
    "without end": itertools.count(),
    "set": {1, 2},
    "ragged": [[1], [1, 2]],
    "division by zero": "1/0",
}
ODD = st.sampled_from(list(ODD_OBJECTS.values()))
HOSTILE = {  # hypothesis itself cannot look at these
    "raises whatever it is asked": Hostile(),
    "list of what raises": [Hostile()] * 3,
}
ANSWERS = st.recursive(
    SCALARS | ODD,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


class TestResult:
    @settings(max_examples=60)
    @given(name=st.sampled_from(NAMES) | st.one_of(SCALARS, ODD), answer=ANSWERS)
    def test_comes_whatever_the_answer_is_and_is_what_is_printed(self, name, answer):
        result, printed = quietly(name, answer)
        assert printed.endswith(result.message + "\n")  # the reader's function may print, too
        assert result.passed in (True, False, None)
        assert result.message.strip() == result.message

    @pytest.mark.parametrize("odd", [*ODD_OBJECTS, *HOSTILE])
    def test_comes_for_every_odd_object(self, odd):
        answer = (ODD_OBJECTS | HOSTILE)[odd]
        for name in NAMES:
            result, printed = quietly(name, answer)
            assert result.passed is False
            assert printed.endswith(result.message + "\n")
        assert quietly(answer, 1)[0].passed is None

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("answer", [None, ...])
    def test_of_a_stub_is_one_fixed_line(self, name, answer):
        result, printed = quietly(name, answer)
        assert (result.name, result.passed) == (name, None)
        assert printed == NOT_ANSWERED + "\n"
        assert not result

    @pytest.mark.parametrize("name", NAMES)
    def test_of_junk_is_never_a_pass(self, name):
        for junk in (0, "", [], {}, "a", [0] * 6, True, np.zeros(3), raising, lambda *_: 0):
            assert quietly(name, junk)[0].passed is False, junk

    def test_names_what_is_unanswered_in_a_list(self):
        message = quietly("causal-3", [1, None, None])[0].message
        assert message.count("not answered yet") == 2

    def test_takes_parts_by_name(self):
        parts = exercise("causal-3").parts
        answer = dict(zip(reversed(parts), [1, 2, 1], strict=True))
        assert quietly("causal-3", answer)[0].passed
        assert "A list of 3 answers is wanted" in quietly("causal-3", {"a": 1})[0].message

    @pytest.mark.parametrize(
        "answer",
        [
            ["31/10", "17/10"],
            [Fraction(31, 10), Fraction(17, 10)],
            (3.1, 1.7),
            np.array([3.1, 1.7], np.float32),
            [3.10004, 1.69996],
        ],
    )
    def test_takes_numbers_in_every_form(self, answer):
        assert quietly("causal-1", answer)[0].passed

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            ([3.12, 1.7], "This is close. Give 4 decimals"),
            ([1.7, 3.1], "These are the right numbers in another order."),
            ([3.1], "The answer has 2 numbers; yours has 1 number."),
            ([[3.1, 1.7]], "The answer has shape (2,); yours has shape (1, 2)."),
            ([2.1, 1.7], "The first that differs is entry 0: 2.1 is too small."),
            ([3.1, 3], "The first that differs is entry 1: 3 is too large."),
            ([1.55, 0.85], "All your numbers are the right ones times 0.5."),
            ([np.nan, 1.7], "NaN or infinity is among your numbers."),
            ([3.1j, 1.7], "Real numbers are wanted"),
            ({3.1, 1.7}, "This is a set, which has no order"),
            ([3.1, None], "One entry is still None."),
            (np.sum, "This is a function; the numbers that it returns are wanted"),
            ("three", "This cannot be read as numbers: it is a str."),
        ],
    )
    def test_says_how_numbers_differ(self, answer, says):
        check_says(exercise("causal-1"), answer, f"Not yet. {says}")

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (7, "A function is wanted, attention(Q, K, V); this is an int."),
            (lambda Q, K: Q, "Given Q = [[0.2], [-0.5]], K = [[-0.4], [-2.4]]"),
            (lambda Q, K, V: print, "It returns a builtin_function_or_method that cannot be"),
            (lambda Q, K, V: None, "It returns None. Is the line with return missing?"),
            (lambda Q, K, V: Q.fill(0) or Q, "It changes its inputs. Work on a copy."),
            (lambda Q, K, V: V[0], "Given Q = [[0.2], [-0.5]], K = [[-0.4], [-2.4]]"),
            (raising, "Given Q = [[0.2], [-0.5]], K = [[-0.4], [-2.4]]"),
        ],
    )
    def test_says_why_a_function_gives_nothing_to_compare(self, answer, says):
        check_says(exercise("causal-8"), answer, f"Not yet. {says}")

    def test_of_an_unknown_name_lists_the_known_ones(self):
        result, _ = quietly("Causal_3", 1)
        assert result.passed is None
        assert "Did you mean 'causal-3'?" in result.message
        for chapter in ("single-query", "causal", "dense", "multi-head"):
            assert f"{chapter}-1, 2, 3" in result.message
        assert "is a string" in quietly(3, 1)[0].message

    def test_shows_nothing_more_than_was_printed(self):
        result, _ = quietly("causal-1", [3.1, 1.7])
        assert DisplayFormatter().format(result) == ({}, {})

    def test_counts_as_true_only_if_it_passed(self):
        assert quietly("causal-1", [3.1, 1.7])[0]
        assert not quietly("causal-1", [3, 2])[0]

    def test_is_printed_where_only_ascii_is(self, monkeypatch):
        ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", ascii_only)
        result = exercises.check("causal-1", [3.1, 1.7])
        ascii_only.flush()
        assert b"agree with ? V." in ascii_only.buffer.getvalue()
        assert "α" in result.message

    def test_needs_numpy_alone(self):
        absent = ("torch", "matplotlib", "IPython", "scipy")
        code = (
            f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
            "from attnlib.teaching import exercises\n"
            "for name in exercises.names(): assert exercises.check(name, 0).passed is False\n"
            "f = lambda Q, K, V: Q @ K.T @ V\n"
            "assert 'law' in exercises.check('dense-9', f).message"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
        assert run.returncode == 0, run.stderr.decode()
