"""What a killed service left in its file, checked against the stream it came from.

Reads a copy of the file and its write-ahead log, so that looking changes nothing.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from emulator import Emulator
from tests.faults.workload import TABLE, Key


@dataclass(frozen=True, slots=True)
class Committed:
    """Versions by key, sequence numbers by shard, and the start of the snapshot."""

    rows: dict[Key, list[int]]
    positions: dict[str, int]
    records: dict[str, int]
    origin_s: float
    snapshot_is_done: bool


def read_file(data_dir: Path) -> Committed | None:
    """None when the kill came before anything was committed."""
    if not (data_dir / "replica.duckdb").exists():
        return None
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("replica.duckdb", "replica.duckdb.wal"):
            if (data_dir / name).exists():
                shutil.copy(data_dir / name, Path(scratch) / name)
        connection = duckdb.connect()
        try:
            # Attached, not opened: the log of an opened file is replayed too early for widenings.
            connection.execute(f"ATTACH '{Path(scratch) / 'replica.duckdb'}' AS left_behind")
            connection.execute("USE left_behind")
            return _read(connection)
        finally:
            connection.close()


def _read(connection: duckdb.DuckDBPyConnection) -> Committed | None:
    views = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND view_name = ?", [TABLE]
    ).fetchall()
    if not views:
        return None
    rows: dict[Key, list[int]] = {}
    has_versions = connection.execute(
        "SELECT count(*) FROM duckdb_columns() WHERE table_name = ? AND column_name = 'v'", [TABLE]
    ).fetchall() != [(0,)]
    version = "v" if has_versions else "NULL"
    for pk, sk, v in connection.execute(f"SELECT pk, sk, {version} FROM {TABLE}").fetchall():
        rows.setdefault((pk, int(sk)), []).append(v)
    shards = connection.execute(
        "SELECT shard_id, sequence_number, records FROM dynaduck.checkpoints"
    ).fetchall()
    ((origin_ms,),) = connection.execute(
        "SELECT epoch_ms(origin) FROM dynaduck.generations WHERE role = 'live'"
    ).fetchall()
    segments = connection.execute("SELECT done FROM dynaduck.snapshot_segments").fetchall()
    return Committed(
        rows,
        {shard: int(sequence) for shard, sequence, _ in shards if sequence is not None},
        {shard: records for shard, _, records in shards},
        origin_ms / 1000,
        bool(segments) and all(done for (done,) in segments),
    )


def faults_of(aws: Emulator, committed: Committed) -> list[str]:
    """Where rows and positions that were committed together do not belong together.

    A position promises that every record up to it is in the rows. Records from before the start
    of reading are promised by the snapshot, and so only once it is done.
    """
    found = [f"{key} has {len(v)} rows" for key, v in committed.rows.items() if len(v) > 1]
    newest: dict[Key, tuple[int, dict[str, Any]]] = {}
    for shard in aws.control.shards(TABLE):
        position = committed.positions.get(shard.shard_id)
        if position is None:
            continue
        promised = [r for r in list(shard.records) if r.sequence_number <= position]
        if committed.records[shard.shard_id] > len(promised):
            found.append(
                f"{shard.shard_id} counts {committed.records[shard.shard_id]} records applied,"
                f" it had {len(promised)} up to its position"
            )
        for record in promised:
            if committed.snapshot_is_done or record.created_s >= committed.origin_s:
                change = record.to_dict()["dynamodb"]
                key = (change["Keys"]["pk"]["S"], int(change["Keys"]["sk"]["N"]))
                if record.sequence_number > newest.get(key, (0, {}))[0]:
                    newest[key] = (record.sequence_number, change)
    for key, (sequence, change) in newest.items():
        if fault := _behind(committed.rows.get(key), change):
            found.append(f"{key}: {fault}, though {sequence} is committed")
    return found


def _behind(versions: list[int] | None, change: dict[str, Any]) -> str | None:
    if "NewImage" in change:
        promised = int(change["NewImage"]["v"]["N"])
        if versions is None:
            return f"no row, promised version {promised}"
        return None if versions[0] >= promised else f"version {versions[0]} of {promised}"
    gone = int(change["OldImage"]["v"]["N"])
    if versions is not None and versions[0] <= gone:
        return f"version {versions[0]}, deleted at {gone}"
    return None
