"""What runs inside the engine of the live cells, tested in an ordinary Python."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.web.pages import ROOT

RUNTIME = ROOT / "web/live/python"
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import livecells
calls = json.load(sys.stdin)
livecells.start(sys.argv[2])
for name, arguments in calls:
    getattr(livecells, name)(*livecells.decoded(json.dumps(arguments)))
"""


@pytest.fixture
def answers(tmp_path):
    """Return what the runtime answers to calls, in a process of its own: it takes over stdout."""

    def ask(*calls):
        outbox = tmp_path / "outbox"
        command = [sys.executable, "-c", PROGRAM, str(RUNTIME), str(outbox)]
        subprocess.run(command, input=json.dumps(calls), text=True, check=True, timeout=120)
        return [json.loads(line) for line in outbox.read_text("utf-8").splitlines()]

    return ask


@pytest.fixture
def outputs(answers):
    """Return the outputs of cells that are run one after the other."""

    def run(*cells):
        calls = [("run", (number, code, f"Cell {number}")) for number, code in enumerate(cells, 1)]
        said = answers(*calls)
        finished = [message["run"] for message in said if message["type"] == "finished"]
        assert finished == list(range(1, len(cells) + 1))
        return [message["output"] for message in said if message["type"] == "output"]

    return run


def texts(outputs):
    return [output.get("text") or output["data"]["text/plain"] for output in outputs]


def test_the_value_of_a_last_expression_is_a_result(outputs):
    assert texts(outputs("x = 6\nx * 7", "x;", "None", "# only a comment", "")) == ["42"]


def test_every_printed_line_is_sent_at_once_and_in_order(outputs):
    printed = outputs("import sys\nprint(1)\nprint(2, file=sys.stderr)\nprint(3, end='')\n'four'")
    assert [output.get("name") for output in printed] == ["stdout", "stderr", "stdout", None]
    assert texts(printed) == ["1\n", "2\n", "3", "'four'"]


def test_output_without_an_end_is_cut_once(outputs):
    printed = texts(outputs("for _ in range(99_999):\n    print('x' * 99)", "print('next')"))
    assert len("".join(printed)) < 110_000
    assert len(printed) < 500  # messages, which a page can follow
    assert sum("left out" in text for text in printed) == 1
    assert printed[-1] == "next\n"


def test_a_run_that_raises_is_finished_and_not_well(answers):
    said = answers(("run", (1, "1 / 0", "Cell 1")), ("run", (2, "pass", "Cell 2")))
    assert [m["ok"] for m in said if m["type"] == "finished"] == [False, True]


@pytest.mark.parametrize("ending", ["raise SystemExit", "raise KeyboardInterrupt", "exit_now"])
def test_nothing_that_a_cell_raises_ends_the_session(outputs, ending):
    (error, after) = outputs(ending, "print('on')")
    assert error["output_type"] == "error"
    assert after["text"] == "on\n"


class TestTracebacks:
    def test_begin_in_the_cell_and_show_its_lines(self, outputs):
        (error,) = outputs("def f():\n    return {}['key']\n\nf()")
        assert error["traceback"][:3] == [
            "Traceback (most recent call last):",
            '  File "Cell 1", line 4, in <module>',
            "    f()",
        ]
        assert (error["ename"], error["evalue"], error["line"]) == ("KeyError", "'key'", 2)
        assert "livecells" not in "".join(error["traceback"])

    def test_name_the_line_of_wrong_syntax(self, outputs):
        (error,) = outputs("x = 1\nx = = 2")
        assert (error["ename"], error["line"]) == ("SyntaxError", 2)
        assert error["traceback"][0] == '  File "Cell 1", line 2'

    def test_keep_the_cell_in_which_a_function_was_written(self, outputs):
        (error,) = outputs("def f():\n    raise ValueError('here')", "\n\nf()")
        assert error["line"] == 3
        assert any('File "Cell 1", line 2' in line for line in error["traceback"])

    def test_count_lines_as_the_reader_does_where_magics_are_used(self, outputs):
        (error,) = outputs("%matplotlib inline\n!true\n\n1 / 0")[1:]
        assert error["line"] == 4


def test_rich_values_are_sent_as_all_that_they_can_be(outputs):
    cell = "from IPython.display import HTML, Math, Image, display\n"
    html, math, image = outputs(
        cell + "display(HTML('<b>x</b>'), Math('x^2'))", "Image(bytes([1, 2, 3]))"
    )
    assert html["data"] == {
        "text/plain": "<IPython.core.display.HTML object>",
        "text/html": "<b>x</b>",
    }
    assert math["data"]["text/latex"] == r"$\displaystyle x^2$"
    assert image["data"]["image/png"] == "AQID"


def test_a_method_that_represents_is_used_and_one_that_is_a_class_is_not(outputs):
    cell = "class A:\n    def _repr_latex_(self):\n        return '$a$'\n\n\n"
    instance, class_ = outputs(cell + "A()", "A")
    assert instance["data"]["text/latex"] == "$a$"
    assert list(class_["data"]) == ["text/plain"]


def test_a_value_that_shows_itself_is_left_to_it(outputs):
    cell = "class A:\n    def _ipython_display_(self):\n        print('itself')\n\n\n"
    assert texts(outputs(cell + "A()")) == ["itself\n"]


def test_outputs_can_be_cleared(outputs):
    cell = "from IPython.display import clear_output\nclear_output(wait=True)"
    assert outputs(cell) == [{"output_type": "clear", "wait": True}]


def test_figures_are_shown_in_the_form_that_the_chapter_chose(outputs):
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed")
    figure = "figure, ax = plt.subplots()\nfigure.set_label('what is seen')\n"
    first, second, third = outputs(
        "import matplotlib.pyplot as plt",
        figure + "plt.show()",
        f"from attnlib.teaching import notebook\nnotebook.setup()\n{figure}",
        "plt.figure(label='a bare figure');",
    )
    assert list(first["data"]) == ["text/plain", "image/png"]
    assert list(second["data"]) == ["text/plain", "image/svg+xml"]
    assert "<title>what is seen</title>" in second["data"]["image/svg+xml"]
    assert "<title>a bare figure</title>" in third["data"]["image/svg+xml"]


def test_names_of_the_session_are_completed(answers):
    *_, whole, attribute, nothing = answers(
        ("run", (1, "alphabet = 'abc'", "Cell 1")),
        ("complete", (2, "x = alph", 8)),
        ("complete", (3, "alphabet.isal + 1", 13)),
        ("complete", (4, "x = ", 4)),
    )
    assert (whole["start"], whole["items"]) == (4, ["alphabet"])
    assert attribute["items"] == ["alphabet.isalnum", "alphabet.isalpha"]
    assert nothing["items"] == []


def test_cells_share_names_and_see_none_of_the_runtime(outputs):
    (names,) = outputs("x = 1", "y = 2", "sorted(n for n in globals() if not n.startswith('__'))")
    assert names["data"]["text/plain"] == "['display', 'get_ipython', 'x', 'y']"


def test_a_coroutine_at_the_top_is_run_to_its_end(outputs):
    assert texts(outputs("async def two():\n    return 2\n\n\nawait two()")) == ["2"]
