"""A dataset of one moment as a file of its own: a DuckDB database, or Parquet.

Owns what is in such a copy and how it is written. Rows, positions and as-of time are read in one
read-only transaction; a second DuckDB instance, in memory and of small means, takes the rows as an
Arrow stream and writes the file, since the instance of the service reaches no file but its own.
Knows no schedule, and nothing of where the file goes.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from accelerator import failpoints
from accelerator.catalog import Catalog, Generation
from accelerator.database import STORAGE_VERSION
from accelerator.errors import QueryInterrupted, translate
from accelerator.freshness import Freshness, read_freshness
from accelerator.query import Readers
from accelerator.sql import identifier, literal
from accelerator.statements import first_row

LEAST_MEMORY_BYTES: Final = 100_000_000
# For each column of a table that is being filled DuckDB holds a block of 256 kB, 1.5 two of them.
MEMORY_BYTES_PER_COLUMN: Final = 640_000 if duckdb.__version__.startswith("1.") else 320_000
# Values, not rows: a row group is in memory until it is written.
_GROUP_VALUES: Final = 4_000_000
_BATCH_VALUES: Final = 200_000
_VECTOR: Final = 2_048
_MOST_GROUP_ROWS: Final = 122_880

_ABOUT: Final = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("table_arn", pa.string()),
        pa.field("stream_arn", pa.string()),
        pa.field("generation", pa.int64()),
        pa.field("state", pa.string()),
        pa.field("as_of", pa.timestamp("us")),
        pa.field("made_at", pa.timestamp("us")),
        pa.field("rows", pa.int64()),
        pa.field("dynaduck_version", pa.string()),
    ]
)


class CopyFormat(StrEnum):
    DUCKDB = "duckdb"
    PARQUET = "parquet"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the rows themselves do not tell.

    live     by dataset, what was known of it right before the copy began
    now_ms   AWS time; None before AWS has answered
    spill    a directory for what does not fit in memory; it is this copy's alone
    """

    live: Mapping[str, Freshness]
    now_ms: int | None
    version: str
    spill: Path


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished copy holds."""

    rows: int
    nbytes: int
    as_of_ms: int | None


class CopyMaker:
    """Writes one copy. `stop` may come from any thread, and ends it with QueryInterrupted."""

    def __init__(self, readers: Readers, dataset: str) -> None:
        self._readers = readers
        self._dataset = dataset
        self._lock = threading.Lock()
        self._working: list[duckdb.DuckDBPyConnection] = []
        self._is_stopped = False

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for connection in self._working:
                with suppress(duckdb.Error):
                    connection.interrupt()

    def write(self, path: Path, format_: CopyFormat, around: Circumstances) -> Written | None:
        """Writes the copy to `path`, where nothing must be; None: there are no whole rows yet.

        Raises:
            AcceleratorError: whatever kept it from being written; what is at `path` is no copy
        """
        try:
            with self._reading() as cursor:
                live = _live(cursor, self._dataset)
                if live is None:
                    return None
                source = _Source.read(cursor, self._dataset, live, around)
                return self._fill(cursor, source, path, format_, around.spill)
        except (duckdb.Error, pa.ArrowException) as error:
            self._raise_if_stopped(error)
            known = error if isinstance(error, duckdb.Error) else duckdb.Error(str(error))
            raise translate(known, str(path)) from error

    def _raise_if_stopped(self, cause: Exception | None = None) -> None:
        if self._is_stopped:
            raise QueryInterrupted("The copy was given up, since the service ends.") from cause

    def _fill(
        self,
        cursor: duckdb.DuckDBPyConnection,
        source: _Source,
        path: Path,
        format_: CopyFormat,
        spill: Path,
    ) -> Written:
        with self._writing(len(source.columns), spill) as writer:
            result = _streamed(cursor, f"SELECT * FROM main.{identifier(self._dataset)}")
            stream = result.to_arrow_reader(source.batch_rows)
            writer.register("copied_rows", stream)
            try:
                match format_:
                    case CopyFormat.DUCKDB:
                        rows = _into_database(writer, source, path)
                    case CopyFormat.PARQUET:
                        rows = _into_parquet(writer, source, path)
            finally:
                with suppress(duckdb.Error):
                    writer.unregister("copied_rows")
                # DuckDB 2 refuses the next statement while a result is open.
                stream.close()
        # Interrupted between two statements, neither has noticed.
        self._raise_if_stopped()
        failpoints.hit("copy_written")
        return Written(rows, path.stat().st_size, source.as_of_ms)

    @contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._at_work(self._readers.cursor()) as cursor:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            try:
                yield cursor
            finally:
                with suppress(duckdb.Error):
                    cursor.execute("ROLLBACK")

    @contextmanager
    def _writing(self, columns: int, spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
        memory_bytes = max(LEAST_MEMORY_BYTES, MEMORY_BYTES_PER_COLUMN * columns)
        writer = duckdb.connect(
            ":memory:",
            config={
                "threads": 1,
                "memory_limit": f"{memory_bytes}B",
                "preserve_insertion_order": False,
                "temp_directory": str(spill),
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            },
        )
        with self._at_work(writer):
            yield writer

    @contextmanager
    def _at_work(
        self, connection: duckdb.DuckDBPyConnection
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            if self._is_stopped:
                connection.close()
            self._raise_if_stopped()
            self._working.append(connection)
        try:
            yield connection
        finally:
            with self._lock:
                self._working.remove(connection)
            with suppress(duckdb.Error):
                connection.close()


@dataclass(frozen=True, slots=True)
class _Source:
    """All of a copy but its rows, of the transaction that the rows are read in."""

    dataset: str
    columns: tuple[tuple[str, str], ...]
    as_of_ms: int | None
    about: Mapping[str, Any]
    tables: Mapping[str, pa.Table]

    @classmethod
    def read(
        cls,
        cursor: duckdb.DuckDBPyConnection,
        dataset: str,
        live: Generation,
        around: Circumstances,
    ) -> _Source:
        described = cursor.execute(f"DESCRIBE main.{identifier(dataset)}").fetchall()
        freshness = read_freshness(cursor, frozenset({dataset}), around.live)
        about = {
            "dataset": dataset,
            "table_arn": live.identity.table_arn,
            "stream_arn": live.identity.stream_arn,
            "generation": live.generation,
            "state": freshness.state,
            "as_of": _moment(freshness.as_of_ms),
            "made_at": _moment(around.now_ms),
            "rows": None,
            "dynaduck_version": around.version,
        }
        of_dataset = "WHERE dataset = ?"
        tables = {
            "checkpoints": _table(
                cursor,
                f"SELECT * FROM dynaduck.checkpoints {of_dataset} AND generation = ?",
                [dataset, live.positions_generation],
            ),
            "columns": _table(cursor, f"SELECT * FROM dynaduck.columns {of_dataset}", [dataset]),
            "gaps": _table(cursor, f"SELECT * FROM dynaduck.gaps {of_dataset}", [dataset]),
        }
        columns = tuple((str(row[0]), str(row[1])) for row in described)
        return cls(dataset, columns, freshness.as_of_ms, about, tables)

    @property
    def batch_rows(self) -> int:
        return max(_VECTOR, _BATCH_VALUES // len(self.columns))

    @property
    def group_rows(self) -> int:
        """Of a row group: whole vectors, a power of two of them."""
        rows = _VECTOR
        while rows * 2 <= min(_MOST_GROUP_ROWS, _GROUP_VALUES // len(self.columns)):
            rows *= 2
        return rows

    @property
    def select(self) -> str:
        """The rows with the types they have in the service: Arrow shows JSON and UUID as text."""
        columns = ", ".join(
            f"CAST({identifier(name)} AS {type_}) AS {identifier(name)}"
            for name, type_ in self.columns
        )
        return f"SELECT {columns} FROM copied_rows"

    def about_rows(self, rows: int) -> pa.Table:
        return pa.Table.from_pylist([{**self.about, "rows": rows}], schema=_ABOUT)

    def metadata(self) -> dict[str, str]:
        """Key-value metadata of a Parquet file. How many rows there are is in its footer."""
        texts = {
            f"dynaduck.{name}": _text(value)
            for name, value in self.about.items()
            if value is not None
        }
        for name, table in self.tables.items():
            texts[f"dynaduck.{name}"] = json.dumps(table.to_pylist(), default=_text)
        return texts


def _live(cursor: duckdb.DuckDBPyConnection, dataset: str) -> Generation | None:
    """The load that is served, once it is whole."""
    for generation in Catalog(cursor, dataset).generations():
        if generation.role == "live" and generation.snapshot_state in ("done", "none"):
            return generation
    return None


def _into_database(writer: duckdb.DuckDBPyConnection, source: _Source, path: Path) -> int:
    writer.execute(
        f"ATTACH {literal(str(path))} AS made "
        f"(STORAGE_VERSION '{STORAGE_VERSION}', ROW_GROUP_SIZE {source.group_rows})"
    )
    writer.execute(f"CREATE TABLE made.main.{identifier(source.dataset)} AS {source.select}")
    failpoints.hit("copy_rows")
    counted = first_row(writer, f"SELECT count(*) FROM made.main.{identifier(source.dataset)}")
    rows = int(counted[0]) if counted else 0
    writer.execute("CREATE SCHEMA made.dynaduck")
    for name, table in {**source.tables, "copy": source.about_rows(rows)}.items():
        writer.register("copied_facts", table)
        writer.execute(f"CREATE TABLE made.dynaduck.{identifier(name)} AS FROM copied_facts")
        writer.unregister("copied_facts")
    writer.execute("CHECKPOINT made")
    writer.execute("DETACH made")
    return rows


def _into_parquet(writer: duckdb.DuckDBPyConnection, source: _Source, path: Path) -> int:
    metadata = ", ".join(
        f"{identifier(key)}: {literal(value)}" for key, value in source.metadata().items()
    )
    written = first_row(
        writer,
        f"COPY ({source.select}) TO {literal(str(path))} (FORMAT parquet, COMPRESSION zstd, "
        f"ROW_GROUP_SIZE {source.group_rows}, KV_METADATA {{{metadata}}})",
    )
    return int(written[0]) if written else 0


def _streamed(cursor: duckdb.DuckDBPyConnection, query: str) -> Any:
    """DuckDB 2 streams a relation, 1.5 the result of `execute`; each copies the other whole."""
    return cursor.execute(query) if duckdb.__version__.startswith("1.") else cursor.sql(query)


def _table(cursor: duckdb.DuckDBPyConnection, query: str, values: Sequence[object]) -> pa.Table:
    return cursor.sql(query, params=list(values)).to_arrow_table()


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).replace(tzinfo=None)


def _text(value: object) -> str:
    return value.isoformat() + "Z" if isinstance(value, datetime) else str(value)
