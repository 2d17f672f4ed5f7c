"""The commands that README and workflows name exist and do what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
import yaml

from tests.project.repository import ROOT, texts

MAKEFILE = texts()["Makefile"]
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
WORKFLOWS = {
    path: yaml.safe_load(text)
    for path, text in texts().items()
    if path.startswith(".github/workflows/")
}
# YAML reads the key `on` as the truth value.
EVENTS = {path: workflow[True] for path, workflow in WORKFLOWS.items()}


def make(*arguments, **settings):
    """Run make, away from the make that may run these tests."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env={**environment, **settings},
        capture_output=True,
        text=True,
    )


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_make_alone_lists_every_command():
    listed = set(re.findall(r"^make (\w+)", make().stdout, re.MULTILINE))
    assert listed == TARGETS


@pytest.mark.parametrize("path", ["README.md", "chapters/index.md", ".ci/run", *WORKFLOWS])
def test_every_command_that_is_named_exists(path):
    named = set(re.findall(r"\bmake ([a-z]+)\b", texts()[path]))
    named -= {"sure", "it", "them", "a", "the"}
    assert named
    assert named <= TARGETS


def test_continuous_integration_runs_the_test_command_and_nothing_else():
    commands = [
        line
        for line in texts()[".ci/run"].splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["exec make test"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("path", WORKFLOWS)
def test_a_workflow_only_checks_out_sets_up_and_calls_make(path):
    for step in steps(WORKFLOWS[path]):
        if "run" in step:
            assert re.fullmatch(
                r"make [a-z]+( ENVIRONMENT=[a-z]+)?|\$\{\{ matrix.command \}\}", step["run"]
            )
        else:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])


@pytest.mark.parametrize("path", WORKFLOWS)
def test_a_workflow_is_short_and_may_not_write_to_the_repository(path):
    assert len(texts()[path].splitlines()) <= 35
    assert WORKFLOWS[path]["permissions"]["contents"] == "read"


def test_tests_run_on_push_under_three_environments():
    workflow = WORKFLOWS[".github/workflows/test.yml"]
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert "push" in EVENTS[".github/workflows/test.yml"]
    assert {entry["environment"] for entry in matrix} == {"minimum", "pinned", "latest"}
    for entry in matrix:
        assert entry["command"] in {
            "make test",
            f"make library ENVIRONMENT={entry['environment']}",
        }


def test_the_book_is_published_from_main_after_the_tests():
    path = ".github/workflows/publish.yml"
    kinds = [step.get("run") or step["uses"].partition("@")[0] for step in steps(WORKFLOWS[path])]
    assert EVENTS[path]["push"]["branches"] == ["main"]
    assert kinds.index("make test") < kinds.index("actions/deploy-pages")


def test_the_newest_releases_are_tried_every_week():
    path = ".github/workflows/weekly.yml"
    assert len(EVENTS[path]["schedule"][0]["cron"].split()) == 5
    assert EVENTS[path]["schedule"][0]["cron"].split()[2:4] == ["*", "*"]
    assert "latest" in steps(WORKFLOWS[path])[-1]["run"]


def test_an_old_python_is_refused_with_the_way_out(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = make("book", f"PYTHON={old}", f"VENV={tmp_path}/venv")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr
    assert not (tmp_path / "venv").exists()


def pytest_command(target):
    """Return the line with which a target calls pytest, up to the paths, and the paths."""
    said = make("--dry-run", target).stdout.replace("\\\n", " ")
    (line,) = [line for line in said.splitlines() if " -m pytest " in line]
    options, paths = re.fullmatch(r"(.*?) ((?:[a-z/]+ ?)+)", line).groups()
    return options, paths.split()


def test_the_test_command_runs_every_test_and_every_notebook():
    options, paths = pytest_command("test")
    assert paths == ["tests", "chapters"]
    assert "--nbval --nbval-current-env" in options
    assert not {"-m", "-k", "-x", "--maxfail", "--ignore", "--deselect"} & {
        *shlex.split(options.partition("pytest")[2])
    }


def test_the_quick_command_leaves_out_what_is_marked_slow_and_nothing_else():
    options, paths = pytest_command("quick")
    assert paths == ["tests"]
    words = shlex.split(options.partition("pytest")[2])
    assert words[words.index("-m") + 1] == "not slow"
    assert not {"-k", "--ignore", "--deselect"} & {*words}


@pytest.mark.parametrize("target", ["test", "quick"])
def test_style_is_checked_before_the_tests_run(target):
    said = make("--dry-run", target).stdout
    assert 0 < said.index("ruff check .") < said.index("ruff format --check .")
    assert said.index("ruff format --check .") < said.index("-m pytest")


@pytest.mark.slow  # starts processes
@pytest.mark.parametrize("fault", ["assert not 1", "import os; os._exit(0)"])
def test_one_failure_or_dead_process_fails_the_test_command(tmp_path, fault):
    for name, body in {"sound": "assert 1", "other": "assert 1", "faulty": fault}.items():
        tmp_path.joinpath(f"test_{name}.py").write_text(f"def test_{name}():\n    {body}\n")
    options, _ = pytest_command("test")
    command = f"{options} -p no:cacheprovider --rootdir {tmp_path} -c pyproject.toml {tmp_path}"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert "test_faulty.py::test_faulty" in done.stdout.partition("short test summary")[2]
    assert done.returncode == 1


def test_the_published_site_offers_the_book_for_paper_and_e_readers():
    path = ".github/workflows/publish.yml"
    kinds = [step.get("run") or step["uses"].partition("@")[0] for step in steps(WORKFLOWS[path])]
    for command in ("make pdf", "make epub"):
        assert (
            kinds.index("make test")
            < kinds.index(command)
            < kinds.index("actions/upload-pages-artifact")
        )
