"""`dynaduck run` with Flight SQL, asked by the ADBC driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import pyarrow.flight as flight
import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, free_port, wait_until
from tests.e2e.test_service import ITEMS, create
from tests.flight_builder import FlightClient

ENDLESS = "SELECT range FROM range(100000000000)"


@pytest.fixture(scope="module")
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2) as emulator:
        yield emulator


def flight_service(aws: Emulator, tmp_path: Path, **runtime: Any) -> tuple[Service, int]:
    port = free_port()
    dataset = {
        "from": "dynamodb:orders",
        "name": "orders",
        "params": {"dynamodb_aws_region": aws.region},
    }
    settings = {"flight": {"enabled": True, "port": port}, **runtime}
    return Service(tmp_path / "data", aws.url, datasets=[dataset], runtime=settings), port


def ask(port: int, sql: str) -> list[tuple[Any, ...]]:
    uri = f"grpc+tcp://127.0.0.1:{port}"
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def test_the_running_service_is_asked_over_flight(aws: Emulator, tmp_path: Path) -> None:
    """Rows, the key, changes as they come, counted by surface; SIGTERM ends it while one reads."""
    client = create(aws)
    service, port = flight_service(aws, tmp_path)
    service.start().wait_ready()
    try:
        assert ask(port, "SELECT count(*) FROM orders") == [(ITEMS,)]
        uri = f"grpc+tcp://127.0.0.1:{port}"
        with dbapi.connect(uri, autocommit=True) as connection:
            assert not connection.adbc_get_table_schema("orders").field("id").nullable
            assert connection.adbc_get_table_schema("orders").field("n").nullable
            client.put_item(TableName="orders", Item={"id": {"S": "new"}, "n": {"N": "7"}})
            wait_until(lambda: ask(port, "SELECT n FROM orders WHERE id = 'new'") == [(7,)])
            assert (
                'dynaduck_queries_total{outcome="ok",surface="flight"}'
                in service.get("/metrics")[1]
            )
        with flight.connect(("127.0.0.1", port)) as slow:
            info = FlightClient(slow, {}).info("CommandStatementQuery", query=ENDLESS)
            reader = slow.do_get(info.endpoints[0].ticket)
            reader.read_chunk()
            assert service.stop(30) == 0
    finally:
        service.stop()


def test_without_the_extra_it_names_the_extra(aws: Emulator, tmp_path: Path) -> None:
    """flight.enabled without protobuf is refused at start, before the data file is opened."""
    hidden = tmp_path / "hidden"
    (hidden / "sitecustomize").mkdir(parents=True)
    (hidden / "sitecustomize" / "__init__.py").write_text(
        "import importlib.util as u\n"
        "real = u.find_spec\n"
        "u.find_spec = lambda name, package=None: (\n"
        "    None if name.startswith('google') else real(name, package))\n"
    )
    service, _ = flight_service(aws, tmp_path)
    path = f"{hidden}:{Path(__file__).parents[2]}"
    refused = dynaduck("run", "-c", str(service.config_path), env={"PYTHONPATH": path})
    assert refused.returncode == 2, refused.stderr
    assert "dynaduck[flight]" in refused.stderr
    assert not service.data_dir.exists()
