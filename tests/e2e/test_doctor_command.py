"""`dynaduck doctor` and `dynaduck iam-policy` as a person runs them, on set-ups that are broken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, free_port, running, wait_until

REGION = "eu-west-1"
FOLLOWING = (
    "dynamodb:DescribeTable",
    "dynamodb:Scan",
    "dynamodb:DescribeStream",
    "dynamodb:GetShardIterator",
    "dynamodb:GetRecords",
)


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2, region=REGION) as emulator:
        emulator.client("dynamodb").create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        yield emulator


def flags(aws: Emulator, directory: Path) -> list[str]:
    return [
        *("--table", "orders", "--region", REGION, "--endpoint-url", aws.url),
        *("--data-dir", str(directory), "--http-port", str(free_port())),
    ]


def granted(aws: Emulator, directory: Path) -> set[str]:
    """The actions of the policy that the command prints."""
    printed = dynaduck("iam-policy", *flags(aws, directory))
    assert printed.returncode == 0, printed.stderr
    return {action for each in json.loads(printed.stdout)["Statement"] for action in each["Action"]}


def test_the_printed_policy_is_enough(aws: Emulator, tmp_path: Path) -> None:
    """With it alone a first sync copies the table and catches up."""
    aws.client("dynamodb").put_item(TableName="orders", Item={"pk": {"S": "1"}})
    allowed = granted(aws, tmp_path)
    assert allowed == set(FOLLOWING)
    aws.policy.allow_only(allowed)
    synced = dynaduck("sync", "--once", "--deadline", "60s", *flags(aws, tmp_path))
    assert synced.returncode == 0, synced.stderr
    assert {call.outcome for call in aws.calls.calls()} == {"OK"}


def test_a_set_up_is_mended_by_what_the_doctor_says(aws: Emulator, tmp_path: Path) -> None:
    """Exit status 5 with a fix for each failure; 0 once they are done."""
    client = aws.client("dynamodb")
    client.update_table(TableName="orders", StreamSpecification={"StreamEnabled": False})
    aws.policy.allow_only({"sts:GetCallerIdentity", "dynamodb:DescribeTable"})
    told = dynaduck("doctor", *flags(aws, tmp_path))
    assert told.returncode == 5, told.stdout + told.stderr
    assert "Traceback" not in told.stderr

    command = re.search(r"--table-name (\S+) --stream-specification (\S+)", told.stdout)
    assert command is not None
    said = dict(part.split("=") for part in command[2].split(","))
    wanted: dict[str, Any] = {"StreamEnabled": True, "StreamViewType": said["StreamViewType"]}
    actions = set(re.findall(r"Allow (dynamodb:\w+) on", told.stdout))
    aws.policy.allow_all()
    client.update_table(TableName=command[1], StreamSpecification=wanted)
    aws.policy.allow_only(actions | {"sts:GetCallerIdentity", "dynamodb:DescribeTable"})
    mended = dynaduck("doctor", *flags(aws, tmp_path))
    assert mended.returncode == 0, mended.stdout


@pytest.mark.slow(20)
def test_a_stale_checkpoint_is_mended_by_what_the_product_says(
    aws: Emulator, tmp_path: Path
) -> None:
    """A day off: doctor and service name the command, the data is served, the command mends it."""
    client = aws.client("dynamodb")
    client.put_item(TableName="orders", Item={"pk": {"S": "before"}})
    it = Service(tmp_path / "data", aws.url, datasets=[{"from": "dynamodb:orders"}])
    it.start().wait_ready()
    assert it.stop() == 0
    client.put_item(TableName="orders", Item={"pk": {"S": "lost"}})
    aws.control.advance(25 * 3600)

    told = dynaduck("doctor", "-c", str(it.config_path), "--json")
    checkpoint = next(c for c in json.loads(told.stdout)["checks"] if c["check"] == "checkpoint")
    assert checkpoint["verdict"] == "failed"
    assert "`dynaduck refresh DATASET`" in checkpoint["fix"]

    with running(it):
        wait_until(lambda: "checkpoint_stale" in str(it.get("/v1/ready")), what="state Error")
        status, document = it.get("/v1/ready")
        assert status == 503
        assert "`dynaduck refresh DATASET`" in str(document)
        assert it.sql("SELECT pk FROM orders") == [{"pk": "before"}]
        mended = dynaduck("refresh", "orders", "-c", str(it.config_path))
        assert mended.returncode == 0, mended.stderr
        it.wait_ready()
        rows = it.sql("SELECT pk FROM orders ORDER BY pk")
    assert rows == [{"pk": "before"}, {"pk": "lost"}]


@pytest.mark.slow(10)
def test_a_running_service_is_no_fault(aws: Emulator, tmp_path: Path) -> None:
    """Its data file and its port are its own; its metrics tell how far it is from a loss."""
    with running(Service(tmp_path / "data", aws.url, datasets=[{"from": "dynamodb:orders"}])) as it:
        it.wait_ready()
        told = dynaduck("doctor", "-c", str(it.config_path), "--json")
    assert told.returncode == 0, told.stdout
    checks = {each["check"]: each for each in json.loads(told.stdout)["checks"]}
    assert "answers on port" in checks["port"]["sentence"]
    assert "before any loss" in checks["checkpoint"]["sentence"]
    assert checks["readers"]["verdict"] == "ok"


def test_a_bad_configuration_is_refused_as_everywhere(tmp_path: Path) -> None:
    """Status 2 and the sentence of the setting: there is nothing to examine yet."""
    told = dynaduck("doctor", "--table", "orders", "--region", REGION, "--redy-lag", "2s")
    assert told.returncode == 2
    assert "ready" in told.stderr
