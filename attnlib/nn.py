"""Multi-head attention as a ``torch.nn.Module``: it owns parameters, `attnlib` computes.

Import it explicitly, ``import attnlib.nn``: this module needs PyTorch, the rest of the package does
not.
"""

from __future__ import annotations

from typing import Any

import torch

import attnlib.multi_head
from attnlib._projections import (
    BIASES,
    WEIGHTS,
    as_tensor,
    checked_heads,
    numpy_copy,
    usual_shapes,
    weights_of_torch_module,
)
from attnlib.generation import KVCache

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(torch.nn.Module):
    r"""Multi-head attention with trainable weights.

    .. math::

       F = \mathrm{Merge}(\mathrm{head}_1, \dots, \mathrm{head}_\tau)\, W^{head} + b_o, \qquad
       \mathrm{head}_j = \mathrm{Att}_{qkv}(X W_q^{[j]} + b_q^{[j]},\;
       Y W_k^{[g]} + b_k^{[g]},\; Z W_v^{[g]} + b_v^{[g]})

    with X the query, Y the key and Z the value input, and g the key/value head that head j uses.

    Parameters
    ----------
    d_model : int
        Width D of the model; a head gets E = D / Hq.
    num_heads : int
        Number of query heads Hq, a divisor of D.
    num_kv_heads : int, optional
        Number of key/value heads Hkv, a divisor of Hq.  Default: Hq.
    bias : bool, default True
        Whether the four projections have biases.
    device : torch.device or str, optional
        Where the parameters are.
    dtype : torch.dtype, optional
        Their dtype.

    Attributes
    ----------
    w_q : torch.nn.Parameter, shape (D, Hq·E)
    w_k, w_v : torch.nn.Parameter, shape (D, Hkv·E)
    w_o : torch.nn.Parameter, shape (Hq·E, D)
    b_q, b_k, b_v, b_o : torch.nn.Parameter or None
        One number a column of the weights of the same letter.
    num_heads, num_kv_heads : int

    Raises
    ------
    TypeError
        If a number is not an integer.
    ValueError
        If `num_heads` does not divide `d_model`, or `num_kv_heads` not `num_heads`.

    See Also
    --------
    attnlib.MultiHeadAttention : The same for given weights; it documents the call.

    Notes
    -----
    The weights are those of ``y = x @ w + b``; ``torch.nn.Linear`` stores the transpose.  They
    start as Glorot-uniform numbers, biases as zeros.  In a mask True = may attend, the opposite
    of ``torch.nn.MultiheadAttention``; batch comes first; there is no dropout, so training and
    evaluation mode do the same.  Chapter 4, *All heads at once*; Chapter 7, *A layer that learns*;
    Vaswani et al. (2017), section 3.2.2.

    Examples
    --------
    >>> import torch
    >>> mha = MultiHeadAttention(d_model=12, num_heads=6, num_kv_heads=2)
    >>> x = torch.linspace(-1, 1, 120).reshape(2, 5, 12)
    >>> output, weights = mha(x, is_causal=True, return_weights=True)
    >>> tuple(output.shape), tuple(weights.shape)
    ((2, 5, 12), (2, 6, 5, 5))
    >>> output.sum().backward()
    >>> tuple(mha.w_k.grad.shape)
    (12, 4)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = checked_heads(num_heads, num_kv_heads)
        shapes = usual_shapes(d_model, self.num_heads, self.num_kv_heads)
        self._own(
            {
                name: torch.empty(*shape, device=device, dtype=dtype)
                for name, shape in shapes.items()
                if bias or name in WEIGHTS
            }
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights again, Glorot-uniform, and set the biases to zero."""
        for name in WEIGHTS:
            torch.nn.init.xavier_uniform_(getattr(self, name))
        for name in BIASES:
            if getattr(self, name) is not None:
                torch.nn.init.zeros_(getattr(self, name))

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        key_mask: torch.Tensor | None = None,
        cache: KVCache | None = None,
        return_weights: bool = False,
    ) -> Any:
        """Attend with all heads and project their outputs.

        Parameters
        ----------
        query, key, value, attn_mask, is_causal, key_mask, cache, return_weights
            As in a call of `attnlib.MultiHeadAttention`.  A cache holds no gradients: fill it under
            ``torch.no_grad()``.

        Returns
        -------
        output : torch.Tensor, shape (B, L, D) or (L, D)
            A token that may attend to nothing gets the output bias.
        weights : torch.Tensor, shape (B, Hq, L, S) or (Hq, L, S)
            Only with `return_weights`; not averaged over heads.

        Raises
        ------
        TypeError
            If an argument is of another kind than the weights, or of a wrong type.
        ValueError
            If shapes, dtypes or devices do not fit; if a cache is used in a way that cannot be
            right, or gradients would have to flow through it.
        """
        return self._function()(
            query,
            key,
            value,
            attn_mask=attn_mask,
            is_causal=is_causal,
            key_mask=key_mask,
            cache=cache,
            return_weights=return_weights,
        )

    def head(
        self,
        j: int,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        is_causal: bool = False,
        key_mask: torch.Tensor | None = None,
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
        output : torch.Tensor, shape (B, L, Ev) or (L, Ev)
            Zeros for a token that may attend to nothing.
        weights : torch.Tensor, shape (B, L, S) or (L, S)
            Only with `return_weights`.

        Raises
        ------
        TypeError
            If `j` is not an integer, or as in a call of the whole.
        ValueError
            If there is no head j, or as in a call of the whole.
        """
        return self._function().head(
            j,
            query,
            key,
            value,
            attn_mask=attn_mask,
            is_causal=is_causal,
            key_mask=key_mask,
            return_weights=return_weights,
        )

    def extra_repr(self) -> str:
        """Return what ``print(module)`` shows between the brackets."""
        return (
            f"d_model={self.w_q.shape[0]}, num_heads={self.num_heads}, "
            f"num_kv_heads={self.num_kv_heads}, bias={self.b_o is not None}"
        )

    @classmethod
    def from_torch(cls, module: torch.nn.MultiheadAttention) -> MultiHeadAttention:
        """Copy the weights of PyTorch's own module, on their device and in their dtype.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            With or without biases, `kdim` and `vdim`.  Its `batch_first` does not matter: here
            batch always comes first.

        Returns
        -------
        MultiHeadAttention
            A module that owns copies of the weights.

        Raises
        ------
        TypeError
            If `module` is something else.
        ValueError
            If it was made with `add_bias_kv` or `add_zero_attn`, or drops weights out (it is in
            training mode and its `dropout` is not 0).

        Examples
        --------
        >>> import torch
        >>> theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = torch.linspace(-1, 1, 40).reshape(1, 5, 8)
        >>> torch.allclose(MultiHeadAttention.from_torch(theirs)(x), theirs(x, x, x)[0], atol=1e-6)
        True
        """
        return cls._holding(weights_of_torch_module(module), module.num_heads, module.num_heads)

    def to_torch(self) -> torch.nn.MultiheadAttention:
        """Return a ``torch.nn.MultiheadAttention`` with copies of these weights.

        Returns
        -------
        torch.nn.MultiheadAttention
            With ``batch_first=True``, in eval mode.

        Raises
        ------
        ValueError
            If PyTorch's module cannot hold these weights: grouped heads, or heads whose widths do
            not add up to D.
        """
        return self._function().to_torch()

    @classmethod
    def from_numpy(cls, mha: attnlib.multi_head.MultiHeadAttention) -> MultiHeadAttention:
        """Copy the weights of an `attnlib.MultiHeadAttention`, in their dtype.

        Parameters
        ----------
        mha : attnlib.MultiHeadAttention
            Any: grouped heads, free widths, with or without biases.

        Returns
        -------
        MultiHeadAttention
            A module that owns copies of the weights.

        Raises
        ------
        TypeError
            If `mha` is something else.

        Examples
        --------
        >>> import attnlib
        >>> mha = attnlib.MultiHeadAttention.random(d_model=12, num_heads=3, seed=1)
        >>> MultiHeadAttention.from_numpy(mha)
        MultiHeadAttention(d_model=12, num_heads=3, num_kv_heads=3, bias=False)
        """
        if not isinstance(mha, attnlib.multi_head.MultiHeadAttention):
            raise TypeError(f"mha: needs an attnlib.MultiHeadAttention, got {type(mha).__name__}")
        held = {name: getattr(mha, name) for name in (*WEIGHTS, *BIASES)}
        tensors = {name: as_tensor(array) for name, array in held.items() if array is not None}
        return cls._holding(tensors, mha.num_heads, mha.num_kv_heads)

    def to_numpy(self) -> attnlib.multi_head.MultiHeadAttention:
        """Copy the weights to NumPy, in their dtype.

        Returns
        -------
        attnlib.MultiHeadAttention
            With copies of the weights as NumPy arrays.

        Raises
        ------
        TypeError
            If the weights are bfloat16, which NumPy does not have.
        """
        arrays = {name: numpy_copy(parameter) for name, parameter in self.named_parameters()}
        return attnlib.multi_head.MultiHeadAttention(
            **arrays, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads
        )

    @classmethod
    def _holding(
        cls, tensors: dict[str, torch.Tensor], num_heads: int, num_kv_heads: int
    ) -> MultiHeadAttention:
        """A module with copies of `tensors`, which may have other shapes than the usual ones."""
        module = cls.__new__(cls)
        torch.nn.Module.__init__(module)
        module.num_heads, module.num_kv_heads = num_heads, num_kv_heads
        module._own(
            {
                name: tensor.clone(memory_format=torch.contiguous_format)
                for name, tensor in tensors.items()
            }
        )
        return module

    def _own(self, tensors: dict[str, torch.Tensor]) -> None:
        for name in (*WEIGHTS, *BIASES):
            tensor = tensors.get(name)
            self.register_parameter(name, None if tensor is None else torch.nn.Parameter(tensor))

    def _function(self) -> attnlib.multi_head.MultiHeadAttention:
        """The function of these weights, as they are now."""
        return attnlib.multi_head.MultiHeadAttention(
            self.w_q,
            self.w_k,
            self.w_v,
            self.w_o,
            self.num_heads,
            num_kv_heads=self.num_kv_heads,
            b_q=self.b_q,
            b_k=self.b_k,
            b_v=self.b_v,
            b_o=self.b_o,
        )
