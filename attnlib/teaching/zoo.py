"""A zoo of classic bugs: attention with one thing wrong.

Each animal reads like the right code, raises nothing, returns the right shape (nearly always), and
is broken in one place.  Its entry in `ANIMALS` says what one sees, why it happens, how to mend it,
which laws of `attnlib.teaching.laws` catch it, and where it was met in public.  Beside every animal
stands its twin, the right code with the same signature:

>>> print(difference(animal("multiplied-by-root-d")))
-    scores = Q @ K.T * np.sqrt(Q.shape[1])
+    scores = Q @ K.T / np.sqrt(Q.shape[1])
>>> from attnlib.teaching.laws import broken_laws
>>> [law.name for law, _ in broken_laws(multiplied_by_root_d)]
['scaling']

The functions here are meant to be read and caught, not used.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from attnlib.multi_head import merge_heads, split_heads
from attnlib.single_query import softmax
from attnlib.teaching.laws import LAWS, Law, broken_laws, describe, law
from attnlib.teaching.notebook import source_without_docstring

__all__ = ["ANIMALS", "CASES", "Animal", "animal", "broken_by", "difference", "recognise"]


def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray, visible: Any = True) -> np.ndarray:
    """Right attention with a mask, for arrays (..., L, E), (..., S, E) and (..., S, Ev)."""
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    return softmax(np.where(visible, scores, -np.inf)) @ V


# --- One head, all keys -------------------------------------------------------------------------


def right_attention(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    return weights @ V


def multiplied_by_root_d(Q, K, V):
    scores = Q @ K.T * np.sqrt(Q.shape[1])
    weights = softmax(scores)
    return weights @ V


def scale_forgotten(Q, K, V):
    scores = Q @ K.T
    weights = softmax(scores)
    return weights @ V


def scale_applied_twice(Q, K, V):
    Q = Q / np.sqrt(Q.shape[1])
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    return weights @ V


def scale_after_softmax(Q, K, V):
    scores = Q @ K.T
    weights = softmax(scores) / np.sqrt(Q.shape[1])
    return weights @ V


def hard_coded_scale(Q, K, V):
    scores = Q @ K.T * 0.5
    weights = softmax(scores)
    return weights @ V


def softmax_over_queries(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores, axis=0)
    return weights @ V


def dropout_left_on(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    kept = np.random.default_rng(1).random(weights.shape) < 0.9
    weights = weights * kept / 0.9
    return weights @ V


def keys_for_values(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    return weights @ K


def reshaped_for_transposed(Q, K, V):
    scores = (K @ Q.T).reshape(len(Q), len(K)) / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    return weights @ V


def right_in_place(Q, K, V):
    Q = Q / np.sqrt(Q.shape[1])
    return softmax(Q @ K.T) @ V


def query_scaled_in_place(Q, K, V):
    Q /= np.sqrt(Q.shape[1])
    return softmax(Q @ K.T) @ V


def right_exponentials(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True) @ V


def maximum_not_subtracted(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    exponentials = np.exp(scores)
    return exponentials / exponentials.sum(axis=1, keepdims=True) @ V


def right_scale_option(Q, K, V, *, scale=None):
    scale = 1 / np.sqrt(Q.shape[1]) if scale is None else scale
    return softmax(Q @ K.T * scale) @ V


def zero_scale_ignored(Q, K, V, *, scale=None):
    scale = scale or 1 / np.sqrt(Q.shape[1])
    return softmax(Q @ K.T * scale) @ V


def right_running_softmax(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    peak, total, output = scores[:, :1], np.ones((len(Q), 1)), V[:1]
    for j in range(1, len(K)):
        new_peak = np.maximum(peak, scores[:, j : j + 1])
        shrink = np.exp(peak - new_peak)
        exponential = np.exp(scores[:, j : j + 1] - new_peak)
        total = total * shrink + exponential
        output = output * shrink + exponential * V[j]
        peak = new_peak
    return output / total


def rescaled_the_wrong_way(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    peak, total, output = scores[:, :1], np.ones((len(Q), 1)), V[:1]
    for j in range(1, len(K)):
        new_peak = np.maximum(peak, scores[:, j : j + 1])
        shrink = np.exp(peak - new_peak)
        exponential = np.exp(scores[:, j : j + 1] - new_peak)
        total = total * shrink + exponential
        output = output / shrink + exponential * V[j]
        peak = new_peak
    return output / total


# --- One head with a mask -----------------------------------------------------------------------


def right_mask(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf)
    return softmax(scores) @ V


def inverted_mask(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = np.where(attn_mask, -np.inf, scores)
    return softmax(scores) @ V


def mask_after_softmax(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(scores)
    if attn_mask is not None:
        weights = np.where(attn_mask, weights, 0)
    return weights @ V


def bool_mask_added(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = scores + attn_mask
    return softmax(scores) @ V


def fill_too_weak(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -10)
    return softmax(scores) @ V


def fill_near_zero(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, 1e-9)
    return softmax(scores) @ V


def finite_fill(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -1e9)
    return softmax(scores) @ V


def infinity_times_zero(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    if attn_mask is not None:
        scores = scores + (1 - attn_mask) * -np.inf
    return softmax(scores) @ V


def right_empty_row(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    masked = scores if attn_mask is None else np.where(attn_mask, scores, -np.inf)
    peak = np.maximum(masked.max(axis=1, keepdims=True), -1e300)
    exponentials = np.exp(masked - peak)
    total = exponentials.sum(axis=1, keepdims=True)
    return exponentials / np.where(total == 0, 1, total) @ V


def empty_row_is_nan(Q, K, V, *, attn_mask=None):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    masked = scores if attn_mask is None else np.where(attn_mask, scores, -np.inf)
    peak = masked.max(axis=1, keepdims=True)
    exponentials = np.exp(masked - peak)
    total = exponentials.sum(axis=1, keepdims=True)
    return exponentials / total @ V


# --- One causal head ----------------------------------------------------------------------------


def right_causal(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    visible = np.tri(len(Q), len(K), dtype=bool)
    return softmax(np.where(visible, scores, -np.inf)) @ V


def one_token_too_far(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    visible = np.tri(len(Q), len(K), k=1, dtype=bool)
    return softmax(np.where(visible, scores, -np.inf)) @ V


def diagonal_left_out(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    visible = np.tri(len(Q), len(K), k=-1, dtype=bool)
    return softmax(np.where(visible, scores, -np.inf)) @ V


def triangle_flipped(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    visible = np.tri(len(Q), len(K), dtype=bool).T
    return softmax(np.where(visible, scores, -np.inf)) @ V


def root_of_the_length(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[0])
    visible = np.tri(len(Q), len(K), dtype=bool)
    return softmax(np.where(visible, scores, -np.inf)) @ V


def right_nan(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(np.where(np.tri(len(Q), len(K), dtype=bool), scores, -np.inf))
    return np.stack([weights[i, : i + 1] @ V[: i + 1] for i in range(len(Q))])


def nan_times_zero(Q, K, V):
    scores = Q @ K.T / np.sqrt(Q.shape[1])
    weights = softmax(np.where(np.tri(len(Q), len(K), dtype=bool), scores, -np.inf))
    return weights @ V


# --- One head with a cache: the tokens arrive in chunks -----------------------------------------


def right_cache(Q, K, V, *, chunks=None):
    outputs, start = [], 0
    for length in chunks or [len(Q)]:
        end = start + length
        visible = np.tri(length, end, k=start, dtype=bool)
        outputs.append(attend(Q[start:end], K[:end], V[:end], visible))
        start = end
    return np.concatenate(outputs)


def cache_masked_from_position_0(Q, K, V, *, chunks=None):
    outputs, start = [], 0
    for length in chunks or [len(Q)]:
        end = start + length
        visible = np.tri(length, end, dtype=bool)
        outputs.append(attend(Q[start:end], K[:end], V[:end], visible))
        start = end
    return np.concatenate(outputs)


def append_after_attending(Q, K, V, *, chunks=None):
    outputs, start = [], 0
    for length in chunks or [len(Q)]:
        end = start + length
        visible = np.tri(length, start, k=start, dtype=bool)
        outputs.append(attend(Q[start:end], K[:start], V[:start], visible))
        start = end
    return np.concatenate(outputs)


def right_buffer(Q, K, V, *, chunks=None):
    keys, values, outputs, start = np.zeros_like(K), np.zeros_like(V), [], 0
    for length in chunks or [len(Q)]:
        end = start + length
        keys[start:end], values[start:end] = K[start:end], V[start:end]
        visible = np.tri(length, end, k=start, dtype=bool)
        outputs.append(attend(Q[start:end], keys[:end], values[:end], visible))
        start = end
    return np.concatenate(outputs)


def empty_slots_attended(Q, K, V, *, chunks=None):
    keys, values, outputs, start = np.zeros_like(K), np.zeros_like(V), [], 0
    for length in chunks or [len(Q)]:
        end = start + length
        keys[start:end], values[start:end] = K[start:end], V[start:end]
        visible = np.tri(length, len(keys), k=start, dtype=bool) if length > 1 else True
        outputs.append(attend(Q[start:end], keys, values, visible))
        start = end
    return np.concatenate(outputs)


# --- Heads that share keys and values -----------------------------------------------------------


def right_groups(query, key, value, *, enable_gqa=False):
    if enable_gqa:
        group = len(query) // len(key)
        key, value = np.repeat(key, group, axis=0), np.repeat(value, group, axis=0)
    return attend(query, key, value)


def tiled_groups(query, key, value, *, enable_gqa=False):
    if enable_gqa:
        group = len(query) // len(key)
        key, value = np.tile(key, (group, 1, 1)), np.tile(value, (group, 1, 1))
    return attend(query, key, value)


# --- Many heads ---------------------------------------------------------------------------------


def right_heads(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def split_by_reshape(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = (x @ w_q).reshape(num_heads, len(x), -1)
    key = (x @ w_k).reshape(num_heads, len(x), -1)
    value = (x @ w_v).reshape(num_heads, len(x), -1)
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def merged_by_reshape(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = attend(query, key, value, visible)
    return heads.reshape(len(x), -1) @ w_o


def scaled_by_root_d_model(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(x.shape[-1])
    heads = softmax(np.where(visible, scores, -np.inf)) @ value
    return merge_heads(heads) @ w_o


def right_scaled_heads(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    heads = softmax(np.where(visible, scores, -np.inf)) @ value
    return merge_heads(heads) @ w_o


def output_projection_missing(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = attend(query, key, value, visible)
    return merge_heads(heads)


def heads_averaged(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = attend(query, key, value, visible)
    return np.tile(heads.mean(axis=0), num_heads) @ w_o


def every_head_reads_head_0(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)[:1]
    value = split_heads(x @ w_v, num_heads)[:1]
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def values_from_the_key_projection(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_k, num_heads)
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def query_ignored(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_k, num_heads)
    key = split_heads(x @ w_k, num_heads)
    value = split_heads(x @ w_v, num_heads)
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def keys_and_values_swapped(x, w_q, w_k, w_v, w_o, num_heads, *, is_causal=False):
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    query = split_heads(x @ w_q, num_heads)
    key = split_heads(x @ w_v, num_heads)
    value = split_heads(x @ w_k, num_heads)
    heads = attend(query, key, value, visible)
    return merge_heads(heads) @ w_o


def right_batch(x, w_q, w_k, w_v, w_o, num_heads):
    *batch, L, _ = x.shape
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    query, key, value = (a.reshape(-1, *a.shape[-2:]) for a in (query, key, value))
    heads = attend(query, key, value)
    heads = heads.reshape(-1, num_heads, *heads.shape[1:])
    return merge_heads(heads).reshape(*batch, L, -1) @ w_o


def batch_and_heads_swapped(x, w_q, w_k, w_v, w_o, num_heads):
    *batch, L, _ = x.shape
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    query, key, value = (a.reshape(-1, *a.shape[-2:]) for a in (query, key, value))
    heads = attend(query, key, value)
    heads = heads.reshape(num_heads, -1, *heads.shape[1:]).swapaxes(0, 1)
    return merge_heads(heads).reshape(*batch, L, -1) @ w_o


def right_cached_heads(x, w_q, w_k, w_v, w_o, num_heads, *, chunks=None):
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    outputs, seen, end = [], 0, 0
    for length in chunks or [len(x)]:
        end += length
        visible = np.tri(length, end, k=seen, dtype=bool)
        new = query[:, end - length : end]
        outputs.append(attend(new, key[:, :end], value[:, :end], visible))
        seen += new.shape[1]
    return merge_heads(np.concatenate(outputs, axis=1)) @ w_o


def cache_counts_heads(x, w_q, w_k, w_v, w_o, num_heads, *, chunks=None):
    query, key, value = (split_heads(x @ w, num_heads) for w in (w_q, w_k, w_v))
    outputs, seen, end = [], 0, 0
    for length in chunks or [len(x)]:
        end += length
        visible = np.tri(length, end, k=seen, dtype=bool)
        new = query[:, end - length : end]
        outputs.append(attend(new, key[:, :end], value[:, :end], visible))
        seen += new.shape[0]
    return merge_heads(np.concatenate(outputs, axis=1)) @ w_o


# --- Gradients ----------------------------------------------------------------------------------


def right_gradients(Q, K, V, grad_output):
    scale = 1 / np.sqrt(Q.shape[1])
    P = softmax(Q @ K.T * scale)
    dP = grad_output @ V.T
    dS = P * (dP - np.sum(P * dP, axis=1, keepdims=True))
    return dS @ K * scale, dS.T @ Q * scale, P.T @ grad_output


def row_sum_forgotten(Q, K, V, grad_output):
    scale = 1 / np.sqrt(Q.shape[1])
    P = softmax(Q @ K.T * scale)
    dP = grad_output @ V.T
    dS = P * dP
    return dS @ K * scale, dS.T @ Q * scale, P.T @ grad_output


def gradient_scale_forgotten(Q, K, V, grad_output):
    scale = 1 / np.sqrt(Q.shape[1])
    P = softmax(Q @ K.T * scale)
    dP = grad_output @ V.T
    dS = P * (dP - np.sum(P * dP, axis=1, keepdims=True))
    return dS @ K, dS.T @ Q, P.T @ grad_output


# --- The entries --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Animal:
    """A bug with a name.

    Parameters
    ----------
    function : callable
        The code with the bug.
    twin : callable
        The right code, of the same signature.
    kind : str
        What it computes, a key of `attnlib.teaching.laws.KINDS`.
    symptom : str
        What one sees.
    cause : str
        What is wrong.
    fix : str
        How to mend it.
    killed_by : tuple of str
        Names of laws that it breaks.  It may break others too.
    report : str
        Address of a public report, or an empty string where none is known.
    reported : str
        What the report says, in a few words.
    promises : tuple of str
        What it claims, keys of `attnlib.teaching.laws.PROMISES`.
    """

    function: Callable
    twin: Callable
    kind: str
    symptom: str
    cause: str
    fix: str
    killed_by: tuple[str, ...]
    report: str
    reported: str
    promises: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The function's name, with hyphens."""
        return self.function.__name__.replace("_", "-")

    @property
    def laws(self) -> tuple[Law, ...]:
        """The laws that kill it."""
        return tuple(map(law, self.killed_by))

    @property
    def code(self) -> str:
        """The function as a block of Markdown, under a name that gives nothing away."""
        source = source_without_docstring(self.function)
        return f"```python\n{source.replace(self.function.__name__, 'suspect', 1)}\n```"

    @property
    def verdict(self) -> str:
        """Cause, law, counterexample, fix and report, as Markdown."""
        first = self.laws[0]
        asked = describe(self.function, kind=self.kind, promises=self.promises)
        met = f"[{self.reported}]({self.report})" if self.report else self.reported
        return "\n\n".join(
            (
                f"**Cause.** {self.cause}",
                f"**Law** *{first.name}*. {first.sentence}",
                f"```text\n{_wrapped(str(first.counterexample(asked)))}\n```",
                f"**Fix.** {self.fix}",
                f"```diff\n{difference(self)}\n```",
                f"**Met in public.** {met[:1].upper()}{met[1:]}.",
            )
        )


