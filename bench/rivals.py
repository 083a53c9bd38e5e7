"""What a user would write instead: boto3, TypeDeserializer, Arrow, and a table with a primary key.

Owns the rivals and the floor, nothing of the product but the hook that the floor reads through.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, Final

import boto3
import duckdb
import pyarrow as pa
from boto3.dynamodb.types import Binary, TypeDeserializer

from bench.server import STREAM_ARN, TABLE, shard_id
from connector.aws.source import AwsSettings, AwsSource

SCHEMA: Final = pa.schema(
    [
        ("pk", pa.string()),
        ("sk", pa.int64()),
        ("name", pa.string()),
        ("balance", pa.decimal128(38, 2)),
        ("active", pa.bool_()),
        ("closed", pa.string()),
        ("token", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("steps", pa.string()),
        ("address", pa.string()),
        ("created", pa.string()),
        ("note", pa.string()),
    ]
)
_KEY: Final = ("pk", "sk")
_UPDATES: Final = ", ".join(f"{n} = excluded.{n}" for n in SCHEMA.names if n not in _KEY)
_ON_CONFLICT: Final = f"ON CONFLICT (pk, sk) DO UPDATE SET {_UPDATES}"


def client(service: str, url: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
    )


def plain_table(rows: int, *, path: str) -> duckdb.DuckDBPyConnection:
    """A table with a primary key that holds the same items."""
    connection = duckdb.connect(path, config={"memory_limit": "3GB"})
    connection.execute(
        "CREATE TABLE t (pk VARCHAR, sk BIGINT, name VARCHAR, balance DECIMAL(38, 2), "
        "active BOOLEAN, closed VARCHAR, token BLOB, tags VARCHAR[], steps VARCHAR, "
        "address VARCHAR, created VARCHAR, note VARCHAR, PRIMARY KEY (pk, sk))"
    )
    connection.execute(
        "INSERT INTO t SELECT format('user#{:08d}', i), i % 10, 'Ann Example, of Nowhere', 100.45, "
        "true, NULL, '\\x00\\x01'::BLOB, ['a', 'b', 'c'], '[\"x\",1]', "
        "'{\"street\":\"Lane\",\"number\":9}', '2024-01-01T00:00:00Z', repeat('x', 60) "
        f"FROM range({rows}) r(i)"
    )
    connection.execute("CHECKPOINT")
    return connection


def rows_of(images: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Plain rows, one for each key: the last."""
    deserialize = TypeDeserializer().deserialize
    found = {}
    for image in images:
        item = {name: _plain(deserialize(value)) for name, value in image.items()}
        item["sk"] = int(item["sk"])
        for name in ("steps", "address"):
            item[name] = json.dumps(item[name], default=str)
        found[item["pk"], item["sk"]] = item
    return list(found.values())


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    return value.value if isinstance(value, Binary) else value


def upsert(connection: duckdb.DuckDBPyConnection, rows: list[dict[str, Any]]) -> None:
    """One commit."""
    arrow = pa.Table.from_pylist(rows, schema=SCHEMA)
    connection.register("page", arrow)
    connection.execute(f"INSERT INTO t SELECT * FROM page {_ON_CONFLICT}")
    connection.unregister("page")


def stream_pages(url: str, shard: int, pages: int) -> Iterator[list[dict[str, Any]]]:
    streams = client("dynamodbstreams", url)
    iterator = streams.get_shard_iterator(
        StreamArn=STREAM_ARN, ShardId=shard_id(shard), ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    for _ in range(pages):
        answer = streams.get_records(ShardIterator=iterator)
        iterator = answer["NextShardIterator"]
        yield answer["Records"]


def plain_rate(url: str, connection: duckdb.DuckDBPyConnection, pages: int) -> float:
    """Records/s, from HTTP to committed, one page a commit."""
    records, began_s = 0, time.perf_counter()
    for page in stream_pages(url, 0, pages):
        upsert(connection, rows_of([record["dynamodb"]["NewImage"] for record in page]))
        records += len(page)
    return records / (time.perf_counter() - began_s)


def executemany_rate(url: str, connection: duckdb.DuckDBPyConnection, most: int) -> float:
    """The same row by row, one commit for all."""
    marks = ", ".join("?" for _ in SCHEMA.names)
    began_s = time.perf_counter()
    page = next(stream_pages(url, 0, 1))[:most]
    rows = rows_of([record["dynamodb"]["NewImage"] for record in page])
    values = [[row[name] for name in SCHEMA.names] for row in rows]
    connection.execute("BEGIN")
    connection.executemany(f"INSERT INTO t VALUES ({marks}) {_ON_CONFLICT}", values)
    connection.execute("COMMIT")
    return len(page) / (time.perf_counter() - began_s)


def plain_in_memory_rate(
    bodies: list[bytes], connection: duckdb.DuckDBPyConnection, now_s: Callable[[], float]
) -> float:
    """The same over bodies that are in memory already, without botocore."""
    records, began_s = 0, now_s()
    for body in bodies:
        page = json.loads(body, parse_float=Decimal)["Records"]
        images = [record["dynamodb"]["NewImage"] for record in page]
        upsert(connection, rows_of([_with_bytes(image) for image in images]))
        records += len(page)
    return records / (now_s() - began_s)


def _with_bytes(image: dict[str, Any]) -> dict[str, Any]:
    return {n: {"B": v["B"].encode()} if "B" in v else v for n, v in image.items()}


def scan_rate(url: str, pages: int) -> float:
    """Items/s of boto3's Scan, TypeDeserializer and an append through Arrow, one segment."""
    connection = duckdb.connect(":memory:")
    connection.register("shape", SCHEMA.empty_table())
    connection.execute("CREATE TABLE t AS SELECT * FROM shape")
    dynamodb = client("dynamodb", url)
    start: dict[str, Any] = {}
    items, began_s = 0, time.perf_counter()
    for _ in range(pages):
        answer = dynamodb.scan(TableName=TABLE, ConsistentRead=True, **start)
        arrow = pa.Table.from_pylist(rows_of(answer["Items"]), schema=SCHEMA)
        connection.register("page", arrow)
        connection.execute("INSERT INTO t SELECT * FROM page")
        connection.unregister("page")
        items += len(answer["Items"])
        if "LastEvaluatedKey" not in answer:
            break
        start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
    return items / (time.perf_counter() - began_s)


def floor_rate(url: str, shards: int, pages: int) -> float:
    """Records/s of the hook path that reads, checks and cuts each page, and drops it.

    One thread: it holds the interpreter's lock nearly all the time, so that more add nothing.
    """
    source = AwsSource(
        AwsSettings(
            table=TABLE,
            region="eu-west-1",
            access_key_id="bench",
            secret_access_key="bench",
            endpoint_url=url,
        )
    )
    records, began_s = 0, time.perf_counter()
    for shard in range(shards):
        iterator = f"{shard}:0"
        for _ in range(pages):
            page = source.get_records(shard_id(shard), iterator)
            records += page.changes.num_rows
            assert page.next_iterator is not None
            iterator = page.next_iterator
    source.close()
    return records / (time.perf_counter() - began_s)
