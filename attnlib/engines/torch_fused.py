"""The torch engine: PyTorch's fused attention kernels, on every call that can be put in their form.

``F.scaled_dot_product_attention`` is fast for 4-D inputs of one width, with no mask or a plain
causal one. This module brings other calls into that form by views, slices and padding, all of it
differentiable, and leaves the arithmetic to PyTorch:

1. ``_task``: four axes (N items, heads, length, width), half precision on the CPU in float32.
2. ``_solve``: on the CPU the masks of large calls are looked at. One that is all True is dropped,
   the causal one becomes a bound on positions, padding at the ends is cut off. On a GPU looking
   would mean waiting for it, so there the choice depends on shapes, flags and Python numbers.
3. ``_solve_positions``: queries that see nothing and keys that nobody sees are sliced away, so
   what they hold (NaN too) can't matter. Keys off in ``key_mask`` that can't be sliced become 0.
4. ``_attend`` chooses: one fused call, strips of queries, or the equation as it stands.

Only keys that ``attn_mask`` alone excludes behave as in PyTorch: NaN in them spreads.

``N`` items, ``Hq``/``Hkv`` heads, ``L`` queries, ``S`` keys, ``E`` width of query and key, ``Ev``
width of value, as everywhere.
"""

from collections.abc import Callable
from itertools import groupby
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from attnlib.engines._validate import Call

_HALVES = (torch.float16, torch.bfloat16)
# Queries per strip, measured on CPUs: with a window a strip should be narrow, as it computes
# (queries + window) keys a query; without one it should be wide, as all keys are read a strip.
_STRIP, _WIDE_STRIP, _GPU_STRIP = 64, 256, 1024
# From so many scores an item on it pays to look at what masks hold.
_MANY_SCORES = 1 << 14


class _Task(NamedTuple):
    """A call in four axes. Sizes of 1 in the masks broadcast."""

    query: Tensor
    """(N, Hq, L, E)"""
    key: Tensor
    """(N, Hkv, S, E)"""
    value: Tensor
    """(N, Hkv, S, Ev)"""
    attn_mask: Tensor | None
    """bool or float (1|N, 1|Hq, 1|L, 1|S)"""
    key_mask: Tensor | None
    """bool (1|N, 1, 1, S)"""
    offset: int | Tensor
    """int, or int64 (N, 1, 1, 1)"""
    left: int | None
    right: int | None
    scale: float
    softcap: float | None
    groups: int
    return_weights: bool


def attention(call: Call) -> tuple[Tensor, Tensor | None]:
    """Output and, where asked for, weights of a validated call."""
    if _is_fused_as_it_is(call):
        causal = call.right is not None
        output = fused_attention(
            call.query, call.key, call.value, is_causal=causal, scale=call.scale
        )
        return output, None
    output, weights = _solve(_task(call))
    output = output.to(call.query.dtype).reshape(call.output_shape)
    if not call.return_weights:
        return output, None
    return output, weights.to(call.query.dtype).reshape(call.score_shape)


