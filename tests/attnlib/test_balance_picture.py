"""The picture of values that pull on the output, each as hard as its weight."""

from __future__ import annotations

import numpy as np
import pytest

from attnlib.teaching import plot

pyplot = pytest.importorskip("matplotlib.pyplot", reason="Matplotlib is not installed")
VALUES = np.array([[1.0, 2.0], [3.0, 0.0], [4.0, 5.0], [-2.0, 1.0]])
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])


@pytest.fixture
def figure():
    yield plot.balance_picture(VALUES, WEIGHTS, labels=["a", "b", "c", "d"], alt="what is seen")
    pyplot.close("all")


def points(figure, marker):
    lines = [line for line in figure.axes[0].lines if line.get_marker() == marker]
    return np.concatenate([line.get_xydata() for line in lines])


def test_points_are_the_values_and_the_diamond_is_their_weighted_sum(figure):
    np.testing.assert_array_equal(points(figure, "o"), VALUES)
    np.testing.assert_allclose(points(figure, "D"), [WEIGHTS @ VALUES])


def test_a_line_joins_each_value_to_the_output_as_thick_as_its_weight(figure):
    ropes = [line for line in figure.axes[0].lines if len(line.get_xydata()) == 2]
    widths = np.array([rope.get_linewidth() for rope in ropes])
    np.testing.assert_array_equal([rope.get_xydata()[0] for rope in ropes], VALUES)
    np.testing.assert_allclose([rope.get_xydata()[1] for rope in ropes], [WEIGHTS @ VALUES] * 4)
    np.testing.assert_allclose(widths / widths.sum(), WEIGHTS)


def test_each_value_carries_its_label_and_the_figure_its_description(figure):
    assert [text.get_text() for text in figure.axes[0].texts] == ["a", "b", "c", "d", "output"]
    assert figure.get_label() == "what is seen"
