"""The shell that chapters see as IPython's: display, magics, the namespace of the cells."""

from __future__ import annotations

import re
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from livecells.display import DisplayFormatter
from livecells.messages import Outbox

COMMAND = re.compile(r"^(?P<indent>\s*)(?P<sign>%%|%|!)(?P<name>\w*)[ \t]*(?P<rest>.*)$")


class Events:
    """Takes the functions that IPython would call after each cell, and has no use for them."""

    def register(self, event: str, function: Callable) -> None:
        """Take a function."""

    def unregister(self, event: str, function: Callable) -> None:
        """Give it up."""


class Shell:
    """What ``get_ipython()`` returns inside a live cell."""

    kernel = True  # it can show more than text, as the kernel of a notebook can

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.events = Events()
        self.display_formatter = DisplayFormatter()
        self.user_module = types.ModuleType("__main__")
        self.user_ns = vars(self.user_module)
        self.user_ns["get_ipython"] = lambda: self
        self.user_ns["display"] = self.display

    def display(self, *values: Any, **options: Any) -> None:
        """Show values as richly as the page can."""
        for value in values:
            self.show("display_data", value)

    def show(self, kind: str, value: Any) -> None:
        """Send the representations of one value; what was printed before comes before."""
        if hasattr(type(value), "_ipython_display_"):
            value._ipython_display_()  # it shows itself
            return
        data = self.display_formatter.format(value)
        self.flush()
        self._outbox.output(kind, data=data, metadata={})

    def clear_output(self, wait: bool = False) -> None:
        """Remove what the running cell has shown so far; with `wait`, when it shows more."""
        self.flush()
        self._outbox.output("clear", wait=bool(wait))

    def flush(self) -> None:
        """Send what was printed and still waits for the end of its line."""
        sys.stdout.flush()
        sys.stderr.flush()

    def run_line_magic(self, name: str, line: str) -> None:
        """Do what a line such as ``%timeit f(x)`` asks for, as far as a page can."""
        if name == "timeit":
            print(timed(line, self.user_ns))
        elif name == "time":
            self.run_timed(line)
        elif name != "matplotlib":
            print(f"%{name} does nothing in the browser")

    def run_timed(self, source: str) -> None:
        """Run code and tell how long it took."""
        start = time.perf_counter()
        exec(compile(source, "<time>", "exec"), self.user_ns)
        print(f"Wall time: {time.perf_counter() - start:.3g} s")

    def system(self, command: str) -> None:
        """Say that there is no shell behind a line such as ``!ls``."""
        print(f"!{command}: there are no shell commands in the browser")


def timed(statement: str, namespace: dict[str, Any]) -> str:
    """Time a statement as ``%timeit`` does."""
    import timeit

    timer = timeit.Timer(re.sub(r"^(-\w+\s*\d+\s+)*", "", statement), globals=namespace)
    count, _ = timer.autorange()
    best = min(timer.repeat(3, count)) / count
    units = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
    unit = next((unit for unit, size in units.items() if best >= size), "ns")
    return f"{best / units[unit]:.3g} {unit} per loop (best of 3 runs, {count} loops each)"


def without_commands(source: str) -> str:
    """Write lines that start with ``%`` or ``!`` as calls of the shell, each on its own line."""
    lines = source.split("\n")
    first = COMMAND.match(lines[0])
    if first and first["sign"] == "%%":
        rest = "\n".join(lines[1:])
        return f"get_ipython().run_line_magic({first['name']!r}, {rest!r})"
    return "\n".join(map(without_command, lines))


def without_command(line: str) -> str:
    """Write one line as a call of the shell if it is a command."""
    command = COMMAND.match(line)
    if not command or command["sign"] == "%%":
        return line
    if command["sign"] == "!":
        call = f"system({command['name'] + command['rest']!r})"
    else:
        call = f"run_line_magic({command['name']!r}, {command['rest']!r})"
    return f"{command['indent']}get_ipython().{call}"
