"""Where positions are kept: the CheckpointStore protocol, and DuckDB as the default store.

Owns the tables `dynaduck.checkpoints`, `dynaduck.snapshot_segments` and `dynaduck.gaps`. The DuckDB
store writes through the cursor of the data's own transaction, so that rows and the positions they
came from commit together. It must not know rows, columns or streams, and begins and ends no
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb
import pyarrow as pa

from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState, SnapshotSegment


@dataclass(frozen=True, slots=True)
class PositionsKey:
    """One set of positions: a dataset's, of one generation, over one stream."""

    dataset: str
    generation: int
    stream_arn: str | None


class CheckpointStore(Protocol):
    """Positions by dataset and generation. Writes are upserts of exactly the rows given."""

    def save_shards(
        self, key: PositionsKey, shards: Sequence[ShardCheckpoint], *, now_ms: int
    ) -> None: ...

    def load_shards(self, dataset: str, generation: int) -> tuple[ShardCheckpoint, ...]: ...

    def save_segments(
        self, dataset: str, generation: int, segments: Sequence[SnapshotSegment], *, now_ms: int
    ) -> None: ...

    def load_segments(self, dataset: str, generation: int) -> tuple[SnapshotSegment, ...]: ...

    def record_gaps(self, dataset: str, generation: int, gaps: Sequence[Gap]) -> None: ...

    def resolve_gaps(self, dataset: str, resolution: str) -> None: ...

    def open_gaps(self, dataset: str, generation: int | None = None) -> tuple[Gap, ...]:
        """Of one set of positions, or of all."""

    def forget_shards(self, dataset: str, generation: int, shard_ids: Sequence[str]) -> None:
        """Drops rows of shards that will never be read or asked for again."""

    def forget(self, dataset: str, *, keep: Sequence[int]) -> None:
        """Drops positions and segments of every generation but those in `keep`."""


_TABLES = """
CREATE TABLE IF NOT EXISTS dynaduck.checkpoints (
    dataset VARCHAR NOT NULL, stream_arn VARCHAR, shard_id VARCHAR NOT NULL,
    parent_shard_id VARCHAR, state VARCHAR NOT NULL, position VARCHAR NOT NULL,
    sequence_number VARCHAR, records BIGINT NOT NULL, covered_until TIMESTAMP,
    generation BIGINT NOT NULL, updated_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS dynaduck.snapshot_segments (
    dataset VARCHAR NOT NULL, segment INTEGER NOT NULL, total_segments INTEGER NOT NULL,
    last_evaluated_key VARCHAR, items BIGINT NOT NULL, done BOOLEAN NOT NULL,
    generation BIGINT NOT NULL, updated_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS dynaduck.gaps (
    dataset VARCHAR NOT NULL, shard_id VARCHAR NOT NULL, from_sequence_number VARCHAR,
    cause VARCHAR NOT NULL, detected_at TIMESTAMP, resolution VARCHAR,
    generation BIGINT NOT NULL);
"""

