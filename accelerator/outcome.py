"""What a dataset tells of itself: what is stored of it, and what one call of apply did.

Plain values, made by `dataset`; they change nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from checkpoints.positions import Gap, ShardCheckpoint, SnapshotSegment, SourceIdentity


class SnapshotState(StrEnum):
    """`scanned`: every segment is done; `done`: the streams have passed the scan's end too."""

    NONE = "none"
    RUNNING = "running"
    SCANNED = "scanned"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """What is durably known of a dataset.

    generation                  the live rows
    shadow_generation           the rows being loaded beside them, None when there are none
    positions_generation        the positions that are read: the shadow's own, if it has its own
    identity, shards            of those positions
    snapshot_state, segments, origin_ms, snapshot_started_at_ms, scan_ended_at_ms
                                of the generation being loaded: the shadow if there is one
    is_frozen                   the live rows get no changes (their positions ended in a gap)
    live_snapshot_state         of the live rows
    fingerprint                 of the settings that the newest generation was loaded under
    live_fingerprint            of those that the live rows were loaded under
    live_started_at_ms          AWS time before which every change was in the snapshot of them
    positions_gaps              the open gaps of the positions that are read
    """

    identity: SourceIdentity
    generation: int
    positions_generation: int
    shards: tuple[ShardCheckpoint, ...]
    segments: tuple[SnapshotSegment, ...]
    snapshot_state: str
    snapshot_started_at_ms: int | None
    scan_ended_at_ms: int | None
    origin_ms: int | None
    status: str
    status_reason: str | None
    open_gaps: tuple[Gap, ...]
    fingerprint: str | None
    shadow_generation: int | None
    is_frozen: bool
    live_snapshot_state: str
    live_identity: SourceIdentity
    live_fingerprint: str | None
    live_started_at_ms: int | None
    positions_gaps: tuple[Gap, ...]


@dataclass(slots=True)
class Applied:
    """What one call of `apply` did.

    operations          rows written or removed, by op (insert, modify, remove, snapshot), after
                        collapsing to the last change per key
    records             stream records taken, before collapsing
    replayed            records that had been applied before
    foreign             batches of a generation that is no longer read
    touched             scan rows dropped since a change had passed them
    numbers_as_text     numbers in JSON columns that are JSON strings there, to keep their digits
    commit_number       of the newest commit; it grows only when something was written
    """

    operations: Counter[str] = field(default_factory=Counter)
    records: int = 0
    scanned: int = 0
    replayed: int = 0
    foreign: int = 0
    touched: int = 0
    columns_added: tuple[str, ...] = ()
    columns_widened: tuple[str, ...] = ()
    numbers_as_text: int = 0
    dead_letters: int = 0
    wrote: bool = False
    commit_number: int = 0
    nbytes: int = 0
    duration_s: float = 0.0
