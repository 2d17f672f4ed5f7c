"""Chapter 4: multi-head attention.  Rows S16 to S24 of the curriculum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlib import (
    KVCache,
    MultiHeadAttention,
    dense_attention,
    multi_head_attention,
    scaled_dot_product_attention,
    single_query_attention,
)
from attnlib.multi_head import merge_heads, split_heads
from tests import reference
from tests.attnlib.modules import (
    BATCHED,
    UNBATCHED,
    build,
    each_double_front,
    each_front,
    random_weights,
)
from tests.kinds import (
    FLOAT64_KINDS,
    NUMPY_FLOAT64,
    check_close,
    check_unchanged,
    snapshot,
    to_numpy,
)

each_float64_kind = pytest.mark.parametrize("kind", FLOAT64_KINDS, ids=str)
each_rank = pytest.mark.parametrize("shape", [BATCHED, UNBATCHED], ids=["batched", "unbatched"])


def normal(kind, *shape: int, seed: int = 91):
    return kind.floats(np.random.default_rng(seed).normal(size=shape))


def check_module(front, kind, weights, num_heads, query, *, num_kv_heads=None, **options) -> None:
    """Assert that a module computes the loop's output and weights, with and without weights."""
    module = build(front, kind, weights, num_heads, num_kv_heads)
    rounded = {name: to_numpy(kind.floats(array)) for name, array in weights.items()}
    plain = {
        name: to_numpy(option) if hasattr(option, "shape") else option
        for name, option in options.items()
    }
    expected, expected_weights = reference.multi_head(
        to_numpy(query), rounded, num_heads, num_kv_heads=num_kv_heads, **plain
    )
    output, attention_weights = module(query, return_weights=True, **options)
    check_close(output, expected, kind, factor=8)
    check_close(attention_weights, expected_weights, kind, factor=8)
    check_close(module(query, **options), expected, kind, factor=8)


class TestSplitAndMerge:
    def test_a_head_owns_neighbouring_features(self):
        x = np.arange(2 * 6).reshape(2, 6)  # two tokens, three heads of width 2
        heads = split_heads(x, 3)
        assert heads.tolist() == [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]

    @pytest.mark.parametrize("lead", [(), (2,), (2, 7)], ids=str)
    @each_float64_kind
    def test_merge_undoes_split(self, kind, lead):
        x = normal(kind, *lead, 5, 12)
        heads = split_heads(x, 3)
        assert tuple(heads.shape) == (*lead, 3, 5, 4)
        merged = merge_heads(heads)
        assert merged in kind
        np.testing.assert_array_equal(to_numpy(merged), to_numpy(x), strict=True)

    def test_split_is_not_a_reshape(self):
        x = np.arange(5 * 12).reshape(5, 12)
        assert not (split_heads(x, 3) == x.reshape(3, 5, 4)).all()
        assert not (merge_heads(split_heads(x, 3)) == split_heads(x, 3).reshape(5, 12)).all()


class TestChapterFunction:
    @pytest.mark.parametrize("is_causal", [False, True], ids=["dense", "causal"])
    @each_rank
    def test_agrees_with_the_loop(self, shape, is_causal):
        x = normal(NUMPY_FLOAT64, *shape)
        weights = random_weights(bias=False)
        expected, _ = reference.multi_head(x, weights, 6, is_causal=is_causal)
        output = multi_head_attention(x, **weights, num_heads=6, is_causal=is_causal)
        np.testing.assert_allclose(output, expected, rtol=1e-11, atol=1e-13)

    def test_lists_of_integers_are_computed_in_float64(self):
        x, identity = [[1, 0], [0, 2], [1, 1]], [[1, 0], [0, 1]]
        expected, _ = reference.multi_head(
            x, dict.fromkeys(("w_q", "w_k", "w_v", "w_o"), identity), 2
        )
        output = multi_head_attention(x, identity, identity, identity, identity, 2)
        assert output.dtype == np.float64
        np.testing.assert_allclose(output, expected, rtol=1e-13)

    def test_is_the_module_without_its_options(self):
        x, weights = normal(NUMPY_FLOAT64, *BATCHED), random_weights(bias=False)
        module = MultiHeadAttention(**weights, num_heads=6)
        for is_causal in (False, True):
            np.testing.assert_allclose(
                multi_head_attention(x, **weights, num_heads=6, is_causal=is_causal),
                module(x, is_causal=is_causal),
                rtol=1e-12,
            )

    def test_leaves_its_inputs_as_they_were(self):
        arrays = [normal(NUMPY_FLOAT64, *BATCHED), *random_weights(bias=False).values()]
        before = snapshot(*arrays)
        multi_head_attention(*arrays, 6)
        check_unchanged(before, *arrays)


