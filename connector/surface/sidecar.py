"""`dynaduck run`: the service with its surfaces, until it is told to end.

Owns the order of start and end, and the watch that keeps a greedy query from taking the writer's
memory. A request never waits for the service to be ready: liveness and reasons are served at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import duckdb
import structlog

from accelerator.errors import AcceleratorError
from accelerator.query import QueryReport, QueryRunner
from accelerator.query_slots import QueryLimits
from connector.config import Config, Secret, Source
from connector.errors import ConfigError, DynaduckError
from connector.logs import configure_logs_of
from connector.loops import Bell, Loop
from connector.publish.wiring import publishers
from connector.service import Service, refuse_unusable
from connector.surface.flight.wiring import check_flight, flight_server
from connector.surface.http import Surface, build_app
from connector.surface.memory_watch import MemoryWatch
from connector.surface.progress import progress_display
from connector.surface.reloading import Reloading
from connector.surface.report import Report
from connector.surface.server import Bind, HttpServer, TlsFiles, check_bind
from metrics.collector import is_collector_named
from metrics.prometheus import PrometheusExporter

if TYPE_CHECKING:
    from metrics.otlp import OtlpExporter

LOOK_EVERY_S: Final = 0.1
SHOWN_AFTER_S: Final = 2.0  # a snapshot's end is shown too; a status is up to half a second old
WATCH_EVERY_S: Final = 0.1
COPY_JOIN_S: Final = 5.0  # a part that is on its way to S3 is not waited for longer

log = structlog.get_logger(__name__)


class Sidecar:
    """One service and what answers for it. `run` blocks; `stop` may be called from anywhere."""

    def __init__(self, config: Config, read_again: Callable[[], Config] | None = None) -> None:
        check_config(config)
        bind = _bind(config)
        self._stopped = threading.Event()
        self.service = Service(config)
        self.reloading = Reloading(
            config,
            read_again or (lambda: config),
            check_config,
            self._adjust,
            recorder=self.service.recorder,
            now_ms=self._aws_now_ms,
        )
        report = Report(self.service, lambda: self.reloading.status)
        self._queries = QueryRunner(
            self.service.database,
            _limits(config),
            observer=self._count_query,
            on_fatal=self._reopen,
            live=report.freshness,
            now_ms=self._aws_now_ms,
        )
        self._memory_watch = MemoryWatch(
            self.service.database, self._queries, lambda: self.service.applier.is_starving
        )
        self._publishers = publishers(self.service, report.freshness)
        self._publishing = Loop("publisher", self._publish, Bell(), self.service.clock)
        self._otlp = _otlp(self.service)
        exporter = PrometheusExporter(self.service.recorder)
        token = _revealed(config.runtime.http.token)
        app = build_app(Surface(report, self._queries, exporter, token, self.service))
        self.http = HttpServer(app, bind)
        self._flight = flight_server(
            config.runtime.flight, bind, self._queries, self.service.database
        )
        self._report = report
        self._shown_until_s = float("-inf")
        self._watch = Loop("memory-watch", self._watch_memory, Bell(), self.service.clock)
        self.service.recorder.started(
            version=version("dynaduck"),
            duckdb=duckdb.__version__,
            python=sys.version.split()[0],
            started_at_s=time.time(),
        )

    def run(self) -> DynaduckError | bool:
        """Until `stop`: whether all that was read was applied; or why it could not run."""
        try:
            self.http.start()
            if self._flight is not None:
                self._flight.start()
        except BaseException:
            self.service.stop()
            raise
        log.info("serving", url=self.http.url, data_file=str(self.service.database.path))
        if self._flight is not None:
            log.info("serving Flight SQL", url=self._flight.url)
        display = progress_display(self.service.clock.monotonic_s)
        self.service.start()
        self._watch.start()
        if self._publishers:
            self._publishing.start()
        if self._otlp is not None:
            self._otlp.start()
        refusal = None
        try:
            while not self._stopped.wait(LOOK_EVERY_S) and refusal is None:
                refusal = self.service.refusal
                self.reloading.step()
                if self._shows_progress():
                    display.show(self._report.status().datasets)
        finally:
            display.close()
            log.info("stopping")
            self._queries.close()
            self._watch.stop()
            self._stop_publishing()
            is_drained = self.service.stop()
            if self._otlp is not None:
                self._otlp.stop()
            if self._flight is not None:
                self._flight.stop()
            self.http.stop()
        return is_drained if refusal is None else refusal

    def stop(self) -> None:
        self._stopped.set()

    def _adjust(self, config: Config) -> None:
        """Makes a configuration hold that differs in reloadable settings alone."""
        before, runtime = self.service.config.runtime, config.runtime
        if (before.log_format, before.log_level) != (runtime.log_format, runtime.log_level):
            configure_logs_of(runtime)
        self._queries.limit(_limits(config))
        self.service.adjust(config)

    def _shows_progress(self) -> bool:
        """While a table is read and a little longer: a status counts rows and visits all shards."""
        now_s = self.service.clock.monotonic_s()
        if any(replication.scanner is not None for replication in self.service.replications):
            self._shown_until_s = now_s + SHOWN_AFTER_S
        return now_s < self._shown_until_s

    def _aws_now_ms(self) -> int | None:
        """The latest that any dataset has seen; None before the first answer of AWS."""
        seen = [r.aws_now_ms for r in self.service.replications]
        return max((at_ms for at_ms in seen if at_ms is not None), default=None)

    def _publish(self, now_s: float) -> float:
        """Each dataset in turn: copies are made one at a time."""
        due = [publisher.step(self.service.clock.monotonic_s()) for publisher in self._publishers]
        return min(due, default=now_s)

    def _stop_publishing(self) -> None:
        for publisher in self._publishers:
            publisher.stop()
        self._publishing.stop()
        if not self._publishing.join(COPY_JOIN_S):
            log.warning("a copy that is being sent is given up")

    def _watch_memory(self, now_s: float) -> float:
        """DuckDB has one memory limit for all: a query that takes it would starve the writer."""
        self.service.recorder.queries_running(self._queries.running)
        self._memory_watch.step(now_s)
        return now_s + WATCH_EVERY_S

    def _count_query(self, report: QueryReport) -> None:
        self.service.recorder.query(
            surface=report.surface, outcome=report.outcome, seconds=report.seconds
        )
        self.service.history.record(
            "sql_query",
            duration_s=report.seconds,
            given=report.sql,
            output=f"{report.rows} rows",
            error=report.error,
            surface=report.surface,
            outcome=report.outcome,
            client=report.client or "",
        )

    def _reopen(self, error: AcceleratorError) -> None:
        log.error("a query met an invalidated database", error=error)
        self.service.try_reopen()


def _otlp(service: Service) -> OtlpExporter | None:
    """What sends to an OpenTelemetry collector, where the environment names one."""
    if not is_collector_named(os.environ):
        return None
    from metrics import otlp

    try:
        metric_sender, span_sender = otlp.senders()
    except ImportError as error:
        raise ConfigError(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and the package that sends there is missing.",
            hint="pip install 'dynaduck[otlp]'",
        ) from error
    exporter = otlp.OtlpExporter(
        service.recorder,
        metric_sender,
        span_sender,
        version=version("dynaduck"),
        now_ns=time.time_ns,
    )
    service.history.follow(exporter.take)
    return exporter


def check_config(config: Config) -> None:
    """Raises ConfigError for what no service can be run with."""
    check_flight(config.runtime.flight, _bind(config))
    _refuse_unbuilt(config)
    for settings in config.datasets:
        refuse_unusable(settings)


def _limits(config: Config) -> QueryLimits:
    query = config.runtime.query
    return QueryLimits(
        max_concurrent=query.max_concurrent, timeout_s=query.timeout_s, max_rows=query.max_rows
    )


def _bind(config: Config) -> Bind:
    """Raises ConfigError when listening there is not safe."""
    http = config.runtime.http
    origin = config.origins.get("runtime.http.tls")
    is_said = origin is not None and origin.source is not Source.DEFAULT
    bind = Bind(
        host=http.host,
        port=http.port,
        token=_revealed(http.token),
        tls=None if http.tls is None else TlsFiles(http.tls.cert, http.tls.key),
        tls_off_is_said=http.tls is None and is_said,
    )
    problems = check_bind(bind)
    if problems:
        raise problems[0]
    return bind


def _refuse_unbuilt(config: Config) -> None:
    """What this release does not serve yet is refused, never silently left out."""
    runtime = config.runtime
    wanted = {
        "runtime.quack.enabled": runtime.quack.enabled,
    }
    for setting, is_wanted in wanted.items():
        if is_wanted:
            raise ConfigError(
                f"{setting} asks for something that this release does not have yet.",
                hint="Leave it at its default; docs/roadmap.md says what is planned.",
            )


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
