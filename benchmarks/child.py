"""The processes that measure: ``Child`` is the handle, ``main`` is what runs at the other end.

A child takes one request a line and answers with one line, both JSON. Its threads are fixed
before NumPy is imported, and settings that make OpenBLAS choose a kernel by hand are removed:
some machines set them for old releases, and they slow a new one down.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

_HAND_SET = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class MeasuringError(Exception):
    """A child could not do what it was asked; the message says why."""


class Child:
    """A process that measures with a given number of threads, or with all cores (0)."""

    def __init__(self, threads: int):
        command = [sys.executable, "-m", "benchmarks.child", "--threads", str(threads)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(threads),
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        )

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Send a request and wait for the answer."""
        try:
            print(json.dumps([operation, arguments]), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise MeasuringError(f"the process ended ({self._process.wait()}): out of memory?")
        answer = json.loads(line)
        if "error" in answer:
            raise MeasuringError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        with contextlib.suppress(OSError):  # a request that it did not take
            self._process.stdin.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _environment(threads: int) -> dict[str, str]:
    environment = {name: text for name, text in os.environ.items() if name not in _HAND_SET}
    if threads:
        return environment | dict.fromkeys(_THREADS, str(threads))
    return {name: text for name, text in environment.items() if name not in _THREADS}


# --- the other end --------------------------------------------------------------------------------


def main() -> None:
    """Answer requests until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=0)
    threads = parser.parse_args().threads
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the parent, which ends its children
    if threads:
        _keep_to_cores(threads)
    with _answers() as answers:
        for line in sys.stdin:
            operation, arguments = json.loads(line)
            print(json.dumps(_answer(operation, arguments)), file=answers, flush=True)


def _keep_to_cores(count: int) -> None:
    """So many cores and no more, so that everything that counts cores finds as many."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


@contextlib.contextmanager
def _answers() -> Iterator[Any]:
    """Standard output for answers alone: what libraries print goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        yield answers


def _answer(operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    from benchmarks import operations

    function: Callable[..., Any] = getattr(operations, operation)
    try:
        return {"result": function(**arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
