"""What becomes of the answers of DynamoDB and S3, and of those that are not theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from checkpoints.errors import (
    StoreDenied,
    StoreError,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from checkpoints.kv import ABSENT
from checkpoints.object_store import PutOutcome
from connector.aws.stores import DynamoItemStore, S3ObjectStore, StoreSettings, store_client

Answer = Mapping[str, Any] | Exception
GENUINE = {"ResponseMetadata": {"RequestId": "R1"}}


class CannedClient:
    """A botocore client whose calls are answered in turn, and recorded."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, operation: str) -> Callable[..., Mapping[str, Any]]:
        def call(**parameters: Any) -> Mapping[str, Any]:
            self.calls.append((operation, parameters))
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def refusal(code: str, status: int = 400) -> boto.ClientError:
    response = {
        "Error": {"Code": code, "Message": "said"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return boto.ClientError(response, "Operation")


TIMEOUT = boto.ReadTimeoutError(endpoint_url="http://x")


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"ETag": "e"}, PutOutcome.CREATED),
        ({}, PutOutcome.UNKNOWN),
        (refusal("PreconditionFailed", 412), PutOutcome.EXISTS),
        (refusal("ConditionalRequestConflict", 409), PutOutcome.CONFLICT),
        (refusal("InternalError", 500), PutOutcome.UNKNOWN),
        (refusal("SlowDown", 503), PutOutcome.UNKNOWN),
        (refusal("RequestTimeout", 400), PutOutcome.UNKNOWN),
        (TIMEOUT, PutOutcome.UNKNOWN),
        (boto.EndpointConnectionError(endpoint_url="http://x"), PutOutcome.UNKNOWN),
        (boto.ConnectionClosedError(endpoint_url="http://x"), PutOutcome.UNKNOWN),
        (ResponseParserError("html"), PutOutcome.UNKNOWN),
        (ConnectionResetError(), PutOutcome.UNKNOWN),
    ],
)
def test_what_a_put_may_have_done(answer: Answer, outcome: PutOutcome) -> None:
    """Only an answer with an ETag is a creation; whatever leaves room for doubt is unknown."""
    client = CannedClient(answer)
    assert S3ObjectStore(client, "bucket").put_new("k", b"x") is outcome
    ((operation, parameters),) = client.calls
    assert (operation, parameters["IfNoneMatch"]) == ("put_object", "*")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refusal("AccessDenied", 403), StoreDenied),
        (refusal("NoSuchBucket", 404), StoreRefused),
        (refusal("ExpiredToken", 400), StoreRefused),
        (refusal("TooManyRequestsException", 429), StoreThrottled),
        (boto.NoCredentialsError(), StoreRefused),
    ],
)
def test_what_a_put_definitely_did_not_do(answer: Answer, error: type[StoreError]) -> None:
    """A refusal is an error with a remedy: nothing was written."""
    with pytest.raises(error) as raised:
        S3ObjectStore(CannedClient(answer), "bucket").put_new("k", b"x")
    assert raised.value.hint
    assert raised.value.__cause__ is answer


class Body:
    def __init__(self, content: bytes | Exception) -> None:
        self._content = content

    def read(self) -> bytes:
        if isinstance(self._content, Exception):
            raise self._content
        return self._content


def test_a_missing_object_is_none_also_where_s3_answers_403() -> None:
    """Where s3:ListBucket is limited to a prefix a missing key is a 403: the listing tells."""
    denied = refusal("AccessDenied", 403)
    nothing, something = {"IsTruncated": False}, {"IsTruncated": False, "Contents": [{"Key": "k"}]}
    assert S3ObjectStore(CannedClient(refusal("NoSuchKey", 404)), "b").get("k") is None
    assert S3ObjectStore(CannedClient(denied, nothing), "b").get("k") is None
    for listing in (something, denied):
        with pytest.raises(StoreDenied) as raised:
            S3ObjectStore(CannedClient(denied, listing), "b").get("k")
        assert raised.value.action == "s3:GetObject"


