"""A corrupted notebook must fail: nbval and its companion in conftest.py, watched at work."""

import base64
import io
import re

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from tests.chapters.documents import NOTEBOOKS, read_notebook
from tests.chapters.nbval import run_nbval
from web.notebooks import execute

pytestmark = pytest.mark.slow  # runs notebooks


SETUP = "from attnlib.teaching import notebook\n\nnotebook.setup()"
TEXT = "print(1 + 1)"
ARRAY = "import numpy as np\n\nnp.arange(3) / 2"
HTML = "from IPython.display import HTML\n\nHTML('<b>three</b>')"
SVG = """import matplotlib.pyplot as plt

fig, ax = plt.subplots()
fig.set_label('A rising line beside four squares')
ax.plot([0, 1], [0, 1])
ax.imshow([[0, 1], [2, 3]], extent=(2, 3, 0, 1))
plt.show()"""
PNG = """import io
from IPython.display import Image

png = io.BytesIO()
fig.savefig(png, format='png')
Image(png.getvalue())"""
ANNOUNCED = "np.ones(2) @ np.ones(3)"


def change_text(cell):
    cell.outputs[0].text = "3\n"


def change_array(cell):
    cell.outputs[0].data["text/plain"] = "array([0. , 0.6, 1. ])"


def change_html(cell):
    cell.outputs[0].data["text/html"] = "<b>four</b>"


def edit_svg(cell, pattern, replacement):
    data = cell.outputs[0].data
    data["image/svg+xml"], count = re.subn(pattern, replacement, data["image/svg+xml"], count=1)
    assert count == 1


def move_line(cell):
    edit_svg(cell, r"(?<=d=\"M )\d+", lambda number: str(int(number[0]) + 1))


def change_colour(cell):
    edit_svg(cell, r"(?<=stroke: )#0072b2", "#0072b3")


def change_alternative_text(cell):
    edit_svg(cell, "A rising line", "A falling line")


def change_tick_label(cell):
    edit_svg(cell, r"(?<=<!-- )1\.0(?= -->)", "1.1")


def edit_picture(data, edit):
    image = edit(Image.open(io.BytesIO(base64.b64decode(data))))
    buffer = io.BytesIO()
    image.save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def change_heatmap(cell):
    def paint_corner(image):
        pixels = np.array(image)
        pixels[: len(pixels) // 2, : len(pixels) // 2] = pixels[-1, -1]
        return Image.fromarray(pixels)

    edit_svg(
        cell, r"(?<=base64,)[A-Za-z0-9+/=\s]+", lambda data: edit_picture(data[0], paint_corner)
    )


def change_png(cell):
    data = cell.outputs[0].data
    data["image/png"] = edit_picture(
        data["image/png"], lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    )


def spoil_png(cell):
    cell.outputs[0].data["image/png"] = base64.b64encode(b"no picture").decode()


def drop_svg(cell):
    del cell.outputs[0].data["image/svg+xml"]


def drop_png(cell):
    del cell.outputs[0].data["image/png"]


def drop_outputs(cell):
    cell.outputs = []


def strip_run(cell):
    cell.outputs, cell.execution_count = [], None


def raise_exception(cell):
    cell.source += "\nraise RuntimeError"


def raise_nothing(cell):
    cell.source = "np.ones(3) @ np.ones(3)"


def raise_another(cell):
    cell.source = "undefined"


# Each fault stands alone in its cell; the message says what noticed it.
FAULTS = {
    change_text: (TEXT, "Cell outputs differ"),
    change_array: (ARRAY, "Cell outputs differ"),
    change_html: (HTML, "Cell outputs differ"),
    move_line: (SVG, "lines moved by 1.00 points"),
    change_colour: (SVG, "elements or styles changed"),
    change_alternative_text: (SVG, "alternative text or a label"),
    change_tick_label: (SVG, "alternative text or a label"),
    change_heatmap: (SVG, "a colour changed"),
    change_png: (PNG, "pixels changed"),
    spoil_png: (PNG, "no PNG image"),
    drop_svg: (SVG, "0 figures (image/svg+xml) stored, 1 drawn"),
    drop_png: (PNG, "0 figures (image/png) stored, 1 drawn"),
    drop_outputs: (TEXT, "Cell outputs differ"),
    strip_run: (TEXT, "no stored run"),
    raise_exception: (TEXT, "Cell execution caused an exception"),
    raise_nothing: (ANNOUNCED, "Cell outputs differ"),
    raise_another: (ANNOUNCED, "Cell outputs differ"),
}


def write_sound_notebook(path):
    cells = [new_code_cell(source) for source in (SETUP, *(s for s, _ in FAULTS.values()))]
    for cell in cells:
        cell.metadata.tags = ["raises-exception"] if cell.source == ANNOUNCED else []
    nbformat.write(new_notebook(cells=cells), path)
    execute.run_in_place(path)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "small.ipynb"
    write_sound_notebook(path)
    return path


@pytest.fixture(scope="module")
def verdicts(sound, tmp_path_factory):
    """Return what nbval said of each cell, all faults in place."""
    notebook = read_notebook(sound)
    for fault, cell in zip(FAULTS, notebook.cells[1:], strict=True):
        fault(cell)
    path = tmp_path_factory.mktemp("faulty") / "small.ipynb"
    nbformat.write(notebook, path)
    setup, *others = run_nbval(path.parent, path)
    assert setup is None
    return dict(zip(FAULTS, others, strict=True))


def test_a_sound_notebook_passes(sound):
    assert run_nbval(sound.parent, sound) == [None] * (1 + len(FAULTS))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_noticed(verdicts, fault):
    _, message = FAULTS[fault]
    assert message in str(verdicts[fault])


def spoil_text(cell):
    (output, *_) = cell.outputs
    if output.output_type == "stream":
        output.text += "1"
    else:
        output.data["text/plain"] += "1"


def spoil_figure(cell):
    (output,) = [o for o in cell.outputs if "image/svg+xml" in o.get("data", {})]
    output.data["image/svg+xml"] = output.data["image/svg+xml"].replace("<path", "<use", 1)


@pytest.mark.parametrize("path", NOTEBOOKS[:1], ids=lambda path: path.name)
def test_four_faults_in_a_chapter_are_noticed(path, tmp_path):
    notebook = read_notebook(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    figures = [n for n, cell in enumerate(code) if "image/svg+xml" in str(cell.outputs)]
    texts = [n for n, cell in enumerate(code) if cell.outputs and n not in figures]
    changed, stripped, raising = texts[:3]
    faults = {
        changed: spoil_text,
        stripped: strip_run,
        raising: raise_exception,
        figures[0]: spoil_figure,
    }
    for number, fault in faults.items():
        fault(code[number])
    nbformat.write(notebook, tmp_path / path.name)
    verdicts = run_nbval(tmp_path, tmp_path / path.name)
    assert [number for number in faults if verdicts[number] is None] == []
