"""Each role's policy is enough for what the role does, against a server that denies the rest.

The real commands and the real service run; what the emulator allows is what the document of the
role allows, action by action. Resources are compared by the calls that were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from checkpoints.keys import PipelineKey
from connector.cli import app
from connector.config import Config, load
from connector.examine.iam_policy import Role, actions, policy
from connector.service import Service
from connector.sync import sync_once
from emulator import Emulator
from tests.conformance.emulated import a_table

REGION = "eu-west-1"
SEGMENT = "arn:aws:s3:::wal/default/default/default/segments/00000000000000000007.seg"
BASE = "arn:aws:s3:::wal/default/default/default/segments/base/x.base.parquet"


@pytest.fixture(scope="module")
def aws() -> Iterator[Emulator]:
    """A table with three items, an offset table and a bucket."""
    with Emulator(shards=1, region=REGION) as emulator:
        a_table(emulator)
        client = emulator.client("dynamodb")
        for key in "abc":
            client.put_item(TableName="orders", Item={"pk": {"S": key}})
        client.create_table(
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
        emulator.client("s3").create_bucket(
            Bucket="wal", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield emulator


def configured(aws: Emulator, directory: Path, **runtime: object) -> Config:
    file = directory / "dynaduck.yaml"
    dataset = {
        "from": "dynamodb:orders",
        "params": {
            "dynamodb_aws_region": REGION,
            "dynamodb_aws_access_key_id": "test",
            "dynamodb_aws_secret_access_key": "test",
            "endpoint_url": aws.url,
        },
    }
    runtime = {"data_dir": str(directory / "data"), "memory_limit": "400MB", **runtime}
    file.write_text(json.dumps({"datasets": [dataset], "runtime": runtime}))
    return load(file, {}, {})


def allows(document: dict[str, Any], action: str, resource: str) -> bool:
    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        for statement in document["Statement"]
    )


ROWS = {"offset_store": "dynamodb", "offset_dynamodb_table": "offsets"}


@pytest.mark.requirement("R23")
@pytest.mark.parametrize(
    "runtime",
    [
        pytest.param(ROWS, id="rows over a disk"),
        pytest.param({"wal_storage": "s3", "wal_s3_bucket": "wal"}, id="log"),
        pytest.param({"wal_storage": "s3", "wal_s3_bucket": "wal", **ROWS}, id="log and rows"),
    ],
)
def test_a_sync_needs_no_more_than_its_policy(
    aws: Emulator, tmp_path: Path, runtime: dict[str, str]
) -> None:
    """A first start, and one that finds a table, rows and a log: neither is denied anything."""
    pipeline = tmp_path.name
    config = configured(aws, tmp_path, pipeline=pipeline, **runtime)
    document = policy(config, role=Role.SYNC)
    assert "s3:DeleteObject" not in actions(document)
    assert not allows(document, "dynamodb:Scan", _offsets())
    aws.policy.allow_only(actions(document))
    try:
        for _ in range(2):
            synced = sync_once(Service(config), deadline_s=60)
            assert synced.is_caught_up, synced
    finally:
        aws.policy.allow_all()
    rows = aws.client("dynamodb").query(
        TableName="offsets",
        KeyConditionExpression="PK = :pk",
        ExpressionAttributeValues={":pk": {"S": PipelineKey("default", "default", pipeline).pk}},
    )["Items"]
    assert bool(rows) is ("offset_store" in runtime)


@pytest.mark.requirement("R23")
def test_what_only_looks_needs_no_right_to_write(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """segments, restore and cluster status: reading the bucket, and two reads of the table."""
    # Else the log would go to a stream that is closed with the command.
    monkeypatch.setattr("connector.logs.configure_logs", lambda *_, **__: None)
    config = configured(aws, tmp_path, wal_storage="s3", wal_s3_bucket="wal", **ROWS)
    assert sync_once(Service(config), deadline_s=60).is_caught_up
    file = str(tmp_path / "dynaduck.yaml")
    commands = [
        (["segments", "list"], 0),
        (["segments", "verify"], 0),
        (["restore", str(tmp_path / "new.duckdb")], 0),
        (["cluster", "status", "--positions"], 4),
    ]
    aws.policy.allow_only({"s3:GetObject", "s3:ListBucket", "dynamodb:GetItem", "dynamodb:Query"})
    try:
        for words, status in commands:
            outcome = CliRunner().invoke(app, [*words, "-c", file])
            assert outcome.exit_code == status, (words, outcome.output)
    finally:
        aws.policy.allow_all()
    aws.policy.deny("s3:ListBucket")
    try:
        denied = CliRunner().invoke(app, ["segments", "verify", "-c", file])
        assert denied.exit_code == 1
        assert "s3:ListBucket" in denied.output
    finally:
        aws.policy.allow_all()


def _offsets() -> str:
    return f"arn:aws:dynamodb:{REGION}:123456789012:table/offsets"
