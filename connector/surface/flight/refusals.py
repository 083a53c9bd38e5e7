"""Errors of queries as gRPC statuses.

Owns the mapping and the words. Arrow makes a status of an exception's class: Flight's own classes
for some, ValueError and KeyError and NotImplementedError for others.

| Code | gRPC status |
|---|---|
| rejected | PERMISSION_DENIED |
| failed, too_large | INVALID_ARGUMENT |
| timeout | DEADLINE_EXCEEDED |
| cancelled | CANCELLED |
| busy, out_of_memory, not_fresh, unavailable | UNAVAILABLE |
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import structlog

from accelerator.query_errors import (
    QueryCancelled,
    QueryError,
    QueryFailed,
    QueryRejected,
    QueryTimeout,
    ResultTooLarge,
)
from connector.surface.flight.commands import NotServed, UnknownStatement
from connector.surface.flight.messages import NotAMessage

log = structlog.get_logger(__name__)


class _Private:
    """An exception whose traceback stays here.

    Arrow sends a client what `traceback.format_exception` makes of an exception that is not
    Flight's own; where that fails it sends the name of the class.
    """

    @property
    def __cause__(self) -> Any:
        raise AttributeError


class InvalidArgument(_Private, pa.ArrowInvalid):  # type: ignore[misc]
    """INVALID_ARGUMENT"""


class NotFound(_Private, pa.ArrowKeyError):  # type: ignore[misc]
    """NOT_FOUND"""


class Unimplemented(_Private, pa.ArrowNotImplementedError):  # type: ignore[misc]
    """UNIMPLEMENTED"""


class Failed(_Private, OSError):  # type: ignore[override]
    """UNKNOWN"""


_CLASSES: tuple[tuple[type[QueryError], type[Any]], ...] = (
    (UnknownStatement, NotFound),
    (NotServed, Unimplemented),
    (QueryRejected, flight.FlightUnauthorizedError),
    (QueryFailed, InvalidArgument),
    (ResultTooLarge, InvalidArgument),
    (QueryTimeout, flight.FlightTimedOutError),
    (QueryCancelled, flight.FlightCancelledError),
    (QueryError, flight.FlightUnavailableError),
)


def refusal(error: Exception) -> Exception:
    """What to raise for it inside a handler of Flight."""
    is_made: bool = isinstance(error, flight.FlightError | _Private)
    if is_made:
        return error
    if isinstance(error, NotAMessage):
        return _made(InvalidArgument, str(error))
    if not isinstance(error, QueryError):
        log.error("a Flight call failed", error=error)
        return _made(flight.FlightInternalError, "The service failed; its log says why.")
    hint = f" {error.hint}" if error.hint else ""
    kind = next(kind for known, kind in _CLASSES if isinstance(error, known))
    return _made(kind, f"{error}{hint} [{error.code}]")


def schema_refusal(error: Exception) -> Exception:
    """What to raise inside GetSchema, where pyarrow knows no error of Flight's own."""
    made = refusal(error)
    if isinstance(made, _Private):
        return made
    is_rejected = isinstance(made, flight.FlightUnauthorizedError)
    return _made(InvalidArgument if is_rejected else Failed, str(made))


def _made(kind: type[Any], words: str) -> Exception:
    made: Exception = kind(words)
    return made
