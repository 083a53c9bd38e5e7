"""The snapshot: reads a table segment by segment, page by page, and can be killed at any point.

Owns which segment is read next, how far each has been read, and how long a failing one waits. A
page leaves as one Batch with the segment's progress in it, so rows and progress become durable
together; nothing here is remembered across a restart, which begins from the stored segments. Must
not know DuckDB, threads, or how a page is fetched: `step` may be called by several threads, each
call reads at most one page of one segment.

Rows of a page may be older than changes the stream has delivered meanwhile. So a ticket is taken
from the dataset right before each request is sent, retries included; rows whose key was changed
after the ticket are dropped when the page is applied. An eventually consistent read may also miss
writes of the `EVENTUAL_MARGIN_S` before it was sent: there the dataset's tickets must reach back
that far, and `step` must not be called until that long after the positions were stored.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from accelerator.batch import Batch
from checkpoints.positions import SnapshotSegment
from connector.clock import AwsTime, Clock
from connector.errors import CorruptPage, SourceError, Unavailable
from connector.retry import BACKOFF, Backoff
from connector.snapshot.capacity import Grant, ReadCapacity
from connector.source import ScanPage, TableDescription

EVENTUAL_MARGIN_S: Final = 5.0
"""An eventually consistent read is usually current within a second; this leaves room.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html"""

FULL_SINK_WAIT_S: Final = 0.05
RATE_WINDOW_S: Final = 10.0

LEAST_SEGMENTS: Final = 4
MOST_SEGMENTS: Final = 64
SEGMENT_BYTES: Final = 128 * 1024 * 1024
SEGMENT_ITEMS: Final = 200_000


class Pages(Protocol):
    """The one call of `connector.source.Source` that a snapshot makes."""

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage: ...


class Tickets(Protocol):
    """What the dataset offers so that a scan row never replaces a younger change. Thread-safe."""

    def open_scan_ticket(self) -> int:
        """The dataset's commit number now; keys changed from here on are remembered for it."""

    def close_scan_ticket(self, ticket: int) -> None:
        """Each opened ticket is closed once: after its batch is applied, or when none was made."""


class Sink(Protocol):
    """Where batches wait for the applier; bounded in bytes."""

    def has_room(self) -> bool: ...

    def offer(self, batch: Batch) -> None: ...


@dataclass(frozen=True, slots=True)
class ScanFault:
    """A segment that is tried again at `due_s`, after `attempts` failures in a row.

    `since_s` is the monotonic time of the first of them.
    """

    segment: int
    error: SourceError
    attempts: int
    since_s: float
    due_s: float


@dataclass(frozen=True, slots=True)
class ScanProgress:
    """What has been read, which is a little more than what has been applied.

    `items` counts from the beginning of the snapshot; pages, bytes, units and failures count since
    this process began. `items_per_s` is over the last `RATE_WINDOW_S`.
    """

    segments: tuple[SnapshotSegment, ...]
    items: int
    pages: int
    nbytes: int
    consumed_rcu: float
    failures: int
    items_per_s: float

    @property
    def segments_done(self) -> int:
        return sum(segment.done for segment in self.segments)


