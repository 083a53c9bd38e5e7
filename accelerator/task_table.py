"""Rows of runtime.task_history: written in bulk, dropped when they are old.

Owns its INSERT and its DELETE. Begins and ends no transaction; the writer's thread uses it.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

_STAGED = "staged_tasks"


def write_tasks(cursor: duckdb.DuckDBPyConnection, rows: pa.Table, *, keep_from_ms: int) -> None:
    """Adds the rows, and drops those that ended before `keep_from_ms`.

    `rows` has the columns of the table, in its order.
    """
    cursor.register(_STAGED, rows)
    try:
        cursor.execute(f"INSERT INTO runtime.task_history SELECT * FROM {_STAGED}")
    finally:
        cursor.unregister(_STAGED)
    cursor.execute(
        "DELETE FROM runtime.task_history WHERE end_time < epoch_ms(CAST(? AS BIGINT))",
        [keep_from_ms],
    )
