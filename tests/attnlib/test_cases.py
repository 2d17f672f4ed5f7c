"""Small inputs that broke attention code in public, with the right value, on each library.

`tests/data/attention_cases.json` names for each case the report that it comes from, the right value
(computed in float64 by a loop and a second implementation) and often what a wrong one gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnlib
from tests.kinds import KINDS, Kind, check_unchanged, snapshot, to_numpy

CASES = json.loads(
    (Path(__file__).parents[1] / "data" / "attention_cases.json").read_text(encoding="utf-8")
)

# What the contract has no option for, and how the case is expressed all the same.
EXPRESSED_DIFFERENTLY = {
    "alibi-with-cache": "no ALiBi option: the bias −slope · |position − j| is a float attn_mask",
    "alibi-slopes-three-heads": "no ALiBi option: the bias is a float attn_mask for each head",
    "sink-in-denominator": (
        "no sink option: a sink is one more key of zeros whose score a float attn_mask sets, and "
        "whose value is zero; its column of the weights is dropped"
    ),
    "weights-after-dropout": (
        "no dropout: attnlib computes what the case asks for, the weights before dropout"
    ),
    "bias-gradient-broadcast": (
        "attention_gradients gives dQ, dK and dV; the mask's gradient is held on torch, by autograd"
    ),
}


def kinds_of(case: dict) -> list[Kind]:
    """Return each library and device in the dtype that the case states, or float64."""
    return [kind for kind in KINDS if kind.dtype == case["inputs"].get("dtype", "float64")]


def numbers(literal: Any) -> np.ndarray:
    """Return nested lists, in which "inf", "-inf" and "nan" are numbers, as float64."""
    return np.array(literal, dtype=object).astype(np.float64)


def mask_of(kind: Kind, literal: Any) -> Any:
    """Return a literal mask: bool where it holds bools, else float."""
    array = np.array(literal)
    return kind.plain(array) if array.dtype == bool else kind.floats(numbers(literal))


def viewed(array: Any, view: str | None) -> Any:
    """Return the view of `array` that the case asks for, without a copy."""
    if view is None:
        return array
    name, _, rest = view.partition("(" if "(" in view else "[")
    sizes = [int(size) for size in rest.rstrip(")]").split(",")]
    if name == "transpose":
        return array.swapaxes(*sizes)
    assert name == "broadcast_to", f"unknown view {view}"
    return np.broadcast_to(array, sizes) if isinstance(array, np.ndarray) else array.expand(sizes)


def alibi(slopes: list[float], L: int, S: int, *, offset: int) -> np.ndarray:
    """Return −slope · |position − j| of shape (heads, L, S), query i at position i + offset."""
    distance = np.abs((np.arange(L)[:, None] + offset) - np.arange(S)[None, :])
    return -np.array(slopes)[:, None, None] * distance


class Call:
    """One call of the function, made from a case's inputs."""

    def __init__(self, case: dict, kind: Kind) -> None:
        inputs = case["inputs"]
        views = inputs.get("views", {})
        self.arrays = [
            viewed(kind.floats(numbers(inputs[name])), views.get(name))
            if name in inputs
            else kind.floats(np.zeros(inputs[name + "_shape"]))
            for name in ("query", "key", "value")
        ]
        names = ("is_causal", "causal_offset", "scale", "enable_gqa", "softcap")
        self.options = {name: inputs[name] for name in names if name in inputs}
        if "window" in inputs:
            self.options["window"] = tuple(inputs["window"])
        self.mask = mask_of(kind, inputs["mask"]) if "mask" in inputs else None
        if "alibi_slopes" in inputs:
            L, S = self.arrays[0].shape[-2], self.arrays[1].shape[-2]
            self.mask = kind.floats(alibi(inputs["alibi_slopes"], L, S, offset=0))

    def result(self, **more: Any) -> Any:
        return attnlib.scaled_dot_product_attention(*self.arrays, self.mask, **self.options, **more)


def check_expected(actual: Any, expected: Any, case: dict) -> None:
    """Assert that `actual` is the case's value within the tolerance that the case states."""
    atol = case["expect"]["atol"]
    values = (
        numbers(expected).reshape(actual.shape) if np.size(expected) == 0 else numbers(expected)
    )
    assert tuple(actual.shape) == values.shape
    np.testing.assert_allclose(to_numpy(actual), values, rtol=atol, atol=atol)


