"""The system tables that tell users and operators what is known of each dataset.

Owns the schema `dynaduck` and `runtime` but for the positions (checkpoints.store) and the rows
(rows): datasets, generations, columns, dead letters, task history, and the file format's version.
All times are UTC timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from accelerator import keys
from accelerator.choice import Choice
from accelerator.schema import Alteration, Column, Kind, Plan
from accelerator.sql import identifier
from accelerator.statements import count, first_row
from checkpoints.positions import KeyAttribute, SourceIdentity
from checkpoints.store import DuckDBCheckpointStore

# Version of what this module and its neighbours lay down in the file.
FORMAT = 1

_TABLES = """
CREATE SCHEMA IF NOT EXISTS dynaduck;
CREATE SCHEMA IF NOT EXISTS runtime;
CREATE TABLE IF NOT EXISTS dynaduck.file_format (version INTEGER NOT NULL, hash_probe UBIGINT);
CREATE TABLE IF NOT EXISTS dynaduck.dataset_states (
    dataset VARCHAR NOT NULL, status VARCHAR NOT NULL, status_reason VARCHAR,
    fingerprint VARCHAR, updated_at TIMESTAMP);
CREATE TABLE IF NOT EXISTS dynaduck.generations (
    dataset VARCHAR NOT NULL, generation BIGINT NOT NULL, role VARCHAR NOT NULL,
    positions_generation BIGINT, is_frozen BOOLEAN NOT NULL,
    table_name VARCHAR NOT NULL, table_arn VARCHAR NOT NULL, table_id VARCHAR NOT NULL,
    stream_arn VARCHAR, key_schema VARCHAR NOT NULL, snapshot_state VARCHAR NOT NULL,
    origin TIMESTAMP, snapshot_started_at TIMESTAMP, scan_ended_at TIMESTAMP,
    fingerprint VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS dynaduck.column_rows (
    dataset VARCHAR NOT NULL, generation BIGINT NOT NULL, attribute VARCHAR NOT NULL,
    column_name VARCHAR NOT NULL, type VARCHAR NOT NULL, seen_types VARCHAR[] NOT NULL,
    widened_from VARCHAR[] NOT NULL, since TIMESTAMP, column_id INTEGER NOT NULL,
    kind VARCHAR NOT NULL, base VARCHAR NOT NULL, scale INTEGER NOT NULL,
    pinned VARCHAR NOT NULL);
CREATE TABLE IF NOT EXISTS dynaduck.dead_letters (
    dataset VARCHAR NOT NULL, shard_id VARCHAR, sequence_number VARCHAR,
    event_name VARCHAR NOT NULL, record VARCHAR NOT NULL, error VARCHAR NOT NULL, "at" TIMESTAMP,
    key VARCHAR, generation BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS runtime.task_history (
    trace_id VARCHAR, span_id VARCHAR, parent_span_id VARCHAR, task VARCHAR, input VARCHAR,
    captured_output VARCHAR, start_time TIMESTAMP, end_time TIMESTAMP,
    execution_duration_ms DOUBLE, error_message VARCHAR, labels VARCHAR);
CREATE VIEW IF NOT EXISTS dynaduck.datasets AS
    SELECT s.dataset, g.table_name, g.table_arn, g.table_id, g.stream_arn, s.status,
        s.status_reason, g.snapshot_state, g.generation, g.positions_generation, g.is_frozen,
        g.snapshot_started_at, g.scan_ended_at, n.generation AS shadow_generation,
        n.snapshot_state AS shadow_snapshot_state, s.updated_at
    FROM dynaduck.dataset_states s
    JOIN dynaduck.generations g ON g.dataset = s.dataset AND g.role = 'live'
    LEFT JOIN dynaduck.generations n ON n.dataset = s.dataset AND n.role = 'shadow';
CREATE VIEW IF NOT EXISTS dynaduck.columns AS
    SELECT c.dataset,
        CASE WHEN json_extract_string(g.fingerprint, '$.unnest_depth') = '0' THEN c.attribute
            ELSE replace(c.attribute, chr(31), '.') END AS attribute,
        c.column_name, c.type, c.seen_types, c.widened_from, c.since
    FROM dynaduck.column_rows c JOIN dynaduck.generations g
        ON g.dataset = c.dataset AND g.generation = c.generation AND g.role = 'live'
    ORDER BY c.dataset, c.column_id;
"""


@dataclass(frozen=True, slots=True)
class Generation:
    """One load of a dataset's rows: a row of dynaduck.generations.

    positions_generation   the set of positions that feeds it
    fingerprint            the text of its choice
    is_frozen              no change reaches it any more (its positions ended in a gap)
    """

    dataset: str
    generation: int
    role: str
    positions_generation: int
    identity: SourceIdentity
    snapshot_state: str
    origin_ms: int | None
    fingerprint: str
    is_frozen: bool = False
    snapshot_started_at_ms: int | None = None
    scan_ended_at_ms: int | None = None

    @property
    def choice(self) -> Choice:
        names = tuple(key.name for key in self.identity.key_schema)
        return Choice.from_text(self.fingerprint).for_keys(names)


def create(cursor: duckdb.DuckDBPyConnection) -> int:
    """Lays down what is absent and returns the version that the file had, or FORMAT if new."""
    cursor.execute("BEGIN TRANSACTION")
    try:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS dynaduck")
        version = stored_format(cursor)
        if version <= FORMAT:
            cursor.execute(_TABLES)
            DuckDBCheckpointStore(cursor).create_tables()
            if version == 0:
                cursor.execute(
                    "INSERT INTO dynaduck.file_format SELECT ?, "
                    + keys.hash_sql("CAST(? AS VARCHAR)"),
                    [FORMAT, keys.PROBE],
                )
        cursor.execute("COMMIT")
    except BaseException:
        cursor.execute("ROLLBACK")
        raise
    return version or FORMAT


def stored_format(cursor: duckdb.DuckDBPyConnection) -> int:
    """0 where the file holds no format row."""
    known = count(
        cursor,
        "SELECT count(*) FROM duckdb_tables() "
        "WHERE schema_name = 'dynaduck' AND table_name = 'file_format'",
    )
    return count(cursor, "SELECT max(version) FROM dynaduck.file_format") if known else 0


def rehash(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Makes stored hashes those of this DuckDB; whether they were others."""
    probe = first_row(cursor, f"SELECT {keys.hash_sql('CAST(? AS VARCHAR)')}", [keys.PROBE])
    stored = first_row(cursor, "SELECT max(hash_probe) FROM dynaduck.file_format")
    if stored == probe or probe is None:
        return False
    tables = cursor.execute(
        "SELECT table_name FROM duckdb_columns() WHERE schema_name = 'dynaduck' "
        "AND column_name = '_h' AND contains(table_name, '__rows_')"
    ).fetchall()
    cursor.execute("BEGIN TRANSACTION")
    try:
        for (table,) in tables:
            cursor.execute(f"UPDATE dynaduck.{identifier(table)} SET _h = {keys.hash_sql('_k')}")
        cursor.execute("UPDATE dynaduck.file_format SET hash_probe = ?", [probe[0]])
        cursor.execute("COMMIT")
    except BaseException:
        cursor.execute("ROLLBACK")
        raise
    return True


class Catalog:
    """Rows of one dataset in the system tables. Begins and ends no transaction."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, dataset: str) -> None:
        self._cursor = cursor
        self._dataset = dataset

    def generations(self) -> tuple[Generation, ...]:
        rows = self._cursor.execute(
            "SELECT generation, role, positions_generation, is_frozen, table_name, table_arn, "
            "table_id, stream_arn, key_schema, snapshot_state, epoch_ms(origin), "
            "epoch_ms(snapshot_started_at), epoch_ms(scan_ended_at), fingerprint "
            "FROM dynaduck.generations WHERE dataset = ? ORDER BY generation",
            [self._dataset],
        ).fetchall()
        return tuple(
            Generation(
                dataset=self._dataset,
                generation=r[0],
                role=r[1],
                positions_generation=r[2],
                is_frozen=r[3],
                identity=SourceIdentity(
                    r[4],
                    r[5],
                    r[6],
                    r[7],
                    tuple(KeyAttribute(*each) for each in json.loads(r[8])),
                ),
                snapshot_state=r[9],
                origin_ms=r[10],
                snapshot_started_at_ms=r[11],
                scan_ended_at_ms=r[12],
                fingerprint=r[13],
            )
            for r in rows
        )

    def save_generation(self, g: Generation) -> None:
        key_schema = json.dumps([[k.name, k.type, k.role] for k in g.identity.key_schema])
        self.drop_generation(g.generation)
        self._cursor.execute(
            "INSERT INTO dynaduck.generations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "epoch_ms(CAST(? AS BIGINT)), epoch_ms(CAST(? AS BIGINT)), "
            "epoch_ms(CAST(? AS BIGINT)), ?)",
            [
                g.dataset,
                g.generation,
                g.role,
                g.positions_generation,
                g.is_frozen,
                g.identity.table_name,
                g.identity.table_arn,
                g.identity.table_id,
                g.identity.stream_arn,
                key_schema,
                g.snapshot_state,
                g.origin_ms,
                g.snapshot_started_at_ms,
                g.scan_ended_at_ms,
                g.fingerprint,
            ],
        )

    def drop_generation(self, generation: int) -> None:
        self._cursor.execute(
            "DELETE FROM dynaduck.generations WHERE dataset = ? AND generation = ?",
            [self._dataset, generation],
        )

    def status(self) -> tuple[str, str | None] | None:
        found = first_row(
            self._cursor,
            "SELECT status, status_reason FROM dynaduck.dataset_states WHERE dataset = ?",
            [self._dataset],
        )
        return (found[0], found[1]) if found else None

    def save_status(self, status: str, reason: str | None, *, now_ms: int) -> None:
        self._cursor.execute(
            "UPDATE dynaduck.dataset_states SET status = ?, status_reason = ?, "
            "updated_at = epoch_ms(CAST(? AS BIGINT)) WHERE dataset = ?",
            [status, reason, now_ms, self._dataset],
        )
        self._cursor.execute(
            "INSERT INTO dynaduck.dataset_states SELECT ?, ?, ?, NULL, "
            "epoch_ms(CAST(? AS BIGINT)) WHERE NOT EXISTS "
            "(SELECT 1 FROM dynaduck.dataset_states WHERE dataset = ?)",
            [self._dataset, status, reason, now_ms, self._dataset],
        )

    def plan(self, generation: int, choice: Choice) -> Plan:
        rows = self._cursor.execute(
            "SELECT attribute, column_name, column_id, kind, base, scale, seen_types, "
            "widened_from, epoch_ms(since), pinned FROM dynaduck.column_rows "
            "WHERE dataset = ? AND generation = ? ORDER BY column_id",
            [self._dataset, generation],
        ).fetchall()
        columns = tuple(
            Column(
                attribute=r[0],
                name=r[1],
                column_id=r[2],
                kind=Kind(r[3]),
                base=r[4],
                scale=r[5],
                seen=tuple(r[6]),
                widened_from=tuple(r[7]),
                since_ms=r[8],
                pinned=r[9],
            )
            for r in rows
        )
        return Plan(columns, choice)

    def save_columns(self, generation: int, alteration: Alteration) -> None:
        changed = [*alteration.added, *alteration.restated]
        changed += [retype.new for retype in alteration.retyped]
        if not changed:
            return
        self._cursor.execute(
            "DELETE FROM dynaduck.column_rows WHERE dataset = ? AND generation = ? "
            "AND list_contains(CAST(? AS INTEGER[]), column_id)",
            [self._dataset, generation, [c.column_id for c in changed]],
        )
        self._cursor.register("staged_columns", _column_rows(changed))
        self._cursor.execute(
            "INSERT INTO dynaduck.column_rows SELECT ?, ?, attribute, column_name, type, "
            "seen_types, widened_from, epoch_ms(since), column_id, kind, base, scale, pinned "
            "FROM staged_columns",
            [self._dataset, generation],
        )
        self._cursor.unregister("staged_columns")

    def drop_columns(self, generation: int) -> None:
        self._cursor.execute(
            "DELETE FROM dynaduck.column_rows WHERE dataset = ? AND generation = ?",
            [self._dataset, generation],
        )


def _column_rows(columns: Sequence[Column]) -> pa.Table:
    texts = pa.list_(pa.string())
    return pa.table(
        {
            "attribute": [c.attribute for c in columns],
            "column_name": [c.name for c in columns],
            "type": [c.sql_type for c in columns],
            "seen_types": pa.array([list(c.seen) for c in columns], texts),
            "widened_from": pa.array([list(c.widened_from) for c in columns], texts),
            "since": [c.since_ms for c in columns],
            "column_id": [c.column_id for c in columns],
            "kind": [c.kind.value for c in columns],
            "base": [c.base for c in columns],
            "scale": [c.scale for c in columns],
            "pinned": [c.pinned for c in columns],
        }
    )
