"""A rehearsal of Colab: each notebook alone in an empty folder, its first cell installs attnlib.

The environments hold what Colab has, except torch, which stays at the book's version. Under Colab's
Python the torch cells are left out (no other cell needs them, and PyPI has no CPU build of torch);
under the book's Python all cells run. nbval compares what they print; figures differ
with the release of Matplotlib and are not compared.
"""

import json
import os
import platform
import sys
from pathlib import Path

import nbformat
import pytest

from tests.chapters.documents import NOTEBOOKS, read_notebook, tags
from tests.chapters.nbval import run_nbval
from tests.chapters.notebook_rules import ADDRESS
from tests.environments.environments import (
    NOTES,
    copy_package,
    environment,
    interpreters,
    lend,
    pinned,
    pip_uninstall,
    run,
)

pytestmark = pytest.mark.slow  # runs every chapter, twice

# What Colab had in August 2026, under Python 3.13.
COLAB_PYTHON = "3.13."
COLAB = ["ipykernel==6.17.1", "ipython==7.34.0", "matplotlib==3.10.0", "numpy==2.1.3", "pip"]
_LIBRARY = "import importlib.util as u; print(u.find_spec('attnlib') is not None)"
_ORIGIN = (
    "import importlib.metadata as m; print(m.distribution('attnlib').read_text('direct_url.json'))"
)


@pytest.fixture(scope="session")
def repository(tmp_path_factory):
    """Make a git repository of this checkout, with the branch from which notebooks install."""
    folder = copy_package(tmp_path_factory.mktemp("published") / "book")
    git = ["git", "-C", folder, "-c", "user.name=reader", "-c", "user.email=reader@localhost"]
    run("git", "init", "--quiet", "--initial-branch", "main", folder)
    run(*git, "add", ".")
    run(*git, "commit", "--quiet", "--message", "The checkout under test")
    return folder


@pytest.fixture(scope="session")
def stub(tmp_path_factory):
    """Make google.colab importable, and imported from the start, as it is on Colab."""
    folder = tmp_path_factory.mktemp("stub")
    (folder / "google/colab").mkdir(parents=True)
    (folder / "google/colab/__init__.py").touch()
    (folder / "sitecustomize.py").write_text("import google.colab\n")
    return folder


@pytest.fixture(scope="session")
def colab_python():
    """Return the Python of an environment like Colab's, without torch."""
    version = next((v for v in interpreters() if v.startswith(COLAB_PYTHON)), None)
    if version is None:
        pytest.skip(f"no Python {COLAB_PYTHON}x here, which Colab has")
    NOTES.append(f"Colab rehearsal without torch cells: Python {version}, {', '.join(COLAB[:-1])}")
    return environment("colab", interpreters()[version], COLAB)


@pytest.fixture(scope="session")
def book_python():
    """Return the Python of the same environment under the book's Python."""
    (torch,) = pinned("torch")
    version = platform.python_version()
    NOTES.append(
        f"Colab rehearsal of all cells: Python {version}, {', '.join(COLAB[:-1])}, {torch}"
    )
    return environment("colab-torch", Path(sys.executable), COLAB)


@pytest.fixture(scope="session")
def torch(tmp_path_factory):
    """Return a folder from which the book's own torch can be imported."""
    return lend("torch", tmp_path_factory.mktemp("torch"))


@pytest.fixture
def check_runs_alone(tmp_path, repository, stub):
    """Return a function that runs a notebook as a reader does who opens it on Colab."""

    def check(notebook, python, *importable):
        pip_uninstall(python, "attnlib")
        assert run(python, "-c", _LIBRARY, cwd=tmp_path) == "False\n"
        write_kernel(tmp_path / "jupyter", python, [stub, *importable], repository)
        alone = tmp_path / "alone"
        alone.mkdir()
        nbformat.write(notebook, alone / "chapter.ipynb")
        verdicts = run_nbval(
            tmp_path,
            alone / "chapter.ipynb",
            options=("--nbval-kernel-name", "colab", "--figures", "ignore"),
            settings={"JUPYTER_PATH": str(tmp_path / "jupyter")},
        )
        faults = [text for text in verdicts if text is not None]
        assert faults == [], "\n".join(faults)
        assert len(verdicts) == sum(cell.cell_type == "code" for cell in notebook.cells)
        origin = json.loads(run(python, "-c", _ORIGIN, cwd=tmp_path))
        assert (origin["url"], origin["vcs_info"]["requested_revision"]) == (ADDRESS, "main")

    return check


def write_kernel(folder, python, importable, repository):
    """Describe a kernel that imports from nowhere else and finds the project in ``repository``."""
    environment_variables = {
        "PYTHONPATH": os.pathsep.join(map(str, importable)),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{repository.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": ADDRESS,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    kernel = {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Colab",
        "language": "python",
        "env": environment_variables,
    }
    (folder / "kernels/colab").mkdir(parents=True)
    (folder / "kernels/colab/kernel.json").write_text(json.dumps(kernel))


def as_opened(path):
    """Return a chapter whose installation may print, as pip does; nothing is stored of that."""
    notebook = read_notebook(path)
    installation = notebook.cells[1]
    assert "%pip install" in installation.source
    installation.metadata.tags.append("nbval-ignore-output")
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_runs_alone_under_colabs_python_without_its_torch_cells(
    path, colab_python, check_runs_alone
):
    notebook = as_opened(path)
    notebook.cells = [cell for cell in notebook.cells if "torch" not in tags(cell)]
    check_runs_alone(notebook, colab_python)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_runs_alone_under_the_books_python_with_its_torch_cells(
    path, book_python, torch, check_runs_alone
):
    check_runs_alone(as_opened(path), book_python, torch)
