"""The AWS boundary over real HTTP: every answer that is not whole is an error of ours."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checkpoints.positions import Position
from connector.aws import source as aws
from connector.aws.source import AwsSettings, AwsSource
from connector.errors import (
    AccessDenied,
    ConfigError,
    CorruptPage,
    CredentialsInvalid,
    IteratorExpired,
    RequestRefused,
    ShardGone,
    SourceError,
    Throttled,
    Unavailable,
)
from emulator import Emulator
from tests.unit.canned_aws import DATE_MS, Answer, CannedAws, failure
from tests.unit.wire_bodies import compact, record, records_body, scan_body

IMAGE = {"pk": {"S": "a"}}
PAGE = Answer(records_body(record(new=IMAGE)))
SCANNED = Answer(scan_body(IMAGE))
ITERATOR = Answer(b'{"ShardIterator":"it"}')


@pytest.fixture(autouse=True)
def _no_aws_of_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def source_at(url: str, **changes: object) -> AwsSource:
    settings: dict[str, object] = {
        "table": "orders",
        "region": "eu-west-1",
        "access_key_id": "AK",
        "secret_access_key": "SK",
        "endpoint_url": url,
        "read_timeout_s": 2.0,
        "connect_timeout_s": 2.0,
        **changes,
    }
    return AwsSource(AwsSettings(**settings))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[CannedAws, AwsSource]]:
    """One server and one source for the module: making a client takes a tenth of a second."""
    with CannedAws(Answer()) as server:
        made = source_at(server.url)
        yield server, made
        made.close()


@pytest.fixture
def canned(shared: tuple[CannedAws, AwsSource]) -> CannedAws:
    server, _ = shared
    server.asked.clear()
    server.answers.clear()
    server.answers.append(Answer())
    return server


@pytest.fixture
def source(shared: tuple[CannedAws, AwsSource]) -> AwsSource:
    return shared[1]


CALLS: dict[str, tuple[Callable[[AwsSource], object], bytes]] = {
    "GetRecords": (lambda source: source.get_records("s", "it"), PAGE.body),
    "Scan": (lambda source: source.scan(0, 1, None, consistent=True), SCANNED.body),
    "GetItem": (lambda source: source.get_item('{"pk":{"S":"a"}}'), b'{"Item":{"pk":{"S":"a"}}}'),
    "GetShardIterator": (
        lambda source: source.open_iterator("arn", "s", Position.trim_horizon()),
        ITERATOR.body,
    ),
    "DescribeStream": (
        lambda source: source.describe_stream("arn"),
        b'{"StreamDescription":{"StreamArn":"a","StreamStatus":"ENABLED","Shards":[]}}',
    ),
    "DescribeTable": (
        lambda source: source.describe_table(),
        compact(
            {
                "Table": {
                    "TableName": "orders",
                    "TableArn": "a",
                    "TableStatus": "ACTIVE",
                    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
                }
            }
        ),
    ),
    "ListStreams": (lambda source: source.list_streams(), b'{"Streams":[]}'),
}

NOT_WHOLE: dict[str, Callable[[bytes], Answer]] = {
    "another CRC": lambda body: Answer(body, headers={"x-amz-crc32": "1"}),
    "a CRC that is no number": lambda body: Answer(body, headers={"x-amz-crc32": "none"}),
    "one byte short of its length": lambda body: Answer(
        body, headers={"x-amz-crc32": None}, sent=len(body) - 1
    ),
    "nothing of its length": lambda body: Answer(body, headers={"x-amz-crc32": None}, sent=0),
    "cut, with a length that agrees": lambda body: Answer(body[:-9], headers={"x-amz-crc32": None}),
    "empty": lambda body: Answer(b"", headers={"x-amz-crc32": None}),
    "HTML": lambda body: Answer(
        b"<html>sign in</html>", headers={"x-amz-crc32": None, "Content-Type": "text/html"}
    ),
    "gzip that nobody asked for": lambda body: Answer(
        gzip.compress(body), headers={"Content-Encoding": "gzip", "x-amz-crc32": None}
    ),
    "no Date": lambda body: Answer(body, headers={"Date": None}),
    "a Date that is no time": lambda body: Answer(body, headers={"Date": "yesterday"}),
}


@pytest.mark.parametrize("operation", CALLS)
@pytest.mark.parametrize("damage", NOT_WHOLE)
def test_an_answer_that_is_not_whole_is_corrupt(
    canned: CannedAws, source: AwsSource, operation: str, damage: str
) -> None:
    """No call believes an answer whose length, CRC, encoding, fields or time are wrong."""
    call, body = CALLS[operation]
    canned.answers[0] = NOT_WHOLE[damage](body)

    with pytest.raises(CorruptPage):
        call(source)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"content-length": "3"}, "announced 3 bytes and sent 2"),
        ({"content-encoding": "gzip"}, "content encoding gzip"),
        ({"content-encoding": "br", "content-length": "2"}, "content encoding br"),
        ({"x-amz-crc32": "5"}, "x-amz-crc32"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(headers: dict[str, str], said: str) -> None:
    """Whoever looks for the proxy that did it needs to know what it did."""
    with pytest.raises(CorruptPage, match=said):
        aws.check_whole("Scan", b"{}", headers)


@pytest.mark.parametrize("operation", CALLS)
def test_a_whole_answer_is_taken(canned: CannedAws, source: AwsSource, operation: str) -> None:
    """The same answers undamaged, with and without what AWS always sends, are read."""
    call, body = CALLS[operation]
    for headers in ({}, {"x-amz-crc32": None}, {"Content-Encoding": "identity"}):
        canned.answers[0] = Answer(body, headers={**headers})
        call(source)
    canned.answers[0] = Answer(body, headers={"Content-Length": None})
    call(source)


@pytest.mark.parametrize("operation", CALLS)
def test_no_call_is_made_twice(canned: CannedAws, source: AwsSource, operation: str) -> None:
    """Retries belong to the loops: hidden ones would multiply waits and read capacity."""
    call, body = CALLS[operation]
    for answer in (
        failure("ThrottlingException"),
        failure("InternalServerError", status=500),
        NOT_WHOLE["another CRC"](body),
        Answer(drop=True),
    ):
        canned.asked.clear()
        canned.answers[0] = answer
        with pytest.raises(SourceError):
            call(source)
        assert len(canned.asked) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (failure("ExpiredIteratorException"), IteratorExpired),
        (failure("ThrottlingException", "Rate exceeded"), Throttled),
        (failure("ResourceNotFoundException"), ShardGone),
        (failure("UnrecognizedClientException"), CredentialsInvalid),
        (failure("InternalServerError", status=500), Unavailable),
        (failure("ValidationException", "no"), RequestRefused),
        (Answer(b"<html>bad gateway</html>", 502), Unavailable),
        (Answer(b"<html>not found</html>", 404), Unavailable),
        (Answer(b"", 302, headers={"Location": "http://127.0.0.1:1/"}), Unavailable),
        (Answer(b"", 503), Unavailable),
        (Answer(drop=True), Unavailable),
    ],
)
def test_every_failure_is_an_error_of_ours(
    canned: CannedAws, source: AwsSource, answer: Answer, expected: type[SourceError]
) -> None:
    """No exception of botocore or urllib3 leaves the boundary."""
    canned.answers[0] = answer

    with pytest.raises(SourceError) as caught:
        source.get_records("shard-7", "it")

    assert type(caught.value) is expected
    assert "shard-7" in caught.value.message


def test_a_denied_call_names_its_action(canned: CannedAws, source: AwsSource) -> None:
    """Whoever edits the policy needs the action, not the call."""
    canned.answers[0] = failure(
        "AccessDeniedException",
        "u is not authorized to perform: dynamodb:GetRecords on resource: r",
    )

    with pytest.raises(AccessDenied) as caught:
        source.get_records("s", "it")
    assert caught.value.action == "dynamodb:GetRecords"


def test_a_server_that_does_not_answer_is_given_up() -> None:
    """A half-open connection ends at the read time-out and is unavailable."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        source = source_at(f"http://127.0.0.1:{listener.getsockname()[1]}", read_timeout_s=0.05)
        with pytest.raises(Unavailable) as caught:
            source.scan(0, 1, None, consistent=True)
        source.close()
    assert "interface endpoint" in caught.value.hint


