"""What a dataset is following right now: one set of positions, and the scan that fills rows.

Owns the wiring of graph, reader, discovery and scanner over what is stored, and their queues. A
course is thrown away, not mended, when its positions are replaced: what it has queued goes with it.
Must not know why a course begins or ends (`connector.replication`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from accelerator.batch import Batch
from accelerator.dataset import Dataset
from accelerator.outcome import SnapshotState, StoredDataset
from connector.clock import AwsTime, Clock
from connector.config import Dataset as Settings
from connector.journal import Journal
from connector.offset_rows import OffsetRows
from connector.queue import BatchQueue
from connector.snapshot.capacity import ReadCapacity
from connector.snapshot.scanner import EVENTUAL_MARGIN_S, Scanner
from connector.source import Source
from connector.stream.coverage import Retention
from connector.stream.discovery import Discovery
from connector.stream.lineage import START_MARGIN_MS, Origin
from connector.stream.pacing import Pacing
from connector.stream.reader import Observer, StreamReader
from connector.stream.shards import ShardGraph

# In bytes of the wire. A change is held in about half of its own (its old image is not), a scanned
# item in all of it, and decoding makes it three times as many for the time of one group.
STREAM_QUEUE_BYTES: Final = 64 * 1024 * 1024
SCAN_QUEUE_BYTES: Final = 14 * 1024 * 1024
SCAN_GROUP_BYTES: Final = 14 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every part of a course is built on.

    count_rcu      counts read capacity units that a scan has cost
    ring_writer    wakes the applier: something is queued
    ring_readers   wakes pollers and scanners: something may be read
    reopen         told when DuckDB has given up on the file, without the writer's lock
    rows           what publishes positions to the offset table; None where nothing does
    """

    settings: Settings
    source: Source
    dataset: Dataset
    clock: Clock
    aws_time: AwsTime
    retention: Retention
    journal: Journal
    count_rcu: Callable[[float], None]
    ring_writer: Callable[[], None]
    ring_readers: Callable[[], None]
    reopen: Callable[[], None]
    rows: OffsetRows | None = None


