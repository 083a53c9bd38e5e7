"""The offset table and the segment bucket over botocore: the second boundary to AWS.

Owns `checkpoints.kv.ItemStore` on DynamoDB and `checkpoints.object_store.ObjectStore` on S3.
`source` is the boundary of the table and its stream; nothing else knows botocore. Nothing here
retries: a second attempt that nobody sees would turn "created" into "exists". No call is made
beyond GetItem, PutItem, UpdateItem, DeleteItem, Query on the table, and GetObject, PutObject,
ListObjectsV2 under the pipeline's prefix. Must not know what items and objects mean.

An answer of status 200 counts only with what AWS alone puts into it (a request id, an ETag, the new
attributes): a proxy's page, or an empty body, is no answer.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

import botocore.session
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from checkpoints.errors import (
    CheckpointError,
    StoreDenied,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from checkpoints.kv import Expected, Item, Scalar
from checkpoints.object_store import PutOutcome
from connector.aws import codes as aws_codes

T = TypeVar("T")

TABLE_ACTIONS: Final = (
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
)
BUCKET_ACTIONS: Final = ("s3:GetObject", "s3:ListBucket", "s3:PutObject")

_LIST_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How to reach the table and the bucket. Keys None: botocore finds credentials.

    The time-outs are short beside a lease of 25 s, so that a call that hangs leaves time to try
    again.
    """

    region: str
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    dynamodb_endpoint_url: str | None = None
    s3_endpoint_url: str | None = None
    connect_timeout_s: float = 3.0
    read_timeout_s: float = 5.0


def store_client(service: str, settings: StoreSettings) -> Any:
    """A botocore client of `dynamodb` or `s3` that never retries."""
    is_s3 = service == "s3"
    endpoint_url = settings.s3_endpoint_url if is_s3 else settings.dynamodb_endpoint_url
    options: dict[str, Any] = {"s3": {"addressing_style": "path"}} if endpoint_url else {}
    return botocore.session.Session().create_client(
        service,
        region_name=settings.region,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        aws_session_token=settings.session_token,
        endpoint_url=endpoint_url,
        config=Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"total_max_attempts": 1, "mode": "standard"},
            tcp_keepalive=True,
            **(options if is_s3 else {}),
        ),
    )


