"""A small HTTP/1.1 server: a thread per connection, keep-alive, whole bodies.

Owns sockets and framing. A thread per connection lets a fault block, cut or drop one answer without
touching the others. Must not know AWS.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http import HTTPStatus

from emulator.reply import Reply
from emulator.request import Request

_MAX_HEADER_BYTES = 64 * 1024
_RECV_BYTES = 256 * 1024
_REASONS = {status.value: status.phrase for status in HTTPStatus}

Answer = Callable[[Request], Reply]


class BadRequest(Exception):
    """The bytes on the connection are no HTTP/1.1 request."""


class HttpServer:
    """Listens on a host and port (0 takes a free one) and answers until `stop`."""

    def __init__(self, answer: Answer, host: str = "127.0.0.1", port: int = 0) -> None:
        self._answer = answer
        self._listener = socket.create_server((host, port), backlog=512)
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._accepted = 0
        self._thread = threading.Thread(target=self._accept, name="emulator-accept", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Closes the listener and every connection, and waits for the accepting thread."""
        self._stopping.set()
        # A blocked accept() wakes on shutdown, not on close.
        _close(self._listener)
        with self._lock:
            connections = list(self._connections.values())
        for connection in connections:
            _close(connection)
        if self._thread.is_alive():
            self._thread.join()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # Stopped; or out of descriptors, which passes when a client closes.
                self._stopping.wait(0.05)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._accepted += 1
                number = self._accepted
                self._connections[number] = connection
            threading.Thread(
                target=self._serve,
                args=(connection, number),
                name=f"emulator-connection-{number}",
                daemon=True,
            ).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        reader = _Reader(connection, number)
        try:
            while not self._stopping.is_set():
                request = reader.read_request()
                if request is None:
                    return
                keeps = request.headers.get("connection", "").lower() != "close"
                if not self._send(connection, request, self._answer(request), keeps):
                    return
        except (OSError, BadRequest, ValueError):
            # The client is gone, or speaks no HTTP (a length that is no number is a ValueError);
            # either way the connection ends here.
            return
        finally:
            with self._lock:
                self._connections.pop(number, None)
            _close(connection)

    def _send(self, connection: socket.socket, request: Request, reply: Reply, keeps: bool) -> bool:
        """Writes a reply, or what is to come of it; returns whether the connection goes on."""
        if reply.delay_s:
            self._stopping.wait(reply.delay_s)
        if reply.is_dropped:
            return False
        bodiless = request.method == "HEAD" or reply.status in (204, 304)
        head = _head(reply, bodiless, keeps)
        body = b"" if bodiless else reply.body
        if reply.sent_bytes is None:
            connection.sendall(head + body)
            return keeps
        connection.sendall(head + body[: reply.sent_bytes])
        if reply.hangs:
            self._wait_for_close(connection)
        return False

    @staticmethod
    def _wait_for_close(connection: socket.socket) -> None:
        while connection.recv(_RECV_BYTES):
            pass


def _head(reply: Reply, bodiless: bool, keeps: bool) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {_REASONS.get(reply.status, '')}"]
    length = str(len(reply.body))
    for name, value in reply.headers.items():
        if name.lower() != "content-length":
            lines.append(f"{name}: {value}")
        elif bodiless:
            length = value
    if reply.status != 204:
        lines.append(f"Content-Length: {length}")
    lines.append(f"Connection: {'keep-alive' if keeps else 'close'}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class _Reader:
    """Cuts requests out of one connection's bytes."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self._connection = connection
        self._number = number
        self._buffer = bytearray()

    def read_request(self) -> Request | None:
        """The next request, or None when the client has closed between two."""
        while True:
            end = self._buffer.find(b"\r\n\r\n")
            if end >= 0:
                break
            if len(self._buffer) > _MAX_HEADER_BYTES:
                raise BadRequest("header too long")
            if not self._fill():
                return None
        head = bytes(self._buffer[:end]).decode("latin-1")
        del self._buffer[: end + 4]
        lines = head.split("\r\n")
        try:
            method, target, _ = lines[0].split(" ")
        except ValueError as error:
            raise BadRequest(lines[0]) from error
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("expect", "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(method, target, headers, self._body(headers), self._number)

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunked()
        return self._exactly(int(headers.get("content-length") or 0))

    def _chunked(self) -> bytes:
        chunks: list[bytes] = []
        while True:
            size = int(self._line().partition(b";")[0], 16)
            if size == 0:
                while self._line():
                    pass
                return b"".join(chunks)
            chunks.append(self._exactly(size))
            self._exactly(2)

    def _line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\r\n")
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 2]
                return line
            if not self._fill():
                raise BadRequest("connection closed within a chunked body")

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not self._fill():
                raise BadRequest("connection closed within a body")
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    def _fill(self) -> bool:
        received = self._connection.recv(_RECV_BYTES)
        self._buffer += received
        return bool(received)


def _close(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Already closed by the other side; close() below frees the descriptor all the same.
        connection.close()
        return
    connection.close()
