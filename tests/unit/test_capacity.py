"""The read capacity account on a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.snapshot.capacity import BURST_S, FIRST_PAGE_RCU, Grant, ReadCapacity

SMALL = 1e-3


@given(
    max_rcu=st.floats(1, 10_000),
    costs=st.lists(st.floats(0.5, 300), min_size=1, max_size=60),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=10),
)
@settings(max_examples=200, deadline=None)
def test_spending_never_outruns_the_rate(
    max_rcu: float, costs: list[float], pauses: list[float]
) -> None:
    """In any stretch: the rate times its length, the burst, and the last page at most."""
    capacity = ReadCapacity(max_rcu)
    now_s, spent = 50.0, [(50.0, 0.0)]
    for number, cost in enumerate(costs):
        now_s += pauses[number % len(pauses)]
        grant = capacity.ask(now_s)
        while isinstance(grant, float):
            assert grant > now_s
            now_s = grant
            grant = capacity.ask(now_s)
        capacity.settle(grant, cost)
        spent.append((now_s, cost))
    for start in range(len(spent)):
        total = 0.0
        for at_s, cost in spent[start:]:
            allowed = max_rcu * (at_s - spent[start][0] + BURST_S) + FIRST_PAGE_RCU + SMALL
            assert total <= allowed
            total += cost


def test_a_steady_load_gets_exactly_the_rate() -> None:
    """A thousand pages of 20 units at 100 units a second take 200 seconds."""
    capacity = ReadCapacity(100.0)
    now_s = 0.0
    for _ in range(1000):
        grant = capacity.ask(now_s)
        while isinstance(grant, float):
            now_s = grant
            grant = capacity.ask(now_s)
        capacity.settle(grant, 20.0)

    assert now_s == pytest.approx(1000 * 20 / 100, rel=0.01)
    assert capacity.consumed_rcu == 20_000


def test_requests_in_flight_together_are_bounded_by_what_pages_cost_lately() -> None:
    """Many threads do not all send at once on the strength of one unit in the account."""
    capacity = ReadCapacity(100.0)

    answers = [capacity.ask(0.0) for _ in range(8)]

    assert sum(isinstance(answer, Grant) for answer in answers) == 1


def test_what_is_expected_follows_what_pages_cost() -> None:
    """The reservation comes down to the price of small pages."""
    capacity = ReadCapacity(1000.0)
    now_s = 0.0
    for _ in range(50):
        now_s += 1.0
        grant = capacity.ask(now_s)
        assert isinstance(grant, Grant)
        capacity.settle(grant, 2.0)

    grant = capacity.ask(now_s)
    assert isinstance(grant, Grant)
    assert grant.reserved_rcu == pytest.approx(2.0, abs=0.1)


def test_a_refused_request_gives_its_reservation_back() -> None:
    """A throttled page read nothing, so it costs nothing."""
    capacity = ReadCapacity(10.0)
    for _ in range(5):
        grant = capacity.ask(0.0)
        assert isinstance(grant, Grant)
        capacity.settle(grant, 0.0)

    assert capacity.consumed_rcu == 0


def test_a_pause_is_not_saved_up() -> None:
    """After an hour of rest one second's worth is there, not an hour's."""
    capacity = ReadCapacity(10.0)
    grant = capacity.ask(0.0)
    assert isinstance(grant, Grant)
    capacity.settle(grant, 1.0)

    sent = 0
    while isinstance(grant := capacity.ask(3600.0), Grant):
        capacity.settle(grant, 1.0)
        sent += 1

    assert sent == 11


def test_a_thread_that_reads_the_clock_late_earns_nothing_twice() -> None:
    """Threads pass their own reading of the clock, which may be a little old."""
    capacity = ReadCapacity(10.0)
    grant = capacity.ask(100.0)
    assert isinstance(grant, Grant)
    capacity.settle(grant, 100.0)

    due_s = [capacity.ask(now_s) for now_s in (101.0, 99.0, 101.0, 99.0, 101.0)]

    assert due_s[0] == due_s[2] == due_s[4] == pytest.approx(110.0)


def test_a_thread_that_reads_the_clock_late_costs_nothing_either() -> None:
    """An older reading of the clock does not take back what was earned."""
    capacity = ReadCapacity(10.0)
    for now_s in (0.0, 100.0, 50.0):
        grant = capacity.ask(now_s)
        assert isinstance(grant, Grant)
        capacity.settle(grant, 0.0)


def test_no_limit_never_waits() -> None:
    """`none` sends at once and still counts."""
    capacity = ReadCapacity(None)
    for _ in range(1000):
        grant = capacity.ask(0.0)
        assert isinstance(grant, Grant)
        capacity.settle(grant, 300.0)

    assert capacity.consumed_rcu == 300_000


@pytest.mark.parametrize("max_rcu", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(max_rcu: float) -> None:
    """Zero would never read, and infinity is written `none`."""
    with pytest.raises(ValueError, match="no limit"):
        ReadCapacity(max_rcu)
