"""Flight SQL's commands over the query runner: what each is answered with.

Owns the way of a statement from a command to a ticket to rows. Each runs as one query of the
runner, so gate, snapshot, slots and limits are those of every surface. Knows no gRPC.

A ticket holds its statement: between GetFlightInfo and DoGet nothing waits here and no slot is
held. GetFlightInfo asks for the columns alone, by the same statement with LIMIT 0 around it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from accelerator.cells import shape_of
from accelerator.errors import AcceleratorError
from accelerator.freshness import NO_DEMAND, Demand, Freshness
from accelerator.gate import parameter_names
from accelerator.query import Query, QueryRunner, Readers
from accelerator.query_errors import DataUnavailable, QueryFailed, QueryRejected
from accelerator.relations import columns_only
from connector.surface.flight.binding import bound_bytes, parameter_schema, values_of
from connector.surface.flight.listing import COMMANDS, Listing
from connector.surface.flight.messages import pack, unpack
from connector.surface.flight.prepared import Prepared, PreparedStatements
from connector.surface.flight.sql_info import facts

CANCELLED, NOT_CANCELLABLE = 1, 3
NO_FRESHNESS = Freshness()

Follow = Callable[[Query], AbstractContextManager[None]]

_WRITES = frozenset(
    {"CommandStatementUpdate", "CommandStatementIngest", "CommandPreparedStatementUpdate"}
)


class UnknownStatement(QueryFailed):
    """A handle that is not, or no longer, that of a prepared statement."""


class NotServed(QueryFailed):
    """A command that Flight SQL has and this server has not."""


class _Ticket(msgspec.Struct, array_like=True, frozen=True):
    """`number` names the execution, for whoever wants to cancel it; `columns` are as described."""

    number: bytes
    sql: str
    names: tuple[str, ...]
    bound: bytes = b""
    columns: tuple[str, ...] = ()
    min_as_of_ms: int | None = None
    max_staleness_ms: int | None = None
    wait_s: float | None = None

    @property
    def demand(self) -> Demand:
        return Demand(self.min_as_of_ms, self.max_staleness_ms, self.wait_s)


@dataclass(frozen=True, slots=True)
class Described:
    """What GetFlightInfo tells: `schema` None where it is not known before the rows come."""

    schema: pa.Schema | None
    ticket: bytes
    freshness: Freshness = NO_FRESHNESS


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a small query, and what DuckDB calls the types of its columns."""

    table: pa.Table
    type_names: tuple[str, ...]


