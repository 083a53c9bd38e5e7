"""The rows that show others how far this copy got: offset_store dynamodb over wal_storage disk.

Owns the publishing of offset and checkpoint rows after commits, and the look at them by a start
that finds an empty disk. The data file is the whole truth: a row is written from what is committed
there, so it is never ahead of it, and a row that is missing or wrong is written anew. Must not know
streams or rows of data. Nothing waits for the table: while it is away copying goes on, and `note`
says so.

Rows carry epoch 0 and a number that this process counts up from the highest it found. A row with a
higher one than it has counted to is another process's: publishing then ends until a restart.
Only the newest progress is published; what came between is skipped, so nothing queues up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import structlog

from accelerator.errors import AcceleratorError
from checkpoints.commit import Committed, committed_in_database
from checkpoints.envelope import CheckpointEnvelope, OffsetValue, merge_offsets
from checkpoints.errors import CheckpointError, RowCorrupt, StoreError
from checkpoints.keys import CheckpointKey, OffsetKey
from checkpoints.offsets import Index, OffsetStore, Published
from checkpoints.progress import DatasetProgress, progress_of, rows_of
from connector import reasons
from connector.clock import Clock
from connector.errors import DynaduckError, OffsetTableUnavailable, OffsetTableUnusable
from connector.reasons import Reason
from connector.retry import BACKOFF

PUBLISH_EVERY_S: Final = 1.0
LOOK_EVERY_S: Final = 10.0
"""Positions move without a change too: so often the file is looked at while nothing is applied."""
COMPARE_EVERY_S: Final = 600.0
"""So often all rows are read, so that one that was deleted comes back without a restart."""
MOST_ROWS: Final = 200
"""Of one step: a stop waits for no more than one row, and a turn of 10,000 shards takes several."""

Stored = Callable[[str], DatasetProgress | None]
"""What is committed of a dataset."""

Key: TypeAlias = OffsetKey | CheckpointKey
Value: TypeAlias = OffsetValue | CheckpointEnvelope

log = structlog.get_logger(__name__)


class OffsetRows:
    """The rows of one pipeline, kept after its data file. `step` and `flush` by one thread at a
    time; `recall`, `committed` and `note` by any.
    """

    def __init__(
        self,
        store: OffsetStore,
        table: str,
        datasets: Sequence[str],
        stored: Stored,
        clock: Clock,
        *,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._table = table
        self._datasets = tuple(datasets)
        self._stored = stored
        self._clock = clock
        self._draw = draw
        self._known: dict[Key, Value] | None = None
        self._wanted: dict[Key, Value] = {}
        self._number = 0
        self._is_dirty = True
        self._look_due_s = float("-inf")
        self._compare_due_s = float("-inf")
        self._failures = 0
        self._error: Exception | None = None
        self._is_contested = False
        self._is_stopping = False

    # Any thread

    def recall(self, dataset: str) -> DatasetProgress | None:
        """What the rows say of a dataset; None where there are none. One Query.

        Raises:
            OffsetTableUnavailable: ask again; it does not mean that there are none.
            OffsetTableUnusable: a person has to mend it.
        """
        try:
            return progress_of(self._store.index()).get(dataset)
        except CheckpointError as error:
            raise _as_ours(error, self._table) from error

    def committed(self) -> None:
        """Something was applied: the next step publishes it."""
        self._is_dirty = True

    def note(self) -> Reason | None:
        """Why the rows are not up to date, if that lasts."""
        if self._is_contested:
            return reasons.rows_contested(self._table)
        error = self._error
        return None if error is None else reasons.rows_behind(self._table, error)

    def stop(self) -> None:
        """The step in flight ends after its row."""
        self._is_stopping = True

    # One thread

    def step(self, now_s: float) -> float | None:
        """Publishes what changed, at most MOST_ROWS rows; when to call again."""
        if self._is_contested:
            return None
        try:
            is_done = self._publish(now_s, lambda: self._is_stopping)
        except (StoreError, RowCorrupt, AcceleratorError) as error:
            return self._failed(error)
        if self._error is not None:
            log.info("the offset rows are written again", table=self._table)
        self._failures, self._error = 0, None
        return self._clock.monotonic_s() + (PUBLISH_EVERY_S if is_done else 0.0)

    def flush(self, for_s: float) -> bool:
        """Publishes the last commit on the way out; whether all rows show it."""
        ends_s = self._clock.monotonic_s() + for_s
        self._is_dirty = True
        try:
            while not self._is_contested:
                now_s = self._clock.monotonic_s()
                if now_s >= ends_s:
                    return False
                if self._publish(now_s, lambda: self._clock.monotonic_s() >= ends_s):
                    return not self._is_contested
        except (StoreError, RowCorrupt, AcceleratorError) as error:
            log.warning(
                "the offset rows stay behind the data file; the next start writes them",
                table=self._table,
                error=str(error),
            )
        return False

    def _publish(self, now_s: float, is_cut: Callable[[], bool]) -> bool:
        """One turn; whether nothing is left to write."""
        known = self._compared(now_s)
        if known is None:
            return True
        if self._is_dirty or now_s >= self._look_due_s:
            self._is_dirty = False
            self._look_due_s = now_s + LOOK_EVERY_S
            self._wanted = self._committed_rows()
        behind = [key for key, value in self._wanted.items() if not _shows(known.get(key), value)]
        # A number of its own for each turn: a row of the same number can only be a stranger's.
        self._number += 1 if behind else 0
        committed = committed_in_database(self._number)
        for written, key in enumerate(behind):
            if written == MOST_ROWS or is_cut():
                return False
            self._write(committed, key, known)
            if self._is_contested:
                break
        return True

    def _compared(self, now_s: float) -> dict[Key, Value] | None:
        """The rows as this process knows them to be in the table; None: they are another's."""
        if self._known is None or now_s >= self._compare_due_s:
            index = self._store.index()
            number = 0 if index.newest is None else index.newest.index
            if self._known is not None and number > self._number:
                self._found_another()
                return None
            self._known = _flat(index)
            self._number = max(self._number, number)
            self._compare_due_s = now_s + COMPARE_EVERY_S
        return self._known

    def _found_another(self) -> None:
        self._is_contested = True
        log.error("another process writes the offset rows of this pipeline", table=self._table)

    def _committed_rows(self) -> dict[Key, Value]:
        progress = [self._stored(dataset) for dataset in self._datasets]
        return _flat(rows_of(each for each in progress if each is not None))

    def _write(self, committed: Committed, key: Key, known: dict[Key, Value]) -> None:
        # What becomes of a write that fails is not known, so the row counts as not written.
        known.pop(key, None)
        value = self._wanted[key]
        if isinstance(key, OffsetKey) and isinstance(value, OffsetValue):
            outcome = self._store.publish_offset(committed, key, value)
        elif isinstance(key, CheckpointKey) and isinstance(value, CheckpointEnvelope):
            outcome = self._store.publish_checkpoint(committed, key, value)
        else:
            raise TypeError(f"{key} has no value of type {type(value).__name__}")
        if outcome is Published.SUPERSEDED:
            self._found_another()
            return
        known[key] = value

    def _failed(self, error: Exception) -> float:
        self._failures += 1
        if self._error is None:
            log.warning(
                "the offset rows cannot be written and are tried again",
                table=self._table,
                error=str(error),
                hint=getattr(error, "hint", ""),
            )
        self._error = error
        return self._clock.monotonic_s() + BACKOFF.delay_s(self._failures - 1, self._draw())


def _flat(index: Index) -> dict[Key, Value]:
    rows: dict[Key, Value] = {}
    rows.update(index.offsets.items())
    rows.update(index.checkpoints.items())
    return rows


def _shows(known: Value | None, wanted: Value) -> bool:
    """Whether a row needs no write: numbers of an offset only ever grow."""
    if isinstance(known, OffsetValue) and isinstance(wanted, OffsetValue):
        return merge_offsets(known, wanted) == known
    return known == wanted


def _as_ours(error: CheckpointError, table: str) -> DynaduckError:
    said = f"The offset rows in table {table} cannot be read: {error.message}"
    kind = OffsetTableUnusable if error.needs_person else OffsetTableUnavailable
    return kind(said, hint=error.hint)