class TestModule:
    @each_front
    @each_rank
    def test_agrees_with_the_loop(self, front, kind, shape):
        x = normal(kind, *shape)
        check_module(front, kind, random_weights(), 6, x)
        check_module(front, kind, random_weights(bias=False), 6, x, is_causal=True)

    @each_front
    @each_rank
    def test_grouped_heads_agree_with_the_loop(self, front, kind, shape):
        x = normal(kind, *shape)
        for num_kv_heads in (1, 2, 3):
            weights = random_weights(num_kv_heads=num_kv_heads)
            check_module(front, kind, weights, 6, x, num_kv_heads=num_kv_heads, is_causal=True)

    @each_double_front
    @each_rank
    def test_cross_attention_agrees_with_the_loop(self, front, kind, shape):
        """Queries of width 12, keys of width 9 and values of width 7, of another length."""
        *batch, _, _ = shape
        x, key, value = (
            normal(kind, *shape),
            normal(kind, *batch, 8, 9, seed=92),
            normal(kind, *batch, 8, 7, seed=93),
        )
        weights = random_weights(key_width=9, value_width=7)
        check_module(front, kind, weights, 6, x, key=key, value=value)
        same = random_weights(key_width=9, value_width=9)
        check_module(front, kind, same, 6, x, key=key)

    @each_double_front
    def test_any_head_width_works(self, front, kind):
        """Row S19: the residual sum forces the output's width, not τ · E = D."""
        x = normal(kind, *BATCHED)
        for E in (1, 3, 4):
            check_module(front, kind, random_weights(E=E), 6, x, is_causal=True)

    @each_double_front
    @pytest.mark.parametrize(
        "shape", [(5, 8), (1, 1, 5, 8), (2, 6, 5, 8), (2, 1, 1, 8), (1, 6, 5, 8)]
    )
    def test_masks_agree_with_the_loop(self, front, kind, shape):
        x, other = normal(kind, *BATCHED), normal(kind, 2, 8, 12, seed=94)
        seen = np.random.default_rng(95).random(shape) < 0.7
        for mask in (kind.plain(seen), kind.floats(np.where(seen, 0.5, -np.inf))):
            check_module(front, kind, random_weights(), 6, x, key=other, attn_mask=mask)

    @each_double_front
    @pytest.mark.parametrize("shape", [(5, 8), (6, 5, 8), (1, 5, 8)], ids=str)
    def test_unbatched_masks_may_have_an_axis_for_heads(self, front, kind, shape):
        x, other = normal(kind, *UNBATCHED), normal(kind, 8, 12, seed=94)
        seen = np.random.default_rng(95).random(shape) < 0.7
        for mask in (kind.plain(seen), kind.floats(np.where(seen, 0.5, -np.inf))):
            check_module(front, kind, random_weights(), 6, x, key=other, attn_mask=mask)

    @each_double_front
    def test_padding_agrees_with_the_loop(self, front, kind):
        x = normal(kind, *BATCHED)
        real = kind.plain([[True, True, True, False, False], [False, True, True, True, True]])
        for key_mask in (real, real[0]):
            check_module(front, kind, random_weights(), 6, x, key_mask=key_mask, is_causal=True)
        check_module(front, kind, random_weights(), 6, x[0], key_mask=real[0])

    @each_double_front
    def test_a_token_that_sees_nothing_gets_the_output_bias(self, front, kind):
        x, weights = normal(kind, *BATCHED), random_weights()
        nothing = kind.plain(np.zeros((5, 5), dtype=bool))
        output = build(front, kind, weights, 6)(x, attn_mask=nothing)
        check_close(output, np.broadcast_to(weights["b_o"], BATCHED), kind)

    @each_front
    def test_inputs_and_weights_stay_as_they_were(self, front, kind):
        module = build(front, kind, random_weights(), 6)
        x = normal(kind, *BATCHED)
        names = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
        arrays = [x, *(getattr(module, name) for name in names)]
        before = snapshot(*arrays)
        module(x, is_causal=True, key_mask=kind.plain([True] * 4 + [False]), return_weights=True)
        check_unchanged(before, *arrays)

    @each_double_front
    def test_knows_its_numbers_of_heads(self, front, kind):
        module = build(front, kind, random_weights(num_kv_heads=2), 6, 2)
        assert (module.num_heads, module.num_kv_heads) == (6, 2)
        assert build(front, kind, random_weights(), 6).num_kv_heads == 6

    @each_double_front
    @pytest.mark.parametrize("is_causal", [False, True], ids=["dense", "causal"])
    def test_agrees_with_pytorch(self, front, kind, is_causal):
        """Row S17, weights copied by hand: transposed, and q, k, v stacked."""
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        weights = random_weights()
        theirs = torch.nn.MultiheadAttention(12, 6, batch_first=True, dtype=torch.float64).eval()
        stacked = np.concatenate([weights[name].T for name in ("w_q", "w_k", "w_v")])
        biases = np.concatenate([weights[name] for name in ("b_q", "b_k", "b_v")])
        with torch.no_grad():
            theirs.in_proj_weight.copy_(torch.from_numpy(stacked))
            theirs.in_proj_bias.copy_(torch.from_numpy(biases))
            theirs.out_proj.weight.copy_(torch.from_numpy(weights["w_o"].T.copy()))
            theirs.out_proj.bias.copy_(torch.from_numpy(weights["b_o"]))
        x = normal(kind, *BATCHED)
        tensor = torch.from_numpy(to_numpy(x))
        real = np.array([[True] * 5, [True] * 3 + [False] * 2])
        hidden = torch.from_numpy(~np.tri(5, dtype=bool))  # True = ignore, the other way round
        expected, expected_weights = theirs(
            tensor,
            tensor,
            tensor,
            key_padding_mask=torch.from_numpy(~real),
            attn_mask=hidden if is_causal else None,
            average_attn_weights=False,
        )
        module = build(front, kind, weights, 6)
        output, attention_weights = module(
            x, is_causal=is_causal, key_mask=kind.plain(real), return_weights=True
        )
        check_close(output, to_numpy(expected), kind, factor=8)
        check_close(attention_weights, to_numpy(expected_weights), kind, factor=8)


