"""An attacker on Flight SQL: with the token, without it, and with bytes that are no call."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from accelerator.database import Database
from accelerator.query_errors import QueryFailed
from connector.errors import ConfigError, StartRefused
from connector.surface.flight.binding import bound_bytes, values_of
from connector.surface.flight.messages import pack
from connector.surface.flight.server import FlightBind
from connector.surface.server import Bind, TlsFiles
from tests.certificates import Issued, issue
from tests.flight_builder import FlightClient, ServedFlight, rows, serving_flight
from tests.hostile import BOUNDED, GATED, REFUSED, label
from tests.query_builder import ROWS, data_file, fingerprint

TOKEN = "a-long-random-token"
LONG = 2_000  # longer ones take the parser a while, and are asked as statements anyway


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with data_file(tmp_path_factory.mktemp("hostile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def served(database: Database) -> Iterator[ServedFlight]:
    with serving_flight(database) as surface:
        yield surface


@pytest.fixture(scope="module")
def client(served: ServedFlight) -> Iterator[FlightClient]:
    with served.client() as connected:
        yield connected


def still_serves(served: ServedFlight) -> bool:
    with served.client() as client:
        return rows(client.sql("SELECT count(*) FROM orders")) == [(ROWS,)]


def await_idle(served: ServedFlight) -> None:
    pause = threading.Event()
    for _ in range(2000):
        if served.queries.running == 0:
            return
        pause.wait(0.005)
    raise AssertionError("a query still holds its slot")


# -- statements -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sql", REFUSED, ids=label)
def test_hostile_statements_get_an_error(client: FlightClient, sql: str) -> None:
    """Over Flight too: PERMISSION_DENIED or INVALID_ARGUMENT, for each of them."""
    with pytest.raises((flight.FlightUnauthorizedError, pa.ArrowInvalid)) as refused:
        client.sql(sql)
    assert "[rejected]" in str(refused.value) or "[failed]" in str(refused.value)


def test_hostile_statements_leave_no_trace(
    database: Database, served: ServedFlight, client: FlightClient
) -> None:
    """By the other ways to execute one: for its schema, prepared, as a ticket of its own."""
    before = fingerprint(database)
    ways: list[Callable[[FlightClient, str], object]] = [_schema, _executed, _at_once]
    for number, sql in enumerate(sql for sql in GATED if len(sql) < LONG):
        with pytest.raises((flight.FlightError, pa.ArrowInvalid)) as refused:
            ways[number % len(ways)](client, sql)
        assert "Traceback" not in str(refused.value)
    assert served.queries.running == 0
    assert still_serves(served)
    assert fingerprint(database) == before


def _schema(client: FlightClient, sql: str) -> object:
    command = pack("CommandStatementQuery", query=sql)
    return client.connection.get_schema(flight.FlightDescriptor.for_command(command))


def _at_once(client: FlightClient, sql: str) -> pa.Table:
    return client.read_ticket(pack("CommandStatementQuery", query=sql))


def _executed(client: FlightClient, sql: str) -> pa.Table:
    handle = client.prepare(sql).prepared_statement_handle
    return client.get("CommandPreparedStatementQuery", prepared_statement_handle=handle)


@pytest.mark.parametrize("command", ["CommandStatementUpdate", "CommandPreparedStatementUpdate"])
def test_nothing_is_written(
    database: Database, served: ServedFlight, client: FlightClient, command: str
) -> None:
    """Updates and ingestion are refused before their data is looked at."""
    before = fingerprint(database)
    fields = {"query": "DROP VIEW orders"} if "Prepared" not in command else {}
    for name, given in ((command, fields), ("CommandStatementIngest", {})):
        descriptor = flight.FlightDescriptor.for_command(pack(name, **given))
        batch = pa.record_batch({"id": pa.array([1])})
        with pytest.raises(flight.FlightError):
            _put(client, descriptor, batch)
    assert fingerprint(database) == before
    assert still_serves(served)


def _put(client: FlightClient, descriptor: Any, batch: pa.RecordBatch) -> None:
    writer, reader = client.connection.do_put(descriptor, batch.schema)
    with writer:
        writer.write_batch(batch)
        writer.done_writing()
        reader.read()


@pytest.mark.parametrize("sql", BOUNDED, ids=label)
def test_endless_statements_end(database: Database, sql: str) -> None:
    """An error before the first row or after it; the slot is free either way."""
    with serving_flight(database, timeout_s=0.3, max_concurrent=1) as served:
        with served.client() as client, pytest.raises(flight.FlightError):
            client.sql(sql)
        await_idle(served)


# -- messages and frames --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 100,
        b"SELECT 1",
        pack("CommandGetTables")[:-20],
        pack("TicketStatementQuery", statement_handle=b"\xc1"),
        pack("TicketStatementQuery", statement_handle=b"\x91" * 100_000),
        pack("TicketStatementQuery", statement_handle=b"\xdd\xff\xff\xff\xff"),
        pack("ActionCreatePreparedStatementRequest", query="SELECT 1"),
        pack("CommandStatementQuery", query="SELECT 1", transaction_id=b"x"),
        pack("CommandStatementSubstraitPlan"),
        pack("CommandPreparedStatementQuery", prepared_statement_handle=b"x" * 100_000),
    ],
    ids=lambda data: data[-20:].hex(),
)
def test_malformed_commands_are_refused(
    served: ServedFlight, client: FlightClient, data: bytes
) -> None:
    """As a command, as a ticket, as the body of each action: an error of ours, never INTERNAL."""
    descriptor = flight.FlightDescriptor.for_command(data)
    calls: list[Callable[[], object]] = [
        lambda: client.connection.get_flight_info(descriptor),
        lambda: client.connection.do_get(flight.Ticket(data)).read_all(),
        lambda: _put(client, descriptor, pa.record_batch({"a": pa.array([1])})),
        lambda: client.act("CancelFlightInfo", b"\x0a\x05" + data[:5]),
        lambda: client.act("Nothing", data),
    ]
    for call in calls:
        with pytest.raises((flight.FlightError, pa.ArrowException)) as refused:
            call()
        assert not isinstance(refused.value, flight.FlightInternalError)
        assert "Traceback" not in str(refused.value)
    assert still_serves(served)


def test_paths_and_listings_are_not_there(client: FlightClient) -> None:
    """Only commands of Flight SQL are answered."""
    with pytest.raises(pa.ArrowInvalid):
        client.connection.get_flight_info(flight.FlightDescriptor.for_path("/etc/passwd"))
    with pytest.raises(pa.ArrowNotImplementedError):
        list(client.connection.list_flights())


def _broken_array(fault: str) -> pa.Array:
    """One whose buffers say what is not so; reading it unchecked leaves the memory."""
    if fault == "code":
        codes = pa.array([7], pa.int32())
        return pa.DictionaryArray.from_arrays(codes, pa.array(["a"]), safe=False)
    offsets = pa.py_buffer(struct.pack("<ii", 0, 2))
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])


@pytest.mark.parametrize("fault", ["utf8", "code"])
def test_arrow_data_that_lies_is_refused(
    served: ServedFlight, client: FlightClient, fault: str
) -> None:
    """Nothing of a parameter is read before its buffers are checked."""
    handle = client.prepare("SELECT ? AS v").prepared_statement_handle
    batch = pa.RecordBatch.from_arrays([_broken_array(fault)], ["1"])
    with pytest.raises(pa.ArrowInvalid):
        client.bind(handle, batch)
    assert still_serves(served)


def test_parameters_of_a_forged_ticket_are_checked() -> None:
    """Each byte of a ticket's Arrow data, changed: values, or an error of ours."""
    coded = pa.array(["c"]).dictionary_encode()
    batch = pa.record_batch({"1": ["text"], "2": [[1, 2]], "3": coded})
    bound = bound_bytes([batch])
    assert values_of(bound, ("1", "2", "3")) == ["text", [1, 2], "c"]
    refused = 0
    for place in range(len(bound)):
        for byte in (0x00, 0x7F, 0xFF):
            forged = bound[:place] + bytes([byte]) + bound[place + 1 :]
            try:
                values_of(forged, ("1", "2", "3"))
            except QueryFailed:
                refused += 1
    assert refused > 100


