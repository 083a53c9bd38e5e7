"""Flight SQL as the ADBC driver speaks it: a client that is not ours."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as dbapi
import pandas as pd
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from adbc_driver_manager import NotSupportedError, OperationalError, ProgrammingError

from accelerator.database import Database
from connector.surface.flight.server import FlightBind
from connector.surface.server import Bind
from tests.flight_builder import ServedFlight, serving_flight
from tests.query_builder import ROWS, data_file

TOKEN = "a-long-random-token"
BUSY = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("adbc")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[ServedFlight]:
    with serving_flight(database) as surface:
        yield surface


@pytest.fixture
def connection(served: ServedFlight) -> Iterator[Any]:
    with dbapi.connect(served.uri, autocommit=True) as opened:
        yield opened


def test_rows_are_fetched(connection: Any) -> None:
    """As Python's values and as an Arrow table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, name, total FROM orders ORDER BY id LIMIT 2")
        assert cursor.fetchall() == [(0, "name 0", Decimal("0.00")), (1, "name 1", Decimal("1.10"))]
        cursor.execute("FROM orders")
        assert cursor.fetch_arrow_table().num_rows == ROWS


def test_parameters_are_bound(connection: Any) -> None:
    """By position, with their types; executed again with other values."""
    with connection.cursor() as cursor:
        for low in (997, 998):
            cursor.execute("SELECT id FROM orders WHERE id > ? ORDER BY id", (low,))
            assert cursor.fetchall() == [(n,) for n in range(low + 1, ROWS)]
        cursor.execute("SELECT ? + 1, ?, ?", (1, "é", date(2026, 1, 2)))
        assert cursor.fetchall() == [(2, "é", date(2026, 1, 2))]


def test_pandas_reads_a_query(connection: Any) -> None:
    """read_sql takes the connection as it is."""
    frame = pd.read_sql("SELECT id, total FROM orders ORDER BY id LIMIT 2", connection)
    assert frame["id"].tolist() == [0, 1]
    assert frame["total"].tolist() == [Decimal("0.00"), Decimal("1.10")]


def test_objects_are_listed(connection: Any) -> None:
    """get_objects, get_table_schema, get_table_types, get_info."""
    (catalog,) = connection.adbc_get_objects(
        depth="all", table_name_filter="orders"
    ).read_all().to_pylist()  # fmt: skip
    tables = {
        table["table_name"]: [column["column_name"] for column in table["table_columns"]]
        for schema in catalog["catalog_db_schemas"]
        for table in schema["db_schema_tables"] or []
    }
    assert tables == {"orders": ["id", "name", "total", "doc", "made"]}
    assert connection.adbc_get_table_schema("orders").names == tables["orders"]
    assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE"]
    assert connection.adbc_get_info()["vendor_name"] == "dynaduck"


def test_the_schema_is_known_before(connection: Any) -> None:
    """adbc_execute_schema and adbc_prepare run nothing."""
    with connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(BUSY).names == ["count_star()"]
        assert cursor.adbc_prepare("SELECT $1, $2").names == ["1", "2"]


def _fetch(cursor: Any, sql: str) -> Any:
    cursor.execute(sql)
    return cursor.fetchall()


@pytest.mark.parametrize(
    ("sql", "error", "status"),
    [
        ("DROP VIEW orders", ProgrammingError, "UNAUTHORIZED"),
        ("SELEC 1", ProgrammingError, "INVALID_ARGUMENT"),
        ("SELECT * FROM nowhere", ProgrammingError, "UNAUTHORIZED"),
        ("SELECT error('late')", ProgrammingError, "INVALID_ARGUMENT"),
    ],
)
def test_errors_are_the_drivers_own(
    connection: Any, sql: str, error: type[Exception], status: str
) -> None:
    """A refusal arrives as the kind that DB-API has for it."""
    with connection.cursor() as cursor:
        with pytest.raises(error) as refused:
            _fetch(cursor, sql)
        assert status in str(refused.value)


def test_an_update_is_refused(connection: Any) -> None:
    """Neither by a statement nor by ingestion."""
    refused = (ProgrammingError, OperationalError, NotSupportedError)
    with connection.cursor() as cursor:
        with pytest.raises(refused):
            cursor.executemany("INSERT INTO orders VALUES (?)", [(1,)])
        with pytest.raises(refused):
            cursor.adbc_ingest("evil", pa.table({"id": [1]}))


def test_a_long_result_comes_whole(connection: Any) -> None:
    """A million rows, and rows of more than the driver's largest message together."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT range AS n FROM range(1000000)")
        table = cursor.fetch_arrow_table()
        assert (table.num_rows, table.column("n")[-1].as_py()) == (1_000_000, 999_999)
        cursor.execute("SELECT repeat('x', 1000) || repeat('y', 1000) || range FROM range(10000)")
        assert cursor.fetch_arrow_table().num_rows == 10_000


def test_cancelling_frees_the_slot(served: ServedFlight, connection: Any) -> None:
    """adbc_cancel from another thread: the statement fails, nothing goes on running."""
    cursor = connection.cursor()
    failures: list[Exception] = []

    def run() -> None:
        try:
            cursor.execute(BUSY)
            cursor.fetchall()
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    running = threading.Thread(target=run)
    running.start()
    pause = threading.Event()
    for _ in range(2000):
        if served.queries.running:
            break
        pause.wait(0.005)
    assert served.queries.running == 1
    cursor.adbc_cancel()
    running.join(60)
    for _ in range(2000):
        if not served.queries.running:
            break
        pause.wait(0.005)
    assert served.queries.running == 0
    assert len(failures) == 1
    cursor.close()


def test_the_token_is_given_as_header_or_password(database: Database) -> None:
    """AUTHORIZATION_HEADER, or username and password, which the driver makes a login of."""
    with serving_flight(database, at=FlightBind(Bind(port=0, token=TOKEN))) as served:
        for options in (
            {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {TOKEN}"},
            {"username": "anybody", "password": TOKEN},
        ):
            with (
                dbapi.connect(served.uri, db_kwargs=options, autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SELECT 1")
                assert cursor.fetchall() == [(1,)]
        for options in ({}, {"username": "anybody", "password": "wrong"}):
            with pytest.raises(ProgrammingError, match="UNAUTHENTICATED"):
                _ask(served.uri, options)


def _ask(uri: str, options: dict[str, str]) -> None:
    with (
        dbapi.connect(uri, db_kwargs=options, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT 1")


def test_freshness_is_demanded_by_a_header(served: ServedFlight) -> None:
    """The driver sends it with each call of the connection."""
    option = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "x-dynaduck-min-time"
    wait = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "x-dynaduck-wait"
    _ask(served.uri, {option: "2026-01-02T03:04:05.678Z"})
    with pytest.raises(OperationalError, match="not_fresh"):
        _ask(served.uri, {option: "2026-01-02T03:04:06.678Z", wait: "0s"})
