"""Stands for IPython in live cells: the few names of it that notebooks use."""

from livecells import session

from IPython import display

__all__ = ["display", "get_ipython", "version_info"]

version_info = (9, 0, 0)


def get_ipython():
    """Return the shell of the page's cells."""
    return session.shell
