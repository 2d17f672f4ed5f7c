"""Run notebooks in place: fresh outputs, and metadata that names no machine and no time.

Run as ``python web/notebooks/execute.py chapters/*.ipynb``. A notebook with a cell that fails is
left as it was, and the run stops with the file and the cell named.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from nbformat import NotebookNode

# All that a stored notebook says about where it ran.
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# What the book, nbval and Colab read in a cell; the rest is an editor's memory of a session.
CELL_METADATA = {"cellView", "mystnb", "reason", "tags"}


class CellFailed(Exception):
    """A cell raised an error that its tags do not announce; the message says which and what."""


def execute(notebook: NotebookNode, folder: Path, timeout: int = 300) -> None:
    """Run the cells in order in a new kernel that stands in ``folder``."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=timeout,  # seconds for one cell
        record_timing=False,
        allow_errors=True,  # they are looked for in the outputs, where a failed figure shows too
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells, start=1):
            try:
                client.execute_cell(cell, number - 1)
            except (CellControlSignal, DeadKernelError) as error:
                raise CellFailed(f"cell {number}: {error}") from None
            _stop_at_error(number, cell)


def canonical(notebook: NotebookNode) -> NotebookNode:
    """Return the notebook as it is stored, whoever ran it, whenever and wherever."""
    stored = nbformat.v4.new_notebook(metadata=METADATA)
    stored.cells = [_canonical_cell(n, cell) for n, cell in enumerate(notebook.cells, start=1)]
    nbformat.validate(stored)
    return stored


def run_in_place(path: Path) -> None:
    """Run one notebook and store it, or leave the file alone if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    execute(notebook, path.parent)
    nbformat.write(canonical(notebook), path)


def main(arguments: list[str] | None = None) -> None:
    """Run every notebook named on the command line; stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="NOTEBOOK")
    for path in parser.parse_args(arguments).notebooks:
        try:
            run_in_place(path)
        except CellFailed as failure:
            sys.exit(f"{path}: {failure}")
        print(f"{path}: done", flush=True)


def _stop_at_error(number: int, cell: NotebookNode) -> None:
    if "raises-exception" in cell.metadata.get("tags", []):
        return
    for output in cell.get("outputs", []):
        if output.output_type == "error":
            raise CellFailed(f"cell {number}: {output.ename}: {output.evalue}")


def _canonical_cell(number: int, cell: NotebookNode) -> NotebookNode:
    kept = {key: value for key, value in cell.metadata.items() if key in CELL_METADATA}
    stored = NotebookNode(cell, metadata=NotebookNode(kept), id=f"cell-{number:02}")
    if cell.cell_type == "code":
        stored.outputs = [_canonical_output(output) for output in cell.outputs]
    return stored


def _canonical_output(output: NotebookNode) -> NotebookNode:
    if output.output_type == "error":  # the frames name files of this machine
        return NotebookNode(output, traceback=[f"{output.ename}: {output.evalue}"])
    if "metadata" in output:
        return NotebookNode(output, metadata=NotebookNode())
    return output


if __name__ == "__main__":
    main()
