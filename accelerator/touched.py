"""Which keys were changed while a scan page was under way.

Owns the window: the keys of every commit since the oldest open ticket. A scan row read before a
change and applied after it would bring the past back, so rows of touched keys are dropped. Memory
only: after a restart the page is requested again under a new ticket. Thread-safe.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from accelerator.errors import ScanTicketExpired

KEYS = pa.schema([pa.field("h", pa.uint64()), pa.field("k", pa.string())])


@dataclass(frozen=True, slots=True)
class _Commit:
    number: int
    at_s: float
    keys: pa.Table


class TouchedKeys:
    """`margin_s` reaches back before a ticket: what an eventually consistent read may not show."""

    def __init__(self, monotonic_s: Callable[[], float], margin_s: float = 0.0) -> None:
        self._monotonic_s = monotonic_s
        self._margin_s = margin_s
        self._lock = threading.Lock()
        self._commits: deque[_Commit] = deque()
        self._tickets: Counter[int] = Counter()
        self._committed = 0
        self._floor = 0

    @property
    def commit_number(self) -> int:
        with self._lock:
            return self._committed

    def open(self) -> int:
        """Call before the request is sent; close after its page was applied or given up."""
        with self._lock:
            ticket = self._now_or_margin()
            self._tickets[ticket] += 1
            return ticket

    def close(self, ticket: int) -> None:
        with self._lock:
            self._tickets[ticket] -= 1
            if self._tickets[ticket] <= 0:
                del self._tickets[ticket]
            self._prune()

    def committed(self, keys: pa.Table) -> int:
        """Records one commit and the keys that it changed; returns its number."""
        with self._lock:
            self._committed += 1
            self._commits.append(_Commit(self._committed, self._monotonic_s(), keys))
            self._prune()
            return self._committed

    def expire(self) -> None:
        """Refuses every ticket there is: a commit may have happened whose keys nobody told."""
        with self._lock:
            self._committed += 1
            self._floor = self._committed

    def since(self, ticket: int) -> pa.Table:
        """Keys changed by commits later than the ticket, of schema KEYS.

        Raises:
            ScanTicketExpired: some of them are no longer known.
        """
        with self._lock:
            if ticket < self._floor:
                raise ScanTicketExpired(
                    f"Scan ticket {ticket} is older than the window, which begins at {self._floor}."
                )
            tables = [commit.keys for commit in self._commits if commit.number > ticket]
        return pa.concat_tables(tables) if tables else KEYS.empty_table()

    def _now_or_margin(self) -> int:
        horizon_s = self._monotonic_s() - self._margin_s
        ticket = self._committed
        for commit in reversed(self._commits):
            if self._margin_s <= 0 or commit.at_s < horizon_s:
                break
            ticket = commit.number - 1
        return ticket

    def _prune(self) -> None:
        oldest = min(self._tickets, default=self._committed)
        keep_after = min(oldest, self._now_or_margin())
        while self._commits and self._commits[0].number <= keep_after:
            self._commits.popleft()
        self._floor = max(self._floor, keep_after)
