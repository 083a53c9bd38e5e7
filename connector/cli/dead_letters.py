"""`dynaduck dead-letters`: the changes that could not be applied, and how they leave."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from connector.cli.app import ConfigFile, Exit, app, configuration, exits
from connector.cli.ask import Name, Url, client_of

dead_letters_app = typer.Typer(
    help="Changes that could not be applied: list, replay after a fix, or drop.",
    no_args_is_help=True,
)
app.add_typer(dead_letters_app, name="dead-letters")

LONGEST = 120
PIPE_WIDTH = 1_000
"""Where nobody looks at the lines, each letter is one."""


@dead_letters_app.command("list")
@exits
def show(
    dataset: Name,
    config: ConfigFile = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="With the whole records.")] = False,
) -> Exit:
    """What could not be applied, and why."""
    letters = client_of(configuration(config, datasets_wanted=False), url).dead_letters(dataset)
    if as_json:
        sys.stdout.write(json.dumps(letters, indent=2) + "\n")
        return Exit.DONE
    if not letters:
        sys.stdout.write(f"{dataset} has no dead letters.\n")
        return Exit.DONE
    table = Table(box=None)
    for header in ("shard", "sequence number", "event", "error", "record"):
        table.add_column(header, overflow="fold")  # no digit of a number may be missing
    for letter in letters:
        record = str(letter["record"])
        table.add_row(
            letter["shard_id"] or "(snapshot)",
            letter["sequence_number"] or "",
            letter["event_name"],
            letter["error"],
            record if len(record) <= LONGEST else record[:LONGEST] + "…",
        )
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(table)
    return Exit.DONE


@dead_letters_app.command()
@exits
def replay(dataset: Name, config: ConfigFile = None, url: Url = None) -> Exit:
    """Reads their keys anew from the table and applies what they hold now."""
    settings = configuration(config, datasets_wanted=False)
    outcome = client_of(settings, url).replay_dead_letters(dataset)
    sys.stdout.write(f"{outcome['replayed']} replayed.\n")
    if outcome["still_dead"]:
        sys.stdout.write(f"{outcome['still_dead']} still cannot be applied: see `list`.\n")
    if outcome["kept"]:
        sys.stdout.write(f"{outcome['kept']} have no readable key: only `drop` ends them.\n")
    return Exit.FAILED if outcome["still_dead"] or outcome["kept"] else Exit.DONE


@dead_letters_app.command()
@exits
def drop(dataset: Name, config: ConfigFile = None, url: Url = None) -> Exit:
    """Gives them up; the rows stay as they are."""
    settings = configuration(config, datasets_wanted=False)
    sys.stdout.write(f"{client_of(settings, url).drop_dead_letters(dataset)} dropped.\n")
    return Exit.DONE
