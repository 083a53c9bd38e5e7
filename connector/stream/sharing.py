"""One reader of a stream for all datasets of its table: what one has read the others are given.

Owns the pages that were read lately, by the iterator that they were read with. Each dataset keeps
its own positions, pace and proofs, and resumes from its own; only the calls are shared. That is
right because an iterator is a place in a shard and nothing else: the page after it is the same for
whoever asks, and two places after the same record are one.

A member that has fallen behind is led along the pages that brought nothing to the newest one; one
that stands elsewhere reads by itself, and joins the others at the next record that both have seen.
So a shard has one reader when its datasets are level, and nobody waits for the slowest. A page
claims no more than was true when it was read: it keeps the time of its answer.

AWS allows two readers of a shard, one on a global table.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from checkpoints.positions import Position
from connector.errors import CorruptPage, SourceError, Throttled, Unavailable
from connector.source import (
    OpenedIterator,
    RecordsPage,
    ScanPage,
    Source,
    StreamPage,
    TableDescription,
)

FRESH_S: Final = 1.0  # an empty page this old still says that there is nothing
KEPT_S: Final = 60.0  # of the 15 minutes that an iterator lives
SWEEP_EVERY_S: Final = 5.0
MOST_BYTES: Final = 16 * 1024 * 1024
LONGEST_WAIT_S: Final = 15.0  # for a call of another member; longer than its read time-out

PASSING: Final = (Throttled, Unavailable, CorruptPage)
"""Failures that say nothing of the place."""

MonotonicS = Callable[[], float]


@dataclass(slots=True)
class _Read:
    """A page that was read with one iterator; `takers` have had it."""

    page: RecordsPage
    at_s: float
    takers: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Call:
    """A call under way. Those who want the same page wait for it."""

    done: threading.Event = field(default_factory=threading.Event)
    page: RecordsPage | None = None
    error: SourceError | None = None


@dataclass(slots=True)
class _ShardPages:
    """What was read of one shard lately. Guarded by the room's lock."""

    reads: dict[str, _Read] = field(default_factory=dict)
    calls: dict[str, _Call] = field(default_factory=dict)
    opened: dict[tuple[str, Position], tuple[float, OpenedIterator]] = field(default_factory=dict)
    after: dict[str, tuple[float, str]] = field(default_factory=dict)

    def forget_old(self, since_s: float) -> int:
        """Drops what is older; the bytes that this frees."""
        old = [iterator for iterator, read in self.reads.items() if read.at_s < since_s]
        freed = sum(self.reads.pop(iterator).page.nbytes for iterator in old)
        self.opened = {key: kept for key, kept in self.opened.items() if kept[0] >= since_s}
        self.after = {number: kept for number, kept in self.after.items() if kept[0] >= since_s}
        return freed

    @property
    def is_empty(self) -> bool:
        return not (self.reads or self.calls or self.opened or self.after)


