"""How far a dataset got, as a value that folds: what a segment's footer and the rows carry.

Owns the progress of a dataset, its JSON, the folding of deltas into the whole, and the offset and
checkpoint rows that show it to others. Must not know where any of it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, TypeVar

from checkpoints.envelope import Authority, CheckpointEnvelope, EnvelopeKind, OffsetValue
from checkpoints.errors import KeyInvalid, RowCorrupt
from checkpoints.keys import CheckpointKey, OffsetKey
from checkpoints.offsets import Index
from checkpoints.positions import (
    Gap,
    KeyAttribute,
    Position,
    PositionKind,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
    SourceIdentity,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DatasetProgress:
    """What holds of one dataset: everything, or what a batch changed of it.

    generation  of the positions: `shards` belong to it
    source      None where nothing changed of it
    fills       the generation of rows that `segments` scan into, None where there is no scan; one
                set of positions may see several
    forgotten   of a batch: shards that are finished for good and leave the progress
    """

    dataset: str
    generation: int
    source: SourceIdentity | None = None
    shards: tuple[ShardCheckpoint, ...] = ()
    segments: tuple[SnapshotSegment, ...] = ()
    gaps: tuple[Gap, ...] = ()
    fills: int | None = None
    forgotten: tuple[str, ...] = ()

    def then(self, delta: DatasetProgress) -> DatasetProgress:
        """The progress after `delta`. A younger generation starts from nothing but the gaps; an
        older one changes nothing. So do segments of a younger or an older scan.
        """
        if delta.dataset != self.dataset:
            raise ValueError(f"progress of {delta.dataset} does not continue {self.dataset}")
        if delta.generation < self.generation:
            return self
        gaps = _upserted(self.gaps, delta.gaps, _gap_key)
        if delta.generation > self.generation:
            return DatasetProgress(
                self.dataset,
                delta.generation,
                delta.source or self.source,
                delta.shards,
                delta.segments,
                gaps,
                delta.fills,
            )
        segments, fills = self.segments, self.fills
        if delta.fills is not None and (fills is None or delta.fills > fills):
            segments, fills = delta.segments, delta.fills
        elif delta.fills == fills:
            segments = _upserted(segments, delta.segments, lambda segment: segment.segment)
        return DatasetProgress(
            self.dataset,
            self.generation,
            delta.source or self.source,
            _without(
                _upserted(self.shards, delta.shards, lambda shard: shard.shard_id), delta.forgotten
            ),
            segments,
            gaps,
            fills,
        )


Progress = Mapping[str, DatasetProgress]
"""By dataset."""

NO_PROGRESS: Final[Progress] = {}


def fold(progress: Progress, deltas: Iterable[DatasetProgress]) -> Progress:
    """The progress after some deltas, in their order."""
    folded = dict(progress)
    for delta in deltas:
        before = folded.get(delta.dataset)
        whole = delta if before is None else before.then(delta)
        folded[delta.dataset] = replace(whole, forgotten=()) if whole.forgotten else whole
    return folded


def rows_of(progress: Iterable[DatasetProgress]) -> Index:
    """The offset and checkpoint rows that show this progress.

    The generation is part of every name: offsets only ever grow, and a new generation starts over.
    """
    offsets: dict[OffsetKey, OffsetValue] = {}
    checkpoints: dict[CheckpointKey, CheckpointEnvelope] = {}
    for one in progress:
        namespace = _quoted(one.dataset)
        scope = f"{namespace}/g{one.generation}"
        if one.source is not None:
            checkpoints[CheckpointKey(f"{scope}/source")] = _envelope(
                EnvelopeKind.BOOTSTRAP_ANCHOR, source_to_json(one.source)
            )
        for shard in one.shards:
            partition = f"g{one.generation}/shard/{_quoted(shard.shard_id)}"
            is_closed = shard.position.kind is PositionKind.SHARD_END
            offsets[OffsetKey(namespace, partition)] = OffsetValue(
                line=shard.records, is_closed=is_closed
            )
            checkpoints[CheckpointKey(f"{namespace}/{partition}")] = _envelope(
                EnvelopeKind.SOURCE_RESUME, shard_to_json(shard)
            )
        for segment in one.segments:
            partition = f"g{one.generation}/scan{one.fills or 0}/{segment.segment}"
            offsets[OffsetKey(namespace, partition)] = OffsetValue(
                line=segment.items, is_closed=segment.done
            )
            checkpoints[CheckpointKey(f"{namespace}/{partition}")] = _envelope(
                EnvelopeKind.BOOTSTRAP_PROGRESS, segment_to_json(segment)
            )
    return Index(offsets, checkpoints)


def progress_of(rows: Index) -> Progress:
    """The progress that checkpoint rows show: for a start without a log. Only the youngest
    generation of each dataset; hints are passed over; gaps are not in the rows.

    Raises:
        RowCorrupt: a row's name or payload is none of ours.
    """
    progress: Progress = NO_PROGRESS
    for key, envelope in rows.checkpoints.items():
        if envelope.authority is Authority.WAL_OWNERSHIP:
            progress = fold(progress, [_delta_of(key, envelope)])
    return progress


def _delta_of(key: CheckpointKey, envelope: CheckpointEnvelope) -> DatasetProgress:
    namespace, _, rest = key.logical_key.partition("/")
    generation = rest.partition("/")[0]
    try:
        dataset, number = _unquoted(namespace), int(generation.removeprefix("g"))
        payload = json.loads(envelope.payload)
        if envelope.kind is EnvelopeKind.SOURCE_RESUME:
            return DatasetProgress(dataset, number, shards=(shard_of_json(payload),))
        if envelope.kind is EnvelopeKind.BOOTSTRAP_PROGRESS:
            scan = rest.split("/")[1]
            return DatasetProgress(
                dataset,
                number,
                segments=(segment_of_json(payload),),
                fills=int(scan.removeprefix("scan")) or None,
            )
        if envelope.kind is EnvelopeKind.BOOTSTRAP_ANCHOR:
            return DatasetProgress(dataset, number, source=source_of_json(payload))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise RowCorrupt(f"The checkpoint {key.logical_key!r} cannot be read: {error}.") from error
    raise RowCorrupt(f"The checkpoint {key.logical_key!r} owns a position and is a mere hint.")


# JSON. A field that is missing, or of another type, raises KeyError, TypeError or ValueError.


def progress_to_json(progress: DatasetProgress) -> dict[str, Any]:
    return {
        "dataset": progress.dataset,
        "generation": progress.generation,
        "source": None if progress.source is None else source_to_json(progress.source),
        "shards": [shard_to_json(shard) for shard in progress.shards],
        "segments": [segment_to_json(segment) for segment in progress.segments],
        "gaps": [asdict(gap) for gap in progress.gaps],
        "fills": progress.fills,
        "forgotten": list(progress.forgotten),
    }


def progress_of_json(document: Mapping[str, Any]) -> DatasetProgress:
    return DatasetProgress(
        document["dataset"],
        document["generation"],
        None if document["source"] is None else source_of_json(document["source"]),
        tuple(shard_of_json(shard) for shard in document["shards"]),
        tuple(segment_of_json(segment) for segment in document["segments"]),
        tuple(Gap(**gap) for gap in document["gaps"]),
        document["fills"],
        tuple(document["forgotten"]),
    )


def shard_to_json(shard: ShardCheckpoint) -> dict[str, Any]:
    return {
        "shard_id": shard.shard_id,
        "parent_shard_id": shard.parent_shard_id,
        "state": shard.state.value,
        "position": shard.position.encode(),
        "sequence_number": shard.position.sequence_number,
        "records": shard.records,
        "covered_until_ms": shard.covered_until_ms,
    }


def shard_of_json(document: Mapping[str, Any]) -> ShardCheckpoint:
    return ShardCheckpoint(
        document["shard_id"],
        document["parent_shard_id"],
        ShardState(document["state"]),
        Position.decode(document["position"], document["sequence_number"]),
        document["records"],
        document["covered_until_ms"],
    )


def segment_to_json(segment: SnapshotSegment) -> dict[str, Any]:
    return asdict(segment)


def segment_of_json(document: Mapping[str, Any]) -> SnapshotSegment:
    return SnapshotSegment(**document)


def source_to_json(source: SourceIdentity) -> dict[str, Any]:
    return asdict(source)


def source_of_json(document: Mapping[str, Any]) -> SourceIdentity:
    return SourceIdentity(
        document["table_name"],
        document["table_arn"],
        document["table_id"],
        document["stream_arn"],
        tuple(KeyAttribute(**attribute) for attribute in document["key_schema"]),
    )


def _envelope(kind: EnvelopeKind, payload: dict[str, Any]) -> CheckpointEnvelope:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return CheckpointEnvelope(Authority.WAL_OWNERSHIP, kind, text.encode())


def _gap_key(gap: Gap) -> tuple[str, str | None, str, int]:
    return (gap.shard_id, gap.from_sequence_number, gap.cause, gap.detected_at_ms)


def _upserted(
    before: tuple[T, ...], changed: tuple[T, ...], key: Callable[[T], object]
) -> tuple[T, ...]:
    rows = {key(row): row for row in before}
    rows.update((key(row), row) for row in changed)
    return tuple(rows.values())


def _without(
    shards: tuple[ShardCheckpoint, ...], forgotten: tuple[str, ...]
) -> tuple[ShardCheckpoint, ...]:
    if not forgotten:
        return shards
    return tuple(shard for shard in shards if shard.shard_id not in set(forgotten))


def _quoted(name: str) -> str:
    """A name without the characters that separate the parts of a key."""
    if not name:
        raise KeyInvalid("A dataset or shard without a name has no row.")
    return name.replace("%", "%25").replace("#", "%23").replace("/", "%2F")


def _unquoted(name: str) -> str:
    return name.replace("%2F", "/").replace("%23", "#").replace("%25", "%")
