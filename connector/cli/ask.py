"""Commands that ask a running service, or its file where none runs."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

from accelerator.database import Database
from accelerator.query_slots import QueryLimits
from connector.cli.app import ConfigFile, Exit, app, configuration, exits, tell
from connector.cli.sources import SessionQueries
from connector.cli.sql_view import (
    LocalQueries,
    QuerySource,
    RemoteQueries,
    ResultFormat,
    run_sql,
    write_rows,
)
from connector.cli.statements import is_terminal, split
from connector.cli.status_view import print_status
from connector.client import Address, ServiceClient, reachable_host
from connector.clock import SystemClock
from connector.compare.replica import Ask, FileAsk, HttpAsk, SqlReplica
from connector.compare.shape import Shape
from connector.compare.verify import Progress, Rules, Verification
from connector.config import Config, Dataset
from connector.errors import ConfigError, ServiceUnreachable
from connector.service import aws_of
from connector.source import TableDescription

Url = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Of the service; default: as configured.", envvar="DYNADUCK_URL"
    ),
]
Name = Annotated[str, typer.Argument(metavar="DATASET")]
LISTED = 20


@app.command()
@exits
def sql(
    query: Annotated[
        str | None, typer.Argument(help="One SELECT; without it a shell, or what is piped in.")
    ] = None,
    config: ConfigFile = None,
    url: Url = None,
    result_format: Annotated[
        ResultFormat, typer.Option("--format", help="Of the result.")
    ] = ResultFormat.TABLE,
) -> Exit:
    """Asks the running service; with none running, reads the data file. Without QUERY a shell."""
    settings = configuration(config, datasets_wanted=False)
    runtime = settings.runtime

    @contextmanager
    def file() -> Iterator[QuerySource]:
        if url is not None:
            raise ServiceUnreachable(
                f"No service answers at {url}.",
                hint="Without --url the configured service is asked, then the data file.",
            )
        database = _data_file(settings, asked)
        try:
            yield LocalQueries(
                database,
                QueryLimits(timeout_s=runtime.query.timeout_s, max_rows=runtime.query.max_rows),
            )
        finally:
            database.close()

    asked = client_of(settings, url)
    service = RemoteQueries(asked)
    if query is None and is_terminal():
        return _converse(SessionQueries(service, file, sys.stderr.write), result_format)
    for statement in [query] if query is not None else split(sys.stdin.read()).all:
        run_sql(
            statement,
            result_format,
            service=service,
            file=file,
            out=sys.stdout.buffer,
            console=Console(),
        )
    return Exit.DONE


def _converse(source: SessionQueries, result_format: ResultFormat) -> Exit:
    """The shell, until it is left."""
    from connector.cli.shell import HELP, Shell, converse
    from connector.cli.shell_words import Words, names_of

    if result_format is ResultFormat.ARROW:
        raise ConfigError("A terminal cannot show Arrow.", hint="Choose table, json or csv.")
    console = Console()

    def ask(statement: str, chosen: ResultFormat) -> None:
        write_rows(source, statement, chosen, sys.stdout.buffer, console)
        if chosen is ResultFormat.JSON:
            sys.stdout.write("\n")
            sys.stdout.flush()

    # Where it was begun with Ctrl-C ignored, as in a background job, a query could not be stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = Words(lambda: names_of(source))
    words.learn()
    sys.stdout.write(HELP)
    converse(Shell(ask, sys.stdout.write, result_format), words)
    return Exit.DONE


@app.command()
@exits
def status(
    config: ConfigFile = None,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole document.")] = False,
) -> Exit:
    """Datasets, shards, snapshot, readiness and its reasons. Exit status 4: not ready."""
    client = client_of(configuration(config, datasets_wanted=False), url)
    try:
        document = client.status()
    except ServiceUnreachable as error:
        tell(error)
        return Exit.NOT_READY
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        print_status(document, Console())
    return Exit.DONE if document.get("ready") else Exit.NOT_READY


@app.command()
@exits
def refresh(dataset: Name, config: ConfigFile = None, url: Url = None) -> Exit:
    """Loads the table anew in the running service; the data stays queryable."""
    return _said(client_of(configuration(config, datasets_wanted=False), url).refresh(dataset))


@app.command()
@exits
def pause(dataset: Name, config: ConfigFile = None, url: Url = None) -> Exit:
    """Stops reading; the data stays queryable. A stream keeps changes for 24 hours."""
    return _said(client_of(configuration(config, datasets_wanted=False), url).pause(dataset))


@app.command()
@exits
def resume(dataset: Name, config: ConfigFile = None, url: Url = None) -> Exit:
    """Goes on reading where `pause` stopped it."""
    return _said(client_of(configuration(config, datasets_wanted=False), url).resume(dataset))


@app.command()
@exits
def verify(
    dataset: Name,
    config: ConfigFile = None,
    url: Url = None,
    repair: Annotated[bool, typer.Option("--repair", help="Read anew what differs.")] = False,
) -> Exit:
    """Compares source and copy item by item, while both may change. Exit status 6: they differ."""
    from connector.aws.source import AwsSource

    resolved = configuration(config)
    settings = resolved.dataset(dataset)
    client = client_of(resolved, url)
    try:
        client.ready()
        asked: Ask = HttpAsk(client)
    except ServiceUnreachable:
        if repair:
            raise
        asked = FileAsk(_data_file(resolved, client), settings.name)
    source = AwsSource(aws_of(settings))
    try:
        table = source.describe_table()

        def mend(keys: Sequence[str]) -> None:
            client.repair(settings.name, keys)

        report = Verification(
            source,
            SqlReplica(settings.name, table.key_schema, asked),
            table.key_schema,
            SystemClock(),
            shape=_shape(settings, table),
            rules=Rules(max_rcu=settings.scan_max_rcu),
            on_progress=_show,
            repair=mend if repair else None,
        ).run()
    finally:
        source.close()
    for difference in report.differences[:LISTED]:
        sys.stdout.write(
            f"{difference.kind} {difference.keys} {difference.attribute or ''} "
            f"source {difference.source} copy {difference.copy}\n"
        )
    sys.stdout.write(report.sentence() + "\n")
    return Exit(report.exit_status)


def _data_file(config: Config, silent: ServiceClient) -> Database:
    """The data file to read from, since the service does not answer.

    Raises: ServiceUnreachable where there is no file either.
    """
    path = config.runtime.replica_file
    if not path.exists():
        raise ServiceUnreachable(
            f"No service answers at {silent.address.url}, and there is no data file "
            f"{path.absolute()}.",
        )
    return Database.open(path, memory_limit_bytes=config.runtime.memory_limit_bytes, read_only=True)


def _shape(settings: Dataset, table: TableDescription) -> Shape:
    return Shape(
        keys=frozenset(part.name for part in table.key_schema),
        include=frozenset(settings.include) or None,
        exclude=frozenset(settings.exclude),
        unnest_depth=settings.unnest_depth,
        where=settings.where,
        null_misfits=settings.misfit.value == "null",
    )


def _show(progress: Progress) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\r{progress.phase}: segment {progress.segment + 1} of {progress.total_segments}, "
            f"{progress.compared:,} compared, {progress.suspects} to read again \x1b[K"
        )


def client_of(config: Config, url: str | None) -> ServiceClient:
    http = config.runtime.http
    token = None if http.token is None else http.token.reveal()
    if url is not None:
        try:
            return ServiceClient(Address.of_url(url, token))
        except ValueError as error:
            raise ConfigError(f"--url {url!r}: {error}") from error
    return ServiceClient(
        Address(reachable_host(http.host), http.port, token, is_tls=http.tls is not None)
    )


def _said(message: str) -> Exit:
    sys.stdout.write(message + "\n")
    return Exit.DONE
