"""Queries under limits: slots, deadlines, cancellation, one snapshot, exact values."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from accelerator.database import Database
from accelerator.errors import DatabaseInvalidated, translate
from accelerator.freshness import Demand, Freshness
from accelerator.gate import Verdict
from accelerator.query import Query, QueryLimits, QueryRunner
from accelerator.query_errors import (
    DataUnavailable,
    NotFreshEnough,
    QueryCancelled,
    QueryError,
    QueryFailed,
    QueryOutOfMemory,
    QueryRejected,
    QueryTimeout,
    ResultTooLarge,
    TooManyQueries,
)
from accelerator.query_slots import Slots, Stop
from tests.hostile import BOUNDED, label
from tests.query_builder import AS_OF_MS, ROWS, data_file, fingerprint, rows_of, runner

ENDLESS = "SELECT range FROM range(100000000000)"
BUSY = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("runner")) as opened:
        yield opened


def in_background(call: Any) -> tuple[threading.Thread, list[Any]]:
    """A thread that runs the call, and the list that will hold its result or its error."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(call())
        except QueryError as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, outcome


def test_rows_come_in_batches(database: Database) -> None:
    """A result is read piece by piece, with its Arrow schema and its DuckDB types."""
    with runner(database, batch_rows=300) as (queries, reports):
        with queries.open("SELECT id, total FROM orders ORDER BY id", surface="http") as query:
            query.start()
            assert query.schema.names == ["id", "total"]
            assert [str(kind) for kind in query.column_types] == ["BIGINT", "DECIMAL(38,2)"]
            sizes = [batch.num_rows for batch in query.batches()]
        assert sum(sizes) == ROWS
        assert len(sizes) > 1
    [report] = reports
    assert (report.surface, report.outcome, report.rows) == ("http", "ok", ROWS)
    assert report.error is None


def test_an_endless_result_gives_its_first_rows_at_once(database: Database) -> None:
    """Nothing waits for the end of a result: it is streamed, whatever the DuckDB version."""
    for sql, parameters in ((ENDLESS, None), (f"{ENDLESS} WHERE range >= $1", [0])):
        with runner(database) as (queries, _), queries.open(sql, parameters) as query:
            query.start()
            batch = query.next_batch()
            assert batch is not None
            assert batch.column(0)[0].as_py() == 0


def test_a_small_result_is_whole_before_its_rows_are_given(database: Database) -> None:
    """What fits in one batch is read to its end: nothing can break it off any more."""
    with runner(database, max_concurrent=1) as (queries, reports):
        query = queries.open("SELECT count(*) FROM orders")
        query.start()
        batch = query.next_batch()
        assert queries.running == 0
        assert not queries.shed()
        query.cancel()
        assert batch is not None
        assert batch.to_pylist() == [{"count_star()": ROWS}]
        assert query.next_batch() is None
    assert [(report.outcome, report.rows) for report in reports] == [("ok", 1)]


def test_closing_early_frees_the_slot(database: Database) -> None:
    """Who has seen enough closes; nothing goes on running."""
    with runner(database) as (queries, reports):
        with queries.open(ENDLESS) as query:
            query.start()
            query.next_batch()
            assert queries.running == 1
        assert queries.running == 0
        query.close()
    assert len(reports) == 1


@pytest.mark.parametrize("sql", BOUNDED, ids=label)
def test_what_takes_too_long_is_stopped(database: Database, sql: str) -> None:
    """A query without an end is stopped at its deadline, and its slot is free again."""
    before = fingerprint(database)
    with runner(database, timeout_s=0.3, max_concurrent=1) as (queries, reports):
        with pytest.raises((QueryTimeout, QueryOutOfMemory)):
            rows_of(queries, sql)
        assert queries.running == 0
    assert [report.outcome for report in reports] != ["ok"]
    assert fingerprint(database) == before


def test_a_slow_reader_does_not_keep_its_slot(database: Database) -> None:
    """The deadline also ends a query whose reader has stopped reading."""
    with runner(database, timeout_s=0.2, max_concurrent=1) as (queries, reports):
        query = queries.open(ENDLESS)
        query.start()
        query.next_batch()
        # The reader does nothing now; the next query gets the slot all the same.
        assert rows_of(queries, "SELECT 1") == [(1,)]
        assert [report.outcome for report in reports] == ["timeout", "ok"]
        with pytest.raises(QueryTimeout):
            query.next_batch()


