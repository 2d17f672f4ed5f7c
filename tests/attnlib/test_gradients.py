"""Gradients: the softmax Jacobian, and dQ, dK, dV as equations."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib import attention_gradients, scaled_dot_product_attention, softmax
from attnlib.gradients import dense_attention_gradients, softmax_jacobian
from tests import reference
from tests.kinds import (
    FLOAT64_KINDS,
    NUMPY_FLOAT64,
    check_close,
    check_unchanged,
    needs_torch,
    snapshot,
    to_numpy,
)

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)


def random_call(kind, *shapes, seed: int = 130) -> list:
    """Return query, key, value and a gradient of the output's shape."""
    random = np.random.default_rng(seed)
    return [kind.floats(random.normal(size=shape)) for shape in shapes]


def check_finite_differences(kind, arrays, attn_mask=None, **options) -> None:
    """Assert that the three gradients are those of finite differences of the loop."""
    plain = {
        name: to_numpy(option) if hasattr(option, "shape") else option
        for name, option in options.items()
    }
    mask = None if attn_mask is None else to_numpy(attn_mask)
    expected = reference.attention_gradients(*(to_numpy(a) for a in arrays), mask, **plain)
    actual = attention_gradients(*arrays, attn_mask, **options)
    assert len(actual) == 3
    for gradient, right, array in zip(actual, expected, arrays, strict=False):
        assert gradient in kind
        assert gradient.shape == array.shape
        np.testing.assert_allclose(to_numpy(gradient), right, rtol=1e-8, atol=1e-9)


SMALL = ((3, 2), (4, 2), (4, 1), (3, 1))  # L = 3, S = 4, E = 2, Ev = 1
SEEN = np.array([[True, False, True, True], [False] * 4, [True, True, False, True]])


class TestJacobian:
    def test_is_that_of_finite_differences(self):
        scores = np.array([0.3, -1.0, 2.0, 0.5])
        jacobian = softmax_jacobian(softmax(scores))
        assert jacobian.shape == (4, 4)
        for i in range(4):
            row = reference.finite_differences(
                lambda changed, i=i: reference.softmax(changed.tolist())[i], scores
            )
            np.testing.assert_allclose(jacobian[i], row, atol=1e-10)

    def test_of_the_running_example_is_in_exact_36ths(self):
        jacobian = softmax_jacobian([1 / 6, 2 / 6, 3 / 6])
        np.testing.assert_allclose(
            36 * jacobian, [[5, -2, -3], [-2, 8, -6], [-3, -6, 9]], rtol=1e-13
        )

    def test_is_symmetric_and_its_rows_sum_to_zero(self):
        weights = softmax(np.random.default_rng(131).normal(size=5))
        jacobian = softmax_jacobian(weights)
        np.testing.assert_allclose(jacobian, jacobian.T)
        np.testing.assert_allclose(jacobian.sum(axis=1), np.zeros(5), atol=1e-15)

    def test_vanishes_where_the_weights_saturate(self):
        np.testing.assert_array_equal(softmax_jacobian([1.0, 0.0, 0.0]), np.zeros((3, 3)))


class TestDenseEquations:
    """The derivation as chapter code: one equation a line, no options."""

    @pytest.mark.parametrize("scale", [None, 0.0, -0.75, 2], ids=str)
    def test_are_those_of_finite_differences(self, scale):
        Q, K, V, grad_output = random_call(NUMPY_FLOAT64, (3, 2), (5, 2), (5, 4), (3, 4))
        expected = reference.attention_gradients(Q, K, V, grad_output, scale=scale)
        gradients = dense_attention_gradients(Q, K, V, grad_output, scale=scale)
        for gradient, right in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(gradient, right, rtol=1e-8, atol=1e-9)

    def test_are_those_of_the_function_without_options(self):
        arrays = random_call(NUMPY_FLOAT64, (3, 2), (5, 2), (5, 4), (3, 4))
        before = snapshot(*arrays)
        for gradient, right in zip(
            dense_attention_gradients(*arrays), attention_gradients(*arrays), strict=True
        ):
            np.testing.assert_allclose(gradient, right, rtol=1e-12, atol=1e-14)
        check_unchanged(before, *arrays)

    def test_need_a_gradient_of_the_shape_of_the_output(self):
        with pytest.raises(ValueError, match=r"grad_output.*\(L, Ev\).*\(3, 2\)"):
            dense_attention_gradients(
                np.ones((3, 2)), np.ones((5, 2)), np.ones((5, 4)), np.ones((3, 2))
            )


