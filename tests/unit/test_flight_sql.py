"""Flight SQL on the wire: statements, parameters, listings, errors, cancelling, slow readers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from accelerator.catalog import Catalog, Generation
from accelerator.database import Database
from accelerator.query_errors import QueryFailed
from accelerator.relations import key_columns
from checkpoints.positions import KeyAttribute, SourceIdentity
from connector.surface.flight.binding import bound_bytes, values_of
from connector.surface.flight.messages import NotAMessage, message, pack, parse, unpack
from connector.surface.flight.prepared import MOST_STATEMENTS, Prepared, PreparedStatements
from connector.surface.flight.streams import PIECE_BYTES
from tests.flight_builder import FlightClient, ServedFlight, cancel_body, rows, serving_flight
from tests.query_builder import AS_OF_MS, ROWS, data_file

ENDLESS = "SELECT range FROM range(100000000000)"
BUSY = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("flight")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[ServedFlight]:
    with serving_flight(database) as surface:
        yield surface


@pytest.fixture
def client(served: ServedFlight) -> Iterator[FlightClient]:
    with served.client() as connected:
        yield connected


def await_running(served: ServedFlight, count: int) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if served.queries.running == count:
            return
        pause.wait(0.005)
    raise AssertionError(f"{served.queries.running} queries run, not {count}")


# -- statements -----------------------------------------------------------------------------------


def test_a_statement_is_described_and_read(client: FlightClient) -> None:
    """GetFlightInfo tells the columns and how fresh the rows are; DoGet gives the same columns."""
    info = client.info("CommandStatementQuery", query="SELECT id, total FROM orders ORDER BY id")
    assert json.loads(info.app_metadata) == {
        "x-dynaduck-state": "Ready",
        "x-dynaduck-as-of": "2026-01-02T03:04:05.678Z",
    }
    table = client.read(info)
    assert table.schema == info.schema
    assert table.schema.types == [pa.int64(), pa.decimal128(38, 2)]
    assert table.num_rows == ROWS
    assert table.column("total")[1].as_py() == Decimal("1.10")


class _Told(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Collects the headers of answers."""

    def __init__(self) -> None:
        self.headers: dict[str, list[str]] = {}

    def start_call(self, _info: Any) -> Any:
        outer = self

        class Middleware(flight.ClientMiddleware):  # type: ignore[misc]
            def received_headers(self, headers: Any) -> None:
                outer.headers |= headers

        return Middleware()


def test_freshness_comes_with_the_rows(served: ServedFlight) -> None:
    """X-Dynaduck-State and X-Dynaduck-As-Of are headers of DoGet, from the snapshot of its rows."""
    told = _Told()
    location = ("127.0.0.1", served.server.port)
    with flight.connect(location, middleware=[told]) as connection:
        FlightClient(connection, {}).sql("FROM orders")
    assert told.headers["x-dynaduck-state"] == ["Ready"]
    assert told.headers["x-dynaduck-as-of"] == ["2026-01-02T03:04:05.678Z"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 AS a, 2 AS a, 3 AS A",
        "FROM orders LIMIT 3 ;",
        "SELECT id FROM orders -- the end",
        "DESCRIBE orders",
        "SHOW TABLES",
        "SUMMARIZE orders",
        "PIVOT orders ON id % 2 IN (0, 1) USING count(*)",
        "PIVOT (SELECT id % 2 AS k FROM orders) ON k USING count(*)",
        "SELECT 'b'::ENUM('a', 'b') AS e, NULL::ENUM('a', 'b') AS f FROM range(3)",
        "SELECT NULL AS nothing, [1, 2] AS l, {'a': 1} AS s, MAP {'k': 1} AS m, 'x'::BLOB AS b",
        "SELECT 1 WHERE false",
    ],
)
def test_columns_are_as_they_were_described(client: FlightClient, sql: str) -> None:
    """Drivers compare, and refuse rows whose columns are not those of GetFlightInfo."""
    info = client.info("CommandStatementQuery", query=sql)
    assert client.read(info).schema == info.schema


