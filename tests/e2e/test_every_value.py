"""The oracle: random items through the service, and every value that comes out compared.

Half of the items are in the table before the service starts, half come over the stream; then the
rows are read over HTTP as JSON, over HTTP as Arrow, and by SQL from the file, and each value is
held against `tests.oracle`, which shares no line with the product.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from emulator import Emulator
from tests import oracle
from tests.e2e.harness import Service, running, wait_until
from tests.random_items import Item, Items, Writer, extremes

REGION = "eu-west-1"
PATIENCE_S = 240
KEYS: dict[str, list[tuple[str, str]]] = {
    "by_text": [("pk", "S"), ("sk", "N")],
    "by_number": [("Id", "N")],
    "by_bytes": [("b k", "B"), ("B K", "B")],
}
Row = dict[str, Any]


def create_table(aws: Emulator, name: str, key: Sequence[tuple[str, str]]) -> None:
    roles = ("HASH", "RANGE")
    aws.client("dynamodb", region_name=REGION).create_table(
        TableName=name,
        KeySchema=[
            {"AttributeName": n, "KeyType": role} for (n, _), role in zip(key, roles, strict=False)
        ],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": t} for n, t in key],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )


class Truth:
    """One table and what is in it."""

    def __init__(self, aws: Emulator, name: str, key: Sequence[tuple[str, str]], seed: int) -> None:
        self.name = name
        self.key = key
        self.rows: dict[tuple[str, ...], Item] = {}
        self._items = Items(seed, key)
        self._writer = Writer(aws.url, name)
        create_table(aws, name, key)

    def key_of(self, item: Item) -> tuple[str, ...]:
        return tuple(oracle.key_value(item, name) for name, _ in self.key)

    def put(self, items: Sequence[Item]) -> None:
        self._writer.put(items)
        self.rows.update((self.key_of(item), item) for item in items)

    def put_new(self, count: int) -> None:
        self.put([self._items.item() for _ in range(count)])

    def change_and_delete(self, count: int) -> None:
        """Overwrites some items with others, and removes some."""
        known = list(self.rows.values())
        self.put([self._items.again(item) for item in known[:count]])
        gone = known[-count:]
        self._writer.delete(self._items.key_of(item) for item in gone)
        for item in gone:
            del self.rows[self.key_of(item)]


def columns_of(ask: Callable[[str], list[Row]], table: str) -> dict[str, tuple[str, str]]:
    """Attribute to (column, type)."""
    rows = ask(
        f"SELECT attribute, column_name, type FROM dynaduck.columns WHERE dataset = '{table}'"
    )
    return {row["attribute"]: (row["column_name"], row["type"]) for row in rows}


def differences(
    truth: Truth,
    columns: dict[str, tuple[str, str]],
    rows: Sequence[Row],
    shown: Callable[[Any, str], Any],
) -> Iterator[str]:
    """What is not as the oracle says. `shown` makes of a cell what `oracle.expected` gives."""
    keys = [columns[name] for name, _ in truth.key]
    found = set()
    for row in rows:
        key = tuple(_key_text(shown(row[column], kind)) for column, kind in keys)
        item = truth.rows.get(key)
        if item is None or key in found:
            yield f"{truth.name} {key}: {'twice' if key in found else 'a ghost'}"
            continue
        found.add(key)
        rest = {name: value for name, value in item.items() if name not in columns}
        for attribute, (column, kind) in columns.items():
            cell = row[column]
            if attribute not in item and cell is None:
                continue
            wanted = oracle.expected(item.get(attribute), kind)
            got = None if cell is None else shown(cell, kind)
            if got != wanted or isinstance(got, bool) != isinstance(wanted, bool):
                yield f"{truth.name} {key} {attribute!r} {kind}: {got!r:.200}, not {wanted!r:.200}"
        extra = row.get("_extra")
        got = {} if extra is None else shown(extra, "JSON")
        wanted = {name: oracle.expected(value, "JSON") for name, value in rest.items()}
        if got != wanted:
            wrong = [name for name in got | wanted if got.get(name) != wanted.get(name)]
            yield f"{truth.name} {key} _extra: {sorted(wrong)!r:.200} of {len(got)}"
    yield from (f"{truth.name} {key}: missing" for key in truth.rows.keys() - found)


def _key_text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else oracle.number_text(str(value))


def from_json(cell: Any, kind: str) -> Any:
    """A cell of an HTTP JSON answer whose numbers were parsed exactly."""
    if kind == "BLOB":
        return base64.b64decode(cell)
    if kind == "BLOB[]":
        return [base64.b64decode(each) for each in cell]
    return cell


def from_arrow(cell: Any, kind: str) -> Any:
    """A cell of an Arrow answer, or of DuckDB's own."""
    return oracle.parse_json(cell) if kind == "JSON" else cell


