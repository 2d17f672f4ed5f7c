"""Settings for every test: reproducible examples, and a line that says what this machine lacks."""

from __future__ import annotations

import hypothesis
import pytest

from tests.kinds import KINDS, absent_kinds

# The same examples on every run and every machine; pytest --hypothesis-profile=explore draws new.
# How long an example takes says nothing here, as the machine may be busy.
hypothesis.settings.register_profile(
    "reproducible",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile("reproducible")


def pytest_report_header() -> list[str]:
    return [
        "array kinds: " + ", ".join(map(str, KINDS)),
        "absent: " + (", ".join(absent_kinds()) or "nothing"),
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the files, let those with slow tests start first."""
    if hasattr(config, "workerinput"):
        long = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in long)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have said with record_property("note", …), in whatever process they ran."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    said = [pair for report in reports for pair in getattr(report, "user_properties", [])]
    if notes := dict.fromkeys(text for name, text in said if name == "note"):
        terminalreporter.section("what was there")
        for note in notes:
            terminalreporter.line(note)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `kind` once for each kind of array that is present."""
    if "kind" in metafunc.fixturenames and not _parametrized(metafunc, "kind"):
        metafunc.parametrize("kind", KINDS, ids=str)


def _parametrized(metafunc: pytest.Metafunc, name: str) -> bool:
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return any(name in ([names] if isinstance(names, str) else names) for names in given)
