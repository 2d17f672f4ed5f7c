"""The script for GPUs, on the CPU: errors against float64 are seen, rows are in both precisions."""

from __future__ import annotations

import dataclasses
import json

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from benchmarks import gpu, measure  # noqa: E402
from benchmarks.calls import library, tiny  # noqa: E402
from benchmarks.rows import TORCH, Row  # noqa: E402

ROWS = list(gpu.rows())

each_row = pytest.mark.parametrize(
    ("row", "dtype"), ROWS, ids=[f"{row.name} {dtype}" for row, dtype in ROWS]
)


def made_tiny(row: Row) -> Row:
    return dataclasses.replace(row, sizes=tiny(row.sizes))


@pytest.mark.slow  # half precision takes long without a GPU
@each_row
def test_every_row_agrees_with_the_equation_in_float64(row: Row, dtype: str):
    record = gpu.measured(made_tiny(row), dtype, "cpu", measure.QUICK)
    assert record["agrees"]
    assert record["ours"]["rounds"] == record["theirs"]["rounds"] == 3


def test_a_wrong_result_is_seen():
    row, dtype = ROWS[0]
    wrong = dataclasses.replace(made_tiny(row), ours=lambda inputs: library(inputs, scale=0.5))
    assert not gpu.measured(wrong, dtype, "cpu", measure.QUICK)["agrees"]


def test_every_timed_row_of_the_torch_engine_is_there_in_its_dtype_and_in_bfloat16():
    names = {(row.name, dtype) for row, dtype in ROWS}
    for group in TORCH:
        for row in group.rows:
            name = f"{group.name}: {row.name}"
            assert ((name, row.sizes.dtype) in names) == (group.measured == "cpu")
            if row.sizes.dtype == "float32" and group.measured == "cpu":
                assert (name, "bfloat16") in names


def test_without_a_gpu_the_script_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = tmp_path / "gpu.json"
    assert gpu.main(["--output", str(file)]) == 2
    assert "No GPU" in capsys.readouterr().out
    assert not file.exists()


def test_the_record_names_card_versions_and_commit(tmp_path, capsys, monkeypatch):
    row, dtype = ROWS[0]
    monkeypatch.setattr(gpu, "rows", lambda: iter([(made_tiny(row), dtype)]))
    file = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--quick", "--output", str(file)]) == 0
    record = json.loads(file.read_text(encoding="utf-8"))
    assert {"card", "capability", "torch", "cuda", "cudnn", "commit", "dirty", "date"} < {*record}
    assert [entry["row"] for entry in record["rows"]] == [row.name]
    assert row.name in capsys.readouterr().out