def gradients(call: Call, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``(output * grad_output).sum()`` by query, key and value, from autograd."""
    with torch.inference_mode(False), torch.enable_grad():
        inputs = [_leaf(array) for array in (call.query, call.key, call.value)]
        query, key, value = inputs
        output, _ = attention(
            call._replace(query=query, key=key, value=value, return_weights=False)
        )
        return torch.autograd.grad(output, inputs, grad_output, materialize_grads=True)


def _leaf(tensor: Tensor) -> Tensor:
    tensor = tensor.clone() if tensor.is_inference() else tensor.detach()
    return tensor.requires_grad_()


def _is_fused_as_it_is(call: Call) -> bool:
    """Whether PyTorch runs this call fused and right without our help."""
    query, key, value = call.query, call.key, call.value
    L, S = query.shape[-2], key.shape[-2]
    return (
        call.attn_mask is None
        and call.key_mask is None
        and call.left is None
        and (call.right is None or (call.right == 0 and _is_zero(call.causal_offset) and S <= L))
        and call.softcap is None
        and not call.return_weights
        and query.ndim == 4
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and query.shape[-1] == value.shape[-1]
        and call.scale > 0
        and not (_on_cpu(query) and query.dtype in _HALVES)
        and prod(query.shape) > 0
        and S > 0
    )


def _is_zero(offset: int | Tensor) -> bool:
    return isinstance(offset, int) and offset == 0


# --- into four axes -------------------------------------------------------------------------------


def _task(call: Call) -> _Task:
    lead, groups = call.lead, call.groups
    # Axis 0 of a 3-D call is items, unless heads are grouped: then it is heads.
    items, Hq = (prod(lead[:-1]), lead[-1]) if len(lead) > 1 or groups > 1 else (prod(lead), 1)
    query, key, value = (_four_axes(x, lead, groups) for x in (call.query, call.key, call.value))
    if Hq == 0:
        groups, key, value = 1, key[:, :0], value[:, :0]
    elif key.shape[1] == value.shape[1] == 1:
        groups = Hq  # one key/value head for all is a group too, and needs no copies
    Hkv = Hq // groups
    query = query.expand(items, Hq, -1, -1)
    key, value = (x.expand(items, Hkv, -1, -1) for x in (key, value))
    attn_mask, key_mask, offset = (
        _four_axes(x, lead, call.groups) if isinstance(x, Tensor) else x
        for x in (call.attn_mask, call.key_mask, call.causal_offset)
    )
    query, key, value, attn_mask = _in_computing_dtype(query, key, value, attn_mask)
    scale = call.scale
    if scale <= 0:
        # Kernels scale late: 0 · -inf would be NaN at a masked place, a negative scale +inf.
        query, scale = query * scale, 1.0
    return _Task(
        query,
        key,
        value,
        attn_mask,
        key_mask,
        offset,
        call.left,
        call.right,
        scale,
        call.softcap,
        groups,
        call.return_weights,
    )


def _four_axes(x: Tensor, lead: tuple[int, ...], groups: int) -> Tensor:
    """``x``, which broadcasts to (*lead, ·, ·), with exactly one batch axis before heads."""
    rank = len(lead) + 2
    x = x[(None,) * (rank - x.ndim)]
    if rank == 2:
        return x[None, None]
    if rank == 3:
        return x[None] if groups > 1 else x[:, None]
    if rank == 4:
        return x
    if prod(x.shape[:-3]) == 1:
        return x.reshape(1, *x.shape[-3:])
    return x.expand(*lead[:-1], *x.shape[-3:]).reshape(prod(lead[:-1]), *x.shape[-3:])


def _in_computing_dtype(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """All of one dtype: float32 for half precision, where the kernel would not accumulate in it."""
    is_float_mask = attn_mask is not None and attn_mask.is_floating_point()
    wide_mask = is_float_mask and attn_mask.dtype != query.dtype
    if query.dtype in _HALVES and (_on_cpu(query) or wide_mask):
        query, key, value = query.float(), key.float(), value.float()
    if is_float_mask and attn_mask.dtype != query.dtype:
        attn_mask = _finite_stays_finite(attn_mask, query.dtype)
    return query, key, value, attn_mask


def _finite_stays_finite(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """``mask`` in ``dtype``; only -inf excludes, so a large number must not become -inf."""
    limits = torch.finfo(dtype)
    if limits.max >= torch.finfo(mask.dtype).max:
        return mask.to(dtype)
    return torch.where(mask.isinf(), mask, mask.clamp(limits.min, limits.max)).to(dtype)


# --- what masks hold, on the CPU only -------------------------------------------------------------


class _Facts(NamedTuple):
    """What the masks say about one item: its real keys are among ``start`` … ``stop - 1``."""

    start: int
    stop: int
    has_holes: bool
    offset: int


def _solve(task: _Task) -> tuple[Tensor, Tensor | None]:
    """Output and weights, in the computing dtype."""
    if not _pays_to_read(task):
        return _solve_positions(task)
    try:
        task = _read_attn_mask(task)
        facts = _facts_of_items(task)
    except RuntimeError:  # under vmap, or with fake tensors, there are no values to read
        return _solve_positions(task)
    if len(set(facts)) == 1:
        return _solve_alike(task, facts[0])
    parts, start = [], 0
    for fact, run in groupby(facts):
        stop = start + len(list(run))
        parts.append(_solve_alike(_items(task, slice(start, stop)), fact))
        start = stop
    outputs, weights = zip(*parts, strict=True)
    return torch.cat(outputs), torch.cat(weights) if task.return_weights else None


def _pays_to_read(task: _Task) -> bool:
    items, Hq, L, _ = task.query.shape
    has_values = any(isinstance(x, Tensor) for x in (task.attn_mask, task.key_mask, task.offset))
    is_large = Hq * L * task.key.shape[2] >= _MANY_SCORES
    return items > 0 and has_values and is_large and _may_read(task.query)


def _may_read(tensor: Tensor) -> bool:
    """Whether looking at values costs no waiting for a device, and breaks no compiled graph."""
    return _on_cpu(tensor) and not torch.compiler.is_compiling()


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.is_cpu


def _read_attn_mask(task: _Task) -> _Task:
    """Without a mask that is all True; with a bound on positions in place of a causal mask."""
    mask = task.attn_mask
    if mask is None or mask.dtype is not torch.bool:
        return task
    if bool(mask.all()):
        return task._replace(attn_mask=None)
    L, S = mask.shape[2:]
    if L == 1 or mask.numel() != L * S or _has_band(task):
        return task
    triangle = mask[0, 0]
    diagonal = int(triangle[0].sum()) - 1
    may_be_causal = bool(triangle[0, : diagonal + 1].all())  # settles nearly every other mask
    if may_be_causal and torch.equal(triangle, torch.ones_like(triangle).tril(diagonal)):
        return task._replace(attn_mask=None, offset=diagonal, right=0)
    return task


def _facts_of_items(task: _Task) -> list[_Facts]:
    items, S = task.query.shape[0], task.key.shape[2]
    offsets = task.offset.flatten().tolist() if isinstance(task.offset, Tensor) else [task.offset]
    spans = [(0, S, False)] if task.key_mask is None or S == 0 else _spans(task.key_mask[:, 0, 0])
    offsets, spans = (facts if len(facts) == items else facts * items for facts in (offsets, spans))
    return [_Facts(*span, offset) for span, offset in zip(spans, offsets, strict=True)]


def _spans(key_mask: Tensor) -> list[tuple[int, int, bool]]:
    """For each row (N, S): first real key, one past the last, whether some between are not real."""
    stops = (torch.arange(1, key_mask.shape[1] + 1) * key_mask).amax(1)
    starts = key_mask.int().argmax(1)  # without a real key both are 0
    holes = key_mask.sum(1) < stops - starts
    return list(zip(starts.tolist(), stops.tolist(), holes.tolist(), strict=True))


def _solve_alike(task: _Task, facts: _Facts) -> tuple[Tensor, Tensor | None]:
    """All items have the same facts: one offset, and padding that can be cut off."""
    task = task._replace(offset=facts.offset, key_mask=task.key_mask if facts.has_holes else None)
    L = task.query.shape[2]
    return _solve_part(task, slice(0, L), slice(facts.start, facts.stop), _solve_positions)


# --- what positions allow -------------------------------------------------------------------------


def _solve_positions(task: _Task) -> tuple[Tensor, Tensor | None]:
    """Cut off queries that see nothing and keys that nobody sees; zero keys that are off."""
    if isinstance(task.offset, Tensor):
        task = _offsets_as_mask(task)
    return _solve_part(task, *_visible(task), _solve_visible)


def _solve_visible(task: _Task) -> tuple[Tensor, Tensor | None]:
    """Attend, while keys that are off cannot matter, whatever they hold."""
    task = _without_idle_bounds(task)
    if task.key_mask is None:
        return _attend(task)
    if not _needs_gradient(task):
        # Copying all keys and values takes longer than attending to them, and NaN or inf where a
        # weight is 0 shows in the output: so attend first and look, where looking is free.
        result = _attend(task)
        if _is_seen_to_be_finite(result[0]):
            return result
    is_real = task.key_mask.mT
    key, value = (x.masked_fill(~is_real, 0) for x in (task.key, task.value))
    return _attend(task._replace(key=key, value=value))


def _needs_gradient(task: _Task) -> bool:
    return torch.is_grad_enabled() and any(
        x is not None and x.requires_grad
        for x in (task.query, task.key, task.value, task.attn_mask)
    )


def _is_seen_to_be_finite(tensor: Tensor) -> bool:
    try:
        return _may_read(tensor) and bool(tensor.isfinite().all())
    except RuntimeError:  # under vmap, or with fake tensors, there are no values to read
        return False


def _solve_part(
    task: _Task, rows: slice, keys: slice, solve: Callable[[_Task], tuple[Tensor, Tensor | None]]
) -> tuple[Tensor, Tensor | None]:
    """Solve for some queries and keys; what is cut off gets zeros."""
    L, S = task.query.shape[2], task.key.shape[2]
    if (rows, keys) == (slice(0, L), slice(0, S)):
        return solve(task)
    output, weights = solve(_cut(task, rows, keys))
    above, below = rows.start, L - rows.stop
    if above or below:
        output = pad(output, (0, 0, above, below))
    if weights is not None:
        weights = pad(weights, (keys.start, S - keys.stop, above, below))
    return output, weights


def _has_band(task: _Task) -> bool:
    return task.left is not None or task.right is not None


def _visible(task: _Task) -> tuple[slice, slice]:
    """The queries that see a key, and the keys that they see. Both are without gaps."""
    L, S, offset = task.query.shape[2], task.key.shape[2], task.offset
    first_row, end_row, first_key, end_key = 0, L, 0, S
    if task.right is not None:
        first_row = max(0, -(offset + task.right))
    if task.left is not None:
        end_row = min(L, S - offset + task.left)
    if first_row >= end_row:
        return slice(0, 0), slice(0, 0)
    if task.left is not None:
        first_key = max(0, first_row + offset - task.left)
    if task.right is not None:
        end_key = min(S, end_row + offset + task.right)
    return slice(first_row, end_row), slice(first_key, end_key)


def _without_idle_bounds(task: _Task) -> _Task:
    """Without a bound that even the query it binds most does not feel."""
    L, S = task.query.shape[2], task.key.shape[2]
    left, right = task.left, task.right
    if right is not None and task.offset + right >= S - 1:
        right = None
    if left is not None and L - 1 + task.offset - left <= 0:
        left = None
    return task._replace(left=left, right=right)


def _offsets_as_mask(task: _Task) -> _Task:
    """One offset an item, values unread: the band becomes a mask, unseen keys are switched off."""
    L, S, device = task.query.shape[2], task.key.shape[2], task.query.device
    position = torch.arange(L, device=device)[:, None] + task.offset
    distance = torch.arange(S, device=device) - position
    visible = torch.ones_like(distance, dtype=torch.bool)
    if task.left is not None:
        visible = visible & (distance >= -task.left)
    if task.right is not None:
        visible = visible & (distance <= task.right)
    is_seen = visible.any(dim=2, keepdim=True)
    return task._replace(
        attn_mask=_both(task.attn_mask, visible),
        key_mask=is_seen if task.key_mask is None else task.key_mask & is_seen,
        offset=0,
        left=None,
        right=None,
    )


# --- the choice -----------------------------------------------------------------------------------


def _attend(task: _Task) -> tuple[Tensor, Tensor | None]:
    """Choose by what the call is."""
    has_mask = task.attn_mask is not None or task.key_mask is not None
    if task.return_weights or _is_empty(task):
        return _by_equation(task)
    if task.softcap is not None:
        return _in_strips(task, _by_equation)
    if not _has_band(task) or (_is_top_left(task) and not has_mask):
        return _fused(task)
    return _in_strips(task, _fused)


def _is_empty(task: _Task) -> bool:
    return 0 in (*task.query.shape, *task.key.shape, *task.value.shape)


def _is_top_left(task: _Task) -> bool:
    """Whether what remains is PyTorch's ``is_causal``: query 0 sees key 0, and so on."""
    return task.left is None and task.right is not None and task.offset + task.right == 0


def _fused(task: _Task) -> tuple[Tensor, None]:
    """One call of PyTorch's function, put so that it can run one of its fused kernels."""
    query, key, value, groups = task.query, task.key, task.value, task.groups
    items, Hq, L, E = query.shape
    Ev = value.shape[-1]
    mask = None
    is_causal = _is_top_left(task) and task.attn_mask is None and task.key_mask is None
    if not is_causal:
        mask = _pair_mask(task)
    if groups > 1 and not is_causal and (mask is None or mask.shape[1] == mask.shape[2] == 1):
        # All queries see the same keys: a group's heads are as good as more queries of one head.
        query, groups = query.reshape(items, Hq // groups, groups * L, E), 1
    elif groups > 1 and not _on_cpu(query):
        # Kernels for groups are picky on a GPU; without one PyTorch would build all scores.
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        groups = 1
    if Ev != E and _on_cpu(query):
        width = max(E, Ev)  # zeros add nothing to q·k, and columns of zeros are cut off again
        query, key, value = (pad(x, (0, width - x.shape[-1])) for x in (query, key, value))
    blind = None
    if mask is not None and not _on_cpu(query):
        mask, blind = _let_blind_rows_see(mask)
    output = fused_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=is_causal,
        scale=task.scale,
        enable_gqa=groups > 1,
    )
    if output.shape[-1] > Ev:
        output = output[..., :Ev]
    if blind is not None:
        output = output.masked_fill(blind, 0)
    return output.reshape(items, Hq, L, Ev), None


def _let_blind_rows_see(mask: Tensor) -> tuple[Tensor, Tensor]:
    """A mask without fully masked rows, and those rows; kernels differ in what they make of them.

    On the CPU PyTorch gives zeros, and zero gradients.
    """
    if mask.dtype is torch.bool:
        blind = ~mask.any(dim=-1, keepdim=True)
        return mask | blind, blind
    blind = (mask == -torch.inf).all(dim=-1, keepdim=True)
    return mask.masked_fill(blind, 0), blind


def _in_strips(
    task: _Task, kernel: Callable[[_Task], tuple[Tensor, Tensor | None]]
) -> tuple[Tensor, None]:
    """A strip of queries at a time, on the keys that it sees: no mask larger than a strip."""
    L, S = task.query.shape[2], task.key.shape[2]
    size = _GPU_STRIP if not _on_cpu(task.query) else _WIDE_STRIP if task.left is None else _STRIP
    outputs = []
    for start in range(0, L, size):
        strip = _cut(task, slice(start, min(start + size, L)), slice(0, S))
        strip = _without_idle_bounds(_cut(strip, *_visible(strip)))
        outputs.append(kernel(strip)[0])
    return torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0], None


