"""`scaled_dot_product_attention` on torch tensors: derivatives, transforms, kernels, devices."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from attnlib import scaled_dot_product_attention
from tests.kinds import FLOAT64_KINDS, TORCH_KINDS, check_close, to_numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

DOUBLE_KINDS = [kind for kind in FLOAT64_KINDS if kind.library == "torch"]
each_double_kind = pytest.mark.parametrize("kind", DOUBLE_KINDS, ids=str)
FOUR_AXES = ((2, 4, 3, 2), (2, 4, 5, 2), (2, 4, 5, 6))  # B = 2, H = 4, L = 3, S = 5, E = 2, Ev = 6


def leaves(kind, *shapes, seed=80):
    """Return one normal tensor that requires a gradient for each shape."""
    random = np.random.default_rng(seed)
    return [kind.floats(random.normal(size=shape)).requires_grad_() for shape in shapes]


def seen_pairs(*shape: int) -> np.ndarray:
    """Return a bool mask, True = may attend, whose second query sees nothing."""
    seen = np.random.default_rng(81).random(shape) < 0.7
    seen[..., 1, :] = False
    return seen


# Every option once, and a row that sees nothing wherever an option can make one.
REQUESTS = {
    "dense": lambda kind: {},
    "causal": lambda kind: {"is_causal": True},
    "causal with empty rows": lambda kind: {"is_causal": True, "causal_offset": -2},
    "offset for each item": lambda kind: {"is_causal": True, "causal_offset": kind.plain([2, -1])},
    "window": lambda kind: {"window": (1, 0), "causal_offset": 1},
    "bool mask with an empty row": lambda kind: {"attn_mask": kind.plain(seen_pairs(3, 5))},
    "bool mask for each head": lambda kind: {"attn_mask": kind.plain(seen_pairs(2, 4, 3, 5))},
    "float mask with an empty row": lambda kind: {
        "attn_mask": kind.floats(np.where(seen_pairs(3, 5), 0.5, -np.inf))
    },
    "key_mask": lambda kind: {"key_mask": kind.plain(np.arange(5) != 3)},
    "key_mask with an empty item": lambda kind: {
        "key_mask": kind.plain([[False] * 5, [True, False, True, True, False]])
    },
    "scale and softcap": lambda kind: {"scale": -0.75, "softcap": 1.5},
    "all at once": lambda kind: {
        "attn_mask": kind.plain(seen_pairs(4, 3, 5)),
        "key_mask": kind.plain(np.arange(5) != 0),
        "is_causal": True,
        "causal_offset": 1,
        "window": (3, None),
        "softcap": 2.0,
    },
}
each_request = pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS.keys())


DEVICES_THAT_HIDE_VALUES = ["meta", *(["cuda"] if torch.cuda.is_available() else [])]


@contextmanager
def no_look_at_values(device: str):
    """Let every read of a value from `device` raise, inside the block."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


