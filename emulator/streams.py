"""One stream of one table: its shards, their lineage, and what is read from them.

Owns which shard takes a change, splits, rollovers, trimming, the listing and the meaning of each
iterator. Must not know tables, requests or faults. Not safe for threads: the caller holds a lock.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Operations_Amazon_DynamoDB_Streams.html
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from emulator.clock import epoch_number
from emulator.errors import AwsError, not_found, validation
from emulator.images import HASH_SPACE
from emulator.iterators import ShardIterator
from emulator.records import Change, Record, ViewType, build_record
from emulator.settings import LastPage, NoIterator, TableSettings
from emulator.shards import MIN_SEQUENCE_NUMBER, Shard

_LOW = attrgetter("low")


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """What names a stream for ever."""

    arn: str
    label: str
    table_name: str
    table_id: str
    region: str
    view: ViewType
    key_schema: tuple[dict[str, str], ...]
    created_s: float


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """What one GetRecords call reads; no next iterator means closed and fully read."""

    records: tuple[Record, ...]
    next_iterator: ShardIterator | None
    no_iterator: NoIterator = NoIterator.ABSENT


class Stream:
    """The shards of one stream label. `generation` counts the times all iterators were expired."""

    def __init__(self, identity: StreamIdentity, settings: TableSettings, seed: int = 0) -> None:
        self.identity = identity
        self.settings = settings
        self.is_enabled = True
        self.disabled_s: float | None = None
        self.shards: dict[str, Shard] = {}
        self.hidden: set[str] = set()
        self.shown_open: set[str] = set()
        self.generation = 0
        self.emitted = 0
        self._rng = random.Random(f"{seed}:{identity.arn}")
        self._open: list[Shard] = []
        self._last_created_s = identity.created_s
        self._ticked_s = identity.created_s
        self._last_split_s = identity.created_s
        width = HASH_SPACE // settings.shards
        for number in range(settings.shards):
            high = HASH_SPACE if number == settings.shards - 1 else (number + 1) * width
            self._add(None, number * width, high, identity.created_s)

    # Writing

    def append(self, change: Change, now_s: float) -> Record:
        """Adds the record of a change to the open shard that its key falls in."""
        self.tick(now_s)
        shard = self.shard_of(change.point)
        # A clock set back must not disorder the times within a shard.
        self._last_created_s = max(self._last_created_s, now_s)
        record = build_record(
            change,
            self.identity.view,
            sequence_number=shard.next_sequence(),
            created_s=self._last_created_s,
            event_id=f"{self._rng.getrandbits(128):032x}",
            region=self.identity.region,
        )
        shard.records.append(record)
        self.emitted += 1
        return record

    def shard_of(self, point: int) -> Shard:
        """The open shard that takes a hash point."""
        return self._open[bisect_right(self._open, point, key=_LOW) - 1]

    # Lineage

    def open_shards(self) -> list[Shard]:
        """The shards that take writes now, by key range."""
        return list(self._open)

    def widest(self) -> Shard:
        """The open shard with the largest key range."""
        return max(self._open, key=lambda shard: shard.high - shard.low)

    def split(self, shard_id: str, now_s: float) -> tuple[Shard, Shard]:
        """Closes an open shard and gives each half of its range to a child."""
        parent = self._close(shard_id, now_s)
        middle = (parent.low + parent.high) // 2
        return (
            self._add(parent, parent.low, middle, now_s),
            self._add(parent, middle, parent.high, now_s),
        )

    def rollover(self, shard_id: str, now_s: float) -> Shard:
        """Closes an open shard and gives its whole range to one child."""
        parent = self._close(shard_id, now_s)
        return self._add(parent, parent.low, parent.high, now_s)

    def disable(self, now_s: float) -> None:
        """Closes every shard; the stream stays readable until its records age out."""
        if self.is_enabled:
            self.tick(now_s)
            for shard in self.open_shards():
                self._close(shard.shard_id, now_s)
            self.is_enabled = False
            self.disabled_s = now_s

    def vanish(self, shard_id: str) -> None:
        """Removes a closed shard at once, records and all, as AWS does after retention."""
        shard = self.shard(shard_id)
        if shard.is_open:
            raise validation(f"Shard {shard_id} is open; only a closed shard can vanish.")
        del self.shards[shard_id]

    def _close(self, shard_id: str, now_s: float) -> Shard:
        shard = self.shard(shard_id)
        if not shard.is_open:
            raise validation(f"Shard {shard_id} is closed already.")
        shard.close(now_s)
        del self._open[bisect_right(self._open, shard.low, key=_LOW) - 1]
        return shard

    def _add(self, parent: Shard | None, low: int, high: int, now_s: float) -> Shard:
        shard = Shard(
            shard_id=self._new_id(now_s),
            parent_id=parent.shard_id if parent else None,
            low=low,
            high=high,
            starting=self._starting(parent),
            created_s=now_s,
            rng=self._rng,
        )
        self.shards[shard.shard_id] = shard
        self._open.insert(bisect_right(self._open, low, key=_LOW), shard)
        return shard

    def _new_id(self, now_s: float) -> str:
        while True:
            shard_id = f"shardId-{int(now_s * 1000):020d}-{self._rng.getrandbits(32):08x}"
            if shard_id not in self.shards:
                return shard_id

    def _starting(self, parent: Shard | None) -> int:
        if parent is not None and parent.ending is not None:
            return parent.ending + self._rng.randint(1, 1000)
        if not self.shards:
            # A few records on, this shard's numbers grow from 21 digits to 22, so that a reader
            # which compares them as text goes wrong at once.
            return 10 * MIN_SEQUENCE_NUMBER - 50_000_000
        # 40 digits overflow the 128-bit integers of databases; the room above is for the records.
        digits = self._rng.randint(21, 40)
        return self._rng.randint(10 ** (digits - 1), 10**digits - 10**18)

    # Time

    def configure(self, settings: TableSettings, now_s: float) -> None:
        """Takes new settings, and at once trims by them."""
        self.settings = settings
        self._ticked_s = -1.0
        self.tick(now_s)

    def tick(self, now_s: float) -> None:
        """Does what has become due: scheduled rollovers and splits, trimming, vanishing."""
        if now_s - self._ticked_s < min(1.0, self.settings.retention_s / 100):
            return
        self._ticked_s = now_s
        if self.is_enabled:
            self._roll_over_due(now_s)
            self._split_due(now_s)
        self.trim(now_s)

    def trim(self, now_s: float) -> None:
        """Drops the records older than the retention, and the shards that closed before it."""
        horizon_s = now_s - self.settings.retention_s
        for shard in list(self.shards.values()):
            if shard.records and shard.records[0].created_s < horizon_s:
                shard.trim_before(horizon_s)
            if shard.closed_s is not None and shard.closed_s < horizon_s:
                del self.shards[shard.shard_id]

    def _roll_over_due(self, now_s: float) -> None:
        period_s = self.settings.rollover_every_s
        if period_s <= 0:
            return
        # Only what could still be read is made: older generations would be trimmed at once.
        oldest_s = now_s - self.settings.retention_s - period_s
        for shard in self.open_shards():
            due_s = shard.created_s + period_s
            if due_s < oldest_s:
                due_s += (oldest_s - due_s) // period_s * period_s
            youngest = shard
            while due_s <= now_s:
                youngest = self.rollover(youngest.shard_id, due_s)
                due_s += period_s

    def _split_due(self, now_s: float) -> None:
        period_s = self.settings.split_every_s
        if period_s <= 0:
            return
        while self._last_split_s + period_s <= now_s:
            self._last_split_s += period_s
            widest = self.widest()
            if widest.high - widest.low < 2:
                return
            self.split(widest.shard_id, max(self._last_split_s, widest.created_s))

    # Listing

    def shard(self, shard_id: str) -> Shard:
        """The shard of this id.

        Raises:
            AwsError: ResourceNotFoundException when it never was or is gone.
        """
        found = self.shards.get(shard_id)
        if found is None:
            raise not_found(
                f"Requested resource not found: Shard: {shard_id} in Stream: "
                f"{self.identity.arn} not found"
            )
        return found

    def describe(
        self,
        *,
        limit: int | None = None,
        start_after: str | None = None,
        children_of: str | None = None,
    ) -> dict[str, Any]:
        """The stream's description with one page of its shards, by shard id."""
        ids = sorted(self.shards.keys() - self.hidden)
        if children_of is not None:
            ids = [name for name in ids if self.shards[name].parent_id == children_of]
            if not ids:
                self.shard(children_of)
        if start_after is not None:
            ids = ids[bisect_right(ids, start_after) :]
        page_size = min(limit or 100, self.settings.describe_page_size)
        page = ids[:page_size]
        identity = self.identity
        description: dict[str, Any] = {
            "StreamArn": identity.arn,
            "StreamLabel": identity.label,
            "StreamStatus": "ENABLED" if self.is_enabled else "DISABLED",
            "StreamViewType": identity.view.value,
            "CreationRequestDateTime": EpochTime(identity.created_s),
            "TableName": identity.table_name,
            "KeySchema": list(identity.key_schema),
            "Shards": [
                self.shards[name].describe(show_ending=name not in self.shown_open) for name in page
            ],
        }
        if len(ids) > len(page):
            description["LastEvaluatedShardId"] = page[-1]
        return description

    # Reading

    def iterator(
        self,
        shard_id: str,
        kind: str,
        now_s: float,
        *,
        sequence_number: str | None = None,
        timestamp_s: float | None = None,
    ) -> ShardIterator:
        """A position in a shard, as GetShardIterator gives it.

        Raises:
            AwsError: ResourceNotFound, TrimmedDataAccess or ValidationException.
        """
        shard = self.shard(shard_id)
        if kind == "TRIM_HORIZON":
            index = shard.trimmed
        elif kind == "LATEST":
            index = shard.end_index
        elif kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
            index = _index_by_number(shard, kind, sequence_number)
        elif kind == "AT_TIMESTAMP":
            index = _index_by_time(shard, timestamp_s, now_s)
        else:
            raise validation(
                f"1 validation error detected: Value '{kind}' at 'shardIteratorType' failed to "
                "satisfy constraint: Member must satisfy enum value set: [AT_TIMESTAMP, LATEST, "
                "AT_SEQUENCE_NUMBER, AFTER_SEQUENCE_NUMBER, TRIM_HORIZON]"
            )
        return ShardIterator(self.identity.arn, shard_id, index, now_s, self.generation)

    def read(self, position: ShardIterator, limit: int, now_s: float) -> RecordsPage:
        """One page from a position on.

        Raises:
            AwsError: ExpiredIterator, TrimmedDataAccess or ResourceNotFound.
        """
        age_s = now_s - position.issued_s
        if age_s > self.settings.iterator_ttl_s or position.generation != self.generation:
            raise AwsError(
                "ExpiredIteratorException",
                "Iterator expired. The iterator was created more than 15 minutes ago.",
            )
        shard = self.shard(position.shard_id)
        if position.index < shard.trimmed:
            raise _trimmed()
        following = replace(position, issued_s=now_s)
        has_records = position.index < shard.end_index
        if has_records and position.empty_pages < self.settings.empty_pages:
            return RecordsPage((), replace(following, empty_pages=position.empty_pages + 1))
        page = shard.page(
            position.index,
            min(limit, self.settings.max_page_records),
            self.settings.max_page_bytes,
        )
        ends = not shard.is_open and page.next_index == shard.end_index
        if ends and (not page.records or self._ends_with_records(shard)):
            return RecordsPage(page.records, None, self.settings.no_iterator)
        return RecordsPage(page.records, replace(following, index=page.next_index, empty_pages=0))

    def _ends_with_records(self, shard: Shard) -> bool:
        style = self.settings.last_page
        if style is LastPage.MIXED:
            return int(shard.shard_id[-8:], 16) % 2 == 0
        return style is LastPage.WITH_RECORDS


