"""Rows follow the data file: never ahead of it, written anew when missing, waited for by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from accelerator.errors import DatabaseClosed
from checkpoints.commit import committed_in_database
from checkpoints.envelope import OffsetValue
from checkpoints.errors import RowCorrupt, StoreDenied, StoreUnavailable
from checkpoints.keys import OffsetKey
from checkpoints.kv import Item, MemoryItemStore
from checkpoints.offsets import OffsetStore
from checkpoints.positions import (
    KeyAttribute,
    Position,
    ShardCheckpoint,
    ShardState,
    SourceIdentity,
)
from checkpoints.progress import DatasetProgress, progress_of, rows_of
from connector.errors import OffsetTableUnavailable, OffsetTableUnusable
from connector.offset_rows import COMPARE_EVERY_S, LOOK_EVERY_S, MOST_ROWS, OffsetRows
from tests.doubles import PIPELINE, FakeClock, Outcome, ScriptedItemStore

SOURCE = SourceIdentity("orders", "arn", "id-1", "stream", (KeyAttribute("pk", "S", "HASH"),))


def shard(records: int, name: str = "s-1") -> ShardCheckpoint:
    return ShardCheckpoint(
        name, None, ShardState.READING, Position.after(f"{records:021d}"), records
    )


def progress(*shards: ShardCheckpoint, generation: int = 1) -> DatasetProgress:
    return DatasetProgress("orders", generation, SOURCE, shards)


class File:
    """What is committed, as the data file would say it."""

    def __init__(self, committed: DatasetProgress | None = None) -> None:
        self.committed = committed
        self.reads = 0
        self.is_closed = False

    def __call__(self, _dataset: str) -> DatasetProgress | None:
        if self.is_closed:
            raise DatabaseClosed("The database is closed.")
        self.reads += 1
        return self.committed


class Table(MemoryItemStore):
    """A table that may be away, and that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.writes = 0

    def query(self, pk: str, sk_prefix: str) -> list[tuple[str, Item]]:
        if self.error is not None:
            raise self.error
        return super().query(pk, sk_prefix)

    def put(self, pk: str, sk: str, item: Item, expected: Mapping[str, object]) -> bool:
        if self.error is not None:
            raise self.error
        self.writes += 1
        return super().put(pk, sk, item, expected)  # type: ignore[arg-type]


def rows_over(items: Table | ScriptedItemStore, file: File, clock: FakeClock) -> OffsetRows:
    return OffsetRows(
        OffsetStore(items, PIPELINE, stamp=lambda: "whenever"),
        "offsets",
        ["orders"],
        file,
        clock,
        draw=lambda: 1.0,
    )


def shown(items: Table | ScriptedItemStore) -> object:
    return progress_of(OffsetStore(items, PIPELINE).index()).get("orders")


@pytest.mark.requirement("R9")
def test_only_what_is_committed_in_the_file_is_published() -> None:
    """Nothing before the first commit, then what the file holds, each commit under a new number."""
    items, file, clock = Table(), File(), FakeClock()
    rows = rows_over(items, file, clock)
    rows.step(clock.now_s)
    assert items.writes == 0
    for records in (1, 2):
        file.committed = progress(shard(records))
        rows.committed()
        rows.step(clock.now_s)
        assert shown(items) == file.committed
    row = OffsetStore(items, PIPELINE).row(OffsetKey("orders", "g1/shard/s-1").sk)
    assert row is not None
    assert row.committed == committed_in_database(2)


def test_what_did_not_change_is_neither_read_nor_written() -> None:
    """An idle copy costs no write, and a look at its file every few seconds."""
    items, file, clock = Table(), File(progress(shard(1))), FakeClock()
    rows = rows_over(items, file, clock)
    rows.step(clock.now_s)
    written = items.writes
    for _ in range(5):
        clock.advance(1.0)
        rows.step(clock.now_s)
    assert (file.reads, items.writes) == (1, written)
    clock.advance(LOOK_EVERY_S)
    rows.step(clock.now_s)
    assert (file.reads, items.writes) == (2, written)


