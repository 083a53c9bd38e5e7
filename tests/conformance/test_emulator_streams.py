"""The Streams API through boto3 and on the wire: listing, reading, ends, loss, new labels."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from emulator import Emulator, ManualClock
from tests.conformance.emulated import (
    a_table,
    all_records,
    changes,
    raw,
    records_of,
    shard_list,
    stream_arn,
)

HOUR_S = 3600.0


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """A fresh emulator on a clock that stands still."""
    with Emulator(clock=ManualClock(), shards=4) as emulator:
        yield emulator


def put(aws: Emulator, *names: str, table: str = "orders") -> None:
    dynamodb = aws.client("dynamodb")
    for name in names:
        dynamodb.put_item(TableName=table, Item={"pk": {"S": name}})


def fails_with(code: str, call: Any, /, **params: Any) -> str:
    """Expects an error of this code; returns its message."""
    with pytest.raises(ClientError) as caught:
        call(**params)
    assert caught.value.response["Error"]["Code"] == code
    return str(caught.value.response["Error"]["Message"])


def iterator(aws: Emulator, shard_id: str, kind: str = "TRIM_HORIZON", **more: Any) -> str:
    token = aws.client("dynamodbstreams").get_shard_iterator(
        StreamArn=stream_arn(aws), ShardId=shard_id, ShardIteratorType=kind, **more
    )["ShardIterator"]
    return str(token)


def test_a_stream_starts_with_the_shards_that_were_asked_for(aws: Emulator) -> None:
    """The number of shards is set for all tables and for one."""
    with Emulator(shards=3, table_shards={"wide": 12}) as other:
        a_table(other)
        a_table(other, "wide")
        assert len(shard_list(other, stream_arn(other))) == 3
        assert len(shard_list(other, stream_arn(other, "wide"))) == 12


def test_keys_spread_over_the_shards_and_each_stays_on_its_own(aws: Emulator) -> None:
    """All changes of one key are in one shard while no shard closes; many keys use all shards."""
    a_table(aws)
    put(aws, *[f"key-{number}" for number in range(60)])
    aws.client("dynamodb").delete_item(TableName="orders", Key={"pk": {"S": "key-7"}})
    homes: dict[str, set[str]] = {}
    for shard in shard_list(aws, stream_arn(aws)):
        for record in records_of(aws, stream_arn(aws), shard["ShardId"]):
            homes.setdefault(record["dynamodb"]["Keys"]["pk"]["S"], set()).add(shard["ShardId"])
    assert all(len(shards) == 1 for shards in homes.values())
    assert len(set.union(*homes.values())) == 4


def test_the_listing_is_paged_over_http(aws: Emulator) -> None:
    """A page has at most 100 shards, fewer when set so, and Limit is checked."""
    a_table(aws)
    arn = stream_arn(aws)
    aws.control.configure(describe_page_size=3)
    page = aws.client("dynamodbstreams").describe_stream(StreamArn=arn)["StreamDescription"]
    assert len(page["Shards"]) == 3
    assert page["LastEvaluatedShardId"] == page["Shards"][-1]["ShardId"]
    assert len(shard_list(aws, arn)) == 4
    one = aws.client("dynamodbstreams").describe_stream(StreamArn=arn, Limit=1)
    assert len(one["StreamDescription"]["Shards"]) == 1
    for limit in (0, 101, "x"):
        answer = raw(aws, "DescribeStream", {"StreamArn": arn, "Limit": limit})
        assert (answer.status, answer.json()["__type"][-19:]) == (400, "ValidationException")


def test_children_are_found_by_their_parent(aws: Emulator) -> None:
    """ShardFilter CHILD_SHARDS returns the children of a closed shard."""
    a_table(aws)
    parent = aws.control.open_shards("orders")[0]
    left, right = aws.control.split("orders", parent.shard_id)
    listed = aws.client("dynamodbstreams").describe_stream(
        StreamArn=stream_arn(aws),
        ShardFilter={"Type": "CHILD_SHARDS", "ShardId": parent.shard_id},
    )["StreamDescription"]["Shards"]
    assert {shard["ShardId"] for shard in listed} == {left.shard_id, right.shard_id}
    assert {shard["ParentShardId"] for shard in listed} == {parent.shard_id}
    answer = raw(
        aws,
        "DescribeStream",
        {"StreamArn": stream_arn(aws), "ShardFilter": {"Type": "ALL", "ShardId": "x"}},
    )
    assert answer.json()["__type"].endswith("ValidationException")


def test_a_key_is_followed_through_a_split(aws: Emulator) -> None:
    """Before the split its records are in the parent, after it in one child, none twice."""
    a_table(aws)
    dynamodb = aws.client("dynamodb")
    key = {"pk": {"S": "a"}}
    dynamodb.put_item(TableName="orders", Item=key | {"v": {"N": "1"}})
    parent = aws.control.shard_of("orders", key)
    children = aws.control.split("orders", parent.shard_id)
    dynamodb.put_item(TableName="orders", Item=key | {"v": {"N": "2"}})
    arn = stream_arn(aws)
    in_parent = records_of(aws, arn, parent.shard_id)
    in_children = [record for child in children for record in records_of(aws, arn, child.shard_id)]
    assert [record["dynamodb"]["NewImage"]["v"]["N"] for record in in_parent] == ["1"]
    assert [record["dynamodb"]["NewImage"]["v"]["N"] for record in in_children] == ["2"]
    assert int(in_parent[0]["dynamodb"]["SequenceNumber"]) < int(
        in_children[0]["dynamodb"]["SequenceNumber"]
    )


@pytest.mark.parametrize(("style", "tail"), [("absent", {}), ("null", {"NextShardIterator": None})])
def test_the_end_of_a_shard_on_the_wire(aws: Emulator, style: str, tail: dict[str, Any]) -> None:
    """A closed and fully read shard has no next iterator: left out or null, as set."""
    a_table(aws)
    put(aws, "a")
    aws.control.configure(no_iterator=style)
    shard = aws.control.shard_of("orders", {"pk": {"S": "a"}})
    open_page = raw(aws, "GetRecords", {"ShardIterator": iterator(aws, shard.shard_id)}).json()
    assert open_page["NextShardIterator"]
    aws.control.rollover("orders")
    page = raw(aws, "GetRecords", {"ShardIterator": iterator(aws, shard.shard_id)}).json()
    assert len(page.pop("Records")) == 1
    assert page == tail


def test_at_timestamp_over_http(aws: Emulator) -> None:
    """A time before the trim point is TRIM_HORIZON; a future one is a ValidationException."""
    a_table(aws)
    put(aws, "a")
    aws.control.advance(10)
    put(aws, "a2")
    now = datetime.fromtimestamp(aws.clock.now_s(), UTC)
    streams = aws.client("dynamodbstreams")
    found = {}
    for back_s in (0, 5, 3600):
        records = [
            record
            for shard in aws.control.shards("orders")
            for record in streams.get_records(
                ShardIterator=iterator(
                    aws, shard.shard_id, "AT_TIMESTAMP", Timestamp=now - timedelta(seconds=back_s)
                )
            )["Records"]
        ]
        found[back_s] = len(records)
    assert found == {0: 1, 5: 1, 3600: 2}
    fails_with(
        "ValidationException",
        streams.get_shard_iterator,
        StreamArn=stream_arn(aws),
        ShardId=aws.control.shards("orders")[0].shard_id,
        ShardIteratorType="AT_TIMESTAMP",
        Timestamp=now + timedelta(seconds=1),
    )


def test_what_is_gone_is_answered_with_its_own_code(aws: Emulator) -> None:
    """Expired iterator, trimmed position, vanished shard, unknown stream: four codes."""
    a_table(aws)
    put(aws, "a", "b", "c", "d")
    streams = aws.client("dynamodbstreams")
    arn = stream_arn(aws)
    shard = aws.control.shard_of("orders", {"pk": {"S": "a"}})
    first = str(shard.records[0].sequence_number)

    held = iterator(aws, shard.shard_id)
    aws.control.expire_iterators("orders")
    fails_with("ExpiredIteratorException", streams.get_records, ShardIterator=held)
    held = iterator(aws, shard.shard_id)
    aws.control.advance(901)
    fails_with("ExpiredIteratorException", streams.get_records, ShardIterator=held)

    held = iterator(aws, shard.shard_id)
    assert aws.control.trim("orders") == 4
    fails_with("TrimmedDataAccessException", streams.get_records, ShardIterator=held)
    fails_with(
        "TrimmedDataAccessException",
        streams.get_shard_iterator,
        StreamArn=arn,
        ShardId=shard.shard_id,
        ShardIteratorType="AFTER_SEQUENCE_NUMBER",
        SequenceNumber=first,
    )

    aws.control.rollover("orders", shard.shard_id)
    held = iterator(aws, shard.shard_id)
    aws.control.vanish("orders", shard.shard_id)
    fails_with("ResourceNotFoundException", streams.get_records, ShardIterator=held)
    fails_with(
        "ResourceNotFoundException",
        streams.get_shard_iterator,
        StreamArn=arn,
        ShardId=shard.shard_id,
        ShardIteratorType="TRIM_HORIZON",
    )
    assert shard.shard_id not in {listed["ShardId"] for listed in shard_list(aws, arn)}
    fails_with(
        "ResourceNotFoundException",
        streams.describe_stream,
        StreamArn=arn.replace("orders", "others"),
    )
    fails_with("ValidationException", streams.get_records, ShardIterator="nonsense")
    answer = raw(aws, "DescribeStream", {"StreamArn": "orders"})
    assert answer.json()["__type"].endswith("ValidationException")


def test_a_day_later_the_records_are_gone_and_the_shards_a_generation_later(aws: Emulator) -> None:
    """Retention runs on the emulator's clock."""
    a_table(aws)
    put(aws, "a")
    aws.control.rollover("orders")
    aws.control.advance(23 * HOUR_S)
    assert len(all_records(aws)) == 1
    assert len(shard_list(aws, stream_arn(aws))) == 8
    aws.control.advance(2 * HOUR_S)
    assert all_records(aws) == []
    listed = shard_list(aws, stream_arn(aws))
    assert len(listed) == 4
    assert all("ParentShardId" in shard for shard in listed)


