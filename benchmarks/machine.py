"""What was measured where: processor, libraries, threads, commit."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

# Instruction sets that decide how fast matrix products and exponentials are.
_FLAGS = ("sse4_2", "avx", "fma", "avx2", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")


def describe() -> dict[str, Any]:
    """The machine and the libraries, as the calling process finds them."""
    import numpy as np
    import threadpoolctl
    import torch

    flags = _processor_flags()
    blas = [
        {key: pool.get(key) for key in ("internal_api", "version", "architecture", "num_threads")}
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas" and "numpy" in pool["filepath"]
    ]
    return {
        "processor": _processor(),
        "cores": cores(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": {"version": np.__version__, "blas": blas},
        "torch": {
            "version": torch.__version__,
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "mkl": torch.backends.mkl.is_available(),
        },
    }


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit(*sources: str) -> dict[str, Any]:
    """The commit that is checked out, and whether the sources (paths) differ from it.

    Without paths they are what a measurement of the library depends on.
    """
    sources = sources or ("attnlib", "benchmarks/*.py")
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", *sources)
    except (OSError, subprocess.CalledProcessError):  # a copy without git
        return {"commit": None, "dirty": None}
    return {"commit": head, "dirty": bool(changed)}


def now() -> str:
    """Date and time, to the minute."""
    return datetime.now(UTC).isoformat(timespec="minutes")


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _cpuinfo(*fields: str) -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in fields:
                return value.strip()
    return ""


def _processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _processor_flags() -> set[str]:
    return set(_cpuinfo("flags", "Features").split())


if __name__ == "__main__":
    import json

    json.dump(describe() | commit(), sys.stdout, indent=2)
