"""Rows that follow the log: the leader's as every other node's, whatever fails on the way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accelerator.dead_letters import DeadLetters
from accelerator.errors import LogRefused, NotLeading
from accelerator.log_place import leave_log, read_place
from accelerator.outcome import SnapshotState
from checkpoints.errors import LogCorrupt, LogMissing
from checkpoints.positions import Gap
from checkpoints.progress import rows_of
from checkpoints.segment import SegmentKind
from checkpoints.segment_log import GENESIS
from connector.cluster.bases import publish_base
from connector.cluster.recovery import recover
from tests.cluster_builder import Machine, World, changes, scanned, world
from tests.doubles import PIPELINE, Outcome


def leading(place: World, name: str = "a") -> Machine:
    """A machine that leads an empty log and has begun to load."""
    machine = place.machine(name)
    machine.lead()
    machine.log.reconcile()
    machine.begin()
    return machine


def follow(place: World, name: str = "b") -> Machine:
    machine = place.machine(name)
    recover(machine.log, machine.database)
    return machine


def reads(machine: Machine) -> bool:
    return machine.log.may_read


def kinds(machine: Machine) -> list[SegmentKind]:
    return [segment.header.kind for segment in machine.log.segments.after(GENESIS)]


@pytest.mark.requirement("R10")
def test_a_follower_holds_what_the_log_says_and_no_position_of_its_own(tmp_path: Path) -> None:
    """Rows, positions and marks of leader, follower and log are the same at every segment."""
    with world(tmp_path) as place:
        leader = leading(place)
        follower = follow(place)
        ticket = leader.orders.open_scan_ticket()
        steps: list[Callable[[], object]] = [
            lambda: leader.orders.apply([changes(1, ("x", 1), ("y", 2))]),
            lambda: leader.orders.apply([scanned(ticket, ("x", 0), ("z", 3))]),
            lambda: leader.orders.mark_snapshot(SnapshotState.SCANNED, scan_ended_at_ms=9),
            lambda: leader.orders.mark_snapshot(SnapshotState.DONE),
            lambda: leader.orders.apply([changes(1, ("x", 7), shard="shardId-2")]),
            lambda: leader.orders.forget_shards(["shardId-2"]),
        ]
        for step in steps:
            step()
            recover(follower.log, follower.database)
            assert follower.items() == leader.items()
            assert follower.log.head() == leader.log.head() == leader.log.segments.head()
        assert follower.items() == {"x": 7, "y": 2, "z": 3}
        stored = follower.orders.load()
        assert stored is not None
        assert stored == leader.orders.load()
        assert stored.snapshot_state == SnapshotState.DONE


@pytest.mark.requirement("R10")
def test_a_file_that_is_not_of_this_log_is_not_believed(tmp_path: Path) -> None:
    """Positions of a disk are worth nothing unless the log has the very segment they stand at."""
    with world(tmp_path) as place, world(tmp_path / "other") as other:
        leader = leading(place)
        stranger = leading(other)
        stranger.orders.apply([changes(1, ("x", 1))])
        stranger.log.store = place.objects
        stranger.log.segments._store = place.objects
        with pytest.raises(LogMissing):
            recover(stranger.log, stranger.database)
        leader.orders.apply([changes(1, ("x", 2))])
        with pytest.raises(LogCorrupt, match="another segment"):
            recover(stranger.log, stranger.database)
        leave_log(stranger.database.writer)
        stranger.log.load()
        with pytest.raises(LogCorrupt, match="rows of its own"):
            recover(stranger.log, stranger.database)


def test_a_segment_is_carried_out_once_and_in_order(tmp_path: Path) -> None:
    """A segment that is in the rows changes nothing; one with a hole before it is refused."""
    with world(tmp_path) as place:
        leader = leading(place)
        leader.orders.apply([changes(1, ("x", 1))])
        follower = place.machine("b")
        segments = list(leader.log.segments.after(follower.log.tip))
        with pytest.raises(LogCorrupt, match="does not follow"):
            follower.log.apply(segments[1])
        for segment in segments:
            follower.log.apply(segment)
        tip = follower.log.tip
        assert follower.log.apply(segments[-1]) is None
        assert follower.log.tip == tip == leader.log.tip
        place_row = read_place(follower.database.writer)
        assert place_row is not None
        assert place_row.tip == tip


def test_only_rows_that_win_are_in_the_log(tmp_path: Path) -> None:
    """What a change has passed is left out before the segment is written, replays make none."""
    with world(tmp_path) as place:
        leader = leading(place)
        ticket = leader.orders.open_scan_ticket()
        batch = changes(1, ("x", 5))
        applied = leader.orders.apply([batch, scanned(ticket, ("x", 0), ("y", 1))])
        assert (applied.records, applied.touched) == (1, 1)
        leader.orders.apply([batch])
        assert kinds(leader) == [
            SegmentKind.FENCE,
            SegmentKind.EVENT,
            SegmentKind.CHANGES,
            SegmentKind.SNAPSHOT,
        ]
        assert leader.items() == {"x": 5, "y": 1}


@pytest.mark.parametrize(
    "outcome", [Outcome.NEVER_LANDED, Outcome.APPLIED_LOST_RESPONSE, Outcome.CONFLICT_409]
)
def test_an_unanswered_segment_is_settled_before_the_next(tmp_path: Path, outcome: Outcome) -> None:
    """The writer lets go after a while; the same group again commits once what was in doubt."""
    with world(tmp_path) as place:
        leader = leading(place)
        place.objects.script.extend([outcome] + [Outcome.NEVER_LANDED] * 30)
        place.objects.failing_reads = 100
        group = [changes(1, ("x", 1))]
        with pytest.raises(LogRefused):
            leader.orders.apply(group)
        assert leader.log.is_blocked
        assert leader.items() == {}
        place.objects.script.clear()
        place.objects.failing_reads = 0
        leader.orders.apply(group)
        leader.orders.apply([changes(2, ("y", 2))])
        assert leader.items() == {"x": 1, "y": 2}
        assert kinds(leader).count(SegmentKind.CHANGES) == 2
        assert follow(place).items() == leader.items()


def test_a_gap_is_told_once_however_often_its_group_is_tried(tmp_path: Path) -> None:
    """The gap of a group whose segment was in doubt is one row on every node."""
    with world(tmp_path) as place:
        leader = leading(place)
        batch = changes(1, ("x", 1))
        gap = Gap("shardId-1", None, "trimmed", 5)
        with_gap = type(batch)(batch.changes, 1, batch.shards, gaps=(gap,))
        place.fail_writes(Outcome.NEVER_LANDED)
        with pytest.raises(LogRefused):
            leader.orders.apply([with_gap])
        leader.orders.apply([with_gap])
        stored = follow(place).orders.load()
        assert stored is not None
        assert stored.open_gaps == (gap,)


@pytest.mark.requirement("R27")
def test_rows_that_failed_after_a_commit_are_repaired_by_the_next_run(tmp_path: Path) -> None:
    """s3: copying goes on without the table; the next run's rows show it, each change once."""
    with world(tmp_path, clustered=False) as place:
        leader = leading(place)
        place.fail_writes(*[Outcome.NEVER_LANDED] * 1000)
        leader.orders.apply([changes(1, ("x", 1))])
        leader.orders.apply([changes(2, ("x", 2), ("y", 3))])
        assert leader.log.may_read
        assert leader.log.rows_error is not None
        place.items.script.clear()

        after = follow(place, "next")
        after.lead(epoch=2)
        after.log.reconcile()
        after.orders.apply([changes(2, ("x", 2), ("y", 3)), changes(4, ("z", 4))])
        assert after.items() == {"x": 2, "y": 3, "z": 4}
        rows = after.log._rows
        assert rows is not None
        shown = rows.index()
        wanted = rows_of(after.log.head().progress.values())
        assert dict(shown.checkpoints) == dict(wanted.checkpoints)
        assert [value.line for value in shown.offsets.values() if value.line] == [4]


