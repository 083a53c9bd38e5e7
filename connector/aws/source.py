"""DynamoDB and its streams over botocore: the boundary through which the source is read.

Owns the clients, and the check that an answer is whole. botocore signs, resolves endpoints and
finds credentials; its `before-parse` event hands over the body as it was received, and `wire` cuts
it. Never retries: loops do, and botocore's own retries would multiply their waits, and in
`standard` mode deliver a corrupt page at last. Must not know what becomes of a page.

Every answer of status < 300 must have the length it announces, the CRC it announces, no content
encoding, and a Date; else CorruptPage. botocore itself would turn a truncated answer, or the page
of a proxy, into an empty dict, which reads as "this shard has ended".
"""

from __future__ import annotations

import re
import socket
import threading
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import botocore.session
import msgspec
from botocore import exceptions as boto
from botocore.config import Config
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from checkpoints.positions import Position, PositionKind
from connector.aws import codes as aws_codes
from connector.aws import wire
from connector.clock import Clock, SystemClock
from connector.errors import (
    ConfigError,
    CorruptPage,
    CredentialsInvalid,
    RequestRefused,
    SourceError,
    Unavailable,
)
from connector.source import (
    OpenedIterator,
    RecordsPage,
    ScanPage,
    StreamPage,
    TableDescription,
)

T = TypeVar("T")

OnCall = Callable[[str, str, float], None]
"""(operation, "ok" or the error's code, seconds): called after every call, from its thread."""

DYNAMODB: Final = "dynamodb"
STREAMS: Final = "dynamodbstreams"
STS: Final = "sts"
ACCOUNT_ID_ENDPOINT_MODES: Final = ("preferred", "disabled", "required")

_ANSWER: Final = "DynaduckAnswer"
_REGION: Final = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")
_TABLE_ARN: Final = re.compile(r"arn:(aws[\w-]*):dynamodb:([\w-]+):(\d{12}):table/([\w.-]+)")
_AWS_HOST: Final = re.compile(r"\.(amazonaws\.com(\.cn)?|api\.aws)(?=[:/]|$)")
_TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")

_CREDENTIAL_ERRORS: Final = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.UnknownCredentialError,
    boto.ProfileNotFound,
    boto.ConfigParseError,
    boto.ConfigNotFound,
    boto.SSOError,
    boto.MetadataRetrievalError,
    boto.RefreshWithMFAUnsupportedError,
)
_REQUEST_ERRORS: Final = (
    boto.ParamValidationError,
    boto.ValidationError,
    boto.NoRegionError,
    boto.EndpointProviderError,
    boto.UnknownEndpointError,
    boto.InvalidConfigError,
)


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """How to reach one table.

    table                     a name, or an ARN (which also settles the region if none is given)
    streams_endpoint_url      where streams are served elsewhere than at endpoint_url
    account_id_endpoint_mode  None leaves it to botocore: stream calls then go to
                              <account>.streams-ddb.<region>.amazonaws.com
    max_connections           to each of the two services; at least the number of pollers
    """

    table: str
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    endpoint_url: str | None = None
    streams_endpoint_url: str | None = None
    account_id_endpoint_mode: str | None = None
    max_connections: int = 32
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 10.0

    @property
    def resolved_region(self) -> str:
        """Raises ConfigError when neither the settings nor an ARN name one."""
        arn = _TABLE_ARN.fullmatch(self.table)
        region = self.region or (arn[2] if arn else None)
        if not region:
            raise ConfigError(
                f"no region is set for the table {self.table}",
                hint="Set dynamodb_aws_region, or AWS_REGION in the environment.",
            )
        return region

    def check(self) -> None:
        """Raises ConfigError on what no call could ever cure."""
        arn = _TABLE_ARN.fullmatch(self.table)
        if arn is None and not _TABLE_NAME.fullmatch(self.table):
            raise ConfigError(
                f"{self.table!r} is neither the name nor the ARN of a DynamoDB table",
                hint="Write dynamodb:NAME or dynamodb:arn:aws:dynamodb:REGION:ACCOUNT:table/NAME",
            )
        region = self.resolved_region
        if not _REGION.fullmatch(region):
            raise ConfigError(f"{region!r} is not an AWS region", hint="Write it like eu-west-1.")
        if arn is not None and arn[2] != region:
            raise ConfigError(
                f"the table's ARN is of {arn[2]}, dynamodb_aws_region says {region}",
                hint="Leave dynamodb_aws_region out, or set it to the region of the ARN.",
            )
        self._check_credentials()
        self._check_endpoints()

    def _check_credentials(self) -> None:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            missing = "access_key_id" if self.access_key_id is None else "secret_access_key"
            raise ConfigError(
                f"dynamodb_aws_{missing} is missing beside its other half",
                hint="Set both keys, or neither to use the environment, a profile or a role.",
            )
        if self.session_token is not None and self.access_key_id is None:
            raise ConfigError(
                "dynamodb_aws_session_token is set without the keys it belongs to",
                hint="Set the access key and the secret key too.",
            )

    def _check_endpoints(self) -> None:
        for name in ("endpoint_url", "streams_endpoint_url"):
            url = getattr(self, name)
            if url is not None and not _is_http_url(url):
                raise ConfigError(
                    f"{name} {url!r} is not an http or https address",
                    hint="Write it like http://127.0.0.1:8000.",
                )
        mode = self.account_id_endpoint_mode
        if mode is not None and mode not in ACCOUNT_ID_ENDPOINT_MODES:
            raise ConfigError(
                f"account_id_endpoint_mode {mode!r} is unknown",
                hint=f"Use one of {', '.join(ACCOUNT_ID_ENDPOINT_MODES)}.",
            )


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    account: str
    arn: str


