"""S3 as the segment log and the publisher use it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError
from moto import mock_aws
from moto.s3.models import FakeKey, s3_backends

from emulator import Emulator, ManualClock


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """An emulator with the bucket `log`."""
    with Emulator(clock=ManualClock()) as emulator:
        emulator.client("s3").create_bucket(Bucket="log")
        yield emulator


def put(aws: Emulator, key: str, body: bytes = b"", **more: Any) -> None:
    aws.client("s3").put_object(Bucket="log", Key=key, Body=body, **more)


def test_a_create_only_put_succeeds_once_whoever_races(aws: Emulator) -> None:
    """Of many writers with If-None-Match: * exactly one is acknowledged, and its body is there."""

    def attempt(writer: int) -> Any:
        try:
            put(aws, "segments/7", str(writer).encode(), IfNoneMatch="*")
        except ClientError as error:
            return error.response
        return None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(24)))
    winners = [writer for writer, refusal in enumerate(answers) if refusal is None]
    assert len(winners) == 1
    refusals = [refusal for refusal in answers if refusal is not None]
    assert {refusal["Error"]["Code"] for refusal in refusals} == {"PreconditionFailed"}
    assert {refusal["ResponseMetadata"]["HTTPStatusCode"] for refusal in refusals} == {412}
    body = aws.client("s3").get_object(Bucket="log", Key="segments/7")["Body"].read()
    assert body == str(winners[0]).encode()


def test_a_listing_starts_after_a_key_and_is_paged(aws: Emulator) -> None:
    """StartAfter, Prefix, MaxKeys and the continuation token meet each key once, in order."""
    for number in range(12):
        put(aws, f"segments/{number:020d}.seg")
    put(aws, "other/1")
    s3 = aws.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="log",
        Prefix="segments/",
        StartAfter=f"segments/{3:020d}.seg",
        PaginationConfig={"PageSize": 3},
    )
    met = [item["Key"] for page in pages for item in page.get("Contents", [])]
    assert met == [f"segments/{number:020d}.seg" for number in range(4, 12)]


@pytest.mark.parametrize(
    "key", ["plain", "a b/c+d", "é/\U0001f600", "a%2Fb", "q?x=1&y", "dots/../x"]
)
def test_any_key_name_comes_back(aws: Emulator, key: str) -> None:
    """Keys keep every character through put, list, get, head and delete."""
    put(aws, key, b"body")
    s3 = aws.client("s3")
    assert [item["Key"] for item in s3.list_objects_v2(Bucket="log")["Contents"]] == [key]
    assert s3.get_object(Bucket="log", Key=key)["Body"].read() == b"body"
    assert s3.head_object(Bucket="log", Key=key)["ContentLength"] == 4
    s3.delete_object(Bucket="log", Key=key)
    assert "Contents" not in s3.list_objects_v2(Bucket="log")


def test_ranges_metadata_and_the_clock(aws: Emulator) -> None:
    """Range reads, user metadata, and LastModified from the emulator's clock."""
    put(aws, "a", b"0123456789", Metadata={"epoch": "7"})
    s3 = aws.client("s3")
    part = s3.get_object(Bucket="log", Key="a", Range="bytes=-4")
    assert part["Body"].read() == b"6789"
    head = s3.head_object(Bucket="log", Key="a")
    assert head["Metadata"] == {"epoch": "7"}
    assert head["LastModified"].timestamp() == aws.clock.now_s()
    listed = s3.list_objects_v2(Bucket="log")["Contents"][0]
    assert listed["LastModified"].timestamp() == aws.clock.now_s()


def test_large_objects_go_up_in_parts(aws: Emulator) -> None:
    """A multipart upload, as boto3 does it by itself, reads back equal."""
    body = bytes(range(256)) * 45_000
    aws.client("s3").upload_fileobj(
        io.BytesIO(body), "log", "big", Config=TransferConfig(multipart_threshold=5 * 1024 * 1024)
    )
    assert aws.calls.count("UploadPart") == 2
    assert aws.client("s3").get_object(Bucket="log", Key="big")["Body"].read() == body


def test_what_is_missing_is_said_as_s3_says_it(aws: Emulator) -> None:
    """NoSuchKey, NoSuchBucket, a bucket that exists, and HEAD's bare 404."""
    s3 = aws.client("s3")
    for call, params, code in (
        (s3.get_object, {"Bucket": "log", "Key": "x"}, "NoSuchKey"),
        (s3.get_object, {"Bucket": "none", "Key": "x"}, "NoSuchBucket"),
        (s3.list_objects_v2, {"Bucket": "none"}, "NoSuchBucket"),
        (s3.head_object, {"Bucket": "log", "Key": "x"}, "404"),
        (s3.delete_bucket, {"Bucket": "none"}, "NoSuchBucket"),
    ):
        with pytest.raises(ClientError) as caught:
            call(**params)
        assert caught.value.response["Error"]["Code"] == code
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == ["log"]


def test_creating_a_bucket_again_loses_nothing(aws: Emulator) -> None:
    """In us-east-1 it changes nothing; elsewhere the bucket is said to be ours already."""
    put(aws, "a", b"kept")
    aws.client("s3").create_bucket(Bucket="log")
    assert aws.client("s3").get_object(Bucket="log", Key="a")["Body"].read() == b"kept"
    with Emulator(region="eu-west-1") as other:
        where = {"LocationConstraint": "eu-west-1"}
        other.client("s3").create_bucket(Bucket="log", CreateBucketConfiguration=where)
        with pytest.raises(ClientError, match="BucketAlreadyOwnedByYou"):
            other.client("s3").create_bucket(Bucket="log", CreateBucketConfiguration=where)


def test_bucket_names_of_others_in_the_process_are_free_and_stay_theirs(aws: Emulator) -> None:
    """moto's own bucket of a name does not stand in the way, and is still found afterwards."""
    theirs = s3_backends["999999999999"]["aws"]
    theirs.create_bucket("shared", "us-east-1")
    try:
        aws.client("s3").create_bucket(Bucket="shared")
        assert s3_backends.bucket_accounts["shared"] == ("aws", "999999999999")
    finally:
        theirs.delete_bucket("shared")
        del s3_backends["999999999999"]


def test_overwriting_keeps_no_object_for_ever(aws: Emulator) -> None:
    """moto's list of every object ever made does not grow with ours."""
    before = len(vars(FakeKey)["instances_tracked"])
    for number in range(20):
        put(aws, "a", str(number).encode())
    assert len(vars(FakeKey)["instances_tracked"]) == before


def test_a_mocked_aws_in_the_same_process_is_another_one(aws: Emulator) -> None:
    """Users who also use moto's decorators lose nothing when a mock starts or ends."""
    put(aws, "a", b"ours")
    with mock_aws():
        mocked = boto3.client(
            "s3",
            region_name="us-east-1",
            aws_access_key_id="AKIDMOCK",
            aws_secret_access_key="secret",
        )
        mocked.create_bucket(Bucket="log")
        assert "Contents" not in mocked.list_objects_v2(Bucket="log")
    assert aws.client("s3").get_object(Bucket="log", Key="a")["Body"].read() == b"ours"
