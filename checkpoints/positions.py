"""Positions and the rows that persist them.

Owns the vocabulary of progress: where a shard is read up to, how far a scan segment got, which
incarnation of a table and stream these belong to. Values only: no I/O, no clock, no ordering of
shards (that is the shard graph's business).

All times are AWS time (the `Date` header of responses) in integer milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PositionKind(StrEnum):
    TRIM_HORIZON = "TRIM_HORIZON"
    AT_TIMESTAMP = "AT_TIMESTAMP"
    AFTER_SEQUENCE_NUMBER = "AFTER_SEQUENCE_NUMBER"
    SHARD_END = "SHARD_END"


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading a shard goes on. No LATEST: it would lose what came before the first look."""

    kind: PositionKind
    sequence_number: str | None = None
    timestamp_ms: int | None = None

    @classmethod
    def trim_horizon(cls) -> Position:
        return cls(PositionKind.TRIM_HORIZON)

    @classmethod
    def at_timestamp(cls, timestamp_ms: int) -> Position:
        return cls(PositionKind.AT_TIMESTAMP, timestamp_ms=timestamp_ms)

    @classmethod
    def after(cls, sequence_number: str) -> Position:
        return cls(PositionKind.AFTER_SEQUENCE_NUMBER, sequence_number=sequence_number)

    @classmethod
    def shard_end(cls, sequence_number: str | None = None) -> Position:
        return cls(PositionKind.SHARD_END, sequence_number=sequence_number)

    def encode(self) -> str:
        """The text of `dynaduck.checkpoints.position`; the sequence number has its own column."""
        if self.kind is PositionKind.AT_TIMESTAMP:
            return f"{self.kind.value}:{self.timestamp_ms}"
        return self.kind.value

    @classmethod
    def decode(cls, text: str, sequence_number: str | None) -> Position:
        """Raises ValueError on text that `encode` never wrote."""
        kind, _, timestamp = text.partition(":")
        position_kind = PositionKind(kind)
        if position_kind is PositionKind.AT_TIMESTAMP:
            return cls(position_kind, timestamp_ms=int(timestamp))
        if position_kind is PositionKind.AFTER_SEQUENCE_NUMBER and sequence_number is None:
            raise ValueError("a position after a sequence number without the number")
        return cls(position_kind, sequence_number=sequence_number)


class ShardState(StrEnum):
    """Life of a shard. `verify` and `gap` stand aside of the way from discovered to finished."""

    DISCOVERED = "discovered"
    ELIGIBLE = "eligible"
    POSITIONING = "positioning"
    READING = "reading"
    IDLE = "idle"
    BACKOFF = "backoff"
    DRAINING = "draining"
    FINISHED = "finished"
    VERIFY = "verify"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """One row of `dynaduck.checkpoints`: what is durably known of one shard.

    `position` is where reading goes on after everything up to here is committed. `records` counts
    the records applied from this shard. `covered_until_ms`: every change of this shard that
    happened before this AWS time is in the rows; None until proved.
    """

    shard_id: str
    parent_shard_id: str | None
    state: ShardState
    position: Position
    records: int = 0
    covered_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSegment:
    """One row of `dynaduck.snapshot_segments`.

    `last_evaluated_key` is the key's DynamoDB JSON text, None before the first page. It means
    nothing under another `total_segments`: DynamoDB cuts the hash space by that number.
    """

    segment: int
    total_segments: int
    last_evaluated_key: str | None = None
    items: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True)
class KeyAttribute:
    """`type` is S, N or B; `role` HASH or RANGE. Immutable for the life of a TableId."""

    name: str
    type: str
    role: str


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Which incarnation of a table and of its stream positions belong to."""

    table_name: str
    table_arn: str
    table_id: str
    stream_arn: str | None
    key_schema: tuple[KeyAttribute, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Changes that could not be read: a row of `dynaduck.gaps`. `cause` is a stable code."""

    shard_id: str
    from_sequence_number: str | None
    cause: str
    detected_at_ms: int
    resolution: str | None = None
