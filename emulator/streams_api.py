"""The DynamoDB Streams operations, from a request's parameters to the answer's bytes.

Owns the checks of their parameters. Must not know HTTP, faults or how streams work.
"""

from __future__ import annotations

from typing import Any

from emulator.core import World
from emulator.errors import AwsError, serialization, validation
from emulator.settings import NoIterator
from emulator.wire import encode


class StreamsApi:
    """The operations on one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def call(self, operation: str, params: dict[str, Any], region: str) -> bytes:
        """Carries out an operation.

        Raises:
            AwsError: as AWS would answer.
        """
        if operation == "GetRecords":
            return self._get_records(params)
        if operation == "GetShardIterator":
            return self._get_shard_iterator(params)
        if operation == "DescribeStream":
            return self._describe_stream(params)
        if operation == "ListStreams":
            limit = _limit(params, 100)
            return encode(
                self._world.list_streams(
                    region=region,
                    table_name=params.get("TableName"),
                    limit=limit,
                    start_after=params.get("ExclusiveStartStreamArn"),
                )
            )
        raise AwsError("UnknownOperationException", f"No operation {operation}")

    def _get_records(self, params: dict[str, Any]) -> bytes:
        page = self._world.get_records(_text(params, "ShardIterator"), _limit(params, 1000) or 1000)
        records = b",".join([record.encoded() for record in page.records])
        if page.next_iterator is not None:
            following = b',"NextShardIterator":"%b"' % page.next_iterator.token().encode()
        elif page.no_iterator is NoIterator.NULL:
            following = b',"NextShardIterator":null'
        else:
            following = b""
        return b'{"Records":[%b]%b}' % (records, following)

    def _get_shard_iterator(self, params: dict[str, Any]) -> bytes:
        token = self._world.get_shard_iterator(
            _text(params, "StreamArn"),
            _text(params, "ShardId"),
            _text(params, "ShardIteratorType"),
            sequence_number=params.get("SequenceNumber"),
            timestamp_s=_time(params),
        )
        return encode({"ShardIterator": token})

    def _describe_stream(self, params: dict[str, Any]) -> bytes:
        shard_filter = params.get("ShardFilter") or {}
        children_of = None
        if shard_filter:
            if shard_filter.get("Type") != "CHILD_SHARDS":
                raise validation(
                    f"1 validation error detected: Value '{shard_filter.get('Type')}' at "
                    "'shardFilter.type' failed to satisfy constraint: Member must satisfy enum "
                    "value set: [CHILD_SHARDS]"
                )
            children_of = _text(shard_filter, "ShardId")
        description = self._world.describe_stream(
            _text(params, "StreamArn"),
            limit=_limit(params, 100),
            start_after=params.get("ExclusiveStartShardId"),
            children_of=children_of,
        )
        return encode({"StreamDescription": description})


def _text(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        field = name[0].lower() + name[1:]
        raise validation(
            f"1 validation error detected: Value null at '{field}' failed to satisfy "
            "constraint: Member must not be null"
        )
    return value


def _time(params: dict[str, Any]) -> float | None:
    value = params.get("Timestamp")
    if value is not None and not isinstance(value, int | float):
        raise serialization("Timestamp must be a number of seconds since the epoch")
    return value


def _limit(params: dict[str, Any], highest: int) -> int | None:
    limit = params.get("Limit")
    if limit is not None and not (isinstance(limit, int) and 1 <= limit <= highest):
        raise validation(
            f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy "
            f"constraint: Member must have value between 1 and {highest}"
        )
    return limit if limit is None else int(limit)
