"""What offset and checkpoint rows do on every ItemStore: fenced, merged, checked, disposable."""

from __future__ import annotations

import itertools
from base64 import b64encode
from hashlib import sha256

import pytest

from checkpoints.commit import Committed
from checkpoints.envelope import Authority, CheckpointEnvelope, EnvelopeKind, OffsetValue
from checkpoints.errors import RowCorrupt
from checkpoints.keys import CheckpointKey, OffsetKey
from checkpoints.kv import ABSENT, ItemStore
from checkpoints.offsets import Index, OffsetStore, Published
from tests.doubles import PIPELINE

KEY = OffsetKey("orders", "shard-1")
NAME = CheckpointKey("orders/shard-1")


def envelope(text: str) -> CheckpointEnvelope:
    return CheckpointEnvelope(Authority.WAL_OWNERSHIP, EnvelopeKind.SOURCE_RESUME, text.encode())


def at(epoch: int, index: int) -> Committed:
    return Committed(epoch, index)


@pytest.mark.requirement("R12")
def test_a_row_has_its_fence_and_its_hash(items: ItemStore) -> None:
    """payload_b64, wal_epoch, wal_commit_index and payload_sha256 are there and agree."""
    OffsetStore(items, PIPELINE).publish_offset(at(2, 7), KEY, OffsetValue(line=5))
    item = items.get("acme#prod#orders", "offset#orders#shard-1")
    payload = OffsetValue(line=5).encode()
    assert item is not None
    assert {name: item[name] for name in item if name != "updated_at"} == {
        "payload_b64": b64encode(payload).decode(),
        "wal_epoch": 2,
        "wal_commit_index": 7,
        "payload_sha256": sha256(payload).hexdigest(),
    }


@pytest.mark.requirement("R12")
def test_updated_at_decides_nothing(items: ItemStore) -> None:
    """Rows read and publish the same whatever updated_at says, also when it is missing."""
    stamps = iter(["9999-12-31T00:00:00", "nonsense", ""])
    offsets = OffsetStore(items, PIPELINE, stamp=lambda: next(stamps))
    offsets.publish_offset(at(1, 1), KEY, OffsetValue(line=1))
    assert offsets.publish_offset(at(1, 2), KEY, OffsetValue(line=2)) is Published.WRITTEN
    item = dict(items.get(PIPELINE.pk, KEY.sk) or {})
    del item["updated_at"]
    items.put(PIPELINE.pk, KEY.sk, item, {"wal_commit_index": 2})
    assert offsets.offset(KEY) == OffsetValue(line=2)
    assert offsets.publish_offset(at(1, 3), KEY, OffsetValue(line=3)) is Published.WRITTEN


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("older", [(1, 9), (2, 6)])
def test_an_older_commit_cannot_overwrite(items: ItemStore, older: tuple[int, int]) -> None:
    """A row of a younger epoch, or of the same epoch and a younger index, stays as it is."""
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(at(2, 7), KEY, OffsetValue(line=5))
    offsets.publish_checkpoint(at(2, 7), NAME, envelope("young"))
    before = [items.get(PIPELINE.pk, sk) for sk in (KEY.sk, NAME.sk)]
    assert offsets.publish_offset(at(*older), KEY, OffsetValue(line=99)) is Published.SUPERSEDED
    assert offsets.publish_checkpoint(at(*older), NAME, envelope("old")) is Published.SUPERSEDED
    assert [items.get(PIPELINE.pk, sk) for sk in (KEY.sk, NAME.sk)] == before


@pytest.mark.requirement("R15")
def test_the_same_commit_again_is_the_same(items: ItemStore) -> None:
    """Publishing a commit again, after an answer was lost, is a no-op, merged or not."""
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(at(1, 1), KEY, OffsetValue(filesize=9, line=1))
    for expected in (Published.WRITTEN, Published.SAME, Published.SAME):
        assert offsets.publish_offset(at(1, 2), KEY, OffsetValue(line=2)) is expected
        assert offsets.publish_checkpoint(at(1, 2), NAME, envelope("x")) is expected
    assert offsets.offset(KEY) == OffsetValue(filesize=9, line=2)


