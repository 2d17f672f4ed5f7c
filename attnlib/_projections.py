"""What `MultiHeadAttention` asks of its weights and inputs, and how PyTorch stores such weights.

The axis letters are those of the notation page: `B` batch, `Hq`/`Hkv` heads, `L` queries, `S`
keys, `E` width of query and key, `Ev` width of value, `D` (`Dk`, `Dv`) width of the inputs.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from attnlib._arrays import whole_number
from attnlib.engines._validate import array_kind, describe
from attnlib.generation import KVCache

WEIGHTS = ("w_q", "w_k", "w_v", "w_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")
_FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def head_width(d_model: Any, num_heads: int) -> int:
    """The usual width of a head, E = D / H."""
    d_model = whole_number("d_model", d_model, least=1)
    if d_model % num_heads:
        raise ValueError(
            f"num_heads: needs a divisor of d_model = {d_model}, so that heads get a whole width, "
            f"got {num_heads}"
        )
    return d_model // num_heads


def usual_shapes(d_model: Any, Hq: int, Hkv: int) -> dict[str, tuple[int, ...]]:
    """Shapes of all weights and biases when D = Hq·E."""
    D, E = d_model, head_width(d_model, Hq)
    columns = {"q": Hq * E, "k": Hkv * E, "v": Hkv * E, "o": D}
    weights = {f"w_{letter}": (D, width) for letter, width in columns.items()}
    return weights | {f"b_{letter}": (width,) for letter, width in columns.items()}


def weights_of_torch_module(module: Any) -> dict[str, Any]:
    """The weights of a ``torch.nn.MultiheadAttention`` as ``x @ W`` wants them.

    The tensors are views of the module's parameters, outside of autograd.
    """
    import torch

    if not isinstance(module, torch.nn.MultiheadAttention):
        raise TypeError(f"module: needs a torch.nn.MultiheadAttention, got {type(module).__name__}")
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "module: add_bias_kv and add_zero_attn append a key that no token has, "
            "which attnlib does not do; make the module without them"
        )
    if module.training and module.dropout:
        raise ValueError(
            f"module: drops out weights in training (dropout = {module.dropout}), "
            "which attnlib does not do; call module.eval() first"
        )
    if module.in_proj_weight is not None:
        w_q, w_k, w_v = module.in_proj_weight.detach().chunk(3)
    else:
        w_q, w_k, w_v = (
            getattr(module, f"{letter}_proj_weight").detach() for letter in ("q", "k", "v")
        )
    tensors = {"w_q": w_q.T, "w_k": w_k.T, "w_v": w_v.T, "w_o": module.out_proj.weight.detach().T}
    if module.in_proj_bias is not None:
        tensors |= zip(BIASES, module.in_proj_bias.detach().chunk(3), strict=False)
        tensors["b_o"] = module.out_proj.bias.detach()
    return tensors


def as_tensor(weight: Any) -> Any:
    """A weight as a torch tensor, outside of autograd; NumPy arrays share memory if they can."""
    import torch

    if array_kind(weight) == "torch":
        return weight.detach()
    return torch.from_numpy(np.require(weight, requirements=("C", "W")))


def numpy_copy(weight: Any) -> np.ndarray:
    """A torch weight as a new NumPy array of its dtype."""
    if str(weight.dtype) == "torch.bfloat16":
        raise TypeError(
            "module: its weights are bfloat16, which NumPy does not have; pass module.float()"
        )
    return weight.detach().cpu().numpy().copy(order="C")


def checked_heads(num_heads: Any, num_kv_heads: Any) -> tuple[int, int]:
    Hq = whole_number("num_heads", num_heads, least=1)
    Hkv = Hq if num_kv_heads is None else whole_number("num_kv_heads", num_kv_heads, least=1)
    if Hq % Hkv:
        raise ValueError(f"num_kv_heads: needs a divisor of num_heads = {Hq}, got {Hkv}")
    return Hq, Hkv


def check_weights(mha: Any) -> None:
    named = {name: getattr(mha, name) for name in WEIGHTS}
    named |= {name: getattr(mha, name) for name in BIASES if getattr(mha, name) is not None}
    for name, array in named.items():
        check_like("w_q", mha.w_q, name, array)
        if array.ndim != (axes := 2 if name in WEIGHTS else 1):
            raise ValueError(f"{name}: needs {axes} axes, got shape {tuple(array.shape)}")
    Hq, Hkv = mha.num_heads, mha.num_kv_heads
    E = _width_of_head("w_q", mha.w_q, "num_heads", Hq)
    Ev = _width_of_head("w_v", mha.w_v, "num_kv_heads", Hkv)
    if mha.w_k.shape[1] != Hkv * E:
        raise ValueError(
            f"w_k: needs shape (Dk, Hkv·E) with Hkv·E = {Hkv}·{E}, got {tuple(mha.w_k.shape)}"
        )
    if mha.w_o.shape[0] != Hq * Ev:
        raise ValueError(
            f"w_o: needs shape (Hq·Ev, D) with Hq·Ev = {Hq}·{Ev}, got {tuple(mha.w_o.shape)}"
        )
    for bias, weight in zip(BIASES, WEIGHTS, strict=True):
        if bias in named and named[bias].shape[0] != named[weight].shape[1]:
            raise ValueError(
                f"{bias}: needs one number a column of {weight} {tuple(named[weight].shape)}, "
                f"got shape {tuple(named[bias].shape)}"
            )


def _width_of_head(name: str, weight: Any, heads_name: str, num_heads: int) -> int:
    if weight.shape[1] % num_heads:
        raise ValueError(
            f"{name}: needs columns for {heads_name} = {num_heads} heads of one width, "
            f"got shape {tuple(weight.shape)}"
        )
    return weight.shape[1] // num_heads


def check_like(owner: str, weight: Any, name: str, array: Any) -> None:
    """Raise unless `array` is a float array of the kind, dtype and device of `weight`."""
    if array_kind(array) is None:
        raise TypeError(f"{name}: needs a NumPy array or a torch tensor, got {describe(array)}")
    if array_kind(array) != array_kind(weight):
        raise TypeError(
            f"{name}: needs the kind of {owner}, {describe(weight)}, got {describe(array)}"
        )
    if str(array.dtype).removeprefix("torch.") not in _FLOAT_DTYPES:
        raise TypeError(f"{name}: needs a float array, got dtype {array.dtype}; convert it first")
    if array.dtype != weight.dtype and not _autocasts(array):
        raise ValueError(f"{name}: needs the dtype of {owner}, {weight.dtype}, got {array.dtype}")
    if array_kind(array) == "torch" and array.device != weight.device:
        raise ValueError(
            f"{name}: needs the device of {owner}, {weight.device}, got {array.device}"
        )


def _autocasts(array: Any) -> bool:
    """Whether PyTorch's autocast mode will make dtypes equal."""
    if array_kind(array) != "torch":
        return False
    return sys.modules["torch"].is_autocast_enabled(array.device.type)


