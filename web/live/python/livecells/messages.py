"""Answers to the page: a line of JSON each, written to the file that the engine listens to."""

from __future__ import annotations

import io
import json
from typing import Any

LONGEST_TEXT = 200_000  # characters of text that one run may print
CUT = "\n… the rest of this output is left out\n"


class Outbox:
    """Sends messages about the cell that is running."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115, open for ever
        self.running: Any = None
        self.printed = 0

    def begin(self, run: Any) -> None:
        """From now on, outputs belong to this run."""
        self.running, self.printed = run, 0

    def send(self, kind: str, **content: Any) -> None:
        """Send one message."""
        self._file.write(json.dumps({"type": kind, **content}) + "\n")
        self._file.flush()

    def output(self, kind: str, **content: Any) -> None:
        """Send one output of the running cell, in the form in which notebooks store outputs."""
        self.send("output", run=self.running, output={"output_type": kind, **content})

    def text(self, name: str, text: str) -> None:
        """Send printed text, until there is so much of it that no reader wants more."""
        if self.printed >= LONGEST_TEXT:
            return
        room = LONGEST_TEXT - self.printed
        self.printed += len(text)
        self.output("stream", name=name, text=text if len(text) <= room else text[:room] + CUT)


class Stream(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``: sends whole lines at once."""

    def __init__(self, outbox: Outbox, name: str) -> None:
        self._outbox, self._name, self._waiting = outbox, name, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._outbox.text(self._name, self._waiting + lines + newline)
            self._waiting = rest
        else:
            self._waiting += rest
        return len(text)

    def flush(self) -> None:
        if self._waiting:
            self._outbox.text(self._name, self._waiting)
            self._waiting = ""
