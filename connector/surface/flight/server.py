"""The Flight listener: who may call, what each call is answered with, and its life.

Owns gRPC's side of Flight SQL by pyarrow.flight; `commands` owns what is answered. No web page can
call it: browsers speak neither HTTP/2 without TLS nor gRPC's trailers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import structlog

from accelerator.freshness import Demand, Freshness
from accelerator.query import Query, QueryRunner
from accelerator.query_errors import QueryError
from connector.errors import StartRefused
from connector.surface.demands import parse_demand
from connector.surface.flight.commands import NOT_CANCELLABLE, Commands, Described, Execution
from connector.surface.flight.doorkeeper import Doorkeeper, Handshake
from connector.surface.flight.messages import message, pack, parse, unpack
from connector.surface.flight.refusals import (
    InvalidArgument,
    Unimplemented,
    refusal,
    schema_refusal,
)
from connector.surface.flight.streams import RowStream, TableStream
from connector.surface.flight.watch import Followed, Watch, cut_connections
from connector.surface.flight.wiring import client_ca_problems
from connector.surface.server import Bind, check_bind, is_loopback
from connector.surface.status import rfc3339

_DRAIN_S = 2.0
_STOP_S = 10.0
_ACTIONS = {
    "CreatePreparedStatement": "Names a statement, to bind parameters and to execute it.",
    "ClosePreparedStatement": "Forgets a prepared statement.",
    "CancelFlightInfo": "Ends the execution of a statement.",
    "CancelQuery": "Ends the execution of a statement; the older form.",
}

log = structlog.get_logger(__name__)

Context = Any


@dataclass(frozen=True, slots=True)
class FlightBind:
    """`bind` as for HTTP; `client_ca`: only clients with a certificate that it signed get in."""

    bind: Bind
    client_ca: Path | None = None


@contextmanager
def _refusing(refused: Callable[[Exception], Exception] = refusal) -> Iterator[None]:
    """Turns whatever the block raises into what Flight makes a status of."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # a handler may raise nothing else
        raise refused(error) from None


class FlightSqlServer(flight.FlightServerBase):  # type: ignore[misc]
    """The calls. gRPC has a thread for each."""

    def __init__(self, commands: Commands, queries: QueryRunner, **options: Any) -> None:
        # gRPC answers as soon as the base is made: all that calls need is there before.
        self._commands = commands
        self._queries = queries
        self.watch = Watch(self._cut, self._most_calls)
        self.watch.start()
        try:
            super().__init__(**options)
        except BaseException:
            self.watch.close()
            raise

    def get_flight_info(self, context: Context, descriptor: Any) -> Any:
        with _refusing():
            command = _command_of(descriptor)
            described = self._described(context, command)
            return flight.FlightInfo(
                described.schema,
                descriptor,
                [flight.FlightEndpoint(described.ticket, [])],
                app_metadata=msgspec.json.encode(_freshness(described.freshness)),
            )

    def get_schema(self, context: Context, descriptor: Any) -> Any:
        with _refusing(schema_refusal):
            described = self._described(context, _command_of(descriptor))
            return flight.SchemaResult(described.schema)

    def do_get(self, context: Context, ticket: Any) -> Any:
        with _refusing():
            table = self._commands.listed(ticket.ticket, self._following(context))
            if table is not None:
                return self._sent_table(context, table)
            execution = self._commands.open(ticket.ticket, _demand(context))
            query = execution.query
            try:
                followed = self.watch.enter(context, query, self._longest_s())
            except QueryError:
                self._commands.forget(execution)
                raise
            rows = RowStream(query, partial(self._over, followed, execution), followed)
            try:
                query.start()
                rows.schema = schema = execution.schema()
                for name, value in _freshness(query.freshness).items():
                    context.add_header(name, value)
            except BaseException:
                rows.close()
                raise
            return flight.GeneratorStream(schema, rows)

    def do_put(self, context: Context, descriptor: Any, reader: Any, writer: Any) -> None:
        with _refusing():
            command = _command_of(descriptor)
            with self.watch.following(context, None, self._longest_s()):
                handle = self._commands.bind(command, (chunk.data for chunk in reader))
            answer = message("DoPutPreparedStatementResult", prepared_statement_handle=handle)
            writer.write(pa.py_buffer(answer.SerializeToString()))

    def do_exchange(self, *_call: Any) -> None:
        raise Unimplemented("DoExchange is not answered here.")

    def list_flights(self, *_call: Any) -> Iterator[Any]:
        raise Unimplemented("ListFlights is not answered here: ask GetFlightInfo for GetTables.")

    def list_actions(self, _context: Context) -> list[Any]:
        return [flight.ActionType(name, words) for name, words in _ACTIONS.items()]

    def do_action(self, context: Context, action: Any) -> list[Any]:
        with _refusing():
            return [flight.Result(pa.py_buffer(body)) for body in self._acted(context, action)]

    # -- inside ----------------------------------------------------------------------------------

    def _acted(self, context: Context, action: Any) -> list[bytes]:
        body = action.body.to_pybytes()
        if action.type == "CreatePreparedStatement":
            asked = _unpacked("ActionCreatePreparedStatementRequest", body)
            return [self._commands.prepare(asked.query, self._following(context))]
        if action.type == "ClosePreparedStatement":
            asked = _unpacked("ActionClosePreparedStatementRequest", body)
            self._commands.close_statement(bytes(asked.prepared_statement_handle))
            return []
        if action.type == "CancelFlightInfo":
            status = self._cancelled(parse("CancelFlightInfoRequest", body).info)
            return [message("CancelFlightInfoResult", status=status).SerializeToString()]
        if action.type == "CancelQuery":
            status = self._cancelled(_unpacked("ActionCancelQueryRequest", body).info)
            return [pack("ActionCancelQueryResult", result=status)]
        raise Unimplemented(f"The action {action.type[:80]!r} is not answered here.")

    def _cancelled(self, info: bytes) -> int:
        try:
            endpoints = flight.FlightInfo.deserialize(info).endpoints
        except (pa.ArrowException, ValueError, OSError) as error:
            raise InvalidArgument("This is no FlightInfo.") from error
        statuses = [self._commands.cancel(endpoint.ticket.ticket) for endpoint in endpoints[:1]]
        return statuses[0] if statuses else NOT_CANCELLABLE

    def _described(self, context: Context, command: bytes) -> Described:
        return self._commands.describe(command, _demand(context), self._following(context))

    def _following(self, context: Context) -> Any:
        def follow(query: Query) -> AbstractContextManager[None]:
            return self.watch.following(context, query, self._longest_s())

        return follow

    def _sent_table(self, context: Context, table: pa.Table) -> Any:
        followed = self.watch.enter(context, None, self._longest_s())
        rows = TableStream(table, partial(self.watch.leave, followed), followed)
        return flight.GeneratorStream(table.schema, rows)

    def _over(self, followed: Followed, execution: Execution) -> None:
        self.watch.leave(followed)
        self._commands.forget(execution)
        execution.query.cancel()

    def _longest_s(self) -> float:
        limits = self._queries.limits
        return limits.timeout_s + limits.max_wait_s

    def _most_calls(self) -> int:
        limits = self._queries.limits
        return limits.max_concurrent + limits.max_waiting + 64

    def _cut(self, peer: str) -> None:
        cut_connections(self.port, peer)


