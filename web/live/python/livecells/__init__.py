"""What runs inside the engine of the live cells: one cell at a time, as a notebook does.

The page talks to the engine in the messages of web/live/README.md. The engine's worker hands
``run`` and ``complete`` on to this package, which answers through a file, a line of JSON each.
"""

from livecells.session import complete, decoded, run, start

__all__ = ["complete", "decoded", "run", "start"]
