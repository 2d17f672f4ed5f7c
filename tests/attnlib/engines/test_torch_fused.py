"""Which way a call takes through the torch engine, and that every way gives the same numbers.

These tests enter the engine itself and replace parts of it by spies: which kernel ran with which
shapes cannot be seen from outside, and the way that calls take on a GPU has to be held on
machines without one. What the function gives is tested in `tests/attnlib/test_functional_*.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from attnlib.engines._validate import validate
from tests import reference
from tests.kinds import to_numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attnlib.engines import torch_fused  # noqa: E402

B, Hq, Hkv, L, S, E, Ev = 3, 4, 2, 5, 7, 6, 8


class FusedCall(NamedTuple):
    """What PyTorch's function was called with."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    is_causal: bool
    scale: float
    enable_gqa: bool


@pytest.fixture
def fused_calls(monkeypatch):
    """Every call of PyTorch's function by the engine, in order."""
    calls = []

    def spy(query, key, value, *, scale, attn_mask=None, is_causal=False, enable_gqa=False):
        calls.append(FusedCall(query, key, value, attn_mask, is_causal, scale, enable_gqa))
        return torch.nn.functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=attn_mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )

    monkeypatch.setattr(torch_fused, "fused_attention", spy)
    return calls


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Let the engine take CPU tensors for tensors of a GPU."""
    monkeypatch.setattr(torch_fused, "_on_cpu", lambda tensor: False)


@pytest.fixture
def many_scores(monkeypatch):
    """Let the engine take every call for a large one."""
    monkeypatch.setattr(torch_fused, "_MANY_SCORES", 1)


def tensor(*shape: int, seed: int = 70) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def self_attention(length: int = L, dtype: Any = None) -> list[Any]:
    """Return query, key and value of equal length and width."""
    return [tensor(B, Hq, length, E, seed=seed).to(dtype) for seed in (71, 72, 73)]


def grouped(queries: int = L) -> list[Any]:
    shapes = ((B, Hq, queries, E), (B, Hkv, S, E), (B, Hkv, S, E))
    return [tensor(*shape, seed=74 + number) for number, shape in enumerate(shapes)]


def lower_triangle(rows: int, columns: int, offset: int = 0) -> Any:
    return torch.ones(rows, columns, dtype=torch.bool).tril(offset)


def attend(*arrays: Any, **options: Any) -> Any:
    return torch_fused.attention(validate(*arrays, **options))[0]


def check_is_attention(output: Any, arrays: list[Any], **options: Any) -> None:
    """Assert that `output` is what the loops of the reference give."""
    plain = {
        name: to_numpy(option) if isinstance(option, torch.Tensor) else option
        for name, option in options.items()
    }
    expected, _ = reference.attention(*map(to_numpy, arrays), **plain)
    tolerance = 1e-12 if output.dtype == torch.float64 else 4e-3
    np.testing.assert_allclose(to_numpy(output), expected, rtol=tolerance, atol=tolerance)


class TestOneFusedCall:
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_takes_an_ordinary_call_as_it_is(self, fused_calls, is_causal):
        arrays = self_attention()
        attend(*arrays, is_causal=is_causal)
        (call,) = fused_calls
        assert [id(array) for array in call[:3]] == [id(array) for array in arrays]
        assert call.attn_mask is None
        assert call.is_causal == is_causal

    def test_gets_four_axes_for_inputs_of_two_three_and_five(self, fused_calls):
        for lead in ((), (Hq,), (2, B, Hq)):
            arrays = [tensor(*lead, length, E) for length in (L, S, S)]
            check_is_attention(attend(*arrays), arrays)
        assert [call.query.ndim for call in fused_calls] == [4, 4, 4]

    @pytest.mark.parametrize(("key_width", "value_width"), [(E, Ev), (Ev, E)])
    def test_gets_one_width_for_keys_and_values(self, fused_calls, key_width, value_width):
        arrays = [tensor(B, Hq, L, key_width), tensor(B, Hq, S, key_width)]
        arrays.append(tensor(B, Hq, S, value_width))
        output = attend(*arrays)
        check_is_attention(output, arrays)
        assert {array.shape[-1] for array in fused_calls[0][:3]} == {Ev}

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_computes_half_precision_in_float32(self, fused_calls, dtype):
        arrays = self_attention(dtype=dtype)
        assert attend(*arrays).dtype == dtype
        assert {array.dtype for array in fused_calls[0][:3]} == {torch.float32}

    @pytest.mark.parametrize("scale", [0.0, -0.5])
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_never_gets_a_scale_that_turns_minus_infinity(self, fused_calls, scale, is_causal):
        """PyTorch's CPU kernel masks before it scales: NaN, or +inf, at masked places."""
        arrays = self_attention()
        output = attend(*arrays, scale=scale, is_causal=is_causal)
        check_is_attention(output, arrays, scale=scale, is_causal=is_causal)
        assert fused_calls[0].scale == 1.0