class TestHead:
    @each_float64_kind
    @each_rank
    def test_is_attention_of_its_own_projections(self, kind, shape):
        weights, x = random_weights(), normal(kind, *shape)
        module = build("MultiHeadAttention", kind, weights, 6)
        numbers = to_numpy(x)
        for j in range(6):
            own = slice(2 * j, 2 * j + 2)
            q, k, v = (
                numbers @ weights["w_" + name][:, own] + weights["b_" + name][own]
                for name in ("q", "k", "v")
            )
            expected, expected_weights = reference.attention(q, k, v, is_causal=True)
            output, attention_weights = module.head(j, x, is_causal=True, return_weights=True)
            check_close(output, expected, kind, factor=8)
            check_close(attention_weights, expected_weights, kind, factor=8)

    def test_heads_merged_and_projected_are_the_module(self, kind):
        weights, x = random_weights(), normal(kind, *BATCHED)
        module = build("MultiHeadAttention", kind, weights, 6)
        merged = np.concatenate([to_numpy(module.head(j, x)) for j in range(6)], axis=-1)
        expected = merged @ weights["w_o"] + weights["b_o"]
        check_close(module(x), expected, kind, factor=10)

    @each_float64_kind
    def test_grouped_heads_read_the_key_of_their_group(self, kind):
        weights, x = random_weights(num_kv_heads=2), normal(kind, *BATCHED)
        module = build("MultiHeadAttention", kind, weights, 6, 2)
        _, every = module(x, return_weights=True)
        for j in range(6):
            _, own = module.head(j, x, return_weights=True)
            check_close(own, to_numpy(every)[:, j], kind, factor=8)

    @each_float64_kind
    def test_options_reach_the_head(self, kind):
        weights, x = random_weights(), normal(kind, *BATCHED)
        module = build("MultiHeadAttention", kind, weights, 6)
        other = normal(kind, 2, 8, 12, seed=94)
        mask = kind.plain(np.random.default_rng(96).random((2, 6, 5, 8)) < 0.7)
        key_mask = kind.plain(np.arange(8) != 2)
        options = {"attn_mask": mask, "key_mask": key_mask}
        _, every = module(x, other, return_weights=True, **options)
        for j in (0, 5):
            _, own = module.head(j, x, other, return_weights=True, **options)
            check_close(own, to_numpy(every)[:, j], kind, factor=8)

    @each_float64_kind
    def test_of_one_head_has_the_width_of_the_model(self, kind):
        """Row S19, the exercise: false for τ > 1, true for τ = 1."""
        x = normal(kind, *UNBATCHED)
        single = build("MultiHeadAttention", kind, random_weights(num_heads=1, E=12), 1)
        assert tuple(single.head(0, x).shape) == (5, 12)
        several = build("MultiHeadAttention", kind, random_weights(), 6)
        assert tuple(several.head(0, x).shape) == (5, 2)

    def test_768_features_in_12_heads_give_64_and_a_scale_of_an_eighth(self):
        """Rows S16 and S18."""
        module = MultiHeadAttention.random(768, 12, seed=97)
        x = np.random.default_rng(98).normal(size=(3, 768))
        head = module.head(7, x)
        assert head.shape == (3, 64)
        own = slice(7 * 64, 8 * 64)
        q, k, v = (x @ w[:, own] for w in (module.w_q, module.w_k, module.w_v))
        np.testing.assert_allclose(head, dense_attention(q, k, v, scale=1 / 8), rtol=1e-9)
        wrong = dense_attention(q, k, v, scale=1 / math.sqrt(768))
        assert np.abs(head - wrong).max() > 1e-3

    @each_float64_kind
    def test_at_one_token_is_the_row_of_the_causal_pass(self, kind):
        """Row S20."""
        weights, x = random_weights(bias=False), normal(kind, *UNBATCHED)
        module = build("MultiHeadAttention", kind, weights, 6)
        numbers = to_numpy(x)
        for j in (0, 4):
            own = slice(2 * j, 2 * j + 2)
            Q, K, V = (numbers @ weights[name][:, own] for name in ("w_q", "w_k", "w_v"))
            rows = to_numpy(module.head(j, x, is_causal=True))
            for i in range(5):
                alone = single_query_attention(Q[i], K[: i + 1], V[: i + 1])
                np.testing.assert_allclose(rows[i], alone, rtol=1e-11)


