"""A dict is the model: under any order of stream, scan, replay and restart, rows end equal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from accelerator.batch import Batch
from accelerator.dataset import Dataset
from accelerator.outcome import SnapshotState
from accelerator.spec import DatasetSpec
from checkpoints.positions import Position, ShardCheckpoint, ShardState, SnapshotSegment
from tests.dataset_builder import (
    begun,
    delete,
    item,
    open_database,
    put,
    read_items,
    scan_row,
    shard,
    table,
    text,
)

KEYS = [f"k{n}" for n in range(6)]
SHARDS = ("shard-1", "shard-2")
PAGE_ROWS = 2


class Machine(RuleBasedStateMachine):
    """A table of six keys over two shards, its stream log, a reader, a scanner and a dataset."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.database = open_database(Path(self.directory.name))
        self.dataset = begun(self.database, shards=[shard(s) for s in SHARDS])
        self.truth: dict[str, dict[str, Any]] = {}
        self.log: dict[str, list[dict[str, Any]]] = {s: [] for s in SHARDS}
        self.read_up_to = dict.fromkeys(SHARDS, 0)
        self.queue: list[tuple[Batch, int | None]] = []
        self.scan_next = 0
        self.scan_in_flight: tuple[Batch, int] | None = None
        self.filled = 1
        self.number = 0

    # -- the table ----------------------------------------------------------------------

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from(["N", "S", "M", "remove"]))
    def write(self, key: str, value: str) -> None:
        self.number += 1
        shard_id = SHARDS[KEYS.index(key) % 2]
        values: dict[str, dict[str, Any]] = {
            "N": {"N": str(self.number)},
            "S": {"S": str(self.number)},
        }
        values["M"] = {"M": {"v": {"N": str(self.number)}}}
        if value == "remove":
            if self.truth.pop(key, None) is not None:
                self.log[shard_id].append(delete(self.number, key, shard_id))
            return
        self.truth[key] = item(key, v=values[value])
        self.log[shard_id].append(put(self.number, key, shard_id, v=values[value]))

    # -- reader and scanner -------------------------------------------------------------

    @rule(shard_id=st.sampled_from(SHARDS), count=st.integers(1, 3))
    def read(self, shard_id: str, count: int) -> None:
        start = self.read_up_to[shard_id]
        records = self.log[shard_id][start : start + count]
        self.read_up_to[shard_id] += len(records)
        self.queue.append((self._records(shard_id, records), None))

    @rule(shard_id=st.sampled_from(SHARDS), back=st.integers(1, 4))
    def iterator_is_rebuilt_too_early(self, shard_id: str, back: int) -> None:
        self.read_up_to[shard_id] = max(0, self.read_up_to[shard_id] - back)

    @precondition(lambda self: self.scan_in_flight is None and self.scan_next <= len(KEYS))
    @rule()
    def scan_request_is_answered(self) -> None:
        ticket = self.dataset.open_scan_ticket()
        keys = KEYS[self.scan_next : self.scan_next + PAGE_ROWS]
        images = [scan_row(self.truth[key]) for key in keys if key in self.truth]
        self.scan_next += PAGE_ROWS
        done = self.scan_next > len(KEYS)
        last_key = None if done else text({"pk": {"S": str(self.scan_next)}})
        progress = SnapshotSegment(0, 1, last_key, len(images), done)
        batch = Batch(table(images), 1, segments=(progress,), scan_ticket=ticket, fills=self.filled)
        self.scan_in_flight = (batch, ticket)

    @precondition(lambda self: self.scan_in_flight is not None)
    @rule()
    def scan_page_arrives(self) -> None:
        assert self.scan_in_flight is not None
        self.queue.append(self.scan_in_flight)
        self.scan_in_flight = None

    # -- the service --------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def apply(self, count: int) -> None:
        group, self.queue = self.queue[:count], self.queue[count:]
        self.dataset.apply([batch for batch, _ in group])
        for _, ticket in group:
            if ticket is not None:
                self.dataset.close_scan_ticket(ticket)

    @rule(whole=st.booleans())
    def restart(self, whole: bool) -> None:
        """Queues, tickets and requests in flight are lost; positions are the stored ones."""
        if whole:
            self.database.reopen()
        self.dataset = Dataset(self.database, DatasetSpec("orders"))
        stored = self.dataset.load()
        assert stored is not None
        self.queue, self.scan_in_flight = [], None
        for row in stored.shards:
            number = row.position.sequence_number
            applied = [r for r in self.log[row.shard_id] if r["sequence_number"] <= (number or "")]
            self.read_up_to[row.shard_id] = len(applied)
            assert row.records == len(applied)
        [segment] = stored.segments
        if segment.done:
            self.scan_next = len(KEYS) + 1
        else:
            key = segment.last_evaluated_key
            self.scan_next = 0 if key is None else int(json.loads(key)["pk"]["S"])

    @precondition(lambda self: self.filled == 1)
    @rule()
    def refresh_begins(self) -> None:
        """The same positions feed a shadow; the first scan's page in flight is given up."""
        self.filled = self.dataset.begin(
            self._identity(),
            origin_ms=1,
            shards=(),
            segments=[SnapshotSegment(0, 1)],
            shadow=True,
            positions_generation=1,
            snapshot=True,
        )
        self.scan_next, self.scan_in_flight = 0, None
        self.queue = [(b, t) for b, t in self.queue if not b.is_scan]

    def teardown(self) -> None:
        try:
            self.drain_and_compare()
        finally:
            self.database.close()
            self.directory.cleanup()

    def drain_and_compare(self) -> None:
        while self.scan_next <= len(KEYS) or self.scan_in_flight is not None:
            if self.scan_in_flight is None:
                self.scan_request_is_answered()
            self.scan_page_arrives()
        for shard_id in SHARDS:
            records = self.log[shard_id][self.read_up_to[shard_id] :]
            self.queue.append((self._records(shard_id, records), None))
        self.apply(len(self.queue))
        stored = self.dataset.load()
        assert stored is not None
        if stored.shadow_generation is not None:
            self.dataset.swap()
        self.dataset.mark_snapshot(SnapshotState.DONE)
        assert read_items(self.database) == self.truth
        assert self.dataset.row_count() == len(self.truth)

    def _records(self, shard_id: str, records: list[dict[str, Any]]) -> Batch:
        rows: tuple[ShardCheckpoint, ...] = ()
        if records:
            position = Position.after(records[-1]["sequence_number"])
            rows = (ShardCheckpoint(shard_id, None, ShardState.READING, position, len(records)),)
        return Batch(table(records), 1, shards=rows)

    def _identity(self) -> Any:
        stored = self.dataset.load()
        assert stored is not None
        return stored.identity


TestDatasetModel = Machine.TestCase
TestDatasetModel.settings = settings(max_examples=12, stateful_step_count=40, deadline=None)
