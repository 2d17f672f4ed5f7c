"""Attention on NumPy arrays, tile by tile, forward and backward.

Layout of this file, from the outside in:

``attention``, ``gradients``
    The engine's two functions. Small calls take ``_attend_whole``, one tile that holds everything:
    the equation as it stands in the book. All others are cut into tasks.
task
    A block of queries of a few heads. Tasks are independent of each other: each one owns its rows
    of the output, and runs over the keys that its queries may see.
tile
    A range of those keys. Scores live only as long as their tile does, so memory does not grow
    with L x S: a running maximum and a running sum make softmax out of the pieces (Milakov and
    Gimelshein 2018; Dao et al. 2022, "FlashAttention").

Three habits keep it exact. Exclusion is a selection, never arithmetic on a large number: an
excluded score becomes -inf by ``fmin`` with -inf, whatever it was, even NaN. A result that is not
finite is computed once more with the values selected too (``careful``), so that NaN in a masked
place cannot get through, at no cost to the calls that have none. And a running maximum starts at
the lowest float, a running sum at the smallest: a row with nothing to attend then meets neither
inf - inf nor 0 / 0 and comes out as zeros, while no other row notices. Half precision is cast to
float32 a tile at a time.

Score tiles are indexed [query, key] everywhere; in memory the query axis is the contiguous one
(``_Scratch.scores``), because maxima, sums and rescaling then run along contiguous vectors; with a
mask, which is read along the keys, or with few queries it is the other way round.
"""

import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from attnlib.engines._blas_threads import one_blas_thread, worker_count
from attnlib.engines._validate import Call

_WHOLE = 1 << 16  # scores in a call up to which cutting it into tasks costs more than it saves
_TILE = 1 << 18  # scores in a tile of one head: 1 MiB in float32
_GROUP = 1 << 17  # scores of short heads that share a tile: more would leave less to share
_QUERIES = 512  # rows of a block
_LEAST_QUERIES = 128  # of a block that is cut so that there are tasks to share
_TASKS = 8  # enough to share; causal ones are not of one length
_KEYS = 512  # keys of a tile, more where the block has fewer rows
_MOST_KEYS = 16384
_COPIED = 1 << 18  # numbers of four bytes that a tile copies of keys and values: 1 MiB
_FEW_QUERIES = 16  # for fewer, bounding the scores costs more than it saves, vectors are short
_STAIR = 128  # keys of a tile on the causal diagonal, where half of a square tile is wasted
_WORK_PER_THREAD = 20_000_000  # products of a call that are worth one more thread, about 1 ms
_FAR = 1 << 60  # a position beyond every array and every offset
# The lowest and the smallest positive number, where a running maximum and a running sum start.
_LIMITS = {
    np.dtype(dtype): (float(np.finfo(dtype).min), float(np.finfo(dtype).tiny))
    for dtype in (np.float32, np.float64)
}


def attention(call: Call) -> tuple[np.ndarray, np.ndarray | None]:
    """Output (…, Hq, L, Ev), and weights (…, Hq, L, S) if they were asked for.

    The call is validated; nothing here raises.
    """
    plain = call if call.groups == 1 else _pair_heads(call)
    with np.errstate(all="ignore"):  # inf and NaN travel to the result, where they can be seen
        result = _attend_whole(plain) if _is_small(plain) else None
        output, weights = result or _attend_tiled(plain)
    if plain is not call:
        output = output.reshape(call.output_shape)
        weights = weights if weights is None else weights.reshape(call.score_shape)
    return output, weights


# --- the call, made uniform -----------------------------------------------------------------------


def _pair_heads(call: Call) -> Call:
    """A grouped call as one without groups."""
    call = _split_groups(call)
    return _heads_as_queries(call) if call.query.shape[-2] == 1 and _sees_all(call) else call


def _sees_all(call: Call) -> bool:
    """Whether positions hide no key from a single query; so it is when a token is decoded."""
    if not call.has_band:
        return True
    if not isinstance(call.causal_offset, int):
        return False
    low, high = _band(call, call.causal_offset)
    return low <= 0 and call.key.shape[-2] - 1 <= high


def _heads_as_queries(call: Call) -> Call:
    """Groups with one query a head, which sees all keys: heads become the queries of one head.

    So a step of decoding reads each key once, not once for each head of its group.
    """

    def drop(array: np.ndarray | None, axis: int) -> np.ndarray | None:
        return array if array is None or array.ndim < 3 else array.squeeze(axis)

    return call._replace(
        query=drop(call.query, -2),
        key=drop(call.key, -3),
        value=drop(call.value, -3),
        attn_mask=drop(call.attn_mask, -2),
        key_mask=drop(call.key_mask, -3),
        causal_offset=0,
        left=None,
        right=None,
        lead=call.lead[:-1],
    )


def _split_groups(call: Call) -> Call:
    """Head axis Hq as two axes (Hkv, G), so that plain broadcasting pairs heads: nothing copied."""
    groups, heads = call.groups, call.lead[-1] // call.groups

    def split(array: np.ndarray | None) -> np.ndarray | None:
        if not isinstance(array, np.ndarray) or array.ndim < 3:
            return array
        if array.shape[-3] == 1:
            return np.expand_dims(array, -3)
        return array.reshape(*array.shape[:-3], heads, groups, *array.shape[-2:])

    return call._replace(
        query=split(call.query),
        key=np.expand_dims(call.key, -3),
        value=np.expand_dims(call.value, -3),
        attn_mask=split(call.attn_mask),
        key_mask=split(call.key_mask),
        causal_offset=split(call.causal_offset),
        groups=1,
        lead=(*call.lead[:-1], heads, groups),
    )


