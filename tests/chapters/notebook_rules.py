"""The rules that every chapter's notebook keeps as a file.

Each rule is a function that takes a notebook and returns what breaks it, a line for each fault,
naming the cell: cell 1 is the first of the file. What the cells compute is nbval's matter.
"""

from __future__ import annotations

import ast
import re
import statistics
import symtable
import tomllib
from collections.abc import Callable, Iterator

import nbformat
from nbformat import NotebookNode

from attnlib.teaching.exercises import NOT_ANSWERED
from tests.chapters.documents import ROOT, plain_python, tags
from web.notebooks.execute import canonical

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = PROJECT["urls"]["Repository"]
INSTALL = f"""# On Colab: install the book's library. Does nothing where it is installed already.
import importlib.util

if importlib.util.find_spec("attnlib") is None:
    %pip install -q "attnlib @ git+{ADDRESS}@main\""""
SETUP = "from attnlib.teaching import notebook\n\nnotebook.setup()"

Rule = Callable[[NotebookNode], list[str]]


def cells(notebook: NotebookNode, kind: str) -> Iterator[tuple[int, NotebookNode]]:
    """Yield the cells of one kind with their numbers."""
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == kind:
            yield number, cell


def outputs(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode, NotebookNode]]:
    """Yield each output with its cell and the cell's number."""
    for number, cell in cells(notebook, "code"):
        for output in cell.outputs:
            yield number, cell, output


# --- a stored run ------------------------------------------------------------------------------


def stored_as_make_notebooks_does(notebook: NotebookNode) -> list[str]:
    """The format is valid; metadata names no machine, no time, no editor's session."""
    nbformat.validate(notebook)
    return [] if notebook == canonical(notebook) else ["not in canonical form: make notebooks"]


def run_from_top_to_bottom(notebook: NotebookNode) -> list[str]:
    """The stored outputs come from one run of all cells in order."""
    return [
        f"cell {number} ran as number {cell.execution_count}, not {place}: make notebooks"
        for place, (number, cell) in enumerate(cells(notebook, "code"), start=1)
        if cell.execution_count != place
    ]


def errors_are_announced(notebook: NotebookNode) -> list[str]:
    """A cell tagged "raises-exception" stores an error, and no other cell does."""
    return [
        f"cell {number} {'stores no' if announced else 'stores an'} error"
        for number, cell in cells(notebook, "code")
        if (announced := "raises-exception" in tags(cell))
        != any(output.output_type == "error" for output in cell.outputs)
    ]


_MACHINE_OR_TIME = re.compile(
    r"(?<![\w.:/])/(?:home|root|tmp|usr|opt|var|mnt|work|Users|private|content)/\S*"
    r"|\b[A-Z]:\\\S*|site-packages|\bipykernel_\d+"
    r"|\b0x[0-9a-fA-F]{6,}"
    r"|\b\d+(?:\.\d+)?\s?(?:ns|µs|μs|us|ms|s|sec|seconds?|min|minutes?)\b|\bWall time|\bCPU times"
    r"|\b(?:19|20)\d\d-\d\d-\d\d\b|\b\d\d?:\d\d(?::\d\d)?\b"
)


def outputs_name_no_machine_and_no_time(notebook: NotebookNode) -> list[str]:
    """Paths, addresses, timings and dates differ on the next run."""
    return [
        f"cell {number} prints {found[0]!r}"
        for number, _, output in outputs(notebook)
        for text in _texts(output)
        if (found := _MACHINE_OR_TIME.search(text))
    ]


def _texts(output: NotebookNode) -> list[str]:
    data = output.get("data", {})
    texts = [data[mime] for mime in data if mime.startswith("text/")]
    texts += re.findall(r"<title>.*?</title>|<!--.*?-->", data.get("image/svg+xml", ""), re.DOTALL)
    return [*texts, output.get("text", ""), output.get("evalue", ""), *output.get("traceback", [])]


def ignored_outputs_have_a_reason(notebook: NotebookNode) -> list[str]:
    """nbval compares every output, unless the cell's metadata says why it cannot."""
    ignored = {"nbval-ignore-output", "nbval-skip"}
    missing = [
        f"cell {number} is not compared, and its metadata gives no reason"
        for number, cell in cells(notebook, "code")
        if ignored & set(tags(cell)) and not str(cell.metadata.get("reason", "")).strip()
    ]
    comments = [
        f"cell {number} speaks to nbval in a comment: use a tag and a reason"
        for number, cell in cells(notebook, "code")
        if re.search(r"#\s*(?:NBVAL|PYTEST_VALIDATE)_", cell.source)
    ]
    return missing + comments