_SHARD_ROWS = pa.schema(
    [
        pa.field("shard_id", pa.string()),
        pa.field("parent_shard_id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("position", pa.string()),
        pa.field("sequence_number", pa.string()),
        pa.field("records", pa.int64()),
        pa.field("covered_until", pa.timestamp("ms")),
    ]
)
_SEGMENT_ROWS = pa.schema(
    [
        pa.field("segment", pa.int32()),
        pa.field("total_segments", pa.int32()),
        pa.field("last_evaluated_key", pa.string()),
        pa.field("items", pa.int64()),
        pa.field("done", pa.bool_()),
    ]
)


class DuckDBCheckpointStore:
    """Positions in the data file. Used by the thread that owns `cursor`."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def create_tables(self) -> None:
        self._cursor.execute(_TABLES)

    def save_shards(
        self, key: PositionsKey, shards: Sequence[ShardCheckpoint], *, now_ms: int
    ) -> None:
        if len(shards) <= _FEW_SHARDS:
            shards = [s for s in shards if not self._update_shard(key, s, now_ms)]
        if not shards:
            return
        rows = pa.table(
            {
                "shard_id": [s.shard_id for s in shards],
                "parent_shard_id": [s.parent_shard_id for s in shards],
                "state": [s.state.value for s in shards],
                "position": [s.position.encode() for s in shards],
                "sequence_number": [s.position.sequence_number for s in shards],
                "records": [s.records for s in shards],
                "covered_until": [s.covered_until_ms for s in shards],
            },
            schema=_SHARD_ROWS,
        )
        # UPDATE in place, then INSERT what was not there: deleting and inserting the same few rows
        # at every commit would grow the table until the next checkpoint.
        self._upsert(
            rows,
            f"""
            UPDATE dynaduck.checkpoints AS t SET stream_arn = $stream_arn,
                parent_shard_id = n.parent_shard_id, state = n.state, position = n.position,
                sequence_number = n.sequence_number, records = n.records,
                covered_until = n.covered_until, updated_at = epoch_ms($now_ms)
            FROM {_STAGED} AS n
            WHERE t.dataset = $dataset AND t.generation = $generation AND t.shard_id = n.shard_id
            """,
            f"""
            INSERT INTO dynaduck.checkpoints
            SELECT $dataset, $stream_arn, n.*, $generation, epoch_ms($now_ms) FROM (
                SELECT shard_id, parent_shard_id, state, position, sequence_number, records,
                    covered_until FROM {_STAGED}) AS n
            WHERE n.shard_id NOT IN (SELECT shard_id FROM dynaduck.checkpoints
                WHERE dataset = $dataset AND generation = $generation)
            """,
            {
                "dataset": key.dataset,
                "generation": key.generation,
                "stream_arn": key.stream_arn,
                "now_ms": now_ms,
            },
        )

    def _update_shard(self, key: PositionsKey, shard: ShardCheckpoint, now_ms: int) -> bool:
        """Whether there was a row to update. For a shard or two it is half the price of a join."""
        touched = self._cursor.execute(
            "UPDATE dynaduck.checkpoints SET stream_arn = ?, parent_shard_id = ?, state = ?, "
            "position = ?, sequence_number = ?, records = ?, "
            "covered_until = epoch_ms(CAST(? AS BIGINT)), updated_at = epoch_ms(CAST(? AS BIGINT)) "
            "WHERE dataset = ? AND generation = ? AND shard_id = ?",
            [
                key.stream_arn,
                shard.parent_shard_id,
                shard.state.value,
                shard.position.encode(),
                shard.position.sequence_number,
                shard.records,
                shard.covered_until_ms,
                now_ms,
                key.dataset,
                key.generation,
                shard.shard_id,
            ],
        ).fetchall()
        return bool(touched[0][0])

    def load_shards(self, dataset: str, generation: int) -> tuple[ShardCheckpoint, ...]:
        rows = self._cursor.execute(
            "SELECT shard_id, parent_shard_id, state, position, sequence_number, records, "
            "epoch_ms(covered_until) FROM dynaduck.checkpoints "
            "WHERE dataset = ? AND generation = ? ORDER BY shard_id",
            [dataset, generation],
        ).fetchall()
        return tuple(
            ShardCheckpoint(
                shard_id,
                parent,
                ShardState(state),
                Position.decode(position, number),
                records,
                covered,
            )
            for shard_id, parent, state, position, number, records, covered in rows
        )

    def save_segments(
        self, dataset: str, generation: int, segments: Sequence[SnapshotSegment], *, now_ms: int
    ) -> None:
        if not segments:
            return
        rows = pa.table(
            {
                "segment": [s.segment for s in segments],
                "total_segments": [s.total_segments for s in segments],
                "last_evaluated_key": [s.last_evaluated_key for s in segments],
                "items": [s.items for s in segments],
                "done": [s.done for s in segments],
            },
            schema=_SEGMENT_ROWS,
        )
        self._upsert(
            rows,
            f"""
            UPDATE dynaduck.snapshot_segments AS t SET total_segments = n.total_segments,
                last_evaluated_key = n.last_evaluated_key, items = n.items, done = n.done,
                updated_at = epoch_ms($now_ms)
            FROM {_STAGED} AS n
            WHERE t.dataset = $dataset AND t.generation = $generation AND t.segment = n.segment
            """,
            f"""
            INSERT INTO dynaduck.snapshot_segments
            SELECT $dataset, n.segment, n.total_segments, n.last_evaluated_key, n.items, n.done,
                $generation, epoch_ms($now_ms) FROM {_STAGED} AS n
            WHERE n.segment NOT IN (SELECT segment FROM dynaduck.snapshot_segments
                WHERE dataset = $dataset AND generation = $generation)
            """,
            {"dataset": dataset, "generation": generation, "now_ms": now_ms},
        )

    def load_segments(self, dataset: str, generation: int) -> tuple[SnapshotSegment, ...]:
        rows = self._cursor.execute(
            "SELECT segment, total_segments, last_evaluated_key, items, done "
            "FROM dynaduck.snapshot_segments WHERE dataset = ? AND generation = ? "
            "ORDER BY segment",
            [dataset, generation],
        ).fetchall()
        return tuple(SnapshotSegment(*row) for row in rows)

    def record_gaps(self, dataset: str, generation: int, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self._cursor.execute(
                "INSERT INTO dynaduck.gaps VALUES (?, ?, ?, ?, epoch_ms(?), ?, ?)",
                [
                    dataset,
                    gap.shard_id,
                    gap.from_sequence_number,
                    gap.cause,
                    gap.detected_at_ms,
                    gap.resolution,
                    generation,
                ],
            )

    def resolve_gaps(self, dataset: str, resolution: str) -> None:
        self._cursor.execute(
            "UPDATE dynaduck.gaps SET resolution = ? WHERE dataset = ? AND resolution IS NULL",
            [resolution, dataset],
        )

    def open_gaps(self, dataset: str, generation: int | None = None) -> tuple[Gap, ...]:
        rows = self._cursor.execute(
            "SELECT shard_id, from_sequence_number, cause, epoch_ms(detected_at), resolution "
            "FROM dynaduck.gaps WHERE dataset = $dataset AND resolution IS NULL "
            "AND generation = coalesce($generation, generation) "
            "ORDER BY detected_at, shard_id",
            {"dataset": dataset, "generation": generation},
        ).fetchall()
        return tuple(Gap(*row) for row in rows)

    def forget_shards(self, dataset: str, generation: int, shard_ids: Sequence[str]) -> None:
        self._cursor.execute(
            "DELETE FROM dynaduck.checkpoints WHERE dataset = ? AND generation = ? "
            "AND list_contains(CAST(? AS VARCHAR[]), shard_id)",
            [dataset, generation, list(shard_ids)],
        )

    def forget(self, dataset: str, *, keep: Sequence[int]) -> None:
        for table in ("checkpoints", "snapshot_segments"):
            self._cursor.execute(
                f"DELETE FROM dynaduck.{table} WHERE dataset = ? "
                "AND NOT list_contains(CAST(? AS BIGINT[]), generation)",
                [dataset, list(keep)],
            )

    def _upsert(self, rows: pa.Table, update: str, insert: str, values: dict[str, object]) -> None:
        self._cursor.register(_STAGED, rows)
        try:
            if self._run(update, values) < rows.num_rows:
                self._run(insert, values)
        finally:
            self._cursor.unregister(_STAGED)

    def _run(self, statement: str, values: dict[str, object]) -> int:
        """How many rows it touched."""
        # DuckDB refuses a named parameter that the statement does not use.
        used = {name: value for name, value in values.items() if f"${name}" in statement}
        return int(self._cursor.execute(statement, used).fetchall()[0][0])


_STAGED = "staged_positions"
_FEW_SHARDS = 2
