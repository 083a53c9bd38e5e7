"""The log of a pipeline as this process has applied it: the one way by which rows change.

Owns `apply(segment)`, which is the same for a follower, a recovery and a promotion, and for the
leader the order of a commit: the segment is durable, then one DuckDB transaction holds what it says
and its index, then the offset rows show it. Must not know who leads, or why.

What failed on the way is kept and goes on from there before anything else is committed: a segment
whose PUT was not answered, one that DuckDB had no memory for, rows that the table did not take.
Writer's lock, but for the properties.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import duckdb
import pyarrow.compute as pc
import structlog

from accelerator import failpoints
from accelerator.batch import Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import LogRefused, NotLeading
from accelerator.log_place import LogPlace, has_rows, make_table, read_place, write_place
from accelerator.outcome import Applied
from accelerator.segment import BaseParts, SegmentFile, kind_of
from accelerator.spec import DatasetSpec
from accelerator.stored import stored_progress
from checkpoints.clock import Clock
from checkpoints.commit import Committed
from checkpoints.errors import CheckpointError, Corrupt, Fenced, LogCorrupt, StoreError
from checkpoints.guard import Guard
from checkpoints.keys import PipelineKey
from checkpoints.object_store import ObjectStore
from checkpoints.offsets import Index, OffsetStore
from checkpoints.progress import NO_PROGRESS, DatasetProgress, fold, rows_of
from checkpoints.segment import SegmentHeader, SegmentKind
from checkpoints.segment_log import GENESIS, Head, Segment, SegmentLog, SegmentWriter, Tip
from connector.cluster import events
from connector.cluster.logged_dataset import LoggedDataset

PATIENCE_S: Final = 3.0
"""How long a PUT without an answer is repeated before the writer's lock is let go."""

ROWS_AGAIN_S: Final = 5.0
"""Where nothing waits for the offset rows, so long after a failure they are tried again."""

Log = SegmentLog[Batch | BaseParts]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Step:
    """What is being committed. `is_durable`: its segment is in the log."""

    header: SegmentHeader
    batch: Batch | None
    is_durable: bool = False


