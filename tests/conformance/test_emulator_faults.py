"""Each fault as a client meets it, over real sockets; and that each hits what it names."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from emulator import AwsError, Emulator, ManualClock
from tests.conformance.emulated import a_table, control, raw, send, stream_arn

A = {"pk": {"S": "a"}}
SCAN = {"TableName": "orders"}


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """An emulator with the table `orders` that holds one item."""
    with Emulator(clock=ManualClock(), shards=2) as emulator:
        a_table(emulator)
        emulator.client("dynamodb").put_item(TableName="orders", Item=A | {"v": {"N": "17"}})
        emulator.calls.clear()
        yield emulator


def code_of(call: Any, /, **params: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**params)
    return str(caught.value.response["Error"]["Code"])


def count(aws: Emulator) -> int:
    return int(aws.client("dynamodb").scan(TableName="orders")["Count"])


# Errors


def test_any_error_any_status_so_many_times(aws: Emulator) -> None:
    """A fault hits `count` calls after `skip` of them; others pass."""
    fault = aws.fault("error", operation="Scan", code="InternalServerError", skip=1, count=2)
    scan = aws.client("dynamodb").scan
    scan(TableName="orders")
    assert code_of(scan, TableName="orders") == "InternalServerError"
    answer = raw(aws, "Scan", SCAN)
    assert answer.status == 500
    assert answer.headers["x-amz-crc32"] == str(zlib.crc32(answer.body))
    scan(TableName="orders")
    assert (fault.hits, fault.seen) == (2, 4)
    aws.fault("error", code="SomethingNew", status=418, message="I am a teapot", count=1)
    answer = raw(aws, "Scan", SCAN)
    assert (answer.status, answer.json()["message"]) == (418, "I am a teapot")


def test_a_throttle_has_the_code_of_its_operation(aws: Emulator) -> None:
    """DescribeStream, GetRecords, tables and S3 are throttled in four ways."""
    aws.fault("throttle")
    streams = aws.client("dynamodbstreams")
    assert code_of(streams.describe_stream, StreamArn="x" * 40) == "ThrottlingException"
    assert code_of(streams.get_records, ShardIterator="x") == "LimitExceededException"
    dynamodb = aws.client("dynamodb")
    assert code_of(dynamodb.scan, TableName="orders") == "ProvisionedThroughputExceededException"
    assert code_of(aws.client("s3").list_objects_v2, Bucket="bucket") == "SlowDown"
    aws.faults.clear()
    aws.fault("throttle", code="RequestLimitExceeded")
    assert code_of(dynamodb.scan, TableName="orders") == "RequestLimitExceeded"


def test_an_error_can_come_before_or_after_the_effect(aws: Emulator) -> None:
    """`when` decides whether a refused write was applied all the same."""
    dynamodb = aws.client("dynamodb")
    for when, expected in (("before", 1), ("after", 2)):
        aws.fault("error", operation="PutItem", code="InternalServerError", when=when, count=1)
        failed = code_of(dynamodb.put_item, TableName="orders", Item={"pk": {"S": "b"}})
        assert failed == "InternalServerError"
        assert count(aws) == expected


def test_faults_match_table_shard_and_caller(aws: Emulator) -> None:
    """A fault hits only the calls that it names."""
    a_table(aws, "stock")
    dynamodb, streams = aws.client("dynamodb"), aws.client("dynamodbstreams")
    aws.fault("throttle", operation="Scan", table="sto*")
    dynamodb.scan(TableName="orders")
    code_of(dynamodb.scan, TableName="stock")
    aws.faults.clear()

    one, other = aws.control.shards("orders")
    aws.fault("throttle", shard=one.shard_id)
    arn = stream_arn(aws)

    def position(shard_id: str) -> str:
        return str(
            streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
        )

    code_of(position, shard_id=one.shard_id)
    token = position(other.shard_id)
    streams.get_records(ShardIterator=token)
    aws.faults.clear()
    held = position(one.shard_id)
    aws.fault("throttle", operation="GetRecords", shard=one.shard_id)
    code_of(streams.get_records, ShardIterator=held)
    streams.get_records(ShardIterator=token)
    aws.faults.clear()

    aws.fault("throttle", caller="AKIDNOISY")
    dynamodb.scan(TableName="orders")
    noisy = aws.client("dynamodb", aws_access_key_id="AKIDNOISY")
    code_of(noisy.scan, TableName="orders")


def test_chance_repeats_with_its_seed(aws: Emulator) -> None:
    """Half the calls fail, and the same ones for the same seed."""

    def run(seed: int) -> list[int]:
        fault = aws.fault("error", operation="Scan", code="Boom", probability=0.5, seed=seed)
        outcome = [raw(aws, "Scan", SCAN).status for _ in range(40)]
        aws.faults.remove(fault)
        return outcome

    first = run(3)
    assert 8 < first.count(400) < 32
    assert run(3) == first
    assert run(4) != first


def test_a_fault_that_makes_no_sense_is_refused(aws: Emulator) -> None:
    """Unknown kinds and options are named, not ignored."""
    for kind, options in (
        ("explode", {}),
        ("error", {}),
        ("latency", {"secs": 1}),
        ("cut", {"keep": 2.0}),
        ("drop", {"when": "during"}),
    ):
        with pytest.raises(AwsError):
            aws.fault(kind, **options)
    assert aws.faults.all() == []


# Denials


def test_a_denied_action_is_named_in_the_real_message(aws: Emulator) -> None:
    """AccessDeniedException says who, what and on which resource."""
    aws.policy.deny("dynamodb:GetRecords", "dynamodb:Scan")
    with pytest.raises(ClientError) as caught:
        aws.client("dynamodb").scan(TableName="orders")
    error = caught.value.response["Error"]
    assert error["Code"] == "AccessDeniedException"
    assert error["Message"] == (
        "User: arn:aws:iam::123456789012:user/emulator is not authorized to perform: "
        "dynamodb:Scan on resource: arn:aws:dynamodb:us-east-1:123456789012:table/orders "
        "with an explicit deny in an identity-based policy"
    )
    arn = stream_arn(aws)
    aws.client("dynamodbstreams").describe_stream(StreamArn=arn)
    aws.policy.allow_all()
    aws.client("dynamodb").scan(TableName="orders")


def test_an_allow_list_denies_everything_else(aws: Emulator) -> None:
    """With an allow list the least-privilege policy can be proved."""
    aws.policy.allow_only(["dynamodb:DescribeTable", "dynamodb:*Stream", "s3:GetObject"])
    arn = stream_arn(aws)
    aws.client("dynamodbstreams").describe_stream(StreamArn=arn)
    with pytest.raises(ClientError, match="because no identity-based policy allows the dynamodb"):
        aws.client("dynamodb").scan(TableName="orders")
    with pytest.raises(ClientError) as caught:
        aws.client("dynamodbstreams").get_shard_iterator(
            StreamArn=arn, ShardId="x" * 30, ShardIteratorType="LATEST"
        )
    assert f"resource: {arn} because" in str(caught.value)
    shard_id = aws.control.shards("orders")[0].shard_id
    token = aws.world.get_shard_iterator(arn, shard_id, "LATEST")
    with pytest.raises(ClientError) as caught:
        aws.client("dynamodbstreams").get_records(ShardIterator=token)
    assert f"dynamodb:GetRecords on resource: {arn} because" in str(caught.value)
    s3 = aws.client("s3")
    assert code_of(s3.put_object, Bucket="bucket", Key="a", Body=b"") == "AccessDenied"
    assert code_of(s3.list_objects_v2, Bucket="bucket") == "AccessDenied"
    assert code_of(s3.get_object, Bucket="bucket", Key="a") == "NoSuchBucket"


def test_s3_is_denied_by_the_names_of_its_actions(aws: Emulator) -> None:
    """Listing and HeadBucket are s3:ListBucket, HEAD is s3:GetObject, parts are s3:PutObject."""
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="log")
    s3.put_object(Bucket="log", Key="a", Body=b"a")
    aws.policy.allow_only(["s3:ListBucket"])
    s3.list_objects_v2(Bucket="log")
    s3.list_objects(Bucket="log")
    s3.head_bucket(Bucket="log")
    assert code_of(s3.get_object, Bucket="log", Key="a") == "AccessDenied"
    assert code_of(s3.list_buckets) == "AccessDenied"
    aws.policy.allow_only(["s3:PutObject"])
    upload = s3.create_multipart_upload(Bucket="log", Key="b")["UploadId"]
    s3.upload_part(Bucket="log", Key="b", UploadId=upload, PartNumber=1, Body=b"b")
    assert code_of(s3.list_objects_v2, Bucket="log") == "AccessDenied"
    assert code_of(s3.delete_object, Bucket="log", Key="a") == "AccessDenied"
    aws.policy.allow_only(["s3:GetObject"])
    s3.head_object(Bucket="log", Key="a")


# Broken connections and bodies


@pytest.mark.parametrize(("when", "expected"), [("before", 1), ("after", 2)])
def test_a_dropped_connection_before_and_after_the_effect(
    aws: Emulator, when: str, expected: int
) -> None:
    """No answer comes; whether the write took effect is the test's choice."""
    aws.fault("drop", operation="PutItem", when=when, count=1)
    with pytest.raises(ConnectionClosedError):
        aws.client("dynamodb").put_item(TableName="orders", Item={"pk": {"S": "b"}})
    assert count(aws) == expected


