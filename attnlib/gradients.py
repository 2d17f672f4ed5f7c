"""Gradients of attention without autograd: the softmax Jacobian, and dQ, dK, dV as equations.

`softmax_jacobian` and `dense_attention_gradients` are the derivation, step by step;
`attention_gradients` gives the same for everything that `scaled_dot_product_attention` takes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_array, float_arrays, scale_or_default
from attnlib.engines import engine_for
from attnlib.engines._validate import checked_grad_output, validate
from attnlib.single_query import softmax


class AttentionGradients(NamedTuple):
    """How a scalar loss changes with query, key and value, each in the shape of its array."""

    dQ: Any
    dK: Any
    dV: Any


def softmax_jacobian(weights: ArrayLike) -> np.ndarray:
    r"""Return the derivative of each softmax weight by each score.

    .. math::

       \frac{\partial \alpha_j}{\partial s_k} = \alpha_j (\delta_{jk} - \alpha_k), \qquad
       J = \mathrm{diag}(\alpha) - \alpha^\top \alpha

    Parameters
    ----------
    weights : array_like, shape (..., S)
        Softmax weights α; the Jacobian needs nothing else, not even the scores.

    Returns
    -------
    ndarray, shape (..., S, S)
        Symmetric, with rows that sum to zero: raising all scores alike changes no weight. A row
        of zeros (nothing to attend) gives zeros.

    Raises
    ------
    TypeError
        If `weights` does not hold real numbers.
    ValueError
        If `weights` has no axis.

    Notes
    -----
    Where one weight is near 1, all entries are near 0: a saturated softmax passes no gradient on.
    Chapter 6, *Back through softmax*; Chapter 1, *Why scale*.

    Examples
    --------
    >>> import numpy as np
    >>> (36 * softmax_jacobian([1 / 6, 2 / 6, 3 / 6])).round(12).tolist()
    [[5.0, -2.0, -3.0], [-2.0, 8.0, -6.0], [-3.0, -6.0, 9.0]]
    """
    weights = float_array("weights", weights)
    if weights.ndim == 0:
        raise ValueError("weights: needs shape (..., S), got a single number")
    diagonal = weights[..., :, None] * np.eye(weights.shape[-1], dtype=weights.dtype)
    return diagonal - weights[..., :, None] * weights[..., None, :]


def dense_attention_gradients(
    Q: ArrayLike,
    K: ArrayLike,
    V: ArrayLike,
    grad_output: ArrayLike,
    *,
    scale: float | None = None,
) -> AttentionGradients:
    r"""Return the gradients of dense attention, one equation a line.

    With the weights P, the output O = P V and c = 1/√E:

    .. math::

       dV = P^\top dO, \qquad dP = dO\, V^\top, \qquad
       dS_i = dP_i\, J_i = P_i \odot (dP_i - P_i \cdot dP_i), \qquad
       dQ = c\, dS\, K, \qquad dK = c\, dS^\top Q

    Parameters
    ----------
    Q : array_like, shape (L, E)
        The queries, one a row.
    K : array_like, shape (S, E)
        The keys, one a row.
    V : array_like, shape (S, Ev)
        The values, one a row.
    grad_output : array_like, shape (L, Ev)
        dO, the gradient of the loss by the output.
    scale : float, optional
        What the dot products are multiplied by.  Default: 1/√E.

    Returns
    -------
    AttentionGradients
        Named tuple of dQ (L, E), dK (S, E), dV (S, Ev).

    Raises
    ------
    ValueError
        If shapes do not fit together, or `scale` is not finite.
    TypeError
        If an argument does not hold real numbers.

    See Also
    --------
    attnlib.attention_gradients : The same for masks, batches, groups, and long sequences.

    Notes
    -----
    Chapter 6, *All queries at once*.

    Examples
    --------
    With one key its weight is 1 whatever the scores are, so only the value matters.

    >>> dQ, dK, dV = dense_attention_gradients([[1, 2]], [[3, 4]], [[5]], [[6]])
    >>> dQ.tolist(), dK.tolist(), dV.tolist()
    ([[0.0, 0.0]], [[0.0, 0.0]], [[6.0]])
    """
    Q, K, V, dO = float_arrays(
        Q=(Q, "L E"), K=(K, "S E"), V=(V, "S Ev"), grad_output=(grad_output, "L Ev")
    )
    scale = scale_or_default(scale, Q.shape[1])
    P = softmax(Q @ K.T * scale)
    dV = P.T @ dO
    dP = dO @ V.T
    dS = P * (dP - np.sum(P * dP, axis=1, keepdims=True))
    dQ = dS @ K * scale
    dK = dS.T @ Q * scale
    return AttentionGradients(dQ, dK, dV)


def attention_gradients(
    query: Any,
    key: Any,
    value: Any,
    grad_output: Any,
    attn_mask: Any = None,
    *,
    is_causal: bool = False,
    causal_offset: Any = 0,
    scale: float | None = None,
    enable_gqa: bool = False,
    key_mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
) -> AttentionGradients:
    r"""Return the gradients of `scaled_dot_product_attention` by query, key and value.

    .. math::

       dV = P^\top dO, \qquad
       dS = P \odot (dO\, V^\top - \mathrm{rowsum}(dO \odot O)), \qquad
       dQ = c\, dS\, K, \qquad dK = c\, dS^\top Q

    for the weights P, the output O and the scale c; a softcap multiplies dS by its slope.

    Parameters
    ----------
    query : ndarray or Tensor, shape (..., Hq, L, E)
        The queries, as in `scaled_dot_product_attention`.
    key : ndarray or Tensor, shape (..., Hkv, S, E)
        The keys.
    value : ndarray or Tensor, shape (..., Hkv, S, Ev)
        The values.
    grad_output : ndarray or Tensor, shape (..., Hq, L, Ev)
        dO, the gradient of the loss by the output, in the shape and dtype of the output.
    attn_mask : ndarray or Tensor, optional
        As in `scaled_dot_product_attention`: bool, True = may attend, or float, added.
    is_causal, causal_offset, scale, enable_gqa, key_mask, window, softcap
        As in `scaled_dot_product_attention`.

    Returns
    -------
    AttentionGradients
        Named tuple of dQ, dK, dV, each of the shape, dtype and kind of its array. Where an array
        was broadcast, or a key shared by a group of query heads, its gradients are summed. A
        query with nothing to attend has gradient zero, and so has a key that no query may see.

    Raises
    ------
    TypeError, ValueError
        As `scaled_dot_product_attention`, and if `grad_output` does not fit the output.

    See Also
    --------
    attnlib.gradients.dense_attention_gradients : The equations, one a line.
    scaled_dot_product_attention : The function whose gradients these are.

    Notes
    -----
    NumPy arrays take the tiled backward pass: weights are computed again from each row's
    log-sum-exp, tile by tile, and no score matrix is kept (Dao et al. 2022, appendix B). Tensors
    go through autograd, which ``scaled_dot_product_attention(...).backward(grad_output)`` uses
    as well. Chapter 6, *No table is kept*.

    Examples
    --------
    A query that sees one key alone has weight 1 there, and passes its gradient on to that value.

    >>> import numpy as np
    >>> query, key, value = np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 4))
    >>> dQ, dK, dV = attention_gradients(query, key, value, np.ones((2, 4)), is_causal=True)
    >>> dV.round(12).tolist()
    [[1.5, 1.5, 1.5, 1.5], [0.5, 0.5, 0.5, 0.5]]
    """
    call = validate(
        query,
        key,
        value,
        attn_mask,
        is_causal=is_causal,
        causal_offset=causal_offset,
        scale=scale,
        enable_gqa=enable_gqa,
        key_mask=key_mask,
        window=window,
        softcap=softcap,
    )
    grad_output = checked_grad_output(call, grad_output)
    dQ, dK, dV = engine_for(call.query).gradients(call, grad_output)
    return AttentionGradients(dQ[0] if call.single_query else dQ, dK, dV)