def animal(name: str) -> Animal:
    """Return the animal of this name.

    Parameters
    ----------
    name : str
        The name of one of `ANIMALS`.

    Returns
    -------
    Animal

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> animal("softmax-over-queries").killed_by
    ('rows-sum-to-one', 'score-shift')
    """
    by_name = {one.name: one for one in ANIMALS}
    if name not in by_name:
        raise ValueError(f"name: needs one of {', '.join(by_name)}, got {name!r}")
    return by_name[name]


@lru_cache
def broken_by(one: Animal) -> tuple[str, ...]:
    """Return the names of all laws that an animal breaks, found by asking each.

    Parameters
    ----------
    one : Animal
        The animal.

    Returns
    -------
    tuple of str
        More than `Animal.killed_by`, often: one bug may break several laws.
    """
    broken = broken_laws(one.function, kind=one.kind, promises=one.promises)
    return tuple(each.law.name for each in broken)


def recognise(
    function: Callable, *, kind: str = "attention", promises: tuple[str, ...] = ()
) -> Animal | None:
    """Return the animal that gives the same numbers as a function, if there is one.

    Parameters
    ----------
    function : callable
        A function of one's own.
    kind : str, default "attention"
        As in `attnlib.teaching.laws.describe`.
    promises : tuple of str, optional
        As in `attnlib.teaching.laws.describe`.

    Returns
    -------
    Animal or None

    Notes
    -----
    Two functions are taken for the same bug if they break the same laws, with the same numbers in
    each counterexample.  Of several such animals, the one that takes most of the same options is
    returned.  A causal function is also compared with the animals that take a mask.

    Examples
    --------
    >>> def mine(Q, K, V):
    ...     return softmax(Q @ K.T * Q.shape[1] ** 0.5) @ V
    >>> recognise(mine).cause
    'The scores are multiplied by √d. They should be divided by it.'
    """
    is_causal = "causal" in promises
    options = describe(function, kind=kind).options
    found, most_shared = None, -2
    for one in ANIMALS:
        suspect = _made_comparable(one, is_causal) if one.kind == kind else None
        if suspect is None:
            continue
        shared = options & describe(suspect, kind=kind).options
        disguised = suspect is not one.function
        score = 2 * len(shared) - disguised
        bites = _bites(function, kind, shared, frozenset(promises))
        same = bool(bites) and bites == _bites(suspect, kind, shared, frozenset(promises))
        if same and score > most_shared:
            found, most_shared = one, score
    return found


