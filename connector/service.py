"""The service: one process that keeps every configured dataset, from start to a clean end.

Owns the wiring: the data file, one replication for each dataset, the loops that call their steps,
and the order in which all of it starts and stops. Decides nothing about shards, rows or readiness.

Threads: `pollers` read shards, `scanners` read segments, one `control` for each dataset, one
`applier` (the only one that applies batches) and one `monitor`. Their number depends on the
settings alone, never on shards.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import structlog

from accelerator.conditions import check
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import AcceleratorError, BadSetting, ForeignCheckpoint
from accelerator.log_place import leave_log
from accelerator.stored import stored_progress
from accelerator.task_table import write_tasks
from checkpoints.offsets import OffsetStore
from connector.applier import Applier, group_bytes_within
from connector.aws.source import AwsSettings, AwsSource
from connector.clock import AwsTime, SystemClock
from connector.cluster.view import Role
from connector.cluster.wiring import Cluster
from connector.config import Config, RefreshMode, Secret, WalStorage
from connector.config import Dataset as Settings
from connector.config import OffsetStore as OffsetStoreKind
from connector.course import Surroundings
from connector.errors import ConfigError, DynaduckError, StartRefused, UnknownDataset
from connector.full_refresh import FullRefresh
from connector.journal import Journal
from connector.loops import Bell, Loop, Step
from connector.offset_rows import OffsetRows
from connector.recovery import Policy
from connector.replication import Replication
from connector.snapshot.scanner import EVENTUAL_MARGIN_S
from connector.snapshot.single_keys import SingleKeys
from connector.source import Source
from connector.spec import spec_of
from connector.storage import offset_items, pipeline_of
from connector.stream.coverage import Retention
from connector.stream.sharing import SharedReads
from connector.upkeep import Upkeep
from metrics.recorder import DatasetRecorder, Recorder
from metrics.task_history import TaskHistory

POLLERS: Final = 8
SCANNERS: Final = 4
MONITOR_EVERY_S: Final = 0.5
DRAIN_S: Final = 20.0
FLUSH_S: Final = 5.0
JOIN_S: Final = 15.0  # longer than the read time-out of a request in flight
QUIET_CHECKPOINT_BYTES: Final = 16 * 1024 * 1024
QUIET_FOR_S: Final = 5.0
PROMOTION_SHARE: Final = 20
LEAST_SHARE_BYTES: Final = 400_000_000
TASKS_SOON_S: Final = 5.0
TASKS_LATE_S: Final = 60.0
FEW_TASKS: Final = 4  # what an idle table comes to in a minute
TASKS_KEPT_S: Final = 24 * 3600.0

log = structlog.get_logger(__name__)


class Service:
    """Everything that runs. `start` once, `stop` once; `refusal` says that it must end at once."""

    def __init__(self, config: Config, *, retention: Retention | None = None) -> None:
        for settings in config.datasets:
            refuse_unusable(settings)
        self.config = config
        self.clock = SystemClock()
        self.recorder = Recorder()
        self.writing = threading.RLock()
        self.database = Database.open(
            config.runtime.data_dir / "replica.duckdb",
            memory_limit_bytes=duckdb_share(config.runtime.memory_limit_bytes),
        )
        self._work, self._news, self._orders = Bell(), Bell(), Bell()
        self.history = TaskHistory(lambda: int(time.time() * 1000), self.clock.monotonic_s)
        self._sources: list[AwsSource] = []
        self._reads: dict[tuple[AwsSettings, bool], SharedReads] = {}
        self._journals: list[Journal] = []
        self._tasks_written_s = 0.0
        self._promote_due_s = 0.0
        self._is_stopping = False
        self._quiet_since_s = 0.0
        self._is_loaded = True
        self._rows = self._offset_rows()
        try:
            self.cluster = self._log()
            self.replications = [
                self._replication(settings, retention or Retention())
                for settings in config.datasets
            ]
            if self.cluster is not None:
                self.cluster.attach(self.replications)
            self._had_checkpoint = [self._has_checkpoint(r) for r in self.replications]
        except BaseException:
            self.database.close()
            raise
        self.applier = Applier(
            self.replications,
            self.writing,
            self.reopen,
            self.clock,
            group_bytes=group_bytes_within(self.database.memory_limit_bytes),
        )
        self._single_keys = [
            SingleKeys(replication, source, self.database, self.writing, self.clock)
            for replication, source in zip(self.replications, self._sources, strict=True)
        ]
        self._pollers = self._pool("poller", POLLERS, [r.poll for r in self.replications])
        self._scanners = self._pool("scanner", SCANNERS, [r.scan for r in self.replications])
        self._control = [
            Loop(f"control-{r.name}", r.control, self._orders, self.clock)
            for r in self.replications
        ]
        self._applying = Loop("applier", self.applier.step, self._work, self.clock)
        self._monitor = Loop("monitor", self._judge, Bell(), self.clock)
        rows = self._rows
        self._telling = [] if rows is None else [Loop("rows", rows.step, Bell(), self.clock)]

    # Life

    def start(self) -> None:
        for loop in self._loops():
            loop.start()

    def stop(self) -> bool:
        """Drains: nothing more is read, all that was read is applied. Whether all of it was."""
        self._is_stopping = True
        for replication in self.replications:
            replication.stop()
        self._stop([*self._pollers, *self._scanners, *self._control])
        deadline_s = self.clock.monotonic_s() + DRAIN_S
        while not self._is_drained() and self.clock.monotonic_s() < deadline_s:
            self.clock.sleep(0.02)
        is_drained = self._is_drained()
        if self._rows is not None:
            self._rows.stop()
        self._stop([self._applying, self._monitor, *self._telling])
        if self._rows is not None:
            self._rows.flush(FLUSH_S)
        if self.cluster is not None:
            self.cluster.node.stop()
            self._stop(self.cluster.loops)
            self.cluster.leave()
        for journal in self._journals:
            journal.close()
        with self.writing:
            self._write_tasks()
            self.database.close()
        for source in self._sources:
            source.close()
        return is_drained

    @property
    def refusal(self) -> DynaduckError | None:
        """Why the service must not run: a foreign checkpoint, or, while nothing has been copied
        yet, something that only a person can mend.
        """
        for replication in self.replications:
            refusal = replication.refusal
            if isinstance(refusal, StartRefused):
                return refusal
            if refusal is not None and not any(self._had_checkpoint):
                return refusal
        return None

    def adjust(self, config: Config) -> None:
        """Takes settings that may change while it runs; the rest must be what it began with."""
        self.config = config
        for replication in self.replications:
            replication.adjust(config.dataset(replication.name))
        self._orders.ring()

    @property
    def is_fenced(self) -> bool:
        """Whether another process has taken the log, for good: this one cannot go on."""
        return self.cluster is not None and self.cluster.node.role is Role.FENCED

    def replication(self, name: str) -> Upkeep | None:
        """By its name in whatever case: SQL does not tell them apart either."""
        return next((r for r in self.replications if r.name.lower() == name.lower()), None)

    def single_keys(self, dataset: str) -> SingleKeys:
        """Raises UnknownDataset."""
        for replication, keys in zip(self.replications, self._single_keys, strict=True):
            if replication.name.lower() == dataset.lower():
                return keys
        known = ", ".join(r.name for r in self.replications)
        raise UnknownDataset(f"There is no dataset {dataset}.", hint=f"There are: {known}.")

    # Building

    def _replication(self, settings: Settings, retention: Retention) -> Upkeep:
        recorder = self.recorder.dataset(settings.name)
        aws_time = AwsTime(self.clock)
        journal = Journal(self.history, settings.name, self.clock.monotonic_s)
        self._journals.append(journal)
        source = AwsSource(aws_of(settings), clock=self.clock, on_call=_told(recorder, journal))
        self._sources.append(source)
        make = Dataset if self.cluster is None else self.cluster.dataset
        dataset = make(
            self.database,
            spec_of(settings),
            now_ms=aws_time.now_ms,
            monotonic_s=self.clock.monotonic_s,
            scan_margin_s=0.0 if settings.scan_consistent_read else EVENTUAL_MARGIN_S,
        )
        around = Surroundings(
            settings=settings,
            source=self._shared(settings, source),
            dataset=dataset,
            clock=self.clock,
            aws_time=aws_time,
            retention=retention,
            journal=journal,
            count_rcu=recorder.consumed_rcu,
            ring_writer=self._work.ring,
            ring_readers=self._news.ring,
            reopen=self.try_reopen,
            rows=self._rows if settings.refresh_mode is RefreshMode.CHANGES else None,
        )
        if settings.refresh_mode is RefreshMode.FULL:
            return FullRefresh(around, self.writing, recorder, draw=random.random)
        policy = Policy(settings.initial_snapshot, settings.invalid_checkpoint_behavior)
        return Replication(around, policy, self.writing, recorder, draw=random.random)

    def _shared(self, settings: Settings, source: AwsSource) -> Source:
        """Where other datasets follow the same stream, its pages are read once for all of them."""
        key = (aws_of(settings), settings.history.enabled)
        followers = [
            other
            for other in self.config.datasets
            if other.refresh_mode is RefreshMode.CHANGES
            and (aws_of(other), other.history.enabled) == key
        ]
        if settings.refresh_mode is not RefreshMode.CHANGES or len(followers) < 2:
            return source
        reads = self._reads.setdefault(key, SharedReads(self.clock.monotonic_s))
        return reads.member(source)

    def _log(self) -> Cluster | None:
        """What makes the rows follow a log, where the file here is not the whole truth."""
        if self.config.runtime.wal_storage is WalStorage.DISK:
            with self.database.transaction() as cursor:
                leave_log(cursor)
            return None
        return Cluster(self.config, self.database, self.writing, self.clock, reopen=self.try_reopen)

    def _offset_rows(self) -> OffsetRows | None:
        """What publishes positions to the offset table, where the file here is the whole truth."""
        runtime = self.config.runtime
        table = runtime.offset_dynamodb_table
        if runtime.offset_store is not OffsetStoreKind.DYNAMODB or table is None:
            return None
        if runtime.wal_storage is not WalStorage.DISK:
            return None
        return OffsetRows(
            OffsetStore(offset_items(self.config), pipeline_of(runtime)),
            table,
            [d.name for d in self.config.datasets if d.refresh_mode is RefreshMode.CHANGES],
            partial(stored_progress, self.database),
            self.clock,
        )

    def _has_checkpoint(self, replication: Upkeep) -> bool:
        """Where it cannot be read it is taken for one: what must not start needs proof."""
        with self.writing:
            try:
                return replication.dataset.load() is not None
            except ForeignCheckpoint:
                raise
            except AcceleratorError as error:
                log.warning(
                    "the checkpoint cannot be read yet", dataset=replication.name, error=str(error)
                )
                return True

    def _pool(self, name: str, size: int, steps: Sequence[Step]) -> list[Loop]:
        step = _in_turn(steps)
        return [Loop(f"{name}-{n}", step, self._news, self.clock) for n in range(size)]

    def _loops(self) -> list[Loop]:
        return [
            *self._control,
            *self._pollers,
            *self._scanners,
            self._applying,
            self._monitor,
            *self._telling,
            *([] if self.cluster is None else self.cluster.loops),
        ]

    # While it runs

    def reopen(self) -> None:
        """DuckDB gave the file up: every connection is new; what is committed is still there.

        Whoever meets it first says so, the writer or a query; an instance that answers is kept.

        Raises:
            AcceleratorError: the disk or the memory does not allow it yet; call it again.
        """
        with self.writing:
            if self.database.is_invalidated():
                log.error("the data file is reopened", path=str(self.database.path))
                self._is_loaded = False
                self.database.reopen()
                self.recorder.database_reopened()
            if not self._is_loaded:
                if self.cluster is not None:
                    self.cluster.log.load()
                for replication in self.replications:
                    replication.dataset.load()
                self._is_loaded = True

    def try_reopen(self) -> None:
        """For those who only noticed: where it fails, whoever has rows to write tries again."""
        try:
            self.reopen()
        except AcceleratorError as obstacle:
            log.warning("the data file cannot be opened yet", error=str(obstacle))

    def _judge(self, now_s: float) -> float:
        failed = tuple(
            loop.name
            for loop in self._loops()
            if loop.crash is not None or (not loop.is_alive and not self._is_stopping)
        )
        commit_errors = {fault.lane: fault.error for fault in self.applier.faults()}
        for replication in self.replications:
            replication.judge(
                now_s, commit_error=commit_errors.get(replication.name), failed_loops=failed
            )
            replication.tell()
        self.recorder.database(
            file_bytes=self.database.file_bytes(), wal_bytes=self.database.wal_bytes()
        )
        self._promote_when_quiet(now_s)
        self._write_tasks_when_due(now_s)
        self._checkpoint_when_quiet(now_s)
        return now_s + MONITOR_EVERY_S

    def _promote_when_quiet(self, now_s: float) -> None:
        """Gives some of the attributes that had to wait for memory their columns.

        On a large table one turn takes seconds in which the writer waits, so turns are kept to a
        small share of the time.
        """
        if now_s < self._promote_due_s:
            return
        for replication in self.replications:
            if replication.queued_bytes or not self.writing.acquire(blocking=False):
                continue
            try:
                replication.dataset.promote()
            except AcceleratorError as error:
                log.warning("attributes go on waiting", dataset=replication.name, error=str(error))
            finally:
                self.writing.release()
        took_s = self.clock.monotonic_s() - now_s
        self._promote_due_s = now_s + PROMOTION_SHARE * took_s

    def _write_tasks_when_due(self, now_s: float) -> None:
        """What happened becomes rows soon when much did, and rarely on an idle table."""
        pending = self.history.pending
        waited_s = now_s - self._tasks_written_s
        if pending == 0 or waited_s < (TASKS_SOON_S if pending > FEW_TASKS else TASKS_LATE_S):
            return
        if self.writing.acquire(blocking=False):
            try:
                self._write_tasks()
            finally:
                self.writing.release()
            self._tasks_written_s = now_s

    def _write_tasks(self) -> None:
        keep_from_ms = int((time.time() - TASKS_KEPT_S) * 1000)

        def write(rows: pa.Table) -> None:
            with self.database.transaction() as cursor:
                write_tasks(cursor, rows, keep_from_ms=keep_from_ms)

        try:
            self.history.flush(write)
        except AcceleratorError as error:
            log.warning("the task history waits", error=str(error))
        dropped = self.history.taken_dropped()
        if dropped:
            self.recorder.spans_dropped(dropped)

    def _checkpoint_when_quiet(self, now_s: float) -> None:
        """Moves the log into the file while nobody waits for the writer: a short log opens fast."""
        is_busy = any(r.queued_bytes for r in self.replications)
        if is_busy or self.database.wal_bytes() < QUIET_CHECKPOINT_BYTES:
            self._quiet_since_s = now_s
        elif now_s - self._quiet_since_s >= QUIET_FOR_S and self.writing.acquire(blocking=False):
            try:
                self.database.checkpoint()
            except AcceleratorError as error:
                # Nothing waits for it: the log holds all of it, and the next quiet time comes.
                log.warning("the log was not moved into the file", error=str(error))
            finally:
                self.writing.release()
            self._quiet_since_s = now_s

    # Stopping

    def _is_drained(self) -> bool:
        return all(r.is_drained and not self.applier.holds(r.name) for r in self.replications)

    def _stop(self, loops: Sequence[Loop]) -> None:
        for loop in loops:
            loop.stop()
        for loop in loops:
            if not loop.join(JOIN_S):
                log.warning("a loop did not stop in time", loop=loop.name)


def _in_turn(steps: Sequence[Step]) -> Step:
    """One step over several datasets: all get a turn, and the earliest due time is the answer."""

    def step(now_s: float) -> float | None:
        due = [due_s for due_s in (each(now_s) for each in steps) if due_s is not None]
        return min(due, default=None)

    return step


def duckdb_share(memory_limit_bytes: int) -> int:
    """What DuckDB may hold of the process's memory: it fills its share with cached table data.

    The rest is for the interpreter, Arrow and the pages in hand, 130 to 250 MB as measured, and for
    what DuckDB allocates outside its own count.
    """
    return min(memory_limit_bytes, max(LEAST_SHARE_BYTES, int(0.4 * memory_limit_bytes)))


def refuse_unusable(settings: Settings) -> None:
    """Raises ConfigError for a filter or a column type that no data could suit."""
    try:
        check(spec_of(settings).choice)
    except BadSetting as error:
        raise ConfigError(
            f"datasets.{settings.name}.{error.setting} cannot be used. {error}", hint=error.hint
        ) from error


def aws_of(settings: Settings) -> AwsSettings:
    """How the dataset's table is reached."""
    return AwsSettings(
        table=settings.table_arn or settings.table,
        region=settings.region,
        access_key_id=_revealed(settings.access_key_id),
        secret_access_key=_revealed(settings.secret_access_key),
        session_token=_revealed(settings.session_token),
        endpoint_url=settings.endpoint_url,
        streams_endpoint_url=settings.streams_endpoint_url,
        max_connections=POLLERS + SCANNERS + 4,
    )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


def _told(recorder: DatasetRecorder, journal: Journal) -> Callable[[str, str, float], None]:
    def tell(operation: str, outcome: str, took_s: float) -> None:
        recorder.api_call(operation=operation, outcome=outcome, seconds=took_s)
        journal.called(operation, outcome, took_s)

    return tell
