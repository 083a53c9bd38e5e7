"""Task history: spans with the right parents, bounded, sampled, and queryable."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from accelerator.database import Database
from accelerator.task_table import write_tasks
from metrics.task_history import TASK_ROWS, Sampler, Span, Stretch, TaskHistory, as_rows


class Clock:
    """Host time in ms that began at 1,000,000 when the monotonic clock showed 0."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 1_000_000 + int(self.now_s * 1000)


def history(clock: Clock, capacity: int = 100) -> TaskHistory:
    return TaskHistory(clock.now_ms, clock.monotonic_s, capacity=capacity, draw=random.Random(7))


def test_a_block_becomes_a_span() -> None:
    """What a task was given, gave back and took, with its labels."""
    clock = Clock()
    tasks = history(clock)
    with tasks.span("scan_segment", given="segment 3", dataset="orders") as span:
        clock.now_s = 1.5
        span.output = "250 items"
        span.label(pages=2)
    [ended] = tasks.drain()
    assert (ended.task, ended.given, ended.output) == ("scan_segment", "segment 3", "250 items")
    assert (ended.start_ms, ended.duration_ms) == (1_000_000, 1500.0)
    assert ended.labels == {"dataset": "orders", "pages": "2"}
    assert ended.error is None
    assert ended.parent_span_id is None
    assert (len(ended.context.trace_id), len(ended.context.span_id)) == (32, 16)


def test_inner_blocks_are_children() -> None:
    """A trace holds together: same trace id, the parent's span id, siblings apart."""
    tasks = history(Clock())
    with tasks.span("acceleration_refresh") as refresh:
        with tasks.span("scan_segment"):
            pass
        with tasks.span("scan_segment"):
            pass
    with tasks.span("sql_query"):
        pass
    first, second, outer, other = tasks.drain()
    assert first.parent_span_id == second.parent_span_id == refresh.context.span_id
    assert first.context.span_id != second.context.span_id
    assert first.context.trace_id == outer.context.trace_id
    assert other.context.trace_id != outer.context.trace_id


def test_a_child_in_another_thread_names_its_parent() -> None:
    """Threads do not inherit the block, so the parent is handed over."""
    tasks = history(Clock())

    def work() -> None:
        with tasks.span("poll", parent=root.context):
            pass
        with tasks.span("poll"):
            pass

    with tasks.span("changes_stream") as root:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    child, stranger, _ = tasks.drain()
    assert child.parent_span_id == root.context.span_id
    assert stranger.parent_span_id is None


def test_what_a_block_raises_is_recorded_and_raised() -> None:
    """A failed task shows its error and hides it from nobody."""
    tasks = history(Clock())
    with pytest.raises(ValueError, match="boom"), tasks.span("apply"):
        raise ValueError("boom")
    [ended] = tasks.drain()
    assert ended.error == "boom"


def test_a_measured_task_is_dated_back() -> None:
    """A task told after its end began when it began."""
    clock = Clock()
    clock.now_s = 10.0
    tasks = history(clock)
    tasks.record("sql_query", duration_s=2.5, given="SELECT 1", error="timeout", surface="http")
    [ended] = tasks.drain()
    assert (ended.start_ms, ended.duration_ms, ended.error) == (1_007_500, 2500.0, "timeout")


def test_a_full_buffer_loses_the_oldest_and_counts_them() -> None:
    """Memory is bounded whatever the writer does."""
    tasks = history(Clock(), capacity=3)
    for n in range(5):
        tasks.record("poll", duration_s=0, given=str(n))
    assert tasks.pending == 3
    assert tasks.taken_dropped() == 2
    assert tasks.taken_dropped() == 0
    assert [span.given for span in tasks.drain()] == ["2", "3", "4"]


def test_a_failed_write_keeps_the_spans() -> None:
    """A busy or full disk costs nothing but time."""
    tasks = history(Clock())
    for n in range(3):
        tasks.record("poll", duration_s=0, given=str(n))

    def refuse(_: pa.Table) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        tasks.flush(refuse)
    written: list[pa.Table] = []
    assert tasks.flush(written.append, most=2) == 2
    assert tasks.flush(written.append) == 1
    assert tasks.flush(written.append) == 0
    assert [t.column("input").to_pylist() for t in written] == [["0", "1"], ["2"]]


