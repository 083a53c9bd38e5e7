"""Every instrument the service exports: name, kind, unit, labels, help.

Owns the names. The exported name is exactly `Instrument.name`: nothing adds a prefix or a suffix
(histograms add `_bucket`, `_sum`, `_count`, as Prometheus demands). The docs page and the tests are
generated from this list; a name that is not here cannot be recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Instrument:
    """`labels` maps each label to the values it may take; an empty tuple means: bounded elsewhere.

    The only label of that sort is `name`, the dataset, bounded by the configuration.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(label for label, _ in self.labels)

    @property
    def is_per_dataset(self) -> bool:
        return "name" in self.label_names


OTHER = "other"

OPERATIONS = (
    "DescribeTable",
    "DescribeStream",
    "GetShardIterator",
    "GetRecords",
    "Scan",
    "GetItem",
    OTHER,
)
# `ok`, and the codes of the errors a call to DynamoDB can end in.
OUTCOMES = (
    "ok",
    "throttled",
    "unavailable",
    "corrupt_page",
    "iterator_expired",
    "access_denied",
    "credentials_invalid",
    "table_not_found",
    "shard_gone",
    "trimmed",
    "request_refused",
    OTHER,
)
OPS = ("insert", "modify", "remove", "snapshot")
STATES = (
    "Initializing",
    "Snapshotting",
    "CatchingUp",
    "Ready",
    "Lagging",
    "Error",
    "ShuttingDown",
)
SURFACES = ("http", "flight", "quack", "internal", OTHER)
# `ok`, and the codes of the errors a query can end in.
QUERY_OUTCOMES = (
    "ok",
    "rejected",
    "failed",
    "timeout",
    "cancelled",
    "out_of_memory",
    "too_large",
    "busy",
    "not_fresh",
    "unavailable",
    OTHER,
)

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NAME: tuple[str, tuple[str, ...]] = ("name", ())


def _of_dataset(
    name: str,
    kind: Kind,
    unit: str,
    help: str,  # noqa: A002 - the word Prometheus uses
    *labels: tuple[str, tuple[str, ...]],
    buckets: tuple[float, ...] = (),
) -> Instrument:
    return Instrument(f"dataset_dynamodb_{name}", kind, unit, help, (_NAME, *labels), buckets)


