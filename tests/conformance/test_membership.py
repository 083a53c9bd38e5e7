"""What membership does on every ItemStore."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoints.kv import ItemStore
from checkpoints.membership import DEAD_AFTER_S, Member, Membership
from tests.doubles import PIPELINE, FakeClock

A = Member("a", PIPELINE.pk, "10.0.0.1:50051", role="leader", epoch=3, applied_index=9)
B = Member("b", PIPELINE.pk, "10.0.0.2:50051", is_ready=True, lag_ms=40)


def refuses(flight_addr: str) -> bool:
    return False


def answers(flight_addr: str) -> bool:
    return True


@pytest.mark.requirement("R21")
def test_members_find_each_other_by_cluster(items: ItemStore) -> None:
    """Members stand under cluster#{id} with what they say of themselves; others do not show."""
    cluster = Membership(items, "c1", FakeClock())
    cluster.announce(A)
    cluster.announce(B)
    Membership(items, "c10", FakeClock()).announce(replace(A, node="z"))
    assert cluster.members() == [replace(A, heartbeat=1), replace(B, heartbeat=1)]
    assert [sk for sk, _ in items.query("cluster#c1", "node#")] == ["node#a", "node#b"]


def test_announcing_again_counts_the_heartbeat(items: ItemStore) -> None:
    """Each announcement tells what is new and adds 1, and a row that was swept comes back."""
    cluster = Membership(items, "c1", FakeClock())
    assert cluster.announce(A).heartbeat == 1
    assert cluster.announce(replace(A, applied_index=10)).heartbeat == 2
    assert cluster.members() == [replace(A, applied_index=10, heartbeat=2)]
    assert cluster.leave(replace(A, heartbeat=2))
    assert cluster.members() == []
    assert cluster.announce(A).heartbeat == 1


@pytest.mark.requirement("R22")
def test_a_silent_member_that_does_not_answer_is_removed(items: ItemStore) -> None:
    """It takes both: 30 s without a heartbeat, and a dial that fails."""
    clock = FakeClock()
    cluster = Membership(items, "c1", clock)
    cluster.announce(A)
    cluster.announce(B)
    assert cluster.sweep("a", refuses) == []
    clock.advance(DEAD_AFTER_S - 0.001)
    assert cluster.sweep("a", refuses) == []
    clock.advance(0.001)
    assert cluster.sweep("a", answers) == []
    assert cluster.sweep("a", refuses) == ["b"]
    assert [member.node for member in cluster.members()] == ["a"]


@pytest.mark.requirement("R22")
def test_a_heartbeat_starts_the_observation_anew(items: ItemStore) -> None:
    """A member that announced itself within the last 30 s is not even dialled."""
    clock = FakeClock()
    cluster = Membership(items, "c1", clock)
    cluster.announce(B)
    cluster.sweep("a", refuses)
    clock.advance(DEAD_AFTER_S)
    cluster.announce(B)
    assert cluster.sweep("a", refuses) == []
    clock.advance(DEAD_AFTER_S)
    assert cluster.sweep("a", refuses) == ["b"]


@pytest.mark.requirement("R22")
def test_a_member_that_wakes_during_the_dial_stays(items: ItemStore) -> None:
    """The removal is conditional on the heartbeat: one that comes during the dial defeats it."""
    clock = FakeClock()
    cluster = Membership(items, "c1", clock)
    cluster.announce(B)
    cluster.sweep("a", refuses)
    clock.advance(DEAD_AFTER_S)

    def wakes(flight_addr: str) -> bool:
        assert flight_addr == B.flight_addr
        Membership(items, "c1", clock).announce(B)
        return False

    assert cluster.sweep("a", wakes) == []
    assert [member.node for member in cluster.members()] == ["b"]