class PipelineLog:
    """The log of one pipeline over one data file.

    tip                the last segment in the rows
    newest_created_ms  AWS time of the youngest change in them
    stamp_ms           what rows are stamped with while a segment is carried out
    applied_bytes      of segments that were read from the log and applied by this process
    events             how often something but rows and positions changed
    """

    def __init__(
        self,
        database: Database,
        pipeline: PipelineKey,
        store: ObjectStore,
        clock: Clock,
        *,
        writer: str,
        rows: OffsetStore | None = None,
        rows_are_required: bool = False,
        now_ms: Callable[[], int | None] = lambda: None,
        patience_s: float = PATIENCE_S,
        rows_at_once: int = 1,
    ) -> None:
        self.pipeline = pipeline
        self.store = store
        self.file = SegmentFile()
        self.segments: Log = SegmentLog(store, pipeline, self.file, writer=writer)
        self.writer_name = writer
        self.tip: Tip = GENESIS
        self.newest_created_ms: int | None = None
        self.stamp_ms: int | None = None
        self.applied_bytes = 0
        self.events = 0
        self._database = database
        self._clock = clock
        self._rows = rows
        self._rows_are_required = rows_are_required
        self.now_ms = now_ms
        self._patience_s = patience_s
        self._rows_at_once = rows_at_once
        self._datasets: dict[str, LoggedDataset] = {}
        self._writer: SegmentWriter[Batch | BaseParts] | None = None
        self._guard: Guard | None = None
        self._step: _Step | None = None
        self._unpublished: list[DatasetProgress] = []
        self._unpublished_at: Committed | None = None
        self.rows_error: CheckpointError | None = None
        self._publish_due_s = float("-inf")

    # What is there

    def take(self, dataset: LoggedDataset) -> None:
        """A dataset of the settings; those that only the log knows are made when it names them."""
        self._datasets.setdefault(dataset.spec.name, dataset)

    def load(self) -> None:
        """Reads where the file stands: at the start, and again after it was reopened.

        Raises:
            LogCorrupt: its rows belong to another pipeline.
        """
        with self._database.translated():
            make_table(self._database.writer)
            place = read_place(self._database.writer)
        if place is not None and place.pipeline != self.pipeline.pk:
            raise LogCorrupt(
                f"The data file follows the log of pipeline {place.pipeline}.",
                hint="Give this pipeline another data_dir, or set tenant, workspace and pipeline "
                "back.",
            )
        self.tip = GENESIS if place is None else place.tip
        self.newest_created_ms = None if place is None else place.newest_created_ms
        for dataset in self._datasets.values():
            dataset.load()

    @property
    def has_rows(self) -> bool:
        """Whether the file holds a dataset already."""
        with self._database.translated():
            return has_rows(self._database.writer)

    @property
    def is_leading(self) -> bool:
        return self._writer is not None and self._guard is not None and not self._guard.is_fenced()

    @property
    def epoch(self) -> int | None:
        """Of the leader that this is; None for others."""
        return None if self._guard is None else self._guard.epoch

    @property
    def may_read(self) -> bool:
        """Whether the source may be read on: it is ours, and nothing that was committed waits."""
        if not self.is_leading:
            return False
        return not (self._rows_are_required and self._unpublished_at is not None)

    @property
    def is_blocked(self) -> bool:
        """Whether something is committed in part, and `finish` has to go on with it."""
        return self._step is not None or (
            self._rows_are_required and self._unpublished_at is not None
        )

    def head(self) -> Head:
        """The tip with the progress that holds there, by the rows: no other positions are kept."""
        progress = NO_PROGRESS
        for name in self._names():
            one = stored_progress(self._database, name)
            if one is not None:
                progress = fold(progress, [one])
        return Head(self.tip, progress)

    # Every node

    def apply(self, segment: Segment) -> Applied | None:
        """Carries a segment out, exactly once: one that is in the rows already changes nothing.

        Raises:
            LogCorrupt: it does not continue what is applied.
            AcceleratorError: nothing of it is applied.
        """
        header = segment.header
        if header.index <= self.tip.index:
            return None
        if header.index != self.tip.index + 1 or header.prev_sha256 != self.tip.sha256:
            raise LogCorrupt(f"Segment {header.index} does not follow segment {self.tip.index}.")
        if header.epoch < self.tip.epoch:
            raise LogCorrupt(f"Segment {header.index} is of a lower epoch than the one before it.")
        self.applied_bytes += len(segment.data)
        return self._carry_out(header, self.file.batch(header, segment.data), segment.tip)

    # The leader

    def lead(self, guard: Guard) -> None:
        """Claims the log under this permission: the fence goes in, behind whatever came before.

        Raises:
            Fenced: a higher epoch was there.
            CheckpointError, AcceleratorError: call it again.
        """
        if self._writer is None or self._guard is not guard:
            self._guard = guard
            self._step = None
            self._unpublished, self._unpublished_at = [], None
            self._writer = SegmentWriter(
                self.store,
                self.segments,
                self.pipeline,
                self.file,
                self._clock,
                guard,
                writer=self.writer_name,
                head=self.head(),
                patience_s=self._patience_s,
            )
        writer = self._writer
        while not writer.is_active:
            found = writer.claim()
            if isinstance(found, Segment):
                self._writer = None  # until it is applied: the next call reads the log again
                self.apply(found)
                self._writer = writer
        if self.tip != writer.head.tip:
            fence = SegmentHeader(
                self.pipeline.pk,
                writer.head.tip.index,
                guard.epoch,
                self.writer_name,
                self.tip.sha256,
                SegmentKind.FENCE,
            )
            self._carry_out(fence, None, writer.head.tip)

    def reconcile(self) -> None:
        """Brings every row to the head, so that from here on older epochs are refused.

        Raises:
            CheckpointError: call it again.
        """
        if self._rows is None:
            return
        self._unpublished = list(self.head().progress.values())
        self._unpublished_at = self.tip.committed
        self._publish()

    def follow(self) -> None:
        """Ends the leading. What was not acknowledged is dropped: it is in the log or nowhere."""
        self._writer, self._guard, self._step = None, None, None
        self._unpublished, self._unpublished_at, self.rows_error = [], None, None

    def commit(self, dataset: Dataset, batch: Batch, progress: DatasetProgress) -> Applied:
        """Appends a batch and applies it.

        Raises:
            NotLeading: for good; what became of it is in the log.
            LogRefused: the log or the offset rows cannot be written now; it goes on by `finish`.
            AcceleratorError: it is durable and not applied; it goes on by `finish`.
        """
        newest = pc.max(batch.changes.column("created_at")).as_py()
        header = self._header(dataset, kind_of(batch), progress, newest_created_ms=newest)
        return self._commit(header, batch)

    def happen(self, dataset: Dataset, event: events.Event, progress: DatasetProgress) -> None:
        """Appends an event and carries it out. Raises as `commit`."""
        self.finish()
        text = events.encoded(event)
        header = self._header(dataset, SegmentKind.EVENT, progress, event=text)
        self._commit(header, None)

    def finish(self) -> Applied:
        """Goes on with what is committed in part. Raises as `commit`."""
        applied = Applied()
        if self._step is not None:
            applied = self._go_on()
        if self._unpublished_at is not None:
            self._publish_or_raise()
        return applied

    # Inside

    def _names(self) -> list[str]:
        with self._database.translated():
            found = self._database.writer.execute(
                "SELECT DISTINCT dataset FROM dynaduck.generations ORDER BY dataset"
            ).fetchall()
        return [name for (name,) in found]

    def _dataset(self, name: str) -> LoggedDataset:
        found = self._datasets.get(name)
        if found is None:
            # Not in the settings, and in the log all the same: kept, so that a node whose settings
            # do name it can start from a base of this one.
            found = LoggedDataset(
                self._database,
                DatasetSpec(name),
                self,
                now_ms=self.now_ms,
                monotonic_s=self._clock.monotonic_s,
            )
            found.load()
        return found

    def _header(
        self,
        dataset: Dataset,
        kind: SegmentKind,
        progress: DatasetProgress,
        *,
        newest_created_ms: int | None = None,
        event: str | None = None,
    ) -> SegmentHeader:
        return SegmentHeader(
            self.pipeline.pk,
            self.tip.index + 1,
            self.epoch or 0,
            self.writer_name,
            self.tip.sha256,
            kind,
            dataset.spec.name,
            (progress,),
            newest_created_ms=newest_created_ms,
            at_ms=self.now_ms(),
            event=event,
        )

    def _commit(self, header: SegmentHeader, batch: Batch | None) -> Applied:
        writer = self._writer
        if writer is None or self._guard is None:
            raise NotLeading("This node follows: only the leader changes rows.")
        fenced_by = self._guard.fenced_by()
        if fenced_by is not None:
            raise NotLeading(fenced_by)
        failpoints.hit("before_segment")
        self._step = _Step(header, batch)
        try:
            writer.append(
                header.kind,
                header.dataset or "",
                batch,
                header.progress[0],
                newest_created_ms=header.newest_created_ms,
                at_ms=header.at_ms,
                event=header.event,
            )
        except CheckpointError as error:
            self._refused(writer, error)
        self._step.is_durable = True
        failpoints.hit("after_segment")
        return self._go_on()

    def _refused(self, writer: SegmentWriter[Batch | BaseParts], error: CheckpointError) -> None:
        """Raises what the caller may know of it."""
        if isinstance(error, Fenced | Corrupt):
            self._step = None
            if self._guard is not None:
                self._guard.fence(error.message)
            raise NotLeading(error.message, hint=error.hint or None) from error
        if not writer.is_in_doubt:
            self._step = None
        raise LogRefused(
            error.message, hint=error.hint, code=error.code, needs_person=error.needs_person
        ) from error

    def _go_on(self) -> Applied:
        step, writer = self._step, self._writer
        if step is None or writer is None:
            raise NotLeading("This node follows: only the leader changes rows.")
        if not step.is_durable:
            try:
                writer.settle()
            except CheckpointError as error:
                self._refused(writer, error)
            step.is_durable = True
        tip = writer.head.tip
        applied = Applied()
        if tip.index > self.tip.index:
            applied = self._carry_out(step.header, step.batch, tip)
        self._step = None
        failpoints.hit("after_apply")
        if self._rows is not None:
            self._unpublished += step.header.progress
            self._unpublished_at = tip.committed
            self._publish_or_raise()
        return applied

    def _carry_out(self, header: SegmentHeader, batch: Batch | None, tip: Tip) -> Applied:
        newest = [ms for ms in (self.newest_created_ms, header.newest_created_ms) if ms is not None]
        place = LogPlace(self.pipeline.pk, tip, max(newest, default=None))
        stamped = False

        def stamp(cursor: duckdb.DuckDBPyConnection) -> None:
            nonlocal stamped
            write_place(cursor, place)
            stamped = True

        self._database.before_commit, self.stamp_ms = stamp, header.at_ms
        try:
            applied = Applied()
            if header.dataset is not None:
                applied = self._dataset(header.dataset).carry_out(header, batch)
            if not stamped:
                with self._database.transaction():
                    pass
        finally:
            self._database.before_commit, self.stamp_ms = None, None
        self.tip, self.newest_created_ms = place.tip, place.newest_created_ms
        has_news = any(progress.gaps for progress in header.progress) or applied.dead_letters
        if header.kind is SegmentKind.EVENT or has_news:
            self.events += 1
        return applied

    def _publish_or_raise(self) -> None:
        if not self._rows_are_required and self._clock.monotonic_s() < self._publish_due_s:
            return
        try:
            self._publish()
        except Fenced as error:
            raise NotLeading(error.message) from error
        except CheckpointError as error:
            if self._rows_are_required:
                raise LogRefused(
                    f"The offset rows do not show segment {self.tip.index} yet: {error.message}",
                    hint=error.hint,
                    code="offsets_unpublished",
                    needs_person=error.needs_person,
                ) from error
            self._publish_due_s = self._clock.monotonic_s() + ROWS_AGAIN_S
            if not isinstance(error, StoreError):
                log.warning("an offset row is wrong", error=error.message, hint=error.hint)

    def _publish(self) -> None:
        rows, committed, guard = self._rows, self._unpublished_at, self._guard
        if rows is None or committed is None or guard is None:
            return
        try:
            guard.require(guard.epoch)
            self._publish_all(rows, committed, rows_of(_folded(self._unpublished)))
            guard.require(guard.epoch)
        except CheckpointError as error:
            self.rows_error = error
            raise
        failpoints.hit("after_publish")
        self._unpublished, self._unpublished_at, self.rows_error = [], None, None

    def _publish_all(self, rows: OffsetStore, committed: Committed, index: Index) -> None:
        """Each row is two requests, and a commit waits for all of them."""
        if self._rows_at_once == 1:
            rows.publish(committed, index)
            return
        with ThreadPoolExecutor(self._rows_at_once, "rows") as pool:
            outcomes = [pool.submit(rows.publish, committed, one) for one in _single(index)]
            try:
                for outcome in outcomes:
                    outcome.result()
            except CheckpointError:
                pool.shutdown(cancel_futures=True)
                raise


def _single(index: Index) -> list[Index]:
    """Each row by itself: they do not depend on each other."""
    offsets = [Index({key: value}, {}) for key, value in index.offsets.items()]
    return offsets + [Index({}, {key: value}) for key, value in index.checkpoints.items()]


def _folded(deltas: list[DatasetProgress]) -> list[DatasetProgress]:
    """One for each dataset: a row that several commits changed is written once, as of the last."""
    if len(deltas) == 1:
        return [replace(deltas[0], forgotten=())]
    return list(fold(NO_PROGRESS, deltas).values())
