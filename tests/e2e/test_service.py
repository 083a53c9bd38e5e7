"""`dynaduck run` and `dynaduck sync` from outside: what a user does on the first day."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, running, wait_until

SEED_METRICS = {
    "dataset_dynamodb_shards_active": "gauge",
    "dataset_dynamodb_records_consumed": "counter",
    "dataset_dynamodb_lag_ms": "gauge",
    "dataset_dynamodb_errors_transient": "counter",
    "dataset_dynamodb_reinitializations_on_lag_exceeds_shard_retention": "counter",
}
ITEMS = 400


def create(aws: Emulator, table: str = "orders", items: int = ITEMS, padding: int = 0) -> Any:
    client = aws.client("dynamodb")
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    for first in range(0, items, 25):
        puts = [
            {"PutRequest": {"Item": item(number, padding)}}
            for number in range(first, min(first + 25, items))
        ]
        client.batch_write_item(RequestItems={table: puts})
    return client


def item(number: int, padding: int = 0) -> dict[str, Any]:
    return {
        "id": {"S": f"k{number}"},
        "n": {"N": str(number)},
        **({"padding": {"S": "x" * padding}} if padding else {}),
    }


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=4) as emulator:
        yield emulator


def service(
    aws: Emulator, tmp_path: Path, runtime: dict[str, Any] | None = None, **params: Any
) -> Service:
    dataset = {
        "from": "dynamodb:orders",
        "name": "orders",
        "params": {"dynamodb_aws_region": aws.region, **params},
    }
    return Service(tmp_path / "data", aws.url, datasets=[dataset], runtime=runtime)


def total(running_service: Service) -> tuple[int, int]:
    (row,) = running_service.sql("SELECT count(*) AS n, sum(n)::BIGINT AS total FROM orders")
    return int(row["n"]), int(row["total"])


@pytest.mark.slow(20)
def test_a_table_is_copied_followed_and_queried(aws: Emulator, tmp_path: Path) -> None:
    """The first day: snapshot, Ready, a change that shows, status, metrics, a clean end."""
    client = create(aws)
    with running(service(aws, tmp_path)) as dynaduck_run:
        dynaduck_run.wait_ready()
        assert total(dynaduck_run) == (ITEMS, sum(range(ITEMS)))

        client.put_item(TableName="orders", Item=item(5000))
        client.delete_item(TableName="orders", Key={"id": {"S": "k0"}})
        wait_until(lambda: total(dynaduck_run) == (ITEMS, sum(range(ITEMS)) + 5000))

        status, headers, _ = dynaduck_run.request("POST", "/v1/sql", "SELECT 1 FROM orders")
        assert (status, headers["X-Dynaduck-State"]) == (200, "Ready")
        assert headers["X-Dynaduck-As-Of"].endswith("Z")
        document = dynaduck_run.get("/v1/status")[1]
        assert document["datasets"][0]["rows"] == ITEMS
        assert len(document["datasets"][0]["shards"]) == 4

        told = dynaduck("status", "-c", str(dynaduck_run.config_path), "--json")
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout)["ready"] is True
        asked = dynaduck(
            "sql", "SELECT count(*) AS n FROM orders", "-c", str(dynaduck_run.config_path),
            "--format", "csv",
        )  # fmt: skip
        assert asked.stdout.split() == ["n", str(ITEMS)], asked.stderr
        assert dynaduck_run.stop() == 0
    # With none running, the file answers.
    asked = dynaduck(
        "sql", "SELECT count(*) AS n FROM orders", "-c", str(dynaduck_run.config_path),
        "--format", "csv",
    )  # fmt: skip
    assert asked.stdout.split() == ["n", str(ITEMS)], asked.stderr
    client.close()


@pytest.mark.slow(10)
def test_what_it_did_is_in_the_task_history(aws: Emulator, tmp_path: Path) -> None:
    """Loads, their segments, applies and queries are rows, children under their parents."""
    client = create(aws)
    with running(service(aws, tmp_path)) as run:
        run.wait_ready()
        run.sql("SELECT count(*) AS n FROM orders")
        assert run.request("POST", "/v1/sql", "DROP TABLE orders")[0] == 403
        client.put_item(TableName="orders", Item=item(5000))
        wait_until(lambda: total(run)[0] == ITEMS + 1)
        run.stop()
    asked = dynaduck(
        "sql", "SELECT task, span_id, parent_span_id, execution_duration_ms, error_message, "
        "input, captured_output, labels::JSON AS labels "
        "FROM runtime.task_history", "-c", str(run.config_path), "--format", "json",
    )  # fmt: skip
    spans = json.loads(asked.stdout)
    tasks = {span["task"] for span in spans}
    assert {"acceleration_refresh", "scan_segment", "changes_stream", "apply", "poll"} <= tasks
    asked_for = {s["input"]: s for s in spans if s["task"] == "sql_query"}
    counted = asked_for["SELECT count(*) AS n FROM orders"]
    assert counted["captured_output"] == "1 rows"
    assert counted["labels"]["client"].startswith("127.0.0.1:")
    refused = asked_for["DROP TABLE orders"]
    assert refused["labels"]["outcome"] == "rejected"
    assert "DROP" in refused["error_message"]
    (load,) = [span for span in spans if span["task"] == "acceleration_refresh"]
    segments = [span for span in spans if span["task"] == "scan_segment"]
    assert len(segments) == 4
    assert {segment["parent_span_id"] for segment in segments} == {load["span_id"]}
    assert all(span["execution_duration_ms"] >= 0 for span in spans)
    client.close()


def test_the_seed_metrics_have_their_names(aws: Emulator, tmp_path: Path) -> None:
    """Dashboards made for the seed's connector work; the exposition is OpenMetrics."""
    client = create(aws)
    with running(service(aws, tmp_path)) as dynaduck_run:
        dynaduck_run.wait_ready()
        client.put_item(TableName="orders", Item=item(7))
        wait_until(lambda: "records_consumed_total{" in dynaduck_run.metrics())
        accept = "application/openmetrics-text; version=1.0.0"
        _, _, body = dynaduck_run.request("GET", "/metrics", accept=accept)
    families = {f.name: f for f in text_string_to_metric_families(body.decode())}
    for name, kind in SEED_METRICS.items():
        assert families[name].type == kind
        assert {s.labels["name"] for s in families[name].samples} == {"orders"}
    client.close()


