"""Slots and deadlines of queries: how many run, who waits, and whose time is over.

Owns the only thread of the query side, which stops what outlives its deadline. Knows of a query
only what `Slotted` says.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from accelerator.query_errors import DataUnavailable, TooManyQueries

_INTERRUPT_AGAIN_S = 0.05
# Of the mean time that slots are held: how much the newest counts.
_NEWEST_SHARE = 0.1


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


class _Waiting:
    """One who waits. `decided` is set once it has a slot or need not wait any longer."""

    def __init__(self, query: Slotted) -> None:
        self.query = query
        self.has_slot = False
        self.decided = threading.Event()


class Slots:
    """`max_concurrent` slots, and the watch over those who hold them. Thread-safe.

    A slot that becomes free is handed to who has waited longest, and only that thread is woken:
    with hundreds of them, waking all costs more than the queries do.
    """

    def __init__(self, limits: QueryLimits, monotonic_s: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: set[Slotted] = set()
        self._waiting: deque[_Waiting] = deque()
        self._held_s = 0.0
        self._watch_sleeps = False
        self._is_closed = False
        self._watch = threading.Thread(target=self._stop_the_overdue, name="query-deadlines")
        self._watch.daemon = True
        self._watch.start()

    @property
    def limits(self) -> QueryLimits:
        return self._limits

    def limit(self, limits: QueryLimits) -> None:
        """Other limits from here on, for those who run and wait too; none is stopped for a slot."""
        with self._lock:
            self._limits = limits
            self._hand_over()
            self._changed.notify_all()

    @property
    def running(self) -> int:
        with self._lock:
            return len(self._running)

    @property
    def waiting(self) -> int:
        with self._lock:
            return len(self._waiting)

    def take(self, query: Slotted) -> None:
        """Waits for a slot and takes it.

        Raises:
            TooManyQueries: too many wait already, or none becomes free in time
            DataUnavailable: closed
        """
        with self._lock:
            if self._is_closed:
                raise DataUnavailable("The service is shutting down.")
            limits = self._limits
            if len(self._running) >= limits.max_concurrent:
                self._refuse_hopeless(limits)
            one = _Waiting(query)
            self._waiting.append(one)
            self._hand_over()
        if not query.is_stopped:
            one.decided.wait(limits.max_wait_s)
        with self._lock:
            if one.has_slot:
                return
            self._waiting.remove(one)
            if self._is_closed:
                raise DataUnavailable("The service is shutting down.")
        query.raise_if_stopped()
        raise TooManyQueries(
            f"All {limits.max_concurrent} query slots were taken for {limits.max_wait_s:g} s."
        )

    def free(self, query: Slotted) -> None:
        with self._lock:
            if query not in self._running:
                return
            self._running.discard(query)
            held_s = self._monotonic_s() - query.started_s
            self._held_s += _NEWEST_SHARE * (held_s - self._held_s)
            self._hand_over()

    def wake(self) -> None:
        """Lets those who wait look whether they were stopped, and the watch at those who run."""
        with self._lock:
            for one in self._waiting:
                if one.query.is_stopped:
                    one.decided.set()
            self._changed.notify_all()

    def oldest(self) -> Slotted | None:
        """Who has run longest of those that nobody has stopped yet."""
        with self._lock:
            going_on = (query for query in self._running if not query.is_stopped)
            return min(going_on, key=lambda query: query.started_s, default=None)

    def close(self) -> None:
        """Stops what runs, turns away what waits and comes. Idempotent."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
            for one in self._waiting:
                one.decided.set()
            self._changed.notify_all()
        for query in running:
            query.stop(Stop.CANCELLED)
        self._watch.join()

    def _begin(self, query: Slotted) -> None:
        query.started_s = self._monotonic_s()
        self._running.add(query)
        if self._watch_sleeps:
            # Otherwise it wakes at the deadline of one that began before, whose is the sooner.
            self._changed.notify_all()

    def _hand_over(self) -> None:
        """Gives free slots to those who have waited longest."""
        if self._is_closed:
            return
        for one in list(self._waiting):
            if len(self._running) >= self._limits.max_concurrent:
                return
            if one.query.is_stopped or one.decided.is_set():
                continue
            self._begin(one.query)
            self._waiting.remove(one)
            one.has_slot = True
            one.decided.set()

    def _refuse_hopeless(self, limits: QueryLimits) -> None:
        """Who would wait in vain is turned away at once, and can ask elsewhere, or later."""
        ahead = len(self._waiting)
        if ahead >= limits.max_waiting:
            raise TooManyQueries(
                f"{limits.max_concurrent} queries are running and {ahead} are waiting."
            )
        wait_s = ahead * self._held_s / limits.max_concurrent
        if wait_s > limits.max_wait_s:
            raise TooManyQueries(
                f"{ahead} queries are waiting, so that this one would for about {wait_s:.0f} s."
            )

    def _stop_the_overdue(self) -> None:
        while True:
            with self._lock:
                if self._is_closed:
                    return
                now_s = self._monotonic_s()
                deadlines = {q: q.started_s + self._limits.timeout_s for q in self._running}
                over = [q for q, at_s in deadlines.items() if at_s <= now_s or q.is_stopped]
                if not over:
                    soonest = min(deadlines.values(), default=None)
                    self._watch_sleeps = soonest is None
                    self._changed.wait(None if soonest is None else soonest - now_s)
                    self._watch_sleeps = False
                    continue
            for query in over:
                query.stop(Stop.TIMEOUT)
            with self._lock:
                # An interrupt that comes just before a statement begins is lost: say it again.
                self._changed.wait(_INTERRUPT_AGAIN_S)
