"""Every change of a dataset, kept for a while: the table `main."NAME_history"`.

Owns that table and its retention. Rows go in with the data's own transaction, one per stream record
whatever became of its item; images stay the tagged JSON that the wire carried. Begins and ends no
transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa

from accelerator.sql import identifier

# Old rows are looked for once per this part of the retention, by the records' own time.
_PRUNINGS = 100


@dataclass(frozen=True, slots=True)
class History:
    """`retention_ms` counts back from the newest change."""

    retention_ms: int


class HistoryTable:
    """Writer thread only."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, dataset: str, history: History) -> None:
        self._cursor = cursor
        self._history = history
        self.qualified_name = "main." + identifier(f"{dataset}_history")
        self._pruned_at_ms: int | None = None

    def create(self) -> None:
        self._cursor.execute(
            f"CREATE TABLE IF NOT EXISTS {self.qualified_name} (op VARCHAR NOT NULL, "
            "changed_at TIMESTAMP, ttl_delete BOOLEAN NOT NULL, keys VARCHAR, new_image VARCHAR, "
            "old_image VARCHAR, shard_id VARCHAR, sequence_number VARCHAR, event_id VARCHAR)"
        )

    def append(self, changes: pa.Table) -> None:
        """Adds records of schema CHANGES and drops those past the retention."""
        if changes.num_rows == 0:
            return
        self._cursor.register("history_rows", changes)
        try:
            self._cursor.execute(
                f"INSERT INTO {self.qualified_name} SELECT op, epoch_ms(created_at), ttl_delete, "
                "keys, image, old_image, shard_id, sequence_number, event_id FROM history_rows"
            )
            found = self._cursor.execute("SELECT max(created_at) FROM history_rows").fetchall()
        finally:
            self._cursor.unregister("history_rows")
        newest_ms: int | None = found[0][0]
        if newest_ms is not None and self._is_due(newest_ms):
            self._cursor.execute(
                f"DELETE FROM {self.qualified_name} WHERE changed_at < epoch_ms(CAST(? AS BIGINT))",
                [newest_ms - self._history.retention_ms],
            )
            self._pruned_at_ms = newest_ms

    def _is_due(self, newest_ms: int) -> bool:
        if self._pruned_at_ms is None:
            return True
        return newest_ms - self._pruned_at_ms >= self._history.retention_ms / _PRUNINGS
