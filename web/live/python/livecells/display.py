"""From a value to what a page can show of it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
}


class Formatter:
    """The representations of one kind (MIME type) that were set for a type, as IPython has them."""

    def __init__(self) -> None:
        self._functions: dict[type, Callable] = {}

    def for_type(self, type_: type, function: Callable) -> None:
        """Represent values of a type, and of types derived from it, by a function."""
        self._functions[type_] = function

    def lookup(self, value: Any) -> Callable | None:
        """Return the function set for the type of a value, if there is one."""
        return self.lookup_type(type(value))

    def lookup_type(self, type_: type) -> Callable | None:
        """Return the function set for a type, or for one that it is derived from."""
        found = (self._functions.get(base) for base in type_.__mro__)
        return next(filter(None, found), None)


class DisplayFormatter:
    """Makes the bundle of representations of a value."""

    def __init__(self) -> None:
        self.formatters = {kind: Formatter() for kind in METHODS}

    def format(self, value: Any) -> dict[str, str]:
        """Return every representation that a value has, by MIME type."""
        bundle = {"text/plain": plain(value)}
        if isinstance(value, type):
            return bundle
        for kind, method in METHODS.items():
            function = self.formatters[kind].lookup(value)
            content = function(value) if function else call(value, method)
            if content is not None:
                bundle[kind] = as_text(content)
        bundle.update(call(value, "_repr_mimebundle_") or {})
        return bundle


def call(value: Any, method: str) -> Any:
    """Call a method without arguments; None where the value does not have it."""
    function = getattr(value, method, None)
    return function() if callable(function) else None


def plain(value: Any) -> str:
    """Return the text that stands for a value where nothing richer can."""
    collections = (dict, list, tuple, set)
    if type(value) in collections:
        import pprint

        return pprint.pformat(value, width=80, sort_dicts=False, compact=True)
    return repr(value)


def as_text(content: str | bytes | tuple) -> str:
    """Return a representation as text: binary ones in base64, as notebooks store them."""
    if isinstance(content, tuple):  # with metadata
        content = content[0]
    if isinstance(content, bytes):
        return base64.b64encode(content).decode("ascii")
    return content