class Course:
    """One set of positions being read. Steps may be called from any thread; `take` from the writer.

    positions_generation   the set that is read
    filling                the generation of rows that a scan fills, None when there is no scan
    items_estimated        what DescribeTable said, up to six hours old
    scan_end_ms            AWS time that every shard has to pass before the scan's rows are right
    """

    def __init__(
        self,
        around: Surroundings,
        stored: StoredDataset,
        observer: Observer,
        *,
        now_s: float,
    ) -> None:
        self.identity = stored.identity
        if self.identity.stream_arn is None or stored.origin_ms is None:
            raise ValueError("a course needs a stream and an origin in time")
        self.positions_generation = stored.positions_generation
        self.origin = _origin(stored, stored.origin_ms)
        self.filling: int | None = None
        self.scan_end_ms = stored.scan_ended_at_ms
        self.scanner: Scanner | None = None
        self.items_estimated: int | None = None
        self._around = around
        self._fillable_s: float | None = None
        self._is_closed = False
        self._changes = BatchQueue(STREAM_QUEUE_BYTES, around.ring_writer)
        self._scans = BatchQueue(SCAN_QUEUE_BYTES, around.ring_writer)
        settings = around.settings
        graph = ShardGraph(
            self.origin,
            stored.shards,
            pacing=pacing_of(settings),
            retention=around.retention,
            now_s=now_s,
        )
        self.reader = StreamReader(
            around.source,
            around.clock,
            around.aws_time,
            self._changes,
            graph,
            stream_arn=self.identity.stream_arn,
            generation=self.positions_generation,
            old_images=settings.history.enabled,
            observer=observer,
            on_news=around.ring_readers,
        )
        self.discovery = Discovery(
            around.source,
            around.clock,
            around.aws_time,
            self.reader,
            self.identity,
            observer=observer,
        )
        self.fill(stored)

    def fill(self, stored: StoredDataset) -> None:
        """Scans what is stored as unfinished; an earlier scan of this course is given up."""
        self._end_scan()
        self.scan_end_ms = stored.scan_ended_at_ms
        if stored.snapshot_state == SnapshotState.SCANNED and self.scan_end_ms is not None:
            self.reader.hurry(self.scan_end_ms)
        if stored.snapshot_state != SnapshotState.RUNNING:
            return
        around = self._around
        self.filling = stored.shadow_generation or stored.generation
        around.journal.load_begins(f"generation {self.filling}")
        self._fillable_s = None
        self._scans = BatchQueue(SCAN_QUEUE_BYTES, around.ring_writer)
        self.scanner = Scanner(
            around.source,
            around.clock,
            self._scans,
            around.dataset,
            stored.segments,
            generation=self.positions_generation,
            fills=self.filling,
            consistent=around.settings.scan_consistent_read,
            capacity=ReadCapacity(around.settings.scan_max_rcu),
            aws_time=around.aws_time,
            on_consumed=around.count_rcu,
        )

    def adjust(self, around: Surroundings) -> None:
        """Reads on by other settings: those that need no new positions."""
        self._around = around
        self.reader.pace(pacing_of(around.settings))
        if self.scanner is not None:
            self.scanner.limit(around.settings.scan_max_rcu)

    # Steps, by any thread

    def poll(self, now_s: float) -> float | None:
        return None if self._is_closed else self.reader.step(now_s)

    def scan(self, now_s: float) -> float | None:
        """A page of the scan, once every shard has a committed position: then it misses nothing."""
        scanner = self.scanner
        if scanner is None or self._is_closed or not self._may_scan(now_s):
            return None
        return scanner.step(now_s)

    def _may_scan(self, now_s: float) -> bool:
        """Whether what a page misses will come by the stream.

        What the first listing shows closed counts as read, and so does what was applied before a
        shadow began. An eventually consistent page may miss the last of those writes, so it has to
        wait until they are certainly visible.
        """
        if self._fillable_s is None and self.reader.is_positioned:
            self._fillable_s = now_s
        if self._fillable_s is None:
            return False
        if self._around.settings.scan_consistent_read:
            return True
        return now_s - self._fillable_s > EVENTUAL_MARGIN_S

    # The writer's side

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        """Stream batches first; scan batches fill what they leave of the group."""
        if self._is_closed:
            return []
        taken = self._changes.take(most_bytes, most_batches)
        left_bytes = min(most_bytes, SCAN_GROUP_BYTES) - sum(batch.nbytes for batch in taken)
        if left_bytes > 0 and len(taken) < most_batches:
            taken += self._scans.take(left_bytes, most_batches - len(taken))
        return taken

    @property
    def queued_bytes(self) -> int:
        return self._changes.nbytes + self._scans.nbytes

    @property
    def is_drained(self) -> bool:
        return len(self._changes) == 0 and len(self._scans) == 0

    def close(self) -> None:
        """No step does anything from here on; what is queued is dropped."""
        self._is_closed = True
        self._changes.abandon(self.settled)
        self._end_scan()

    def settled(self, batch: Batch) -> None:
        """A batch is committed or dropped: the keys changed since its page was asked for may go."""
        if batch.scan_ticket is not None:
            self._around.dataset.close_scan_ticket(batch.scan_ticket)

    def _end_scan(self) -> None:
        self._scans.abandon(self.settled)
        self.scanner, self.filling = None, None


def pacing_of(settings: Settings) -> Pacing:
    return Pacing(floor_s=settings.scan_interval_s, idle_s=settings.ready_lag_s)


def _origin(stored: StoredDataset, at_ms: int) -> Origin:
    """Where these positions begin, by what is stored alone, so that a restart begins there too.

    The first set of a dataset without a snapshot has number 1; one that followed a loss is later.
    """
    is_rebuilding = stored.shadow_generation is not None and stored.is_frozen
    state = stored.snapshot_state if is_rebuilding else stored.live_snapshot_state
    has_scan = state != SnapshotState.NONE
    follows_a_loss = not has_scan and stored.positions_generation > 1
    # The margin covers what a snapshot may miss; without one the changes begin at the start.
    margin_ms = START_MARGIN_MS if has_scan else 0
    return Origin(at_ms, margin_ms, reads_everything=follows_a_loss, has_scan=has_scan)