def test_getting_the_schema_runs_nothing(client: FlightClient, served: ServedFlight) -> None:
    """GetSchema of an endless statement is answered at once."""
    command = flight.FlightDescriptor.for_command(pack("CommandStatementQuery", query=BUSY))
    assert client.connection.get_schema(command).schema.names == ["count_star()"]
    assert served.queries.running == 0


def test_describing_holds_no_slot(database: Database) -> None:
    """A client that never comes for its rows costs nobody anything."""
    with (
        serving_flight(database, max_concurrent=1, max_waiting=0) as served,
        served.client() as client,
    ):
        for _ in range(5):
            client.info("CommandStatementQuery", query=ENDLESS)
        assert rows(client.sql("SELECT 1 AS a")) == [(1,)]


def test_large_rows_come_in_pieces(client: FlightClient) -> None:
    """No message is larger than what every client takes, however large a batch is."""
    sql = "SELECT range::VARCHAR || repeat('x', 1000) || repeat('y', 1000) AS text FROM range(4000)"
    info = client.info("CommandStatementQuery", query=sql)
    reader = client.connection.do_get(info.endpoints[0].ticket)
    pieces = [chunk.data for chunk in reader]
    assert max(piece.nbytes for piece in pieces) <= PIECE_BYTES
    assert [text[:1] for text in pieces[0].column(0).to_pylist()[:2]] == ["0", "1"]
    numbers = [int(t.rstrip("y").rstrip("x")) for p in pieces for t in p.column(0).to_pylist()]
    assert numbers == list(range(4000))


def test_each_execution_counts_once(database: Database) -> None:
    """Of a statement, metrics and history tell one query of surface flight."""
    with serving_flight(database) as served, served.client() as client:
        client.sql("SELECT 1 AS a")
        told = [(r.surface, r.sql, r.outcome) for r in served.reports if r.surface == "flight"]
    assert told == [("flight", "SELECT 1 AS a", "ok")]


@pytest.mark.parametrize("kind", ["UHUGEINT", "BIT", "TIMETZ"])
def test_a_type_that_arrow_changes_is_refused(client: FlightClient, kind: str) -> None:
    """Rather an error with a way out than a wrong value."""
    value = {"UHUGEINT": "5", "BIT": "101", "TIMETZ": "10:00:00+01"}[kind]
    with pytest.raises(pa.ArrowInvalid, match="CAST"):
        client.sql(f"SELECT '{value}'::{kind} AS x")


def test_an_enum_inside_another_type_is_refused(client: FlightClient) -> None:
    """Its dictionary cannot travel in a stream: the error says what to select in its place."""
    with pytest.raises(pa.ArrowInvalid, match="CAST"):
        client.sql("SELECT ['a'::ENUM('a', 'b')] AS x")


# -- demands, limits, errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "is_met"),
    [
        ({"x_dynaduck_min_time": "2026-01-02T03:04:05.678Z"}, True),
        ({"x_dynaduck_min_time": "Fri, 02 Jan 2026 03:04:04 GMT"}, True),
        ({"x_dynaduck_min_time": "2026-01-02T03:04:05.679Z", "x_dynaduck_wait": "0s"}, False),
        ({"x_dynaduck_max_staleness": "2s", "x_dynaduck_wait": "10ms"}, False),
    ],
)
def test_fresh_rows_are_given_or_refused(
    served: ServedFlight, headers: dict[str, str], is_met: bool
) -> None:
    """A client names the time of its write by a header: it is in the rows, or UNAVAILABLE says."""
    with served.client(**headers) as client:
        if is_met:
            assert rows(client.sql("SELECT count(*) FROM orders")) == [(ROWS,)]
        else:
            with pytest.raises(flight.FlightUnavailableError, match=r"\[not_fresh\]"):
                client.sql("SELECT count(*) FROM orders")


