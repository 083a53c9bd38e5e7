"""The policy of a configuration: what it grants, on what, and nothing that no call needs."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from connector.aws.stores import BUCKET_ACTIONS, TABLE_ACTIONS
from connector.config import load
from connector.errors import ConfigError
from connector.examine.iam_policy import ROW_ACTIONS, Role, actions, policy
from connector.service import Service
from connector.sync import sync_once
from emulator import Emulator
from tests.e2e.harness import wait_until
from tests.unit.test_doctor import config_of, create

ENV = {"AWS_REGION": "eu-west-1"}
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
FOLLOWING = {
    "dynamodb:DescribeTable",
    "dynamodb:DescribeStream",
    "dynamodb:GetShardIterator",
    "dynamodb:GetRecords",
}


def document(tables: list[str] | None = None, *, more: Any = None, **settings: str) -> Any:
    return policy(load(None, ENV, {"table": tables or ["orders"], **settings}), **(more or {}))


def allows(policy_document: Any, action: str, resource: str) -> bool:
    """As IAM decides it, conditions aside."""
    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        for statement in policy_document["Statement"]
    )


def test_following_a_table_needs_five_actions() -> None:
    """No Query, no ListStreams, no write; single reads only where they are asked for."""
    assert actions(document()) == FOLLOWING | {"dynamodb:Scan"}
    assert actions(document(more={"verifies": True})) == FOLLOWING | {
        "dynamodb:Scan",
        "dynamodb:GetItem",
    }


def test_a_copy_by_scans_alone_reads_no_stream() -> None:
    """refresh_mode: full."""
    assert actions(document(refresh_mode="full")) == {"dynamodb:DescribeTable", "dynamodb:Scan"}


def test_a_stream_without_a_snapshot_needs_no_scan() -> None:
    """dynamodb_replication_initial_snapshot: disabled, unless the copy shall be verified."""
    disabled: dict[str, Any] = {"dynamodb_replication_initial_snapshot": "disabled"}
    assert actions(document(**disabled)) == FOLLOWING
    assert "dynamodb:Scan" in actions(document(more={"verifies": True}, **disabled))


def test_a_stream_that_is_switched_on_again_is_still_allowed() -> None:
    """Its label is a time, so the policy names none; another table's stream stays out."""
    policy_document = document([ARN])
    for label in ("2024-01-01T00:00:00.000", "2026-12-31T23:59:59.999"):
        assert allows(policy_document, "dynamodb:GetRecords", f"{ARN}/stream/{label}")
    assert not allows(policy_document, "dynamodb:GetRecords", f"{ARN}-2/stream/x")
    assert not allows(policy_document, "dynamodb:Scan", f"{ARN}-2")
    assert not allows(policy_document, "dynamodb:Scan", f"{ARN}/index/by-date")


@pytest.mark.parametrize(
    ("tables", "account", "expected"),
    [
        (["orders"], None, "arn:aws:dynamodb:eu-west-1:*:table/orders"),
        (["orders"], "123456789012", ARN),
        ([ARN], None, ARN),
        ([ARN], "999999999999", ARN),
    ],
)
def test_resources_are_named_as_far_as_they_are_known(
    tables: list[str], account: str | None, expected: str
) -> None:
    """An ARN as it stands, an account where it is said, a wildcard for what nobody said."""
    statements = document(tables, more={"account": account})["Statement"]
    assert statements[0]["Resource"] == [expected]
    assert statements[1]["Resource"] == [f"{expected}/stream/*"]


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_other_partitions_have_their_own_arns(region: str, partition: str) -> None:
    """China and the government regions."""
    config = load(None, {"AWS_REGION": region}, {"table": ["orders"]})
    assert policy(config)["Statement"][0]["Resource"][0].startswith(f"arn:{partition}:dynamodb:")


def test_the_offset_table_and_the_log_get_their_documented_minimum() -> None:
    """wal_storage: s3 and clustered; objects of this pipeline alone, and never DeleteObject."""
    policy_document = document(
        [ARN],
        wal_storage="clustered",
        offset_dynamodb_table="offsets",
        wal_s3_bucket="log",
        tenant="t",
        workspace="w",
        pipeline="p",
    )
    table = "arn:aws:dynamodb:eu-west-1:123456789012:table/offsets"
    for action in TABLE_ACTIONS:
        assert allows(policy_document, action, table)
        assert action == "dynamodb:GetItem" or not allows(policy_document, action, ARN)
    assert not allows(policy_document, "dynamodb:Scan", table)
    assert actions(policy_document) == FOLLOWING | {"dynamodb:Scan"} | set(TABLE_ACTIONS) | set(
        BUCKET_ACTIONS
    )
    segment = "arn:aws:s3:::log/t/w/p/segments/00000000000000000001.seg"
    assert allows(policy_document, "s3:PutObject", segment)
    assert not allows(policy_document, "s3:PutObject", segment.replace("/p/", "/q/"))
    listing = next(s for s in policy_document["Statement"] if s["Sid"] == "LogList")
    assert listing["Resource"] == ["arn:aws:s3:::log"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "t/w/p/segments/*"}}


def test_the_log_alone_needs_no_table() -> None:
    """wal_storage: s3 with positions in the data file."""
    assert actions(document(wal_storage="s3", wal_s3_bucket="log")) == (
        FOLLOWING | {"dynamodb:Scan"} | set(BUCKET_ACTIONS)
    )