def segments_for(table: TableDescription) -> int:
    """The number of segments `scan_segments: auto` cuts a table into.

    One for each 128 MB or 200,000 items, whichever is more, but 4 at least: both figures are up to
    six hours old and say 0 for a table that was filled since. 64 at most, as more pages in flight
    than that only wait for each other.
    """
    by_size = -(-table.table_size_bytes // SEGMENT_BYTES)
    by_count = -(-table.item_count // SEGMENT_ITEMS)
    return max(LEAST_SEGMENTS, min(MOST_SEGMENTS, max(by_size, by_count)))


def new_segments(total_segments: int) -> tuple[SnapshotSegment, ...]:
    """The segments of a snapshot that begins. A resumed one must keep the number it began with."""
    return tuple(SnapshotSegment(number, total_segments) for number in range(total_segments))


class Scanner:
    """Reads what is left of the stored `segments`. Thread-safe.

    `generation` is that of the positions, `fills` that of the rows that are being loaded.

    Every error is retried for ever with a back-off of the segment's own. `faults` tells what is
    being retried; `fault` is set while there is an error that needs a person or a new snapshot.
    """

    def __init__(
        self,
        source: Pages,
        clock: Clock,
        sink: Sink,
        tickets: Tickets,
        segments: Sequence[SnapshotSegment],
        *,
        generation: int,
        fills: int,
        consistent: bool = True,
        capacity: ReadCapacity | None = None,
        aws_time: AwsTime | None = None,
        on_consumed: Callable[[float], None] = lambda _: None,
        backoff: Backoff = BACKOFF,
        draw: Callable[[], float] = random.random,
    ) -> None:
        _check(segments)
        self._source = source
        self._clock = clock
        self._sink = sink
        self._tickets = tickets
        self._aws_time = aws_time
        self._on_consumed = on_consumed
        self._generation = generation
        self._fills = fills
        self._consistent = consistent
        self._capacity = capacity or ReadCapacity(None)
        self._backoff = backoff
        self._draw = draw
        self._lock = threading.Lock()
        self._segments = {segment.segment: segment for segment in segments}
        self._faults: dict[int, ScanFault] = {}
        self._began_s = clock.monotonic_s()
        # (due, order, segment): the order makes those that are due a queue, so all get a turn.
        self._waiting = [
            (self._began_s, order, segment.segment)
            for order, segment in enumerate(each for each in segments if not each.done)
        ]
        self._order = len(self._waiting)
        self._busy: set[int] = set()
        self._latest_at_ms: int | None = None
        self._pages = 0
        self._nbytes = 0
        self._failures = 0
        self._read_since: deque[tuple[float, int]] = deque()

    @property
    def done(self) -> bool:
        """Every segment has been read to its end; the last batches may still wait to be applied."""
        with self._lock:
            return not self._waiting and not self._busy

    @property
    def ended_at_ms(self) -> int | None:
        """An AWS time after the last page was read; None until then, or if this scanner read none.

        The Date header is cut to whole seconds, so the page was answered within the second after.
        """
        with self._lock:
            if self._waiting or self._busy or self._latest_at_ms is None:
                return None
            return self._latest_at_ms + 1000

    @property
    def fault(self) -> SourceError | None:
        """An error that waiting alone does not cure; it is tried again all the same."""
        with self._lock:
            lasting = (fault.error for fault in self._faults.values() if fault.error.needs_person)
            return next(lasting, None)

    def faults(self) -> tuple[ScanFault, ...]:
        with self._lock:
            return tuple(self._faults.values())

    def limit(self, max_rcu: float | None) -> None:
        """Another `scan_max_rcu` from here on."""
        self._capacity.limit(max_rcu)

    def progress(self) -> ScanProgress:
        with self._lock:
            segments = tuple(self._segments.values())
            return ScanProgress(
                segments=segments,
                items=sum(segment.items for segment in segments),
                pages=self._pages,
                nbytes=self._nbytes,
                consumed_rcu=self._capacity.consumed_rcu,
                failures=self._failures,
                items_per_s=self._items_per_s(self._clock.monotonic_s()),
            )

    def step(self, now_s: float) -> float | None:
        """Reads one page of the segment that has waited longest; the time of the next call.

        None when no segment is left to this caller: all are done, or busy with other callers.
        """
        with self._lock:
            chosen = self._choose(now_s)
        if chosen is None or isinstance(chosen, float):
            return chosen
        self._read(*chosen)
        with self._lock:
            return self._waiting[0][0] if self._waiting else None

    def _choose(self, now_s: float) -> tuple[SnapshotSegment, Grant] | float | None:
        if not self._waiting:
            return None
        due_s, _, number = self._waiting[0]
        if due_s > now_s:
            return due_s
        if not self._sink.has_room():
            return now_s + FULL_SINK_WAIT_S
        grant = self._capacity.ask(now_s)
        if isinstance(grant, float):
            return grant
        heapq.heappop(self._waiting)
        self._busy.add(number)
        return self._segments[number], grant

    def _read(self, segment: SnapshotSegment, grant: Grant) -> None:
        ticket = None
        try:
            ticket = self._tickets.open_scan_ticket()
            page = self._source.scan(
                segment.segment,
                segment.total_segments,
                segment.last_evaluated_key,
                consistent=self._consistent,
            )
        except SourceError as error:
            # What was refused has cost nothing; an answer that was lost on its way may have.
            was_lost = isinstance(error, CorruptPage | Unavailable)
            self._capacity.settle(grant, grant.reserved_rcu if was_lost else 0.0)
            self._put_back(segment, ticket, error)
        except BaseException:
            self._capacity.settle(grant, grant.reserved_rcu)
            self._put_back(segment, ticket, None)
            raise
        else:
            self._capacity.settle(grant, page.consumed_rcu)
            self._on_consumed(page.consumed_rcu)
            self._hand_on(segment, ticket, page)

    def _hand_on(self, segment: SnapshotSegment, ticket: int, page: ScanPage) -> None:
        after = replace(
            segment,
            last_evaluated_key=page.last_evaluated_key,
            items=segment.items + page.changes.num_rows,
            done=page.last_evaluated_key is None,
        )
        batch = Batch(
            page.changes,
            self._generation,
            segments=(after,),
            scan_ticket=ticket,
            fills=self._fills,
            nbytes=page.nbytes,
        )
        try:
            self._sink.offer(batch)
        except BaseException:
            self._put_back(segment, ticket, None)
            raise
        if self._aws_time is not None:
            self._aws_time.observe(page.at_ms)
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._segments[segment.segment] = after
            self._faults.pop(segment.segment, None)
            self._latest_at_ms = max(page.at_ms, self._latest_at_ms or 0)
            self._pages += 1
            self._nbytes += page.nbytes
            self._read_since.append((now_s, page.changes.num_rows))
            self._forget_before(now_s - RATE_WINDOW_S)
            self._busy.discard(segment.segment)
            if not after.done:
                self._wait(segment.segment, now_s)

    def _put_back(
        self, segment: SnapshotSegment, ticket: int | None, error: SourceError | None
    ) -> None:
        if ticket is not None:
            self._tickets.close_scan_ticket(ticket)
        due_s = self._clock.monotonic_s()
        with self._lock:
            if error is not None:
                earlier = self._faults.get(segment.segment)
                attempts = earlier.attempts + 1 if earlier else 1
                since_s = earlier.since_s if earlier else due_s
                due_s += self._backoff.delay_s(attempts - 1, self._draw())
                self._faults[segment.segment] = ScanFault(
                    segment.segment, error, attempts, since_s, due_s
                )
                self._failures += 1
            self._busy.discard(segment.segment)
            self._wait(segment.segment, due_s)

    def _wait(self, number: int, due_s: float) -> None:
        heapq.heappush(self._waiting, (due_s, self._order, number))
        self._order += 1

    def _items_per_s(self, now_s: float) -> float:
        self._forget_before(now_s - RATE_WINDOW_S)
        # A snapshot younger than the window is measured over its own age, a second at least.
        span_s = min(RATE_WINDOW_S, max(1.0, now_s - self._began_s))
        return sum(items for _, items in self._read_since) / span_s

    def _forget_before(self, then_s: float) -> None:
        while self._read_since and self._read_since[0][0] < then_s:
            self._read_since.popleft()


def _check(segments: Sequence[SnapshotSegment]) -> None:
    totals = {segment.total_segments for segment in segments}
    numbers = sorted(segment.segment for segment in segments)
    if len(totals) != 1 or numbers != list(range(totals.pop())):
        raise ValueError("a snapshot needs every segment of one total, each once")
