"""A data file with one dataset, as queries find it, and a runner over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from accelerator.catalog import Catalog, Generation
from accelerator.database import Database
from accelerator.query import QueryLimits, QueryReport, QueryRunner
from checkpoints.positions import Position, ShardCheckpoint, ShardState, SourceIdentity
from checkpoints.store import DuckDBCheckpointStore, PositionsKey

ROWS = 1_000

_DATASET = f"""
CREATE TABLE dynaduck."orders__rows" AS
    SELECT i AS id, 'name ' || i AS name, (i * 1.10)::DECIMAL(38, 2) AS total,
        ('{{"a":{{"b":' || i || '}}}}')::JSON AS doc,
        TIMESTAMP '2026-01-01' + to_days(i::INTEGER) AS made, '{{}}' AS _raw
    FROM range({ROWS}) t(i);
CREATE VIEW orders AS SELECT * EXCLUDE (_raw) FROM dynaduck."orders__rows";
CREATE TABLE dynaduck."Odd name__rows" AS SELECT 1 AS "select", 2 AS "a b";
CREATE VIEW "Odd name" AS SELECT * FROM dynaduck."Odd name__rows";
"""

AS_OF_MS = 1_767_323_045_678

_IDENTITY = SourceIdentity("orders", "arn:aws:dynamodb:x:1:table/orders", "id", None, ())


def _shard(shard_id: str, covered_until_ms: int | None, state: ShardState) -> ShardCheckpoint:
    return ShardCheckpoint(
        shard_id, None, state, Position.trim_horizon(), covered_until_ms=covered_until_ms
    )


def _describe_dataset(cursor: duckdb.DuckDBPyConnection) -> None:
    """Generation 3 is served: covered up to AS_OF_MS, with a finished shard that is older."""
    rows = Catalog(cursor, "orders")
    rows.save_status("Ready", None, now_ms=AS_OF_MS)
    rows.save_generation(Generation("orders", 3, "live", 3, _IDENTITY, "done", None, "{}"))
    positions = DuckDBCheckpointStore(cursor)
    served = [
        _shard("s-0", AS_OF_MS - 10_000, ShardState.FINISHED),
        _shard("s-1", AS_OF_MS, ShardState.READING),
        _shard("s-2", AS_OF_MS + 1_000, ShardState.IDLE),
    ]
    positions.save_shards(PositionsKey("orders", 3, None), served, now_ms=AS_OF_MS)
    older = [_shard("s-1", None, ShardState.READING)]
    positions.save_shards(PositionsKey("orders", 2, None), older, now_ms=AS_OF_MS)


@contextmanager
def data_file(path: Path, *, memory_limit_bytes: int = 400 * 2**20) -> Iterator[Database]:
    """An open data file with the dataset `orders`: 1,000 rows, Ready, covered up to AS_OF_MS."""
    database = Database.open(
        path / "replica.duckdb", memory_limit_bytes=memory_limit_bytes, threads=2
    )
    try:
        with database.transaction() as cursor:
            cursor.execute(_DATASET)
            _describe_dataset(cursor)
        yield database
    finally:
        database.close()


@contextmanager
def runner(database: Database, **limits: Any) -> Iterator[tuple[QueryRunner, list[QueryReport]]]:
    """A runner over the file, and the list its reports go to."""
    reports: list[QueryReport] = []
    queries = QueryRunner(database, QueryLimits(**limits), observer=reports.append)
    try:
        yield queries, reports
    finally:
        queries.close()


def rows_of(queries: QueryRunner, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    with queries.open(sql, parameters) as query:
        query.start()
        batches = list(query.batches())
        table = pa.Table.from_batches(batches, query.schema)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def fingerprint(database: Database) -> list[Any]:
    """What no query may change: every table's rows, the catalogue, and the settings."""
    cursor: duckdb.DuckDBPyConnection = database.cursor()
    try:
        tables = cursor.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() ORDER BY ALL"
        ).fetchall()
        contents = [
            (schema, table, cursor.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall())
            for schema, table in tables
        ]
        return [
            contents,
            cursor.execute("SELECT view_name, sql FROM duckdb_views() ORDER BY ALL").fetchall(),
            cursor.execute("SELECT database_name FROM duckdb_databases() ORDER BY ALL").fetchall(),
            cursor.execute("SELECT name, value FROM duckdb_settings() ORDER BY ALL").fetchall(),
            cursor.execute("SELECT sequence_name FROM duckdb_sequences() ORDER BY ALL").fetchall(),
        ]
    finally:
        cursor.close()
