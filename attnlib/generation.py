"""Token-by-token decoding: a cache of the keys and values that later queries attend to.

The axis letters are those of the notation page: `Hkv` key/value heads, `S` cached keys, `T`
tokens of one append, `E` width of a key, `Ev` width of a value.
"""

from __future__ import annotations

import operator
import sys
from typing import Any, NamedTuple

import numpy as np

from attnlib.engines._validate import array_kind, describe

_FIRST_CAPACITY = 16
_NUMPY_FLOATS = frozenset(map(np.dtype, (np.float16, np.float32, np.float64)))


class _Contents(NamedTuple):
    """What a cache holds: two buffers, of which the first `length` rows are valid."""

    keys: Any
    values: Any
    length: int

    @property
    def valid_keys(self) -> Any:
        """A read-only view of the valid keys, (…, Hkv, S, E)."""
        return _read_only(self.keys[..., : self.length, :])

    @property
    def valid_values(self) -> Any:
        """A read-only view of the valid values, (…, Hkv, S, Ev)."""
        return _read_only(self.values[..., : self.length, :])


class KVCache:
    r"""Keys and values of the tokens seen so far.

    At step :math:`i` the new token's key and value are appended, then its query attends to all:

    .. math::

       K_{\le i} = \begin{bmatrix} K_{\le i-1} \\ k_i \end{bmatrix}, \quad
       V_{\le i} = \begin{bmatrix} V_{\le i-1} \\ v_i \end{bmatrix}, \quad
       \mathrm{Att}_{qkv}(q_i, K_{\le i}, V_{\le i})

    Parameters
    ----------
    max_length : int, optional
        The most tokens the cache may hold.  Default: no limit.

    Attributes
    ----------
    keys : ndarray or torch.Tensor, shape (..., Hkv, S, E)
        View of the cached keys, valid until the next append.
    values : ndarray or torch.Tensor, shape (..., Hkv, S, Ev)
        View of the cached values, valid until the next append.
    max_length : int or None
        As given.

    Raises
    ------
    TypeError
        If `max_length` is not an integer.
    ValueError
        If `max_length` is less than 1.

    See Also
    --------
    MultiHeadAttention : Fills and reads a cache given as ``cache=``.

    Notes
    -----
    ``len(cache)`` is the number of cached tokens, so an empty cache is false: ask
    ``cache is None`` to know whether there is one.

    The buffers double when they are full, so the past is copied a few times in all, not once a
    token.  All items of a batch have one length; give `key_mask` where some are padded.
    NumPy refuses to write to the views; torch has no read-only tensors, so there the rule is
    yours to keep.  Chapter 4, *Generation with a cache*; Chapter 5, *The library's cache*.

    Examples
    --------
    >>> import numpy as np
    >>> cache = KVCache()
    >>> cache.append(np.ones((2, 3, 4)), np.ones((2, 3, 5)))  # 2 heads, 3 tokens
    >>> cache.append(np.ones((2, 1, 4)), np.ones((2, 1, 5)))
    >>> len(cache), cache.keys.shape, cache.values.shape
    (4, (2, 4, 4), (2, 4, 5))
    """

    def __init__(self, max_length: int | None = None) -> None:
        self.max_length = _checked_max_length(max_length)
        self._contents: _Contents | None = None

    def __len__(self) -> int:
        return 0 if self._contents is None else self._contents.length

    def __repr__(self) -> str:
        return f"KVCache(max_length={self.max_length}) of length {len(self)}"

    @property
    def keys(self) -> Any:
        """Read-only view of the cached keys, (..., Hkv, S, E), valid until the next append.

        Raises
        ------
        ValueError
            If nothing was ever appended: there is no shape or dtype to give.
        """
        return self._filled().valid_keys

    @property
    def values(self) -> Any:
        """Read-only view of the cached values, (..., Hkv, S, Ev), valid until the next append.

        Raises
        ------
        ValueError
            If nothing was ever appended: there is no shape or dtype to give.
        """
        return self._filled().valid_values

    def append(self, k: Any, v: Any) -> None:
        """Append the keys and values of T tokens.

        The first append fixes array kind, dtype, device, leading shape, E and Ev.

        Parameters
        ----------
        k : ndarray or torch.Tensor, shape (..., Hkv, T, E)
            New keys, copied into the cache.
        v : ndarray or torch.Tensor, shape (..., Hkv, T, Ev)
            New values, copied into the cache.

        Raises
        ------
        TypeError
            If an argument is not a float array, or not of the kind the cache holds.
        ValueError
            If shapes, dtypes or devices do not fit each other or the cache, if the tokens do not
            fit into `max_length`, or if a tensor requires gradients.  The cache is then as it was.

        Examples
        --------
        >>> import numpy as np
        >>> cache = KVCache(max_length=1)
        >>> cache.append(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)))
        >>> cache.append(np.zeros((1, 1, 2)), np.zeros((1, 1, 2)))
        Traceback (most recent call last):
        ...
        ValueError: max_length: the cache holds 1 of at most 1 tokens, got 1 more
        """
        self._contents = self._extended(k, v)

    def reset(self) -> None:
        """Forget everything: the next append is a first append again.

        Examples
        --------
        >>> import numpy as np
        >>> cache = KVCache()
        >>> cache.append(np.zeros((1, 3, 2)), np.zeros((1, 3, 2)))
        >>> cache.reset()
        >>> len(cache)
        0
        """
        self._contents = None

    def _filled(self) -> _Contents:
        if self._contents is None:
            raise ValueError("cache: it is empty, so it has no keys or values; append first")
        return self._contents

    def _extended(self, k: Any, v: Any) -> _Contents:
        """The contents with k and v appended.

        What the cache holds stays as it is until the result is stored: new rows are written
        behind the valid ones.  So a call can append, attend, and store only when all went well.
        """
        old = self._contents
        if old is None or not _continues(k, v, old):
            _check_pair(k, v)
            if old is not None:
                _check_fits(k, v, old)
        start = 0 if old is None else old.length
        stop = start + k.shape[-2]
        if self.max_length is not None and stop > self.max_length:
            raise ValueError(
                f"max_length: the cache holds {start} of at most {self.max_length} tokens, "
                f"got {stop - start} more"
            )
        if old is None or stop > old.keys.shape[-2]:
            old = self._grown(k, v, old, stop)
        old.keys[..., start:stop, :] = k
        old.values[..., start:stop, :] = v
        return _Contents(old.keys, old.values, stop)

    def _grown(self, k: Any, v: Any, old: _Contents | None, needed: int) -> _Contents:
        """Buffers of at least twice the room, holding the valid rows of `old`."""
        room = 0 if old is None else old.keys.shape[-2]
        capacity = max(needed, 2 * room, _FIRST_CAPACITY)
        if self.max_length is not None:
            capacity = min(capacity, self.max_length)
        keys, values = _empty(k, capacity), _empty(v, capacity)
        if old is None:
            return _Contents(keys, values, 0)
        keys[..., : old.length, :] = old.valid_keys
        values[..., : old.length, :] = old.valid_values
        return _Contents(keys, values, old.length)


