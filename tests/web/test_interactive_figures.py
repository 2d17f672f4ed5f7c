"""Interactive figures: every number is attnlib's, and a keyboard is enough."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnlib import attention_steps, causal_attention, dense_attention, softmax
from tests.web.browser import PHONE

pytestmark = pytest.mark.slow  # needs the built site and a browser

KEYS = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1]])
VALUES = np.array([[1, 2], [3, 0], [4, 5]])
SHARES = np.array([[1, 3, 2], [1, 2, 1], [1, 2, 3]])
HEADS = "04_multi_head"


@pytest.fixture
def open_figure(browser, home):
    """Return the figure of a chapter, on a page whose errors end the test."""
    contexts, errors = [], []

    def figure(chapter: str, **options):
        context = browser.browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(error))
        page.goto(f"{home}/chapters/{chapter}.html")
        return page.locator("section.interactive")

    yield figure
    for context in contexts:
        context.close()
    assert not errors


def shown(array: np.ndarray) -> str:
    """Numbers as the figures write them."""
    flat = np.atleast_1d(array)
    return f"[{', '.join(number(entry) for entry in flat)}]"


def number(entry: float) -> str:
    return f"{0.0 if abs(entry) < 5e-4 else entry:.3f}".replace("-", "−")


def texts(figure, selector: str) -> list[str]:
    return [text.strip() for text in figure.locator(selector).all_inner_texts()]


def test_the_functions_of_the_figures_agree_with_the_library(open_figure):
    page = open_figure("01_single_query").page
    random = np.random.default_rng(51)
    for _ in range(20):
        width, keys, value_width = random.integers(1, 6, size=3)
        query = random.normal(size=width) * 5
        key, value = random.normal(size=(keys, width)), random.normal(size=(keys, value_width))
        arguments = [query.tolist(), key.tolist(), value.tolist()]
        found = page.evaluate("([q, K, V]) => attentionNumbers.attend(q, K, V)", arguments)
        expected = attention_steps(query, key, value)
        for name, array in zip(("dots", "scores", "weights", "output"), expected, strict=True):
            np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-14, err_msg=name)
    masked = page.evaluate("attentionNumbers.causal([[1, 2, 3], [4, 5, 6]])[0].map(Math.exp)")
    np.testing.assert_allclose(masked, [math.e, 0, 0])
    nothing = page.evaluate("attentionNumbers.softmax([-Infinity, -Infinity])")
    assert nothing == softmax([-np.inf, -np.inf]).tolist() == [0, 0]


def query_says(a: float, b: float) -> str:
    steps = attention_steps(np.array([a, b, a, b]), KEYS, VALUES)
    return f"Weights {shown(steps.weights)}. Output {shown(steps.output)}."


def test_one_query_moves_by_keyboard_and_by_hand_and_goes_back(open_figure):
    figure = open_figure("01_single_query")
    said, sliders = figure.get_by_role("status"), figure.get_by_role("slider")
    assert said.inner_text() == query_says(math.log(2), math.log(3))
    sliders.first.press("ArrowRight")  # from the step nearest to ln 2
    sliders.last.press("End")
    assert said.inner_text() == query_says(0.8, 3.0)
    steps = attention_steps(np.array([0.8, 3.0, 0.8, 3.0]), KEYS, VALUES)
    assert texts(figure, "td") == [
        number(entry)
        for line in zip(steps.dot_products, steps.scores, steps.weights, strict=True)
        for entry in line
    ]
    figure.scroll_into_view_if_needed()
    place = figure.locator(".handle").bounding_box()
    mouse = figure.page.mouse
    mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)
    mouse.down()
    mouse.move(place["x"] - 60, place["y"] + 90)
    mouse.up()
    a, b = (float(slider.input_value()) for slider in sliders.all())
    assert (a, b) < (0.8, 3.0)
    assert said.inner_text() == query_says(a, b)
    figure.get_by_role("button").press("Enter")
    assert said.inner_text() == query_says(math.log(2), math.log(3))


def test_a_score_moves_its_own_row_and_the_mask_hides_the_future(open_figure):
    figure = open_figure("02_causal")
    scores = np.log(SHARES)
    weights_of = "table >> nth=1 >> td"

    def expected(scores: np.ndarray, is_causal: bool) -> list[str]:
        scores = np.where(np.tri(3, dtype=bool) | (not is_causal), scores, -np.inf)
        weights = softmax(scores)
        return [
            text
            for row in weights
            for text in (*map(number, row), shown(row @ VALUES))
        ]  # fmt: skip

    assert texts(figure, weights_of) == expected(scores, is_causal=True)
    fields = figure.get_by_role("spinbutton")
    assert [field.is_disabled() for field in fields.all()] == (
        ~np.tri(3, dtype=bool)
    ).ravel().tolist()
    fields.nth(4).fill("-0.5")
    scores[1, 1] = -0.5
    assert texts(figure, weights_of) == expected(scores, is_causal=True)
    assert "Query 1." in figure.get_by_role("status").inner_text()
    figure.get_by_role("checkbox").press("Space")
    assert texts(figure, weights_of) == expected(scores, is_causal=False)
    figure.get_by_role("button").press("Enter")
    scores = np.log(SHARES)
    assert texts(figure, weights_of) == expected(scores, is_causal=False)
    queries = 2 * scores[:, [1, 2]]  # width 4 with each entry twice is width 2 with it doubled
    outputs = dense_attention(queries, KEYS[:, :2], VALUES, scale=0.5)
    assert texts(figure, weights_of)[3::4] == [shown(output) for output in outputs]
    figure.get_by_role("checkbox").press("Space")
    outputs = causal_attention(queries, KEYS[:, :2], VALUES, scale=0.5)
    assert texts(figure, weights_of)[3::4] == [shown(output) for output in outputs]


def test_heads_are_switched_by_arrow_keys_and_merged_in_order(open_figure):
    figure = open_figure(HEADS)
    shares = [SHARES, np.array([[1, 1, 1], [3, 1, 1], [1, 4, 1]])]
    values = [VALUES, np.array([[2, 0], [0, 2], [1, 1]])]
    weights = [softmax(np.log(counts)) for counts in shares]
    heads = [weight @ value for weight, value in zip(weights, values, strict=True)]
    chosen = figure.get_by_role("radio").first
    for weight, head in zip(weights, heads, strict=True):
        assert texts(figure, "td") == [
            text
            for row, output in zip(weight, head, strict=True)
            for text in (*map(number, row), shown(output))
        ]
        chosen.press("ArrowDown")
        chosen = figure.locator("input:checked")
    assert texts(figure, "td") == [number(entry) for entry in np.hstack(heads).ravel()]


@pytest.mark.parametrize("chapter", ["01_single_query", "02_causal", HEADS])
def test_the_picture_stays_without_scripts_and_on_paper(open_figure, chapter):
    assert open_figure(chapter, java_script_enabled=False).count() == 0
    figure = open_figure(chapter, viewport={"width": PHONE, "height": 800})
    page = figure.page
    assert figure.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    page.emulate_media(media="print")
    assert not figure.is_visible()
    cell = page.locator("[class*=tag_interactive-] .cell_output").first
    assert cell.is_visible()


def test_other_pages_carry_none_of_it(open_figure):
    assert open_figure("03_dense").page.evaluate("typeof attentionNumbers") == "undefined"
