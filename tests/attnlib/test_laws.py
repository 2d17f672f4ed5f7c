"""The laws: every implementation holds them, and each says plainly where a function does not."""

from __future__ import annotations

import doctest
import re
import warnings

import numpy as np
import pytest

import attnlib
from attnlib.teaching import laws
from attnlib.teaching.implementations import implementations
from attnlib.teaching.laws import LAWS, broken_laws, checked_laws, describe, law
from tests import reference
from tests.attnlib.test_package import run_python


def oracle(query, key, value, *, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    """Attention as the loop that all tests compare with."""
    options = {"is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    return reference.attention(query, key, value, attn_mask, **options)[0]


IMPLEMENTATIONS = {
    "the tests' own loop": describe(oracle, promises=["exact", "nan"]),
    **implementations(),
}
ASKED = [
    pytest.param(law, implementation, id=f"{law.name}-{name}")
    for name, implementation in IMPLEMENTATIONS.items()
    for law in LAWS
    if law.applies_to(implementation)
]


class TestEveryImplementation:
    @pytest.mark.parametrize(("law", "implementation"), ASKED)
    def test_holds_every_law_that_applies(self, law, implementation):
        assert law.counterexample(implementation) is None

    def test_of_the_library_is_asked_what_it_can_do(self):
        asked = {
            name: {law.name for law in LAWS if law.applies_to(implementation)}
            for name, implementation in IMPLEMENTATIONS.items()
        }
        attention = {law.name for law in LAWS if law.kind == "attention"}
        assert asked["scaled_dot_product_attention"] == attention
        assert attention - asked["the tests' own loop"] == {"chunks"}
        assert attention - asked["dense_attention"] >= {"later-tokens", "masked-pairs", "chunks"}
        assert asked["causal_attention"] >= {"later-tokens", "prefix", "nan-stays-masked"}
        assert asked["multi_head_attention"] >= {"one-head", "looped-heads", "heads-batch"}
        assert asked["MultiHeadAttention"] == {law.name for law in LAWS if law.kind == "multi-head"}
        assert set().union(*asked.values()) == {law.name for law in LAWS}


class TestLaws:
    def test_are_about_a_dozen_or_more_with_names_of_their_own(self):
        names = [law.name for law in LAWS]
        assert len(names) >= 12
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in names)

    @pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
    def test_state_one_plain_sentence_a_kind_and_a_comparison(self, law):
        assert re.fullmatch(r"[A-Z][^.]*\.", law.sentence)
        assert law.kind in laws.KINDS
        assert law.comparison
        known = {*laws.OPTIONS, *laws.PROMISES, "dense"}
        assert set(law.needs) <= known

    def test_are_found_by_name(self):
        assert all(law(one.name) is one for one in LAWS)
        with pytest.raises(ValueError, match=r"name: needs one of rows-sum-to-one, .* got 'rows'"):
            law("rows")

    def test_draw_sizes_that_all_differ_and_grow(self):
        for size in (*laws.SIZES, *laws.SEQUENCES):
            assert len(set(size)) == len(size)
        implementation = describe(attnlib.scaled_dot_product_attention)
        totals = [sum(a.size for a in case.arrays) for case in laws._cases(implementation)]
        assert totals == sorted(totals)

    def test_draw_the_same_inputs_on_every_run(self):
        def wrong(Q, K, V):
            return np.zeros((len(Q), V.shape[1]))

        first, second = (
            [str(broken.counterexample) for broken in broken_laws(wrong)] for _ in range(2)
        )
        assert first == second != []

    def test_need_neither_torch_nor_matplotlib(self):
        code = (
            "import sys, attnlib; from attnlib.teaching.laws import broken_laws; "
            "assert broken_laws(attnlib.dense_attention) == []; "
            "print({'torch', 'matplotlib', 'hypothesis'} & {*sys.modules})"
        )
        done = run_python(code)
        assert (done.stdout.strip(), done.stderr) == ("set()", "")

    def test_cannot_be_asked_of_what_does_not_fit(self):
        with pytest.raises(ValueError, match="law 'later-tokens': needs attention, causal, got"):
            law("later-tokens").counterexample(describe(attnlib.dense_attention))
        with pytest.raises(ValueError, match="law 'one-head': needs multi-head"):
            broken_laws(attnlib.dense_attention, names=["one-head"])

    def test_examples_in_docstrings_run(self):
        assert doctest.testmod(laws).failed == 0
        assert doctest.testmod(laws).attempted >= 8


class TestDescription:
    def test_takes_the_options_from_the_signature(self):
        implementation = describe(attnlib.scaled_dot_product_attention)
        wanted = {"is_causal", "attn_mask", "scale", "causal_offset", "enable_gqa"}
        assert implementation.options == wanted

    def test_can_be_given_the_options(self):
        implementation = describe(lambda *arrays, **options: None, options=["is_causal"])
        assert implementation.options == {"is_causal"}

    def test_of_something_without_a_signature_has_no_options(self):
        assert describe(np.matmul).options == frozenset()

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"kind": "heads"}, "kind: needs one of attention, multi-head, gradients"),
            ({"options": ["mask"]}, r"options: needs one of is_causal, .* got \['mask'\]"),
            ({"promises": ["fast"]}, r"promises: needs one of causal, .* got \['fast'\]"),
        ],
    )
    def test_refuses_what_it_does_not_know(self, wrong, message):
        with pytest.raises(ValueError, match=message):
            describe(attnlib.dense_attention, **wrong)

    def test_says_which_laws_will_be_asked(self):
        names = {law.name for law in checked_laws(attnlib.causal_attention, promises=["causal"])}
        assert {"later-tokens", "prefix", "scaling"} <= names
        assert not names & {"key-order", "query-order"}
        chosen = checked_laws(attnlib.causal_attention, names=["prefix"], promises=["causal"])
        assert [law.name for law in chosen] == ["prefix"]


