"""What keeping a dataset takes, whichever way its rows come.

Owns what the service, the report and the commands see of a dataset: pause and resume, the verdict
and how it is told, what is stored, counting, and the retry of whatever failed. How the rows come is
its two kinds' business: `connector.replication` follows the stream, `connector.full_refresh` scans
again and again. Whatever writes to the file holds the writer's lock.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

import structlog

from accelerator.batch import Batch
from accelerator.dataset import Dataset
from accelerator.errors import AcceleratorError, DatabaseInvalidated
from accelerator.outcome import Applied, SnapshotState, StoredDataset
from accelerator.spec import Poison
from checkpoints.positions import SnapshotSegment
from connector.cluster.view import NodeView, following
from connector.config import Dataset as Settings
from connector.cost import Cost, CostMeter
from connector.course import Course, Surroundings
from connector.errors import DynaduckError, NotTheLeader, Retry, SourceError
from connector.health import Facts, Health, HealthMonitor, Limits, Loading
from connector.reasons import Trouble
from connector.retry import BACKOFF
from connector.snapshot.scanner import Scanner, new_segments, segments_for
from connector.source import TableDescription
from connector.spec import history_of
from metrics.recorder import DatasetRecorder

SAME_SECOND_MS: Final = 1000  # the Date header is cut to seconds, so the start was within the next

log = structlog.get_logger(__name__)


class Standing(Protocol):
    """What a dataset asks of the node that it is on, where there are others."""

    @property
    def may_read(self) -> bool:
        """Whether table and stream may be read now."""

    @property
    def is_following(self) -> bool:
        """Whether the rows come by the log alone."""

    def view(self) -> NodeView: ...


class Upkeep(ABC):
    """One dataset being kept.

    course     what is followed now; None while nothing is
    cost       what reading costs a day; None while there is too little to go by
    health     the newest verdict
    refusal    why the service must not start because of this dataset
    stored     what is durably known, as of the last look
    copy_error the newest copy could not be published; set by whoever publishes
    """

    def __init__(
        self,
        around: Surroundings,
        writing: threading.RLock,
        recorder: DatasetRecorder,
        *,
        draw: Callable[[], float],
    ) -> None:
        self.name = around.settings.name
        self.course: Course | None = None
        self.refusal: DynaduckError | None = None
        self.stored: StoredDataset | None = None
        self.copy_error: Exception | None = None
        self._around = around
        self._writing = writing
        self._recorder = recorder
        self._draw = draw
        self._monitor = HealthMonitor(Limits.of(around.settings.ready_lag_s), around.retention)
        self._refresh_asked = threading.Event()
        self._paused = threading.Event()
        self._stopping = threading.Event()
        self.cost: Cost | None = None
        self._meter = CostMeter()
        self._adjusted: Settings | None = None
        self._failures = 0
        self._failing_since_s: float | None = None
        self._start_error: Exception | None = None
        self._start_due_s = float("-inf")
        self._started_ms: int | None = None
        self._items_estimated: int | None = None
        self._dead_letters = 0
        self._told: tuple[str, ...] | None = None
        self._cluster: Standing | None = None
        self.health = self.judge(0.0)

    # How the rows come

    @abstractmethod
    def poll(self, now_s: float) -> float | None:
        """Reads a page of the stream, if there is one to read; any thread."""

    @abstractmethod
    def scan(self, now_s: float) -> float | None:
        """Reads a page of the table, if one is wanted; any thread."""

    @abstractmethod
    def control(self, now_s: float) -> float | None:
        """One decision or request; the control thread."""

    @abstractmethod
    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        """What is queued, for the writer."""

    @abstractmethod
    def refused(self, group: Sequence[Batch], error: AcceleratorError) -> bool:
        """Whether the group is given up: it is wrong, so reading starts over from the rows."""

    @abstractmethod
    def _facts(self) -> Facts:
        """What the verdict rests on, but for what the service adds."""

    @property
    @abstractmethod
    def scanner(self) -> Scanner | None:
        """The scan that is under way."""

    @property
    @abstractmethod
    def queued_bytes(self) -> int: ...

    @property
    @abstractmethod
    def is_drained(self) -> bool: ...

    @abstractmethod
    def has_passed(self, at_ms: int) -> bool:
        """Whether the rows that are served hold every change up to this AWS time."""

    @property
    def has_caught_up(self) -> bool:
        """Whether the rows hold every change up to the start of this process."""
        began_ms = self._started_ms
        return began_ms is not None and self.has_passed(began_ms + SAME_SECOND_MS)

    @property
    @abstractmethod
    def covered_until_ms(self) -> int | None:
        """AWS time before which every change is in the rows that are served; None: unproved."""

    @property
    def items_estimated(self) -> int | None:
        """What DescribeTable said, up to six hours old."""
        return self._items_estimated

    # By hand

    @property
    def settings(self) -> Settings:
        return self._around.settings

    @property
    def dataset(self) -> Dataset:
        return self._around.dataset

    def refresh(self) -> None:
        """Loads the table anew beside the data that is served, at the next control step."""
        self.refuse_following()
        self._refresh_asked.set()

    def adjust(self, settings: Settings) -> None:
        """Other values of settings that may change while it runs, from the next control step on."""
        self._adjusted = settings
        self._monitor.limits = Limits.of(settings.ready_lag_s)

    def _take_settings(self) -> None:
        """By the control thread, which alone begins courses and scans."""
        settings, self._adjusted = self._adjusted, None
        if settings is not None:
            with self._writing:
                self.dataset.adjust(
                    poison=Poison(settings.poison.value), history=history_of(settings)
                )
            self._follow_settings(replace(self._around, settings=settings))

    def _follow_settings(self, around: Surroundings) -> None:
        """What each kind changes besides."""
        self._around = around

    def pause(self) -> None:
        self.refuse_following()
        self._paused.set()

    def resume(self) -> None:
        self.refuse_following()
        self._paused.clear()

    # Beside other nodes

    def attach(self, cluster: Standing) -> None:
        """From here on the source is read only while this node may."""
        self._cluster = cluster

    def refuse_following(self) -> None:
        """Raises NotTheLeader where the rows come by the log alone."""
        if self._cluster is not None and self._cluster.is_following:
            leader = self._cluster.view().leader
            raise NotTheLeader(
                f"This node follows: only the leader ({leader or 'none is known'}) does this."
            )

    def observe(self, date_ms: int) -> None:
        """AWS's time, from whichever of its services answered."""
        self._around.aws_time.observe(date_ms)

    def stand_by(self) -> None:
        """Ends all reading and drops what is queued: another node reads on."""
        with self._writing:
            self._drop_reading()
        self._recovered()

    def look(self) -> None:
        """What is stored is another now: the log has brought it."""
        self._reload()

    @abstractmethod
    def _drop_reading(self) -> None:
        """Writer's lock."""

    def stop(self) -> None:
        """Nothing more is read; what is queued may still be applied."""
        self._stopping.set()

    @property
    def is_paused(self) -> bool:
        return self._paused.is_set()

    @property
    def _is_reading(self) -> bool:
        if self._paused.is_set() or self._stopping.is_set():
            return False
        return self._cluster is None or self._cluster.may_read

    # The writer's lane

    def apply(self, group: Sequence[Batch]) -> Applied:
        return self.dataset.apply(group)

    def committed(self, group: Sequence[Batch], applied: Applied) -> None:
        self._settle_tickets(group)
        self._count(applied)
        self._around.journal.applied(group, applied)
        if self._around.rows is not None and applied.wrote:
            self._around.rows.committed()

    def _settle_tickets(self, group: Sequence[Batch]) -> None:
        for batch in group:
            if batch.scan_ticket is not None:
                self.dataset.close_scan_ticket(batch.scan_ticket)

    def _count(self, applied: Applied) -> None:
        if not applied.wrote:
            return
        self._recorder.applied(applied.operations, seconds=applied.duration_s)
        self._recorder.snapshot_items(applied.operations.get("snapshot", 0))
        if applied.dead_letters:
            self._recorder.dead_letters(applied.dead_letters)
            self._dead_letters += applied.dead_letters
        if applied.columns_widened:
            self._recorder.columns_widened(len(applied.columns_widened))
        if applied.numbers_as_text:
            self._recorder.numbers_as_text(applied.numbers_as_text)

    # The observer of readers and scanner

    def page_read(self, _shard_id: str, records: int, _nbytes: int, /) -> None:
        if records:
            self._recorder.records_consumed(records)

    def call_failed(self, _shard_id: str | None, error: Exception, /) -> None:
        if isinstance(error, SourceError) and error.retry is Retry.BACKOFF:
            self._recorder.transient_error()

    # Health

    def judge(
        self,
        now_s: float,
        *,
        commit_error: Exception | None = None,
        failed_loops: tuple[str, ...] = (),
    ) -> Health:
        """The verdict now; any thread, one at a time."""
        cluster = self._cluster
        if cluster is not None and cluster.is_following and not self._stopping.is_set():
            shards = self.dataset.shard_rows()
            self.health = following(cluster.view(), self.stored, shards)
            return self.health
        note = None if self._around.rows is None else self._around.rows.note()
        facts = replace(
            self._facts(),
            notes=() if note is None else (note,),
            open_dead_letters=self._dead_letters,
            commit_error=commit_error,
            copy_error=self.copy_error,
            failed_loops=failed_loops,
            is_paused=self._paused.is_set(),
            is_stopping=self._stopping.is_set(),
        )
        self.health = self._monitor.judge(facts, now_s)
        return self.health

    def tell(self) -> None:
        """Shows the newest verdict to metrics and, if the writer is free, in dynaduck.datasets."""
        health, told = self.health, self._recorder
        self._estimate()
        told.state(health.state.value)
        told.ready(health.is_ready)
        told.lag(sum_ms=health.lag_sum_ms, max_ms=health.lag_max_ms)
        told.shards_active(health.shards_active)
        headroom_ms = health.headroom_ms
        told.retention_headroom(None if headroom_ms is None else headroom_ms / 1000)
        now_ms, covered_ms = self._around.aws_time.now_ms(), self.covered_until_ms
        if now_ms is not None and covered_ms is not None:
            told.checkpoint_age(max(0, now_ms - covered_ms) / 1000)
        told.queue_bytes(self.queued_bytes)
        told.dead_letters_open(self._dead_letters)
        if self.stored is not None:
            told.gaps_open(len(self.stored.open_gaps))
        told.snapshot_progress(self._snapshot_ratio())
        reason = "; ".join(reason.sentence for reason in health.reasons) or None
        # By codes: sentences hold figures that change all the time, and each change is a commit.
        verdict = (health.state.value, *(reason.code for reason in health.reasons))
        if verdict != self._told and self.stored is not None:
            self._store_verdict(verdict, reason)

    def _estimate(self) -> None:
        calls, units = self._recorder.spent()
        now_s = self._around.clock.monotonic_s()
        cost = self._meter.saw(now_s, get_records=calls, read_units=units)
        self.cost = cost
        self._recorder.cost(
            get_records=None if cost is None else cost.get_records_usd_per_day,
            scan=None if cost is None else cost.scan_usd_per_day,
        )

    def _store_verdict(self, verdict: tuple[str, ...], reason: str | None) -> None:
        is_invalid = False
        if self._writing.acquire(blocking=False):
            try:
                self.dataset.mark_status(verdict[0], reason)
                self._told = verdict
            except AcceleratorError as error:
                log.warning("the status was not stored", dataset=self.name, error=str(error))
                is_invalid = isinstance(error, DatabaseInvalidated)
            finally:
                self._writing.release()
        if is_invalid:
            self._around.reopen()

    def _snapshot_ratio(self) -> float | None:
        """Segments done of all; of one that is under way nobody knows how long it is."""
        stored, scanner = self.stored, self.scanner
        if stored is None or not stored.segments:
            return None
        segments = stored.segments if scanner is None else scanner.progress().segments
        return sum(segment.done for segment in segments) / len(segments)

    def _failing(self) -> list[Trouble]:
        if self._start_error is None or self._failing_since_s is None:
            return []
        return [Trouble.of(self._start_error, self._failing_since_s)]

    @property
    def aws_now_ms(self) -> int | None:
        return self._around.aws_time.now_ms()

    @property
    def open_dead_letters(self) -> int:
        return self._dead_letters

    @property
    def started_ms(self) -> int | None:
        """AWS time of the first answer in this process."""
        return self._started_ms

    @staticmethod
    def _loading(stored: StoredDataset | None) -> Loading:
        if stored is None:
            return Loading.SCANNING
        match stored.live_snapshot_state:
            case SnapshotState.RUNNING:
                return Loading.SCANNING
            case SnapshotState.SCANNED:
                return Loading.PASSING
            case _:
                return Loading.DONE

    @property
    def _is_loaded(self) -> bool:
        return self._loading(self.stored) is Loading.DONE

    @property
    def _is_loading(self) -> bool:
        states = (SnapshotState.RUNNING, SnapshotState.SCANNED)
        return self.stored is not None and self.stored.snapshot_state in states

    # Failing and trying again

    def _failed(self, error: Exception, now_s: float) -> None:
        self._failures += 1
        self._start_error = error
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        wait_s = BACKOFF.delay_s(self._failures - 1, self._draw())
        self._start_due_s = self._around.clock.monotonic_s() + wait_s
        if isinstance(error, SourceError):
            self.call_failed(None, error)
        if isinstance(error, DatabaseInvalidated):
            self._around.reopen()
        log.warning(
            "a step of the dataset failed and is tried again",
            dataset=self.name,
            error=str(error),
            hint=getattr(error, "hint", ""),
            wait_s=round(wait_s, 3),
        )

    def _recovered(self) -> None:
        self._failures = 0
        self._start_error = None
        self._failing_since_s = None
        self._start_due_s = float("-inf")

    # What is stored

    def _reload(self) -> StoredDataset | None:
        with self._writing:
            self.stored = self.dataset.load()
            self.count_dead_letters()
        return self.stored

    def count_dead_letters(self) -> None:
        with self._writing:
            self._dead_letters = self.dataset.open_dead_letters()

    def _write(self, write: Callable[[], object]) -> None:
        with self._writing:
            write()
            self._reload()

    def _segments(self, table: TableDescription) -> tuple[SnapshotSegment, ...]:
        return new_segments(self.settings.scan_segments or segments_for(table))
