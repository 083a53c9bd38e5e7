"""What can go wrong below the service, as one tree.

    AcceleratorError
    ├── FileHeldByProcess      another process has the data file open
    ├── FileDamaged            the file is no DuckDB database, or its pages do not add up
    ├── FileTooNew             written by a later version of dynaduck or of DuckDB
    ├── DirectoryUnwritable    the data directory cannot be written
    ├── DiskFull               no space left for the file, its log or its temporary files
    ├── OutOfMemory            memory_limit reached; the transaction was rolled back
    ├── DatabaseInvalidated    DuckDB gave up on the open file; reopen it and go on
    ├── DatabaseClosed         the database was closed on purpose
    ├── QueryInterrupted       a statement was stopped from outside
    ├── StatementFailed        any other refusal by DuckDB
    ├── ForeignCheckpoint      the stored dataset belongs to another table, region or account
    ├── UnknownShard           changes of a shard that was never registered
    ├── ScanTicketExpired      scan rows whose window of touched keys is gone
    ├── BadCondition           the dataset's `where` is no SQL condition
    ├── BadSetting             a setting of the dataset that no data could ever suit
    ├── LogRefused             the log that rows must be in first does not take them yet
    ├── NotLeading             this process may not write to the log that the rows follow
    └── PoisonRecord           a record that cannot be applied, where the policy says halt

Owns the translation of `duckdb.Error`; nothing above this package sees a foreign exception.
"""

from __future__ import annotations

import re
from enum import StrEnum

import duckdb

# Errors of DuckDB that say nothing about one row or one statement.
FATAL = (
    duckdb.OutOfMemoryException,
    duckdb.FatalException,
    duckdb.InternalException,
    duckdb.InterruptException,
    duckdb.ConnectionException,
)


class Retry(StrEnum):
    """What a caller may do: nothing, the same again later, or reopen and resume."""

    NO = "no"
    BACKOFF = "backoff"
    REINITIALIZE = "reinitialize"


class AcceleratorError(Exception):
    """One sentence; `hint` is the operator's next step.

    needs_person   waiting will not mend it: the dataset shows state Error while it is retried
    """

    retry: Retry = Retry.NO
    needs_person: bool = False
    default_hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = self.default_hint if hint is None else hint


class FileHeldByProcess(AcceleratorError):
    """`pid` is the holder's, None where the system does not tell."""

    def __init__(self, path: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"The data file {path} is held by {holder}.",
            hint=f"Stop {holder}, or give this one another data_dir.",
        )
        self.pid = pid


class FileDamaged(AcceleratorError):
    needs_person = True
    default_hint = "Move the file away and start again: the table is snapshotted anew."


class FileTooNew(AcceleratorError):
    needs_person = True
    default_hint = "Install the newer dynaduck that wrote it, or use another data_dir."


class DirectoryUnwritable(AcceleratorError):
    needs_person = True
    default_hint = "Make the data directory writable for this user, or set runtime.data_dir."


class DiskFull(AcceleratorError):
    retry = Retry.BACKOFF
    needs_person = True
    default_hint = "Free disk space; nothing was lost, the service goes on by itself."


class OutOfMemory(AcceleratorError):
    retry = Retry.BACKOFF
    default_hint = "Raise runtime.memory_limit if this repeats."


class DatabaseInvalidated(AcceleratorError):
    retry = Retry.REINITIALIZE
    default_hint = "The file is reopened and reading resumes from the committed positions."


class DatabaseClosed(AcceleratorError):
    default_hint = "The service is shutting down."


class QueryInterrupted(AcceleratorError):
    retry = Retry.BACKOFF
    default_hint = "Make the query smaller, or raise runtime.query.timeout."


class StatementFailed(AcceleratorError):
    pass


class ForeignCheckpoint(AcceleratorError):
    default_hint = "Rename the dataset or use another data_dir; the stored rows are not touched."


class UnknownShard(AcceleratorError):
    pass


class ScanTicketExpired(AcceleratorError):
    retry = Retry.BACKOFF
    default_hint = "The page is requested again under a new ticket."


class LogRefused(AcceleratorError):
    """`code` is that of what stands in the way."""

    retry = Retry.BACKOFF

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str = "log",
        needs_person: bool = False,
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.needs_person = needs_person


class NotLeading(AcceleratorError):
    default_hint = "Ask the node that leads: `dynaduck cluster status` names it."


class BadCondition(AcceleratorError):
    default_hint = "Write `where` as in a SELECT, over the dataset's columns."


class BadSetting(AcceleratorError):
    """`setting` is its key, relative to the dataset."""

    def __init__(self, setting: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting = setting


class PoisonRecord(AcceleratorError):
    """The record's place in its stream, for the operator who has to look at it."""

    needs_person = True
    default_hint = "Set poison: quarantine to keep such records as dead letters and go on."

    def __init__(self, shard_id: str | None, sequence_number: str | None, error: str) -> None:
        super().__init__(f"Record {sequence_number} of shard {shard_id} cannot be applied: {error}")
        self.shard_id = shard_id
        self.sequence_number = sequence_number
        self.error = error


# A commit that ran out of memory is a TransactionException: "failed to pin block of size …".
_NO_MEMORY = ("out of memory", "failed to pin block", "could not allocate block")
# How the system says ENOSPC, EDQUOT and EFBIG.
_FULL = ("no space left", "disk full", "quota exceeded", "file too large")
_DAMAGED = ("corrupt database file", "corrupt wal file", "failure while replaying wal")
_PID = re.compile(r"PID (\d+)")


def translate(error: duckdb.Error, path: str = "") -> AcceleratorError:
    """The domain error for a DuckDB one; callers raise it `from error`.

    DuckDB tells its kinds apart by class but for I/O, where only the text does.
    """
    text = str(error)
    low = text.lower()
    if "database has been invalidated" in low:
        return DatabaseInvalidated("DuckDB invalidated the open database.")
    if "current transaction is aborted" in low:
        # Its ROLLBACK has failed too, for want of memory: only a new connection ends it.
        return DatabaseInvalidated("A transaction of DuckDB could not be rolled back.")
    if isinstance(error, duckdb.OutOfMemoryException) or any(sign in low for sign in _NO_MEMORY):
        return OutOfMemory(f"DuckDB ran out of memory: {_first_line(text)}")
    if isinstance(error, duckdb.InterruptException):
        return QueryInterrupted("The statement was interrupted.")
    if "conflicting lock" in low or "could not set lock" in low or "being used by another" in low:
        found = _PID.search(text)
        return FileHeldByProcess(path, int(found.group(1)) if found else None)
    if any(sign in low for sign in _FULL):
        return DiskFull(f"No space left on the disk of {path}.")
    if "permission denied" in low or "read-only file system" in low:
        return DirectoryUnwritable(f"{path} cannot be written: {_first_line(text)}")
    if any(sign in low for sign in _DAMAGED):
        return FileDamaged(f"{path} is damaged: {_first_line(text)}")
    if "newer version of duckdb" in low or "storage version" in low or "version number" in low:
        return FileTooNew(f"{path} was written by another DuckDB: {_first_line(text)}")
    if isinstance(error, duckdb.ConnectionException):
        return DatabaseClosed("The connection is closed.")
    if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
        return DatabaseInvalidated(f"DuckDB failed inside: {_first_line(text)}")
    if isinstance(error, (duckdb.IOException, duckdb.SerializationException)):
        return FileDamaged(f"{path} cannot be read: {_first_line(text)}")
    return StatementFailed(_first_line(text))


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
