"""The DynamoDB operations, from a request's parameters to the answer's bytes.

Owns the way of each operation: the hot ones (plain puts, gets, deletes, batch writes and scans) go
straight to the table, all others through moto's handler, which validates and answers as AWS does.
Must not know HTTP or faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.core.utils import camelcase_to_underscores
from moto.dynamodb.responses import DynamoHandler

from emulator.attributes import normalise_item, normalise_value
from emulator.backend import Backend
from emulator.core import World
from emulator.errors import AwsError, serialization, validation
from emulator.images import Image
from emulator.storage import ItemKey
from emulator.tables import Table
from emulator.tokens import ClientTokens
from emulator.wire import encode

OPERATIONS = frozenset(
    {
        "BatchGetItem",
        "BatchWriteItem",
        "CreateTable",
        "DeleteItem",
        "DeleteTable",
        "DescribeContinuousBackups",
        "DescribeEndpoints",
        "DescribeLimits",
        "DescribeTable",
        "DescribeTimeToLive",
        "GetItem",
        "ListTables",
        "ListTagsOfResource",
        "PutItem",
        "Query",
        "Scan",
        "TagResource",
        "TransactGetItems",
        "TransactWriteItems",
        "UntagResource",
        "UpdateContinuousBackups",
        "UpdateItem",
        "UpdateTable",
        "UpdateTimeToLive",
    }
)

_NEEDS_TABLE = OPERATIONS & {
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeContinuousBackups",
    "DescribeTable",
    "DescribeTimeToLive",
    "GetItem",
    "PutItem",
    "Query",
    "Scan",
    "UpdateContinuousBackups",
    "UpdateItem",
    "UpdateTable",
    "UpdateTimeToLive",
}
_CAPACITY = {"ReturnConsumedCapacity", "ReturnItemCollectionMetrics"}
_PLAIN_PUT = _CAPACITY | {"TableName", "Item"}
_PLAIN_DELETE = _CAPACITY | {"TableName", "Key"}
_PLAIN_GET = _CAPACITY | {"TableName", "Key", "ConsistentRead"}
_PLAIN_SCAN = _CAPACITY | {
    "TableName",
    "Limit",
    "ExclusiveStartKey",
    "Segment",
    "TotalSegments",
    "ConsistentRead",
}
_MAX_BATCH = 25
_WRITE_UNIT_BYTES = 1024
_READ_UNIT_BYTES = 4096


class Handler(DynamoHandler):
    """moto's handler on a backend of ours, called without HTTP."""

    def __init__(self, backend: Backend, params: dict[str, Any]) -> None:
        super().__init__()
        self._backend = backend
        self.region = backend.region_name
        self.current_account = backend.account_id
        self.params = params
        self.body = params

    @property
    def dynamodb_backend(self) -> Backend:
        return self._backend


