"""The pollers' work: reads shards as the graph says, and hands pages over as batches.

Owns the lock around one shard graph, the calls that open and read shards, and the order of what is
handed over. Any number of threads may call `step`: each call makes at most one request, outside the
lock. Must not know which shard is next, or why: that is `shards`; nor what becomes of a batch. All
that the graph returns is offered under the lock, so that rows are committed in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from accelerator.batch import Batch, empty_changes
from checkpoints.positions import Gap, ShardCheckpoint
from connector.clock import AwsTime, Clock
from connector.errors import SourceError
from connector.source import ListedShard, RecordsPage, Source
from connector.stream.lineage import Listing, OpenIterator, PageRead, Progress, ReadPage, ShardView
from connector.stream.pacing import Pacing
from connector.stream.shards import ShardGraph

FULL_PAGE_RECORDS: Final = 1000  # the most that GetRecords returns
FULL_PAGE_BYTES: Final = 900_000  # near the 1 MB that ends a page earlier
BEHIND_MS: Final = 2_000  # of two times that are cut to seconds: at least one second behind
FULL_SINK_WAIT_S: Final = 0.02


class Sink(Protocol):
    """Where batches wait for the applier, in order; bounded in bytes. `offer` must not block."""

    def has_room(self) -> bool: ...

    def offer(self, batch: Batch) -> None: ...


class Observer(Protocol):
    """Who counts what readers do. Called from any poller."""

    def page_read(self, shard_id: str, records: int, nbytes: int, /) -> None: ...

    def call_failed(self, shard_id: str | None, error: Exception, /) -> None: ...

    def gap_found(self, gap: Gap, /) -> None: ...


class Unobserved:
    """The observer of a reader that nobody watches."""

    def page_read(self, *_: object) -> None:
        return None

    def call_failed(self, *_: object) -> None:
        return None

    def gap_found(self, *_: object) -> None:
        return None


class StreamReader:
    """Reads one stream in one generation of positions. Thread-safe.

    `on_news` is called, outside the lock, when a shard may have come free, or has ended so that its
    children are asked for, while pollers and the discovery idle.
    """

    def __init__(
        self,
        source: Source,
        clock: Clock,
        aws_time: AwsTime,
        sink: Sink,
        graph: ShardGraph,
        *,
        stream_arn: str,
        generation: int,
        old_images: bool = False,
        observer: Observer | None = None,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self.stream_arn = stream_arn
        self.generation = generation
        self._source = source
        self._clock = clock
        self._aws_time = aws_time
        self._sink = sink
        self._graph = graph
        self._old_images = old_images
        self._observer = observer or Unobserved()
        self._on_news = on_news
        self._lock = threading.Lock()
        self._fault: Exception | None = None

    @property
    def fault(self) -> Exception | None:
        """A defect met while handing over: what is enqueued is uncertain, so nothing is read on.

        Whoever supervises clears the queue and makes a new reader from the committed rows.
        """
        return self._fault

    def step(self, now_s: float) -> float | None:
        """Makes the request that is most due. Returns when to call again; None: at the next news.

        Raises:
            Exception: a defect, not an answer of AWS; the shard it struck backs off.
        """
        if self._fault is not None:
            raise self._fault
        if not self._sink.has_room():
            return now_s + FULL_SINK_WAIT_S
        with self._handing_over():
            at_ms = self._aws_time.now_ms()
            if at_ms is not None:
                self._hand_over(self._graph.beat(at_ms))
            work = self._graph.take(now_s)
            if work is None:
                return self._graph.next_due_s()
        match work:
            case OpenIterator():
                self._open(work)
            case ReadPage():
                self._read(work)
            case _:
                assert_never(work)
        with self._lock:
            return self._graph.next_due_s()

    # What the applier and the discovery tell

    def committed(self, rows: Iterable[ShardCheckpoint]) -> None:
        """Rows of this generation that are durable now. Not to be called under the sink's lock."""
        with self._lock:
            came_free = self._graph.committed(rows, self._clock.monotonic_s())
        if came_free:
            self._on_news()

    def hurry(self, until_ms: int) -> None:
        """Reads every shard up to this AWS time as soon as may be: something waits for it."""
        with self._lock:
            self._graph.hurry(until_ms, self._clock.monotonic_s())
        self._on_news()

    def pace(self, pacing: Pacing) -> None:
        """Polls at another pace from here on."""
        with self._lock:
            self._graph.pace(pacing, self._clock.monotonic_s())
        self._on_news()

    def listed(self, listing: Listing) -> None:
        self._tell(lambda now_s: self._graph.listed(listing, now_s))
        self._on_news()

    def children_listed(self, shard_id: str, shards: Sequence[ListedShard], at_ms: int) -> None:
        self._tell(lambda now_s: self._graph.children_listed(shard_id, shards, at_ms, now_s))
        self._on_news()

    def question_failed(self, shard_id: str) -> None:
        with self._lock:
            self._graph.question_failed(shard_id, self._clock.monotonic_s())

    def take_question(self, now_s: float) -> str | None:
        with self._lock:
            return self._graph.take_question(now_s)

    def next_question_s(self) -> float | None:
        with self._lock:
            return self._graph.next_question_s()

    @property
    def open_questions(self) -> int:
        with self._lock:
            return self._graph.open_questions

    @property
    def wants_listing(self) -> bool:
        with self._lock:
            return self._graph.wants_listing

    def forgettable(self) -> tuple[str, ...]:
        """Shards whose rows may be deleted; then call `forget`. Costs O(shards): ask rarely."""
        with self._lock:
            return self._graph.forgettable()

    def forget(self, shard_ids: Sequence[str]) -> None:
        with self._lock:
            self._graph.forget(shard_ids)

    # What stands

    def views(self, *, finished: bool = False) -> list[ShardView]:
        """The shards as they are now. Costs O(shards): ask about once a second, not per query."""
        with self._lock:
            return self._graph.views(finished=finished)

    @property
    def is_positioned(self) -> bool:
        """The first rows are committed: a Scan that starts now misses nothing."""
        with self._lock:
            return self._graph.is_positioned

    @property
    def is_drained(self) -> bool:
        """The stream is disabled, and all of it is committed."""
        with self._lock:
            return self._graph.is_drained

    def has_passed(self, at_ms: int) -> bool:
        with self._lock:
            return self._graph.has_passed(at_ms)

    # One request

    def _open(self, work: OpenIterator) -> None:
        try:
            opened = self._source.open_iterator(self.stream_arn, work.shard_id, work.position)
        except SourceError as error:
            self._failed(work.shard_id, error)
            return
        except Exception as error:
            self._failed(work.shard_id, error)
            raise
        self._aws_time.observe(opened.at_ms)
        self._tell(
            lambda now_s: self._graph.opened(work.shard_id, opened.iterator, opened.at_ms, now_s)
        )

    def _read(self, work: ReadPage) -> None:
        try:
            page = self._source.get_records(
                work.shard_id, work.iterator, old_images=self._old_images
            )
            changes = _without_prefix(page.changes, work.skip_before_ms)
        except SourceError as error:
            self._failed(work.shard_id, error)
            return
        except Exception as error:
            self._failed(work.shard_id, error)
            raise
        self._aws_time.observe(page.at_ms)
        read = _page_read(page, changes)
        self._tell(
            lambda now_s: self._graph.page_read(work.shard_id, read, now_s),
            changes if read.records else None,
            page.nbytes,
        )
        self._observer.page_read(work.shard_id, read.records, page.nbytes)
        if read.next_iterator is None:
            self._on_news()

    def _failed(self, shard_id: str, error: Exception) -> None:
        self._observer.call_failed(shard_id, error)
        self._tell(lambda now_s: self._graph.failed(shard_id, error, now_s))

    def _tell(
        self,
        tell: Callable[[float], Progress],
        changes: pa.Table | None = None,
        nbytes: int = 0,
    ) -> None:
        with self._handing_over():
            if self._fault is not None:
                return
            progress = tell(self._clock.monotonic_s())
            self._hand_over(progress, changes, nbytes)
        for gap in progress.gaps:
            self._observer.gap_found(gap)

    @contextmanager
    def _handing_over(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except Exception as error:
                self._fault = error
                raise

    def _hand_over(
        self, progress: Progress, changes: pa.Table | None = None, nbytes: int = 0
    ) -> None:
        if progress or changes is not None:
            self._sink.offer(
                Batch(
                    empty_changes() if changes is None else changes,
                    self.generation,
                    shards=progress.shards,
                    gaps=progress.gaps,
                    nbytes=nbytes,
                )
            )


def _without_prefix(changes: pa.Table, before_ms: int | None) -> pa.Table:
    """The changes from the first one on that is not older than `before_ms`."""
    if before_ms is None or changes.num_rows == 0:
        return changes
    is_younger = pc.fill_null(pc.greater_equal(changes.column("created_at"), before_ms), True)
    first = pc.index(is_younger, True).as_py()
    return changes.slice(first if first >= 0 else changes.num_rows)


def _page_read(page: RecordsPage, changes: pa.Table) -> PageRead:
    arrived, records = page.changes.num_rows, changes.num_rows
    is_full = arrived >= FULL_PAGE_RECORDS or page.nbytes >= FULL_PAGE_BYTES
    newest_ms = page.newest_created_ms
    is_behind = newest_ms is not None and page.at_ms - newest_ms >= BEHIND_MS
    return PageRead(
        records,
        page.next_iterator,
        page.last_sequence_number if records else None,
        newest_ms if records else None,
        page.at_ms,
        skipped=arrived - records,
        more=is_full or is_behind,
    )