class TestGroupedHeads:
    def test_are_more_queries_of_one_head_where_all_see_the_same_keys(self, fused_calls):
        arrays = grouped()
        check_is_attention(attend(*arrays, enable_gqa=True), arrays, enable_gqa=True)
        (call,) = fused_calls
        assert call.query.shape == (B, Hkv, Hq // Hkv * L, E)
        assert call.key.data_ptr() == arrays[1].data_ptr()
        assert not call.enable_gqa

    def test_stay_groups_where_positions_matter(self, fused_calls):
        arrays, options = grouped(queries=S), {"enable_gqa": True, "is_causal": True}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert fused_calls[0].enable_gqa

    def test_each_keeps_its_own_mask(self):
        arrays, mask = grouped(queries=1), tensor(B, Hq, 1, S) < 0.5
        options = {"enable_gqa": True, "attn_mask": mask}
        check_is_attention(attend(*arrays, **options), arrays, **options)

    def test_one_head_for_all_is_not_copied(self, fused_calls):
        arrays = [tensor(B, Hq, L, E), tensor(B, 1, S, E), tensor(B, 1, S, E, seed=75)]
        check_is_attention(attend(*arrays), arrays)
        assert fused_calls[0].query.shape == (B, 1, Hq * L, E)
        assert fused_calls[0].key.data_ptr() == arrays[1].data_ptr()

    def test_on_a_gpu_are_repeated_where_positions_matter(self, fused_calls, as_on_a_gpu):
        arrays, options = grouped(queries=S), {"enable_gqa": True, "is_causal": True}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert fused_calls[0].key.shape[1] == Hq


class TestAttnMask:
    def test_of_nothing_but_true_is_dropped(self, fused_calls, many_scores):
        arrays = self_attention()
        attend(*arrays, attn_mask=torch.ones(L, L, dtype=torch.bool))
        assert fused_calls[0].attn_mask is None

    def test_that_is_causal_is_told_from_its_values(self, fused_calls, many_scores):
        arrays = self_attention()
        mask = lower_triangle(L, L)
        check_is_attention(attend(*arrays, attn_mask=mask), arrays, attn_mask=mask)
        assert fused_calls[0].is_causal
        assert fused_calls[0].attn_mask is None

    @pytest.mark.parametrize("offset", [-1, 1, 2])
    def test_that_is_causal_with_an_offset_is_too(
        self, fused_calls, monkeypatch, many_scores, offset
    ):
        monkeypatch.setattr(torch_fused, "_WIDE_STRIP", 2)
        arrays, mask = self_attention(), lower_triangle(L, L, offset)
        check_is_attention(attend(*arrays, attn_mask=mask), arrays, attn_mask=mask)
        assert all(call.attn_mask is None or call.query.shape[2] <= 2 for call in fused_calls)

    @pytest.mark.parametrize("offset", [-6, -2, 0, 3, 6])
    @pytest.mark.parametrize("entry", [(0, 0), (0, 4), (2, 1), (2, 4), (4, 0), (4, 6)])
    def test_that_is_causal_but_for_one_entry_is_not(self, many_scores, offset, entry):
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, E, seed=76)]
        mask = lower_triangle(L, S, offset)
        mask[entry] = ~mask[entry]
        check_is_attention(attend(*arrays, attn_mask=mask), arrays, attn_mask=mask)

    def test_of_a_small_call_is_not_studied(self, fused_calls):
        attend(*self_attention(), attn_mask=lower_triangle(L, L))
        assert fused_calls[0].attn_mask is not None

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_of_a_wider_dtype_excludes_only_by_minus_infinity(self, dtype):
        """The smallest float64 is a number, and a row of it is as good as a row of zeros."""
        arrays = self_attention(dtype=dtype)
        smallest = torch.full((L, L), torch.finfo(torch.float64).min, dtype=torch.float64)
        output = attend(*arrays, attn_mask=smallest)
        mean = arrays[2].mean(2, keepdim=True).expand_as(output)
        np.testing.assert_allclose(to_numpy(output), to_numpy(mean), atol=2e-3)


