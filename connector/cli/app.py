"""What the commands share: options, exit statuses, and how an error looks to a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, ParamSpec

import duckdb
import typer

from accelerator.errors import AcceleratorError
from accelerator.query_errors import QueryError
from checkpoints.errors import CheckpointError
from connector.config import Config, find_file, load, parse_flags
from connector.errors import DynaduckError
from connector.logs import configure_logs_of

P = ParamSpec("P")


class Exit(IntEnum):
    """Exit statuses, the same for every command."""

    DONE = 0
    FAILED = 1
    REFUSED = 2
    NOT_CAUGHT_UP = 3
    NOT_READY = 4
    CHECKS_FAILED = 5
    DIFFERS = 6
    INTERRUPTED = 130


ANY_SETTING = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    name="dynaduck",
    help="A live, exact DuckDB copy of DynamoDB tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="Default: dynaduck.yaml, spicepod.yaml."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="NAME", help="A table to copy, without a file; repeatable."),
]


def _tell_version(is_wanted: bool) -> None:
    if is_wanted:
        sys.stdout.write(f"dynaduck {version('dynaduck')}, DuckDB {duckdb.__version__}\n")
        raise typer.Exit(Exit.DONE)


@app.callback()
def _all_commands(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_tell_version,
            is_eager=True,
            help="The versions of dynaduck and of DuckDB.",
        ),
    ] = False,
) -> None:
    """What holds for every command."""


def exits(command: Callable[P, Exit]) -> Callable[P, None]:
    """A command as typer wants it: errors of ours become two lines and a status, no traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            status = command(*args, **kwargs)
        except (DynaduckError, QueryError) as error:
            tell(error)
            status = Exit(getattr(error, "exit_status", Exit.FAILED))
        except AcceleratorError as error:
            # Out of a command, not out of a running service: the data file cannot be used.
            tell(error)
            status = Exit.REFUSED
        except CheckpointError as error:
            # Out of a command that looks at the offset table or the log by itself.
            tell(error)
            status = Exit.FAILED
        raise typer.Exit(status)

    return run


def tell(error: Exception) -> None:
    """The sentence, and what to do about it."""
    sys.stderr.write(f"dynaduck: {error}\n")
    hint = getattr(error, "hint", "")
    if hint:
        sys.stderr.write(f"  {hint}\n")


def configuration(
    file: Path | None,
    tables: list[str] | None = None,
    rest: list[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    datasets_wanted: bool = True,
    warns: bool = False,
) -> Config:
    """The configuration that holds for this command line.

    warns   its warnings are told: once at a start, not by each command that asks the service

    Raises: ConfigError.
    """
    found = find_file(file, env, Path.cwd())
    config = load(found, env, _flags(tables, rest), datasets_wanted=datasets_wanted)
    for warning in config.warnings if warns else ():
        sys.stderr.write(f"dynaduck: warning: {warning}\n")
    configure_logs_of(config.runtime)
    return config


def again(
    config: Config,
    tables: list[str] | None = None,
    rest: list[str] | None = None,
    *,
    env: Mapping[str, str] = os.environ,
) -> Callable[[], Config]:
    """What reads the same file once more, under the same flags."""
    path = None if config.file is None else config.file.absolute()
    flags = _flags(tables, rest)
    return lambda: load(path, env, flags)


def _flags(tables: list[str] | None, rest: list[str] | None) -> dict[str, object]:
    flags = parse_flags(rest or [])
    if tables:
        flags["table"] = list(tables)
    return flags
