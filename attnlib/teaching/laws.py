r"""Laws of attention: what every right implementation holds, whatever its code looks like.

A law needs no second implementation to compare with.  It calls a function twice and says how the
two results belong together, or gives it an input whose result is known beforehand.  Ask about a
function of your own:

>>> from attnlib import dense_attention
>>> broken_laws(dense_attention)
[]
>>> import numpy as np
>>> def forgot_the_softmax(Q, K, V):
...     return (Q @ K.T / np.sqrt(Q.shape[1])) @ V
>>> law, counterexample = broken_laws(forgot_the_softmax)[0]
>>> print(law.sentence)
The weights of a query are at least 0 and sum to one.

Only NumPy is used, seeds are fixed, and sizes differ from each other and grow, so that the first
counterexample is the smallest.  The letters of sizes are those of the notation page: `L` queries,
`S` keys, `E` width of query and key, `Ev` width of value, `H` heads, `D` model width.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

KINDS = {
    "attention": "f(query, key, value) of shapes (L, E), (S, E), (S, Ev), returning (L, Ev)",
    "multi-head": "f(x, w_q, w_k, w_v, w_o, num_heads), returning the shape of x",
    "gradients": "f(query, key, value, grad_output), returning dQ, dK, dV",
}

OPTIONS = {
    "is_causal": "bool: query i sees the keys 0 … i",
    "attn_mask": "bool array (L, S): True = may attend",
    "scale": "float: what the dot products are multiplied by",
    "causal_offset": "int: query i stands at position i + causal_offset",
    "enable_gqa": "bool: query heads (Hq, L, E) share key/value heads (Hkv, S, E) in groups",
    "chunks": "sequence of int: the causal result, the tokens arriving in pieces of these lengths",
}

PROMISES = {
    "causal": "it is causal without being asked",
    "exact": "a later token changes not one bit of an earlier output, not only within rounding",
    "nan": "a NaN in a masked key or value changes nothing",
    "batch": "a multi-head function takes x of shape (B, L, D) too",
    "width": "a multi-head function reads the width of a head off the weights; H·E need not be D",
}

# Sizes (L, S, E, Ev), and (m, E, Ev) where L = S = m: in each all numbers differ.
SIZES = ((1, 2, 3, 4), (2, 3, 1, 4), (3, 2, 4, 1), (4, 3, 2, 5), (3, 5, 4, 2))
SEQUENCES = ((2, 1, 3), (3, 2, 4), (4, 3, 2), (5, 2, 3))
# Sizes (m, D, H, E) with D = H·E; those of FREE_WIDTHS have another width of a head.
HEADS = ((1, 6, 2, 3), (4, 6, 3, 2), (5, 12, 3, 4))
FREE_WIDTHS = ((3, 5, 2, 4),)

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Counterexample:
    """One input on which a law does not hold.

    Parameters
    ----------
    given : str
        What the implementation was given.
    came : str
        What came back.
    needed : str
        What the law needs.
    arguments : tuple
        The positional arguments of the call, to run it again.
    options : dict
        Its keyword arguments.
    """

    given: str
    came: str
    needed: str
    arguments: tuple = field(default=(), repr=False, compare=False)
    options: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"Given {self.given}:\ncame {self.came}, needed {self.needed}."


@dataclass(frozen=True)
class Implementation:
    """A function that computes attention, and what it can do.

    Parameters
    ----------
    function : callable
        The function; arguments are given by position, options by name.
    kind : str
        A key of `KINDS`.
    options : frozenset of str
        Those of `OPTIONS` that it takes.
    promises : frozenset of str
        Those of `PROMISES` that it makes.
    tolerance : float
        What rounding may change in numbers of size one.
    """

    function: Callable
    kind: str
    options: frozenset[str]
    promises: frozenset[str]
    tolerance: float

    def can(self, need: str) -> bool:
        """Tell whether a law that needs this can be asked."""
        if need == "causal":
            return "is_causal" in self.options or "causal" in self.promises
        if need == "dense":
            return "causal" not in self.promises
        if need == "chunks":
            return bool({"chunks", "causal_offset"} & self.options)
        return need in self.options | self.promises


@dataclass(frozen=True)
class Law:
    """A property that every right implementation of one kind holds.

    Parameters
    ----------
    name : str
        Its short name.
    sentence : str
        What it holds, in one plain sentence.
    kind : str
        A key of `KINDS`: what it can be asked about.
    comparison : str
        How results are compared.
    needs : tuple of str
        What an implementation must be able to do: options, promises, or ``"causal"`` (on demand or
        always) and ``"dense"`` (not always causal).
    search : callable
        Yields the counterexamples of an `Implementation`, the smallest first.
    """

    name: str
    sentence: str
    kind: str
    comparison: str
    needs: tuple[str, ...]
    search: Callable[[Implementation], Iterator[Counterexample]] = field(repr=False)

    def applies_to(self, implementation: Implementation) -> bool:
        """Tell whether the implementation is of this kind and can do what the law needs."""
        return self.kind == implementation.kind and all(map(implementation.can, self.needs))

    def counterexample(self, implementation: Implementation) -> Counterexample | None:
        """Return the smallest counterexample, or None if the law holds on all inputs tried.

        An implementation that raises, or returns something of another shape, is a counterexample.

        Parameters
        ----------
        implementation : Implementation
            As `describe` returns it.

        Returns
        -------
        Counterexample or None

        Raises
        ------
        ValueError
            If the law cannot be asked of this implementation.
        """
        if not self.applies_to(implementation):
            needs = ", ".join((self.kind, *self.needs))
            raise ValueError(f"law {self.name!r}: needs {needs}, got {implementation}")
        try:
            return next(self.search(implementation), None)
        except _BadResult as bad:
            return bad.counterexample


class BrokenLaw(NamedTuple):
    """A law with the smallest input on which an implementation breaks it."""

    law: Law
    counterexample: Counterexample


def describe(
    function: Callable,
    *,
    kind: str = "attention",
    options: Iterable[str] | None = None,
    promises: Iterable[str] = (),
    tolerance: float = 1e-9,
) -> Implementation:
    """Say what a function can do, so that the laws know what to ask.

    Parameters
    ----------
    function : callable
        The function to ask about.
    kind : str, default "attention"
        A key of `KINDS`.
    options : iterable of str, optional
        Those of `OPTIONS` that it takes.  Default: the ones in its signature.
    promises : iterable of str, optional
        Those of `PROMISES` that it makes.
    tolerance : float, default 1e-9
        What rounding may change in numbers of size one; float32 needs about 1e-5.

    Returns
    -------
    Implementation
        What `Law.counterexample` takes.

    Raises
    ------
    ValueError
        If a kind, an option or a promise is unknown.
    """
    options = _options_in_signature(function) if options is None else frozenset(options)
    promises = frozenset(promises)
    for name, given, known in (
        ("kind", {kind}, KINDS),
        ("options", options, OPTIONS),
        ("promises", promises, PROMISES),
    ):
        if unknown := given - set(known):
            raise ValueError(f"{name}: needs one of {', '.join(known)}, got {sorted(unknown)}")
    return Implementation(function, kind, options, promises, tolerance)


def law(name: str) -> Law:
    """Return the law of this name.

    Parameters
    ----------
    name : str
        The name of one of `LAWS`.

    Returns
    -------
    Law

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> law("prefix").sentence
    'The output of a prefix is the prefix of the output.'
    """
    by_name = {one.name: one for one in LAWS}
    if name not in by_name:
        raise ValueError(f"name: needs one of {', '.join(by_name)}, got {name!r}")
    return by_name[name]


def checked_laws(
    function: Callable, *, names: Iterable[str] | None = None, **description: Any
) -> list[Law]:
    """Return the laws that `broken_laws` asks about for the same arguments.

    Parameters
    ----------
    function : callable
        The function to ask about.
    names : iterable of str, optional
        Names of laws.  Default: all that apply.
    **description : dict
        As in `describe`: kind, options, promises, tolerance.

    Returns
    -------
    list of Law

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    implementation = describe(function, **description)
    if names is not None:
        return [law(name) for name in names]
    return [one for one in LAWS if one.applies_to(implementation)]