class Commands:
    """Thread-safe. `keys` gives the key columns of each dataset, `version` is this release."""

    def __init__(
        self,
        queries: QueryRunner,
        readers: Readers,
        keys: Callable[[], Mapping[str, tuple[str, ...]]],
        version: str,
    ) -> None:
        self._queries = queries
        self._readers = readers
        self._keys = keys
        self._version = version
        self._prepared = PreparedStatements()
        self._running: dict[bytes, Query] = {}
        self._lock = threading.Lock()

    # -- what a command comes to -----------------------------------------------------------------

    def describe(self, command: bytes, demand: Demand, follow: Follow) -> Described:
        """The columns of a command's answer, and the ticket for its rows.

        Raises:
            NotAMessage: it is no command of Flight SQL
            QueryError: it cannot be answered
        """
        name, asked = unpack(command)
        if name in COMMANDS:
            return Described(self._listing(follow).schema(name, asked), command)
        prepared = self._statement(name, asked)
        query, schema = self._columns(prepared, demand, follow)
        ticket = _Ticket(
            secrets.token_bytes(16),
            prepared.sql,
            prepared.names,
            prepared.bound,
            tuple(schema.names),
            demand.min_as_of_ms,
            demand.max_staleness_ms,
            demand.wait_s,
        )
        handle = msgspec.msgpack.encode(ticket)
        return Described(
            schema, pack("TicketStatementQuery", statement_handle=handle), query.freshness
        )

    def listed(self, ticket: bytes, follow: Follow) -> pa.Table | None:
        """The answer to a ticket that is a metadata command; None for a ticket of a statement."""
        name, asked = unpack(ticket)
        return self._listing(follow).answer(name, asked) if name in COMMANDS else None

    def open(self, ticket: bytes, demand: Demand) -> Execution:
        """The execution of a statement's ticket, not started; `forget` it when it is over.

        Raises:
            NotAMessage, QueryError: it is no such ticket
        """
        name, asked = unpack(ticket)
        if name != "TicketStatementQuery":
            # Some clients give the command itself for a ticket.
            asked_for = self._statement(name, asked)
            given = _Ticket(
                secrets.token_bytes(16), asked_for.sql, asked_for.names, asked_for.bound
            )
        else:
            given = _ticket_of(asked.statement_handle)
        values = values_of(given.bound, given.names)
        demand = demand if demand.is_any else given.demand
        query = self._queries.open(given.sql, values, surface="flight", demand=demand)
        with self._lock:
            self._running[given.number] = query
        return Execution(query, given.number, given.columns)

    def forget(self, execution: Execution) -> None:
        """It is over. Idempotent."""
        with self._lock:
            if self._running.get(execution.number) is execution.query:
                del self._running[execution.number]

    def cancel(self, ticket: bytes) -> int:
        """Ends the execution of a ticket: CANCELLED, or NOT_CANCELLABLE when it is not running."""
        name, asked = unpack(ticket)
        if name != "TicketStatementQuery":
            return NOT_CANCELLABLE
        with self._lock:
            query = self._running.get(_ticket_of(asked.statement_handle).number)
        if query is None:
            return NOT_CANCELLABLE
        query.cancel()
        return CANCELLED

    # -- prepared statements ---------------------------------------------------------------------

    def prepare(self, sql: str, follow: Follow) -> bytes:
        """The result of the action CreatePreparedStatement.

        Raises:
            QueryError: the statement is refused, as far as that shows without its parameters
        """
        prepared = Prepared(sql, self._parameter_names(sql))
        try:
            schema = self._columns(prepared, NO_DEMAND, follow)[1]
        except (QueryFailed, QueryRejected):
            # With NULL for each parameter it may well be refused, and yet run with values.
            if not prepared.names:
                raise
            schema = None
        return pack(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self._prepared.add(prepared),
            dataset_schema=_serialized(schema),
            parameter_schema=_serialized(
                parameter_schema(prepared.names) if prepared.names else None
            ),
        )

    def bind(self, command: bytes, batches: Iterator[pa.RecordBatch]) -> bytes:
        """Keeps the parameters of a prepared statement; gives its handle again.

        Raises:
            NotAMessage, QueryError: what was put are no parameters
        """
        name, asked = unpack(command)
        if name in _WRITES:
            raise QueryRejected("Nothing can be written here.")
        if name != "CommandPreparedStatementQuery":
            raise NotServed(f"{name} takes no data.")
        handle = bytes(asked.prepared_statement_handle)
        if self._prepared.get(handle) is None:
            raise _unknown_statement()
        if not self._prepared.bind(handle, bound_bytes(batches)):
            raise _unknown_statement()
        return handle

    def close_statement(self, handle: bytes) -> None:
        """Idempotent."""
        self._prepared.remove(handle)

    # -- inside ----------------------------------------------------------------------------------

    def _statement(self, name: str, asked: Any) -> Prepared:
        if name == "CommandStatementQuery":
            if asked.transaction_id:
                raise NotServed("There are no transactions: each statement is one snapshot.")
            return Prepared(asked.query)
        if name == "CommandPreparedStatementQuery":
            prepared = self._prepared.get(bytes(asked.prepared_statement_handle))
            if prepared is None:
                raise _unknown_statement()
            return prepared
        if name in _WRITES:
            raise QueryRejected("Nothing can be written here.")
        raise NotServed(f"{name} is not answered here.")

    def _listing(self, follow: Follow) -> Listing:
        def ask(sql: str) -> Rows:
            query = self._queries.open(sql, surface="internal")
            with query, follow(query):
                query.start()
                types = tuple(str(kind) for kind in query.column_types)
                return Rows(pa.Table.from_batches(list(query.batches()), query.schema), types)

        return Listing(ask, self._keys, facts(self._version, self._queries.limits.timeout_s))

    def _columns(
        self, prepared: Prepared, demand: Demand, follow: Follow
    ) -> tuple[Query, pa.Schema]:
        """The query that told the columns, which is over, and its columns.

        What cannot stand inside a FROM, such as a PIVOT without an IN list, is begun as it is.
        """
        values: Any = values_of(prepared.bound, prepared.names)
        if values is None and prepared.names:
            numbered = all(name.isdigit() for name in prepared.names)
            values = [None] * len(prepared.names) if numbered else dict.fromkeys(prepared.names)
        probe = self._queries.open(
            columns_only(prepared.sql), values, surface="internal", demand=demand
        )
        try:
            return self._begun(probe, follow)
        except (QueryFailed, QueryRejected):
            query = self._queries.open(prepared.sql, values, surface="flight", demand=demand)
            return self._begun(query, follow)

    @staticmethod
    def _begun(query: Query, follow: Follow) -> tuple[Query, pa.Schema]:
        with query, follow(query):
            query.start()
            return query, checked_schema(query)

    def _parameter_names(self, sql: str) -> tuple[str, ...]:
        try:
            with _closing(self._readers) as cursor:
                return parameter_names(cursor, sql)
        except QueryFailed:
            raise
        except AcceleratorError as error:
            if isinstance(error, QueryRejected):
                raise
            raise DataUnavailable(str(error)) from error