class SharedReads:
    """The pages that the datasets of one table share. Thread-safe; calls are made outside the lock.

    Its members must reach the table in the same way and want the same images.
    """

    def __init__(self, monotonic_s: MonotonicS) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._shards: dict[str, _ShardPages] = {}
        self._order: deque[tuple[str, str]] = deque()
        self._nbytes = 0
        self._members = 0
        self._sweep_due_s = 0.0

    @property
    def nbytes(self) -> int:
        """What is kept, in bytes of the wire."""
        return self._nbytes

    def member(self, source: Source) -> SharedSource:
        """The source of one dataset, which reads through the others' pages."""
        self._members += 1
        return SharedSource(source, self, self._members)

    def open_iterator(
        self, source: Source, stream_arn: str, shard_id: str, position: Position
    ) -> OpenedIterator:
        place = (stream_arn, position)
        with self._lock:
            kept = self._shard(shard_id).opened.get(place)
        if kept is not None:
            return kept[1]
        opened = source.open_iterator(stream_arn, shard_id, position)
        with self._lock:
            self._shard(shard_id).opened[place] = (self._monotonic_s(), opened)
        return opened

    def get_records(
        self, source: Source, member: int, shard_id: str, iterator: str, *, old_images: bool
    ) -> RecordsPage:
        with self._lock:
            shard = self._shard(shard_id)
            iterator, found = self._led_along(shard, member, iterator)
            if found is not None:
                return found
            call = shard.calls.get(iterator)
            is_ours = call is None
            if call is None:
                call = shard.calls[iterator] = _Call()
        if not is_ours:
            return self._awaited(call, source, member, shard_id, iterator, old_images=old_images)
        try:
            page = source.get_records(shard_id, iterator, old_images=old_images)
        except SourceError as error:
            call.error = error
            if not isinstance(error, PASSING):
                self._forget(shard_id)
            raise
        else:
            call.page = self._keep(shard_id, member, iterator, page)
            return call.page
        finally:
            with self._lock:
                self._shard(shard_id).calls.pop(iterator, None)
            call.done.set()

    def _awaited(
        self,
        call: _Call,
        source: Source,
        member: int,
        shard_id: str,
        iterator: str,
        *,
        old_images: bool,
    ) -> RecordsPage:
        """The answer to the call of another member, or, should that have no end, to one's own."""
        call.done.wait(LONGEST_WAIT_S)
        if call.error is not None:
            raise call.error
        if call.page is None:
            return source.get_records(shard_id, iterator, old_images=old_images)
        with self._lock:
            self._take(self._shard(shard_id), member, iterator)
        return call.page

    # Under the lock

    def _shard(self, shard_id: str) -> _ShardPages:
        now_s = self._monotonic_s()
        if now_s >= self._sweep_due_s:
            self._sweep_due_s = now_s + SWEEP_EVERY_S
            for known, shard in list(self._shards.items()):
                self._nbytes -= shard.forget_old(now_s - KEPT_S)
                if shard.is_empty:
                    del self._shards[known]
        return self._shards.setdefault(shard_id, _ShardPages())

    def _drop(self, shard: _ShardPages, iterator: str) -> None:
        read = shard.reads.pop(iterator, None)
        self._nbytes -= 0 if read is None else read.page.nbytes

    def _make_room(self) -> None:
        """The oldest pages go first: who has not had them is far behind, and reads them anew."""
        while self._nbytes > MOST_BYTES and self._order:
            shard_id, iterator = self._order.popleft()
            if shard_id in self._shards:
                self._drop(self._shards[shard_id], iterator)
        while self._order and not self._is_kept(*self._order[0]):
            self._order.popleft()

    def _is_kept(self, shard_id: str, iterator: str) -> bool:
        return shard_id in self._shards and iterator in self._shards[shard_id].reads

    def _led_along(
        self, shard: _ShardPages, member: int, iterator: str
    ) -> tuple[str, RecordsPage | None]:
        """The first page after this place that brought something, or the newest that did not; and
        the place to read from where there is neither.
        """
        newest: _Read | None = None
        while (read := shard.reads.get(iterator)) is not None:
            self._take(shard, member, iterator)
            newest = read
            following = read.page.next_iterator
            if read.page.changes.num_rows or following is None:
                return iterator, read.page
            iterator = following
        if newest is not None and self._monotonic_s() - newest.at_s < FRESH_S:
            return iterator, newest.page
        return iterator, None

    def _take(self, shard: _ShardPages, member: int, iterator: str) -> None:
        """A page that all have had is wanted by nobody any more."""
        read = shard.reads.get(iterator)
        if read is not None:
            read.takers.add(member)
            if len(read.takers) >= self._members:
                self._drop(shard, iterator)

    # Around a call

    def _keep(self, shard_id: str, member: int, iterator: str, page: RecordsPage) -> RecordsPage:
        now_s = self._monotonic_s()
        with self._lock:
            shard = self._shard(shard_id)
            page = _joined(shard, page, now_s)
            self._drop(shard, iterator)
            shard.reads[iterator] = _Read(page, now_s, {member})
            self._nbytes += page.nbytes
            self._order.append((shard_id, iterator))
            self._make_room()
        return page

    def _forget(self, shard_id: str) -> None:
        """What is kept of a shard may be why: an iterator that has expired, or a lost place."""
        with self._lock:
            shard = self._shards.pop(shard_id, None)
            if shard is not None:
                self._nbytes -= sum(read.page.nbytes for read in shard.reads.values())
                self._shards[shard_id] = _ShardPages(calls=shard.calls)


def _joined(shard: _ShardPages, page: RecordsPage, now_s: float) -> RecordsPage:
    """The page with the others' next iterator, where one of them has read up to the same record."""
    last = page.last_sequence_number
    if last is None or page.next_iterator is None:
        return page
    known = shard.after.get(last)
    if known is None:
        shard.after[last] = (now_s, page.next_iterator)
        return page
    return replace(page, next_iterator=known[1])


class SharedSource:
    """`connector.source.Source` of one dataset; what is no reading of a stream is its own."""

    def __init__(self, source: Source, reads: SharedReads, member: int) -> None:
        self._source = source
        self._reads = reads
        self._member = member

    def describe_table(self) -> TableDescription:
        return self._source.describe_table()

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage:
        return self._source.describe_stream(
            stream_arn, start_shard_id=start_shard_id, children_of=children_of
        )

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        return self._reads.open_iterator(self._source, stream_arn, shard_id, position)

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        return self._reads.get_records(
            self._source, self._member, shard_id, iterator, old_images=old_images
        )

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        return self._source.scan(segment, total_segments, start_key, consistent=consistent)

    def get_item(self, keys: str) -> tuple[str | None, int]:
        return self._source.get_item(keys)
