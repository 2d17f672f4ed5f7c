"""Driving Debian's Firefox, by the protocol that every Firefox speaks (Marionette)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("firefox-esr", "firefox")
PATIENCE = 300  # seconds; only a browser that hangs takes this long

# A browser without a network: all other machines are asked through a proxy that is not there.
SETTINGS = {
    "marionette.port": 0,  # any free one; Firefox writes which into a file of its profile
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.normandy.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
}


def find() -> str | None:
    """Return the path of a Firefox, if this machine has one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Firefox:
    """One window of Firefox."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._count = 0
        self._message()  # it introduces itself
        self.command("WebDriver:NewSession", capabilities={"alwaysMatch": {}})
        self.command("WebDriver:SetTimeouts", script=PATIENCE * 1000, pageLoad=PATIENCE * 1000)

    def command(self, name: str, **parameters: Any) -> Any:
        """Have a command carried out, and return its result."""
        self._count += 1
        said = json.dumps([0, self._count, name, parameters]).encode()
        self._connection.sendall(b"%d:%s" % (len(said), said))
        _, _, error, result = self._message()
        assert error is None, f"{name}: {error}"
        return result

    def visit(self, address: str) -> None:
        self.command("WebDriver:Navigate", url=address)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page, and return what it returns."""
        parameters = {"script": script, "args": list(arguments)}
        return self.command("WebDriver:ExecuteScript", **parameters)["value"]

    def wait_for(self, condition: str) -> None:
        """Wait until an expression is true in the page."""
        end = time.monotonic() + PATIENCE
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, condition
            time.sleep(0.2)

    def _message(self) -> Any:
        while b":" not in self._received:
            self._receive()
        length, _, self._received = self._received.partition(b":")
        while len(self._received) < int(length):
            self._receive()
        message = self._received[: int(length)]
        self._received = self._received[int(length) :]
        return json.loads(message)

    def _receive(self) -> None:
        received = self._connection.recv(1 << 16)
        assert received, "Firefox has gone"
        self._received += received


@contextmanager
def firefox() -> Iterator[Firefox]:
    """Start the Firefox of this machine with an empty profile."""
    path = find()
    assert path, "no Firefox"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        lines = [f"user_pref({json.dumps(n)}, {json.dumps(v)});" for n, v in SETTINGS.items()]
        Path(profile, "user.js").write_text("\n".join(lines), encoding="utf-8")
        command = [path, "--headless", "--marionette", "--no-remote", "--profile", profile]
        environment = {**os.environ, "HOME": profile}
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, env=environment, **silent)
        try:
            with socket.create_connection(("127.0.0.1", port(profile, process))) as connection:
                yield Firefox(connection)
        finally:
            process.terminate()
            process.wait()


def port(profile: str, process: subprocess.Popen) -> int:
    """Wait until Firefox listens, and return where."""
    written = Path(profile, "MarionetteActivePort")
    end = time.monotonic() + PATIENCE
    while not written.exists() or not written.read_text():
        assert process.poll() is None, "Firefox did not start"
        assert time.monotonic() < end, "Firefox does not listen"
        time.sleep(0.1)
    return int(written.read_text())