def test_a_closed_port_is_unavailable() -> None:
    """Nobody listening is an outage like another."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unavailable):
        source_at(f"http://127.0.0.1:{port}").describe_table()


def test_a_name_that_does_not_resolve_says_so() -> None:
    """A failure of DNS is told from a server that is down."""
    with pytest.raises(Unavailable) as caught:
        source_at("http://dynamodb.invalid:1").describe_table()
    assert "DNS" in caught.value.hint


def test_no_credentials_is_an_error_of_the_credentials(canned: CannedAws) -> None:
    """An empty credential chain is found at the call and named."""
    source = source_at(canned.url, access_key_id=None, secret_access_key=None)

    with pytest.raises(CredentialsInvalid) as caught:
        source.describe_table()
    assert "dynamodb_aws_access_key_id" in caught.value.hint
    assert canned.asked == []


def test_rotated_credentials_are_found_without_a_restart(canned: CannedAws, tmp_path: Path) -> None:
    """After AWS refuses the keys, the next call looks for them again."""
    keys = tmp_path / "credentials"
    keys.write_text("[default]\naws_access_key_id=OLD\naws_secret_access_key=x\n")
    source = source_at(canned.url, access_key_id=None, secret_access_key=None)
    canned.answers[0] = failure("ExpiredTokenException")
    with pytest.raises(CredentialsInvalid):
        source.scan(0, 1, None, consistent=True)

    keys.write_text("[default]\naws_access_key_id=NEW\naws_secret_access_key=x\n")
    canned.answers[0] = SCANNED
    source.scan(0, 1, None, consistent=True)

    used = [asked.headers["Authorization"] for asked in canned.asked]
    assert "Credential=OLD/" in used[0]
    assert "Credential=NEW/" in used[1]
    source.close()


def test_the_date_of_the_answer_is_the_time_of_the_page(
    canned: CannedAws, source: AwsSource
) -> None:
    """at_ms is AWS's clock, also when the host's is wrong."""
    canned.answers[0] = PAGE

    assert source.get_records("s", "it").at_ms == DATE_MS


@pytest.mark.parametrize(
    "header",
    [
        "Tue, 14 Nov 2023 22:13:20 GMT",
        "Tue, 14 Nov 2023 22:13:20 -0000",
        "Tue, 14 Nov 2023 23:13:20 +0100",
    ],
)
def test_a_date_is_read_in_its_own_zone(header: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zone of the host has no say in what time it is at AWS."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert aws.date_ms("Scan", header) == DATE_MS
    finally:
        monkeypatch.undo()
        time.tzset()


def test_old_images_come_when_asked_for(canned: CannedAws, source: AwsSource) -> None:
    """The choice passes through to the cut."""
    canned.answers[0] = Answer(records_body(record("MODIFY", new=IMAGE, old=IMAGE)))

    for wanted, expected in ((False, [None]), (True, ['{"pk":{"S":"a"}}'])):
        page = source.get_records("s", "it", old_images=wanted)
        assert page.changes["old_image"].to_pylist() == expected


def test_a_scan_goes_on_from_any_type_of_key(canned: CannedAws, source: AwsSource) -> None:
    """The stored key's text is sent back as the key it was: strings, numbers, bytes."""
    canned.answers[0] = SCANNED
    key = {'é "': {"S": "ü\n"}, "n": {"N": "1E+125"}, "b": {"B": "AP8="}}

    source.scan(3, 8, json.dumps(key), consistent=False)

    assert canned.asked[0].params == {
        "TableName": "orders",
        "Segment": 3,
        "TotalSegments": 8,
        "ConsistentRead": False,
        "ReturnConsumedCapacity": "TOTAL",
        "ExclusiveStartKey": key,
    }