class DynamoItemStore:
    """A table with the text keys PK and SK. Thread-safe."""

    def __init__(self, client: Any, table: str) -> None:
        self._client = client
        self._table = table

    def get(self, pk: str, sk: str) -> Item | None:
        answer = self._call("GetItem", {"Key": _key(pk, sk), "ConsistentRead": True})
        return _item_of(answer["Item"]) if "Item" in answer else None

    def put(self, pk: str, sk: str, item: Item, expected: Expected) -> bool:
        whole = {**_key(pk, sk), **{name: _typed(value) for name, value in item.items()}}
        condition = _Expression()
        condition.expect(expected)
        return self._try("PutItem", {"Item": whole, **condition.parameters()}) is not None

    def update(
        self,
        pk: str,
        sk: str,
        changes: Item,
        expected: Expected,
        *,
        increment: str | None = None,
    ) -> Item | None:
        if not expected:
            raise ValueError("an update needs values to expect")
        expression = _Expression()
        expression.expect(expected)
        clauses = []
        if changes:
            sets = [f"{expression.name(n)} = {expression.value(v)}" for n, v in changes.items()]
            clauses.append("SET " + ", ".join(sets))
        if increment is not None:
            clauses.append(f"ADD {expression.name(increment)} {expression.value(1)}")
        parameters = {
            "Key": _key(pk, sk),
            "UpdateExpression": " ".join(clauses),
            "ReturnValues": "ALL_NEW",
            **expression.parameters(),
        }
        answer = self._try("UpdateItem", parameters)
        if answer is None:
            return None
        if "Attributes" not in answer:
            raise StoreUnavailable(f"UpdateItem of {self._table} answered without attributes.")
        return _item_of(answer["Attributes"])

    def delete(self, pk: str, sk: str, expected: Expected) -> bool:
        if not expected:
            raise ValueError("a delete needs values to expect")
        condition = _Expression()
        condition.expect(expected)
        parameters = {"Key": _key(pk, sk), **condition.parameters()}
        return self._try("DeleteItem", parameters) is not None

    def query(self, pk: str, sk_prefix: str) -> list[tuple[str, Item]]:
        found: list[tuple[str, Item]] = []
        parameters: dict[str, Any] = {
            "KeyConditionExpression": "PK = :pk AND begins_with(SK, :sk)",
            "ExpressionAttributeValues": {":pk": {"S": pk}, ":sk": {"S": sk_prefix}},
            "ConsistentRead": True,
        }
        while True:
            answer = self._call("Query", parameters)
            if "Items" not in answer:
                raise StoreUnavailable(f"Query of {self._table} answered without items.")
            found += [(item["SK"]["S"], _item_of(item)) for item in answer["Items"]]
            if not answer.get("LastEvaluatedKey"):
                return found
            parameters["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _try(self, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer, None when the condition did not hold."""
        try:
            return self._call(operation, parameters)
        except _ConditionFailed:
            return None

    def _call(self, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        method = getattr(self._client, _METHODS[operation])
        answer = _translated(
            "dynamodb",
            operation,
            self._table,
            lambda: method(TableName=self._table, **parameters),
        )
        return _genuine(operation, self._table, answer)


class S3ObjectStore:
    """One bucket. Thread-safe. `on_date` is told the `Date` of each answer, in ms."""

    def __init__(
        self, client: Any, bucket: str, *, on_date: Callable[[int], None] | None = None
    ) -> None:
        self._client = client
        self._bucket = bucket
        if on_date is not None:
            client.meta.events.register("after-call.s3", _DateTold(on_date))

    def put_new(self, key: str, data: bytes) -> PutOutcome:
        # S3 refuses a body that does not have this hash. botocore's own checksum would come as a
        # trailer, which other servers than AWS's often do not know.
        checksum = b64encode(hashlib.sha256(data).digest()).decode("ascii")
        try:
            answer = self._call(
                "PutObject", {"Key": key, "Body": data, "IfNoneMatch": "*"}, checksum=checksum
            )
        except _ConditionFailed:
            return PutOutcome.EXISTS
        except _ConflictMet:
            return PutOutcome.CONFLICT
        except StoreUnavailable:
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED if answer.get("ETag") else PutOutcome.UNKNOWN

    def get(self, key: str) -> bytes | None:
        try:
            body: bytes = self._call("GetObject", {"Key": key}, read=_whole_body)
        except _NoSuchKey:
            return None
        except StoreDenied:
            # Where the policy limits s3:ListBucket to a prefix, S3 answers 403 for an object that
            # is not there: GetObject has no prefix for the condition to hold.
            if self._may_exist(key):
                raise
            return None
        return body

    def list_after(self, prefix: str, start_after: str | None, limit: int) -> list[str]:
        keys: list[str] = []
        parameters: dict[str, Any] = {"Prefix": prefix, "Delimiter": "/"}
        if start_after is not None:
            parameters["StartAfter"] = start_after
        while True:
            answer = self._list({**parameters, "MaxKeys": min(limit - len(keys), _LIST_PAGE)})
            keys += [entry["Key"] for entry in answer.get("Contents", ())]
            # A page may hold nothing but what lies deeper than the delimiter, and not be the last.
            if len(keys) >= limit or not answer["IsTruncated"]:
                return keys
            parameters["ContinuationToken"] = answer["NextContinuationToken"]

    def _may_exist(self, key: str) -> bool:
        try:
            listed = self._list({"Prefix": key, "MaxKeys": 1}).get("Contents", ())
        except StoreDenied:
            return True
        return any(entry["Key"] == key for entry in listed)

    def _list(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._call("ListObjectsV2", parameters)
        if "IsTruncated" not in answer:
            raise StoreUnavailable(f"ListObjectsV2 of {self._bucket} answered without a listing.")
        return answer

    def _call(
        self,
        operation: str,
        parameters: Mapping[str, Any],
        *,
        checksum: str | None = None,
        read: Callable[[Mapping[str, Any]], Any] = lambda answer: answer,
    ) -> Any:
        method = getattr(self._client, _METHODS[operation])
        more = {} if checksum is None else {"ChecksumSHA256": checksum}
        return _translated(
            "s3",
            operation,
            f"{self._bucket}/{parameters.get('Key', parameters.get('Prefix', ''))}",
            lambda: read(method(Bucket=self._bucket, **parameters, **more)),
        )


@dataclass(frozen=True, slots=True)
class _DateTold:
    """A handler of botocore's: what a node that never asks DynamoDB knows of AWS's time."""

    on_date: Callable[[int], None]

    def __call__(self, parsed: Mapping[str, Any], **_: object) -> None:
        text = parsed.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        try:
            self.on_date(int(parsedate_to_datetime(text or "").timestamp() * 1000))
        except ValueError:
            return


_METHODS: Final = {
    "GetItem": "get_item",
    "PutItem": "put_item",
    "UpdateItem": "update_item",
    "DeleteItem": "delete_item",
    "Query": "query",
    "GetObject": "get_object",
    "PutObject": "put_object",
    "ListObjectsV2": "list_objects_v2",
}


class _ConditionFailed(CheckpointError):
    """What was expected did not hold; nothing changed."""


class _ConflictMet(CheckpointError):
    """Another write of the same object was in progress."""


class _NoSuchKey(CheckpointError):
    """There is no object of this key."""


class _Expression:
    """The names and values of an expression, every one of them by placeholder: `owner_node`,
    `released` and the like may become reserved words at any time.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, dict[str, Any]] = {}
        self._condition = ""

    def name(self, name: str) -> str:
        placeholder = f"#n{len(self._names)}"
        self._names[placeholder] = name
        return placeholder

    def value(self, value: Scalar) -> str:
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = _typed(value)
        return placeholder

    def expect(self, expected: Expected) -> None:
        if expected:
            self._condition = " AND ".join(
                f"{self.name(name)} = {self.value(value)}" for name, value in expected.items()
            )
        else:
            self._condition = f"attribute_not_exists({self.name('PK')})"

    def parameters(self) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "ConditionExpression": self._condition,
            "ExpressionAttributeNames": self._names,
        }
        if self._values:
            parameters["ExpressionAttributeValues"] = self._values
        return parameters


def _key(pk: str, sk: str) -> dict[str, Any]:
    return {"PK": {"S": pk}, "SK": {"S": sk}}


def _typed(value: Scalar) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"N": str(value)} if isinstance(value, int) else {"S": value}


def _item_of(attributes: Mapping[str, Mapping[str, Any]]) -> Item:
    """The attributes of the types we write; others are a stranger's and are left out."""
    item: dict[str, Scalar] = {}
    for name, typed in attributes.items():
        if name in ("PK", "SK"):
            continue
        if "S" in typed:
            item[name] = typed["S"]
        elif "BOOL" in typed:
            item[name] = typed["BOOL"]
        elif "N" in typed and (number := Decimal(typed["N"])) == number.to_integral_value():
            item[name] = int(number)
    return item


def _whole_body(answer: Mapping[str, Any]) -> bytes:
    if not answer.get("ETag"):
        raise StoreUnavailable("GetObject answered without an ETag: it is not S3's answer.")
    body: bytes = answer["Body"].read()
    return body


def _genuine(operation: str, table: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    if not answer.get("ResponseMetadata", {}).get("RequestId"):
        raise StoreUnavailable(f"{operation} of {table} was answered, but not by DynamoDB.")
    return answer


def _translated(service: str, operation: str, subject: str, call: Callable[[], T]) -> T:
    """What `call` returns. Raises CheckpointError in place of what botocore raises."""
    try:
        return call()
    except boto.ClientError as error:
        said = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = str(said.get("Code", "")).rsplit("#", 1)[-1]
        message = f"{operation} of {subject}: {code}: {said.get('Message') or 'no reason given'}"
        raise _meaning(service, operation, code, status, message) from error
    except (boto.BotoCoreError, ResponseParserError, HTTPError, OSError) as error:
        if isinstance(error, _NEVER_SENT):
            raise StoreRefused(f"{operation} of {subject}: {error}") from error
        raise StoreUnavailable(f"{operation} of {subject}: {error}") from error


_NEVER_SENT: Final = (
    boto.CredentialRetrievalError,
    boto.NoCredentialsError,
    boto.ParamValidationError,
    boto.PartialCredentialsError,
    boto.NoRegionError,
)

_S3_ACTIONS: Final = {"ListObjectsV2": "ListBucket"}


def _meaning(service: str, operation: str, code: str, status: int, message: str) -> CheckpointError:
    if code in ("ConditionalCheckFailedException", "PreconditionFailed") or status == 412:
        return _ConditionFailed(message)
    if code == "ConditionalRequestConflict" or (service == "s3" and status == 409):
        return _ConflictMet(message)
    if code in ("NoSuchKey", "404") and operation == "GetObject":
        return _NoSuchKey(message)
    if status >= 500 or code in aws_codes.UNAVAILABLE:
        # SlowDown too: it comes as a 503, and whether the PUT had its effect is found by reading.
        return StoreUnavailable(message)
    if code in aws_codes.THROTTLED or status == 429:
        return StoreThrottled(message)
    if code in aws_codes.DENIED:
        return StoreDenied(message, action=f"{service}:{_S3_ACTIONS.get(operation, operation)}")
    if code in aws_codes.CREDENTIALS:
        return StoreRefused(message, hint="Renew the AWS credentials, or set this host's clock.")
    return StoreRefused(message)