def broken_laws(
    function: Callable, *, names: Iterable[str] | None = None, **description: Any
) -> list[BrokenLaw]:
    """Return the laws that a function breaks, each with its smallest counterexample.

    Parameters
    ----------
    function : callable
        The function to ask about.
    names : iterable of str, optional
        Names of laws.  Default: all that apply.
    **description : dict
        As in `describe`: kind, options, promises, tolerance.

    Returns
    -------
    list of BrokenLaw
        Pairs (law, counterexample); empty if all hold.

    Raises
    ------
    ValueError
        If a name is unknown, or the law cannot be asked of this function.

    Examples
    --------
    >>> from attnlib import causal_attention, multi_head_attention
    >>> broken_laws(causal_attention, promises=["causal", "exact"])
    []
    >>> broken_laws(multi_head_attention, kind="multi-head", names=["one-head", "looped-heads"])
    []
    """
    implementation = describe(function, **description)
    asked = checked_laws(function, names=names, **description)
    found = [(one, one.counterexample(implementation)) for one in asked]
    return [BrokenLaw(one, example) for one, example in found if example is not None]


def row_by_row(function: Callable, *, is_causal: bool = False) -> Callable:
    """Return the attention of a sequence, computed by a function of a single query.

    Parameters
    ----------
    function : callable
        ``function(q, K, V)`` of shapes (E,), (S, E), (S, Ev), returning (Ev,).
    is_causal : bool, default False
        Give query i the keys and values 0 … i only; promise ``"causal"`` then.

    Returns
    -------
    callable
        A function of the kind ``"attention"``.
    """

    def attend(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
        ends = [i + 1 if is_causal else len(K) for i in range(len(Q))]
        return np.stack([function(Q[i], K[:end], V[:end]) for i, end in enumerate(ends)])

    return attend


# --- Calling an implementation ------------------------------------------------------------------


class _BadResult(Exception):
    """The implementation raised, or returned something that is no array of the needed shape."""

    def __init__(self, counterexample: Counterexample) -> None:
        super().__init__(str(counterexample))
        self.counterexample = counterexample


@dataclass(frozen=True)
class _Call:
    """One call of an implementation, and how to say what was given."""

    given: str
    arguments: tuple
    options: dict[str, Any]

    def but(self, given: str, *arguments: Any) -> _Call:
        """Return the same call with other arguments."""
        return _Call(f"{self.given}; {given}", arguments, self.options)

    def counterexample(self, came: str, needed: str) -> Counterexample:
        """Say that this call does not give what it must."""
        return Counterexample(self.given, came, needed, self.arguments, self.options)


def _options_in_signature(function: Callable) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters) & frozenset(OPTIONS)
    except (TypeError, ValueError):  # some callables written in C have no signature
        return frozenset()


