"""What the segment log does on every ObjectStore: append, fence, read, recover."""

from __future__ import annotations

import pytest

from checkpoints.commit import Committed
from checkpoints.errors import AppendPending, Fenced, LogCorrupt, LogMissing
from checkpoints.object_store import ObjectStore, PutOutcome
from checkpoints.progress import rows_of
from checkpoints.segment import GENESIS_SHA256, SegmentHeader, SegmentKind
from checkpoints.segment_log import FULL_EVERY, GENESIS, Head, Segment
from tests.doubles import (
    PIPELINE,
    FakeClock,
    TextCodec,
    delta,
    guard_of,
    leader_of,
    log_of,
    texts,
    writer_of,
)

CHANGES = SegmentKind.CHANGES


def test_appended_segments_are_read_back_in_order(objects: ObjectStore) -> None:
    """Indexes count from 1 without a gap, each segment names the hash of the one before."""
    writer = leader_of(objects, FakeClock())
    for number in range(3):
        committed = writer.append(CHANGES, "orders", f"batch {number}", delta(records=number))
        assert committed == Committed(1, number + 2)
    segments = list(log_of(objects).after(GENESIS))
    assert [segment.header.index for segment in segments] == [1, 2, 3, 4]
    assert [segment.header.kind.value for segment in segments] == ["fence"] + ["changes"] * 3
    assert segments[0].header.prev_sha256 == GENESIS_SHA256
    assert [s.header.prev_sha256 for s in segments[1:]] == [s.tip.sha256 for s in segments[:-1]]
    assert texts(objects) == ["batch 0", "batch 1", "batch 2"]
    assert objects.get("acme/prod/orders/segments/00000000000000000004.seg") is not None


def test_a_follower_goes_on_from_its_tip(objects: ObjectStore) -> None:
    """Reading after a tip gives what came since, and nothing at the head."""
    writer = leader_of(objects, FakeClock())
    writer.append(CHANGES, "orders", "one", delta())
    tip = writer.head.tip
    assert list(log_of(objects).after(tip)) == []
    writer.append(CHANGES, "orders", "two", delta())
    (segment,) = log_of(objects).after(tip)
    assert TextCodec().text(segment.data) == "two"


@pytest.mark.requirement("R20")
def test_a_new_leader_fences_the_old_one_at_the_store(objects: ObjectStore) -> None:
    """The old leader's lease still looks good to it; its next append fails all the same."""
    clock = FakeClock()
    old = leader_of(objects, clock, epoch=1, node="old")
    old.append(CHANGES, "orders", "one", delta())
    new = leader_of(objects, clock, epoch=2, node="new")
    with pytest.raises(Fenced):
        old.append(CHANGES, "orders", "zombie", delta())
    with pytest.raises(Fenced):
        old.settle()
    new.append(CHANGES, "orders", "two", delta())
    assert texts(objects) == ["one", "two"]


def test_a_claim_that_comes_second_reads_first(objects: ObjectStore) -> None:
    """A segment of a lower epoch at the fence's place is legitimate: it is applied, then fenced."""
    clock = FakeClock()
    old = leader_of(objects, clock, epoch=1, node="old")
    head = log_of(objects).head()
    old.append(CHANGES, "orders", "just in time", delta(records=7))
    new = writer_of(objects, clock, guard_of(clock, 2), node="new", head=head)
    found = new.claim()
    assert isinstance(found, Segment)
    assert TextCodec().text(found.data) == "just in time"
    assert new.claim() == Committed(2, 3)
    assert new.head.progress["orders"].shards[0].records == 7


def test_a_claim_below_a_higher_epoch_is_fenced(objects: ObjectStore) -> None:
    """A candidate that slept through another election cannot claim."""
    clock = FakeClock()
    head = log_of(objects).head()
    leader_of(objects, clock, epoch=3, node="winner")
    late = writer_of(objects, clock, guard_of(clock, 2), node="late", head=head)
    with pytest.raises(Fenced):
        late.claim()
    with pytest.raises(Fenced):
        late.claim()


def test_nothing_is_appended_before_the_claim(objects: ObjectStore) -> None:
    """An append without a fence of one's own could be taken for a zombie's."""
    writer = writer_of(objects, FakeClock(), guard_of(FakeClock()))
    with pytest.raises(AppendPending):
        writer.append(CHANGES, "orders", "one", delta())
    assert log_of(objects).head().tip == GENESIS


