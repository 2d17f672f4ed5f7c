"""Serve a folder on this machine, for as long as somebody needs it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line of log for each."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path, handler: type[SimpleHTTPRequestHandler] = QuietHandler) -> Iterator[str]:
    """Serve a folder on the loopback address; yield its URL."""
    answer = functools.partial(handler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
