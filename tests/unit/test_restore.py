"""Restore: the rows as the log had them, from the bucket alone, in a file that anybody opens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from accelerator.outcome import SnapshotState
from accelerator.spec import DatasetSpec
from checkpoints.errors import LogCorrupt, LogMissing
from checkpoints.object_store import MemoryObjectStore
from checkpoints.positions import SnapshotSegment
from connector.cli.restore import goal_of
from connector.cluster.bases import publish_base
from connector.cluster.logged_dataset import LoggedDataset
from connector.cluster.pipeline_log import PipelineLog
from connector.cluster.restore import Goal, Restored, restore
from connector.errors import ConfigError
from tests.dataset_builder import changes, delete, identity, item, open_database, page, put, shard
from tests.doubles import PIPELINE, FakeClock, guard_of

START_MS = 1_700_000_000_000
LIMIT = 256 * 2**20


class Leader:
    """One node that writes a log: every write is a second after the one before."""

    def __init__(
        self, directory: Path, store: MemoryObjectStore, spec: DatasetSpec | None = None
    ) -> None:
        self.now_ms = START_MS
        self.database = open_database(directory, memory_limit_bytes=LIMIT)
        self.clock = FakeClock()
        self.log = PipelineLog(
            self.database, PIPELINE, store, self.clock, writer="leader", now_ms=self._tick
        )
        self.dataset = LoggedDataset(
            self.database,
            spec or DatasetSpec("orders"),
            self.log,
            now_ms=lambda: self.now_ms,
            monotonic_s=self.clock.monotonic_s,
        )
        self.log.load()
        self.log.lead(guard_of(self.clock))
        self.dataset.begin(
            identity(),
            origin_ms=START_MS,
            shards=[shard()],
            segments=[SnapshotSegment(0, 1)],
            shadow=False,
            positions_generation=None,
            snapshot=True,
        )
        ticket = self.dataset.open_scan_ticket()
        self.dataset.apply([page([item("a"), item("b")], ticket=ticket, done=True)])
        self.dataset.close_scan_ticket(ticket)

    def _tick(self) -> int:
        self.now_ms += 1000
        return self.now_ms

    def write(self, number: int, pk: str) -> int:
        """One change; the index of its segment."""
        self.dataset.apply([changes([put(number, pk, v={"N": str(number)})])])
        return self.log.tip.index

    def base(self) -> None:
        assert publish_base(self.log, self.database, threading.RLock(), self.clock) is not None


@contextmanager
def leader(directory: Path, store: MemoryObjectStore) -> Iterator[Leader]:
    one = Leader(directory / "leader", store)
    try:
        yield one
    finally:
        one.database.close()


def restored(store: MemoryObjectStore, file: Path, goal: Goal | None = None) -> Restored:
    return restore(store, PIPELINE, file, goal or Goal(), FakeClock(), memory_limit_bytes=LIMIT)


def keys_in(file: Path) -> set[str]:
    """By a plain DuckDB that knows nothing of us."""
    with duckdb.connect(str(file), read_only=True) as plain:
        return {pk for (pk,) in plain.execute("SELECT pk FROM orders").fetchall()}


def test_every_segment_can_be_gone_back_to(tmp_path: Path) -> None:
    """By index and by time, with a base in between and without: the rows are those of then."""
    store = MemoryObjectStore()
    with leader(tmp_path, store) as node:
        expected = {node.log.tip.index: {"a", "b"}}
        times = {node.log.tip.index: node.now_ms}
        for number, pk in enumerate(("c", "d"), 1):
            index = node.write(number, pk)
            expected[index] = expected[index - 1] | {pk}
            times[index] = node.now_ms
            if pk == "c":
                node.base()
        node.dataset.apply([changes([delete(9, "a")])])
        last = node.log.tip.index
        expected[last] = expected[last - 1] - {"a"}
        times[last] = node.now_ms
    bases = set()
    for turn, (index, keys) in enumerate(expected.items()):
        file = tmp_path / f"{index}.duckdb"
        goal = Goal(index=index) if turn % 2 else Goal(at_ms=times[index])
        outcome = restored(store, file, goal)
        assert (outcome.index, outcome.rows) == (index, {"orders": len(keys)})
        assert keys_in(file) == keys
        bases.add(outcome.base)
    assert len(bases) == 2, "some from the base, some without"
    assert restored(store, tmp_path / "end.duckdb").index == last


def test_what_expired_below_a_base_is_not_needed(tmp_path: Path) -> None:
    """The base takes its place; what lies before it cannot be had, and that is said."""
    store = MemoryObjectStore()
    with leader(tmp_path, store) as node:
        node.write(1, "c")
        node.base()
        at = node.log.tip.index
        node.write(2, "d")
    for index in range(1, at + 1):
        store.expire(PIPELINE.segment_key(index))
    assert restored(store, tmp_path / "end.duckdb").base == at
    assert keys_in(tmp_path / "end.duckdb") == {"a", "b", "c", "d"}
    with pytest.raises(ConfigError, match="has expired"):
        restored(store, tmp_path / "before.duckdb", Goal(index=at - 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["end.duckdb", "leader"]


def test_a_file_that_is_there_is_not_touched(tmp_path: Path) -> None:
    """Neither the one that is named nor the one of a restore that is under way."""
    store = MemoryObjectStore()
    with leader(tmp_path, store):
        pass
    file = tmp_path / "old.duckdb"
    file.write_bytes(b"mine")
    with pytest.raises(ConfigError, match="is there already"):
        restored(store, file)
    assert file.read_bytes() == b"mine"
    running = tmp_path / "new.duckdb.restoring"
    running.write_bytes(b"theirs")
    with pytest.raises(ConfigError, match="is running"):
        restored(store, tmp_path / "new.duckdb")
    assert running.read_bytes() == b"theirs"


@pytest.mark.parametrize(
    ("goal", "says"),
    [
        (Goal(index=99), "ends at segment"),
        (Goal(at_ms=START_MS), "begins after"),
    ],
)
def test_what_the_log_does_not_have_is_refused(tmp_path: Path, goal: Goal, says: str) -> None:
    """Beyond its end by index, before its beginning by time; and no file is left."""
    store = MemoryObjectStore()
    with leader(tmp_path, store):
        pass
    with pytest.raises(ConfigError, match=says):
        restored(store, tmp_path / "new.duckdb", goal)
    assert [path.name for path in tmp_path.iterdir()] == ["leader"]


def test_the_settings_of_a_dataset_come_from_the_log(tmp_path: Path) -> None:
    """Filters and pins hold in the restored rows, though nobody names them again."""
    store = MemoryObjectStore()
    spec = DatasetSpec("orders", where="pk <> 'c'", pins=(("v", "VARCHAR"),))
    node = Leader(tmp_path / "leader", store, spec)
    node.write(1, "c")
    node.write(2, "d")
    node.database.close()
    file = tmp_path / "new.duckdb"
    restored(store, file)
    assert keys_in(file) == {"a", "b", "d"}
    with duckdb.connect(str(file), read_only=True) as plain:
        assert plain.execute("SELECT v FROM orders WHERE pk = 'd'").fetchall() == [("2",)]


def test_a_point_within_the_first_snapshot_is_said_to_be_one(tmp_path: Path) -> None:
    """Rows are missing there that nothing lost: whoever restores it has to know."""
    store = MemoryObjectStore()
    with leader(tmp_path, store) as node:
        within = node.log.tip.index
        node.dataset.mark_snapshot(SnapshotState.DONE)
    assert restored(store, tmp_path / "part.duckdb", Goal(index=within)).loading == ("orders",)
    assert restored(store, tmp_path / "whole.duckdb").loading == ()


def test_a_broken_or_missing_log_leaves_no_file(tmp_path: Path) -> None:
    """A hole, a damaged object, nothing at all: an error of the log's, and no half file."""
    store = MemoryObjectStore()
    with pytest.raises(LogMissing, match="no log"):
        restored(store, tmp_path / "none.duckdb")
    with leader(tmp_path, store) as node:
        hole = node.write(1, "c")
        node.write(2, "d")
    store.expire(PIPELINE.segment_key(hole))
    with pytest.raises(LogCorrupt, match="missing"):
        restored(store, tmp_path / "hole.duckdb")
    store.put_new(PIPELINE.segment_key(hole), b"nonsense")
    with pytest.raises(LogCorrupt):
        restored(store, tmp_path / "damaged.duckdb")
    assert [path.name for path in tmp_path.iterdir()] == ["leader"]


