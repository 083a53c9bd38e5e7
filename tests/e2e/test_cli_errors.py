"""Wrong input ends `dynaduck run` with status 2, one sentence that names it, and a remedy.

Never a traceback, never a service that runs and serves nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, free_port

REGION = "eu-west-1"


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2, region=REGION) as emulator:
        create_table(emulator, "orders")
        yield emulator


def create_table(
    aws: Emulator, name: str, view: str | None = "NEW_AND_OLD_IMAGES", region: str = REGION
) -> None:
    stream = {"StreamEnabled": True, "StreamViewType": view} if view else {"StreamEnabled": False}
    aws.client("dynamodb", region_name=region).create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification=stream,
    )


def config_of(aws: Emulator, tmp_path: Path, **params: Any) -> dict[str, Any]:
    """A configuration that runs; a test breaks one thing in it."""
    return {
        "datasets": [
            {
                "from": "dynamodb:orders",
                "name": "orders",
                "params": {"dynamodb_aws_region": REGION, "endpoint_url": aws.url} | params,
            }
        ],
        "runtime": {
            "data_dir": str(tmp_path / "data"),
            "http": {"host": "127.0.0.1", "port": free_port()},
        },
    }


def refused(config: dict[str, Any], tmp_path: Path, *flags: str) -> str:
    """What a person reads of a start that was refused with status 2; it leaves no file behind."""
    path = tmp_path / "dynaduck.yaml"
    data = tmp_path / "data"
    before = sorted(data.iterdir()) if data.exists() else None
    path.write_text(json.dumps(config))
    run = dynaduck("run", "-c", str(path), *flags)
    assert run.returncode == 2, (run.returncode, run.stdout, run.stderr)
    told: str = run.stderr
    assert "Traceback" not in told + run.stdout, told
    assert (sorted(data.iterdir()) if data.exists() else None) == before
    return told


def test_an_unknown_setting_is_named_with_the_nearest_known(aws: Emulator, tmp_path: Path) -> None:
    """A typo says what it was and what was probably meant."""
    told = refused(config_of(aws, tmp_path, scan_intervall="1s"), tmp_path)
    assert "scan_intervall" in told
    assert re.search(r"\bscan_interval\b", told), told


def test_an_unknown_flag_is_named_with_the_nearest_known(aws: Emulator, tmp_path: Path) -> None:
    """A setting given as a flag is held to the same list."""
    told = refused(config_of(aws, tmp_path), tmp_path, "--redy-lag", "2s")
    assert "redy" in told
    assert re.search(r"ready[-_]lag", told), told


def test_an_unknown_section_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """Keys outside of params are known too, or refused."""
    config = config_of(aws, tmp_path)
    config["runtime"]["memori_limit"] = "1GB"
    assert re.search(r"memori_limit.*memory_limit", refused(config, tmp_path), re.DOTALL)


@pytest.mark.parametrize("duration", ["fast", "2 parsecs", "-1s"])
def test_a_bad_duration_is_refused(aws: Emulator, tmp_path: Path, duration: str) -> None:
    """It names the setting, the value, and how a duration is written."""
    told = refused(config_of(aws, tmp_path, scan_interval=duration), tmp_path)
    assert "scan_interval" in told
    assert duration in told
    assert re.search(r"\b\d+(ms|s|m|h)\b", told), told


def test_a_ready_lag_below_two_seconds_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """Record times have whole seconds, so a smaller lag cannot be seen."""
    told = refused(config_of(aws, tmp_path, dynamodb_replication_ready_lag="500ms"), tmp_path)
    assert "ready_lag" in told
    assert "2s" in told


def test_a_missing_region_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """No region is guessed."""
    config = config_of(aws, tmp_path)
    del config["datasets"][0]["params"]["dynamodb_aws_region"]
    told = refused(config, tmp_path)
    assert "region" in told
    assert "dynamodb_aws_region" in told


def test_no_dataset_is_refused(tmp_path: Path) -> None:
    """A service that would copy nothing does not start."""
    told = refused({"datasets": []}, tmp_path)
    assert re.search("dataset", told, re.IGNORECASE)


def test_a_configuration_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The file is named."""
    run = dynaduck("run", "-c", str(tmp_path / "absent.yaml"))
    assert run.returncode == 2
    assert "absent.yaml" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_missing_table_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """The table is named, and where one looked for it."""
    config = config_of(aws, tmp_path)
    config["datasets"][0] |= {"from": "dynamodb:ordres", "name": "orders"}
    told = refused(config, tmp_path)
    assert "ordres" in told
    assert re.search("region", told, re.IGNORECASE)


def test_a_stream_that_is_off_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """It says how to turn the stream on."""
    create_table(aws, "quiet", view=None)
    config = config_of(aws, tmp_path)
    config["datasets"][0] |= {"from": "dynamodb:quiet", "name": "quiet"}
    told = refused(config, tmp_path)
    assert "quiet" in told
    assert "NEW_AND_OLD_IMAGES" in told