class Kernels(TorchDispatchMode):
    """Notes the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))

    @property
    def fused(self) -> bool:
        return any(
            "_scaled_dot_product" in name and "attention" in name and "math" not in name
            for name in self.names
        )


class TestFirstDerivatives:
    @each_double_kind
    @each_request
    def test_are_those_of_finite_differences(self, kind, request_of):
        options = request_of(kind)
        arrays = leaves(kind, *FOUR_AXES)

        def output(*inputs):
            return scaled_dot_product_attention(*inputs, **options)

        def output_and_weights(*inputs):
            return scaled_dot_product_attention(*inputs, return_weights=True, **options)

        assert torch.autograd.gradcheck(output, arrays, fast_mode=True)
        assert torch.autograd.gradcheck(output_and_weights, arrays, fast_mode=True)

    @each_double_kind
    @pytest.mark.parametrize(
        ("shapes", "options"),
        [
            (((3, 2), (5, 2), (5, 6)), {"is_causal": True}),
            (((2,), (5, 2), (5, 6)), {}),
            (((4, 3, 2), (1, 5, 2), (5, 6)), {}),
            (((4, 3, 2), (2, 5, 2), (2, 5, 6)), {"enable_gqa": True}),
            (((2, 4, 3, 2), (2, 2, 5, 2), (2, 2, 5, 2)), {"enable_gqa": True, "is_causal": True}),
            (((2, 4, 3, 2), (2, 4, 5, 2), (2, 4, 5, 2)), {"is_causal": True}),
        ],
        ids=str,
    )
    def test_are_those_of_finite_differences_for_each_shape(self, kind, shapes, options):
        arrays = leaves(kind, *shapes)
        assert torch.autograd.gradcheck(
            lambda *inputs: scaled_dot_product_attention(*inputs, **options),
            arrays,
            fast_mode=True,
        )

    @each_double_kind
    @pytest.mark.parametrize("shape", [(2, 4, 3, 5), (4, 1, 5), (3, 1), (1, 5)], ids=str)
    def test_reach_a_float_mask(self, kind, shape):
        arrays = [array.detach() for array in leaves(kind, *FOUR_AXES)]
        (mask,) = leaves(kind, shape, seed=82)
        assert torch.autograd.gradcheck(
            lambda bias: scaled_dot_product_attention(*arrays, bias, is_causal=True),
            [mask],
            fast_mode=True,
        )

    @each_request
    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_are_finite_and_zero_where_nothing_is_seen(self, kind, request_of):
        options = request_of(kind)
        query, key, value = arrays = leaves(kind, *FOUR_AXES)
        output, weights = scaled_dot_product_attention(*arrays, return_weights=True, **options)
        output.sum().backward()
        assert all(torch.isfinite(array.grad).all() for array in arrays)
        empty = (weights == 0).all(dim=-1)
        unseen = (weights == 0).all(dim=-2)
        assert (query.grad[empty] == 0).all()
        assert (key.grad[unseen] == 0).all()
        assert (value.grad[unseen] == 0).all()

    @each_request
    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_agree_with_pytorch(self, kind, request_of):
        """PyTorch is given the pairs as one mask, made by a loop over the positions."""
        options = request_of(kind)
        softcap = options.get("softcap")
        if softcap is not None:
            options = {name: option for name, option in options.items() if name != "softcap"}
        arrays = leaves(kind, (2, 4, 3, 2), (2, 4, 5, 2), (2, 4, 5, 2))
        plain = {name: to_numpy(o) if hasattr(o, "shape") else o for name, o in options.items()}
        bias = np.array(
            [
                [
                    [[self._bias(plain, b, h, i, j) for j in range(5)] for i in range(3)]
                    for h in range(4)
                ]
                for b in range(2)
            ]
        )
        expected = torch.nn.functional.scaled_dot_product_attention(
            *arrays, kind.floats(bias), scale=plain.get("scale")
        )
        output = scaled_dot_product_attention(*arrays, **options)
        check_close(output, to_numpy(expected), kind, factor=4)
        grad_output = kind.floats(np.random.default_rng(83).normal(size=(2, 4, 3, 2)))
        wanted = torch.autograd.grad(expected, arrays, grad_output)
        got = torch.autograd.grad(output, arrays, grad_output)
        for gradient, right in zip(got, wanted, strict=True):
            check_close(gradient, to_numpy(right), kind, factor=8)

    @staticmethod
    def _bias(options: dict, b: int, h: int, i: int, j: int) -> float:
        mask = options.get("attn_mask")
        bias = 0.0
        if mask is not None:
            entry = np.broadcast_to(mask, (2, 4, 3, 5))[b, h, i, j]
            bias = (0.0 if entry else -np.inf) if mask.dtype == bool else float(entry)
        offset = options.get("causal_offset", 0)
        position = i + int(offset if np.ndim(offset) == 0 else offset[b])
        left, right = options.get("window") or (None, None)
        real = np.broadcast_to(options.get("key_mask", True), (2, 5))[b, j]
        hidden = (
            not real
            or (options.get("is_causal", False) and j > position)
            or (left is not None and j < position - left)
            or (right is not None and j > position + right)
        )
        return -np.inf if hidden else bias

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_poison_in_padding_does_not_reach_them(self, kind):
        _, key, value = arrays = leaves(kind, *FOUR_AXES)
        with torch.no_grad():
            key[:, :, 3:], value[:, :, 3:] = float("nan"), float("inf")
        output = scaled_dot_product_attention(*arrays, key_mask=kind.plain(np.arange(5) < 3))
        output.sum().backward()
        for array in arrays:
            assert torch.isfinite(array.grad).all()
        assert (key.grad[:, :, 3:] == 0).all()
        assert (value.grad[:, :, 3:] == 0).all()

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_only_what_requires_a_gradient_gets_one(self, kind):
        query, key, value = leaves(kind, *FOUR_AXES)
        key.requires_grad_(False)
        output = scaled_dot_product_attention(query, key, value)
        assert output.requires_grad
        output.sum().backward()
        assert key.grad is None
        detached = scaled_dot_product_attention(query.detach(), key, value.detach())
        assert not detached.requires_grad


class TestHigherDerivatives:
    """Where the caller selects PyTorch's MATH backend, all of its transforms work."""

    @each_double_kind
    @each_request
    def test_second_derivatives_are_those_of_finite_differences(self, kind, request_of):
        options = request_of(kind)
        arrays = leaves(kind, *FOUR_AXES)
        with sdpa_kernel(SDPBackend.MATH):
            assert torch.autograd.gradgradcheck(
                lambda *inputs: scaled_dot_product_attention(*inputs, **options),
                arrays,
                fast_mode=True,
            )

    @pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # inside PyTorch
    @each_double_kind
    @each_request
    def test_forward_mode_agrees_with_backward_mode(self, kind, request_of):
        options = request_of(kind)
        arrays = tuple(array.detach() for array in leaves(kind, *FOUR_AXES))
        tangents = tuple(array.detach() for array in leaves(kind, *FOUR_AXES, seed=84))

        def function(*inputs):
            return scaled_dot_product_attention(*inputs, **options)

        with sdpa_kernel(SDPBackend.MATH):
            output, forward = torch.func.jvp(function, arrays, tangents)
            cotangent = torch.ones_like(output)
            backward = torch.func.vjp(function, *arrays)[1](cotangent)
        pairs = zip(backward, tangents, strict=True)
        along = sum((gradient * tangent).sum() for gradient, tangent in pairs)
        torch.testing.assert_close((forward * cotangent).sum(), along)

    @each_double_kind
    @each_request
    def test_vmap_is_a_loop_over_the_mapped_axis(self, kind, request_of):
        options = request_of(kind)
        arrays = [array.detach() for array in leaves(kind, *((7, *shape) for shape in FOUR_AXES))]

        def function(*inputs):
            return scaled_dot_product_attention(*inputs, **options)

        expected = torch.stack([function(*item) for item in zip(*arrays, strict=True)])
        with sdpa_kernel(SDPBackend.MATH):
            mapped = torch.func.vmap(function)(*arrays)
        check_close(mapped, to_numpy(expected), kind, factor=10)

    @each_double_kind
    def test_vmap_over_a_mask_is_a_loop_over_it(self, kind):
        arrays = [array.detach() for array in leaves(kind, *FOUR_AXES)]
        seen = np.random.default_rng(85).random((7, 3, 5)) < 0.6
        for masks in (kind.plain(seen), kind.floats(np.where(seen, 0.25, -1.0))):

            def function(mask):
                return scaled_dot_product_attention(*arrays, mask)

            expected = torch.stack([function(mask) for mask in masks])
            with sdpa_kernel(SDPBackend.MATH):
                mapped = torch.func.vmap(function)(masks)
            check_close(mapped, to_numpy(expected), kind, factor=10)

    @each_double_kind
    def test_gradient_under_vmap_is_the_gradient_of_each_item(self, kind):
        arrays = [array.detach() for array in leaves(kind, *((7, *shape) for shape in FOUR_AXES))]

        def loss(*inputs):
            return scaled_dot_product_attention(*inputs, is_causal=True).square().sum()

        with sdpa_kernel(SDPBackend.MATH):
            mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*arrays)
        for item in range(7):
            own = [array[item].clone().requires_grad_() for array in arrays]
            for gradient, right in zip(mapped, torch.autograd.grad(loss(*own), own), strict=True):
                check_close(gradient[item], to_numpy(right), kind, factor=10)

    @each_double_kind
    def test_the_selected_backend_is_respected(self, kind):
        arrays = [
            array.detach() for array in leaves(kind, (2, 4, 3, 2), (2, 4, 5, 2), (2, 4, 5, 2))
        ]
        with sdpa_kernel(SDPBackend.MATH), Kernels() as kernels:
            scaled_dot_product_attention(*arrays, is_causal=True)
        assert kernels.names
        assert not kernels.fused


