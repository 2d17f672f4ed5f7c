"""A rehearsal of Colab: each notebook alone in its folder, the first cell installs attnlib.

The environments hold what Colab has, except torch, which stays at the book's version. Under Colab's
Python the torch cells are left out (no other cell needs them, and PyPI has no CPU build of torch);
under the book's Python all cells run. nbval compares what they print; figures differ
with the release of Matplotlib and are not compared.
"""

import json
import os
import platform
import sys
from itertools import islice
from pathlib import Path

import nbformat
import pytest

from tests.chapters.documents import NOTEBOOKS, read_notebook, tags
from tests.chapters.nbval import run_nbval
from tests.chapters.notebook_rules import ADDRESS
from tests.environments.environments import (
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
COLAB_VERSION = next((v for v in interpreters() if v.startswith(COLAB_PYTHON)), None)
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
    if COLAB_VERSION is None:
        pytest.skip(f"no Python {COLAB_PYTHON}x here, which Colab has")
    return environment("colab", interpreters()[COLAB_VERSION], COLAB)


@pytest.fixture(scope="session")
def book_python():
    """Return the Python of the same environment under the book's Python."""
    return environment("colab-torch", Path(sys.executable), COLAB)


@pytest.fixture(scope="session")
def torch(tmp_path_factory):
    """Return a folder from which the book's own torch can be imported."""
    return lend("torch", tmp_path_factory.mktemp("torch"))


@pytest.fixture(scope="session")
def rehearse(tmp_path_factory, repository, stub):
    """Return a function that runs notebooks as a reader does who opens each on Colab.

    They run one after another. The first installs attnlib from the project's address; the others
    find it and leave it alone, as their first cell is the same (tests/chapters holds that).
    """

    def verdicts(notebooks, python, *importable):
        folder = tmp_path_factory.mktemp("alone")
        pip_uninstall(python, "attnlib")
        assert run(python, "-c", _LIBRARY, cwd=folder) == "False\n"
        write_kernel(folder / "jupyter", python, [stub, *importable], repository)
        for name, notebook in notebooks.items():
            (folder / name).mkdir()
            nbformat.write(notebook, folder / name / "chapter.ipynb")
        said = run_nbval(
            folder,
            *(folder / name / "chapter.ipynb" for name in notebooks),
            options=("--nbval-kernel-name", "colab", "--figures", "ignore"),
            settings={"JUPYTER_PATH": str(folder / "jupyter")},
        )
        origin = json.loads(run(python, "-c", _ORIGIN, cwd=folder))
        assert (origin["url"], origin["vcs_info"]["requested_revision"]) == (ADDRESS, "main")
        cells = iter(said)
        found = {name: list(islice(cells, code_cells(n))) for name, n in notebooks.items()}
        assert list(cells) == []
        return found

    return verdicts


@pytest.fixture(scope="session")
def without_torch_cells(rehearse, colab_python):
    """Return what was said of the cells of each notebook, under Colab's Python."""
    notebooks = {path.name: as_opened(path) for path in NOTEBOOKS}
    for notebook in notebooks.values():
        notebook.cells = [cell for cell in notebook.cells if "torch" not in tags(cell)]
    return rehearse(notebooks, colab_python)


@pytest.fixture(scope="session")
def with_torch_cells(rehearse, book_python, torch):
    """Return what was said of the cells of each notebook, under the book's Python."""
    return rehearse({path.name: as_opened(path) for path in NOTEBOOKS}, book_python, torch)


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


def code_cells(notebook):
    return sum(cell.cell_type == "code" for cell in notebook.cells)


def check_every_cell_passed(verdicts):
    faults = [text for text in verdicts if text is not None]
    assert faults == [], "\n".join(faults)
    assert len(verdicts) > 1


@pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS])
def test_runs_alone_under_colabs_python_without_its_torch_cells(
    name, without_torch_cells, record_property
):
    packages = ", ".join(COLAB[:-1])
    note = f"Colab rehearsal without torch cells: Python {COLAB_VERSION}, {packages}"
    record_property("note", note)
    check_every_cell_passed(without_torch_cells[name])


@pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS])
def test_runs_alone_under_the_books_python_with_its_torch_cells(
    name, with_torch_cells, record_property
):
    packages = ", ".join([*COLAB[:-1], *pinned("torch")])
    note = f"Colab rehearsal of all cells: Python {platform.python_version()}, {packages}"
    record_property("note", note)
    check_every_cell_passed(with_torch_cells[name])
