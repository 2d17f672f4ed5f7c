"""The door of ``scaled_dot_product_attention``: every check, once, for both kinds of arrays.

``validate`` raises or returns one immutable ``Call``, in which defaults are filled in, causal and
window are one band, and every mask broadcasts against the scores. The engines take it as it is
and never raise. Nothing here imports torch: a tensor can only arrive if the caller has done so.

Axis letters, here and in every engine: ``B`` batch, ``Hq``/``Hkv`` heads, ``L`` queries, ``S``
keys, ``E`` width of query and key, ``Ev`` width of value.
"""

import math
import numbers
import operator
import sys
from typing import Any, NamedTuple

import numpy as np

# By name, so that torch need not be there.
_FLOATS = {
    "numpy": ("float16", "float32", "float64"),
    "torch": ("torch.float16", "torch.bfloat16", "torch.float32", "torch.float64"),
}
_FAR = 1 << 50  # positions beyond any array; farther ones mean the same and might overflow
_NATIVE_FLOATS = frozenset(np.dtype(name) for name in _FLOATS["numpy"])


class Call(NamedTuple):
    """One validated attention call. Arrays are all of one kind, on one device.

    ``batch`` below is every axis before the last three of the output, or axis 0 of a 3-D call.
    """

    query: Any
    """(…, Hq, L, E); a single query (E,) has become (1, E)."""
    key: Any
    """(…, Hkv, S, E), not repeated for groups, not broadcast."""
    value: Any
    """(…, Hkv, S, Ev), likewise."""
    attn_mask: Any
    """None, or bool (True = may attend) or float (added), broadcasts to ``score_shape``."""
    key_mask: Any
    """None, or bool (True = real token), (S,) or (*batch, 1, 1, S): broadcasts to the scores."""
    causal_offset: Any
    """int, or int64 array that broadcasts to the scores, (*batch, 1, 1, 1): query i stands at
    i + causal_offset."""
    left: int | None
    """Key j is visible only if j - (i + causal_offset) >= -left; None: no bound."""
    right: int | None
    """Key j is visible only if j - (i + causal_offset) <= right; causal is right = 0."""
    scale: float
    softcap: float | None
    groups: int
    """Query head h uses key/value head h // groups; 1 where heads follow NumPy's broadcasting."""
    lead: tuple[int, ...]
    """The broadcast axes before length, heads included: output is (*lead, L, Ev)."""
    return_weights: bool
    single_query: bool
    """The query came as (E,): the caller expects output (Ev,) and weights (S,)."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(…, Hq, L, Ev)."""
        return (*self.lead, self.query.shape[-2], self.value.shape[-1])

    @property
    def score_shape(self) -> tuple[int, ...]:
        """(…, Hq, L, S)."""
        return (*self.lead, self.query.shape[-2], self.key.shape[-2])

    @property
    def has_band(self) -> bool:
        """Whether positions restrict what a query sees (causal, window)."""
        return self.left is not None or self.right is not None


def validate(
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
) -> Call:
    """Check one call of ``scaled_dot_product_attention`` and put it into the engines' form."""
    if not _are_plain_arrays(query, key, value):
        query, key, value = _arrays_of_one_kind(query, key, value)
    if not (is_causal.__class__ is enable_gqa.__class__ is return_weights.__class__ is bool):
        _check_flags(is_causal=is_causal, enable_gqa=enable_gqa, return_weights=return_weights)
    single_query = query.ndim == 1
    if single_query:
        _check_single_query(query, key, value, is_causal, window)
        query = query[None]
    lead, groups = _check_shapes(query, key, value, enable_gqa)
    left, right = (None, 0 if is_causal else None) if window is None else _band(window, is_causal)
    # Below, each check costs something only where its argument was given.
    if attn_mask is not None:
        scores = (*lead, query.shape[-2], key.shape[-2])
        attn_mask = _checked_attn_mask(attn_mask, query, scores[-1:] if single_query else scores)
    if key_mask is not None:
        key_mask = _checked_key_mask(key_mask, query, key.shape[-2], lead, enable_gqa)
    if causal_offset.__class__ is not int or causal_offset:
        positions_matter = is_causal or window is not None
        causal_offset = _checked_offset(causal_offset, query, lead, enable_gqa, positions_matter)
    if softcap is not None:
        softcap = _checked_softcap(softcap)
    if scale is None:
        width = query.shape[-1]
        scale = 1 / math.sqrt(width) if width else 1.0
    else:
        scale = _finite_float("scale", scale)
    return Call(
        query,
        key,
        value,
        attn_mask,
        key_mask,
        causal_offset,
        left,
        right,
        scale,
        softcap,
        groups,
        lead,
        return_weights,
        single_query,
    )


