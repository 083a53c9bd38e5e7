"""Metrics and spans for an OpenTelemetry collector, over OTLP.

Owns the translation into OpenTelemetry's model and the beat at which it is sent. The values are the
Recorder's and the spans TaskHistory's: nothing is measured twice, names and ids are the same
everywhere. Where to send is said by OpenTelemetry's own environment variables
(OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, _CERTIFICATE, …); the transport is the extra
`dynaduck[otlp]`.

A collector that does not answer costs a few log lines and the spans that no longer fit the buffer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags
from prometheus_client.core import Metric as Family

from metrics.catalog import CATALOG, Instrument, Kind
from metrics.recorder import HistogramState, Recorder
from metrics.task_history import Span

_MOST_SPANS = 2_000
_BATCH = 500
_LAST_SEND_S = 2.0
_UCUM = {
    "seconds": "s",
    "milliseconds": "ms",
    "bytes": "By",
    "ratio": "1",
    "boolean": "1",
    "constant": "1",
}


class MetricSender(Protocol):
    """OTLPMetricExporter, or whatever takes its place."""

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000) -> object: ...

    def shutdown(self, timeout_millis: float = 30_000) -> None: ...


class SpanSender(Protocol):
    """OTLPSpanExporter, or whatever takes its place."""

    def export(self, spans: Sequence[ReadableSpan]) -> object: ...

    def shutdown(self) -> None: ...


def senders() -> tuple[MetricSender, SpanSender]:
    """Senders over HTTP, as the environment says.

    Raises:
        ImportError: the extra is not installed
    """
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPMetricExporter(), OTLPSpanExporter()


class OtlpExporter:
    """Sends on a beat, from a thread of its own. `take` is what TaskHistory.follow gets.

    `now_ns` dates the metrics; `on_dropped` hears of spans that were lost.
    """

    def __init__(
        self,
        recorder: Recorder,
        metric_sender: MetricSender,
        span_sender: SpanSender,
        *,
        version: str,
        now_ns: Callable[[], int],
        every_s: float = 15.0,
    ) -> None:
        self._recorder = recorder
        self._metric_sender = metric_sender
        self._span_sender = span_sender
        self._resource = Resource.create({"service.name": "dynaduck", "service.version": version})
        self._scope = InstrumentationScope("dynaduck", version)
        self._now_ns = now_ns
        self._started_ns = now_ns()
        self._every_s = every_s
        self._lock = threading.Lock()
        self._spans: deque[Span] = deque(maxlen=_MOST_SPANS)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def take(self, span: Span) -> None:
        with self._lock:
            self._spans.append(span)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Sends what is left, if the collector takes it within a moment. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_SEND_S)
        self._metric_sender.shutdown()
        self._span_sender.shutdown()

    def send(self) -> None:
        """One beat: all spans that ended since the last, and every series as it is now."""
        while spans := self._taken():
            self._span_sender.export([self._span(span) for span in spans])
        self._metric_sender.export(self.metrics())

    def metrics(self) -> MetricsData:
        now_ns = self._now_ns()
        found = list(self._metrics(now_ns))
        scoped = ScopeMetrics(self._scope, found, "")
        return MetricsData([ResourceMetrics(self._resource, [scoped], "")])

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            self.send()
        self.send()

    def _taken(self) -> list[Span]:
        with self._lock:
            return [self._spans.popleft() for _ in range(min(_BATCH, len(self._spans)))]

    # -- translation ------------------------------------------------------------------------------

    def _metrics(self, now_ns: int) -> Iterator[Metric]:
        families = {family.name: family for family in self._recorder.collect()}
        for instrument in CATALOG:
            family = families[instrument.name.removesuffix("_total")]
            data = self._data(instrument, family, now_ns)
            if data.data_points:
                unit = _UCUM.get(instrument.unit, f"{{{instrument.unit}}}")
                yield Metric(instrument.name, instrument.help, unit, data)

    def _data(self, instrument: Instrument, family: Family, now_ns: int) -> Sum | Gauge | Histogram:
        cumulative = AggregationTemporality.CUMULATIVE
        if instrument.kind is Kind.HISTOGRAM:
            states = self._recorder.histograms(instrument)
            return Histogram([self._histogram(s, now_ns) for s in states], cumulative)
        points = [
            NumberDataPoint(sample.labels, self._started_ns, now_ns, float(sample.value))
            for sample in family.samples
        ]
        if instrument.kind is Kind.COUNTER:
            return Sum(points, cumulative, is_monotonic=True)
        return Gauge(points)

    def _histogram(self, state: HistogramState, now_ns: int) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=dict(state.labels),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=now_ns,
            count=sum(state.counts),
            sum=state.total,
            bucket_counts=state.counts,
            explicit_bounds=state.bounds,
            min=state.least,
            max=state.most,
        )

    def _span(self, span: Span) -> ReadableSpan:
        start_ns = span.start_ms * 1_000_000
        attributes: dict[str, str] = {f"dynaduck.{k}": v for k, v in span.labels.items()}
        attributes["dynaduck.input"] = span.given
        if span.output is not None:
            attributes["dynaduck.output"] = span.output
        failed = span.error is not None
        return ReadableSpan(
            name=span.task,
            context=_context(span.context.trace_id, span.context.span_id),
            parent=(
                None
                if span.parent_span_id is None
                else _context(span.context.trace_id, span.parent_span_id)
            ),
            resource=self._resource,
            attributes=attributes,
            status=Status(StatusCode.ERROR, span.error) if failed else Status(StatusCode.UNSET),
            start_time=start_ns,
            end_time=start_ns + int(span.duration_ms * 1_000_000),
            instrumentation_scope=self._scope,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )
