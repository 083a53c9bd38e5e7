"""Every setting, once: its key, kind, default, aliases and what it does.

The classes are what the rest of the program reads; the catalog derived from them is what the
loader, `config show`, the JSON Schema and the settings page read. Knows neither file nor
precedence. A key is relative to its section; a dataset's attributes are flat although its keys
are not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from connector.config.kinds import (
    BOOLEAN,
    COLUMN_PINS,
    PATH,
    SECRET,
    TEXT,
    TLS_FILES,
    URL,
    ColumnPin,
    Kind,
    Secret,
    TlsFiles,
    choice,
    duration,
    listing,
    matching,
    optional,
    size,
    whole,
)


class InitialSnapshot(StrEnum):
    AUTO = "auto"
    DISABLED = "disabled"
    ALWAYS = "always"


class InvalidCheckpointBehavior(StrEnum):
    ERROR = "error"
    RESTART = "restart"


class RefreshMode(StrEnum):
    CHANGES = "changes"
    FULL = "full"


class Poison(StrEnum):
    """What happens to a change that cannot be applied."""

    QUARANTINE = "quarantine"
    HALT = "halt"


class Misfit(StrEnum):
    """What happens to an item with a value that its column's fixed type cannot hold."""

    DEAD_LETTER = "dead_letter"
    NULL = "null"


class PublishFormat(StrEnum):
    DUCKDB = "duckdb"
    PARQUET = "parquet"


class OffsetStore(StrEnum):
    DUCKDB = "duckdb"
    DYNAMODB = "dynamodb"