def checked_grad_output(call: Call, grad_output: Any) -> Any:
    """The gradient of a call's output, with the axes that ``call.output_shape`` has."""
    _check_same_kind("grad_output", grad_output, call.query)
    if grad_output.dtype != call.query.dtype:
        raise ValueError(
            f"grad_output must have the dtype of the output, {call.query.dtype}, "
            f"got {grad_output.dtype}"
        )
    wanted = call.output_shape[1:] if call.single_query else call.output_shape
    if tuple(grad_output.shape) != tuple(wanted):
        letters = (
            "(Ev,)" if len(wanted) == 1 else "(…, Hq, L, Ev)" if len(wanted) > 2 else "(L, Ev)"
        )
        raise ValueError(
            f"grad_output must have the shape of the output, {letters} = {tuple(wanted)}, "
            f"got {tuple(grad_output.shape)}"
        )
    return grad_output[None] if call.single_query else grad_output


# --- kinds and dtypes -----------------------------------------------------------------------------


def array_kind(array: Any) -> str | None:
    """``"numpy"``, ``"torch"``, or None for anything else; torch is looked up, never imported."""
    if isinstance(array, np.ndarray):
        return "numpy"
    torch = sys.modules.get("torch")
    return "torch" if torch is not None and isinstance(array, torch.Tensor) else None


def describe(array: Any) -> str:
    """What an argument is, in the words of an error message."""
    kind = array_kind(array)
    if kind is None:
        return type(array).__name__
    return {"numpy": "a NumPy array", "torch": "a torch tensor"}[kind]


def _are_plain_arrays(query: Any, key: Any, value: Any) -> bool:
    """The common call, told in a few comparisons: nothing to convert, nothing to refuse."""
    kind = query.__class__
    if not kind is key.__class__ is value.__class__:
        return False
    if kind is np.ndarray:
        return query.dtype == key.dtype == value.dtype and query.dtype in _NATIVE_FLOATS
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and kind is torch.Tensor
        and query.dtype == key.dtype == value.dtype
        and query.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        and query.device == key.device == value.device
    )


def _arrays_of_one_kind(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    named = {"query": query, "key": key, "value": value}
    for name, array in named.items():
        if array_kind(array) is None:
            raise TypeError(
                f"{name} must be a NumPy array or a torch tensor of floats, got {describe(array)}; "
                f"convert it, for example np.asarray({name}, dtype=float)"
            )
    if len({array_kind(array) for array in named.values()}) > 1:
        came = ", ".join(f"{name} is {describe(array)}" for name, array in named.items())
        raise TypeError(
            f"query, key and value must be of one kind: {came}; "
            "convert with torch.from_numpy(array) or tensor.numpy()"
        )
    named = {name: _native(name, array) for name, array in named.items()}
    _check_float_dtypes(**named)
    _check_devices(**named)
    return tuple(named.values())


def _native(name: str, array: Any) -> Any:
    """A plain ndarray in the machine's byte order; tensors pass through."""
    if array_kind(array) == "torch":
        return array
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            f"{name} must be a plain array, got a masked array; "
            f"pass {name}.data, and key_mask or attn_mask for what may be attended"
        )
    return np.asarray(array, dtype=array.dtype.newbyteorder("="))