def test_a_restart_scans_nothing_and_misses_nothing(aws: Emulator, tmp_path: Path) -> None:
    """A checkpoint is resumed: no Scan, and what was written meanwhile is there."""
    client = create(aws)
    run = service(aws, tmp_path)
    with running(run):
        run.wait_ready()
        assert run.stop() == 0
    scans = aws.calls.count("Scan")
    client.put_item(TableName="orders", Item=item(5000))
    with running(run):
        run.wait_ready()
        wait_until(lambda: total(run)[0] == ITEMS + 1)
        assert aws.calls.count("Scan") == scans
    client.close()


@pytest.mark.slow(20)
@pytest.mark.situation(36)
@pytest.mark.situation(78)
def test_a_killed_snapshot_goes_on_from_its_segments(aws: Emulator, tmp_path: Path) -> None:
    """SIGKILL in the middle of the scan: pages that were committed are not read again."""
    client = create(aws, items=60, padding=100_000)  # about ten items a page
    run = service(aws, tmp_path, scan_segments=2, scan_max_rcu=300)
    with running(run):
        kills = 0
        while kills < 3:
            before = aws.calls.count("Scan")
            wait_until(lambda before=before: aws.calls.count("Scan") >= before + 2)  # type: ignore[misc]
            run.kill()
            kills += 1
            run.start()
        run.wait_ready()
        assert total(run) == (60, sum(range(60)))
    pages = 60 * 100_000 // 1_000_000 + 2
    # One probe of access; for each kill at most the pages in flight of two segments are repeated.
    assert aws.calls.count("Scan") <= 1 + pages + 2 * 2 * kills + 2
    starts = {call.params["TotalSegments"] for call in aws.calls.calls("Scan")} - {1_000_000}
    assert starts == {2}
    client.close()


@pytest.mark.situation(50)
def test_a_snapshot_may_last_longer_than_the_stream_keeps(tmp_path: Path) -> None:
    """The stream is drained meanwhile, so a retention shorter than the scan loses nothing."""
    with Emulator(shards=2, retention_s=2.0) as aws:
        client = create(aws, items=40, padding=100_000)
        run = service(aws, tmp_path, scan_segments=2, scan_max_rcu=130)
        with running(run):
            changed = 0
            while not run.is_ready():
                client.put_item(TableName="orders", Item=item(changed % 40))
                changed += 1
                aws.control.trim("orders")
                assert changed < 20_000
            wait_until(lambda: total(run) == (40, sum(range(40))))
            assert run.sql("SELECT count(*) AS n FROM dynaduck.gaps") == [{"n": 0}]
        client.close()


@pytest.mark.slow(20)
def test_sync_once_catches_up_and_exits(aws: Emulator, tmp_path: Path) -> None:
    """For cron: 0 when caught up, 3 when the deadline came first, and the next run goes on."""
    client = create(aws)
    run = service(aws, tmp_path)
    command = ("sync", "--once", "-c", str(run.config_path))

    late = dynaduck(*command, "--deadline", "1ms")
    assert late.returncode == 3, late.stderr
    assert "not caught up" in late.stderr
    done = dynaduck(*command)
    assert done.returncode == 0, done.stderr
    client.put_item(TableName="orders", Item=item(5000))
    again = dynaduck(*command)
    assert again.returncode == 0, again.stderr

    asked = dynaduck("sql", "SELECT sum(n) AS t FROM orders", "-c", str(run.config_path),
                     "--format", "csv")  # fmt: skip
    assert asked.stdout.split() == ["t", str(sum(range(ITEMS)) + 5000)], asked.stderr
    client.close()


