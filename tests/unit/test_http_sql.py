"""POST /v1/sql: formats, exact values, limits, and what happens when a client leaves."""

from __future__ import annotations

import csv
import gzip
import http.client
import io
import json
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from accelerator.database import Database
from tests.hostile import BOUNDED, REFUSED, label
from tests.http_builder import Served, serving
from tests.query_builder import ROWS, data_file, fingerprint

ENDLESS = "SELECT range FROM range(100000000000)"
BUSY = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("sql")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[Served]:
    with serving(database) as surface:
        yield surface


def exact(body: bytes) -> Any:
    """JSON with its numbers as they are written."""
    return json.loads(body, parse_float=Decimal)


def await_idle(served: Served) -> None:
    """Returns when no query holds a slot."""
    pause = threading.Event()
    for _ in range(2000):
        if served.queries.running == 0:
            return
        pause.wait(0.01)
    raise AssertionError("a query still holds its slot")


def test_json_is_an_array_of_objects(served: Served) -> None:
    """As Spice answers: one object per row; it is also the format nobody asked for."""
    sql = "SELECT id, name FROM orders ORDER BY id LIMIT 2"
    for accept in ("application/json", "*/*", "application/*;q=0.5", "text/html, */*;q=0.1"):
        reply = served.sql(sql, accept=accept)
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert reply.json == [{"id": 0, "name": "name 0"}, {"id": 1, "name": "name 1"}]
    assert served.sql("SELECT 1 AS x WHERE false").json == []


def test_batches_join_into_one_document(served: Served) -> None:
    """A result of several batches is one array, one stream of lines, one table."""
    sql = "SELECT range AS n FROM range(25000)"
    expected = [{"n": n} for n in range(25_000)]
    assert served.sql(sql).json == expected
    lines = served.sql(sql, accept="application/x-ndjson").body.splitlines()
    assert [json.loads(line) for line in lines] == expected
    assert len(served.sql(sql, accept="text/csv").body.splitlines()) == 25_001
    assert pa.ipc.open_stream(served.sql(sql, accept=ARROW).body).read_all().num_rows == 25_000


def test_freshness_comes_with_the_answer(served: Served) -> None:
    """X-Dynaduck-State and X-Dynaduck-As-Of: the smallest covered_until, on every format."""
    for accept in ("application/json", "application/x-ndjson", "text/csv", ARROW):
        reply = served.sql("FROM orders", accept=accept)
        assert reply.headers["x-dynaduck-state"] == "Ready"
        assert reply.headers["x-dynaduck-as-of"] == "2026-01-02T03:04:05.678Z"


def test_ndjson_is_one_object_a_line(served: Served) -> None:
    """Each line is complete by itself, and every row is there."""
    reply = served.sql("FROM orders ORDER BY id", accept="application/x-ndjson")
    assert reply.headers["content-type"] == "application/x-ndjson"
    lines = reply.body.decode().splitlines()
    assert len(lines) == ROWS
    assert json.loads(lines[7])["id"] == 7


def test_csv_tells_null_from_empty(served: Served) -> None:
    """NULL is nothing, the empty string is quoted, and all else survives a reader."""
    sql = """SELECT NULL AS a, '' AS b, 'x,"y"' AS c, 'two' || chr(10) || 'lines' AS d,
        1.50::DECIMAL(9, 2) AS e"""
    reply = served.sql(sql, accept="text/csv")
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    assert reply.body.decode().split("\r\n")[1].startswith(',"",')
    assert list(csv.reader(io.StringIO(reply.body.decode(), newline=""))) == [
        ["a", "b", "c", "d", "e"],
        ["", "", 'x,"y"', "two\nlines", "1.50"],
    ]


def test_arrow_is_an_ipc_stream(served: Served) -> None:
    """Typed columns, batch by batch, with an end that says it is the end."""
    reply = served.sql("SELECT id, total FROM orders ORDER BY id", accept=ARROW)
    assert reply.headers["content-type"] == ARROW
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.schema.types == [pa.int64(), pa.decimal128(38, 2)]
    assert table.column("total")[1].as_py() == Decimal("1.10")
    assert table.num_rows == ROWS


@pytest.mark.parametrize("accept", ["application/json", "text/csv", ARROW])
def test_a_small_answer_is_sent_whole(served: Served, accept: str) -> None:
    """It says its length, and holds no slot while a client reads it; a large one is streamed."""
    small = served.sql("SELECT 7 AS n", accept=accept)
    assert int(small.headers["content-length"]) == len(small.body)
    large = served.sql("SELECT range AS n FROM range(30000)", accept=accept)
    assert "content-length" not in large.headers
    assert len(large.body) > 64 * 1024


def test_an_unknown_format_is_refused(served: Served) -> None:
    """406 names the formats there are."""
    reply = served.sql("SELECT 1", accept="image/png")
    assert (reply.status, reply.error) == (406, "not_acceptable")
    assert ARROW in reply.json["error"]["hint"]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "zstd, gzip;q=0.5", "gzip;q=1.0"])