def _check_float_dtypes(query: Any, key: Any, value: Any) -> None:
    named = {"query": query, "key": key, "value": value}
    allowed = _FLOATS[array_kind(query)]
    for name, array in named.items():
        if str(array.dtype) not in allowed:
            cast = ".astype(float)" if allowed is _FLOATS["numpy"] else ".float()"
            raise TypeError(
                f"{name} must have one of the dtypes {', '.join(allowed)}, got {array.dtype}; "
                f"{_dtype_advice(array, name + cast)}"
            )
    if not query.dtype == key.dtype == value.dtype:
        came = ", ".join(f"{name} is {array.dtype}" for name, array in named.items())
        raise ValueError(f"query, key and value must share one dtype: {came}")


def _dtype_advice(array: Any, cast: str) -> str:
    if _dtype_letter(array) == "c":
        return "attention is defined for real numbers, pass the real or the imaginary part"
    return f"convert it with {cast}"


def _dtype_letter(array: Any) -> str:
    """``b`` bool, ``f`` float, ``c`` complex, ``i`` any integer, ``O`` anything else."""
    if array_kind(array) == "numpy":
        return {"u": "i"}.get(array.dtype.kind, array.dtype.kind)
    if array.dtype.is_floating_point:
        return "f"
    if array.dtype.is_complex:
        return "c"
    return "b" if str(array.dtype) == "torch.bool" else "i"


def _check_devices(**named: Any) -> None:
    if len({getattr(array, "device", None) for array in named.values()}) > 1:
        came = ", ".join(f"{name} is on {array.device}" for name, array in named.items())
        raise ValueError(f"{' and '.join(named)} must be on one device: {came}")


def _check_same_kind(name: str, array: Any, query: Any) -> None:
    """A mask or an offset must be an array like query, and live where query lives."""
    if array_kind(array) != array_kind(query):
        raise TypeError(
            f"{name} must be {describe(query)} as query is, got {describe(array)}; "
            "convert with torch.from_numpy(array), tensor.numpy() or np.asarray(list)"
        )
    _check_devices(query=query, **{name: array})


def _check_flags(**flags: Any) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name} must be True or False, got {describe(flag)}")


# --- shapes ---------------------------------------------------------------------------------------


def _check_single_query(query: Any, key: Any, value: Any, is_causal: bool, window: Any) -> None:
    for name, array, letters in (("key", key, "(S, E)"), ("value", value, "(S, Ev)")):
        if array.ndim != 2:
            raise ValueError(
                f"{name} must have shape {letters} for a single query (E,) = "
                f"{tuple(query.shape)}, got {tuple(array.shape)}"
            )
    for name, given in (("is_causal", is_causal), ("window", window is not None)):
        if given:
            raise ValueError(
                f"{name} needs a query with a position, and a single query (E,) = "
                f"{tuple(query.shape)} has none: slice the keys it may see, "
                "or pass a (1, E) query with causal_offset=i"
            )


def _check_shapes(
    query: Any, key: Any, value: Any, enable_gqa: bool
) -> tuple[tuple[int, ...], int]:
    """The axes before length, (…, Hq), and how many query heads share a key/value head."""
    q_shape, k_shape, v_shape = query.shape, key.shape, value.shape
    if len(q_shape) < 2 or len(k_shape) < 2 or len(v_shape) < 2:
        _raise_too_few_axes(query=query, key=key, value=value)
    if k_shape[-1] != q_shape[-1]:
        raise ValueError(
            f"key must have shape (…, Hkv, S, E) with E = {q_shape[-1]} as query "
            f"{tuple(q_shape)} has, got {tuple(k_shape)}"
        )
    if v_shape[-2] != k_shape[-2]:
        raise ValueError(
            f"value must have shape (…, Hkv, S, Ev) with S = {k_shape[-2]} as key "
            f"{tuple(k_shape)} has, got {tuple(v_shape)}"
        )
    if enable_gqa:
        return _grouped_lead(query, key, value)
    lead = q_shape[:-2]
    if not lead == k_shape[:-2] == v_shape[:-2]:
        lead = _broadcast_lead(query, key, value, last=-2)
    return tuple(lead), 1


