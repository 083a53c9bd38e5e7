"""The listener: a socket, TLS, and the thread in which the app is served.

Owns the rule of where it may listen (`check_bind`) and the life of the server. Knows no routes.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from connector.errors import ConfigError, StartRefused

_START_S = 10.0
_DRAIN_S = 5
_MOST_CONNECTIONS = 1_000


@dataclass(frozen=True, slots=True)
class TlsFiles:
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Bind:
    """Where and how to listen. `tls_off_is_said`: the configuration holds `tls: off` itself.

    `setting` names the section of the configuration, for messages.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    token: str | None = None
    tls: TlsFiles | None = None
    tls_off_is_said: bool = False
    setting: str = "runtime.http"


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine reaches. Names other than localhost are not."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_bind(bind: Bind) -> list[ConfigError]:
    """What forbids listening there: off loopback a token is needed, and TLS or the word `off`."""
    problems = []
    if bind.token is not None and not bind.token.strip():
        problems.append(
            ConfigError(f"{bind.setting}.token is empty.", hint="Set a long random one.")
        )
    if bind.tls is not None:
        for role, path in (("cert", bind.tls.cert), ("key", bind.tls.key)):
            if not path.is_file():
                problems.append(
                    ConfigError(
                        f"{bind.setting}.tls.{role} is {path}, which is no file.",
                        hint="Give the path of a PEM file.",
                    )
                )
    if is_loopback(bind.host):
        return problems
    reached = f"while {bind.setting}.host is {bind.host}, which others can reach."
    if bind.token is None:
        problems.append(
            ConfigError(
                f"{bind.setting}.token is not set {reached}",
                hint="Set a token, or listen on 127.0.0.1.",
            )
        )
    if bind.tls is None and not bind.tls_off_is_said:
        problems.append(
            ConfigError(
                f"{bind.setting}.tls is not set {reached}",
                hint="Set tls: {cert: FILE, key: FILE}, or say tls: off where a proxy does it.",
            )
        )
    return problems


class HttpServer:
    """Serves one app in a thread of its own, from `start` to `stop`."""

    def __init__(self, app: ASGIApp, bind: Bind) -> None:
        self._app = app
        self._bind = bind
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port in use, which port 0 leaves to the system."""
        if self._socket is None:
            return self._bind.port
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        scheme = "http" if self._bind.tls is None else "https"
        host = self._bind.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Binds and serves; returns once requests are answered.

        Raises:
            ConfigError: the bind is not allowed, or its certificate cannot be used
            StartRefused: the address is taken or not ours
        """
        problems = check_bind(self._bind)
        if problems:
            raise problems[0]
        self._check_certificate()
        self._socket = self._listen()
        tls = self._bind.tls
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http="h11",
                ws="none",
                server_header=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_DRAIN_S,
                ssl_certfile=None if tls is None else str(tls.cert),
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="http", daemon=True
        )
        self._thread.start()
        self._await_start(self._server, self._thread)

    def stop(self) -> None:
        """Takes no new requests, lets those in flight end for a few seconds. Idempotent."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
        self._server = self._thread = self._socket = None

    def _await_start(self, server: uvicorn.Server, thread: threading.Thread) -> None:
        pause = threading.Event()
        for _ in range(int(_START_S * 200)):
            if server.started:
                return
            if not thread.is_alive():
                break
            pause.wait(0.005)
        raise StartRefused(f"The HTTP server did not start on {self.url}.")

    def _check_certificate(self) -> None:
        tls = self._bind.tls
        if tls is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.cert, tls.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The certificate {tls.cert} and its key {tls.key} cannot be used: {error}",
                hint="Both are PEM files, the key without a passphrase, and belong together.",
            ) from error

    def _listen(self) -> socket.socket:
        host, port = self._bind.host.strip("[]"), self._bind.port
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            listener = socket.create_server((host, port), family=family, backlog=512)
            # Connections inherit it. Without it the pieces of an answer wait 40 ms for the
            # client's acknowledgement: asyncio sets it only on sockets that it made itself.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return listener
        except OSError as error:
            where = f"{host}:{port}"
            raise StartRefused(
                f"{where} cannot be listened on: {error.strerror or error}.",
                hint=f"Stop what holds {where}, or set {self._bind.setting}.port or .host.",
            ) from error