def figures_have_alternative_text(notebook: NotebookNode) -> list[str]:
    """fig.set_label("...") makes the <title> of an SVG; a PNG has it in the cell's metadata."""
    faults = []
    for number, cell, output in outputs(notebook):
        data = output.get("data", {})
        svg = data.get("image/svg+xml")
        if svg and not re.search(r"<title>\s*[^\s<][^<]*</title>", svg):
            faults.append(f"cell {number} draws a figure without alternative text")
        if "image/png" in data and not svg and not _image_alt(cell):
            faults.append(f"cell {number} shows a PNG without alternative text")
        others = {mime for mime in data if mime.startswith("image/")}
        for mime in others - {"image/svg+xml", "image/png"}:
            faults.append(f"cell {number} shows {mime}, which nothing compares")
    return faults


def _image_alt(cell: NotebookNode) -> str:
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "").strip()


# --- how a chapter is built ---------------------------------------------------------------------


def begins_with_title_installation_and_setup(notebook: NotebookNode) -> list[str]:
    """The first two code cells are the same in all chapters."""
    (_, title), *_ = enumerate(notebook.cells)
    (_, first), (_, second), *_ = cells(notebook, "code")
    faults = [] if title.source.startswith("# ") else ["cell 1 is no title"]
    if notebook.cells[1:3] != [first, second]:
        faults.append("installation and set-up do not follow the title")
    if first.source != INSTALL or tags(first) != ["remove-cell"]:
        faults.append('the first code cell is not the installation, tagged "remove-cell"')
    if second.source != SETUP or tags(second) not in (["hide-input"], ["remove-cell"]):
        faults.append('the second code cell is not the set-up, tagged "hide-input"')
    return faults


def each_code_cell_answers_a_question(notebook: NotebookNode) -> list[str]:
    """Markdown stands before every code cell, the two that begin the notebook aside."""
    return [
        f"cell {number} follows another code cell: ask the question that it answers"
        for number, _ in cells(notebook, "code")
        if number > 3 and notebook.cells[number - 2].cell_type != "markdown"
    ]


def code_cells_are_short(notebook: NotebookNode) -> list[str]:
    """The median cell has at most 8 lines, none over 25, blank lines and set-up not counted."""
    lengths = {
        number: sum(bool(line.strip()) for line in cell.source.splitlines())
        for number, cell in cells(notebook, "code")
        if number > 3
    }
    faults = [f"cell {n} has {length} lines" for n, length in lengths.items() if length > 25]
    median = statistics.median(lengths.values()) if lengths else 0
    return faults if median <= 8 else [*faults, f"the median cell has {median:g} lines"]


def at_least_three_exercises_with_solutions(notebook: NotebookNode) -> list[str]:
    """Numbered in order, each followed by its folded solution; three solutions are executed."""
    events = [event for cell in notebook.cells for event in _exercise_events(cell)]
    exercises = [label for kind, label in events if kind == "exercise"]
    (chapter,) = {label.split(".")[0] for label in exercises} or {"?"}
    expected = [f"{chapter}.{place}" for place in range(1, len(exercises) + 1)]
    executed = [cell for _, cell in cells(notebook, "code") if _exercise_events(cell)]
    faults = [] if len(executed) >= 3 else [f"{len(executed)} executed solutions, fewer than three"]
    if exercises != expected:
        faults.append(f"the exercises are numbered {', '.join(exercises)}")
    for place, (kind, label) in enumerate(events):
        following = events[place + 1 : place + 2]
        if kind == "exercise" and following not in ([("solution", label)], [("solution", "")]):
            faults.append(f"no folded solution follows exercise {label}")
    return faults