@pytest.mark.parametrize("accept", ["application/json", ARROW])
def test_compression_is_the_clients_choice(served: Served, coding: str, accept: str) -> None:
    """The same bytes, packed by what the client takes."""
    sql = "FROM orders ORDER BY id"
    plain = served.sql(sql, accept=accept)
    packed = served.sql(sql, accept=accept, accept_encoding=coding)
    used = packed.headers["content-encoding"]
    assert used == coding.partition(",")[0].partition(";")[0]
    assert len(packed.body) < len(plain.body) / 2
    if used == "gzip":
        assert gzip.decompress(packed.body) == plain.body
    else:
        with pa.CompressedInputStream(pa.BufferReader(packed.body), "zstd") as stream:
            assert stream.read() == plain.body


def test_no_compression_where_it_is_not_wanted(served: Served) -> None:
    """identity, nothing, and q=0 get plain bytes."""
    for coding in ("identity", "br", "gzip;q=0"):
        reply = served.sql("SELECT 1 AS a", accept_encoding=coding)
        assert "content-encoding" not in reply.headers
        assert reply.json == [{"a": 1}]


def test_parameters_are_bound_with_their_types(served: Served) -> None:
    """Positional or named; JSON numbers keep their digits; the rest is typed by name."""
    reply = served.ask(
        "POST",
        "/v1/sql",
        b'{"sql": "SELECT $1 AS a, $2 AS b, $3 AS c, typeof($1) AS t, $4 AS d", "parameters": '
        b'[1.10, "x", null, {"type": "TIMESTAMP", "value": "2026-01-02 03:04:05"}]}',
        content_type="application/json",
    )
    assert exact(reply.body) == [
        {"a": Decimal("1.10"), "b": "x", "c": None, "t": "DECIMAL(3,2)", "d": "2026-01-02T03:04:05"}
    ]
    reply = served.sql_json(
        "SELECT id FROM orders WHERE id > $low AND id < $high",
        {
            "low": 3,
            "high": 5,
        },
    )
    assert reply.json == [{"id": 4}]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"sql": 1}',
        b'{"sql": "SELECT 1", "params": []}',
        b'{"sql": "SELECT 1", "parameters": 5}',
        b'{"sql": "SELECT $1", "parameters": [{"value": 1}]}',
        b'{"sql": "SELECT $1", "parameters": [{"type": "NO SUCH", "value": 1}]}',
        b'{"sql": "SELECT $1", "parameters": [{"type": "INTEGER", "value": "x"}]}',
        b'{"sql": "SELECT $1", "parameters": []}',
        b'{"sql": "SELECT $1", "parameters": [1, 2]}',
        b'{"sql": "SELECT $a", "parameters": {"b": 1}}',
        b'{"sql": "SELECT \xff"}',
        b"[" * 100_000,
        b'{"sql": "SELECT $1", "parameters": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
    ],
)
def test_bad_bodies_are_said_to_be_bad(served: Served, body: bytes) -> None:
    """400 with words, never 500."""
    reply = served.ask("POST", "/v1/sql", body, content_type="application/json")
    assert (reply.status, reply.error) == (400, "failed")
    assert reply.json["error"]["message"]


def test_text_that_is_not_utf8_is_refused(served: Served) -> None:
    """Bytes that are no text are no SQL."""
    assert served.ask("POST", "/v1/sql", b"SELECT '\xff\xfe'").status == 400


@pytest.mark.parametrize("sql", REFUSED, ids=label)
def test_hostile_statements_get_an_error(served: Served, sql: str) -> None:
    """Over HTTP too: 4xx with a code and a sentence, for each of them."""
    reply = served.sql(sql)
    assert reply.status in (400, 403)
    assert reply.error in ("rejected", "failed")
    assert reply.json["error"]["message"]


def test_hostile_statements_leave_no_trace(database: Database, served: Served) -> None:
    """After all of them the file is as it was, and the next query runs."""
    before = fingerprint(database)
    for sql in REFUSED:
        served.sql(sql)
    assert served.queries.running == 0
    assert served.sql("SELECT count(*) AS n FROM orders").json == [{"n": ROWS}]
    assert fingerprint(database) == before


@pytest.mark.parametrize("sql", BOUNDED, ids=label)
def test_endless_statements_end(database: Database, sql: str) -> None:
    """504 or 507 before the first row, a cut connection after it; the slot is free either way."""
    with serving(database, timeout_s=0.3, max_concurrent=1) as served:
        try:
            reply = served.sql(sql)
        except (http.client.HTTPException, OSError):
            pass
        else:
            assert reply.status in (504, 507)
        await_idle(served)


