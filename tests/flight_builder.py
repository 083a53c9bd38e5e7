"""The Flight SQL surface over a data file, and a client that speaks its bare messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from accelerator.query import QueryLimits, QueryReport, QueryRunner, Readers
from accelerator.relations import key_columns
from connector.surface.flight.commands import Commands
from connector.surface.flight.messages import message, pack, unpack
from connector.surface.flight.server import FlightBind, FlightServer
from connector.surface.server import Bind


@dataclass(frozen=True, slots=True)
class ServedFlight:
    """A listening surface. `client` is a connection of its own, without Flight SQL's own code."""

    server: FlightServer
    queries: QueryRunner
    reports: list[QueryReport]

    @property
    def uri(self) -> str:
        return f"grpc+tcp://127.0.0.1:{self.server.port}"

    @contextmanager
    def client(self, **headers: str) -> Iterator[FlightClient]:
        with flight.connect(("127.0.0.1", self.server.port)) as connection:
            yield FlightClient(connection, headers)


@dataclass(frozen=True, slots=True)
class FlightClient:
    """Flight SQL as it is on the wire. Headers are written with underscores."""

    connection: Any
    headers: dict[str, str]

    @property
    def options(self) -> Any:
        named = {name.replace("_", "-"): value for name, value in self.headers.items()}
        return flight.FlightCallOptions(
            headers=[(name.encode(), value.encode()) for name, value in named.items()], timeout=60
        )

    def info(self, name: str, **fields: Any) -> Any:
        descriptor = flight.FlightDescriptor.for_command(pack(name, **fields))
        return self.connection.get_flight_info(descriptor, self.options)

    def read(self, info: Any) -> pa.Table:
        return self.connection.do_get(info.endpoints[0].ticket, self.options).read_all()

    def read_ticket(self, ticket: bytes) -> pa.Table:
        return self.connection.do_get(flight.Ticket(ticket), self.options).read_all()

    def get(self, name: str, **fields: Any) -> pa.Table:
        return self.read(self.info(name, **fields))

    def sql(self, text: str) -> pa.Table:
        return self.get("CommandStatementQuery", query=text)

    def act(self, action: str, body: bytes) -> list[bytes]:
        results = self.connection.do_action((action, body), self.options)
        return [result.body.to_pybytes() for result in results]

    def prepare(self, text: str) -> Any:
        body = pack("ActionCreatePreparedStatementRequest", query=text)
        return unpack(self.act("CreatePreparedStatement", body)[0])[1]

    def bind(self, handle: bytes, batch: pa.RecordBatch) -> bytes:
        """What the server answers to the parameters: DoPutPreparedStatementResult."""
        command = pack("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, reader = self.connection.do_put(descriptor, batch.schema, self.options)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            answer = reader.read()
            return b"" if answer is None else bytes(answer.to_pybytes())


def cancel_body(info: Any) -> bytes:
    return bytes(message("CancelFlightInfoRequest", info=info.serialize()).SerializeToString())


def rows(table: pa.Table) -> Sequence[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@contextmanager
def serving_flight(
    readers: Readers, *, at: FlightBind | None = None, **limits: Any
) -> Iterator[ServedFlight]:
    """The surface on a free port of 127.0.0.1, over real gRPC."""
    reports: list[QueryReport] = []
    queries = QueryRunner(readers, QueryLimits(**limits), observer=reports.append)

    def keys() -> Any:
        cursor = readers.cursor()
        try:
            return key_columns(cursor)
        finally:
            cursor.close()

    commands = Commands(queries, readers, keys, "1.2.3")
    server = FlightServer(commands, queries, at or FlightBind(Bind(port=0)))
    try:
        server.start()
        yield ServedFlight(server, queries, reports)
    finally:
        queries.close()
        server.stop()
