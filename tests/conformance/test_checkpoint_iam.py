"""The minimal policy is enough: every operation under an allow-list, and nothing beyond it."""

from __future__ import annotations

import pytest

from checkpoints.commit import Committed
from checkpoints.envelope import OffsetValue
from checkpoints.errors import StoreDenied
from checkpoints.keys import OffsetKey
from checkpoints.lease import Candidate, HeldLease, LeaseStore
from checkpoints.membership import DEAD_AFTER_S, Member, Membership
from checkpoints.offsets import OffsetStore
from checkpoints.segment import SegmentKind
from checkpoints.segment_log import GENESIS
from connector.aws.stores import BUCKET_ACTIONS, TABLE_ACTIONS
from emulator import Emulator
from tests.conformance.conftest import new_bucket, new_table
from tests.doubles import PIPELINE, FakeClock, delta, leader_of, log_of

# As the offset store's own documentation lists them.
TABLE_MINIMUM = {
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:Query",
}
BUCKET_MINIMUM = {"s3:GetObject", "s3:PutObject", "s3:ListBucket"}


@pytest.mark.requirement("R23")
def test_the_lists_are_the_documented_ones() -> None:
    """What is granted is the documented minimum, word by word: no s3:DeleteObject."""
    assert set(TABLE_ACTIONS) == TABLE_MINIMUM
    assert set(BUCKET_ACTIONS) == BUCKET_MINIMUM


@pytest.mark.requirement("R23")
@pytest.mark.requirement("R21")
def test_the_table_needs_no_more_than_its_minimum() -> None:
    """Lease, rows and membership work, discovery and sweep too, where all else (Scan) is denied."""
    with Emulator(shards=1) as aws:
        items, clock = new_table(aws), FakeClock()
        aws.policy.allow_only(TABLE_MINIMUM)
        held = Candidate(LeaseStore(items, PIPELINE), "a", clock).step()
        assert isinstance(held, HeldLease)
        clock.advance(10.0)
        assert held.step() is not None
        held.mark_initialized()
        offsets = OffsetStore(items, PIPELINE)
        key = OffsetKey("orders", "shard-1")
        offsets.publish_offset(Committed(1, 1), key, OffsetValue(line=1))
        offsets.publish_offset(Committed(1, 2), key, OffsetValue(line=2))
        assert offsets.index().offsets == {key: OffsetValue(line=2)}
        cluster = Membership(items, "c1", clock)
        cluster.announce(Member("b", PIPELINE.pk))
        cluster.sweep("a", lambda _: False)
        clock.advance(DEAD_AFTER_S)
        assert cluster.sweep("a", lambda _: False) == ["b"]
        assert held.release()


@pytest.mark.requirement("R23")
def test_the_log_needs_no_more_than_its_minimum() -> None:
    """Writing, reading, bases and recovery work where all else (DeleteObject) is denied."""
    with Emulator(shards=1) as aws:
        objects, clock = new_bucket(aws), FakeClock()
        aws.policy.allow_only(BUCKET_MINIMUM)
        writer = leader_of(objects, clock)
        writer.append(SegmentKind.CHANGES, "orders", "one", delta())
        assert log_of(objects).publish_base(writer.head, "whole")
        assert log_of(objects).head() == writer.head
        assert len(list(log_of(objects).after(GENESIS))) == 2


@pytest.mark.requirement("R23")
def test_a_follower_reads_without_any_right_to_write() -> None:
    """A follower needs GetObject and ListBucket; a refused write says what it lacks."""
    with Emulator(shards=1) as aws:
        objects, clock = new_bucket(aws), FakeClock()
        writer = leader_of(objects, clock)
        aws.policy.allow_only({"s3:GetObject", "s3:ListBucket"})
        assert log_of(objects).head() == writer.head
        with pytest.raises(StoreDenied) as denied:
            writer.append(SegmentKind.CHANGES, "orders", "one", delta())
        assert denied.value.action == "s3:PutObject"
        aws.policy.allow_all()
        writer.settle()
        assert writer.head.tip.index == 2