class TestKernels:
    @pytest.mark.parametrize(
        "request_of",
        [
            lambda kind: {},
            lambda kind: {"is_causal": True},
            lambda kind: {"attn_mask": kind.plain(seen_pairs(3, 5))},
            lambda kind: {"attn_mask": kind.floats(np.where(seen_pairs(4, 3, 5), 0.5, -1.0))},
            lambda kind: {"key_mask": kind.plain(np.arange(5) < 4)},
            lambda kind: {"is_causal": True, "causal_offset": 1},
            lambda kind: {"window": (1, 1)},
        ],
        ids=["dense", "causal", "bool mask", "float mask", "key_mask", "offset", "window"],
    )
    @pytest.mark.parametrize("kind", [k for k in TORCH_KINDS if k.device == "cpu"], ids=str)
    def test_fused_kernels_run_where_the_request_allows(self, kind, request_of):
        arrays = [
            array.detach() for array in leaves(kind, (2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 8))
        ]
        with Kernels() as kernels:
            scaled_dot_product_attention(*arrays, **request_of(kind))
        assert kernels.fused, kernels.names

    @pytest.mark.parametrize("kind", [k for k in TORCH_KINDS if k.device == "cpu"], ids=str)
    def test_fused_kernels_run_with_gradients_and_grouped_heads(self, kind):
        arrays = leaves(kind, (2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 8))
        with Kernels() as kernels:
            scaled_dot_product_attention(*arrays, enable_gqa=True, is_causal=True).sum().backward()
        assert kernels.fused, kernels.names

    @each_request
    @pytest.mark.parametrize("device", DEVICES_THAT_HIDE_VALUES)
    def test_only_on_the_cpu_a_choice_looks_at_values(self, device, request_of):
        """Meta tensors have no values; on CUDA a look at one is set to raise."""
        arrays = [torch.ones(shape, device=device) for shape in FOUR_AXES]
        options = {
            name: option.to(device) if isinstance(option, torch.Tensor) else option
            for name, option in request_of(DOUBLE_KINDS[0]).items()
        }
        with no_look_at_values(device):
            output, weights = scaled_dot_product_attention(*arrays, return_weights=True, **options)
            alone = scaled_dot_product_attention(*arrays, **options)
        assert output.device.type == weights.device.type == alone.device.type == device
        assert output.shape == alone.shape == (2, 4, 3, 6)
        assert weights.shape == (2, 4, 3, 5)

    def test_a_look_at_values_would_be_noticed(self):
        for device in DEVICES_THAT_HIDE_VALUES:
            with no_look_at_values(device), pytest.raises(RuntimeError):
                bool(torch.ones(3, device=device).all())

    def test_layout_is_the_one_that_pytorch_returns(self):
        arrays = [torch.ones(shape) for shape in ((2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 8))]
        swapped = [array.transpose(1, 2).contiguous().transpose(1, 2) for array in arrays]
        function = torch.nn.functional.scaled_dot_product_attention
        for inputs in (arrays, swapped):
            expected = function(*inputs)
            assert scaled_dot_product_attention(*inputs).stride() == expected.stride()


