"""Two datasets of one table in one process: both right, also after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, running, wait_until
from tests.e2e.test_service import create, item

pytestmark = pytest.mark.uses_duckdb


@pytest.mark.slow(10)
def test_two_datasets_of_one_table_follow_one_stream(tmp_path: Path) -> None:
    """Each has its own filter and positions; after a kill each resumes from its own."""
    with Emulator(shards=2) as aws:
        client = create(aws, items=30)
        params = {"dynamodb_aws_region": aws.region}
        both = [
            {"from": "dynamodb:orders", "name": "everything", "params": dict(params)},
            {"from": "dynamodb:orders", "name": "large", "where": "n >= 100", "params": params},
        ]
        service = Service(tmp_path / "data", aws.url, datasets=both)

        def write(first: int, last: int) -> None:
            for number in range(first, last):
                client.put_item(TableName="orders", Item=item(number))

        def holds(everything: int, large: int) -> None:
            for name, rows in (("everything", everything), ("large", large)):
                wait_until(
                    lambda name=name, rows=rows: (  # type: ignore[misc]
                        service.sql(f"SELECT count(*) AS n FROM {name}") == [{"n": rows}]
                    ),
                    what=f"{name} has {rows} rows",
                )

        with running(service):
            service.wait_ready()
            write(90, 120)
            holds(60, 20)
            service.kill()
            write(120, 140)
            service.start().wait_ready()
            client.delete_item(TableName="orders", Key={"id": {"S": "k110"}})
            holds(79, 39)
            assert service.stop() == 0
