"""Settings that change under way: each part goes by the new value at once."""

from __future__ import annotations

import pytest

from accelerator.query_errors import TooManyQueries
from accelerator.query_slots import QueryLimits, Slots, Stop
from connector.snapshot.capacity import Grant, ReadCapacity
from connector.stream.pacing import Pacing
from tests.builders import pages
from tests.unit.graph_driver import Driver


def test_an_idle_shard_does_not_wait_out_the_old_pace() -> None:
    """From a poll each hour to one at once: the shard is due when the pace changes."""
    driver = Driver(pacing=Pacing(floor_s=3600.0, draw=lambda: 0.5))
    driver.begin("a")
    driver.commit()
    driver.open("a")
    driver.pages("a", pages(0))
    assert driver.due_s("a") >= 3600.0
    driver.graph.pace(Pacing(idle_s=2.0), driver.now_s)
    assert driver.due_s("a") <= driver.now_s
    driver.pages("a", pages(0))
    assert driver.due_s("a") <= driver.now_s + 2.0


def test_a_slower_pace_holds_from_the_next_page() -> None:
    """The new floor is kept."""
    driver = Driver()
    driver.begin("a")
    driver.commit()
    driver.open("a")
    driver.pages("a", pages(0))
    driver.graph.pace(Pacing(floor_s=10.0), driver.now_s)
    driver.pages("a", pages(0))
    assert driver.due_s("a") >= driver.now_s + 10.0


def test_a_higher_capacity_pays_no_old_debt() -> None:
    """A debt of the old rate does not hold up the scan under the new one, nor a new limit."""
    capacity = ReadCapacity(1)
    grant = capacity.ask(0.0)
    assert isinstance(grant, Grant)
    capacity.settle(grant, 500.0)
    assert isinstance(capacity.ask(1.0), float)
    capacity.limit(1000)
    assert isinstance(capacity.ask(1.0), Grant)
    capacity.limit(None)
    assert isinstance(capacity.ask(1.0), Grant)


def test_a_lower_capacity_is_kept() -> None:
    """Over ten seconds, at most ten seconds' worth and a burst."""
    capacity = ReadCapacity(None)
    capacity.limit(10)
    spent = 0.0
    for tenth in range(100):
        grant = capacity.ask(tenth / 10)
        if isinstance(grant, Grant):
            capacity.settle(grant, 5.0)
            spent += 5.0
    assert 50.0 <= spent <= 10 * 10 + 10 + 5


class Asking:
    """A query as the slots see it."""

    def __init__(self) -> None:
        self.started_s = 0.0
        self.stopped: list[Stop] = []

    @property
    def is_stopped(self) -> bool:
        return bool(self.stopped)

    def stop(self, why: Stop) -> None:
        self.stopped.append(why)

    def raise_if_stopped(self) -> None:
        return None


def test_more_slots_let_more_in_and_fewer_stop_nobody() -> None:
    """Who runs goes on; who comes is measured by the new number."""
    slots = Slots(QueryLimits(max_concurrent=1, max_wait_s=0.01, timeout_s=3600), lambda: 0.0)
    first, second, third = Asking(), Asking(), Asking()
    slots.take(first)
    with pytest.raises(TooManyQueries):
        slots.take(second)
    slots.limit(QueryLimits(max_concurrent=2, max_wait_s=0.01, timeout_s=3600))
    slots.take(second)
    slots.limit(QueryLimits(max_concurrent=1, max_wait_s=0.01, timeout_s=3600))
    assert not first.stopped + second.stopped
    slots.free(first)
    with pytest.raises(TooManyQueries):
        slots.take(third)
    slots.close()