@pytest.mark.requirement("R7")
@pytest.mark.requirement("R8")
@pytest.mark.parametrize("survivors", [0, 1, 2])
def test_rows_that_are_gone_are_written_from_the_file(survivors: int) -> None:
    """Some or all of them deleted: a restart writes exactly what is missing, and so does time."""
    items, file, clock = Table(), File(progress(shard(7), shard(9, "s-2"))), FakeClock()
    rows = rows_over(items, file, clock)
    rows.step(clock.now_s)
    kept = items.query(PIPELINE.pk, "")[:survivors]
    for restart in (True, False):
        for sk, item in items.query(PIPELINE.pk, "")[survivors:]:
            items.delete(PIPELINE.pk, sk, item)
        if restart:
            rows = rows_over(items, file, clock)
        else:
            clock.advance(COMPARE_EVERY_S)
        rows.step(clock.now_s)
        assert shown(items) == file.committed
        assert items.query(PIPELINE.pk, "")[:survivors] == kept


def test_while_the_table_is_away_a_note_says_so_and_nothing_is_lost() -> None:
    """Steps back off; the newest progress is published once it answers, and the note goes."""
    items, file, clock = Table(), File(progress(shard(1))), FakeClock()
    rows = rows_over(items, file, clock)
    items.error = StoreUnavailable("PutItem of offsets: timed out")
    waits = []
    for records in range(2, 6):
        due_s = rows.step(clock.now_s)
        assert due_s is not None
        waits.append(due_s - clock.now_s)
        file.committed = progress(shard(records))
        rows.committed()
        clock.now_s = due_s
    assert waits == sorted(waits)
    note = rows.note()
    assert note is not None
    assert (note.code, note.blocks) == ("rows_behind", False)
    assert "timed out" in note.sentence
    items.error = None
    rows.step(clock.now_s)
    assert rows.note() is None
    assert shown(items) == progress(shard(5))


@pytest.mark.parametrize("outcome", [Outcome.APPLIED_LOST_RESPONSE, Outcome.NEVER_LANDED])
def test_a_write_of_unknown_outcome_is_repeated(outcome: Outcome) -> None:
    """Whether it landed or not: the row then shows the newest commit."""
    items = ScriptedItemStore(Table(), Outcome.APPLIED, outcome)
    file, clock = File(progress(shard(1))), FakeClock()
    rows = rows_over(items, file, clock)
    due_s = rows.step(clock.now_s)
    assert due_s is not None
    assert rows.note() is not None
    file.committed = progress(shard(2))
    rows.committed()
    rows.step(due_s)
    assert rows.note() is None
    assert shown(items) == file.committed


def test_a_second_process_of_the_same_pipeline_ends_publishing() -> None:
    """Who finds a row of a higher number stops for good, and says what to do; data goes on."""
    items, clock = Table(), FakeClock()
    ours, theirs = File(progress(shard(1))), File(progress(shard(1)))
    first, second = rows_over(items, ours, clock), rows_over(items, theirs, clock)
    first.step(clock.now_s)
    second.step(clock.now_s)
    for records in (10, 20):
        theirs.committed = progress(shard(records))
        second.committed()
        second.step(clock.now_s)
    ours.committed = progress(shard(2))
    first.committed()
    first.step(clock.now_s)
    note = first.note()
    assert note is not None
    assert (note.code, note.blocks) == ("rows_contested", False)
    assert "runtime.pipeline" in note.remedy
    assert first.step(clock.now_s) is None
    assert shown(items) == theirs.committed
    assert second.note() is None


def test_a_second_process_on_a_disk_of_its_own_is_found_too() -> None:
    """Its generation is another, so no row is shared: the one that counts behind finds it."""
    items, clock = Table(), FakeClock()
    ours, theirs = File(progress(shard(1))), File(progress(shard(1), generation=2))
    first, second = rows_over(items, ours, clock), rows_over(items, theirs, clock)
    for records in range(1, 5):
        theirs.committed = progress(shard(records), generation=2)
        for rows in (first, second):
            rows.committed()
            rows.step(clock.now_s)
    assert first.note() is None
    clock.advance(COMPARE_EVERY_S)
    for rows in (first, second):
        rows.step(clock.now_s)
    codes = [note.code for rows in (first, second) if (note := rows.note()) is not None]
    assert codes == ["rows_contested"]


