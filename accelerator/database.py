"""The DuckDB instance: the only place that opens, tunes and closes it.

Owns the data file, the writer's connection, the cursors handed to readers and every setting, which
DuckDB keeps per instance and partly one-way: external access goes off and the configuration is
locked last. Knows nothing of datasets. One writer thread uses `writer` and `transaction`; `cursor`
is thread-safe, each cursor belongs to the thread that asked for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from accelerator import catalog
from accelerator.errors import (
    AcceleratorError,
    DatabaseClosed,
    DatabaseInvalidated,
    DirectoryUnwritable,
    FileTooNew,
    translate,
)
from accelerator.sql import literal
from accelerator.statements import first_row

# Files in this format open in every DuckDB from 1.5.0 on.
STORAGE_VERSION = "v1.5.0"

# DuckDB's default of 16 MB makes commits take 400-800 ms now and then; at 256 MB 26-48 ms.
CHECKPOINT_THRESHOLD_BYTES = 384 * 2**20

# What is in the log is in memory too until a checkpoint, and counts towards memory_limit.
LOGGED_SHARE = 0.2

# Until a checkpoint, ADD COLUMN holds this much memory per row of the table: a BIGINT column 8.9
# bytes in DuckDB 2.0.1 and 11.0 in 1.5.5, a VARCHAR column 4.6, from 50,000 to a million rows.
ADDED_COLUMN_BYTES_PER_ROW = 11.0
_REPLAY_FAILED = "Failure while replaying WAL"

# At most this part of memory_limit may be held that way.
ADDED_COLUMNS_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of the data file; free ones are reused, and given back only by compaction."""

    total: int
    free: int
    block_bytes: int

    @property
    def free_ratio(self) -> float:
        return self.free / self.total if self.total else 0.0


