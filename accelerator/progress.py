"""What is committed of a set of positions, and what a group of batches adds to it.

Owns the rule of exactly once: a record at or below its shard's committed sequence number was
applied before and is dropped. Pure; the positions are persisted by the checkpoint store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from accelerator.batch import Batch
from accelerator.errors import UnknownShard
from checkpoints.positions import (
    Position,
    PositionKind,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
)

# DynamoDB's sequence numbers have at most 40 digits: more than any integer type of DuckDB or Arrow.
_DIGITS = 40


class Progress:
    """Committed shards and segments, by id. Values are never changed in place."""

    def __init__(
        self, shards: Iterable[ShardCheckpoint] = (), segments: Iterable[SnapshotSegment] = ()
    ) -> None:
        self.shards: dict[str, ShardCheckpoint] = {s.shard_id: s for s in shards}
        self.segments: dict[int, SnapshotSegment] = {s.segment: s for s in segments}

    def stage(self) -> StagedProgress:
        return StagedProgress(self)


class StagedProgress:
    """The progress that holds once a group is committed; `commit` makes it the base's."""

    def __init__(self, base: Progress) -> None:
        self._base = base
        self._shards: dict[str, ShardCheckpoint] = {}
        self._segments: dict[int, SnapshotSegment] = {}
        self.replayed = 0

    def shard(self, shard_id: str) -> ShardCheckpoint | None:
        return self._shards.get(shard_id) or self._base.shards.get(shard_id)

    def admit(self, batch: Batch) -> pa.Table:
        """The batch's changes that were not applied before; its positions are taken over.

        Raises:
            UnknownShard: changes of a shard with no row, stored or in the batch.
        """
        for segment in batch.segments:
            self._segments[segment.segment] = segment
        if batch.is_scan:
            self._take_rows(batch.shards)
            return batch.changes
        rows = {row.shard_id: row for row in batch.shards}
        changes = self._drop_replays(batch.changes, rows)
        self._take_rows(batch.shards)
        return changes

    def changed_shards(self) -> tuple[ShardCheckpoint, ...]:
        return tuple(s for i, s in self._shards.items() if self._base.shards.get(i) != s)

    def changed_segments(self) -> tuple[SnapshotSegment, ...]:
        return tuple(s for i, s in self._segments.items() if self._base.segments.get(i) != s)

    def commit(self) -> None:
        self._base.shards.update(self._shards)
        self._base.segments.update(self._segments)

    def _take_rows(self, rows: Iterable[ShardCheckpoint]) -> None:
        for row in rows:
            known = self.shard(row.shard_id)
            self._shards[row.shard_id] = row if known is None else _later(known, row)

    def _drop_replays(self, changes: pa.Table, rows: dict[str, ShardCheckpoint]) -> pa.Table:
        if changes.num_rows == 0:
            return changes
        shard_ids = changes.column("shard_id")
        unique = [str(shard_id) for shard_id in pc.unique(shard_ids).to_pylist()]
        if len(unique) == 1:
            return self._drop_replays_of(unique[0], changes, rows)
        # Order across shards is arrival order; it is kept by putting back what each shard admits.
        numbered = changes.append_column("at", pa.array(range(changes.num_rows), pa.int64()))
        admitted = [
            self._drop_replays_of(shard_id, numbered.filter(pc.equal(shard_ids, shard_id)), rows)
            for shard_id in unique
        ]
        return pa.concat_tables(admitted).sort_by("at").drop_columns(["at"])

    def _drop_replays_of(
        self, shard_id: str, changes: pa.Table, rows: dict[str, ShardCheckpoint]
    ) -> pa.Table:
        known = self.shard(shard_id) or rows.get(shard_id)
        if known is None:
            raise UnknownShard(f"Changes of shard {shard_id}, which has no position.")
        stored = self.shard(shard_id)
        number = stored.position.sequence_number if stored is not None else None
        numbers = changes.column("sequence_number")
        padded = pc.utf8_lpad(numbers, _DIGITS, "0")
        admitted = changes
        if not _rises(padded, number):
            keep = _rising(numbers.to_pylist(), number)
            admitted = changes.filter(pa.array(keep, pa.bool_()))
            self.replayed += changes.num_rows - admitted.num_rows
        if admitted.num_rows:
            last = admitted.column("sequence_number")[-1].as_py()
            base = stored if stored is not None else replace(known, records=0)
            position = Position.after(last)
            if base.position.kind is PositionKind.SHARD_END:
                position = Position.shard_end(last)
            self._shards[shard_id] = replace(
                base, position=position, records=base.records + admitted.num_rows
            )
        return admitted


def _rises(padded: pa.ChunkedArray, after: str | None) -> bool:
    """True when every number is larger than `after` and than the one before it."""
    if after is not None and int(padded[0].as_py()) <= int(after):
        return False
    if len(padded) == 1:
        return True
    return bool(pc.all(pc.greater(padded.slice(1), padded.slice(0, len(padded) - 1))).as_py())


def _rising(numbers: list[str], after: str | None) -> list[bool]:
    highest = -1 if after is None else int(after)
    keep = []
    for text in numbers:
        number = int(text)
        keep.append(number > highest)
        highest = max(highest, number)
    return keep


def _later(known: ShardCheckpoint, row: ShardCheckpoint) -> ShardCheckpoint:
    """`row` over `known`, except that a position, an end or a time already reached stays."""
    return replace(
        row,
        parent_shard_id=row.parent_shard_id or known.parent_shard_id,
        state=known.state if known.state is ShardState.FINISHED else row.state,
        position=_further(known.position, row.position),
        records=known.records,
        covered_until_ms=_latest(known.covered_until_ms, row.covered_until_ms),
    )


def _further(known: Position, new: Position) -> Position:
    number = new.sequence_number
    if known.sequence_number is not None and (
        number is None or int(number) < int(known.sequence_number)
    ):
        number = known.sequence_number
    if PositionKind.SHARD_END in (known.kind, new.kind):
        return Position.shard_end(number)
    return new if number is None else Position.after(number)


def _latest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)
