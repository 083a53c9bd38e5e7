"""`dynaduck sql`: where a query goes, and how its rows look.

Owns the choice between the running service and the file (only where no service answers), and the
four formats. A table shows the first rows; the other formats carry all of them, as they come.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Protocol

import pyarrow as pa
from pyarrow import ipc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from accelerator.cells import Shape, text_cells
from accelerator.query import QueryLimits, QueryRunner, Readers
from accelerator.results import MEDIA_TYPES
from connector.client import ServiceClient, ServiceSilent
from connector.errors import ServiceUnreachable
from connector.surface.status import rfc3339

TABLE_ROWS = 1_000
_WIDEST_CELL = 200


class ResultFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


_MEDIA = {
    ResultFormat.TABLE: "application/vnd.apache.arrow.stream",
    ResultFormat.JSON: "application/json",
    ResultFormat.CSV: "text/csv",
    ResultFormat.ARROW: "application/vnd.apache.arrow.stream",
}


@dataclass(frozen=True, slots=True)
class Rows:
    """An answer, wherever it came from."""

    chunks: Iterator[bytes]
    state: str | None
    as_of: str | None


class QuerySource(Protocol):
    def run(self, sql: str, media_type: str) -> AbstractContextManager[Rows]: ...


NOT_RUNNING = "from the file, no service runs"


class RemoteQueries:
    """Asks the running service."""

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    @contextmanager
    def run(self, sql: str, media_type: str) -> Iterator[Rows]:
        with self._client.sql(sql, media_type) as answer:
            yield Rows(answer.chunks(), answer.state, answer.as_of)


class LocalQueries:
    """Asks the data file, opened read-only by this process, through the same gate."""

    def __init__(self, readers: Readers, limits: QueryLimits) -> None:
        self._readers = readers
        self._limits = limits

    @contextmanager
    def run(self, sql: str, media_type: str) -> Iterator[Rows]:
        runner = QueryRunner(self._readers, self._limits)
        try:
            with runner.open(sql, surface="internal") as query:
                query.start()
                encoder = MEDIA_TYPES[media_type](query.schema, query.column_types)

                def chunks() -> Iterator[bytes]:
                    yield encoder.begin()
                    for batch in query.batches():
                        yield encoder.rows(batch)
                    yield encoder.end()

                as_of_ms = query.freshness.as_of_ms
                as_of = None if as_of_ms is None else rfc3339(as_of_ms)
                # What was stored last is no state of a copy that nobody keeps.
                yield Rows(chunks(), NOT_RUNNING, as_of)
        finally:
            runner.close()


def run_sql(
    sql: str,
    result_format: ResultFormat,
    *,
    service: QuerySource,
    file: Callable[[], AbstractContextManager[QuerySource]],
    out: BinaryIO,
    console: Console,
) -> None:
    """Runs the query and writes its rows: tables to `console`, the rest to `out`.

    Raises:
        ServiceRefused, AnswerCut, QueryError: the query gave no result, or not all of it
        AcceleratorError: no service answers, and the file cannot be opened
    """
    try:
        write_rows(service, sql, result_format, out, console)
    except ServiceSilent:
        raise
    except ServiceUnreachable:
        with file() as local:
            write_rows(local, sql, result_format, out, console)


def write_rows(
    source: QuerySource, sql: str, result_format: ResultFormat, out: BinaryIO, console: Console
) -> None:
    """Asks one source; raises what the query raises."""
    with source.run(sql, _MEDIA[result_format]) as rows:
        if result_format is ResultFormat.TABLE:
            print_table(rows, console)
            return
        for chunk in rows.chunks:
            out.write(chunk)
        out.flush()


def print_table(rows: Rows, console: Console) -> None:
    """The first rows as a table, and how fresh they are."""
    with ipc.open_stream(io.BufferedReader(_Chunks(rows.chunks))) as reader:
        table = _empty_table(reader.schema)
        shown = 0
        is_more = False
        for batch in reader:
            is_more = batch.num_rows > TABLE_ROWS - shown
            for row in _texts(batch.slice(0, TABLE_ROWS - shown)):
                table.add_row(*row)
                shown += 1
            if is_more:
                break
    console.print(table)
    said = [f"{shown:,} {'row' if shown == 1 else 'rows'}"]
    if is_more:
        said[0] = f"the first {shown:,} rows; --format csv, json or arrow gives all"
    if rows.state is not None:
        said.append(rows.state)
    if rows.as_of is not None:
        said.append(f"as of {rows.as_of}")
    console.print(Text(" · ".join(said), style="dim"))


def _empty_table(schema: pa.Schema) -> Table:
    table = Table(show_lines=False, header_style="bold")
    for field in schema:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        is_right = is_number or pa.types.is_decimal(field.type)
        table.add_column(Text(_printable(field.name)), justify="right" if is_right else "left")
    return table


def _texts(batch: pa.RecordBatch) -> Iterator[tuple[Text, ...]]:
    columns = [text_cells(column, Shape()) for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield tuple(Text("NULL", style="dim") if v is None else Text(_printable(v)) for v in row)


def _printable(text: str) -> str:
    """Without the control characters with which data could drive a terminal."""
    short = text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 1]}…"
    return "".join(char if char.isprintable() else "�" for char in short)


class _Chunks(io.RawIOBase):
    """An iterator of bytes as a file, for Arrow's reader."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        taken = self._rest[: len(view)]
        view[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)
