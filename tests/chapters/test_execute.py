"""`make notebooks`: runs in place, stores nothing of the machine, names the cell that fails."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from web.notebooks import execute

pytestmark = pytest.mark.slow  # each test starts a kernel


def write(path, *sources, tags=()):
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_the_stored_file_does_not_depend_on_editor_or_session(tmp_path):
    path, twin = tmp_path / "one.ipynb", tmp_path / "two.ipynb"
    write(path, "print(1 + 1)\nprint('done')")
    editor = {"kernelspec": {"name": "python3", "display_name": "My Python"}, "widgets": {}}
    cell = new_code_cell(
        "print(1 + 1)\nprint('done')",
        metadata={"scrolled": True, "execution": {"iopub.execute_input": "2026"}, "tags": []},
        execution_count=7,
        outputs=[nbformat.v4.new_output("stream", text="3\n")],
    )
    nbformat.write(new_notebook(cells=[cell], metadata=editor), twin)
    execute.main([str(path), str(twin)])
    assert path.read_bytes() == twin.read_bytes()
    (cell,) = nbformat.read(path, as_version=4).cells
    assert (cell.execution_count, cell.outputs[0].text) == (1, "2\ndone\n")


def test_a_second_run_changes_no_byte(tmp_path):
    path = write(tmp_path / "one.ipynb", "x = 2", "x ** 5")
    execute.main([str(path)])
    first = path.read_bytes()
    execute.main([str(path)])
    assert path.read_bytes() == first


def test_a_failing_cell_stops_the_run_and_is_named(tmp_path, capsys):
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    cells = [new_markdown_cell("# Title"), new_code_cell("1 / 0"), new_code_cell("never_run")]
    nbformat.write(new_notebook(cells=cells), bad)
    write(good, "1")
    before = bad.read_bytes(), good.read_bytes()
    with pytest.raises(SystemExit, match=r"bad\.ipynb: cell 2: ZeroDivisionError: division by"):
        execute.main([str(bad), str(good)])
    assert (bad.read_bytes(), good.read_bytes()) == before
    assert "good.ipynb" not in capsys.readouterr().out


def test_a_figure_that_fails_while_it_is_drawn_stops_the_run(tmp_path):
    source = "class Figure:\n    def _repr_html_(self):\n        raise KeyError('label')\nFigure()"
    path = write(tmp_path / "one.ipynb", source)
    with pytest.raises(SystemExit, match=r"one\.ipynb: cell 1: KeyError: 'label'"):
        execute.main([str(path)])


def test_a_dead_kernel_is_named(tmp_path):
    path = write(tmp_path / "one.ipynb", "1", "import os\nos._exit(1)")
    with pytest.raises(SystemExit, match=r"one\.ipynb: cell 2: Kernel died"):
        execute.main([str(path)])


def test_an_endless_cell_is_named(tmp_path):
    notebook = new_notebook(cells=[new_code_cell("while True: pass")])
    with pytest.raises(execute.CellFailed, match="cell 1: A cell timed out"):
        execute.execute(notebook, tmp_path, timeout=1)


def test_an_announced_error_is_stored_without_the_files_of_this_machine(tmp_path):
    path = write(tmp_path / "one.ipynb", "import json\njson.loads('{')", tags=["raises-exception"])
    execute.main([str(path)])
    (cell,) = nbformat.read(path, as_version=4).cells
    (output,) = cell.outputs
    assert output.traceback == [f"{output.ename}: {output.evalue}"]
    assert output.ename == "JSONDecodeError"
