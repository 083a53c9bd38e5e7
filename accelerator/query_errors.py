"""Why a user's query gave no result, as a branch of the accelerator's tree.

AcceleratorError
└── QueryError               code, http_status
    ├── QueryRejected        the gate refuses the statement; nothing ran
    ├── QueryFailed          DuckDB refuses it: syntax, names, types, values
    ├── QueryTimeout         stopped at its deadline
    ├── QueryCancelled       stopped because nobody waits for it any more, or at shutdown
    ├── QueryOutOfMemory     stopped because memory ran short
    ├── ResultTooLarge       more rows than max_rows
    ├── TooManyQueries       no slot became free in time; nothing ran
    ├── NotFreshEnough       the copy did not reach the demanded time in time; nothing ran
    └── DataUnavailable      the data file is closed or being reopened; nothing is wrong with it
"""

from __future__ import annotations

from typing import ClassVar

from accelerator.errors import AcceleratorError, Retry


class QueryError(AcceleratorError):
    """`code` is stable, for clients and metrics; `http_status` for those that speak HTTP."""

    code: ClassVar[str] = "failed"
    http_status: ClassVar[int] = 400
    exit_status: ClassVar[int] = 1


class QueryRejected(QueryError):
    code = "rejected"
    http_status = 403
    default_hint = "One SELECT over datasets and system tables is what this endpoint runs."


class QueryFailed(QueryError):
    code = "failed"
    http_status = 400


class QueryTimeout(QueryError):
    code = "timeout"
    http_status = 504
    default_hint = "Make the query smaller, or raise runtime.query.timeout."


class QueryCancelled(QueryError):
    code = "cancelled"
    http_status = 499


class QueryOutOfMemory(QueryError):
    code = "out_of_memory"
    http_status = 507
    retry = Retry.BACKOFF
    default_hint = "Make the query smaller, or raise runtime.memory_limit."


class ResultTooLarge(QueryError):
    code = "too_large"
    http_status = 413
    default_hint = "Add a LIMIT or an aggregate, or raise runtime.query.max_rows."


class TooManyQueries(QueryError):
    code = "busy"
    http_status = 429
    retry = Retry.BACKOFF
    default_hint = "Try again in a moment, or raise runtime.query.max_concurrent."


class NotFreshEnough(QueryError):
    code = "not_fresh"
    http_status = 503
    retry = Retry.BACKOFF
    default_hint = (
        "Try again, wait longer, or ask for less; /v1/status says what holds the copy up."
    )


class DataUnavailable(QueryError):
    code = "unavailable"
    http_status = 503
    retry = Retry.BACKOFF
    default_hint = "The service reopens the file by itself; try again in a moment."