@pytest.mark.parametrize(
    "answer",
    [
        {"Body": Body(b"<html>")},
        {"ETag": "e", "Body": Body(boto.IncompleteReadError(actual_bytes=1, expected_bytes=2))},
        {"ETag": "e", "Body": Body(TIMEOUT)},
        TIMEOUT,
    ],
)
def test_half_an_object_is_no_object(answer: Answer) -> None:
    """A body that breaks off, or does not come from S3, raises and is never handed on."""
    with pytest.raises(StoreUnavailable):
        S3ObjectStore(CannedClient(answer), "b").get("k")


def test_an_empty_listing_has_to_say_so() -> None:
    """An empty answer is not an empty bucket."""
    with pytest.raises(StoreUnavailable):
        S3ObjectStore(CannedClient({}), "b").list_after("p/", None, 10)


def test_a_listing_goes_through_pages_without_keys() -> None:
    """A page may hold nothing but deeper prefixes; the listing ends only where S3 says so."""
    client = CannedClient(
        {"IsTruncated": True, "NextContinuationToken": "t", "CommonPrefixes": [{"Prefix": "p/a/"}]},
        {"IsTruncated": False, "Contents": [{"Key": "p/1"}]},
    )
    assert S3ObjectStore(client, "b").list_after("p/", None, 10) == ["p/1"]
    assert client.calls[1][1]["ContinuationToken"] == "t"


def test_reads_of_items_are_strongly_consistent() -> None:
    """GetItem and Query ask for what is, not for what was: a steal depends on it."""
    client = CannedClient(GENUINE, {**GENUINE, "Items": []})
    store = DynamoItemStore(client, "t")
    assert store.get("p", "s") is None
    assert store.query("p", "s") == []
    assert [parameters["ConsistentRead"] for _, parameters in client.calls] == [True, True]


def test_a_proxy_does_not_speak_for_dynamodb() -> None:
    """An answer without a request id, items or new attributes grants and denies nothing."""
    for use in (
        lambda: DynamoItemStore(CannedClient({}), "t").get("p", "s"),
        lambda: DynamoItemStore(CannedClient({}), "t").put("p", "s", {"a": 1}, ABSENT),
        lambda: DynamoItemStore(CannedClient(GENUINE), "t").update("p", "s", {}, {"a": 1}),
        lambda: DynamoItemStore(CannedClient(GENUINE), "t").query("p", "s"),
    ):
        with pytest.raises(StoreUnavailable):
            use()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (TIMEOUT, StoreUnavailable),
        (refusal("InternalServerError", 500), StoreUnavailable),
        (refusal("ProvisionedThroughputExceededException"), StoreThrottled),
        (refusal("AccessDeniedException"), StoreDenied),
        (refusal("ResourceNotFoundException"), StoreRefused),
        (refusal("UnrecognizedClientException"), StoreRefused),
    ],
)
def test_table_errors_say_whether_to_wait(answer: Answer, error: type[StoreError]) -> None:
    """Each refusal of DynamoDB becomes one of ours, with the action that is missing."""
    with pytest.raises(error) as raised:
        DynamoItemStore(CannedClient(answer), "t").put("p", "s", {"a": 1}, ABSENT)
    if isinstance(raised.value, StoreDenied):
        assert raised.value.action == "dynamodb:PutItem"


def test_attributes_of_strangers_are_left_out() -> None:
    """An attribute of a type that we never write, or no whole number, is not there for us."""
    attributes = {
        "PK": {"S": "p"},
        "SK": {"S": "s"},
        "text": {"S": "x"},
        "flag": {"BOOL": False},
        "whole": {"N": "1E+3"},
        "part": {"N": "1.5"},
        "map": {"M": {}},
        "nothing": {"NULL": True},
    }
    client = CannedClient({**GENUINE, "Item": attributes})
    expected = {"text": "x", "flag": False, "whole": 1000}
    assert DynamoItemStore(client, "t").get("p", "s") == expected


def test_clients_never_retry() -> None:
    """A second attempt that nobody sees would turn "created" into "exists"."""
    for service in ("dynamodb", "s3"):
        client = store_client(service, StoreSettings("eu-west-1", "a", "b"))
        assert client.meta.config.retries["total_max_attempts"] == 1
        assert client.meta.config.read_timeout == 5.0