def test_a_customer_managed_key_is_used_by_dynamodb_alone() -> None:
    """Decrypt on that key, only by way of DynamoDB in that region."""
    key = "arn:aws:kms:eu-west-1:123456789012:key/abc"
    statement = document(more={"kms_keys": [key]})["Statement"][-1]
    assert (statement["Action"], statement["Resource"]) == (["kms:Decrypt"], [key])
    assert statement["Condition"] == {
        "StringEquals": {"kms:ViaService": ["dynamodb.eu-west-1.amazonaws.com"]}
    }


def test_published_copies_may_be_written_where_they_go(tmp_path: Path) -> None:
    """publish.to on S3 with an interval; a path on disk needs nothing."""
    path = tmp_path / "dynaduck.yaml"
    path.write_text(
        "datasets: [{from: dynamodb:orders, publish: {every: 1h, to: 's3://copies/daily/'}}]"
    )
    policy_document = policy(load(path, ENV, {}))
    assert allows(policy_document, "s3:PutObject", "arn:aws:s3:::copies/daily/orders.parquet")
    assert not allows(policy_document, "s3:PutObject", "arn:aws:s3:::copies/other")
    path.write_text("datasets: [{from: dynamodb:orders, publish: {every: 1h, to: /copies}}]")
    assert "s3:PutObject" not in actions(policy(load(path, ENV, {})))


def test_it_is_a_policy_that_iam_takes() -> None:
    """Version, distinct alphanumeric Sids, and no wildcard action or whole-account resource."""
    policy_document = document(
        ["orders", "order-items", "order.items"], wal_storage="s3", s3_bucket="b"
    )
    assert policy_document["Version"] == "2012-10-17"
    sids = [statement["Sid"] for statement in policy_document["Statement"]]
    assert len(set(sids)) == len(sids)
    assert all(re.fullmatch("[A-Za-z0-9]+", sid) for sid in sids)
    for statement in policy_document["Statement"]:
        assert statement["Effect"] == "Allow"
        assert "*" not in "".join(statement["Action"])
        assert "*" not in statement["Resource"]
    assert len(json.dumps(policy_document)) < 6144  # the limit of a managed policy


@pytest.mark.parametrize("missing", sorted(FOLLOWING | {"dynamodb:Scan"}))
def test_nothing_is_granted_to_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """Without any one of the actions a first sync is refused, by the action's name."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with Emulator(shards=2, region="eu-west-1") as aws:
        create(aws, "orders")
        config = config_of(aws, tmp_path)
        aws.policy.allow_only(actions(policy(config)) - {missing})
        refusal = sync_once(Service(config), deadline_s=60).refusal
    assert refusal is not None
    assert missing in refusal.hint
    assert "iam-policy" in refusal.hint


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"refresh_mode": "full"},
        {"dynamodb_replication_initial_snapshot": "disabled"},
    ],
    ids=["changes", "full", "no-snapshot"],
)
def test_each_mode_works_with_what_it_is_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """Ready where all else is denied, and every call is on a resource that is named."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with Emulator(shards=2, region="eu-west-1") as aws:
        create(aws, "orders")
        config = config_of(aws, tmp_path, **settings)
        granted = policy(config, account="123456789012")
        aws.policy.allow_only(actions(granted))
        before = len(aws.calls.calls())
        service = Service(config)
        service.start()
        try:
            wait_until(lambda: service.refusal or service.replications[0].health.is_ready)
        finally:
            service.stop()
        calls = aws.calls.calls()[before:]
    assert service.refusal is None
    assert {call.outcome for call in calls} == {"OK"}
    assert {f"dynamodb:{call.operation}" for call in calls} == actions(granted)
    for call in calls:
        stream = str(call.params.get("StreamArn") or call.params.get("ShardIterator", ""))
        assert allows(granted, f"dynamodb:{call.operation}", stream.partition("|")[0] or ARN)


CLUSTERED = {
    "wal_storage": "clustered",
    "offset_dynamodb_table": "offsets",
    "wal_s3_bucket": "log",
}


def test_a_follower_has_no_right_to_a_table_or_a_stream_of_the_user() -> None:
    """It reads the log, writes bases, and keeps its row and its eye on the lease."""
    follower = document([ARN], more={"role": Role.FOLLOWER}, **CLUSTERED)
    assert actions(follower) == set(TABLE_ACTIONS) | set(BUCKET_ACTIONS)
    for action in ("dynamodb:DescribeTable", "dynamodb:GetRecords", "dynamodb:GetItem"):
        assert not allows(follower, action, ARN)
        assert not allows(follower, action, f"{ARN}/stream/x")
    log = "arn:aws:s3:::log/default/default/default/segments"
    assert allows(follower, "s3:GetObject", f"{log}/00000000000000000001.seg")
    assert not allows(follower, "s3:PutObject", f"{log}/00000000000000000001.seg")
    assert allows(follower, "s3:PutObject", f"{log}/base/parts/1-a/000000")


def test_without_a_cluster_the_offset_table_is_read_and_put_to_alone() -> None:
    """There is no lease and no member, so nothing is updated and nothing deleted."""
    rows = document(
        [ARN],
        more={"role": Role.SYNC},
        offset_store="dynamodb",
        offset_dynamodb_table="offsets",
    )
    table = "arn:aws:dynamodb:eu-west-1:123456789012:table/offsets"
    granted = {action for action in TABLE_ACTIONS if allows(rows, action, table)}
    assert granted == set(ROW_ACTIONS)


def test_a_role_that_the_configuration_has_not_is_refused() -> None:
    """No followers without a cluster; no `sync --once` in one."""
    with pytest.raises(ConfigError, match="no followers"):
        document([ARN], more={"role": Role.FOLLOWER})
    with pytest.raises(ConfigError, match="does not run in a cluster"):
        document([ARN], more={"role": Role.SYNC}, **CLUSTERED)
