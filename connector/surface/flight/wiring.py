"""The Flight surface of a configuration, where it asks for one.

Owns what it takes from the settings: host, token and certificate are those of HTTP. Imports the
rest of the room only when it is wanted: gRPC and protobuf are of no use to anybody else.
"""

from __future__ import annotations

import importlib.util
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from accelerator.database import Database
from accelerator.query import QueryRunner
from accelerator.relations import key_columns
from connector.config import Flight
from connector.errors import ConfigError
from connector.surface.server import Bind

if TYPE_CHECKING:
    from connector.surface.flight.server import FlightServer


def flight_server(
    settings: Flight, http: Bind, queries: QueryRunner, database: Database
) -> FlightServer | None:
    """The server, not started; None where `flight.enabled` is false."""
    if not settings.enabled:
        return None
    # gRPC writes lines of its own to stderr, among them one for each stranger's handshake.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from connector.surface.flight.commands import Commands
    from connector.surface.flight.server import FlightBind, FlightServer

    def keys() -> Mapping[str, tuple[str, ...]]:
        cursor = database.cursor()
        try:
            with database.translated():
                return key_columns(cursor)
        finally:
            cursor.close()

    commands = Commands(queries, database, keys, version("dynaduck"))
    return FlightServer(commands, queries, FlightBind(bind_of(settings, http), settings.client_ca))


def bind_of(settings: Flight, http: Bind) -> Bind:
    """Where Flight listens: as HTTP does, on a port of its own."""
    return replace(http, port=settings.port, setting="runtime.flight")


def check_flight(settings: Flight, http: Bind) -> None:
    """Raises ConfigError for what Flight cannot be served with."""
    if not settings.enabled:
        return
    if importlib.util.find_spec("google") is None or not _has_protobuf():
        raise ConfigError(
            "runtime.flight.enabled needs the package protobuf, which is not installed.",
            hint="pip install 'dynaduck[flight]'",
        )
    problems = list(client_ca_problems(settings.client_ca, http))
    if problems:
        raise problems[0]


def _has_protobuf() -> bool:
    return importlib.util.find_spec("google.protobuf") is not None


def client_ca_problems(client_ca: Path | None, http: Bind) -> list[ConfigError]:
    """What keeps clients from being asked for certificates."""
    if client_ca is None:
        return []
    problems = []
    if http.tls is None:
        problems.append(
            ConfigError(
                "runtime.flight.client_ca asks clients for certificates, and there is no TLS.",
                hint="Set runtime.http.tls: {cert: FILE, key: FILE}.",
            )
        )
    if not client_ca.is_file():
        problems.append(
            ConfigError(
                f"runtime.flight.client_ca is {client_ca}, which is no file.",
                hint="Give the path of a PEM file.",
            )
        )
    elif not _is_authority(client_ca):
        problems.append(
            ConfigError(
                f"runtime.flight.client_ca is {client_ca}, which holds no certificate.",
                hint="Give a PEM file with the certificate of the authority.",
            )
        )
    return problems


def _is_authority(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except (OSError, ssl.SSLError):
        return False
    return True