class TestTransparent:
    def test_deterministic_algorithms_may_be_asked_for(self):
        arrays = leaves(DOUBLE_KINDS[0], *FOUR_AXES)
        torch.use_deterministic_algorithms(True)
        try:
            output = scaled_dot_product_attention(*arrays, is_causal=True)
            output.sum().backward()
        finally:
            torch.use_deterministic_algorithms(False)
        assert torch.isfinite(output).all()

    def test_a_tensor_subclass_stays_differentiable(self):
        parameters = [
            torch.nn.Parameter(leaf.detach()) for leaf in leaves(DOUBLE_KINDS[0], *FOUR_AXES)
        ]
        scaled_dot_product_attention(*parameters).sum().backward()
        assert all(parameter.grad is not None for parameter in parameters)

    def test_inference_mode_works(self):
        with torch.inference_mode():
            arrays = [torch.ones(shape) for shape in FOUR_AXES]
            output = scaled_dot_product_attention(*arrays, key_mask=torch.ones(5, dtype=torch.bool))
        assert output.is_inference()

    def test_default_dtype_does_not_matter(self):
        arrays = [leaf.detach() for leaf in leaves(DOUBLE_KINDS[0], *FOUR_AXES)]
        expected = scaled_dot_product_attention(*arrays, is_causal=True)
        torch.set_default_dtype(torch.float16)
        try:
            output = scaled_dot_product_attention(*arrays, is_causal=True)
        finally:
            torch.set_default_dtype(torch.float32)
        check_close(output, to_numpy(expected), DOUBLE_KINDS[0])
