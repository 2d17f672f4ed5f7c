"""What a reader can do on a live page: edit, run, stop, restart, reset, complete, come back."""

from __future__ import annotations

import pytest

from tests.web.accessibility import violations_within
from tests.web.browser import NARROWEST, PHONE, View, chromium_browser, opened
from tests.web.live import PATIENCE, LivePage, code_cells, has_tag
from web.tools.server import served

pytestmark = pytest.mark.slow  # needs the built site and a browser

CHAPTER = "chapters/01_single_query"
CELLS = code_cells(CHAPTER)
PRINTS_WEIGHTS = next(i for i, cell in CELLS.items() if "print(weights)" in "".join(cell["source"]))
SCRATCH = next(i for i, cell in CELLS.items() if "".join(cell["source"]).startswith("colours ="))
TORCH = next(i for i, cell in CELLS.items() if has_tag(cell, "torch"))
EXERCISE = next(i for i, cell in CELLS.items() if has_tag(cell, "exercise"))

# Of a formula, as a multiple of the text around it.
SIZE = """formula => parseFloat(getComputedStyle(formula).fontSize) /
  parseFloat(getComputedStyle(formula.parentElement).fontSize)"""

RICH = """
import base64
from IPython.display import HTML, Image, Latex, Markdown, SVG, display
display(HTML("<b>bold</b><script>document.title = 'a script ran'</script>"))
display(Latex(r"$\\frac{1}{2}$"), Markdown("*slanted* and $x^2$"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg'><title>a dot</title></svg>"))
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import io
buffer = io.BytesIO()
FigureCanvasAgg(Figure(figsize=(1, 1))).print_png(buffer)
Image(buffer.getvalue())
"""


@pytest.fixture(scope="module")
def browser():
    """A browser in which only some cells of a chapter become live: the tests need no more."""
    with chromium_browser() as browser:
        browser.route("**/cells/**", send_some_cells)
        yield browser


def send_some_cells(route):
    wanted = {*range(PRINTS_WEIGHTS + 1), TORCH, EXERCISE}
    response = route.fetch()
    route.fulfill(json=[cell for cell in response.json() if cell["index"] in wanted])


@pytest.fixture(scope="module")
def live_page(browser, home):
    """A live page on which all cells have run, for all tests of this module."""
    with opened(browser, View(CHAPTER), home) as (page, visit):
        live = LivePage(page)
        assert live.press() == "All cells have run"
        yield live, visit


@pytest.fixture
def live(live_page):
    """The live page; afterwards its cells have the code of the book again."""
    live, visit = live_page
    yield live
    live.wait_until_it_rests()
    for reset in live.page.get_by_role("button", name="Reset Cell").all():
        if reset.is_enabled():
            reset.click()
    assert (visit.errors, visit.foreign) == ([], [])


def test_before_the_button_is_pressed_nothing_of_it_is_asked_for(home):
    with chromium_browser() as browser:
        asked = []
        browser.on("request", lambda request: asked.append(request.url))
        with opened(browser, View(CHAPTER), home) as (page, _):
            page.wait_for_load_state("networkidle")
            workers = page.evaluate("navigator.serviceWorker.getRegistrations()")
        assert asked
        assert [url for url in asked if "/live/" in url or "service_worker" in url] == []
        assert workers == []


def test_an_edit_changes_what_a_cell_shows(live):
    before = live.text(PRINTS_WEIGHTS)
    live.write(PRINTS_WEIGHTS, "print(scores * 0 + 7)")
    assert live.run(PRINTS_WEIGHTS) == "[7. 7. 7.]\n" != before


def test_the_last_expression_is_shown_unless_it_ends_in_a_semicolon(live):
    live.write(SCRATCH, "print('said')\n{'a': 1, 'b': [2, 3]}")
    assert live.run(SCRATCH) == "said\n\n{'a': 1, 'b': [2, 3]}"
    live.write(SCRATCH, "41 + 1;")
    assert live.run(SCRATCH) == ""


def test_an_exception_is_shown_at_its_line_and_the_page_goes_on(live):
    live.write(SCRATCH, "def f(x):\n    return 1 / x\n\n\nprint('before')\nf(0)")
    shown = live.run(SCRATCH)
    name = live.cell(SCRATCH).locator(".live-name").inner_text()
    assert shown.startswith("before\n")
    assert shown.endswith("ZeroDivisionError: division by zero")
    assert f'File "{name}", line 6, in <module>\n    f(0)' in shown
    assert f'File "{name}", line 2, in f\n    return 1 / x' in shown
    assert "livecells" not in shown
    assert live.status == f"{name}: ZeroDivisionError: division by zero"
    assert live.cell(SCRATCH).locator(".live-raised-here").inner_text().strip() == "return 1 / x"
    live.write(SCRATCH, "print('on')")
    assert live.run(SCRATCH) == "on\n"
    assert live.cell(SCRATCH).locator(".live-raised-here").count() == 0