class TestEquations:
    @each_float64_kind
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"is_causal": True},
            {"is_causal": True, "causal_offset": -1},
            {"window": (1, 0), "causal_offset": 2},
            {"scale": -0.75},
            {"scale": 0.0},
            {"softcap": 0.8},
            {"softcap": 0.8, "is_causal": True, "scale": 2.0},
        ],
        ids=str,
    )
    def test_are_those_of_finite_differences(self, kind, options):
        check_finite_differences(kind, random_call(kind, *SMALL), **options)

    @each_float64_kind
    def test_respect_each_mask(self, kind):
        arrays = random_call(kind, *SMALL)
        check_finite_differences(kind, arrays, kind.plain(SEEN))
        check_finite_differences(kind, arrays, kind.floats(np.where(SEEN, 0.5, -np.inf)))
        check_finite_differences(kind, arrays, key_mask=kind.plain(SEEN[0]), softcap=1.5)

    @each_float64_kind
    @pytest.mark.parametrize(
        ("shapes", "options"),
        [
            (((2,), (4, 2), (4, 3), (3,)), {}),
            (((5, 2, 1), (5, 3, 1), (5, 3, 1), (5, 2, 1)), {}),
            (((2, 1), (2, 3, 1), (3, 1), (2, 2, 1)), {}),
            (((1, 2, 1), (2, 3, 1), (1, 3, 1), (2, 2, 1)), {"is_causal": True}),
            (((4, 2, 1), (2, 3, 1), (2, 3, 1), (4, 2, 1)), {"enable_gqa": True}),
            (((2, 2, 2, 1), (1, 1, 3, 1), (2, 1, 3, 1), (2, 2, 2, 1)), {"enable_gqa": True}),
        ],
        ids=str,
    )
    def test_have_the_shapes_of_the_inputs(self, kind, shapes, options):
        """An input that was stretched gets the sum over its copies."""
        check_finite_differences(kind, random_call(kind, *shapes), **options)

    @each_float64_kind
    def test_positions_for_each_item(self, kind):
        arrays = random_call(kind, (2, 2, 1), (2, 3, 1), (2, 3, 1), (2, 2, 1))
        offsets = kind.plain([1, -1])
        check_finite_differences(kind, arrays, is_causal=True, causal_offset=offsets)
        real = kind.plain([[True, True, False], [False, False, False]])
        check_finite_differences(kind, arrays, key_mask=real)

    def test_are_named_in_the_order_of_the_inputs(self, kind):
        q, K, V, grad_output = random_call(kind, (3, 2), (4, 2), (4, 5), (3, 5))
        dQ, dK, dV = attention_gradients(q, K, V, grad_output)
        assert (dQ.shape, dK.shape, dV.shape) == (q.shape, K.shape, V.shape)
        assert dQ in kind
        assert dK in kind
        assert dV in kind

    def test_of_the_values_is_the_transposed_weights_times_the_gradient(self, kind):
        q, K, V, grad_output = random_call(kind, (3, 2), (4, 2), (4, 5), (3, 5))
        _, weights = scaled_dot_product_attention(q, K, V, return_weights=True)
        _, _, dV = attention_gradients(q, K, V, grad_output)
        check_close(dV, to_numpy(weights).T @ to_numpy(grad_output), kind, factor=8)

    @each_float64_kind
    def test_where_nothing_is_seen_are_zero(self, kind):
        q, K, V, grad_output = random_call(kind, (3, 2), (4, 2), (4, 5), (3, 5))
        seen = SEEN.copy()
        seen[:, 3] = False
        dQ, dK, dV = attention_gradients(q, K, V, grad_output, kind.plain(seen))
        assert (to_numpy(dQ)[1] == 0.0).all()
        assert (to_numpy(dK)[3] == 0.0).all()
        assert (to_numpy(dV)[3] == 0.0).all()
        for gradient in attention_gradients(q, K, V, grad_output, is_causal=True, causal_offset=-9):
            assert (to_numpy(gradient) == 0.0).all()

    @each_float64_kind
    def test_without_keys_are_zero_or_empty(self, kind):
        arrays = random_call(kind, (3, 2), (0, 2), (0, 5), (3, 5))
        dQ, dK, dV = attention_gradients(*arrays)
        check_close(dQ, np.zeros((3, 2)), kind)
        assert (tuple(dK.shape), tuple(dV.shape)) == ((0, 2), (0, 5))

    @pytest.mark.parametrize("poison", [np.nan, np.inf], ids=str)
    @each_float64_kind
    def test_poison_in_padding_does_not_reach_them(self, kind, poison):
        q, K, V, grad_output = random_call(kind, (3, 2), (4, 2), (4, 5), (3, 5))
        real = kind.plain([True, True, True, False])
        expected = attention_gradients(q, K, V, grad_output, key_mask=real)
        K[3], V[3] = poison, poison
        for gradient, right in zip(
            attention_gradients(q, K, V, grad_output, key_mask=real), expected, strict=True
        ):
            check_close(gradient, to_numpy(right), kind)

    def test_leave_the_inputs_as_they_were(self, kind):
        arrays = random_call(kind, (2, 3, 2), (2, 4, 2), (2, 4, 5), (2, 3, 5))
        mask = kind.plain(SEEN)
        before = snapshot(*arrays, mask)
        gradients = attention_gradients(*arrays, mask, is_causal=True)
        for gradient in gradients:
            gradient[...] = 7.0
        check_unchanged(before, *arrays, mask)

    @each_float64_kind
    def test_layout_of_the_inputs_does_not_matter(self, kind):
        arrays = random_call(kind, (2, 3, 2), (2, 4, 2), (2, 4, 5), (2, 3, 5))
        strided = [kind.floats(to_numpy(a).swapaxes(-1, -2)).swapaxes(-1, -2) for a in arrays]
        for gradient, right in zip(
            attention_gradients(*strided), attention_gradients(*arrays), strict=True
        ):
            check_close(gradient, to_numpy(right), kind)

    @each_float64_kind
    def test_of_a_constant_gradient_of_one_are_zero_for_constant_values(self, kind):
        """Weights sum to one, so that equal values leave nothing to choose."""
        q, K, _, grad_output = random_call(kind, (3, 2), (4, 2), (4, 5), (3, 5))
        dQ, dK, _ = attention_gradients(q, K, kind.floats(np.ones((4, 5))), grad_output)
        check_close(dQ, np.zeros((3, 2)), kind)
        check_close(dK, np.zeros((4, 2)), kind)


