"""Queries of users: admitted, bounded, streamed, and stopped when their time is over.

Owns the life of each query's cursor. A query runs as

    BEGIN TRANSACTION READ ONLY  →  gate  →  how fresh  →  rows  →  ROLLBACK

on a cursor of its own, so the rows and the freshness that is told with them come from one snapshot.
Knows nothing of HTTP or Flight; does not record metrics, but tells `observer` what happened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from accelerator.errors import (
    AcceleratorError,
    DatabaseClosed,
    DatabaseInvalidated,
    OutOfMemory,
    QueryInterrupted,
    Retry,
    translate,
)
from accelerator.freshness import (
    NO_DEMAND,
    Demand,
    Freshness,
    read_freshness,
)
from accelerator.query_errors import (
    DataUnavailable,
    NotFreshEnough,
    QueryCancelled,
    QueryError,
    QueryFailed,
    QueryOutOfMemory,
    QueryTimeout,
    ResultTooLarge,
)
from accelerator.query_slots import QueryLimits, Slots, Stop
from accelerator.verdicts import Verdicts

__all__ = [
    "Demand",
    "Freshness",
    "Query",
    "QueryLimits",
    "QueryReport",
    "QueryRunner",
    "Readers",
]

_LOOK_EVERY_S = 0.05

Parameters = Sequence[Any] | Mapping[str, Any] | None


class Readers(Protocol):
    """Where cursors come from: accelerator.database.Database."""

    def cursor(self) -> duckdb.DuckDBPyConnection: ...


class ColumnType(Protocol):
    """DuckDB's own description of a column's type: duckdb.DuckDBPyType."""

    @property
    def id(self) -> str: ...

    @property
    def children(self) -> list[tuple[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class QueryReport:
    """What became of one query. `outcome` is `ok` or the error's code.

    client   the address that asked, as its surface knows it; None for what is asked from inside
    """

    sql: str
    client: str | None
    surface: str
    outcome: str
    error: str | None
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Room:
    """What every query of a runner needs."""

    readers: Readers
    slots: Slots
    verdicts: Verdicts
    monotonic_s: Callable[[], float]
    observer: Callable[[QueryReport], None] | None
    on_fatal: Callable[[AcceleratorError], None] | None
    live: Callable[[], Mapping[str, Freshness]]
    now_ms: Callable[[], int | None]

    @property
    def limits(self) -> QueryLimits:
        return self.slots.limits


class QueryRunner:
    """Hands out queries. Thread-safe.

    `observer` is called once per query when it is over, from whatever thread ended it. `on_fatal`
    is called when DuckDB gave up on the open database: the owner reopens it. `live` is asked right
    before a query's transaction begins, for the state and the as-of time of each dataset; `now_ms`
    is AWS time.
    """

    def __init__(
        self,
        readers: Readers,
        limits: QueryLimits,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        observer: Callable[[QueryReport], None] | None = None,
        on_fatal: Callable[[AcceleratorError], None] | None = None,
        live: Callable[[], Mapping[str, Freshness]] = dict,
        now_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._slots = Slots(limits, monotonic_s)
        self._room = _Room(
            readers, self._slots, Verdicts(), monotonic_s, observer, on_fatal, live, now_ms
        )

    @property
    def limits(self) -> QueryLimits:
        return self._slots.limits

    def limit(self, limits: QueryLimits) -> None:
        """Other limits from here on, for the queries that run too."""
        self._slots.limit(limits)

    def open(
        self,
        sql: str,
        parameters: Parameters = None,
        *,
        surface: str = "internal",
        demand: Demand = NO_DEMAND,
    ) -> Query:
        """A query that has not started; `start` it, read it, close it (or use it in `with`)."""
        return Query(self._room, sql, parameters, surface, demand)

    @property
    def running(self) -> int:
        """How many queries hold a slot."""
        return self._slots.running

    def shed(self) -> bool:
        """Stops the query that has run longest, since memory runs short. False when none runs."""
        oldest = self._slots.oldest()
        if oldest is None:
            return False
        oldest.stop(Stop.MEMORY)
        return True

    def close(self) -> None:
        """Cancels what runs, refuses what comes. Idempotent."""
        self._slots.close()


class Query:
    """One query. One thread at a time uses it; `cancel` may come from any thread, at any time.

    After `start`: `schema` (Arrow) and `column_types` (DuckDB) describe the rows, `freshness` says
    how old they are.
    """

    def __init__(
        self, room: _Room, sql: str, parameters: Parameters, surface: str, demand: Demand
    ) -> None:
        self.sql = sql
        self.client: str | None = None
        self.surface = surface
        self.rows = 0
        self.started_s = 0.0
        self.schema: pa.Schema = pa.schema([])
        self.column_types: tuple[ColumnType, ...] = ()
        self.freshness = Freshness()
        self._room = room
        self._parameters = parameters
        self._demand = demand
        self._woken = threading.Event()
        # `_in_use` is held by the thread that is inside DuckDB, `_guard` only for a moment.
        self._in_use = threading.Lock()
        self._guard = threading.Lock()
        self._stop: Stop | None = None
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._reader: pa.RecordBatchReader | None = None
        self._ahead: pa.RecordBatch | None = None
        self._error: QueryError | None = None
        self._is_over = False

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- the reading thread ----------------------------------------------------------------------

    def start(self) -> None:
        """Waits for a slot, lets the gate decide, and begins to execute.

        Raises:
            QueryError: whatever kept it from running; the query is closed then.
        """
        with self._ended_by_errors():
            self.raise_if_stopped()
            if self._demand.is_any:
                self._await_freshness()
            self._room.slots.take(self)
            with self._in_use:
                self.raise_if_stopped()
                cursor = self._open_cursor()
                live = self._room.live()
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                admission = self._room.verdicts.admit(cursor, self.sql, self._parameters)
                self.freshness = read_freshness(cursor, admission.verdict.relations, live)
                self._check_freshness()
                self.raise_if_stopped()
                try:
                    self._reader, self.column_types = _execute(
                        cursor, self.sql, self._parameters, self._room.limits.batch_rows
                    )
                except duckdb.Error as error:
                    if admission.is_remembered:
                        self._judge_again(cursor, error)
                    raise
                self.schema = self._reader.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as they come.

        Raises:
            QueryError: also after rows were given; what was given is then not the whole result.
        """
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self) -> pa.RecordBatch | None:
        """The next rows, None at the end. Empty batches are skipped.

        A batch that is not full is the last one, so the end is read with it: a small result is
        whole when its rows are given, and holds neither slot nor snapshot any more.
        """
        full_rows = self._room.limits.batch_rows
        with self._ended_by_errors():
            with self._in_use:
                self.raise_if_stopped()
                batch, self._ahead = self._ahead or self._read(), None
                if batch is not None and batch.num_rows < full_rows:
                    self._ahead = self._read()
            if batch is not None:
                self.rows += batch.num_rows
                limit = self._room.limits.max_rows
                if limit is not None and self.rows > limit:
                    raise ResultTooLarge(f"The result has more than {limit} rows.")
        if self._ahead is None and (batch is None or batch.num_rows < full_rows):
            self.close()
        return batch

    def close(self) -> None:
        """Ends the query and frees its slot. Idempotent."""
        with self._in_use:
            self._end()

    # -- any thread ------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it holds neither slot nor snapshot any more."""
        return self._is_over

    @property
    def is_stopped(self) -> bool:
        return self._stop is not None

    def cancel(self) -> None:
        """Stops the query wherever it is; its reading thread gets QueryCancelled."""
        self.stop(Stop.CANCELLED)

    def stop(self, why: Stop) -> None:
        """Interrupts what executes; frees the slot at once when nobody is executing."""
        with self._guard:
            if self._is_over:
                return
            if self._stop is None:
                self._stop = why
            if self._cursor is not None:
                with suppress(duckdb.Error):
                    self._cursor.interrupt()
        if self._in_use.acquire(blocking=False):
            try:
                if self._cursor is not None:
                    self._error = self._error or self._stopped()
                    self._end()
            finally:
                self._in_use.release()
        self._woken.set()
        self._room.slots.wake()

    def raise_if_stopped(self) -> None:
        """Raises the error of whoever stopped the query, if somebody did."""
        if self._stop is not None:
            raise self._stopped()

    # -- inside ----------------------------------------------------------------------------------

    def _judge_again(self, cursor: duckdb.DuckDBPyConnection, error: duckdb.Error) -> None:
        """DuckDB may have refused a relation that is gone, which is for the gate to say.

        Raises:
            QueryRejected: it is so
        """
        if isinstance(error, _NO_REFUSALS):
            return
        with suppress(duckdb.Error):
            self._room.verdicts.again(cursor, self.sql, self._parameters)

    def _await_freshness(self) -> None:
        """Waits until the datasets of the query are as fresh as demanded.

        Raises:
            NotFreshEnough: they did not become so in time
        """
        room, demand = self._room, self._demand
        wait_s = room.limits.timeout_s if demand.wait_s is None else demand.wait_s
        deadline_s = room.monotonic_s() + min(wait_s, room.limits.timeout_s)
        cursor = room.readers.cursor()
        try:
            verdict = room.verdicts.again(cursor, self.sql, self._parameters)
            while True:
                self.freshness = read_freshness(cursor, verdict.relations, room.live())
                if self._is_fresh():
                    return
                left_s = deadline_s - room.monotonic_s()
                if left_s <= 0:
                    raise self._not_fresh()
                self._woken.wait(min(left_s, _LOOK_EVERY_S))
                self.raise_if_stopped()
        finally:
            cursor.close()

    def _check_freshness(self) -> None:
        """Between the wait and the query's snapshot the dataset may have been loaded anew."""
        if self._demand.is_any and not self._is_fresh():
            raise self._not_fresh()

    def _is_fresh(self) -> bool:
        demanded_ms = self._demand.as_of_ms(self._room.now_ms())
        as_of_ms = self.freshness.as_of_ms
        return demanded_ms is not None and as_of_ms is not None and as_of_ms >= demanded_ms

    def _not_fresh(self) -> NotFreshEnough:
        demanded_ms = self._demand.as_of_ms(self._room.now_ms())
        as_of_ms = self.freshness.as_of_ms
        if as_of_ms is None:
            return NotFreshEnough("How fresh the rows are is not proved yet.")
        if demanded_ms is None:
            return NotFreshEnough("AWS time is not known yet, so no staleness can be promised.")
        return NotFreshEnough(
            f"The rows are complete {demanded_ms - as_of_ms} ms short of the demanded time."
        )

    def _open_cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self._room.readers.cursor()
        with self._guard:
            self._cursor = cursor
        return cursor

    def _read(self) -> pa.RecordBatch | None:
        """The next batch with rows in it."""
        while True:
            self.raise_if_stopped()
            if self._reader is None:
                return None
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            if batch.num_rows:
                return batch

    def _stopped(self) -> QueryError:
        match self._stop:
            case Stop.TIMEOUT:
                return QueryTimeout(
                    f"The query was stopped after {self._room.limits.timeout_s:g} s."
                )
            case Stop.MEMORY:
                return QueryOutOfMemory("The query was stopped because memory ran short.")
            case _:
                return QueryCancelled("The query was cancelled.")

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        """Turns whatever the block raises into a QueryError, and ends the query with it."""
        try:
            yield
        except BaseException as error:
            failure = self._translated(error)
            with self._in_use:
                self._error = self._error or failure or QueryCancelled("The query was abandoned.")
                self._end()
            if failure is None:
                raise
            raise failure from error

    def _translated(self, error: BaseException) -> QueryError | None:
        """None for what no query causes."""
        if isinstance(error, QueryError):
            return error
        if isinstance(error, OSError | pa.ArrowException):
            error = translate(_from_stream(str(error)))
        elif isinstance(error, duckdb.Error):
            error = translate(error)
        if isinstance(error, DatabaseInvalidated) and self._room.on_fatal is not None:
            self._room.on_fatal(error)
        if self._stop is not None and isinstance(error, AcceleratorError):
            return self._stopped()
        if isinstance(error, OutOfMemory):
            return QueryOutOfMemory(str(error))
        if isinstance(error, QueryInterrupted):
            # Nobody here did: on 1.5.5 one part of a query that fails interrupts the others, and
            # whose error arrives is chance.
            return QueryFailed(
                "DuckDB gave the query up: a part of it failed.",
                hint="Either a value cannot be computed, or memory ran out: make the query "
                "smaller, or raise runtime.memory_limit.",
            )
        if isinstance(error, AcceleratorError):
            if error.retry is Retry.NO and not isinstance(error, DatabaseClosed):
                return QueryFailed(str(error), hint=error.hint)
            return DataUnavailable(str(error))
        return None

    def _end(self) -> None:
        """Drops the result, rolls back, frees the slot. Called with `_in_use` held."""
        with self._guard:
            if self._is_over:
                return
            self._is_over = True
            cursor, self._cursor = self._cursor, None
            reader, self._reader, self._ahead = self._reader, None, None
        if reader is not None:
            # DuckDB 2 refuses the next statement while a result is open.
            with suppress(duckdb.Error, OSError, pa.ArrowException):
                reader.close()
        if cursor is not None:
            with suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
            with suppress(duckdb.Error):
                cursor.close()
        self._room.slots.free(self)
        self._report()

    def _report(self) -> None:
        if self._room.observer is None:
            return
        ran_s = self._room.monotonic_s() - self.started_s if self.started_s else 0.0
        error = self._error
        self._room.observer(
            QueryReport(
                sql=self.sql,
                client=self.client,
                surface=self.surface,
                outcome="ok" if error is None else error.code,
                error=None if error is None else str(error),
                rows=self.rows,
                seconds=ran_s,
            )
        )


