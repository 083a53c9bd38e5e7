"""What holds for every test: which also run on the older DuckDB, and the table of situations."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

SITUATIONS = Path(__file__).parents[1] / "docs" / "situations.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the two options that the make targets use."""
    parser.addoption("--none-is-fine", action="store_true", help="no matching test is no failure")
    parser.addoption("--situations", action="store_true", help="list situations without a test")


def pytest_report_header() -> str:
    """Says which DuckDB the run is about, since two are tested."""
    return f"duckdb {duckdb.__version__}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of modules that use the accelerator or the checkpoints."""
    for item in items:
        module = getattr(item, "module", None)
        if isinstance(module, ModuleType) and _uses_duckdb(module):
            item.add_marker("uses_duckdb")


def _uses_duckdb(module: ModuleType) -> bool:
    for value in vars(module).values():
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        if isinstance(home, str) and home.split(".")[0] in {"accelerator", "checkpoints"}:
            return True
    return False


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Lets a selection that matches nothing pass where the make target says so."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption(
        "--none-is-fine"
    ):
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints the situations that no test of this run names."""
    if not config.getoption("--situations") or not SITUATIONS.exists():
        return
    tested: dict[int, int] = defaultdict(int)
    for report in terminalreporter.stats.get("passed", []):
        for number in re.findall(r"situation\((\d+)\)", " ".join(report.keywords)):
            tested[int(number)] += 1
    listed = {int(n) for n in re.findall(r"^(\d+)\. ", SITUATIONS.read_text(), re.MULTILINE)}
    terminalreporter.section("situations")
    terminalreporter.write_line(f"{len(listed & set(tested))} of {len(listed)} have a test")
    for number in sorted(listed - set(tested)):
        terminalreporter.write_line(f"no test: {number}")
