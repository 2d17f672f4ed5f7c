"""attnlib's own tests on every Python that is present, without torch and without Matplotlib.

They run against the installed wheel, not against the checkout.
"""

import shutil
from xml.etree import ElementTree

import pytest

from tests.environments.environments import (
    ROOT,
    environment,
    interpreters,
    pinned,
    pip_install,
    run,
)

pytestmark = pytest.mark.slow  # runs a test suite for each Python

TOOLS = pinned("pytest", "hypothesis", "threadpoolctl")
NUMPYDOC = pinned("numpydoc")  # reads docstrings; what it requires is for pages, and is large
OLDEST_NUMPY = "numpy==1.26.4"
PYTHONS = interpreters()
# Long runs at real sizes, and with threads: the book's own environment is enough for them.
LONG = ["tests/attnlib/engines/test_stress.py", "tests/attnlib/test_large.py"]
# They look at the files of all tests, and at the notebooks, which are not copied.
ABOUT_OTHERS = ["tests/attnlib/test_tests.py", "tests/attnlib/test_exercises.py"]
# Only what these environments leave out on purpose may be skipped; a table may hold tensors alone.
ABSENT = (
    "PyTorch is not installed",
    "Matplotlib is not installed",
    "onnx is not installed",
    "got empty parameter set for (kind",
)


@pytest.fixture
def run_suite(tmp_path, wheel):
    """Return a function that installs the wheel and runs a copy of attnlib's tests beside it."""
    for path in (ROOT / "tests").glob("*.py"):
        (tmp_path / "tests").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "tests")
    for folder in ("attnlib", "data"):
        shutil.copytree(ROOT / "tests" / folder, tmp_path / "tests" / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    def suite(python, *left_out):
        pip_install(python, "--force-reinstall", "--no-deps", wheel)
        report = tmp_path / "report.xml"
        ignored = [f"--ignore={path}" for path in (*ABOUT_OTHERS, *left_out)]
        suite = ["tests/attnlib", "-q", "--junit-xml", report]
        run(python, "-m", "pytest", *suite, *ignored, cwd=tmp_path)
        location = run(python, "-c", "import attnlib; print(attnlib.__file__)", cwd=tmp_path)
        assert "site-packages" in location
        return list(ElementTree.parse(report).iter("testcase"))

    return suite


def check_only_absent_packages_were_skipped(cases):
    skipped = [case.find("skipped") for case in cases if case.find("skipped") is not None]
    reasons = [f"{skip.get('message')} {skip.text}" for skip in skipped]
    assert [r for r in reasons if not any(absent in r for absent in ABSENT)] == []
    assert len(cases) - len(skipped) > 100


@pytest.mark.parametrize("version", PYTHONS)
def test_attnlib_needs_neither_torch_nor_matplotlib(version, run_suite):
    python = environment(f"alone-{version}", PYTHONS[version], [*TOOLS, *pinned("numpy")], NUMPYDOC)
    check_only_absent_packages_were_skipped(run_suite(python, *LONG))


def test_attnlib_works_with_the_oldest_numpy_it_promises(run_suite):
    """NumPy 1.26 has wheels for Python 3.11, the oldest one that the book supports, and 3.12."""
    version = next(version for version in PYTHONS if version.startswith(("3.11.", "3.12.")))
    python = environment("oldest-numpy", PYTHONS[version], [*TOOLS, OLDEST_NUMPY], NUMPYDOC)
    check_only_absent_packages_were_skipped(run_suite(python, *LONG))
    assert run(python, "-c", "import numpy; print(numpy.__version__)") == "1.26.4\n"