def _by_equation(task: _Task) -> tuple[Tensor, Tensor]:
    """Softmax(cap(Q Kᵀ · scale) + mask) V as it stands, all scores in memory."""
    query, key, value = task.query, task.key, task.value
    if query.dtype in _HALVES:  # plain operations would round every intermediate result
        output, weights = _by_equation(
            task._replace(query=query.float(), key=key.float(), value=value.float())
        )
        return output.to(query.dtype), weights.to(query.dtype)
    items, Hq, L, E = query.shape
    Hkv, S, Ev = value.shape[1:]
    grouped = query.reshape(items, Hkv, task.groups * L, E)
    scores = ((grouped * task.scale) @ key.mT).reshape(items, Hq, L, S)
    if task.softcap is not None:
        scores = task.softcap * torch.tanh(scores / task.softcap)
    weights = _softmax(scores, _pair_mask(task))
    output = weights.reshape(items, Hkv, task.groups * L, S) @ value
    return output.reshape(items, Hq, L, Ev), weights


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax of masked scores; a row without any score above -inf gives zeros."""
    if mask is not None and mask.dtype is torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        # By selection: an infinite or NaN score at an excluded place must not come through.
        scores = torch.where(mask == -torch.inf, -torch.inf, scores + mask)
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(dim=-1).masked_fill(blind, 0)


# --- pieces ---------------------------------------------------------------------------------------


def _pair_mask(task: _Task) -> Tensor | None:
    """All that excludes pairs, and a float mask, as one mask that broadcasts to the scores."""
    visible = _band_mask(task) if _has_band(task) else None
    if task.key_mask is not None:
        visible = task.key_mask if visible is None else visible & task.key_mask
    return task.attn_mask if visible is None else _both(task.attn_mask, visible)


def _both(attn_mask: Tensor | None, visible: Tensor) -> Tensor:
    """``attn_mask``, with what is not ``visible`` excluded too."""
    if attn_mask is None:
        return visible
    if attn_mask.dtype is torch.bool:
        return attn_mask & visible
    return torch.where(visible, attn_mask, -torch.inf)


def _band_mask(task: _Task) -> Tensor:
    """bool (L, S): which keys the positions of the queries allow."""
    L, S = task.query.shape[2], task.key.shape[2]
    visible = torch.ones(1, 1, L, S, dtype=torch.bool, device=task.query.device)
    if task.right is not None:
        visible = visible.tril(task.offset + task.right)
    if task.left is not None:
        visible = visible.triu(task.offset - task.left)
    return visible


def _cut(task: _Task, rows: slice, keys: slice) -> _Task:
    """The task for some of its queries and keys."""
    return task._replace(
        query=task.query[:, :, rows],
        key=task.key[:, :, keys],
        value=task.value[:, :, keys],
        attn_mask=_cut_mask(task.attn_mask, rows, keys),
        key_mask=_cut_mask(task.key_mask, rows, keys),
        offset=task.offset + rows.start - keys.start,
    )


def _cut_mask(mask: Tensor | None, rows: slice, keys: slice) -> Tensor | None:
    """Axes of size 1 broadcast, so they stay."""
    if mask is None:
        return None
    mask = mask[:, :, rows] if mask.shape[2] > 1 else mask
    return mask[..., keys] if mask.shape[3] > 1 else mask


def _items(task: _Task, run: slice) -> _Task:
    """The task for some of its items."""
    attn_mask, key_mask, offset = (
        x[run] if isinstance(x, Tensor) and x.shape[0] > 1 else x
        for x in (task.attn_mask, task.key_mask, task.offset)
    )
    return task._replace(
        query=task.query[run],
        key=task.key[run],
        value=task.value[run],
        attn_mask=attn_mask,
        key_mask=key_mask,
        offset=offset,
    )