def _results(implementation: Implementation, call: _Call) -> Any:
    """Return what the implementation returns, having given it copies."""
    copies = [np.copy(a) if isinstance(a, np.ndarray) else a for a in call.arguments]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return implementation.function(*copies, **call.options)
    except Exception as error:
        came = f"{type(error).__name__}: {error}".splitlines()[0]
        raise _BadResult(call.counterexample(came, "a result")) from error


def _as_array(call: _Call, result: Any, shape: tuple[int, ...]) -> np.ndarray:
    needed = f"an array of shape {shape}"
    if isinstance(result, tuple):
        raise _BadResult(call.counterexample(f"a tuple of {len(result)}", needed))
    try:
        array = np.array(result, dtype=float)
    except Exception as error:
        came = f"something of type {type(result).__name__}"
        raise _BadResult(call.counterexample(came, needed)) from error
    if array.shape != shape:
        raise _BadResult(call.counterexample(f"an array of shape {array.shape}", needed))
    return array


def _output(implementation: Implementation, call: _Call) -> np.ndarray:
    """Return the output for a call, as an array of the shape that it must have."""
    first, last = call.arguments[0], call.arguments[-1]
    width = first.shape[-1] if implementation.kind == "multi-head" else last.shape[-1]
    return _as_array(call, _results(implementation, call), (*first.shape[:-1], width))


def _compare(
    call: _Call, came: np.ndarray, needed: np.ndarray, tolerance: float, name: str = "output"
) -> Iterator[Counterexample]:
    """Yield a counterexample for the first row that differs; tolerance 0 compares bit for bit."""
    with np.errstate(invalid="ignore"):
        near = np.abs(came - needed) <= tolerance * np.maximum(1.0, np.abs(needed))
    for row in np.ndindex(*needed.shape[:-1]):
        if not near[row].all():
            place = ", ".join(map(str, row))
            yield call.counterexample(
                f"{name} {place} = {_numbers(came[row])}",
                f"{_numbers(needed[row])}{_gap(came[row], needed[row])}",
            )
            return


def _numbers(row: np.ndarray) -> str:
    return "[" + ", ".join(f"{number:.4g}" for number in row.ravel()) + "]"


def _gap(came: np.ndarray, needed: np.ndarray) -> str:
    """Say how far apart two rows are where the printed digits do not show it."""
    if _numbers(came) != _numbers(needed):
        return ""
    return f" (they differ by {np.max(np.abs(came - needed)):.0e})"


# --- Small inputs -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """Queries, keys and values of one size, and which pairs may attend."""

    call: _Call
    visible: np.ndarray
    without_values: str

    @property
    def arrays(self) -> tuple:
        return self.call.arguments


def _plural(number: int, word: str) -> str:
    plural = {"query": "queries"}.get(word, word + "s")
    return f"{number} {word if number == 1 else plural}"