def test_two_writers_of_one_epoch_stop(objects: ObjectStore) -> None:
    """An epoch has one owner: another's segment under the own epoch ends the writing for good."""
    clock = FakeClock()
    one = leader_of(objects, clock, epoch=1, node="one")
    other = writer_of(objects, clock, guard_of(clock, 1), node="other", head=log_of(objects).head())
    other.claim()
    with pytest.raises(LogCorrupt):
        one.append(CHANGES, "orders", "x", delta())
    with pytest.raises(Fenced):
        one.settle()


@pytest.mark.requirement("R7")
@pytest.mark.requirement("R8")
@pytest.mark.requirement("R24")
def test_the_head_is_recovered_from_the_log_alone(objects: ObjectStore) -> None:
    """Tip, progress and so every offset and checkpoint row come from segments, without a table."""
    writer = leader_of(objects, FakeClock())
    for number in range(FULL_EVERY + 5):
        dataset = "orders" if number % 2 else "customers"
        writer.append(CHANGES, dataset, "x", delta(dataset, records=number))
    head = log_of(objects).head(must_exist=True)
    assert head == writer.head
    assert head.progress["orders"].shards[0].records == FULL_EVERY + 3
    assert head.progress["customers"].shards[0].records == FULL_EVERY + 4
    rows = rows_of(head.progress.values())
    assert rows == rows_of(writer.head.progress.values())
    assert len(rows.offsets) == len(rows.checkpoints) == 2


def test_a_base_shortens_the_way_and_outlives_the_segments(objects: ObjectStore) -> None:
    """A base is made once per head; reading goes on from its tip, after what it includes."""
    writer = leader_of(objects, FakeClock())
    writer.append(CHANGES, "orders", "one", delta(records=1))
    log = log_of(objects)
    assert log.publish_base(log.head(), "all rows")
    assert not log_of(objects, "another").publish_base(log.head(), "all rows, other bytes")
    writer.append(CHANGES, "orders", "two", delta(records=2))
    assert log.bases() == [2]
    base = log.base(2)
    assert TextCodec().text(base.data) == "all rows"
    assert [TextCodec().text(segment.data) for segment in log.after(base.tip)] == ["two"]
    assert log.head() == writer.head


def test_a_lease_without_its_log_is_refused(objects: ObjectStore) -> None:
    """An empty bucket under an initialized lease is a mistake, not a fresh start."""
    assert log_of(objects).head() == Head(GENESIS, {})
    with pytest.raises(LogMissing):
        log_of(objects).head(must_exist=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"prev_sha256": "f" * 64},
        {"epoch": 0},
        {"index": 9},
        {"pipeline": "other#prod#orders"},
        {"kind": SegmentKind.BASE},
    ],
)
def test_a_broken_link_stops_every_reader(objects: ObjectStore, wrong: dict[str, object]) -> None:
    """Another hash, a fallen epoch, another index or pipeline, a base among segments: corrupt."""
    writer = leader_of(objects, FakeClock())
    tip = writer.head.tip
    fields: dict[str, object] = {
        "pipeline": PIPELINE.pk,
        "index": 2,
        "epoch": 1,
        "writer": "forger",
        "prev_sha256": tip.sha256,
        "kind": CHANGES,
    }
    header = SegmentHeader(**{**fields, **wrong})  # type: ignore[arg-type]
    assert objects.put_new(PIPELINE.segment_key(2), TextCodec().encode(header, "x")) is (
        PutOutcome.CREATED
    )
    with pytest.raises(LogCorrupt):
        list(log_of(objects).after(GENESIS))
    with pytest.raises(LogCorrupt):
        writer.append(CHANGES, "orders", "mine", delta())
    with pytest.raises(Fenced):
        writer.settle()


def test_rubbish_in_the_log_stops_every_reader(objects: ObjectStore) -> None:
    """An object that is no segment is corruption, never skipped."""
    objects.put_new(PIPELINE.segment_key(1), b"rubbish")
    with pytest.raises(LogCorrupt):
        log_of(objects).head()


def test_other_objects_beside_the_log_do_no_harm(objects: ObjectStore) -> None:
    """Keys under the prefix that are not segments are not read."""
    objects.put_new(f"{PIPELINE.segments_prefix}README", b"hands off")
    objects.put_new(f"{PIPELINE.segments_prefix}00000000000000000001.seg.tmp", b"x")
    objects.put_new(f"{PIPELINE.bases_prefix}1.base.parquet", b"x")
    writer = leader_of(objects, FakeClock())
    assert log_of(objects).head() == writer.head
