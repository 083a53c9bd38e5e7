"""Slots and deadlines of queries: how many run, who waits, and whose time is over.

Owns the only thread of the query side, which stops what outlives its deadline. Knows of a query
only what `Slotted` says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from accelerator.query_errors import DataUnavailable, TooManyQueries

_INTERRUPT_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """`timeout_s` covers everything from admission to the last row, a slow client included.

    max_waiting, max_wait_s   how many may wait for a slot, and for how long
    """

    max_concurrent: int = 4
    timeout_s: float = 30.0
    max_rows: int | None = None
    max_waiting: int = 256
    max_wait_s: float = 10.0
    batch_rows: int = 10_000


class Stop(StrEnum):
    """Why a query is stopped from outside."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    MEMORY = "memory"


class Slotted(Protocol):
    """What holds a slot. `stop` may be called again and again, from any thread."""

    started_s: float

    @property
    def is_stopped(self) -> bool: ...

    def stop(self, why: Stop) -> None: ...

    def raise_if_stopped(self) -> None: ...


class Slots:
    """`max_concurrent` slots, and the watch over those who hold them. Thread-safe."""

    def __init__(self, limits: QueryLimits, monotonic_s: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._changed = threading.Condition()
        self._running: set[Slotted] = set()
        self._waiting = 0
        self._is_closed = False
        self._watch = threading.Thread(target=self._stop_the_overdue, name="query-deadlines")
        self._watch.daemon = True
        self._watch.start()

    @property
    def limits(self) -> QueryLimits:
        return self._limits

    def limit(self, limits: QueryLimits) -> None:
        """Other limits from here on, for those who run and wait too; none is stopped for a slot."""
        with self._changed:
            self._limits = limits
            self._changed.notify_all()

    @property
    def running(self) -> int:
        with self._changed:
            return len(self._running)

    def take(self, query: Slotted) -> None:
        """Waits for a slot and takes it.

        Raises:
            TooManyQueries: too many wait already, or none became free in time
            DataUnavailable: closed
        """
        with self._changed:
            if len(self._running) >= self._limits.max_concurrent:
                self._wait_for_one(query)
            if self._is_closed:
                raise DataUnavailable("The service is shutting down.")
            query.started_s = self._monotonic_s()
            self._running.add(query)
            self._changed.notify_all()

    def free(self, query: Slotted) -> None:
        with self._changed:
            self._running.discard(query)
            self._changed.notify_all()

    def wake(self) -> None:
        """Lets those who wait look whether they were stopped."""
        with self._changed:
            self._changed.notify_all()

    def oldest(self) -> Slotted | None:
        """Who has run longest of those that nobody has stopped yet."""
        with self._changed:
            going_on = (query for query in self._running if not query.is_stopped)
            return min(going_on, key=lambda query: query.started_s, default=None)

    def close(self) -> None:
        """Stops what runs, turns away what waits and comes. Idempotent."""
        with self._changed:
            self._is_closed = True
            running = list(self._running)
            self._changed.notify_all()
        for query in running:
            query.stop(Stop.CANCELLED)
        self._watch.join()

    def _wait_for_one(self, query: Slotted) -> None:
        limits = self._limits
        if self._waiting >= limits.max_waiting:
            raise TooManyQueries(
                f"{limits.max_concurrent} queries are running and {self._waiting} are waiting."
            )
        self._waiting += 1
        try:
            is_free = self._changed.wait_for(
                lambda: (
                    len(self._running) < self._limits.max_concurrent
                    or self._is_closed
                    or query.is_stopped
                ),
                limits.max_wait_s,
            )
        finally:
            self._waiting -= 1
        query.raise_if_stopped()
        if not is_free:
            raise TooManyQueries(
                f"All {limits.max_concurrent} query slots were taken for {limits.max_wait_s:g} s."
            )

    def _stop_the_overdue(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                now_s = self._monotonic_s()
                deadlines = {q: q.started_s + self._limits.timeout_s for q in self._running}
                over = [q for q, at_s in deadlines.items() if at_s <= now_s or q.is_stopped]
                if not over:
                    soonest = min(deadlines.values(), default=None)
                    self._changed.wait(None if soonest is None else soonest - now_s)
                    continue
            for query in over:
                query.stop(Stop.TIMEOUT)
            with self._changed:
                # An interrupt that comes just before a statement begins is lost: say it again.
                self._changed.wait(_INTERRUPT_AGAIN_S)
