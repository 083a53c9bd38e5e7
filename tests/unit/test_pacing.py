"""Polling while something waits for a proof: the end of a snapshot has to be passed."""

from __future__ import annotations

import pytest

from connector.stream.pacing import Pacing
from tests.builders import pages, row
from tests.unit.graph_driver import Driver


@pytest.mark.parametrize(("shards", "longest_s"), [(4, 0.25), (1000, 2.0)])
def test_hurried_polls_wait_a_quarter_second_at_most_unless_there_are_very_many(
    shards: int, longest_s: float
) -> None:
    """The wait of a hurried shard stays short, but all shards together keep to the call budget."""
    pacing = Pacing(idle_s=30.0)
    wait_s = pacing.after_page(more=False, empties=20, is_closed=False, shards=shards, hurries=True)
    assert wait_s == longest_s
    assert pacing.after_page(more=False, empties=20, is_closed=False, shards=shards) == 30.0


def test_a_hurried_shard_is_still_polled_no_more_often_than_the_user_wants() -> None:
    """`scan_interval` is the floor, whatever waits."""
    pacing = Pacing(floor_s=5.0)
    assert pacing.after_page(more=False, empties=9, is_closed=False, shards=1, hurries=True) == 5.0


def _idle(pacing: Pacing | None = None) -> Driver:
    driver = Driver([row("a")], pacing=pacing or Pacing(idle_s=30.0))
    driver.pages("a", pages(*[0] * 14))
    return driver


def test_a_hurry_wakes_an_idle_shard_and_ends_when_it_is_covered() -> None:
    """Polled at once and then each quarter second, until the time is covered; then lazily again."""
    driver = _idle()
    until_ms = driver.at_ms + 5_000
    assert driver.take() == []
    driver.graph.hurry(until_ms, driver.now_s)
    assert driver.take() == ["a"]
    driver.pages("a", pages(0, at_ms=until_ms))
    due_s = driver.graph.next_due_s()
    assert due_s is not None
    assert due_s - driver.now_s == 0.25
    driver.pages("a", pages(0, 0, at_ms=until_ms))
    due_s = driver.graph.next_due_s()
    assert due_s is not None
    assert due_s - driver.now_s > 0.25


def test_a_hurry_does_not_wake_what_is_to_be_polled_rarely() -> None:
    """With a `scan_interval` beyond the hurry the next poll stays when it was."""
    driver = _idle(Pacing(floor_s=60.0))
    before_s = driver.graph.next_due_s()
    driver.graph.hurry(driver.at_ms + 5_000, driver.now_s)
    assert driver.graph.next_due_s() == before_s


@pytest.mark.parametrize("wait_s", [0.5, 1.3, 2.0, 30.0])
def test_long_waits_end_together_and_never_early(wait_s: float) -> None:
    """Polls that are due within a sixteenth of a second share a wake-up; none comes too soon."""
    dues = {Pacing().due_s(100 + number / 1000, wait_s) for number in range(1000)}
    assert len(dues) <= 17
    for number in range(1000):
        late_s = Pacing().due_s(100 + number / 1000, wait_s) - (100 + number / 1000 + wait_s)
        assert 0 <= late_s < 1 / 16


def test_short_waits_are_kept_to_the_letter() -> None:
    """While a shard delivers records nothing may be added to its latency."""
    assert Pacing().due_s(100.01, 0.02) == 100.01 + 0.02
