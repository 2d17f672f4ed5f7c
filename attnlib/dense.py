"""Chapter 3: every query attends to every key; what that costs, and how tiles save memory.

The axis letters are those of the notation page: `L` queries, `S` keys, `E` width of query and
key, `Ev` width of value; m is the number of tokens of a sequence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_array, float_arrays, scale_or_default, whole_number
from attnlib.single_query import softmax


def dense_attention(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, scale: float | None = None
) -> np.ndarray:
    r"""Return the output of every query over all keys.

    .. math:: \mathrm{Softmax}\left(\frac{Q K^\top}{\sqrt{d}}\right) V

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

    Notes
    -----
    Chapter 3, *All pairs*; Vaswani et al. (2017), equation 1.

    Examples
    --------
    >>> dense_attention([[0], [0]], [[1], [2], [3]], [[1, 2], [3, 0], [5, 4]]).tolist()
    [[3.0, 2.0], [3.0, 2.0]]
    """
    Q, K, V = float_arrays(Q=(Q, "L E"), K=(K, "S E"), V=(V, "S Ev"))
    scores = Q @ K.T * scale_or_default(scale, Q.shape[1])
    weights = softmax(scores)
    return weights @ V


def tiled_attention(
    Q: ArrayLike, K: ArrayLike, V: ArrayLike, *, tile: int = 128, scale: float | None = None
) -> np.ndarray:
    r"""Return what `dense_attention` returns, looking at `tile` keys at a time.

    With the scores s of the next tile, the running maximum p, the running sum t of exponentials
    and the running output o become

    .. math::

       p' = \max(p, \max s), \qquad
       t' = e^{p - p'} t + \sum_j e^{s_j - p'}, \qquad
       o' = e^{p - p'} o + \sum_j e^{s_j - p'} v_j,

    and after the last tile the result is o / t.

    Parameters
    ----------
    Q : array_like, shape (L, E)
        The queries, one a row.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    tile : int, default 128
        How many keys are looked at together.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    ndarray, shape (L, Ev)
        One output a row.  Without keys the rows are zeros.

    Raises
    ------
    ValueError
        If shapes do not fit together, `tile` is below 1, or `scale` is not finite.
    TypeError
        If an argument does not hold real numbers.

    Notes
    -----
    Only L × `tile` scores exist at any time, so memory grows with L and not with L · S.
    Chapter 3, *The running softmax*; Milakov and Gimelshein (2018) for the running sum, Dao et
    al. (2022) for its use in attention.  `attnlib.scaled_dot_product_attention` uses the same
    idea.

    Examples
    --------
    >>> tiled_attention([[0], [0]], [[1], [2], [3]], [[1, 2], [3, 0], [5, 4]], tile=2).tolist()
    [[3.0, 2.0], [3.0, 2.0]]
    """
    Q, K, V = float_arrays(Q=(Q, "L E"), K=(K, "S E"), V=(V, "S Ev"))
    tile = whole_number("tile", tile, least=1)
    scaled = Q * scale_or_default(scale, Q.shape[1])
    peak, total = np.full((len(Q), 1), -np.inf, Q.dtype), np.zeros((len(Q), 1), Q.dtype)
    output = np.zeros((len(Q), V.shape[1]), Q.dtype)
    for start in range(0, len(K), tile):
        scores = scaled @ K[start : start + tile].T
        new_peak = np.maximum(peak, scores.max(axis=1, keepdims=True))
        shrink = np.exp(peak - new_peak)
        exponentials = np.exp(scores - new_peak)
        total = shrink * total + exponentials.sum(axis=1, keepdims=True)
        output = shrink * output + exponentials @ V[start : start + tile]
        peak = new_peak
    return output / np.where(total == 0.0, 1.0, total)


def effective_keys(weights: ArrayLike) -> np.ndarray:
    r"""Return how many equally weighted keys would be as spread out as each row of weights.

    .. math:: \exp\Bigl(-\sum_j \alpha_j \ln \alpha_j\Bigr)

    Parameters
    ----------
    weights : array_like, shape (..., S)
        Attention weights; each row sums to one.  A weight of 0 adds nothing.

    Returns
    -------
    ndarray, shape (...)
        A number from 1 (one key has all the weight) to S (all have the same).

    Raises
    ------
    TypeError
        If `weights` does not hold real numbers.
    ValueError
        If `weights` has no axis, or holds a negative number.

    Notes
    -----
    The exponential of the entropy, also called perplexity.  Chapter 3, *How dense is dense?*

    Examples
    --------
    >>> effective_keys([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]]).round(4).tolist()
    [1.0, 4.0]
    """
    weights = float_array("weights", weights)
    if weights.ndim == 0 or np.any(weights < 0):
        raise ValueError(f"weights: needs rows of numbers of at least 0, got {weights!r}")
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    entropy = -np.sum(weights * logarithms, axis=-1)
    return np.exp(entropy)


def causal_pairs(m: int) -> int:
    """Return how many (query, key) pairs causal attention looks at: m(m+1)/2.

    Parameters
    ----------
    m : int
        Number of tokens.

    Returns
    -------
    int
        The sum of i + 1 over the positions i = 0 … m − 1.

    Raises
    ------
    ValueError
        If `m` is negative.
    TypeError
        If `m` is not an integer.

    Notes
    -----
    Chapter 3, *Counting pairs*.

    Examples
    --------
    >>> causal_pairs(4)
    10
    """
    m = whole_number("m", m, least=0)
    return m * (m + 1) // 2


def window_pairs(m: int, w: int) -> int:
    """Return how many pairs remain when each query sees itself and the w − 1 keys before it.

    For w ≤ m that is w·m − w(w−1)/2: linear in m.

    Parameters
    ----------
    m : int
        Number of tokens.
    w : int
        Width of the window, the query's own position included.

    Returns
    -------
    int
        The sum of min(i + 1, w) over the positions i.

    Raises
    ------
    ValueError
        If `m` is negative or `w` is below 1.
    TypeError
        If an argument is not an integer.

    Notes
    -----
    Chapter 3, *What is lost and saved*.

    Examples
    --------
    >>> window_pairs(6, 2)
    11
    """
    m = whole_number("m", m, least=0)
    w = min(whole_number("w", w, least=1), m)
    return w * m - w * (w - 1) // 2


def strided_pairs(m: int, s: int) -> int:
    """Return how many pairs remain when each query sees itself and every s-th key before it.

    About m²/(2s): still quadratic, s times smaller.

    Parameters
    ----------
    m : int
        Number of tokens.
    s : int
        The stride.

    Returns
    -------
    int
        The sum of ⌊i/s⌋ + 1 over the positions i.

    Raises
    ------
    ValueError
        If `m` is negative or `s` is below 1.
    TypeError
        If an argument is not an integer.

    Notes
    -----
    Chapter 3, *What is lost and saved*.

    Examples
    --------
    >>> strided_pairs(6, 2)
    12
    """
    m = whole_number("m", m, least=0)
    s = whole_number("s", s, least=1)
    full, rest = divmod(m, s)  # full blocks of s positions, each seeing one key more than the last
    return s * full * (full + 1) // 2 + rest * (full + 1)
