"""What the metrics promise to dashboards: names, zeros, bounded series, valid text."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from metrics import catalog
from metrics.catalog import CATALOG, Kind
from metrics.prometheus import PrometheusExporter
from metrics.recorder import Recorder, series
from tests.metrics_text import filled

CONTRACT = {
    "dataset_dynamodb_shards_active": "gauge",
    "dataset_dynamodb_records_consumed_total": "counter",
    "dataset_dynamodb_lag_ms": "gauge",
    "dataset_dynamodb_errors_transient_total": "counter",
    "dataset_dynamodb_reinitializations_on_lag_exceeds_shard_retention_total": "counter",
    "dataset_dynamodb_lag_max_ms": "gauge",
    "dataset_dynamodb_retention_headroom_seconds": "gauge",
    "dataset_dynamodb_checkpoint_age_seconds": "gauge",
    "dataset_dynamodb_ready": "gauge",
    "dataset_dynamodb_applied_total": "counter",
    "dataset_dynamodb_apply_seconds": "histogram",
    "dataset_dynamodb_snapshot_items_total": "counter",
    "dataset_dynamodb_snapshot_progress_ratio": "gauge",
    "dataset_dynamodb_consumed_rcu_total": "counter",
    "dataset_dynamodb_api_calls_total": "counter",
    "dataset_dynamodb_gaps_total": "counter",
    "dataset_dynamodb_dead_letters_total": "counter",
    "dataset_dynamodb_columns_widened_total": "counter",
}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.mark.parametrize(("name", "kind"), CONTRACT.items())
def test_the_names_of_the_contract_are_exported_exactly(name: str, kind: str) -> None:
    """A dashboard finds every metric of the contract by its exact name, kind and dataset label."""
    body, _ = PrometheusExporter(filled()).render()
    text = body.decode()
    assert f"# TYPE {name} {kind}\n" in text
    suffix = "_count" if kind == "histogram" else ""
    assert f'\n{name}{suffix}{{name="orders"' in text


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4"),
        ("text/plain;version=0.0.4;q=0.5, */*;q=0.1", "text/plain; version=0.0.4"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0"),
        (f"{OPENMETRICS};q=0.5,text/plain;q=0.2", "application/openmetrics-text; version=1.0.0"),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, content_type: str) -> None:
    """Prometheus gets OpenMetrics when it asks for it, and its own format otherwise."""
    _, sent = PrometheusExporter(filled()).render(accept)
    assert sent.startswith(content_type)


def test_both_formats_parse_and_say_the_same() -> None:
    """Both texts are valid, hold every instrument and the same values, odd names included."""
    exporter = PrometheusExporter(filled())
    plain = list(parse_prometheus(exporter.render()[0].decode()))
    text = exporter.render(OPENMETRICS)[0].decode()
    open_metrics = list(parse_openmetrics(text))

    def samples(families: list) -> dict:  # type: ignore[type-arg]
        return {
            (s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples
        }

    assert samples(plain) == samples(open_metrics)
    exported = {name for name, _ in samples(plain)}
    for instrument in CATALOG:
        suffix = "_count" if instrument.kind is Kind.HISTOGRAM else ""
        assert instrument.name + suffix in exported
    assert ("dataset_dynamodb_ready", (("name", 'we"ird\\ na\nme'),)) in samples(plain)


def test_counters_of_a_dataset_start_at_zero() -> None:
    """rate() needs the series before the first event: every counter exists at 0 from the start."""
    recorder = Recorder()
    recorder.dataset("orders")
    for instrument in CATALOG:
        if not instrument.is_per_dataset or instrument.kind is Kind.GAUGE:
            continue
        suffix = "_count" if instrument.kind is Kind.HISTOGRAM else ""
        found = [v for n, labels, v in series(recorder) if n == instrument.name + suffix]
        combinations = 1
        for _, values in instrument.labels:
            combinations *= max(1, len(values))
        assert found == [0.0] * combinations, instrument.name


def test_an_unknown_gauge_is_absent_and_not_zero() -> None:
    """A lag nobody has measured is not a lag of zero."""
    recorder = Recorder()
    dataset = recorder.dataset("orders")
    assert recorder.value(catalog.LAG_MS, name="orders") is None
    dataset.lag(sum_ms=5, max_ms=5)
    assert recorder.value(catalog.LAG_MS, name="orders") == 5
    dataset.lag(sum_ms=None, max_ms=None)
    assert recorder.value(catalog.LAG_MS, name="orders") is None
    assert recorder.value(catalog.READY, name="orders") == 0


def test_counters_survive_a_dataset_that_is_created_again() -> None:
    """A refresh builds a dataset anew; its counters go on, or rate() would see a reset."""
    recorder = Recorder()
    recorder.dataset("orders").records_consumed(5)
    recorder.dataset("orders").records_consumed(2)
    assert recorder.value(catalog.RECORDS_CONSUMED, name="orders") == 7


def test_foreign_label_values_do_not_add_series() -> None:
    """An outcome the catalog does not know counts as `other`: series stay bounded."""
    recorder = Recorder()
    dataset = recorder.dataset("orders")
    before = len(list(series(recorder)))
    for n in range(50):
        dataset.api_call(operation=f"Op{n}", outcome=f"outcome {n}", seconds=0.1)
    assert len(list(series(recorder))) == before
    assert (
        recorder.value(catalog.API_CALLS, name="orders", operation="other", outcome="other") == 50
    )


def test_wrong_use_is_refused() -> None:
    """A missing label, one too many, an unknown state, a counter going down: said at once."""
    recorder = Recorder()
    with pytest.raises(ValueError, match="labels"):
        recorder.add(catalog.RECORDS_CONSUMED)
    with pytest.raises(ValueError, match="labels"):
        recorder.add(catalog.RECORDS_CONSUMED, name="a", op="insert")
    with pytest.raises(ValueError, match="needs the label"):
        recorder.add(catalog.RECORDS_CONSUMED, op="insert")
    with pytest.raises(ValueError, match="down"):
        recorder.add(catalog.RECORDS_CONSUMED, -1, name="a")
    with pytest.raises(ValueError, match="state"):
        recorder.dataset("a").state("Fine")
    with pytest.raises(ValueError, match="knows no"):
        recorder.add(catalog.APPLIED, name="a", op="upsert")


def test_exactly_one_state_is_set() -> None:
    """The state gauges of a dataset are one-hot, whatever came before."""
    recorder = Recorder()
    dataset = recorder.dataset("orders")
    for state in catalog.STATES:
        dataset.state(state)
        ones = [
            labels["state"]
            for name, labels, value in series(recorder)
            if name == "dataset_dynamodb_state" and value == 1
        ]
        assert ones == [state]


def test_histogram_buckets_are_cumulative_and_include_their_bound() -> None:
    """`le` means less or equal, each bucket holds all smaller ones, and +Inf equals the count."""
    recorder = Recorder()
    dataset = recorder.dataset("orders")
    for seconds in (0.001, 0.0011, 0.5, 99.0):
        dataset.applied({}, seconds=seconds)
    buckets = {
        labels["le"]: value
        for name, labels, value in series(recorder)
        if name == "dataset_dynamodb_apply_seconds_bucket"
    }
    assert buckets["0.001"] == 1
    assert buckets["0.0025"] == 2
    assert buckets["0.5"] == 3
    assert buckets["30.0"] == 3
    assert buckets["+Inf"] == 4
    sums = {n: v for n, _, v in series(recorder) if n.startswith("dataset_dynamodb_apply_seconds_")}
    assert sums["dataset_dynamodb_apply_seconds_count"] == 4
    assert sums["dataset_dynamodb_apply_seconds_sum"] == pytest.approx(99.5021)


def test_counts_from_many_threads_add_up() -> None:
    """Readers, scanner and applier count at once and nothing is lost."""
    recorder = Recorder()

    def work() -> None:
        for _ in range(2000):
            recorder.dataset("orders").records_consumed(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert recorder.value(catalog.RECORDS_CONSUMED, name="orders") == 16_000


def test_names_follow_the_conventions() -> None:
    """Counters end in _total and nothing else does; names are unique and legal."""
    names = [i.name for i in CATALOG]
    assert len(set(names)) == len(names)
    for instrument in CATALOG:
        assert (instrument.kind is Kind.COUNTER) == instrument.name.endswith("_total")
        assert (instrument.kind is Kind.HISTOGRAM) == bool(instrument.buckets)
        assert instrument.help.endswith(".")