def test_cancel_ends_a_query_in_the_middle(database: Database) -> None:
    """Whoever cancels from another thread ends the call that is executing."""
    with runner(database) as (queries, reports):
        query = queries.open(BUSY)

        def read() -> None:
            query.start()
            query.next_batch()

        thread, outcome = in_background(read)
        while queries.running == 0:
            thread.join(0.001)
        query.cancel()
        thread.join()
        assert isinstance(outcome[0], QueryCancelled)
        assert queries.running == 0
    assert [report.outcome for report in reports] == ["cancelled"]


def test_cancel_before_the_start_runs_nothing(database: Database) -> None:
    """A client that left while it waited costs no execution."""
    with runner(database) as (queries, reports):
        query = queries.open("SELECT 1")
        query.cancel()
        with pytest.raises(QueryCancelled):
            query.start()
    assert [report.outcome for report in reports] == ["cancelled"]


def test_no_more_run_than_there_are_slots(database: Database) -> None:
    """With every slot taken a query waits, and runs when one becomes free."""
    with runner(database, max_concurrent=2) as (queries, _):
        holders = [queries.open(ENDLESS) for _ in range(2)]
        for holder in holders:
            holder.start()
        thread, outcome = in_background(lambda: rows_of(queries, "SELECT 7"))
        thread.join(0.1)
        assert thread.is_alive()
        assert queries.running == 2
        holders[0].close()
        thread.join()
        assert outcome == [[(7,)]]
        holders[1].close()


def test_too_many_are_turned_away(database: Database) -> None:
    """Who waits too long, or finds too many waiting, is told to come again."""
    with runner(database, max_concurrent=1, max_wait_s=0.05, max_waiting=1) as (queries, reports):
        holder = queries.open(ENDLESS)
        holder.start()
        with pytest.raises(TooManyQueries, match="taken") as late:
            rows_of(queries, "SELECT 1")
        assert late.value.http_status == 429
        holder.close()
        assert rows_of(queries, "SELECT 1") == [(1,)]
    assert [report.outcome for report in reports] == ["busy", "ok", "ok"]

    with runner(database, max_concurrent=1, max_waiting=0) as (queries, _):
        holder = queries.open(ENDLESS)
        holder.start()
        with pytest.raises(TooManyQueries, match="waiting"):
            rows_of(queries, "SELECT 1")
        holder.close()


def test_a_waiting_client_that_leaves_is_let_go(database: Database) -> None:
    """Cancelling a query that waits for a slot ends its wait, not somebody else's query."""
    with runner(database, max_concurrent=1) as (queries, _):
        holder = queries.open(ENDLESS)
        holder.start()
        query = queries.open("SELECT 1")
        thread, outcome = in_background(query.start)
        query.cancel()
        thread.join()
        assert isinstance(outcome[0], QueryCancelled)
        assert holder.next_batch() is not None
        holder.close()


def test_more_rows_than_allowed_are_an_error(database: Database) -> None:
    """A result beyond max_rows is refused, never cut short in silence."""
    with runner(database, max_rows=ROWS) as (queries, _):
        assert len(rows_of(queries, "FROM orders")) == ROWS
        with pytest.raises(ResultTooLarge, match="1000") as refused:
            rows_of(queries, "FROM orders UNION ALL FROM orders")
        assert "LIMIT" in refused.value.hint


def test_memory_that_runs_short_stops_the_longest(database: Database) -> None:
    """`shed` ends one query, the oldest that is not stopped yet, and says why."""
    with runner(database) as (queries, _):
        first, second = queries.open(ENDLESS), queries.open(ENDLESS)
        first.start()
        second.start()
        assert queries.shed()
        with pytest.raises(QueryOutOfMemory):
            first.next_batch()
        assert second.next_batch() is not None
        second.close()
        assert not queries.shed()


def test_a_query_that_takes_all_memory_ends_alone(tmp_path: Path) -> None:
    """Out of memory is the query's error; the database goes on."""
    with (
        data_file(tmp_path, memory_limit_bytes=120 * 2**20) as small,
        runner(small, timeout_s=30) as (queries, _),
    ):
        with pytest.raises(QueryOutOfMemory) as failed:
            rows_of(queries, "SELECT string_agg(md5(range::VARCHAR), '') FROM range(20000000)")
        assert failed.value.http_status == 507
        assert rows_of(queries, "SELECT count(*) FROM orders") == [(ROWS,)]


