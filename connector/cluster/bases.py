"""Bases: the data file in the bucket, so that a start need not replay history.

Owns the cutting of a data file into pieces, their way into the bucket and back, and when a base is
worth its while. Must not know who leads: a base is what the log says at its index, so any node may
publish one; of two at the same index the second is dropped.

The file is copied by another process. POSIX drops all locks that a process has on a file when it
closes any descriptor of it, and DuckDB's lock is what keeps a second process out.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import structlog

from accelerator.database import Database
from accelerator.segment import BasePart, BaseParts
from checkpoints.clock import Clock
from checkpoints.errors import LogCorrupt, StoreThrottled, StoreUnavailable
from checkpoints.object_store import ObjectStore, PutOutcome
from checkpoints.segment_log import Segment
from connector.cluster.pipeline_log import PipelineLog

PIECE_BYTES: Final = 8 * 1024 * 1024
TRIES: Final = 6
COPY_TIMEOUT_S: Final = 600.0
_COPY: Final = "import shutil, sys; shutil.copyfile(sys.argv[1], sys.argv[2])"

log_lines = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BaseRule:
    """A base is due after so many segments, or so many bytes of them: what a start replays."""

    segments: int = 1000
    segment_bytes: int = 64 * 1024 * 1024


BASE_RULE: Final = BaseRule()


def publish_base(
    log: PipelineLog, database: Database, writing: threading.RLock, clock: Clock
) -> int | None:
    """Publishes a base of the rows as they are; its index, None when DuckDB cannot just now.

    The writer waits for the copy of the file, not for its way into the bucket.

    Raises:
        CheckpointError: it did not get there; what did is never read.
    """
    copy = database.path.with_name("base.outgoing")
    try:
        with writing:
            if log.is_blocked or log.tip.index == 0:
                return None
            if not database.checkpoint() or database.wal_bytes():
                return None
            head, newest_ms, at_ms = log.head(), log.newest_created_ms, log.now_ms()
            subprocess.run(
                [sys.executable, "-c", _COPY, str(database.path), str(copy)],
                check=True,
                timeout=COPY_TIMEOUT_S,
            )
        parts = BaseParts(tuple(_uploaded(log, head.tip.index, copy, clock)))
        log.segments.publish_base(head, parts, newest_created_ms=newest_ms, at_ms=at_ms)
    except subprocess.SubprocessError as error:
        log_lines.warning("the data file was not copied for a base", error=str(error))
        return None
    finally:
        copy.unlink(missing_ok=True)
    log_lines.info("a base is published", index=head.tip.index, pieces=len(parts.parts))
    return head.tip.index


def load_base(
    log: PipelineLog, base: Segment, database: Database, writing: threading.RLock | None = None
) -> None:
    """Makes a base the data file, which is replaced whole.

    Raises:
        LogCorrupt: a piece is missing or another than the base says.
        StoreError, AcceleratorError: call it again.
    """
    copy = database.path.with_name("base.incoming")
    try:
        with copy.open("wb") as file:
            for part in log.file.base_parts(base.data).parts:
                file.write(_downloaded(log.store, part))
        with writing or threading.RLock():
            database.replace_by(copy)
            log.load()
            if log.tip != base.tip:
                raise LogCorrupt(f"The data file of base {base.header.index} is of another place.")
    finally:
        copy.unlink(missing_ok=True)
    log_lines.info("a base is loaded", index=base.header.index)


def _uploaded(log: PipelineLog, index: int, file: Path, clock: Clock) -> Iterator[BasePart]:
    with file.open("rb") as opened:
        for number, piece in enumerate(iter(lambda: opened.read(PIECE_BYTES), b"")):
            packed: bytes = pa.compress(piece, codec="zstd", asbytes=True)
            key = log.pipeline.base_part_key(index, log.writer_name, number)
            _put(log.store, key, packed, clock)
            yield BasePart(key, hashlib.sha256(packed).hexdigest(), len(piece))


def _put(store: ObjectStore, key: str, data: bytes, clock: Clock) -> None:
    for attempt in range(TRIES):
        try:
            if store.put_new(key, data) in (PutOutcome.CREATED, PutOutcome.EXISTS):
                return  # the key is of this process alone, and so are its bytes
        except (StoreThrottled, StoreUnavailable):
            pass
        clock.sleep(0.2 * 2**attempt)
    raise StoreUnavailable(f"The piece {key} of a base was not written.")


def _downloaded(store: ObjectStore, part: BasePart) -> bytes:
    packed = store.get(part.key)
    if packed is None:
        raise LogCorrupt(f"The piece {part.key} of a base is gone.")
    if hashlib.sha256(packed).hexdigest() != part.sha256:
        raise LogCorrupt(f"The piece {part.key} of a base is another than the base says.")
    piece: bytes = pa.decompress(packed, part.nbytes, codec="zstd", asbytes=True)
    return piece
