"""The command line: `dynaduck` and its commands.

Owns arguments, exit statuses and how an error looks to a person. Decides nothing else: each command
is a call into the room that does the work.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

from accelerator.errors import AcceleratorError
from connector.config import Config, find_file, load, parse_flags
from connector.config.durations import parse_duration
from connector.doctor import run_doctor
from connector.errors import DynaduckError
from connector.iam_policy import policy
from connector.logs import LogFormat, configure_logs
from connector.service import Service
from connector.sidecar import Sidecar
from connector.sync import sync_once

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


def exits(command: Callable[P, Exit]) -> Callable[P, None]:
    """A command as typer wants it: errors of ours become two lines and a status, no traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            status = command(*args, **kwargs)
        except (DynaduckError, AcceleratorError) as error:
            tell(error)
            status = Exit(getattr(error, "exit_status", Exit.REFUSED))
        raise typer.Exit(status)

    return run


def tell(error: Exception) -> None:
    """The sentence, and what to do about it."""
    sys.stderr.write(f"dynaduck: {error}\n")
    hint = getattr(error, "hint", "")
    if hint:
        sys.stderr.write(f"  {hint}\n")


def configuration(file: Path | None, tables: list[str] | None, rest: list[str]) -> Config:
    flags = parse_flags(rest)
    if tables:
        flags["table"] = list(tables)
    config = load(find_file(file, os.environ, Path.cwd()), os.environ, flags)
    for warning in config.warnings:
        sys.stderr.write(f"dynaduck: warning: {warning}\n")
    runtime = config.runtime
    log_format = LogFormat.JSON if runtime.log_format.value == "json" else LogFormat.CONSOLE
    configure_logs(log_format, level=runtime.log_level.value)
    return config


@app.command(context_settings=ANY_SETTING)
@exits
def run(context: typer.Context, config: ConfigFile = None, table: Tables = None) -> Exit:
    """The service: snapshot, stream, serve, until SIGTERM. Any setting is a flag."""
    sidecar = Sidecar(configuration(config, table, context.args))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sidecar.stop())
    outcome = sidecar.run()
    if isinstance(outcome, DynaduckError):
        tell(outcome)
        return Exit.REFUSED
    return Exit.DONE if outcome else Exit.FAILED


@app.command(context_settings=ANY_SETTING)
@exits
def sync(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    once: Annotated[
        bool, typer.Option("--once", help="The only mode: catch up, then exit.")
    ] = True,
    deadline: Annotated[
        str | None, typer.Option(metavar="D", help="Give up after this, such as 10m.")
    ] = None,
) -> Exit:
    """Catches up to where the stream's head stood at start, then exits."""
    deadline_s = None if deadline is None else parse_duration(deadline)
    synced = sync_once(Service(configuration(config, table, context.args)), deadline_s=deadline_s)
    if synced.refusal is not None:
        tell(synced.refusal)
        return Exit.REFUSED
    for name, why in synced.behind.items():
        sys.stderr.write(f"dynaduck: {name} is not caught up: {why}\n")
    return Exit.DONE if synced.is_caught_up else Exit.NOT_CAUGHT_UP


@app.command(context_settings=ANY_SETTING)
@exits
def doctor(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> Exit:
    """Checks credentials, table, stream, permissions, hosts, clock, data file; says each fix."""
    return Exit(run_doctor(configuration(config, table, context.args), sys.stdout, as_json=as_json))


@app.command(context_settings=ANY_SETTING)
@exits
def iam_policy(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    account: Annotated[
        str | None, typer.Option(metavar="ID", help="Of tables without an ARN; else `*`.")
    ] = None,
    verifies: Annotated[
        bool, typer.Option("--verify", help="Also for verify --repair and dead-letter replay.")
    ] = False,
    kms_key: Annotated[
        list[str] | None,
        typer.Option(metavar="ARN", help="A customer-managed key of a table; repeatable."),
    ] = None,
) -> Exit:
    """The least privilege that this configuration needs, as JSON."""
    document = policy(
        configuration(config, table, context.args),
        account=account,
        verifies=verifies,
        kms_keys=kms_key or (),
    )
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return Exit.DONE


@app.command()
@exits
def emulator(
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    shards: Annotated[int, typer.Option(help="Of each new stream.")] = 4,
) -> Exit:
    """The embedded AWS emulator alone, for tests of your own."""
    from emulator.server import main as serve

    return Exit(serve(port, shards=shards))


@app.command()
@exits
def demo(
    seconds: Annotated[float, typer.Option(help="How long changes are written.")] = 40.0,
) -> Exit:
    """All of it on an emulated table: copied, changed, killed, resumed, compared item by item."""
    from connector.demo import run_demo

    return Exit(run_demo(seconds))


def main() -> None:
    app()


if __name__ == "__main__":
    main()
