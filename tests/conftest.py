"""What holds for every test: which also run on the older DuckDB, and the table of situations."""

from __future__ import annotations

import inspect
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

# Rooms of the accelerator that only know Arrow and values.
WITHOUT_DUCKDB = {"batch", "errors", "segment"}
SITUATIONS = Path(__file__).parents[1] / "docs" / "situations.md"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options that the make targets use, and those that replay a simulation."""
    parser.addoption("--none-is-fine", action="store_true", help="no matching test is no failure")
    parser.addoption("--situations", action="store_true", help="list situations without a test")
    parser.addoption("--seed", type=int, default=None, help="the one seed to simulate")
    parser.addoption("--on-duckdb", action="store_true", help="simulate it on a real file")


def pytest_report_header() -> str:
    """Says which DuckDB the run is about, since two are tested."""
    return f"duckdb {duckdb.__version__}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that touch DuckDB, and lets a test's situations travel with its report."""
    for item in items:
        module = getattr(item, "module", None)
        if isinstance(module, ModuleType) and _switches_duckdb(module):
            item.add_marker("uses_duckdb")
        numbers = [number for mark in item.iter_markers("situation") for number in mark.args]
        item.user_properties += [("situation", number) for number in numbers]
    items.sort(key=_expected_s, reverse=True)


def _expected_s(item: pytest.Item) -> float:
    """How long a test takes, as it says itself or as its room's do; the long ones begin first.

    Otherwise the last minutes of a run belong to one process, which has them all.
    """
    if (mark := item.get_closest_marker("slow")) is not None:
        return float(mark.args[0])
    room = item.path.parent.name
    return 5 if room == "e2e" else 2 if room in {"faults", "simulation"} else 0


def _switches_duckdb(module: ModuleType) -> bool:
    """Whether another DuckDB makes a difference; in a process of its own it would be the same."""
    is_apart = module.__name__.split(".")[1:2] in (["e2e"], ["faults"], ["docs"])
    return not is_apart and _leads_to_duckdb(module.__name__)


@cache
def _leads_to_duckdb(module: str) -> bool:
    """Whether a name in the module, or in a builder of ours that it uses, comes from DuckDB."""
    for value in vars(sys.modules[module]).values():
        home = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        room, _, noun = str(home).partition(".")
        if room in {"duckdb", "_duckdb"} or (room == "accelerator" and noun not in WITHOUT_DUCKDB):
            return True
        if home == "checkpoints.store":
            return True
        is_builder = room == "tests" and home != module and home in sys.modules
        if is_builder and _leads_to_duckdb(str(home)):
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
    """Prints which situations have passing tests, and the numbers that no test names."""
    if not config.getoption("--situations"):
        return
    tests: dict[int, int] = defaultdict(int)
    for report in terminalreporter.stats.get("passed", []):
        for name, number in report.user_properties:
            if name == "situation":
                tests[number] += 1
    page = SITUATIONS.read_text(encoding="utf-8")
    listed = {int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    terminalreporter.section("situations")
    for number in sorted(listed & set(tests)):
        terminalreporter.write_line(f"{number:3}  {tests[number]} passed")
    without = ", ".join(str(number) for number in sorted(listed - set(tests)))
    terminalreporter.write_line(f"{len(listed & set(tests))} of {len(listed)} have a test")
    terminalreporter.write_line(f"without: {without or 'none'}")