class DynamoDbApi:
    """The operations on one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._direct: dict[str, Callable[[Backend, dict[str, Any]], bytes | None]] = {
            "PutItem": self._put,
            "DeleteItem": self._delete,
            "GetItem": self._get,
            "BatchWriteItem": self._batch_write,
            "Scan": self._scan,
            "TransactWriteItems": self._transact_write,
        }
        self._tokens = ClientTokens()

    def call(self, operation: str, params: dict[str, Any], region: str) -> bytes:
        """Carries out an operation.

        Raises:
            AwsError: as AWS would answer.
        """
        if operation not in OPERATIONS:
            raise AwsError("UnknownOperationException", f"No operation {operation}")
        if operation in _NEEDS_TABLE and not isinstance(params.get("TableName"), str):
            raise validation(
                "1 validation error detected: Value null at 'tableName' failed to satisfy "
                "constraint: Member must not be null"
            )
        backend = self._world.backend(region)
        try:
            direct = self._direct.get(operation)
            if direct is not None:
                answer = direct(backend, params)
                if answer is not None:
                    return answer
            _normalise_request(params)
            with self._world.lock:
                return encode(self._through_moto(backend, operation, params))
        except JsonRESTError as error:
            raise _from_moto(error) from error

    def _through_moto(self, backend: Backend, operation: str, params: dict[str, Any]) -> Any:
        handler = Handler(backend, params)
        try:
            result = getattr(handler, camelcase_to_underscores(operation))()
        except KeyError as error:
            raise validation(
                f"1 validation error detected: Value null at {error} failed to satisfy "
                "constraint: Member must not be null"
            ) from error
        assert isinstance(result, ActionResult)
        answer: Any = result.result or {}
        if params.get("ReturnConsumedCapacity", "NONE") == "NONE":
            # moto gives it for some operations without being asked.
            for name in ("ConsumedCapacity", "ConsumedCapacityUnits", "ItemCollectionMetrics"):
                answer.pop(name, None)
        elif operation == "Scan":
            table = backend.get_table(params["TableName"])
            units = _read_units(table.scanned_bytes, bool(params.get("ConsistentRead")))
            answer["ConsumedCapacity"] = _capacity(params, table.name, units)
        return answer

    # The hot operations: None means that moto has to do it.

    def _put(self, backend: Backend, params: dict[str, Any]) -> bytes | None:
        item = params["Item"] if "Item" in params else _missing("item")
        with self._world.lock:
            table = backend.get_table(params["TableName"])
            key = table.keys.place(item)
            if not params.keys() <= _PLAIN_PUT or table.all_indexes():
                return None
            image = table.checked_image(item)
            old = table.write(key, item, image)
        return _written(params, table, image.size_bytes, old.size_bytes if old else 0)

    def _delete(self, backend: Backend, params: dict[str, Any]) -> bytes | None:
        if not params.keys() <= _PLAIN_DELETE:
            return None
        key = params["Key"] if "Key" in params else _missing("key")
        with self._world.lock:
            table = backend.get_table(params["TableName"])
            old = table.write(table.keys.exact_place(key), None)
        return _written(params, table, old.size_bytes if old else 0, 0)

    def _get(self, backend: Backend, params: dict[str, Any]) -> bytes | None:
        if not params.keys() <= _PLAIN_GET:
            return None
        key = params["Key"] if "Key" in params else _missing("key")
        with self._world.lock:
            table = backend.get_table(params["TableName"])
            consistent = bool(params.get("ConsistentRead"))
            image = table.read(table.keys.exact_place(key), is_consistent=consistent)
        parts = [b'"Item":' + image.raw] if image is not None else []
        units = _read_units(image.size_bytes if image else 1, consistent)
        return _joined(parts, params, table.name, units)

    def _batch_write(self, backend: Backend, params: dict[str, Any]) -> bytes:
        requests = params.get("RequestItems")
        if not isinstance(requests, dict) or not requests:
            raise validation(
                "1 validation error detected: Value null at 'requestItems' failed to satisfy "
                "constraint: Member must not be null"
            )
        if sum(map(len, requests.values())) > _MAX_BATCH:
            raise validation("Too many items requested for the BatchWriteItem call")
        writes: list[tuple[Table, ItemKey, dict[str, Any] | None, Image | None]] = []
        seen: set[tuple[str, ItemKey]] = set()
        with self._world.lock:
            for name, entries in requests.items():
                table = backend.get_table(name)
                for entry in entries:
                    item, key = _batch_entry(table, entry)
                    if (table.name, key) in seen:
                        raise validation("Provided list of item keys contains duplicates")
                    seen.add((table.name, key))
                    image = table.checked_image(item) if item is not None else None
                    writes.append((table, key, item, image))
            for table, key, item, image in writes:
                table.write(key, item, image)
        answer: dict[str, Any] = {"UnprocessedItems": {}}
        if params.get("ReturnConsumedCapacity", "NONE") != "NONE":
            answer["ConsumedCapacity"] = [
                {"TableName": name, "CapacityUnits": float(len(entries))}
                for name, entries in requests.items()
            ]
        return encode(answer)

    def _transact_write(self, backend: Backend, params: dict[str, Any]) -> bytes | None:
        token = params.get("ClientRequestToken")
        if not isinstance(token, str):
            return None
        request = encode(params)
        _normalise_request(params)
        with self._world.lock:
            now_s = self._world.now_s()
            answer = self._tokens.answer(token, request, now_s)
            if answer is None:
                answer = encode(self._through_moto(backend, "TransactWriteItems", params))
                self._tokens.keep(token, request, answer, now_s)
        return answer

    def _scan(self, backend: Backend, params: dict[str, Any]) -> bytes | None:
        count_only = params.get("Select") == "COUNT"
        if not params.keys() - {"Select"} <= _PLAIN_SCAN or params.get("Select") not in (
            None,
            "COUNT",
            "ALL_ATTRIBUTES",
        ):
            return None
        segments = _segments(params)
        limit = params.get("Limit")
        if limit is not None and not (isinstance(limit, int) and limit >= 1):
            raise validation(
                f"1 validation error detected: Value '{limit}' at 'limit' failed to satisfy "
                "constraint: Member must have value greater than or equal to 1"
            )
        consistent = bool(params.get("ConsistentRead"))
        with self._world.lock:
            table = backend.get_table(params["TableName"])
            images, last_key = table.scan_page(
                limit,
                params.get("ExclusiveStartKey"),
                segments,
                is_consistent=consistent,
            )
        parts = [b'"Count":%d,"ScannedCount":%d' % (len(images), len(images))]
        if not count_only:
            parts.append(b'"Items":[' + b",".join([image.raw for image in images]) + b"]")
        if last_key is not None:
            parts.append(b'"LastEvaluatedKey":' + encode(last_key))
        size_bytes = sum([image.size_bytes for image in images])
        return _joined(parts, params, table.name, _read_units(size_bytes, consistent))


def _batch_entry(table: Table, entry: dict[str, Any]) -> tuple[dict[str, Any] | None, ItemKey]:
    put, delete = entry.get("PutRequest"), entry.get("DeleteRequest")
    if (put is None) == (delete is None):
        raise validation(
            "Supplied AttributeValue has more than one datatypes set, must contain exactly one of "
            "the supported datatypes"
        )
    if put is not None:
        return put["Item"], table.keys.place(put["Item"])
    return None, table.keys.exact_place(entry["DeleteRequest"]["Key"])


def _segments(params: dict[str, Any]) -> tuple[int | None, int | None]:
    segment, total = params.get("Segment"), params.get("TotalSegments")
    if segment is not None and total is None:
        raise validation(
            "The TotalSegments parameter is required but was not present in the request when "
            "Segment parameter is present"
        )
    if total is not None and segment is None:
        raise validation(
            "The Segment parameter is required but was not present in the request when parameter "
            "TotalSegments is present"
        )
    if segment is not None and total is not None:
        if not 1 <= total <= 1_000_000:
            raise validation(
                f"1 validation error detected: Value '{total}' at 'totalSegments' failed to "
                "satisfy constraint: Member must have value less than or equal to 1000000"
            )
        if not 0 <= segment < total:
            raise validation(
                "The Segment parameter is zero-based and must be less than parameter "
                f"TotalSegments: Segment: {segment} is not less than TotalSegments: {total}"
            )
    return segment, total


def _missing(name: str) -> Any:
    raise validation(
        f"1 validation error detected: Value null at '{name}' failed to satisfy constraint: "
        "Member must not be null"
    )


def _read_units(size_bytes: int, consistent: bool) -> float:
    units = max(1, math.ceil(size_bytes / _READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def _capacity(params: dict[str, Any], table_name: str, units: float) -> dict[str, Any]:
    shown: dict[str, Any] = {"TableName": table_name, "CapacityUnits": units}
    if params.get("ReturnConsumedCapacity") == "INDEXES":
        shown["Table"] = {"CapacityUnits": units}
    return shown


def _joined(parts: list[bytes], params: dict[str, Any], table_name: str, units: float) -> bytes:
    if params.get("ReturnConsumedCapacity", "NONE") != "NONE":
        parts.append(b'"ConsumedCapacity":' + encode(_capacity(params, table_name, units)))
    return b"{" + b",".join(parts) + b"}"


def _written(params: dict[str, Any], table: Table, new_bytes: int, old_bytes: int) -> bytes:
    units = float(max(1, math.ceil(max(new_bytes, old_bytes) / _WRITE_UNIT_BYTES)))
    return _joined([], params, table.name, units)


def _normalise_request(params: dict[str, Any]) -> None:
    """Puts every attribute value of a request into normal form, wherever the operation has it."""
    for name in ("Item", "Key", "ExpressionAttributeValues", "ExclusiveStartKey"):
        if isinstance(params.get(name), dict):
            normalise_item(params[name])
    for name in ("Expected", "AttributeUpdates", "KeyConditions", "ScanFilter", "QueryFilter"):
        for entry in (params.get(name) or {}).values():
            if "Value" in entry:
                normalise_value(entry["Value"])
            for value in entry.get("AttributeValueList") or ():
                normalise_value(value)
    for entry in params.get("TransactItems") or ():
        for operation in entry.values():
            if not isinstance(operation, dict):
                raise serialization("Unexpected value type in payload")
            _normalise_request(operation)


def _from_moto(error: JsonRESTError) -> AwsError:
    body = error.description if '"CancellationReasons"' in error.description else ""
    if '"Item"' in error.description:
        body = error.description
    return AwsError(error.relative_error_type, error.message, int(error.code or 400), body.encode())
