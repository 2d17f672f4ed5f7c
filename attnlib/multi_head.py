"""Chapter 4: several heads attend in parallel, each in its own sub-space.

The axis letters are those of the notation page: `L` queries, `D` model width, `E` width of one
head, `H` heads (the book writes τ for H and d_h for E).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_arrays, whole_number
from attnlib.functional import scaled_dot_product_attention


def split_heads(x, num_heads: int):
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


def merge_heads(heads):
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
