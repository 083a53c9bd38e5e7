"""The comparison against real rows: random items through Scan and the dataset, then tampered with.

The dataset decodes in SQL, the comparison in Python; they share no line. So this holds both to the
rules of the types, and shows that a wrong row in the real table is seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from accelerator.batch import Batch
from accelerator.choice import Misfit
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from connector.aws.source import AwsSettings, AwsSource
from connector.clock import SystemClock
from connector.compare.replica import Answer, SqlReplica
from connector.compare.shape import Shape
from connector.compare.verify import Kind, Report, Rules, Verification
from connector.snapshot.scanner import new_segments
from connector.source import TableDescription
from emulator import Emulator
from tests.faults.workload import ATTRIBUTES, TABLE, Item, create_table, key_of, value_of

ITEMS = 300
SLICE = 30  # small groups, so that columns widen under rows that are there
ATTRIBUTE_NAMES = tuple(ATTRIBUTES)


@dataclass(slots=True)
class Loaded:
    """A source, and the database that holds its copy."""

    source: AwsSource
    table: TableDescription
    database: Database

    def compare(self, shape: Shape | None = None) -> Report:
        replica = SqlReplica(TABLE, self.table.key_schema, DatabaseAsk(self.database))
        return Verification(
            self.source,
            replica,
            self.table.key_schema,
            SystemClock(),
            shape=shape,
            rules=Rules(max_rounds=1),
        ).run()

    def tamper(self, statement: str) -> None:
        ((rows,),) = (
            self.database.writer
            .execute(
                "SELECT table_name FROM duckdb_tables()"
                " WHERE schema_name = 'dynaduck' AND contains(table_name, '__rows')"
            )
            .fetchall()
        )  # fmt: skip
        self.database.writer.execute(statement.format(rows=f'dynaduck."{rows}"'))


class DatabaseAsk:
    is_live = False

    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, query: str) -> Answer:
        return Answer(self._database.cursor().sql(query).to_arrow_table(), None)


def random_item(rng: random.Random, number: int) -> Item:
    names = rng.sample(ATTRIBUTE_NAMES, rng.randint(0, len(ATTRIBUTE_NAMES)))
    values = {name: value_of(rng, ATTRIBUTES[name]) for name in names}
    return key_of((f"k{number % 7}", number)) | {"v": {"N": str(number)}} | values


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=1) as emulator:
        create_table(emulator)
        yield emulator


def load(
    aws: Emulator, tmp_path: Path, items: list[Item], spec: DatasetSpec | None = None
) -> Loaded:
    client = aws.client("dynamodb")
    for start in range(0, len(items), 25):
        some = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
        client.batch_write_item(RequestItems={TABLE: some})
    source = AwsSource(
        AwsSettings(
            TABLE,
            region=aws.region,
            access_key_id="test",
            secret_access_key="test",
            endpoint_url=aws.url,
        )
    )
    table = source.describe_table()
    database = Database.open(tmp_path / "replica.duckdb", memory_limit_bytes=500_000_000)
    dataset = Dataset(database, spec or DatasetSpec(TABLE))
    dataset.load()
    generation = dataset.begin(
        table.identity(),
        origin_ms=table.at_ms,
        shards=(),
        segments=new_segments(1),
        shadow=False,
        positions_generation=None,
        snapshot=True,
    )
    page = source.scan(0, 1, None, consistent=True)
    assert page.last_evaluated_key is None
    for start in range(0, page.changes.num_rows, SLICE):
        ticket = dataset.open_scan_ticket()
        dataset.apply([Batch(page.changes.slice(start, SLICE), generation, scan_ticket=ticket)])
        dataset.close_scan_ticket(ticket)
    return Loaded(source, table, database)


@pytest.mark.parametrize("seed", range(3))
def test_random_items_are_equal_to_their_rows(aws: Emulator, tmp_path: Path, seed: int) -> None:
    """Every type, mixed types, climbing numbers, odd names: SQL shows what DynamoDB holds."""
    rng = random.Random(seed)
    loaded = load(aws, tmp_path, [random_item(rng, number) for number in range(ITEMS)])
    report = loaded.compare()
    assert report.differences == []
    assert report.equal == ITEMS
    loaded.database.close()


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM {rows} WHERE c1 = 3", Kind.MISSING),
        ("INSERT INTO {rows} FROM {rows} WHERE c1 = 3", Kind.DUPLICATE),
        ("UPDATE {rows} SET c2 = c2 + 1 WHERE c1 = 3", Kind.VALUE),
        ("UPDATE {rows} SET c2 = NULL WHERE c1 = 3", Kind.VALUE),
        ("INSERT INTO {rows} SELECT * REPLACE (99 AS c1) FROM {rows} WHERE c1 = 3", Kind.GHOST),
    ],
)
def test_a_wrong_row_is_seen(aws: Emulator, tmp_path: Path, statement: str, kind: Kind) -> None:
    """Lost, doubled, altered, emptied or made up: one row among equals is found and named."""
    items = [key_of(("k", n)) | {"v": {"N": str(n)}} for n in range(9)]
    loaded = load(aws, tmp_path, items)
    loaded.tamper(statement)
    report = loaded.compare()
    assert [found.kind for found in report.differences] == [kind]
    assert report.exit_status == 6
    loaded.database.close()


KEYS = frozenset({"pk", "sk"})


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (
            DatasetSpec(TABLE, include=("amount", "nested")),
            Shape(KEYS, include=frozenset({"amount", "nested"})),
        ),
        (
            DatasetSpec(TABLE, exclude=("amount", "a.b", "pk")),
            Shape(KEYS, exclude=frozenset({"amount", "a.b", "pk"})),
        ),
        (DatasetSpec(TABLE, unnest_depth=2), Shape(KEYS, unnest_depth=2)),
        (
            DatasetSpec(TABLE, where="v % 3 = 0 AND plain IS NOT NULL"),
            Shape(KEYS, where="v % 3 = 0 AND plain IS NOT NULL"),
        ),
        (
            DatasetSpec(TABLE, where="len(tags) = 1 OR \"Plain\" = ''"),
            Shape(KEYS, where="len(tags) = 1 OR \"Plain\" = ''"),
        ),
    ],
    ids=["include", "exclude", "unnest", "where", "where-sets"],
)
def test_shaped_rows_are_equal(
    aws: Emulator, tmp_path: Path, spec: DatasetSpec, shape: Shape
) -> None:
    """What the settings choose, unnest and filter is compared, and what they leave out is not."""
    rng = random.Random(7)
    items = [random_item(rng, number) for number in range(ITEMS)]
    loaded = load(aws, tmp_path, items, spec)
    report = loaded.compare(shape)
    assert report.differences == []
    assert report.equal == ITEMS
    assert loaded.compare(Shape(KEYS)).differing > 0, "the settings made a difference"
    loaded.database.close()


PINS = (
    ("price", "DECIMAL(10,2)"),
    ("ratio", "DOUBLE"),
    ("count", "INTEGER"),
    ("at", "TIMESTAMP"),
    ("since", "TIMESTAMPTZ"),
    ("day", "DATE"),
    ("uid", "UUID"),
    ("text", "VARCHAR"),
    ("list", "BIGINT[]"),
)
PINNED: tuple[Item, ...] = (
    {
        "price": {"N": "1.5"}, "ratio": {"N": "0.1"}, "count": {"N": "7"},
        "at": {"S": "2024-02-29T12:30:00.123456Z"}, "since": {"S": "2024-02-29T12:30:00+02:00"},
        "day": {"S": "2024-02-29"}, "uid": {"S": "6F9619FF-8B86-D011-B42D-00C04FC964FF"},
        "text": {"N": "10.50"}, "list": {"L": [{"N": "1"}, {"N": "2"}]},
    },
    {"at": {"N": "1709209800"}, "since": {"N": "1709209800123"}, "day": {"N": "1709164800"}},
    {"at": {"S": "2024-02-29 12:30:00"}, "list": {"NS": ["2", "1"]}, "uid": {"NULL": True}},
)  # fmt: skip
MISFITS: tuple[Item, ...] = (
    {"price": {"N": "1.555"}, "count": {"S": "many"}, "uid": {"S": "x"}, "day": {"S": "soon"}},
)


def test_pinned_columns_are_equal(aws: Emulator, tmp_path: Path) -> None:
    """Times, dates, identifiers, doubles and typed lists, and NULL where a value does not fit."""
    items = [
        key_of(("k", n)) | values | {"v": {"N": "1"}}
        for n, values in enumerate([*PINNED, *MISFITS])
    ]
    spec = DatasetSpec(TABLE, pins=PINS, misfit=Misfit.NULL)
    loaded = load(aws, tmp_path, items, spec)
    report = loaded.compare(Shape(KEYS, null_misfits=True))
    assert report.differences == []
    strict = loaded.compare(Shape(KEYS))
    assert {found.attribute for found in strict.differences} == {"price", "count", "uid", "day"}
    loaded.database.close()