class TestPositions:
    def test_one_token_attends_to_the_valid_prefix_without_a_mask(self, fused_calls):
        arrays = [tensor(B, Hq, 1, E), tensor(B, Hq, S, E), tensor(B, Hq, S, E, seed=77)]
        options = {"is_causal": True, "causal_offset": 4}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        (call,) = fused_calls
        assert call.key.shape[2] == 5
        assert call.attn_mask is None

    def test_keys_after_the_last_query_reach_no_kernel(self, fused_calls):
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, E, seed=77)]
        attend(*arrays, is_causal=True)
        assert fused_calls[0].key.shape[2] == L

    @pytest.mark.parametrize(
        ("options", "seeing"),
        [
            ({"is_causal": True, "causal_offset": -2}, L - 2),
            ({"window": (1, None), "causal_offset": 3}, L - 2),
        ],
        ids=["before the first key", "after the last key"],
    )
    def test_queries_that_see_nothing_reach_no_kernel(self, fused_calls, options, seeing):
        arrays = self_attention()
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert [call.query.shape[2] for call in fused_calls] == [seeing]

    def test_an_offset_makes_no_mask_larger_than_a_strip(self, fused_calls, monkeypatch):
        monkeypatch.setattr(torch_fused, "_WIDE_STRIP", 4)
        arrays = [tensor(1, 2, 10, E), tensor(1, 2, 19, E), tensor(1, 2, 19, E, seed=78)]
        options = {"is_causal": True, "causal_offset": 9}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert [tuple(call.attn_mask.shape[2:]) for call in fused_calls] == [
            (4, 13),
            (4, 17),
            (2, 19),
        ]

    def test_a_window_costs_what_it_sees(self, fused_calls, monkeypatch):
        monkeypatch.setattr(torch_fused, "_STRIP", 4)
        arrays, options = self_attention(length=17), {"window": (3, 2)}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert max(call.key.shape[2] for call in fused_calls) == 3 + 4 + 2
        assert sum(call.query.shape[2] for call in fused_calls) == 17

    @pytest.mark.parametrize("strip", [1, 2, 3, 16])
    @pytest.mark.parametrize(
        "options",
        [
            {"window": (2, 1)},
            {"window": (None, 2)},
            {"window": (1, None), "causal_offset": 3},
            {"window": (0, None), "is_causal": True, "causal_offset": -3},
            {"is_causal": True, "causal_offset": 2, "softcap": 1.5},
        ],
        ids=str,
    )
    def test_the_width_of_a_strip_changes_nothing(self, monkeypatch, strip, options):
        for name in ("_STRIP", "_WIDE_STRIP"):
            monkeypatch.setattr(torch_fused, name, strip)
        arrays = [tensor(B, Hq, 11, E), tensor(B, Hq, 13, E), tensor(B, Hq, 13, Ev)]
        check_is_attention(attend(*arrays, **options), arrays, **options)

    def test_one_offset_in_a_tensor_is_a_number(self, fused_calls, many_scores):
        arrays = self_attention()
        attend(*arrays, is_causal=True, causal_offset=torch.zeros(B, dtype=torch.int64))
        assert fused_calls[0].is_causal

    def test_offsets_of_items_are_solved_apart_where_it_pays(self, fused_calls, many_scores):
        arrays = self_attention()
        options = {"is_causal": True, "causal_offset": torch.tensor([0, 0, -2])}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert [(len(call.query), call.key.shape[2]) for call in fused_calls] == [(2, 5), (1, 3)]
        assert all(call.is_causal for call in fused_calls)