def test_a_demand_travels_with_the_ticket(database: Database) -> None:
    """Whoever comes for the rows without the header gets them as fresh as they were asked for."""
    asked_for = {"x_dynaduck_min_time": "2026-01-02T03:04:05.678Z"}
    with serving_flight(database, timeout_s=0.3) as served:
        with served.client(**asked_for) as asking:
            info = asking.info("CommandStatementQuery", query="SELECT count(*) FROM orders")
        name, asked = unpack(info.endpoints[0].ticket.ticket)
        soon, later = (moment.to_bytes(8, "big") for moment in (AS_OF_MS, AS_OF_MS + 1))
        assert soon in asked.statement_handle
        ticket = pack(name, statement_handle=asked.statement_handle.replace(soon, later))
        with served.client() as client:
            assert rows(client.read(info)) == [(ROWS,)]
            with pytest.raises(flight.FlightUnavailableError, match=r"\[not_fresh\]"):
                client.connection.do_get(flight.Ticket(ticket)).read_all()


def test_an_unreadable_demand_is_refused(served: ServedFlight) -> None:
    """A demand that is not understood is no demand that is met."""
    with served.client(x_dynaduck_min_time="soon") as client, pytest.raises(pa.ArrowInvalid):
        client.sql("SELECT 1")


@pytest.mark.parametrize(
    ("sql", "error", "code"),
    [
        ("DROP VIEW orders", flight.FlightUnauthorizedError, "rejected"),
        ("SELEC 1", pa.ArrowInvalid, "failed"),
        ("SELECT error('late')", pa.ArrowInvalid, "failed"),
        ("FROM orders LIMIT 11", pa.ArrowInvalid, "too_large"),
        (BUSY, flight.FlightTimedOutError, "timeout"),
    ],
)
def test_errors_have_their_status(
    database: Database, sql: str, error: type[Exception], code: str
) -> None:
    """Each limit is a status that drivers know, with our code in the words and no traceback."""
    with serving_flight(database, max_rows=10, timeout_s=0.5) as served:
        with served.client() as client, pytest.raises(error) as refused:
            client.sql(sql)
        assert f"[{code}]" in str(refused.value)
        assert "Traceback" not in str(refused.value)
        assert ".py" not in str(refused.value)


def test_busy_is_unavailable(database: Database) -> None:
    """Beyond the documented limits a client is told to come again."""
    with serving_flight(database, max_concurrent=1, max_waiting=0) as served:
        holder = served.queries.open(ENDLESS)
        holder.start()
        with served.client() as client:
            with pytest.raises(flight.FlightUnavailableError, match=r"\[busy\]"):
                client.sql("SELECT 1")
            holder.close()
            assert rows(client.sql("SELECT 1")) == [(1,)]


def test_a_failure_after_the_first_rows_is_an_error(client: FlightClient) -> None:
    """No client can take the part that was sent for the whole result."""
    sql = "SELECT CASE WHEN range > 500000 THEN error('late') ELSE 'ok' END FROM range(1000000)"
    given: list[int] = []
    for _ in range(50):
        info = client.info("CommandStatementQuery", query=sql)
        reader = client.connection.do_get(info.endpoints[0].ticket)
        # Another thread of DuckDB may meet the value before the first rows are given.
        with pytest.raises(pa.ArrowInvalid, match=r"late|gave the query up"):
            given.extend(_sizes(reader))
        if given:
            break
    assert sum(given) > 0


# -- prepared statements --------------------------------------------------------------------------