@pytest.mark.requirement("R28")
def test_the_source_waits_while_rows_cannot_follow_a_commit(tmp_path: Path) -> None:
    """clustered: the commit stands, the source is not read on, and the rows are tried again."""
    with world(tmp_path) as place:
        leader = leading(place)
        assert reads(leader)
        place.fail_writes(Outcome.NEVER_LANDED, Outcome.NEVER_LANDED)
        group = [changes(1, ("x", 1))]
        with pytest.raises(LogRefused) as refusal:
            leader.orders.apply(group)
        assert refusal.value.code == "offsets_unpublished"
        assert leader.items() == {"x": 1}
        assert not reads(leader)
        with pytest.raises(LogRefused):
            leader.orders.apply(group)
        assert not reads(leader)
        leader.orders.apply(group)
        assert reads(leader)
        assert leader.items() == {"x": 1}
        assert kinds(leader).count(SegmentKind.CHANGES) == 1


def test_what_a_zombie_writes_is_void(tmp_path: Path) -> None:
    """After another's fence nothing of the old leader gets into the log, its rows or the table."""
    with world(tmp_path) as place:
        old = leading(place)
        old.orders.apply([changes(1, ("x", 1))])
        new = follow(place)
        new.lead(epoch=2)
        new.log.reconcile()
        rows = new.log._rows
        assert rows is not None
        before, segments = rows.index(), kinds(new)
        with pytest.raises(NotLeading):
            old.orders.apply([changes(2, ("x", 666))])
        with pytest.raises(NotLeading):
            old.orders.mark_snapshot(SnapshotState.DONE)
        assert old.items() == {"x": 1}
        assert not old.log.may_read
        assert (rows.index(), kinds(new)) == (before, segments)
        old.log.follow()
        new.orders.apply([changes(2, ("x", 2))])
        recover(old.log, old.database)
        assert old.items() == new.items() == {"x": 2}