class TestKeyMask:
    def test_padding_is_cut_off(self, fused_calls, many_scores):
        arrays = self_attention()
        mask = torch.tensor([False, True, True, True, False])
        check_is_attention(attend(*arrays, key_mask=mask), arrays, key_mask=mask)
        (call,) = fused_calls
        assert call.key.shape[2] == 3
        assert call.attn_mask is None

    def test_items_of_one_length_are_solved_together(self, fused_calls, many_scores):
        arrays = self_attention()
        mask = torch.arange(L) < torch.tensor([[2], [2], [4]])
        check_is_attention(attend(*arrays, key_mask=mask), arrays, key_mask=mask)
        assert [(len(call.query), call.key.shape[2]) for call in fused_calls] == [(2, 2), (1, 4)]
        assert all(call.attn_mask is None for call in fused_calls)

    def test_items_solved_apart_keep_their_own_masks(self, fused_calls, many_scores):
        arrays = self_attention()
        options = {
            "key_mask": torch.arange(L) < torch.tensor([[2], [3], [4]]),
            "attn_mask": tensor(B, Hq, L, L) < 0.5,
        }
        check_is_attention(attend(*arrays, **options), arrays, **options)
        assert len(fused_calls) == B

    def test_small_items_are_not_solved_apart(self, fused_calls):
        arrays = self_attention()
        mask = torch.arange(L) < torch.tensor([[2], [3], [4]])
        check_is_attention(attend(*arrays, key_mask=mask), arrays, key_mask=mask)
        assert len(fused_calls) == 1

    def test_an_item_without_a_real_key_gets_zeros(self, many_scores):
        arrays = self_attention()
        mask = torch.arange(L) < torch.tensor([[2], [0], [4]])
        output = attend(*arrays, key_mask=mask)
        check_is_attention(output, arrays, key_mask=mask)
        assert not output[1].any()

    @pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
    @pytest.mark.parametrize("which", [1, 2], ids=["key", "value"])
    def test_a_hole_may_hold_anything(self, fused_calls, bad, which):
        arrays, mask = self_attention(), torch.tensor([True, False, True, False, True])
        expected = attend(*arrays, key_mask=mask)
        arrays[which][:, :, 3] = bad
        assert torch.equal(attend(*arrays, key_mask=mask), expected)
        assert fused_calls[-1].key[:, :, 3].eq(0).all()

    def test_a_hole_costs_no_copy_while_it_holds_numbers(self, fused_calls):
        arrays, mask = self_attention(), torch.tensor([True, False, True, False, True])
        attend(*arrays, key_mask=mask)
        (call,) = fused_calls
        assert call.key.data_ptr() == arrays[1].data_ptr()

    def test_a_key_of_minus_infinity_in_a_hole_leaves_gradients_alone(self):
        """Its scores are -inf, as if masked, so that it cannot be told from the output."""
        arrays, mask = self_attention(), torch.tensor([True, False, True, False, True])
        arrays[0] = arrays[0].abs()
        call = validate(*arrays, key_mask=mask)
        expected = torch_fused.gradients(call, torch.ones_like(arrays[0]))
        arrays[1][:, :, 3] = -torch.inf
        gradients = torch_fused.gradients(call, torch.ones_like(arrays[0]))
        for gradient, wanted in zip(gradients, expected, strict=True):
            assert torch.equal(gradient, wanted)


REQUESTS = {
    "dense": {},
    "causal": {"is_causal": True},
    "offset": {"is_causal": True, "causal_offset": 2},
    "negative offset": {"is_causal": True, "causal_offset": -2},
    "offsets": {"is_causal": True, "causal_offset": torch.tensor([2, -9, 0])},
    "window": {"window": (1, 2)},
    "window at an offset": {"window": (1, 0), "causal_offset": 3},
    "windows at offsets": {"window": (1, 0), "causal_offset": torch.tensor([1, 9, -1])},
    "bool mask": {"attn_mask": tensor(L, S) < 0.6},
    "bool mask with empty rows": {"attn_mask": tensor(B, 1, L, S) < -0.5},
    "float mask": {"attn_mask": tensor(Hq, L, S)},
    "float mask with an empty row": {
        "attn_mask": tensor(L, S).masked_fill(torch.arange(L)[:, None] == 1, -torch.inf)
    },
    "key mask": {"key_mask": tensor(B, S) < 0.5},
    "no real key": {"key_mask": torch.arange(S) < torch.tensor([[3], [0], [7]])},
    "scale": {"scale": -0.7, "is_causal": True},
    "softcap": {"softcap": 1.5, "window": (2, 2)},
    "all": {
        "attn_mask": tensor(Hq, L, S, seed=79),
        "key_mask": tensor(B, S, seed=79) < 0.8,
        "is_causal": True,
        "causal_offset": 1,
        "window": (3, None),
        "softcap": 2.0,
    },
}
each_request = pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS.keys())