def test_an_item_is_read_consistently(canned: CannedAws, source: AwsSource) -> None:
    """Repairs rest on what GetItem says, so it must not say what was."""
    canned.answers[0] = Answer(b'{"Item":{"pk":{"B":"AP8="}}}')

    assert source.get_item('{"pk":{"B":"AP8="}}') == ('{"pk":{"B":"AP8="}}', DATE_MS)
    assert canned.asked[0].params == {
        "TableName": "orders",
        "Key": {"pk": {"B": "AP8="}},
        "ConsistentRead": True,
    }


@pytest.mark.parametrize(
    ("position", "sent"),
    [
        (Position.trim_horizon(), {"ShardIteratorType": "TRIM_HORIZON"}),
        (
            Position.after("12"),
            {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "12"},
        ),
        (
            Position.at_timestamp(DATE_MS + 999),
            {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": DATE_MS // 1000},
        ),
    ],
)
def test_a_position_opens_the_iterator_of_its_kind(
    canned: CannedAws, source: AwsSource, position: Position, sent: dict[str, object]
) -> None:
    """Short ids of emulators pass; a timestamp is rounded down, which only reads more."""
    canned.answers[0] = ITERATOR

    opened = source.open_iterator("arn", "s", position)

    assert (opened.iterator, opened.at_ms) == ("it", DATE_MS)
    assert canned.asked[0].params == {"StreamArn": "arn", "ShardId": "s", **sent}
    assert source.supports_at_timestamp


def test_a_shard_that_has_ended_is_not_opened(canned: CannedAws, source: AwsSource) -> None:
    """There is no iterator past the end, so asking for one is a defect."""
    with pytest.raises(ValueError, match="ended"):
        source.open_iterator("arn", "s", Position.shard_end())
    assert canned.asked == []


def test_a_service_without_at_timestamp_is_read_from_the_start(canned: CannedAws) -> None:
    """An older service refuses the type once; from then on TRIM_HORIZON stands in, and it shows."""
    canned.answers.clear()
    refused = failure("ValidationException", "Value 'AT_TIMESTAMP' at 'shardIteratorType' failed")
    canned.answers.extend([refused, ITERATOR])
    source = source_at(canned.url)

    for _ in range(2):
        source.open_iterator("arn", "s", Position.at_timestamp(DATE_MS))

    assert not source.supports_at_timestamp
    kinds = [asked.params["ShardIteratorType"] for asked in canned.asked]
    assert kinds == ["AT_TIMESTAMP", "TRIM_HORIZON", "TRIM_HORIZON"]
    assert "Timestamp" not in canned.asked[1].params
    source.close()


def test_an_outage_is_no_sign_against_at_timestamp(canned: CannedAws, source: AwsSource) -> None:
    """Only a refusal of the request says that the type is unknown."""
    for answer in (failure("InternalServerError", status=500), failure("ThrottlingException")):
        canned.answers.clear()
        canned.answers.extend([answer, ITERATOR])
        with pytest.raises(SourceError):
            source.open_iterator("arn", "s", Position.at_timestamp(DATE_MS))
    assert source.supports_at_timestamp


def test_a_stream_that_refuses_everything_does_not_refute_at_timestamp(
    canned: CannedAws, source: AwsSource
) -> None:
    """When TRIM_HORIZON is refused too, the fault was another."""
    canned.answers[0] = failure("ValidationException", "Invalid StreamArn")

    with pytest.raises(RequestRefused):
        source.open_iterator("arn", "s", Position.at_timestamp(DATE_MS))
    assert source.supports_at_timestamp


def test_a_listing_asks_for_the_page_or_the_children(canned: CannedAws, source: AwsSource) -> None:
    """Paging and the children of one shard are two different questions."""
    canned.answers[0] = Answer(CALLS["DescribeStream"][1])

    source.describe_stream("arn", start_shard_id="s1")
    source.describe_stream("arn", children_of="s1")

    assert [asked.params for asked in canned.asked] == [
        {"StreamArn": "arn", "ExclusiveStartShardId": "s1"},
        {"StreamArn": "arn", "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": "s1"}},
    ]


