"""The audit of a log: what holds is called whole, and each kind of fault is named where it is."""

from __future__ import annotations

import json

import pytest

from checkpoints.audit import Audit, LogAudit
from checkpoints.errors import LogCorrupt
from checkpoints.keys import PipelineKey
from checkpoints.object_store import MemoryObjectStore
from checkpoints.segment import SegmentHeader, SegmentKind
from tests.doubles import PIPELINE, FakeClock, TextCodec, delta, leader_of, log_of

STRANGER = PipelineKey("acme", "prod", "others")


def written(segments: int = 4, *, base: int | None = None) -> MemoryObjectStore:
    """A log of one epoch: the fence at 1, then changes; a base where it is asked for."""
    store = MemoryObjectStore()
    writer = leader_of(store, FakeClock())
    for index in range(2, segments + 1):
        writer.append(SegmentKind.CHANGES, "orders", str(index), delta(records=index))
        if index == base:
            log_of(store).publish_base(writer.head, "whole")
    return store


def audited(store: MemoryObjectStore) -> Audit:
    return LogAudit(store, PIPELINE, TextCodec()).run()


def faults(store: MemoryObjectStore) -> dict[str, str]:
    """Sentences by the name of the object."""
    return {fault.key.rsplit("/", 1)[1][14:20]: fault.sentence for fault in audited(store).faults}


def replaced(store: MemoryObjectStore, at: int, **changes: object) -> None:
    """Another header in the object of a segment; its hash then is another too."""
    key = PIPELINE.segment_key(at)
    head, _, rest = (store.get(key) or b"").partition(b"\n")
    store.expire(key)
    store.put_new(key, json.dumps(json.loads(head) | changes).encode() + b"\n" + rest)


def test_a_log_that_holds_is_whole() -> None:
    """Two leaders, more than a hundred segments, a base: no fault, and where it can begin."""
    store = written(105, base=50)
    leader_of(store, FakeClock(), epoch=2, node="second")
    audit = audited(store)
    assert audit.is_whole, audit.faults
    assert (audit.segments, audit.first, audit.last, audit.epoch) == (106, 1, 106, 2)
    assert (audit.bases, audit.restorable_from) == ([50], 1)


def test_nothing_is_whole_and_restores_nothing() -> None:
    """A pipeline without a log has no fault."""
    audit = audited(MemoryObjectStore())
    assert (audit.is_whole, audit.first, audit.restorable_from) == (True, None, None)


def test_a_hole_is_named_by_what_is_missing() -> None:
    """One segment or several; what follows a hole cannot be blamed for the chain."""
    store = written(6)
    store.expire(PIPELINE.segment_key(3))
    assert faults(store) == {"000003": "Segment 3 is missing below 4."}
    store.expire(PIPELINE.segment_key(4))
    assert faults(store) == {"000003": "Segments 3 to 4 are missing below 5."}


def test_a_changed_object_breaks_the_chain_behind_it() -> None:
    """A byte of the contents is enough: the next segment names another hash."""
    store = written()
    key = PIPELINE.segment_key(3)
    data = store.get(key) or b""
    store.expire(key)
    store.put_new(key, data + b"!")
    assert faults(store) == {"000004": "It does not name the hash of the segment before it."}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"pipeline": STRANGER.pk}, "belongs to pipeline acme#prod#others"),
        ({"index": 9}, "says that it is changes 9"),
        ({"kind": "base"}, "says that it is base 4"),
        ({"epoch": 0}, "epoch is 0, after 1"),
        ({"prev_sha256": "0" * 64}, "does not name the hash"),
    ],
)
def test_a_header_that_does_not_fit_its_place_is_a_fault(
    changes: dict[str, object], says: str
) -> None:
    """Pipeline, index, kind, epoch and chain are each looked at."""
    store = written()
    replaced(store, 4, **changes)
    assert says in faults(store)["000004"]


