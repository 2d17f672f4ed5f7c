"""Chapter 2: what a position may see.

The output at position i uses tokens 0 … i, token i itself included, and nothing later.  The
axis letters are those of the notation page: `L` queries, `S` keys, `E` width of query and key,
`Ev` width of value.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_arrays, scale_or_default, whole_number
from attnlib.single_query import single_query_attention, softmax


def causal_mask(L: int, S: int | None = None, *, offset: int = 0) -> np.ndarray:
    r"""Return which keys each query may see: True = may attend.

    .. math:: \mathrm{visible}_{ij} \iff j \le i + \mathrm{offset}

    Parameters
    ----------
    L : int
        Number of queries.
    S : int, optional
        Number of keys.  Default: `L`.
    offset : int, default 0
        How many tokens stand before the first query, for example in a cache.

    Returns
    -------
    ndarray of bool, shape (L, S)
        Rows are queries, columns keys.

    Raises
    ------
    ValueError
        If `L` or `S` is negative.
    TypeError
        If an argument is not an integer.

    Notes
    -----
    Chapter 2, *A mask*.

    Examples
    --------
    >>> causal_mask(3).astype(int).tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    L = whole_number("L", L, least=0)
    S = L if S is None else whole_number("S", S, least=0)
    offset = whole_number("offset", offset, least=-L)
    i, j = np.arange(L)[:, np.newaxis], np.arange(S)
    return j <= i + offset


def causal_attention_at(
    i: int, Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, scale: float | None = None
) -> np.ndarray:
    r"""Return the causal output at position i, by slicing.

    .. math:: \mathrm{Att}_{qkv}(q_i, K_{\le i}, V_{\le i})

    Parameters
    ----------
    i : int
        The position, counted from 0.
    Q : array_like, shape (L, E)
        The queries, one a row.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    ndarray, shape (Ev,)
        The weighted sum of the values 0 … i.

    Raises
    ------
    ValueError
        If shapes do not fit together, or `scale` is not finite.
    IndexError
        If there is no query `i`.
    TypeError
        If an argument does not hold real numbers.

    Notes
    -----
    Later tokens are not read at all, so nothing in them can matter.  Chapter 2, *The left
    context*.

    Examples
    --------
    >>> V = [[1, 2], [3, 0], [4, 5]]
    >>> causal_attention_at(1, [[0], [0], [0]], [[1], [2], [3]], V).tolist()
    [2.0, 1.0]
    """
    Q, K, V = float_arrays(Q=(Q, "L E"), K=(K, "S E"), V=(V, "S Ev"))
    i = whole_number("i", i, least=0)
    if i >= len(Q):
        raise IndexError(f"i: needs a position below L = {len(Q)}, got {i}")
    return single_query_attention(Q[i], K[: i + 1], V[: i + 1], scale=scale)


def causal_attention(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, scale: float | None = None
) -> np.ndarray:
    r"""Return the causal output at all positions, with one masked score matrix.

    .. math::

       \mathrm{Softmax}\left(\frac{Q K^\top}{\sqrt{d}} + M\right) V, \qquad
       M_{ij} = \begin{cases} 0 & j \le i \\ -\infty & j > i \end{cases}

    Parameters
    ----------
    Q : array_like, shape (L, E)
        The queries, one a row.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    ndarray, shape (L, Ev)
        One output a row.  Without keys the rows are zeros.

    Raises
    ------
    ValueError
        If shapes do not fit together, or `scale` is not finite.
    TypeError
        If an argument does not hold real numbers.

    See Also
    --------
    causal_attention_at : One position, by slicing.

    Notes
    -----
    The mask goes in after scaling and before softmax.  It is put in by selection, not by adding
    or multiplying, and the last step reads only the visible values: 0 · NaN is NaN, so a product
    with the whole of `V` would let a NaN in a later value leak.  Chapter 2, *A mask*.

    Examples
    --------
    >>> V = [[1, 2], [3, 0], [4, 6]]
    >>> causal_attention([[0], [0], [0]], [[1], [2], [3]], V).round(4).tolist()
    [[1.0, 2.0], [2.0, 1.0], [2.6667, 2.6667]]
    """
    Q, K, V = float_arrays(Q=(Q, "L E"), K=(K, "S E"), V=(V, "S Ev"))
    scores = Q @ K.T * scale_or_default(scale, Q.shape[1])
    masked = np.where(causal_mask(*scores.shape), scores, -np.inf)
    weights = softmax(masked)
    output = np.zeros((len(Q), V.shape[1]), np.result_type(weights, V))
    for i in range(len(Q)):
        output[i] = weights[i, : i + 1] @ V[: i + 1]
    return output