@pytest.mark.requirement("R15")
def test_the_same_commit_with_other_bytes_is_corruption(items: ItemStore) -> None:
    """One commit gives a row one content: another one means that two writers shared an epoch."""
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(at(1, 2), KEY, OffsetValue(line=2))
    offsets.publish_checkpoint(at(1, 2), NAME, envelope("x"))
    with pytest.raises(RowCorrupt):
        offsets.publish_offset(at(1, 2), KEY, OffsetValue(line=3))
    with pytest.raises(RowCorrupt):
        offsets.publish_checkpoint(at(1, 2), NAME, envelope("y"))
    assert offsets.offset(KEY) == OffsetValue(line=2)


@pytest.mark.requirement("R14")
def test_an_offset_merges_and_its_hash_is_of_the_merge(items: ItemStore) -> None:
    """Closed stays closed and numbers never fall, also when a younger commit says less."""
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(at(1, 1), KEY, OffsetValue(10, 5, is_closed=True))
    offsets.publish_offset(at(2, 2), KEY, OffsetValue(3, 8))
    merged = OffsetValue(10, 8, is_closed=True)
    row = offsets.row(KEY.sk)
    assert row is not None
    assert (offsets.offset(KEY), row.committed) == (merged, at(2, 2))
    assert row.payload_sha256 == sha256(merged.encode()).hexdigest()


@pytest.mark.requirement("R15")
@pytest.mark.parametrize("order", list(itertools.permutations([(1, 1), (1, 2), (2, 3)])))
def test_publishing_in_any_order_ends_with_the_youngest(
    items: ItemStore, order: tuple[tuple[int, int], ...]
) -> None:
    """However late the publications of old commits arrive, the youngest one stands."""
    offsets = OffsetStore(items, PIPELINE)
    for epoch, index in order:
        offsets.publish_checkpoint(at(epoch, index), NAME, envelope(f"{epoch}/{index}"))
    assert offsets.checkpoint(NAME) == envelope("2/3")


@pytest.mark.requirement("R35")
def test_everything_shares_one_table(items: ItemStore) -> None:
    """Offsets, checkpoints and lease are items of one partition, told apart by their sort keys."""
    offsets = OffsetStore(items, PIPELINE)
    index = Index({KEY: OffsetValue(line=1)}, {NAME: envelope("x")})
    assert set(offsets.publish(at(1, 1), index).values()) == {Published.WRITTEN}
    items.put(PIPELINE.pk, "lease", {"owner_node": "a"}, ABSENT)
    assert offsets.index() == index
    assert {sk for sk, _ in items.query(PIPELINE.pk, "offset#")} == {KEY.sk}


@pytest.mark.parametrize(
    "damage",
    [
        {"payload_b64": b64encode(b"x" * 24).decode()},
        {"payload_b64": "not base64!"},
        {"payload_sha256": "0" * 64},
        {"wal_epoch": "1"},
        {"wal_commit_index": True},
    ],
)
def test_a_damaged_row_is_refused(items: ItemStore, damage: dict[str, str | int | bool]) -> None:
    """A row that contradicts its own hash, or lacks a type, is neither read nor overwritten."""
    offsets = OffsetStore(items, PIPELINE)
    offsets.publish_offset(at(1, 1), KEY, OffsetValue(line=1))
    items.update(PIPELINE.pk, KEY.sk, damage, {"wal_epoch": 1})
    with pytest.raises(RowCorrupt):
        offsets.offset(KEY)
    with pytest.raises(RowCorrupt):
        offsets.publish_offset(at(1, 2), KEY, OffsetValue(line=2))
    with pytest.raises(RowCorrupt):
        offsets.index()