def test_fresh_rows_are_given_or_refused_in_time(served: Served) -> None:
    """A client names the Date of its write: it is in the rows, or the answer is 503."""
    covered, later = "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05.679Z"
    for asked, status in {
        f"min_time={covered}": 200,
        "min_time=Fri, 02 Jan 2026 03:04:04 GMT": 200,
        "min_time=2026-01-02T03:04:04": 200,
        "min_time=2026-01-02T04:04:04%2B01:00": 200,
        f"min_time={later}&wait=0s": 503,
        "min_time=Fri, 02 Jan 2026 03:04:05 GMT&wait=0s": 503,
        "max_staleness=2s&wait=10ms": 503,
    }.items():
        path = "/v1/sql?" + asked.replace(" ", "%20")
        reply = served.ask("POST", path, b"SELECT count(*) FROM orders")
        assert reply.status == status, asked
        if status == 503:
            assert reply.error == "not_fresh"
            assert reply.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    "asked", ["min_time=soon", "min_time=", "max_staleness=2", "wait=-1s", "min_time=1e99"]
)
def test_unreadable_demands_are_refused(served: Served, asked: str) -> None:
    """A demand that is not understood is no demand that is met."""
    reply = served.ask("POST", f"/v1/sql?{asked}", b"SELECT 1")
    assert (reply.status, reply.error) == (400, "failed")


def test_busy_is_429_with_a_time_to_wait(database: Database) -> None:
    """Beyond the documented limits a client is told to come again."""
    with serving(database, max_concurrent=1, max_waiting=0) as served:
        holder = served.queries.open(ENDLESS)
        holder.start()
        reply = served.sql("SELECT 1")
        assert (reply.status, reply.error) == (429, "busy")
        assert int(reply.headers["retry-after"]) >= 1
        holder.close()
        assert served.sql("SELECT 1").status == 200


def test_too_many_rows_are_413(database: Database) -> None:
    """A result beyond max_rows is refused whole when the first batch shows it."""
    with serving(database, max_rows=10) as served:
        assert len(served.sql("FROM orders LIMIT 10").json) == 10
        reply = served.sql("FROM orders LIMIT 11")
        assert (reply.status, reply.error) == (413, "too_large")


@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson", "text/csv", ARROW])
def test_a_failure_after_the_first_rows_cuts_the_answer(served: Served, accept: str) -> None:
    """No client can take the part that was sent for the whole result."""
    sql = "SELECT CASE WHEN range > 500000 THEN error('late') ELSE 'ok' END FROM range(1000000)"
    is_cut = False
    for _ in range(50):
        try:
            # Another thread of DuckDB may meet the value before the first rows are given.
            assert served.sql(sql, accept=accept).error == "failed"
        except http.client.IncompleteRead:
            is_cut = True
            break
    assert is_cut
    await_idle(served)


def test_columns_of_one_name_stay_apart(served: Served) -> None:
    """A JSON object holds a name once: the second gets a suffix."""
    assert served.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1").json == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_a_type_that_no_format_carries_is_refused(served: Served) -> None:
    """Rather an error with a way out than a wrong value."""
    for kind, value in {"UHUGEINT": "5", "BIT": "101", "TIMETZ": "10:00:00+01"}.items():
        for accept in ("application/json", "text/csv", ARROW):
            reply = served.sql(f"SELECT '{value}'::{kind} AS x", accept=accept)
            assert (reply.status, reply.error) == (400, "failed")
            assert "CAST" in reply.json["error"]["hint"]
    await_idle(served)


def start_request(served: Served, sql: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", served.server.port), timeout=30)
    body = sql.encode()
    head = f"POST /v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def await_running(served: Served, count: int) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if served.queries.running >= count:
            return
        pause.wait(0.005)
    raise AssertionError("the query did not start")


def test_a_client_that_leaves_before_the_first_row_ends_its_query(served: Served) -> None:
    """Nobody waits for the result, so nothing computes it."""
    connection = start_request(served, BUSY)
    await_running(served, 1)
    connection.close()
    await_idle(served)


def test_a_client_that_leaves_in_the_middle_ends_its_query(served: Served) -> None:
    """An endless download that is closed frees its slot."""
    connection = start_request(served, ENDLESS)
    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    connection.close()
    await_idle(served)


def test_a_client_that_stops_reading_loses_its_slot(database: Database) -> None:
    """A reader slower than the time limit holds neither slot nor memory."""
    with serving(database, timeout_s=0.5, max_concurrent=1) as served:
        connection = start_request(served, ENDLESS)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        await_idle(served)
        assert served.sql("SELECT 1 AS a").json == [{"a": 1}]
        connection.close()


def test_a_client_that_leaves_while_waiting_takes_no_slot(database: Database) -> None:
    """It is gone before its turn; the next one in the queue is served."""
    with serving(database, max_concurrent=1) as served:
        holder = served.queries.open(ENDLESS)
        holder.start()
        start_request(served, BUSY).close()
        holder.close()
        await_idle(served)
        assert served.sql("SELECT 1 AS a").json == [{"a": 1}]


def test_stopping_the_server_ends_what_runs(database: Database) -> None:
    """A shutdown does not wait for an endless query."""
    with serving(database) as served:
        connection = start_request(served, BUSY)
        await_running(served, 1)
    connection.close()
    assert served.queries.running == 0
    assert not served.server.is_alive