def _raise_too_few_axes(**named: Any) -> None:
    letters = {"query": "(…, Hq, L, E)", "key": "(…, Hkv, S, E)", "value": "(…, Hkv, S, Ev)"}
    name = next(name for name, array in named.items() if array.ndim < 2)
    single = " or, for a single query, (E,)" if name == "query" else ""
    raise ValueError(
        f"{name} must have shape {letters[name]} with at least 2 axes{single}, "
        f"got {tuple(named[name].shape)}"
    )


def _grouped_lead(query: Any, key: Any, value: Any) -> tuple[tuple[int, ...], int]:
    for name, array in (("query", query), ("key", key), ("value", value)):
        if array.ndim < 3:
            raise ValueError(
                f"{name} must have a head axis with enable_gqa, (…, heads, length, width), "
                f"got {tuple(array.shape)}"
            )
    query_heads, key_heads, value_heads = query.shape[-3], key.shape[-3], value.shape[-3]
    if value_heads != key_heads:
        raise ValueError(
            f"value must have shape (…, Hkv, S, Ev) with Hkv = {key_heads} heads as key "
            f"{tuple(key.shape)} has, got {tuple(value.shape)}"
        )
    if query_heads % key_heads if key_heads else query_heads:
        raise ValueError(
            f"key must have shape (…, Hkv, S, E) with Hkv a divisor of Hq = {query_heads} "
            f"with enable_gqa, got Hkv = {key_heads} in {tuple(key.shape)}"
        )
    batch = _broadcast_lead(query, key, value, last=-3)
    return (*batch, query_heads), query_heads // key_heads if key_heads else 1


def _broadcast_lead(query: Any, key: Any, value: Any, last: int) -> tuple[int, ...]:
    """NumPy's broadcasting of the axes before ``last``."""
    shapes = [tuple(array.shape[:last]) for array in (query, key, value)]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        advice = ""
        if last == -2 and query.ndim > 2 and key.ndim > 2:
            advice = "; if query heads share key/value heads, pass enable_gqa=True"
        raise ValueError(
            "query, key and value must have axes before length that broadcast, got "
            f"query (…, Hq, L, E) = {tuple(query.shape)}, key (…, Hkv, S, E) = "
            f"{tuple(key.shape)}, value (…, Hkv, S, Ev) = {tuple(value.shape)}{advice}"
        ) from None


# --- masks, positions, numbers --------------------------------------------------------------------


def _checked_attn_mask(mask: Any, query: Any, scores: tuple[int, ...]) -> Any:
    _check_same_kind("attn_mask", mask, query)
    if _dtype_letter(mask) not in "bf":
        raise TypeError(
            "attn_mask must be bool (True = may attend) or float (added to the scores), "
            f"got {mask.dtype}; for 0 and 1, pass {_as_bool('attn_mask', mask)}"
        )
    shape = tuple(mask.shape)
    aligned = zip(reversed(shape), reversed(scores), strict=False)
    if len(shape) > len(scores) or any(size not in (1, wanted) for size, wanted in aligned):
        letters = "(S,)" if len(scores) == 1 else "(…, Hq, L, S)" if len(scores) > 2 else "(L, S)"
        raise ValueError(
            f"attn_mask must broadcast to the scores, {letters} = {scores}, got {shape}; "
            "a mask of real and padded keys, one row per item, is key_mask"
        )
    return mask if shape else mask.reshape(1)  # engines look at axes


def _as_bool(name: str, mask: Any) -> str:
    return f"{name}.astype(bool)" if array_kind(mask) == "numpy" else f"{name}.bool()"


def _batch(lead: tuple[int, ...], enable_gqa: bool) -> tuple[int, ...]:
    """The axes that per-item masks and offsets have: all before heads, or axis 0 of a 3-D call."""
    return lead[:-1] if enable_gqa or len(lead) > 1 else lead


def _shape_advice(lead: tuple[int, ...], enable_gqa: bool) -> str:
    if enable_gqa and len(lead) == 1:
        return "; with enable_gqa axis 0 of a 3-D call is heads: add a batch axis"
    return ""


