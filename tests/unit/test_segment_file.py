"""A Batch comes back from its Parquet object, and what is no segment is never taken for one."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator.batch import CHANGES, Batch, empty_changes
from accelerator.segment import (
    SETTLED_TICKET,
    BasePart,
    BaseParts,
    SegmentFile,
    kind_of,
    progress_of,
)
from checkpoints.errors import LogCorrupt
from checkpoints.object_store import MemoryObjectStore
from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState, SnapshotSegment
from checkpoints.segment import SegmentHeader, SegmentKind
from checkpoints.segment_log import GENESIS, Head, SegmentLog, SegmentWriter
from tests.doubles import PIPELINE, FakeClock, guard_of

FILE = SegmentFile()
TEXT = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "shard_id": TEXT,
            "sequence_number": st.one_of(st.none(), st.integers(0, 10**40 - 1).map(str)),
            "op": st.sampled_from(["insert", "modify", "remove"]),
            "created_at": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            "ttl_delete": st.booleans(),
            "keys": TEXT,
            "image": TEXT,
            "old_image": TEXT,
            "event_id": TEXT,
        }
    ),
    max_size=5,
)
SHARD = ShardCheckpoint("s-1", None, ShardState.READING, Position.after("9" * 40), 3, 77)
GAP = Gap("s-0", None, "trimmed", 5)


def batch(rows: list[dict[str, object]], *, ticket: int | None = None) -> Batch:
    changes = pa.Table.from_pylist(rows, schema=CHANGES)
    segments = () if ticket is None else (SnapshotSegment(0, 4, '{"pk":{"S":"x"}}', 1),)
    return Batch(
        changes,
        2,
        (SHARD,),
        segments,
        (GAP,),
        ticket,
        fills=None if ticket is None else 4,
        nbytes=changes.nbytes,
    )


def header_of(one: Batch, **changes: object) -> SegmentHeader:
    header = SegmentHeader(
        PIPELINE.pk,
        7,
        3,
        "nonce",
        "a" * 64,
        kind_of(one),
        "orders",
        (progress_of("orders", one, None),),
        newest_created_ms=1234,
    )
    return replace(header, **changes)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=60)
@given(ROWS)
def test_a_batch_comes_back(rows: list[dict[str, object]]) -> None:
    """Rows in their order, nulls and texts exactly, positions, gaps, generation: all of it."""
    one = batch(rows)
    header = header_of(one)
    data = FILE.encode(header, one)
    assert FILE.header(data) == header
    back = FILE.batch(header, data)
    assert back is not None
    assert back.changes.schema.equals(CHANGES)
    assert back.changes.to_pylist() == one.changes.to_pylist()
    assert replace(back, changes=one.changes, nbytes=0) == replace(one, nbytes=0)


def test_the_whole_progress_does_not_enter_the_batch() -> None:
    """A segment that repeats the whole brings its own changes only: no gap is recorded twice."""
    one = batch([])
    other = replace(progress_of("orders", one, None), gaps=(GAP, Gap("s-0", None, "trimmed", 1)))
    header = header_of(one, whole=(other,))
    back = FILE.batch(header, FILE.encode(header, one))
    assert back is not None
    assert back.gaps == (GAP,)


def test_scan_rows_have_won_already() -> None:
    """Rows of a SNAPSHOT segment are replayed under a ticket that no later commit outdates."""
    one = batch([{"op": "snapshot", "ttl_delete": False, "image": "{}"}], ticket=5)
    header = header_of(one)
    assert header.kind is SegmentKind.SNAPSHOT
    back = FILE.batch(header, FILE.encode(header, one))
    assert back is not None
    assert (back.scan_ticket, back.fills, back.segments) == (SETTLED_TICKET, 4, one.segments)


def test_a_fence_is_a_segment_without_rows() -> None:
    """Any Parquet reader opens a fence; it brings no Batch."""
    header = SegmentHeader(PIPELINE.pk, 1, 1, "w", "0" * 64, SegmentKind.FENCE, whole=())
    data = FILE.encode(header, None)
    assert FILE.header(data) == header
    assert FILE.batch(header, data) is None
    assert pq.read_table(BytesIO(data)).schema.equals(CHANGES)


def test_the_parts_of_a_base_come_back() -> None:
    """A base names the pieces of a data file, in their order."""
    parts = BaseParts((BasePart("x/0", "ab", 3), BasePart("x/1", "cd", 1)))
    header = SegmentHeader(PIPELINE.pk, 9, 1, "w", "0" * 64, SegmentKind.BASE, whole=())
    data = FILE.encode(header, parts)
    assert FILE.header(data) == header
    assert FILE.base_parts(data) == parts


def test_a_payload_of_another_kind_is_refused() -> None:
    """Header and payload agree, or nothing is written."""
    one = batch([])
    for kind, payload in (
        (SegmentKind.SNAPSHOT, one),
        (SegmentKind.FENCE, one),
        (SegmentKind.BASE, one),
        (SegmentKind.CHANGES, BaseParts(())),
        (SegmentKind.CHANGES, None),
    ):
        with pytest.raises(ValueError, match="a "):
            FILE.encode(header_of(one, kind=kind), payload)


@pytest.mark.parametrize("damage", ["empty", "cut", "head", "no header", "not parquet"])
def test_what_is_no_segment_is_corruption(damage: str) -> None:
    """An object that was cut, or another file, raises LogCorrupt and no foreign error."""
    whole = FILE.encode(header_of(batch([])), batch([]))
    plain = BytesIO()
    pq.write_table(empty_changes(), plain)
    data = {
        "empty": b"",
        "cut": whole[:-1],
        "head": whole[: len(whole) // 2],
        "no header": plain.getvalue(),
        "not parquet": b"<html>" * 100,
    }[damage]
    with pytest.raises(LogCorrupt):
        FILE.header(data)


def test_a_flipped_byte_never_passes_for_other_rows() -> None:
    """Damage in the rows is seen, or changed nothing in them: pages carry checksums."""
    image = sha256(b"hard to compress").hexdigest()
    one = batch([{"op": "insert", "ttl_delete": False, "image": image, "event_id": image[::-1]}])
    header = header_of(one)
    whole = FILE.encode(header, one)
    footer_size = int.from_bytes(whole[-8:-4], "little")
    seen = 0
    for at in range(4, len(whole) - 8 - footer_size):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        try:
            back = FILE.batch(header, bytes(damaged))
        except LogCorrupt:
            seen += 1
            continue
        assert back is not None
        assert back.changes.equals(one.changes)
    assert seen > len(image)


def test_rows_of_other_columns_are_corruption() -> None:
    """A base is not read as changes, nor changes as a base."""
    one = batch([])
    data = FILE.encode(header_of(one), one)
    with pytest.raises(LogCorrupt, match="other columns"):
        FILE.base_parts(data)
    with pytest.raises(LogCorrupt, match="how far"):
        FILE.batch(header_of(one, progress=()), data)


@pytest.mark.requirement("R7")
def test_batches_travel_through_the_log() -> None:
    """What one process appends, another reads: rows, positions and the head's progress."""
    store, clock = MemoryObjectStore(), FakeClock()
    log: SegmentLog[Batch | BaseParts] = SegmentLog(store, PIPELINE, FILE, writer="reader")
    writer: SegmentWriter[Batch | BaseParts] = SegmentWriter(
        store,
        log,
        PIPELINE,
        FILE,
        clock,
        guard_of(clock),
        writer="w",
        head=Head(GENESIS, {}),
    )
    writer.claim()
    one = batch([{"op": "insert", "ttl_delete": False, "keys": "{}", "image": "{}"}])
    writer.append(kind_of(one), "orders", one, progress_of("orders", one, None))
    fence, changes = log.after(GENESIS)
    assert FILE.batch(fence.header, fence.data) is None
    back = FILE.batch(changes.header, changes.data)
    assert back is not None
    assert back.changes.equals(one.changes)
    assert log.head().progress["orders"].shards == (SHARD,)