def raises(Q, K, V):
    raise RuntimeError("no idea\nat all")


FAILURES = {
    "raises": (raises, "came RuntimeError: no idea, needed a result"),
    "returns nothing": (lambda Q, K, V: None, "came an array of shape (), needed an array of"),
    "returns a pair": (lambda Q, K, V: (V, V), "came a tuple of 2, needed an array of shape"),
    "returns words": (lambda Q, K, V: "zeros", "came something of type str, needed an array"),
    "returns the wrong shape": (lambda Q, K, V: V.T, "came an array of shape (4, 2), needed"),
    "takes too little": (lambda Q: Q, "came TypeError"),
    "is no function": (5, "came TypeError: 'int' object is not callable, needed a result"),
}


class TestCounterexample:
    @pytest.mark.parametrize("failure", FAILURES)
    def test_is_what_a_function_that_fails_gets(self, failure):
        function, message = FAILURES[failure]
        broken = broken_laws(function)
        assert {law.name for law, _ in broken} >= {"key-order", "scaling", "inputs-untouched"}
        assert message in str(law("key-order").counterexample(describe(function)))

    def test_is_a_line_of_what_was_given_and_one_of_what_came(self):
        def no_softmax(Q, K, V):
            return Q @ K.T @ V

        for _, counterexample in broken_laws(no_softmax):
            given, came = str(counterexample).splitlines()
            assert given.startswith("Given ")
            assert re.match(r"came .*, needed .*\.$", came)

    def test_is_the_smallest_input_that_shows_it(self):
        """With one query softmax over the wrong axis is wrong already, reshaping is not."""

        def over_queries(Q, K, V):
            return attnlib.softmax(Q @ K.T / np.sqrt(Q.shape[1]), axis=0) @ V

        found = law("rows-sum-to-one").counterexample(describe(over_queries))
        assert found.given.startswith("1 query and 2 keys of width 3; values that are")
        assert found.came == "weights [1, 1] of query 0, which sum to 2"

        def transposed_by_reshape(Q, K, V):
            scores = (K @ Q.T).reshape(len(Q), len(K))
            return attnlib.softmax(scores) @ V

        found = law("query-order").counterexample(describe(transposed_by_reshape))
        assert found.given.startswith("2 queries and 3 keys of width 1")

    def test_can_be_run_again(self):
        def twice(Q, K, V):
            return 2 * attnlib.dense_attention(Q, K, V)

        found = law("scaling").counterexample(describe(twice))
        assert found.came == f"output 0 = {laws._numbers(twice(*found.arguments)[0])}"
        assert found.needed == "[3.167, 2.833]"

    def test_names_the_query_and_what_was_changed(self):
        def one_too_far(Q, K, V):
            visible = np.tri(len(Q), len(K), 1, dtype=bool)
            scores = np.where(visible, Q @ K.T / np.sqrt(Q.shape[1]), -np.inf)
            return attnlib.softmax(scores) @ V

        found = law("later-tokens").counterexample(describe(one_too_far, promises=["causal"]))
        assert found.given.startswith("2 tokens")
        assert found.given.endswith("token 1 was changed")
        assert found.came.startswith("output 0 = [")

    def test_says_how_far_apart_numbers_are_that_print_alike(self):
        def leaks_a_little(Q, K, V):
            return attnlib.causal_attention(Q, K, V) + 1e-13 * V.sum()

        described = {
            promise: describe(leaks_a_little, promises=["causal", *promise])
            for promise in ((), ("exact",))
        }
        assert law("later-tokens").counterexample(described[()]) is None
        found = law("later-tokens").counterexample(described["exact",])
        assert re.search(r"\(they differ by \de-1\d\)", found.needed)

    def test_does_not_depend_on_what_a_function_does_to_its_inputs(self):
        def destructive(Q, K, V):
            output = attnlib.dense_attention(Q, K, V)
            for array in (Q, K, V):
                array[:] = 0
            return output

        assert [law.name for law, _ in broken_laws(destructive)] == ["inputs-untouched"]

    def test_is_not_a_warning(self):
        def warns(Q, K, V):
            warnings.warn("look here", stacklevel=1)
            return attnlib.dense_attention(Q, K, V)

        assert broken_laws(warns) == []

    def test_of_gradients_asks_for_three_arrays(self):
        found = broken_laws(lambda Q, K, V, dO: Q, kind="gradients")[0].counterexample
        assert found.needed == "three arrays, dQ, dK, dV"

    def test_lets_an_interrupt_through(self):
        def interrupted(Q, K, V):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            broken_laws(interrupted)


def test_a_function_of_one_query_is_asked_row_by_row():
    assert broken_laws(laws.row_by_row(attnlib.single_query_attention)) == []
    prefixes = laws.row_by_row(attnlib.single_query_attention, is_causal=True)
    assert broken_laws(prefixes, promises=["causal", "exact", "nan"]) == []
    multiplied = laws.row_by_row(
        lambda q, K, V: attnlib.single_query_attention(q, K, V, scale=np.sqrt(len(q)))
    )
    assert [law.name for law, _ in broken_laws(multiplied)] == ["scaling"]
