"""A table in memory that a Scanner reads, on a clock that only tests move."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field

import pyarrow as pa

from accelerator.batch import CHANGES, Batch
from checkpoints.positions import SnapshotSegment
from connector.errors import SourceError
from connector.source import ScanPage

BEGAN_MS = 1_700_000_000_000


class StillClock:
    """Time that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True, slots=True)
class Request:
    segment: int
    start_key: str | None
    consistent: bool
    at_s: float


@dataclass
class Table:
    """Items 0, 1, 2… of which segment s holds those with i % total == s, in pages of `page_items`.

    `faults` are raised by the next calls, one each; `empties` pages of nothing come before each
    page that has items; a page takes `page_s` and costs `page_rcu`.
    """

    clock: StillClock
    items: int
    page_items: int = 3
    page_s: float = 0.0
    page_rcu: float = 1.0
    empties: int = 0
    faults: deque[SourceError | None] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        self.requests.append(Request(segment, start_key, consistent, self.clock.now_s))
        self.clock.now_s += self.page_s
        fault = self.faults.popleft() if self.faults else None
        if fault is not None:
            raise fault
        mine = list(range(segment, self.items, total_segments))
        read, blanks = json.loads(start_key) if start_key else (0, 0)
        if blanks < self.empties:
            return self._page([], json.dumps([read, blanks + 1]))
        after = read + self.page_items
        last = json.dumps([after, 0]) if after < len(mine) else None
        return self._page(mine[read:after], last)

    def _page(self, numbers: list[int], last: str | None) -> ScanPage:
        return ScanPage(
            rows(numbers),
            last,
            self.page_rcu,
            100 * len(numbers),
            BEGAN_MS + int(self.clock.now_s) * 1000,
        )


def rows(numbers: list[int]) -> pa.Table:
    nothing = dict.fromkeys(CHANGES.names)
    return pa.Table.from_pylist(
        [
            {**nothing, "op": "snapshot", "ttl_delete": False, "image": f'{{"i":{{"N":"{n}"}}}}'}
            for n in numbers
        ],
        schema=CHANGES,
    )


class Dataset:
    """Sink and tickets in one: applies what it is told to, and knows which tickets are open."""

    def __init__(self, segments: tuple[SnapshotSegment, ...]) -> None:
        self.stored = {segment.segment: segment for segment in segments}
        self.queued: deque[Batch] = deque()
        self.applied: Counter[int] = Counter()
        self.open: Counter[int] = Counter()
        self.commits = 0
        self.is_full = False

    def open_scan_ticket(self) -> int:
        self.open[self.commits] += 1
        return self.commits

    def close_scan_ticket(self, ticket: int) -> None:
        if self.open[ticket] == 0:
            raise AssertionError(f"ticket {ticket} is closed twice")
        self.open[ticket] -= 1

    @property
    def open_tickets(self) -> int:
        return self.open.total()

    def has_room(self) -> bool:
        return not self.is_full

    def offer(self, batch: Batch) -> None:
        self.queued.append(batch)

    def apply(self, most: int | None = None) -> None:
        """Commits the oldest queued batches, rows and progress together."""
        for _ in range(len(self.queued) if most is None else min(most, len(self.queued))):
            batch = self.queued.popleft()
            for image in batch.changes["image"].to_pylist():
                self.applied[int(json.loads(image)["i"]["N"])] += 1
            self.stored.update((each.segment, each) for each in batch.segments)
            self.commits += 1
            assert batch.scan_ticket is not None
            self.close_scan_ticket(batch.scan_ticket)

    def segments(self) -> tuple[SnapshotSegment, ...]:
        return tuple(self.stored[number] for number in sorted(self.stored))
