"""Pictures of a whole example: every stage is drawn, with the numbers that belong to it."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib.causal import causal_mask
from attnlib.teaching import plot
from attnlib.teaching.notebook import COLOURS
from attnlib.teaching.plot import Stage

pyplot = pytest.importorskip("matplotlib.pyplot", reason="Matplotlib is not installed")

SCORES = np.log([[1, 3, 2], [1, 2, 1]])
VISIBLE = causal_mask(2, 3)
OUTPUT = np.array([[1.0, 2.0], [7 / 3, 2 / 3]])


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


def words(ax):
    return [text.get_text() for text in ax.texts]


class TestStages:
    @pytest.fixture
    def figure(self):
        panels = [
            Stage("scores", SCORES, visible=VISIBLE),
            Stage("output", OUTPUT, [["1", "2"], ["7/3", "2/3"]], columns=["a", "b"]),
            Stage("weights", [[0.1, 0.2, 0.7]], limits=(0.0, 1.0)),
        ]
        return plot.stages(panels, alt="what is seen")

    def test_each_matrix_is_drawn_under_its_title(self, figure):
        drawn = figure.axes[:3]
        assert figure.get_label() == "what is seen"
        assert [ax.get_title() for ax in drawn] == ["scores", "output", "weights"]
        for ax, matrix in zip(drawn, [SCORES, OUTPUT, [[0.1, 0.2, 0.7]]], strict=True):
            np.testing.assert_array_equal(ax.images[0].get_array(), matrix)

    def test_places_without_a_stage_stay_empty(self, figure):
        assert len(figure.axes) == 4
        assert not figure.axes[3].axison

    def test_only_visible_pairs_have_a_number(self, figure):
        scores = figure.axes[0]
        assert words(scores) == [f"{score:.2f}" for score in SCORES[VISIBLE]]
        hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in scores.patches}
        assert hatched == set(map(tuple, np.argwhere(~VISIBLE)))

    def test_printed_fractions_stand_in_the_place_of_numbers(self, figure):
        assert words(figure.axes[1]) == ["1", "2", "7/3", "2/3"]

    def test_columns_are_keys_unless_they_are_named(self, figure):
        names = [[label.get_text() for label in ax.get_xticklabels()] for ax in figure.axes[:2]]
        assert names == [["$k_{0}$", "$k_{1}$", "$k_{2}$"], ["a", "b"]]

    def test_colours_begin_at_zero_or_go_both_ways_or_as_told(self):
        panels = [Stage("", SCORES), Stage("", SCORES - 1), Stage("", SCORES, limits=(0.0, 9.0))]
        limits = [
            ax.images[0].get_clim() for ax in plot.stages(panels, alt="what is seen").axes[:3]
        ]
        assert limits == [(0.0, np.log(3)), (-1.0, 1.0), (0.0, 9.0)]


def test_the_output_stands_below_the_steps_with_entries_of_its_own():
    rows = [("score", SCORES[0], ["ln 1", "ln 3", "ln 2"]), ("weight", [1, 3, 2], "132")]
    picture = plot.steps_picture(rows, alt="what is seen", output=([3.0, 2.0], ["3", "2"]))
    *_, last = picture.axes
    assert [label.get_text() for label in last.get_yticklabels()] == ["output"]
    assert [label.get_text() for label in last.get_xticklabels()] == ["entry 0", "entry 1"]
    assert words(last) == ["3", "2"]
    assert len(picture.axes) == 3


# --- colours that colour-blind readers tell apart ----------------------------------------------

# What a reader without one of the three kinds of cones sees in place of a linear RGB colour, after
# Machado, Oliveira and Fernandes (2009), table 1, severity 1.
MISSING = {
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "all cones": np.eye(3),
}
D65 = np.array([0.95047, 1.0, 1.08883])
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192,
      0.9503041]]
)  # fmt: skip


# In CIELAB about 2 is noticed side by side; lines that cross, and their legend, need far more.
TELLS_APART = 15


def seen(colour, missing):
    """Return a colour in CIELAB, where equal distances look equally large, as it is seen."""
    from matplotlib.colors import to_rgb

    rgb = np.asarray(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.asarray(MISSING[missing]) @ linear, 0.0, 1.0)
    ratio = TO_XYZ @ linear / D65
    root = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    x, y, z = root
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(first, second, missing):
    return float(np.linalg.norm(seen(first, missing) - seen(second, missing)))


@pytest.mark.parametrize("missing", MISSING)
def test_the_colours_of_lines_stay_apart_for_colour_blind_readers(missing):
    pairs = [(a, b) for n, a in enumerate(COLOURS) for b in COLOURS[:n]]
    closest = min(pairs, key=lambda pair: distance(*pair, missing))
    assert distance(*closest, missing) > TELLS_APART, closest


def test_colours_that_differ_in_red_and_green_alone_would_be_noticed():
    assert (
        distance("#a00000", "#005a00", "no green cones")
        < TELLS_APART
        < distance("#a00000", "#005a00", "all cones")
    )


@pytest.mark.parametrize("missing", MISSING)
def test_a_larger_number_is_never_drawn_lighter(missing):
    from matplotlib import colormaps

    lightness = [seen(colormaps[plot.UPWARDS](s), missing)[0] for s in np.linspace(0, 1, 33)]
    assert np.all(np.diff(lightness) < 0)


@pytest.mark.parametrize("missing", MISSING)
def test_pairs_that_are_seen_stand_out_in_patterns(missing):
    assert distance(COLOURS[0], plot.EXCLUDED, missing) > 30
