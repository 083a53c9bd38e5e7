"""The only caller of DescribeStream: finds shards, and sees when the stream or its table changes.

Owns the listing in progress, the budget of calls, and what is known of the stream as a whole. A
listing that is slowed down goes on where it was; its pages count as they come. Must not know what
follows from a listing (`shards`) or from a replaced stream (`connector.recovery`). One thread calls
`step`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from checkpoints.positions import SourceIdentity
from connector.clock import AwsTime, Clock
from connector.errors import PositionLost, RequestRefused, SourceError, TableNotFound
from connector.retry import BACKOFF, Backoff
from connector.source import ListedShard, Source, StreamPage, TableDescription
from connector.stream.lineage import Listing
from connector.stream.reader import Observer, Unobserved
from connector.stream.shards import STREAM_DISABLED

CALLS_PER_S: Final = 2.0  # of the 10 that AWS allows an account's DescribeStream calls
LISTING_EVERY_S: Final = 60.0
LISTING_SHARE: Final = 10  # a listing takes at most a tenth of the time
WANTED_EVERY_S: Final = 1.0
TABLE_EVERY_S: Final = 60.0
GONE_TABLE_EVERY_S: Final = 5.0  # it may come back, or another take its name


class Shards(Protocol):
    """Who asks, and is told what was found. `connector.stream.reader.StreamReader`."""

    @property
    def wants_listing(self) -> bool: ...

    @property
    def open_questions(self) -> int: ...

    def take_question(self, now_s: float) -> str | None: ...

    def next_question_s(self) -> float | None: ...

    def question_failed(self, shard_id: str) -> None: ...

    def listed(self, listing: Listing) -> None: ...

    def children_listed(
        self, shard_id: str, shards: tuple[ListedShard, ...], at_ms: int
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What is known of the stream and its table as a whole.

    table               the newest description, None before the first
    stream_status       ENABLING, ENABLED, DISABLING, DISABLED; None before the first page
    is_stream_gone      AWS does not know the stream any more
    is_table_gone       AWS does not know the table any more
    listings            complete ones since this process began
    shards_listed       in the newest complete listing, or so far in the first
    listed_at_ms        AWS time of the newest complete listing
    error, error_since_s  the failures that last, monotonic time of the first
    """

    identity: SourceIdentity
    table: TableDescription | None = None
    stream_status: str | None = None
    is_stream_gone: bool = False
    is_table_gone: bool = False
    listings: int = 0
    shards_listed: int = 0
    listed_at_ms: int | None = None
    error: SourceError | None = None
    error_since_s: float | None = None

    @property
    def is_table_recreated(self) -> bool:
        """Another table has taken the name."""
        return self.table is not None and self.table.table_id != self.identity.table_id

    @property
    def is_stream_replaced(self) -> bool:
        """The same table has another stream now; the old one stays readable for 24 hours."""
        return (
            self.table is not None
            and not self.is_table_recreated
            and self.table.stream_arn is not None
            and self.table.stream_arn != self.identity.stream_arn
        )

    @property
    def is_stream_disabled(self) -> bool:
        """The table's newest stream is off."""
        if self.table is not None and not self.is_stream_replaced:
            return not self.table.stream_enabled
        return self.stream_status == STREAM_DISABLED


@dataclass(slots=True)
class _Cursor:
    """A listing in progress."""

    began_s: float
    began_ms: int = 0
    pages: int = 0
    start_shard_id: str | None = None
    shards: dict[str, ListedShard] = field(default_factory=dict)


