"""Tables whose stream is off: scanned again and again, and the way to a stream and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, running, wait_until

KEY: dict[str, Any] = {
    "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2) as emulator:
        client = emulator.client("dynamodb")
        client.create_table(TableName="orders", **KEY)
        for number in range(30):
            client.put_item(
                TableName="orders", Item={"id": {"S": f"k{number}"}, "n": {"N": str(number)}}
            )
        client.close()
        yield emulator


def service(aws: Emulator, data_dir: Path, mode: str, interval: str = "1s") -> Service:
    dataset = {
        "from": "dynamodb:orders",
        "name": "orders",
        "params": {"dynamodb_aws_region": aws.region},
        "acceleration": {"refresh_mode": mode, "refresh_check_interval": interval},
    }
    return Service(data_dir, aws.url, datasets=[dataset])


def rows(running_service: Service) -> list[tuple[int, int]]:
    found = running_service.sql("SELECT count(*) AS n, sum(n) AS total FROM orders")
    return [(int(row["n"]), int(row["total"])) for row in found]


def test_a_table_without_a_stream_follows_by_scans(aws: Emulator, tmp_path: Path) -> None:
    """New, changed and deleted items show after the next scan; the swap never shows half of one."""
    client = aws.client("dynamodb")
    with running(service(aws, tmp_path / "data", "full")) as run:
        run.wait_ready()
        assert rows(run) == [(30, sum(range(30)))]

        client.delete_item(TableName="orders", Key={"id": {"S": "k1"}})
        client.put_item(TableName="orders", Item={"id": {"S": "k2"}, "n": {"N": "1000"}})
        wait_until(lambda: rows(run) == [(29, sum(range(30)) - 1 - 2 + 1000)])

        assert run.is_ready()
        assert run.sql("SELECT count(*) AS n FROM dynaduck.checkpoints") == [{"n": 0}]
        assert run.stop() == 0
    client.close()


def test_sync_once_is_one_whole_scan(aws: Emulator, tmp_path: Path) -> None:
    """For cron, without a stream: each run scans once and swaps, however long the interval."""
    client = aws.client("dynamodb")
    run = service(aws, tmp_path / "data", "full", "24h")
    command = ("sync", "--once", "-c", str(run.config_path), "--deadline", "60s")
    assert dynaduck(*command).returncode == 0
    client.put_item(TableName="orders", Item={"id": {"S": "new"}, "n": {"N": "1"}})

    again = dynaduck(*command)

    assert again.returncode == 0, again.stderr
    asked = dynaduck(
        "sql", "SELECT count(*) AS n FROM orders", "-c", str(run.config_path), "--format", "csv"
    )
    assert asked.stdout.split() == ["n", "31"], asked.stderr
    client.close()


def test_a_refresh_by_hand_does_not_wait_for_the_interval(aws: Emulator, tmp_path: Path) -> None:
    """`dynaduck refresh` and the endpoint scan at once."""
    client = aws.client("dynamodb")
    with running(service(aws, tmp_path / "data", "full", "24h")) as run:
        run.wait_ready()
        client.put_item(TableName="orders", Item={"id": {"S": "new"}, "n": {"N": "1"}})

        status, _, _ = run.request("POST", "/v1/datasets/orders/acceleration/refresh")

        assert status == 202
        wait_until(lambda: rows(run)[0][0] == 31)
    client.close()


@pytest.mark.slow(20)
def test_a_stream_takes_over_from_scans_and_gives_back(aws: Emulator, tmp_path: Path) -> None:
    """Rows of scans have no positions: a stream begins beside them, and nothing is missed."""
    client = aws.client("dynamodb")
    data = tmp_path / "data"
    with running(service(aws, data, "full")) as run:
        run.wait_ready()
    client.put_item(TableName="orders", Item={"id": {"S": "between"}, "n": {"N": "1"}})

    with running(service(aws, data, "changes")) as run:
        # Without a stream it says so, and serves what it has.
        wait_until(lambda: "stream_disabled" in str(run.get("/v1/ready")[1]))
        assert rows(run)[0][0] == 30
        client.update_table(
            TableName="orders",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        )
        run.wait_ready()
        assert rows(run)[0][0] == 31
        client.delete_item(TableName="orders", Key={"id": {"S": "between"}})
        wait_until(lambda: rows(run)[0][0] == 30)

    with running(service(aws, data, "full")) as run:
        run.wait_ready()
        assert rows(run)[0][0] == 30
    client.close()
