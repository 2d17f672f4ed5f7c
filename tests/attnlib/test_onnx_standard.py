"""What the ONNX operator Attention (opsets 23 to 25) specifies, against onnx's own evaluator.

How the contract says what the operator's arguments say (`attend`):

=============================  ====================================================================
operator                       `scaled_dot_product_attention`
=============================  ====================================================================
past_key, past_value           concatenated before key and value; `causal_offset` = past length
nonpad_kv_seqlen               `key_mask` of the first tokens; `causal_offset` = nonpad − L per item
left_, right_window_size       `window`; −1 is None
attn_mask, short last axis     as it is, with False or −inf at the end
softcap = 0.0                  `softcap` = None
more query heads than others   `enable_gqa`
3-D inputs with head counts    `split_heads`, `merge_heads`
qk_matmul_output_mode = 3      `return_weights`
softmax_precision              none: float32, or float64 for float64. Wider ones agree as well
=============================  ====================================================================

What the contract does not express, and so is not compared:

* present_key, present_value: what is concatenated comes back; `KVCache` holds it.
* qk_matmul_output_mode 0 to 2: scores before softmax are not returned.
* attn_mask of integers: refused, since frameworks disagree on what they mean.
* softmax_precision below the engines' own: they never compute softmax in half precision.
* K and V of different dtypes: refused; cast one of them.

Where the evaluator cannot serve as a reference (`TestTheEvaluator` holds that it still is so):

* A negative scale: it takes the square root, and gives NaN.
* float16 scores beyond 65504: it keeps scores in the dtype of the query, and gives NaN.
* Integer arrays: it gives numbers without meaning, where the contract refuses them.
* S = 0: it raises, where the contract gives zeros.
* A mask of one row, or of rank 1, with is_causal and no window: it counts the queries by the rows
  of the mask. Such masks are given to it with their rows written out, and to attnlib as they are.
* NaN in a masked key or value: it spreads, where the contract keeps it out.

Of the contract's arguments the operator has no: a negative scale, a `causal_offset` apart from
past and lengths, a `key_mask` with holes (its attn_mask can say that), more than one batch axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from attnlib import scaled_dot_product_attention
from attnlib.multi_head import merge_heads, split_heads
from tests.kinds import KINDS, NUMPY_FLOAT64, Kind, check_close, to_numpy

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from ml_dtypes import bfloat16  # noqa: E402
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

OPSETS = (23, 24, 25)
INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
ATTRIBUTES = {
    "is_causal", "kv_num_heads", "left_window_size", "q_num_heads", "qk_matmul_output_mode",
    "right_window_size", "scale", "softcap", "softmax_precision",
}  # fmt: skip
OUTPUTS = ["Y", "present_key", "present_value", "qk_matmul_output"]
WEIGHTS = 3  # the mode of qk_matmul_output after softmax
FLOAT, FLOAT16, DOUBLE = (
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "DOUBLE")
)

SCALES = [0.0, 0.25, 2.25]  # the evaluator rounds square roots of other scales to float32

B, Hq, Hkv, L, S, E, Ev = 2, 6, 3, 4, 7, 5, 8


@dataclass
class Operator:
    """One call of the operator; floats are float64 until a kind of array is chosen."""

    inputs: dict[str, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def opsets(self) -> list[int]:
        """The opsets that have all of these arguments."""
        windows = {"left_window_size", "right_window_size"}
        first = 25 if windows & set(self.attributes) else 23
        if "nonpad_kv_seqlen" in self.inputs:
            first = max(first, 24)
        return [opset for opset in OPSETS if opset >= first]

    def rounded(self, kind: Kind) -> Operator:
        """The call with the numbers that arrays of `kind` hold."""
        inputs = {
            name: to_numpy(kind.floats(array)) if array.dtype.kind == "f" else array
            for name, array in self.inputs.items()
        }
        return Operator(inputs, self.attributes)


# --- the two sides --------------------------------------------------------------------------------


def evaluate(call: Operator, opset: int, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Y and the weights of onnx's evaluator, computing in `dtype`, as float64."""
    feeds = {
        name: array.astype(dtype) if array.dtype.kind == "f" else array
        for name, array in call.inputs.items()
    }
    if "attn_mask" in feeds:
        feeds["attn_mask"] = with_rows_written_out(feeds["attn_mask"], call.inputs["Q"].shape[-2])
    names = [name if name in feeds else "" for name in INPUTS]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "", "", "qk_matmul_output"]
    node = helper.make_node(
        "Attention", names, outputs, qk_matmul_output_mode=WEIGHTS, **call.attributes
    )
    float_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ranks = {"Y": feeds["Q"].ndim, "qk_matmul_output": 4}
    graph = helper.make_graph(
        [node],
        "attention",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ],
        [
            helper.make_tensor_value_info(name, float_type, [None] * rank)
            for name, rank in ranks.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    onnx.checker.check_model(model, full_check=True)
    output, weights = ReferenceEvaluator(model).run(None, feeds)
    return output.astype(np.float64), weights.astype(np.float64)


def with_rows_written_out(mask: np.ndarray, queries: int) -> np.ndarray:
    """The mask with as many rows as there are queries."""
    mask = np.atleast_2d(mask)
    return np.broadcast_to(mask, (*mask.shape[:-2], queries, mask.shape[-1]))


def attend(call: Operator, kind: Kind) -> tuple[Any, Any]:
    """Output and weights of the same call in the words of the contract."""
    arrays = {
        name: kind.floats(array) if array.dtype.kind == "f" else array
        for name, array in call.inputs.items()
    }
    attributes = call.attributes
    heads = {"Q": attributes.get("q_num_heads"), "K": attributes.get("kv_num_heads")}
    heads["V"] = heads["K"]
    if arrays["Q"].ndim == 3:
        arrays |= {name: split_heads(arrays[name], count) for name, count in heads.items()}
    query, key, value = arrays["Q"], arrays["K"], arrays["V"]

    offset: Any = 0
    if "past_key" in arrays:
        key, value = joined(arrays["past_key"], key), joined(arrays["past_value"], value)
        offset = arrays["past_key"].shape[-2]
    options: dict[str, Any] = {"is_causal": bool(attributes.get("is_causal", 0))}
    if "nonpad_kv_seqlen" in arrays:
        lengths = arrays["nonpad_kv_seqlen"]
        options["key_mask"] = kind.plain(np.arange(key.shape[-2]) < lengths[:, None])
        offset = kind.plain(lengths - query.shape[-2])
    bounds = [attributes.get(f"{side}_window_size", -1) for side in ("left", "right")]
    if max(bounds) >= 0:
        options["window"] = tuple(None if bound < 0 else bound for bound in bounds)
    if options["is_causal"] or "window" in options:
        options["causal_offset"] = offset
    if "attn_mask" in call.inputs:
        mask = with_all_keys(call.inputs["attn_mask"], key.shape[-2])
        options["attn_mask"] = kind.plain(mask) if mask.dtype == bool else kind.floats(mask)
    output, weights = scaled_dot_product_attention(
        query,
        key,
        value,
        scale=attributes.get("scale"),
        softcap=attributes.get("softcap") or None,
        enable_gqa=query.shape[-3] != key.shape[-3],
        return_weights=True,
        **options,
    )
    return (merge_heads(output) if heads["Q"] else output), weights


def joined(past: Any, new: Any) -> Any:
    """Two arrays of either library, one after the other along length."""
    if isinstance(past, np.ndarray):
        return np.concatenate([past, new], axis=-2)
    import torch

    return torch.cat([past, new], dim=-2)


def with_all_keys(mask: np.ndarray, keys: int) -> np.ndarray:
    """The mask with False, or −inf, for the keys beyond its last axis."""
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, keys - mask.shape[-1])]
    excluded = False if mask.dtype == bool else -np.inf
    return np.pad(mask, missing, constant_values=excluded)