def ask_arrow(service: Service, query: str) -> list[Row]:
    kind = "application/vnd.apache.arrow.stream"
    status, _, body = service.request("POST", "/v1/sql", query, accept=kind)
    assert status == 200, body
    with pa.ipc.open_stream(body) as reader:
        rows: list[Row] = reader.read_all().to_pylist()
    return rows


def ask_json(service: Service, query: str) -> list[Row]:
    status, _, body = service.request("POST", "/v1/sql", query)
    assert status == 200, body
    rows: list[Row] = json.loads(body, parse_int=Decimal, parse_float=Decimal)
    return rows


def ask_file(data_dir: Path, query: str) -> list[Row]:
    with duckdb.connect(str(data_dir / "replica.duckdb"), read_only=True) as connection:
        result = connection.execute(query)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def compare_all(aws: Emulator, data_dir: Path, count: int, seed: int) -> None:
    """`count` items over all tables; raises on the first differences."""
    truths = [Truth(aws, name, key, seed + n) for n, (name, key) in enumerate(KEYS.items())]
    largest = Truth(aws, "largest", [("pk", "S")], seed)
    each = count // len(truths) // 2 + 1
    for truth in truths:
        truth.put_new(each)
    edges = extremes()
    largest.put(edges[::2])
    everything = [*truths, largest]
    datasets: list[Row] = [{"from": f"dynamodb:{truth.name}"} for truth in everything]
    datasets[-1]["max_columns"] = 100
    service = Service(data_dir, aws.url, datasets=datasets, runtime={"query": {"timeout": "5m"}})
    with running(service):
        service.wait_ready(PATIENCE_S)
        for truth in truths:
            truth.put_new(each)
            truth.change_and_delete(each // 20)
        largest.put(edges[1::2])
        for truth in everything:
            wait_until(partial(_has_all, service, truth), PATIENCE_S, f"all of {truth.name}")
        assert service.sql("SELECT count(*) AS n FROM dynaduck.dead_letters") == [{"n": 0}]
        found: list[str] = []
        for truth in everything:
            for ask, shown in ((ask_json, from_json), (ask_arrow, from_arrow)):
                columns, rows = _at_rest(service, truth, ask)
                found += differences(truth, columns, rows, shown)
        assert service.stop() == 0
    for truth in everything:
        columns = columns_of(partial(ask_file, data_dir), truth.name)
        rows = ask_file(data_dir, f"SELECT * FROM {truth.name}")
        found += differences(truth, columns, rows, from_arrow)
    assert not found, (len(found), found[:20])


def _at_rest(
    service: Service, truth: Truth, ask: Callable[[Service, str], list[Row]]
) -> tuple[dict[str, tuple[str, str]], list[Row]]:
    """Columns and rows that belong together: attributes in _extra may get columns meanwhile."""
    for _ in range(50):
        columns = columns_of(service.sql, truth.name)
        rows = ask(service, f"SELECT * FROM {truth.name}")
        if columns_of(service.sql, truth.name) == columns:
            return columns, rows
    raise AssertionError(f"the columns of {truth.name} do not come to rest")


def _has_all(service: Service, truth: Truth) -> bool:
    """The last write of each table is a put; rows alone do not tell that changes are through."""
    [row] = service.sql(f"SELECT count(*) AS n FROM {truth.name}")
    return bool(row["n"] == len(truth.rows)) and service.is_ready()


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=4, region=REGION) as emulator:
        yield emulator


@pytest.mark.slow(20)
@pytest.mark.timeout(600)
def test_twenty_thousand_random_items_read_back_equal(aws: Emulator, tmp_path: Path) -> None:
    """Over HTTP as JSON and as Arrow and by SQL, from snapshot and stream: no difference at all."""
    compare_all(aws, tmp_path / "data", 20_000, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_million_random_items_read_back_equal(aws: Emulator, tmp_path: Path, seed: int) -> None:
    """Twenty thousand of each seed; a seed that differed once is run again by its number."""
    compare_all(aws, tmp_path / "data", 20_000, seed=seed)