@contextmanager
def _closing(readers: Readers) -> Iterator[Any]:
    cursor = readers.cursor()
    try:
        yield cursor
    finally:
        cursor.close()


@dataclass(frozen=True, slots=True)
class Execution:
    """One query on its way to a client. `columns` are their names where they were told before."""

    query: Query
    number: bytes
    columns: tuple[str, ...]

    def schema(self) -> pa.Schema:
        """The columns that are sent: as they were described, since drivers compare.

        DuckDB tells columns of one name apart where a statement stands inside another, and only
        there.

        Raises:
            QueryFailed: Arrow would change the values of one of them
        """
        schema = checked_schema(self.query)
        if len(self.columns) != len(schema) or list(self.columns) == schema.names:
            return schema
        named = zip(schema, self.columns, strict=True)
        return pa.schema((field.with_name(name) for field, name in named), schema.metadata)


def checked_schema(query: Query) -> pa.Schema:
    """The columns of a query that has begun, as they are sent: an ENUM as its text.

    A stream's dictionaries would have to be complete before its first row.

    Raises:
        QueryFailed: Arrow would change the values of one of them
    """
    for name, kind in zip(query.schema.names, query.column_types, strict=True):
        shape_of(name, kind)
    if not any(_has_dictionary(field.type) for field in query.schema):
        return query.schema
    return pa.schema([_spelled_out(field) for field in query.schema], query.schema.metadata)


def _has_dictionary(kind: pa.DataType) -> bool:
    is_one = pa.types.is_dictionary(kind)
    return is_one or any(_has_dictionary(kind.field(n).type) for n in range(kind.num_fields))


def _spelled_out(field: pa.Field) -> pa.Field:
    if pa.types.is_dictionary(field.type):
        return field.with_type(field.type.value_type)
    if _has_dictionary(field.type):
        raise QueryFailed(
            f"Column {field.name!r} holds an ENUM inside another type.",
            hint=f'Select CAST("{field.name}" AS VARCHAR) in its place.',
        )
    return field


def _ticket_of(handle: bytes) -> _Ticket:
    try:
        return msgspec.msgpack.decode(handle, type=_Ticket)
    except (msgspec.DecodeError, RecursionError) as error:
        raise QueryFailed("This is no ticket of this server.") from error


def _serialized(schema: pa.Schema | None) -> bytes:
    return b"" if schema is None else bytes(schema.serialize().to_pybytes())


def _unknown_statement() -> UnknownStatement:
    return UnknownStatement(
        "There is no such prepared statement.", hint="Prepare it again: it was closed or dropped."
    )
