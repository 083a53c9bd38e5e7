"""The service in this process, over an emulator whose clock a test moves.

`Served` starts and stops services over one data directory, as a person would restart them; a table
of numbered items is what they copy. Whatever is asked is asked until it comes true: the limits only
bound a hang.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerator.errors import AcceleratorError
from connector.config import load
from connector.service import Service
from emulator import Emulator
from metrics import catalog

TABLE = "orders"
HOUR_S = 3600.0


def create_table(aws: Emulator, table: str = TABLE, view: str = "NEW_AND_OLD_IMAGES") -> None:
    aws.client("dynamodb").create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": view},
    )


def recreate_table(aws: Emulator, table: str = TABLE) -> None:
    """Another table takes the name."""
    aws.client("dynamodb").delete_table(TableName=table)
    create_table(aws, table)


def switch_stream(aws: Emulator, is_on: bool, table: str = TABLE) -> None:
    specification: dict[str, Any] = {"StreamEnabled": is_on}
    if is_on:
        specification["StreamViewType"] = "NEW_AND_OLD_IMAGES"
    aws.client("dynamodb").update_table(TableName=table, StreamSpecification=specification)


def put(aws: Emulator, *keys: str, v: int = 0, table: str = TABLE) -> None:
    """Items with these keys, each with the number `v`."""
    client = aws.client("dynamodb")
    for key in keys:
        client.put_item(TableName=table, Item={"pk": {"S": key}, "v": {"N": str(v)}})


def delete(aws: Emulator, *keys: str, table: str = TABLE) -> None:
    client = aws.client("dynamodb")
    for key in keys:
        client.delete_item(TableName=table, Key={"pk": {"S": key}})


def wait_until(claim: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not claim():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"did not come true within {timeout_s:g} s: {what}")
        time.sleep(0.02)


class Served:
    """One service at a time over `directory`. Settings are those of a dataset's `params` and the
    dataset's own keys; `runtime` those of the section.
    """

    def __init__(
        self,
        directory: Path,
        aws: Emulator,
        *,
        tables: Sequence[str] = (TABLE,),
        params: dict[str, Any] | None = None,
        dataset: dict[str, Any] | None = None,
        runtime: dict[str, Any] | None = None,
    ) -> None:
        self.directory = directory
        self._aws = aws
        self._tables = tables
        self._params = dict(params or {})
        self._dataset = dict(dataset or {})
        self._runtime = {"memory_limit": "400MB"} | dict(runtime or {})
        self._service: Service | None = None

    @property
    def service(self) -> Service:
        assert self._service is not None
        return self._service

    def configure(self, **keys: Any) -> None:
        """Keys of the dataset, for the next start."""
        self._dataset |= keys

    def start(self) -> Served:
        self._service = self.built()
        self._service.start()
        return self

    def built(self) -> Service:
        """A service that is not started: what it reads at its start is read."""
        params = {
            "dynamodb_aws_region": self._aws.region,
            "dynamodb_aws_access_key_id": "test",
            "dynamodb_aws_secret_access_key": "test",
            "endpoint_url": self._aws.url,
        }
        datasets = [
            {
                "from": f"dynamodb:{table}",
                "name": table,
                "params": params | self._params,
                **self._dataset,
            }
            for table in self._tables
        ]
        runtime = {"data_dir": str(self.directory), **self._runtime}
        path = self.directory.parent / f"{self.directory.name}.yaml"
        path.write_text(json.dumps({"datasets": datasets, "runtime": runtime}))  # JSON is YAML
        return Service(load(path, {}, {}))

    def stop(self) -> None:
        if self._service is not None:
            service, self._service = self._service, None
            service.stop()

    # What it says

    def state(self, table: str = TABLE) -> str:
        return str(self.kept(table).health.state.value)

    def codes(self, table: str = TABLE) -> list[str]:
        return [reason.code for reason in self.kept(table).health.reasons]

    def says(self, table: str = TABLE) -> str:
        """Every reason with its remedy."""
        reasons = self.kept(table).health.reasons
        return " ".join(f"{reason.code}: {reason.sentence} {reason.remedy}" for reason in reasons)

    def metric(self, instrument: Any, table: str = TABLE, **labels: str) -> float:
        return self.service.recorder.value(instrument, name=table, **labels) or 0.0

    @property
    def reinitializations(self) -> float:
        return self.metric(catalog.REINITIALIZATIONS)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """As a user's query would see it: a cursor of its own, the last commit."""
        cursor = self.service.database.cursor()
        try:
            with self.service.database.translated():
                return cursor.execute(sql).fetchall()
        finally:
            cursor.close()

    def rows(self, table: str = TABLE) -> dict[str, int]:
        found = self.query(f'SELECT pk, v FROM "{table}"')
        rows = dict(found)
        assert len(rows) == len(found), "a key has two rows"
        return rows

    # Waiting

    def wait_state(self, *states: str, table: str = TABLE) -> Served:
        wait_until(lambda: self.state(table) in states, f"{states}, is {self._told(table)}")
        return self

    def wait_ready(self, table: str = TABLE) -> Served:
        try:
            wait_until(lambda: self.state(table) == "Ready", "Ready")
        except AssertionError as late:
            raise AssertionError(f"{late}; {self._told(table)}") from None
        return self

    def wait_rows(self, expected: dict[str, int], table: str = TABLE) -> Served:
        def are_there() -> bool:
            try:
                return self.rows(table) == expected
            except AcceleratorError:
                return False  # no view yet, or the file is being reopened

        try:
            wait_until(are_there, f"{len(expected)} rows")
        except AssertionError as late:
            raise AssertionError(f"{late}; {self.rows(table)}; {self._told(table)}") from None
        return self

    def _told(self, table: str) -> str:
        return f"{self.state(table)}: {self.says(table)}"

    def kept(self, table: str = TABLE) -> Any:
        found = self.service.replication(table)
        assert found is not None
        return found


@contextmanager
def served(directory: Path, aws: Emulator, **settings: Any) -> Iterator[Served]:
    """Started on entry, stopped on exit; a test may restart it in between."""
    running = Served(directory, aws, **settings).start()
    try:
        yield running
    finally:
        running.stop()
