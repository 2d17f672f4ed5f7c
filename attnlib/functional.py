"""Attention for every day: one function for NumPy arrays and torch tensors.

Arguments are validated once, then the engine that fits the arrays computes.
"""

from typing import Any, NoReturn

from attnlib.engines import engine_for
from attnlib.engines._validate import validate


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    *,
    is_causal: bool = False,
    causal_offset: Any = 0,
    scale: float | None = None,
    enable_gqa: bool = False,
    key_mask: Any = None,
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    return_weights: bool = False,
    **unsupported: Any,
) -> Any:
    r"""Return the weighted sum of the values for every query.

    .. math::

       \mathrm{Softmax}\left(\frac{Q K^\top}{\sqrt{E}} + M\right) V

    with M = 0 where a query may attend to a key and −∞ where it may not. Masks, positions and
    padding intersect. Options are applied in this order: scale, softcap, float mask, exclusion,
    softmax.

    Parameters
    ----------
    query : ndarray or Tensor, shape (..., Hq, L, E)
        The queries. ``(L, E)`` works, and so does a single query ``(E,)`` with 2-D key and value.
    key : ndarray or Tensor, shape (..., Hkv, S, E)
        The keys.
    value : ndarray or Tensor, shape (..., Hkv, S, Ev)
        The values. All three are of one kind (NumPy or torch) and one float dtype; the axes
        before length broadcast by NumPy's rules, the others must agree.
    attn_mask : ndarray or Tensor, optional
        Broadcasts to the scores, (..., Hq, L, S), without enlarging them. Bool: True = may
        attend. Float: added to the scores, where −inf excludes.
    is_causal : bool, default False
        Query i sees key j only if j ≤ i + `causal_offset`.
    causal_offset : int or integer array of shape ``(*batch)``, default 0
        Query i stands at position i + `causal_offset`; with a cache it is the number of tokens
        cached before this call. May be negative. `*batch` is every axis before the last three,
        or axis 0 of a 3-D call.
    scale : float, optional
        What the dot products are multiplied by: any finite float. Default: 1/√E.
    enable_gqa : bool, default False
        Query head h uses key/value head h // (Hq // Hkv), where Hkv divides Hq.
    key_mask : bool ndarray or Tensor, shape (S,) or ``(*batch, S)``, optional
        True = real token, False = padding.
    window : (left, right), optional
        Query i sees key j only if −left ≤ j − (i + `causal_offset`) ≤ right. None on a side:
        no bound there.
    softcap : float, optional
        c > 0 turns scores into c·tanh(score/c).
    return_weights : bool, default False
        Return the weights as well.

    Returns
    -------
    output : ndarray or Tensor, shape (..., Hq, L, Ev)
        Of the kind, dtype and device of the inputs. A query with nothing to attend, whether
        masks exclude every key or there is none (S = 0), gives zeros.
    weights : ndarray or Tensor, shape (..., Hq, L, S)
        Only with `return_weights`. Rows sum to 1, or to 0 with nothing to attend; exactly 0 where
        masked.

    Raises
    ------
    TypeError
        If arrays are not of one kind or not of floats, a mask is of integers, an option is of
        another type, or `dropout_p` is given: there is no dropout here.
    ValueError
        If shapes, dtypes or devices do not fit together, `scale` or `softcap` is not finite,
        `softcap` is not positive, a non-zero `causal_offset` comes with neither `is_causal` nor
        `window`, or a single query with one of these.

    See Also
    --------
    attention_gradients : The gradients, for NumPy arrays without autograd.
    dense_attention : The same equation in three lines.

    Notes
    -----
    float64 stays float64 throughout; half precision is accumulated in float32 and cast back.
    bfloat16 exists on torch only. Inputs are never modified, and may have any strides.

    Only False and −inf exclude; a finite number, however low, is arithmetic. On NumPy arrays a
    masked pair never changes the result, even if its key or value is NaN or infinite. On tensors
    this holds for keys that `key_mask`, `is_causal` or `window` switches off for every query;
    those that `attn_mask` alone excludes behave as in PyTorch. NaN and +inf in an allowed score
    are not hidden: the query's output is NaN.

    The NumPy engine works in tiles, in memory that does not grow with L·S; the torch engine uses
    PyTorch's fused kernels and is differentiable.

    Chapter 1, *Four steps*, derives the equation; Chapter 2, *A mask*, the causal mask; Chapter 3,
    *The running softmax*, the tiles; Chapter 4, *All heads at once*, the heads; Chapter 7, *Heads
    that share keys and values*, the groups; Chapter 8, *Two masks, and how to combine them*, the
    other masks. Sources: Vaswani et al. (2017), section 3.2.1; the documentation of
    ``torch.nn.functional.scaled_dot_product_attention`` for names and masks; the ONNX operator
    Attention for offsets, windows, softcap and empty rows.

    Examples
    --------
    Scores ln 1, ln 2, ln 3 give the weights 1/6, 2/6, 3/6.

    >>> import numpy as np
    >>> query = np.array([[1.0]])
    >>> key = np.log([[1.0], [2.0], [3.0]])
    >>> value = np.array([[1.0, 2.0], [3.0, 0.0], [4.0, 5.0]])
    >>> output, weights = scaled_dot_product_attention(query, key, value, return_weights=True)
    >>> (6 * weights).round(12).tolist(), (6 * output).round(12).tolist()
    ([[1.0, 2.0, 3.0]], [[19.0, 17.0]])

    The third key is padding:

    >>> real = np.array([True, True, False])
    >>> (3 * scaled_dot_product_attention(query, key, value, key_mask=real)).round(12).tolist()
    [[7.0, 2.0]]
    """
    if unsupported:
        _refuse(unsupported)
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
        return_weights=return_weights,
    )
    output, weights = engine_for(call.query).attention(call)
    if call.single_query:
        output, weights = output[0], weights[0] if return_weights else None
    return (output, weights) if return_weights else output


def _refuse(unsupported: dict[str, Any]) -> NoReturn:
    name = next(iter(unsupported))
    if name == "dropout_p":
        raise TypeError(
            "dropout_p is not supported: there is no dropout here; leave it out, and apply dropout "
            "to the output where training needs it"
        )
    raise TypeError(f"scaled_dot_product_attention() got an unexpected keyword argument {name!r}")
