"""Builders for nodes that share a bucket and a table: real data files, memory stores, one clock.

Owns a `World` and the `Machine`s in it. Must not assert.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from accelerator.batch import CHANGES, Batch
from accelerator.database import Database
from accelerator.spec import DatasetSpec
from checkpoints.guard import Guard
from checkpoints.lease import LEASE_TIMES, LeaseStore
from checkpoints.object_store import MemoryObjectStore
from checkpoints.offsets import OffsetStore
from checkpoints.positions import (
    KeyAttribute,
    Position,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
    SourceIdentity,
)
from connector.cluster.bases import BaseRule
from connector.cluster.logged_dataset import LoggedDataset
from connector.cluster.node import Node
from connector.cluster.pipeline_log import PipelineLog
from connector.cluster.right import FenceRight, LeaseRight, Right
from connector.cluster.view import Role
from tests.doubles import PIPELINE, FakeClock, Outcome, ScriptedItemStore, ScriptedObjectStore

SHARD = "shardId-1"
IDENTITY = SourceIdentity(
    "orders",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders",
    "id-1",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/1",
    (KeyAttribute("pk", "S", "HASH"),),
)
MEMORY_BYTES = 200_000_000


def image(key: str, value: int) -> str:
    return json.dumps({"pk": {"S": key}, "v": {"N": str(value)}})


def row(op: str, key: str, value: int, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = dict.fromkeys(CHANGES.names)
    given |= {"op": op, "ttl_delete": False, **more}
    if op != "remove":
        given["image"] = image(key, value)
    return given


def changes(number: int, *rows: tuple[str, int], generation: int = 1, shard: str = SHARD) -> Batch:
    """Changes of one shard, numbered from `number` on."""
    table = pa.Table.from_pylist(
        [
            row(
                "modify",
                key,
                value,
                shard_id=shard,
                sequence_number=f"{number + at:021d}",
                created_at=1000 * (number + at),
                keys=json.dumps({"pk": {"S": key}}),
            )
            for at, (key, value) in enumerate(rows)
        ],
        schema=CHANGES,
    )
    found = ShardCheckpoint(shard, None, ShardState.READING, Position.trim_horizon())
    return Batch(table, generation, shards=(found,), nbytes=100)


def scanned(
    ticket: int, *rows: tuple[str, int], fills: int = 1, generation: int = 1, done: bool = True
) -> Batch:
    """A page of a scan of one segment."""
    table = pa.Table.from_pylist(
        [row("snapshot", key, value) for key, value in rows], schema=CHANGES
    )
    segment = SnapshotSegment(0, 1, None if done else '{"pk":{"S":"x"}}', len(rows), done)
    return Batch(table, generation, segments=(segment,), scan_ticket=ticket, fills=fills)


@dataclass
class Rows:
    """What a node calls of a dataset, counted."""

    stood_by: int = 0
    looks: int = 0

    def stand_by(self) -> None:
        self.stood_by += 1

    def look(self) -> None:
        self.looks += 1


@dataclass
class Machine:
    """One process with a disk of its own."""

    name: str
    database: Database
    log: PipelineLog
    orders: LoggedDataset
    node: Node
    right: Right
    rows: Rows = field(default_factory=Rows)

    def items(self) -> dict[str, int]:
        """What a query sees; each key must be there once."""
        table = self.database.cursor().sql("FROM main.orders").to_arrow_table()
        found = [(row["pk"], row["v"]) for row in table.to_pylist()]
        rows = {key: int(value) for key, value in found}
        if len(rows) != len(found):
            raise ValueError(f"a key is there twice: {found}")
        return rows

    def role(self) -> Role:
        return self.node.role

    def reads(self) -> bool:
        """Whether the source may be read."""
        return self.node.may_read

    def begin(self, *, shadow: bool = False, snapshot: bool = True) -> int:
        return self.orders.begin(
            IDENTITY,
            origin_ms=1,
            shards=(),
            segments=(SnapshotSegment(0, 1),) if snapshot else (),
            shadow=shadow,
            positions_generation=None,
            snapshot=snapshot,
        )

    def lead(self, epoch: int = 1) -> Guard:
        guard = Guard(self.node._clock, epoch=epoch, deadline_s=float("inf"))
        self.log.lead(guard)
        return guard

    def turn(self, times: int = 1) -> None:
        """So many steps of the node's loop."""
        for _ in range(times):
            self.node.step(self.node._clock.monotonic_s())


class World:
    """A bucket, a table and a clock that all machines share."""

    def __init__(self, directory: Path, *, clustered: bool = True) -> None:
        self.memory = MemoryObjectStore()
        self.objects = ScriptedObjectStore(self.memory)
        self.items = ScriptedItemStore()
        self.clock = FakeClock()
        self.machines: list[Machine] = []
        self._directory = directory
        self._clustered = clustered

    def machine(self, name: str, *, base_rule: BaseRule | None = None) -> Machine:
        """A process on the disk of this name, new or as it was left."""
        database = Database.open(
            self._directory / name / "replica.duckdb", memory_limit_bytes=MEMORY_BYTES
        )
        start = f"{name}{len(self.machines)}"
        log = PipelineLog(
            database,
            PIPELINE,
            self.objects,
            self.clock,
            writer=start,
            rows=OffsetStore(self.items, PIPELINE),
            rows_are_required=self._clustered,
        )
        right: Right = (
            LeaseRight(LeaseStore(self.items, PIPELINE), start, self.clock, LEASE_TIMES)
            if self._clustered
            else FenceRight(self.clock)
        )
        orders = LoggedDataset(
            database,
            DatasetSpec("orders"),
            log,
            now_ms=lambda: None,
            monotonic_s=self.clock.monotonic_s,
        )
        node = Node(
            start,
            log,
            database,
            threading.RLock(),
            self.clock,
            right,
            is_alone=not self._clustered,
            reopen=lambda: None,
            base_rule=base_rule or BaseRule(),
            draw=lambda: 0.0,
        )
        machine = Machine(name, database, log, orders, node, right)
        node.rows = [machine.rows]
        log.load()
        self.machines.append(machine)
        return machine

    def fail_writes(self, *outcomes: Outcome) -> None:
        """What becomes of the next writes of the table."""
        self.items.script.extend(outcomes)

    def close(self) -> None:
        for machine in self.machines:
            machine.database.close()


@contextmanager
def world(directory: Path, *, clustered: bool = True) -> Iterator[World]:
    made = World(directory, clustered=clustered)
    try:
        yield made
    finally:
        made.close()