def test_a_restored_file_is_an_ordinary_one(tmp_path: Path) -> None:
    """It stands in no log any more, so that nothing takes its next change for one of the log's."""
    store = MemoryObjectStore()
    with leader(tmp_path, store) as node:
        node.write(1, "c")
    file = tmp_path / "new" / "replica.duckdb"
    file.parent.mkdir()
    restored(store, file)
    database = open_database(file.parent, memory_limit_bytes=LIMIT)
    try:
        rows = database.cursor().execute("SELECT count(*) FROM dynaduck.log_position").fetchall()
        assert rows == [(0,)]
        assert len(keys_in_open(database)) == 3
    finally:
        database.close()


def keys_in_open(database: object) -> set[str]:
    return {pk for (pk,) in database.cursor().execute("SELECT pk FROM orders").fetchall()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        (None, Goal()),
        ("12", Goal(index=12)),
        ("2023-11-14T22:13:20Z", Goal(at_ms=START_MS)),
        ("2023-11-14T23:13:20+01:00", Goal(at_ms=START_MS)),
        ("2023-11-14 22:13:20", Goal(at_ms=START_MS)),
    ],
)
def test_a_goal_is_an_index_or_a_time(text: str | None, goal: Goal) -> None:
    """A time without an offset is UTC."""
    assert goal_of(text) == goal


@pytest.mark.parametrize("text", ["yesterday", "-3", "12:00", "2023-13-01"])
def test_what_is_neither_is_refused(text: str) -> None:
    """With the two forms that there are."""
    with pytest.raises(ConfigError, match="neither a time nor the index"):
        goal_of(text)
