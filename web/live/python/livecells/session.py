"""One session: the shell that it uses, running cells, and completing names."""

from __future__ import annotations

import ast
import json
import linecache
import re
import sys
from typing import Any

from livecells.figures import draw_for_the_page, show_figures
from livecells.messages import Outbox, Stream
from livecells.shell import Shell, without_commands

COROUTINE = 0x80  # inspect.CO_COROUTINE, without the time that importing inspect takes
WORD = re.compile(r"[\w.]*$")
MOST_COMPLETIONS = 200

outbox: Outbox
shell: Shell


def start(path: str) -> None:
    """Begin the session that writes its messages to a file.

    What is imported here and above is waited for on every visit; the rest is imported when needed.
    """
    global outbox, shell
    outbox = Outbox(path)
    shell = Shell(outbox)
    sys.modules["__main__"] = shell.user_module
    sys.stdout, sys.stderr = Stream(outbox, "stdout"), Stream(outbox, "stderr")
    draw_for_the_page()
    load_the_library_by_need()


def load_the_library_by_need() -> None:
    """Import each module of attnlib when something of it is first used, where Python can do so."""
    if hasattr(sys, "set_lazy_imports_filter"):  # since Python 3.15
        sys.set_lazy_imports_filter(lambda importer, name, names: importer == "attnlib")
        sys.set_lazy_imports("all")


def decoded(arguments: str) -> list[Any]:
    """Return the arguments of a call from the worker."""
    return json.loads(arguments)


def run(run: Any, code: str, cell: str) -> None:
    """Run a cell; send its outputs, and at last whether it came to its end."""
    outbox.begin(run)
    try:
        execute(code, cell)
        show_figures(shell.display)
        ok = True
    except BaseException as error:  # KeyboardInterrupt and SystemExit end a cell, not the session
        from livecells.tracebacks import traceback_of

        show_figures(shell.display)
        shell.flush()
        outbox.output("error", **traceback_of(error, cell))
        ok = False
    shell.flush()
    outbox.send("finished", run=run, ok=ok)


def execute(code: str, cell: str) -> None:
    """Run the statements of a cell; show the value of a last expression."""
    linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
    tree = ast.parse(without_commands(code), cell)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not ends_silently(code):
        last = ast.Expression(tree.body.pop().value)
    evaluate(compile(tree, cell, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    if last is None:
        return
    value = evaluate(compile(last, cell, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
    if value is not None:
        shell.user_ns["_"] = value
        shell.show("execute_result", value)


def evaluate(code: Any) -> Any:
    """Run compiled code in the namespace of the cells; a coroutine is run to its end."""
    value = eval(code, shell.user_ns)
    if not code.co_flags & COROUTINE:
        return value
    try:
        while True:
            value.send(None)
    except StopIteration as end:
        return end.value


def ends_silently(code: str) -> bool:
    """Tell whether the last line of code ends in a semicolon: its value is not shown."""
    lines = [line for line in code.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    return bool(lines) and lines[-1].rstrip().endswith(";")


def complete(request: Any, code: str, cursor: int) -> None:
    """Send the names that could stand where the cursor is."""
    word = WORD.search(code[:cursor])[0]
    outbox.send("completions", request=request, start=cursor - len(word), items=completions(word))


def completions(word: str) -> list[str]:
    """Return the names that begin with a word, of the namespace or of an object in it."""
    import rlcompleter

    if not word:
        return []
    completer = rlcompleter.Completer(shell.user_ns)
    found = (completer.complete(word, index) for index in range(MOST_COMPLETIONS))
    names = [name.strip().rstrip("():") for name in iter(lambda: next(found, None), None)]
    return list(dict.fromkeys(names))