def check_standard(call: Operator, kind: Kind) -> None:
    """Assert that attnlib gives what the evaluator gives, in every opset that has the call.

    Within the rounding of the result where the evaluator computes in float64; in the newest opset
    also where it computes in the dtype of the kind, which in half precision rounds every step.
    """
    call = call.rounded(kind)
    output, weights = attend(call, kind)
    for opset in call.opsets:
        expected, expected_weights = evaluate(call, opset)
        check_close(output, expected, kind, factor=4)
        check_close(weights, expected_weights, kind, factor=4)
        assert (to_numpy(weights)[expected_weights == 0] == 0).all()
    if kind.dtype != "float64":
        own_dtype = bfloat16 if kind.dtype == "bfloat16" else np.dtype(kind.dtype)
        expected, expected_weights = evaluate(call, opset, own_dtype)
        check_close(output, expected, kind, factor=20)
        check_close(weights, expected_weights, kind, factor=20)


# --- calls ----------------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def allowed(*shape: int, seed: int = 401) -> np.ndarray:
    """Return a bool mask, True = may attend; the second row, where there is one, is empty."""
    mask = np.random.default_rng(seed).random(shape) < 0.6
    if len(shape) > 1 and shape[-2] > 1:
        mask[..., 1, :] = False
    return mask