def checked_inputs(mha: Any, query: Any, key: Any, value: Any) -> tuple[Any, Any]:
    """Key and value, defaults filled in, after a check of all three inputs."""
    if key is None and value is not None:
        raise ValueError("value: comes without a key; pass both, or neither for self-attention")
    key = query if key is None else key
    value = key if value is None else value
    inputs = (("query", query, mha.w_q), ("key", key, mha.w_k), ("value", value, mha.w_v))
    for name, array, weight in inputs:
        check_like("the weights", weight, name, array)
    if query.ndim not in (2, 3):
        raise ValueError(f"query: needs shape (B, L, D) or (L, D), got {tuple(query.shape)}")
    batch = tuple(query.shape[:-2])
    for (name, array, weight), letters in zip(inputs, ("L, D", "S, Dk", "S, Dv"), strict=True):
        D = weight.shape[0]
        if array.ndim != query.ndim or tuple(array.shape[:-2]) != batch or array.shape[-1] != D:
            needed = f"(B, {letters}) with B = {batch[0]} and" if batch else f"({letters}) with"
            raise ValueError(
                f"{name}: needs shape {needed} {letters[3:]} = {D}, got {tuple(array.shape)}"
            )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"value: needs as many tokens as key, S = {key.shape[-2]}, got {tuple(value.shape)}"
        )
    return key, value


def check_mask_axes(attn_mask: Any, query: Any) -> None:
    if getattr(attn_mask, "ndim", 0) == 3 and getattr(query, "ndim", 0) == 3:
        raise ValueError(
            f"attn_mask: 3-D, {tuple(attn_mask.shape)}, on batched input could mean one mask an "
            "item or one a head; pass mask[:, None], shape (B, 1, L, S), for one an item, or "
            "mask[None], shape (1, Hq, L, S), for one a head"
        )


def check_cache(cache: Any, query: Any, key: Any, value: Any, is_causal: bool) -> None:
    if cache is None:
        return
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache: needs a KVCache, got {type(cache).__name__}")
    for name, array in (("key", key), ("value", value)):
        if array is not None:
            raise ValueError(f"{name}: not with a cache, which is for self-attention only")
    if not is_causal and getattr(query, "ndim", 0) > 1 and query.shape[-2] > 1:
        raise ValueError(
            f"is_causal: needs to be True for {query.shape[-2]} tokens with a cache; otherwise "
            "a token would see later ones here, but not when they come one by one"
        )


def check_fits_torch_module(mha: Any) -> None:
    if mha.num_kv_heads != mha.num_heads:
        raise ValueError(
            f"num_kv_heads: torch.nn.MultiheadAttention has no grouped heads, "
            f"and these are {mha.num_heads} on {mha.num_kv_heads}"
        )
    D = mha.w_q.shape[0]
    for name, shape in (("w_q", (D, D)), ("w_v", (mha.w_v.shape[0], D)), ("w_o", (D, D))):
        if tuple(getattr(mha, name).shape) != shape:
            raise ValueError(
                f"{name}: torch.nn.MultiheadAttention needs heads whose widths add up to D = {D}, "
                f"got shape {tuple(getattr(mha, name).shape)}"
            )
