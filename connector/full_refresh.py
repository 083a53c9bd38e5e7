"""A dataset whose table has no stream that could be followed: scanned whole, again and again.

Owns the rhythm: a scan into a shadow beside the rows that are served, the atomic swap, the wait for
`refresh_check_interval`. Between two scans the rows are as old as the start of the last one, and
their as-of time says so. A scan that is interrupted goes on from its segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from accelerator.batch import Batch
from accelerator.errors import AcceleratorError, NotLeading, ScanTicketExpired
from accelerator.outcome import SnapshotState, StoredDataset
from checkpoints.positions import SourceIdentity
from connector.course import SCAN_QUEUE_BYTES, Surroundings
from connector.errors import DynaduckError, StartRefused
from connector.health import Facts, Loading
from connector.queue import BatchQueue
from connector.reasons import Trouble
from connector.snapshot.capacity import ReadCapacity
from connector.snapshot.scanner import Scanner
from connector.source import TableDescription
from connector.upkeep import Upkeep

CONTROL_EVERY_S: Final = 0.2

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Scan:
    """One scan of the whole table and what waits to be applied of it."""

    scanner: Scanner
    queue: BatchQueue


class FullRefresh(Upkeep):
    """One dataset being scanned anew every `refresh_check_interval`, and by hand."""

    _scan: _Scan | None = None
    _next_scan_s: float = float("-inf")
    _settled_s: float | None = None

    def poll(self, _now_s: float) -> float | None:
        return None

    def scan(self, now_s: float) -> float | None:
        scan = self._scan
        return scan.scanner.step(now_s) if scan is not None and self._is_reading else None

    def control(self, now_s: float) -> float | None:
        self._take_settings()
        if not self._is_reading or now_s < self._start_due_s:
            return None
        try:
            self._step(now_s)
        except (DynaduckError, AcceleratorError) as error:
            self._failed(error, now_s)
            is_first = self.stored is None and getattr(error, "needs_person", False)
            if isinstance(error, StartRefused) or (is_first and isinstance(error, DynaduckError)):
                self.refusal = error
            return None
        self._recovered()
        return now_s + CONTROL_EVERY_S

    def _follow_settings(self, around: Surroundings) -> None:
        super()._follow_settings(around)
        if self._scan is not None:
            self._scan.scanner.limit(around.settings.scan_max_rcu)
        elif self._settled_s is not None:
            self._next_scan_s = self._settled_s + around.settings.refresh_check_interval_s

    def _step(self, now_s: float) -> None:
        scan = self._scan
        if scan is None:
            if self._is_due(now_s):
                self._begin(self._look())
        elif scan.scanner.done:
            self._settle(scan, now_s)

    def _is_due(self, now_s: float) -> bool:
        return now_s >= self._next_scan_s or self._refresh_asked.is_set()

    def _look(self) -> TableDescription:
        table = self._around.source.describe_table()
        self._around.aws_time.observe(table.at_ms)
        self._started_ms = self._started_ms or table.at_ms
        self._items_estimated = table.item_count
        return table

    def _begin(self, table: TableDescription) -> None:
        """Goes on with the stored scan of this very table, or begins one in a shadow."""
        stored = self._reload()
        if stored is not None and stored.live_identity.table_arn != table.table_arn:
            raise StartRefused(
                f"The data file holds a copy of {stored.live_identity.table_arn}, not of "
                f"{table.table_arn}.",
                hint="Give this dataset another name or data_dir.",
            )
        if stored is None or not self._goes_on(stored, table):
            if stored is None:
                self._around.source.scan(
                    0, 1_000_000, None, consistent=self.settings.scan_consistent_read
                )
            self._refresh_asked.clear()
            self._write(
                lambda: self.dataset.begin(
                    _without_stream(table),
                    origin_ms=table.at_ms,
                    shards=(),
                    segments=self._segments(table),
                    shadow=stored is not None,
                    positions_generation=None,
                    snapshot=True,
                )
            )
        self.refusal = None
        self._open_scan()
        log.info("a full refresh begins", dataset=self.name)

    def _goes_on(self, stored: StoredDataset, table: TableDescription) -> bool:
        return (
            stored.snapshot_state == SnapshotState.RUNNING
            and stored.identity == _without_stream(table)
            and stored.fingerprint == self.dataset.spec.fingerprint
        )

    def _open_scan(self) -> None:
        stored = self.stored
        if stored is None:
            raise ValueError("a scan fills rows that are stored")
        queue = BatchQueue(SCAN_QUEUE_BYTES, self._around.ring_writer)
        scanner = Scanner(
            self._around.source,
            self._around.clock,
            queue,
            self.dataset,
            stored.segments,
            generation=stored.positions_generation,
            fills=stored.shadow_generation or stored.generation,
            consistent=self.settings.scan_consistent_read,
            capacity=ReadCapacity(self.settings.scan_max_rcu),
            aws_time=self._around.aws_time,
            on_consumed=self._around.count_rcu,
        )
        self._scan = _Scan(scanner, queue)
        self._around.journal.load_begins("full refresh")
        self._around.ring_readers()

    def _settle(self, scan: _Scan, now_s: float) -> None:
        """All pages are read; once they are committed the shadow takes the place of the rows."""
        with self._writing:
            stored = self._reload()
            if stored is None or not all(segment.done for segment in stored.segments):
                return
            ended_ms = scan.scanner.ended_at_ms or (self._around.aws_time.now_ms() or 0) + 1000
            if stored.shadow_generation is None:
                self.dataset.mark_snapshot(SnapshotState.DONE, scan_ended_at_ms=ended_ms)
            else:
                self.dataset.swap(scan_ended_at_ms=ended_ms)
            self._reload()
        self._around.journal.load_ends(sum(segment.items for segment in stored.segments))
        self._scan = None
        self._settled_s = now_s
        self._next_scan_s = now_s + self.settings.refresh_check_interval_s
        log.info("a full refresh is complete", dataset=self.name)

    # The writer's lane

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        scan = self._scan
        return [] if scan is None else scan.queue.take(most_bytes, most_batches)

    def refused(self, group: Sequence[Batch], error: AcceleratorError) -> bool:
        if not isinstance(error, ScanTicketExpired | NotLeading):
            return False
        self._settle_tickets(group)
        self._drop_reading()
        return True

    def _drop_reading(self) -> None:
        scan, self._scan = self._scan, None
        if scan is not None:
            scan.queue.abandon(lambda batch: self._settle_tickets([batch]))
        self._next_scan_s = float("-inf")

    # What stands

    def _facts(self) -> Facts:
        stored = self.stored
        return Facts(
            aws_now_ms=self._around.aws_time.now_ms(),
            is_positioned=stored is not None,
            loading=Loading.SCANNING if stored is None else self._loading(stored),
            troubles=tuple(self._troubles()),
            is_refreshing=self._is_loaded and self._scan is not None,
            has_stream=False,
        )

    def _troubles(self) -> list[Trouble]:
        troubles = self._failing()
        scan = self._scan
        if scan is not None:
            troubles += [
                Trouble.of(fault.error, fault.since_s, where=f"Segment {fault.segment} of the scan")
                for fault in scan.scanner.faults()[:1]
            ]
        return troubles

    @property
    def scanner(self) -> Scanner | None:
        return None if self._scan is None else self._scan.scanner

    @property
    def queued_bytes(self) -> int:
        return 0 if self._scan is None else self._scan.queue.nbytes

    @property
    def is_drained(self) -> bool:
        return self._scan is None or len(self._scan.queue) == 0

    @property
    def has_caught_up(self) -> bool:
        """A scan that began in this process is complete: it began at the first look, or later."""
        began_ms, covered_ms = self._started_ms, self.covered_until_ms
        return began_ms is not None and covered_ms is not None and covered_ms >= began_ms

    def has_passed(self, at_ms: int) -> bool:
        covered_ms = self.covered_until_ms
        return covered_ms is not None and covered_ms >= at_ms

    @property
    def covered_until_ms(self) -> int | None:
        """The rows hold what had happened when their scan began, and some of what came after."""
        stored = self.stored
        if stored is None or stored.live_snapshot_state != SnapshotState.DONE:
            return None
        return stored.live_started_at_ms


def _without_stream(table: TableDescription) -> SourceIdentity:
    """Rows that come from scans alone belong to no stream, whether the table has one or not."""
    return replace(table.identity(), stream_arn=None)
