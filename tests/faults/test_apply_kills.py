"""SIGKILL inside and around the transaction: rows, columns and positions agree afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dataset_builder import open_database, query, sequence

GROUPS = 6
ROOT = Path(__file__).parents[2]


def run(directory: Path, failpoint: str) -> int:
    command = [sys.executable, "-m", "tests.faults.apply_workload", str(directory), str(GROUPS)]
    environment = {**os.environ, "DYNADUCK_FAILPOINT": failpoint}
    return subprocess.run(command, cwd=ROOT, env=environment, timeout=60).returncode


def assert_consistent(directory: Path, groups: int) -> None:
    """Exactly this many groups are in the rows, the columns and the position."""
    database = open_database(directory)
    position = query(database, "SELECT sequence_number, records FROM dynaduck.checkpoints")
    assert position == [(sequence(groups * 5) if groups else None, groups * 5)]
    if groups:
        rows = query(database, "SELECT pk, v FROM orders ORDER BY pk")
        assert rows == [(f"k{n}", groups - 1) for n in range(5)]
    columns = query(database, "SELECT count(*) FROM dynaduck.columns WHERE attribute[1] = 'g'")
    assert columns == [(groups,)]
    shown = query(database, "SELECT count(*) FROM duckdb_columns() WHERE table_name = 'orders'")
    assert shown == [(1 + (1 if groups else 0) + groups,)]
    database.close()


@pytest.mark.parametrize(
    ("failpoint", "hit", "committed"),
    [
        ("after_plan", 1, 0),
        ("before_commit", 1, 0),
        ("before_commit", 4, 3),
        ("after_commit", 1, 1),
        ("after_commit", 3, 3),
    ],
)
def test_killed_at_a_failpoint_nothing_is_half_done(
    tmp_path: Path, failpoint: str, hit: int, committed: int
) -> None:
    """The group in flight is wholly there or wholly not; the next run ends it exactly once."""
    assert run(tmp_path, f"{failpoint}:kill:{hit}") == -signal.SIGKILL
    assert_consistent(tmp_path, committed)
    assert run(tmp_path, "") == 0
    assert_consistent(tmp_path, GROUPS)
