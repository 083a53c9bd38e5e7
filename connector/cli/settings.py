"""`dynaduck config`: what holds and where it comes from, and what there is to set."""

from __future__ import annotations

import json
import sys

import typer
from rich.console import Console
from rich.table import Table

from connector.cli.app import ANY_SETTING, ConfigFile, Exit, Tables, app, configuration, exits
from connector.config.page import json_schema, settings_page

config_app = typer.Typer(help="The settings: what holds, and what there is.", no_args_is_help=True)
app.add_typer(config_app, name="config")


@config_app.command(context_settings=ANY_SETTING)
@exits
def show(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    as_json: bool = typer.Option(False, "--json", help="For machines."),
) -> Exit:
    """The resolved settings with their origin; secrets are masked."""
    resolved = configuration(config, table, context.args, datasets_wanted=False, warns=True)
    if as_json:
        document = {s.path: {"value": s.value, "origin": str(s.origin)} for s in resolved.shown}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return Exit.DONE
    shown = Table(box=None, header_style="bold")
    for column in ("setting", "value", "from"):
        shown.add_column(column, overflow="fold")
    for setting in resolved.shown:
        shown.add_row(setting.path, setting.value, str(setting.origin))
    Console(soft_wrap=True).print(shown)
    return Exit.DONE


@config_app.command()
@exits
def schema() -> Exit:
    """JSON Schema of the configuration file, for editors."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
    return Exit.DONE


@config_app.command()
@exits
def docs() -> Exit:
    """The settings page of the documentation, as Markdown."""
    sys.stdout.write(settings_page())
    return Exit.DONE