def test_the_sequence_of_the_jdbc_driver(client: FlightClient) -> None:
    """Prepare, schema, bind, describe, read, close: every statement of JDBC goes this way."""
    prepared = client.prepare("SELECT id, name FROM orders WHERE id > ? AND name LIKE ? ORDER BY 1")
    handle = prepared.prepared_statement_handle
    # An empty dataset_schema would make it an update.
    columns = pa.ipc.read_schema(pa.py_buffer(prepared.dataset_schema))
    assert columns.names == ["id", "name"]
    asked = pa.ipc.read_schema(pa.py_buffer(prepared.parameter_schema))
    assert [field.name for field in asked] == ["1", "2"]
    values = [
        _any_value(asked.field(0).type, "bigint", 997),
        _any_value(asked.field(1).type, "string", "name%"),
    ]
    client.bind(handle, pa.RecordBatch.from_arrays(values, schema=asked))
    info = client.info("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    assert info.schema == columns
    assert rows(client.read(info)) == [(998, "name 998"), (999, "name 999")]
    body = pack("ActionClosePreparedStatementRequest", prepared_statement_handle=handle)
    assert client.act("ClosePreparedStatement", body) == []
    with pytest.raises(pa.ArrowKeyError, match="no such prepared statement"):
        client.info("CommandPreparedStatementQuery", prepared_statement_handle=handle)


def _any_value(kind: Any, member: str, value: Any) -> pa.Array:
    """A union of one value, as the driver binds where it does not know the type."""
    names = [kind.field(n).name for n in range(kind.num_fields)]
    children = [
        pa.array([value] if name == member else [], kind.field(n).type)
        for n, name in enumerate(names)
    ]
    type_ids = pa.array([names.index(member)], pa.int8())
    return pa.UnionArray.from_dense(type_ids, pa.array([0], pa.int32()), children, names)


def test_the_metadata_that_the_jdbc_driver_asks_for(client: FlightClient) -> None:
    """DatabaseMetaData: facts, schemas, tables, columns, keys, types; none is an error."""
    for command in (
        "CommandGetSqlInfo",
        "CommandGetCatalogs",
        "CommandGetDbSchemas",
        "CommandGetTables",
        "CommandGetTableTypes",
        "CommandGetXdbcTypeInfo",
        "CommandGetPrimaryKeys",
        "CommandGetExportedKeys",
        "CommandGetImportedKeys",
        "CommandGetCrossReference",
    ):
        info = client.info(command)
        assert client.read(info).schema == info.schema, command


def test_named_parameters_bind_by_name(client: FlightClient) -> None:
    """Where the statement names them, the order of the columns does not matter."""
    handle = client.prepare("SELECT $b - $a AS n").prepared_statement_handle
    client.bind(handle, pa.record_batch({"a": pa.array([1]), "b": pa.array([10])}))
    assert rows(client.get("CommandPreparedStatementQuery", prepared_statement_handle=handle)) == [
        (9,)
    ]


def test_binding_gives_the_handle_back(client: FlightClient) -> None:
    """A client that expects DoPut to answer with a handle gets the one it has."""
    handle = client.prepare("SELECT ? AS n").prepared_statement_handle
    answer = client.bind(handle, pa.record_batch({"1": pa.array([1])}))
    told = parse("DoPutPreparedStatementResult", answer).prepared_statement_handle
    assert told == handle


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**63),
        1.5,
        Decimal("12345678901234567890123456789012345678"),
        "é🦆",
        b"\x00\xff",
        date(2026, 1, 2),
        time(3, 4, 5, 678901),
        datetime(2026, 1, 2, 3, 4, 5, 678901),  # noqa: DTZ001  # a TIMESTAMP has no zone
        [1, None, 3],
    ],
)
def test_values_come_back_as_they_were_bound(client: FlightClient, value: Any) -> None:
    """Each type that a parameter can have keeps all of its value."""
    handle = client.prepare("SELECT ? AS v").prepared_statement_handle
    client.bind(handle, pa.record_batch({"1": pa.array([value])}))
    table = client.get("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    assert table.column(0)[0].as_py() == value


def test_a_time_with_a_zone_is_the_same_moment(client: FlightClient) -> None:
    """Whatever zone the session shows it in."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    handle = client.prepare("SELECT epoch_ms(?::TIMESTAMPTZ) AS v").prepared_statement_handle
    client.bind(handle, pa.record_batch({"1": pa.array([moment])}))
    table = client.get("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    assert rows(table) == [(int(moment.timestamp() * 1000),)]


def test_unusual_arrays_bind_by_value() -> None:
    """Dictionaries, unions, nanoseconds: what is bound is the value, or nothing where it rounds."""
    coded = pa.array(["a"]).dictionary_encode()
    sparse = pa.UnionArray.from_sparse(
        pa.array([1], pa.int8()), [pa.array([7]), pa.array(["seven"])], ["n", "t"]
    )
    exact = pa.array([1_000], pa.timestamp("ns"))
    batch = pa.record_batch({"a": coded, "b": sparse, "c": exact})
    assert values_of(bound_bytes([batch]), ("1", "2", "3")) == [
        "a",
        "seven",
        datetime(1970, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001  # as above
    ]
    rounded = pa.record_batch({"c": pa.array([1_001], pa.timestamp("ns"))})
    with pytest.raises(QueryFailed):
        values_of(bound_bytes([rounded]), ("1",))


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"1": pa.array([1, 2])}),
        pa.record_batch({"1": pa.array(["x" * 3_000_000])}),
        pa.record_batch({str(n): pa.array([n]) for n in range(10_001)}),
    ],
    ids=["two rows", "too large", "too many"],
)
def test_parameters_have_bounds(client: FlightClient, batch: pa.RecordBatch) -> None:
    """One row of at most 10,000 values and 2 MB."""
    handle = client.prepare("SELECT ? AS n").prepared_statement_handle
    with pytest.raises(pa.ArrowInvalid):
        client.bind(handle, batch)


def test_a_parameter_of_a_size_is_judged_by_its_value(client: FlightClient) -> None:
    """It may be refused as NULL, and yet run: only the value says how large the result becomes."""
    handle = client.prepare("SELECT repeat('x', ?) AS t").prepared_statement_handle
    client.bind(handle, pa.record_batch({"1": pa.array([3])}))
    command = {"prepared_statement_handle": handle}
    assert rows(client.get("CommandPreparedStatementQuery", **command)) == [("xxx",)]
    client.bind(handle, pa.record_batch({"1": pa.array([10**9])}))
    with pytest.raises(flight.FlightUnauthorizedError):
        client.get("CommandPreparedStatementQuery", **command)


def test_the_oldest_statements_give_way() -> None:
    """What clients forget to close does not add up."""
    held = PreparedStatements()
    first, second = held.add(Prepared("1")), held.add(Prepared("2"))
    held.get(first)
    for n in range(MOST_STATEMENTS - 1):
        held.add(Prepared(f"SELECT {n}"))
    assert len(held) == MOST_STATEMENTS
    assert held.get(second) is None
    assert held.get(first) is not None
    for _ in range(70):
        held.bind(first, b"x" * 1_000_000)
        first = held.add(Prepared("SELECT ?"))
    assert len(held) < 100


# -- listings -------------------------------------------------------------------------------------


def test_datasets_are_tables_and_the_rest_is_the_systems(client: FlightClient) -> None:
    """What a query may name is listed, nothing internal is."""
    listed = rows(client.get("CommandGetTables"))
    assert ("replica", "main", "orders", "TABLE") in listed
    assert ("replica", "dynaduck", "checkpoints", "SYSTEM TABLE") in listed
    assert ("replica", "runtime", "task_history", "SYSTEM TABLE") in listed
    assert not [row for row in listed if "__rows" in row[2] or row[2] == "generations"]
    assert listed == sorted(listed)
    for catalog, schema, table, _ in listed:
        client.sql(f'FROM "{catalog}"."{schema}"."{table}" LIMIT 1')


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ({"table_name_filter_pattern": "ord%"}, {"orders"}),
        ({"table_name_filter_pattern": "o_ders"}, {"orders"}),
        ({"table_name_filter_pattern": "o\\_ders"}, set()),
        ({"table_name_filter_pattern": ""}, set()),
        ({"table_name_filter_pattern": "%" * 500 + "s", "table_types": ["TABLE"]}, {"orders"}),
        ({"table_name_filter_pattern": "%a" * 500}, set()),
        ({"db_schema_filter_pattern": "main"}, {"orders", "Odd name"}),
        ({"table_types": ["TABLE"]}, {"orders", "Odd name"}),
        ({"table_types": ["VIEW"]}, set()),
        ({"catalog": "replica", "table_types": ["TABLE"]}, {"orders", "Odd name"}),
        ({"catalog": ""}, set()),
    ],
)
def test_tables_are_filtered(client: FlightClient, asked: dict[str, Any], names: set[str]) -> None:
    """By patterns of LIKE, by catalog and by type."""
    assert {row[2] for row in rows(client.get("CommandGetTables", **asked))} == names


def _keyed(database: Database) -> None:
    """Gives the dataset `orders` a key of name and id, which its plan calls columns."""
    identity = SourceIdentity(
        "orders",
        "arn:aws:dynamodb:x:1:table/orders",
        "id",
        None,
        (KeyAttribute("id", "N", "RANGE"), KeyAttribute("name", "S", "HASH")),
    )
    with database.transaction() as cursor:
        catalog = Catalog(cursor, "orders")
        catalog.save_generation(Generation("orders", 3, "live", 3, identity, "done", None, "{}"))
        for name in ("id", "name"):
            cursor.execute(
                "INSERT INTO dynaduck.column_rows VALUES ('orders', 3, ?, ?, 'BIGINT', [], [], "
                "NULL, 1, 'k', 'b', 0, '')",
                [name, name],
            )


def test_keys_are_never_null_and_all_else_may_be(tmp_path: Any) -> None:
    """GetPrimaryKeys has the partition key first; GetTables gives the columns' nullability."""
    with data_file(tmp_path) as database:
        _keyed(database)
        cursor = database.cursor()
        assert key_columns(cursor) == {"orders": ("name", "id")}
        cursor.close()
        with serving_flight(database) as served, served.client() as client:
            keys = client.get("CommandGetPrimaryKeys", table="orders")
            assert [(r["column_name"], r["key_sequence"]) for r in keys.to_pylist()] == [
                ("name", 1),
                ("id", 2),
            ]
            assert [f.name for f in keys.schema if not f.nullable] == [
                "table_name",
                "column_name",
                "key_sequence",
            ]
            for asked in ({"catalog": "other"}, {"db_schema": "dynaduck"}, {"table": "nope"}):
                assert not client.get("CommandGetPrimaryKeys", **{"table": "orders", **asked})
            listed = client.get("CommandGetTables", include_schema=True, table_types=["TABLE"])
    schemas = {
        row["table_name"]: pa.ipc.read_schema(pa.py_buffer(row["table_schema"]))
        for row in listed.to_pylist()
    }
    assert [f.name for f in schemas["orders"] if not f.nullable] == ["id", "name"]
    told = schemas["orders"].field("total").metadata
    assert told[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"DECIMAL(38,2)"


def test_the_server_says_what_it_is(client: FlightClient) -> None:
    """GetSqlInfo: all facts, or those that were asked for; numbers it has not are left out."""
    everything = dict(rows(client.get("CommandGetSqlInfo")))
    assert everything[0] == "dynaduck"
    assert everything[3] is True
    assert everything[100] == 30_000
    few = client.get("CommandGetSqlInfo", info=[3, 504, 99_999])
    assert dict(rows(few)) == {3: True, 504: '"'}


# -- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_statement_is_cancelled_by_its_info(served: ServedFlight, action: str) -> None:
    """From another connection; what does not run cannot be cancelled."""
    with served.client() as client, served.client() as other:
        info = client.info("CommandStatementQuery", query=BUSY)
        bodies = {
            "CancelFlightInfo": cancel_body(info),
            "CancelQuery": pack("ActionCancelQueryRequest", info=info.serialize()),
        }
        assert _status(action, other.act(action, bodies[action])[0]) == 3
        failures: list[Exception] = []
        reading = threading.Thread(target=_collect, args=(client, info, failures))
        reading.start()
        await_running(served, 1)
        assert _status(action, other.act(action, bodies[action])[0]) == 1
        reading.join(60)
        await_running(served, 0)
    assert [type(failure) for failure in failures] == [flight.FlightCancelledError]


def _status(action: str, answer: bytes) -> int:
    if action == "CancelFlightInfo":
        return int(parse("CancelFlightInfoResult", answer).status)
    return int(unpack(answer)[1].result)


def _collect(client: FlightClient, info: Any, failures: list[Exception]) -> None:
    try:
        client.read(info)
    except flight.FlightError as error:
        failures.append(error)


def test_a_client_that_cancels_its_call_ends_its_query(served: ServedFlight) -> None:
    """In the middle of an endless result."""
    with served.client() as client:
        info = client.info("CommandStatementQuery", query=ENDLESS)
        reader = client.connection.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        assert served.queries.running == 1
        reader.cancel()
        await_running(served, 0)


def test_a_client_whose_time_is_over_ends_its_query(served: ServedFlight) -> None:
    """A deadline of the client's own, before the first row: nobody waits for the result."""
    with served.client() as client:
        info = client.info("CommandStatementQuery", query=BUSY)
        options = flight.FlightCallOptions(timeout=0.3)
        with pytest.raises(flight.FlightTimedOutError):
            client.connection.do_get(info.endpoints[0].ticket, options).read_all()
        await_running(served, 0)


def _sizes(reader: Any) -> Iterator[int]:
    while True:
        yield reader.read_chunk().data.num_rows


def _drain(reader: Any) -> int:
    """Piece by piece: on CANCELLED, read_all of this client raises KeyboardInterrupt."""
    return sum(chunk.data.num_rows for chunk in reader)


def test_a_client_that_stops_reading_is_cut_off(database: Database) -> None:
    """It holds its slot until its time is over, its thread a second longer, and nobody else's."""
    with (
        serving_flight(database, timeout_s=0.3, max_concurrent=1) as served,
        served.client() as slow,
        served.client() as other,
    ):
        info = slow.info("CommandStatementQuery", query=ENDLESS)
        reader = slow.connection.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        await_running(served, 0)
        assert rows(other.sql("SELECT 1 AS a")) == [(1,)]
        pause = threading.Event()
        for _ in range(500):
            if served.server.calls == 0:
                break
            pause.wait(0.01)
        assert served.server.calls == 0
        with pytest.raises(flight.FlightError):
            _drain(reader)
        assert rows(other.sql("SELECT 1 AS a")) == [(1,)]


def test_a_client_that_does_not_read_does_not_hold_up_the_end(database: Database) -> None:
    """Stopping ends what runs, and the connections of those who do not listen."""
    with serving_flight(database) as served, served.client() as slow:
        info = slow.info("CommandStatementQuery", query=ENDLESS)
        reader = slow.connection.do_get(info.endpoints[0].ticket)
        reader.read_chunk()
        served.queries.close()
        served.server.stop()
        assert served.queries.running == 0
        with pytest.raises(flight.FlightError):
            _drain(reader)


# -- messages -------------------------------------------------------------------------------------


def test_messages_come_back_as_they_were_packed() -> None:
    """And tell what was left out from what is empty."""
    name, asked = unpack(pack("CommandGetTables", catalog="", table_types=["a", "b"]))
    assert name == "CommandGetTables"
    assert asked.HasField("catalog")
    assert not asked.HasField("db_schema_filter_pattern")
    assert list(asked.table_types) == ["a", "b"]


def test_the_wire_is_flight_sqls_own() -> None:
    """One known message, byte by byte: the type URL, then field 1 with the text."""
    url = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    expected = b"\x0a" + bytes([len(url)]) + url + b"\x12\x0a\x0a\x08SELECT 1"
    assert pack("CommandStatementQuery", query="SELECT 1") == expected
    assert message("ActionCancelQueryResult", result=1).SerializeToString() == b"\x08\x01"


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"SELECT 1", b"\x0a\x03abc", pack("CommandGetTables")[:-30]]
)
def test_other_bytes_are_no_message(data: bytes) -> None:
    """Each is said to be none."""
    with pytest.raises(NotAMessage):
        unpack(data)