def test_rows_and_freshness_are_of_one_snapshot(database: Database) -> None:
    """A query that began before a commit sees neither its rows nor its positions."""
    with runner(database, batch_rows=100) as (queries, _):
        query = queries.open("SELECT id FROM orders, range(50) ORDER BY id")
        query.start()
        with database.transaction() as cursor:
            cursor.execute(
                "UPDATE dynaduck.checkpoints SET covered_until = covered_until + to_days(1)"
            )
            cursor.execute('UPDATE dynaduck."orders__rows" SET id = -1')
        try:
            assert query.freshness.as_of_ms == AS_OF_MS
            assert min(v for b in query.batches() for v in b.column(0).to_pylist()) == 0
            query.close()
            with queries.open("SELECT min(id) FROM orders") as later:
                later.start()
                assert later.freshness.as_of_ms == AS_OF_MS + 86_400_000
        finally:
            query.close()
            with database.transaction() as cursor:
                cursor.execute(
                    "UPDATE dynaduck.checkpoints SET covered_until = covered_until - to_days(1)"
                )
                cursor.execute(
                    "UPDATE dynaduck.\"orders__rows\" SET id = replace(name, 'name ', '')::BIGINT"
                )


def test_freshness_is_of_the_unfinished_shards_of_what_is_served(database: Database) -> None:
    """Finished shards and positions of other generations say nothing about the rows."""
    with runner(database) as (queries, _), queries.open("FROM orders LIMIT 1") as query:
        query.start()
        assert query.freshness == Freshness("Ready", AS_OF_MS)


def test_parameters_keep_their_types(database: Database) -> None:
    """Positional and named parameters arrive as what they are."""
    with runner(database) as (queries, _):
        given = [1, "a", None, True, Decimal("1.10"), date(2026, 1, 2), b"\0\xff", [1, 2]]
        marks = ", ".join(f"${n}" for n in range(1, len(given) + 1))
        assert rows_of(queries, f"SELECT {marks}", given) == [tuple(given)]
        assert rows_of(
            queries, "SELECT id FROM orders WHERE total = $t", {"t": Decimal("2.20")}
        ) == [(2,)]


def test_errors_say_what_is_wrong(database: Database) -> None:
    """DuckDB's own message reaches the user, as an error of ours, in one sentence."""
    with runner(database) as (queries, _):
        for sql, words in {
            "SELECT nothing FROM orders": "nothing",
            "SELECT name + 1 FROM orders": "name",
            "SELECT CAST('x' AS INTEGER)": "Could not convert",
            "SELECT $1": "parameter",
        }.items():
            with pytest.raises(QueryFailed, match=words) as failed:
                rows_of(queries, sql)
            assert failed.value.__cause__ is not None
            assert "\n" not in str(failed.value)


def test_an_error_in_the_middle_of_a_stream_is_an_error(database: Database) -> None:
    """A value that fails after the first rows makes the reading fail: it is no end of the rows."""
    sql = "SELECT CASE WHEN range > 500000 THEN error('late') ELSE 'ok' END FROM range(1000000)"
    with runner(database) as (queries, reports), queries.open(sql) as query:
        query.start()
        # On 1.5 whose error arrives is chance: that of the value, or of a part that it stopped.
        with pytest.raises(QueryFailed, match=r"late|gave the query up"):
            list(query.batches())
    assert [report.outcome for report in reports] == ["failed"]


def test_memory_that_runs_out_in_the_middle_is_told_apart(tmp_path: Path) -> None:
    """Out of memory after the first rows is told, though Arrow hands it on as mere text."""
    long = " || ".join(["lpad(range::VARCHAR, 1000, 'x')"] * 40)
    sql = f"SELECT CASE WHEN range < 200000 THEN 'a' ELSE {long} END FROM range(1000000)"
    with (
        data_file(tmp_path, memory_limit_bytes=60 * 2**20) as small,
        runner(small, timeout_s=60) as (queries, _),
        queries.open(sql) as query,
    ):
        query.start()
        with pytest.raises((QueryOutOfMemory, QueryFailed)) as failed:
            list(query.batches())
        assert "memory" in failed.value.hint.lower()
        assert query.rows > 0


def test_a_closed_runner_refuses(database: Database) -> None:
    """At shutdown running queries are cancelled and new ones turned away."""
    queries = QueryRunner(database, QueryLimits())
    running = queries.open(ENDLESS)
    running.start()
    queries.close()
    queries.close()
    with pytest.raises(QueryCancelled):
        running.next_batch()
    with pytest.raises(DataUnavailable):
        queries.open("SELECT 1").start()


def test_a_closed_file_is_no_fault_of_the_query(tmp_path: Path) -> None:
    """While the file is reopened, clients hear that they may come again."""
    with data_file(tmp_path) as database, runner(database) as (queries, _):
        database.close()
        with pytest.raises(DataUnavailable) as refused:
            rows_of(queries, "SELECT 1")
        assert refused.value.http_status == 503


