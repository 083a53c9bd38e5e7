"""The Batch: the one representation that flows from the wire to the row.

Readers and the scanner make it, the applier queues it, the dataset applies it whole, the segment
log stores it. Keys and images stay the DynamoDB JSON text that the wire carried.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from checkpoints.positions import Gap, ShardCheckpoint, SnapshotSegment

CHANGES = pa.schema(
    [
        # Shard that delivered the change; null on scan rows.
        pa.field("shard_id", pa.string()),
        # Decimal text of 21 to 40 digits, opaque but for integer order within one shard lineage.
        pa.field("sequence_number", pa.string()),
        # insert, modify, remove; snapshot on scan rows, or remove where a read found no item.
        pa.field("op", pa.string(), nullable=False),
        # ApproximateCreationDateTime, whole seconds, in ms since the epoch; null on scan rows.
        pa.field("created_at", pa.int64()),
        pa.field("ttl_delete", pa.bool_(), nullable=False),
        # DynamoDB JSON of the key attributes; null on scan rows with an image, which holds the key.
        pa.field("keys", pa.string()),
        # DynamoDB JSON of the new image; null on remove.
        pa.field("image", pa.string()),
        # DynamoDB JSON of the old image; only where a history is kept.
        pa.field("old_image", pa.string()),
        pa.field("event_id", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes in arrival order and what holds once they are applied: all of it commits, or none.

    changes       a table of schema CHANGES: either stream records or scan rows, never both
    generation    the set of positions this belongs to; batches of another generation are dropped
    shards        shard rows to upsert (new children, finished parents, new positions)
    segments      scan progress to upsert
    gaps          rows to add to dynaduck.gaps
    scan_ticket   on scan rows: the commit number of the dataset when the page's request was sent;
                  rows whose key was changed by a later commit are dropped
    fills         on scan rows: the generation of rows they fill; once that is no longer being
                  loaded they are dropped. None: the live rows (a snapshot of single keys)
    """

    changes: pa.Table
    generation: int
    shards: tuple[ShardCheckpoint, ...] = ()
    segments: tuple[SnapshotSegment, ...] = ()
    gaps: tuple[Gap, ...] = ()
    scan_ticket: int | None = None
    fills: int | None = None
    nbytes: int = field(default=0)

    @property
    def is_scan(self) -> bool:
        return self.scan_ticket is not None


def empty_changes() -> pa.Table:
    return CHANGES.empty_table()
