"""The table of requirements counts what passed, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.requirements import REQUIREMENTS, Ledger


def item(nodeid: str, *names: str) -> pytest.Item:
    marks = [SimpleNamespace(args=(name,)) for name in names]
    return cast("pytest.Item", SimpleNamespace(nodeid=nodeid, iter_markers=lambda _: marks))


def report(nodeid: str, *, passed: bool, when: str = "call") -> pytest.TestReport:
    return cast("pytest.TestReport", SimpleNamespace(nodeid=nodeid, passed=passed, when=when))


def test_a_requirement_is_met_when_all_its_tests_passed() -> None:
    """One failed test, a skip, a failed setup or no test at all: not met."""
    ledger = Ledger()
    ledger.pytest_collection_modifyitems(
        [item("a", "R1", "R2"), item("b", "R2"), item("c", "R3"), item("d", "R99")]
    )
    for when in ("setup", "call", "teardown"):
        ledger.pytest_runtest_logreport(report("a", passed=True, when=when))
    ledger.pytest_runtest_logreport(report("b", passed=False))
    ledger.pytest_runtest_logreport(report("c", passed=False, when="setup"))
    assert ledger.met() == ["R1"]
    assert ledger.passed["R1"] == 1
    assert ledger.unknown == ["R99 (d)"]
    assert len(REQUIREMENTS) == 35