_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_METHOD = "/arrow.flight.protocol.FlightService/GetFlightInfo"


def _frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _header(name: str, value: str) -> bytes:
    """A literal of HPACK that no table is needed for."""
    parts = (name.encode(), value.encode())
    return b"\x00" + b"".join(bytes([len(part)]) + part for part in parts)


def _call(payload: bytes, **headers: str) -> bytes:
    """One gRPC call with any payload, as HTTP/2 frames. Header names with underscores."""
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": "127.0.0.1",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    block = b"".join(_header(name, value) for name, value in named.items() if value)
    return (
        _PREFACE
        + _frame(4, 0, 0, b"")
        + _frame(1, 4, 1, block)
        + _frame(0, 1, 1, payload)
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"\x00" * 1000,
        _PREFACE + b"\xff" * 1000,
        _PREFACE + _frame(1, 4, 1, b"\xff" * 100),
        _call(b"\x00\xff\xff\xff\xff" + b"x" * 100),
        _call(b"\x00" + struct.pack(">I", 5) + b"\xff" * 5),
        _call(b"\x01" + struct.pack(">I", 5) + b"\xff" * 5),
        _call(b"", content_type="text/plain", te=""),
        _call(b"\x00\x00\x00\x00\x00", te="", origin="http://evil.example"),
    ],
    ids=["http1", "tls", "zeros", "frames", "hpack", "length", "protobuf", "packed", "page", "te"],
)
def test_bytes_that_are_no_call_do_no_harm(served: ServedFlight, data: bytes) -> None:
    """Whatever is sent to the port, the next client is served, and no query ran."""
    ran = len([report for report in served.reports if report.surface == "flight"])
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=5) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(1)
        try:
            while connection.recv(65536):
                continue
        except (TimeoutError, ConnectionError):
            pass
    assert len([report for report in served.reports if report.surface == "flight"]) == ran
    assert still_serves(served)


