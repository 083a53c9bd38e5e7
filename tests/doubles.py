"""Doubles for the checkpoint protocols: a clock, stores that answer by script, a plain codec.

Owns what several test modules need to play two writers and a network between them. Must not assert.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TypeVar

from checkpoints.errors import LogCorrupt, StoreDenied, StoreUnavailable
from checkpoints.guard import Guard
from checkpoints.keys import PipelineKey
from checkpoints.kv import Expected, Item, ItemStore, MemoryItemStore
from checkpoints.object_store import ObjectStore, PutOutcome
from checkpoints.positions import Position, ShardCheckpoint, ShardState
from checkpoints.progress import DatasetProgress
from checkpoints.segment import SegmentHeader
from checkpoints.segment_log import GENESIS, Head, SegmentLog, SegmentWriter

T = TypeVar("T")

PIPELINE = PipelineKey("acme", "prod", "orders")
FOREVER_S = 1e9


class FakeClock:
    """Time that passes only when somebody sleeps or moves it."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.slept: list[float] = []
        self.on_sleep: Callable[[], object] = lambda: None

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        self.on_sleep()

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


class Outcome(Enum):
    """What becomes of a write: what the store does, and what the writer hears."""

    APPLIED = auto()
    APPLIED_LOST_RESPONSE = auto()
    NEVER_LANDED = auto()
    IN_FLIGHT = auto()  # nothing is heard; it lands when `deliver` is called
    DEFINITE = auto()  # refused, and the writer knows it
    CONFLICT_409 = auto()


class ScriptedObjectStore:
    """A store whose next writes have the scripted outcomes; after the script all goes well."""

    def __init__(self, inner: ObjectStore, *script: Outcome) -> None:
        self.inner = inner
        self.script = deque(script)
        self.puts: list[tuple[str, bytes]] = []
        self.gets: list[str] = []
        self.failing_reads = 0
        self._in_flight: list[tuple[str, bytes]] = []

    def put_new(self, key: str, data: bytes) -> PutOutcome:
        self.puts.append((key, data))
        outcome = self.script.popleft() if self.script else Outcome.APPLIED
        if outcome is Outcome.APPLIED:
            return self.inner.put_new(key, data)
        if outcome is Outcome.DEFINITE:
            raise StoreDenied("PutObject is denied.", action="s3:PutObject")
        if outcome is Outcome.CONFLICT_409:
            return PutOutcome.CONFLICT
        if outcome is Outcome.APPLIED_LOST_RESPONSE:
            self.inner.put_new(key, data)
        if outcome is Outcome.IN_FLIGHT:
            self._in_flight.append((key, data))
        return PutOutcome.UNKNOWN

    def deliver(self) -> list[PutOutcome]:
        """Lets the writes in flight arrive."""
        in_flight, self._in_flight = self._in_flight, []
        return [self.inner.put_new(key, data) for key, data in in_flight]

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        if self.failing_reads > 0:
            self.failing_reads -= 1
            raise StoreUnavailable("GetObject timed out.")
        return self.inner.get(key)

    def list_after(self, prefix: str, start_after: str | None, limit: int) -> list[str]:
        return self.inner.list_after(prefix, start_after, limit)


class ScriptedItemStore:
    """A table whose next writes have the scripted outcomes, and that counts its calls."""

    def __init__(self, inner: ItemStore | None = None, *script: Outcome) -> None:
        self.inner: ItemStore = inner or MemoryItemStore()
        self.script = deque(script)
        self.calls: list[str] = []
        self.before_write: Callable[[], object] = lambda: None

    def get(self, pk: str, sk: str) -> Item | None:
        self.calls.append("get")
        return self.inner.get(pk, sk)

    def query(self, pk: str, sk_prefix: str) -> list[tuple[str, Item]]:
        self.calls.append("query")
        return self.inner.query(pk, sk_prefix)

    def put(self, pk: str, sk: str, item: Item, expected: Expected) -> bool:
        self.calls.append("put")
        return self._written(lambda: self.inner.put(pk, sk, item, expected))

    def update(
        self,
        pk: str,
        sk: str,
        changes: Item,
        expected: Expected,
        *,
        increment: str | None = None,
    ) -> Item | None:
        self.calls.append("update")
        return self._written(
            lambda: self.inner.update(pk, sk, changes, expected, increment=increment)
        )

    def delete(self, pk: str, sk: str, expected: Expected) -> bool:
        self.calls.append("delete")
        return self._written(lambda: self.inner.delete(pk, sk, expected))

    def _written(self, write: Callable[[], T]) -> T:
        self.before_write()
        outcome = self.script.popleft() if self.script else Outcome.APPLIED
        if outcome is Outcome.APPLIED:
            return write()
        if outcome is Outcome.DEFINITE:
            raise StoreDenied("The write is denied.", action="dynamodb:UpdateItem")
        if outcome is Outcome.APPLIED_LOST_RESPONSE:
            write()
        raise StoreUnavailable("The write timed out.")


class TextCodec:
    """Segments whose payload is a text: the header's JSON, a line break, the text."""

    def encode(self, header: SegmentHeader, payload: str | None) -> bytes:
        return f"{header.to_json()}\n{payload or ''}".encode()

    def header(self, data: bytes) -> SegmentHeader:
        text, found, _ = data.partition(b"\n")
        if not found:
            raise LogCorrupt("no header")
        return SegmentHeader.of_json(text)

    def text(self, data: bytes) -> str:
        """The payload of an object."""
        return data.partition(b"\n")[2].decode()


def log_of(store: ObjectStore, node: str = "reader") -> SegmentLog[str]:
    """A log of texts."""
    return SegmentLog(store, PIPELINE, TextCodec(), writer=node)


def guard_of(clock: FakeClock, epoch: int = 1, lasts_s: float = FOREVER_S) -> Guard:
    """A permission that lasts."""
    return Guard(clock, epoch=epoch, deadline_s=clock.now_s + lasts_s)


def writer_of(
    store: ObjectStore,
    clock: FakeClock,
    guard: Guard,
    *,
    node: str = "writer",
    head: Head | None = None,
) -> SegmentWriter[str]:
    """A writer of texts that has not claimed yet."""
    return SegmentWriter(
        store,
        log_of(store, node),
        PIPELINE,
        TextCodec(),
        clock,
        guard,
        writer=node,
        head=head or Head(GENESIS, {}),
    )


def leader_of(
    store: ObjectStore, clock: FakeClock, *, epoch: int = 1, node: str = "writer"
) -> SegmentWriter[str]:
    """A writer that has read the log to its end and put its fence."""
    head = log_of(store, node).head()
    writer = writer_of(store, clock, guard_of(clock, epoch), node=node, head=head)
    while not writer.is_active:
        writer.claim()
    return writer


def delta(dataset: str = "orders", *, records: int = 1, generation: int = 1) -> DatasetProgress:
    """Progress of one shard by its count of records."""
    shard = ShardCheckpoint(
        "shardId-1", None, ShardState.READING, Position.after(f"{records:021d}"), records, None
    )
    return DatasetProgress(dataset, generation, shards=(shard,))


def texts(store: ObjectStore, log: SegmentLog[str] | None = None) -> list[str]:
    """The payloads of the whole log, fences left out."""
    segments = (log or log_of(store)).after(GENESIS)
    return [TextCodec().text(segment.data) for segment in segments if segment.header.dataset]