def test_a_cut_body_ends_before_its_announced_length(aws: Emulator) -> None:
    """Content-Length is the whole body's, and the connection closes before that."""
    whole = raw(aws, "Scan", SCAN)
    aws.fault("cut", operation="Scan", keep=0.25, count=1)
    with pytest.raises(http.client.IncompleteRead) as caught:
        raw(aws, "Scan", SCAN)
    assert caught.value.partial == whole.body[: len(whole.body) // 4]
    assert raw(aws, "Scan", SCAN).body == whole.body


def test_a_truncated_body_agrees_with_its_length_and_not_with_its_crc(aws: Emulator) -> None:
    """As behind a proxy that lost the rest: only the CRC tells."""
    whole = raw(aws, "Scan", SCAN)
    aws.fault("truncate", operation="Scan", count=1)
    answer = raw(aws, "Scan", SCAN)
    assert (answer.status, answer.body) == (200, whole.body[: len(whole.body) // 2])
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["x-amz-crc32"] == str(zlib.crc32(whole.body))


def test_a_corrupt_body_is_json_all_the_same(aws: Emulator) -> None:
    """One character differs, the length is right, JSON parses, and the CRC does not fit."""
    whole = raw(aws, "Scan", SCAN)
    aws.fault("corrupt", operation="Scan", count=20)
    for _ in range(20):
        answer = raw(aws, "Scan", SCAN)
        assert len(answer.body) == len(whole.body)
        differing = [
            place for place in range(len(whole.body)) if whole.body[place] != answer.body[place]
        ]
        assert len(differing) == 1
        assert answer.headers["x-amz-crc32"] == str(zlib.crc32(whole.body))
        json.loads(answer.body)


def test_bodies_that_are_no_answer(aws: Emulator) -> None:
    """An HTML page and an empty body with status 200; a compressed body nobody asked for."""
    whole = raw(aws, "Scan", SCAN)
    aws.fault("html", count=1)
    answer = raw(aws, "Scan", SCAN)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html")
    assert answer.body.startswith(b"<html>")
    aws.fault("empty", count=1)
    answer = raw(aws, "Scan", SCAN)
    assert (answer.status, answer.body) == (200, b"")
    aws.fault("gzip", count=1)
    answer = raw(aws, "Scan", SCAN)
    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer.body) == whole.body


def test_a_hanging_body_comes_in_part_and_then_nothing(aws: Emulator) -> None:
    """After the headers and part of the body the connection stays open in silence."""
    aws.fault("hang", operation="Scan", keep=0.5, count=1)
    connection = http.client.HTTPConnection(aws.url.removeprefix("http://"), timeout=0.5)
    connection.request(
        "POST",
        "/",
        json.dumps(SCAN),
        {"X-Amz-Target": "DynamoDB_20120810.Scan"},
    )
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.read(5)
    with pytest.raises(TimeoutError):
        answer.read()
    connection.close()
    assert raw(aws, "Scan", SCAN).status == 200


def test_latency_delays_only_the_calls_it_names(aws: Emulator) -> None:
    """A client that waits less than the latency gives up; other calls are not delayed."""
    aws.fault("latency", operation="Scan", seconds=30.0)
    impatient = aws.client(
        "dynamodb", config=Config(read_timeout=0.2, retries={"total_max_attempts": 1})
    )
    with pytest.raises(Exception, match="Read timeout"):
        impatient.scan(TableName="orders")
    aws.client("dynamodb").get_item(TableName="orders", Key=A)


def test_headers_can_be_changed_and_left_out(aws: Emulator) -> None:
    """An answer without a CRC or with a Date of another century."""
    aws.fault("headers", headers={"x-amz-crc32": None, "Date": "Thu, 01 Jan 1970 00:00:00 GMT"})
    answer = raw(aws, "Scan", SCAN)
    assert "x-amz-crc32" not in answer.headers
    assert answer.headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"


def test_unprocessed_items_are_not_written_and_said(aws: Emulator) -> None:
    """BatchWriteItem leaves its last writes undone, and they can be sent again."""
    aws.fault("unprocessed", items=2, count=1)
    dynamodb = aws.client("dynamodb")
    batch = {"orders": [{"PutRequest": {"Item": {"pk": {"S": str(n)}}}} for n in range(5)]}
    answer = dynamodb.batch_write_item(RequestItems=batch)
    assert len(answer["UnprocessedItems"]["orders"]) == 2
    assert count(aws) == 4
    again = dynamodb.batch_write_item(RequestItems=answer["UnprocessedItems"])
    assert again["UnprocessedItems"] == {}
    assert count(aws) == 6


# Holds


def test_a_held_scan_has_read_its_page_before_the_write_that_passes_it(aws: Emulator) -> None:
    """The race that tests want: the page is old, the stream has gone on, then the page arrives."""
    hold = aws.hold("Scan", table="orders")
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(aws.client("dynamodb").scan, TableName="orders")
        hold.wait_reached()
        aws.client("dynamodb").put_item(TableName="orders", Item=A | {"v": {"N": "18"}})
        assert not page.done()
        hold.release()
        assert page.result(10)["Items"] == [A | {"v": {"N": "17"}}]
    assert aws.client("dynamodb").scan(TableName="orders")["Items"] == [A | {"v": {"N": "18"}}]


def test_a_hold_before_the_effect_and_of_a_later_call(aws: Emulator) -> None:
    """`when` before: the write that passes it is in the page. `skip` names the nth call."""
    hold = aws.hold("Scan", when="before", skip=1)
    aws.client("dynamodb").scan(TableName="orders")
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(aws.client("dynamodb").scan, TableName="orders")
        hold.wait_reached()
        aws.client("dynamodb").put_item(TableName="orders", Item=A | {"v": {"N": "18"}})
        hold.release()
        assert page.result(10)["Items"] == [A | {"v": {"N": "18"}}]


def test_several_calls_can_stand_at_one_hold(aws: Emulator) -> None:
    """Each arrival is waited for once; releasing lets all go."""
    hold = aws.hold("Scan", count=3)
    with ThreadPoolExecutor(3) as pool:
        scans = [pool.submit(raw, aws, "Scan", SCAN) for _ in range(3)]
        for _ in range(3):
            hold.wait_reached()
        assert hold.held == 3
        hold.release()
        assert [scan.result(10).status for scan in scans] == [200] * 3
    with pytest.raises(TimeoutError):
        aws.hold("Scan").wait_reached(timeout_s=0.01)


def test_stopping_lets_held_and_slow_calls_go() -> None:
    """An emulator stops at once whatever its clients wait for."""
    emulator = Emulator().start()
    a_table(emulator)
    hold = emulator.hold("Scan")
    emulator.fault("latency", operation="GetItem", seconds=3600)
    failures: list[str] = []

    def call(operation: str, params: dict[str, Any]) -> None:
        try:
            raw(emulator, operation, params)
        except (http.client.HTTPException, OSError) as error:
            failures.append(type(error).__name__)

    threads = [
        threading.Thread(target=call, args=("Scan", SCAN)),
        threading.Thread(target=call, args=("GetItem", SCAN | {"Key": A})),
    ]
    for thread in threads:
        thread.start()
    hold.wait_reached()
    emulator.stop()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(emulator.url.rpartition(":")[2])), timeout=5)


