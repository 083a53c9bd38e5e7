"""What the service needs of DynamoDB, and nothing more: the seam between decisions and AWS.

Owns the Source protocol and its value types. The real implementation is `connector.aws.source`;
tests and simulations bring their own. Every answer carries `at_ms`, the `Date` header of the
response: the only clock that is compared with record times.

Every method raises `connector.errors.SourceError` subclasses, never a foreign exception. None of
them retries: pacing and patience belong to the loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from checkpoints.positions import KeyAttribute, Position, SourceIdentity


@dataclass(frozen=True, slots=True)
class TableDescription:
    """`stream_arn` is LatestStreamArn, which stays set after a stream is disabled."""

    table_name: str
    table_arn: str
    table_id: str
    table_status: str
    key_schema: tuple[KeyAttribute, ...]
    stream_arn: str | None
    stream_enabled: bool
    stream_view_type: str | None
    item_count: int
    table_size_bytes: int
    billing_mode: str | None
    read_capacity_units: int | None
    at_ms: int

    def identity(self) -> SourceIdentity:
        return SourceIdentity(
            self.table_name, self.table_arn, self.table_id, self.stream_arn, self.key_schema
        )


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard as DescribeStream shows it; closed if it has an ending number, maybe no record's."""

    shard_id: str
    parent_shard_id: str | None
    starting_sequence_number: str | None
    ending_sequence_number: str | None

    @property
    def is_closed(self) -> bool:
        return self.ending_sequence_number is not None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """One page of DescribeStream. Only an empty `last_evaluated_shard_id` ends the listing."""

    stream_arn: str
    stream_status: str
    stream_view_type: str | None
    shards: tuple[ListedShard, ...]
    last_evaluated_shard_id: str | None
    at_ms: int


@dataclass(frozen=True, slots=True)
class OpenedIterator:
    iterator: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """One whole, checked page of GetRecords.

    changes          schema accelerator.batch.CHANGES, arrival order; old images only if asked for
    next_iterator    None: the shard is closed and this was its last page (it may hold records)
    last_sequence_number, newest_created_ms   of the last record and the youngest; None when empty
    """

    changes: pa.Table
    next_iterator: str | None
    last_sequence_number: str | None
    newest_created_ms: int | None
    nbytes: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class ScanPage:
    """One whole, checked page of Scan. An empty page WITH a last evaluated key is legal.

    changes             schema accelerator.batch.CHANGES with op 'snapshot'
    last_evaluated_key  DynamoDB JSON text, None only at the end of the segment
    consumed_rcu        read capacity units the page cost
    """

    changes: pa.Table
    last_evaluated_key: str | None
    consumed_rcu: float
    nbytes: int
    at_ms: int


class Source(Protocol):
    """One DynamoDB table and its streams. Thread-safe."""

    def describe_table(self) -> TableDescription: ...

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage: ...

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        """Raises ShardGone, Trimmed beside the transient errors. SHARD_END has no iterator."""

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        """Raises IteratorExpired, ShardGone, Trimmed, CorruptPage beside the transient errors."""

    def scan(
        self,
        segment: int,
        total_segments: int,
        start_key: str | None,
        *,
        consistent: bool,
    ) -> ScanPage: ...

    def get_item(self, keys: str) -> tuple[str | None, int]:
        """The item of these keys (DynamoDB JSON text), read consistently, or None; and `at_ms`."""
