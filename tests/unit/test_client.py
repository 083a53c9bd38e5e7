"""The commands' client and `dynaduck sql`, against the real surface."""

from __future__ import annotations

import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pyarrow as pa
import pytest
from rich.console import Console

from accelerator.database import Database
from accelerator.query import QueryLimits
from accelerator.query_errors import QueryFailed
from connector.cli.sql_view import (
    TABLE_ROWS,
    LocalQueries,
    QuerySource,
    RemoteQueries,
    ResultFormat,
    run_sql,
)
from connector.client import (
    Address,
    AnswerCut,
    ServiceClient,
    ServiceRefused,
    ServiceSilent,
    reachable_host,
)
from connector.errors import ServiceUnreachable, UnknownDataset
from connector.health import DatasetState
from connector.surface.server import Bind
from tests.http_builder import Served, in_state, serving
from tests.query_builder import ROWS, data_file

TOKEN = "open sesame"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("client")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[Served]:
    with serving(database, bind=Bind(port=0, token=TOKEN)) as surface:
        yield surface


def client_of(served: Served, token: str | None = TOKEN) -> ServiceClient:
    return ServiceClient(Address("127.0.0.1", served.server.port, token))


def nobody() -> ServiceClient:
    """A client of a port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    return ServiceClient(Address("127.0.0.1", port))


def no_file() -> AbstractContextManager[QuerySource]:
    raise AssertionError("the file is not to be opened while a service answers")


def output_of(
    sql: str,
    result_format: ResultFormat,
    service: QuerySource,
    file: AbstractContextManager[QuerySource] | None = None,
) -> bytes:
    """What the command writes; tables as text."""
    out, screen = io.BytesIO(), io.StringIO()
    run_sql(
        sql,
        result_format,
        service=service,
        file=(lambda: file) if file is not None else no_file,
        out=out,
        console=Console(file=screen, width=120, color_system=None),
    )
    return out.getvalue() or screen.getvalue().encode()


@pytest.mark.parametrize(
    ("bound", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("[::]", "::1"),
        ("10.0.0.5", "10.0.0.5"),
        ("db.internal", "db.internal"),
    ],
)
def test_a_wildcard_is_reached_on_loopback(bound: str, reached: str) -> None:
    """A service that listens everywhere is asked on this machine."""
    assert reachable_host(bound) == reached


def test_addresses_are_read_from_urls() -> None:
    """--url takes what a person would type."""
    assert Address.of_url("http://db:1234").url == "http://db:1234"
    assert Address.of_url("db").url == "http://db:8090"
    assert Address.of_url("https://db").url == "https://db:443"
    assert Address.of_url("http://[::1]:80").url == "http://[::1]:80"
    for wrong in ("ftp://db", "http://", ""):
        with pytest.raises(ValueError, match="no address"):
            Address.of_url(wrong)


def test_status_ready_and_actions(served: Served) -> None:
    """Each call returns what the service said."""
    client = client_of(served)
    assert client.status()["datasets"][0]["name"] == "orders"
    assert client.ready()["ready"] is True
    told = served.facts.told
    served.facts.told = in_state(DatasetState.ERROR)
    assert client.ready()["ready"] is False
    served.facts.told = told
    served.facts.done.clear()
    assert "orders" in client.refresh("orders")
    client.pause("orders")
    client.resume("orders")
    assert [action for action, _ in served.facts.done] == ["refresh", "pause", "resume"]


def test_refusals_carry_code_and_hint(served: Served) -> None:
    """An error with the words of the service; status 2 for a name that there is not, else 1."""
    with pytest.raises(UnknownDataset, match="no such one") as unknown:
        client_of(served).pause("no such one")
    assert unknown.value.exit_status == 2
    with pytest.raises(ServiceRefused) as refused:
        client_of(served, token=None).status()
    assert refused.value.status == 401
    assert "runtime.http.token" in refused.value.hint
    with pytest.raises(ServiceRefused) as refused, client_of(served).sql("DROP VIEW x", "*/*"):
        pass
    assert refused.value.refusal == "rejected"


def test_nobody_there_is_said() -> None:
    """Connection refused is one sentence that names the address."""
    with pytest.raises(ServiceUnreachable, match=r"http://127\.0\.0\.1:"):
        nobody().status()


def test_silence_is_told_apart_from_absence() -> None:
    """Something that takes connections and never answers is no reason to open its file."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = ServiceClient(Address("127.0.0.1", port), timeout_s=0.05)
        with pytest.raises(ServiceSilent):
            client.status()
        with pytest.raises(ServiceSilent):
            output_of("SELECT 1", ResultFormat.JSON, RemoteQueries(client))


