"""Chapter 1: one query attends to n keys and values, every step visible.

The axis letters are those of the notation page: `S` keys, `E` width of query and key,
`Ev` width of value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_array, float_arrays, scale_or_default


class AttentionSteps(NamedTuple):
    """The four steps of attention for one query, in the order in which they are computed.

    Parameters
    ----------
    dot_products : ndarray, shape (S,)
        The query with each key.
    scores : ndarray, shape (S,)
        Dot products after scaling.
    weights : ndarray, shape (S,)
        Softmax of the scores.
    output : ndarray, shape (Ev,)
        The weighted sum of the values.
    """

    dot_products: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    output: np.ndarray


def softmax(scores: ArrayLike, axis: int = -1) -> np.ndarray:
    r"""Turn scores into positive weights that sum to one.

    .. math:: \alpha_j = \frac{e^{s_j}}{\sum_l e^{s_l}}, \qquad \alpha = \mathrm{Softmax}(s)

    for the scores s of one query.

    Parameters
    ----------
    scores : array_like
        Scores of any shape.  A score of ``-inf`` excludes its place: the weight is exactly 0.
    axis : int, default -1
        The axis along which the weights sum to one.

    Returns
    -------
    ndarray
        Weights in the shape of `scores`.  Where all scores along `axis` are ``-inf`` there is
        nothing to attend to, and the weights are zeros.

    Raises
    ------
    TypeError
        If `scores` are not real numbers.

    Notes
    -----
    The largest score is subtracted first.  That changes no weight, since it multiplies numerator
    and denominator by the same factor, and it keeps the exponentials from overflowing.
    ``NaN`` and ``+inf`` are not hidden: their row becomes ``NaN``.  Chapter 1, *Softmax*.

    Examples
    --------
    >>> import numpy as np
    >>> weights = softmax(np.log([1, 2, 3]))
    >>> bool(np.allclose(weights, [1 / 6, 2 / 6, 3 / 6]))
    True
    >>> softmax([-np.inf, -np.inf]).tolist()
    [0.0, 0.0]
    """
    scores = float_array("scores", scores)
    peak = np.max(scores, axis=axis, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, 0.0, peak)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, and NaN is the answer
        exponentials = np.exp(scores - peak)
    total = np.sum(exponentials, axis=axis, keepdims=True)
    return exponentials / np.where(total == 0.0, 1.0, total)


def attention_steps(
    q: ArrayLike, K: ArrayLike, V: ArrayLike, *, scale: float | None = None
) -> AttentionSteps:
    r"""Compute attention for one query and return every intermediate result.

    .. math::

       \mathrm{Att}_{qkv}(q, K, V) = \mathrm{Softmax}\left(\frac{q K^\top}{\sqrt{d}}\right) V

    Parameters
    ----------
    q : array_like, shape (E,)
        The query.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    AttentionSteps
        Named tuple of ``dot_products`` (S,), ``scores`` (S,), ``weights`` (S,) and
        ``output`` (Ev,).  Without keys (S = 0) the output is zeros.

    Raises
    ------
    ValueError
        If shapes do not fit together, or `scale` is not finite.
    TypeError
        If an argument does not hold real numbers.

    Notes
    -----
    Integers are promoted to float64.  Chapter 1, *Four steps*; Vaswani et al. (2017), section
    3.2.1, for the scaled dot product.

    Examples
    --------
    >>> steps = attention_steps([2, 1], [[1, 0], [3, 2]], [[1, 2], [3, 0]], scale=1 / 2)
    >>> steps.dot_products.tolist(), steps.scores.tolist()
    ([2.0, 8.0], [1.0, 4.0])
    >>> steps.weights.round(4).tolist()
    [0.0474, 0.9526]
    """
    q, K, V = float_arrays(q=(q, "E"), K=(K, "S E"), V=(V, "S Ev"))
    dot_products = q @ K.T
    scores = dot_products * scale_or_default(scale, len(q))
    weights = softmax(scores)
    output = weights @ V
    return AttentionSteps(dot_products, scores, weights, output)


def single_query_attention(
    q: ArrayLike, K: ArrayLike, V: ArrayLike, *, scale: float | None = None
) -> np.ndarray:
    r"""Return the weighted sum of the values for one query.

    .. math::

       \mathrm{Att}_{qkv}(q, K, V) = \sum_j \alpha_j v_j, \qquad
       \alpha = \mathrm{Softmax}\left(\frac{q K^\top}{\sqrt{d}}\right)

    Parameters
    ----------
    q : array_like, shape (E,)
        The query.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    ndarray, shape (Ev,)
        The output; zeros when there are no keys.

    Raises
    ------
    ValueError
        If shapes do not fit together, or `scale` is not finite.
    TypeError
        If an argument does not hold real numbers.

    See Also
    --------
    attention_steps : The same with every intermediate result.

    Notes
    -----
    Chapter 1, *Four steps*; Vaswani et al. (2017), section 3.2.1.

    Examples
    --------
    >>> single_query_attention([0, 0], [[1, 0], [3, 2]], [[1, 2], [3, 0]]).tolist()
    [2.0, 1.0]
    """
    return attention_steps(q, K, V, scale=scale).output
