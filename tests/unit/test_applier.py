"""The one writer: groups, refusals, and what becomes of a group in hand."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from accelerator.batch import Batch, empty_changes
from accelerator.errors import (
    AcceleratorError,
    DatabaseInvalidated,
    DiskFull,
    OutOfMemory,
    PoisonRecord,
    UnknownShard,
)
from accelerator.outcome import Applied
from connector.applier import GROUP_BYTES, Applier, group_bytes_within
from connector.retry import Backoff


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Lane:
    """A dataset that refuses as it is told to; `applied` holds what was committed, in order."""

    def __init__(self, name: str = "orders") -> None:
        self.name = name
        self.queue: list[Batch] = []
        self.refusals: list[AcceleratorError] = []
        self.largest = 1_000_000
        self.applied: list[Batch] = []
        self.told: list[Batch] = []
        self.gives_up = False

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        taken, self.queue = self.queue[:most_batches], self.queue[most_batches:]
        return taken

    def apply(self, group: Sequence[Batch]) -> Applied:
        if self.refusals:
            raise self.refusals.pop(0)
        if len(group) > self.largest:
            raise OutOfMemory("too many at once")
        self.applied.extend(group)
        return Applied(wrote=True)

    def committed(self, group: Sequence[Batch], applied: Applied) -> None:
        self.told.extend(group)

    def refused(self, group: Sequence[Batch], error: AcceleratorError) -> bool:
        return self.gives_up


class Bench:
    def __init__(self, *lanes: Lane) -> None:
        self.clock = Clock()
        self.reopened = 0
        self.applier = Applier(
            lanes,
            threading.RLock(),
            self.reopen,
            self.clock,
            backoff=Backoff(base_s=1.0, cap_s=8.0),
            draw=lambda: 0.5,
        )

    def reopen(self) -> None:
        self.reopened += 1

    def step(self) -> float | None:
        return self.applier.step(self.clock.now_s)

    def until_idle(self, most: int = 50) -> None:
        for _ in range(most):
            due_s = self.step()
            if due_s is None:
                return
            self.clock.now_s = max(self.clock.now_s, due_s)
        raise AssertionError("the applier does not come to rest")


def batches(count: int) -> list[Batch]:
    return [Batch(empty_changes(), generation) for generation in range(count)]


def test_all_that_is_queued_is_one_transaction() -> None:
    """Group commit: latency is low when quiet, batches are large when behind."""
    lane = Lane()
    lane.queue = batches(5)
    bench = Bench(lane)
    calls: list[int] = []
    apply = lane.apply

    def counted(group: Sequence[Batch]) -> Applied:
        calls.append(len(group))
        return apply(group)

    lane.apply = counted  # type: ignore[method-assign]
    bench.until_idle()

    assert calls == [5]
    assert lane.told == lane.applied


@pytest.mark.parametrize("error", [DiskFull("full"), OutOfMemory("none left")])
def test_a_refused_group_is_kept_and_tried_again(error: AcceleratorError) -> None:
    """A full disk delays changes and loses none; nobody is told of a commit that was not one."""
    lane = Lane()
    lane.queue = wanted = batches(3)
    lane.refusals = [error, error]
    bench = Bench(lane)

    bench.step()
    assert lane.told == []
    assert [fault.error for fault in bench.applier.faults()] == [error]
    assert bench.applier.holds("orders")
    bench.until_idle()

    assert lane.applied == lane.told == wanted
    assert bench.applier.faults() == ()
    assert not bench.applier.holds("orders")


def test_it_does_not_try_again_before_the_wait_is_over() -> None:
    """A full disk is no busy loop."""
    lane = Lane()
    lane.queue = batches(1)
    lane.refusals = [DiskFull("full")]
    bench = Bench(lane)

    due_s = bench.step()

    assert due_s is not None
    assert due_s > bench.clock.now_s
    assert bench.step() == due_s
    assert lane.applied == []


def test_memory_that_runs_out_makes_the_group_smaller() -> None:
    """What does not fit at once fits in halves, in the same order."""
    lane = Lane()
    lane.queue = wanted = batches(9)
    lane.largest = 2
    bench = Bench(lane)

    bench.until_idle()

    assert lane.applied == wanted


def test_who_waits_for_memory_says_so_and_waits_briefly() -> None:
    """Queries are stopped meanwhile, so the wait does not grow with the attempts."""
    lane = Lane()
    lane.queue = batches(1)
    lane.refusals = [OutOfMemory("no memory")] * 12
    bench = Bench(lane)

    for _ in range(12):
        due_s = bench.step()
        assert due_s is not None
        assert due_s - bench.clock.now_s <= 1.0
        assert bench.applier.is_starving
        bench.clock.now_s = due_s
    bench.step()

    assert not bench.applier.is_starving
    assert len(lane.applied) == 1


def test_a_group_is_no_larger_than_memory_allows() -> None:
    """Text of unknown attributes takes up to 25 times its size while it is applied."""
    assert group_bytes_within(100 * 2**20) == 4 * 2**20
    assert group_bytes_within(16 * 2**30) == GROUP_BYTES


def test_an_invalidated_database_is_reopened_and_the_group_applied() -> None:
    """DuckDB can die inside the process; the group in hand is not lost by it."""
    lane = Lane()
    lane.queue = wanted = batches(2)
    lane.refusals = [DatabaseInvalidated("gone")]
    bench = Bench(lane)

    bench.until_idle()

    assert bench.reopened == 1
    assert lane.applied == wanted


def test_one_datasets_trouble_does_not_hold_up_another() -> None:
    """Policy `halt` stops its own dataset only."""
    halted, healthy = Lane("halted"), Lane("healthy")
    halted.queue = batches(1)
    halted.refusals = [PoisonRecord("s", "1", "no image") for _ in range(5)]
    healthy.queue = wanted = batches(3)
    bench = Bench(halted, healthy)

    bench.step()

    assert healthy.applied == wanted
    assert bench.applier.holds("halted")


def test_a_group_that_is_given_up_is_dropped() -> None:
    """Where reading starts over from the committed rows, what was in hand will come again."""
    lane = Lane()
    lane.queue = batches(2)
    lane.refusals = [UnknownShard("s")]
    lane.gives_up = True
    bench = Bench(lane)

    bench.step()

    assert not bench.applier.holds("orders")
    assert lane.applied == []
    assert bench.applier.faults() == ()
