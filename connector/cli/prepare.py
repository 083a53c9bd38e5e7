"""Commands for before the first start: is the set-up right, and what does it need."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from connector.cli.app import ANY_SETTING, ConfigFile, Exit, Tables, app, configuration, exits
from connector.examine.doctor import run_doctor
from connector.examine.iam_policy import Role, policy


@app.command(context_settings=ANY_SETTING)
@exits
def doctor(
    context: typer.Context,
    config: ConfigFile = None,
    table: Tables = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> Exit:
    """Checks credentials, table, stream, permissions, hosts, clock, data file; says each fix."""
    resolved = configuration(config, table, context.args, warns=True)
    return Exit(run_doctor(resolved, sys.stdout, as_json=as_json))


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
    role: Annotated[
        Role, typer.Option(help="Of a cluster's node, or of `sync --once`.")
    ] = Role.LEADER,
) -> Exit:
    """The least privilege that this configuration needs, as JSON."""
    document = policy(
        configuration(config, table, context.args),
        account=account,
        verifies=verifies,
        kms_keys=kms_key or (),
        role=role,
    )
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return Exit.DONE