def bias(*shape: int) -> np.ndarray:
    """Return a float mask with −inf, and a row of nothing else."""
    return np.where(allowed(*shape), normal(*shape, seed=402), -np.inf)


def operator(
    *,
    queries: int = L,
    keys: int = S,
    heads: int = Hkv,
    past: int | None = None,
    inputs: dict[str, np.ndarray] | None = None,
    **attributes: Any,
) -> Operator:
    """Return a call of 4-D inputs with grouped heads, past tokens and further arguments."""
    arrays = {
        "Q": normal(B, Hq, queries, E, seed=403),
        "K": normal(B, heads, keys, E, seed=404),
        "V": normal(B, heads, keys, Ev, seed=405),
    }
    if past is not None:
        arrays["past_key"] = normal(B, heads, past, E, seed=406)
        arrays["past_value"] = normal(B, heads, past, Ev, seed=407)
    return Operator(arrays | (inputs or {}), attributes)


def with_mask(mask: np.ndarray, **arguments: Any) -> Operator:
    return operator(inputs={"attn_mask": mask}, **arguments)


def with_lengths(*lengths: int, mask: np.ndarray | None = None, **arguments: Any) -> Operator:
    inputs = {"nonpad_kv_seqlen": np.array(lengths, dtype=np.int64)}
    return operator(inputs=inputs | ({} if mask is None else {"attn_mask": mask}), **arguments)


