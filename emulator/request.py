"""What a client asked for: the HTTP request, and the AWS call that it stands for.

Owns recognising service, operation, region, table and shard. Must not carry anything out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from emulator.core import DEFAULT_REGION
from emulator.errors import AwsError, serialization
from emulator.iterators import parse_iterator

CONTROL_PREFIX = "/_emulator"
STREAMS_OPERATIONS = frozenset({"DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"})


# S3 operations whose IAM action has another name.
_S3_ACTIONS = {
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteObjects": "DeleteObject",
    "HeadBucket": "ListBucket",
    "HeadObject": "GetObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "UploadPart": "PutObject",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int = 0

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


@dataclass(frozen=True, slots=True)
class Call:
    """One AWS call. For S3, `table` is the bucket and `shard_id` the key."""

    service: str
    operation: str
    region: str = DEFAULT_REGION
    table: str | None = None
    shard_id: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    caller: str = ""
    connection: int = 0

    @property
    def action(self) -> str:
        """The IAM action, such as `dynamodb:GetRecords`."""
        if self.service == "s3":
            return f"s3:{_S3_ACTIONS.get(self.operation, self.operation)}"
        return f"{self.service.removesuffix('streams')}:{self.operation}"


def read_call(request: Request) -> Call:
    """The AWS call behind a request.

    Raises:
        AwsError: SerializationException when its JSON cannot be read.
    """
    scope = _credential_scope(request.headers)
    caller, region, signed_for = scope if scope else ("", DEFAULT_REGION, "")
    target = request.headers.get("x-amz-target", "")
    if target:
        return _json_request(request, target, caller, region)
    if signed_for == "sts" or (not signed_for and request.body.startswith(b"Action=")):
        form = parse_qs(request.body.decode("utf-8", "replace"))
        operation = (form.get("Action") or ["Unknown"])[0]
        return Call("sts", operation, region, caller=caller, connection=request.connection)
    bucket, _, key = unquote(request.path).lstrip("/").partition("/")
    return Call(
        "s3",
        _s3_operation(request, bucket, key),
        region,
        bucket or None,
        key or None,
        caller=caller,
        connection=request.connection,
    )


def json_call(
    operation: str,
    params: dict[str, Any],
    region: str = DEFAULT_REGION,
    caller: str = "",
    connection: int = 0,
) -> Call:
    """The call of a DynamoDB or Streams operation with these parameters."""
    service = "dynamodbstreams" if operation in STREAMS_OPERATIONS else "dynamodb"
    table, shard_id = _table_and_shard(params)
    return Call(service, operation, region, table, shard_id, params, caller, connection)


def _json_request(request: Request, target: str, caller: str, region: str) -> Call:
    version, _, operation = target.partition(".")
    if version not in ("DynamoDB_20120810", "DynamoDBStreams_20120810"):
        raise AwsError("UnknownOperationException", f"No service {version}")
    try:
        params = msgspec.json.decode(request.body) if request.body else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise serialization("The request body is no JSON") from error
    if not isinstance(params, dict):
        raise serialization("The request body is no JSON object")
    return json_call(operation, params, region, caller, request.connection)


def _table_and_shard(params: dict[str, Any]) -> tuple[str | None, str | None]:
    iterator = params.get("ShardIterator")
    if isinstance(iterator, str):
        return _table_name(iterator), _iterator_shard(iterator)
    name = params.get("TableName") or params.get("StreamArn") or _first_table(params)
    shard_id = params.get("ShardId")
    return _table_name(name), shard_id if isinstance(shard_id, str) else None


def _table_name(name: Any) -> str | None:
    """The table's name from a name, an ARN of a table or stream, or an iterator."""
    if not isinstance(name, str):
        return None
    if ":table/" in name:
        return name.partition(":table/")[2].partition("/")[0]
    return name


def _iterator_shard(token: str) -> str | None:
    try:
        return parse_iterator(token).shard_id
    except AwsError:
        return None


def _first_table(params: dict[str, Any]) -> Any:
    batch = params.get("RequestItems")
    if isinstance(batch, dict):
        return next(iter(batch), None)
    entries = params.get("TransactItems")
    if isinstance(entries, list) and entries and isinstance(entries[0], dict):
        operation = next(iter(entries[0].values()), None)
        return operation.get("TableName") if isinstance(operation, dict) else None
    return None


def _credential_scope(headers: dict[str, str]) -> tuple[str, str, str] | None:
    """The access key, region and service of a signature (version 4), or None without one."""
    credential = headers.get("authorization", "").partition("Credential=")[2]
    parts = credential.partition(",")[0].split("/")
    return (parts[0], parts[2], parts[3]) if len(parts) >= 5 else None


_S3_OBJECT = {
    "GET": "GetObject",
    "PUT": "PutObject",
    "DELETE": "DeleteObject",
    "HEAD": "HeadObject",
}
_S3_BUCKET = {
    "GET": "ListObjects",
    "PUT": "CreateBucket",
    "DELETE": "DeleteBucket",
    "HEAD": "HeadBucket",
    "POST": "DeleteObjects",
}


def _s3_operation(request: Request, bucket: str, key: str) -> str:
    names = request.query.split("&")
    if not bucket:
        return "ListBuckets"
    if not key:
        if "list-type=2" in names:
            return "ListObjectsV2"
        return _S3_BUCKET.get(request.method, request.method)
    if request.method == "POST":
        return "CreateMultipartUpload" if "uploads" in names else "CompleteMultipartUpload"
    if request.method == "PUT" and any(name.startswith("partNumber=") for name in names):
        return "UploadPart"
    if request.method == "PUT" and "x-amz-copy-source" in request.headers:
        return "CopyObject"
    return _S3_OBJECT.get(request.method, request.method)
