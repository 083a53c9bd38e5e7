"""One shard as the graph knows it, and what the graph is told and tells.

Owns the value types between the shard graph and its loops. Must not decide anything: which shard is
read, when, and what follows from an answer is `connector.stream.shards`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState
from connector.source import ListedShard
from connector.stream.coverage import Coverage

DONE: Final = frozenset({ShardState.FINISHED, ShardState.GAP})
"""States in which a shard will never be read again, so that its children may be."""

START_MARGIN_MS: Final = 300_000
"""How far before its start a generation reads: creation times are approximate, in seconds."""


CLOCKS_APART_MS: Final = 5_000
"""AWS times of two answers may differ by this from the time between them: they are in whole
seconds, of different hosts."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a generation of positions begins: the AWS time of its start, before the first Scan.

    reads_everything   begin at TRIM_HORIZON of all that is listed instead: after a gap that is
                       accepted (initial snapshot `disabled`, invalid checkpoint `restart`)
    has_scan           a snapshot is taken after the first listing
    """

    at_ms: int
    margin_ms: int = START_MARGIN_MS
    reads_everything: bool = False
    has_scan: bool = True

    @property
    def takes_closed_as_read(self) -> bool:
        """Whether what a closed shard holds comes by the scan."""
        return self.has_scan and not self.reads_everything

    @property
    def cut_ms(self) -> int:
        """In whole seconds, as the creation times are that it is compared with."""
        return (self.at_ms - self.margin_ms) // 1000 * 1000

    @property
    def position(self) -> Position:
        if self.reads_everything:
            return Position.trim_horizon()
        return Position.at_timestamp(self.cut_ms)


@dataclass(frozen=True, slots=True)
class Listing:
    """Shards as DescribeStream showed them, one page or all of them.

    began_ms      AWS time of the first page: what was made after it may be missing
    is_complete   every page is in it; only then is a shard that is not in it absent
    """

    shards: tuple[ListedShard, ...]
    stream_status: str
    began_ms: int
    at_ms: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class OpenIterator:
    shard_id: str
    position: Position


@dataclass(frozen=True, slots=True)
class ReadPage:
    """`skip_before_ms`: records created before it are dropped, as long as nothing younger came.

    Where AT_TIMESTAMP is not supported the source opens TRIM_HORIZON in its place.
    """

    shard_id: str
    iterator: str
    skip_before_ms: int | None = None


Work: TypeAlias = OpenIterator | ReadPage


@dataclass(frozen=True, slots=True)
class PageRead:
    """What a page of records means for its shard, without the records.

    records, skipped   how many are to be applied, and how many were dropped as too old
    more               it certainly left something to read
    next_iterator      None: the shard is closed and this was its last page
    """

    records: int
    next_iterator: str | None
    last_sequence_number: str | None
    newest_created_ms: int | None
    at_ms: int
    skipped: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """Rows that hold and gaps to record, once all that was told before is applied. Often empty."""

    shards: tuple[ShardCheckpoint, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.shards or self.gaps)


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard for people and for the health monitor.

    covered_until_ms    AWS time before which all its changes are in the rows; None: unproved
    unapplied           records read and not committed yet
    is_applied          nothing read is waiting to be committed
    empties             empty pages in a row since the last record, or since the last long hole
    idle_span_s         seconds between the first and the last of them
    interval_s          the wait that the last good page was followed by
    last_good_s         monotonic time of the last good page, None before it
    error_since_s       monotonic time of the first of the failures that still last
    is_closed           it has an end, or a child: empty pages prove nothing about what follows
    last_good_ms        AWS time of the last good page, which goes on while a host is suspended
    """

    shard_id: str
    parent_shard_id: str | None
    state: ShardState
    position: Position
    committed: ShardCheckpoint | None
    records: int
    unapplied: int
    is_applied: bool
    covered_until_ms: int | None
    empties: int
    idle_span_s: float
    interval_s: float
    last_good_s: float | None
    error: Exception | None
    error_since_s: float | None
    is_closed: bool
    last_good_ms: int | None = None


