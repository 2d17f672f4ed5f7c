"""`attnlib.nn`: the PyTorch module owns parameters and calls the same function."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from attnlib import KVCache, MultiHeadAttention
from tests.attnlib.modules import BATCHED, random_weights
from tests.kinds import TORCH_KINDS, check_close, to_numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import attnlib.nn  # noqa: E402

each_torch_kind = pytest.mark.parametrize("kind", TORCH_KINDS, ids=str)
WEIGHTS, BIASES = ["w_q", "w_k", "w_v", "w_o"], ["b_q", "b_k", "b_v", "b_o"]


def inputs(*shape: int, seed: int = 140) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


class TestParameters:
    def test_are_the_weights_and_the_biases(self):
        module = attnlib.nn.MultiHeadAttention(12, 6)
        assert isinstance(module, torch.nn.Module)
        assert sorted(dict(module.named_parameters())) == sorted(WEIGHTS + BIASES)
        assert sorted(module.state_dict()) == sorted(WEIGHTS + BIASES)
        assert all(parameter.requires_grad for parameter in module.parameters())

    def test_without_biases_are_the_weights(self):
        module = attnlib.nn.MultiHeadAttention(12, 6, bias=False)
        assert sorted(dict(module.named_parameters())) == sorted(WEIGHTS)
        assert sorted(module.state_dict()) == sorted(WEIGHTS)
        assert module.b_q is module.b_k is module.b_v is module.b_o is None

    def test_have_the_shapes_of_y_equals_x_w(self):
        module = attnlib.nn.MultiHeadAttention(12, 6, num_kv_heads=2)
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        assert shapes == {
            "w_q": (12, 12), "w_k": (12, 4), "w_v": (12, 4), "w_o": (12, 12),
            "b_q": (12,), "b_k": (4,), "b_v": (4,), "b_o": (12,),
        }  # fmt: skip
        assert (module.num_heads, module.num_kv_heads) == (6, 2)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
    def test_have_the_dtype_and_device_asked_for(self, dtype):
        module = attnlib.nn.MultiHeadAttention(12, 6, dtype=dtype, device="cpu")
        assert {parameter.dtype for parameter in module.parameters()} == {dtype}
        meta = attnlib.nn.MultiHeadAttention(12, 6, device="meta")
        assert {parameter.device.type for parameter in meta.parameters()} == {"meta"}

    def test_default_dtype_is_pytorchs(self):
        assert attnlib.nn.MultiHeadAttention(12, 6).w_q.dtype == torch.get_default_dtype()

    def test_start_random_from_pytorchs_seed_and_finite(self):
        def make():
            torch.manual_seed(141)
            return attnlib.nn.MultiHeadAttention(12, 6)

        one, same, other = make(), make(), attnlib.nn.MultiHeadAttention(12, 6)
        for name in WEIGHTS:
            weights = getattr(one, name)
            assert torch.equal(weights, getattr(same, name))
            assert not torch.equal(weights, getattr(other, name))
            assert torch.isfinite(weights).all()
            assert 0.01 < weights.std() < 1.0

    def test_heads_must_divide_the_width(self):
        with pytest.raises(ValueError, match=r"num_heads.*5|5.*num_heads"):
            attnlib.nn.MultiHeadAttention(12, 5)
        with pytest.raises(ValueError, match="num_kv_heads"):
            attnlib.nn.MultiHeadAttention(12, 6, num_kv_heads=4)

    def test_move_and_save_as_those_of_any_module(self, tmp_path):
        module = attnlib.nn.MultiHeadAttention(12, 6).double()
        assert module.w_q.dtype == torch.float64
        torch.save(module.state_dict(), tmp_path / "weights.pt")
        other = attnlib.nn.MultiHeadAttention(12, 6).double()
        other.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
        x = inputs(*BATCHED)
        assert torch.equal(module(x), other(x))
        assert torch.equal(copy.deepcopy(module)(x), module(x))


class TestCall:
    @each_torch_kind
    @pytest.mark.parametrize("num_kv_heads", [6, 2], ids=["all heads", "grouped heads"])
    def test_is_that_of_the_other_module(self, kind, num_kv_heads):
        weights = random_weights(num_kv_heads=num_kv_heads)
        plain = MultiHeadAttention(**weights, num_heads=6, num_kv_heads=num_kv_heads)
        dtype = getattr(torch, kind.dtype)
        module = attnlib.nn.MultiHeadAttention.from_numpy(plain).to(kind.device, dtype)
        rounded = {name: getattr(module, name).detach() for name in weights}
        twin = MultiHeadAttention(**rounded, num_heads=6, num_kv_heads=num_kv_heads)
        x = inputs(*BATCHED).to(kind.device, dtype)
        options = {
            "attn_mask": kind.plain(np.random.default_rng(142).random((2, 6, 5, 5)) < 0.8),
            "key_mask": kind.plain([True] * 4 + [False]),
            "is_causal": True,
        }
        for chosen in ({}, options):
            output, attention_weights = module(x, return_weights=True, **chosen)
            expected, expected_weights = twin(x, return_weights=True, **chosen)
            check_close(output, to_numpy(expected), kind, factor=4)
            check_close(attention_weights, to_numpy(expected_weights), kind, factor=4)

    def test_every_parameter_gets_its_gradient(self):
        module = attnlib.nn.MultiHeadAttention(6, 3, num_kv_heads=1, dtype=torch.float64)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_(std=0.5)
        x = inputs(2, 4, 6)
        names = [name for name, _ in module.named_parameters()]
        values = [parameter.detach().clone().requires_grad_() for parameter in module.parameters()]

        def output(*parameters):
            state = dict(zip(names, parameters, strict=True))
            return torch.func.functional_call(module, state, (x,), {"is_causal": True})

        assert torch.autograd.gradcheck(output, values, fast_mode=True)

    def test_a_step_of_training_lowers_the_loss(self):
        torch.manual_seed(143)
        module = attnlib.nn.MultiHeadAttention(12, 3)
        x, target = inputs(4, 7, 12).float(), inputs(4, 7, 12, seed=144).float()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
        losses = []
        for _ in range(5):
            loss = (module(x, is_causal=True) - target).square().mean()
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0]

    def test_a_cache_is_for_inference(self):
        module, x = attnlib.nn.MultiHeadAttention(12, 6, dtype=torch.float64), inputs(*BATCHED)
        cache = KVCache()
        with pytest.raises(ValueError, match=r"(?s)grad.*(no_grad|detach)"):
            module(x, is_causal=True, cache=cache)
        assert len(cache) == 0
        with torch.no_grad():
            full = module(x, is_causal=True)
            parts = [module(x[:, i : i + 1], cache=cache) for i in range(5)]
        torch.testing.assert_close(torch.cat(parts, dim=1), full)

    def test_works_inside_other_modules(self):
        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.attention = attnlib.nn.MultiHeadAttention(12, 3)
                self.norm = torch.nn.LayerNorm(12)

            def forward(self, x):
                return x + self.attention(self.norm(x), is_causal=True)

        block = Block().double()
        assert len(list(block.parameters())) == 10
        output = block(inputs(*BATCHED))
        assert output.dtype == torch.float64
        assert output.shape == BATCHED


class TestConversion:
    def test_from_numpy_and_back_gives_the_same_weights(self):
        for dtype in ("float64", "float32", "float16"):
            weights = {name: w.astype(dtype) for name, w in random_weights(num_kv_heads=2).items()}
            plain = MultiHeadAttention(**weights, num_heads=6, num_kv_heads=2)
            module = attnlib.nn.MultiHeadAttention.from_numpy(plain)
            assert isinstance(module, attnlib.nn.MultiHeadAttention)
            back = module.to_numpy()
            assert isinstance(back, MultiHeadAttention)
            assert (back.num_heads, back.num_kv_heads) == (6, 2)
            for name, expected in weights.items():
                assert type(getattr(back, name)) is np.ndarray
                np.testing.assert_array_equal(getattr(back, name), expected, strict=True)

    def test_from_numpy_without_biases_has_none(self):
        plain = MultiHeadAttention(**random_weights(bias=False), num_heads=6)
        module = attnlib.nn.MultiHeadAttention.from_numpy(plain)
        assert sorted(module.state_dict()) == sorted(WEIGHTS)
        assert module.to_numpy().b_o is None

    def test_copies_share_no_memory(self):
        weights = random_weights()
        plain = MultiHeadAttention(**weights, num_heads=6)
        before = plain.w_q.copy()
        module = attnlib.nn.MultiHeadAttention.from_numpy(plain)
        back = module.to_numpy()
        with torch.no_grad():
            module.w_q.zero_()
        np.testing.assert_array_equal(plain.w_q, before)
        np.testing.assert_array_equal(back.w_q, before)

    def test_from_numpy_keeps_a_head_width_of_its_own(self):
        plain = MultiHeadAttention(**random_weights(E=4), num_heads=6)
        x = np.random.default_rng(145).normal(size=BATCHED)
        module = attnlib.nn.MultiHeadAttention.from_numpy(plain)
        np.testing.assert_allclose(
            to_numpy(module(torch.from_numpy(x))), plain(x), rtol=1e-11, atol=1e-13
        )

    @pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
    def test_from_torch_and_to_torch_compute_the_same(self, bias):
        torch.manual_seed(146)
        theirs = torch.nn.MultiheadAttention(
            12, 3, bias=bias, batch_first=True, dtype=torch.float64
        ).eval()
        x = inputs(*BATCHED)
        expected = theirs(x, x, x, need_weights=False)[0]
        ours = attnlib.nn.MultiHeadAttention.from_torch(theirs)
        torch.testing.assert_close(ours(x), expected)
        back = ours.to_torch()
        assert isinstance(back, torch.nn.MultiheadAttention)
        assert back.batch_first
        assert not back.training
        torch.testing.assert_close(back(x, x, x, need_weights=False)[0], expected)

    def test_to_torch_refuses_grouped_heads(self):
        module = attnlib.nn.MultiHeadAttention(12, 6, num_kv_heads=2)
        with pytest.raises(ValueError, match=r"num_kv_heads|grouped"):
            module.to_torch()

    @pytest.mark.parametrize("options", [{"add_bias_kv": True}, {"add_zero_attn": True}], ids=str)
    def test_from_torch_refuses_what_it_cannot_express(self, options):
        theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True, **options).eval()
        with pytest.raises(ValueError, match=r"bias_k|add_zero_attn"):
            attnlib.nn.MultiHeadAttention.from_torch(theirs)
