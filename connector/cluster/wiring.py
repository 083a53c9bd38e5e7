"""Where a configuration asks for a log: the parts of a node, put together.

Owns which right goes with which mode, and the loops that a node needs. Must not know how rows are
read from the stream.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from accelerator.database import Database
from accelerator.spec import DatasetSpec
from checkpoints.errors import CheckpointError
from checkpoints.lease import LEASE_TIMES, LeaseStore, LeaseTimes
from checkpoints.membership import Member, Membership
from checkpoints.offsets import OffsetStore
from connector.clock import AwsTime, Clock
from connector.cluster.logged_dataset import LoggedDataset
from connector.cluster.members import Members
from connector.cluster.node import Node
from connector.cluster.pipeline_log import PipelineLog
from connector.cluster.right import FenceRight, LeaseRight, Right
from connector.cluster.view import NodeView, Role
from connector.config import Config, WalStorage
from connector.config import OffsetStore as OffsetStoreKind
from connector.loops import Bell, Loop
from connector.storage import cluster_of, log_objects, offset_items, pipeline_of

if TYPE_CHECKING:
    from connector.upkeep import Upkeep

log = structlog.get_logger(__name__)

ROWS_AT_ONCE: Final = 8

TIMES: LeaseTimes = LEASE_TIMES
"""No setting changes it. Tests do, in a process of their own."""


class Cluster:
    """A node with its log, and the loops that keep it. Made before the datasets are."""

    def __init__(
        self,
        config: Config,
        database: Database,
        writing: threading.RLock,
        clock: Clock,
        *,
        reopen: Callable[[], None],
    ) -> None:
        runtime = config.runtime
        is_clustered = runtime.wal_storage is WalStorage.CLUSTERED
        self._upkeep: Sequence[Upkeep] = ()
        name = uuid.uuid4().hex
        pipeline = pipeline_of(runtime)
        self._aws_time = AwsTime(clock)
        objects = log_objects(config, on_date=self._observe)
        has_table = runtime.offset_store is OffsetStoreKind.DYNAMODB
        items = offset_items(config) if has_table else None
        self._clock = clock
        self._address = _address(config)
        self._cluster_id = cluster_of(runtime)
        self.log = PipelineLog(
            database,
            pipeline,
            objects,
            clock,
            writer=name,
            rows=None if items is None else OffsetStore(items, pipeline),
            rows_are_required=is_clustered,
            rows_at_once=ROWS_AT_ONCE,
            now_ms=self._aws_time.now_ms,
        )
        right: Right = FenceRight(clock)
        if items is not None and is_clustered:
            right = LeaseRight(LeaseStore(items, pipeline), name, clock, TIMES)
        self._right = right
        self.node = Node(
            name,
            self.log,
            database,
            writing,
            clock,
            right,
            is_alone=not is_clustered,
            reopen=reopen,
            silent_after_s=TIMES.valid_s,
        )
        self.members: Members | None = None
        if items is not None and is_clustered:
            membership = Membership(items, self._cluster_id, clock)
            self.members = Members(
                membership,
                self._describe,
                self.node.leader_seen,
                clock,
                every_s=TIMES.renew_every_s,
            )
        self._loops = [Loop("node", self.node.step, Bell(), clock)]
        if is_clustered:
            self._loops.append(Loop("lease", right.keep, Bell(), clock))
        if self.members is not None:
            self._loops.append(Loop("members", self.members.step, Bell(), clock))

    # Building

    def dataset(
        self,
        database: Database,
        spec: DatasetSpec,
        *,
        now_ms: Callable[[], int | None],
        monotonic_s: Callable[[], float],
        scan_margin_s: float,
    ) -> LoggedDataset:
        return LoggedDataset(
            database,
            spec,
            self.log,
            now_ms=now_ms,
            monotonic_s=monotonic_s,
            scan_margin_s=scan_margin_s,
        )

    def attach(self, upkeep: Sequence[Upkeep]) -> None:
        """The datasets of the settings: they read only while this node may."""
        self._upkeep = upkeep
        self.node.rows = list(upkeep)
        for each in upkeep:
            each.attach(self)
        self.log.load()

    # What the datasets ask

    @property
    def may_read(self) -> bool:
        return self.node.may_read

    @property
    def is_following(self) -> bool:
        """Whether this node's health is a follower's."""
        return self.node.role is not Role.LEADER

    def view(self) -> NodeView:
        return self.node.view()

    def aws_now_ms(self) -> int | None:
        """By the answers of S3."""
        return self._aws_time.now_ms()

    def _observe(self, date_ms: int) -> None:
        self._aws_time.observe(date_ms)
        for each in self._upkeep:
            each.observe(date_ms)

    # Life

    @property
    def loops(self) -> list[Loop]:
        return self._loops

    def leave(self) -> None:
        """Once nothing is written any more: the lease and the row of the members are given back."""
        self.node.stop()
        try:
            self.node.leave()
            if self.members is not None:
                self.members.leave()
        except CheckpointError as error:
            log.warning("the others are not told that this node leaves", error=str(error))

    def _describe(self) -> Member:
        view = self.node.view()
        is_leader = view.role is Role.LEADER
        lags = [each.health.lag_max_ms for each in self._upkeep]
        known = [lag for lag in lags if lag is not None]
        return Member(
            node=self.node.node,
            pipeline=self.log.pipeline.pk,
            flight_addr=self._address,
            role=view.role.value,
            is_ready=bool(self._upkeep) and all(each.health.is_ready for each in self._upkeep),
            epoch=view.epoch if is_leader else 0,
            applied_index=view.applied_index,
            lag_ms=max(known, default=0),
        )


def _address(config: Config) -> str:
    """Where others reach this node's Flight SQL; empty without it, or where only it can."""
    runtime = config.runtime
    if not runtime.flight.enabled or runtime.flight.port == 0:
        return ""
    listens_anywhere = runtime.http.host in ("0.0.0.0", "::")  # noqa: S104
    host = socket.gethostname() if listens_anywhere else runtime.http.host
    return f"{host}:{runtime.flight.port}"
