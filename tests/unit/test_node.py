"""A node's way from recovering to leading and back, on a clock that only moves when told to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from accelerator.errors import NotLeading
from accelerator.outcome import SnapshotState, StoredDataset
from checkpoints.lease import LEASE_TIMES
from checkpoints.membership import Member, Membership
from checkpoints.offsets import OffsetStore
from checkpoints.segment import SegmentKind
from checkpoints.segment_log import GENESIS
from connector.cluster.bases import BaseRule
from connector.cluster.members import LeaderSeen, Members, ready_address
from connector.cluster.recovery import recover
from connector.cluster.view import NodeView, Role, following
from connector.health import DatasetState
from connector.reasons import Trouble
from tests.cluster_builder import Machine, World, changes, scanned, world
from tests.doubles import PIPELINE, FakeClock, Outcome, ScriptedItemStore

OBSERVE_S = LEASE_TIMES.observe_s


def led(place: World, name: str = "a") -> Machine:
    """A machine that leads by its own steps, with a loaded dataset."""
    machine = place.machine(name)
    machine.turn(5)
    machine.begin()
    ticket = machine.orders.open_scan_ticket()
    machine.orders.apply([scanned(ticket, ("x", 1))])
    machine.orders.mark_snapshot(SnapshotState.DONE)
    return machine


def until_leading(place: World, machine: Machine, for_s: float) -> float:
    """Moves the clock until the machine leads; after how many seconds it did."""
    began_s = place.clock.now_s
    while machine.role() is not Role.LEADER and place.clock.now_s - began_s < for_s:
        place.clock.advance(0.5)
        machine.turn(3)
    return place.clock.now_s - began_s


def test_the_first_node_leads_at_once(tmp_path: Path) -> None:
    """Nobody is waited for where there never was a lease."""
    with world(tmp_path) as place:
        machine = place.machine("a")
        assert not machine.reads()
        machine.turn(5)
        assert machine.role() is Role.LEADER
        assert machine.reads()
        assert machine.log.tip.epoch == 1


@pytest.mark.requirement("R25")
def test_the_source_is_not_read_before_a_promotion_is_complete(tmp_path: Path) -> None:
    """Log applied to its head, fenced, every row brought there, lease initialized: then only."""
    with world(tmp_path) as place:
        old = led(place)
        old.orders.apply([changes(1, ("x", 2))])
        new = place.machine("b")
        new.turn(2)
        old.orders.apply([changes(2, ("x", 3))])  # the new node has not seen it when it is elected
        seen: list[tuple[bool, int, int]] = []
        place.items.before_write = lambda: seen.append(
            (new.node.may_read, new.log.tip.epoch, new.log.tip.index)
        )
        until_leading(place, new, 60)
        place.items.before_write = lambda: None
        assert new.role() is Role.LEADER
        reads, epochs, indexes = zip(*seen, strict=True)
        assert not any(reads)
        reconciled = [index for epoch, index in zip(epochs, indexes, strict=True) if epoch == 2]
        assert reconciled
        assert set(reconciled) == {new.log.tip.index}
        assert new.items() == {"x": 3}
        rows = OffsetStore(place.items, PIPELINE)
        committed = {rows.row(key.sk).committed for key in rows.index().checkpoints}  # type: ignore[union-attr]
        assert committed == {new.log.tip.committed}


@pytest.mark.requirement("R25")
def test_a_promotion_that_fails_half_way_reads_nothing_and_goes_on(tmp_path: Path) -> None:
    """Rows that are refused, or a lease that cannot be marked: tried again under the same epoch."""
    with world(tmp_path) as place:
        machine = place.machine("a")
        machine.turn(1)
        place.fail_writes(Outcome.APPLIED, Outcome.NEVER_LANDED, Outcome.NEVER_LANDED)
        machine.turn(3)
        assert machine.role() is Role.ELECTED
        assert not machine.reads()
        assert machine.node.view().trouble is not None
        machine.turn(3)
        assert machine.role() is Role.LEADER
        fences = [s.header.epoch for s in machine.log.segments.after(GENESIS)]
        assert fences == [1]


def test_a_dead_leader_is_replaced_after_thirty_seconds_and_not_before(tmp_path: Path) -> None:
    """A follower that sees the lease stand still takes it, and goes on from the head."""
    with world(tmp_path) as place:
        old = led(place)
        new = place.machine("b")
        new.turn(2)
        took_s = until_leading(place, new, 60)
        assert OBSERVE_S <= took_s <= OBSERVE_S + 5
        new.orders.apply([changes(1, ("x", 5))])
        assert new.log.tip.epoch == 2
        # The old one slept all the while. It wakes, and whatever it tries is void.
        with pytest.raises(NotLeading):
            old.orders.apply([changes(1, ("x", 666))])
        old.turn(2)
        assert old.role() is Role.FOLLOWER
        assert old.rows.stood_by == 1
        assert old.items() == new.items() == {"x": 5}


def test_a_leader_that_renews_is_left_alone(tmp_path: Path) -> None:
    """Idle is not dead: however long nothing is written, heartbeats keep the lease."""
    with world(tmp_path) as place:
        old = led(place)
        new = place.machine("b")
        for _ in range(200):
            place.clock.advance(1.0)
            old.right.keep(place.clock.now_s)
            old.turn()
            new.turn()
        assert (old.role(), new.role()) == (Role.LEADER, Role.FOLLOWER)


def test_a_leader_that_leaves_is_followed_at_once(tmp_path: Path) -> None:
    """A released lease is taken at the next look, nobody waits thirty seconds."""
    with world(tmp_path) as place:
        old = led(place)
        new = place.machine("b")
        new.turn(2)
        old.node.leave()
        assert until_leading(place, new, 60) <= LEASE_TIMES.look_every_s + 1
        assert new.items() == {"x": 1}


def test_a_lease_that_remembers_a_log_does_not_begin_another(tmp_path: Path) -> None:
    """An empty bucket under an initialized lease is said, and nothing is read or written."""
    with world(tmp_path) as place:
        led(place).node.leave()
        for key in [*place.memory._objects]:
            place.memory.expire(key)
        new = place.machine("b")
        new.turn(8)
        assert new.role() is Role.ELECTED
        trouble = new.node.view().trouble
        assert trouble is not None
        assert trouble.code == "log_missing"
        assert not place.memory._objects


def test_two_processes_of_one_s3_pipeline_do_not_share_it(tmp_path: Path) -> None:
    """The later one fences the earlier, which stops for good and says so."""
    with world(tmp_path, clustered=False) as place:
        first = led(place)
        second = place.machine("b")
        second.turn(5)
        assert second.role() is Role.LEADER
        assert second.log.tip.epoch == 2
        with pytest.raises(NotLeading):
            first.orders.apply([changes(1, ("x", 666))])
        first.turn(3)
        assert first.role() is Role.FENCED
        assert not first.node.may_read
        assert second.items() == {"x": 1}


def test_bases_are_published_when_due_and_a_start_uses_them(tmp_path: Path) -> None:
    """After so many segments a node publishes one; another finds it and publishes none."""
    with world(tmp_path) as place:
        rule = BaseRule(segments=10)
        leader = led(place)
        one = place.machine("b", base_rule=rule)
        other = place.machine("c", base_rule=rule)
        for number in range(1, 12):
            leader.orders.apply([changes(number, ("x", number))])
        one.turn(3)
        (base,) = leader.log.segments.bases()
        other.turn(3)
        assert leader.log.segments.bases() == [base]
        fresh = place.machine("d")
        recover(fresh.log, fresh.database)
        assert fresh.database.reopened == 1
        assert fresh.items() == leader.items()


def test_rows_that_were_there_before_their_log_begin_it_with_a_base(tmp_path: Path) -> None:
    """A file that was copied without a log becomes one: followers get all of it."""
    with world(tmp_path, clustered=False) as place:
        first = place.machine("a")
        first.lead()
        first.begin()
        first.orders.apply([scanned(first.orders.open_scan_ticket(), ("x", 1))])
        first.database.writer.execute("DELETE FROM dynaduck.log_position")
        first.database.close()
        for key in [*place.memory._objects]:
            place.memory.expire(key)
        again = place.machine("a")
        again.turn(4)
        assert again.role() is Role.LEADER
        kinds = [segment.header.kind for segment in again.log.segments.after(GENESIS)]
        assert kinds == [SegmentKind.FENCE]
        fresh = place.machine("b")
        recover(fresh.log, fresh.database)
        assert fresh.items() == again.items() == {"x": 1}


# What a follower says of itself

VIEW = NodeView(
    "n", "clustered", Role.FOLLOWER, looked_s=0.5, leader="m", leader_age_s=3.0, leader_lag_ms=200
)


def stored(tmp_path: Path) -> StoredDataset:
    with world(tmp_path) as place:
        found = led(place).orders.load()
        assert found is not None
        return found


def test_a_follower_is_ready_on_proof_alone(tmp_path: Path) -> None:
    """Rows whole, log read lately, leader alive: each of these, or not Ready, with a code."""
    whole = stored(tmp_path)
    assert following(VIEW, whole, ()).state is DatasetState.READY
    assert following(VIEW, whole, ()).lag_max_ms == 3200
    away = Trouble("store_denied", "no", "ask", 0.0, needs_person=True)
    for view, found, state, code in [
        (replace(VIEW, looked_s=60.0), whole, DatasetState.LAGGING, "log_unread"),
        (replace(VIEW, looked_s=None), whole, DatasetState.LAGGING, "log_unread"),
        (replace(VIEW, leader_age_s=26.0), whole, DatasetState.LAGGING, "leader_silent"),
        (replace(VIEW, leader_age_s=None), whole, DatasetState.LAGGING, "leader_silent"),
        (replace(VIEW, role=Role.RECOVERING), whole, DatasetState.INITIALIZING, "recovering"),
        (replace(VIEW, role=Role.ELECTED), whole, DatasetState.CATCHING_UP, "electing"),
        (replace(VIEW, role=Role.FENCED), whole, DatasetState.ERROR, "fenced"),
        (replace(VIEW, trouble=away), whole, DatasetState.ERROR, "store_denied"),
        (VIEW, None, DatasetState.INITIALIZING, "log_empty"),
        (
            VIEW,
            replace(whole, live_snapshot_state="running"),
            DatasetState.SNAPSHOTTING,
            "snapshot_running",
        ),
        (
            VIEW,
            replace(whole, live_snapshot_state="scanned"),
            DatasetState.CATCHING_UP,
            "snapshot_passing",
        ),
        (VIEW, replace(whole, is_frozen=True), DatasetState.SNAPSHOTTING, "rebuilding"),
    ]:
        health = following(view, found, ())
        assert (health.state, health.reasons[0].code) == (state, code)
        assert not health.is_ready


# Who else is there


def members_of(
    items: ScriptedItemStore, clock: FakeClock, member: Member
) -> tuple[Members, LeaderSeen]:
    seen = LeaderSeen()
    membership = Membership(items, "c", clock)
    return Members(membership, lambda: member, seen, clock, every_s=10.0), seen


def test_an_idle_leader_is_told_from_a_dead_one(tmp_path: Path) -> None:
    """A leader that announces itself is alive though nothing changes; one that does not is not."""
    items, clock = ScriptedItemStore(), FakeClock()
    leader, _ = members_of(items, clock, Member("l", PIPELINE.pk, role="leader", epoch=3))
    follower, seen = members_of(items, clock, Member("f", PIPELINE.pk))
    ages = []
    for turn in range(6):
        if turn < 3:
            leader.step(clock.now_s)
        follower.step(clock.now_s)
        ages.append(clock.now_s - (seen.since_s or 0.0))
        clock.advance(10.0)
    assert ages == [0.0, 0.0, 0.0, 10.0, 20.0, 30.0]
    assert seen.node == "l"


@pytest.mark.requirement("R32")
def test_a_query_goes_to_any_ready_node_of_the_tenant_and_takes_no_lease() -> None:
    """Followers before the leader, the least behind first; never another pipeline's node."""
    mine, other = PIPELINE.pk, "other#prod#orders"
    members = [
        Member("l", mine, "h:1", "leader", is_ready=True, epoch=2),
        Member("a", mine, "h:2", is_ready=True, lag_ms=500),
        Member("b", mine, "h:3", is_ready=True, lag_ms=100),
        Member("c", mine, "h:4", is_ready=False),
        Member("d", mine, "", is_ready=True),
        Member("e", other, "h:6", is_ready=True),
    ]
    assert ready_address(members, mine) == "h:3"
    assert ready_address(members[:1], mine) == "h:1"
    assert ready_address(members[3:], mine) is None
    assert ready_address(members, "nobody#prod#orders") is None


@pytest.mark.requirement("R32")
def test_a_follower_refuses_whatever_would_write(tmp_path: Path) -> None:
    """It serves reads: its rows take nothing but segments, and no lease is asked for by a read."""
    with world(tmp_path) as place:
        led(place)
        follower = place.machine("b")
        follower.turn(2)
        lease = place.items.get(PIPELINE.pk, "lease")
        assert follower.items() == {"x": 1}
        with pytest.raises(NotLeading):
            follower.orders.apply([changes(1, ("x", 666))])
        assert place.items.get(PIPELINE.pk, "lease") == lease
        assert follower.items() == {"x": 1}
