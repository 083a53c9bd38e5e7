"""Runs the tests of the checkpoint store's requirements and counts them: `make requirements`.

Owns the count of R1 to R35 over tests marked with `requirement`. A requirement counts when it has
tests and all of them passed. Must not know what any of them asks for.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

REQUIREMENTS = tuple(f"R{number}" for number in range(1, 36))


class Ledger:
    """A pytest plugin that books results under the requirements of their tests."""

    def __init__(self) -> None:
        self._named: dict[str, list[str]] = {}
        self.passed: dict[str, int] = defaultdict(int)
        self.failed: dict[str, list[str]] = defaultdict(list)
        self.unknown: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            names = [str(mark.args[0]) for mark in item.iter_markers("requirement")]
            self._named[item.nodeid] = names
            self.unknown += [
                f"{name} ({item.nodeid})" for name in names if name not in REQUIREMENTS
            ]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name in self._named.get(report.nodeid, ()):
            if not report.passed:
                self.failed[name].append(report.nodeid)
            elif report.when == "call":
                self.passed[name] += 1

    def met(self) -> list[str]:
        """The requirements whose tests all passed."""
        return [name for name in REQUIREMENTS if self.passed[name] and not self.failed[name]]


def main(arguments: list[str]) -> int:
    """Exit status 0 only when every requirement is met."""
    ledger = Ledger()
    status = pytest.main(
        ["-q", "--no-header", "-m", "requirement and not soak", *arguments], plugins=[ledger]
    )
    met = ledger.met()
    for name in REQUIREMENTS:
        said = f"{ledger.passed[name]} tests" if ledger.passed[name] else "no test"
        print(f"{name:4} {said}{'' if not ledger.failed[name] else ', FAILED'}")
    for unknown in ledger.unknown:
        print(f"no such requirement: {unknown}")
    print(f"{len(met)} of {len(REQUIREMENTS)}")
    return int(status) if status else int(len(met) < len(REQUIREMENTS) or bool(ledger.unknown))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