def _working_dtype(call: Call) -> np.dtype:
    """What scores, softmax and sums are computed in."""
    return np.dtype(np.float64 if call.query.dtype == np.float64 else np.float32)


def _widths(call: Call) -> int:
    """Numbers of a key and its value."""
    return call.key.shape[-1] + call.value.shape[-1]


def _swap(array: np.ndarray) -> np.ndarray:
    return array.swapaxes(-1, -2)


# --- a call small enough to be one tile -----------------------------------------------------------


def _is_small(call: Call) -> bool:
    """Whether one tile can hold the scores, and what is cast of keys and values.

    Not so where an axis is empty: the tiles know what to make of that.
    """
    pairs_per_query = math.prod(call.lead) * call.key.shape[-2]
    return (
        0 < pairs_per_query * call.query.shape[-2] <= _WHOLE
        and call.value.shape[-1] > 0
        and (call.query.dtype != np.float16 or pairs_per_query * _widths(call) <= _COPIED)
    )


def _attend_whole(call: Call) -> tuple[np.ndarray, np.ndarray | None] | None:
    """The equation in one piece; None where that is not finite, and needs the care of the tiles.

    So it is where a query has nothing to attend, 0 / 0, and where a masked value is NaN or inf.
    """
    query, key, value = call.query, call.key, call.value
    if query.dtype == np.float16:
        query, key, value = (array.astype(np.float32) for array in (query, key, value))
    # Where a call takes microseconds, dot takes half of matmul's time.
    product = np.dot if query.ndim == key.ndim == value.ndim == 2 else np.matmul
    scores = product(query, key.swapaxes(-1, -2))
    scores *= call.scale
    if scores.shape[:-2] != call.lead:
        scores = np.broadcast_to(scores, call.score_shape).copy()
    if call.softcap is not None:
        _softcap(scores, call.softcap)
    if not (call.attn_mask is call.key_mask is call.left is call.right is None):
        _mask_whole(scores, call)
    lowest = _LIMITS[scores.dtype][0]  # not -inf, from which -inf cannot be subtracted
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True, initial=lowest)
    weights = np.exp(scores, out=scores)
    total = product(weights, _ones(weights.shape[-1], weights.dtype))
    output = product(weights, value)
    output /= total
    if not _is_finite(output):
        return None
    dtype = call.query.dtype
    if not call.return_weights:
        return output.astype(dtype, copy=False), None
    weights /= total
    return output.astype(dtype, copy=False), weights.astype(dtype, copy=False)


@lru_cache(maxsize=8)
def _ones(size: int, dtype: np.dtype) -> np.ndarray:
    """A column of ones: a product with it sums rows, four times as fast as ``sum``."""
    column = np.ones((size, 1), dtype)
    column.flags.writeable = False
    return column


def _is_finite(array: np.ndarray) -> bool:
    """Told by the sum of squares, faster than ``isfinite``; its overflow only costs time."""
    return math.isfinite(np.vdot(array, array))


def _softcap(scores: np.ndarray, cap: float, slope: np.ndarray | None = None) -> None:
    """c tanh(score / c), in place; its derivative, 1 - tanh², goes to ``slope``."""
    scores /= cap
    np.tanh(scores, out=scores)
    if slope is not None:
        np.square(scores, out=slope)
        np.subtract(1, slope, out=slope)
    scores *= cap


def _mask_whole(scores: np.ndarray, call: Call) -> None:
    """Add the float mask and set what is excluded to -inf, in place."""
    dtype = scores.dtype
    mask = call.attn_mask
    if mask is not None and mask.dtype != bool:
        scores += _as_bias(mask, dtype)
        mask = ~np.isneginf(mask)
    for allowed in (mask, call.key_mask):
        if allowed is not None:
            np.fmin(scores, _switch(allowed, dtype), out=scores)
    if call.has_band:
        np.fmin(scores, _band_of_whole(call, dtype), out=scores)


def _band_of_whole(call: Call, dtype: np.dtype) -> np.ndarray:
    size, offset = call.score_shape[-2:], call.causal_offset
    if isinstance(offset, int):
        return _band_switch(*size, *_band(call, offset), dtype)
    low, high = _band(call, 0)
    distance = _distances(*size) - offset
    return _switch((low <= distance) & (distance <= high), dtype)


# --- masks ----------------------------------------------------------------------------------------


def _switch(allowed: np.ndarray, dtype: np.dtype, bounded: bool = False) -> np.ndarray:
    """+inf where allowed, -inf where not: ``fmin`` of scores and this excludes.

    ``fmin`` passes over NaN, so that it selects: -inf whatever the score was. An allowed NaN
    becomes +inf, which makes its row NaN all the same. Bounded scores are numbers, all of them:
    their exponentials are multiplied by 1 or 0, which costs less.
    """
    if bounded:
        return allowed.astype(dtype)
    switch = np.subtract(allowed, 0.5, dtype=dtype)
    switch *= np.inf  # np.where is ten times slower where the mask has no pattern
    return switch


def _distances(rows: int, keys: int) -> np.ndarray:
    """j - i for every pair."""
    return np.arange(keys) - np.arange(rows)[:, None]