@dataclass(frozen=True, slots=True)
class EpochTime:
    """A time that goes on the wire as DynamoDB writes times."""

    seconds: float

    def encoded(self) -> bytes:
        return epoch_number(self.seconds)


def _index_by_number(shard: Shard, kind: str, text: str | None) -> int:
    if text is None or not text.isdigit() or not 21 <= len(text) <= 40:
        raise validation(
            f"1 validation error detected: Value '{text}' at 'sequenceNumber' failed to satisfy "
            "constraint: Member must be a number of 21 to 40 digits"
        )
    number = int(text)
    if number <= shard.trimmed_through:
        raise _trimmed()
    return shard.index_at(number) if kind == "AT_SEQUENCE_NUMBER" else shard.index_after(number)


def _index_by_time(shard: Shard, timestamp_s: float | None, now_s: float) -> int:
    if timestamp_s is None:
        raise validation("Timestamp is required for the shard iterator type AT_TIMESTAMP.")
    if timestamp_s > now_s:
        raise validation(
            "The timestamp of an AT_TIMESTAMP shard iterator must not be in the future."
        )
    return shard.index_since(timestamp_s)


def _trimmed() -> AwsError:
    return AwsError(
        "TrimmedDataAccessException",
        "The operation attempted to read past the oldest stream record in a shard.",
    )
