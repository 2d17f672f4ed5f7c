"""The precision record: errors are seen, rows of another device stay, the committed one holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from attnlib.teaching import records  # noqa: E402
from benchmarks import precision  # noqa: E402
from benchmarks.precision import CASES, NOT_MEASURED, REFUSED, Case  # noqa: E402
from tests.reference import attention  # noqa: E402

SMALL = precision.Sizes(B=2, Hq=3, L=7, S=5, E=16)
HERE = [case for case in CASES if case.device == "cpu"]
# Half of the distance between neighbours, for numbers from 1 to 2.
ROUNDING = {"float64": 2**-53, "float32": 2**-24, "bfloat16": 2**-8, "float16": 2**-11}

each_case_here = pytest.mark.parametrize("case", HERE, ids="-".join)


@each_case_here
def test_every_case_of_the_cpu_is_measured_and_within_a_few_roundings(case: Case):
    row = precision.measured(case, *precision.make_inputs(SMALL))
    assert row["state"] == "measured"
    assert row["arithmetic"]["mean"] <= row["arithmetic"]["largest"] <= 16 * ROUNDING[case.dtype]
    assert 0 < row["all"]["largest"] <= 20 * ROUNDING[case.dtype]


@each_case_here
def test_a_wrong_result_is_seen(case: Case, monkeypatch):
    inputs = precision.make_inputs(SMALL)
    right = precision.computed(case, inputs)
    monkeypatch.setattr(precision, "computed", lambda *_: right + 0.25)
    assert precision.measured(case, *inputs)["arithmetic"]["largest"] > 0.2


def test_the_reference_is_the_equation():
    query, key, value = precision.make_inputs(SMALL)
    exact, _ = attention(query, key, value)
    row = precision.measured(Case("cpu", "math", "float64"), query, key, value)
    result = precision.computed(Case("cpu", "math", "float64"), [query, key, value])
    np.testing.assert_allclose(result, exact, rtol=0, atol=1e-14)
    assert row["all"] == row["arithmetic"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rounding_is_that_of_numpy(dtype: str):
    array = precision.make_inputs(SMALL)[0]
    np.testing.assert_array_equal(precision.round_to(dtype, array), array.astype(dtype))


def test_a_kernel_that_refuses_the_call_is_recorded_as_such():
    refused = Case("cpu", "cuDNN", "float32")
    assert precision.measured(refused, *precision.make_inputs(SMALL)) == {"state": REFUSED}


def test_rows_of_another_device_stay_as_they_were(monkeypatch):
    monkeypatch.setattr(precision, "Sizes", lambda: SMALL)
    first = precision.renewed({}, "cpu")
    assert {row["state"] for row in first["rows"] if row["device"] == "cuda"} == {NOT_MEASURED}
    for row in first["rows"]:
        if row["device"] == "cuda":
            row |= {"state": "measured", "arithmetic": {"largest": 0.5, "mean": 0.25}}
    first["runs"]["cuda"] = {"commit": "abc"}
    second = precision.renewed(first, "cpu")
    assert [row for row in second["rows"] if row["device"] == "cuda"] == [
        row for row in first["rows"] if row["device"] == "cuda"
    ]
    assert set(second["runs"]) == {"cpu", "cuda"}


def test_rows_measured_on_other_inputs_are_dropped(monkeypatch):
    monkeypatch.setattr(precision, "Sizes", lambda: SMALL)
    first = precision.renewed({}, "cpu") | {"seed": precision.SEED + 1}
    first["runs"]["cuda"] = {"commit": "abc"}
    assert set(precision.renewed(first, "cpu")["runs"]) == {"cpu"}


def test_without_a_gpu_the_script_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    file = tmp_path / "precision.json"
    assert precision.main(["--device", "cuda", "--output", str(file)]) == 2
    assert "No GPU" in capsys.readouterr().out
    assert not file.exists()


def test_tf32_is_allowed_inside_only():
    before = torch.backends.cuda.matmul.allow_tf32
    with precision.tf32(not before):
        assert torch.backends.cuda.matmul.allow_tf32 is not before
    assert torch.backends.cuda.matmul.allow_tf32 is before


class TestCommittedRecord:
    record = records.load("precision")

    def test_is_the_file_that_the_script_writes(self):
        assert json.loads(precision.RECORD.read_text(encoding="utf-8")) == self.record

    def test_has_every_case_once_and_in_order(self):
        rows = [Case(row["device"], row["kernel"], row["dtype"]) for row in self.record["rows"]]
        assert rows == CASES

    def test_names_machine_versions_and_a_clean_commit_of_every_measured_device(self):
        devices = {row["device"] for row in self.record["rows"] if row["state"] != NOT_MEASURED}
        assert devices == set(self.record["runs"]) >= {"cpu"}
        for run in self.record["runs"].values():
            assert len(run["commit"]) == 40
            assert run["dirty"] is False
            assert run["machine"]["processor"]
            assert run["machine"]["torch"]["version"]
            assert run["machine"]["numpy"]["version"]

    @each_case_here
    def test_is_found_again_within_a_factor_of_ten(self, case: Case):
        """The last bits follow the processor, so numbers are compared by size."""
        (row,) = [r for r in self.record["rows"] if (r["device"], r["kernel"], r["dtype"]) == case]
        again = precision.measured(case, *precision.make_inputs(precision.Sizes()))
        for error in ("arithmetic", "all"):
            for measure in ("largest", "mean"):
                assert 0.1 < again[error][measure] / row[error][measure] < 10

    def test_rounding_falls_as_the_digits_of_the_dtype_say(self):
        largest = {
            (row["kernel"], row["dtype"]): row["arithmetic"]["largest"]
            for row in self.record["rows"]
            if row["state"] == "measured"
        }
        for kernel in ("math", "flash"):
            order = [largest[kernel, d] for d in ("bfloat16", "float16", "float32", "float64")]
            assert order == sorted(order, reverse=True)
            assert all(error < 2 * ROUNDING["bfloat16"] for error in order)