class Database:
    """One open data file.

    Make it with `Database.open`. `before_lock` runs on each new connection before external access
    is cut: the one moment at which extensions can be loaded.
    """

    def __init__(
        self,
        path: Path,
        *,
        memory_limit_bytes: int,
        threads: int | None,
        read_only: bool,
        checkpoint_threshold_bytes: int,
        before_lock: Callable[[duckdb.DuckDBPyConnection], None] | None,
    ) -> None:
        self.path = path
        self.memory_limit_bytes = memory_limit_bytes
        self.read_only = read_only
        self._threads = threads
        self._checkpoint_threshold_bytes = checkpoint_threshold_bytes
        self._before_lock = before_lock
        self._lock = threading.Lock()
        self._cursors: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
        self._writer: duckdb.DuckDBPyConnection | None = None
        self._held_by_added_columns = 0.0
        self._is_closed = False
        self.reopened = 0
        self.before_commit: Callable[[duckdb.DuckDBPyConnection], None] | None = None
        """What else belongs into the writer's transactions while it is set."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        memory_limit_bytes: int,
        threads: int | None = None,
        read_only: bool = False,
        checkpoint_threshold_bytes: int | None = None,
        before_lock: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    ) -> Database:
        """Opens the file, making it and its directory where absent.

        checkpoint_threshold_bytes   None: what the memory limit allows, 384 MB at most

        Raises:
            FileHeldByProcess, FileDamaged, FileTooNew, DirectoryUnwritable, DiskFull
        """
        if checkpoint_threshold_bytes is None:
            logged_bytes = int(LOGGED_SHARE * memory_limit_bytes)
            checkpoint_threshold_bytes = min(CHECKPOINT_THRESHOLD_BYTES, logged_bytes)
        database = cls(
            Path(path),
            memory_limit_bytes=memory_limit_bytes,
            threads=threads,
            read_only=read_only,
            checkpoint_threshold_bytes=checkpoint_threshold_bytes,
            before_lock=before_lock,
        )
        database._connect()
        return database

    @property
    def writer(self) -> duckdb.DuckDBPyConnection:
        """The writer thread's connection.

        Raises:
            DatabaseClosed: on purpose.
            DatabaseInvalidated: `reopen` has failed and is to be called again.
        """
        if self._writer is None:
            if self._is_closed:
                raise DatabaseClosed("The database is closed.")
            raise DatabaseInvalidated(f"{self.path} is not open: opening it again has failed.")
        return self._writer

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own for a reader. It dies with `reopen` and `close`."""
        with self._lock, self.translated():
            cursor = self.writer.cursor()
            self._cursors.add(cursor)
            return cursor

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turns what DuckDB raises inside the block into an AcceleratorError."""
        try:
            yield
        except duckdb.Error as error:
            raise translate(_first(error), str(self.path)) from error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """All of the block is committed, or nothing when it raises. Writer thread only.

        Raises:
            AcceleratorError: for whatever DuckDB refused, at COMMIT too.
        """
        writer = self.writer
        with self.translated():
            writer.execute("BEGIN TRANSACTION")
            try:
                yield writer
                if self.before_commit is not None:
                    self.before_commit(writer)
                writer.execute("COMMIT")
            except BaseException:
                self._roll_back(writer)
                raise

    def reopen(self) -> None:
        """Closes every connection and opens the file again: the way out of DatabaseInvalidated."""
        self._disconnect()
        self._connect()
        self.reopened += 1

    def replace_by(self, path: Path) -> None:
        """Makes the file at `path`, in the same directory, the data file. Every connection is new.

        Raises:
            AcceleratorError: it cannot be opened.
        """
        self._disconnect()
        self.path.with_name(self.path.name + ".wal").unlink(missing_ok=True)
        path.replace(self.path)
        self._connect()
        self.reopened += 1

    def is_invalidated(self) -> bool:
        """Whether DuckDB has given up on the open file. Writer's lock."""
        try:
            with self.translated():
                self.writer.execute("SELECT 1").fetchall()
        except DatabaseInvalidated:
            return True
        except DatabaseClosed:
            return not self._is_closed
        return False

    def close(self) -> None:
        """Checkpoints and closes. Idempotent."""
        self._is_closed = True
        self._disconnect()

    def checkpoint(self) -> bool:
        """Moves the log into the file; False when DuckDB refused for now (try again later).

        Raises:
            DatabaseInvalidated, OutOfMemory, DiskFull
        """
        try:
            with self.translated():
                self.writer.execute("CHECKPOINT")
        except AcceleratorError as error:
            if _is_refused_checkpoint(error):
                return False
            raise
        self._held_by_added_columns = 0.0
        return True

    def room_for_columns(self, rows: int) -> int:
        """How many columns may be added to a table of this many rows before a checkpoint."""
        budget = ADDED_COLUMNS_SHARE * self.memory_limit_bytes - self._held_by_added_columns
        return max(0, int(budget / (ADDED_COLUMN_BYTES_PER_ROW * max(rows, 1))))

    def columns_added(self, columns: int, rows: int) -> None:
        """Accounts for columns added since the last checkpoint."""
        self._held_by_added_columns += columns * rows * ADDED_COLUMN_BYTES_PER_ROW

    @property
    def wants_checkpoint(self) -> bool:
        """True when added columns hold a tenth of what they may."""
        budget = ADDED_COLUMNS_SHARE * self.memory_limit_bytes
        return self._held_by_added_columns > budget / 10

    def wal_bytes(self) -> int:
        return _size(self.path.with_name(self.path.name + ".wal"))

    def file_bytes(self) -> int:
        return _size(self.path)

    def memory_bytes(self) -> int:
        """What DuckDB's buffers hold now."""
        row = self._one("SELECT sum(memory_usage_bytes) FROM duckdb_memory()")
        return int(row[0] or 0)

    def working_bytes(self) -> int:
        """What statements hold beyond the table data that DuckDB keeps cached and can let go."""
        row = self._one(
            "SELECT sum(memory_usage_bytes) FROM duckdb_memory() WHERE tag <> 'BASE_TABLE'"
        )
        return int(row[0] or 0)

    def blocks(self) -> Blocks:
        row = self._one(
            "SELECT total_blocks, free_blocks, block_size FROM pragma_database_size() "
            "WHERE database_name = current_database()"
        )
        return Blocks(int(row[0]), int(row[1]), int(row[2]))

    def _one(self, query: str) -> tuple[Any, ...]:
        cursor = self.cursor()
        with self.translated():
            try:
                row = first_row(cursor, query)
            finally:
                cursor.close()
        return row or ()

    def _connect(self) -> None:
        if not self.read_only:
            self._make_directory()
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self.memory_limit_bytes}B",
            "temp_directory": str(self.path.parent / "tmp"),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # User SQL must not reach variables of this process by their names.
            "python_enable_replacements": False,
            "checkpoint_threshold": f"{self._checkpoint_threshold_bytes}B",
        }
        if not self.read_only:
            config["storage_compatibility_version"] = STORAGE_VERSION
        if self._threads is not None:
            config["threads"] = self._threads
        with self.translated():
            writer = self._opened(config)
        try:
            with self.translated():
                self._prepare(writer)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._held_by_added_columns = 0.0

    def _opened(
        self, config: dict[str, str | bool | int | float | list[str]]
    ) -> duckdb.DuckDBPyConnection:
        try:
            return duckdb.connect(str(self.path), read_only=self.read_only, config=config)
        except duckdb.Error as error:
            if _REPLAY_FAILED not in str(error):
                raise
        # DuckDB replays the log of a file that it opens before it has its own functions and the
        # type JSON, so a log with a widened column (ALTER … USING) cannot be opened, on 1.5 and
        # 2.0 alike. The log of a file that is attached is replayed with both.
        with duckdb.connect(":memory:", config=config) as replaying:
            replaying.execute(f"ATTACH {literal(str(self.path))} AS replayed")
            replaying.execute("CHECKPOINT replayed")
            replaying.execute("DETACH replayed")
        return duckdb.connect(str(self.path), read_only=self.read_only, config=config)

    def _prepare(self, writer: duckdb.DuckDBPyConnection) -> None:
        if self._before_lock is not None:
            self._before_lock(writer)
        version = catalog.stored_format(writer) if self.read_only else catalog.create(writer)
        if version > catalog.FORMAT:
            raise FileTooNew(
                f"{self.path} has the file format {version}; this dynaduck knows up to "
                f"{catalog.FORMAT}."
            )
        if not self.read_only:
            catalog.rehash(writer)
        writer.execute("SET enable_external_access = false")
        writer.execute("SET lock_configuration = true")

    def _make_directory(self) -> None:
        directory = self.path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DirectoryUnwritable(f"{directory} cannot be made: {error.strerror}.") from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise DirectoryUnwritable(f"{directory} is not writable.")

    def _disconnect(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
            cursors, self._cursors = list(self._cursors), weakref.WeakSet()
        for connection in [*cursors, writer]:
            if connection is not None:
                _close(connection)

    def _roll_back(self, writer: duckdb.DuckDBPyConnection) -> None:
        try:
            writer.execute("ROLLBACK")
        except duckdb.Error:
            # A failed COMMIT has already rolled back, and an invalidated database cannot; the
            # error that led here is the one to report.
            return


def _first(error: duckdb.Error) -> duckdb.Error:
    """What aborted the transaction, where a cleanup inside it has failed because of that."""
    while "transaction is aborted" in str(error) and isinstance(error.__context__, duckdb.Error):
        error = error.__context__
    return error


def _close(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.close()
    except duckdb.Error:
        # Closing checkpoints; an invalidated instance refuses and is gone all the same.
        return


def _is_refused_checkpoint(error: AcceleratorError) -> bool:
    return "cannot checkpoint" in str(error).lower()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
