"""Builders over an emulator for the conformance tests: tables, records, raw requests."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from emulator import Emulator


def a_table(
    aws: Emulator,
    name: str = "orders",
    *,
    keys: str = "pk:S",
    view: str | None = "NEW_AND_OLD_IMAGES",
) -> dict[str, Any]:
    """Creates a table from a short form of its keys (`pk:S,sk:N`); returns its description."""
    columns = [column.split(":") for column in keys.split(",")]
    stream: dict[str, Any] = (
        {"StreamSpecification": {"StreamEnabled": True, "StreamViewType": view}} if view else {}
    )
    created = aws.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": column, "KeyType": role}
            for (column, _), role in zip(columns, ("HASH", "RANGE"), strict=False)
        ],
        AttributeDefinitions=[
            {"AttributeName": column, "AttributeType": kind} for column, kind in columns
        ],
        BillingMode="PAY_PER_REQUEST",
        **stream,
    )
    description: dict[str, Any] = created["TableDescription"]
    return description


def stream_arn(aws: Emulator, table: str = "orders") -> str:
    """The latest stream's ARN."""
    return str(aws.client("dynamodb").describe_table(TableName=table)["Table"]["LatestStreamArn"])


def shard_list(aws: Emulator, arn: str) -> list[dict[str, Any]]:
    """All shards of a stream, over all pages of the listing."""
    streams = aws.client("dynamodbstreams")
    shards: list[dict[str, Any]] = []
    more: dict[str, str] = {}
    while True:
        page = streams.describe_stream(StreamArn=arn, **more)["StreamDescription"]
        shards += page["Shards"]
        if "LastEvaluatedShardId" not in page:
            return shards
        more = {"ExclusiveStartShardId": page["LastEvaluatedShardId"]}


def records_of(aws: Emulator, arn: str, shard_id: str) -> list[dict[str, Any]]:
    """The records of one shard from its horizon to the tip or the end."""
    streams = aws.client("dynamodbstreams")
    iterator = streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    records: list[dict[str, Any]] = []
    while iterator:
        page = streams.get_records(ShardIterator=iterator)
        records += page["Records"]
        if not page["Records"]:
            break
        iterator = page.get("NextShardIterator")
    return records


def all_records(aws: Emulator, table: str = "orders") -> list[dict[str, Any]]:
    """The records of all shards of a table's latest stream, shard by shard."""
    arn = stream_arn(aws, table)
    return [
        record
        for shard in shard_list(aws, arn)
        for record in records_of(aws, arn, shard["ShardId"])
    ]


def changes(aws: Emulator, table: str = "orders") -> list[tuple[str, Any, Any]]:
    """Every record as (event name, new image, old image)."""
    return [
        (
            record["eventName"],
            record["dynamodb"].get("NewImage"),
            record["dynamodb"].get("OldImage"),
        )
        for record in all_records(aws, table)
    ]


@dataclass(frozen=True)
class RawAnswer:
    """An HTTP answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def raw(aws: Emulator, operation: str, params: dict[str, Any] | bytes) -> RawAnswer:
    """A DynamoDB or Streams request without an SDK; header names come back in lower case."""
    streams = operation in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
    version = "DynamoDBStreams_20120810" if streams else "DynamoDB_20120810"
    body = params if isinstance(params, bytes) else json.dumps(params).encode()
    return send(aws, "POST", "/", body, {"X-Amz-Target": f"{version}.{operation}"})


def control(aws: Emulator, path: str, body: dict[str, Any] | None = None) -> Any:
    """A control request: GET without a body, POST with one. Fails on any status but 200."""
    answer = send(
        aws,
        "GET" if body is None else "POST",
        f"/_emulator/{path}",
        b"" if body is None else json.dumps(body).encode(),
        {},
    )
    assert answer.status == 200, answer.body
    return answer.json()


def send(aws: Emulator, method: str, path: str, body: bytes, headers: dict[str, str]) -> RawAnswer:
    """One request on a connection of its own."""
    connection = http.client.HTTPConnection(aws.url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        return RawAnswer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, content
        )
    finally:
        connection.close()
