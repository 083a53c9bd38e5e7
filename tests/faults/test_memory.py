"""Memory that runs out: the writer tries again in smaller steps, and an instance that gave up is
opened anew. Nothing is lost by either.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from accelerator import failpoints
from accelerator.errors import OutOfMemory
from accelerator.query import Query, QueryRunner
from accelerator.query_errors import QueryOutOfMemory
from accelerator.query_slots import QueryLimits
from connector.surface.memory_watch import MemoryWatch
from emulator import Emulator
from metrics import catalog
from tests.dataset_builder import begun, changes, open_database, put
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
    """Three times in a row and until it is told as reason: mended by itself, all applied."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        put_items(aws, "a", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready()
            refused = 0
            told: set[str] = set()

            def refuse() -> None:
                nonlocal refused
                if refused < 3 or "commit_failing" not in told:
                    refused += 1
                    raise refusal

            with failpoints.on("before_commit", refuse):
                put_items(aws, "a", "b", "c", v=2)

                def is_applied() -> bool:
                    told.update(running.codes())
                    return running.rows() == {"a": 2, "b": 2, "c": 2}

                wait_until(is_applied, "all is applied")
            running.wait_ready()
            assert refused >= 3
            reopened = running.service.recorder.value(catalog.DATABASE_REOPENED)
            assert reopened == running.service.database.reopened
            assert "commit_failing" in told
            assert running.query("SELECT count(*) FROM dynaduck.gaps") == [(0,)]


def hoard(queries: QueryRunner, numbers: int) -> Query:
    """A query that holds a list of so many numbers while its reader takes its time."""
    query = queries.open(
        f"SELECT l[1], x FROM (SELECT list(i) AS l FROM range({numbers}) t(i)), range(1000000) u(x)"
    )
    query.start()
    assert query.next_batch() is not None
    return query


def test_hoarding_queries_do_not_starve_the_writer(tmp_path: Path) -> None:
    """They ask for no more, and what they leave is too little for a group: they have to go."""
    database = open_database(tmp_path, memory_limit_bytes=100 * 2**20)
    dataset = begun(database)
    queries = QueryRunner(database, QueryLimits())
    pad = {"S": os.urandom(3000).hex()}
    group = [
        changes([put(n, f"k{n}", pad=pad) for n in range(first, first + 150)])
        for first in range(1, 601, 150)
    ]
    hoards: list[Query] = []
    try:
        for numbers in (1_300_000, 1_000_000, 500_000, 250_000):
            with suppress(QueryOutOfMemory):
                hoards.append(hoard(queries, numbers))
        with pytest.raises(OutOfMemory):
            dataset.apply(group)
        watch = MemoryWatch(database, queries, lambda: True)
        assert [watch.step(10.0 * n) for n in range(len(hoards))] == [True] * len(hoards)
        for query in hoards:
            with pytest.raises(QueryOutOfMemory):
                query.next_batch()
        dataset.apply(group)
        assert dataset.row_count() == 600
    finally:
        queries.close()
        database.close()
