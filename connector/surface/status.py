"""What the service tells about itself: the facts as values, and the /v1/status document.

Owns the shape of the document. Pure: the service gathers the facts, this module only renders them.
Times are AWS milliseconds inside, RFC 3339 text outside; durations stay numbers with their unit in
the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Protocol

from connector.cluster.view import NodeView
from connector.health import DatasetState
from connector.reasons import Reason


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard, live. `position` and `sequence_number` are committed; `lag_ms` is of the rows."""

    shard_id: str
    parent_shard_id: str | None
    state: str
    position: str
    sequence_number: str | None = None
    records: int = 0
    lag_ms: int | None = None
    covered_until_ms: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The snapshot that runs, or the last one. `ratio` is the committed share, 0 to 1."""

    state: str
    segments_total: int = 0
    segments_done: int = 0
    items: int = 0
    items_estimated: int | None = None
    ratio: float | None = None
    items_per_s: float | None = None
    eta_s: float | None = None
    consumed_rcu: float = 0.0
    started_at_ms: int | None = None
    ended_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GapStatus:
    shard_id: str
    from_sequence_number: str | None
    cause: str
    detected_at_ms: int
    resolution: str | None = None


@dataclass(frozen=True, slots=True)
class CostStatus:
    """What reading costs a day, estimated; see `connector.cost` for what is in it."""

    usd_per_day: float
    get_records_per_day: float
    get_records_usd_per_day: float
    read_units: float
    scan_usd_per_day: float
    prices_of: str


@dataclass(frozen=True, slots=True)
class DatasetStatus:
    """One dataset. `lag_ms` is summed over unfinished shards, `lag_max_ms` decides readiness."""

    name: str
    table_name: str
    state: DatasetState
    reasons: tuple[Reason, ...] = ()
    table_arn: str | None = None
    table_id: str | None = None
    stream_arn: str | None = None
    refresh_mode: str = "changes"
    is_paused: bool = False
    generation: int | None = None
    rows: int | None = None
    columns: int | None = None
    as_of_ms: int | None = None
    lag_ms: int | None = None
    lag_max_ms: int | None = None
    ready_lag_ms: int | None = None
    retention_headroom_s: float | None = None
    checkpoint_age_s: float | None = None
    records_consumed: int = 0
    changes_per_s: float | None = None
    shards_active: int = 0
    snapshot: SnapshotStatus | None = None
    shards: tuple[ShardStatus, ...] = ()
    gaps: tuple[GapStatus, ...] = ()
    dead_letters: int = 0
    cost: CostStatus | None = None

    @property
    def is_ready(self) -> bool:
        return self.state is DatasetState.READY


@dataclass(frozen=True, slots=True)
class ConfigurationStatus:
    """Where the settings came from, and what the last reload came to.

    error           why the file as it is now was refused: what was read before it holds
    needs_restart   settings whose new value waits for one
    """

    file: str | None = None
    reloads: int = 0
    reloaded_at_ms: int | None = None
    error: str | None = None
    needs_restart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """This process among those that share a log. `applied` is its last segment, `leader` a node.

    looked_s, leader_age_s   seconds since the log was read to its end, and since the leader's last
                             sign of life; None before the first
    trouble                  the code of what stands in the way now
    """

    mode: str
    role: str
    node: str
    epoch: int
    applied: int
    head: int
    leader: str | None = None
    looked_s: float | None = None
    leader_age_s: float | None = None
    leader_lag_ms: int | None = None
    is_paused: bool = False
    trouble: str | None = None

    @classmethod
    def of(cls, view: NodeView) -> NodeStatus:
        return cls(
            mode=view.mode,
            role=view.role.value,
            node=view.node,
            epoch=view.epoch,
            applied=view.applied_index,
            head=view.head_index,
            leader=view.leader,
            looked_s=view.looked_s,
            leader_age_s=view.leader_age_s,
            leader_lag_ms=view.leader_lag_ms,
            is_paused=view.is_paused,
            trouble=None if view.trouble is None else view.trouble.code,
        )


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The whole service. `aws_time_ms` is what AWS's clock said last; None before any answer."""

    version: str
    datasets: tuple[DatasetStatus, ...] = ()
    started_at_ms: int | None = None
    aws_time_ms: int | None = None
    duckdb_version: str | None = None
    data_file: str | None = None
    data_file_bytes: int | None = None
    wal_bytes: int | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    database_reopened: int = 0
    configuration: ConfigurationStatus | None = None
    cluster: NodeStatus | None = None

    @property
    def is_ready(self) -> bool:
        """True when there is a dataset and every one of them is Ready."""
        return bool(self.datasets) and all(dataset.is_ready for dataset in self.datasets)

    def to_json(self) -> dict[str, Any]:
        """The /v1/status document, of JSON types only."""
        document: dict[str, Any] = _plain(self)
        return {"ready": self.is_ready, **document}


@dataclass(frozen=True, slots=True)
class Readiness:
    """`is_ready`, and for each dataset that is not Ready its state and its reasons."""

    is_ready: bool
    datasets: Mapping[str, tuple[DatasetState, tuple[Reason, ...]]]

    @classmethod
    def of(cls, status: ServiceStatus) -> Readiness:
        waiting = {d.name: (d.state, d.reasons) for d in status.datasets if not d.is_ready}
        return cls(status.is_ready, waiting)

    def to_json(self) -> dict[str, Any]:
        return {
            "ready": self.is_ready,
            "reasons": [
                {"dataset": name, "state": state.value, **_of_reason(reason)}
                for name, (state, reasons) in sorted(self.datasets.items())
                for reason in reasons or (_unexplained(state),)
            ],
        }


class ServiceFacts(Protocol):
    """The service as the HTTP layer sees it. Thread-safe; each method may block for a moment.

    The three actions return once they are accepted. They raise UnknownDataset, or another
    DynaduckError when the dataset is in no state for it.
    """

    def status(self) -> ServiceStatus: ...

    def ready(self) -> Readiness: ...

    def refresh(self, dataset: str) -> None: ...

    def pause(self, dataset: str) -> None: ...

    def resume(self, dataset: str) -> None: ...


def _unexplained(state: DatasetState) -> Reason:
    return Reason(f"state_{state.name.lower()}", f"The dataset is {state.value}.", "")


def _of_reason(reason: Reason) -> dict[str, Any]:
    return {
        "code": reason.code,
        "message": reason.sentence,
        "remedy": reason.remedy,
        "blocks": reason.blocks,
    }


def _plain(value: object) -> Any:
    """Dataclasses as objects, `x_ms` points in time as RFC 3339 under the name `x`."""
    if isinstance(value, Reason):
        return _of_reason(value)
    if is_dataclass(value) and not isinstance(value, type):
        document = {}
        for field in fields(value):
            key, item = field.name, getattr(value, field.name)
            if key.endswith("_ms") and not key.endswith("lag_ms") and not key.endswith("max_ms"):
                document[key.removesuffix("_ms")] = None if item is None else rfc3339(item)
            else:
                document[key] = _plain(item)
        return document
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return value


def rfc3339(at_ms: int) -> str:
    """`2026-01-02T03:04:05.678Z`."""
    moment = datetime.fromtimestamp(at_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
