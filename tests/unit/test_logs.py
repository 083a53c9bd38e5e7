"""What a log line promises: machines can parse it, and it names the remedy."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from connector.config import Secret
from connector.errors import AccessDenied
from connector.logs import LogFormat, configure_logs


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Each test configures logging; the others must not see it."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_lines_hold_one_object_each() -> None:
    """With --log-format json every line is one object with time, level, logger and message."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, stream=out)
    structlog.get_logger("connector.stream.reader").info(
        "shard finished", shard_id="s-1", records=7
    )
    [line] = lines(out)
    assert line["message"] == "shard finished"
    assert (line["level"], line["logger"]) == ("info", "connector.stream.reader")
    assert (line["shard_id"], line["records"]) == ("s-1", 7)
    assert str(line["timestamp"]).endswith("Z")


def test_an_error_brings_its_code_and_its_remedy() -> None:
    """An operator reads the next step in the line itself."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, stream=out)
    error = AccessDenied("GetRecords was denied.", action="dynamodb:GetRecords")
    structlog.get_logger("x").warning("shard backs off", error=error)
    [line] = lines(out)
    assert line["error"] == "GetRecords was denied."
    assert line["code"] == "access_denied"
    assert "dynamodb:GetRecords" in str(line["hint"])


def test_lines_of_libraries_look_the_same() -> None:
    """A library's warning is JSON too, or a parser of the stream would break on it."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, stream=out)
    logging.getLogger("urllib3.connectionpool").warning("Retrying %s", "x")
    logging.getLogger("botocore.hooks").info("not wanted")
    assert [line["message"] for line in lines(out)] == ["Retrying x"]


def test_a_traceback_stays_inside_its_line() -> None:
    """An exception is part of the object and adds no lines."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, stream=out)
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger("x").exception("failed")
    [line] = lines(out)
    assert "ZeroDivisionError" in json.dumps(line)


def test_secrets_and_long_values_are_not_written_out() -> None:
    """A secret shows as ***, and a huge value is cut."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, stream=out)
    structlog.get_logger("x").info("config", token=Secret("hunter2"), body="x" * 10_000)
    assert "hunter2" not in out.getvalue()
    assert len(out.getvalue()) < 3_000


def test_the_level_decides_and_must_exist() -> None:
    """debug shows more than info; a level nobody knows is refused."""
    out = io.StringIO()
    configure_logs(LogFormat.JSON, level="debug", stream=out)
    structlog.get_logger("x").debug("seen")
    configure_logs(LogFormat.JSON, level="info", stream=out)
    structlog.get_logger("x").debug("unseen")
    assert [line["message"] for line in lines(out)] == ["seen"]
    with pytest.raises(ValueError, match="loud"):
        configure_logs(level="loud")


def test_a_console_line_is_plain_where_there_is_no_terminal() -> None:
    """Redirected to a file, the lines for people carry no colour codes."""
    out = io.StringIO()
    configure_logs(LogFormat.CONSOLE, stream=out)
    structlog.get_logger("x").info("started", datasets=2)
    assert "\x1b" not in out.getvalue()
    assert "started" in out.getvalue()
    assert "datasets=2" in out.getvalue()
