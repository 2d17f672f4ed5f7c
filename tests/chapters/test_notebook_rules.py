"""Each rule for notebooks lets a sound one pass and names the cell of one that breaks it."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from attnlib.teaching.exercises import NOT_ANSWERED
from tests.chapters import notebook_rules as rules
from web.notebooks.execute import canonical

SVG = "<svg><title>Rising line</title><!-- 0.5 --><path/></svg>"


def exercise(label):
    return f"> **Exercise {label}** (a title). What?\n\n*Level: core.*"


def stub(label):
    number = label.partition(".")[2]
    return new_code_cell(
        f'answer = None  # a number\nexercises.check("one-{number}", answer)',
        outputs=[new_output("stream", text=NOT_ANSWERED + "\n")],
    )


def solution(label, printed="Right. All of it.\n"):
    number = label.partition(".")[2]
    return new_code_cell(
        f'# @title Solution {label}\nexercises.check("one-{number}", x)',
        metadata={"tags": ["hide-input"]},
        outputs=[new_output("stream", text=printed)],
    )


def sound_notebook():
    """Return a notebook that keeps all rules; exercises in cells 6 to 17, torch in cell 19."""
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell(rules.INSTALL, metadata={"tags": ["remove-cell"]}),
        new_code_cell(rules.SETUP, metadata={"tags": ["hide-input"]}),
        new_markdown_cell("What is $1 < 2$, as `{role}` and [a link](02_causal.ipynb) know?"),
        new_code_cell("x = 2\nprint(x)", outputs=[new_output("stream", text="2\n")]),
    ]
    for label in ("1.1", "1.2", "1.3"):
        cells += [
            new_markdown_cell(exercise(label)),
            stub(label),
            new_markdown_cell("The solution checks itself."),
            solution(label),
        ]
    cells += [
        new_markdown_cell("And in torch?"),
        new_code_cell("import torch\n\nt = torch.ones(x)", metadata={"tags": ["torch"]}),
    ]
    code = [cell for cell in cells if cell.cell_type == "code"]
    for place, cell in enumerate(code, start=1):
        cell.execution_count = place
    return canonical(new_notebook(cells=cells))


def replaced(notebook, number, **parts):
    notebook.cells[number - 1].update(parts)
    return notebook


def with_output(**data):
    output = new_output("display_data", data={key.replace("_", "/"): v for key, v in data.items()})
    return replaced(sound_notebook(), 5, outputs=[output])


def printing(text):
    return replaced(sound_notebook(), 5, outputs=[new_output("stream", text=text)])


def with_prose(text):
    return replaced(sound_notebook(), 4, source=text)


def with_source(text, number=5):
    return replaced(sound_notebook(), number, source=text)


def tagged(number, *tags):
    notebook = sound_notebook()
    notebook.cells[number - 1].metadata.tags = list(tags)
    return notebook


def appended(*cells):
    notebook = sound_notebook()
    notebook.cells += [new_code_cell(source) for source in cells]
    return notebook


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_a_sound_notebook_keeps_every_rule(rule):
    assert rule(sound_notebook()) == []


def test_every_rule_is_broken_once_below():
    broken = {case.values[0] for case in BROKEN}
    assert broken == set(rules.RULES)


def case(rule, notebook, *expected):
    return pytest.param(rule, notebook, expected, id=f"{rule.__name__}: {expected[0][:40]}")


def without_runs():
    notebook = sound_notebook()
    notebook.cells[4].execution_count = 9
    return notebook


def with_editor_metadata():
    notebook = sound_notebook()
    notebook.metadata.language_info["version"] = "3.11.7"
    return notebook


def with_error():
    error = new_output("error", ename="ValueError", evalue="no", traceback=[])
    return replaced(sound_notebook(), 5, outputs=[error])


def with_two_titles():
    notebook = sound_notebook()
    notebook.cells.insert(1, new_markdown_cell("More to read first"))
    return notebook


def with_commented_nbval():
    return with_source("# NBVAL_IGNORE_OUTPUT\nx")


BROKEN = [
    case(rules.stored_as_make_notebooks_does, with_editor_metadata(), "canonical form"),
    case(rules.run_from_top_to_bottom, without_runs(), "cell 5 ran as number 9, not 3"),
    case(rules.errors_are_announced, with_error(), "cell 5 stores an error"),
    case(rules.errors_are_announced, tagged(5, "raises-exception"), "cell 5 stores no error"),
    *[
        case(rules.outputs_name_no_machine_and_no_time, printing(f"it is {text}"), "cell 5 prints")
        for text in (
            "/home/me/book/attnlib",
            "/tmp/ipykernel_7/1.py",
            "<object at 0x7f98852faa50>",
            "12.3 ms",
            "3 s",
            "Wall time: 1",
            "2026-11-29",
            "10:15",
            "C:\\Users\\me",
        )
    ],
    case(
        rules.outputs_name_no_machine_and_no_time,
        with_output(**{"image_svg+xml": SVG.replace("0.5", "/home/me/file")}),
        "cell 5 prints '/home/me/file'",
    ),
    case(
        rules.ignored_outputs_have_a_reason,
        tagged(5, "nbval-ignore-output"),
        "cell 5 is not compared",
    ),
    case(rules.ignored_outputs_have_a_reason, with_commented_nbval(), "cell 5 speaks to nbval"),
    case(
        rules.figures_have_alternative_text,
        with_output(**{"image_svg+xml": "<svg><title> </title></svg>"}),
        "cell 5 draws a figure without alternative text",
    ),
    case(rules.figures_have_alternative_text, with_output(image_png="iVBO"), "cell 5 shows a PNG"),
    case(
        rules.figures_have_alternative_text,
        with_output(image_jpeg="/9j/"),
        "cell 5 shows image/jpeg",
    ),
    case(
        rules.begins_with_title_installation_and_setup,
        with_source("print('no title')", number=1),
        "cell 1 is no title",
    ),
    case(
        rules.begins_with_title_installation_and_setup,
        with_source(rules.INSTALL.replace("example", "elsewhere"), number=2),
        "not the installation",
    ),
    case(
        rules.begins_with_title_installation_and_setup,
        with_source("notebook.setup()", number=3),
        "not the set-up",
    ),
    case(rules.begins_with_title_installation_and_setup, with_two_titles(), "do not follow"),
    case(rules.each_code_cell_answers_a_question, appended("1"), "cell 20 follows another"),
    case(
        rules.code_cells_are_short,
        with_source("x = 1\n" * 26),
        "cell 5 has 26 lines",
    ),
    case(
        rules.code_cells_are_short,
        appended(*["x = 1\n" * 9] * 9),
        "the median cell has 9 lines",
    ),
    case(
        rules.at_least_three_exercises_with_solutions,
        with_source("# a solution without its title", number=9),
        "2 executed solutions, fewer than three",
        "no folded solution follows exercise 1.1",
    ),
    case(
        rules.at_least_three_exercises_with_solutions,
        tagged(9),
        "2 executed solutions, fewer than three",
        "no folded solution follows exercise 1.1",
    ),
    case(
        rules.at_least_three_exercises_with_solutions,
        with_source(exercise("1.4"), number=10),
        "numbered 1.1, 1.4, 1.3",
        "no folded solution follows exercise 1.4",
    ),
    *[
        case(rules.every_exercise_waits_for_an_answer_and_checks_it, notebook, expected)
        for notebook, expected in [
            (with_source("# nothing to fill in", 7), "exercise 1.1 has 0 cells that wait"),
            (with_source(stub("1.3").source, 11), "exercise 1.2 has 0 cells that wait"),
            (with_source(stub("1.1").source.replace("None", "7"), 7), "has 0 cells that wait"),
            (with_source(stub("1.1").source.replace("  # a number", ""), 7), "has 0 cells that"),
            (replaced(sound_notebook(), 7, outputs=[]), "the stub of exercise 1.1 stores ''"),
            (replaced(sound_notebook(), 9, **solution("1.2")), "solution of exercise 1.1 does not"),
            (replaced(sound_notebook(), 9, outputs=[]), "the solution of exercise 1.1 does not"),
            (
                replaced(
                    sound_notebook(), 9, outputs=solution("1.1", "Right. No\nNot yet.").outputs
                ),
                "the solution of exercise 1.1 fails a check",
            ),
        ]
    ],
    *[
        case(rules.torch_cells_are_tagged, with_source(source), "cell 5 uses torch")
        for source in (
            "import torch",
            "import torch.nn.functional as F",
            "from torch import nn",
            "from attnlib.nn import MultiHeadAttention",
            "from attnlib import nn",
            "torch.ones(3)",
        )
    ],
    *[
        case(rules.no_cell_depends_on_a_torch_cell, appended(source), "cell 20 needs 't' from")
        for source in (
            "t",
            "t += 1",
            "def f():\n    return t",
            "t = t + 1",
            "[a for a in t]",
            "print(lambda x: t)",
        )
    ],
    *[
        case(rules.markdown_is_portable, with_prose(text), f"cell 4 has {construct}")
        for construct, text in {
            "a directive": "```{note}\ntext\n```",
            "a colon fence": ":::{note}\ntext\n:::",
            "a role": "see {ref}`there`",
            "a label line": "(label)=\n# Title",
            "a footnote": "a claim[^1]",
            "an equation label": "$$x$$ (eq-x)\n\n$$ (eq-x)",
            "a dollar sign": r"it costs \$5",
            "an image file": "![alt](picture.png)",
            "a task list": "- [ ] to do",
            "a front matter": "---\ntitle: x\n---",
            "HTML": '<div class="note">text</div>',
            "a fold without": "<details><summary>Hint</summary>\ntext\n\n</details>",
        }.items()
    ],
    case(
        rules.only_the_projects_address_is_installed_from,
        with_source("%pip install git+https://github.com/other/attnlib@main"),
        "cell 5 names https://github.com/other/attnlib",
    ),
    case(
        rules.only_the_projects_address_is_installed_from,
        with_prose("[here](https://example.org/attention-number-by-number/tree)"),
        "cell 4 names",
    ),
]


@pytest.mark.parametrize(("rule", "notebook", "expected"), BROKEN)
def test_a_broken_rule_names_the_cell(rule, notebook, expected):
    faults = rule(notebook)
    assert len(faults) == len(expected)
    for fault, part in zip(faults, expected, strict=True):
        assert part in fault


@pytest.mark.parametrize(
    "source", ["t = 1\nt", "def f(t):\n    return t", "lambda t: t", "[t for t in range(x)]"]
)
def test_a_name_made_anew_does_not_come_from_the_torch_cell(source):
    assert rules.no_cell_depends_on_a_torch_cell(appended(source)) == []


def test_a_reason_lets_an_output_be_ignored():
    notebook = tagged(5, "nbval-ignore-output")
    notebook.cells[4].metadata.reason = "draws at random on purpose"
    assert rules.ignored_outputs_have_a_reason(notebook) == []


def test_a_solution_in_words_may_come_before_the_executed_one():
    folded = "\n\n<details><summary>Solution</summary>\n\ntext\n\n</details>"
    assert (
        rules.at_least_three_exercises_with_solutions(
            with_source(exercise("1.1") + folded, number=6)
        )
        == []
    )


def test_code_shown_as_code_may_hold_anything():
    text = "Write ``{ref}`x` `` or `\\$`:\n\n```\n:::{note}\n```\n\nand `<div>`, $a <b> c$."
    assert rules.markdown_is_portable(with_prose(text)) == []