def test_an_invalidated_database_is_reported_to_its_owner() -> None:
    """A fatal error inside DuckDB reaches whoever can reopen the file."""

    class Broken:
        def cursor(self) -> duckdb.DuckDBPyConnection:
            raise translate(
                duckdb.FatalException("FATAL Error: database has been invalidated because …")
            )

    seen: list[BaseException] = []
    queries = QueryRunner(Broken(), QueryLimits(), on_fatal=seen.append)
    try:
        with pytest.raises(DataUnavailable):
            queries.open("SELECT 1").start()
        assert [type(error) for error in seen] == [DatabaseInvalidated]
        assert queries.running == 0
    finally:
        queries.close()


def test_many_clients_at_once_all_get_their_answers(database: Database) -> None:
    """Sixteen threads over four slots: every answer is right, and nothing is left over."""
    with runner(database) as (queries, reports):

        def ask(n: int) -> Any:
            return [
                rows_of(queries, "SELECT $1 + id FROM orders WHERE id = 1", [n + i])
                for i in range(10)
            ]

        threads = [in_background(lambda n=n: ask(n)) for n in range(16)]
        for thread, _ in threads:
            thread.join()
        for n, (_, outcome) in enumerate(threads):
            assert outcome == [[[(n + i + 1,)] for i in range(10)]]
        assert queries.running == 0
    assert len(reports) == 160


def test_a_query_is_its_own_context(database: Database) -> None:
    """Leaving the context closes the query, also one that never started."""
    with runner(database) as (queries, _):
        with queries.open("SELECT 1") as query:
            assert isinstance(query, Query)
        assert query.next_batch() is None


class Copy:
    """A copy that is as fresh as the test says, and AWS time."""

    def __init__(self, as_of_ms: int | None) -> None:
        self.as_of_ms = as_of_ms
        self.now_ms: int | None = AS_OF_MS + 10_000

    def live(self) -> dict[str, Freshness]:
        return {"orders": Freshness("Ready", self.as_of_ms)}

    def aws_time_ms(self) -> int | None:
        return self.now_ms


def demanding(database: Database, copy: Copy, **limits: Any) -> QueryRunner:
    return QueryRunner(database, QueryLimits(**limits), live=copy.live, now_ms=copy.aws_time_ms)


@pytest.mark.parametrize(
    ("demand", "is_met"),
    [
        (Demand(min_as_of_ms=AS_OF_MS), True),
        (Demand(min_as_of_ms=AS_OF_MS + 1, wait_s=0), False),
        (Demand(max_staleness_ms=10_000), True),
        (Demand(max_staleness_ms=9_999, wait_s=0), False),
        (Demand(min_as_of_ms=0, max_staleness_ms=9_999, wait_s=0), False),
        (Demand(min_as_of_ms=AS_OF_MS + 1, max_staleness_ms=60_000, wait_s=0), False),
    ],
)
def test_rows_are_as_fresh_as_demanded_or_refused(
    database: Database, demand: Demand, is_met: bool
) -> None:
    """An answer that was to hold a write holds it, or there is no answer."""
    queries = demanding(database, Copy(AS_OF_MS))
    try:
        with queries.open("FROM orders LIMIT 1", demand=demand) as query:
            if is_met:
                query.start()
                assert query.next_batch() is not None
            else:
                with pytest.raises(NotFreshEnough) as refused:
                    query.start()
                assert refused.value.http_status == 503
        assert queries.running == 0
    finally:
        queries.close()


def test_a_demand_is_waited_for_without_a_slot(database: Database) -> None:
    """Whoever waits for fresh rows keeps nobody from asking, and gets them when they are there."""
    copy = Copy(AS_OF_MS)
    queries = demanding(database, copy, max_concurrent=1)
    try:
        patient = queries.open("FROM orders LIMIT 1", demand=Demand(min_as_of_ms=AS_OF_MS + 5))
        thread, outcome = in_background(patient.start)
        for _ in range(3):
            assert rows_of(queries, "SELECT 1") == [(1,)]
        assert thread.is_alive()
        copy.as_of_ms = AS_OF_MS + 5
        thread.join()
        assert outcome == [None]
        assert patient.freshness.as_of_ms == AS_OF_MS + 5
        patient.close()
    finally:
        queries.close()


def test_a_patient_client_may_leave(database: Database) -> None:
    """Cancelling ends the wait for fresh rows."""
    queries = demanding(database, Copy(AS_OF_MS))
    try:
        patient = queries.open("FROM orders", demand=Demand(min_as_of_ms=AS_OF_MS * 2))
        thread, outcome = in_background(patient.start)
        patient.cancel()
        thread.join()
        assert isinstance(outcome[0], QueryCancelled)
    finally:
        queries.close()