def test_limits_of_get_records(aws: Emulator) -> None:
    """Limit is 1 to 1000, and one page never has more."""
    a_table(aws)
    streams = aws.client("dynamodbstreams")
    put(aws, "a", "b", "c", "d", "e", "f", "g", "h")
    shard = max(aws.control.shards("orders"), key=lambda shard: len(shard.records))
    assert len(shard.records) >= 2
    page = streams.get_records(ShardIterator=iterator(aws, shard.shard_id), Limit=1)
    assert len(page["Records"]) == 1
    for limit in (0, 1001):
        answer = raw(
            aws, "GetRecords", {"ShardIterator": iterator(aws, shard.shard_id), "Limit": limit}
        )
        assert answer.json()["__type"].endswith("ValidationException")


def test_a_stream_that_is_switched_off_and_on_has_a_new_label(aws: Emulator) -> None:
    """The old stream stays readable as DISABLED for a day; the new one starts empty."""
    a_table(aws)
    put(aws, "before")
    dynamodb, streams = aws.client("dynamodb"), aws.client("dynamodbstreams")
    old = stream_arn(aws)
    off = {"StreamEnabled": False}
    dynamodb.update_table(TableName="orders", StreamSpecification=off)
    described = dynamodb.describe_table(TableName="orders")["Table"]
    assert described["LatestStreamArn"] == old
    assert "StreamSpecification" not in described
    put(aws, "between")
    fails_with(
        "ValidationException",
        dynamodb.update_table,
        TableName="orders",
        StreamSpecification=off,
    )
    on = {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    dynamodb.update_table(TableName="orders", StreamSpecification=on)
    fails_with(
        "ValidationException",
        dynamodb.update_table,
        TableName="orders",
        StreamSpecification=on,
    )
    put(aws, "after")
    new = stream_arn(aws)
    assert new != old
    assert changes(aws) == [("INSERT", {"pk": {"S": "after"}}, None)]
    description = streams.describe_stream(StreamArn=old)["StreamDescription"]
    assert description["StreamStatus"] == "DISABLED"
    assert description["StreamLabel"] == old.rpartition("/")[2]
    old_records = [
        record
        for shard in description["Shards"]
        for record in records_of(aws, old, shard["ShardId"])
    ]
    assert [record["dynamodb"]["Keys"]["pk"]["S"] for record in old_records] == ["before"]
    listed = streams.list_streams(TableName="orders")["Streams"]
    assert {stream["StreamArn"] for stream in listed} == {old, new}
    aws.control.advance(25 * HOUR_S)
    listed = streams.list_streams(TableName="orders")["Streams"]
    assert [stream["StreamArn"] for stream in listed] == [new]
    fails_with("ResourceNotFoundException", streams.describe_stream, StreamArn=old)


def test_a_recreated_table_is_another_table(aws: Emulator) -> None:
    """New TableId, new stream; the old stream is DISABLED and keeps its records."""
    first = a_table(aws)
    put(aws, "a")
    old = stream_arn(aws)
    aws.client("dynamodb").delete_table(TableName="orders")
    fails_with(
        "ResourceNotFoundException", aws.client("dynamodb").describe_table, TableName="orders"
    )
    second = a_table(aws)
    assert second["TableArn"] == first["TableArn"]
    assert second["TableId"] != first["TableId"]
    assert second["LatestStreamArn"] != old
    assert all_records(aws) == []
    status = aws.client("dynamodbstreams").describe_stream(StreamArn=old)["StreamDescription"]
    assert status["StreamStatus"] == "DISABLED"


def test_streams_are_listed_by_page(aws: Emulator) -> None:
    """ListStreams takes Limit and ExclusiveStartStreamArn."""
    for number in range(5):
        a_table(aws, f"table-{number}")
    streams = aws.client("dynamodbstreams")
    first = streams.list_streams(Limit=3)
    rest = streams.list_streams(ExclusiveStartStreamArn=first["LastEvaluatedStreamArn"])
    names = [stream["TableName"] for stream in first["Streams"] + rest["Streams"]]
    assert names == [f"table-{number}" for number in range(5)]
    assert "LastEvaluatedStreamArn" not in rest


def test_every_answer_carries_its_crc_and_the_emulators_time(aws: Emulator) -> None:
    """x-amz-crc32 over the body as sent, Date from the clock, compact JSON; on errors too."""
    a_table(aws)
    put(aws, "a")
    shard = aws.control.shard_of("orders", {"pk": {"S": "a"}})
    answers = [
        raw(aws, "Scan", {"TableName": "orders"}),
        raw(aws, "DescribeTable", {"TableName": "orders"}),
        raw(aws, "DescribeStream", {"StreamArn": stream_arn(aws)}),
        raw(aws, "GetRecords", {"ShardIterator": iterator(aws, shard.shard_id)}),
        raw(aws, "GetRecords", {"ShardIterator": "nonsense"}),
        raw(aws, "Scan", {"TableName": "nothing"}),
    ]
    for answer in answers:
        assert answer.headers["x-amz-crc32"] == str(zlib.crc32(answer.body))
        assert answer.headers["content-type"] == "application/x-amz-json-1.0"
        told = parsedate_to_datetime(answer.headers["date"]).timestamp()
        assert told == int(aws.clock.now_s())
        assert answer.headers["x-amzn-requestid"]
        assert b'": ' not in answer.body
        assert b', "' not in answer.body
    assert len({answer.headers["x-amzn-requestid"] for answer in answers}) == len(answers)


def test_the_clock_drives_what_is_shown(aws: Emulator) -> None:
    """Creation times of tables, streams and records come from the injected clock."""
    aws.control.advance(3600)
    created = a_table(aws)
    assert created["CreationDateTime"].timestamp() == aws.clock.now_s()
    description = aws.client("dynamodbstreams").describe_stream(StreamArn=stream_arn(aws))
    shown = description["StreamDescription"]["CreationRequestDateTime"].timestamp()
    assert shown == aws.clock.now_s()
    assert created["LatestStreamLabel"] == "2025-06-15T16:06:40.000"


def test_regions_do_not_see_each_other(aws: Emulator) -> None:
    """A client's region decides which tables and streams it sees."""
    a_table(aws)
    elsewhere = aws.client("dynamodb", region_name="ap-south-1")
    assert elsewhere.list_tables()["TableNames"] == []
    assert aws.client("dynamodbstreams", region_name="ap-south-1").list_streams()["Streams"] == []


def test_two_emulators_do_not_see_each_other(aws: Emulator) -> None:
    """Tables and buckets of one emulator are not in another, under equal names."""
    with Emulator() as other:
        for emulator in (aws, other):
            a_table(emulator)
            emulator.client("s3").create_bucket(Bucket="bucket")
        put(aws, "a")
        aws.client("s3").put_object(Bucket="bucket", Key="a", Body=b"a")
        assert other.client("dynamodb").scan(TableName="orders")["Count"] == 0
        assert "Contents" not in other.client("s3").list_objects_v2(Bucket="bucket")


def test_the_same_seed_gives_the_same_stream() -> None:
    """Ids, numbers and events repeat for a seed and a clock, and differ for another seed."""

    def run(seed: int) -> list[dict[str, Any]]:
        with Emulator(clock=ManualClock(), seed=seed) as emulator:
            a_table(emulator)
            put(emulator, "a", "b", "c")
            return all_records(emulator)

    assert run(1) == run(1)
    assert run(1) != run(2)
