"""What the lease does on every ItemStore: taken, renewed, stolen, given up, by no wall clock."""

from __future__ import annotations

import pytest

from checkpoints.errors import Fenced, RowCorrupt
from checkpoints.keys import LEASE_SK
from checkpoints.kv import ABSENT, ItemStore
from checkpoints.lease import LEASE_TIMES, Candidate, HeldLease, LeaseRow, LeaseStore
from tests.doubles import PIPELINE, FakeClock


def elected(leases: LeaseStore, node: str, clock: FakeClock) -> HeldLease:
    """The lease, waited for as long as it takes."""
    candidate = Candidate(leases, node, clock)
    for _ in range(50):
        held = candidate.step()
        if isinstance(held, HeldLease):
            return held
        clock.now_s = max(clock.now_s, held)
    raise AssertionError(f"{node} was never elected")


def test_the_first_candidate_creates_the_lease(items: ItemStore) -> None:
    """The first lease ever has epoch 1; of two that create it one is told no."""
    leases = LeaseStore(items, PIPELINE)
    assert leases.read() is None
    assert leases.create("a") == LeaseRow("a", 1, 0)
    assert leases.create("b") is None
    assert leases.read() == LeaseRow("a", 1, 0)


@pytest.mark.requirement("R18")
def test_a_renewal_adds_one_heartbeat(items: ItemStore) -> None:
    """Renewing counts the heartbeat up and needs the owner and its epoch."""
    leases = LeaseStore(items, PIPELINE)
    leases.create("a")
    assert leases.renew("a", 1) == LeaseRow("a", 1, 1)
    assert leases.renew("a", 1) == LeaseRow("a", 1, 2)
    assert leases.renew("b", 1) is None
    assert leases.renew("a", 2) is None
    assert leases.read() == LeaseRow("a", 1, 2)


@pytest.mark.requirement("R17")
def test_a_lease_is_taken_only_as_it_was_seen(items: ItemStore) -> None:
    """A renewal between the last look and the theft defeats it; of two thieves one wins."""
    leases = LeaseStore(items, PIPELINE)
    leases.create("a")
    seen = LeaseRow("a", 1, 0)
    leases.renew("a", 1)
    assert leases.take(seen, "b") is None
    seen = LeaseRow("a", 1, 1)
    assert leases.take(seen, "b") == LeaseRow("b", 2, 2)
    assert leases.take(seen, "c") is None
    assert leases.renew("a", 1) is None


@pytest.mark.requirement("R17")
def test_a_silent_lease_is_stolen_after_the_observation(items: ItemStore) -> None:
    """Nobody takes a held lease before it stood still for 30 s of the candidate's own time."""
    leases, clock = LeaseStore(items, PIPELINE), FakeClock()
    elected(leases, "a", clock)
    first_seen_s = clock.now_s
    stolen = elected(leases, "b", clock)
    assert stolen.epoch == 2
    assert clock.now_s - first_seen_s == LEASE_TIMES.observe_s


def test_a_released_lease_is_taken_at_once(items: ItemStore) -> None:
    """A graceful end costs no wait, and the epoch rises all the same."""
    leases, clock = LeaseStore(items, PIPELINE), FakeClock()
    held = elected(leases, "a", clock)
    held.mark_initialized()
    assert held.release()
    assert held.guard.is_fenced()
    assert held.step() is None
    started_s = clock.now_s
    taken = elected(leases, "b", clock)
    assert (taken.epoch, taken.row.is_initialized, clock.now_s) == (2, True, started_s)
    assert leases.read() == LeaseRow("b", 2, 1, is_released=False, is_initialized=True)


@pytest.mark.requirement("R20")
def test_a_robbed_holder_is_fenced_at_its_next_renewal(items: ItemStore) -> None:
    """A renewal that is refused fences at once; neither it nor a release touches the new lease."""
    leases, clock = LeaseStore(items, PIPELINE), FakeClock()
    held = elected(leases, "a", clock)
    seen = leases.read()
    assert seen is not None
    leases.take(seen, "b")
    clock.advance(LEASE_TIMES.renew_every_s)
    assert held.step() is None
    with pytest.raises(Fenced):
        held.guard.require(1)
    with pytest.raises(Fenced):
        held.mark_initialized()
    assert not held.release()
    assert leases.read() == LeaseRow("b", 2, 1)


def test_an_item_that_is_no_lease_is_not_guessed_at(items: ItemStore) -> None:
    """A lease item that lacks an attribute, or has a strange one, stops the election."""
    leases = LeaseStore(items, PIPELINE)
    items.put(PIPELINE.pk, LEASE_SK, {"owner_node": "a", "epoch": "1"}, ABSENT)
    with pytest.raises(RowCorrupt):
        leases.read()