class TestWidths:
    """Row S19: d = τ · d_h is the usual choice."""

    def test_derived_width_needs_a_divisor(self):
        with pytest.raises(ValueError, match=r"num_heads.*5|5.*num_heads"):
            MultiHeadAttention.random(12, 5, seed=0)
        assert MultiHeadAttention.random(12, 4, seed=0).w_q.shape == (12, 12)

    def test_random_weights_come_from_the_seed(self):
        one, same = (MultiHeadAttention.random(12, 3, seed=5) for _ in range(2))
        other = MultiHeadAttention.random(12, 3, seed=6)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
            assert np.abs(getattr(one, name) - getattr(other, name)).max() > 0
            assert np.isfinite(getattr(one, name)).all()
        assert np.abs(one.w_q - one.w_k).max() > 0
        assert one.b_q is one.b_k is one.b_v is one.b_o is None

    def test_random_grouped_heads_share_keys_and_values(self):
        module = MultiHeadAttention.random(12, 6, num_kv_heads=2, bias=True, seed=5)
        assert module.w_q.shape == module.w_o.shape == (12, 12)
        assert module.w_k.shape == module.w_v.shape == (12, 4)
        assert (module.b_q.shape, module.b_k.shape) == ((12,), (4,))
        assert (module.b_v.shape, module.b_o.shape) == ((4,), (12,))
        assert module(np.ones((2, 5, 12))).shape == (2, 5, 12)

    def test_random_does_not_touch_the_global_generators(self):
        before = np.random.get_state()[1].copy()  # noqa: NPY002 (the state that must not move)
        MultiHeadAttention.random(12, 3, seed=5)
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


