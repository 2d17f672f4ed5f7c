"""Answers to the page: a line of JSON each, written to the file that the engine listens to."""

from __future__ import annotations

import io
import json
import time
from typing import Any

LONGEST_TEXT = 100_000  # characters of text that one run may print
CUT = "\n… the rest of this output is left out\n"
UNHURRIED = 100  # lines of one run that are sent one by one; after them …
PAUSE = 0.05  # … text is gathered for so many seconds: a page cannot follow every line


class Outbox:
    """Sends messages about the cell that is running."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115, open as long as Python runs
        self.begin(None)

    def begin(self, run: Any) -> None:
        """From now on, outputs belong to this run."""
        self._run = run
        self._gathered, self._name = "", ""
        self._length, self._texts, self._sent_at = 0, 0, 0.0

    def send(self, kind: str, **content: Any) -> None:
        """Send one message."""
        self._file.write(json.dumps({"type": kind, **content}) + "\n")
        self._file.flush()

    def output(self, kind: str, **content: Any) -> None:
        """Send one output of the running cell, in the form in which notebooks store outputs."""
        self.send_text()
        self._send_output(kind, content)

    def text(self, name: str, text: str) -> None:
        """Send printed text, soon if not at once, until there is more of it than a reader wants."""
        if self._length > LONGEST_TEXT:
            return
        self._length += len(text)
        if self._length > LONGEST_TEXT:
            text = text[: len(text) - (self._length - LONGEST_TEXT)] + CUT
        if name != self._name:
            self.send_text()
        self._gathered, self._name = self._gathered + text, name
        if self._texts < UNHURRIED or time.monotonic() - self._sent_at > PAUSE:
            self.send_text()

    def send_text(self) -> None:
        """Send the text that was gathered."""
        if not self._gathered:
            return
        content = {"name": self._name, "text": self._gathered}
        self._gathered = ""
        self._texts, self._sent_at = self._texts + 1, time.monotonic()
        self._send_output("stream", content)

    def _send_output(self, kind: str, content: dict[str, Any]) -> None:
        self.send("output", run=self._run, output={"output_type": kind, **content})


class Stream(io.TextIOBase):
    """Stands for ``sys.stdout`` or ``sys.stderr``: hands on whole lines."""

    def __init__(self, outbox: Outbox, name: str) -> None:
        self._outbox, self._name, self._waiting = outbox, name, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        lines, newline, rest = text.rpartition("\n")
        if newline:
            self._outbox.text(self._name, self._waiting + lines + newline)
            self._waiting = ""
        self._waiting += rest
        return len(text)

    def flush(self) -> None:
        if self._waiting:
            self._outbox.text(self._name, self._waiting)
            self._waiting = ""
        self._outbox.send_text()
