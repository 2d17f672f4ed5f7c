"""Choosing how figures are shown."""

from __future__ import annotations

from livecells import session
from livecells.figures import use_formats


def set_matplotlib_formats(*formats: str, **options: object) -> None:
    """Choose the kinds of picture that a figure is shown as, of "png" and "svg"."""
    use_formats(session.shell.display_formatter.formatters, formats)
