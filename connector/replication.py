"""One dataset's life: from the first look at its table to the last commit.

Owns which course is followed, carries out what `connector.recovery` decides, and gathers the facts
that `connector.health` judges. The control loop calls `control`; pollers and scanners call `poll`
and `scan`; the writer thread uses the Lane methods. Whatever writes to the file holds the writer's
lock. Must not know threads, HTTP, or other datasets.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from accelerator.batch import Batch, empty_changes
from accelerator.errors import AcceleratorError, NotLeading, ScanTicketExpired, UnknownShard
from accelerator.outcome import Applied, SnapshotState, StoredDataset
from checkpoints.positions import Gap
from checkpoints.progress import DatasetProgress
from connector.course import Course, Surroundings
from connector.errors import DynaduckError, SourceError, StartRefused, TableNotFound
from connector.examine.first_contact import check_access
from connector.health import Facts
from connector.reasons import Reason, Trouble
from connector.recovery import (
    SENTENCES,
    AtStart,
    Cause,
    Drain,
    FirstStart,
    Halt,
    OnLoss,
    Policy,
    Refresh,
    RefreshCause,
    Refuse,
    Reinitialize,
    Resume,
    Stored,
    StreamOnly,
    Wait,
    continues,
    decide_gaps,
    decide_start,
    decide_stream,
    unusable_stream,
)
from connector.snapshot.scanner import Scanner
from connector.source import TableDescription
from connector.upkeep import Upkeep
from metrics.recorder import DatasetRecorder

CONTROL_EVERY_S: Final = 0.2
FORGET_EVERY_S: Final = 300.0
RESOLVED_BY_REINITIALIZING: Final = "reinitialized"
ACCEPTED_WITHOUT_SNAPSHOT: Final = "accepted: initial_snapshot is disabled"
WHOLE_STREAM: Final = "*"  # dynaduck.gaps.shard_id where a gap is not one shard's

log = structlog.get_logger(__name__)


class Replication(Upkeep):
    """One dataset being kept equal to its table by following its stream."""

    def __init__(
        self,
        around: Surroundings,
        policy: Policy,
        writing: threading.RLock,
        recorder: DatasetRecorder,
        *,
        draw: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._gaps: deque[Gap] = deque()
        self._halted: Reason | None = None
        self._rebuild_cause: str | None = None
        self._waits_for: Trouble | None = None
        self._forget_due_s = 0.0
        self._table_gone_since_s: float | None = None
        super().__init__(around, writing, recorder, draw=draw)

    # Steps

    def poll(self, now_s: float) -> float | None:
        course = self.course
        return course.poll(now_s) if course is not None and self._is_reading else None

    def scan(self, now_s: float) -> float | None:
        course = self.course
        return course.scan(now_s) if course is not None and self._is_reading else None

    def control(self, now_s: float) -> float | None:
        """Starts, watches for losses, settles the snapshot, lists the shards. At most one request
        or decision at a time; when to call again.
        """
        self._take_settings()
        if not self._is_reading or now_s < self._start_due_s:
            return None
        course = self.course
        if course is None:
            is_halted = self._halted is not None and not self._refresh_asked.is_set()
            return None if is_halted else self._start(now_s)
        if course.reader.fault is not None:
            self._start_over("the reader met a defect", course.reader.fault)
            return now_s
        try:
            self._settle_losses(now_s)
            self._settle_snapshot()
            self._refresh_by_hand()
            self._forget_finished(now_s)
        except AcceleratorError as error:
            # Part of a step may be committed: what is stored says which.
            self._start_over("a step of the dataset was not stored", error)
            self._failed(error, now_s)
            return None
        except SourceError as error:
            self._failed(error, now_s)
            return None
        self._recovered()
        due_s = course.discovery.step(now_s) if course is self.course else now_s
        return now_s + CONTROL_EVERY_S if due_s is None else min(due_s, now_s + CONTROL_EVERY_S)

    def _follow_settings(self, around: Surroundings) -> None:
        super()._follow_settings(around)
        settings = around.settings
        before = self._policy
        self._policy = replace(before, invalid_checkpoint=settings.invalid_checkpoint_behavior)
        if self.course is not None:
            self.course.adjust(around)
        if self._policy != before:
            self._halted = None  # what was halted is decided again, as at a start

    # Starting

    def _start(self, now_s: float) -> float:
        try:
            self._look_and_decide(now_s)
        except (DynaduckError, AcceleratorError) as error:
            self._failed(error, now_s)
            is_first = self.stored is None and getattr(error, "needs_person", False)
            if is_first or isinstance(error, StartRefused):
                self.refusal = error if isinstance(error, DynaduckError) else None
            return self._start_due_s
        self.refusal = None
        self._recovered()
        return self._around.clock.monotonic_s()

    def _look_and_decide(self, now_s: float) -> None:
        self._reload()
        table = self._around.source.describe_table()
        self._around.aws_time.observe(table.at_ms)
        self._started_ms = self._started_ms or table.at_ms
        self._items_estimated = table.item_count
        if self._halted is not None:
            self._refresh_asked.clear()
            self._reinitialize(Cause(self._halted.code), table, now_s)
            return
        if self.stored is not None and _came_from_scans(self.stored):
            unusable = unusable_stream(table)
            if unusable is not None:
                raise unusable
            self._load_beside(table, now_s)
            self._rebuild_cause = "the rows came from full refreshes, which no stream continues"
            return
        decision = decide_start(
            self._as_found(), table, self._policy, self.dataset.spec.fingerprint, table.at_ms
        )
        log.info("start decided", dataset=self.name, decision=type(decision).__name__)
        self._carry_out(decision, table, now_s)

    def _carry_out(self, decision: AtStart, table: TableDescription, now_s: float) -> None:
        match decision:
            case Refuse(error):
                raise error
            case FirstStart():
                self._first_start(table, now_s, scans=True)
            case StreamOnly(None):
                self._first_start(table, now_s, scans=False)
            case Wait(error):
                raise error
            case Reinitialize(cause, True):
                self._follow(now_s, rebuild=cause)
            case StreamOnly() | Halt() | Reinitialize():
                self._after_loss(decision, table, now_s)
            case Drain():
                self._follow(now_s)
                self._look_at_table_now()
            case Resume():
                if self.stored is not None and self.stored.shadow_generation is not None:
                    self._write(self.dataset.drop_shadow)
                self._follow(now_s)
            case Refresh(cause, resumes):
                self._follow(now_s)
                if not resumes:
                    self._fill_shadow(cause, table)

    def _first_start(self, table: TableDescription, now_s: float, *, scans: bool) -> None:
        if self.stored is None:
            consistent = self.settings.scan_consistent_read
            check_access(self._around.source, table, scans=scans, consistent=consistent)
        rows = self._around.rows
        recalled = None if rows is None else rows.recall(self.name)
        if recalled is not None and not scans and continues(recalled, table):
            self._begin_at(recalled, table)
            self._look_and_decide(now_s)
            return
        if recalled is not None:
            log.warning(
                "the offset rows show a copy that this disk does not hold: it begins anew",
                dataset=self.name,
                takes_snapshot=scans,
            )
        self._write(
            lambda: self.dataset.begin(
                table.identity(),
                origin_ms=table.at_ms,
                shards=(),
                segments=self._segments(table) if scans else (),
                shadow=False,
                positions_generation=None,
                snapshot=scans,
                above=0 if recalled is None else recalled.generation,
            )
        )
        self._follow(now_s)

    def _begin_at(self, recalled: DatasetProgress, table: TableDescription) -> None:
        """The file is gone and no snapshot is wanted: no change from here on need be lost too."""
        lost = Gap(
            WHOLE_STREAM,
            None,
            Cause.DISK_LOST.value,
            table.at_ms,
            resolution=ACCEPTED_WITHOUT_SNAPSHOT,
        )
        self._write(
            lambda: self.dataset.begin(
                recalled.source or table.identity(),
                origin_ms=table.at_ms,
                shards=recalled.shards,
                segments=(),
                shadow=False,
                positions_generation=None,
                snapshot=False,
                above=recalled.generation,
                gaps=(lost,),
            )
        )
        self._recorder.gap()
        self._around.journal.loss(Cause.DISK_LOST.value, SENTENCES[Cause.DISK_LOST])
        log.warning("reading goes on where the offset rows say", dataset=self.name)

    def _follow(self, now_s: float, *, rebuild: Cause | None = None) -> None:
        if self.stored is None:
            raise ValueError("nothing is stored that could be followed")
        self._halted = None
        self._rebuild_cause = None if rebuild is None else Reinitialize(rebuild).sentence
        self.course = Course(self._around, self.stored, self, now_s=now_s)
        self._around.ring_readers()

    def _start_over(self, why: str, error: Exception) -> None:
        """Drops what is queued and begins again from the committed rows: nothing is lost by it."""
        log.error("reading starts over", dataset=self.name, why=why, error=repr(error))
        with self._writing:
            if self.course is not None:
                self.course.close()
            self.course = None

    # Losses

    def _settle_losses(self, now_s: float) -> None:
        course = self.course
        if course is None:
            return
        facts = course.discovery.facts
        gaps = tuple(self._gaps)
        decision: OnLoss | None = decide_gaps(
            gaps, facts.table, self._policy, is_loaded=self._is_loaded
        )
        if decision is None:
            decision = decide_stream(
                facts,
                self._policy,
                is_drained=course.reader.is_drained and course.is_drained,
                is_loaded=self._is_loaded,
            )
        match decision:
            case None | Drain():
                self._waits_for = None
            case Wait(error):
                self._waits_for = self._waits_for or Trouble.of(error, now_s)
            case _:
                self._waits_for = None
                self._after_loss(decision, self._around.source.describe_table(), now_s)

    def _after_loss(
        self, decision: StreamOnly | Reinitialize | Halt, table: TableDescription, now_s: float
    ) -> None:
        match decision:
            case Halt(cause):
                self._record_loss(cause)
                self._close_course()
                self._halted = decision.reason
                self._around.journal.loss(cause.value, decision.reason.sentence)
                log.error("reading is halted", dataset=self.name, cause=cause.value)
            case Reinitialize(cause):
                self._reinitialize(cause, table, now_s)
            case StreamOnly(cause, clears):
                self._restart_stream(cause, table, now_s, clears=clears)

    def _reinitialize(self, cause: Cause, table: TableDescription, now_s: float) -> None:
        unusable = unusable_stream(table)
        if unusable is not None:
            raise unusable
        log.warning("the table is loaded anew", dataset=self.name, cause=cause.value)
        self._record_loss(cause)
        self._around.journal.loss(cause.value, Reinitialize(cause).sentence)
        self._load_beside(table, now_s, rebuild=cause)
        self._recorder.reinitialized()

    def _load_beside(
        self, table: TableDescription, now_s: float, *, rebuild: Cause | None = None
    ) -> None:
        """Begins a shadow with positions of its own; the rows that are served are frozen."""
        with self._writing:
            self._close_course()
            self.dataset.begin(
                table.identity(),
                origin_ms=table.at_ms,
                shards=(),
                segments=self._segments(table),
                shadow=True,
                positions_generation=None,
                snapshot=True,
            )
            self._reload()
        self._follow(now_s, rebuild=rebuild)

    def _look_at_table_now(self) -> None:
        """The new course has not seen the table yet, and what follows the drain depends on it."""
        if self.course is not None:
            self.course.discovery.look_at_table_now()

    def _restart_stream(
        self, cause: Cause | None, table: TableDescription, now_s: float, *, clears: bool
    ) -> None:
        """Reads all that the stream still has, onto the rows as they are: no snapshot is wanted."""
        unusable = unusable_stream(table)
        if unusable is not None:
            raise unusable
        if cause is not None:
            self._record_loss(cause)
        with self._writing:
            self._close_course()
            if clears:
                self.dataset.begin(
                    table.identity(),
                    origin_ms=table.at_ms,
                    shards=(),
                    segments=(),
                    shadow=False,
                    positions_generation=None,
                    snapshot=False,
                )
            else:
                self.dataset.reposition(table.identity(), origin_ms=table.at_ms)
            self.dataset.resolve_gaps(ACCEPTED_WITHOUT_SNAPSHOT)
            self._reload()
        self._recorder.reinitialized()
        self._follow(now_s)

    def _record_loss(self, cause: Cause) -> None:
        """A row of dynaduck.gaps, unless an open one says it already: it holds after a crash."""
        with self._writing:
            self._reload()
            stored = self.stored
            if stored is None or any(gap.cause == cause.value for gap in stored.open_gaps):
                return
            gap = Gap(WHOLE_STREAM, None, cause.value, self._around.aws_time.now_ms() or 0)
            self.dataset.apply([Batch(empty_changes(), stored.positions_generation, gaps=(gap,))])
            self._reload()
        self._recorder.gap()

    def _drop_reading(self) -> None:
        self._close_course()
        self._halted = None
        self._waits_for = None

    def _close_course(self) -> None:
        with self._writing:
            if self.course is not None:
                self.course.close()
            self.course = None
            self._gaps.clear()

    # Snapshots

    def _settle_snapshot(self) -> None:
        course, stored = self.course, self.stored
        if course is None or stored is None:
            return
        if course.scanner is not None and course.scanner.done:
            self._settle_scan(course)
        elif (
            stored.snapshot_state == SnapshotState.SCANNED
            and course.scan_end_ms is not None
            and course.reader.has_passed(course.scan_end_ms)
        ):
            self._settle_load(stored)

    def _settle_scan(self, course: Course) -> None:
        """Every page is read; once all are committed too, the streams have to pass their end."""
        with self._writing:
            stored = self._reload()
            if stored is None or not all(segment.done for segment in stored.segments):
                return
            ended_ms = course.scanner.ended_at_ms if course.scanner is not None else None
            if ended_ms is None:  # all of it was read before this process began
                ended_ms = (self._around.aws_time.now_ms() or 0) + 1000
            self.dataset.mark_snapshot(SnapshotState.SCANNED, scan_ended_at_ms=ended_ms)
            stored = self._reload()
            if stored is not None:
                course.fill(stored)
        log.info("the snapshot is read", dataset=self.name)

    def _settle_load(self, stored: StoredDataset) -> None:
        with self._writing:
            if stored.shadow_generation is None:
                self.dataset.mark_snapshot(SnapshotState.DONE)
            else:
                self.dataset.swap(
                    resolve_gaps=RESOLVED_BY_REINITIALIZING if stored.is_frozen else None
                )
            self._reload()
        self._rebuild_cause = None
        self._around.journal.load_ends(sum(segment.items for segment in stored.segments))
        log.info("the snapshot is complete", dataset=self.name)

    def _refresh_by_hand(self) -> None:
        if self.course is None or not self._refresh_asked.is_set():
            return
        self._refresh_asked.clear()
        if self.stored is None or self._is_loading:
            return  # a snapshot is being taken already
        self._fill_shadow(RefreshCause.BY_HAND, self._around.source.describe_table())

    def _fill_shadow(self, cause: RefreshCause, table: TableDescription) -> None:
        """Loads a shadow from the same positions: the stream feeds both, Ready follows the old."""
        stored, course = self.stored, self.course
        if stored is None or course is None:
            raise ValueError("only what is followed can be refreshed")
        log.info("the table is loaded anew beside the data", dataset=self.name, cause=cause.value)
        with self._writing:
            self.dataset.begin(
                course.identity,
                origin_ms=stored.origin_ms,
                shards=(),
                segments=self._segments(table),
                shadow=True,
                positions_generation=stored.positions_generation,
                snapshot=True,
            )
            self.dataset.mark_snapshot(SnapshotState.RUNNING, started_at_ms=table.at_ms)
            loaded = self._reload()
            if loaded is not None:
                course.fill(loaded)
        self._around.ring_readers()

    def _forget_finished(self, now_s: float) -> None:
        course = self.course
        if course is None or now_s < self._forget_due_s:
            return
        self._forget_due_s = now_s + FORGET_EVERY_S
        shard_ids = course.reader.forgettable()
        if shard_ids:
            with self._writing:
                self.dataset.forget_shards(shard_ids)
            course.reader.forget(shard_ids)

    # The writer's lane

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        course = self.course
        return [] if course is None else course.take(most_bytes, most_batches)

    def committed(self, group: Sequence[Batch], applied: Applied) -> None:
        super().committed(group, applied)
        course = self.course
        if course is not None:
            rows = [
                row
                for batch in group
                if batch.generation == course.positions_generation
                for row in batch.shards
            ]
            if rows:
                course.reader.committed(rows)

    def refused(self, group: Sequence[Batch], error: AcceleratorError) -> bool:
        """Whether the group is given up: it is wrong, so reading starts over from the rows."""
        if not isinstance(error, UnknownShard | ScanTicketExpired | NotLeading):
            return False
        self._settle_tickets(group)
        self._start_over("a batch does not fit what is stored", error)
        return True

    # The observer of readers and scanner

    def gap_found(self, gap: Gap, /) -> None:
        self._gaps.append(gap)
        self._recorder.gap()

    # Health

    def _facts(self) -> Facts:
        course, stored = self.course, self.stored
        return Facts(
            aws_now_ms=self._around.aws_time.now_ms(),
            is_positioned=course is not None and course.reader.is_positioned,
            loading=self._loading(stored),
            shards=[] if course is None else course.reader.views(),
            open_gaps=max(len(self._gaps), 0 if stored is None else len(stored.open_gaps)),
            troubles=tuple(self._troubles(course)),
            halted=self._halted,
            rebuild_cause=self._rebuild_cause,
            is_refreshing=stored is not None
            and stored.shadow_generation is not None
            and not stored.is_frozen,
        )

    @property
    def scanner(self) -> Scanner | None:
        return None if self.course is None else self.course.scanner

    @property
    def queued_bytes(self) -> int:
        course = self.course
        return 0 if course is None else course.queued_bytes

    @property
    def is_drained(self) -> bool:
        course = self.course
        return course is None or course.is_drained

    def has_passed(self, at_ms: int) -> bool:
        """Whether the rows that are served hold every change up to this AWS time."""
        course, stored = self.course, self.stored
        if course is None or stored is None or stored.shadow_generation is not None:
            return False
        return self._is_loaded and course.reader.has_passed(at_ms)

    @property
    def covered_until_ms(self) -> int | None:
        """AWS time before which every change is in the rows that are served; None: unproved."""
        stored = self.stored
        if stored is None or stored.is_frozen or not self._is_loaded:
            return None
        return self.health.covered_until_ms

    def _troubles(self, course: Course | None) -> list[Trouble]:
        troubles = self._failing()
        if self._waits_for is not None:
            troubles.append(self._waits_for)
        if course is None:
            return troubles
        facts = course.discovery.facts
        if not facts.is_table_gone:
            self._table_gone_since_s = None
        else:
            # Its stream stays readable for a day, so that no other call need fail.
            now_s = self._around.clock.monotonic_s()
            self._table_gone_since_s = self._table_gone_since_s or now_s
            gone = TableNotFound(f"The table {self.settings.table} does not exist any more.")
            troubles.append(Trouble.of(gone, self._table_gone_since_s))
        if facts.error is not None and facts.error_since_s is not None:
            troubles.append(Trouble.of(facts.error, facts.error_since_s, where="Listing shards"))
        if course.scanner is not None:
            troubles += [
                Trouble.of(fault.error, fault.since_s, where=f"Segment {fault.segment} of the scan")
                for fault in course.scanner.faults()[:1]
            ]
        return troubles

    # What is stored

    def _as_found(self) -> Stored | None:
        stored = self.stored
        if stored is None:
            return None
        own_shadow = None
        if stored.shadow_generation is not None:
            own_shadow = Stored(
                stored.identity,
                stored.shadow_generation,
                stored.shards,
                is_loaded=False,
                fingerprint=stored.fingerprint or "",
                open_gaps=stored.positions_gaps if stored.is_frozen else (),
            )
        return Stored(
            stored.live_identity,
            stored.generation,
            () if stored.is_frozen else stored.shards,
            is_loaded=self._is_loaded,
            fingerprint=stored.live_fingerprint or "",
            open_gaps=stored.open_gaps,
            shadow=own_shadow,
        )


def _came_from_scans(stored: StoredDataset) -> bool:
    """Rows of `refresh_mode: full`: there are no positions from which a stream could continue."""
    return stored.live_identity.stream_arn is None and not stored.is_frozen
