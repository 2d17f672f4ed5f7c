"""A run from end to end on the smallest rows: processes, record, tables, command line."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from attnlib.teaching import records
from attnlib.teaching.speed import time_and_memory
from benchmarks import __main__ as command
from benchmarks import child, machine, run, tables
from benchmarks.child import Child, MeasuringError
from benchmarks.rows import all_groups
from tests.benchmarks.records import RECORD as SCHEMA
from tests.benchmarks.records import check_schema, record_of
from tests.kinds import needs_torch

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FakeChild:
    """What a run needs of a process: subclasses answer."""

    def __init__(self, threads: int):
        self.threads = threads

    def ask(self, operation: str, **arguments):
        raise NotImplementedError

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(scope="module")
def one_thread():
    with Child(threads=1) as process:
        yield process


@pytest.fixture(scope="module")
def small_run() -> dict:
    rows = run.chosen(r"NumPy engine: tiny: \(4, [24]\)$")
    return run.measure_all(rows, [64], budget="quick", stream=io.StringIO())


@needs_torch
@pytest.mark.slow
def test_a_run_gives_a_record_from_which_tables_and_picture_are_made(small_run):
    check_schema(small_run, SCHEMA)
    assert [row["row"] for row in small_run["rows"]] == ["(4, 2)", "(4, 4)"]
    assert json.loads(json.dumps(small_run)) == small_run
    text = tables.report(small_run)
    assert "tiny: (4, 4)" in text
    assert small_run["machine"]["processor"] in text
    assert time_and_memory(small_run["sweep"], alt="Lines.").get_label() == "Lines."


@needs_torch
@pytest.mark.slow
def test_the_picture_holds_every_way_in_time_and_in_memory(small_run):
    (point,) = small_run["sweep"]
    assert len(point["seconds"]) == 5
    assert len(point["bytes"]) == 4
    assert set(point["bytes"]) < set(point["seconds"])
    assert min(*point["seconds"].values()) > 0


@needs_torch
@pytest.mark.slow
def test_a_child_holds_every_library_to_its_threads(one_thread):
    facts = one_thread.ask("describe")
    assert facts["cores"] == 1
    assert [pool["num_threads"] for pool in facts["numpy"]["blas"]] == [1]


@pytest.mark.slow
def test_a_child_that_cannot_do_what_is_asked_says_why_and_goes_on(one_thread):
    with pytest.raises(MeasuringError, match="LookupError: no row 'nothing'"):
        one_thread.ask("compare", group="forward", row="nothing", budget="quick")
    found = one_thread.ask("compare", group="tiny", row="(4, 4)", budget="quick")
    assert len(found["seconds"]["ours"]) == 3


@pytest.mark.slow
def test_a_child_that_is_gone_is_an_error_and_not_a_silence():
    with Child(threads=1) as process:
        os.kill(process._process.pid, signal.SIGKILL)
        with pytest.raises(MeasuringError, match="the process ended"):
            process.ask("describe")


def test_a_failed_row_is_recorded_and_the_next_one_measured(monkeypatch):
    log = []

    class FailsOnce(FakeChild):
        def ask(self, operation, **arguments):
            log.append(operation)
            if operation == "describe":
                return {"cores": 3}
            if log.count("compare") == 1:
                raise MeasuringError("out of memory")
            return {"seconds": {"ours": [1.0], "theirs": [2.0]}, "apart": 0.0}

        def close(self):
            log.append("closed")

    monkeypatch.setattr(run, "Child", FailsOnce)
    rows = run.chosen(r"NumPy engine: tiny: \(4, [24]\)$")
    record = run.measure_all(rows, stream=io.StringIO())
    assert [row.get("error") for row in record["rows"]] == ["out of memory", None]
    assert record["rows"][1]["value"] == 0.5
    assert record["threads"] == {"cpu": 1, "own": 3, "wall": 2, "memory": 3}
    assert log == ["describe", "closed", "compare", "closed", "compare", "closed"]


def test_an_interrupted_run_keeps_what_was_measured(monkeypatch):
    def measured(rows, budget, progress):
        yield {"group": "tiny", "row": "(4, 2)", "error": "none"}
        raise KeyboardInterrupt

    class Describes(FakeChild):
        def ask(self, operation):
            return {"cores": 3}

    monkeypatch.setattr(run, "Child", Describes)
    monkeypatch.setattr(run, "_measured_rows", measured)
    record = run.measure_all([], stream=io.StringIO())
    assert record["interrupted"] is True
    assert [row["row"] for row in record["rows"]] == ["(4, 2)"]


def test_settings_that_choose_a_kernel_by_hand_do_not_reach_a_child(monkeypatch):
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "7")
    held, free = child._environment(2), child._environment(0)
    assert not {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & {*held, *free}
    assert {held[name] for name in held if name.endswith("_NUM_THREADS")} == {"2"}
    assert "OMP_NUM_THREADS" not in free


def test_rounds_in_which_others_were_busy_are_left_out(monkeypatch):
    samples = iter([(0.5, 0.9), (0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.4, 0.0)])

    class Samples(FakeChild):
        def ask(self, operation, side=None, **_):
            assert self.threads == 2
            if operation == "prepare":
                self.side = side
                return None
            seconds, others = next(samples) if self.side == "ours" else (1.0, 0.0)
            return {"seconds": seconds, "others": others, "taken": 1.0}

    monkeypatch.setattr(run, "Child", Samples)
    monkeypatch.setattr(run, "_PAUSE", 0.0)
    ((_, group, row),) = run.chosen(r"two threads: \(1, 12, 512, 64\)")
    record = run._on_the_clock(group, row, "full")
    assert record["ours"]["rounds"] == 4
    assert record["value"] == pytest.approx(0.25)
    assert record["disturbed"] is False


def test_a_pattern_chooses_rows_by_table_group_and_name():
    everything = sum(len(group.rows) for _, group in all_groups())
    assert len(run.chosen("")) == everything
    assert {group.name for _, group, _ in run.chosen("torch engine: .*window")} == {
        "torch window",
        "torch memory",
    }
    assert run.chosen("TORCH WINDOW") == run.chosen("torch window")
    assert run.chosen("no such row") == []


def test_the_bar_fills_and_names_what_is_measured():
    stream = Terminal()
    bar = run.Progress(2, stream)
    bar.show("first")
    bar.step()
    bar.show("second")
    first, second = stream.getvalue().split("\r")[1:]
    assert "0/2" in first
    assert "first" in first
    assert "██████████··········" in second
    assert "1/2" in second


def test_without_a_terminal_the_bar_writes_lines():
    stream = io.StringIO()
    run.Progress(3, stream).show("something")
    assert re.fullmatch(r"·{20} 0/3 0:00 something\n", stream.getvalue())


def test_the_list_names_rows_and_measures_nothing(capsys):
    assert command.main(["--list", "--rows", "decoding grouped"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(run.chosen("decoding grouped"))
    assert all("decoding grouped: " in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ([], ["speed.json"]),
        (["--quick"], []),
        (["--rows", "tiny"], []),
        (["--rows", "tiny", "--output", "elsewhere.json"], ["elsewhere.json"]),
    ],
)
def test_a_whole_run_is_written_and_a_partial_one_where_asked(
    arguments, written, tmp_path, monkeypatch, capsys
):
    record = record_of([], [], [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "RECORD", tmp_path / "speed.json")
    monkeypatch.setattr(command.run, "measure_all", lambda *_, **__: record)
    assert command.main(arguments) == 0
    assert [path.name for path in tmp_path.iterdir()] == written
    for path in tmp_path.iterdir():
        assert json.loads(path.read_text(encoding="utf-8")) == record
        printed = capsys.readouterr().out
        assert command.main(["--show", str(path)]) == 0
        assert capsys.readouterr().out.strip() in printed


@pytest.mark.parametrize("trouble", [{"interrupted": True}, {"rows": [{"error": "no"}]}])
def test_a_run_with_trouble_ends_with_an_error(trouble, tmp_path, monkeypatch):
    record = record_of([], [], []) | trouble
    monkeypatch.setattr(command, "RECORD", tmp_path / "speed.json")
    monkeypatch.setattr(command.run, "measure_all", lambda *_, **__: record)
    assert command.main([]) == 1
    assert [*tmp_path.iterdir()] == ([] if record["interrupted"] else [*tmp_path.glob("*.json")])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which is Linux's")
def test_the_processor_is_named_without_the_name_of_the_computer():
    assert machine._processor()
    assert os.uname().nodename not in machine._processor()


def test_the_committed_record_is_a_whole_run_of_a_commit():
    record = records.load("speed")
    check_schema(record, SCHEMA, "speed")
    assert (record["budget"], record["interrupted"], record["dirty"]) == ("full", False, False)
    assert re.fullmatch("[0-9a-f]{40}", record["commit"])
    assert record["sweep"]
    text = tables.report(record)
    assert all(f"{row['group']}: {row['row']}" in text for row in record["rows"])


def test_the_record_is_what_chapter_3_says_of_it():
    """One thread, 512 keys or more, in every line of its table."""
    chapter = json.loads((ROOT / "chapters/03_dense.ipynb").read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in chapter["cells"]]
    (cell,) = [source for source in sources if source.startswith("compared = [")]
    compared = ast.literal_eval(cell[cell.index("[") : cell.index("]") + 1])
    record = records.load("speed")
    measured = {group["name"]: group["measured"] for group in record["groups"]}
    assert {measured[name] for name in compared} == {"cpu"}
    assert record["threads"]["cpu"] == 1
    shown = [row for _, group, row in run.chosen("") if group.name in compared]
    assert min(row.sizes.keys for row in shown) == 512
