"""What the running service says of itself, gathered for whoever asks.

Owns the gathering: the facts are the replications', the shape is `connector.surface.status`. Costs
O(shards) and one count of rows; an answer is kept for a moment, however many ask.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final

import duckdb

from accelerator.errors import AcceleratorError
from accelerator.freshness import Freshness
from accelerator.outcome import StoredDataset
from accelerator.sql import identifier
from connector.cost import PRICES_OF, Cost
from connector.course import Course
from connector.errors import UnknownDataset
from connector.health import Health
from connector.service import Service
from connector.stream.lineage import ShardView
from connector.surface.status import (
    ConfigurationStatus,
    CostStatus,
    DatasetStatus,
    GapStatus,
    NodeStatus,
    Readiness,
    ServiceStatus,
    ShardStatus,
    SnapshotStatus,
)
from connector.upkeep import Upkeep
from metrics import catalog

KEPT_S: Final = 0.5
RATE_WINDOW_S: Final = 10.0


class Report:
    """ServiceFacts over a running service. Thread-safe."""

    def __init__(
        self,
        service: Service,
        configuration: Callable[[], ConfigurationStatus | None] = lambda: None,
    ) -> None:
        self._service = service
        self._configuration = configuration
        self._lock = threading.Lock()
        self._status: ServiceStatus | None = None
        self._until_s = 0.0
        self._consumed: dict[str, deque[tuple[float, float]]] = {}

    def status(self) -> ServiceStatus:
        with self._lock:
            now_s = self._service.clock.monotonic_s()
            if self._status is None or now_s >= self._until_s:
                self._status = self._gather(now_s)
                self._until_s = now_s + KEPT_S
            return self._status

    def ready(self) -> Readiness:
        """Always the newest verdict: readiness is asked by machines that act on it."""
        verdicts = {r.name: r.health for r in self._service.replications}
        waiting = {
            name: (health.state, health.reasons)
            for name, health in verdicts.items()
            if not health.is_ready
        }
        return Readiness(bool(verdicts) and not waiting, waiting)

    def freshness(self) -> Mapping[str, Freshness]:
        """By dataset, for answers to queries: call it before the query's transaction begins."""
        return {
            r.name: Freshness(r.health.state.value, r.covered_until_ms)
            for r in self._service.replications
        }

    def refresh(self, dataset: str) -> None:
        self._found(dataset).refresh()

    def pause(self, dataset: str) -> None:
        self._found(dataset).pause()

    def resume(self, dataset: str) -> None:
        self._found(dataset).resume()

    def _found(self, dataset: str) -> Upkeep:
        found = self._service.replication(dataset)
        if found is None:
            known = ", ".join(r.name for r in self._service.replications)
            raise UnknownDataset(f"There is no dataset {dataset}.", hint=f"There are: {known}.")
        return found

    def _gather(self, now_s: float) -> ServiceStatus:
        service = self._service
        database = service.database
        return ServiceStatus(
            version=version("dynaduck"),
            datasets=tuple(self._dataset(r, now_s) for r in service.replications),
            aws_time_ms=max((r.aws_now_ms or 0 for r in service.replications), default=0) or None,
            duckdb_version=duckdb.__version__,
            data_file=str(database.path),
            data_file_bytes=database.file_bytes(),
            wal_bytes=database.wal_bytes(),
            memory_limit_bytes=database.memory_limit_bytes,
            database_reopened=database.reopened,
            configuration=self._configuration(),
            cluster=None if service.cluster is None else NodeStatus.of(service.cluster.view()),
        )

    def _dataset(self, replication: Upkeep, now_s: float) -> DatasetStatus:
        health, stored, course = replication.health, replication.stored, replication.course
        rows, columns = self._size(replication.name) if stored is not None else (None, None)
        consumed = self._service.recorder.value(catalog.RECORDS_CONSUMED, name=replication.name)
        headroom_ms, covered_ms = health.headroom_ms, replication.covered_until_ms
        aws_ms = replication.aws_now_ms
        age_ms = None if covered_ms is None or aws_ms is None else max(0, aws_ms - covered_ms)
        return DatasetStatus(
            name=replication.name,
            table_name=replication.settings.table,
            state=health.state,
            reasons=health.reasons,
            table_arn=None if stored is None else stored.live_identity.table_arn,
            table_id=None if stored is None else stored.live_identity.table_id,
            stream_arn=None if stored is None else stored.identity.stream_arn,
            refresh_mode=replication.settings.refresh_mode.value,
            is_paused=replication.is_paused,
            generation=None if stored is None else stored.generation,
            rows=rows,
            columns=columns,
            as_of_ms=covered_ms,
            lag_ms=health.lag_sum_ms,
            lag_max_ms=health.lag_max_ms,
            ready_lag_ms=int(replication.settings.ready_lag_s * 1000),
            retention_headroom_s=None if headroom_ms is None else headroom_ms / 1000,
            checkpoint_age_s=None if age_ms is None else age_ms / 1000,
            records_consumed=int(consumed or 0),
            changes_per_s=self._rate(replication.name, consumed or 0.0, now_s),
            shards_active=health.shards_active,
            snapshot=None if stored is None else _snapshot(stored, replication),
            shards=() if course is None else _shards(course, health),
            gaps=() if stored is None else _gaps(stored),
            dead_letters=replication.open_dead_letters,
            cost=None if replication.cost is None else _cost(replication.cost),
        )

    def _size(self, dataset: str) -> tuple[int | None, int | None]:
        view = f"main.{identifier(dataset)}"
        try:
            cursor = self._service.database.cursor()
            with self._service.database.translated():
                try:
                    found = cursor.execute(
                        f"SELECT (SELECT count(*) FROM {view}), (SELECT count(*) FROM "  # noqa: S608
                        "duckdb_columns() WHERE schema_name = 'main' AND table_name = ?)",
                        [dataset],
                    ).fetchone()
                finally:
                    cursor.close()
        except AcceleratorError:
            return None, None
        return (None, None) if found is None else (int(found[0]), int(found[1]))

    def _rate(self, name: str, consumed: float, now_s: float) -> float | None:
        """Records a second over the last `RATE_WINDOW_S`; None from a single look."""
        seen = self._consumed.setdefault(name, deque())
        seen.append((now_s, consumed))
        while len(seen) > 2 and seen[1][0] <= now_s - RATE_WINDOW_S:
            seen.popleft()
        (then_s, then), (last_s, last) = seen[0], seen[-1]
        return (last - then) / (last_s - then_s) if last_s > then_s else None