def _checked_key_mask(
    mask: Any, query: Any, keys: int, lead: tuple[int, ...], enable_gqa: bool
) -> Any:
    _check_same_kind("key_mask", mask, query)
    if _dtype_letter(mask) != "b":
        raise TypeError(
            f"key_mask must be bool (True = real token), got {mask.dtype}; "
            f"for 0 and 1, pass {_as_bool('key_mask', mask)}"
        )
    batch = _batch(lead, enable_gqa)
    shape = tuple(mask.shape)
    if shape == (keys,):
        return mask
    if not batch or shape != (*batch, keys):
        raise ValueError(
            f"key_mask must have shape (S,) = {(keys,)}"
            + (f" or (*batch, S) = {(*batch, keys)}" if batch else "")
            + f", got {shape}{_shape_advice(lead, enable_gqa)}"
        )
    return mask.reshape(*batch, *(1,) * (len(lead) - len(batch)), 1, keys)


def _checked_offset(
    offset: Any, query: Any, lead: tuple[int, ...], enable_gqa: bool, positions_matter: bool
) -> Any:
    batch = _batch(lead, enable_gqa)
    if array_kind(offset) is None:
        offset = _integer("causal_offset", offset)
    else:
        _check_same_kind("causal_offset", offset, query)
        if _dtype_letter(offset) != "i":
            raise TypeError(f"causal_offset must be integers, got {offset.dtype}")
        if tuple(offset.shape) not in ((), batch):
            raise ValueError(
                "causal_offset must be an int"
                + (f" or integers of shape (*batch) = {batch}" if batch else "")
                + f", got shape {tuple(offset.shape)}{_shape_advice(lead, enable_gqa)}"
            )
        offset = offset.astype(np.int64) if array_kind(offset) == "numpy" else offset.long()
        offset = offset.clip(-_FAR, _FAR)
        ones = len(lead) - offset.ndim + 2
        offset = offset.reshape(*offset.shape, *(1,) * ones)
    # An array counts as given whatever it holds: on a GPU its values must not be looked at.
    if not positions_matter and (array_kind(offset) or offset):
        raise ValueError(
            "causal_offset moves the positions that is_causal and window compare: "
            f"pass one of them too, or leave causal_offset out, got {_shown(offset)}"
        )
    return offset


def _shown(offset: Any) -> str:
    return f"causal_offset={offset}" if array_kind(offset) is None else describe(offset)


def _band(window: Any, is_causal: bool) -> tuple[int | None, int | None]:
    """Causal and window as one band, -left <= j - (i + causal_offset) <= right."""
    if not isinstance(window, (tuple, list)):
        raise TypeError(
            f"window must be a pair (left, right) of ints or None, got {describe(window)}"
        )
    if len(window) != 2:
        raise ValueError(f"window must be a pair (left, right), got {len(window)} entries")
    bounds = [None if bound is None else _integer("window", bound) for bound in window]
    if any(bound is not None and bound < 0 for bound in bounds):
        raise ValueError(f"window must be (left, right) with ints >= 0 or None, got {window}")
    left, right = bounds
    return left, 0 if is_causal else right


def _integer(name: str, number: Any) -> int:
    try:
        if isinstance(number, (bool, np.bool_)):
            raise TypeError
        return max(-_FAR, min(operator.index(number), _FAR))
    except TypeError:
        expected = {
            "causal_offset": "an int, or an integer array of shape (*batch)",
            "window": "a pair (left, right) of ints or None",
        }[name]
        raise TypeError(f"{name} must be {expected}, got {number!r}") from None


def _finite_float(name: str, number: Any) -> float:
    if not isinstance(number, numbers.Real) or isinstance(number, bool):
        raise TypeError(f"{name} must be a number, got {describe(number)}")
    # A Python float: a NumPy scalar would turn float32 scores into float64.
    number = float(number)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def _checked_softcap(softcap: Any) -> float:
    softcap = _finite_float("softcap", softcap)
    if softcap <= 0:
        raise ValueError(f"softcap must be greater than 0, got {softcap}")
    return softcap