def test_a_stranger_on_the_port_is_no_service() -> None:
    """Another program's answer is refused in words, not in a traceback."""
    answers = [
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ]
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for text in answers:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(text)

        thread = threading.Thread(target=answer)
        thread.start()
        client = ServiceClient(Address("127.0.0.1", listener.getsockname()[1]), timeout_s=10)
        for status in (500, 404):
            with pytest.raises(ServiceRefused) as refused:
                client.status()
            assert refused.value.status == status
        with pytest.raises(ServiceUnreachable):
            client.status()
        thread.join()


def test_a_result_that_breaks_off_is_an_error(served: Served) -> None:
    """The client never takes the first part for the whole; it is refused where DuckDB is first."""
    sql = "SELECT CASE WHEN range > 500000 THEN error('late') ELSE 'ok' END FROM range(1000000)"
    for result_format in (ResultFormat.JSON, ResultFormat.CSV, ResultFormat.ARROW):
        with pytest.raises((AnswerCut, ServiceRefused)):
            output_of(sql, result_format, RemoteQueries(client_of(served)))


def test_formats_are_passed_on_as_they_come(served: Served) -> None:
    """json, csv and arrow are the service's own bytes."""
    remote = RemoteQueries(client_of(served))
    sql = "SELECT id, total FROM orders ORDER BY id LIMIT 2"
    assert json.loads(output_of(sql, ResultFormat.JSON, remote)) == [
        {"id": 0, "total": 0.0},
        {"id": 1, "total": 1.1},
    ]
    assert output_of(sql, ResultFormat.CSV, remote) == b"id,total\r\n0,0.00\r\n1,1.10\r\n"
    table = pa.ipc.open_stream(output_of("FROM orders", ResultFormat.ARROW, remote)).read_all()
    assert table.num_rows == ROWS


def test_a_table_is_for_people(served: Served) -> None:
    """Aligned columns, NULL told from text, and how fresh the rows are."""
    sql = "SELECT id, name, NULL AS nothing FROM orders ORDER BY id LIMIT 2"
    text = output_of(sql, ResultFormat.TABLE, RemoteQueries(client_of(served))).decode()
    assert "name 1" in text
    assert "NULL" in text
    assert "2 rows · Ready · as of 2026-01-02T03:04:05.678Z" in text


def test_a_long_table_says_that_there_is_more(served: Served) -> None:
    """Exactly so many rows are all of them; one more is said to be cut."""
    remote = RemoteQueries(client_of(served))
    whole = output_of(f"SELECT range FROM range({TABLE_ROWS})", ResultFormat.TABLE, remote).decode()
    assert f"{TABLE_ROWS:,} rows" in whole
    assert "first" not in whole
    cut = output_of(f"SELECT range FROM range({TABLE_ROWS + 1})", ResultFormat.TABLE, remote)
    assert f"the first {TABLE_ROWS:,} rows" in cut.decode()


def test_an_empty_table_has_its_columns(served: Served) -> None:
    """No rows is an answer too."""
    sql = "SELECT id FROM orders WHERE false"
    text = output_of(sql, ResultFormat.TABLE, RemoteQueries(client_of(served))).decode()
    assert "id" in text
    assert "0 rows" in text


def test_data_cannot_drive_the_terminal(served: Served) -> None:
    """Escape sequences and markup in a value are shown, not obeyed."""
    sql = "SELECT chr(27) || '[2J' AS a, '[bold]x[/bold]' AS b"
    text = output_of(sql, ResultFormat.TABLE, RemoteQueries(client_of(served))).decode()
    assert "\x1b" not in text
    assert "[bold]x[/bold]" in text


def test_without_a_service_the_file_answers(database: Database) -> None:
    """The same rows and the same freshness, through the same gate."""

    @contextmanager
    def file() -> Iterator[QuerySource]:
        yield LocalQueries(database, QueryLimits())

    absent = RemoteQueries(nobody())
    sql = "SELECT count(*) AS n FROM orders"
    assert json.loads(output_of(sql, ResultFormat.JSON, absent, file())) == [{"n": ROWS}]
    text = output_of(sql, ResultFormat.TABLE, absent, file()).decode()
    assert "as of 2026-01-02T03:04:05.678Z" in text
    with pytest.raises(QueryFailed) as failed:
        output_of("SELECT nothing FROM orders", ResultFormat.JSON, absent, file())
    assert failed.value.exit_status == 1


def test_a_refused_query_does_not_open_the_file(served: Served) -> None:
    """The service's no is the answer; `no_file` would raise otherwise."""
    with pytest.raises(ServiceRefused):
        output_of("SELECT nothing", ResultFormat.CSV, RemoteQueries(client_of(served)))
