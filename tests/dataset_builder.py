"""Builders of batches and datasets for tests: small words for changes, pages and shards."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from accelerator.batch import CHANGES, Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from checkpoints.positions import (
    KeyAttribute,
    Position,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
    SourceIdentity,
)

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
STREAM = ARN + "/stream/2026-01-01T00:00:00.000"
PK = (KeyAttribute("pk", "S", "HASH"),)
MEMORY = 512 * 2**20


def identity(
    schema: tuple[KeyAttribute, ...] = PK, *, table: str = "orders", arn: str = ARN
) -> SourceIdentity:
    return SourceIdentity(table, arn, "table-id-1", STREAM, schema)


def shard(
    shard_id: str = "shard-1", *, state: ShardState = ShardState.READING, parent: str | None = None
) -> ShardCheckpoint:
    return ShardCheckpoint(shard_id, parent, state, Position.trim_horizon())


def text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sequence(number: int) -> str:
    """As DynamoDB writes them: 21 digits and more."""
    return str(100_000_000_000_000_000_000 + number)


def change(
    number: int,
    op: str,
    keys: dict[str, Any],
    image: dict[str, Any] | str | None = None,
    *,
    shard_id: str = "shard-1",
    sequence_number: str | None = None,
) -> dict[str, Any]:
    return {
        "shard_id": shard_id,
        "sequence_number": sequence_number or sequence(number),
        "op": op,
        "created_at": 1_700_000_000_000,
        "ttl_delete": False,
        "keys": text(keys),
        "image": image if image is None or isinstance(image, str) else text(image),
        "old_image": None,
        "event_id": f"e{number}",
    }


def put(number: int, pk: str, shard_id: str = "shard-1", **attributes: Any) -> dict[str, Any]:
    """A change that sets the item of key `pk`; attributes are typed values."""
    keys = {"pk": {"S": pk}}
    return change(number, "modify", keys, {**keys, **attributes}, shard_id=shard_id)


def delete(number: int, pk: str, shard_id: str = "shard-1") -> dict[str, Any]:
    return change(number, "remove", {"pk": {"S": pk}}, shard_id=shard_id)


def scan_row(image: dict[str, Any] | str) -> dict[str, Any]:
    return {
        "op": "snapshot",
        "ttl_delete": False,
        "image": image if isinstance(image, str) else text(image),
    }


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=CHANGES)


def changes(
    rows: Sequence[dict[str, Any]],
    *,
    generation: int = 1,
    shards: Sequence[ShardCheckpoint] = (),
) -> Batch:
    return Batch(table(rows), generation, shards=tuple(shards))


def page(
    images: Sequence[dict[str, Any] | str],
    *,
    ticket: int,
    generation: int = 1,
    fills: int | None = 1,
    segment: int = 0,
    last_key: str | None = None,
    done: bool = False,
) -> Batch:
    """One scan page of a segment, with the progress that holds after it."""
    progress = SnapshotSegment(segment, 1, last_key, len(images), done)
    return Batch(
        table([scan_row(image) for image in images]),
        generation,
        segments=(progress,),
        scan_ticket=ticket,
        fills=fills,
    )


def item(pk: str, **attributes: Any) -> dict[str, Any]:
    return {"pk": {"S": pk}, **attributes}


def open_database(directory: Path, *, memory_limit_bytes: int = MEMORY) -> Database:
    return Database.open(
        directory / "replica.duckdb", memory_limit_bytes=memory_limit_bytes, threads=2
    )


def begun(
    database: Database,
    *,
    spec: DatasetSpec | None = None,
    schema: tuple[KeyAttribute, ...] = PK,
    shards: Sequence[ShardCheckpoint] | None = None,
) -> Dataset:
    """A dataset of one shard and one scan segment, in its first snapshot."""
    dataset = Dataset(database, spec or DatasetSpec("orders"))
    dataset.load()
    dataset.begin(
        identity(schema),
        origin_ms=1_700_000_000_000,
        shards=[shard()] if shards is None else shards,
        segments=[SnapshotSegment(0, 1)],
        shadow=False,
        positions_generation=None,
        snapshot=True,
    )
    return dataset


def read_items(database: Database, name: str = "orders") -> dict[str, dict[str, Any]]:
    """Canonical key to item, as the rows give them back."""
    from accelerator.readback import ItemReader

    cursor = database.cursor()
    try:
        found = list(ItemReader(cursor, name).all_items())
    finally:
        cursor.close()
    items = {key: json.loads(item_text) for key, item_text in found}
    assert len(items) == len(found), "two rows have one key"
    return items


def query(database: Database, sql: str, *values: object) -> list[tuple[Any, ...]]:
    cursor = database.cursor()
    try:
        return cursor.execute(sql, list(values)).fetchall()
    finally:
        cursor.close()
