"""`dynaduck verify`: over HTTP while the service runs, from the file while none does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, running

REGION = "eu-west-1"
TABLE = "my-items"


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2, region=REGION) as emulator:
        client = emulator.client("dynamodb")
        client.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        for n in range(40):
            item = {"pk": {"S": f"k{n}"}, "v": {"N": str(n)}, "m": {"M": {"n": {"N": "0.1"}}}}
            client.put_item(TableName=TABLE, Item=item)
        yield emulator


@pytest.fixture
def service(aws: Emulator, tmp_path: Path) -> Service:
    datasets: list[dict[str, Any]] = [{"from": f"dynamodb:{TABLE}", "name": TABLE}]
    return Service(tmp_path / "data", aws.url, datasets=datasets)


def verify(service: Service, *flags: str) -> tuple[int, str]:
    run = dynaduck("verify", TABLE, "-c", str(service.config_path), *flags)
    assert "Traceback" not in run.stderr, run.stderr
    return run.returncode, run.stdout + run.stderr


def tamper(service: Service) -> None:
    """A row lost, one altered, one made up, behind the service's back."""
    connection = duckdb.connect(str(service.data_dir / "replica.duckdb"))
    ((rows,),) = connection.execute(
        "SELECT table_name FROM duckdb_tables()"
        " WHERE schema_name = 'dynaduck' AND contains(table_name, '__rows')"
    ).fetchall()
    for statement in (
        "DELETE FROM {rows} WHERE c0 = 'k1'",
        "UPDATE {rows} SET c1 = 1000 WHERE c0 = 'k2'",
    ):
        connection.execute(statement.format(rows=f'dynaduck."{rows}"'))
    connection.close()


@pytest.mark.slow(60)
@pytest.mark.timeout(180)
def test_what_differs_is_named_and_repaired(service: Service) -> None:
    """Equal live and at rest; differences have status 6 and are mended from the table."""
    with running(service):
        service.wait_ready()
        assert verify(service) == (0, "Source and copy are equal: 40 items compared.\n")
        assert service.stop() == 0
        status, told = verify(service)
        assert (status, told) == (0, "Source and copy are equal: 40 items compared.\n")
        tamper(service)
        status, told = verify(service)
        assert status == 6, told
        assert 'missing {"pk":{"S":"k1"}}' in told
        assert 'value {"pk":{"S":"k2"}} v source {"N": "2"} copy 1000' in told
        assert "differ in 2 of 40 keys: 1 by value, 1 missing, 0 ghosts" in told

        service.start().wait_ready()
        status, told = verify(service, "--repair")
        assert status == 0, told
        assert "2 repaired" in told
        assert verify(service)[0] == 0


def test_repair_needs_a_service(service: Service) -> None:
    """The file is not written behind a service's back, nor without one."""
    with running(service):
        service.wait_ready()
    status, told = verify(service, "--repair")
    assert status != 0
    assert "dynaduck run" in told


def test_an_unknown_dataset_is_named(service: Service) -> None:
    """Configuration first: the sentence names the datasets there are."""
    run = dynaduck("verify", "other", "-c", str(service.config_path))
    assert run.returncode == 2, run.stderr
    assert "other" in run.stderr
    assert TABLE in run.stderr