def test_a_shadow_is_begun_and_swapped_in_on_every_node(tmp_path: Path) -> None:
    """A follower serves the old rows while the new ones load, and the new ones afterwards."""
    with world(tmp_path) as place:
        leader = leading(place)
        ticket = leader.orders.open_scan_ticket()
        leader.orders.apply([scanned(ticket, ("old", 1))])
        leader.orders.mark_snapshot(SnapshotState.DONE)
        number = leader.begin(shadow=True)
        ticket = leader.orders.open_scan_ticket()
        leader.orders.apply([scanned(ticket, ("new", 2), fills=number, generation=number)])
        follower = follow(place)
        assert follower.items() == {"old": 1}
        leader.orders.swap(resolve_gaps="reinitialized")
        recover(follower.log, follower.database)
        assert follower.items() == leader.items() == {"new": 2}
        assert follower.orders.load() == leader.orders.load()


def test_a_start_from_a_base_is_a_start_from_the_whole_log(tmp_path: Path) -> None:
    """Rows, types, positions and dead letters come with it, and reading goes on behind it."""
    with world(tmp_path) as place:
        leader = leading(place)
        leader.orders.apply([changes(1, ("x", 1), ("y", 2))])
        bad = changes(3, ("bad", 1))
        broken = bad.changes.set_column(
            bad.changes.schema.get_field_index("image"), "image", [["{not json"]]
        )
        leader.orders.apply([type(bad)(broken.cast(bad.changes.schema), 1, bad.shards)])
        assert leader.orders.open_dead_letters() == 1
        index = publish_base(leader.log, leader.database, threading.RLock(), place.clock)
        assert index == leader.log.tip.index
        leader.orders.apply([changes(4, ("x", 9))])
        for number in range(1, index + 1):
            place.memory.expire(PIPELINE.segment_key(number))
        fresh = follow(place)
        assert fresh.items() == leader.items() == {"x": 9, "y": 2}
        assert fresh.orders.open_dead_letters() == 1
        assert fresh.log.head() == leader.log.head()


def test_a_base_with_a_piece_changed_is_refused(tmp_path: Path) -> None:
    """Every piece carries its hash in the base."""
    with world(tmp_path) as place:
        leader = leading(place)
        index = publish_base(leader.log, leader.database, threading.RLock(), place.clock)
        assert index is not None
        key = PIPELINE.base_part_key(index, leader.log.writer_name, 0)
        place.memory.expire(key)
        place.memory.put_new(key, b"another")
        with pytest.raises(LogCorrupt, match="another than"):
            follow(place)


def test_dead_letters_leave_every_node_alike(tmp_path: Path) -> None:
    """Their rows carry the segment's time, so that a drop names the same ones everywhere."""
    with world(tmp_path) as place:
        leader = leading(place)
        leader.log.now_ms = lambda: 1_700_000_000_000
        bad = changes(1, ("bad", 1))
        broken = bad.changes.set_column(
            bad.changes.schema.get_field_index("image"), "image", [["{not json"]]
        )
        leader.orders.apply([type(bad)(broken.cast(bad.changes.schema), 1, bad.shards)])
        follower = follow(place)
        assert follower.orders.open_dead_letters() == 1
        letters = DeadLetters(leader.database, "orders").all()
        assert letters == DeadLetters(follower.database, "orders").all()
        leader.orders.drop_dead_letters(letters)
        recover(follower.log, follower.database)
        assert follower.orders.open_dead_letters() == leader.orders.open_dead_letters() == 0


def test_a_follower_changes_nothing_by_itself(tmp_path: Path) -> None:
    """Whatever would change rows is refused where the log is not ours to write."""
    with world(tmp_path) as place:
        leading(place)
        follower = follow(place)
        before = follower.log.tip
        with pytest.raises(NotLeading):
            follower.orders.apply([changes(1, ("x", 1))])
        with pytest.raises(NotLeading):
            follower.begin(shadow=True)
        assert follower.log.tip == before
        assert follower.items() == {}