class TestDistinctProjections:
    """Row S22: what distinct projections buy."""

    def merged_heads(self, module: MultiHeadAttention, x: np.ndarray) -> np.ndarray:
        return np.concatenate([module.head(j, x) for j in range(module.num_heads)], axis=-1)

    def test_tied_heads_give_the_same_output_and_lose_rank(self):
        d, tau, m = 12, 3, 17
        x = np.random.default_rng(99).normal(size=(m, d))
        distinct = MultiHeadAttention.random(d, tau, seed=100)
        tied_weights = {
            name: np.tile(getattr(distinct, name)[:, : d // tau], tau)
            for name in ("w_q", "w_k", "w_v")
        }
        tied = MultiHeadAttention(**tied_weights, w_o=distinct.w_o, num_heads=tau)

        assert np.linalg.matrix_rank(self.merged_heads(distinct, x)) == 12
        assert np.linalg.matrix_rank(self.merged_heads(tied, x)) == 4
        for j in (1, 2):
            np.testing.assert_allclose(tied.head(j, x), tied.head(0, x), rtol=1e-12)
            assert np.abs(distinct.head(j, x) - distinct.head(0, x)).max() > 0.1


class TestSlips:
    """Row S23: each slip of a head breaks a law that the right code keeps."""

    x = np.random.default_rng(101).normal(size=(5, 12))
    other_queries = np.random.default_rng(102).normal(size=(5, 12))
    weights = random_weights(bias=False, E=4, num_heads=3)

    def parts(self, queries_from=None) -> list[np.ndarray]:
        queries = self.x if queries_from is None else queries_from
        names = ("w_q", "w_k", "w_v")
        return [
            split_heads(rows @ self.weights[name], 3)
            for rows, name in zip((queries, self.x, self.x), names, strict=True)
        ]

    def right(self) -> np.ndarray:
        return multi_head_attention(self.x, **self.weights, num_heads=3)

    def test_right_code_is_the_loop_over_the_heads(self):
        heads = [dense_attention(*head) for head in zip(*self.parts(), strict=True)]
        np.testing.assert_allclose(
            np.concatenate(heads, axis=1) @ self.weights["w_o"], self.right(), rtol=1e-11
        )

    def test_output_that_ignores_the_query_does_not_move_with_it(self):
        module = MultiHeadAttention(**self.weights, num_heads=3)
        moved = module(self.other_queries, self.x) - module(self.x, self.x)
        assert np.abs(moved).max() > 0.1
        _, K, V = self.parts()
        ignoring = [dense_attention(np.zeros((5, 4)), *head) for head in zip(K, V, strict=True)]
        assert (
            np.abs(np.concatenate(ignoring, axis=1) @ self.weights["w_o"] - self.right()).max()
            > 0.1
        )

    @pytest.mark.parametrize(
        "slip",
        [
            lambda Q, K, V: scaled_dot_product_attention(Q, K[[0, 0, 2]], V[[0, 0, 2]]),
            lambda Q, K, V: scaled_dot_product_attention(Q, V, K),
            lambda Q, K, V: scaled_dot_product_attention(Q, K, V, scale=1 / math.sqrt(12)),
        ],
        ids=["wrong index on K and V", "K and V swapped", "√d for √d_h"],
    )
    def test_slip_inside_the_heads_is_not_the_loop(self, slip):
        wrong = merge_heads(slip(*self.parts())) @ self.weights["w_o"]
        assert np.abs(wrong - self.right()).max() > 0.01

    def test_split_or_merge_by_reshape_is_not_the_loop(self):
        reshaped = [
            (self.x @ self.weights[name]).reshape(3, 5, 4) for name in ("w_q", "w_k", "w_v")
        ]
        wrong_split = merge_heads(scaled_dot_product_attention(*reshaped)) @ self.weights["w_o"]
        heads = scaled_dot_product_attention(*self.parts())
        wrong_merge = heads.reshape(5, 12) @ self.weights["w_o"]
        for wrong in (wrong_split, wrong_merge):
            assert np.abs(wrong - self.right()).max() > 0.1


class TestOrderOfSteps:
    """Row S24: project → dot products → scale → mask → softmax → weighted sum."""

    Q, K, V = (np.random.default_rng(103).normal(size=(5, width)) for width in (4, 4, 3))

    def test_scaling_queries_or_keys_first_gives_the_same(self):
        right = dense_attention(self.Q, self.K, self.V)
        for Q, K in ((self.Q / 2, self.K), (self.Q, self.K / 2)):
            np.testing.assert_allclose(dense_attention(Q, K, self.V, scale=1), right, rtol=1e-12)

    def test_projecting_each_head_and_adding_is_merging_and_projecting(self):
        module = MultiHeadAttention.random(12, 3, seed=104)
        x = np.random.default_rng(105).normal(size=(5, 12))
        added = sum(module.head(j, x) @ module.w_o[4 * j : 4 * j + 4] for j in range(3))
        np.testing.assert_allclose(added, module(x), rtol=1e-11)

    def test_scaling_after_the_softmax_does_not(self):
        after = dense_attention(self.Q, self.K, self.V, scale=1) / 2
        assert np.abs(after - dense_attention(self.Q, self.K, self.V)).max() > 0.1


class TestCache:
    """Row S21: at step i the new key and value are appended, then the query attends."""

    @each_front
    @each_rank
    @pytest.mark.parametrize("num_kv_heads", [6, 2], ids=["all heads", "grouped heads"])
    def test_full_pass_is_chunks_is_token_by_token(self, front, kind, shape, num_kv_heads):
        module = build(front, kind, random_weights(num_kv_heads=num_kv_heads), 6, num_kv_heads)
        x = normal(kind, *shape)
        full, full_weights = (
            to_numpy(array)
            for array in _without_graph(module, x, is_causal=True, return_weights=True)
        )
        for cuts in ((1, 1, 1, 1, 1), (2, 3), (4, 1), (5,)):
            cache, start = KVCache(), 0
            for size in cuts:
                chunk = x[..., start : start + size, :]
                output, weights = _without_graph(
                    module, chunk, is_causal=True, cache=cache, return_weights=True
                )
                rows = slice(start, start + size)
                start += size
                assert len(cache) == start
                check_close(output, full[..., rows, :], kind, factor=8)
                check_close(weights, full_weights[..., rows, :start], kind, factor=8)

    @each_double_front
    def test_work_of_a_step_is_one_pair_for_each_token_so_far(self, front, kind):
        module, cache = build(front, kind, random_weights(), 6), KVCache()
        for i, token in enumerate(normal(kind, 4, 1, 12)):
            _, weights = _without_graph(
                module, token, is_causal=True, cache=cache, return_weights=True
            )
            assert tuple(weights.shape) == (6, 1, i + 1)
            assert (to_numpy(weights) > 0).all()

    @each_double_front
    def test_one_token_needs_no_flag(self, front, kind):
        module, x = build(front, kind, random_weights(), 6), normal(kind, *BATCHED)
        caches = KVCache(), KVCache()
        for i in range(5):
            token = x[:, i : i + 1]
            flagged = _without_graph(module, token, is_causal=True, cache=caches[0])
            plain = _without_graph(module, token, cache=caches[1])
            check_close(plain, to_numpy(flagged), kind)

    @each_double_front
    def test_masks_address_all_keys(self, front, kind):
        module, x = build(front, kind, random_weights(), 6), normal(kind, *BATCHED)
        real = kind.plain([[True, False, True, True, True], [True, True, True, False, True]])
        bias = kind.floats(np.random.default_rng(106).normal(size=(5, 5)))
        full = to_numpy(_without_graph(module, x, is_causal=True, key_mask=real, attn_mask=bias))
        cache, start = KVCache(), 0
        for size in (2, 1, 2):
            stop = start + size
            output = _without_graph(
                module,
                x[:, start:stop],
                is_causal=True,
                key_mask=real[:, :stop],
                attn_mask=bias[start:stop, :stop],
                cache=cache,
            )
            check_close(output, full[:, start:stop], kind, factor=8)
            start = stop

    @each_double_front
    @pytest.mark.parametrize(
        "wrong",
        [
            lambda kind, x: {"is_causal": False},
            lambda kind, x: {"is_causal": True, "key": x},
            lambda kind, x: {"is_causal": True, "value": x},
            lambda kind, x: {
                "is_causal": True,
                "key_mask": kind.plain(np.ones((2, 3), dtype=bool)),
            },
            lambda kind, x: {"is_causal": True, "attn_mask": kind.floats(np.zeros((3, 3)))},
            lambda kind, x: {
                "is_causal": True,
                "attn_mask": kind.plain(np.zeros((3, 5), dtype=int)),
            },
        ],
        ids=["no is_causal", "key", "value", "short key_mask", "short attn_mask", "integer mask"],
    )
    def test_a_failed_call_leaves_it_as_it_was(self, front, kind, wrong):
        module, x = build(front, kind, random_weights(), 6), normal(kind, *BATCHED)
        cache = KVCache()
        _without_graph(module, x[:, :2], is_causal=True, cache=cache)
        keys, values = to_numpy(cache.keys).copy(), to_numpy(cache.values).copy()
        chunk = x[:, 2:]
        with pytest.raises((ValueError, TypeError)):
            _without_graph(module, chunk, cache=cache, **wrong(kind, chunk))
        assert len(cache) == 2
        np.testing.assert_array_equal(to_numpy(cache.keys), keys, strict=True)
        np.testing.assert_array_equal(to_numpy(cache.values), values, strict=True)
        full = _without_graph(module, x, is_causal=True)
        rest = _without_graph(module, chunk, is_causal=True, cache=cache)
        check_close(rest, to_numpy(full)[:, 2:], kind, factor=8)

    @each_double_front
    def test_a_full_cache_refuses_and_stays(self, front, kind):
        module, x = build(front, kind, random_weights(), 6), normal(kind, *BATCHED)
        cache = KVCache(max_length=4)
        _without_graph(module, x[:, :3], is_causal=True, cache=cache)
        with pytest.raises(ValueError, match="max_length"):
            _without_graph(module, x[:, 3:], is_causal=True, cache=cache)
        assert len(cache) == 3
        _without_graph(module, x[:, 3:4], is_causal=True, cache=cache)
        assert len(cache) == 4

    @each_double_front
    def test_reset_starts_a_new_sequence(self, front, kind):
        module, x = build(front, kind, random_weights(), 6), normal(kind, *BATCHED)
        cache = KVCache()
        first = _without_graph(module, x, is_causal=True, cache=cache)
        cache.reset()
        assert len(cache) == 0
        again = _without_graph(module, x, is_causal=True, cache=cache)
        check_close(again, to_numpy(first), kind)


def _without_graph(module, *args, **options):
    """Call a module for inference: a cache refuses tensors that require gradients."""
    if type(module).__module__ == "attnlib.nn":
        import torch

        with torch.no_grad():
            return module(*args, **options)
    return module(*args, **options)


class TestConversion:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def module(self, **options):
        self.torch.manual_seed(107)
        options = {"batch_first": True, "dtype": self.torch.float64} | options
        module = self.torch.nn.MultiheadAttention(12, 3, **options).eval()
        with self.torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_(std=0.3)
        return module

    @pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
    def test_from_torch_copies_weights_in_their_dtype(self, dtype, bias):
        theirs = self.module(dtype=getattr(self.torch, dtype), bias=bias)
        ours = MultiHeadAttention.from_torch(theirs)
        w_q, w_k, w_v = theirs.in_proj_weight.detach().numpy().reshape(3, 12, 12)
        for name, expected in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
            assert getattr(ours, name).dtype == dtype
            np.testing.assert_array_equal(getattr(ours, name), expected.T)
        np.testing.assert_array_equal(ours.w_o, theirs.out_proj.weight.detach().numpy().T)
        if not bias:
            assert ours.b_q is ours.b_k is ours.b_v is ours.b_o is None
        else:
            np.testing.assert_array_equal(ours.b_o, theirs.out_proj.bias.detach().numpy())
        before = ours.w_q.copy()
        with self.torch.no_grad():
            theirs.in_proj_weight.zero_()
        np.testing.assert_array_equal(ours.w_q, before)

    @pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "length first"])
    def test_from_torch_computes_the_same(self, batch_first):
        theirs = self.module(batch_first=batch_first)
        x = np.random.default_rng(108).normal(size=BATCHED)
        tensor = self.torch.from_numpy(x)
        tensor = tensor if batch_first else tensor.transpose(0, 1)
        expected = theirs(tensor, tensor, tensor, need_weights=False)[0].detach()
        expected = expected if batch_first else expected.transpose(0, 1)
        ours = MultiHeadAttention.from_torch(theirs)
        np.testing.assert_allclose(ours(x), expected.numpy(), rtol=1e-11, atol=1e-13)

    def test_from_torch_takes_other_widths_of_keys_and_values(self):
        theirs = self.module(kdim=9, vdim=7)
        random = np.random.default_rng(109)
        x, key, value = (
            random.normal(size=(2, 5, 12)),
            random.normal(size=(2, 8, 9)),
            random.normal(size=(2, 8, 7)),
        )
        tensors = [self.torch.from_numpy(array) for array in (x, key, value)]
        expected = theirs(*tensors, need_weights=False)[0].detach().numpy()
        ours = MultiHeadAttention.from_torch(theirs)
        assert (ours.w_k.shape, ours.w_v.shape) == ((9, 12), (7, 12))
        np.testing.assert_allclose(ours(x, key, value), expected, rtol=1e-11, atol=1e-13)

    def test_from_torch_takes_dropout_in_eval_mode_only(self):
        theirs = self.module(dropout=0.5)
        MultiHeadAttention.from_torch(theirs)
        with pytest.raises(ValueError, match=r"(?s)dropout.*eval"):
            MultiHeadAttention.from_torch(theirs.train())

    @pytest.mark.parametrize(
        ("options", "named"),
        [({"add_bias_kv": True}, "bias_k"), ({"add_zero_attn": True}, "add_zero_attn")],
        ids=["add_bias_kv", "add_zero_attn"],
    )
    def test_from_torch_refuses_what_it_cannot_express(self, options, named):
        with pytest.raises(ValueError, match=named):
            MultiHeadAttention.from_torch(self.module(**options))

    def test_from_torch_refuses_what_is_no_such_module(self):
        with pytest.raises(TypeError, match=r"MultiheadAttention.*Linear"):
            MultiHeadAttention.from_torch(self.torch.nn.Linear(3, 4))

    def test_from_torch_refuses_bfloat16_which_numpy_lacks(self):
        with pytest.raises((TypeError, ValueError), match="bfloat16"):
            MultiHeadAttention.from_torch(self.module(dtype=self.torch.bfloat16))

    @pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
    def test_to_torch_computes_the_same(self, bias):
        ours = MultiHeadAttention(**random_weights(bias=bias), num_heads=6)
        theirs = ours.to_torch()
        assert isinstance(theirs, self.torch.nn.MultiheadAttention)
        assert theirs.batch_first
        assert not theirs.training
        assert theirs.out_proj.weight.dtype == self.torch.float64
        x = np.random.default_rng(110).normal(size=BATCHED)
        tensor = self.torch.from_numpy(x)
        output = theirs(tensor, tensor, tensor, need_weights=False)[0].detach().numpy()
        np.testing.assert_allclose(output, ours(x), rtol=1e-11, atol=1e-13)

    def test_to_torch_and_back_gives_the_same_weights(self):
        for options in ({}, {"key_width": 9, "value_width": 7}):
            weights = random_weights(**options)
            back = MultiHeadAttention.from_torch(
                MultiHeadAttention(**weights, num_heads=6).to_torch()
            )
            assert back.num_heads == 6
            for name, expected in weights.items():
                np.testing.assert_array_equal(getattr(back, name), expected)

    def test_to_torch_copies(self):
        ours = MultiHeadAttention(**random_weights(), num_heads=6)
        before = ours.w_o.copy()
        with self.torch.no_grad():
            for parameter in ours.to_torch().parameters():
                parameter.zero_()
        np.testing.assert_array_equal(ours.w_o, before)

    def test_to_torch_refuses_grouped_heads(self):
        grouped = MultiHeadAttention(**random_weights(num_kv_heads=2), num_heads=6, num_kv_heads=2)
        with pytest.raises(ValueError, match=r"num_kv_heads|grouped"):
            grouped.to_torch()

    def test_to_torch_refuses_a_head_width_of_its_own(self):
        free = MultiHeadAttention(**random_weights(E=4), num_heads=6)
        with pytest.raises(ValueError, match=r"24|E"):
            free.to_torch()
