"""Chapter 4: several heads attend in parallel, each in its own sub-space.

The axis letters are those of the notation page: `L` queries, `D` model width, `E` width of one
head, `H` heads (the book writes τ for H and d_h for E).  `MultiHeadAttention` tells apart `Hq`
query heads and `Hkv` key/value heads, `S` keys and `Ev` width of a value; `B` is the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_arrays, whole_number
from attnlib._projections import (
    BIASES,
    WEIGHTS,
    as_tensor,
    check_cache,
    check_fits_torch_module,
    check_mask_axes,
    check_weights,
    checked_heads,
    checked_inputs,
    numpy_copy,
    usual_shapes,
    weights_of_torch_module,
)
from attnlib.engines._validate import array_kind
from attnlib.functional import scaled_dot_product_attention
from attnlib.generation import KVCache

if TYPE_CHECKING:
    import torch

# Arrays of either kind; what goes in comes out.
Array = TypeVar("Array", np.ndarray, "torch.Tensor")


def split_heads(x: Array, num_heads: int) -> Array:
    """Cut the features of each token into heads.

    Parameters
    ----------
    x : ndarray or torch.Tensor, shape (..., L, H·E)
        Projected tokens; head j owns the features j·E … (j+1)·E − 1.
    num_heads : int
        Number of heads H.

    Returns
    -------
    ndarray or torch.Tensor, shape (..., H, L, E)
        The same numbers, heads before length.

    Raises
    ------
    ValueError
        If `num_heads` does not divide the width, or `x` has fewer than two axes.
    TypeError
        If `num_heads` is not an integer.

    Notes
    -----
    Two moves: cut the last axis in two, then swap it with length.  A reshape alone would deal
    tokens to heads, not features.  Chapter 4, *Split and merge*.

    Examples
    --------
    >>> import numpy as np
    >>> split_heads(np.arange(8).reshape(2, 4), num_heads=2).tolist()
    [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    """
    num_heads = whole_number("num_heads", num_heads, least=1)
    if x.ndim < 2:
        raise ValueError(f"x: needs shape (..., L, H·E), got {tuple(x.shape)}")
    *batch, L, width = x.shape
    if width % num_heads:
        raise ValueError(f"num_heads: {num_heads} heads do not divide the width {width} of x")
    cut = x.reshape(*batch, L, num_heads, width // num_heads)
    return cut.swapaxes(-3, -2)


def merge_heads(heads: Array) -> Array:
    """Put the heads' outputs side by side, in head order: undo `split_heads`.

    Parameters
    ----------
    heads : ndarray or torch.Tensor, shape (..., H, L, E)
        One output a head.

    Returns
    -------
    ndarray or torch.Tensor, shape (..., L, H·E)
        The concatenation of the heads along features.

    Raises
    ------
    ValueError
        If `heads` has fewer than three axes.

    Notes
    -----
    The book writes Merge(head_1, …, head_τ).  Chapter 4, *Split and merge*.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(8).reshape(2, 4)
    >>> merge_heads(split_heads(x, num_heads=2)).tolist() == x.tolist()
    True
    """
    if heads.ndim < 3:
        raise ValueError(f"heads: needs shape (..., H, L, E), got {tuple(heads.shape)}")
    *batch, H, L, E = heads.shape
    return heads.swapaxes(-3, -2).reshape(*batch, L, H * E)


def multi_head_attention(
    x: ArrayLike,
    w_q: ArrayLike,
    w_k: ArrayLike,
    w_v: ArrayLike,
    w_o: ArrayLike,
    num_heads: int,
    *,
    is_causal: bool = False,
) -> np.ndarray:
    r"""Return multi-head self-attention of a sequence.

    .. math::

       F(H) = \mathrm{Merge}(\mathrm{head}_1, \dots, \mathrm{head}_\tau)\, W^{head}, \qquad
       \mathrm{head}_j = \mathrm{Att}_{qkv}(H W_q^{[j]}, H W_k^{[j]}, H W_v^{[j]})

    Parameters
    ----------
    x : array_like, shape (..., L, D)
        The sequence, one token a row (the book's H).
    w_q, w_k : array_like, shape (D, H·E)
        Projections to queries and keys, the heads side by side.
    w_v : array_like, shape (D, H·Ev)
        Projection to values, the heads side by side.
    w_o : array_like, shape (H·Ev, D)
        Output projection (the book's W^head).
    num_heads : int
        Number of heads (the book's τ).
    is_causal : bool, default False
        Whether a token sees only itself and the tokens before it.

    Returns
    -------
    ndarray, shape (..., L, D)
        One output a token.

    Raises
    ------
    ValueError
        If shapes do not fit together, or `num_heads` does not divide a projection's width.
    TypeError
        If an argument does not hold real numbers.

    See Also
    --------
    MultiHeadAttention : The same with masks, biases, grouped heads and a cache.

    Notes
    -----
    Each head is scaled by 1/√E, the width of a head, not by 1/√D.  Chapter 4, *All heads at
    once*; Vaswani et al. (2017), section 3.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> x, identity = np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(2)
    >>> multi_head_attention(x, identity, identity, identity, identity, num_heads=2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    x, w_q, w_k, w_v, w_o = float_arrays(
        x=(x, "... L D"), w_q=(w_q, "D HE"), w_k=(w_k, "D HE"), w_v=(w_v, "D HEv"),
        w_o=(w_o, "HEv D_out"),
    )  # fmt: skip
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    return merge_heads(heads) @ w_o


class MultiHeadAttention:
    r"""Multi-head attention with given weights: masks, biases, grouped heads and a cache.

    .. math::

       \mathrm{head}_j = \mathrm{Att}_{qkv}(X W_q^{[j]} + b_q^{[j]},\;
       Y W_k^{[g]} + b_k^{[g]},\; Z W_v^{[g]} + b_v^{[g]}), \qquad
       F = \mathrm{Merge}(\mathrm{head}_1, \dots, \mathrm{head}_\tau)\, W^{head} + b_o

    with X the query, Y the key and Z the value input, and g the key/value head that head j uses:
    g = j, or ⌊j / (Hq / Hkv)⌋ with j and g counted from 0 where heads are grouped.

    Parameters
    ----------
    w_q : ndarray or torch.Tensor, shape (D, Hq·E)
        Projection to queries, heads side by side.  E, the width of a head, is read off here.
    w_k : ndarray or torch.Tensor, shape (Dk, Hkv·E)
        Projection to keys; Dk = D in self-attention.
    w_v : ndarray or torch.Tensor, shape (Dv, Hkv·Ev)
        Projection to values; Dv = D in self-attention, and Ev is usually E.
    w_o : ndarray or torch.Tensor, shape (Hq·Ev, D)
        Output projection, the book's W^head.
    num_heads : int
        Number of query heads Hq, the book's τ.  Hq·E need not be D.
    num_kv_heads : int, optional
        Number of key/value heads Hkv, a divisor of Hq.  Default: Hq.
    b_q, b_k, b_v, b_o : ndarray or torch.Tensor, optional
        Biases, one number a column of the weights of the same letter.

    Attributes
    ----------
    w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o, num_heads, num_kv_heads
        As given; the arrays are not copied.

    Raises
    ------
    TypeError
        If weights are not float arrays of one kind, or a number of heads is not an integer.
    ValueError
        If shapes, dtypes or devices do not fit together.

    See Also
    --------
    multi_head_attention : The chapter's function, the same without options.
    attnlib.nn.MultiHeadAttention : The same as a ``torch.nn.Module``.

    Notes
    -----
    The convention is ``y = x @ W + b``; PyTorch stores the transposes.  Batch comes first.  Weights
    and inputs are of one kind (NumPy or torch), dtype and device.  Each head is scaled by 1/√E.
    Chapter 4, *All heads at once*; Vaswani et al. (2017), section 3.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> mha = MultiHeadAttention.random(d_model=8, num_heads=4, num_kv_heads=2, seed=1)
    >>> x = np.random.default_rng(2).normal(size=(3, 5, 8))  # 3 sequences of 5 tokens
    >>> mha(x, is_causal=True).shape
    (3, 5, 8)

    Token by token, with a cache, the same numbers come out:

    >>> from attnlib import KVCache
    >>> cache = KVCache()
    >>> tokens = [mha(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(5)]
    >>> bool(np.allclose(np.concatenate(tokens, axis=1), mha(x, is_causal=True)))
    True
    """

    def __init__(
        self,
        w_q: Any,
        w_k: Any,
        w_v: Any,
        w_o: Any,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        b_q: Any = None,
        b_k: Any = None,
        b_v: Any = None,
        b_o: Any = None,
    ) -> None:
        self.w_q, self.w_k, self.w_v, self.w_o = w_q, w_k, w_v, w_o
        self.b_q, self.b_k, self.b_v, self.b_o = b_q, b_k, b_v, b_o
        self.num_heads, self.num_kv_heads = checked_heads(num_heads, num_kv_heads)
        check_weights(self)

    def __repr__(self) -> str:
        (D, width), kind = self.w_q.shape, array_kind(self.w_q)
        return (
            f"MultiHeadAttention(D={D}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, E={width // self.num_heads}, {kind})"
        )

    def __call__(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        attn_mask: Any = None,
        is_causal: bool = False,
        key_mask: Any = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend with all heads and project their outputs.

        Parameters
        ----------
        query : ndarray or torch.Tensor, shape (B, L, D) or (L, D)
            The tokens that ask.
        key : ndarray or torch.Tensor, shape (B, S, Dk) or (S, Dk), optional
            The tokens that are attended to.  Default: `query`, which is self-attention.
        value : ndarray or torch.Tensor, shape (B, S, Dv) or (S, Dv), optional
            What they hand over.  Default: `key`.
        attn_mask : ndarray or torch.Tensor, optional
            Bool, True = may attend, or float, added to the scores.  Shape (L, S), or 4-D
            (B, Hq, L, S) with B and Hq full or 1; unbatched also (Hq, L, S).
        is_causal : bool, default False
            Whether a token sees only itself and the tokens before it.
        key_mask : ndarray or torch.Tensor, shape (S,) or (B, S), optional
            Bool, True = real token, False = padding.
        cache : KVCache, optional
            Keys and values of the tokens before `query`; those of `query` are appended.  Masks
            then address all ``len(cache)`` + L keys.  Self-attention only.
        return_weights : bool, default False
            Whether to return the attention weights too.

        Returns
        -------
        output : ndarray or torch.Tensor, shape (B, L, D) or (L, D)
            A token that may attend to nothing gets the output bias.
        weights : ndarray or torch.Tensor, shape (B, Hq, L, S) or (Hq, L, S)
            Only with `return_weights`; not averaged over heads.

        Raises
        ------
        TypeError
            If an argument is of another kind than the weights, or of a wrong type.
        ValueError
            If shapes, dtypes or devices do not fit; if `cache` comes with `key` or `value`, or with
            more than one token and without `is_causal`.  A cache is then as it was before.
        """
        heads, weights, contents = self._attend(
            query,
            key,
            value,
            cache,
            attn_mask=attn_mask,
            is_causal=is_causal,
            key_mask=key_mask,
            return_weights=return_weights,
        )
        output = _project(merge_heads(heads), self.w_o, self.b_o)
        if cache is not None:
            cache._contents = contents  # only now: a call that failed has not changed the cache
        return (output, weights) if return_weights else output

    def head(
        self,
        j: int,
        query: Any,
        key: Any = None,
        value: Any = None,
        *,
        attn_mask: Any = None,
        is_causal: bool = False,
        key_mask: Any = None,
        return_weights: bool = False,
    ) -> Any:
        """Return the output of one head, before heads are merged.

        Parameters
        ----------
        j : int
            The head, counted from 0.
        query, key, value, attn_mask, is_causal, key_mask, return_weights
            As in a call of the whole; of a mask with a heads axis, head j's part is used.

        Returns
        -------
        output : ndarray or torch.Tensor, shape (B, L, Ev) or (L, Ev)
            Zeros for a token that may attend to nothing.
        weights : ndarray or torch.Tensor, shape (B, L, S) or (L, S)
            Only with `return_weights`.

        Raises
        ------
        TypeError
            If `j` is not an integer, or as in a call of the whole.
        ValueError
            If there is no head j, or as in a call of the whole.

        Examples
        --------
        >>> import numpy as np
        >>> mha = MultiHeadAttention.random(d_model=6, num_heads=3, seed=1)
        >>> x = np.random.default_rng(2).normal(size=(5, 6))
        >>> heads = [mha.head(j, x) for j in range(3)]
        >>> bool(np.allclose(np.concatenate(heads, axis=-1) @ mha.w_o, mha(x)))
        True
        """
        one = self._only_head(j)
        check_mask_axes(attn_mask, query)
        if getattr(attn_mask, "ndim", 0) > 2 and attn_mask.shape[-3] == self.num_heads:
            attn_mask = attn_mask[..., j : j + 1, :, :]
        heads, weights, _ = one._attend(
            query,
            key,
            value,
            attn_mask=attn_mask,
            is_causal=is_causal,
            key_mask=key_mask,
            return_weights=return_weights,
        )
        output = heads[..., 0, :, :]
        return (output, weights[..., 0, :, :]) if return_weights else output

    @classmethod
    def random(
        cls,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = False,
        seed: int,
    ) -> MultiHeadAttention:
        """Draw float64 NumPy weights from a normal distribution of variance 1/D.

        Parameters
        ----------
        d_model : int
            Width D of the model; a head gets E = D / Hq.
        num_heads : int
            Number of query heads Hq, a divisor of D.
        num_kv_heads : int, optional
            Number of key/value heads Hkv, a divisor of Hq.  Default: Hq.
        bias : bool, default False
            Whether to draw biases too.
        seed : int
            Seed of ``numpy.random.default_rng``: the same seed, the same weights.

        Returns
        -------
        MultiHeadAttention

        Raises
        ------
        TypeError
            If a number is not an integer.
        ValueError
            If `num_heads` does not divide `d_model`, or `num_kv_heads` not `num_heads`.

        Examples
        --------
        >>> MultiHeadAttention.random(12, 3, seed=0).w_q.shape
        (12, 12)
        """
        Hq, Hkv = checked_heads(num_heads, num_kv_heads)
        shapes = usual_shapes(d_model, Hq, Hkv)
        rng = np.random.default_rng(seed)
        drawn = {
            name: rng.normal(0, d_model**-0.5, shape)
            for name, shape in shapes.items()
            if bias or name in WEIGHTS
        }
        return cls(**drawn, num_heads=Hq, num_kv_heads=Hkv)

    @classmethod
    def from_torch(cls, module: Any) -> MultiHeadAttention:
        """Copy the weights of a ``torch.nn.MultiheadAttention`` to NumPy, in their dtype.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            With or without biases, `kdim` and `vdim`.  Its `batch_first` does not matter: here
            batch always comes first.

        Returns
        -------
        MultiHeadAttention
            Its masks have the opposite polarity of the module's: True = may attend.

        Raises
        ------
        TypeError
            If `module` is something else, or its weights are bfloat16, which NumPy does not have.
        ValueError
            If it was made with `add_bias_kv` or `add_zero_attn`, or drops weights out (it is in
            training mode and its `dropout` is not 0).

        Examples
        --------
        >>> import torch
        >>> module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
        >>> x = torch.linspace(-1, 1, 40).reshape(1, 5, 8)
        >>> expected = module(x, x, x)[0].detach().numpy()
        >>> bool(np.allclose(MultiHeadAttention.from_torch(module)(x.numpy()), expected, atol=1e-6))
        True
        """
        tensors = weights_of_torch_module(module)
        arrays = {name: numpy_copy(tensor) for name, tensor in tensors.items()}
        return cls(**arrays, num_heads=module.num_heads)

    def to_torch(self) -> Any:
        """Return a ``torch.nn.MultiheadAttention`` with copies of these weights.

        Returns
        -------
        torch.nn.MultiheadAttention
            With ``batch_first=True``, in eval mode, in the dtype (and on the device) of the
            weights.  Where some biases are None and others not, those are zeros.

        Raises
        ------
        ValueError
            If PyTorch's module cannot hold these weights: grouped heads, or heads whose widths do
            not add up to D.

        Examples
        --------
        >>> module = MultiHeadAttention.random(d_model=8, num_heads=2, seed=1).to_torch()
        >>> module.embed_dim, module.num_heads, module.batch_first, module.training
        (8, 2, True, False)
        """
        check_fits_torch_module(self)
        import torch

        w_q = as_tensor(self.w_q)
        module = torch.nn.MultiheadAttention(
            w_q.shape[0],
            self.num_heads,
            bias=any(getattr(self, name) is not None for name in BIASES),
            kdim=self.w_k.shape[0],
            vdim=self.w_v.shape[0],
            batch_first=True,
            device=w_q.device,
            dtype=w_q.dtype,
        ).eval()
        for name, held in weights_of_torch_module(module).items():
            weight = getattr(self, name)
            held.zero_() if weight is None else held.copy_(as_tensor(weight))
        return module

    def _only_head(self, j: int) -> MultiHeadAttention:
        """Head j as attention with one head: its columns of the projections, its rows of w_o."""
        j = whole_number("j", j, least=0)
        if j >= self.num_heads:
            raise ValueError(f"j: needs a head from 0 to {self.num_heads - 1}, got {j}")
        g = j // (self.num_heads // self.num_kv_heads)
        E, Ev = self.w_q.shape[1] // self.num_heads, self.w_o.shape[0] // self.num_heads
        mine, keys, values = (
            slice(i * width, (i + 1) * width) for i, width in ((j, E), (g, E), (g, Ev))
        )
        return MultiHeadAttention(
            self.w_q[:, mine],
            self.w_k[:, keys],
            self.w_v[:, values],
            self.w_o[j * Ev : (j + 1) * Ev],
            num_heads=1,
            b_q=None if self.b_q is None else self.b_q[mine],
            b_k=None if self.b_k is None else self.b_k[keys],
            b_v=None if self.b_v is None else self.b_v[values],
        )

    def _attend(
        self,
        query: Any,
        key: Any,
        value: Any,
        cache: KVCache | None = None,
        *,
        attn_mask: Any,
        is_causal: bool,
        key_mask: Any,
        return_weights: bool,
    ) -> tuple[Any, Any, Any]:
        """Outputs of all heads (…, Hq, L, Ev), weights or None, the cache's contents afterwards."""
        check_cache(cache, query, key, value, is_causal)
        key, value = checked_inputs(self, query, key, value)
        check_mask_axes(attn_mask, query)
        queries = split_heads(_project(query, self.w_q, self.b_q), self.num_heads)
        keys = split_heads(_project(key, self.w_k, self.b_k), self.num_kv_heads)
        values = split_heads(_project(value, self.w_v, self.b_v), self.num_kv_heads)
        contents = None
        if cache is not None:
            contents = cache._extended(keys, values)
            keys, values = contents.valid_keys, contents.valid_values
        unbatched = query.ndim == 2
        if unbatched:  # a batch of one, so that axis 0 can't be taken for the batch
            queries, keys, values = queries[None], keys[None], values[None]
        result = scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask,
            is_causal=is_causal,
            causal_offset=len(cache) if is_causal and cache is not None else 0,
            enable_gqa=self.num_kv_heads != self.num_heads,
            key_mask=key_mask,
            return_weights=return_weights,
        )
        heads, weights = result if return_weights else (result, None)
        if unbatched:
            heads, weights = heads[0], None if weights is None else weights[0]
        return heads, weights, contents


def _project(x: Any, w: Any, b: Any) -> Any:
    """x @ W + b; NumPy's half precision is multiplied and added in float32."""
    if x.dtype == np.float16 and array_kind(x) == "numpy":
        wide = _project(*(None if a is None else a.astype(np.float32) for a in (x, w, b)))
        return wide.astype(np.float16)
    return x @ w if b is None else x @ w + b
