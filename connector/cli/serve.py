"""Commands that copy: run, sync, and the two that bring a table of their own."""

from __future__ import annotations

import signal
import sys
import threading
from functools import partial
from types import FrameType
from typing import Annotated

import typer

from connector.cli.app import (
    ANY_SETTING,
    ConfigFile,
    Exit,
    Tables,
    again,
    app,
    configuration,
    exits,
    tell,
)
from connector.config.durations import parse_duration
from connector.errors import ConfigError, DynaduckError
from connector.fresh_file import FreshFile
from connector.hang_up import has_terminal
from connector.service import Service
from connector.surface.sidecar import Sidecar
from connector.sync import refuse_clustered, sync_once

STOPPING = (signal.SIGTERM, signal.SIGINT)


@app.command(context_settings=ANY_SETTING)
@exits
def run(context: typer.Context, config: ConfigFile = None, table: Tables = None) -> Exit:
    """The service: snapshot, stream, serve, until SIGTERM. Any setting is a flag."""
    # A reload that is asked for while the data file is being opened must not end the process.
    asked_early = threading.Event()
    had_terminal = has_terminal()
    signal.signal(signal.SIGHUP, lambda *_: asked_early.set())
    resolved = configuration(config, table, context.args, warns=True)
    file = FreshFile(resolved.runtime.replica_file)
    try:
        sidecar = Sidecar(resolved, again(resolved, table, context.args))
    except DynaduckError:
        file.remove()
        raise
    for number in STOPPING:
        signal.signal(number, lambda *_: sidecar.stop())
    hang_up = partial(_hang_up, sidecar, had_terminal=had_terminal)
    signal.signal(signal.SIGHUP, hang_up)
    if asked_early.is_set():
        hang_up(signal.SIGHUP, None)
    try:
        outcome = sidecar.run()
    except DynaduckError:
        file.remove()
        raise
    if isinstance(outcome, DynaduckError):
        file.remove()
        tell(outcome)
        sys.stderr.write("  `dynaduck doctor` checks everything around it, and says each fix.\n")
        return Exit.REFUSED
    return Exit.DONE if outcome else Exit.FAILED


@app.command(context_settings=ANY_SETTING)
@exits
def sync(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    once: Annotated[bool, typer.Option("--once", help="Catch up, then exit. A must.")] = False,
    deadline: Annotated[
        str | None, typer.Option(metavar="D", help="Give up after this, such as 10m.")
    ] = None,
) -> Exit:
    """Catches up to where the stream's head stood at start, then exits."""
    if not once:
        raise ConfigError(
            "`dynaduck sync` needs --once.", hint="`dynaduck run` is what follows a table for ever."
        )
    deadline_s = None if deadline is None else _duration_s(deadline)
    interrupted = threading.Event()
    for number in STOPPING:
        signal.signal(number, lambda *_: interrupted.set())
    wanted = configuration(config, table, context.args, warns=True)
    refuse_clustered(wanted)
    synced = sync_once(
        Service(wanted),
        deadline_s=deadline_s,
        is_interrupted=interrupted.is_set,
    )
    if synced.refusal is not None:
        tell(synced.refusal)
        return Exit.REFUSED
    for name, why in synced.behind.items():
        sys.stderr.write(f"dynaduck: {name} is not caught up: {why}\n")
    return Exit.DONE if synced.is_caught_up else Exit.NOT_CAUGHT_UP


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
    seconds: Annotated[float, typer.Option(help="How long changes are written.")] = 30.0,
) -> Exit:
    """All of it on an emulated table: copied, changed, killed, resumed, compared item by item."""
    from connector.demo import run_demo

    return Exit(run_demo(seconds))


def _hang_up(
    sidecar: Sidecar, _number: int, _frame: FrameType | None, *, had_terminal: bool
) -> None:
    """SIGHUP is a reload, unless it says what it first meant: that the terminal was closed."""
    if had_terminal and not has_terminal():
        sidecar.stop()
    else:
        sidecar.reloading.ask()


def _duration_s(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--deadline {text!r}: {error}") from error