def test_a_wrong_line_of_syntax_is_marked(live):
    live.write(SCRATCH, "x = 1\nif x\n    print(x)")
    assert live.run(SCRATCH).endswith("SyntaxError: expected ':'")
    assert live.cell(SCRATCH).locator(".live-raised-here").inner_text() == "if x"


def test_recursion_without_an_end_does_not_end_the_session(live):
    live.write(SCRATCH, "def down(n):\n    return down(n + 1)\n\n\ndown(0)")
    assert "RecursionError" in live.run(SCRATCH)
    live.write(SCRATCH, "print(down.__name__)")
    assert live.run(SCRATCH) == "down\n"


@pytest.mark.parametrize("loop", ["while True: pass", "while True: print('again')"])
def test_an_endless_loop_is_stopped_and_later_cells_still_run(live, loop):
    live.write(SCRATCH, f"print('here')\n{loop}")
    live.page.keyboard.press("ControlOrMeta+Enter")
    live.wait_for("running")
    live.page.wait_for_function(
        "cell => cell.innerText.includes('here')",
        arg=live.cell(SCRATCH).locator(".cell_output").element_handle(),
        polling=100,
        timeout=PATIENCE,
    )
    live.button("Stop").click()
    assert live.wait_until_it_rests().startswith("Stopped")
    assert live.cell(SCRATCH).locator(".live-state").inner_text() == "stopped"
    live.write(PRINTS_WEIGHTS, "print(scores.shape)")
    assert live.run(PRINTS_WEIGHTS) == "(3,)\n"


def test_a_restart_forgets_all_names_and_cells_above_are_run_again(live):
    live.write(PRINTS_WEIGHTS, "only_here = 1")
    live.run(PRINTS_WEIGHTS)
    live.button("Restart").click()
    live.wait_until_it_rests()
    live.write(PRINTS_WEIGHTS, "print('only_here' in globals(), scores.shape)")
    assert live.run(PRINTS_WEIGHTS) == "False (3,)\n"


def test_rich_outputs_are_shown_as_what_they_are(live):
    live.write(SCRATCH, RICH)
    assert live.run(SCRATCH) == live.text(SCRATCH) != ""
    kinds = [kind for kind, _ in live.outputs(SCRATCH)]
    assert kinds == ["text_html", "text_latex", "text_markdown", "image", "image"]
    outputs = live.cell(SCRATCH).locator(".cell_output")
    assert outputs.locator("b").inner_text() == "bold"
    assert outputs.locator("em").inner_text() == "slanted"
    assert outputs.locator("script").count() == 0
    outputs.locator(".text_latex mjx-container, .text_latex math").first.wait_for()
    outputs.locator(".text_markdown mjx-container, .text_markdown math").first.wait_for()
    formulas = [outputs.locator("mjx-container").first, live.page.locator("p mjx-container").first]
    ours, the_page_s = [formula.evaluate(SIZE) for formula in formulas]
    assert ours == pytest.approx(the_page_s, rel=0.01)
    drawing, picture = outputs.locator("img").all()
    assert drawing.get_attribute("alt") == "a dot"
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 100


def test_magics_of_notebooks_do_not_break_a_cell(live):
    live.write(
        SCRATCH, "%matplotlib inline\nif True:\n    %pip install something\n!ls\nprint('end')"
    )
    shown = live.run(SCRATCH)
    assert shown.endswith("end\n")
    assert "in the browser" in shown


def test_tab_completes_the_names_of_the_session(live):
    live.write(SCRATCH, "alphabet = 'abc'")
    live.run(SCRATCH)
    live.write(SCRATCH, "")
    live.page.keyboard.type("print(alphabet.isalp")
    live.page.keyboard.press("Tab")
    live.page.locator(".cm-tooltip-autocomplete li", has_text="alphabet.isalpha").wait_for()
    live.page.wait_for_timeout(200)  # in its first moments the list takes no key
    live.page.keyboard.press("Enter")
    live.page.keyboard.type("()")
    assert live.run(SCRATCH) == "True\n"