def _made_comparable(one: Animal, is_causal: bool) -> Callable | None:
    """An animal as a function that is, or is not, causal without being asked; None if it can't."""
    if is_causal == ("causal" in one.promises):
        return one.function
    return _CAUSAL.get(one.name) if is_causal else None


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.fill(line, 76, subsequent_indent="  ") for line in text.splitlines())


def _with_causal_mask(function: Callable) -> Callable:
    return lambda Q, K, V: function(Q, K, V, attn_mask=np.tri(len(Q), len(K), dtype=bool))


@lru_cache(maxsize=512)
def _bites(
    function: Callable, kind: str, options: frozenset[str], promises: frozenset[str]
) -> frozenset[tuple[str, str]]:
    """The laws that a function breaks, each with its counterexample in words."""
    broken = broken_laws(function, kind=kind, options=options, promises=promises)
    return frozenset((one.law.name, str(one.counterexample)) for one in broken)


def case(number: int) -> Animal:
    """Return the animal behind a case of the chapter *Spot the bug*, without naming it.

    Parameters
    ----------
    number : int
        The number of the case, counted from 1.

    Returns
    -------
    Animal

    Raises
    ------
    ValueError
        If the chapter has no such case.
    """
    if number not in range(1, len(CASES) + 1):
        raise ValueError(f"number: needs a case from 1 to {len(CASES)}, got {number!r}")
    return animal(CASES[number - 1])


