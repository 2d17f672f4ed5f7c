"""Tables and picture of the record that chapter 3 shows."""

from __future__ import annotations

import pytest

from attnlib.teaching import speed

POINTS = [
    {
        "length": 64,
        "seconds": {"attnlib": 0.002, "fused": 0.003, "three lines": 0.004, "limit": 0.001},
        "bytes": {"attnlib": 1 << 20, "fused": 2 << 20, "three lines": 4 << 20},
    },
    {
        "length": 128,
        "seconds": {"attnlib": 0.02, "fused": 0.03, "limit": 0.01},
        "bytes": {"attnlib": 1 << 20, "fused": 3 << 20},
    },
]
RECORD = {
    "date": "2026-01-02T03:04+00:00",
    "commit": "abcdef0123456789",
    "machine": {
        "processor": "A processor",
        "cores": 2,
        "flags": ["avx", "avx2"],
        "python": "3.11.7",
        "numpy": {"version": "2.4.6", "blas": [{"internal_api": "openblas", "version": "0.3"}]},
        "torch": {"version": "2.13.0"},
    },
    "groups": [
        {"table": "engine", "name": "forward", "work": "all pairs", "against": "PyTorch",
         "mean": 0.973, "largest": 1.04},
        {"table": "what each trick buys", "name": "tiles", "work": "tiles that fit", "against": "",
         "mean": 0.8, "largest": 0.9},
        {"table": "what each trick buys", "name": "skip", "work": "skipping", "against": "",
         "mean": 0.05, "largest": 0.6},
    ],
}  # fmt: skip


def test_the_conditions_name_machine_versions_and_commit():
    assert speed.conditions(RECORD) == (
        "Measured at commit abcdef0: A processor, 2 cores with avx2, Python 3.11.7, "
        "NumPy 2.4.6 with openblas 0.3, PyTorch 2.13.0."
    )


def test_ratios_have_a_line_for_each_group_that_is_asked_for():
    assert speed.ratios(RECORD, ["forward"]).splitlines()[2:] == [
        "| all pairs | PyTorch | 0.97\N{NO-BREAK SPACE}× | 1.04\N{NO-BREAK SPACE}× |"
    ]


def test_a_group_that_was_not_measured_is_named():
    with pytest.raises(ValueError, match="names: the record has no group 'sideways', it has forw"):
        speed.ratios(RECORD, ["sideways"])


def test_the_trick_that_buys_most_comes_first():
    assert speed.what_tricks_buy(RECORD).splitlines()[2:] == [
        "| skipping | 20\N{NO-BREAK SPACE}× |",
        "| tiles that fit | 1.25\N{NO-BREAK SPACE}× |",
    ]


def test_the_picture_has_a_line_for_each_way_and_no_point_where_none_was_measured():
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    figure = speed.time_and_memory(POINTS, alt="Two panels of lines.")
    times, peaks = figure.axes
    drawn = {line.get_label(): list(line.get_xdata()) for line in times.lines}
    assert drawn == {
        "attnlib": [64, 128],
        "fused": [64, 128],
        "three lines": [64],
        "limit": [64, 128],
    }
    assert [line.get_label() for line in peaks.lines] == ["attnlib", "fused", "three lines"]
    assert list(peaks.lines[1].get_ydata()) == [2.0, 3.0]
    assert {ax.get_xscale() for ax in figure.axes} == {ax.get_yscale() for ax in figure.axes}
    assert times.get_xscale() == "log"
    assert figure.get_label() == "Two panels of lines."
    assert [text.get_text() for text in figure.legends[0].texts] == list(drawn)


def test_a_way_has_one_colour_in_both_panels_and_the_limit_is_dashed():
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    times, peaks = speed.time_and_memory(POINTS, alt="Two panels of lines.").axes
    colours = {line.get_label(): line.get_color() for line in times.lines}
    assert all(colours[line.get_label()] == line.get_color() for line in peaks.lines)
    assert len(set(colours.values())) == len(colours)
    assert [line.get_label() for line in times.lines if line.get_linestyle() == "--"] == ["limit"]