# -- who may call ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(database: Database) -> Iterator[ServedFlight]:
    with serving_flight(database, at=FlightBind(Bind(port=0, token=TOKEN))) as surface:
        yield surface


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": TOKEN},
        {"authorization": "Basic " + TOKEN},
        {"authorization": "Basic eDp3cm9uZw=="},
        {"x_api_key": TOKEN},
        {"auth_token_bin": TOKEN},
    ],
)
def test_without_the_token_no_call_is_answered(
    guarded: ServedFlight, headers: dict[str, str]
) -> None:
    """UNAUTHENTICATED for each method, before anything of the call is looked at."""
    command = pack("CommandStatementQuery", query="SELECT 1")
    descriptor = flight.FlightDescriptor.for_command(command)
    with guarded.client(**headers) as client:
        calls: list[Callable[[], object]] = [
            lambda: client.connection.get_flight_info(descriptor, client.options),
            lambda: client.connection.get_schema(descriptor, client.options),
            lambda: client.read_ticket(command),
            lambda: client.bind(b"", pa.record_batch({"a": pa.array([1])})),
            lambda: client.act("CreatePreparedStatement", b""),
            lambda: client.connection.list_actions(client.options),
            lambda: list(client.connection.list_flights(b"", client.options)),
        ]
        for call in calls:
            # This client makes an OSError of GetSchema's status.
            unauthenticated = (flight.FlightUnauthenticatedError, OSError)
            with pytest.raises(unauthenticated, match="Unauthenticated") as refused:
                call()
            assert TOKEN not in str(refused.value)
    assert not guarded.reports