class WalStorage(StrEnum):
    DISK = "disk"
    S3 = "s3"
    CLUSTERED = "clustered"


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Alias:
    """Another key for a setting; `values` are words that only this key takes."""

    key: str
    is_deprecated: bool = False
    values: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One entry of the catalog. `default` is as a person writes it, None where there is none.

    `reloads`: a running service takes a new value on SIGHUP; the others wait for a restart.
    """

    key: str
    attribute: tuple[str, ...]
    kind: Kind
    default: str | None
    doc: str
    aliases: tuple[Alias, ...] = ()
    environment: tuple[str, ...] = ()
    reloads: bool = False

    @property
    def is_secret(self) -> bool:
        return SECRET.label in self.kind.label


def _setting(
    key: str,
    kind: Kind,
    default: str | None,
    doc: str,
    *,
    aliases: tuple[Alias, ...] = (),
    environment: tuple[str, ...] = (),
    reloads: bool = False,
) -> Any:
    entry = Setting(key, (), kind, default, doc, aliases, environment, reloads)
    if default is None:
        return dataclasses.field(metadata={"setting": entry})
    return dataclasses.field(default=kind.read(default), metadata={"setting": entry})


def _section(key: str, settings: type) -> Any:
    return dataclasses.field(default_factory=settings, metadata={"section": key})


_NONE_OR_TEXT = optional(TEXT)
_PORT = whole(0, 65535)
# `#` joins the parts in keys of the offset table, `/` in those of the segment log.
_KEY_PART = matching("name", "a name of letters, digits, '.', '_' or '-'", r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    enabled: bool = _setting(
        "enabled", BOOLEAN, "false", "Keep every change, with its old image where there is one."
    )
    retention_s: float = _setting(
        "retention", duration(1.0), "30d", "How long changes of the history are kept.", reloads=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish:
    every_s: float | None = _setting(
        "every", optional(duration(1.0)), "none", "How often a consistent copy is written."
    )
    format: PublishFormat = _setting(
        "format", choice(PublishFormat), "parquet", "Format of the copies."
    )
    to: str | None = _setting(
        "to",
        _NONE_OR_TEXT,
        "none",
        "Where the copies go: a directory, a file, s3://bucket/prefix, or an object.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A DynamoDB table and the view that mirrors it. Secrets and endpoints stay out of its repr."""

    name: str
    table: str
    region: str
    table_arn: str | None = None
    access_key_id: Secret | None = _setting(
        "params.dynamodb_aws_access_key_id",
        optional(SECRET),
        "none",
        "AWS access key; without it the AWS credential chain is used.",
    )
    secret_access_key: Secret | None = _setting(
        "params.dynamodb_aws_secret_access_key", optional(SECRET), "none", "Its secret part."
    )
    session_token: Secret | None = _setting(
        "params.dynamodb_aws_session_token",
        optional(SECRET),
        "none",
        "Session token of temporary credentials.",
    )
    endpoint_url: str | None = _setting(
        "params.endpoint_url",
        optional(URL),
        "none",
        "Another endpoint than AWS's, for DynamoDB and for its streams.",
    )
    streams_endpoint_url: str | None = _setting(
        "params.streams_endpoint_url",
        optional(URL),
        "none",
        "The streams' endpoint where it differs from endpoint_url.",
    )
    scan_interval_s: float = _setting(
        "params.scan_interval",
        duration(),
        "0s",
        "Least time between two polls of a shard; 0s adapts to the traffic.",
        reloads=True,
    )
    scan_segments: int | None = _setting(
        "params.scan_segments",
        optional(whole(1, 1_000_000), "auto"),
        "auto",
        "Parallel segments of the next snapshot; auto goes by the table's size.",
        reloads=True,
    )
    scan_max_rcu: int | None = _setting(
        "params.scan_max_rcu",
        optional(whole(1)),
        "none",
        "Most read capacity units a second that the snapshot may use.",
        reloads=True,
    )
    scan_consistent_read: bool = _setting(
        "params.scan_consistent_read",
        BOOLEAN,
        "true",
        "Consistent reads in the snapshot; twice the capacity, and no margin to wait for.",
    )
    unnest_depth: int = _setting(
        "params.unnest_depth",
        whole(0, 32),
        "0",
        "How many levels of nested maps become columns of their own.",
    )
    ready_lag_s: float = _setting(
        "params.dynamodb_replication_ready_lag",
        duration(2.0, "the stream's times are whole seconds"),
        "2s",
        "The dataset is Ready while it lags by no more than this.",
        aliases=(Alias("params.ready_lag", is_deprecated=True),),
        reloads=True,
    )
    initial_snapshot: InitialSnapshot = _setting(
        "params.dynamodb_replication_initial_snapshot",
        choice(InitialSnapshot),
        "auto",
        "auto scans when there is no checkpoint, disabled streams changes only, always scans at "
        "every start.",
    )
    invalid_checkpoint_behavior: InvalidCheckpointBehavior = _setting(
        "params.dynamodb_replication_invalid_checkpoint_behavior",
        choice(InvalidCheckpointBehavior),
        "error",
        "When the stream no longer holds what the checkpoint needs: error keeps the data and waits "
        "for a person, restart scans anew beside the old data.",
        aliases=(
            Alias(
                "params.lag_exceeds_shard_retention_behavior",
                is_deprecated=True,
                values={"ready_after_load": "restart", "ready_before_load": "restart"},
            ),
        ),
        reloads=True,
    )
    refresh_mode: RefreshMode = _setting(
        "acceleration.refresh_mode",
        choice(RefreshMode),
        "changes",
        "changes follows the stream, full scans the whole table again and again.",
    )
    refresh_check_interval_s: float = _setting(
        "acceleration.refresh_check_interval",
        duration(1.0),
        "10m",
        "Time between two scans with refresh_mode: full.",
        reloads=True,
    )
    columns: tuple[ColumnPin, ...] = _setting(
        "columns", COLUMN_PINS, "[]", "Attributes whose column type is fixed."
    )
    misfit: Misfit = _setting(
        "misfit",
        choice(Misfit),
        "dead_letter",
        "A value that the fixed type of its column cannot hold exactly: dead_letter sets the "
        "change aside in dynaduck.dead_letters, null shows NULL and keeps the value for verify and "
        "repair.",
    )
    max_columns: int = _setting(
        "max_columns",
        whole(1, 10_000),
        "1000",
        "Attributes that get a column of their own; the rest is in _extra.",
    )
    include: tuple[str, ...] = _setting(
        "include",
        listing(TEXT, "attributes"),
        "[]",
        "Only these attributes, beside the key; empty means all.",
    )
    exclude: tuple[str, ...] = _setting(
        "exclude", listing(TEXT, "attributes"), "[]", "All attributes but these."
    )
    where: str | None = _setting(
        "where", _NONE_OR_TEXT, "none", "A filter on the new image; other items have no row."
    )
    poison: Poison = _setting(
        "poison",
        choice(Poison),
        "quarantine",
        "A change that cannot be applied: quarantine sets it aside in dynaduck.dead_letters, halt "
        "stops the dataset.",
        reloads=True,
    )
    history: History = _section("history", History)
    publish: Publish = _section("publish", Publish)

    @property
    def account_id(self) -> str | None:
        """Known where the table was named by its ARN."""
        return self.table_arn.split(":")[4] if self.table_arn else None

    def __repr__(self) -> str:
        return f"Dataset({self.name!r}, table={self.table!r}, region={self.region!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    host: str = _setting("host", TEXT, "127.0.0.1", "Address that HTTP listens on.")
    port: int = _setting("port", _PORT, "8090", "Its port; 0 takes a free one.")
    token: Secret | None = _setting(
        "token", optional(SECRET), "none", "Bearer token that clients give; a must off loopback."
    )
    tls: TlsFiles | None = _setting(
        "tls", optional(TLS_FILES, "off"), "off", "Certificate; off must be said off loopback."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    enabled: bool = _setting(
        "enabled", BOOLEAN, "false", "Serve Arrow Flight SQL, with the host, token and tls of http."
    )
    port: int = _setting("port", _PORT, "50051", "Its port; 0 takes a free one.")
    client_ca: Path | None = _setting(
        "client_ca", optional(PATH), "none", "Clients need a certificate that this CA signed."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quack:
    enabled: bool = _setting("enabled", BOOLEAN, "false", "Serve DuckDB's own protocol.")
    port: int = _setting("port", _PORT, "9494", "Its port.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    max_concurrent: int = _setting(
        "max_concurrent", whole(1, 1024), "4", "Queries that run at the same time.", reloads=True
    )
    timeout_s: float = _setting(
        "timeout", duration(0.001), "30s", "After this a query is interrupted.", reloads=True
    )
    max_rows: int | None = _setting(
        "max_rows", optional(whole(1)), "none", "Most rows that one answer may have.", reloads=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    data_dir: Path = _setting(
        "data_dir",
        PATH,
        "./data",
        "Directory of replica.duckdb.",
        environment=("SKIPPR_DATA_DIR",),
    )
    memory_limit_bytes: int = _setting(
        "memory_limit",
        size(64_000_000),
        "1GB",
        "Memory of the process; DuckDB gets four tenths of it, and up to 400 MB if that is less.",
    )
    secrets_dir: Path = _setting(
        "secrets_dir", PATH, "/run/secrets", "Directory whose files are secrets by their names."
    )
    log_format: LogFormat = _setting(
        "log_format",
        choice(LogFormat),
        "text",
        "Log lines for people, or one JSON object each.",
        reloads=True,
    )
    log_level: LogLevel = _setting(
        "log_level", choice(LogLevel), "info", "Least level logged.", reloads=True
    )
    http: Http = _section("http", Http)
    flight: Flight = _section("flight", Flight)
    quack: Quack = _section("quack", Quack)
    query: Query = _section("query", Query)
    offset_store: OffsetStore = _setting(
        "offset_store",
        choice(OffsetStore, {"sled": "duckdb"}),
        "duckdb",
        "Where checkpoints are kept; wal_storage: clustered makes it dynamodb.",
        environment=("SKIPPR_OFFSET_STORE",),
    )
    offset_dynamodb_table: str | None = _setting(
        "offset_dynamodb_table",
        _NONE_OR_TEXT,
        "none",
        "Table of offsets, leases and members; a must for dynamodb and clustered.",
        environment=("SKIPPR_OFFSET_DYNAMODB_TABLE",),
    )
    wal_storage: WalStorage = _setting(
        "wal_storage",
        choice(WalStorage),
        "disk",
        "Where the log of changes is: disk (the data file alone), s3 (resume anywhere), clustered "
        "(leader and followers).",
        environment=("WAL_STORAGE", "SKIPPR_WAL_STORAGE"),
    )
    wal_s3_bucket: str | None = _setting(
        "wal_s3_bucket",
        _NONE_OR_TEXT,
        "none",
        "Bucket of the log; s3_bucket where it is none.",
        environment=("SKIPPR_WAL_S3_BUCKET",),
    )
    s3_bucket: str | None = _setting(
        "s3_bucket",
        _NONE_OR_TEXT,
        "none",
        "Bucket for everything that has none of its own.",
        environment=("SKIPPR_S3_BUCKET",),
    )
    catalog_table: str | None = _setting(
        "catalog_table",
        _NONE_OR_TEXT,
        "none",
        "Table of an Iceberg catalog in the same account; must not be the offset table.",
    )
    tenant: str = _setting(
        "tenant",
        _KEY_PART,
        "default",
        "First part of the keys in table and bucket.",
        environment=("SKIPPR_TENANT",),
    )
    workspace: str = _setting(
        "workspace", _KEY_PART, "default", "Second part.", environment=("SKIPPR_WORKSPACE",)
    )
    pipeline: str = _setting(
        "pipeline", _KEY_PART, "default", "Third part.", environment=("SKIPPR_PIPELINE",)
    )
    cluster_id: str | None = _setting(
        "cluster_id",
        optional(_KEY_PART),
        "none",
        "The cluster whose members find each other.",
        environment=("SKIPPR_CLUSTER_ID",),
    )

    @property
    def replica_file(self) -> Path:
        """The DuckDB file; its stem may not be `dynaduck`, the schema of the tables in it."""
        return self.data_dir / "replica.duckdb"


# Spice takes a colon, a slash or both slashes of a URL between connector and path.
SOURCE_PREFIX = r"dynamodb(?::(?://)?|/)"
# These three decide what a dataset is; `config.load` derives name, table and region from them.
FROM = Setting(
    "from",
    ("from",),
    matching(
        "dynamodb:TABLE or ARN",
        "dynamodb:TABLE, or a table's ARN,",
        rf"(?:{SOURCE_PREFIX})?arn:aws[a-z-]*:dynamodb:[a-z0-9-]+:\d{{12}}"
        rf":table/[A-Za-z0-9_.-]{{3,255}}|{SOURCE_PREFIX}[A-Za-z0-9_.-]{{3,255}}",
    ),
    None,
    "The table.",
)
# What a DynamoDB table may be called may be a view's name too; quotes and spaces may not.
NAME = Setting(
    "name",
    ("name",),
    matching(
        "name", "a name of letters, digits, '_', '-' or '.'", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}"
    ),
    None,
    "The view in SQL; the table's name where it is not given.",
)
REGION = Setting(
    "params.dynamodb_aws_region",
    ("region",),
    matching("region", "an AWS region such as eu-west-1", r"[a-z]{2,}(?:-[a-z0-9]+)+"),
    None,
    "AWS region; without it that of the ARN, AWS_REGION, AWS_DEFAULT_REGION or the profile.",
    aliases=(Alias("params.region"),),
)


def _walk(owner: type, prefix: str, attributes: tuple[str, ...]) -> Iterator[Setting]:
    hints = get_type_hints(owner)
    for field in dataclasses.fields(owner):
        here = (*attributes, field.name)
        if "section" in field.metadata:
            section = f"{prefix}{field.metadata['section']}."
            yield from _walk(hints[field.name], section, here)
        elif "setting" in field.metadata:
            entry: Setting = field.metadata["setting"]
            yield dataclasses.replace(entry, key=prefix + entry.key, attribute=here)


@cache
def dataset_settings() -> tuple[Setting, ...]:
    """The settings of one dataset, keys relative to it."""
    return (FROM, NAME, REGION, *_walk(Dataset, "", ()))


@cache
def runtime_settings() -> tuple[Setting, ...]:
    """The settings below `runtime`, keys relative to it."""
    return tuple(_walk(Runtime, "", ()))