# S3


def test_an_applied_put_whose_answer_is_lost_is_there(aws: Emulator) -> None:
    """Create-only PUT, answer lost: the object exists and a second try is refused."""
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="log")
    aws.fault(
        "drop", operation="s3:PutObject", table="log", shard="segments/*", when="after", count=1
    )
    with pytest.raises(ConnectionClosedError):
        s3.put_object(Bucket="log", Key="segments/1", Body=b"one", IfNoneMatch="*")
    refused = code_of(s3.put_object, Bucket="log", Key="segments/1", Body=b"x", IfNoneMatch="*")
    assert refused == "PreconditionFailed"
    assert s3.get_object(Bucket="log", Key="segments/1")["Body"].read() == b"one"


def test_faults_hit_s3_too(aws: Emulator) -> None:
    """Errors, cut bodies and throttles, in the form that S3 gives them."""
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="log")
    s3.put_object(Bucket="log", Key="a", Body=b"0123456789")
    aws.fault("error", operation="GetObject", code="InternalError", status=500, count=1)
    assert code_of(s3.get_object, Bucket="log", Key="a") == "InternalError"
    aws.fault("cut", operation="GetObject", count=1)
    with pytest.raises(Exception, match="IncompleteRead"):
        s3.get_object(Bucket="log", Key="a")["Body"].read()
    assert s3.get_object(Bucket="log", Key="a")["Body"].read() == b"0123456789"