def check_function(case: dict, kind: Kind) -> None:
    """Assert what the case expects of one call of scaled_dot_product_attention."""
    expect, call = case["expect"], Call(case, kind)
    inputs = [*call.arrays, *([] if call.mask is None else [call.mask])]
    before = snapshot(*inputs)
    if "error" in expect:
        with pytest.raises({"ValueError": ValueError, "TypeError": TypeError}[expect["error"]]):
            call.result()
        return
    output, weights = call.result(return_weights=True)
    if "output_shape" in expect:
        assert list(output.shape) == expect["output_shape"]
    check_expected(output, expect["output"], case)
    check_expected(call.result(), expect["output"], case)
    if "weights" in expect:
        check_expected(weights, expect["weights"], case)
    check_unchanged(before, *inputs)
    if "grad_output" in case["inputs"]:
        check_gradients(case, kind)


def check_gradients(case: dict, kind: Kind) -> None:
    """Assert the gradients that the case expects; that of the mask where autograd gives it."""
    expect, call = case["expect"], Call(case, kind)
    grad_output = kind.floats(numbers(case["inputs"]["grad_output"]))
    gradients = attnlib.attention_gradients(*call.arrays, grad_output, call.mask, **call.options)
    names = ("grad_query", "grad_key", "grad_value")
    for name, gradient in zip(names, gradients, strict=True):
        check_expected(gradient, expect[name], case)
    if kind.library == "torch":
        leaves = [*call.arrays, *([call.mask] if "grad_mask" in expect else [])]
        for leaf in leaves:
            leaf.requires_grad_()
        call.result().backward(grad_output)
        for name, leaf in zip((*names, "grad_mask"), leaves, strict=False):
            check_expected(leaf.grad, expect[name], case)


def check_sink(case: dict, kind: Kind) -> None:
    """Assert the case of a sink: one more key of zeros, its score set by the mask, no value."""
    call = Call(case, kind)
    query, key, value = (to_numpy(array) for array in call.arrays)
    one_more = [(0, 0)] * (key.ndim - 2) + [(0, 1), (0, 0)]
    bias = np.zeros((key.shape[-2] + 1,))
    bias[-1] = case["inputs"]["sink"][0]
    output, weights = attnlib.scaled_dot_product_attention(
        kind.floats(query),
        kind.floats(np.pad(key, one_more)),
        kind.floats(np.pad(value, one_more)),
        kind.floats(bias),
        return_weights=True,
    )
    check_expected(output, case["expect"]["output"], case)
    check_expected(weights[..., :-1], case["expect"]["weights"], case)


def check_module(case: dict, kind: Kind) -> None:
    """Assert what the case expects of one call of MultiHeadAttention."""
    inputs, expect = case["inputs"], case["expect"]
    weights = {name: kind.floats(numbers(array)) for name, array in inputs["weights"].items()}
    module = attnlib.MultiHeadAttention(**weights, num_heads=inputs["num_heads"])
    options = {"is_causal": inputs.get("is_causal", False)}
    if "key_mask" in inputs:
        options["key_mask"] = mask_of(kind, inputs["key_mask"])
    query = kind.floats(numbers(inputs["query"]))
    output, attention_weights = module(query, return_weights=True, **options)
    check_expected(output, expect["output"], case)
    check_expected(module(query, **options), expect["output"], case)
    if "weights" in expect:
        check_expected(attention_weights, expect["weights"], case)


def check_cache(case: dict, kind: Kind) -> None:
    """Assert what the case expects of a cache and the calls that read it."""
    inputs = case["inputs"]
    if "steps" in inputs:
        check_steps(case, kind)
    elif "cache_key" in inputs:
        check_static_cache(case, kind)
    else:
        check_one_step(case, kind)


def check_steps(case: dict, kind: Kind) -> None:
    cache, expect = attnlib.KVCache(), case["expect"]
    for step, output, length in zip(
        case["inputs"]["steps"], expect["outputs"], expect["cache_lengths"], strict=True
    ):
        if step.get("reset"):
            cache.reset()
        offset = len(cache)
        query, key, value = (kind.floats(numbers(step[name])) for name in ("query", "key", "value"))
        cache.append(key, value)
        assert len(cache) == length
        actual = attnlib.scaled_dot_product_attention(
            query, cache.keys, cache.values, is_causal=True, causal_offset=offset
        )
        check_expected(actual, output, case)