def test_a_turn_is_bounded_and_goes_on_with_the_next() -> None:
    """Hundreds of shards take several steps, without a wait between them."""
    items, clock = Table(), FakeClock()
    file = File(progress(*(shard(1, f"s-{n}") for n in range(MOST_ROWS))))
    rows = rows_over(items, file, clock)
    assert rows.step(clock.now_s) == clock.now_s
    assert items.writes == MOST_ROWS
    rows.step(clock.now_s)
    rows.step(clock.now_s)
    assert items.writes == 2 * MOST_ROWS + 1
    assert rows_over(items, file, clock).flush(5.0)
    assert items.writes == 2 * MOST_ROWS + 1


def test_the_last_commit_is_published_on_the_way_out() -> None:
    """A clean end leaves rows that show all; one without the table ends all the same."""
    items, file, clock = Table(), File(progress(shard(3))), FakeClock()
    rows = rows_over(items, file, clock)
    assert rows.flush(5.0)
    assert shown(items) == file.committed
    file.committed = progress(shard(4))
    items.error = StoreDenied("PutItem is denied.", action="dynamodb:PutItem")
    assert not rows.flush(5.0)
    items.error = None
    assert not rows.flush(0.0)
    file.is_closed = True
    assert not rows.flush(5.0)


@pytest.mark.requirement("R26")
def test_a_start_recalls_what_the_rows_say() -> None:
    """Source, generation and every position come back as they were committed."""
    items, clock = Table(), FakeClock()
    file = File(progress(shard(3), generation=4))
    rows = rows_over(items, file, clock)
    assert rows.recall("orders") is None
    rows.step(clock.now_s)
    assert rows_over(items, File(), clock).recall("orders") == file.committed
    assert rows_over(items, File(), clock).recall("others") is None


@pytest.mark.requirement("R26")
def test_rows_rank_by_their_commit_and_never_by_sequence_numbers() -> None:
    """A younger generation counts though its numbers are smaller; within one the younger commit."""
    items = Table()
    store = OffsetStore(items, PIPELINE)
    high, low = progress(shard(900)), progress(shard(3), generation=2)
    store.publish(committed_in_database(1), rows_of([high]))
    store.publish(committed_in_database(2), rows_of([low]))
    assert shown(items) == low
    lower = progress(replace(shard(2), records=5), generation=2)
    store.publish(committed_in_database(3), rows_of([lower]))
    store.publish(committed_in_database(1), rows_of([progress(shard(8), generation=2)]))
    assert shown(items) == lower


@pytest.mark.requirement("R26")
def test_a_failed_look_is_never_taken_for_no_rows() -> None:
    """Unavailable is asked again; denied or damaged needs a person and ends a first start."""
    items = Table()
    rows = rows_over(items, File(), FakeClock())
    items.error = StoreUnavailable("Query of offsets: timed out")
    with pytest.raises(OffsetTableUnavailable, match="timed out") as later:
        rows.recall("orders")
    assert not later.value.needs_person
    for error in (
        StoreDenied("Query is denied.", action="dynamodb:Query"),
        RowCorrupt("The row is none."),
    ):
        items.error = error
        with pytest.raises(OffsetTableUnusable) as now:
            rows.recall("orders")
        assert now.value.needs_person
        assert now.value.hint == error.hint


def test_a_row_with_larger_counts_needs_no_write() -> None:
    """Offsets merge by their maximum: one that is ahead already shows what is wanted."""
    items, clock = Table(), FakeClock()
    key = OffsetKey("orders", "g1/shard/s-1")
    OffsetStore(items, PIPELINE).publish_offset(committed_in_database(5), key, OffsetValue(line=50))
    rows = rows_over(items, File(progress(shard(3))), clock)
    rows.step(clock.now_s)
    row = OffsetStore(items, PIPELINE).row(key.sk)
    assert row is not None
    assert row.committed.index == 5
    assert shown(items) == progress(shard(3))