# The call log


def test_calls_are_logged_with_shard_caller_and_outcome(aws: Emulator) -> None:
    """Tests count Scan calls, and who reads which shard."""
    dynamodb, streams = aws.client("dynamodb"), aws.client("dynamodbstreams")
    other = aws.client("dynamodbstreams", aws_access_key_id="AKIDOTHER")
    shard, unread = aws.control.shards("orders")
    token = streams.get_shard_iterator(
        StreamArn=stream_arn(aws), ShardId=shard.shard_id, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    for client in (streams, other):
        client.get_records(ShardIterator=token)
    dynamodb.scan(TableName="orders", Segment=1, TotalSegments=2)
    code_of(dynamodb.scan, TableName="nothing")
    dynamodb.put_item(TableName="orders", Item=A)
    assert aws.calls.count("Scan") == 2
    assert aws.calls.count("Scan", table="orders") == 1
    assert aws.calls.count("GetRecords", shard_id=shard.shard_id) == 2
    assert aws.calls.callers(shard.shard_id) == {"AKIAEMULATOR00000000", "AKIDOTHER"}
    assert aws.calls.callers(unread.shard_id) == set()
    good, bad = aws.calls.calls("Scan")
    assert (good.outcome, good.params["Segment"], good.time_s) == ("OK", 1, aws.clock.now_s())
    assert bad.outcome == "ResourceNotFoundException"
    assert "Item" not in aws.calls.calls("PutItem")[0].params
    assert aws.calls.calls(after=bad.number)[0].operation == "PutItem"
    aws.calls.clear()
    assert aws.calls.counts() == {}


# The control endpoint


def test_everything_can_be_done_over_http(aws: Emulator) -> None:
    """Each lever of the Python API has a path; a test in any language can use it."""
    assert "POST /split" in control(aws, "")["paths"]
    fault = control(
        aws, "faults", {"kind": "error", "operation": "Scan", "code": "Boom", "count": 1}
    )
    assert raw(aws, "Scan", SCAN).json()["__type"].endswith("#Boom")
    (listed,) = control(aws, "faults")["faults"]
    assert (listed["id"], listed["hits"]) == (fault["id"], 1)
    control(aws, "faults/remove", {"id": fault["id"]})
    assert control(aws, "faults")["faults"] == []

    hold = control(aws, "faults", {"kind": "hold", "operation": "Scan"})
    with ThreadPoolExecutor(1) as pool:
        page = pool.submit(raw, aws, "Scan", SCAN)
        control(aws, "holds/wait", {"id": hold["id"], "timeout_s": 10})
        control(aws, "holds/release", {"id": hold["id"]})
        assert page.result(10).status == 200
    control(aws, "faults/clear", {})

    left, right = control(aws, "split", {"stream": "orders"})["shards"]
    assert left["ParentShardId"] == right["ParentShardId"]
    rolled = control(aws, "rollover", {"stream": "orders"})["shards"]
    assert len(rolled) == 3
    control(aws, "hide", {"stream": "orders", "shard_id": rolled[0]["ShardId"]})
    control(aws, "show-open", {"stream": "orders", "shard_id": left["ShardId"]})
    control(aws, "show-all", {"stream": "orders"})
    assert control(aws, "trim", {"stream": "orders"})["trimmed"] == 1
    control(aws, "vanish", {"stream": "orders", "shard_id": left["ShardId"]})
    control(aws, "expire-iterators", {})
    control(aws, "configure", {"table": "orders", "empty_pages": 2, "last_page": "empty"})
    before = aws.clock.now_s()
    assert control(aws, "clock/advance", {"seconds": 60})["now"] == before + 60
    state = control(aws, "state")
    (table,) = state["tables"]
    assert table["settings"]["empty_pages"] == 2
    assert left["ShardId"] not in {
        shard["ShardId"] for stream in state["streams"] for shard in stream["shards"]
    }
    aws.client("dynamodb").update_time_to_live(
        TableName="orders", TimeToLiveSpecification={"Enabled": True, "AttributeName": "t"}
    )
    assert control(aws, "expire-ttl", {"table": "orders"}) == {"expired": 0}
    control(aws, "policy", {"deny": ["dynamodb:Scan"]})
    assert raw(aws, "Scan", SCAN).status == 400
    control(aws, "policy", {"allow_only": ["dynamodb:Scan"]})
    assert raw(aws, "Scan", SCAN).status == 200
    assert raw(aws, "DescribeTable", SCAN).status == 400
    control(aws, "policy", {})
    logged = control(aws, "calls?operation=Scan&table=orders")
    assert logged["counts"]["Scan"] == len(logged["calls"]) == 4
    control(aws, "calls/clear", {})
    assert control(aws, "calls")["calls"] == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("nowhere", b"{}", 404),
        ("split", b"{}", 400),
        ("split", b'{"stream": "nothing"}', 400),
        ("split", b'{"stream": "orders", "shards": 3}', 400),
        ("split", b"[", 400),
        ("clock/advance", b'{"seconds": -1}', 400),
        ("configure", b'{"retention": 1}', 400),
        ("configure", b'{"last_page": "never"}', 400),
        ("policy", b'{"allow": []}', 400),
        ("faults", b'{"kind": "explode"}', 400),
        ("faults/remove", b'{"id": 0}', 400),
        ("holds/wait", b'{"id": 0}', 400),
    ],
)
def test_a_wrong_control_request_says_what_is_wrong(
    aws: Emulator, path: str, body: bytes, status: int
) -> None:
    """Unknown paths, names and values are an error with a sentence, never ignored."""
    answer = send(aws, "POST", f"/_emulator/{path}", body, {})
    assert answer.status == status
    assert answer.json()["error"]


# Other services


def test_sts_tells_who_calls(aws: Emulator) -> None:
    """GetCallerIdentity works, can be denied, and other operations are refused."""
    sts = aws.client("sts")
    assert sts.get_caller_identity()["Account"] == "123456789012"
    assert code_of(sts.get_session_token) == "InvalidAction"
    aws.policy.deny("sts:*")
    assert code_of(sts.get_caller_identity) == "AccessDeniedException"


def test_stock_clients_with_retries_get_through(aws: Emulator) -> None:
    """A default boto3 client survives faults that its retries are for."""
    aws.fault("throttle", operation="Scan", count=2)
    aws.fault("drop", operation="Scan", count=1)
    stock = boto3.client(
        "dynamodb",
        endpoint_url=aws.url,
        region_name="us-east-1",
        aws_access_key_id="AKIDSTOCK",
        aws_secret_access_key="secret",
        config=Config(retries={"mode": "standard", "total_max_attempts": 5}),
    )
    assert stock.scan(TableName="orders")["Count"] == 1
    assert aws.calls.count("Scan") == 4
