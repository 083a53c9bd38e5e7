"""A DynamoDB table with its stream, as small as the rules allow: the world of the pure tests.

Owns AWS time, shards, records, trimming, iterators, listings and scripted faults, all in memory and
under the hand of the test. Implements `connector.source.Source`. Every record carries a number of
its own, so that a test can say which were delivered, how often, and in which order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from checkpoints.positions import KeyAttribute, Position, PositionKind, SourceIdentity
from connector.errors import (
    IteratorExpired,
    RequestRefused,
    ShardGone,
    TableNotFound,
    Trimmed,
)
from connector.source import (
    ListedShard,
    OpenedIterator,
    RecordsPage,
    ScanPage,
    StreamPage,
    TableDescription,
)
from tests.builders import START_MS, change, changes_of, sequence

KEY = (KeyAttribute("pk", "S", "HASH"),)


@dataclass(frozen=True, slots=True)
class ModelRecord:
    number: int
    pk: str
    sequence: int
    created_ms: int


@dataclass(slots=True)
class ModelShard:
    """A shard as it is, and as it shows.

    shown_open, hidden_until_ms   listings may be behind: no end yet, or no shard yet
    sparse                        empty pages to come, whatever waits behind them
    was_sparse                    the last page was one of them
    """

    shard_id: str
    parent_id: str | None
    closed_ms: int | None = None
    shown_open: bool = False
    hidden_until_ms: int = 0
    sparse: int = 0
    was_sparse: bool = False
    records: list[ModelRecord] = field(default_factory=list)
    trimmed: int = 0

    @property
    def is_open(self) -> bool:
        return self.closed_ms is None


@dataclass(frozen=True, slots=True)
class _Iterator:
    shard_id: str
    index: int
    made_ms: int


class ModelStream:
    """`now_ms` is AWS time with all its digits; answers carry it cut to seconds, as headers do."""

    def __init__(
        self,
        *,
        roots: int = 1,
        now_ms: int = START_MS,
        retention_ms: int = 24 * 3_600_000,
        iterator_ms: int = 900_000,
        page_records: int = 1000,
        listing_page: int = 100,
        knows_timestamps: bool = True,
    ) -> None:
        self.now_ms = now_ms
        self.retention_ms = retention_ms
        self.iterator_ms = iterator_ms
        self.page_records = page_records
        self.listing_page = listing_page
        self.knows_timestamps = knows_timestamps
        self.table_id = "table-1"
        self.stream_arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/t/stream/1"
        self.is_enabled = True
        self.is_table_there = True
        self.is_stream_there = True
        self.shards: dict[str, ModelShard] = {}
        self.written: list[ModelRecord] = []
        self.faults: dict[str, deque[Exception]] = {}
        self.calls: list[str] = []
        self.opened: list[tuple[str, Position]] = []
        self._iterators: dict[str, _Iterator] = {}
        self._made = 0
        self._sequence = 0
        for _ in range(roots):
            self.add_shard(None)

    # What happens in the world

    @property
    def date_ms(self) -> int:
        return self.now_ms // 1000 * 1000

    def identity(self) -> SourceIdentity:
        return SourceIdentity("t", "arn:t", self.table_id, self.stream_arn, KEY)

    def add_shard(self, parent_id: str | None, *, hidden_ms: int = 0) -> ModelShard:
        self._made += 1
        shard = ModelShard(f"s{self._made:03d}", parent_id, hidden_until_ms=self.now_ms + hidden_ms)
        self.shards[shard.shard_id] = shard
        return shard

    def open_shards(self) -> list[ModelShard]:
        return [shard for shard in self.shards.values() if shard.is_open]

    def write(self, shard_id: str, pk: str = "k") -> ModelRecord:
        self._sequence += 7
        record = ModelRecord(len(self.written), pk, self._sequence, self.now_ms)
        self.shards[shard_id].records.append(record)
        self.written.append(record)
        return record

    def close(self, shard_id: str, children: int = 0, *, hidden_ms: int = 0) -> list[ModelShard]:
        """Closes a shard; its children take over: one is a rollover, two are a split."""
        self.shards[shard_id].closed_ms = self.now_ms
        return [self.add_shard(shard_id, hidden_ms=hidden_ms) for _ in range(children)]

    def vanish(self, shard_id: str) -> None:
        """A closed shard goes before its time, records and all."""
        del self.shards[shard_id]

    def disable(self) -> None:
        self.is_enabled = False
        for shard in self.open_shards():
            self.close(shard.shard_id)

    def pass_ms(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        self.trim()

    def trim(self) -> None:
        """Drops what is older than retention, and the shards that closed before it."""
        horizon_ms = self.now_ms - self.retention_ms
        for shard in list(self.shards.values()):
            while shard.records and shard.records[0].created_ms < horizon_ms:
                shard.records.pop(0)
                shard.trimmed += 1
            if shard.closed_ms is not None and shard.closed_ms < horizon_ms:
                del self.shards[shard.shard_id]

    def fail(self, where: str, *errors: Exception) -> None:
        """The next calls to `where`, a method or a shard id, raise these."""
        self.faults.setdefault(where, deque()).extend(errors)

    def listed(self) -> tuple[ListedShard, ...]:
        """The shards as listings show them now."""
        return tuple(
            self._listed(shard)
            for shard in self.shards.values()
            if shard.hidden_until_ms <= self.now_ms
        )

    # Source

    def describe_table(self) -> TableDescription:
        self._call("describe_table")
        if not self.is_table_there:
            raise TableNotFound("there is no table t")
        return TableDescription(
            table_name="t",
            table_arn="arn:t",
            table_id=self.table_id,
            table_status="ACTIVE",
            key_schema=KEY,
            stream_arn=self.stream_arn,
            stream_enabled=self.is_enabled,
            stream_view_type="NEW_AND_OLD_IMAGES",
            item_count=0,
            table_size_bytes=0,
            billing_mode=None,
            read_capacity_units=None,
            at_ms=self.date_ms,
        )

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage:
        self._call("describe_stream" if children_of is None else "children_of")
        if not self.is_stream_there or stream_arn != self.stream_arn:
            raise ShardGone("the stream is gone")
        shown = list(self.listed())
        if children_of is not None:
            shown = [shard for shard in shown if shard.parent_shard_id == children_of]
        if start_shard_id is not None:
            if start_shard_id not in self.shards:
                raise RequestRefused(f"there is no shard {start_shard_id} to start after")
            shown = [shard for shard in shown if shard.shard_id > start_shard_id]
        page = shown[: self.listing_page]
        return StreamPage(
            stream_arn,
            "ENABLED" if self.is_enabled else "DISABLED",
            "NEW_AND_OLD_IMAGES",
            tuple(page),
            page[-1].shard_id if len(shown) > len(page) else None,
            self.date_ms,
        )

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        self._call("open_iterator", shard_id)
        self.opened.append((shard_id, position))
        shard = self._shard(shard_id)
        match position.kind:
            case PositionKind.TRIM_HORIZON:
                index = shard.trimmed
            case PositionKind.AT_TIMESTAMP:
                # The real source opens TRIM_HORIZON where the type is not supported.
                since_ms = (position.timestamp_ms or 0) if self.knows_timestamps else 0
                index = shard.trimmed + sum(r.created_ms < since_ms for r in shard.records)
            case PositionKind.AFTER_SEQUENCE_NUMBER:
                number = int(position.sequence_number or "0") - int(sequence(0))
                older = sum(record.sequence <= number for record in shard.records)
                if older == 0 and shard.trimmed:
                    raise Trimmed("the position is older than the oldest record")
                index = shard.trimmed + older
            case _:
                raise RequestRefused(f"no iterator at {position.kind}")
        return OpenedIterator(self._iterator(shard_id, index), self.date_ms)

    def page(self, shard_id: str, iterator: str) -> tuple[list[ModelRecord], str | None]:
        """What GetRecords answers, as the model's own records."""
        self._call("get_records", shard_id)
        place = self._iterators[iterator]
        if self.now_ms - place.made_ms > self.iterator_ms:
            raise IteratorExpired("the iterator is too old")
        shard = self._shard(shard_id)
        if place.index < shard.trimmed:
            raise Trimmed("the iterator points before the oldest record")
        start = place.index - shard.trimmed
        is_sparse = shard.sparse > 0
        shard.sparse -= is_sparse
        shard.was_sparse = is_sparse
        records = [] if is_sparse else shard.records[start : start + self.page_records]
        ends = not (shard.is_open or is_sparse) and start + len(records) == len(shard.records)
        return records, None if ends else self._iterator(shard_id, place.index + len(records))

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        records, next_iterator = self.page(shard_id, iterator)
        return RecordsPage(
            changes_of(
                change(
                    record.pk,
                    seq=record.sequence,
                    shard=shard_id,
                    at_ms=record.created_ms // 1000 * 1000,
                    v=record.number,
                )
                for record in records
            ),
            next_iterator,
            sequence(records[-1].sequence) if records else None,
            max(r.created_ms for r in records) // 1000 * 1000 if records else None,
            100 * len(records),
            self.date_ms,
        )

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        raise NotImplementedError("the model has a stream only")

    def get_item(self, keys: str) -> tuple[str | None, int]:
        raise NotImplementedError("the model has a stream only")

    def _call(self, method: str, shard_id: str | None = None) -> None:
        self.calls.append(method)
        for where in (method, shard_id):
            if where is not None and self.faults.get(where):
                raise self.faults[where].popleft()

    def _shard(self, shard_id: str) -> ModelShard:
        shard = self.shards.get(shard_id)
        if shard is None:
            raise ShardGone(f"there is no shard {shard_id}")
        return shard

    def _iterator(self, shard_id: str, index: int) -> str:
        token = f"iterator-{len(self._iterators)}"
        self._iterators[token] = _Iterator(shard_id, index, self.now_ms)
        return token

    def _listed(self, shard: ModelShard) -> ListedShard:
        is_shown_closed = not shard.is_open and not shard.shown_open
        ending = sequence(self._sequence + 5) if is_shown_closed else None
        return ListedShard(shard.shard_id, shard.parent_id, sequence(0), ending)