def _checked_max_length(max_length: Any) -> int | None:
    if max_length is None:
        return None
    if isinstance(max_length, (bool, np.bool_)) or not hasattr(max_length, "__index__"):
        raise TypeError(f"max_length: needs an integer or None, got {max_length!r}")
    if operator.index(max_length) < 1:
        raise ValueError(f"max_length: needs at least 1, got {max_length}")
    return operator.index(max_length)


def _continues(k: Any, v: Any, old: _Contents) -> bool:
    """The common append to a cache of NumPy arrays, told in a few comparisons."""
    keys = old.keys
    if not k.__class__ is v.__class__ is keys.__class__ is np.ndarray:
        return False
    shape = k.shape
    return (
        k.dtype == v.dtype == keys.dtype
        and len(shape) == keys.ndim
        and shape[:-2] == keys.shape[:-2]
        and shape[-1] == keys.shape[-1]
        and v.shape == (*shape[:-1], old.values.shape[-1])
    )


def _check_pair(k: Any, v: Any) -> None:
    """Raise unless k and v are float arrays that belong together."""
    if type(k) is not np.ndarray or type(v) is not np.ndarray:
        _check_kinds(k, v)
    if k.dtype != v.dtype:
        raise ValueError(f"v: needs the dtype of k, {k.dtype}, got {v.dtype}")
    if not _is_float(k):
        raise TypeError(f"k: needs a float array, got dtype {k.dtype}; convert it first")
    if k.ndim < 2:
        raise ValueError(f"k: needs shape (…, Hkv, T, E), got {tuple(k.shape)}")
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError(
            f"v: needs shape (…, Hkv, T, Ev) with the leading axes and T of k, "
            f"{tuple(k.shape)}, got {tuple(v.shape)}"
        )


def _check_kinds(k: Any, v: Any) -> None:
    for name, array in (("k", k), ("v", v)):
        if array_kind(array) is None:
            raise TypeError(f"{name}: needs a NumPy array or a torch tensor, got {describe(array)}")
    if array_kind(k) != array_kind(v):
        raise TypeError(f"v: needs to be {describe(k)} as k is, got {describe(v)}")
    if array_kind(k) == "torch":
        _check_tensors(k, v)


def _check_tensors(k: Any, v: Any) -> None:
    if k.device != v.device:
        raise ValueError(f"v: needs the device of k, {k.device}, got {v.device}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.requires_grad:
            raise ValueError(
                f"{name}: a cache holds no gradients, but this tensor requires them; "
                "call it under torch.no_grad(), or detach() the tensor"
            )


def _check_fits(k: Any, v: Any, old: _Contents) -> None:
    """Raise unless k and v, which belong together, continue what the cache holds."""
    held = old.keys
    if type(k) is not type(held) and array_kind(k) != array_kind(held):
        raise TypeError(f"k: the cache holds {describe(held)}, got {describe(k)}")
    if k.dtype != held.dtype:
        raise ValueError(f"k: the cache holds dtype {held.dtype}, got {k.dtype}")
    if type(k) is not np.ndarray and array_kind(k) == "torch" and k.device != held.device:
        raise ValueError(f"k: the cache is on device {held.device}, got {k.device}")
    if k.shape[:-2] != held.shape[:-2] or k.shape[-1] != held.shape[-1]:
        raise ValueError(_other_shape("k", k, held))
    if v.shape[-1] != old.values.shape[-1]:
        raise ValueError(_other_shape("v", v, old.values))


def _other_shape(name: str, new: Any, held: Any) -> str:
    needed = ", ".join(map(str, (*held.shape[:-2], "T", held.shape[-1])))
    return f"{name}: the cache holds shape ({needed}), got {tuple(new.shape)}"


def _is_float(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return array.dtype in _NUMPY_FLOATS
    return array.dtype.is_floating_point


def _empty(like: Any, capacity: int) -> Any:
    """An uninitialised buffer of `capacity` rows, otherwise like `like`."""
    shape = (*like.shape[:-2], capacity, like.shape[-1])
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype)
    torch = sys.modules["torch"]
    with torch.inference_mode(False):  # a buffer made in inference mode could not grow outside it
        return torch.empty(shape, dtype=like.dtype, device=like.device)


def _read_only(view: Any) -> Any:
    if isinstance(view, np.ndarray):
        view.flags.writeable = False
    return view
