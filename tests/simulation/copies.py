"""The two kinds of data file that a simulated service may stand on: a real one and a dict.

A copy outlives the service: `crash` is what SIGKILL leaves of it. Owns the faults of the writer's
calls, so that both kinds fail alike.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol, cast

import duckdb

from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import AcceleratorError, DatabaseInvalidated
from accelerator.outcome import StoredDataset
from accelerator.readback import ItemReader
from accelerator.spec import DatasetSpec
from connector.clock import Clock
from tests.oracle import canonical_item
from tests.simulation.memory_dataset import Disk, MemoryDataset
from tests.simulation.truth import version_of

MEMORY_BYTES: Final = 256 * 2**20

WRITER_CALLS: Final = frozenset(
    {
        "load",
        "begin",
        "reposition",
        "apply",
        "persist",
        "forget_shards",
        "mark_snapshot",
        "mark_status",
        "resolve_gaps",
        "swap",
        "drop_shadow",
    }
)


class Copy(Protocol):
    """A data file with one dataset in it."""

    def open(self, spec: DatasetSpec, clock: Clock, scan_margin_s: float) -> Dataset: ...

    def reopen(self) -> None: ...

    def crash(self) -> None: ...

    def close(self) -> None: ...

    def versions(self) -> dict[str, int]:
        """Key to version, of the rows that are served."""

    def items(self) -> dict[str, dict[str, Any]]: ...

    def stored(self) -> StoredDataset | None:
        """What is committed, read without disturbing who writes."""

    def newest_versions(self) -> dict[str, int] | None:
        """Key to version, of the rows that are being loaded; None where they cannot be seen."""


class MemoryCopy:
    """A dict."""

    def __init__(self) -> None:
        self._disk = Disk()
        self._spec = DatasetSpec("")

    def open(self, spec: DatasetSpec, clock: Clock, scan_margin_s: float) -> Dataset:
        self._spec = spec
        dataset = MemoryDataset(
            self._disk, spec, monotonic_s=clock.monotonic_s, scan_margin_s=scan_margin_s
        )
        return cast("Dataset", dataset)

    def reopen(self) -> None:
        self._disk.reopened += 1

    def crash(self) -> None:
        return None

    def close(self) -> None:
        return None

    def versions(self) -> dict[str, int]:
        return {k: version_of(image) for k, image in self._disk.live_rows().items()}

    def items(self) -> dict[str, dict[str, Any]]:
        return {k: canonical_item(json.loads(i)) for k, i in self._disk.live_rows().items()}

    def stored(self) -> StoredDataset | None:
        return MemoryDataset(self._disk, self._spec, monotonic_s=lambda: 0.0).load()

    def newest_versions(self) -> dict[str, int] | None:
        live, shadow = self._disk.of_role("live"), self._disk.of_role("shadow")
        if live is None or (shadow is not None and not live.is_frozen):
            return None
        rows = self._disk.rows[(shadow or live).generation]
        return {k: version_of(image) for k, image in rows.items()}


class DuckDBCopy:
    """A real file. A crash leaves file and log as they are and goes on with a copy of both."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lives = 0
        self._spec = DatasetSpec("")
        self._database = self._opened()

    def open(self, spec: DatasetSpec, clock: Clock, scan_margin_s: float) -> Dataset:
        self._spec = spec
        return Dataset(
            self._database,
            spec,
            now_ms=lambda: 0,
            monotonic_s=clock.monotonic_s,
            scan_margin_s=scan_margin_s,
        )

    def reopen(self) -> None:
        self._database.reopen()

    def crash(self) -> None:
        left, old = self._path(), self._database
        self._lives += 1
        self._path().parent.mkdir(parents=True)
        for name in (left.name, left.name + ".wal"):
            if (left.parent / name).exists():
                shutil.copy(left.parent / name, self._path().parent / name)
        old.close()
        self._database = self._opened()

    def close(self) -> None:
        self._database.close()

    def versions(self) -> dict[str, int]:
        return {key: int(item["v"]["N"]) for key, item in self.items().items()}

    def items(self) -> dict[str, dict[str, Any]]:
        cursor = self._database.cursor()
        try:
            found = list(ItemReader(cursor, self._spec.name).all_items())
        finally:
            cursor.close()
        shown = {key: canonical_item(json.loads(text)) for key, text in found}
        assert len(shown) == len(found), "two rows have one key"
        return shown

    def stored(self) -> StoredDataset | None:
        cursor = self._database.cursor()
        try:
            return Dataset(cast("Database", _Reading(cursor)), self._spec).load()
        finally:
            cursor.close()

    def newest_versions(self) -> dict[str, int] | None:
        stored = self.stored()
        return None if stored is None or stored.shadow_generation else self.versions()

    def _path(self) -> Path:
        return self._directory / str(self._lives) / "replica.duckdb"

    def _opened(self) -> Database:
        return Database.open(self._path(), memory_limit_bytes=MEMORY_BYTES, threads=1)


class _Reading:
    """A database whose writer is a reader's cursor."""

    reopened = 0

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.writer = cursor

    def translated(self) -> AbstractContextManager[None]:
        return nullcontext()


class FallibleDataset:
    """A dataset whose writer's calls may fail, and are told of when they succeed.

    strike    called before a writer's call with its name; raises what it shall fail with
    written   called after one succeeded
    """

    def __init__(
        self,
        inner: Dataset,
        strike: Callable[[str], None],
        written: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._inner = inner
        self._strike = strike
        self._written = written
        self.is_invalid = False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if name not in WRITER_CALLS:
            return attribute

        def call(*values: Any, **named: Any) -> Any:
            if self.is_invalid:
                raise DatabaseInvalidated("DuckDB invalidated the open database.")
            try:
                self._strike(name)
                result = attribute(*values, **named)
            except AcceleratorError as error:
                self.is_invalid = isinstance(error, DatabaseInvalidated)
                raise
            self._written(name, named)
            return result

        return call