def test_huge_texts_are_cut() -> None:
    """A query of a megabyte does not fill the table."""
    tasks = history(Clock())
    tasks.record("sql_query", duration_s=0, given="x" * 1_000_000, error="y" * 1_000_000)
    [ended] = tasks.drain()
    assert len(ended.given) < 5_000
    assert ended.given.endswith("(1000000 characters)")
    assert len(ended.error or "") < 5_000


def test_an_endless_task_is_cut_into_stretches() -> None:
    """Following a stream shows in the table while it goes on, its children under it."""
    clock = Clock()
    tasks = history(clock)
    stream = Stretch(tasks, "changes_stream", every_s=60, dataset="orders")
    parents = []
    for now_s in (0.0, 30.0, 61.0, 62.0):
        clock.now_s = now_s
        parents.append(stream.context(now_s))
        stream.count(polls=1, records=10)
    stream.close()
    stream.close()
    first, second = tasks.drain()
    assert parents == [first.context, first.context, second.context, second.context]
    assert json.loads(first.output or "") == {"polls": 2, "records": 20}
    assert (first.duration_ms, first.labels) == (61_000.0, {"dataset": "orders"})


def test_what_happens_all_the_time_is_sampled() -> None:
    """One poll a minute and dataset, and every one that is notable."""
    clock = Clock()
    sampler = Sampler(60, clock.monotonic_s)
    assert [sampler.wants("orders") for _ in range(3)] == [True, False, False]
    assert sampler.wants("customers")
    assert sampler.wants("orders", is_notable=True)
    clock.now_s = 60.0
    assert [sampler.wants("orders") for _ in range(2)] == [True, False]


def test_rows_have_the_columns_of_the_contract() -> None:
    """runtime.task_history has these columns, in this order."""
    tasks = history(Clock())
    tasks.record("apply", duration_s=0.25, output="3 rows", dataset="orders")
    rows = as_rows(tasks.drain())
    assert rows.schema == TASK_ROWS
    assert rows.schema.names == [
        "trace_id",
        "span_id",
        "parent_span_id",
        "task",
        "input",
        "captured_output",
        "start_time",
        "end_time",
        "execution_duration_ms",
        "error_message",
        "labels",
    ]
    assert json.loads(rows.column("labels")[0].as_py()) == {"dataset": "orders"}


def test_the_table_is_filled_and_bounded(tmp_path: Path) -> None:
    """Rows can be queried by task and time, and the old ones go."""
    clock = Clock()
    tasks = history(clock)
    database = Database.open(tmp_path / "replica.duckdb", memory_limit_bytes=100 * 2**20)
    try:
        for day in range(3):
            clock.now_s = day * 86_400.0
            tasks.record("apply", duration_s=0.5, given=f"day {day}")
            keep_from_ms = clock.now_ms() - 86_400_000

            def write(rows: pa.Table, keep_from_ms: int = keep_from_ms) -> None:
                with database.transaction() as cursor:
                    write_tasks(cursor, rows, keep_from_ms=keep_from_ms)

            tasks.flush(write)
        cursor = database.cursor()
        kept = cursor.execute(
            "SELECT input, execution_duration_ms, end_time - start_time = to_milliseconds(500) "
            "FROM runtime.task_history WHERE task = 'apply' ORDER BY start_time"
        ).fetchall()
        cursor.close()
        assert kept == [("day 1", 500.0, True), ("day 2", 500.0, True)]
    finally:
        database.close()


def test_many_threads_record_at_once() -> None:
    """Pollers and queries record without losing a span."""
    tasks = history(Clock(), capacity=10_000)

    def work() -> None:
        for _ in range(500):
            with tasks.span("poll"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spans: list[Span] = tasks.drain(10_000)
    assert len({span.context.span_id for span in spans}) == 4_000