def test_an_epoch_that_falls_later_is_seen_too() -> None:
    """The highest epoch so far counts, not only the one before."""
    store = written()
    leader_of(store, FakeClock(), epoch=3, node="second")
    replaced(store, 5, epoch=3)
    writer = leader_of(store, FakeClock(), epoch=3, node="third")
    assert writer.head.tip.index == 6
    replaced(store, 6, epoch=2)
    assert "epoch is 2, after 3" in faults(store)["000006"]


def test_an_object_that_is_no_segment_is_a_fault() -> None:
    """So is one whose payload cannot be read, and one with a stranger's name."""
    store = written()
    store.expire(PIPELINE.segment_key(4))
    store.put_new(PIPELINE.segment_key(4), b"nonsense")
    store.put_new(f"{PIPELINE.segments_prefix}readme.txt", b"hello")
    assert faults(store) == {"000004": "no header", "": "Its name is none of a segment or a base."}

    def look(header: SegmentHeader, _data: bytes) -> None:
        if header.index == 2:
            raise LogCorrupt("A page is damaged.")

    audit = LogAudit(written(), PIPELINE, TextCodec(), look=look).run()
    assert [fault.sentence for fault in audit.faults] == ["A page is damaged."]


def test_positions_that_are_repeated_must_follow_from_the_segments() -> None:
    """A fence that repeats other positions than the segments brought is a fault."""
    store = written()
    leader_of(store, FakeClock(), epoch=2, node="second")
    head, _, _ = (store.get(PIPELINE.segment_key(5)) or b"").partition(b"\n")
    whole = json.loads(head)["whole"]
    whole[0]["shards"][0]["sequence_number"] = "9" * 21
    replaced(store, 5, whole=whole)
    says = "The positions of orders that it repeats are not the segments'."
    assert faults(store) == {"000005": says}


def test_what_expired_needs_a_base_that_reaches_the_rest() -> None:
    """With one the log is whole from there; without, nothing can be restored."""
    store = written(6, base=4)
    for index in (1, 2, 3):
        store.expire(PIPELINE.segment_key(index))
    audit = audited(store)
    assert (audit.is_whole, audit.first, audit.restorable_from) == (True, 4, 4)
    store.expire(PIPELINE.base_key(4))
    audit = audited(store)
    assert audit.restorable_from is None
    says = "Segments before 4 are gone, and no base takes their place."
    assert [fault.sentence for fault in audit.faults] == [says]


def test_a_base_of_another_segment_is_a_fault() -> None:
    """Its hash is that of the segment with its index, where that is still there."""
    store = written(6, base=4)
    key = PIPELINE.base_key(4)
    head, _, rest = (store.get(key) or b"").partition(b"\n")
    store.expire(key)
    changed = json.loads(head) | {"prev_sha256": "1" * 64}
    store.put_new(key, json.dumps(changed).encode() + b"\n" + rest)
    assert faults(store) == {"000004": "It is not a base of the segment that has its index."}


def test_progress_is_told_for_each_object() -> None:
    """From 1 to all of them, segments and bases alike."""
    told: list[tuple[int, int]] = []
    LogAudit(
        written(3, base=3), PIPELINE, TextCodec(), on_read=lambda done, of: told.append((done, of))
    ).run()
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_restore_gets_past_no_fault() -> None:
    """Behind a hole, or a broken object, it takes a base at or after it; a broken base is none."""
    store = written(8, base=6)
    assert audited(store).restorable_from == 1
    store.expire(PIPELINE.segment_key(4))
    assert audited(store).restorable_from == 6
    store.expire(PIPELINE.segment_key(7))
    assert audited(store).restorable_from is None
    store = written(8, base=6)
    store.expire(PIPELINE.segment_key(4))
    store.expire(PIPELINE.base_key(6))
    store.put_new(PIPELINE.base_key(6), b"nonsense")
    assert audited(store).restorable_from is None
