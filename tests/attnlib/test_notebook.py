"""What every notebook begins with: settings for numbers and figures, and showing the source."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import attnlib
from attnlib.teaching import notebook


@pytest.fixture(autouse=True)
def settings_as_before():
    with np.printoptions():
        yield


class TestPrintedNumbers:
    def test_do_not_show_the_last_bits(self):
        notebook.setup()
        third = np.array([1 / 3, np.nextafter(1 / 3, 1), 1e-17])
        assert str(third) == "[0.3333 0.3333 0.    ]"

    def test_fit_the_width_of_a_page(self):
        notebook.setup()
        lines = str(np.full((2, 40), 1 / 3)).splitlines()
        assert max(map(len, lines)) <= 88


class TestFigures:
    @pytest.fixture
    def pyplot(self):
        pyplot = pytest.importorskip("matplotlib.pyplot", reason="Matplotlib is not installed")
        with pyplot.rc_context():
            notebook.setup()
            yield pyplot
            pyplot.close("all")

    @pytest.fixture
    def figure(self, pyplot):
        """A figure with each sort of element: line, bar, bitmap, legend, grid, text, hatching."""
        figure, (left, right) = pyplot.subplots(1, 2)
        left.plot([0, 1, 3], [2, 5, 7], label="line")
        left.bar([1, 2], [3, 4], color="white", edgecolor="black", hatch="//")
        left.scatter([1, 2], [1, 2], color="black")
        left.grid(True)
        left.legend()
        right.imshow([[0, 1, 2], [3, 4, 5]])
        right.annotate("here", (0, 0), (1, 1), arrowprops={"arrowstyle": "->"})
        figure.set_label("what is seen: a < b & c")
        return figure

    def test_label_is_the_alternative_text(self, figure):
        root = ElementTree.fromstring(notebook.figure_to_svg(figure))
        assert root.get("role") == "img"
        first, *_ = root
        assert first.tag.endswith("title")
        assert first.text == "what is seen: a < b & c"

    def test_without_a_label_is_refused(self, pyplot):
        figure, _ = pyplot.subplots()
        with pytest.raises(ValueError, match=r'figure: needs .* fig\.set_label\("what is seen"\)'):
            notebook.figure_to_svg(figure)

    def test_name_no_date_and_no_program(self, figure):
        text = notebook.figure_to_svg(figure)
        assert not re.search(r"dc:date|dc:creator|Matplotlib v|<\?xml|<!DOCTYPE", text)

    def test_follow_a_dark_page_in_every_line_and_letter(self, figure):
        """Each element drawn in ink, paper or grid colour is one that the dark style changes."""
        text = notebook.figure_to_svg(figure)
        assert notebook.DARK_STYLE in text
        selectors = re.findall(r"(path|use)\[style\*='(\w+: #\w{6})'\]", notebook.DARK_STYLE)
        changing = {notebook.INK, notebook.PAPER, notebook.GRID}
        drawn = {
            (element.tag.rpartition("}")[2], declaration.strip())
            for element in ElementTree.fromstring(text).iter()
            for declaration in element.get("style", "").split(";")
            if changing & {declaration.split(":")[-1].strip()}
        }
        assert {colour.split()[-1] for _, colour in drawn} == changing
        assert drawn <= set(selectors)

    @pytest.mark.slow
    def test_are_styled_whether_matplotlib_comes_before_or_after(self, pyplot):
        program = (
            "import sys\n"
            "{before}\n"
            "from attnlib.teaching import notebook\n"
            "notebook.setup()\n"
            "finders = len(sys.meta_path)\n"
            "assert ('matplotlib' in sys.modules) == bool('{before}')\n"
            "import matplotlib\n"
            "assert matplotlib.rcParams['image.cmap'] == 'Blues'\n"
            "assert len(sys.meta_path) == finders - (not '{before}')\n"
            "import matplotlib.pyplot\n"
        )
        for before in ("", "import matplotlib.pyplot"):
            command = [sys.executable, "-c", program.format(before=before)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr

    @pytest.mark.slow
    def test_are_the_same_to_the_byte_in_another_process(self, pyplot):
        program = (
            "from matplotlib import pyplot\n"
            "from attnlib.teaching import notebook, plot\n"
            "notebook.setup()\n"
            "figure = plot.heatmap([[0.2, 0.8], [0.5, 0.5]], alt='two by two')\n"
            "figure.axes[0].plot([0, 1], [0, 1], marker='o')\n"
            "print(notebook.figure_to_svg(figure))\n"
        )
        first, second = (
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        )
        assert first == second
        assert "<title>two by two</title>" in first


class TestSource:
    @pytest.mark.parametrize("name", ["softmax", "causal_attention", "multi_head_attention"])
    def test_shown_is_the_code_of_the_library_without_its_docstring(self, name):
        function = getattr(attnlib, name)
        (shown,) = ast.parse(notebook.source_without_docstring(function)).body
        with open(sys.modules[function.__module__].__file__, encoding="utf-8") as file:
            module = ast.parse(file.read())
        (own,) = (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == name)
        assert ast.get_docstring(shown) is None
        assert ast.dump(ast.Module(shown.body, [])) == ast.dump(ast.Module(own.body[1:], []))

    def test_of_a_function_without_docstring_is_shown_whole(self):
        def halve(x):
            return x / 2

        assert notebook.source_without_docstring(halve) == "def halve(x):\n    return x / 2"
