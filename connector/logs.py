"""Logs: what a line looks like, for people at a terminal or for machines.

Owns the one place where logging is configured; every other module only says
`log = structlog.get_logger(__name__)`. Lines go to standard error, so that a command's output stays
its own. The time in a line is the host's and decides nothing.
"""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from connector.config import Runtime

# Libraries that tell of each request or connection, at levels of their own liking.
_CHATTY = (
    "botocore",
    "boto3",
    "urllib3",
    "uvicorn",
    "uvicorn.error",
    "asyncio",
    "werkzeug",
    "moto",
)
_LONGEST_VALUE = 2_000


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


def configure_logs(
    log_format: LogFormat = LogFormat.CONSOLE, *, level: str = "info", stream: TextIO | None = None
) -> None:
    """Sets up structlog and the standard library's logging alike; the last call holds.

    Raises:
        ValueError: no such level
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"There is no log level {level!r}.")
    out = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _explain_error,
        _shorten,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(log_format, out),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    logging.getLogger("uvicorn.error").addFilter(_says_something)


def configure_logs_of(runtime: Runtime) -> None:
    """As the settings say."""
    log_format = LogFormat.JSON if runtime.log_format.value == "json" else LogFormat.CONSOLE
    configure_logs(log_format, level=runtime.log_level.value)


def _says_something(record: logging.LogRecord) -> bool:
    """A result that is cut on purpose has been logged with its reason where it was cut."""
    return record.msg != "ASGI callable returned without completing response."


def _renderers(log_format: LogFormat, out: TextIO) -> list[Processor]:
    if log_format is LogFormat.JSON:
        return [
            structlog.processors.dict_tracebacks,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
        ]
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=0)]


def _explain_error(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """`error=` holds an exception: its text, its stable code and its remedy become fields."""
    error = event.get("error")
    if isinstance(error, BaseException):
        event["error"] = str(error) or type(error).__name__
        event.setdefault("code", getattr(error, "code", type(error).__name__))
        hint = getattr(error, "hint", "")
        if hint:
            event.setdefault("hint", hint)
    return event


def _shorten(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A body or a query in a log line must not fill the disk."""
    return {key: _cut(value) for key, value in event.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST_VALUE:
        return f"{value[:_LONGEST_VALUE]}… ({len(value)} characters)"
    return value