def check_one_step(case: dict, kind: Kind) -> None:
    inputs, expect, cache = case["inputs"], case["expect"], attnlib.KVCache()
    for key, value in (("past_key", "past_value"), ("key", "value")):
        offset = len(cache)
        cache.append(kind.floats(numbers(inputs[key])), kind.floats(numbers(inputs[value])))
    assert len(cache) == expect["cache_length"]
    query = kind.floats(numbers(inputs["query"]))
    bias = None
    if "alibi_slopes" in inputs:
        L, S = query.shape[-2], len(cache)
        bias = kind.floats(alibi(inputs["alibi_slopes"], L, S, offset=offset))
    output, weights = attnlib.scaled_dot_product_attention(
        query,
        cache.keys,
        cache.values,
        bias,
        is_causal=True,
        causal_offset=offset,
        return_weights=True,
    )
    check_expected(output, expect["output"], case)
    check_expected(weights, expect["weights"], case)


def check_static_cache(case: dict, kind: Kind) -> None:
    """Assert the case of a buffer with a valid length: by offset, by key_mask, and by slicing."""
    inputs, expect = case["inputs"], case["expect"]
    query, key, value = (
        kind.floats(numbers(inputs[name])) for name in ("query", "cache_key", "cache_value")
    )
    (length,) = np.atleast_1d(inputs["cache_length"]).tolist()
    offset = length - query.shape[-2]
    attend = attnlib.scaled_dot_product_attention
    valid = kind.plain(np.arange(key.shape[-2]) < length)
    whole = {"is_causal": True, "causal_offset": kind.plain([offset])}
    padded = {"key_mask": valid, "is_causal": True, "causal_offset": offset}
    sliced = key[..., :length, :], value[..., :length, :]
    output, weights = attend(query, key, value, return_weights=True, **whole)
    check_expected(output, expect["output"], case)
    check_expected(attend(query, key, value, **whole), expect["output"], case)
    check_expected(attend(query, key, value, **padded), expect["output"], case)
    check_expected(
        attend(query, *sliced, is_causal=True, causal_offset=offset), expect["output"], case
    )
    if "weights" in expect:
        check_expected(weights, expect["weights"], case)


def check_softmax(case: dict, kind: Kind) -> None:
    """Assert the case of a softmax alone: of the function, and of the engine of the kind."""
    scores, expected = numbers(case["inputs"]["scores"]), case["expect"]["output"]
    check_expected(attnlib.softmax(scores), expected, case)
    rows, columns = scores.shape
    _, weights = attnlib.scaled_dot_product_attention(
        kind.floats(np.zeros((rows, 1))),
        kind.floats(np.zeros((columns, 1))),
        kind.floats(np.zeros((columns, 1))),
        kind.floats(scores),
        return_weights=True,
    )
    check_expected(weights, expected, case)


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        pytest.param(case, kind, id=f"{case['id']}-{kind}")
        for case in CASES
        for kind in kinds_of(case)
    ],
)
def test_case_gives_the_right_value(case, kind):
    if "sink" in case["inputs"]:
        check_sink(case, kind)
    elif case["op"] == "sdpa":
        check_function(case, kind)
    elif case["op"] == "mha":
        check_module(case, kind)
    elif case["op"] == "kvcache":
        check_cache(case, kind)
    else:
        assert case["op"] == "softmax"
        check_softmax(case, kind)


def test_there_are_49_cases_with_a_source_each():
    assert len(CASES) == 49
    assert len({case["id"] for case in CASES}) == 49
    assert all(case["source"].startswith("https://") for case in CASES)


def test_what_is_expressed_differently_is_in_the_list():
    beyond = {"alibi_slopes", "sink", "dropout_p"}
    found = {case["id"] for case in CASES if beyond & case["inputs"].keys()}
    found |= {case["id"] for case in CASES if "grad_mask" in case["expect"]}
    assert found == EXPRESSED_DIFFERENTLY.keys()


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_naive_value_differs_from_the_right_one(case):
    """Else the case could not catch what it is there to catch."""
    naive = case["expect"].get("naive", {})
    named = [name for name in naive if name in case["expect"]]
    assert named or "naive" not in case["expect"] or {"error", "step", "output"} & naive.keys()
    for name in named:
        right = numbers(case["expect"][name])
        wrong = numbers(naive[name])
        assert right.shape != wrong.shape or not np.allclose(right, wrong, atol=1e-6)