def test_all_pages_of_the_stream_list_are_read(canned: CannedAws) -> None:
    """ListStreams goes on until it names no further page; an ARN is asked for by its name."""
    canned.answers.clear()
    canned.answers.append(Answer(b'{"Streams":[{"StreamArn":"a"}],"LastEvaluatedStreamArn":"a"}'))
    canned.answers.append(Answer(b'{"Streams":[{"StreamArn":"b"}]}'))
    source = source_at(canned.url, table="arn:aws:dynamodb:eu-west-1:123456789012:table/orders")

    assert source.list_streams() == ("a", "b")
    assert canned.asked[0].params == {"TableName": "orders"}
    assert canned.asked[1].params == {"TableName": "orders", "ExclusiveStartStreamArn": "a"}
    source.close()


def test_every_call_is_reported_with_its_outcome(canned: CannedAws) -> None:
    """Metrics count calls by operation and outcome; a page that is not whole is not ok."""
    calls: list[tuple[str, str]] = []
    settings = AwsSettings("orders", "eu-west-1", "a", "b", endpoint_url=canned.url)
    source = AwsSource(settings, on_call=lambda *call: calls.append(call[:2]))
    for answer in (PAGE, failure("ThrottlingException"), Answer(b"{}"), Answer(drop=True)):
        canned.answers[0] = answer
        try:
            source.get_records("s", "it")
        except SourceError:
            continue
    source.close()

    outcomes = ["ok", "throttled", "corrupt_page", "unavailable"]
    assert calls == [("GetRecords", outcome) for outcome in outcomes]