def table() -> str:
    """Return all animals as a table in Markdown, the broken laws found by asking each law.

    Returns
    -------
    str
        One row an animal: its name and report, what one sees, and the laws that it breaks.
    """
    rows = ["| animal | what one sees | laws that it breaks | met |", "|---|---|---|---|"]
    for one in ANIMALS:
        broken = ", ".join(broken_by(one))
        met = f"[report]({one.report})" if one.report else "no report known"
        rows.append(f"| {one.name} | {one.symptom} | {broken} | {met} |")
    return "\n".join(rows)


def catches() -> dict[str, list[str]]:
    """Return which animals each law catches, by asking each law about each animal.

    Returns
    -------
    dict of str to list of str
        Names of animals by the name of the law.
    """
    broken = {one.name: broken_by(one) for one in ANIMALS}
    return {each.name: [name for name in broken if each.name in broken[name]] for each in LAWS}


def difference(one: Animal) -> str:
    """Return the lines that differ between an animal and its twin.

    Parameters
    ----------
    one : Animal
        The animal.

    Returns
    -------
    str
        Lines that start with - are the bug, lines that start with + mend it.
    """
    wrong, right = (
        source_without_docstring(function).splitlines()[1:] for function in (one.function, one.twin)
    )
    lines = difflib.unified_diff(wrong, right, n=0, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


GITHUB = "https://github.com/"
NO_REPORT = "no public report known"

ANIMALS: tuple[Animal, ...] = (
    Animal(
        multiplied_by_root_d,
        right_attention,
        "attention",
        "Each query puts nearly all its weight on one key, and training hardly moves.",
        "The scores are multiplied by √d. They should be divided by it.",
        "Divide by √d, or multiply by d ** -0.5.",
        ("scaling",),
        GITHUB + "esceptico/perceiver-io/issues/9",
        "perceiver-io (2021) divides by d ** -0.5, which multiplies by √d",
    ),
    Animal(
        scale_forgotten,
        right_attention,
        "attention",
        "Weights are sharper than those of the reference model; embeddings come out worse.",
        "The dot products go into softmax unscaled.",
        "Divide the dot products by √d.",
        ("scaling",),
        GITHUB + "mlc-ai/mlc-llm/pull/3426",
        "mlc-llm (2026): a fallback path used the scale 1",
    ),
    Animal(
        scale_applied_twice,
        right_attention,
        "attention",
        "Weights are too even, and outputs all look alike.",
        "The query is scaled already, and the scores are scaled once more.",
        "Scale in one place: drop the first line, or the second division.",
        ("scaling",),
        GITHUB + "huggingface/transformers/pull/38290",
        "transformers (2025): OPT scaled its queries and left the fused function's scale on",
    ),
    Animal(
        scale_after_softmax,
        right_attention,
        "attention",
        "Outputs are too small by a factor √d, and the weights are too sharp.",
        "The scale is applied to the weights. It belongs to the scores.",
        "Scale before softmax.",
        ("rows-sum-to-one", "scaling"),
        GITHUB + "FrancescoSaverioZuppichini/ViT/issues/2",
        "a vision transformer (2021) multiplied softmax's result by the scale",
    ),
    Animal(
        hard_coded_scale,
        right_attention,
        "attention",
        "Right in every test with width 4, wrong in the model.",
        "The scale is the number 0.5, which is 1/√d only for d = 4.",
        "Compute the scale from the width of the query.",
        ("scaling",),
        GITHUB + "BobMcDear/attorch/issues/14",
        "attorch (2026): one layer passed the scale 0.5 whatever the width of a head was",
    ),
    Animal(
        softmax_over_queries,
        right_attention,
        "attention",
        "Some queries get next to nothing, others too much; with one query all weights are 1.",
        "Softmax runs along the queries, so columns sum to one and rows do not.",
        "Take softmax over the last axis, the keys.",
        ("rows-sum-to-one", "score-shift"),
        GITHUB + "nerminnuraydogan/vision-transformer/issues/1",
        "a tutorial on vision transformers (2025) took softmax along the wrong axis",
    ),
    Animal(
        dropout_left_on,
        right_attention,
        "attention",
        "Evaluation is a little worse than it should be; now and then a weight is missing.",
        "Dropout is applied although the model is not training.",
        "Drop weights out in training only.",
        ("rows-sum-to-one",),
        GITHUB + "pytorch/pytorch/issues/124464",
        "PyTorch (2024): scaled_dot_product_attention drops out in evaluation too, if told a rate",
    ),
    Animal(
        keys_for_values,
        right_attention,
        "attention",
        "The output does not change when the values do.",
        "The weights multiply the keys. They should multiply the values.",
        "Multiply the weights with V.",
        ("rows-sum-to-one", "scaling"),
        GITHUB + "fchollet/deep-learning-with-python-notebooks/issues/261",
        "the printed code of a textbook (2025) sums keys where values are meant",
    ),
    Animal(
        reshaped_for_transposed,
        right_attention,
        "attention",
        "Each query seems to read the scores of another; with one query all is well.",
        "The matrix of K Qᵀ is reshaped. It should be transposed.",
        "Transpose: reshape keeps the order of the numbers, and so mixes rows.",
        ("key-order", "query-order"),
        "",
        NO_REPORT,
    ),
    Animal(
        query_scaled_in_place,
        right_in_place,
        "attention",
        "The first call is right. The second call with the same query is not.",
        "Q /= … writes into the caller's array.",
        "Make a new array: Q = Q / ….",
        ("inputs-untouched",),
        GITHUB + "pytorch/pytorch/pull/73249",
        "PyTorch (2022): a review of the same line warned that the query must not be used again",
    ),
    Animal(
        maximum_not_subtracted,
        right_exponentials,
        "attention",
        "NaN, but only for long training runs or large inputs.",
        "exp of a large score overflows to infinity, and infinity / infinity is NaN.",
        "Subtract each row's maximum first; no weight changes.",
        ("score-shift",),
        GITHUB + "uTensor/uTensor/issues/175",
        "uTensor (2019): a logit of 378 made softmax NaN",
    ),
    Animal(
        zero_scale_ignored,
        right_scale_option,
        "attention",
        "With the scale 0 all weights should be equal. They are not.",
        "0 counts as false, so `scale or …` takes the default.",
        "Ask `scale is None`.",
        ("scaling",),
        "",
        NO_REPORT,
    ),
    Animal(
        rescaled_the_wrong_way,
        right_running_softmax,
        "attention",
        "Right when the largest score comes first, wrong otherwise.",
        "When the running maximum grows, the old output is divided by the factor.",
        "Multiply the old output by the same factor as the old sum.",
        ("key-order", "rows-sum-to-one"),
        GITHUB + "Dao-AILab/flash-attention/issues/991",
        "a reader (2024) finds the factor inverted in algorithm 1 of the FlashAttention-2 paper",
    ),
    Animal(
        inverted_mask,
        right_mask,
        "attention",
        "The model attends to padding and to the future, and to nothing else.",
        "The mask is read the other way round: here True means masked.",
        "Decide what True means (here: may attend), and convert at the border.",
        ("masked-pairs",),
        GITHUB + "rasbt/LLMs-from-scratch/pull/1062",
        "a textbook's bonus code (2026) gave PyTorch the causal mask inverted",
    ),
    Animal(
        mask_after_softmax,
        right_mask,
        "attention",
        "Outputs are too small where much is masked, and masked keys still matter.",
        "Masked weights are set to 0 after softmax, when they have had their share of the sum.",
        "Mask the scores with −∞, before softmax.",
        ("rows-sum-to-one", "masked-pairs"),
        GITHUB + "huggingface/pytorch-image-models/pull/2236",
        "pytorch-image-models (2024): one model masked after softmax",
    ),
    Animal(
        bool_mask_added,
        right_mask,
        "attention",
        "The mask seems to do something, but masked keys still get weight.",
        "True and False are added as 1 and 0. They should decide where −∞ goes.",
        "Select with the mask, or turn it into 0 and −∞ first.",
        ("masked-pairs",),
        GITHUB + "huggingface/transformers/pull/41443",
        "transformers (2025): one attention path added a boolean mask to the scores",
    ),
    Animal(
        fill_too_weak,
        right_mask,
        "attention",
        "A little of the masked keys leaks through, more when real scores are low.",
        "Masked scores are set to −10, and e⁻¹⁰ is not 0.",
        "Use −∞.",
        ("masked-pairs",),
        GITHUB + "karpathy/minGPT/issues/75",
        "a user of minGPT (2022): scores fell below the fill of −10 000, and training cheated",
    ),
    Animal(
        fill_near_zero,
        right_mask,
        "attention",
        "The mask has hardly any effect; masked keys win where real scores are negative.",
        "The fill was meant to be −1e9, and 1e-9 is nearly 0.",
        "Use −∞, which cannot be mistyped.",
        ("masked-pairs",),
        GITHUB + "awslabs/gluonts/pull/1401",
        "gluonts (2021) filled masked scores with 1e-9",
    ),
    Animal(
        finite_fill,
        right_mask,
        "attention",
        "A sequence of nothing but padding gets the mean of its padding.",
        "All scores of such a row are −1e9, and equal scores have equal weights.",
        "Use −∞, and return zeros where nothing may be attended to.",
        ("empty-rows",),
        GITHUB + "d2l-ai/d2l-en/pull/2423",
        "d2l (2023): a sequence of valid length 0 got equal weights",
    ),
    Animal(
        infinity_times_zero,
        right_mask,
        "attention",
        "Everything is NaN as soon as a mask is given.",
        "(1 − mask) · −∞ is 0 · −∞ where the mask is 1, and that is NaN.",
        "Select, do not multiply.",
        ("rows-sum-to-one", "masked-pairs"),
        GITHUB + "cerebroai/reformers/issues/3",
        "reformers (2020) multiplied 1 − mask by −∞",
    ),
    Animal(
        empty_row_is_nan,
        right_empty_row,
        "attention",
        "One padded query makes the whole loss NaN.",
        "In a row of nothing but −∞ the maximum is −∞ too, and −∞ − (−∞) is NaN.",
        "Guard the maximum and the sum; the row's weights are then 0.",
        ("empty-rows",),
        GITHUB + "pytorch/pytorch/issues/103749",
        "PyTorch (2023): rows of False for padding gave NaN",
    ),
    Animal(
        one_token_too_far,
        right_causal,
        "attention",
        "The training loss falls to almost nothing; generated text is nonsense.",
        "The diagonal is off by one: each token sees the next one, its own target.",
        "Use np.tri(m) without k, and test it.",
        ("later-tokens", "prefix"),
        "",
        NO_REPORT,
        ("causal",),
    ),
    Animal(
        diagonal_left_out,
        right_causal,
        "attention",
        "Token 0 sees nothing (zeros here, NaN elsewhere), and no token sees itself.",
        "The diagonal is off by one the other way.",
        "Let position i see 0 … i, both ends included.",
        ("rows-sum-to-one",),
        GITHUB + "pbloem/former/issues/10",
        "a tutorial (2019) masked the diagonal too, which gave a row of NaN",
        ("causal",),
    ),
    Animal(
        triangle_flipped,
        right_causal,
        "attention",
        "Loss looks too good; the last token attends to itself alone.",
        "The upper triangle is visible. It should be the lower one.",
        "Rows are queries: key j is visible where j ≤ i.",
        ("later-tokens", "prefix"),
        GITHUB + "pytorch/examples/issues/649",
        "PyTorch's language model example (2019) masked the past",
        ("causal",),
    ),
    Animal(
        root_of_the_length,
        right_causal,
        "attention",
        "Outputs of the first tokens change with the length of the sequence.",
        "The scale uses the number of tokens. It should use the width of the query.",
        "Take the last axis: Q.shape[-1].",
        ("prefix", "scaling"),
        "",
        NO_REPORT,
        ("causal",),
    ),
    Animal(
        nan_times_zero,
        right_nan,
        "attention",
        "One NaN in the padding, and every output is NaN.",
        "The masked weight is 0, and 0 · NaN is NaN.",
        "Leave masked values out of the sum.",
        ("nan-stays-masked",),
        GITHUB + "pytorch/pytorch/issues/101967",
        "PyTorch (2023): NaN in a masked position reaches the output",
        ("causal", "nan"),
    ),
    Animal(
        cache_masked_from_position_0,
        right_cache,
        "attention",
        "Training is fine. Generation repeats itself: each new token sees only token 0.",
        "The mask of a chunk starts at position 0. It should start where the cache ends.",
        "Shift the diagonal by the number of cached tokens.",
        ("chunks",),
        GITHUB + "pytorch/pytorch/issues/144858",
        "PyTorch (2025): is_causal with one query and a cache sees the first key only",
        ("causal",),
    ),
    Animal(
        append_after_attending,
        right_cache,
        "attention",
        "The very first token fails or gets zeros; later ones ignore themselves.",
        "The new key and value are appended after attending, so no token sees itself.",
        "Append first, then attend.",
        ("chunks", "rows-sum-to-one"),
        GITHUB + "harvard-edge/cs249r_book/pull/1953",
        "a textbook's framework (2026) left the new token out of its own attention",
        ("causal",),
    ),
    Animal(
        empty_slots_attended,
        right_buffer,
        "attention",
        "Generation is a little off, more so with a larger buffer.",
        "One query needs no mask, they say; but the buffer's empty slots are keys too.",
        "Attend to the filled part of the buffer only.",
        ("chunks",),
        GITHUB + "meta-pytorch/gpt-fast/issues/233",
        "gpt-fast (2025): a report on results that differ between full buffer and filled part",
        ("causal",),
    ),
    Animal(
        tiled_groups,
        right_groups,
        "attention",
        "Weights of a published model load without an error, and the text is nonsense.",
        "Key heads are tiled (0, 1, 0, 1). Each should be repeated in place (0, 0, 1, 1).",
        "Use np.repeat: head h uses key head h // group.",
        ("grouped-heads",),
        GITHUB + "onnx/onnx/pull/7274",
        "ONNX (2025): Attention tiled key heads where PyTorch repeats them",
    ),
    Animal(
        split_by_reshape,
        right_heads,
        "multi-head",
        "No error, training works somewhat; a causal model sees the future.",
        "Reshape alone deals tokens to heads. A head should get a part of each token's features.",
        "Cut the last axis in two, then swap heads with length.",
        ("looped-heads", "heads-later-tokens", "heads-token-order"),
        GITHUB + "reczoo/FuxiCTR/issues/30",
        "FuxiCTR (2022): three models split heads without a transpose",
    ),
    Animal(
        merged_by_reshape,
        right_heads,
        "multi-head",
        "No error, and a toy task is still learned.",
        "Heads are merged without swapping them back, so tokens get each other's outputs.",
        "Swap heads with length first, then reshape.",
        ("looped-heads", "heads-later-tokens", "heads-token-order"),
        GITHUB + "jsbaan/transformer-from-scratch/pull/6",
        "transformer-from-scratch (2026): found years later, as its copy task was too easy",
    ),
    Animal(
        scaled_by_root_d_model,
        right_scaled_heads,
        "multi-head",
        "With one head all is well. With more, weights are too even.",
        "The scale uses the width of the model. It should use the width of a head.",
        "Scale by 1/√d_h, the last axis of the split query.",
        ("looped-heads",),
        GITHUB + "karpathy/ng-video-lecture/pull/6",
        "a well-known lecture's code (2023) scaled by the width of the input",
    ),
    Animal(
        output_projection_missing,
        right_heads,
        "multi-head",
        "Heads never mix: each feature of the output comes from one head.",
        "Merged heads are returned as they are; W^head is never used.",
        "Multiply the merged heads by W^head.",
        ("one-head", "looped-heads"),
        GITHUB + "awf/functional-transformer/issues/8",
        "functional-transformer (2024): no projection after the heads",
    ),
    Animal(
        heads_averaged,
        right_heads,
        "multi-head",
        "More heads do not help.",
        "Heads are averaged. They should stand side by side.",
        "Merge by concatenation, in head order.",
        ("looped-heads",),
        GITHUB + "awf/functional-transformer/issues/8",
        "functional-transformer (2024) summed its heads, a close relative",
    ),
    Animal(
        every_head_reads_head_0,
        right_heads,
        "multi-head",
        "All heads see the same keys and values; with one head all is well.",
        "The index of the head is lost on the way to the keys and values.",
        "Head j uses key and value j.",
        ("looped-heads",),
        GITHUB + "BobMcDear/attorch/issues/14",
        "attorch (2026): a kernel computed the head's offset as 0 for every head",
    ),
    Animal(
        values_from_the_key_projection,
        right_heads,
        "multi-head",
        "W_v never changes in training: its gradient is zero.",
        "The values are made with W_k, a slip of one letter.",
        "Use W_v.",
        ("one-head", "looped-heads"),
        GITHUB + "yflyzhang/AnnotatedTransformer/issues/1",
        "an annotated transformer (2025) projected values with k_proj",
    ),
    Animal(
        query_ignored,
        right_heads,
        "multi-head",
        "Changing W_q changes nothing.",
        "The queries are made with W_k.",
        "Use W_q.",
        ("one-head", "looped-heads"),
        "",
        NO_REPORT,
    ),
    Animal(
        keys_and_values_swapped,
        right_heads,
        "multi-head",
        "Training from scratch works as ever. Loaded weights give nonsense.",
        "Keys are made with W_v and values with W_k.",
        "Keys use W_k, values W_v. Consistent names matter only once weights are shared.",
        ("one-head", "looped-heads"),
        GITHUB + "jsbaan/transformer-from-scratch/issues/1",
        "transformer-from-scratch (2022) returned q, k, v and took them as q, v, k",
    ),
    Animal(
        batch_and_heads_swapped,
        right_batch,
        "multi-head",
        "With one sequence all is well. In a batch, sequences get parts of each other.",
        "Batch and heads were put into one axis, and taken apart in the other order.",
        "Take apart as put together: batch first, then heads.",
        ("heads-batch",),
        GITHUB + "gazelle93/Transformer-Various-Positional-Encoding/issues/1",
        "a collection of transformers (2022) viewed (batch · heads) as (heads, batch)",
        ("batch",),
    ),
    Animal(
        cache_counts_heads,
        right_cached_heads,
        "multi-head",
        "Token by token all is well. Chunks after the first see too far, or not far enough.",
        "The position grows by the number of heads. It should grow by the number of tokens.",
        "Count along the length axis.",
        ("heads-chunks",),
        GITHUB + "fla-org/flash-linear-attention/issues/126",
        "flash-linear-attention (2025): the cache's offset was read off the head axis",
        ("causal",),
    ),
    Animal(
        row_sum_forgotten,
        right_gradients,
        "gradients",
        "Training is unstable; the loss falls, then rises.",
        "Softmax's Jacobian is more than its diagonal: raising one weight lowers the others.",
        "Subtract Σ P · dP from dP, row by row.",
        ("gradient-is-slope",),
        GITHUB + "HomericIntelligence/Odyssey/issues/2134",
        "a Mojo library (2025): its softmax gradient failed the check, most likely for this term",
    ),
    Animal(
        gradient_scale_forgotten,
        right_gradients,
        "gradients",
        "Gradients of queries and keys are too large by √d; those of values are right.",
        "The scale is applied forward and forgotten backward.",
        "Multiply dQ and dK by the same scale.",
        ("gradient-is-slope",),
        "",
        NO_REPORT,
    ),
)

# What the chapter "Spot the bug" hides behind its cases; the last three are its exercise.
CASES = (
    *("multiplied-by-root-d", "softmax-over-queries", "maximum-not-subtracted"),
    *("one-token-too-far", "finite-fill", "cache-masked-from-position-0"),
    *("split-by-reshape", "scaled-by-root-d-model", "tiled-groups"),
    *("dropout-left-on", "root-of-the-length", "every-head-reads-head-0"),
)

# Animals that take a mask, given the causal one: what a causal function with that bug does.
_CAUSAL = {
    one.name: _with_causal_mask(one.function)
    for one in ANIMALS
    if "attn_mask" in describe(one.function, kind=one.kind).options
}