@needs_torch
class TestAutograd:
    LARGER = ((2, 6, 5, 4), (2, 3, 7, 4), (2, 3, 7, 8), (2, 6, 5, 8))  # Ev = 8

    @pytest.mark.parametrize(
        "options",
        [{}, {"is_causal": True, "causal_offset": 1}, {"window": (2, 1)}, {"softcap": 2.0}],
        ids=str,
    )
    def test_agrees_on_every_kind(self, kind, options):
        """The derivative that autograd takes of the torch engine, in float64."""
        import torch

        arrays = random_call(kind, *self.LARGER)
        doubles = [torch.from_numpy(to_numpy(array)).requires_grad_() for array in arrays]
        output = scaled_dot_product_attention(*doubles[:3], enable_gqa=True, **options)
        expected = torch.autograd.grad(output, doubles[:3], doubles[3])
        actual = attention_gradients(*arrays, enable_gqa=True, **options)
        for gradient, right in zip(actual, expected, strict=True):
            check_close(gradient, to_numpy(right), kind, factor=12)

    def test_of_pytorch_itself_agrees(self, kind):
        import torch

        shapes = (2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 8), (2, 6, 5, 8)
        arrays = random_call(kind, *shapes)
        bias = np.random.default_rng(132).normal(size=(6, 5, 7))
        bias[2, 3] = -np.inf
        doubles = [torch.from_numpy(to_numpy(array)).requires_grad_() for array in arrays]
        output = torch.nn.functional.scaled_dot_product_attention(
            *doubles[:3], torch.from_numpy(to_numpy(kind.floats(bias)))
        )
        expected = torch.autograd.grad(output, doubles[:3], doubles[3])
        for gradient, right in zip(
            attention_gradients(*arrays, kind.floats(bias)), expected, strict=True
        ):
            check_close(gradient, to_numpy(right), kind, factor=12)
