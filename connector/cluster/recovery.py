"""From the bucket to rows that stand at the log's end: at a start, and while following.

Owns where replay begins: the data file's own place, or the newest base. Must not know leases.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Final

from accelerator.database import Database
from checkpoints.errors import BaseNeeded, LogCorrupt, LogMissing
from connector.cluster.bases import load_base
from connector.cluster.pipeline_log import PipelineLog

FAR_BEHIND: Final = 2000
"""Segments that a base spares: from so many on it is loaded, and the data file replaced."""


def recover(
    log: PipelineLog,
    database: Database,
    writing: threading.RLock | None = None,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Brings the rows to where the log ends now, from nothing if need be; segments applied.

    Raises:
        LogCorrupt, LogMissing: the data file is none of this log's, or the log is broken.
        StoreError, AcceleratorError: call it again; what was applied stays.
    """
    writing = writing or threading.RLock()
    bases = log.segments.bases()
    newest = bases[-1] if bases else 0
    if log.tip.index == 0:
        _refuse_other_rows(log, newest)
    elif _has_expired(log, newest) or log.tip.index + FAR_BEHIND < newest:
        load_base(log, log.segments.base(newest), database, writing)
    if log.tip.index == 0 and newest:
        load_base(log, log.segments.base(newest), database, writing)
    return replay(log, database, writing, is_stopping=is_stopping)


def replay(
    log: PipelineLog,
    database: Database,
    writing: threading.RLock,
    *,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Applies what the log has after the rows; the segments applied. One listing if there are none.

    Raises as `recover`.
    """
    applied = 0
    while not is_stopping():
        try:
            for segment in log.segments.after(log.tip):
                with writing:
                    log.apply(segment)
                applied += 1
                if is_stopping():
                    break
            return applied
        except BaseNeeded as needed:
            load_base(log, log.segments.base(needed.index), database, writing)
    return applied


def _refuse_other_rows(log: PipelineLog, newest_base: int) -> None:
    if not log.has_rows:
        return
    prefix = log.pipeline.segments_prefix
    if newest_base or log.store.list_after(prefix, None, 1):
        raise LogCorrupt(
            "The data file has rows of its own, and the log has others.",
            hint="Move the data file away: the rows come from the log; or name another pipeline.",
        )


def _has_expired(log: PipelineLog, newest_base: int) -> bool:
    """Whether the segment that the rows stand at is gone, in favour of a base."""
    index = log.tip.index
    data = log.store.get(log.pipeline.segment_key(index))
    if data is None and newest_base >= index:
        return True
    if data is None:
        raise LogMissing(f"The data file stands at segment {index}, which the log does not have.")
    if hashlib.sha256(data).hexdigest() != log.tip.sha256:
        raise LogCorrupt(
            f"The data file stands at another segment {index} than the log has.",
            hint="Move the data file away: the rows come from the log.",
        )
    return False