def every_exercise_waits_for_an_answer_and_checks_it(notebook: NotebookNode) -> list[str]:
    """Between question and solution a stub, stored unanswered; the solution passes its check."""
    faults = []
    for label, stubs, solutions in _exercise_cells(notebook):
        number = label.partition(".")[2]
        own = [name for cell in stubs if (name := _checked_name(cell, number))]
        if len(own) != 1:
            faults.append(f"exercise {label} has {len(own)} cells that wait for an answer, not one")
            continue
        (stub,) = (cell for cell in stubs if _checked_name(cell, number))
        if _printed(stub) != NOT_ANSWERED + "\n":
            faults.append(f"the stub of exercise {label} stores {_printed(stub)!r}")
        checks = [cell for cell in solutions if f'exercises.check("{own[0]}", ' in cell.source]
        if len(checks) != 1 or "Right. " not in _printed(checks[0]):
            faults.append(f"the solution of exercise {label} does not pass its check")
        if any("Not yet." in _printed(cell) for cell in checks):
            faults.append(f"the solution of exercise {label} fails a check")
    return faults


_STUB = re.compile(
    r'^answer = None\b[^\n]*\nexercises\.check\("([a-z-]+-(\d+))", answer\)\Z', re.MULTILINE
)


def _checked_name(cell: NotebookNode, number: str) -> str | None:
    """Return the name under which a stub checks the exercise of this number, if it does."""
    found = _STUB.search(cell.source)
    return found[1] if found and found[2] == number and "#" in cell.source else None


def _printed(cell: NotebookNode) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def _exercise_cells(
    notebook: NotebookNode,
) -> Iterator[tuple[str, list[NotebookNode], list[NotebookNode]]]:
    """Yield each exercise with the code cells before its solution, and those of the solution."""
    label, before, solution = "", [], []
    for cell in notebook.cells:
        events = _exercise_events(cell)
        for kind, its_label in events:
            if kind == "exercise":
                if label:
                    yield label, before, solution
                label, before, solution = its_label, [], []
        if cell.cell_type == "code" and label:
            (solution if ("solution", label) in events else before).append(cell)
    if label:
        yield label, before, solution


_EXERCISE = re.compile(r"^> \*\*Exercise (?P<exercise>\d+\.\d+)\*?\*?", re.MULTILINE)
_FOLDED = re.compile(
    r"<summary>(?:<b>)?(?:Solution|Answer)\b[^<\d]*(?P<solution>\d+\.\d+)?[^<]*(?:</b>)?</summary>"
)


def _exercise_events(cell: NotebookNode) -> list[tuple[str, str]]:
    """Return the exercises and solutions that begin in a cell, in order."""
    if cell.cell_type == "code":
        title = re.match(r"# @title Solution (\d+\.\d+)\n", cell.source)
        return [("solution", title[1])] if title and "hide-input" in tags(cell) else []
    exercises = [(m.start(), "exercise", m["exercise"]) for m in _EXERCISE.finditer(cell.source)]
    solutions = [
        (m.start(), "solution", m["solution"] or "") for m in _FOLDED.finditer(cell.source)
    ]
    return [(kind, label) for _, kind, label in sorted(exercises + solutions)]


# --- what depends on what -----------------------------------------------------------------------


def torch_cells_are_tagged(notebook: NotebookNode) -> list[str]:
    """A cell that imports or names torch bears the tag "torch"."""
    return [
        f'cell {number} uses torch without the tag "torch"'
        for number, cell in cells(notebook, "code")
        if "torch" not in tags(cell) and _uses_torch(ast.parse(plain_python(cell.source)))
    ]


