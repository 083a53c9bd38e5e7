"""Memory that runs out: the writer tries again in smaller steps, and an instance that gave up is
opened anew. Nothing is lost by either.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from accelerator import failpoints
from emulator import Emulator
from metrics import catalog
from tests.faults.served import create_table, served, wait_until
from tests.faults.served import put as put_items


@pytest.mark.parametrize(
    "refusal",
    [
        duckdb.OutOfMemoryException("could not allocate block of size 256 KiB"),
        duckdb.FatalException("database has been invalidated because of a previous fatal error"),
    ],
    ids=["out of memory", "invalidated"],
)
def test_a_commit_that_memory_refused_is_made_later(tmp_path: Path, refusal: Exception) -> None:
    """Three times in a row, while changes come: told as reason, mended by itself, all applied."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        put_items(aws, "a", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready()
            left = [refusal] * 3
            told: set[str] = set()

            def refuse() -> None:
                if left:
                    raise left.pop()

            with failpoints.on("before_commit", refuse):
                put_items(aws, "a", "b", "c", v=2)

                def is_applied() -> bool:
                    told.update(running.codes())
                    return running.rows() == {"a": 2, "b": 2, "c": 2}

                wait_until(is_applied, "all is applied")
            running.wait_ready()
            assert left == []
            reopened = running.service.recorder.value(catalog.DATABASE_REOPENED)
            assert reopened == running.service.database.reopened
            assert "commit_failing" in told
            assert running.query("SELECT count(*) FROM dynaduck.gaps") == [(0,)]