class TestEquation:
    @each_request
    def test_gives_the_weights_of_every_request(self, options):
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, Ev)]
        output, weights = torch_fused.attention(validate(*arrays, return_weights=True, **options))
        check_is_attention(output, arrays, **options)
        plain = {
            name: to_numpy(option) if isinstance(option, torch.Tensor) else option
            for name, option in options.items()
        }
        _, expected = reference.attention(*map(to_numpy, arrays), **plain)
        np.testing.assert_allclose(to_numpy(weights), expected, rtol=1e-12, atol=1e-12)

    def test_rounds_half_precision_once_on_a_gpu_too(self, as_on_a_gpu):
        arrays = self_attention(dtype=torch.float16)
        wide = [array.float() for array in arrays]
        assert torch.equal(attend(*arrays, softcap=2.0), attend(*wide, softcap=2.0).half())


class TestAsOnAGpu:
    """The branches for a GPU, run here: PyTorch computes on the CPU, the choices are a GPU's."""

    @each_request
    @pytest.mark.parametrize("enable_gqa", [False, True])
    def test_output_and_gradients_are_the_same(self, as_on_a_gpu, options, enable_gqa):
        heads = Hkv if enable_gqa else Hq
        arrays = [tensor(B, Hq, L, E), tensor(B, heads, S, E), tensor(B, heads, S, Ev)]
        options = {**options, "enable_gqa": enable_gqa}
        check_is_attention(attend(*arrays, **options), arrays, **options)
        arrays = [array.requires_grad_() for array in arrays]
        assert torch.autograd.gradcheck(
            lambda *inputs: attend(*inputs, **options), arrays, fast_mode=True
        )

    @each_request
    def test_nothing_asks_what_a_mask_holds(self, as_on_a_gpu, monkeypatch, options):
        for name in ("_read_attn_mask", "_facts_of_items"):
            monkeypatch.delattr(torch_fused, name)
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, Ev)]
        check_is_attention(attend(*arrays, **options), arrays, **options)

    @each_request
    def test_no_kernel_meets_a_row_without_keys(self, as_on_a_gpu, fused_calls, options):
        """GPU kernels differ in what they make of such a row; some give NaN."""
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, Ev)]
        attend(*arrays, **options)
        for mask in [call.attn_mask for call in fused_calls if call.attn_mask is not None]:
            seen = mask if mask.dtype == torch.bool else mask != -torch.inf
            assert seen.any(-1).all()

    def test_a_wide_float_mask_widens_half_precision(self, as_on_a_gpu, fused_calls):
        arrays = self_attention(dtype=torch.float16)
        assert attend(*arrays, attn_mask=tensor(L, L).float()).dtype == torch.float16
        assert fused_calls[0].query.dtype == torch.float32

    def test_half_precision_is_left_to_the_kernel(self, as_on_a_gpu, fused_calls):
        attend(*self_attention(dtype=torch.float16))
        assert fused_calls[0].query.dtype == torch.float16

    def test_keys_that_no_item_sees_may_hold_nan(self, as_on_a_gpu):
        arrays = [tensor(B, Hq, L, E), tensor(B, Hq, S, E), tensor(B, Hq, S, Ev)]
        options = {"is_causal": True, "causal_offset": torch.tensor([-1, 0, -2])}
        expected = attend(*arrays, **options)
        for array in arrays[1:]:
            array[:, :, L:] = torch.nan
            array[2, :, 3:] = torch.nan
        assert torch.equal(attend(*arrays, **options), expected)


class TestGradients:
    @each_request
    def test_have_the_shapes_of_the_arrays_they_belong_to(self, options):
        arrays = [tensor(B, 1, L, E), tensor(B, Hq, S, E), tensor(1, Hq, S, Ev)]
        call = validate(*arrays, **options)
        gradients = torch_fused.gradients(call, torch.ones(B, Hq, L, Ev, dtype=torch.float64))
        assert [gradient.shape for gradient in gradients] == [array.shape for array in arrays]
        assert all(gradient.isfinite().all() for gradient in gradients)

    def test_leave_the_inputs_out_of_the_graph(self):
        arrays = [array.requires_grad_() for array in self_attention()]
        gradients = torch_fused.gradients(validate(*arrays), torch.ones_like(arrays[0]))
        assert all(array.grad is None for array in arrays)
        assert not any(gradient.requires_grad for gradient in gradients)

    def test_work_without_autograd_around_them(self):
        arrays = self_attention()
        expected = torch_fused.gradients(validate(*arrays), torch.ones_like(arrays[0]))
        for mode in (torch.no_grad(), torch.inference_mode()):
            with mode:
                inputs = [array.clone() for array in arrays]
                gradients = torch_fused.gradients(validate(*inputs), torch.ones_like(inputs[0]))
            for gradient, wanted in zip(gradients, expected, strict=True):
                assert torch.equal(gradient, wanted)