@dataclass(slots=True, eq=False)
class Shard:
    """The state of one shard. Owned by its graph.

    position      where reading goes on after all that was handed over
    handed_over   its newest row that was handed over to be committed
    committed     its newest row that is
    is_closed     listed with an end, or with a child
    proves_after_ms   covered up to here and no further it has proved nothing
    """

    shard_id: str
    parent_id: str | None
    state: ShardState
    position: Position
    coverage: Coverage
    records: int = 0
    iterator: str | None = None
    is_busy: bool = False
    proves_after_ms: int | None = None
    is_closed: bool = False
    ending: str | None = None
    handed_over: ShardCheckpoint | None = None
    committed: ShardCheckpoint | None = None
    interval_s: float = 0.0
    last_good_s: float | None = None
    last_good_ms: int | None = None
    idle_since_s: float | None = None
    idle_pages: int = 0
    caution_s: float = 0.0
    failures: int = 0
    error: Exception | None = None
    error_since_s: float | None = None
    was_trimmed: bool = False
    drained_ms: int = 0
    childless_since_ms: int | None = None
    suspect_since_ms: int = 0
    unlisted_since_ms: int | None = None
    asked: int = 0
    children: list[str] = field(default_factory=list)

    @classmethod
    def stored(cls, row: ShardCheckpoint) -> Shard:
        return cls(
            row.shard_id,
            row.parent_shard_id,
            row.state,
            row.position,
            Coverage(row.covered_until_ms),
            records=row.records,
            handed_over=row,
            committed=row,
        )

    def row(self, state: ShardState | None = None) -> ShardCheckpoint:
        return ShardCheckpoint(
            self.shard_id,
            self.parent_id,
            state or self.state,
            self.position,
            self.records,
            self.coverage.until_ms,
        )

    @property
    def is_done(self) -> bool:
        return self.state in DONE

    @property
    def is_done_for_good(self) -> bool:
        """Done, and that is committed: a child that starts now starts after its last change."""
        return self.is_done and self.committed is not None and self.committed.state in DONE

    @property
    def seems_last(self) -> bool:
        """Read to its end, which is committed, and a whole listing since then shows no child."""
        is_read = self.committed is not None and self.committed.state is ShardState.DRAINING
        return is_read and self.childless_since_ms is not None

    @property
    def is_applied(self) -> bool:
        """Whether the last record that was handed over is committed, and so all before it."""
        if self.committed is None:
            return False
        return self.committed.position.sequence_number == self.position.sequence_number

    @property
    def applied_until_ms(self) -> int | None:
        """The AWS time before which all its changes are in the rows; None: unproved."""
        if self.is_applied:
            until_ms = self.coverage.until_ms
        else:
            until_ms = self.committed.covered_until_ms if self.committed else None
        if until_ms is None or self.proves_after_ms is None or until_ms > self.proves_after_ms:
            return until_ms
        return None

    @property
    def has_record(self) -> bool:
        """The lineage up to here has delivered a record, or may have lost one."""
        return (
            self.records > 0
            or self.position.sequence_number is not None
            or self.state is ShardState.GAP
        )

    @property
    def has_read_all(self) -> bool:
        """Whether the position has reached the end that a listing gave."""
        read, ending = self.position.sequence_number, self.ending
        return read is not None and ending is not None and int(read) >= int(ending)

    def good_page(self, now_s: float, at_ms: int, *, is_empty: bool, stale_s: float) -> None:
        """An empty page later than `stale_s` after the one before it begins the proof anew.

        By either clock: the monotonic one stands still while the host is suspended.
        """
        is_stale = (
            self.last_good_s is None
            or self.last_good_ms is None
            or now_s - self.last_good_s > stale_s
            or at_ms - self.last_good_ms > 1000 * stale_s + CLOCKS_APART_MS
        )
        self.last_good_s, self.last_good_ms = now_s, at_ms
        self.failures = 0
        self.error = None
        self.error_since_s = None
        if not is_empty:
            self.idle_since_s, self.idle_pages = None, 0
        elif self.idle_since_s is None or is_stale:
            self.idle_since_s, self.idle_pages = now_s, 1
        else:
            self.idle_pages += 1

    def reopened(self, iterator: str) -> None:
        """What was empty under another iterator proves nothing under this one."""
        self.iterator = iterator
        self.coverage.reopened()
        self.idle_since_s, self.idle_pages = None, 0

    def view(self) -> ShardView:
        committed = self.committed
        idle_span_s = 0.0
        if self.idle_since_s is not None and self.last_good_s is not None:
            idle_span_s = self.last_good_s - self.idle_since_s
        return ShardView(
            self.shard_id,
            self.parent_id,
            self.state,
            self.position,
            committed,
            self.records,
            self.records - (committed.records if committed else 0),
            self.is_applied,
            self.applied_until_ms,
            self.idle_pages,
            idle_span_s,
            self.interval_s,
            self.last_good_s,
            self.error,
            self.error_since_s,
            self.is_closed,
            self.last_good_ms,
        )
