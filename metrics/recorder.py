"""The Recorder: what happened, as numbers, until somebody scrapes them.

Owns every value. One instance per service, no globals. It never forgets a counter: a dataset that
is created again goes on where it was. Label values outside the catalog's lists become `other`, so
the number of series depends on the configuration alone. Thread-safe. Knows nothing of how the
numbers come about.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from metrics import catalog
from metrics.catalog import CATALOG, OTHER, Instrument, Kind

Labels = tuple[str, ...]


class _Histogram:
    """Counts per bucket, not cumulative, the last being +Inf. Guarded by the Recorder's lock."""

    __slots__ = ("bounds", "counts", "least", "most", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.least = float("inf")
        self.most = float("-inf")

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    def cumulative(self) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), running))
        return rows


@dataclass(frozen=True, slots=True)
class HistogramState:
    """One series of a histogram. `counts` lie between the bounds, the last beyond all of them."""

    labels: dict[str, str]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float
    least: float
    most: float


class Recorder(Collector):
    """Values of the catalog's instruments. `collect` gives one consistent picture of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {i.name: {} for i in CATALOG}
        self._histograms: dict[str, dict[Labels, _Histogram]] = {
            i.name: {} for i in CATALOG if i.kind is Kind.HISTOGRAM
        }
        self._datasets: dict[str, DatasetRecorder] = {}
        for instrument in CATALOG:
            if not instrument.is_per_dataset:
                self._start_series(instrument, name=None)

    def dataset(self, name: str) -> DatasetRecorder:
        """The recorder of one dataset, the same for the same name; its series start at zero."""
        with self._lock:
            known = self._datasets.get(name)
        if known is not None:
            return known
        for instrument in CATALOG:
            if instrument.is_per_dataset:
                self._start_series(instrument, name=name)
        created = DatasetRecorder(self, name)
        with self._lock:
            return self._datasets.setdefault(name, created)

    def _start_series(self, instrument: Instrument, name: str | None) -> None:
        """Zero for all that counts; a gauge has no value before somebody measured it."""
        if instrument.kind is Kind.GAUGE:
            return
        choices = [
            (name or "",) if label == "name" else values for label, values in instrument.labels
        ]
        with self._lock:
            for labels in product(*choices):
                if instrument.kind is Kind.COUNTER:
                    self._values[instrument.name].setdefault(labels, 0)
                else:
                    self._histograms[instrument.name].setdefault(
                        labels, _Histogram(instrument.buckets)
                    )

    # -- the three ways a value changes -------------------------------------------------------

    def add(self, instrument: Instrument, amount: float = 1, **labels: str) -> None:
        """Counts up. Raises ValueError on a negative amount: a counter never goes down."""
        if amount < 0:
            raise ValueError(f"{instrument.name} cannot count down by {amount}")
        key = _key(instrument, labels)
        with self._lock:
            series = self._values[instrument.name]
            series[key] = series.get(key, 0) + amount

    def set(self, instrument: Instrument, value: float | None, **labels: str) -> None:
        """Sets a gauge; None means unknown and takes the series away."""
        key = _key(instrument, labels)
        with self._lock:
            if value is None:
                self._values[instrument.name].pop(key, None)
            else:
                self._values[instrument.name][key] = value

    def observe(self, instrument: Instrument, value: float, **labels: str) -> None:
        key = _key(instrument, labels)
        with self._lock:
            series = self._histograms[instrument.name]
            if key not in series:
                series[key] = _Histogram(instrument.buckets)
            series[key].observe(value)

    # -- the process --------------------------------------------------------------------------

    def started(
        self, *, version: str, duckdb: str, python: str, started_at_s: float | None = None
    ) -> None:
        self.set(catalog.BUILD_INFO, 1, version=version, duckdb=duckdb, python=python)
        self.set(catalog.START_TIME, started_at_s)
        self.set(catalog.QUERIES_RUNNING, 0)

    def configuration(self, *, is_good: bool, waiting: int, outcome: str | None = None) -> None:
        """What the newest reading of the configuration came to; no outcome: that of the start."""
        if outcome is not None:
            self.add(catalog.CONFIG_RELOADS, outcome=outcome)
        self.set(catalog.CONFIG_GOOD, int(is_good))
        self.set(catalog.CONFIG_WAITING, waiting)

    def query(self, *, surface: str, outcome: str, seconds: float) -> None:
        self.add(catalog.QUERIES, surface=surface, outcome=outcome)
        self.observe(catalog.QUERY_SECONDS, seconds, surface=surface)

    def queries_running(self, count: int) -> None:
        self.set(catalog.QUERIES_RUNNING, count)

    def database(
        self, *, file_bytes: int | None, wal_bytes: int | None, memory_bytes: int | None = None
    ) -> None:
        self.set(catalog.DATABASE_BYTES, file_bytes)
        self.set(catalog.WAL_BYTES, wal_bytes)
        self.set(catalog.DATABASE_MEMORY_BYTES, memory_bytes)

    def database_reopened(self) -> None:
        self.add(catalog.DATABASE_REOPENED)

    def spans_dropped(self, count: int) -> None:
        self.add(catalog.SPANS_DROPPED, count)

    # -- reading ------------------------------------------------------------------------------

    def value(self, instrument: Instrument, **labels: str) -> float | None:
        """The value of one counter or gauge, None where there is no such series."""
        with self._lock:
            return self._values[instrument.name].get(_key(instrument, labels))

    def histograms(self, instrument: Instrument) -> list[HistogramState]:
        """Every series of a histogram that has seen something."""
        with self._lock:
            return [
                HistogramState(
                    dict(zip(instrument.label_names, labels, strict=True)),
                    h.bounds,
                    tuple(h.counts),
                    h.total,
                    h.least,
                    h.most,
                )
                for labels, h in sorted(self._histograms[instrument.name].items())
                if any(h.counts)
            ]

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            return [self._family(instrument) for instrument in CATALOG]

    def describe(self) -> Iterable[Metric]:
        return [_empty_family(instrument) for instrument in CATALOG]

    def _family(self, instrument: Instrument) -> Metric:
        family = _empty_family(instrument)
        if isinstance(family, HistogramMetricFamily):
            for labels, histogram in sorted(self._histograms[instrument.name].items()):
                family.add_metric(labels, histogram.cumulative(), histogram.total)
        elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
            for labels, value in sorted(self._values[instrument.name].items()):
                family.add_metric(labels, value)
        return family


class DatasetRecorder:
    """The instruments of one dataset, typed. Cheap enough for every page and every commit."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self.name = name
        self.ready(False)
        self.state("Initializing")
        self.shards_active(0)

    def shards_active(self, count: int) -> None:
        self._recorder.set(catalog.SHARDS_ACTIVE, count, name=self.name)

    def records_consumed(self, count: int) -> None:
        self._recorder.add(catalog.RECORDS_CONSUMED, count, name=self.name)

    def lag(self, *, sum_ms: int | None, max_ms: int | None) -> None:
        self._recorder.set(catalog.LAG_MS, sum_ms, name=self.name)
        self._recorder.set(catalog.LAG_MAX_MS, max_ms, name=self.name)

    def transient_error(self) -> None:
        self._recorder.add(catalog.ERRORS_TRANSIENT, name=self.name)

    def reinitialized(self) -> None:
        self._recorder.add(catalog.REINITIALIZATIONS, name=self.name)

    def retention_headroom(self, seconds: float | None) -> None:
        self._recorder.set(catalog.RETENTION_HEADROOM, seconds, name=self.name)

    def checkpoint_age(self, seconds: float | None) -> None:
        self._recorder.set(catalog.CHECKPOINT_AGE, seconds, name=self.name)

    def ready(self, is_ready: bool) -> None:
        self._recorder.set(catalog.READY, int(is_ready), name=self.name)

    def state(self, state: str) -> None:
        """Raises ValueError on a state that the contract does not name."""
        if state not in catalog.STATES:
            raise ValueError(f"{state!r} is not a dataset state")
        for candidate in catalog.STATES:
            self._recorder.set(
                catalog.STATE, int(candidate == state), name=self.name, state=candidate
            )

    def applied(self, counts: Mapping[str, int], *, seconds: float) -> None:
        """One group commit: changes by op, and how long it took."""
        for op, count in counts.items():
            self._recorder.add(catalog.APPLIED, count, name=self.name, op=op)
        self._recorder.observe(catalog.APPLY_SECONDS, seconds, name=self.name)

    def snapshot_items(self, count: int) -> None:
        self._recorder.add(catalog.SNAPSHOT_ITEMS, count, name=self.name)

    def snapshot_progress(self, ratio: float | None) -> None:
        self._recorder.set(catalog.SNAPSHOT_PROGRESS, ratio, name=self.name)

    def consumed_rcu(self, units: float) -> None:
        self._recorder.add(catalog.CONSUMED_RCU, units, name=self.name)

    def spent(self) -> tuple[float, float]:
        """GetRecords calls that were answered, and read capacity units, so far."""
        calls = self._recorder.value(
            catalog.API_CALLS, name=self.name, operation="GetRecords", outcome="ok"
        )
        return calls or 0.0, self._recorder.value(catalog.CONSUMED_RCU, name=self.name) or 0.0

    def cost(self, *, get_records: float | None, scan: float | None) -> None:
        """US dollars a day."""
        self._recorder.set(catalog.COST, get_records, name=self.name, of="get_records")
        self._recorder.set(catalog.COST, scan, name=self.name, of="scan")

    def api_call(self, *, operation: str, outcome: str, seconds: float) -> None:
        self._recorder.add(catalog.API_CALLS, name=self.name, operation=operation, outcome=outcome)
        self._recorder.observe(
            catalog.API_CALL_SECONDS, seconds, name=self.name, operation=operation
        )

    def gap(self, count: int = 1) -> None:
        self._recorder.add(catalog.GAPS, count, name=self.name)

    def gaps_open(self, count: int) -> None:
        self._recorder.set(catalog.GAPS_OPEN, count, name=self.name)

    def dead_letters(self, count: int) -> None:
        self._recorder.add(catalog.DEAD_LETTERS, count, name=self.name)

    def dead_letters_open(self, count: int) -> None:
        self._recorder.set(catalog.DEAD_LETTERS_OPEN, count, name=self.name)

    def columns_widened(self, count: int = 1) -> None:
        self._recorder.add(catalog.COLUMNS_WIDENED, count, name=self.name)

    def numbers_as_text(self, count: int) -> None:
        self._recorder.add(catalog.NUMBERS_AS_TEXT, count, name=self.name)

    def rows(self, count: int | None) -> None:
        self._recorder.set(catalog.ROWS, count, name=self.name)

    def queue_bytes(self, count: int) -> None:
        self._recorder.set(catalog.QUEUE_BYTES, count, name=self.name)

    def published(self, *, seconds: float, nbytes: int, at_s: float) -> None:
        """A copy is in its place."""
        self._recorder.observe(catalog.PUBLISH_SECONDS, seconds, name=self.name)
        self._recorder.add(catalog.PUBLISH_TOTAL, name=self.name, outcome="published")
        self._recorder.set(catalog.PUBLISH_BYTES, nbytes, name=self.name)
        self._recorder.set(catalog.PUBLISH_LAST_SUCCESS, at_s, name=self.name)

    def publish_skipped(self, *, at_s: float) -> None:
        """The published copy is still what a new one would be."""
        self._recorder.add(catalog.PUBLISH_TOTAL, name=self.name, outcome="skipped")
        self._recorder.set(catalog.PUBLISH_LAST_SUCCESS, at_s, name=self.name)

    def publish_failed(self) -> None:
        self._recorder.add(catalog.PUBLISH_TOTAL, name=self.name, outcome="failed")


def _key(instrument: Instrument, labels: Mapping[str, str]) -> Labels:
    """Label values in the catalog's order. Raises ValueError on missing or foreign labels."""
    if len(labels) != len(instrument.labels):
        raise ValueError(f"{instrument.name} has the labels {instrument.label_names}")
    key = []
    for label, allowed in instrument.labels:
        if label not in labels:
            raise ValueError(f"{instrument.name} needs the label {label!r}")
        value = labels[label]
        if not allowed or value in allowed:
            key.append(value)
        elif OTHER in allowed:
            key.append(OTHER)
        else:
            raise ValueError(f"{instrument.name} knows no {label}={value!r}")
    return tuple(key)


def _empty_family(instrument: Instrument) -> Metric:
    names = instrument.label_names
    match instrument.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(instrument.name, instrument.help, labels=names)
        case Kind.GAUGE:
            return GaugeMetricFamily(instrument.name, instrument.help, labels=names)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(instrument.name, instrument.help, labels=names)


def series(recorder: Recorder) -> Iterator[tuple[str, dict[str, str], float]]:
    """Every sample as (name, labels, value), for tests and for exporters of another kind."""
    for family in recorder.collect():
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value
