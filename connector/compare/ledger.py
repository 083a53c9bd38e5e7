"""Which keys the source has shown, kept on disk so that memory does not grow with the table.

Owns a scratch DuckDB file in a directory of its own, removed on close. Must not know what a key
means: a key is a text.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import duckdb
import pyarrow as pa

MEMORY_LIMIT: Final = "128MB"
_KEYS_PER_INSERT: Final = 20_000


class KeyLedger:
    """Two lists of keys, and what is in one and not in the other. One thread."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="dynaduck-verify-"))
        self._connection = duckdb.connect(
            str(self.directory / "keys.duckdb"),
            config={"memory_limit": MEMORY_LIMIT, "threads": 1},
        )
        self._connection.execute("CREATE TABLE source(key VARCHAR); CREATE TABLE copy(key VARCHAR)")
        self._waiting: dict[str, list[str]] = {"source": [], "copy": []}

    def __enter__(self) -> KeyLedger:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def add_source(self, keys: Sequence[str]) -> None:
        self._add("source", keys)

    def add_copy(self, keys: Sequence[str]) -> None:
        self._add("copy", keys)

    def only_in_copy(self) -> Iterator[str]:
        """Keys of the copy that the source has not shown, each once."""
        self._write("source")
        self._write("copy")
        cursor = self._connection.cursor().execute(
            "SELECT DISTINCT key FROM copy ANTI JOIN source USING (key)"
        )
        while some := cursor.fetchmany(1000):
            yield from (row[0] for row in some)

    def _add(self, table: str, keys: Sequence[str]) -> None:
        self._waiting[table].extend(keys)
        if len(self._waiting[table]) >= _KEYS_PER_INSERT:
            self._write(table)

    def _write(self, table: str) -> None:
        if self._waiting[table]:
            added = pa.table({"key": pa.array(self._waiting[table], pa.string())})
            self._connection.register("added", added)
            self._connection.execute(f"INSERT INTO {table} FROM added")
            self._connection.unregister("added")
            self._waiting[table] = []
