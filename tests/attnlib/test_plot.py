"""Pictures of masks: what is drawn is what the masks say."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib.causal import causal_mask
from attnlib.teaching import plot
from attnlib.teaching.notebook import GRID, INK, PAPER

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


SIGNED = np.array([[0.0, 3.0, -1.0], [-4.0, 0.5, 0.0]])


def luminance(colour):
    """The relative luminance of the web's accessibility guidelines, from red, green and blue."""
    parts = np.asarray(colour[:3], dtype=float)
    linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(text, image, number):
    """How far a printed number stands out from its cell, as a ratio."""
    cell = luminance(image.cmap(image.norm(number)))
    letters = luminance(pyplot.matplotlib.colors.to_rgb(text.get_color()))
    return (max(cell, letters) + 0.05) / (min(cell, letters) + 0.05)


def test_signed_colours_go_as_far_below_zero_as_above_it():
    figure = plot.heatmaps([SIGNED, SIGNED / 2], titles=["", ""], signed=True, alt="what is seen")
    for ax in panels(figure):
        assert ax.images[0].get_clim() == (-4.0, 4.0)
        assert ax.images[0].get_cmap().name == plot.BOTH_WAYS


def test_zero_is_the_lightest_signed_colour():
    (ax,) = panels(plot.heatmap(SIGNED, signed=True, alt="what is seen"))
    image = ax.images[0]
    shades = {number: luminance(image.cmap(image.norm(number))) for number in SIGNED.flat}
    assert max(shades, key=shades.get) == 0.0


@pytest.mark.parametrize("signed", [False, True], ids=["upwards", "both ways"])
def test_numbers_can_be_read_on_every_colour_of_the_scales(signed):
    numbers = np.linspace(-1.0 if signed else 0.0, 1.0, 288)  # a colour scale has 256
    matrices = numbers.reshape(2, 12, 12)
    figure = plot.heatmaps(matrices, titles=["", ""], signed=signed, alt="what is seen")
    for ax, matrix in zip(panels(figure), matrices, strict=True):
        assert len(ax.texts) == matrix.size
        for text, number in zip(ax.texts, matrix.flat, strict=True):
            assert contrast(text, ax.images[0], number) >= 4.5, number


def test_text_on_coloured_cells_stays_as_it_is_on_a_dark_page():
    assert {INK, PAPER, GRID}.isdisjoint({plot.DARK_TEXT, plot.LIGHT_TEXT})


def test_steps_below_zero_are_drawn_both_ways_and_others_upwards():
    rows = [("weight", [0.1, 0.9], ["1", "9"]), ("slope", [-2.0, 1.0], ["-2", "1"])]
    weight, slope = panels(plot.steps_picture(rows, alt="what is seen"))
    assert weight.images[0].get_cmap().name == plot.UPWARDS
    assert slope.images[0].get_cmap().name == plot.BOTH_WAYS
    assert weight.images[0].get_clim() == (0.0, 0.9)
    assert slope.images[0].get_clim() == (-2.0, 2.0)