SHARDS_ACTIVE = _of_dataset(
    "shards_active", Kind.GAUGE, "shards", "Stream shards known and not yet read to their end."
)
RECORDS_CONSUMED = _of_dataset(
    "records_consumed_total",
    Kind.COUNTER,
    "records",
    "Stream records read and committed, those included that changed no row.",
)
LAG_MS = _of_dataset(
    "lag_ms",
    Kind.GAUGE,
    "milliseconds",
    "Lag of the committed rows behind the stream's head, summed over unfinished shards.",
)
LAG_MAX_MS = _of_dataset(
    "lag_max_ms",
    Kind.GAUGE,
    "milliseconds",
    "Lag of the shard that is furthest behind: what readiness is decided by.",
)
ERRORS_TRANSIENT = _of_dataset(
    "errors_transient_total",
    Kind.COUNTER,
    "errors",
    "Failed calls to DynamoDB and its streams that are retried automatically.",
)
REINITIALIZATIONS = _of_dataset(
    "reinitializations_on_lag_exceeds_shard_retention_total",
    Kind.COUNTER,
    "reinitializations",
    "Times the dataset was loaded anew because its position had left the stream's retention.",
)
RETENTION_HEADROOM = _of_dataset(
    "retention_headroom_seconds",
    Kind.GAUGE,
    "seconds",
    "Time left until the oldest unread change may be trimmed from the stream (24 h retention).",
)
CHECKPOINT_AGE = _of_dataset(
    "checkpoint_age_seconds",
    Kind.GAUGE,
    "seconds",
    "Time since positions were last committed, on AWS time.",
)
READY = _of_dataset("ready", Kind.GAUGE, "boolean", "1 while the dataset is Ready, else 0.")
STATE = _of_dataset(
    "state",
    Kind.GAUGE,
    "boolean",
    "1 for the state the dataset is in, 0 for the others.",
    ("state", STATES),
)
APPLIED = _of_dataset(
    "applied_total", Kind.COUNTER, "changes", "Changes committed, by operation.", ("op", OPS)
)
APPLY_SECONDS = _of_dataset(
    "apply_seconds",
    Kind.HISTOGRAM,
    "seconds",
    "Duration of one group commit: planning, rows, positions, COMMIT.",
    buckets=_SECONDS,
)
SNAPSHOT_ITEMS = _of_dataset(
    "snapshot_items_total", Kind.COUNTER, "items", "Items read by Scan for snapshots."
)
SNAPSHOT_PROGRESS = _of_dataset(
    "snapshot_progress_ratio",
    Kind.GAUGE,
    "ratio",
    "Share of the running snapshot that is committed, 0 to 1; 1 when none is running.",
)
CONSUMED_RCU = _of_dataset(
    "consumed_rcu_total",
    Kind.COUNTER,
    "read capacity units",
    "Read capacity that Scan and GetItem consumed. Stream reads consume none.",
)
COST = _of_dataset(
    "estimated_cost_usd_per_day",
    Kind.GAUGE,
    "US dollars",
    "What reading costs a day at the list prices of us-east-1, free calls not taken off: "
    "GetRecords at the pace of the last hour, and what Scan and GetItem spent in the last day.",
    ("of", ("get_records", "scan")),
)
API_CALLS = _of_dataset(
    "api_calls_total",
    Kind.COUNTER,
    "calls",
    "Calls to DynamoDB and its streams, by operation and outcome.",
    ("operation", OPERATIONS),
    ("outcome", OUTCOMES),
)
API_CALL_SECONDS = _of_dataset(
    "api_call_seconds",
    Kind.HISTOGRAM,
    "seconds",
    "Duration of calls to DynamoDB and its streams, failed ones included.",
    ("operation", OPERATIONS),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
GAPS = _of_dataset(
    "gaps_total", Kind.COUNTER, "gaps", "Times changes could not be read: rows of dynaduck.gaps."
)
GAPS_OPEN = _of_dataset(
    "gaps_open", Kind.GAUGE, "gaps", "Gaps that no new snapshot has closed. Each revokes Ready."
)
DEAD_LETTERS = _of_dataset(
    "dead_letters_total",
    Kind.COUNTER,
    "records",
    "Records that could not be applied: rows of dynaduck.dead_letters.",
)
DEAD_LETTERS_OPEN = _of_dataset(
    "dead_letters_open", Kind.GAUGE, "records", "Dead letters neither replayed nor dropped."
)
COLUMNS_WIDENED = _of_dataset(
    "columns_widened_total",
    Kind.COUNTER,
    "columns",
    "Times a column took a wider type so that a value could be held exactly.",
)
NUMBERS_AS_TEXT = _of_dataset(
    "nested_numbers_as_text_total",
    Kind.COUNTER,
    "numbers",
    "Nested numbers kept as JSON strings, since no JSON number would read back equal.",
)
ROWS = _of_dataset("rows", Kind.GAUGE, "rows", "Rows in the dataset at the last commit.")
QUEUE_BYTES = _of_dataset("queue_bytes", Kind.GAUGE, "bytes", "Changes read and not yet committed.")

PUBLISH_SECONDS = _of_dataset(
    "publish_seconds",
    Kind.HISTOGRAM,
    "seconds",
    "Duration of making one copy and putting it in its place.",
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
PUBLISH_TOTAL = _of_dataset(
    "publish_total",
    Kind.COUNTER,
    "copies",
    "Times a copy was due, by what came of it: skipped where nothing had changed.",
    ("outcome", ("published", "skipped", "failed")),
)
PUBLISH_BYTES = _of_dataset("publish_bytes", Kind.GAUGE, "bytes", "Size of the newest copy.")
PUBLISH_LAST_SUCCESS = _of_dataset(
    "publish_last_success_timestamp_seconds",
    Kind.GAUGE,
    "seconds",
    "When a copy was last published or found to need no change, in seconds since the epoch.",
)

BUILD_INFO = Instrument(
    "dynaduck_build_info",
    Kind.GAUGE,
    "constant",
    "Always 1; the labels say what is running.",
    (("version", ()), ("duckdb", ()), ("python", ())),
)
START_TIME = Instrument(
    "dynaduck_start_time_seconds",
    Kind.GAUGE,
    "seconds",
    "When this process started, in seconds since the epoch, for display only.",
)
CONFIG_RELOADS = Instrument(
    "dynaduck_config_reloads_total",
    Kind.COUNTER,
    "reloads",
    "Times the configuration was read again, by what came of it: refused changes nothing.",
    (("outcome", ("ok", "refused")),),
)
CONFIG_GOOD = Instrument(
    "dynaduck_config_good",
    Kind.GAUGE,
    "boolean",
    "0 while the configuration as it was last read is refused, and an older one holds.",
)
CONFIG_WAITING = Instrument(
    "dynaduck_config_waiting_for_restart",
    Kind.GAUGE,
    "settings",
    "Settings whose new value was read and holds from the next start only.",
)
QUERIES = Instrument(
    "dynaduck_queries_total",
    Kind.COUNTER,
    "queries",
    "Queries of users, by the surface they came in by and by outcome.",
    (("surface", SURFACES), ("outcome", QUERY_OUTCOMES)),
)
QUERY_SECONDS = Instrument(
    "dynaduck_query_seconds",
    Kind.HISTOGRAM,
    "seconds",
    "Duration of queries from admission to their last row.",
    (("surface", SURFACES),),
    _SECONDS,
)
QUERIES_RUNNING = Instrument(
    "dynaduck_queries_running", Kind.GAUGE, "queries", "Queries that hold a slot now."
)
DATABASE_BYTES = Instrument(
    "dynaduck_database_bytes", Kind.GAUGE, "bytes", "Size of the DuckDB file."
)
WAL_BYTES = Instrument(
    "dynaduck_wal_bytes", Kind.GAUGE, "bytes", "Size of the DuckDB file's write-ahead log."
)
DATABASE_MEMORY_BYTES = Instrument(
    "dynaduck_database_memory_bytes",
    Kind.GAUGE,
    "bytes",
    "Memory DuckDB's buffer manager holds; its bound is runtime.memory_limit.",
)
DATABASE_REOPENED = Instrument(
    "dynaduck_database_reopened_total",
    Kind.COUNTER,
    "times",
    "Times the DuckDB file was closed and opened again after a fatal error inside DuckDB.",
)
SPANS_DROPPED = Instrument(
    "dynaduck_task_history_dropped_total",
    Kind.COUNTER,
    "spans",
    "Spans that runtime.task_history lost because its buffer was full.",
)

CATALOG: tuple[Instrument, ...] = (
    SHARDS_ACTIVE,
    RECORDS_CONSUMED,
    LAG_MS,
    ERRORS_TRANSIENT,
    REINITIALIZATIONS,
    LAG_MAX_MS,
    RETENTION_HEADROOM,
    CHECKPOINT_AGE,
    READY,
    STATE,
    APPLIED,
    APPLY_SECONDS,
    SNAPSHOT_ITEMS,
    SNAPSHOT_PROGRESS,
    CONSUMED_RCU,
    COST,
    API_CALLS,
    API_CALL_SECONDS,
    GAPS,
    GAPS_OPEN,
    DEAD_LETTERS,
    DEAD_LETTERS_OPEN,
    COLUMNS_WIDENED,
    NUMBERS_AS_TEXT,
    ROWS,
    QUEUE_BYTES,
    PUBLISH_SECONDS,
    PUBLISH_TOTAL,
    PUBLISH_BYTES,
    PUBLISH_LAST_SUCCESS,
    BUILD_INFO,
    START_TIME,
    CONFIG_RELOADS,
    CONFIG_GOOD,
    CONFIG_WAITING,
    QUERIES,
    QUERY_SECONDS,
    QUERIES_RUNNING,
    DATABASE_BYTES,
    WAL_BYTES,
    DATABASE_MEMORY_BYTES,
    DATABASE_REOPENED,
    SPANS_DROPPED,
)