@pytest.mark.parametrize("view", ["KEYS_ONLY", "OLD_IMAGE"])
def test_a_view_type_without_new_images_is_refused(
    aws: Emulator, tmp_path: Path, view: str
) -> None:
    """It names the view type that is and one that would do."""
    create_table(aws, "keys", view=view)
    config = config_of(aws, tmp_path)
    config["datasets"][0] |= {"from": "dynamodb:keys", "name": "keys"}
    told = refused(config, tmp_path)
    assert view in told
    assert "NEW_AND_OLD_IMAGES" in told


@pytest.mark.parametrize(
    "action", ["DescribeTable", "Scan", "DescribeStream", "GetShardIterator", "GetRecords"]
)
def test_a_denied_action_is_named(aws: Emulator, tmp_path: Path, action: str) -> None:
    """Whichever action the policy lacks, the sentence says it as IAM spells it."""
    aws.policy.deny(f"dynamodb:{action}")
    told = refused(config_of(aws, tmp_path), tmp_path)
    assert f"dynamodb:{action}" in told


def test_a_data_file_that_is_held_names_the_holder(aws: Emulator, tmp_path: Path) -> None:
    """The process id of whoever has the file open is what an operator needs."""
    config = config_of(aws, tmp_path)
    path = Path(config["runtime"]["data_dir"]) / "replica.duckdb"
    path.parent.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        holder.stdout.readline()
        told = refused(config, tmp_path)
        assert str(holder.pid) in told
        assert "replica.duckdb" in told
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_port_that_is_taken_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """The port is named; nothing is copied behind a door that does not open."""
    config = config_of(aws, tmp_path)
    config["runtime"]["http"]["port"] = int(aws.url.rpartition(":")[2])
    told = refused(config, tmp_path)
    assert str(config["runtime"]["http"]["port"]) in told


@pytest.mark.slow(10)
def test_a_checkpoint_of_another_table_or_region_is_refused(aws: Emulator, tmp_path: Path) -> None:
    """Positions of one table are never used for another, and the data stays as it is."""
    create_table(aws, "invoices")
    create_table(aws, "orders", region="us-east-1")
    config = config_of(aws, tmp_path)
    service = Service(tmp_path / "data", aws.url, datasets=config["datasets"])
    service.start().wait_ready()
    assert service.stop() == 0
    before = (tmp_path / "data" / "replica.duckdb").read_bytes()

    other = json.loads(json.dumps(config))
    other["datasets"][0]["from"] = "dynamodb:invoices"
    told = refused(other, tmp_path)
    assert "orders" in told
    assert "invoices" in told

    elsewhere = json.loads(json.dumps(config))
    elsewhere["datasets"][0]["params"]["dynamodb_aws_region"] = "us-east-1"
    told = refused(elsewhere, tmp_path)
    assert "us-east-1" in told
    assert REGION in told
    assert (tmp_path / "data" / "replica.duckdb").read_bytes() == before


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("where", {"where": "total >"}),
        ("columns", {"columns": [{"name": "total", "type": "DECIMAL(99,2)"}]}),
    ],
    ids=["where", "columns"],
)
def test_a_filter_or_a_type_that_no_data_could_suit_is_named(
    tmp_path: Path, setting: str, said: dict[str, Any]
) -> None:
    """Nothing is written before it is mended, and no table is needed to find it."""
    params = {"dynamodb_aws_region": REGION, "endpoint_url": f"http://127.0.0.1:{free_port()}"}
    config = {
        "datasets": [{"from": "dynamodb:orders", "params": params} | said],
        "runtime": {"data_dir": str(tmp_path / "data")},
    }
    assert f"datasets.orders.{setting}" in refused(config, tmp_path)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("command", "status", "reads_file"),
    [(("sql", "SELECT 1"), 1, True), (("verify", "orders"), 1, True), (("status",), 4, False)],
    ids=["sql", "verify", "status"],
)
def test_where_nothing_is_there_to_ask_each_try_is_named(
    tmp_path: Path, command: tuple[str, ...], status: int, reads_file: bool
) -> None:
    """The address, the file where one would be read, and how to go on; no file is made."""
    port = free_port()
    config = {
        "datasets": [
            {
                "from": "dynamodb:orders",
                "params": {"dynamodb_aws_region": REGION, "endpoint_url": "http://127.0.0.1:1"},
            }
        ],
        "runtime": {"data_dir": str(tmp_path / "data"), "http": {"port": port}},
    }
    path = tmp_path / "dynaduck.yaml"
    path.write_text(json.dumps(config))
    run = dynaduck(*command, "-c", str(path))
    assert run.returncode == status, run.stderr
    assert f"No service answers at http://127.0.0.1:{port}" in run.stderr
    assert (str(tmp_path / "data" / "replica.duckdb") in run.stderr) is reads_file
    for remedy in ("`dynaduck run`", "--url", "-c"):
        assert remedy in run.stderr
    assert "Move the file away" not in run.stderr
    assert not (tmp_path / "data").exists()
