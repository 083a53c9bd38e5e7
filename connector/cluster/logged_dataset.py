"""A dataset whose changes go through the log first.

Owns the way of each write: what it comes to is settled, put into the log, and only then carried
out here as on every other node. Must not know leases, or how the log is kept. Writer's lock, but
for the scan tickets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from accelerator.batch import Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.dead_letters import DeadLetter
from accelerator.outcome import Applied, SnapshotState
from accelerator.segment import SETTLED_TICKET, progress_of
from accelerator.spec import DatasetSpec
from checkpoints.positions import Gap, ShardCheckpoint, SnapshotSegment, SourceIdentity
from checkpoints.progress import DatasetProgress
from checkpoints.segment import SegmentHeader, SegmentKind
from connector.cluster import events

if TYPE_CHECKING:
    from connector.cluster.pipeline_log import PipelineLog


class LoggedDataset(Dataset):
    """A Dataset over a `PipelineLog`; reads are the Dataset's."""

    def __init__(
        self,
        database: Database,
        spec: DatasetSpec,
        log: PipelineLog,
        *,
        now_ms: Callable[[], int | None],
        monotonic_s: Callable[[], float],
        scan_margin_s: float = 0.0,
    ) -> None:
        super().__init__(
            database, spec, now_ms=now_ms, monotonic_s=monotonic_s, scan_margin_s=scan_margin_s
        )
        self._log = log
        self._told_gaps: set[Gap] = set()
        log.take(self)

    # What the log asks for

    def carry_out(self, header: SegmentHeader, batch: Batch | None) -> Applied:
        """What a segment says of this dataset, in one transaction at most."""
        if header.kind is SegmentKind.EVENT:
            events.perform(events.decoded(header.event), self)
            return Applied()
        return Applied() if batch is None else super().apply([batch])

    # What goes through the log

    def apply(self, batches: Sequence[Batch]) -> Applied:
        """As `Dataset.apply`, with as many transactions as it takes segments.

        What is committed of a group when it fails is not committed again when it is repeated.
        """
        log = self._log
        log.finish()
        total = Applied(commit_number=self._touched.commit_number)
        total.foreign = sum(not self._is_read(batch) for batch in batches)
        changes = self.settled_changes([self._untold(batch) for batch in batches])
        if changes is not None:
            self._told_gaps.update(changes.gaps)
            _add(total, self._commit(changes))
        given = sum(batch.changes.num_rows for batch in batches if batch.is_scan)
        for scans in self.settled_scans(batches, SETTLED_TICKET):
            given -= scans.changes.num_rows
            _add(total, self._commit(scans))
        total.touched = given
        self._told_gaps.clear()
        return total

    def begin(
        self,
        identity: SourceIdentity,
        *,
        origin_ms: int | None,
        shards: Sequence[ShardCheckpoint],
        segments: Sequence[SnapshotSegment],
        shadow: bool,
        positions_generation: int | None,
        snapshot: bool,
        above: int = 0,
        gaps: Sequence[Gap] = (),
        fingerprint: str | None = None,
    ) -> int:
        number = self.next_generation(above)
        event = events.begin(
            identity,
            shards,
            segments,
            gaps,
            origin_ms=origin_ms,
            shadow=shadow,
            positions_generation=positions_generation,
            snapshot=snapshot,
            above=number - 1,
            fingerprint=fingerprint or self.spec.fingerprint,
        )
        own = positions_generation is None
        self._log.happen(
            self,
            event,
            DatasetProgress(
                self.spec.name,
                number if positions_generation is None else positions_generation,
                identity,
                tuple(shards) if own else (),
                tuple(segments),
                tuple(gaps),
                number if segments else None,
            ),
        )
        return number

    def reposition(self, identity: SourceIdentity, *, origin_ms: int) -> int:
        if self._shadow is not None:
            self.drop_shadow()
        number = self.next_generation()
        progress = DatasetProgress(self.spec.name, number, identity)
        self._log.happen(self, events.reposition(identity, origin_ms), progress)
        return number

    def forget_shards(self, shard_ids: Sequence[str]) -> None:
        self._happen(
            {"name": events.FORGET_SHARDS, "shard_ids": list(shard_ids)},
            forgotten=tuple(shard_ids),
        )

    def mark_snapshot(
        self,
        state: SnapshotState,
        *,
        started_at_ms: int | None = None,
        scan_ended_at_ms: int | None = None,
    ) -> None:
        stored = self._newest().generation
        if (
            stored.snapshot_state == state.value
            and started_at_ms in (None, stored.snapshot_started_at_ms)
            and scan_ended_at_ms in (None, stored.scan_ended_at_ms)
        ):
            return
        self._happen(
            {
                "name": events.MARK_SNAPSHOT,
                "state": state.value,
                "started_at_ms": started_at_ms,
                "scan_ended_at_ms": scan_ended_at_ms,
            }
        )

    def resolve_gaps(self, resolution: str) -> None:
        self._happen({"name": events.RESOLVE_GAPS, "resolution": resolution})

    def freeze(self) -> None:
        self._happen({"name": events.FREEZE})

    def swap(self, *, resolve_gaps: str | None = None, scan_ended_at_ms: int | None = None) -> None:
        self._happen(
            {
                "name": events.SWAP,
                "resolve_gaps": resolve_gaps,
                "scan_ended_at_ms": scan_ended_at_ms,
            }
        )

    def drop_shadow(self) -> None:
        self._happen({"name": events.DROP_SHADOW})

    def drop_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        if letters:
            self._happen(events.drop_dead_letters(letters))
        return len(letters)

    # Inside

    def _untold(self, batch: Batch) -> Batch:
        """Without the gaps of a first try that went into the log."""
        if not self._told_gaps.intersection(batch.gaps):
            return batch
        gaps = tuple(gap for gap in batch.gaps if gap not in self._told_gaps)
        return Batch(
            batch.changes,
            batch.generation,
            batch.shards,
            batch.segments,
            gaps,
            batch.scan_ticket,
            batch.fills,
            batch.nbytes,
        )

    def _commit(self, batch: Batch) -> Applied:
        return self._log.commit(self, batch, progress_of(self.spec.name, batch, None))

    def _happen(self, event: events.Event, forgotten: tuple[str, ...] = ()) -> None:
        positions = self._newest().generation.positions_generation
        progress = DatasetProgress(self.spec.name, positions, forgotten=forgotten)
        self._log.happen(self, event, progress)

    def _now_ms(self) -> int:
        at_ms = self._log.stamp_ms
        return super()._now_ms() if at_ms is None else at_ms


def _add(total: Applied, more: Applied) -> None:
    total.operations.update(more.operations)
    total.records += more.records
    total.scanned += more.scanned
    total.replayed += more.replayed
    total.columns_added += more.columns_added
    total.columns_widened += more.columns_widened
    total.numbers_as_text += more.numbers_as_text
    total.dead_letters += more.dead_letters
    total.wrote = total.wrote or more.wrote
    total.commit_number = max(total.commit_number, more.commit_number)
    total.nbytes += more.nbytes
    total.duration_s += more.duration_s