def test_the_token_opens_as_bearer_and_as_password(guarded: ServedFlight) -> None:
    """A login is answered with the token, by which the driver goes on."""
    with guarded.client(authorization=f"Bearer {TOKEN}") as client:
        assert rows(client.sql("SELECT 1 AS a")) == [(1,)]
    with guarded.client() as client:
        name, value = client.connection.authenticate_basic_token(b"anybody", TOKEN.encode())
        assert (name, value) == (b"authorization", f"Bearer {TOKEN}".encode())
        with pytest.raises(flight.FlightUnauthenticatedError):
            client.connection.authenticate_basic_token(b"anybody", b"wrong")


def test_off_loopback_the_rules_of_http_hold(database: Database, tmp_path: Path) -> None:
    """Neither without a token nor without TLS, unless `tls: off` was said."""
    for bind, words in (
        (Bind(host="0.0.0.0", port=0, setting="runtime.flight"), "token"),
        (Bind(host="0.0.0.0", port=0, token=TOKEN, setting="runtime.flight"), "tls"),
    ):
        with pytest.raises(ConfigError, match=f"runtime.flight.{words}"):
            _start(database, FlightBind(bind))
    with pytest.raises(ConfigError, match="client_ca"):
        _start(database, FlightBind(Bind(port=0), client_ca=tmp_path / "none.pem"))


def test_a_port_that_is_taken_is_refused(database: Database, served: ServedFlight) -> None:
    """gRPC would share a port between processes: calls would go to either."""
    with pytest.raises(StartRefused, match=r"127\.0\.0\.1"):
        _start(database, FlightBind(Bind(port=served.server.port)))


def _start(database: Database, at: FlightBind) -> None:
    with serving_flight(database, at=at):
        pass


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return issue(tmp_path_factory.mktemp("tls"), "authority")


def _tls_client(served: ServedFlight, authority: Issued, own: Issued | None = None) -> Any:
    files = {} if own is None else {
        "cert_chain": own.cert.read_bytes(), "private_key": own.key.read_bytes()
    }  # fmt: skip
    return flight.FlightClient(
        f"grpc+tls://127.0.0.1:{served.server.port}",
        tls_root_certs=authority.cert.read_bytes(),
        **files,
    )


def test_tls_is_spoken(database: Database, authority: Issued) -> None:
    """A client that trusts the certificate is answered; one that speaks plainly is not."""
    own = issue(authority.cert.parent, "server", authority)
    at = FlightBind(Bind(port=0, tls=TlsFiles(own.cert, own.key)))
    with serving_flight(database, at=at) as served:
        assert served.server.url.startswith("grpc+tls://")
        with _tls_client(served, authority) as connection:
            assert rows(FlightClient(connection, {}).sql("SELECT 1 AS a")) == [(1,)]
        with served.client() as client, pytest.raises(flight.FlightUnavailableError):
            client.sql("SELECT 1")


def test_with_a_client_ca_only_its_certificates_get_in(
    database: Database, authority: Issued, tmp_path: Path
) -> None:
    """mTLS: neither without a certificate nor with one that somebody else signed."""
    own = issue(tmp_path, "server", authority)
    at = FlightBind(Bind(port=0, tls=TlsFiles(own.cert, own.key)), client_ca=authority.cert)
    stranger = issue(tmp_path, "stranger", issue(tmp_path, "other"))
    with serving_flight(database, at=at) as served:
        friend = issue(tmp_path, "friend", authority)
        with _tls_client(served, authority, friend) as connection:
            assert rows(FlightClient(connection, {}).sql("SELECT 1 AS a")) == [(1,)]
        for other in (None, stranger):
            with (
                _tls_client(served, authority, other) as connection,
                pytest.raises(flight.FlightUnavailableError),
            ):
                FlightClient(connection, {}).sql("SELECT 1")
