"""Where the listener may listen, and how it starts and stops."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from connector.errors import ConfigError, StartRefused
from connector.surface.server import Bind, HttpServer, TlsFiles, check_bind, is_loopback
from tests.certificates import issue


async def _hello(_: Request) -> Response:
    return PlainTextResponse("hello")


HELLO = Starlette(routes=[Route("/", _hello)])


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """A self-signed certificate for 127.0.0.1."""
    made = issue(tmp_path_factory.mktemp("tls"), "localhost")
    return TlsFiles(made.cert, made.key)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, is_local: bool) -> None:
    """A name is loopback only when it is `localhost` itself."""
    assert is_loopback(host) is is_local


def test_on_loopback_nothing_is_needed() -> None:
    """The defaults start without a token."""
    assert check_bind(Bind()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "db.internal"])
def test_off_loopback_a_token_and_tls_are_needed(host: str, tls: TlsFiles) -> None:
    """Each missing piece is named; saying `tls: off` is the only way around TLS."""
    both = [error.message for error in check_bind(Bind(host=host))]
    assert ["runtime.http.token" in both[0], "runtime.http.tls" in both[1]] == [True, True]
    assert all(host in message for message in both)
    [missing] = check_bind(Bind(host=host, token="t"))
    assert "runtime.http.tls" in missing.message
    assert "tls: off" in missing.hint
    [missing] = check_bind(Bind(host=host, tls=tls))
    assert "runtime.http.token" in missing.message
    assert check_bind(Bind(host=host, token="t", tls=tls)) == []
    assert check_bind(Bind(host=host, token="t", tls_off_is_said=True)) == []


def test_an_empty_token_is_no_token() -> None:
    """`token: ""` would let everybody in who sends nothing."""
    for token in ("", "  "):
        [problem] = check_bind(Bind(token=token))
        assert "empty" in problem.message


def test_missing_files_are_named(tmp_path: Path, tls: TlsFiles) -> None:
    """The path that is wrong stands in the message."""
    gone = tmp_path / "gone.pem"
    [problem] = check_bind(Bind(tls=TlsFiles(tls.cert, gone)))
    assert str(gone) in problem.message
    assert "tls.key" in problem.message


def test_a_bad_bind_is_refused_before_it_listens() -> None:
    """`start` holds to the same rule, whoever calls it."""
    server = HttpServer(HELLO, Bind(host="0.0.0.0", port=0))
    with pytest.raises(ConfigError, match="token"):
        server.start()
    assert not server.is_alive


def test_it_serves_from_start_to_stop() -> None:
    """After `start` requests are answered, after `stop` nobody listens; both are repeatable."""
    server = HttpServer(HELLO, Bind(port=0))
    for _ in range(2):
        server.start()
        port = server.port
        assert server.url == f"http://127.0.0.1:{port}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        connection.close()
        server.stop()
        server.stop()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=10).close()


def test_a_taken_port_names_the_setting() -> None:
    """The error says which address, and which setting changes it."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        server = HttpServer(HELLO, Bind(port=port, setting="runtime.http"))
        with pytest.raises(StartRefused) as refused:
            server.start()
    assert f"127.0.0.1:{port}" in refused.value.message
    assert "runtime.http.port" in refused.value.hint
    assert refused.value.exit_status == 2


def test_an_address_of_another_machine_is_refused() -> None:
    """A host that is not ours cannot be listened on."""
    server = HttpServer(HELLO, Bind(host="192.0.2.1", port=0, token="t", tls_off_is_said=True))
    with pytest.raises(StartRefused, match=r"192\.0\.2\.1"):
        server.start()


def test_tls_is_spoken(tls: TlsFiles) -> None:
    """A client that trusts the certificate gets its answer; plain HTTP gets none."""
    server = HttpServer(HELLO, Bind(port=0, tls=tls))
    server.start()
    try:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(tls.cert))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, timeout=10, context=context
        )
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"hello"
        connection.close()
        plain = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        plain.request("GET", "/")
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.getresponse()
        plain.close()
    finally:
        server.stop()


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, tls: TlsFiles) -> None:
    """A pair that does not fit is said at start, not at the first handshake."""
    garbage = tmp_path / "key.pem"
    garbage.write_text("no key")
    server = HttpServer(HELLO, Bind(port=0, tls=TlsFiles(tls.cert, garbage)))
    with pytest.raises(ConfigError, match="cannot be used"):
        server.start()


def test_starting_in_a_thread_leaves_signals_alone() -> None:
    """The service handles SIGTERM itself; the server runs in no main thread and takes no signal."""
    server = HttpServer(HELLO, Bind(port=0))
    server.start()
    try:
        names = [thread.name for thread in threading.enumerate()]
        assert "http" in names
    finally:
        server.stop()
    assert "http" not in [thread.name for thread in threading.enumerate()]


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Connections inherit TCP_NODELAY: without it each small answer takes 40 ms more."""
    server = HttpServer(HELLO, Bind(port=0))
    server.start()
    try:
        assert server._socket is not None
        assert server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    finally:
        server.stop()
