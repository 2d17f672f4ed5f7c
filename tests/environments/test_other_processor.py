"""The chapters' stored outputs survive another processor.

NumPy, OpenBLAS and PyTorch choose their inner loops by what the processor can do, and the last bits
of a result follow. Told to do without, they compute as on an older processor.
"""

import functools
import json
import os
import platform
import sys

import pytest

from tests.chapters.documents import NOTEBOOKS
from tests.chapters.nbval import run_nbval
from tests.environments.environments import run

pytestmark = pytest.mark.slow  # runs every chapter

_ASK = """
import json, numpy, threadpoolctl, torch
from numpy._core._multiarray_umath import __cpu_dispatch__ as known, __cpu_features__ as has
blas = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
print(json.dumps({
    "NumPy": [feature for feature in known if has[feature]],
    "OpenBLAS": [library["architecture"] for library in blas if "architecture" in library],
    "PyTorch": torch.backends.cpu.get_cpu_capability(),
}))
"""
# Kernels of OpenBLAS that every processor of the kind can run, newest first.
_KERNELS = {"x86_64": ("Haswell", "Sandybridge", "Nehalem"), "aarch64": ("NEOVERSEN1", "ARMV8")}
AVX512 = ("X86_V4", "AVX512")


@functools.cache
def in_use(**settings):
    """Return which inner loops a new process uses under these environment variables."""
    return json.loads(run(sys.executable, "-c", _ASK, env={**os.environ, **settings}))


def without_avx512():
    """Settings for the processor before AVX-512; None where there is none to go without."""
    features = [feature for feature in in_use()["NumPy"] if feature.startswith(AVX512)]
    return features and {
        "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        "OPENBLAS_CORETYPE": "Haswell",
        "ATEN_CPU_CAPABILITY": "avx2",
    }


def plainest():
    """Settings for the oldest processor that the installed NumPy runs on."""
    kernels = _KERNELS.get(platform.machine(), ())
    others = [name for name in kernels if in_use(OPENBLAS_CORETYPE=name) != in_use()]
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(in_use()["NumPy"]),
        "ATEN_CPU_CAPABILITY": "default",
        **({"OPENBLAS_CORETYPE": others[-1]} if others else {}),
    }


@pytest.fixture(params=[without_avx512, plainest], ids=lambda choice: choice.__name__)
def settings(request):
    return request.param() or pytest.skip("this processor has no AVX-512 to switch off")


def test_the_settings_take_effect(settings):
    here, there = in_use(), in_use(**settings)
    off = settings["NPY_DISABLE_CPU_FEATURES"].split()
    assert there["NumPy"] == [feature for feature in here["NumPy"] if feature not in off]
    assert here["PyTorch"] == "DEFAULT" or there["PyTorch"] != here["PyTorch"]
    if "OPENBLAS_CORETYPE" in settings:
        assert there["OpenBLAS"] == [settings["OPENBLAS_CORETYPE"]]
    assert there != here


def test_every_chapter_prints_the_same(settings, tmp_path):
    verdicts = run_nbval(tmp_path, *NOTEBOOKS, settings=settings)
    assert len(verdicts) > len(NOTEBOOKS)
    faults = [text for text in verdicts if text is not None]
    assert faults == [], "\n".join(faults)
