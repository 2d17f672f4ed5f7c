"""`scaled_dot_product_attention`: kinds of arrays, dtypes and their precision, strides, memory."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from attnlib import scaled_dot_product_attention
from tests import reference
from tests.attnlib.test_functional_shapes import check_against_loop, random_arrays
from tests.kinds import (
    FLOAT64_KINDS,
    KINDS,
    TORCH_KINDS,
    Kind,
    check_close,
    check_equal_bits,
    check_unchanged,
    snapshot,
    to_numpy,
)

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)
HALF_KINDS = [kind for kind in KINDS if kind.dtype in ("float16", "bfloat16")]
each_half_kind = pytest.mark.parametrize("kind", HALF_KINDS, ids=str)
FOUR_AXES = ((2, 6, 5, 4), (2, 6, 7, 4), (2, 6, 7, 3))  # B = 2, H = 6, L = 5, S = 7
OPTIONS = {
    "dense": {},
    "causal": {"is_causal": True},
    "window": {"window": (1, 2), "causal_offset": 1},
    "softcap": {"softcap": 2.0, "scale": -0.5},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


def engines_that_ran(function, *arrays, **options) -> set[str]:
    """Return the names of the engine modules whose code ran during the call."""
    seen = set()

    def note(frame, event, argument):
        file = frame.f_code.co_filename.replace("\\", "/")
        if event == "call" and "/attnlib/engines/" in file:
            seen.add(file.rpartition("/")[2].removesuffix(".py"))

    previous = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*arrays, **options)
    finally:
        sys.setprofile(previous)
    return {name for name in seen if not name.startswith("_")}


class TestKinds:
    @each_option
    def test_result_is_of_the_kind_of_the_inputs(self, kind, options):
        arrays = random_arrays(kind, *FOUR_AXES)
        for shaped in (arrays, [array[0, 0] for array in arrays]):
            output, weights = scaled_dot_product_attention(*shaped, return_weights=True, **options)
            assert output in kind
            assert weights in kind
            assert scaled_dot_product_attention(*shaped, **options) in kind

    def test_each_kind_runs_on_its_own_engine(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        own = "numpy_tiled" if kind.library == "numpy" else "torch_fused"
        for options in (*OPTIONS.values(), {"return_weights": True}):
            assert engines_that_ran(scaled_dot_product_attention, *arrays, **options) == {own}

    def test_subclasses_of_float_arrays_are_arrays(self):
        class Tagged(np.ndarray):
            pass

        q, K, V = random_arrays(KINDS[0], (5, 4), (7, 4), (7, 3))
        output = scaled_dot_product_attention(q.view(Tagged), K.view(Tagged), V.view(Tagged))
        np.testing.assert_array_equal(np.asarray(output), scaled_dot_product_attention(q, K, V))

    @pytest.mark.parametrize("order", [">", "<"], ids=["big-endian", "little-endian"])
    def test_byte_order_does_not_matter(self, order):
        arrays = random_arrays(KINDS[0], *FOUR_AXES)
        ordered = [array.astype(np.dtype(np.float64).newbyteorder(order)) for array in arrays]
        np.testing.assert_array_equal(
            scaled_dot_product_attention(*ordered), scaled_dot_product_attention(*arrays)
        )


class TestMemory:
    @each_option
    @pytest.mark.parametrize(
        "shapes",
        [
            FOUR_AXES,
            ((5, 4), (7, 4), (7, 3)),
            ((2, 6, 5, 4), (7, 4), (1, 6, 7, 3)),
            ((1, 4), (1, 4), (1, 4)),
            ((5, 4), (1, 4), (1, 3)),
        ],
        ids=str,
    )
    def test_inputs_are_never_modified(self, kind, options, shapes):
        q, K, V = random_arrays(kind, *shapes)
        L, S = shapes[0][-2], shapes[1][-2]
        key_mask = kind.plain(np.arange(S) != 1)
        for mask in (kind.plain(np.tri(L, S, dtype=bool)), kind.floats(np.tri(L, S))):
            before = snapshot(q, K, V, mask, key_mask)
            scaled_dot_product_attention(
                q, K, V, mask, key_mask=key_mask, return_weights=True, **options
            )
            scaled_dot_product_attention(q, K, V, mask, key_mask=key_mask, **options)
            check_unchanged(before, q, K, V, mask, key_mask)

    def test_inputs_with_poison_in_masked_places_are_never_modified(self, kind):
        q, K, V = random_arrays(kind, *FOUR_AXES)
        K[:, :, 5:], V[:, :, 5:] = float("nan"), float("inf")
        real = kind.plain(np.arange(7) < 5)
        before = snapshot(q, K, V, real)
        scaled_dot_product_attention(q, K, V, key_mask=real)
        check_unchanged(before, q, K, V, real)

    @each_option
    @pytest.mark.parametrize(
        "shapes", [FOUR_AXES, ((5, 4), (7, 4), (7, 3)), ((1, 4), (1, 4), (1, 4))], ids=str
    )
    def test_output_and_weights_are_fresh(self, kind, options, shapes):
        q, K, V = arrays = random_arrays(kind, *shapes)
        mask = kind.floats(np.zeros((shapes[0][-2], shapes[1][-2])))
        before = snapshot(q, K, V, mask)
        output, weights = scaled_dot_product_attention(
            *arrays, mask, return_weights=True, **options
        )
        output[...], weights[...] = 7.0, 9.0
        assert (to_numpy(output) == 7.0).all(), "weights share memory with the output"
        check_unchanged(before, q, K, V, mask)
        again = scaled_dot_product_attention(*arrays, mask, **options)
        again[...] = 7.0
        check_unchanged(before, q, K, V, mask)

    @each_option
    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.library == "numpy"], ids=str)
    def test_numpy_output_is_contiguous_and_owned(self, kind, options):
        for shapes in (
            FOUR_AXES,
            ((6, 5, 4), (2, 1, 7, 4), (7, 3)),
            ((5, 4), (1, 4), (1, 3)),
            ((0, 4), (7, 4), (7, 3)),
            ((5, 4), (0, 4), (0, 3)),
        ):
            output, weights = scaled_dot_product_attention(
                *random_arrays(kind, *shapes), return_weights=True, **options
            )
            alone = scaled_dot_product_attention(*random_arrays(kind, *shapes), **options)
            for array in (output, weights, alone):
                assert array.flags.c_contiguous
                assert array.flags.writeable

    def test_same_call_gives_the_same_bits(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        for options in OPTIONS.values():
            check_equal_bits(
                scaled_dot_product_attention(*arrays, **options),
                scaled_dot_product_attention(*arrays, **options),
            )


def laid_out(kind: Kind, array: np.ndarray) -> dict:
    """Return the same numbers as `array` (…, rows, width) in memory of several layouts."""
    if array.ndim < 3:
        raise ValueError("give at least three axes")
    tensor = kind.floats(array)
    swapped = kind.floats(np.moveaxis(array, -2, -3))
    every_other = kind.floats(np.repeat(array, 2, axis=-1))[..., ::2]
    transposed = kind.floats(np.swapaxes(array, -1, -2))
    padded = kind.floats(np.pad(array, [(0, 0)] * (array.ndim - 2) + [(1, 2), (3, 1)]))
    layouts = {
        "length before heads": swapped.swapaxes(-2, -3),
        "every other entry": every_other,
        "width before length": transposed.swapaxes(-1, -2),
        "window of a larger array": padded[..., 1:-2, 3:-1],
    }
    if kind.library == "numpy":
        layouts["backwards rows"] = np.ascontiguousarray(tensor[..., ::-1, :])[..., ::-1, :]
        layouts["backwards width"] = np.ascontiguousarray(tensor[..., ::-1])[..., ::-1]
        layouts["Fortran order"] = np.asfortranarray(tensor)
        layouts["read-only"] = tensor.copy()
        layouts["read-only"].flags.writeable = False
    return layouts


class TestStrides:
    @pytest.mark.parametrize("lead", [(6,), (2, 6)], ids=str)
    def test_layout_of_the_inputs_does_not_matter(self, kind, lead):
        random = np.random.default_rng(60)
        shapes = (*lead, 5, 4), (*lead, 7, 4), (*lead, 7, 3)
        numbers = [random.normal(size=shape) for shape in shapes]
        plain = [kind.floats(array) for array in numbers]
        mask = kind.plain(random.random((6, 5, 7)) < 0.7)
        every = [laid_out(kind, array) for array in numbers]
        for options in (*OPTIONS.values(), {"attn_mask": mask}):
            expected = to_numpy(scaled_dot_product_attention(*plain, **options))
            for name in every[0]:
                strided = [layouts[name] for layouts in every]
                before = snapshot(*strided)
                output = scaled_dot_product_attention(*strided, **options)
                check_close(output, expected, kind, factor=3)
                check_unchanged(before, *strided)

    def test_layout_of_the_masks_does_not_matter(self, kind):
        arrays = random_arrays(kind, *FOUR_AXES)
        seen = np.random.default_rng(61).random((5, 7)) < 0.7
        bias = np.where(seen, 0.5, -1.0)
        for numbers, make in ((seen, kind.plain), (bias, kind.floats)):
            expected = to_numpy(scaled_dot_product_attention(*arrays, make(numbers)))
            transposed = make(numbers.T).swapaxes(0, 1)
            every_other = make(np.repeat(numbers, 2, axis=1))[:, ::2]
            for mask in (transposed, every_other):
                check_close(scaled_dot_product_attention(*arrays, mask), expected, kind, factor=3)
        real = np.arange(7) != 4
        expected = to_numpy(scaled_dot_product_attention(*arrays, key_mask=kind.plain(real)))
        spread = kind.plain(np.repeat(real, 2))[::2]
        check_close(
            scaled_dot_product_attention(*arrays, key_mask=spread), expected, kind, factor=3
        )

    def test_an_axis_repeated_without_memory_does_not_matter(self, kind):
        random = np.random.default_rng(62)
        q, K, V = (kind.floats(random.normal(size=shape)) for shape in FOUR_AXES)

        def repeated(array):
            row = array[:, :1]
            if kind.library == "numpy":
                return np.broadcast_to(row, array.shape)
            return row.expand(array.shape)

        output = scaled_dot_product_attention(q, repeated(K), repeated(V), is_causal=True)
        expected, _ = reference.attention(
            to_numpy(q), to_numpy(K)[:, :1], to_numpy(V)[:, :1], is_causal=True
        )
        check_close(output, expected, kind, factor=3)

    @each_float64_kind
    def test_one_array_may_be_query_key_and_value(self, kind):
        (x,) = random_arrays(kind, (2, 3, 5, 4))
        before = snapshot(x)
        check_against_loop(kind, [x, x, x], is_causal=True)
        check_unchanged(before, x)


class TestPrecision:
    @each_float64_kind
    def test_float64_stays_float64_throughout(self, kind):
        """A float32 step anywhere would lose the quarter."""
        V = kind.floats([[1_000_000.0], [0.5]])
        output = scaled_dot_product_attention(kind.floats([[0.0]]), kind.floats([[1.0], [2.0]]), V)
        np.testing.assert_allclose(to_numpy(output), [[500_000.25]], rtol=1e-15)

        random = np.random.default_rng(63)
        arrays = [kind.floats(random.normal(size=shape)) for shape in ((33, 5), (65, 5), (65, 7))]
        bias = kind.floats(random.normal(size=(33, 65)))
        for mask, options in ((None, {}), (bias, {"softcap": 3.0}), (None, {"is_causal": True})):
            expected, _ = reference.attention(
                *(to_numpy(a) for a in arrays), None if mask is None else to_numpy(mask), **options
            )
            output = scaled_dot_product_attention(*arrays, mask, **options)
            np.testing.assert_allclose(to_numpy(output), expected, rtol=1e-12, atol=1e-14)

    @each_half_kind
    def test_half_precision_scores_do_not_overflow(self, kind):
        """The scores are ±80,000, beyond float16; the dot products are ±160,000."""
        q = kind.floats(np.full((1, 4), 200.0))
        K = kind.floats([[200.0] * 4, [-200.0] * 4])
        V = kind.floats([[1.0], [2.0]])
        assert to_numpy(scaled_dot_product_attention(q, K, V)).tolist() == [[1.0]]
        close = kind.floats([[200.0] * 4, [200.0] * 4])
        assert to_numpy(scaled_dot_product_attention(q, close, V)).tolist() == [[1.5]]

    @each_half_kind
    def test_half_precision_sums_are_accumulated_in_float32(self, kind):
        """4,096 equal weights: a half-precision running sum of ones would stop long before."""
        S = 4096
        q, K = kind.floats(np.zeros((3, 8))), kind.floats(np.zeros((S, 8)))
        V = kind.floats(np.ones((S, 5)))
        output = scaled_dot_product_attention(q, K, V)
        np.testing.assert_allclose(to_numpy(output), np.ones((3, 5)), rtol=1e-3)
        _, weights = scaled_dot_product_attention(q, K, V, return_weights=True)
        assert (to_numpy(weights) == 1 / S).all()

    @each_half_kind
    def test_half_precision_result_is_one_rounding_from_exact(self, kind):
        """Fused kernels on CUDA also round the weights; everywhere else there is one rounding."""
        arrays = random_arrays(kind, (2, 3, 9, 16), (2, 3, 40, 16), (2, 3, 40, 5), seed=64)
        expected, expected_weights = reference.attention(*(to_numpy(a) for a in arrays))
        output, weights = scaled_dot_product_attention(*arrays, return_weights=True)
        one_rounding = {"float16": 2**-11, "bfloat16": 2**-8}[kind.dtype]
        allowed = one_rounding * (4 if kind.device == "cuda" else 1.02)
        smallest = 1e-5  # below it float32's own rounding and float16's subnormals show
        np.testing.assert_allclose(to_numpy(output), expected, rtol=allowed, atol=smallest)
        np.testing.assert_allclose(to_numpy(weights), expected_weights, rtol=allowed, atol=smallest)

    @each_half_kind
    def test_half_precision_output_may_overflow_only_where_values_do(self, kind):
        q, K = kind.floats(np.zeros((1, 4))), kind.floats(np.zeros((3, 4)))
        largest = 60_000.0 if kind.dtype == "float16" else 1e38
        V = kind.floats(np.full((3, 2), largest))
        output = to_numpy(scaled_dot_product_attention(q, K, V))
        np.testing.assert_allclose(output, to_numpy(V)[:1], rtol=1e-2)

    def test_huge_differences_give_a_hard_choice_without_warning(self, kind):
        q = kind.floats([[1.0], [-1.0]])
        K = kind.floats([[3e4], [-3e4], [0.0]])
        V = kind.floats([[1.0], [2.0], [4.0]])
        assert to_numpy(scaled_dot_product_attention(q, K, V)).ravel().tolist() == [1.0, 2.0]

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_autocast_keeps_the_inputs_dtype_or_does_as_pytorch(self, kind):
        """Inside autocast PyTorch chooses the dtype; the result is right either way."""
        import torch

        arrays = random_arrays(kind, *FOUR_AXES)
        expected, _ = reference.attention(*(to_numpy(a) for a in arrays))
        with torch.autocast(kind.device, dtype=torch.bfloat16):
            output = scaled_dot_product_attention(*arrays)
        np.testing.assert_allclose(to_numpy(output), expected, rtol=4e-2, atol=4e-2)