class AwsSource:
    """One table and its streams, as `connector.source.Source`. Thread-safe.

    Clients are made at the first call. After an error of the credentials they are made anew, so
    that keys which were replaced in a file or the environment are found.
    """

    def __init__(
        self,
        settings: AwsSettings,
        *,
        clock: Clock | None = None,
        on_call: OnCall | None = None,
        user_agent: str = "dynaduck",
    ) -> None:
        settings.check()
        self._settings = settings
        self._region = settings.resolved_region
        self._clock = clock or SystemClock()
        self._on_call = on_call
        self._user_agent = user_agent
        self._lock = threading.Lock()
        self._session: botocore.session.Session | None = None
        self._clients: dict[str, Any] = {}
        self._hosts: dict[str, str] = {}
        self._supports_at_timestamp = True

    @property
    def supports_at_timestamp(self) -> bool:
        """False once botocore or the service has refused AT_TIMESTAMP.

        From then on `open_iterator` opens TRIM_HORIZON in its place: the records before the
        timestamp come too, and dropping them is the reader's business.
        """
        return self._supports_at_timestamp

    @property
    def hosts(self) -> Mapping[str, str]:
        """The host each service (`dynamodb`, `dynamodbstreams`) was last reached at."""
        return dict(self._hosts)

    def describe_table(self) -> TableDescription:
        return self._call(
            DYNAMODB,
            "DescribeTable",
            {"TableName": self._settings.table},
            lambda body, at_ms: wire.cut_table(body, at_ms=at_ms),
        )

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage:
        params: dict[str, Any] = {"StreamArn": stream_arn}
        if start_shard_id is not None:
            params["ExclusiveStartShardId"] = start_shard_id
        if children_of is not None:
            params["ShardFilter"] = {"Type": "CHILD_SHARDS", "ShardId": children_of}
        return self._call(
            STREAMS,
            "DescribeStream",
            params,
            lambda body, at_ms: wire.cut_stream(body, at_ms=at_ms),
            subject=stream_arn,
        )

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        """Raises ValueError for SHARD_END: there is nothing left to read."""
        if position.kind is PositionKind.SHARD_END:
            raise ValueError(f"{shard_id} has ended: no iterator leads past its end")
        params = {"StreamArn": stream_arn, "ShardId": shard_id}
        if position.kind is PositionKind.AT_TIMESTAMP:
            return self._open_at_timestamp(params, position)
        params["ShardIteratorType"] = position.kind.value
        if position.sequence_number is not None:
            params["SequenceNumber"] = position.sequence_number
        return self._open(params)

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        return self._call(
            STREAMS,
            "GetRecords",
            {"ShardIterator": iterator},
            lambda body, at_ms: wire.cut_records(
                body, shard_id, at_ms=at_ms, old_images=old_images
            ),
            subject=shard_id,
        )

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        params: dict[str, Any] = {
            "TableName": self._settings.table,
            "Segment": segment,
            "TotalSegments": total_segments,
            "ConsistentRead": consistent,
            "ReturnConsumedCapacity": "TOTAL",
        }
        if start_key is not None:
            params["ExclusiveStartKey"] = _key_parameters(start_key)
        return self._call(
            DYNAMODB,
            "Scan",
            params,
            lambda body, at_ms: wire.cut_scan(body, at_ms=at_ms, consistent=consistent),
        )

    def get_item(self, keys: str) -> tuple[str | None, int]:
        params = {
            "TableName": self._settings.table,
            "Key": _key_parameters(keys),
            "ConsistentRead": True,
        }
        return self._call(
            DYNAMODB, "GetItem", params, lambda body, at_ms: (wire.cut_item(body), at_ms)
        )

    def list_streams(self) -> tuple[str, ...]:
        """The ARNs of all streams of the table, those disabled within 24 hours too."""
        name = self._settings.table.rsplit("/", 1)[-1]
        found: list[str] = []
        params = {"TableName": name}
        while True:
            arns, last = self._call(
                STREAMS, "ListStreams", params, lambda body, _: wire.cut_streams(body)
            )
            found += arns
            if last is None:
                return tuple(found)
            params = {"TableName": name, "ExclusiveStartStreamArn": last}

    def caller_identity(self) -> CallerIdentity:
        """Who the credentials are, as STS says: the emulator's, where the endpoint is one."""
        try:
            answer = self._client(STS).get_caller_identity()
        except Exception as error:
            raise _translate("GetCallerIdentity", "the caller", error) from error
        return CallerIdentity(answer["Account"], answer["Arn"])

    def close(self) -> None:
        with self._lock:
            clients, self._clients, self._session = self._clients, {}, None
        for client in clients.values():
            client.close()

    def _open(self, params: Mapping[str, Any]) -> OpenedIterator:
        return self._call(
            STREAMS,
            "GetShardIterator",
            params,
            lambda body, at_ms: OpenedIterator(wire.cut_iterator(body), at_ms),
            subject=params["ShardId"],
        )

    def _open_at_timestamp(self, params: Mapping[str, Any], position: Position) -> OpenedIterator:
        from_start = {**params, "ShardIteratorType": PositionKind.TRIM_HORIZON.value}
        if self._supports_at_timestamp and self._knows_at_timestamp():
            # Whole seconds, as record times are: rounding down only reads more.
            at_s = (position.timestamp_ms or 0) // 1000
            at = {"ShardIteratorType": PositionKind.AT_TIMESTAMP.value, "Timestamp": at_s}
            try:
                return self._open({**params, **at})
            except RequestRefused:
                opened = self._open(from_start)
                self._supports_at_timestamp = False
                return opened
        self._supports_at_timestamp = False
        return self._open(from_start)

    def _knows_at_timestamp(self) -> bool:
        shape = self._client(STREAMS).meta.service_model.operation_model("GetShardIterator")
        return "Timestamp" in shape.input_shape.members

    def _call(
        self,
        service: str,
        operation: str,
        params: Mapping[str, Any],
        cut: Callable[[bytes, int], T],
        subject: str | None = None,
    ) -> T:
        """What `cut` makes of the whole body and its Date in ms. Raises SourceError."""
        started_s = self._clock.monotonic_s()
        client = None
        try:
            client = self._client(service)
            answer = getattr(client, _METHODS[operation])(**params)
            took_s = self._clock.monotonic_s() - started_s
            cut_answer = cut(*answer[_ANSWER])
        except Exception as error:
            took_s = self._clock.monotonic_s() - started_s
            translated = _translate(operation, subject or self._settings.table, error)
            if isinstance(translated, CredentialsInvalid):
                self._forget(service, client)
            outcome = translated.code if isinstance(translated, SourceError) else "internal"
            self._report(operation, outcome, took_s)
            raise translated from error
        self._report(operation, "ok", took_s)
        return cut_answer

    def _report(self, operation: str, outcome: str, took_s: float) -> None:
        if self._on_call is not None:
            self._on_call(operation, outcome, took_s)

    def _forget(self, service: str, client: Any) -> None:
        """Drops all clients, unless another thread has already replaced the failed one."""
        if self._clients.get(service) is client:
            self.close()

    def _client(self, service: str) -> Any:
        client = self._clients.get(service)
        if client is not None:
            return client
        with self._lock:
            # Sessions are not thread-safe while they make a client; clients are once made.
            if service not in self._clients:
                self._clients[service] = self._make_client(service)
            return self._clients[service]

    def _make_client(self, service: str) -> Any:
        settings = self._settings
        if self._session is None:
            self._session = botocore.session.Session()
        client = self._session.create_client(
            service,
            region_name=self._region,
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            endpoint_url=self._endpoint_url(service),
            config=Config(
                connect_timeout=settings.connect_timeout_s,
                read_timeout=settings.read_timeout_s,
                max_pool_connections=settings.max_connections,
                retries={"total_max_attempts": 1, "mode": "standard"},
                user_agent_extra=self._user_agent,
                tcp_keepalive=True,
                # Emulators have shorter shard ids and sequence numbers than the model allows.
                parameter_validation=False,
                account_id_endpoint_mode=settings.account_id_endpoint_mode,
            ),
        )
        if service in (DYNAMODB, STREAMS):
            events, name = client.meta.events, client.meta.service_model.service_id.hyphenize()
            events.register(f"before-parse.{name}", _take_over)
            events.register(f"before-send.{name}", self._note_host(service))
        return client

    def _endpoint_url(self, service: str) -> str | None:
        settings = self._settings
        if service == STREAMS:
            return settings.streams_endpoint_url or settings.endpoint_url
        # An endpoint within AWS serves DynamoDB alone; an emulator serves all there is.
        if service == STS and settings.endpoint_url and _AWS_HOST.search(settings.endpoint_url):
            return None
        return settings.endpoint_url

    def _note_host(self, service: str) -> Callable[..., None]:
        def note(request: Any, **_: object) -> None:
            self._hosts[service] = urlsplit(request.url).netloc

        return note


