"""Pictures of masks: what is drawn is what the masks say."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib.causal import causal_mask
from attnlib.teaching import plot

pyplot = pytest.importorskip("matplotlib.pyplot", reason="Matplotlib is not installed")
MASKS = [causal_mask(3, 5), causal_mask(3, 5, offset=2), ~causal_mask(3, 5), causal_mask(3, 5)]


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    pyplot.close("all")


def panels(figure):
    """The axes that hold a matrix, in the order of drawing; a colour scale holds none."""
    return [ax for ax in figure.axes if ax.images]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_patterns_draw_each_mask_under_its_title(count):
    titles = [f"mask {number}" for number in range(count)]
    figure = plot.patterns(MASKS[:count], titles=titles, alt="what is seen")
    drawn = panels(figure)
    assert figure.get_label() == "what is seen"
    assert [ax.get_title() for ax in drawn] == titles
    for ax, mask in zip(drawn, MASKS, strict=False):
        np.testing.assert_array_equal(ax.images[0].get_array(), mask)


def test_more_than_three_patterns_are_broken_into_rows():
    few, many = (
        plot.patterns(MASKS[:n], titles=[""] * n, alt="what is seen").get_size_inches()
        for n in (3, 4)
    )
    assert many[0] < few[0]
    assert many[1] > few[1]


def test_places_without_a_pattern_stay_empty():
    figure = plot.patterns([*MASKS, MASKS[0]], titles=[""] * 5, alt="what is seen")
    assert [bool(ax.images) for ax in figure.axes] == [True] * 5 + [False]
    assert not figure.axes[-1].axison


@pytest.mark.parametrize("visible", [MASKS[0], MASKS[:3]], ids=["one for all", "one each"])
def test_heatmaps_grey_out_what_no_query_may_see(visible):
    weights = np.full((3, 5), 0.2)
    figure = plot.heatmaps([weights] * 3, titles=[""] * 3, visible=visible, alt="what is seen")
    for ax, mask in zip(panels(figure), np.broadcast_to(visible, (3, 3, 5)), strict=False):
        grey = np.zeros((3, 5), bool)
        for patch in ax.patches:
            grey[round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)] = True
        np.testing.assert_array_equal(grey, ~mask)
        assert len(ax.texts) == mask.sum()
