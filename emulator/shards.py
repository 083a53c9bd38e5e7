"""A shard: a range of the key space, a run of records, an end.

Owns its records, what was trimmed from it, and positions in it. Must not know its siblings, the
stream's listing or iterators' tokens.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from emulator.records import Record

_SEQUENCE = attrgetter("sequence_number")
_CREATED = attrgetter("created_s")
_MAX_GAP = 10_000_000
MIN_SEQUENCE_NUMBER = 10**20


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a shard from one index on, and the index after them."""

    records: tuple[Record, ...]
    next_index: int
    length_bytes: int


@dataclass(slots=True, eq=False)
class Shard:
    """One shard; `low` and `high` bound the hash points it takes while it is open.

    Records are numbered from 0 for the shard's whole life; `trimmed` of them are gone.
    """

    shard_id: str
    parent_id: str | None
    low: int
    high: int
    starting: int
    created_s: float
    rng: random.Random
    ending: int | None = None
    closed_s: float | None = None
    records: list[Record] = field(default_factory=list)
    trimmed: int = 0
    trimmed_through: int = 0
    last_sequence: int = 0

    def __post_init__(self) -> None:
        self.last_sequence = self.starting

    @property
    def is_open(self) -> bool:
        return self.ending is None

    @property
    def end_index(self) -> int:
        """The index that the next record will have."""
        return self.trimmed + len(self.records)

    def next_sequence(self) -> int:
        """A number above all before it, with a gap as AWS leaves them."""
        self.last_sequence += self.rng.randint(1, _MAX_GAP)
        return self.last_sequence

    def close(self, now_s: float) -> None:
        """Ends the shard at a number that no record has."""
        self.ending = self.next_sequence()
        self.closed_s = now_s

    def page(self, index: int, limit: int, max_bytes: int) -> Page:
        """Up to `limit` records from an index on, of at most `max_bytes`, but one at least."""
        start = index - self.trimmed
        chosen: list[Record] = []
        length_bytes = 0
        for record in self.records[start : start + limit]:
            length_bytes += record.length_bytes + 1
            if chosen and length_bytes > max_bytes:
                length_bytes -= record.length_bytes + 1
                break
            chosen.append(record)
        return Page(tuple(chosen), index + len(chosen), length_bytes)

    def index_at(self, sequence_number: int) -> int:
        """The first record with this number or a higher one."""
        return self.trimmed + bisect_left(self.records, sequence_number, key=_SEQUENCE)

    def index_after(self, sequence_number: int) -> int:
        """The first record with a higher number."""
        return self.trimmed + bisect_right(self.records, sequence_number, key=_SEQUENCE)

    def index_since(self, time_s: float) -> int:
        """The first record created at this time or later."""
        return self.trimmed + bisect_left(self.records, time_s, key=_CREATED)

    def trim_before(self, time_s: float) -> int:
        """Drops the records older than a time; returns how many."""
        return self._drop(bisect_left(self.records, time_s, key=_CREATED))

    def trim_count(self, count: int) -> int:
        """Drops the oldest records; returns how many there were to drop."""
        return self._drop(min(count, len(self.records)))

    def _drop(self, count: int) -> int:
        if count:
            self.trimmed_through = self.records[count - 1].sequence_number
            del self.records[:count]
            self.trimmed += count
        return count

    def describe(self, *, show_ending: bool = True) -> dict[str, Any]:
        """The shard as DescribeStream lists it."""
        bounds = {"StartingSequenceNumber": str(self.starting)}
        if self.ending is not None and show_ending:
            bounds["EndingSequenceNumber"] = str(self.ending)
        shown: dict[str, Any] = {"ShardId": self.shard_id, "SequenceNumberRange": bounds}
        if self.parent_id is not None:
            shown["ParentShardId"] = self.parent_id
        return shown