@lru_cache(maxsize=8)
def _band_switch(
    rows: int,
    keys: int,
    low: int,
    high: int,
    dtype: np.dtype,
    bounded: bool = False,
    order: str = "C",
) -> np.ndarray:
    """The switch of low <= j - i <= high; kept, since the tiles on a diagonal are all alike.

    ``order`` is that of the scores: read across its rows, a switch costs more than the products.
    """
    distance = _distances(rows, keys)
    switch = _switch((low <= distance) & (distance <= high), dtype, bounded)
    switch = np.asarray(switch, order=order)
    switch.flags.writeable = False
    return switch


def _band(call: Call, offset: int) -> tuple[int, int]:
    """Query i sees key j if low <= j - i <= high."""
    low = -_FAR if call.left is None else offset - call.left
    high = _FAR if call.right is None else offset + call.right
    return low, high


def _as_bias(mask: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A float mask in the working dtype; a finite entry stays finite, only -inf excludes."""
    if mask.dtype.itemsize <= dtype.itemsize:
        return mask
    limits = np.finfo(dtype)
    bias = np.clip(mask, limits.min, limits.max, out=np.empty(mask.shape, dtype))
    np.copyto(bias, mask, where=np.isinf(mask), casting="same_kind")
    return bias


# --- tasks and tiles ------------------------------------------------------------------------------


class _Task(NamedTuple):
    """A block of queries of some heads, and the keys that they may see."""

    group: tuple[int | slice, ...]
    """Index into the leading axes; offsets and key masks are the same throughout a group."""
    start: int
    stop: int
    """The queries, [start, stop)."""
    low: int
    high: int
    """Row r of the block sees key j if r + low <= j <= r + high."""
    first: int
    last: int
    """The keys that some row may see, [first, last)."""
    widest: int
    """How many of them a tile may hold."""
    real: np.ndarray | None
    """The key mask (S,), where it excludes one of these keys."""
    largest_key: float
    """The length of the longest key, inf if unknown: with a query's length it bounds a score."""


class _Edge(NamedTuple):
    """The part of a tile that holds every pair which the band hides."""

    rows: slice
    keys: slice
    """Counted from the tile's first row and key."""
    low: int
    high: int
    """The band within the part: low <= j - i <= high."""


class _Tile(NamedTuple):
    """A range of keys, and the rows of the block that see one of them."""

    keys: slice
    rows: slice
    edge: _Edge | None
    """None where each of these rows sees all of these keys."""


def _broadcast(call: Call) -> Call:
    """Every array with all leading axes, by views."""

    def full(array: np.ndarray | None, *last: int) -> np.ndarray | None:
        return array if array is None else np.broadcast_to(array, (*call.lead, *last))

    offset = call.causal_offset
    (length, width), (keys, value_width) = call.query.shape[-2:], call.value.shape[-2:]
    return call._replace(
        query=full(call.query, length, width),
        key=full(call.key, keys, width),
        value=full(call.value, keys, value_width),
        attn_mask=full(call.attn_mask, length, keys),
        key_mask=full(call.key_mask, 1, keys),
        causal_offset=offset if isinstance(offset, int) else full(offset, 1, 1),
    )


class _Room(NamedTuple):
    """What a tile may hold, so that two workers need less than 8 MiB."""

    scores: int
    copied: int
    """How much of each key and its value is copied, in numbers of four bytes."""


def _room(call: Call, backward: bool) -> _Room:
    """Fewer scores where they are wide, or where other arrays of their size stand beside them."""
    dtype = _working_dtype(call)
    beside = [call.attn_mask is not None, call.left is not None]
    beside += [backward, backward and call.softcap is not None]
    wide = dtype.itemsize // 4
    scores = _TILE >> ((1 + sum(beside)) * wide).bit_length() - 1
    copied = [rows for rows in (call.key, call.value) if backward or not _is_fit(rows, dtype)]
    return _Room(scores, wide * sum(rows.shape[-1] for rows in copied))


def _block_rows(call: Call, room: _Room) -> int:
    """Queries in a block: fewer where a window is narrow, since a block sees window + rows keys.

    Fewer also where a call worth several threads would have too few blocks, whatever the number of
    threads: a result depends on it in no bit.
    """
    rows, length = max(1, min(_QUERIES, room.scores // _KEYS)), call.query.shape[-2]
    if call.left is not None and call.right is not None:
        span = call.left + call.right + 1
        rows = min(rows, max(_QUERIES // 16, span // 4, 1))
    tasks = min(_TASKS, _threads_worth(math.prod(call.score_shape), call))
    while rows > _LEAST_QUERIES and math.prod(call.lead) * length < tasks * rows:
        rows //= 2
    return max(1, min(rows, length))


def _tile_keys(rows: int, room: _Room) -> int:
    keys = max(_KEYS, min(_MOST_KEYS, room.scores // rows))
    return max(1, min(keys, _COPIED // room.copied)) if room.copied else keys


def _tasks(call: Call, backward: bool = False) -> list[_Task]:
    """Cut a call, as ``_broadcast`` returns it, into tasks; those with most keys come first."""
    length, keys = call.score_shape[-2:]
    room = _room(call, backward)
    rows = _block_rows(call, room)
    norms = _largest_keys(call)
    tasks = []
    # What is copied of the heads of a group counts as much as scores, of which a tile holds fewer.
    width = max(rows, room.copied * _TILE // _COPIED)
    per_head = width * min(keys, _tile_keys(rows, room))
    for group in _groups(call, min(_GROUP, room.scores) // per_head):
        offset = call.causal_offset
        if not isinstance(offset, int):
            offset = int(_any_item(offset[group])[0])
        low, high = _band(call, offset)
        real = None if call.key_mask is None else _any_item(call.key_mask[group])
        begin, end = (0, keys) if real is None else _true_range(real)
        largest = float(norms[group].max())
        for start in range(0, length, rows):
            stop = min(start + rows, length)
            first, last = max(begin, start + low), min(end, stop + high)
            holes = None if real is None or real[first:last].all() else real
            band = start + low, start + high
            widest = _tile_keys(stop - start, room)
            tasks.append(_Task(group, start, stop, *band, first, last, widest, holes, largest))
    return sorted(tasks, key=lambda task: task.first - task.last)


def _groups(call: Call, most: int) -> Iterator[tuple[int | slice, ...]]:
    """Index the leading axes in groups of at most so many heads, which share their masks."""
    lead = call.lead
    pinned = max(_varying_axes(call.key_mask), _varying_axes(call.causal_offset))
    axis, heads = len(lead), 1
    while axis > pinned and heads * lead[axis - 1] <= most:
        axis -= 1
        heads *= lead[axis]
    if axis == pinned:
        yield from np.ndindex(lead[:axis])
        return
    step = max(1, most // heads)
    for outer in np.ndindex(lead[: axis - 1]):
        for start in range(0, lead[axis - 1], step):
            yield (*outer, slice(start, start + step))


def _varying_axes(array: np.ndarray | int | None) -> int:
    """Up to which leading axis the items differ."""
    if not isinstance(array, np.ndarray):
        return 0
    varying = [
        axis for axis in range(array.ndim - 2) if array.strides[axis] and array.shape[axis] > 1
    ]
    return max(varying, default=-1) + 1


def _any_item(array: np.ndarray) -> np.ndarray:
    """The last axis of an array that is constant over all others."""
    return array[(0,) * (array.ndim - 1)]


def _true_range(mask: np.ndarray) -> tuple[int, int]:
    """[first, last) of the True entries."""
    if not mask.any():
        return 0, 0
    return int(mask.argmax()), len(mask) - int(mask[::-1].argmax())


def _tiles(task: _Task) -> Iterator[_Tile]:
    """The keys of a task in tiles: wide ones, then steps down the staircase of the diagonal."""
    rows = task.stop - task.start
    start, last = task.first, task.last
    while start < last:
        if task.low > -_FAR // 2 and last - start <= task.widest:
            stop = last  # a narrow window is one strip
        elif start < task.high:
            stop = min(start + task.widest, last, task.high + _STAIR)
        else:
            stop = min(start + _STAIR, last)
        yield _tile(rows, start, stop, task.low, task.high)
        start = stop


def _tile(rows: int, start: int, stop: int, low: int, high: int) -> _Tile:
    """Keys [start, stop) against the rows of a block in which row r sees r + low … r + high."""
    first, last = max(0, start - high), min(rows, stop - low)
    edge = _edge(first, last, start, stop, low, high)
    return _Tile(slice(start, stop), slice(first, last), edge)


def _edge(first: int, last: int, start: int, stop: int, low: int, high: int) -> _Edge | None:
    """Where rows [first, last) do not see all keys [start, stop); None if they do."""
    top, bottom = first, last
    clear_first, clear_last = max(first, stop - 1 - high), min(last, start - low + 1)
    if clear_first == first and clear_last == last:
        return None
    if clear_last == last and clear_first < last:
        bottom = clear_first
    elif clear_first == first and clear_last > first:
        top = clear_last
    hides_left, hides_right = bottom - 1 + low > start, top + high < stop - 1
    left = start if hides_left else max(start, top + high + 1)
    right = stop if hides_right else min(stop, bottom - 1 + low)
    rows, keys, shift = bottom - top, right - left, top - left
    return _Edge(
        slice(top - first, bottom - first),
        slice(left - start, right - start),
        # Bounds beyond the part are all the same bound: equal edges then share one switch.
        max(low + shift, -rows),
        min(high + shift, keys),
    )


# --- forward --------------------------------------------------------------------------------------


class _Scratch:
    """A worker's buffers, by name, used again for each tile."""

    def __init__(self, call: Call):
        self.dtype = _working_dtype(call)
        # A mask is read fastest along its keys, everything else along the queries.
        self.order = "F" if call.attn_mask is None else "C"
        self._flat: dict[str, np.ndarray] = {}
        self._views: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        view = self._views.get((name, shape))
        if view is None:
            view = self._views[name, shape] = self._view(name, shape)
        return view

    def _view(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        size = math.prod(shape)
        flat = self._flat.get(name)
        if flat is None or flat.size < size:
            self._views.clear()  # of the buffer that goes, among others
            flat = self._flat[name] = np.empty(size, self.dtype)
        return flat[:size].reshape(shape)

    def scores(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tile indexed [query, key]."""
        if self.order == "C" or shape[-2] < _FEW_QUERIES:
            return self.array(name, shape)
        return _swap(self.array(name, (*shape[:-2], shape[-1], shape[-2])))


class _Softmax(NamedTuple):
    """Statistics of a block's rows, (…, rows, 1): weights are exp(score - top) / total."""

    top: np.ndarray
    total: np.ndarray
    careful: bool


class _Sums:
    """Running sums of a block: exponentials, and exponentials times values."""

    def __init__(self, call: Call, rows: tuple[int, ...], scratch: _Scratch):
        self._scratch = scratch
        self._is_empty = True
        self.total = scratch.array("total", (*rows, 1))
        self.output = scratch.array("output", (*rows, call.value.shape[-1]))

    def shrink(self, rows: slice, factor: np.ndarray) -> None:
        """Multiply what the rows have so far."""
        if not self._is_empty:
            self.total[..., rows, :] *= factor
            self.output[..., rows, :] *= factor

    def add(self, rows: slice, weights: np.ndarray, values: np.ndarray, product=np.matmul) -> None:
        ones = _ones(weights.shape[-1], weights.dtype)
        if self._is_empty and weights.shape[-2] == self.total.shape[-2]:
            np.matmul(weights, ones, out=self.total)
            product(weights, values, out=self.output)
        else:
            if self._is_empty:
                self._clear()
            self.total[..., rows, :] += np.matmul(weights, ones)
            added = self._scratch.array("added", (*weights.shape[:-1], values.shape[-1]))
            self.output[..., rows, :] += product(weights, values, out=added)
        self._is_empty = False

    def finish(self, top: np.ndarray, careful: bool) -> tuple[np.ndarray, _Softmax]:
        """Output and statistics; rows without an exponential divide zeros by a small number."""
        if self._is_empty:
            self._clear()
        np.maximum(self.total, _LIMITS[self._scratch.dtype][1], out=self.total)
        self.output /= self.total
        return self.output, _Softmax(top, self.total, careful)

    def _clear(self) -> None:
        self.total[...] = 0
        self.output[...] = 0


def _attend_tiled(call: Call) -> tuple[np.ndarray, np.ndarray | None]:
    call = _broadcast(call)
    output = np.empty(call.output_shape, call.query.dtype)
    weights = np.zeros(call.score_shape, call.query.dtype) if call.return_weights else None
    if not math.prod(call.score_shape):  # no query, or nothing to attend
        output[...] = 0
        return output, weights

    def work(task: _Task, scratch: _Scratch) -> None:
        rows = (*task.group, ..., slice(task.start, task.stop), slice(None))
        output[rows], softmax = _attend(call, task, scratch)
        if weights is not None:
            _write_weights(call, task, softmax, weights[rows], scratch)

    _run(work, [[task] for task in _tasks(call)], call)
    return output, weights


def _attend(call: Call, task: _Task, scratch: _Scratch) -> tuple[np.ndarray, _Softmax]:
    """Output and softmax statistics of one task, with care if need be."""
    query = _scaled_query(call, task, scratch)
    output = softmax = None
    if _is_bounded(call, task, query):
        output, softmax = _attend_bounded(call, task, query, scratch)
    if output is None or _may_have_vanished(output, softmax.total, task.last - task.first):
        output, softmax = _attend_running(call, task, query, scratch)
    if _is_finite(output) and _is_finite(softmax.total):
        return output, softmax
    return _attend_running(call, task, query, scratch, careful=True)


def _attend_bounded(
    call: Call, task: _Task, query: np.ndarray, scratch: _Scratch
) -> tuple[np.ndarray, _Softmax]:
    """Softmax without a maximum, for scores whose exponentials can neither overflow nor vanish."""
    sums = _Sums(call, query.shape[:-1], scratch)
    key, value = _rows(call.key, task, scratch), _rows(call.value, task, scratch)
    for tile, exclusions in _seen_tiles(call, task, scratch, bounded=True):
        weights = _scores(call, task, tile, query, key.of(tile), scratch)
        np.exp(weights, out=weights)
        for rows, keys, switch in exclusions:
            weights[..., rows, keys] *= switch
        sums.add(tile.rows, weights, value.of(tile))
    return sums.finish(np.zeros(sums.total.shape, scratch.dtype), careful=False)


def _attend_running(
    call: Call, task: _Task, query: np.ndarray, scratch: _Scratch, careful: bool = False
) -> tuple[np.ndarray, _Softmax]:
    """Softmax over all keys of a task without ever having all scores: the running form.

    When the maximum rises, everything summed so far shrinks by exp(old maximum - new maximum).
    """
    sums = _Sums(call, query.shape[:-1], scratch)
    top = np.full_like(sums.total, _LIMITS[scratch.dtype][0])
    product = np.matmul
    key, value = _rows(call.key, task, scratch), _rows(call.value, task, scratch)
    for tile, exclusions in _seen_tiles(call, task, scratch, careful=careful):
        scores = _scores(call, task, tile, query, key.of(tile), scratch, exclusions)
        old, new = top[..., tile.rows, :], scores.max(axis=-1, keepdims=True)
        np.maximum(old, new, out=new)
        scores -= new
        weights = np.exp(scores, out=scores)
        sums.shrink(tile.rows, np.exp(old - new))
        old[...] = new
        if careful:
            product = partial(_selected_product, allowed=_allowed(exclusions, weights.shape))
        sums.add(tile.rows, weights, value.of(tile), product)
    return sums.finish(top, careful)


def _write_weights(
    call: Call, task: _Task, softmax: _Softmax, weights: np.ndarray, scratch: _Scratch
) -> None:
    """One task's rows of the weights, from scores computed once more, into zeros."""
    query, keys = _scaled_query(call, task, scratch), _rows(call.key, task, scratch)
    for tile, exclusions in _seen_tiles(call, task, scratch, careful=softmax.careful):
        tile_weights = _scores(call, task, tile, query, keys.of(tile), scratch, exclusions)
        tile_weights -= softmax.top[..., tile.rows, :]
        np.exp(tile_weights, out=tile_weights)
        tile_weights /= softmax.total[..., tile.rows, :]
        if softmax.careful:
            tile_weights[~_allowed(exclusions, tile_weights.shape)] = 0
        weights[..., tile.rows, tile.keys] = tile_weights


def _scaled_query(call: Call, task: _Task, scratch: _Scratch) -> np.ndarray:
    """The block's queries times the scale, so that products with keys are scores."""
    block = call.query[task.group][..., task.start : task.stop, :]
    scaled = scratch.array("query", block.shape)
    return np.multiply(block, call.scale, out=scaled, dtype=scratch.dtype)


class _Rows(NamedTuple):
    """Keys or values of a task."""

    array: np.ndarray
    dtype: np.dtype
    fit: bool
    """Whether matrix products take them as they are."""

    def of(self, tile: _Tile) -> np.ndarray:
        rows = self.array[..., tile.keys, :]
        return rows if self.fit else np.ascontiguousarray(rows, self.dtype)


def _rows(array: np.ndarray, task: _Task, scratch: _Scratch) -> _Rows:
    array = _share(array[task.group], last=-2)
    return _Rows(array, scratch.dtype, _is_fit(array, scratch.dtype))


def _is_fit(array: np.ndarray, dtype: np.dtype) -> bool:
    """Whether BLAS takes the rows of an array: of the working dtype, one axis with unit stride."""
    (rows, width), (row, entry), size = array.shape[-2:], array.strides[-2:], array.itemsize
    by_rows = entry == size and row >= width * size
    by_columns = row == size and entry >= rows * size
    return array.dtype == dtype and (by_rows or by_columns)


def _share(array: np.ndarray, last: int | None = None) -> np.ndarray:
    """Broadcast axes as axes of one: heads that share a key go on sharing it."""
    index = tuple(slice(0, 1 if stride == 0 else None) for stride in array.strides[:last])
    return array[index]


def _scores(
    call: Call,
    task: _Task,
    tile: _Tile,
    query: np.ndarray,
    key: np.ndarray,
    scratch: _Scratch,
    exclusions: Sequence["_Exclusion"] = (),
    slope: np.ndarray | None = None,
) -> np.ndarray:
    """Scores of a tile, -inf where excluded; the softcap's slope goes to ``slope``."""
    query = query[..., tile.rows, :]
    scores = scratch.scores("scores", (*query.shape[:-1], key.shape[-2]))
    np.matmul(query, _swap(key), out=scores)
    if call.softcap is not None:
        _softcap(scores, call.softcap, slope)
    mask = _mask_tile(call, task, tile)
    if mask is not None and mask.dtype != bool:
        scores += _as_bias(mask, scratch.dtype)
    for rows, keys, switch in exclusions:
        part = scores[..., rows, keys]
        np.fmin(part, switch, out=part)
    return scores


class _Exclusion(NamedTuple):
    """Pairs of a tile that are switched off."""

    rows: slice
    keys: slice
    """Part of the tile; everywhere else every pair is allowed."""
    switch: np.ndarray
    """What ``_switch`` makes of allowed, (…, rows, keys) or broadcasting to that."""


def _seen_tiles(
    call: Call, task: _Task, scratch: _Scratch, bounded: bool = False, careful: bool = False
) -> Iterator[tuple[_Tile, list[_Exclusion]]]:
    """The tiles of a task in which something is allowed, and what is excluded from them."""
    for tile in _tiles(task):
        exclusions = _exclusions(call, task, tile, scratch, bounded, careful)
        if exclusions is not None:
            yield tile, exclusions


def _exclusions(
    call: Call,
    task: _Task,
    tile: _Tile,
    scratch: _Scratch,
    bounded: bool,
    careful: bool,
) -> list[_Exclusion] | None:
    """What must be excluded from a tile, piece by piece; None if that is all of it.

    The -inf of a float mask excludes by being added, and needs to be here only for careful work.
    """
    exclusions = []
    if tile.edge is task.real is call.attn_mask is None:
        return exclusions
    if tile.edge is not None:
        rows, keys, low, high = tile.edge
        size = rows.stop - rows.start, keys.stop - keys.start
        switch = _band_switch(*size, low, high, scratch.dtype, bounded, scratch.order)
        exclusions.append(_Exclusion(rows, keys, switch))
    mask = _mask_tile(call, task, tile)
    if mask is not None and mask.dtype != bool:
        if mask.max(initial=-np.inf) == -np.inf:
            return None
        mask = ~np.isneginf(mask) if careful else None
    for allowed in (mask, None if task.real is None else task.real[tile.keys]):
        if allowed is not None and not allowed.all():
            if not allowed.any():
                return None
            switch = _switch(allowed, scratch.dtype, bounded)
            exclusions.append(_Exclusion(slice(None), slice(None), switch))
    return exclusions


def _mask_tile(call: Call, task: _Task, tile: _Tile) -> np.ndarray | None:
    """What all heads, rows or keys share comes as axes of one, and is looked at once."""
    if call.attn_mask is None:
        return None
    block = call.attn_mask[task.group][..., task.start : task.stop, :]
    return _share(block[..., tile.rows, tile.keys])


# --- bounded scores -------------------------------------------------------------------------------


def _safe_score(dtype: np.dtype) -> float:
    """Up to which absolute score a row may be summed without a maximum, to the same accuracy.

    exp(score) then lies in 2^-40 ... 2^40 (float32), far from overflow for any sum of them.
    """
    return math.log(2) * (40 if dtype == np.float32 else 300)


def _is_bounded(call: Call, task: _Task, query: np.ndarray) -> bool:
    """Whether no score of a task can be beyond the safe one: |q . k| <= |q| |k|."""
    dtype = query.dtype
    bound = task.largest_key * _largest_norm(query, dtype)
    if call.softcap is not None and math.isfinite(bound):
        bound = min(bound, call.softcap)
    return bound <= _safe_score(dtype)  # False for NaN


def _may_have_vanished(output: np.ndarray, total: np.ndarray, keys: int) -> bool:
    """Whether values are so small that terms of a bounded sum lost bits that count in it.

    A weight may be 2^-40 there. A product below the smallest normal number keeps fewer bits, which
    cannot be seen in a sum that is `keys` times as large as that number. Rows without a key are
    zeros rightly: their total is the smallest number itself.
    """
    smallest = _LIMITS[output.dtype][1]
    sums = np.abs(output)
    least_total = math.exp(-_safe_score(output.dtype))
    if sums.min(initial=np.inf) * least_total >= keys * smallest:
        return False  # so it is almost always, and quickly told
    sums *= total
    return bool(((sums < keys * smallest) & (total > smallest)).any())


def _largest_keys(call: Call) -> np.ndarray:
    """The length of the longest key of every head, (*lead); inf where that is not worth knowing."""
    has_bias = call.attn_mask is not None and call.attn_mask.dtype != bool
    if has_bias or call.query.shape[-2] < _FEW_QUERIES:
        return np.broadcast_to(np.inf, call.lead)
    key, dtype = _share(call.key, last=-2), _working_dtype(call)
    norms = np.empty(key.shape[:-2])
    for index in np.ndindex(norms.shape):
        norms[index] = _largest_norm(key[index], dtype)
    return np.broadcast_to(norms, call.lead)


def _largest_norm(rows: np.ndarray, dtype: np.dtype) -> float:
    """The length of the longest row; not finite where an entry is not."""
    squares = np.einsum("...i,...i->...", rows, rows, dtype=dtype)
    return math.sqrt(squares.max(initial=0))


# --- workers --------------------------------------------------------------------------------------


def _threads_worth(pairs: int, call: Call) -> int:
    """How many threads are worth their start for so many pairs of a query and a key."""
    return pairs * _widths(call) // _WORK_PER_THREAD


def _run(work: Callable[[_Task, _Scratch], None], units: Iterable[list[_Task]], call: Call) -> None:
    """Work through units of tasks, each unit in order and on one thread."""
    queue = deque(units)
    pairs = sum((t.stop - t.start) * (t.last - t.first) for unit in queue for t in unit)
    workers = max(1, min(worker_count(), len(queue), _threads_worth(pairs, call)))
    errors = []

    def drain() -> None:
        scratch = _Scratch(call)
        with np.errstate(all="ignore"):
            while queue:
                try:
                    unit = queue.popleft()
                except IndexError:  # another worker was faster
                    return
                for task in unit:
                    work(task, scratch)

    def drain_in_thread() -> None:
        try:
            drain()
        except BaseException as error:
            queue.clear()
            errors.append(error)

    with one_blas_thread():
        threads = [threading.Thread(target=drain_in_thread) for _ in range(workers - 1)]
        try:
            for thread in threads:
                thread.start()
            drain()
        finally:  # after an error or an interrupt the others stop after their task
            queue.clear()
            for thread in threads:
                if thread.is_alive():  # an interrupt may have come before it was started
                    thread.join()
    if errors:
        raise errors[0]


# --- careful work, for values that are not finite -------------------------------------------------


def _allowed(exclusions: list[_Exclusion], shape: tuple[int, ...]) -> np.ndarray:
    """The exclusions of a tile as one boolean array."""
    allowed = np.ones(shape, bool)
    for exclusion in exclusions:
        allowed[..., exclusion.rows, exclusion.keys] &= exclusion.switch > 0
    return allowed


def _selected_product(
    left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None, *, allowed: np.ndarray
) -> np.ndarray:
    """``left @ right`` over allowed pairs alone: what stands elsewhere cannot matter, even NaN.

    A zero weight does not do, since 0 times NaN or inf is NaN. So rows of ``right`` that are not
    finite leave the product and are added one at a time, where they are allowed.
    """
    suspect = ~np.isfinite(right).all(axis=-1, keepdims=True)
    product = np.matmul(np.where(allowed, left, 0), np.where(suspect, 0, right), out=out)
    for j in np.flatnonzero(suspect.any(axis=tuple(range(suspect.ndim - 2)))):
        with_row = left[..., :, j, None] * np.where(suspect, right, 0)[..., j, None, :]
        product += np.where(allowed[..., :, j, None], with_row, 0)
    return product


# --- backward -------------------------------------------------------------------------------------


def gradients(call: Call, grad_output: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradients of query, key and value, each in the shape and dtype of its array in ``call``.

    With weights P, output O and its gradient dO: dV = Pᵀ dO, dP = dO Vᵀ,
    dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK = scale dSᵀ Q. P is recomputed tile by tile
    from the log-sum-exp of each row, so that no score matrix is kept.
    """
    plain = _split_groups(call) if call.groups > 1 else call
    grad_output = grad_output.reshape(plain.output_shape)
    with np.errstate(all="ignore"):
        results = _backward(plain, grad_output, careful=False)
        if not all(map(_is_finite, results)):
            results = _backward(plain, grad_output, careful=True)
    arrays = (call.query, call.key, call.value)
    return tuple(
        result.reshape(array.shape).astype(array.dtype, copy=False)
        for result, array in zip(results, arrays, strict=True)
    )


def _backward(call: Call, grad_output: np.ndarray, careful: bool) -> list[np.ndarray]:
    axes = len(call.lead) + 2
    sums = [
        np.zeros((1,) * (axes - array.ndim) + array.shape, _working_dtype(call))
        for array in (call.query, call.key, call.value)
    ]
    if math.prod(call.score_shape):
        call = _broadcast(call)
        units = _units(_tasks(call, backward=True), [total.shape for total in sums])

        def work(task: _Task, scratch: _Scratch) -> None:
            _backward_task(call, task, grad_output, sums, scratch, careful)

        _run(work, units, call)
    return sums


def _units(tasks: list[_Task], shapes: list[tuple[int, ...]]) -> list[list[_Task]]:
    """Tasks that add to the same rows of a gradient go to one worker."""
    units = defaultdict(list)
    for task in tasks:
        own = tuple(
            str(entry)
            for entry, *sizes in zip(task.group, *shapes, strict=False)
            if min(sizes) > 1  # along other axes some array is shared
        )
        units[own].append(task)
    return list(units.values())


def _backward_task(
    call: Call,
    task: _Task,
    grad_output: np.ndarray,
    sums: list[np.ndarray],
    scratch: _Scratch,
    careful: bool,
) -> None:
    """Add what one block of queries contributes to the gradients.

    What is subtracted from every row of a tile, the log-sum-exp from scores and rowsum(dO O) from
    dP, comes along as one more column of a matrix product.
    """
    grad_query, grad_key, grad_value = sums
    output, softmax = _attend(call, task, scratch)
    log_sum = softmax.top + np.log(softmax.total)
    block = grad_output[task.group][..., task.start : task.stop, :]
    mean = (block * output).sum(axis=-1, keepdims=True)
    grad_rows = _with_column(block, -mean, "grad_rows", scratch)
    query = _with_column(_scaled_query(call, task, scratch), -log_sum, "query_column", scratch)
    keys, values = _rows(call.key, task, scratch), _rows(call.value, task, scratch)
    for tile, exclusions in _seen_tiles(call, task, scratch, careful=careful):
        key = _with_column(keys.of(tile), 1, "key", scratch)
        value = _with_column(values.of(tile), 1, "value", scratch)
        rows, queries = grad_rows[..., tile.rows, :], query[..., tile.rows, :-1]
        shape = (*rows.shape[:-1], key.shape[-2])
        grad_scores = scratch.scores("grad_scores", shape)
        np.matmul(rows, _swap(value), out=grad_scores)
        if call.softcap is None:
            weights = _scores(call, task, tile, query, key, scratch, exclusions)
        else:  # scores are not linear in the query, so nothing comes along
            slope = scratch.scores("slope", shape)
            plain = query[..., :-1], key[..., :-1]
            weights = _scores(call, task, tile, *plain, scratch, exclusions, slope)
            weights -= log_sum[..., tile.rows, :]
            grad_scores *= slope
        np.exp(weights, out=weights)
        grad_scores *= weights
        product = product_by_key = np.matmul
        if careful:
            allowed = _allowed(exclusions, shape)
            product = partial(_selected_product, allowed=allowed)
            product_by_key = partial(_selected_product, allowed=_swap(allowed))
        _add(grad_value, task.group, tile.keys, product_by_key(_swap(weights), rows[..., :-1]))
        _add(grad_key, task.group, tile.keys, product_by_key(_swap(grad_scores), queries))
        added = product(grad_scores, key[..., :-1])
        added *= call.scale
        seen = slice(task.start + tile.rows.start, task.start + tile.rows.stop)
        _add(grad_query, task.group, seen, added)


def _with_column(
    rows: np.ndarray, column: np.ndarray | float, name: str, scratch: _Scratch
) -> np.ndarray:
    """A copy of rows with one more entry at the end of each."""
    wider = scratch.array(name, (*rows.shape[:-1], rows.shape[-1] + 1))
    wider[..., :-1] = rows
    wider[..., -1:] = column
    return wider


def _add(total: np.ndarray, group: tuple[int | slice, ...], rows: slice, added: np.ndarray) -> None:
    """Add to the rows of a gradient, summed over the axes that its array was broadcast along."""
    index = tuple(
        entry if size > 1 else 0 if isinstance(entry, int) else slice(None)
        for entry, size in zip(group, total.shape, strict=False)
    )
    target = total[index][..., rows, :]
    shared = tuple(axis for axis in range(target.ndim - 2) if target.shape[axis] == 1)
    target += added.sum(axis=shared, keepdims=True) if shared else added