def _cost(cost: Cost) -> CostStatus:
    return CostStatus(
        usd_per_day=round(cost.usd_per_day, 6),
        get_records_per_day=round(cost.get_records_per_day),
        get_records_usd_per_day=round(cost.get_records_usd_per_day, 6),
        read_units=round(cost.read_units, 1),
        scan_usd_per_day=round(cost.scan_usd_per_day, 6),
        prices_of=PRICES_OF,
    )


def _snapshot(stored: StoredDataset, upkeep: Upkeep) -> SnapshotStatus:
    segments, items_per_s, consumed_rcu = stored.segments, None, 0.0
    if (scanner := upkeep.scanner) is not None:
        progress = scanner.progress()
        segments, items_per_s = progress.segments, progress.items_per_s
        consumed_rcu = progress.consumed_rcu
    done, items = sum(s.done for s in segments), sum(s.items for s in segments)
    estimated = upkeep.items_estimated
    eta_s = None
    if estimated is not None and items_per_s:
        eta_s = max(0, estimated - items) / items_per_s
    return SnapshotStatus(
        state=stored.snapshot_state,
        segments_total=len(segments),
        segments_done=done,
        items=items,
        items_estimated=estimated,
        ratio=done / len(segments) if segments else None,
        items_per_s=items_per_s,
        eta_s=eta_s,
        consumed_rcu=consumed_rcu,
        started_at_ms=stored.snapshot_started_at_ms,
        ended_at_ms=stored.scan_ended_at_ms,
    )


def _shards(course: Course, health: Health) -> tuple[ShardStatus, ...]:
    return tuple(_shard(view, health) for view in course.reader.views(finished=True))


def _shard(view: ShardView, health: Health) -> ShardStatus:
    """Its lag is the one that the verdict rests on: none for a shard that is proved idle."""
    committed = view.committed
    position = committed.position if committed is not None else view.position
    covered_ms = view.covered_until_ms
    return ShardStatus(
        shard_id=view.shard_id,
        parent_shard_id=view.parent_shard_id,
        state=view.state.value,
        position=position.encode(),
        sequence_number=position.sequence_number,
        records=committed.records if committed is not None else 0,
        lag_ms=health.shard_lags_ms.get(view.shard_id),
        covered_until_ms=covered_ms,
        error=None if view.error is None else str(view.error),
    )


def _gaps(stored: StoredDataset) -> tuple[GapStatus, ...]:
    return tuple(
        GapStatus(g.shard_id, g.from_sequence_number, g.cause, g.detected_at_ms, g.resolution)
        for g in stored.open_gaps
    )