def _uses_torch(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "torch":
            return True
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        if any(re.match(r"(torch|attnlib\.nn)(\.|$)", module) for module in modules):
            return True
    return False


def no_cell_depends_on_a_torch_cell(notebook: NotebookNode) -> list[str]:
    """Whoever has no torch can leave its cells out: nothing else needs a name made there."""
    faults, from_torch = [], {}
    for number, cell in cells(notebook, "code"):
        for statement in ast.parse(plain_python(cell.source)).body:
            read, bound = _names(statement)
            if "torch" in tags(cell):
                from_torch |= dict.fromkeys(bound, number)
                continue
            faults += [
                f"cell {number} needs {name!r} from torch cell {from_torch[name]}"
                for name in sorted(read & from_torch.keys())
            ]
            for name in bound:
                from_torch.pop(name, None)
    return faults


def _names(statement: ast.stmt) -> tuple[set[str], set[str]]:
    """Return the names of the notebook that a statement reads, and those that it binds."""
    table = symtable.symtable(ast.unparse(statement), "cell", "exec")
    symbols = table.get_symbols()
    bound = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    read = {s.get_name() for s in symbols if s.is_referenced()} | _globals_read_inside(table)
    augmented = [node.target for node in ast.walk(statement) if isinstance(node, ast.AugAssign)]
    return read | {target.id for target in augmented if isinstance(target, ast.Name)}, bound


def _globals_read_inside(table: symtable.SymbolTable) -> set[str]:
    names = set()
    for scope in table.get_children():
        names |= {s.get_name() for s in scope.get_symbols() if s.is_global() and s.is_referenced()}
        names |= _globals_read_inside(scope)
    return names


# --- Markdown that reads well in the book, on Colab and on GitHub -------------------------------

_NOT_PORTABLE = {
    "a directive": re.compile(r"^ *(?:```+|~~~+) *\{", re.MULTILINE),
    "a colon fence": re.compile(r"^ *:::", re.MULTILINE),
    "a role": re.compile(r"\{[a-z][\w:-]*\}`"),
    "a label line": re.compile(r"^\([\w:-]+\)= *$", re.MULTILINE),
    "a footnote": re.compile(r"\[\^[^\]]+\]"),
    "an equation label": re.compile(r"\\(?:label|ref|eqref)\{|^ *\$\$ *\([\w:-]+\)", re.MULTILINE),
    "a dollar sign in prose": re.compile(r"\\\$"),
    "an image file": re.compile(r"!\[[^\]]*\]\((?!https?://)"),
    "a task list": re.compile(r"^ *[-*] \[[ xX]\]", re.MULTILINE),
    "a front matter": re.compile(r"\A---\n"),
    "HTML": re.compile(r"</?(?!(?:details|summary|b|br|sub|sup)\b)[A-Za-z][\w-]*(?:\s[^<>]*)?/?>"),
    "a fold without blank lines": re.compile(r"</summary>(?! *\n *\n)|[^\n]\n *</details>"),
}
_CODE = re.compile(
    r"^(?P<fence>```+|~~~+)(?![^\n]*\{).*?^(?P=fence) *$"
    r"|(?<![`}])(?P<ticks>`{1,2})(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
_AUTOLINK = re.compile(r"<https?://[^<>\s]+>")
_MATH = re.compile(r"\$\$.+?\$\$|\$[^$\n]+\$", re.DOTALL)


def markdown_is_portable(notebook: NotebookNode) -> list[str]:
    """Only what Jupyter Book, Colab and GitHub all render: guides say what to write instead."""
    return [
        f"cell {number} has {construct}: {found[0].strip()!r}"
        for number, cell in cells(notebook, "markdown")
        for construct, pattern in _NOT_PORTABLE.items()
        if (found := pattern.search(_prose(cell.source, keep_math=construct != "HTML")))
    ]


def _prose(source: str, *, keep_math: bool) -> str:
    """Leave out code that is shown as such; a directive or a role is not."""
    without_code = _CODE.sub(" code ", source)
    prose = _AUTOLINK.sub("", without_code)
    return prose if keep_math else _MATH.sub("", prose)


def only_the_projects_address_is_installed_from(notebook: NotebookNode) -> list[str]:
    """pyproject.toml says where the project lives; no notebook knows another place."""
    name = ADDRESS.rsplit("/", 1)[-1]
    addresses = rf"git\+(https?://[^\s\"'@]+)|(https?://[^\s\"'()<>]*\b{name}\b)"
    return [
        f"cell {number} names {found}"
        for number, cell in enumerate(notebook.cells, start=1)
        for found in map("".join, re.findall(addresses, cell.source))
        if found != ADDRESS and not found.startswith("https://colab.research.google.com/github/")
    ]


RULES: list[Rule] = [
    stored_as_make_notebooks_does,
    run_from_top_to_bottom,
    errors_are_announced,
    outputs_name_no_machine_and_no_time,
    ignored_outputs_have_a_reason,
    figures_have_alternative_text,
    begins_with_title_installation_and_setup,
    each_code_cell_answers_a_question,
    code_cells_are_short,
    at_least_three_exercises_with_solutions,
    every_exercise_waits_for_an_answer_and_checks_it,
    torch_cells_are_tagged,
    no_cell_depends_on_a_torch_cell,
    markdown_is_portable,
    only_the_projects_address_is_installed_from,
]
