"""Chapter 9: positions put into vectors, so that attention can tell what came first.

The axis letters are those of the notation page: `L` tokens or queries, `S` keys, `E` width of a
vector; `Hq` heads. Entries are taken in pairs, so `E` is even.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnlib._arrays import float_array, float_arrays, whole_number

BASE = 10_000.0  # of Vaswani et al. (2017), and of most models since


def frequencies(width: int, *, base: float = BASE) -> np.ndarray:
    r"""Return how far each pair of entries turns from one position to the next, in radians.

    .. math:: \omega_c = \mathrm{base}^{-2c/E}, \qquad c = 0, \dots, E/2 - 1

    Parameters
    ----------
    width : int
        Width E of the vectors, an even number.
    base : float, default 10000
        The larger, the slower the last pairs turn.

    Returns
    -------
    ndarray, shape (E / 2,)
        From 1 downwards.

    Raises
    ------
    ValueError
        If `width` is odd or less than 2.
    TypeError
        If `width` is not an integer.

    Notes
    -----
    Chapter 9, *Waves*; Vaswani et al. (2017), section 3.5.

    Examples
    --------
    >>> frequencies(4, base=100).round(12).tolist()
    [1.0, 0.1]
    """
    if whole_number("width", width, least=2) % 2:
        raise ValueError(f"width: needs an even number, got {width}")
    return base ** (-np.arange(0, width, 2) / width)


def sinusoidal_positions(
    length: int,
    width: int,
    *,
    base: float = BASE,
) -> np.ndarray:
    r"""Return a row of sines and cosines for each position, to be added to the tokens.

    .. math:: p_{i,2c} = \sin(i\,\omega_c), \qquad p_{i,2c+1} = \cos(i\,\omega_c)

    Parameters
    ----------
    length : int
        Number of positions L.
    width : int
        Width E of a token, an even number.
    base : float, default 10000
        As in `frequencies`.

    Returns
    -------
    ndarray, shape (L, E)
        Row i belongs to position i.

    Raises
    ------
    ValueError
        If `length` is negative, or `width` odd or less than 2.
    TypeError
        If `length` or `width` is not an integer.

    Notes
    -----
    Chapter 9, *Waves*; Vaswani et al. (2017), section 3.5.

    Examples
    --------
    >>> sinusoidal_positions(2, 4, base=100).round(4).tolist()
    [[0.0, 1.0, 0.0, 1.0], [0.8415, 0.5403, 0.0998, 0.995]]
    """
    length = whole_number("length", length, least=0)
    angles = np.outer(np.arange(length), frequencies(width, base=base))
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return pairs.reshape(length, width)


def rotate(
    x: ArrayLike,
    positions: ArrayLike,
    omega: ArrayLike | None = None,
    *,
    interleaved: bool = True,
) -> np.ndarray:
    r"""Turn each pair of entries of each row by an angle in proportion to its position.

    .. math::

       (a, b) \mapsto (a \cos\theta - b \sin\theta,\; a \sin\theta + b \cos\theta), \qquad
       \theta = i\,\omega_c

    Apply it to queries and keys, not to values: then a dot product depends on the positions only
    through their difference.

    Parameters
    ----------
    x : array_like, shape (..., L, E)
        Queries or keys, in heads or not.
    positions : array_like, shape (L,)
        Position of each row.  With a cache, new rows do not start at 0.
    omega : array_like, shape (E / 2,), optional
        Radians from one position to the next, a number a pair.  Default: `frequencies`.
    interleaved : bool, default True
        Whether pair c is the entries 2c and 2c + 1, or the entries c and c + E / 2.  Weights
        trained with one layout are wrong with the other.

    Returns
    -------
    ndarray, shape (..., L, E)
        The turned rows.  Lengths stay.

    Raises
    ------
    ValueError
        If shapes do not fit together, or the width is odd.
    TypeError
        If an argument does not hold real numbers.

    Notes
    -----
    Chapter 9, *Turning queries and keys*; Su et al. (2021), equation 34.

    Examples
    --------
    >>> rotate([[1, 0], [1, 0]], [0, 1], [np.pi / 2]).round(12).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x, positions = float_arrays(x=(x, "... L E"), positions=(positions, "L"))
    omega = _a_number_a_pair(omega, x.shape[-1])
    angles = np.outer(positions, omega)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = _pairs(x, interleaved)
    turned = np.empty_like(x)
    new_first, new_second = _pairs(turned, interleaved)
    new_first[...] = first * cos - second * sin
    new_second[...] = first * sin + second * cos
    return turned


def alibi_slopes(num_heads: int) -> np.ndarray:
    r"""Return how much a score loses for each token of distance, a number a head.

    .. math:: 2^{-8h/\tau}, \qquad h = 1, \dots, \tau

    Parameters
    ----------
    num_heads : int
        Number of heads Hq.

    Returns
    -------
    ndarray, shape (Hq,)
        Falling from head to head.

    Raises
    ------
    ValueError
        If `num_heads` is less than 1.
    TypeError
        If `num_heads` is not an integer.

    Notes
    -----
    Chapter 9, *A bias for distance*; Press et al. (2022), section 3, for powers of two.

    Examples
    --------
    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    num_heads = whole_number("num_heads", num_heads, least=1)
    return 2.0 ** (-8 * np.arange(1, num_heads + 1) / num_heads)


def alibi_bias(slopes: ArrayLike, L: int, S: int | None = None, *, offset: int = 0) -> np.ndarray:
    r"""Return what is added to the scores: the farther a key, the less.

    .. math:: b_{i,j} = -\mathrm{slope} \cdot |i + \mathrm{offset} - j|

    Parameters
    ----------
    slopes : array_like, shape (Hq,)
        One number a head, for example `alibi_slopes`.
    L : int
        Number of queries.
    S : int, optional
        Number of keys.  Default: L.
    offset : int, default 0
        Position of query 0: with a cache, the number of tokens in it.

    Returns
    -------
    ndarray, shape (Hq, L, S)
        A float mask: pass it as `attn_mask`.

    Raises
    ------
    ValueError
        If a size is negative.
    TypeError
        If a size or the offset is not an integer.

    Notes
    -----
    Chapter 9, *A bias for distance*; Press et al. (2022).

    Examples
    --------
    >>> alibi_bias([0.5], 3).tolist()
    [[[0.0, -0.5, -1.0], [-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]]
    """
    (slopes,) = float_arrays(slopes=(slopes, "Hq"))
    L = whole_number("L", L, least=0)
    S = L if S is None else whole_number("S", S, least=0)
    first = whole_number("offset", offset, least=-L)
    queries, keys = first + np.arange(L), np.arange(S)
    distance = np.abs(queries[:, np.newaxis] - keys)
    return 0.0 - slopes[:, np.newaxis, np.newaxis] * distance


def _a_number_a_pair(omega: ArrayLike | None, width: int) -> np.ndarray:
    usual = frequencies(width)  # refuses an odd width
    if omega is None:
        return usual
    omega = float_array("omega", omega)
    if omega.shape != usual.shape:
        raise ValueError(f"omega: needs shape (E / 2,) with E = {width}, got {omega.shape}")
    return omega


def _pairs(x: np.ndarray, interleaved: bool) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second entries of all pairs, as views of `x`."""
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    return x[..., :half], x[..., half:]
