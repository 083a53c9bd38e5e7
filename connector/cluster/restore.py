"""A data file as the log had it at some point: from the bucket alone, into a new file.

Owns the choice of the base to begin from and where replay ends. Needs no lease, no table and no
settings of the datasets: all of it is in the log. The file that comes out is an ordinary one, and
is there only when it is whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from accelerator.database import Database
from accelerator.log_place import leave_log
from accelerator.sql import identifier
from accelerator.statements import count
from checkpoints.clock import Clock
from checkpoints.errors import BaseNeeded, LogMissing
from checkpoints.keys import PipelineKey
from checkpoints.object_store import ObjectStore
from checkpoints.segment_log import Segment
from connector.cluster.bases import load_base
from connector.cluster.pipeline_log import PipelineLog
from connector.errors import ConfigError

OnApplied = Callable[[int, int], None]
"""The index that the rows stand at, and how many segments were applied."""


@dataclass(frozen=True, slots=True)
class Goal:
    """Up to and with the segment `index`, or with all that were appended until `at_ms`; neither:
    the log's end.
    """

    index: int | None = None
    at_ms: int | None = None

    def holds(self, segment: Segment) -> bool:
        """Whether a segment or base is not beyond it."""
        header = segment.header
        if self.index is not None:
            return header.index <= self.index
        if self.at_ms is not None:
            # One without a time stands where the one before it does.
            return header.at_ms is None or header.at_ms <= self.at_ms
        return True


@dataclass(frozen=True, slots=True)
class Restored:
    """`base` is 0 where it was all replayed; `at_ms` is when the last segment was appended;
    `loading` are the datasets whose first snapshot was not complete then.
    """

    index: int
    at_ms: int | None
    base: int
    applied: int
    rows: Mapping[str, int]
    loading: tuple[str, ...] = ()


def restore(
    store: ObjectStore,
    pipeline: PipelineKey,
    file: Path,
    goal: Goal,
    clock: Clock,
    *,
    memory_limit_bytes: int,
    on_applied: OnApplied = lambda _index, _applied: None,
) -> Restored:
    """Makes `file`. It must not be there yet.

    Raises:
        ConfigError: the file is there, or the goal lies outside of what the log has.
        LogCorrupt, StoreError, AcceleratorError: nothing was made.
    """
    if file.exists():
        raise ConfigError(
            f"{file} is there already; a restore makes a new file.", hint="Name another file."
        )
    part = file.with_name(f"{file.name}.restoring")
    if part.exists():
        raise ConfigError(
            f"{part} is there already: a restore of this file is running, or was ended.",
            hint="Delete it if none is running.",
        )
    try:
        restored = _restored(
            store, pipeline, part, goal, clock, memory_limit_bytes, on_applied=on_applied
        )
        part.rename(file)
    finally:
        for left in (part, part.with_name(f"{part.name}.wal")):
            with suppress(FileNotFoundError):
                left.unlink()
    return restored


def _restored(
    store: ObjectStore,
    pipeline: PipelineKey,
    part: Path,
    goal: Goal,
    clock: Clock,
    memory_limit_bytes: int,
    *,
    on_applied: OnApplied,
) -> Restored:
    database = Database.open(part, memory_limit_bytes=memory_limit_bytes)
    try:
        log = PipelineLog(database, pipeline, store, clock, writer="restore")
        log.load()
        base = _base_for(log, goal)
        at_ms = None
        if base is not None:
            load_base(log, base, database, threading.RLock())
            at_ms = base.header.at_ms
        applied = 0
        try:
            for segment in log.segments.after(log.tip):
                if not goal.holds(segment):
                    break
                log.apply(segment)
                at_ms = segment.header.at_ms or at_ms
                applied += 1
                on_applied(segment.header.index, applied)
        except BaseNeeded as needed:
            raise ConfigError(
                f"What led to that point has expired: {needed.message}",
                hint="`dynaduck segments verify` says from where on it can be restored.",
            ) from needed
        _refuse_nothing(log, goal, at_ms)
        with database.transaction() as cursor:
            leave_log(cursor)
        database.checkpoint()
        return Restored(
            log.tip.index,
            at_ms,
            0 if base is None else base.header.index,
            applied,
            _rows(database),
            _loading(database),
        )
    finally:
        database.close()


def _base_for(log: PipelineLog, goal: Goal) -> Segment | None:
    """The youngest base that is not beyond the goal."""
    for index in reversed(log.segments.bases()):
        if goal.index is not None and index > goal.index:
            continue
        base = log.segments.base(index)
        # A base without a time may be younger than one that is asked for.
        if goal.at_ms is not None and base.header.at_ms is None:
            continue
        if goal.holds(base):
            return base
    return None


def _refuse_nothing(log: PipelineLog, goal: Goal, at_ms: int | None) -> None:
    if log.tip.index == 0 and log.segments.last_index() == 0:
        raise LogMissing(f"The pipeline {log.pipeline.pk} has no log in this bucket.")
    if log.tip.index == 0 or (goal.at_ms is not None and at_ms is None):
        raise ConfigError(
            "The log begins after what is asked for.",
            hint="`dynaduck segments list --last 0` shows when each segment was appended.",
        )
    if goal.index is not None and log.tip.index < goal.index:
        raise ConfigError(
            f"The log ends at segment {log.tip.index}, before {goal.index}.",
            hint="Leave --to out for the log's end.",
        )


def _rows(database: Database) -> dict[str, int]:
    """Rows of each view that is served."""
    cursor = database.cursor()
    with database.translated():
        try:
            names = cursor.execute("SELECT dataset FROM dynaduck.datasets ORDER BY 1").fetchall()
            return {
                name: count(cursor, f"SELECT count(*) FROM main.{identifier(name)}")  # noqa: S608
                for (name,) in names
            }
        finally:
            cursor.close()


def _loading(database: Database) -> tuple[str, ...]:
    cursor = database.cursor()
    with database.translated():
        try:
            found = cursor.execute(
                "SELECT dataset FROM dynaduck.datasets "
                "WHERE snapshot_state IN ('running', 'scanned') ORDER BY 1"
            ).fetchall()
            return tuple(name for (name,) in found)
        finally:
            cursor.close()