def test_the_keyboard_alone_reaches_everything(live):
    keyboard, focused = live.page.keyboard, "document.activeElement.getAttribute('aria-label')"
    live.editor(SCRATCH).focus()
    name = live.page.evaluate(focused)
    keyboard.press("Escape")
    assert live.page.evaluate(focused) == f"Run {name}"
    keyboard.press("Enter")
    live.wait_until_it_rests()
    keyboard.press("Shift+Tab")
    assert live.page.evaluate(focused) == name
    keyboard.press("Shift+Enter")
    assert live.page.evaluate(focused) not in {None, name}
    assert live.wait_until_it_rests() == f"{name} has run"


def test_cells_that_need_torch_say_so_and_are_left_out(live):
    cell = live.cell(TORCH)
    assert "PyTorch" in cell.locator(".live-note").inner_text()
    assert cell.locator(".live-editor, .live-button").count() == 0
    assert cell.get_attribute("data-live") is None


@pytest.mark.parametrize("width", [PHONE, NARROWEST])
def test_a_live_page_fits_a_phone(live, width):
    live.write(SCRATCH, f"text = '{'long ' * 60}'\nprint(text)")
    live.run(SCRATCH)
    before = live.page.viewport_size
    live.page.set_viewport_size({"width": width, "height": 700})
    scrolled = live.page.evaluate("document.documentElement.scrollWidth")
    live.page.set_viewport_size(before)
    assert scrolled <= width


def test_edits_survive_a_reload_until_they_are_reset(live_page, browser, home):
    live, _ = live_page
    live.write(SCRATCH, "# mine")
    with opened(browser, View(CHAPTER), home) as (page, _):
        other = LivePage(page)
        page.locator(".live-start button").click()
        other.editor(SCRATCH).wait_for(timeout=PATIENCE)
        assert other.editor(SCRATCH).inner_text() == "# mine"
        assert other.editor(PRINTS_WEIGHTS).inner_text() == "".join(CELLS[PRINTS_WEIGHTS]["source"])
        other.cell(SCRATCH).get_by_role("button", name="Reset Cell").click()
        assert other.editor(SCRATCH).inner_text().startswith("colours =")
    with opened(browser, View(CHAPTER), home) as (page, _):
        page.locator(".live-start button").click()
        LivePage(page).editor(SCRATCH).wait_for(timeout=PATIENCE)
        assert LivePage(page).editor(SCRATCH).inner_text().startswith("colours =")
    live.cell(SCRATCH).get_by_role("button", name="Reset Cell").click()


def test_a_second_visit_needs_no_server(browser, site):
    with served(site) as url, opened(browser, View(CHAPTER), url) as (page, _):
        page.locator(".live-start button").click()
        page.wait_for_selector(".live-toolbar[data-kept]", timeout=PATIENCE)
    with opened(browser, View(CHAPTER), url) as (page, visit):
        live = LivePage(page)
        page.locator(".live-start button").click()
        shows = f"document.querySelector('.live-cell-{SCRATCH}').dataset.live === 'done'"
        live.wait_for(shows)
        assert "[255, 0, 0]" in live.text(SCRATCH)
    assert visit.foreign == []


def test_a_page_opened_from_a_folder_says_what_it_needs(browser, site):
    with opened(browser, View(CHAPTER), site.as_uri()) as (page, visit):
        page.locator(".live-start button").click()
        assert "python -m http.server" in page.locator(".live-start .live-note").inner_text()
    assert (visit.errors, visit.foreign) == ([], [])


def test_an_exercise_checks_the_reader_s_answer(live):
    check = "from attnlib.teaching import exercises\nexercises.check('single-query-1', {})"
    live.write(EXERCISE, check.format("None"))
    assert live.run(EXERCISE).startswith("Not answered yet")
    live.write(EXERCISE, check.format("[[2, 8], [2, 8], [0.5, 0.5]]"))
    assert "You forgot the scale" in live.run(EXERCISE)
    live.write(EXERCISE, check.format("[[2, 8], [1, 4], [0.0474, 0.9526]]"))
    assert live.run(EXERCISE).startswith("Right")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (PHONE, "light")])
def test_axe_finds_no_violation_in_live_cells_and_their_bar(live, width, scheme):
    before = live.page.viewport_size
    live.page.set_viewport_size({"width": width, "height": 900})
    live.page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
    live.page.wait_for_timeout(500)  # a moment after a change of width the theme looks what scrolls
    found = violations_within(live.page, ".live-toolbar, .cell[data-live]")
    live.page.evaluate("document.documentElement.dataset.theme = 'light'")
    live.page.set_viewport_size(before)
    assert found == []
