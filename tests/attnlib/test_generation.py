"""`KVCache`: keys and values of the tokens seen so far."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib import KVCache, scaled_dot_product_attention
from tests.kinds import (
    FLOAT64_KINDS,
    KINDS,
    TORCH_KINDS,
    check_close,
    check_unchanged,
    snapshot,
    to_numpy,
)

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)


def tokens(kind, count: int, *lead: int, E: int = 4, Ev: int = 3, seed: int = 120):
    """Return keys (…, Hkv, count, E) and values (…, Hkv, count, Ev)."""
    random = np.random.default_rng(seed)
    return (
        kind.floats(random.normal(size=(*lead, count, E))),
        kind.floats(random.normal(size=(*lead, count, Ev))),
    )


def address(array) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr()


class TestAppend:
    @pytest.mark.parametrize("lead", [(2,), (5, 2), (1, 5, 2)], ids=str)
    def test_holds_what_was_appended_in_order(self, kind, lead):
        keys, values = tokens(kind, 7, *lead)
        cache, start = KVCache(), 0
        for size in (1, 3, 0, 2, 1):
            stop = start + size
            cache.append(keys[..., start:stop, :], values[..., start:stop, :])
            start = stop
            assert len(cache) == stop
            assert cache.keys in kind
            assert cache.values in kind
            np.testing.assert_array_equal(to_numpy(cache.keys), to_numpy(keys)[..., :stop, :])
            np.testing.assert_array_equal(to_numpy(cache.values), to_numpy(values)[..., :stop, :])

    def test_counts_tokens_and_not_heads(self, kind):
        cache = KVCache()
        cache.append(*tokens(kind, 1, 6))
        assert len(cache) == 1
        cache.append(*tokens(kind, 2, 6))
        assert len(cache) == 3

    def test_is_empty_at_first(self):
        assert len(KVCache()) == 0
        assert len(KVCache(max_length=5)) == 0
        assert len(KVCache(5)) == 0

    @each_float64_kind
    def test_copies_what_it_is_given(self, kind):
        keys, values = tokens(kind, 3, 2)
        before = snapshot(keys, values)
        cache = KVCache()
        cache.append(keys, values)
        check_unchanged(before, keys, values)
        keys[...] = 9.0
        values[...] = 9.0
        np.testing.assert_array_equal(to_numpy(cache.keys), before[0][0])
        np.testing.assert_array_equal(to_numpy(cache.values), before[1][0])

    @each_float64_kind
    def test_layout_of_what_it_is_given_does_not_matter(self, kind):
        keys, values = tokens(kind, 3, 2)
        cache = KVCache()
        cache.append(
            kind.floats(to_numpy(keys).swapaxes(-1, -2)).swapaxes(-1, -2),
            kind.floats(np.repeat(to_numpy(values), 2, axis=-1))[..., ::2],
        )
        np.testing.assert_array_equal(to_numpy(cache.keys), to_numpy(keys))
        np.testing.assert_array_equal(to_numpy(cache.values), to_numpy(values))

    def test_growth_does_not_copy_the_past_each_time(self, kind):
        """The memory moves a few times in 300 appends, not 300 times."""
        cache, moves, last = KVCache(), 0, (0, 0)
        key, value = tokens(kind, 1, 2)
        for _ in range(300):
            cache.append(key, value)
            now = address(cache.keys), address(cache.values)
            moves, last = moves + (now != last), now
        assert len(cache) == 300
        assert moves <= 12

    @each_float64_kind
    def test_a_view_is_of_the_memory_and_not_a_copy(self, kind):
        cache = KVCache()
        cache.append(*tokens(kind, 3, 2))
        assert address(cache.keys) == address(cache.keys)
        assert address(cache.values) == address(cache.values)

    @pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.library == "numpy"], ids=str)
    def test_views_are_read_only(self, kind):
        cache = KVCache()
        cache.append(*tokens(kind, 3, 2))
        for view in (cache.keys, cache.values):
            with pytest.raises(ValueError, match="read-only"):
                view[...] = 0.0
        with pytest.raises(AttributeError):
            cache.keys = np.zeros(3)
        with pytest.raises(AttributeError):
            cache.values = np.zeros(3)


class TestReset:
    def test_forgets_the_tokens(self, kind):
        keys, values = tokens(kind, 5, 2)
        cache = KVCache()
        cache.append(keys, values)
        cache.reset()
        assert len(cache) == 0
        cache.append(keys[..., 3:, :], values[..., 3:, :])
        assert len(cache) == 2
        np.testing.assert_array_equal(to_numpy(cache.keys), to_numpy(keys)[..., 3:, :])
        np.testing.assert_array_equal(to_numpy(cache.values), to_numpy(values)[..., 3:, :])

    def test_of_an_empty_cache_does_nothing(self):
        cache = KVCache()
        cache.reset()
        assert len(cache) == 0


class TestMaxLength:
    def test_refuses_more_and_stays(self, kind):
        keys, values = tokens(kind, 5, 2)
        cache = KVCache(max_length=4)
        cache.append(keys[:, :3], values[:, :3])
        before = to_numpy(cache.keys).copy(), to_numpy(cache.values).copy()
        with pytest.raises(ValueError, match=r"max_length.*4"):
            cache.append(keys[:, 3:], values[:, 3:])
        assert len(cache) == 3
        np.testing.assert_array_equal(to_numpy(cache.keys), before[0])
        np.testing.assert_array_equal(to_numpy(cache.values), before[1])
        cache.append(keys[:, 3:4], values[:, 3:4])
        assert len(cache) == 4
        with pytest.raises(ValueError, match=r"max_length.*4"):
            cache.append(keys[:, :1], values[:, :1])

    @each_float64_kind
    def test_refuses_too_much_at_once(self, kind):
        cache = KVCache(max_length=4)
        with pytest.raises(ValueError, match=r"max_length.*4"):
            cache.append(*tokens(kind, 5, 2))
        assert len(cache) == 0


class TestMismatch:
    """The first append fixes kind, dtype, device and leading shape."""

    @pytest.mark.parametrize(
        ("make", "error"),
        [
            (lambda kind: tokens(kind, 1, 3), ValueError),
            (lambda kind: tokens(kind, 1, 5, 2), ValueError),
            (lambda kind: tokens(kind, 1, 2, E=5), ValueError),
            (lambda kind: tokens(kind, 1, 2, Ev=4), ValueError),
            (lambda kind: (tokens(kind, 1, 2)[0], tokens(kind, 2, 2)[1]), ValueError),
            (lambda kind: (tokens(kind, 1, 2)[0], tokens(kind, 1, 3)[1]), ValueError),
            (lambda kind: tuple(_other_dtype(kind, a) for a in tokens(kind, 1, 2)), ValueError),
            (lambda kind: (tokens(kind, 1, 2)[0], None), TypeError),
            (lambda kind: tuple(a > 0 for a in tokens(kind, 1, 2)), TypeError),
        ],
        ids=[
            *("heads", "rank", "E", "Ev", "S of value", "heads of value"),
            *("dtype", "no value", "bools"),
        ],
    )
    @each_float64_kind
    def test_raises_and_changes_nothing(self, kind, make, error):
        cache = KVCache()
        cache.append(*tokens(kind, 3, 2))
        before = to_numpy(cache.keys).copy(), to_numpy(cache.values).copy()
        with pytest.raises(error):
            cache.append(*make(kind))
        assert len(cache) == 3
        np.testing.assert_array_equal(to_numpy(cache.keys), before[0], strict=True)
        np.testing.assert_array_equal(to_numpy(cache.values), before[1], strict=True)
        cache.append(*tokens(kind, 1, 2))
        assert len(cache) == 4

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_of_kinds_raises_and_changes_nothing(self, kind):
        numpy_kind = KINDS[0]
        for first, second in ((kind, numpy_kind), (numpy_kind, kind)):
            cache = KVCache()
            cache.append(*tokens(first, 3, 2))
            with pytest.raises(TypeError, match=r"(?is)(numpy.*torch|torch.*numpy)"):
                cache.append(*tokens(second, 1, 2))
            assert len(cache) == 3
            assert cache.keys in first

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_of_the_first_append_fixes_nothing(self, kind):
        keys, values = tokens(kind, 3, 2)
        cache = KVCache()
        with pytest.raises(ValueError, match=r"value|v"):
            cache.append(keys, values[:, :2])
        assert len(cache) == 0
        cache.append(*tokens(KINDS[0], 3, 5, 2))
        assert len(cache) == 3


def _other_dtype(kind, array):
    other = type(kind)(kind.library, "float32", kind.device)
    return other.floats(to_numpy(array))


class TestTorch:
    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_tensors_that_require_gradients_raise_with_advice(self, kind):
        keys, values = tokens(kind, 3, 2)
        for changed in (
            (keys.clone().requires_grad_(), values),
            (keys, values.clone().requires_grad_()),
        ):
            cache = KVCache()
            with pytest.raises(ValueError, match=r"(?s)grad.*(no_grad|detach)"):
                cache.append(*changed)
            assert len(cache) == 0

    @pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
    def test_works_in_no_grad_and_inference_mode(self, kind):
        import torch

        for mode in (torch.no_grad, torch.inference_mode):
            cache = KVCache()
            with mode():
                cache.append(*tokens(kind, 3, 2))
                cache.append(*tokens(kind, 1, 2))
            assert len(cache) == 4
            assert not cache.keys.requires_grad


class TestGeneration:
    @pytest.mark.parametrize("cuts", [(1,) * 6, (2, 4), (3, 1, 2), (6,)], ids=str)
    def test_full_pass_is_chunks_is_token_by_token(self, kind, cuts):
        """The offset is the number of tokens that were cached before the call's own."""
        keys, values = tokens(kind, 6, 5, 2)
        queries, _ = tokens(kind, 6, 5, 2, seed=121)
        full = to_numpy(scaled_dot_product_attention(queries, keys, values, is_causal=True))
        cache, start = KVCache(), 0
        for size in cuts:
            rows = slice(start, start + size)
            cache.append(keys[..., rows, :], values[..., rows, :])
            output = scaled_dot_product_attention(
                queries[..., rows, :],
                cache.keys,
                cache.values,
                is_causal=True,
                causal_offset=start,
            )
            start += size
            check_close(output, full[..., rows, :], kind, factor=4)

    @each_float64_kind
    def test_without_the_append_a_token_would_not_see_itself(self, kind):
        keys, values = tokens(kind, 3, 2)
        queries, _ = tokens(kind, 3, 2, seed=121)
        full = to_numpy(scaled_dot_product_attention(queries, keys, values, is_causal=True))
        cache = KVCache()
        cache.append(keys[:, :2], values[:, :2])
        blind = scaled_dot_product_attention(queries[:, 2:], cache.keys, cache.values)
        assert np.abs(to_numpy(blind)[:, 0] - full[:, 2]).max() > 1e-3
        cache.append(keys[:, 2:], values[:, 2:])
        seeing = scaled_dot_product_attention(queries[:, 2:], cache.keys, cache.values)
        check_close(seeing[:, 0], full[:, 2], kind)