def test_many_threads_share_one_source(canned: CannedAws) -> None:
    """Clients are made once, and answers never change places between threads."""
    canned.answers[0] = PAGE
    source = source_at(canned.url)
    make_client, made = source._make_client, []
    source._make_client = lambda service: (made.append(service), make_client(service))[1]  # type: ignore[method-assign, func-returns-value]
    barrier = threading.Barrier(8)

    def read(number: int) -> set[str]:
        barrier.wait()
        pages = [source.get_records(f"shard-{number}", "it") for _ in range(5)]
        return {value for page in pages for value in page.changes["shard_id"].to_pylist()}

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(8))) == [{f"shard-{number}"} for number in range(8)]
    assert made == ["dynamodbstreams"]
    source.close()


def test_the_streams_may_be_served_elsewhere(canned: CannedAws) -> None:
    """streams_endpoint_url is for the streams alone; endpoint_url serves both without it."""
    with CannedAws(PAGE) as streams:
        canned.answers[0] = SCANNED
        source = source_at(canned.url, streams_endpoint_url=streams.url)
        source.get_records("s", "it")
        source.scan(0, 1, None, consistent=True)
        assert [asked.operation for asked in canned.asked] == ["Scan"]
        assert [asked.operation for asked in streams.asked] == ["GetRecords"]
        assert source.hosts == {
            "dynamodb": canned.url.removeprefix("http://"),
            "dynamodbstreams": streams.url.removeprefix("http://"),
        }
        source.close()


@pytest.mark.parametrize(
    ("mode", "host"),
    [
        ("disabled", "streams.dynamodb.eu-west-1.amazonaws.com"),
        ("preferred", "123456789012.streams-ddb.eu-west-1.amazonaws.com"),
    ],
)
def test_the_host_that_was_reached_is_known(
    monkeypatch: pytest.MonkeyPatch, mode: str, host: str
) -> None:
    """botocore routes stream calls to a host of the account unless told not to."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    source = source_at("", endpoint_url=None, account_id_endpoint_mode=mode)

    with pytest.raises(Unavailable):
        source.describe_stream("arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/1")

    assert source.hosts["dynamodbstreams"] == host
    source.close()


def test_the_caller_is_who_sts_says() -> None:
    """An emulator's endpoint serves STS too; its answer names the account and the caller."""
    with Emulator() as emulated:
        source = source_at(emulated.url)
        caller = source.caller_identity()
        source.close()

    assert caller.account == "123456789012"
    assert caller.arn.startswith("arn:aws:")


