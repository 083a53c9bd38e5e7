"""`dynaduck restore`: the rows as they were at a time or a segment, from the bucket alone."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from connector.cli.app import ANY_SETTING, ConfigFile, Exit, app, configuration, exits
from connector.clock import SystemClock
from connector.cluster.restore import Goal, Restored, restore
from connector.errors import ConfigError
from connector.service import duckdb_share
from connector.storage import log_objects, pipeline_of
from connector.surface.status import rfc3339

SHOW_EVERY: Final = 1000  # segments between two lines where no terminal is


@app.command("restore", context_settings=ANY_SETTING)
@exits
def restore_file(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new DuckDB file.")],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|SEGMENT",
            help="Such as 2026-01-02T03:04:05Z, or the index of a segment; default: the log's end.",
        ),
    ] = None,
    config: ConfigFile = None,
) -> Exit:
    """Makes a DuckDB file of the rows as the log had them at a time or a segment."""
    resolved = configuration(config, None, context.args, datasets_wanted=False)
    restored = restore(
        log_objects(resolved),
        pipeline_of(resolved.runtime),
        file,
        goal_of(to),
        SystemClock(),
        memory_limit_bytes=duckdb_share(resolved.runtime.memory_limit_bytes),
        on_applied=_show_progress,
    )
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    sys.stdout.write(_sentence(restored, file) + "\n")
    for name in restored.loading:
        sys.stdout.write(f"{name} was still being loaded then: its rows are not whole.\n")
    return Exit.DONE


def goal_of(text: str | None) -> Goal:
    """A time with an offset or in UTC, or a segment's index. Raises ConfigError."""
    if text is None:
        return Goal()
    if re.fullmatch(r"\d+", text):
        return Goal(index=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--to {text!r} is neither a time nor the index of a segment.",
            hint="Write 2026-01-02T03:04:05Z, or a number that `dynaduck segments list` shows.",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Goal(at_ms=int(moment.timestamp() * 1000))


def _sentence(restored: Restored, file: Path) -> str:
    at = "" if restored.at_ms is None else f", appended {rfc3339(restored.at_ms)}"
    base = f"base {restored.base:,} and " if restored.base else ""
    rows = ", ".join(f"{name}: {count:,} rows" for name, count in restored.rows.items())
    return (
        f"{file} stands at segment {restored.index:,}{at}: "
        f"{base}{restored.applied:,} segments applied; {rows or 'no dataset yet'}."
    )


def _show_progress(index: int, applied: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rsegment {index:,}, {applied:,} applied \x1b[K")
    elif applied % SHOW_EVERY == 0:
        sys.stderr.write(f"segment {index:,}, {applied:,} applied\n")
