"""The watch over Flight calls: who has left, who does not read, and whose connection is cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accelerator.query_errors import DataUnavailable, TooManyQueries
from connector.errors import ConfigError
from connector.surface.flight.watch import Watch, cut_connections
from connector.surface.flight.wiring import client_ca_problems
from connector.surface.server import Bind, TlsFiles
from tests.certificates import issue


class FakeCall:
    def __init__(self) -> None:
        self.has_left = False

    def is_cancelled(self) -> bool:
        return self.has_left

    def peer(self) -> str:
        return "ipv4:127.0.0.1:5000"


class FakeQuery:
    def __init__(self) -> None:
        self.is_stopped = False
        self.client: str | None = None
        self.cancelled = 0

    def cancel(self) -> None:
        self.cancelled += 1


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@contextmanager
def watching(most: int = 2) -> Iterator[tuple[Watch, Clock, list[str]]]:
    cut: list[str] = []
    clock = Clock()
    watch = Watch(cut.append, lambda: most, clock)
    try:
        yield watch, clock, cut
    finally:
        watch.close()


def test_whoever_leaves_ends_its_query() -> None:
    """And nobody else's; a call that has returned is not looked at."""
    with watching() as (watch, _, cut):
        gone, here = (FakeCall(), FakeQuery()), (FakeCall(), FakeQuery())
        for call, query in (gone, here):
            watch.enter(call, query, 10)
        gone[0].has_left = True
        watch.look()
        assert gone[1].cancelled == 1
        assert here[1].cancelled == 0
        assert cut == []


def test_a_call_that_was_left_is_not_touched() -> None:
    """Its context is freed memory by then."""
    with watching() as (watch, _, _):
        call, query = FakeCall(), FakeQuery()
        with watch.following(call, query, 10):
            assert len(watch) == 1
        call.has_left = True
        watch.look()
        assert (len(watch), query.cancelled) == (0, 0)


def test_only_who_does_not_read_is_cut() -> None:
    """A second after its query was stopped, while a piece waits to be read."""
    with watching() as (watch, clock, cut):
        call, query = FakeCall(), FakeQuery()
        followed = watch.enter(call, query, 30)
        followed.is_sending = True
        clock.now_s = 20
        watch.look()
        query.is_stopped = True
        watch.look()
        assert cut == []
        clock.now_s = 21
        watch.look()
        assert cut == ["ipv4:127.0.0.1:5000"]


def test_a_query_that_computes_is_not_cut() -> None:
    """What waits for DuckDB and not for its client gets its error by itself."""
    with watching() as (watch, clock, cut):
        query = FakeQuery()
        watch.enter(FakeCall(), query, 30)
        query.is_stopped = True
        for now_s in (1, 5, 50):
            clock.now_s = now_s
            watch.look()
        assert cut == []


def test_a_listing_is_over_in_time() -> None:
    """Rows that no query makes have the same limit."""
    with watching() as (watch, clock, cut):
        watch.enter(FakeCall(), None, 30).is_sending = True
        clock.now_s = 31
        watch.look()
        clock.now_s = 32
        watch.look()
        assert cut


def test_calls_have_a_bound() -> None:
    """One more is told to come again; after the end, that it is the end."""
    with watching(most=1) as (watch, _, _):
        query = FakeQuery()
        watch.enter(FakeCall(), query, 30)
        with pytest.raises(TooManyQueries):
            watch.enter(FakeCall(), None, 30)
        watch.close()
        assert query.cancelled == 1
        with pytest.raises(DataUnavailable):
            watch.enter(FakeCall(), None, 30)


@pytest.mark.parametrize(
    ("family", "host", "peer"),
    [
        (socket.AF_INET, "127.0.0.1", "ipv4:127.0.0.1:{}"),
        (socket.AF_INET6, "::1", "ipv6:%5B::1%5D:{}"),
    ],
)
def test_one_connection_is_cut_by_the_name_of_its_peer(
    family: socket.AddressFamily, host: str, peer: str
) -> None:
    """The other goes on; so does whatever has another local port."""
    with socket.create_server((host, 0), family=family) as listener:
        port = listener.getsockname()[1]
        clients = [socket.create_connection((host, port)) for _ in range(2)]
        accepted = [listener.accept()[0] for _ in range(2)]
        try:
            slow = clients[0].getsockname()[1]
            assert cut_connections(port + 1, peer.format(slow)) == 0
            assert cut_connections(port, "unix:anything") == 0
            assert cut_connections(port, peer.format(slow)) == 1
            assert clients[0].recv(1) == b""
            clients[1].sendall(b"x")
            kept = next(one for one in accepted if _peer_port(one) == clients[1].getsockname()[1])
            assert kept.recv(1) == b"x"
            assert cut_connections(port) >= 1
        finally:
            for one in clients + accepted:
                one.close()


def _peer_port(connection: socket.socket) -> int:
    """0 for a connection that was cut."""
    try:
        return int(connection.getpeername()[1])
    except OSError:
        return 0


def test_a_client_ca_is_a_certificate_and_needs_tls(tmp_path: Path) -> None:
    """Each fault is said at start, not at the first handshake."""
    made = issue(tmp_path, "authority")
    tls = TlsFiles(made.cert, made.key)
    assert client_ca_problems(None, Bind()) == []
    assert client_ca_problems(made.cert, Bind(tls=tls)) == []
    assert _words(client_ca_problems(made.cert, Bind())) == ["no TLS"]
    assert _words(client_ca_problems(tmp_path / "none", Bind(tls=tls))) == ["no file"]
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    assert _words(client_ca_problems(garbage, Bind(tls=tls))) == ["no certificate"]


def _words(problems: list[ConfigError]) -> list[str]:
    known = ("no TLS", "no file", "no certificate")
    return [next(word for word in known if word in problem.message) for problem in problems]