def _drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Return random numbers with one decimal, the same for the same shapes."""
    rng = np.random.default_rng(7)
    return [np.round(rng.normal(size=shape), 1) for shape in shapes]


def _flags(implementation: Implementation, is_causal: bool) -> dict[str, Any]:
    return {"is_causal": is_causal} if "is_causal" in implementation.options else {}


def _case(
    implementation: Implementation,
    size: tuple[int, int, int, int],
    *,
    is_causal: bool = False,
    masked: bool = False,
) -> _Case:
    L, S, E, Ev = size
    Q, K, V = _drawn((L, E), (S, E), (S, Ev))
    options = _flags(implementation, is_causal)
    visible = np.tri(L, S, dtype=bool) if is_causal else np.ones((L, S), bool)
    first = f"{_plural(L, 'query')} and {_plural(S, 'key')} of width {E}"
    values, end = f", values of width {Ev}", ""
    if is_causal:
        first, end = f"{_plural(L, 'token')}, query and key of width {E}", ", causal"
    if masked:
        mask = _mask(L, S)
        visible, options = visible & mask, {**options, "attn_mask": mask}
        end += f", mask {mask.astype(int).tolist()} (1 = may attend)"
    return _Case(_Call(first + values + end, (Q, K, V), options), visible, first + end)


def _mask(L: int, S: int) -> np.ndarray:
    """Return a mask in which each query sees key i (or i mod S) and, if it can, misses another."""
    i, j = np.arange(L)[:, np.newaxis], np.arange(S)
    mask = np.random.default_rng(3).random((L, S)) < 0.5
    mask[(i - 1) % S == j] = False
    mask[i % S == j] = True
    return mask


def _cases(implementation: Implementation) -> list[_Case]:
    """Return cases for everything that the implementation can do, the smallest first."""
    can, cases = implementation.can, []
    sequences = [(m, m, E, Ev) for m, E, Ev in SEQUENCES]
    if can("dense"):
        cases += [_case(implementation, size) for size in SIZES]
    if can("causal"):
        cases += [_case(implementation, size, is_causal=True) for size in sequences]
    if can("attn_mask") and can("dense"):
        cases += [_case(implementation, size, masked=True) for size in SIZES]
    if can("attn_mask") and can("causal"):
        cases += [_case(implementation, size, is_causal=True, masked=True) for size in sequences]
    return sorted(cases, key=lambda case: sum(array.size for array in case.arrays))


def _causal_cases(implementation: Implementation) -> list[_Case]:
    sizes = [(m, m, E, Ev) for m, E, Ev in SEQUENCES]
    return [_case(implementation, size, is_causal=True) for size in sizes]


def _changed(array: np.ndarray, row: int, by: float) -> np.ndarray:
    """Return a copy of which one row is something else."""
    copy = array.copy()
    copy[row] = by - copy[row]
    return copy


# --- The laws of attention ----------------------------------------------------------------------


def _rows_sum_to_one(implementation: Implementation) -> Iterator[Counterexample]:
    """Values that are the rows of the identity make the output the weights themselves."""
    for case in _cases(implementation):
        Q, K, _ = case.arrays
        given = f"{case.without_values}; values that are the rows of the identity"
        call = _Call(given, (Q, K, np.eye(len(K))), case.call.options)
        weights = _output(implementation, call)
        sums = weights.sum(axis=1)
        right = np.abs(sums - 1.0) <= implementation.tolerance * len(K)
        for i in np.flatnonzero(~right | (weights < 0).any(axis=1)):
            came = f"weights {_numbers(weights[i])} of query {i}, which sum to {sums[i]:.4g}"
            yield call.counterexample(came, "weights of at least 0 that sum to 1")


def _later_tokens(implementation: Implementation) -> Iterator[Counterexample]:
    tolerance = 0.0 if "exact" in implementation.promises else implementation.tolerance
    for case in _causal_cases(implementation):
        before = _output(implementation, case.call)
        for t in range(len(before) - 1, 0, -1):
            changed = [_changed(array, t, by=9.0) for array in case.arrays]
            call = case.call.but(f"token {t} was changed", *changed)
            after = _output(implementation, call)
            yield from _compare(call, after[:t], before[:t], tolerance)


def _masked_pairs(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        if case.visible.all():
            continue
        before = _output(implementation, case.call)
        for j in np.flatnonzero(~case.visible.all(axis=0)):
            yield from _hidden_key(implementation, case, before, int(j))


def _hidden_key(
    implementation: Implementation, case: _Case, before: np.ndarray, j: int
) -> Iterator[Counterexample]:
    """Change key and value j: a query that may not attend to j must not notice."""
    Q, K, V = case.arrays
    call = case.call.but(
        f"key and value {j} were changed", Q, _changed(K, j, by=5.0), _changed(V, j, by=90.0)
    )
    after = _output(implementation, call)
    for i in np.flatnonzero(~case.visible[:, j]):
        row = slice(i, i + 1)
        found = _compare(call, after[row], before[row], implementation.tolerance)
        yield from (
            call.counterexample(f"output {i} = {_numbers(after[i])}", example.needed)
            for example in found
        )


def _key_order(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        if case.call.options.get("is_causal"):
            continue
        Q, K, V = case.arrays
        order = np.roll(np.arange(len(K)), 1)
        call = case.call.but("the last key and its value were put first", Q, K[order], V[order])
        call = _reordered_mask(call, (slice(None), order))
        before, after = _output(implementation, case.call), _output(implementation, call)
        yield from _compare(call, after, before, implementation.tolerance)


def _query_order(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        if case.call.options.get("is_causal"):
            continue
        Q, K, V = case.arrays
        order = np.roll(np.arange(len(Q)), 1)
        call = case.call.but("the last query was put first", Q[order], K, V)
        call = _reordered_mask(call, (order,))
        before, after = _output(implementation, case.call), _output(implementation, call)
        yield from _compare(call, after, before[order], implementation.tolerance)


def _reordered_mask(call: _Call, order: tuple) -> _Call:
    if "attn_mask" not in call.options:
        return call
    options = {**call.options, "attn_mask": call.options["attn_mask"][order]}
    return _Call(call.given + ", and so was its part of the mask", call.arguments, options)


def _score_shift(implementation: Implementation) -> Iterator[Counterexample]:
    """One vector added to all keys adds one number to all scores of a query."""
    for case in _cases(implementation):
        Q, K, V = case.arrays
        i = int(np.argmax(np.abs(Q).sum(axis=1)))
        for shift in (1.0, -40.0, 800.0):
            step = shift * math.sqrt(Q.shape[1]) * Q[i] / (Q[i] @ Q[i])
            given = f"a vector added to all keys that adds {shift:g} to each score of query {i}"
            call = case.call.but(given, Q, K + step, V)
            before, after = _output(implementation, case.call), _output(implementation, call)
            yield from _compare(call, after, before, implementation.tolerance * abs(shift))


def _prefix(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _causal_cases(implementation):
        whole = _output(implementation, case.call)
        for t in range(1, len(whole)):
            call = case.call.but(
                f"only the first {_plural(t, 'token')} of them", *(a[:t] for a in case.arrays)
            )
            part = _output(implementation, call)
            yield from _compare(call, part, whole[:t], implementation.tolerance)


def _scaling(implementation: Implementation) -> Iterator[Counterexample]:
    """Scores that are the logarithms of 1, 2, 3 make weights of 1/6, 2/6, 3/6."""
    counts, V = np.array([1.0, 2.0, 3.0]), np.array([[1.0, 2.0], [3.0, 0.0], [4.0, 5.0]])
    is_causal = not implementation.can("dense")
    seen = np.tri(3) * counts if is_causal else counts[np.newaxis]
    needed = seen @ V / seen.sum(axis=1, keepdims=True)
    flags = _flags(implementation, is_causal)
    for E in (4, 5, 7):
        Q = np.ones((len(seen), E))
        for scale in (None, *(2.0, -0.5) * ("scale" in implementation.options)):
            factor = 1.0 / math.sqrt(E) if scale is None else scale
            K = np.outer(np.log(counts), np.ones(E)) / (E * factor)
            named = f"1/√{E}" if scale is None else f"the scale {scale:g}"
            given = f"keys of width {E} whose dot products times {named} are ln 1, ln 2, ln 3"
            call = _Call(given, (Q, K, V), flags if scale is None else {**flags, "scale": scale})
            came = _output(implementation, call)
            yield from _compare(call, came, needed, implementation.tolerance)
        if "scale" in implementation.options:
            call = _Call(
                "the scale 0, which makes all scores 0", (Q, K, V), {**flags, "scale": 0.0}
            )
            equal = np.tri(3) @ V / [[1], [2], [3]] if is_causal else V.mean(0, keepdims=True)
            yield from _compare(
                call, _output(implementation, call), equal, implementation.tolerance
            )


def _empty_rows(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        mask = case.call.options.get("attn_mask")
        if mask is None:
            continue
        for i in range(len(mask)):
            closed = mask.copy()
            closed[i] = False
            given = f"{case.call.given}; query {i} may attend to nothing"
            call = _Call(given, case.arrays, {**case.call.options, "attn_mask": closed})
            came = _output(implementation, call)
            if not np.array_equal(came[i], np.zeros_like(came[i])):
                yield call.counterexample(f"output {i} = {_numbers(came[i])}", "zeros")


def _chunks(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _causal_cases(implementation):
        whole = _output(implementation, case.call)
        for lengths in _ways_to_cut(len(whole)):
            if "chunks" in implementation.options:
                yield from _cut_at_once(implementation, case.call, whole, lengths)
            else:
                yield from _cut_by_offset(implementation, case, whole, lengths)


def _ways_to_cut(m: int) -> list[tuple[int, ...]]:
    return [(1,) * m, (m - 1, 1), (1, m - 1)]


def _cut_at_once(
    implementation: Implementation, call: _Call, whole: np.ndarray, lengths: tuple[int, ...]
) -> Iterator[Counterexample]:
    given = f"{call.given}; the tokens came in pieces of {lengths}"
    pieces = _Call(given, call.arguments, {**call.options, "chunks": lengths})
    came = _output(implementation, pieces)
    yield from _compare(pieces, came, whole, implementation.tolerance)


def _cut_by_offset(
    implementation: Implementation, case: _Case, whole: np.ndarray, lengths: tuple[int, ...]
) -> Iterator[Counterexample]:
    Q, K, V = case.arrays
    end = 0
    for length in lengths:
        start, end = end, end + length
        call = _Call(
            f"{case.call.given}; only the queries {start} … {end - 1}, at offset {start}",
            (Q[start:end], K[:end], V[:end]),
            {**case.call.options, "causal_offset": start},
        )
        came = _output(implementation, call)
        yield from _compare(call, came, whole[start:end], implementation.tolerance)


def _grouped_heads(implementation: Implementation) -> Iterator[Counterexample]:
    for Hq, Hkv, L, S, E, Ev in ((4, 2, 1, 3, 5, 6), (6, 3, 2, 4, 5, 1)):
        Q, K, V = _drawn((Hq, L, E), (Hkv, S, E), (Hkv, S, Ev))
        options = _flags(implementation, False)
        given = f"{Hq} query heads and {Hkv} key/value heads"
        call = _Call(given, (Q, K, V), {**options, "enable_gqa": True})
        came = _output(implementation, call)
        for h in range(Hq):
            g = h // (Hq // Hkv)
            alone = _Call(f"query head {h} with key head {g}", (Q[h], K[g], V[g]), options)
            needed = _output(implementation, alone)
            name = f"head {h}, output"
            yield from _compare(call, came[h], needed, implementation.tolerance, name)


def _nan_stays_masked(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        before = _output(implementation, case.call)
        Q, K, V = case.arrays
        for j in np.flatnonzero(~case.visible.all(axis=0)):
            K_nan, V_nan = K.copy(), V.copy()
            K_nan[j], V_nan[j] = np.nan, np.nan
            call = case.call.but(f"key and value {j} are NaN", Q, K_nan, V_nan)
            hidden = ~case.visible[:, j]
            after = np.where(hidden[:, np.newaxis], _output(implementation, call), before)
            yield from _compare(call, after, before, implementation.tolerance)


def _inputs_untouched(implementation: Implementation) -> Iterator[Counterexample]:
    for case in _cases(implementation):
        given = [array.copy() for array in case.arrays]
        watched = Implementation(
            lambda *_, given=given, **options: implementation.function(*given, **options),
            *(implementation.kind, implementation.options, implementation.promises),
            implementation.tolerance,
        )
        _output(watched, case.call)
        for name, before, after in zip(("query", "key", "value"), case.arrays, given, strict=True):
            if not np.array_equal(before, after):
                yield case.call.counterexample(
                    f"a {name} that is now {_numbers(after[0])} in row 0", f"{_numbers(before[0])}"
                )


# --- The laws of gradients ----------------------------------------------------------------------


def _plain_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, visible: Any) -> np.ndarray:
    """Attention as its equation says it, for small inputs and at least one key a query."""
    scores = np.where(visible, Q @ K.T / math.sqrt(Q.shape[1]), -np.inf)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True) @ V


def _slopes(arrays: Arrays, which: int, grad_output: np.ndarray, visible: Any) -> np.ndarray:
    """How the loss Σ output · grad_output changes with each number of one array."""

    def loss(place: tuple[int, ...], step: float) -> float:
        moved = [array.copy() for array in arrays]
        moved[which][place] += step
        return float(np.sum(_plain_attention(*moved, visible) * grad_output))

    slopes = np.zeros_like(arrays[which])
    for place in np.ndindex(
        *slopes.shape
    ):  # five points: the error falls with the step's 4th power
        near, far = (loss(place, s) - loss(place, -s) for s in (1e-3, 2e-3))
        slopes[place] = (8.0 * near - far) / 12e-3
    return slopes


def _gradient_is_slope(implementation: Implementation) -> Iterator[Counterexample]:
    tolerance = max(1e-7, implementation.tolerance)
    for case in _cases(implementation):
        (grad_output,) = _drawn((len(case.arrays[0]), case.arrays[2].shape[1]))
        call = _Call(case.call.given, (*case.arrays, grad_output), case.call.options)
        came = _results(implementation, call)
        if not isinstance(came, Sequence) or len(came) != 3:
            yield call.counterexample(f"a {type(came).__name__}", "three arrays, dQ, dK, dV")
            return
        for which, name in enumerate(("dQ", "dK", "dV")):
            needed = _slopes(case.arrays, which, grad_output, case.visible)
            gradient = _as_array(call, came[which], needed.shape)
            yield from _compare(call, gradient, needed, tolerance, f"{name}, row")


# --- The laws of multi-head attention -----------------------------------------------------------


def _multi_head_call(
    implementation: Implementation, size: tuple[int, int, int, int], is_causal: bool
) -> _Call:
    m, D, H, E = size
    shapes = ((m, D), (D, H * E), (D, H * E), (D, H * E), (H * E, D))
    words = f"{_plural(m, 'token')} of width {D}, {_plural(H, 'head')} of width {E}"
    words += ", causal" * is_causal
    return _Call(words, (*_drawn(*shapes), H), _flags(implementation, is_causal))


def _multi_head_calls(
    implementation: Implementation, *, one_head: bool = False, is_causal: bool | None = None
) -> list[_Call]:
    sizes = ((2, 3, 1, 3), (4, 5, 1, 5)) if one_head else HEADS
    if "width" in implementation.promises:
        sizes += ((2, 3, 1, 4),) if one_head else FREE_WIDTHS
    asked = [False] * implementation.can("dense") + [True] * implementation.can("causal")
    if is_causal is not None:
        asked = [is_causal]
    return [_multi_head_call(implementation, size, flag) for size in sizes for flag in asked]


def _is_causal(implementation: Implementation, call: _Call) -> bool:
    return call.options.get("is_causal", not implementation.can("dense"))


def _loop_over_heads(call: _Call, is_causal: bool) -> np.ndarray:
    """Each head by itself, times its rows of the output projection, added up."""
    x, w_q, w_k, w_v, w_o, H = call.arguments
    E = w_q.shape[1] // H
    visible = np.tri(len(x), dtype=bool) if is_causal else True
    output = np.zeros_like(x)
    for head in (slice(j * E, (j + 1) * E) for j in range(H)):
        heads = _plain_attention(x @ w_q[:, head], x @ w_k[:, head], x @ w_v[:, head], visible)
        output += heads @ w_o[head]
    return output


def _one_head(implementation: Implementation) -> Iterator[Counterexample]:
    yield from _against_the_loop(implementation, _multi_head_calls(implementation, one_head=True))


def _looped_heads(implementation: Implementation) -> Iterator[Counterexample]:
    yield from _against_the_loop(implementation, _multi_head_calls(implementation))


def _against_the_loop(
    implementation: Implementation, calls: list[_Call]
) -> Iterator[Counterexample]:
    for call in calls:
        needed = _loop_over_heads(call, _is_causal(implementation, call))
        came = _output(implementation, call)
        yield from _compare(call, came, needed, 10 * implementation.tolerance)


def _heads_later_tokens(implementation: Implementation) -> Iterator[Counterexample]:
    for call in _multi_head_calls(implementation, is_causal=True):
        x, *weights = call.arguments
        before = _output(implementation, call)
        for t in range(len(x) - 1, 0, -1):
            changed = call.but(f"token {t} was changed", _changed(x, t, by=3.0), *weights)
            after = _output(implementation, changed)
            yield from _compare(changed, after[:t], before[:t], implementation.tolerance)


def _heads_token_order(implementation: Implementation) -> Iterator[Counterexample]:
    for call in _multi_head_calls(implementation, is_causal=False):
        x, *weights = call.arguments
        order = np.roll(np.arange(len(x)), 1)
        moved = call.but("the last token was put first", x[order], *weights)
        before, after = _output(implementation, call), _output(implementation, moved)
        yield from _compare(moved, after, before[order], 10 * implementation.tolerance)


def _heads_chunks(implementation: Implementation) -> Iterator[Counterexample]:
    for call in _multi_head_calls(implementation, is_causal=True):
        whole = _output(implementation, call)
        for lengths in _ways_to_cut(len(whole)) if len(whole) > 1 else []:
            yield from _cut_at_once(implementation, call, whole, lengths)


def _heads_batch(implementation: Implementation) -> Iterator[Counterexample]:
    for call in _multi_head_calls(implementation):
        x, *weights = call.arguments
        items = np.stack([x, x[::-1] + 1.0])
        given = f"a batch of {len(items)} sequences, each of {call.given}"
        batch = _Call(given, (items, *weights), call.options)
        came = _output(implementation, batch)
        for b, item in enumerate(items):
            needed = _output(implementation, call.but("one item alone", item, *weights))
            name = f"item {b}, output"
            yield from _compare(batch, came[b], needed, 10 * implementation.tolerance, name)


ROUNDING = "within rounding"
LAWS: tuple[Law, ...] = (
    Law(
        "rows-sum-to-one",
        "The weights of a query are at least 0 and sum to one.",
        *("attention", ROUNDING, (), _rows_sum_to_one),
    ),
    Law(
        "later-tokens",
        "A later token never changes an earlier output.",
        *("attention", "exact in chapter code, else " + ROUNDING, ("causal",), _later_tokens),
    ),
    Law(
        "masked-pairs",
        "A pair that is masked never matters: its key and value may be anything finite.",
        *("attention", ROUNDING, ("attn_mask",), _masked_pairs),
    ),
    Law(
        "key-order",
        "Permuting the keys together with their values changes nothing.",
        *("attention", ROUNDING, ("dense",), _key_order),
    ),
    Law(
        "query-order",
        "Permuting the queries permutes the outputs in the same way.",
        *("attention", ROUNDING, ("dense",), _query_order),
    ),
    Law(
        "score-shift",
        "Adding one number to all scores of a query changes nothing.",
        *("attention", ROUNDING + " of the shifted scores", (), _score_shift),
    ),
    Law(
        "prefix",
        "The output of a prefix is the prefix of the output.",
        *("attention", ROUNDING, ("causal",), _prefix),
    ),
    Law(
        "scaling",
        "Dot products of √E times ln 1, ln 2, ln 3 give the weights 1/6, 2/6, 3/6, whatever E is.",
        *("attention", ROUNDING, (), _scaling),
    ),
    Law(
        "empty-rows",
        "A query that may attend to nothing gets zeros.",
        *("attention", "exact", ("attn_mask",), _empty_rows),
    ),
    Law(
        "chunks",
        "A full pass, chunks, and token by token give the same outputs.",
        *("attention", ROUNDING, ("causal", "chunks"), _chunks),
    ),
    Law(
        "grouped-heads",
        "Query head h of a group uses key/value head h // (Hq // Hkv).",
        *("attention", ROUNDING, ("dense", "enable_gqa"), _grouped_heads),
    ),
    Law(
        "nan-stays-masked",
        "A NaN in a masked key or value changes nothing.",
        *("attention", ROUNDING, ("nan",), _nan_stays_masked),
    ),
    Law(
        "inputs-untouched",
        "A call leaves its inputs as they were.",
        *("attention", "exact", (), _inputs_untouched),
    ),
    Law(
        "gradient-is-slope",
        "Each gradient is the slope of the loss, measured by finite differences.",
        *("gradients", "within 1e-7, the error of the differences", (), _gradient_is_slope),
    ),
    Law(
        "one-head",
        "One head is attention without heads, followed by the output projection.",
        *("multi-head", ROUNDING, (), _one_head),
    ),
    Law(
        "looped-heads",
        "Fused heads give what a loop over single heads gives, each times its rows of W^head.",
        *("multi-head", ROUNDING, (), _looped_heads),
    ),
    Law(
        "heads-later-tokens",
        "A later token never changes an earlier output of any head.",
        *("multi-head", ROUNDING, ("causal",), _heads_later_tokens),
    ),
    Law(
        "heads-token-order",
        "Permuting the tokens permutes the outputs in the same way.",
        *("multi-head", ROUNDING, ("dense",), _heads_token_order),
    ),
    Law(
        "heads-chunks",
        "A full pass, chunks, and token by token give the same outputs with all heads.",
        *("multi-head", ROUNDING, ("causal", "chunks"), _heads_chunks),
    ),
    Law(
        "heads-batch",
        "A batch gives what its items give one by one.",
        *("multi-head", ROUNDING, ("batch",), _heads_batch),
    ),
)