class Discovery:
    """Keeps the shards of one stream known. `facts` may be read from any thread."""

    def __init__(
        self,
        source: Source,
        clock: Clock,
        aws_time: AwsTime,
        shards: Shards,
        identity: SourceIdentity,
        *,
        table: TableDescription | None = None,
        observer: Observer | None = None,
        backoff: Backoff = BACKOFF,
        draw: Callable[[], float] = random.random,
        listing_every_s: float = LISTING_EVERY_S,
        table_every_s: float = TABLE_EVERY_S,
        calls_per_s: float = CALLS_PER_S,
    ) -> None:
        if identity.stream_arn is None:
            raise ValueError("a table without a stream has no shards")
        self.facts = StreamFacts(identity, table)
        self._stream_arn = identity.stream_arn
        self._source = source
        self._clock = clock
        self._aws_time = aws_time
        self._shards = shards
        self._observer = observer or Unobserved()
        self._backoff = backoff
        self._draw = draw
        self._listing_every_s = listing_every_s
        self._table_every_s = table_every_s
        self._spacing_s = 1.0 / calls_per_s
        self._failures = 0
        self._next_call_s = 0.0
        self._next_listing_s = 0.0
        self._next_wanted_s = 0.0
        self._next_table_s = clock.monotonic_s() + table_every_s
        self._cursor: _Cursor | None = None
        self._pages = 1

    def step(self, now_s: float) -> float | None:
        """Makes at most one call; returns when to call again."""
        if now_s < self._next_call_s:
            return self._next_call_s
        call = self._choose(now_s)
        if call is None:
            return self._next_s(now_s)
        self._next_call_s = now_s + self._spacing_s
        try:
            call()
        except SourceError as error:
            self._failed(error, now_s)
        else:
            self._failures = 0
            self.facts = replace(self.facts, error=None, error_since_s=None)
        return self._next_call_s

    def look_at_table_now(self) -> None:
        """The next call but the questions is a DescribeTable."""
        self._next_table_s = float("-inf")

    def _choose(self, now_s: float) -> Callable[[], None] | None:
        # A listing costs as many calls as it has pages, and answers every question.
        if self._shards.open_questions <= self._pages:
            shard_id = self._shards.take_question(now_s)
            if shard_id is not None:
                return partial(self._ask, shard_id)
        if now_s >= self._next_table_s:
            return partial(self._look_at_table, now_s)
        if self._cursor is None and now_s >= self._listing_due_s():
            self._cursor = _Cursor(now_s)
        return None if self._cursor is None else partial(self._list_page, self._cursor)

    def _listing_due_s(self) -> float:
        if self._shards.wants_listing:
            return min(self._next_listing_s, self._next_wanted_s)
        question_s = self._shards.next_question_s()
        if question_s is not None and self._shards.open_questions > self._pages:
            return min(self._next_listing_s, max(self._next_wanted_s, question_s))
        return self._next_listing_s

    def _next_s(self, now_s: float) -> float:
        question_s = self._shards.next_question_s()
        due_s = min(self._listing_due_s(), self._next_table_s)
        if question_s is not None:
            due_s = min(due_s, question_s)
        return max(due_s, now_s + 0.01)

    # The calls

    def _ask(self, shard_id: str) -> None:
        children: list[ListedShard] = []
        after: str | None = None
        try:
            while True:
                page = self._source.describe_stream(
                    self._stream_arn, children_of=shard_id, start_shard_id=after
                )
                # An endpoint that does not know the filter answers with all shards.
                children.extend(s for s in page.shards if s.parent_shard_id == shard_id)
                after = page.last_evaluated_shard_id
                if after is None:
                    break
        except PositionLost:
            # The shard is listed no more: a whole listing shows its children, if there are any.
            self._shards.question_failed(shard_id)
            self._next_listing_s = min(self._next_listing_s, self._next_wanted_s)
            return
        except Exception:
            self._shards.question_failed(shard_id)
            raise
        self._saw(page)
        self._shards.children_listed(shard_id, tuple(children), page.at_ms)

    def _list_page(self, cursor: _Cursor) -> None:
        page = self._source.describe_stream(self._stream_arn, start_shard_id=cursor.start_shard_id)
        self._saw(page)
        if cursor.pages == 0:
            cursor.began_ms = page.at_ms
        cursor.pages += 1
        cursor.shards.update((shard.shard_id, shard) for shard in page.shards)
        cursor.start_shard_id = page.last_evaluated_shard_id
        is_complete = page.last_evaluated_shard_id is None
        shards = tuple(cursor.shards.values()) if is_complete else page.shards
        if is_complete:
            self._complete(cursor, page.at_ms)
        elif self.facts.listings == 0:
            self.facts = replace(self.facts, shards_listed=len(cursor.shards))
        self._shards.listed(
            Listing(shards, page.stream_status, cursor.began_ms, page.at_ms, is_complete)
        )

    def _complete(self, cursor: _Cursor, at_ms: int) -> None:
        self._cursor = None
        self._pages = cursor.pages
        ended_s = self._clock.monotonic_s()
        took_s = ended_s - cursor.began_s
        self._next_listing_s = ended_s + max(self._listing_every_s, LISTING_SHARE * took_s)
        self._next_wanted_s = ended_s + WANTED_EVERY_S
        self.facts = replace(
            self.facts,
            listings=self.facts.listings + 1,
            shards_listed=len(cursor.shards),
            listed_at_ms=at_ms,
        )

    def _look_at_table(self, now_s: float) -> None:
        self._next_table_s = now_s + self._table_every_s
        try:
            table = self._source.describe_table()
        except TableNotFound:
            self.facts = replace(self.facts, is_table_gone=True)
            self._next_table_s = now_s + min(self._table_every_s, GONE_TABLE_EVERY_S)
            raise
        self._aws_time.observe(table.at_ms)
        self.facts = replace(self.facts, table=table, is_table_gone=False)

    def _saw(self, page: StreamPage) -> None:
        self._aws_time.observe(page.at_ms)
        if page.stream_status != self.facts.stream_status and self.facts.stream_status is not None:
            self.look_at_table_now()
            self._next_listing_s = min(self._next_listing_s, self._next_wanted_s)
        self.facts = replace(self.facts, stream_status=page.stream_status, is_stream_gone=False)

    def _failed(self, error: SourceError, now_s: float) -> None:
        self._observer.call_failed(None, error)
        self._failures += 1
        wait_s = self._backoff.delay_s(self._failures - 1, self._draw())
        self._next_call_s = now_s + max(self._spacing_s, wait_s)
        if isinstance(error, PositionLost):
            self.facts = replace(self.facts, is_stream_gone=True)
            self._cursor = None
            self._next_wanted_s = self._next_call_s
            self._next_table_s = min(self._next_table_s, self._next_call_s)
        elif isinstance(error, RequestRefused):
            self._cursor = None  # the shard that the cursor stands on may be gone
        since_s = self.facts.error_since_s
        self.facts = replace(
            self.facts, error=error, error_since_s=now_s if since_s is None else since_s
        )
