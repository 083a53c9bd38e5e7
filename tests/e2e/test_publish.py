"""Published copies of the real service: what a reader with nothing but the file sees."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from emulator import Emulator
from tests.e2e.harness import Service, environment, wait_until
from tests.e2e.test_cli_errors import REGION, create_table

BUCKET = "copies"


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2, region=REGION) as emulator:
        for name in ("orders", "customers"):
            create_table(emulator, name)
        emulator.client("s3", region_name=REGION).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield emulator


def put(aws: Emulator, table: str, pk: str, **attributes: dict[str, Any]) -> None:
    aws.client("dynamodb", region_name=REGION).put_item(
        TableName=table, Item={"pk": {"S": pk}, **attributes}
    )


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=str(path) != ":memory:") as reader:
        return reader.execute(query).fetchall()


def rows_elsewhere(path: Path, query: str) -> str:
    """As another process reads the file: within one, DuckDB gives whoever asks the same file."""
    code = (
        "import duckdb, sys\n"
        "print(duckdb.connect(sys.argv[1], read_only=True).execute(sys.argv[2]).fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), query],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return done.stdout.strip()


def object_of(aws: Emulator, key: str) -> bytes | None:
    client = aws.client("s3", region_name=REGION)
    try:
        body: bytes = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    except client.exceptions.NoSuchKey:
        return None
    return body


@pytest.mark.slow(10)
def test_a_reader_needs_only_the_file(aws: Emulator, tmp_path: Path) -> None:
    """Copies follow the table, each whole and with its positions, on disk and in a bucket; a
    service that is gone leaves them, and what could not be published is a reason and a metric."""
    copies = tmp_path / "out"
    for number in range(20):
        put(aws, "orders", f"o{number}", total={"N": "12.50"}, doc={"M": {"a": {"N": "1"}}})
        put(aws, "customers", f"c{number}")
    orders = {
        "from": "dynamodb:orders",
        "publish": {"every": "1s", "format": "duckdb", "to": str(copies)},
    }
    customers = {
        "from": "dynamodb:customers",
        "publish": {"every": "1s", "format": "parquet", "to": f"s3://{BUCKET}/daily/"},
    }
    service = Service(tmp_path / "data", aws.url, datasets=[orders, customers]).start()
    try:
        file = copies / "orders.duckdb"
        wait_until(file.exists, what="the first copy")
        assert rows(file, "SELECT count(*) FROM orders") == [(20,)]
        assert rows(file, "SELECT typeof(doc), typeof(total) FROM orders LIMIT 1") == [
            ("JSON", "DECIMAL(38,1)")
        ]

        with duckdb.connect(str(file), read_only=True) as kept_open:
            put(aws, "orders", "new", total={"N": "1"})
            wait_until(
                lambda: rows_elsewhere(file, "SELECT count(*) FROM orders") == "[(21,)]",
                what="the next copy",
            )
            assert kept_open.execute("SELECT count(*) FROM orders").fetchall() == [(20,)]
        assert rows(file, "SELECT sum(records) > 0 FROM dynaduck.checkpoints") == [(True,)]
        assert rows(file, "SELECT as_of IS NOT NULL, rows FROM dynaduck.copy") == [(True, 21)]

        wait_until(lambda: object_of(aws, "daily/customers.parquet") is not None, what="S3")
        local = tmp_path / "customers.parquet"
        local.write_bytes(object_of(aws, "daily/customers.parquet") or b"")
        assert rows(Path(":memory:"), f"SELECT count(*) FROM '{local}'") == [(20,)]

        status, _, metrics = service.request("GET", "/metrics")
        assert status == 200
        published = 'dataset_dynamodb_publish_total{name="orders",outcome="published"}'
        assert published in metrics.decode()
        aws.client("s3", region_name=REGION).delete_object(
            Bucket=BUCKET, Key="daily/customers.parquet"
        )
        aws.client("s3", region_name=REGION).delete_bucket(Bucket=BUCKET)
        put(aws, "customers", "more")

        def reasons() -> list[str]:
            found = json.loads(service.request("GET", "/v1/status")[2])["datasets"]
            return [r["code"] for d in found for r in d["reasons"]]

        wait_until(lambda: "publish_failing" in reasons(), what="the reason")
        assert service.request("GET", "/v1/ready")[0] == 200, "a copy is no part of readiness"
    finally:
        assert service.stop() == 0, service.log()
    assert rows(file, "SELECT count(*) FROM orders") == [(21,)]
    assert [path.name for path in copies.iterdir()] == ["orders.duckdb"]
