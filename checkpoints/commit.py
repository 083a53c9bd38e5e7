"""Proof that changes are durable, which an index of them has to show before it is written.

Only `checkpoints.segment_log` makes a `Committed`, from an object that it wrote or read; without a
log, `committed_in_database` speaks for a DuckDB transaction. A test holds this.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Committed:
    """A place in the log that is known to be durable. Ordered by epoch, then index."""

    epoch: int
    index: int


def committed_in_database(commit_number: int) -> Committed:
    """The proof where one DuckDB file is the whole truth (wal_storage: disk): there is no epoch."""
    return Committed(epoch=0, index=commit_number)