def test_without_a_snapshot_only_changes_are_copied(aws: Emulator, tmp_path: Path) -> None:
    """initial_snapshot: disabled streams from the start on, and scans nothing."""
    client = create(aws)
    aws.control.advance(5.0)
    with running(service(aws, tmp_path, dynamodb_replication_initial_snapshot="disabled")) as run:
        run.wait_ready()
        client.put_item(TableName="orders", Item=item(9000))
        wait_until(lambda: run.sql("SELECT id FROM orders") == [{"id": "k9000"}])
        assert aws.calls.count("Scan") == 0
    client.close()


@pytest.mark.slow(10)
def test_always_scans_at_every_start_and_serves_the_old_rows(aws: Emulator, tmp_path: Path) -> None:
    """initial_snapshot: always loads a shadow at each start; Ready follows the data there is."""
    client = create(aws)
    run = service(aws, tmp_path, dynamodb_replication_initial_snapshot="always")
    with running(run):
        run.wait_ready()
    scans = aws.calls.count("Scan")
    with running(run):
        run.wait_ready()
        assert total(run) == (ITEMS, sum(range(ITEMS)))
        wait_until(lambda: aws.calls.count("Scan") > scans)
        generation = "SELECT generation FROM dynaduck.datasets"
        wait_until(lambda: run.sql(generation) == [{"generation": 2}])
        assert total(run) == (ITEMS, sum(range(ITEMS)))
    client.close()


@pytest.mark.slow(10)
def test_sigterm_applies_all_that_was_read(aws: Emulator, tmp_path: Path) -> None:
    """Exit status 0 means drained; what was not read yet comes at the next start."""
    client = create(aws)
    run = service(aws, tmp_path)
    with running(run):
        run.wait_ready()
        for number in range(300):
            client.put_item(TableName="orders", Item=item(1000 + number))
        assert run.process is not None
        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(60) == 0
    with running(run):
        run.wait_ready()
        wait_until(lambda: total(run)[0] == ITEMS + 300)
    client.close()


@pytest.mark.slow(20)
def test_pausing_stops_reading_and_resuming_misses_nothing(aws: Emulator, tmp_path: Path) -> None:
    """The data stays queryable, Ready is revoked, and the reason says by whom."""
    client = create(aws)
    with running(service(aws, tmp_path)) as run:
        run.wait_ready()
        config = str(run.config_path)
        assert dynaduck("pause", "orders", "-c", config).returncode == 0
        wait_until(lambda: "paused" in json.dumps(run.get("/v1/ready")[1]))
        client.put_item(TableName="orders", Item=item(5000))
        reads = aws.calls.count("GetRecords")
        assert total(run)[0] == ITEMS
        wait_until(lambda: not run.is_ready())
        assert aws.calls.count("GetRecords") <= reads + 8  # those in flight
        assert dynaduck("resume", "orders", "-c", config).returncode == 0
        run.wait_ready()
        wait_until(lambda: total(run)[0] == ITEMS + 1)
    client.close()


def test_a_refresh_by_hand_swaps_in_a_new_load(aws: Emulator, tmp_path: Path) -> None:
    """The rows stay, the generation is new, and queries meanwhile get answers."""
    client = create(aws)
    with running(service(aws, tmp_path)) as run:
        run.wait_ready()
        assert dynaduck("refresh", "orders", "-c", str(run.config_path)).returncode == 0
        generation = "SELECT generation FROM dynaduck.datasets"

        def swapped() -> bool:
            assert total(run) == (ITEMS, sum(range(ITEMS)))
            return run.sql(generation) == [{"generation": 2}]

        wait_until(swapped)
        assert run.is_ready()
    client.close()


def test_two_tables_are_kept_by_one_service(aws: Emulator, tmp_path: Path) -> None:
    """Each has its own state, metrics and view; one that does not exist does not stop the other."""
    client = create(aws)
    other = create(aws, table="users", items=50)
    datasets = [
        {"from": f"dynamodb:{table}", "name": table, "params": {"dynamodb_aws_region": aws.region}}
        for table in ("orders", "users")
    ]
    with running(Service(tmp_path / "data", aws.url, datasets=datasets)) as run:
        run.wait_ready()
        assert total(run)[0] == ITEMS
        assert run.sql("SELECT count(*) AS n FROM users") == [{"n": 50}]
        joined = run.sql("SELECT count(*) AS n FROM orders JOIN users USING (id)")
        assert joined == [{"n": 50}]
    client.close()
    other.close()