def test_no_staleness_is_promised_without_proof(database: Database) -> None:
    """Before AWS time is known, or while a snapshot runs, nothing is fresh."""
    copy = Copy(None)
    queries = demanding(database, copy)
    try:
        with database.transaction() as cursor:
            cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'scanning'")
        with pytest.raises(NotFreshEnough, match="not proved"):
            queries.open("FROM orders", demand=Demand(min_as_of_ms=1, wait_s=0)).start()
        copy.as_of_ms, copy.now_ms = AS_OF_MS, None
        with pytest.raises(NotFreshEnough, match="AWS time"):
            queries.open("FROM orders", demand=Demand(max_staleness_ms=1, wait_s=0)).start()
    finally:
        queries.close()
        with database.transaction() as cursor:
            cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'done'")


def test_rows_that_grew_old_while_waiting_for_a_slot_are_refused(database: Database) -> None:
    """What is promised is looked at again in the query's own snapshot."""
    copy = Copy(AS_OF_MS)
    looks = iter([AS_OF_MS, None])

    def live() -> dict[str, Freshness]:
        copy.as_of_ms = next(looks)
        return copy.live()

    queries = QueryRunner(database, QueryLimits(), live=live, now_ms=copy.aws_time_ms)
    try:
        with database.transaction() as cursor:
            cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'scanning'")
        with pytest.raises(NotFreshEnough):
            queries.open("FROM orders", demand=Demand(min_as_of_ms=AS_OF_MS)).start()
    finally:
        queries.close()
        with database.transaction() as cursor:
            cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'done'")


@pytest.mark.parametrize(
    "sql",
    [
        'INSERT INTO dynaduck."orders__rows" (id) VALUES (7)',
        'UPDATE dynaduck."orders__rows" SET id = 0',
        'DELETE FROM dynaduck."orders__rows"',
        "CREATE TABLE evil AS SELECT 1",
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY orders TO '/tmp/evil.csv'",
        "ATTACH '/tmp/evil.duckdb'",
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
    ],
)
def test_behind_the_gate_stands_another_wall(
    database: Database, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Were the gate to let it through, the transaction or the locked instance would not."""
    monkeypatch.setattr("accelerator.verdicts.admit", lambda *_: Verdict(frozenset()))
    before = fingerprint(database)
    with runner(database) as (queries, _), pytest.raises(QueryError):
        rows_of(queries, sql)
    assert fingerprint(database) == before


class Holder:
    """Holds a slot, and does not hear the first time it is told to stop."""

    def __init__(self) -> None:
        self.started_s = 0.0
        self.stopped: list[Stop] = []
        self.heard = threading.Event()

    @property
    def is_stopped(self) -> bool:
        return bool(self.stopped)

    def stop(self, why: Stop) -> None:
        self.stopped.append(why)
        if len(self.stopped) == 3:
            self.heard.set()

    def raise_if_stopped(self) -> None:
        return


def test_an_interrupt_that_was_not_heard_is_said_again() -> None:
    """DuckDB loses an interrupt that comes right before a statement begins."""
    slots = Slots(QueryLimits(timeout_s=3600), lambda: 0.0)
    deaf = Holder()
    slots.take(deaf)
    deaf.stop(Stop.CANCELLED)
    slots.wake()
    assert deaf.heard.wait(30)
    slots.free(deaf)
    slots.close()


def test_a_hostile_statement_is_refused_before_it_waits(database: Database) -> None:
    """The gate comes first: waiting is no way around it."""
    queries = demanding(database, Copy(AS_OF_MS))
    try:
        with pytest.raises(QueryRejected):
            queries.open("DROP VIEW orders", demand=Demand(min_as_of_ms=AS_OF_MS * 2)).start()
    finally:
        queries.close()


def test_what_is_known_live_is_told(database: Database) -> None:
    """The service knows more than its tables, which it writes rarely; it is asked first."""
    copy = Copy(AS_OF_MS + 700)
    queries = demanding(database, copy)
    try:
        for sql in ("FROM orders LIMIT 1", "SELECT 1", "FROM dynaduck.gaps"):
            with queries.open(sql) as query:
                query.start()
                assert query.freshness == Freshness("Ready", AS_OF_MS + 700), sql
        copy.as_of_ms = None
        with queries.open("FROM orders LIMIT 1") as query:
            query.start()
            assert query.freshness == Freshness("Ready", AS_OF_MS)
    finally:
        queries.close()