CAUSAL = {
    "more keys than queries": operator(is_causal=1),
    "more queries than keys": operator(queries=9, is_causal=1),
    "as many queries as keys": operator(queries=S, is_causal=1),
    "one query": operator(queries=1, is_causal=1),
    "one key": operator(keys=1, is_causal=1),
    "no past": operator(past=0, is_causal=1),
    "a past of one": operator(past=1, is_causal=1),
    "a past longer than the call": operator(past=9, is_causal=1),
    "a past and one new token": operator(queries=1, keys=1, past=9, is_causal=1),
    "a past and a bool mask": with_mask(allowed(L, S + 9), past=9, is_causal=1),
    "lengths for each item": with_lengths(5, 7, is_causal=1),
    "lengths below the queries": with_lengths(1, 3, is_causal=1),
    "a length of none": with_lengths(0, 7, is_causal=1),
    "lengths and a mask": with_lengths(6, 4, mask=allowed(L, S), is_causal=1),
}
LENGTHS = {
    "without positions": with_lengths(5, 7),
    "none at all": with_lengths(0, 0),
    "and a float mask for each head": with_lengths(6, 3, mask=bias(Hq, L, S)),
    "and a mask as short as the longest": with_lengths(5, 3, mask=allowed(L, 5)),
}
RANKS = {
    "(S,)": (S,),
    "(1,)": (1,),
    "(L, S)": (L, S),
    "(1, S)": (1, S),
    "(Hq, L, S)": (Hq, L, S),
    "(1, L, S)": (1, L, S),
    "(Hq, 1, S)": (Hq, 1, S),
    "(B, Hq, L, S)": (B, Hq, L, S),
    "(B, 1, L, S)": (B, 1, L, S),
    "(B, 1, 1, S)": (B, 1, 1, S),
    "(1, Hq, 1, S)": (1, Hq, 1, S),
    "short (3,)": (3,),
    "short (L, 1)": (L, 1),
    "short (L, 5)": (L, 5),
    "short (Hq, L, 6)": (Hq, L, 6),
    "short (B, 1, 1, 2)": (B, 1, 1, 2),
}
WINDOWS = {
    "to the left": {"left_window_size": 2},
    "to the right": {"right_window_size": 1},
    "of one": {"left_window_size": 0, "right_window_size": 0},
    "on both sides": {"left_window_size": 1, "right_window_size": 2},
    "causal": {"left_window_size": 2, "is_causal": 1},
    "causal with a right side": {"left_window_size": 1, "right_window_size": 2, "is_causal": 1},
    "no bound": {"left_window_size": -1, "right_window_size": -1},
}
SOFTCAP = {
    "alone": operator(softcap=0.5),
    "none": operator(softcap=0.0),
    "before a float mask": with_mask(bias(L, S), softcap=0.5),
    "before a bool mask": with_mask(allowed(Hq, L, S), softcap=2.0),
    "before positions": operator(softcap=0.5, is_causal=1, past=1),
    "before all": with_lengths(6, 2, mask=bias(B, 1, L, S), softcap=0.5, is_causal=1, scale=2.25),
}
HEADS = {
    "grouped": operator(),
    "one for all": operator(heads=1),
    "one for each": operator(heads=Hq),
    "grouped and causal": operator(is_causal=1, past=1),
    "in 3-D inputs": Operator(
        {
            "Q": normal(B, L, Hq * E, seed=408),
            "K": normal(B, S, Hkv * E, seed=409),
            "V": normal(B, S, Hkv * Ev, seed=410),
        },
        {"q_num_heads": Hq, "kv_num_heads": Hkv, "is_causal": 1},
    ),
    "in 3-D inputs with a past": Operator(
        {
            "Q": normal(B, L, Hq * E, seed=408),
            "K": normal(B, S, Hkv * E, seed=409),
            "V": normal(B, S, Hkv * Ev, seed=410),
            "past_key": normal(B, Hkv, 9, E, seed=411),
            "past_value": normal(B, Hkv, 9, Ev, seed=412),
            "attn_mask": allowed(Hq, L, S + 9),
        },
        {"q_num_heads": Hq, "kv_num_heads": Hkv},
    ),
}


