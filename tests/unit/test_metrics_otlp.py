"""Metrics and spans arrive at a real OTLP receiver, with the names and values they have here."""

from __future__ import annotations

import gzip
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from metrics.catalog import CATALOG, Kind
from metrics.collector import is_collector_named
from metrics.otlp import OtlpExporter, senders
from metrics.recorder import Recorder
from metrics.task_history import TaskHistory
from tests.metrics_text import filled


@dataclass(slots=True)
class Received:
    """What the receiver was sent, decoded."""

    metrics: list[Any] = field(default_factory=list)
    spans: list[Any] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)
    status: int = 200
    came: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for resource_spans in traces.resource_spans:
                self.spans += [s for scope in resource_spans.scope_spans for s in scope.spans]
            return
        request = ExportMetricsServiceRequest.FromString(body)
        for resource_metrics in request.resource_metrics:
            for attribute in resource_metrics.resource.attributes:
                self.resource[attribute.key] = attribute.value.string_value
            self.metrics += [m for scope in resource_metrics.scope_metrics for m in scope.metrics]
        self.came.set()


@contextmanager
def receiver() -> Iterator[tuple[str, Received]]:
    """An OTLP/HTTP endpoint on a free port."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if received.status == 200:
                received.take(self.path, body)
            self.send_response(received.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def exporter_to(url: str, recorder: Recorder, every_s: float = 3600) -> OtlpExporter:
    return OtlpExporter(
        recorder,
        OTLPMetricExporter(endpoint=f"{url}/v1/metrics"),
        OTLPSpanExporter(endpoint=f"{url}/v1/traces"),
        version="1.2.3",
        now_ns=lambda: 1_700_000_000_000_000_000,
        every_s=every_s,
    )


def history() -> TaskHistory:
    return TaskHistory(lambda: 1_700_000_000_000, lambda: 0.0, draw=random.Random(3))


def test_every_instrument_arrives_under_its_name() -> None:
    """A dashboard over OTLP finds what one over Prometheus finds: name, kind, unit, value."""
    with receiver() as (url, received):
        exporter = exporter_to(url, filled())
        exporter.send()
        exporter.stop()
    found = {metric.name: metric for metric in received.metrics}
    assert set(found) == {instrument.name for instrument in CATALOG}
    assert received.resource["service.name"] == "dynaduck"
    assert received.resource["service.version"] == "1.2.3"
    for instrument in CATALOG:
        kind = found[instrument.name].WhichOneof("data")
        expected = {Kind.COUNTER: "sum", Kind.GAUGE: "gauge", Kind.HISTOGRAM: "histogram"}
        assert kind == expected[instrument.kind], instrument.name
    consumed = found["dataset_dynamodb_records_consumed_total"].sum
    assert consumed.is_monotonic
    points = {p.attributes[0].value.string_value: p.as_double for p in consumed.data_points}
    assert points["orders"] == 1000
    assert found["dataset_dynamodb_lag_ms"].unit == "ms"
    assert found["dataset_dynamodb_rows"].unit == "{rows}"


def test_histograms_count_between_their_bounds() -> None:
    """OpenTelemetry's buckets are not cumulative, and count includes all of them."""
    recorder = Recorder()
    dataset = recorder.dataset("orders")
    for seconds in (0.001, 0.0011, 0.5, 99.0):
        dataset.applied({}, seconds=seconds)
    with receiver() as (url, received):
        exporter = exporter_to(url, recorder)
        exporter.send()
        exporter.stop()
    [metric] = [m for m in received.metrics if m.name == "dataset_dynamodb_apply_seconds"]
    [point] = metric.histogram.data_points
    assert (point.count, point.sum) == (4, pytest.approx(99.5021))
    assert (point.min, point.max) == (0.001, 99.0)
    counts = dict(zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True))
    assert (counts[0.001], counts[0.0025], counts[0.5], counts[30.0], counts[float("inf")]) == (
        1,
        1,
        1,
        0,
        1,
    )


def test_spans_arrive_as_a_trace() -> None:
    """Ids, parents, times, errors and labels are those of runtime.task_history."""
    tasks = history()
    with receiver() as (url, received):
        exporter = exporter_to(url, Recorder())
        tasks.follow(exporter.take)
        with tasks.span("acceleration_refresh", dataset="orders") as refresh:
            tasks.record("scan_segment", duration_s=1.5, given="segment 3", error="Throttled")
        exporter.send()
        exporter.stop()
    child, parent = received.spans
    assert (child.name, parent.name) == ("scan_segment", "acceleration_refresh")
    assert parent.span_id.hex() == refresh.context.span_id == child.parent_span_id.hex()
    assert child.trace_id.hex() == refresh.context.trace_id
    assert child.end_time_unix_nano - child.start_time_unix_nano == 1_500_000_000
    assert (child.status.code, child.status.message) == (2, "Throttled")
    assert parent.status.code == 0
    labels = {a.key: a.value.string_value for a in parent.attributes}
    assert labels["dynaduck.dataset"] == "orders"
    assert {a.key: a.value.string_value for a in child.attributes}["dynaduck.input"] == "segment 3"
    rows = tasks.drain()
    assert [row.context.span_id for row in rows] == [s.span_id.hex() for s in received.spans]


def test_it_sends_by_itself_and_once_more_at_the_end() -> None:
    """What happened right before the end is not lost."""
    tasks = history()
    with receiver() as (url, received):
        exporter = exporter_to(url, Recorder(), every_s=0.01)
        tasks.follow(exporter.take)
        exporter.start()
        assert received.came.wait(30)
        tasks.record("apply", duration_s=0)
        exporter.stop()
        exporter.stop()
    assert [span.name for span in received.spans] == ["apply"]


def test_a_collector_that_is_gone_harms_nobody() -> None:
    """No exception, no growth: spans beyond the buffer are the oldest that go."""
    with receiver() as (url, received):
        received.status = 400
        tasks = history()
        exporter = exporter_to(url, Recorder())
        tasks.follow(exporter.take)
        for n in range(5_000):
            tasks.record("poll", duration_s=0, given=str(n))
        exporter.send()
        exporter.stop()
    assert received.spans == []


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x:4318/v1/traces"}, True),
    ],
)
def test_the_environment_turns_it_on(environment: dict[str, str], wanted: bool) -> None:
    """OpenTelemetry's own variables, and nothing else."""
    assert is_collector_named(environment) is wanted


def test_senders_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint of the environment is where both are sent."""
    with receiver() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        metric_sender, span_sender = senders()
        exporter = OtlpExporter(filled(), metric_sender, span_sender, version="1", now_ns=lambda: 1)
        tasks = history()
        tasks.follow(exporter.take)
        tasks.record("poll", duration_s=0)
        exporter.send()
        exporter.stop()
    assert received.metrics
    assert received.spans
