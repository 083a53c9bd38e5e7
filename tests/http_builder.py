"""The HTTP surface over a data file, with a service that only says what it is told to say."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from accelerator.query import QueryLimits, QueryRunner, Readers
from connector.errors import DynaduckError, UnknownDataset
from connector.health import DatasetState
from connector.reasons import Reason
from connector.surface.http import Surface, build_app
from connector.surface.server import Bind, HttpServer
from connector.surface.status import DatasetStatus, Readiness, ServiceStatus, ShardStatus
from metrics.prometheus import PrometheusExporter
from metrics.recorder import Recorder

READY = DatasetStatus(
    "orders",
    "orders-table",
    DatasetState.READY,
    rows=1000,
    lag_ms=120,
    lag_max_ms=80,
    as_of_ms=1_767_323_045_678,
    shards=(ShardStatus("s-1", None, "reading", "TRIM_HORIZON", records=7),),
)


@dataclass(slots=True)
class FakeFacts:
    """`done` collects the actions; `refusal` is raised by the next ones."""

    told: ServiceStatus = field(default_factory=lambda: ServiceStatus("1.2.3", (READY,)))
    done: list[tuple[str, str]] = field(default_factory=list)
    refusal: DynaduckError | None = None

    def status(self) -> ServiceStatus:
        return self.told

    def ready(self) -> Readiness:
        return Readiness.of(self.told)

    def refresh(self, dataset: str) -> None:
        self._act("refresh", dataset)

    def pause(self, dataset: str) -> None:
        self._act("pause", dataset)

    def resume(self, dataset: str) -> None:
        self._act("resume", dataset)

    def _act(self, action: str, dataset: str) -> None:
        if dataset not in {d.name for d in self.told.datasets}:
            raise UnknownDataset(f"There is no dataset {dataset!r}.")
        if self.refusal is not None:
            raise self.refusal
        self.done.append((action, dataset))


def in_state(state: DatasetState, *reasons: Reason) -> ServiceStatus:
    """A service whose one dataset is in that state."""
    return ServiceStatus("1.2.3", (DatasetStatus("orders", "orders-table", state, reasons),))


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The stable code of a refusal."""
        return str(self.json["error"]["code"])


@dataclass(frozen=True, slots=True)
class Served:
    """A listening surface. `ask` is one request on a connection of its own."""

    server: HttpServer
    facts: FakeFacts
    queries: QueryRunner
    recorder: Recorder

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **named: str,
    ) -> Reply:
        """`named` headers are written with underscores."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            given = {**(headers or {}), **named}
            sent = {name.replace("_", "-"): value for name, value in given.items()}
            connection.request(method, path, body=body, headers=sent)
            with connection.getresponse() as response:
                lower = {name.lower(): value for name, value in response.headers.items()}
                return Reply(response.status, lower, response.read())
        finally:
            connection.close()

    def sql(self, statement: str, **headers: str) -> Reply:
        return self.ask("POST", "/v1/sql", statement.encode(), headers=headers)

    def sql_json(self, statement: str, parameters: Any = None) -> Reply:
        body = json.dumps({"sql": statement, "parameters": parameters}).encode()
        return self.ask("POST", "/v1/sql", body, content_type="application/json")


@contextmanager
def serving(readers: Readers, *, bind: Bind | None = None, **limits: Any) -> Iterator[Served]:
    """The surface on a free port of 127.0.0.1, over real HTTP."""
    facts, recorder = FakeFacts(), Recorder()
    recorder.dataset("orders")
    queries = QueryRunner(readers, QueryLimits(**limits))
    at = bind or Bind(port=0)
    exporter = PrometheusExporter(recorder)
    server = HttpServer(build_app(Surface(facts, queries, exporter, at.token)), at)
    try:
        server.start()
        yield Served(server, facts, queries, recorder)
    finally:
        queries.close()
        server.stop()