@pytest.mark.parametrize(
    ("endpoint_url", "sts_url"),
    [
        ("https://vpce-1.dynamodb.eu-west-1.vpce.amazonaws.com", None),
        ("https://dynamodb.cn-north-1.amazonaws.com.cn/", None),
        ("https://1.ddb.eu-west-1.api.aws:443", None),
        ("http://localhost:4566", "http://localhost:4566"),
    ],
)
def test_a_private_endpoint_of_dynamodb_is_not_asked_for_sts(
    endpoint_url: str, sts_url: str | None
) -> None:
    """A VPC endpoint serves one service; botocore finds STS by itself."""
    assert source_at(endpoint_url)._endpoint_url("sts") == sts_url


BAD_SETTINGS: dict[str, tuple[dict[str, str | None], str]] = {
    "no region": ({"region": None}, "dynamodb_aws_region"),
    "an empty region": ({"region": ""}, "dynamodb_aws_region"),
    "a region that is none": ({"region": "Ireland"}, "eu-west-1"),
    "another region than the ARN's": (
        {"table": "arn:aws:dynamodb:us-east-1:123456789012:table/orders"},
        "Leave dynamodb_aws_region out",
    ),
    "a table that cannot be": ({"table": "my table"}, "dynamodb:NAME"),
    "an ARN of something else": ({"table": "arn:aws:s3:::bucket"}, "dynamodb:NAME"),
    "one half of the keys": ({"secret_access_key": None}, "both keys"),
    "the other half": ({"access_key_id": None}, "both keys"),
    "a token alone": (
        {"access_key_id": None, "secret_access_key": None, "session_token": "t"},
        "access key",
    ),
    "an endpoint without a scheme": ({"endpoint_url": "127.0.0.1:8000"}, "http://"),
    "an endpoint without a host": ({"streams_endpoint_url": "http://"}, "http://"),
    "an endpoint with a port too high": ({"endpoint_url": "http://h:99999"}, "http://"),
    "an unknown mode": ({"account_id_endpoint_mode": "never"}, "preferred, disabled"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_settings_that_cannot_work_are_refused_before_any_call(name: str) -> None:
    """What no call could cure is said at start, with what to write instead."""
    changes, hint = BAD_SETTINGS[name]

    with pytest.raises(ConfigError) as caught:
        source_at("http://127.0.0.1:1", **changes)
    assert hint in caught.value.hint


@pytest.mark.situation(6)
@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_an_arn_of_any_partition_names_its_region(partition: str) -> None:
    """China and GovCloud are partitions of their own."""
    settings = AwsSettings(f"arn:{partition}:dynamodb:cn-north-1:123456789012:table/orders")

    settings.check()

    assert settings.resolved_region == "cn-north-1"


def test_secrets_do_not_show_in_the_settings() -> None:
    """A settings object that ends up in a log gives nothing away."""
    shown = repr(AwsSettings("t", "eu-west-1", "AK", "SECRET", "TOKEN"))

    assert "SECRET" not in shown
    assert "TOKEN" not in shown


def test_only_the_boundary_knows_botocore() -> None:
    """What calls AWS is in connector.aws; the demo plays a user's application, which may."""
    rooms = Path(aws.__file__).parents[2]
    importers = {
        path.relative_to(rooms).as_posix()
        for room in ("connector", "accelerator", "checkpoints", "metrics")
        for path in (rooms / room).rglob("*.py")
        if re.search(r"^\s*(import|from) boto", path.read_text(), re.MULTILINE)
        and "demo" not in path.parts
    }
    assert "connector/aws/source.py" in importers
    assert [name for name in importers if not name.startswith("connector/aws")] == []