_METHODS: Final = {
    "DescribeTable": "describe_table",
    "Scan": "scan",
    "GetItem": "get_item",
    "DescribeStream": "describe_stream",
    "GetShardIterator": "get_shard_iterator",
    "GetRecords": "get_records",
    "ListStreams": "list_streams",
}


def _take_over(
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    operation_model: Any,
    **_: object,
) -> None:
    """botocore's `before-parse`: keeps the checked body for us and leaves botocore an empty one."""
    if response_dict["status_code"] >= 300:
        return
    body, headers = response_dict["body"], response_dict["headers"]
    check_whole(operation_model.name, body, headers)
    at_ms = date_ms(operation_model.name, headers.get("date"))
    customized_response_dict[_ANSWER] = (body, at_ms)
    response_dict["body"] = b"{}"


def check_whole(operation: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Raises CorruptPage unless `body` is what the headers announce, byte for byte."""
    encoding = headers.get("content-encoding")
    if encoding and encoding.lower() != "identity":
        raise CorruptPage(
            f"{operation} answered with content encoding {encoding}, which was not asked for"
        )
    announced = headers.get("content-length")
    if announced is not None and announced != str(len(body)):
        raise CorruptPage(f"{operation} announced {announced} bytes and sent {len(body)}")
    crc = headers.get("x-amz-crc32")
    if crc is not None and crc != str(zlib.crc32(body)):
        raise CorruptPage(f"{operation} sent {len(body)} bytes that do not match their x-amz-crc32")


def date_ms(operation: str, header: str | None) -> int:
    """AWS time of an answer, whole seconds. Raises CorruptPage when it does not say one."""
    parsed = _parse_date(header) if header else None
    if parsed is None:
        raise CorruptPage(
            f"{operation} answered with the Date header {header!r}, which is no time",
            hint="Age and readiness are judged by AWS's clock: let the proxy pass the Date header.",
        )
    return parsed


@lru_cache(maxsize=16)
def _parse_date(header: str) -> int | None:
    try:
        at = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    # HTTP dates are GMT; one that names no zone must not be read in the host's.
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * 1000


def _key_parameters(keys: str) -> dict[str, Any]:
    """DynamoDB JSON text of a key as botocore wants it: B values as bytes, base64 is its job."""
    attributes: dict[str, dict[str, str]] = msgspec.json.decode(keys)
    return {
        name: {kind: b64decode(value) if kind == "B" else value for kind, value in typed.items()}
        for name, typed in attributes.items()
    }


def _translate(operation: str, subject: str, error: Exception) -> Exception:
    """The SourceError for what botocore raised; `error` itself when it is a defect of ours."""
    if isinstance(error, SourceError):
        return error
    if isinstance(error, boto.ClientError):
        said = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code, message = str(said.get("Code", "")), str(said.get("Message") or "")
        return aws_codes.meaning(operation, code, message, status, subject=subject)
    if isinstance(error, _CREDENTIAL_ERRORS):
        return CredentialsInvalid(f"{operation} of {subject}: {error}")
    if isinstance(error, boto.ChecksumError):
        return CorruptPage(f"{operation} of {subject}: {error}")
    if isinstance(error, _REQUEST_ERRORS):
        return RequestRefused(f"{operation} of {subject}: {error}")
    if isinstance(error, boto.BotoCoreError | ResponseParserError | HTTPError | OSError):
        return Unavailable(f"{operation} of {subject}: {error}", hint=_network_hint(error))
    return error


def _network_hint(error: Exception) -> str | None:
    if isinstance(error, boto.SSLError):
        return "Check the host's CA certificates (AWS_CA_BUNDLE) and any proxy that opens TLS."
    if isinstance(error, boto.ConnectTimeoutError | boto.ReadTimeoutError):
        return (
            "Check routes and security groups. A gateway endpoint for DynamoDB does not serve "
            "Streams: a private subnet needs an interface endpoint for them."
        )
    cause: BaseException | None = error.__context__ or error.__cause__
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return (
                "The host name does not resolve: check dynamodb_aws_region, endpoint_url and DNS."
            )
        cause = cause.__context__ or cause.__cause__
    return None


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
