"""Values that are shown as what they hold: HTML, LaTeX, pictures."""

from __future__ import annotations

import base64
from typing import Any

from livecells import session


def display(*values: Any, **options: Any) -> None:
    """Show values below the running cell."""
    session.shell.display(*values, **options)


def clear_output(wait: bool = False) -> None:
    """Remove what the running cell has shown so far."""
    session.shell.clear_output(wait)


class DisplayObject:
    """Holds content of one kind, given or read from a file."""

    kind = "text/plain"

    def __init__(self, data: str | bytes | None = None, *, filename: str | None = None) -> None:
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data = data

    def _repr_mimebundle_(self) -> dict[str, str]:
        return {self.kind: self.text()}

    def text(self) -> str:
        """Return the content as text: binary content in base64."""
        if not isinstance(self.data, bytes):
            return str(self.data)
        if self.kind.startswith("image/") and self.kind != "image/svg+xml":
            return base64.b64encode(self.data).decode("ascii")
        return self.data.decode("utf-8")

    def __repr__(self) -> str:
        return f"<IPython.core.display.{type(self).__name__} object>"


class HTML(DisplayObject):
    """HTML."""

    kind = "text/html"


class Latex(DisplayObject):
    """LaTeX, with its own dollar signs or environments."""

    kind = "text/latex"


class Math(DisplayObject):
    """One formula in LaTeX."""

    kind = "text/latex"

    def text(self) -> str:
        return rf"$\displaystyle {super().text().strip('$')}$"


class Markdown(DisplayObject):
    """Markdown."""

    kind = "text/markdown"


class SVG(DisplayObject):
    """A drawing in SVG."""

    kind = "image/svg+xml"


class Image(DisplayObject):
    """A picture in PNG."""

    kind = "image/png"