def each(calls: dict[str, Any], name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(name, calls.values(), ids=calls.keys())


class TestStandard:
    @each(CAUSAL, "call")
    def test_causal_is_by_position(self, kind, call):
        check_standard(call, kind)

    @each(LENGTHS, "call")
    def test_tokens_beyond_the_length_are_padding(self, kind, call):
        check_standard(call, kind)

    @pytest.mark.parametrize("mask_of", [allowed, bias], ids=["bool", "float"])
    @each(RANKS, "shape")
    def test_masks_of_every_rank_align_at_the_last_axis(self, kind, shape, mask_of):
        check_standard(with_mask(mask_of(*shape)), kind)
        check_standard(with_mask(mask_of(*shape), is_causal=1), kind)

    @each(WINDOWS, "attributes")
    def test_windows_are_inclusive_and_move_with_the_position(self, kind, attributes):
        check_standard(operator(**attributes), kind)
        check_standard(operator(past=9, **attributes), kind)
        check_standard(with_lengths(1, 6, **attributes), kind)
        check_standard(with_mask(bias(Hq, L, S + 1), past=1, **attributes), kind)

    @each(SOFTCAP, "call")
    def test_softcap_comes_after_scale_and_before_masks(self, kind, call):
        check_standard(call, kind)

    @each(HEADS, "call")
    def test_query_heads_share_a_key_head_with_their_neighbours(self, kind, call):
        check_standard(call, kind)

    @pytest.mark.parametrize("scale", SCALES)
    def test_any_scale_that_has_a_square_root_is_taken(self, kind, scale):
        check_standard(operator(scale=scale, is_causal=1), kind)

    def test_softmax_in_a_wider_dtype_gives_the_same(self, kind):
        check_standard(with_mask(bias(L, S), softmax_precision=DOUBLE), kind)
        if kind.dtype != "float64":
            check_standard(with_mask(bias(L, S), softmax_precision=FLOAT), kind)

    def test_rows_with_nothing_to_attend_are_zeros(self, kind):
        for call in (
            with_mask(np.zeros((L, S), bool)),
            with_mask(np.full((L, S), -np.inf), is_causal=1),
            with_mask(~np.tri(L, S, dtype=bool), is_causal=1),
            with_lengths(0, 0, left_window_size=1),
        ):
            check_standard(call, kind)
            output, weights = attend(call, kind)
            assert (to_numpy(output) == 0).all()
            assert (to_numpy(weights) == 0).all()

    def test_a_finite_mask_entry_however_low_is_arithmetic(self, kind):
        """The row is uniform over what −inf leaves, as without a mask: scores are equal here."""
        mask = np.full((L, S), -65504.0 if kind.dtype == "float16" else -1e38)
        mask[:, 2] = -np.inf
        call = with_mask(mask)
        call.inputs["Q"] *= 0
        check_standard(call, kind)
        _, weights = attend(call, kind)
        check_close(weights, np.broadcast_to((mask > -np.inf) / (S - 1), (B, Hq, L, S)), kind)


# --- any combination ------------------------------------------------------------------------------


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    """Draw a call of the operator that the contract can express."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, heads, group = (draw(st.integers(1, 3)) for _ in range(3))
    queries, keys, width, value_width = (draw(st.integers(1, 6)) for _ in range(4))
    shapes = {
        "Q": (batch, heads * group, queries, width),
        "K": (batch, heads, keys, width),
        "V": (batch, heads, keys, value_width),
    }
    cache = draw(st.sampled_from(["none", "past", "lengths"]))
    past = draw(st.integers(0, 5)) if cache == "past" else 0
    if cache == "past":
        shapes["past_key"] = (batch, heads, past, width)
        shapes["past_value"] = (batch, heads, past, value_width)
    inputs = {name: random.normal(size=shape) for name, shape in shapes.items()}
    total = past + keys
    shortest = 1
    if cache == "lengths":
        lengths = random.integers(0, total, endpoint=True, size=batch)
        inputs["nonpad_kv_seqlen"] = lengths
        shortest = max(1, int(lengths.max()))

    form = draw(st.sampled_from(["none", "bool", "float"]))
    if form != "none":
        full = (batch, heads * group, queries, draw(st.integers(shortest, total)))
        rank = draw(st.integers(1, 4))
        stretched = [1 if draw(st.booleans()) else size for size in full[4 - rank : -1]]
        seen = random.random((*stretched, full[-1])) < draw(st.sampled_from([0.2, 0.7, 1.0]))
        floats = np.where(seen, random.normal(size=seen.shape), -np.inf)
        inputs["attn_mask"] = seen if form == "bool" else floats

    attributes: dict[str, Any] = {"is_causal": draw(st.integers(0, 1))}
    if draw(st.booleans()):
        attributes["left_window_size"] = draw(st.integers(-1, 4))
        attributes["right_window_size"] = draw(st.integers(-1, 4))
    if draw(st.booleans()):
        attributes["scale"] = draw(st.sampled_from(SCALES))
    if draw(st.booleans()):
        attributes["softcap"] = draw(st.sampled_from([0.0, 0.5, 4.0]))
    return Operator(inputs, attributes)


class TestEveryCall:
    @settings(max_examples=200)
    @given(call=operators(), kind=st.sampled_from(KINDS))
    def test_of_the_operator_gives_what_the_standard_says(self, call, kind):
        note(f"{kind}: {call}")
        check_standard(call, kind)


class TestTheOperator:
    def test_has_no_argument_beyond_those_compared_here(self):
        """A later opset, or a new argument, has to be looked at first."""
        assert onnx.defs.get_schema("Attention").since_version == OPSETS[-1]
        for opset in OPSETS:
            schema = onnx.defs.get_schema("Attention", opset)
            assert schema.since_version == opset
            assert tuple(i.name for i in schema.inputs) == INPUTS[: len(schema.inputs)]
            assert [output.name for output in schema.outputs] == OUTPUTS
            assert set(schema.attributes) <= ATTRIBUTES
        assert set(schema.attributes) == ATTRIBUTES

    def test_integer_masks_and_mixed_dtypes_are_refused_by_the_contract(self):
        call = operator()
        with pytest.raises(TypeError, match="attn_mask"):
            scaled_dot_product_attention(
                *call.inputs.values(), np.ones((L, S), np.int64), enable_gqa=True
            )
        query, key, value = call.inputs.values()
        with pytest.raises(ValueError, match="value"):
            scaled_dot_product_attention(query, key, value.astype(np.float32), enable_gqa=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the evaluator's own, on the way to NaN
class TestTheEvaluator:
    """Each of its limits that this file works around; one that is gone can be compared then."""

    def test_gives_nan_for_a_negative_scale(self):
        output, _ = evaluate(operator(scale=-0.5), OPSETS[-1])
        assert np.isnan(output).all()

    def test_overflows_in_float16_where_attnlib_does_not(self):
        call = operator(scale=1.0)
        call.inputs["Q"] *= 200
        call.inputs["K"] *= 200
        assert np.isnan(evaluate(call, OPSETS[-1], np.float16)[0]).any()
        kind = next(kind for kind in KINDS if kind.dtype == "float16")
        call = call.rounded(kind)
        check_close(attend(call, kind)[0], evaluate(call, OPSETS[-1])[0], kind)

    def test_raises_without_keys_where_attnlib_gives_zeros(self):
        call = operator(keys=0)
        with pytest.raises(ValueError, match="zero-size"):
            evaluate(call, OPSETS[-1])
        assert (attend(call, NUMPY_FLOAT64)[0] == 0).all()

    def test_lets_masked_nan_through_where_attnlib_does_not(self):
        call = with_mask(np.arange(S) < 5)
        clean, _ = evaluate(call, OPSETS[-1])
        call.inputs["V"][:, :, 5:] = np.nan
        assert np.isnan(evaluate(call, OPSETS[-1])[0]).all()
        check_close(attend(call, NUMPY_FLOAT64)[0], clean, NUMPY_FLOAT64)

    def test_counts_queries_by_the_rows_of_a_mask(self, monkeypatch):
        """With a mask of one row every query sees, by mistake, what the first one may."""
        call = with_mask(np.ones((1, S), bool), is_causal=1)
        right, _ = evaluate(call, OPSETS[-1])
        check_close(attend(call, NUMPY_FLOAT64)[0], right, NUMPY_FLOAT64)
        monkeypatch.setitem(globals(), "with_rows_written_out", lambda mask, queries: mask)
        wrong, weights = evaluate(call, OPSETS[-1])
        assert (weights[..., 0] == 1).all()
        assert not np.allclose(wrong, right)
