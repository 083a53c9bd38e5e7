"""Progress folds, survives JSON, and shows in rows from which it can be read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.envelope import Authority, CheckpointEnvelope, EnvelopeKind, OffsetValue
from checkpoints.errors import RowCorrupt
from checkpoints.keys import CheckpointKey, OffsetKey
from checkpoints.offsets import Index
from checkpoints.positions import (
    Gap,
    KeyAttribute,
    Position,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
    SourceIdentity,
)
from checkpoints.progress import (
    NO_PROGRESS,
    DatasetProgress,
    fold,
    progress_of,
    progress_of_json,
    progress_to_json,
    rows_of,
)

SEQUENCES = st.integers(10**20, 10**40 - 1).map(str)
POSITIONS = st.one_of(
    st.just(Position.trim_horizon()),
    st.integers(0, 2**45).map(Position.at_timestamp),
    SEQUENCES.map(Position.after),
    st.one_of(st.none(), SEQUENCES).map(Position.shard_end),
)
SHARDS = st.builds(
    ShardCheckpoint,
    st.sampled_from(["shardId-1", "shardId-2", "shard#3/é%23"]),
    st.one_of(st.none(), st.just("shardId-0")),
    st.sampled_from(ShardState),
    POSITIONS,
    st.integers(0, 2**40),
    st.one_of(st.none(), st.integers(0, 2**45)),
)
SEGMENTS = st.builds(
    SnapshotSegment,
    st.integers(0, 3),
    st.just(4),
    st.one_of(st.none(), st.just('{"pk":{"S":"ü\\""}}')),
    st.integers(0, 2**40),
    st.booleans(),
)
GAPS = st.builds(
    Gap,
    st.just("shardId-1"),
    st.one_of(st.none(), SEQUENCES),
    st.just("trimmed"),
    st.integers(0, 9),
)
SOURCE = SourceIdentity(
    "orders",
    "arn:aws:dynamodb:eu-west-1:123456789012:table/orders",
    "id-1",
    None,
    (KeyAttribute("pk", "S", "HASH"), KeyAttribute("sk", "N", "RANGE")),
)


def unique(rows: list[ShardCheckpoint]) -> tuple[ShardCheckpoint, ...]:
    return tuple({row.shard_id: row for row in rows}.values())


DELTAS = st.builds(
    DatasetProgress,
    st.sampled_from(["orders", "a/b#c%2F"]),
    st.integers(1, 3),
    st.one_of(st.none(), st.just(SOURCE)),
    st.lists(SHARDS, max_size=4).map(unique),
    st.lists(SEGMENTS, max_size=3, unique_by=lambda segment: segment.segment).map(tuple),
    st.lists(GAPS, max_size=2, unique=True).map(tuple),
).flatmap(
    lambda one: (
        st.integers(1, 3).map(lambda fills: replace(one, fills=fills))
        if one.segments
        else st.just(one)
    )
)
SHARD = ShardCheckpoint("shardId-1", None, ShardState.READING, Position.after("7" * 40), 12, 99)


@settings(deadline=None, max_examples=60)
@given(DELTAS)
def test_progress_survives_json(progress: DatasetProgress) -> None:
    """What a footer carries reads back equal, forty digits and strange names too."""
    assert progress_of_json(json.loads(json.dumps(progress_to_json(progress)))) == progress


@settings(deadline=None, max_examples=60)
@given(st.lists(DELTAS, max_size=8), st.integers(0, 8))
def test_a_whole_replaces_the_deltas_before_it(deltas: list[DatasetProgress], cut: int) -> None:
    """Folding from a whole that was written halfway ends where folding from the start does."""
    whole = fold(NO_PROGRESS, deltas[:cut])
    assert fold(fold(NO_PROGRESS, whole.values()), deltas[cut:]) == fold(NO_PROGRESS, deltas)


@settings(deadline=None, max_examples=60)
@given(st.lists(DELTAS, max_size=8))
def test_applying_a_delta_again_changes_nothing(deltas: list[DatasetProgress]) -> None:
    """The last segment may be replayed."""
    progress = fold(NO_PROGRESS, deltas)
    assert fold(progress, deltas[-1:]) == progress


def test_generations_replace_one_another() -> None:
    """A new generation starts without old shards and segments; gaps stay; old news is dropped."""
    gap = Gap("shardId-1", None, "trimmed", 5)
    old = DatasetProgress(
        "orders", 1, SOURCE, (SHARD,), (SnapshotSegment(0, 1, done=True),), (gap,)
    )
    new = DatasetProgress("orders", 2, None, (replace(SHARD, shard_id="shardId-2"),))
    folded = fold(NO_PROGRESS, [old, new])["orders"]
    assert folded == DatasetProgress("orders", 2, SOURCE, new.shards, (), (gap,))
    assert fold({"orders": folded}, [old])["orders"] == folded
    with pytest.raises(ValueError, match="does not continue"):
        old.then(DatasetProgress("customers", 1))


def test_a_new_scan_starts_its_segments_over() -> None:
    """A refresh scans anew under the same positions: what the last scan did is not its own."""
    first = DatasetProgress("orders", 1, segments=(SnapshotSegment(0, 1, done=True),), fills=1)
    second = DatasetProgress("orders", 1, segments=(SnapshotSegment(0, 2, "{}"),), fills=2)
    shards = DatasetProgress("orders", 1, shards=(SHARD,))
    folded = fold(NO_PROGRESS, [first, second, shards, first])["orders"]
    assert folded == replace(second, shards=(SHARD,))


@pytest.mark.requirement("R13")
def test_rows_show_what_is_finished() -> None:
    """A finished scan segment and a shard at its end are closed; line counts records and items."""
    progress = DatasetProgress(
        "orders",
        1,
        None,
        (SHARD, replace(SHARD, shard_id="shardId-2", position=Position.shard_end("8" * 21))),
        (SnapshotSegment(0, 2, "{}", 30), SnapshotSegment(1, 2, None, 40, done=True)),
        fills=1,
    )
    assert rows_of([progress]).offsets == {
        OffsetKey("orders", "g1/shard/shardId-1"): OffsetValue(line=12),
        OffsetKey("orders", "g1/shard/shardId-2"): OffsetValue(line=12, is_closed=True),
        OffsetKey("orders", "g1/scan1/0"): OffsetValue(line=30),
        OffsetKey("orders", "g1/scan1/1"): OffsetValue(line=40, is_closed=True),
    }


@pytest.mark.requirement("R16")
def test_checkpoints_are_envelopes_of_their_kind() -> None:
    """A shard resumes, a scan segment makes progress, a source anchors; each owns its position."""
    progress = DatasetProgress("orders", 3, SOURCE, (SHARD,), (SnapshotSegment(0, 1),))
    kinds = {
        key.logical_key: (envelope.kind, envelope.authority)
        for key, envelope in rows_of([progress]).checkpoints.items()
    }
    owner = Authority.WAL_OWNERSHIP
    assert kinds == {
        "orders/g3/source": (EnvelopeKind.BOOTSTRAP_ANCHOR, owner),
        "orders/g3/shard/shardId-1": (EnvelopeKind.SOURCE_RESUME, owner),
        "orders/g3/scan0/0": (EnvelopeKind.BOOTSTRAP_PROGRESS, owner),
    }


@settings(deadline=None, max_examples=60)
@given(st.lists(DELTAS, max_size=6))
def test_rows_give_the_progress_back(deltas: list[DatasetProgress]) -> None:
    """Where there is no log, the rows alone say where reading goes on: all but the gaps."""
    progress = fold(NO_PROGRESS, deltas)
    expected = {
        dataset: replace(one, gaps=())
        for dataset, one in progress.items()
        if one.source or one.shards or one.segments
    }
    found = progress_of(rows_of(progress.values()))
    assert {name: as_sets(one) for name, one in found.items()} == {
        name: as_sets(one) for name, one in expected.items()
    }


def as_sets(progress: DatasetProgress) -> tuple[object, ...]:
    return (
        progress.generation,
        progress.source,
        set(progress.shards),
        set(progress.segments),
        progress.gaps,
    )


@pytest.mark.parametrize(
    ("name", "kind", "payload"),
    [
        ("orders/g1/shard/s", EnvelopeKind.SOURCE_RESUME, b"{}"),
        ("orders/g1/shard/s", EnvelopeKind.SOURCE_RESUME, b"\xff"),
        ("orders/gx/shard/s", EnvelopeKind.SOURCE_RESUME, b"{}"),
        ("last_completed_date", EnvelopeKind.SOURCE_RESUME, b"2024-01-01"),
        ("orders/g1/shard/s", EnvelopeKind.ADVISORY_PROGRESS, b"{}"),
    ],
)
@pytest.mark.requirement("R16")
def test_a_checkpoint_that_cannot_be_read_is_refused(
    name: str, kind: EnvelopeKind, payload: bytes
) -> None:
    """A payload or a name that is none of ours is no "no checkpoint"."""
    envelope = CheckpointEnvelope(Authority.WAL_OWNERSHIP, kind, payload)
    with pytest.raises(RowCorrupt):
        progress_of(Index({}, {CheckpointKey(name): envelope}))


def test_a_hint_moves_nothing() -> None:
    """Advisory envelopes are passed over, whatever they hold."""
    hint = CheckpointEnvelope(Authority.ADVISORY_HINT, EnvelopeKind.ADVISORY_PROGRESS, b"\xff")
    assert progress_of(Index({}, {CheckpointKey("anything"): hint})) == NO_PROGRESS