# Raised by what happens to a query, whatever it names.
_NO_REFUSALS = (
    duckdb.InterruptException,
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.ConnectionException,
)
_STREAM_ERRORS: dict[str, type[duckdb.Error]] = {
    "Out of Memory Error": duckdb.OutOfMemoryException,
    "INTERRUPT Error": duckdb.InterruptException,
    "FATAL Error": duckdb.FatalException,
    "INTERNAL Error": duckdb.InternalException,
    "Connection Error": duckdb.ConnectionException,
}


def _from_stream(text: str) -> duckdb.Error:
    """What DuckDB raises in the middle of a stream comes through Arrow as text: its kind again."""
    kind = next((k for prefix, k in _STREAM_ERRORS.items() if prefix in text[:200]), duckdb.Error)
    return kind(text)


def _execute(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters, batch_rows: int
) -> tuple[pa.RecordBatchReader, tuple[ColumnType, ...]]:
    """Starts the query as a stream.

    DuckDB 2 streams a relation and copies the result of `execute` whole before its first row; 1.5
    streams the result of `execute` and copies a relation that has parameters.
    """
    if duckdb.__version__.startswith("1."):
        result: Any = cursor.execute(sql, parameters)
        types = tuple(column[1] for column in result.description or ())
    else:
        result = cursor.sql(sql, params=parameters) if parameters else cursor.sql(sql)
        types = tuple(result.types)
    return result.to_arrow_reader(batch_rows), types
