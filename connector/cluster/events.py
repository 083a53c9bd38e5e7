"""What happens to a dataset besides changes of its rows, as text in a segment and back.

Owns the JSON of events: loads that begin, are swapped in or given up, marks, gaps resolved, shards
forgotten, dead letters dropped. Must not know how one is carried out, or the log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

from accelerator.dataset import Dataset
from accelerator.dead_letters import DeadLetter
from accelerator.outcome import SnapshotState
from checkpoints.errors import LogCorrupt
from checkpoints.positions import Gap, ShardCheckpoint, SnapshotSegment, SourceIdentity
from checkpoints.progress import (
    segment_of_json,
    segment_to_json,
    shard_of_json,
    shard_to_json,
    source_of_json,
    source_to_json,
)

BEGIN: Final = "begin"
REPOSITION: Final = "reposition"
FORGET_SHARDS: Final = "forget_shards"
MARK_SNAPSHOT: Final = "mark_snapshot"
RESOLVE_GAPS: Final = "resolve_gaps"
FREEZE: Final = "freeze"
SWAP: Final = "swap"
DROP_SHADOW: Final = "drop_shadow"
DROP_DEAD_LETTERS: Final = "drop_dead_letters"

Event = dict[str, Any]
"""A JSON object: `name`, and the arguments of the Dataset's method of that name."""


def encoded(event: Event) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"))


def decoded(text: str | None) -> Event:
    """Raises LogCorrupt on a text that is no event."""
    try:
        event: Event = json.loads(text or "")
        if event["name"] not in _PERFORMED:
            raise LogCorrupt(
                f"The log holds an event {event['name']!r} that this program does not know.",
                hint="Run the version of dynaduck that wrote it, or a newer one.",
            )
    except (ValueError, KeyError, TypeError) as error:
        raise LogCorrupt(f"An event of the log cannot be read: {error!r}.") from error
    return event


def begin(
    identity: SourceIdentity,
    shards: Sequence[ShardCheckpoint],
    segments: Sequence[SnapshotSegment],
    gaps: Sequence[Gap],
    **plain: object,
) -> Event:
    """`plain`: the arguments that are JSON already."""
    return {
        "name": BEGIN,
        "identity": source_to_json(identity),
        "shards": [shard_to_json(shard) for shard in shards],
        "segments": [segment_to_json(segment) for segment in segments],
        "gaps": [asdict(gap) for gap in gaps],
        **plain,
    }


def reposition(identity: SourceIdentity, origin_ms: int) -> Event:
    return {"name": REPOSITION, "identity": source_to_json(identity), "origin_ms": origin_ms}


def drop_dead_letters(letters: Sequence[DeadLetter]) -> Event:
    return {"name": DROP_DEAD_LETTERS, "letters": [asdict(letter) for letter in letters]}


def perform(event: Event, dataset: Dataset) -> object:
    """Calls the method of `Dataset` itself, whatever a subclass makes of it.

    Raises:
        LogCorrupt: the arguments are none of that method's.
    """
    try:
        arguments = {name: value for name, value in event.items() if name != "name"}
        return _PERFORMED[event["name"]](dataset, arguments)
    except (KeyError, TypeError, ValueError) as error:
        raise LogCorrupt(f"An event of the log cannot be carried out: {error!r}.") from error


def _begin(dataset: Dataset, given: Event) -> object:
    decoded_already = {
        "identity": source_of_json(given["identity"]),
        "shards": [shard_of_json(shard) for shard in given["shards"]],
        "segments": [segment_of_json(segment) for segment in given["segments"]],
        "gaps": [Gap(**gap) for gap in given["gaps"]],
    }
    return Dataset.begin(dataset, **{**given, **decoded_already})


def _reposition(dataset: Dataset, given: Event) -> object:
    identity = source_of_json(given["identity"])
    return Dataset.reposition(dataset, identity, origin_ms=given["origin_ms"])


def _mark_snapshot(dataset: Dataset, given: Event) -> None:
    Dataset.mark_snapshot(
        dataset,
        SnapshotState(given["state"]),
        started_at_ms=given["started_at_ms"],
        scan_ended_at_ms=given["scan_ended_at_ms"],
    )


def _drop_dead_letters(dataset: Dataset, given: Event) -> object:
    letters = [DeadLetter(**letter) for letter in given["letters"]]
    return Dataset.drop_dead_letters(dataset, letters)


_PERFORMED: Final[dict[str, Callable[[Dataset, Event], object]]] = {
    BEGIN: _begin,
    REPOSITION: _reposition,
    FORGET_SHARDS: lambda d, given: Dataset.forget_shards(d, given["shard_ids"]),
    MARK_SNAPSHOT: _mark_snapshot,
    RESOLVE_GAPS: lambda d, given: Dataset.resolve_gaps(d, given["resolution"]),
    FREEZE: lambda d, _: Dataset.freeze(d),
    SWAP: lambda d, given: Dataset.swap(d, **given),
    DROP_SHADOW: lambda d, _: Dataset.drop_shadow(d),
    DROP_DEAD_LETTERS: _drop_dead_letters,
}
