"""Slots of queries: in turn, one woken at a time, and no waiting in vain."""

from __future__ import annotations

import threading

import pytest

from accelerator.query_errors import DataUnavailable, QueryCancelled, TooManyQueries
from accelerator.query_slots import QueryLimits, Slots, Stop


class Asking:
    """Wants a slot, from a thread of its own where it has to wait."""

    def __init__(self, slots: Slots) -> None:
        self.started_s = 0.0
        self.is_told = False
        self.error: Exception | None = None
        self._slots = slots
        self._thread = threading.Thread(target=self._take)

    @property
    def is_stopped(self) -> bool:
        return self.is_told

    def stop(self, _why: Stop) -> None:
        self.is_told = True
        self._slots.wake()

    def raise_if_stopped(self) -> None:
        if self.is_told:
            raise QueryCancelled("It was stopped.")

    def wait(self, waiting: int) -> Asking:
        """Begins to wait; returns once so many do."""
        self._thread.start()
        pause = threading.Event()
        while self._slots.waiting < waiting and self._thread.is_alive():
            pause.wait(0.001)
        return self

    def ended(self) -> Asking:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self

    def _take(self) -> None:
        try:
            self._slots.take(self)
        except (TooManyQueries, QueryCancelled, DataUnavailable) as error:
            self.error = error


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


LIMITS = QueryLimits(max_concurrent=1, timeout_s=3_600, max_wait_s=10)


def test_who_waited_longest_is_next() -> None:
    """A slot goes to the first in the queue, and the second goes on waiting."""
    slots = Slots(LIMITS, Clock())
    holder = Asking(slots)
    slots.take(holder)
    first, second = Asking(slots).wait(1), Asking(slots).wait(2)
    slots.free(holder)
    first.ended()
    assert first.error is None
    assert slots.waiting == 1
    slots.free(first)
    assert second.ended().error is None
    slots.free(second)
    assert slots.running == slots.waiting == 0
    slots.close()


def test_one_who_is_stopped_gives_up_the_place() -> None:
    """Nobody behind it waits for it, and no slot is lost to it."""
    slots = Slots(LIMITS, Clock())
    holder = Asking(slots)
    slots.take(holder)
    first, second = Asking(slots).wait(1), Asking(slots).wait(2)
    first.stop(Stop.CANCELLED)
    assert isinstance(first.ended().error, QueryCancelled)
    slots.free(holder)
    assert second.ended().error is None
    slots.free(second)
    assert slots.running == slots.waiting == 0
    slots.close()


def test_one_who_would_wait_in_vain_is_turned_away_at_once() -> None:
    """With queries of 100 s each, the third in the queue cannot be served within 10 s."""
    clock = Clock()
    slots = Slots(LIMITS, clock)
    for _ in range(30):
        holder = Asking(slots)
        slots.take(holder)
        clock.now_s += 100
        slots.free(holder)
    slots.take(holder)
    waiting = Asking(slots).wait(1)
    with pytest.raises(TooManyQueries, match="would for about"):
        slots.take(Asking(slots))
    slots.free(holder)
    assert waiting.ended().error is None
    slots.free(waiting)
    slots.take(Asking(slots))
    slots.close()


def test_closing_turns_those_who_wait_away() -> None:
    """At shutdown nobody waits for a slot that will not come."""
    slots = Slots(LIMITS, Clock())
    holder = Asking(slots)
    slots.take(holder)
    waiting = Asking(slots).wait(1)
    slots.close()
    assert isinstance(waiting.ended().error, DataUnavailable)
    assert holder.is_told


def test_more_slots_are_given_to_those_who_wait() -> None:
    """A raised limit needs no query to end first."""
    slots = Slots(LIMITS, Clock())
    slots.take(Asking(slots))
    first, second = Asking(slots).wait(1), Asking(slots).wait(2)
    slots.limit(QueryLimits(max_concurrent=3, timeout_s=3_600))
    assert first.ended().error is second.ended().error is None
    assert slots.running == 3
    slots.close()