class FlightServer:
    """Serves from `start` to `stop`."""

    def __init__(self, commands: Commands, queries: QueryRunner, at: FlightBind) -> None:
        self._commands = commands
        self._queries = queries
        self._at = at
        self._server: FlightSqlServer | None = None

    @property
    def port(self) -> int:
        """The port in use, which port 0 leaves to the system."""
        return self._at.bind.port if self._server is None else int(self._server.port)

    @property
    def calls(self) -> int:
        """How many calls run a query or send rows."""
        return 0 if self._server is None else len(self._server.watch)

    @property
    def url(self) -> str:
        scheme = "grpc+tcp" if self._at.bind.tls is None else "grpc+tls"
        host = self._at.bind.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    def start(self) -> None:
        """Binds and serves.

        Raises:
            ConfigError: the bind is not allowed, or its certificates cannot be read
            StartRefused: the address is taken or not ours
        """
        problems = check_bind(self._at.bind) + client_ca_problems(self._at.client_ca, self._at.bind)
        if problems:
            raise problems[0]
        bind = self._at.bind
        if not is_loopback(bind.host) and self._at.client_ca is None:
            log.warning(
                "whoever reaches the Flight port can make gRPC hold a large message, also without "
                "the token: set runtime.flight.client_ca, or put a proxy in front",
                host=bind.host,
            )
        try:
            self._server = FlightSqlServer(
                self._commands,
                self._queries,
                location=self._location(),
                auth_handler=Handshake(),
                middleware={"doorkeeper": Doorkeeper(bind.token)},
                **self._tls(),
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            where = f"{bind.host}:{bind.port}"
            raise StartRefused(
                f"{where} cannot be listened on for Flight.",
                hint=f"Stop what holds {where}, or set {bind.setting}.port.",
            ) from error

    def stop(self) -> None:
        """Takes no new calls and ends those in progress. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        port = server.port
        server.watch.close()
        ending = threading.Thread(target=server.shutdown, name="flight-stop", daemon=True)
        ending.start()
        ending.join(_DRAIN_S)
        if ending.is_alive():
            # A client that does not read would keep the server from ending.
            cut_connections(port)
            ending.join(_STOP_S)

    def _location(self) -> Any:
        bind = self._at.bind
        host = bind.host.strip("[]")
        make = flight.Location.for_grpc_tcp if bind.tls is None else flight.Location.for_grpc_tls
        return make(f"[{host}]" if ":" in host else host, bind.port)

    def _tls(self) -> dict[str, Any]:
        tls, client_ca = self._at.bind.tls, self._at.client_ca
        if tls is None:
            return {}
        options: dict[str, Any] = {
            "tls_certificates": [flight.CertKeyPair(tls.cert.read_bytes(), tls.key.read_bytes())]
        }
        if client_ca is not None:
            options |= {"verify_client": True, "root_certificates": client_ca.read_bytes()}
        return options


def _command_of(descriptor: Any) -> bytes:
    if descriptor.command is None:
        raise InvalidArgument("There are no paths here: send a command of Flight SQL.")
    return bytes(descriptor.command)


def _unpacked(name: str, body: bytes) -> Any:
    found, asked = unpack(body)
    if found != name:
        raise InvalidArgument(f"The action takes a {name}.")
    return asked


def _demand(context: Context) -> Demand:
    return parse_demand(context.get_middleware("doorkeeper").demands)


def _freshness(freshness: Freshness) -> dict[str, str]:
    told = {}
    if freshness.state is not None:
        told["x-dynaduck-state"] = freshness.state
    if freshness.as_of_ms is not None:
        told["x-dynaduck-as-of"] = rfc3339(freshness.as_of_ms)
    return told
