"""`dynaduck doctor` at the offset table and the bucket: what it says, and the fix it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoints.lease import LeaseStore
from connector.config import Config, load
from connector.examine.findings import Verdict
from connector.examine.storage_places import examine
from connector.storage import offset_items, pipeline_of
from emulator import Emulator
from tests.conformance.conftest import client_of

REGION = "us-east-1"


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=1) as emulator:
        yield emulator


def configured(aws: Emulator, directory: Path, **runtime: object) -> Config:
    file = directory / "dynaduck.yaml"
    params = {
        "dynamodb_aws_region": REGION,
        "dynamodb_aws_access_key_id": "test",
        "dynamodb_aws_secret_access_key": "test",
        "endpoint_url": aws.url,
    }
    document = {"datasets": [{"from": "dynamodb:orders", "params": params}], "runtime": runtime}
    file.write_text(json.dumps(document))
    return load(file, {}, {})


BOTH = {"wal_storage": "clustered", "wal_s3_bucket": "wal", "offset_dynamodb_table": "offsets"}


def made(aws: Emulator) -> None:
    client_of(aws.url, "s3").create_bucket(Bucket="wal")
    client_of(aws.url, "dynamodb").create_table(
        TableName="offsets",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")
        ],
        KeySchema=[
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def test_a_copy_on_one_disk_has_no_such_places(aws: Emulator, tmp_path: Path) -> None:
    """Nothing is asked, so nothing is said."""
    assert examine(configured(aws, tmp_path)) == []
    assert aws.calls.count() == 0


def test_what_can_be_read_is_said_to_be_whose(aws: Emulator, tmp_path: Path) -> None:
    """No rows, no lease and no log yet; then a leader."""
    made(aws)
    config = configured(aws, tmp_path, **BOTH)
    table, bucket = examine(config)
    assert (table.verdict, bucket.verdict) == (Verdict.OK, Verdict.OK)
    assert table.sentence.endswith("0 rows of default#default#default; nobody holds its lease.")
    assert bucket.sentence.endswith("has no log yet.")
    LeaseStore(offset_items(config), pipeline_of(config.runtime)).create("n-1")
    assert examine(config)[0].sentence.endswith("n-1 holds its lease, epoch 1.")


def test_what_is_missing_or_denied_fails_with_its_fix(aws: Emulator, tmp_path: Path) -> None:
    """A table and a bucket that are not there, and an action that the policy lacks."""
    config = configured(aws, tmp_path, **BOTH)
    for finding in examine(config):
        assert finding.verdict is Verdict.FAILED
        assert finding.fix
    made(aws)
    aws.policy.deny("s3:ListBucket", "dynamodb:Query")
    table, bucket = examine(config)
    assert "dynamodb:Query" in table.fix
    assert "s3:ListBucket" in bucket.fix
