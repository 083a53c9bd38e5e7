"""A scrape in which every series has a value; run as a module it prints one, for promtool."""

from __future__ import annotations

import sys

from metrics.prometheus import PrometheusExporter
from metrics.recorder import Recorder


def filled() -> Recorder:
    """A recorder in which every series of two datasets has a value."""
    recorder = Recorder()
    recorder.started(version="1.2.3", duckdb="2.0.1", python="3.11.4", started_at_s=1.7e9)
    recorder.query(surface="http", outcome="ok", seconds=0.02)
    recorder.configuration(is_good=True, waiting=0)
    recorder.database(file_bytes=123, wal_bytes=4, memory_bytes=5)
    recorder.database_reopened()
    recorder.spans_dropped(2)
    for name in ("orders", 'we"ird\\ na\nme'):
        dataset = recorder.dataset(name)
        dataset.shards_active(8)
        dataset.records_consumed(1000)
        dataset.lag(sum_ms=4200, max_ms=900)
        dataset.transient_error()
        dataset.reinitialized()
        dataset.retention_headroom(86_000.5)
        dataset.checkpoint_age(0.7)
        dataset.ready(True)
        dataset.state("Ready")
        dataset.applied({"insert": 3, "modify": 2, "remove": 1}, seconds=0.013)
        dataset.snapshot_items(10)
        dataset.snapshot_progress(0.25)
        dataset.consumed_rcu(128.5)
        dataset.cost(get_records=0.03, scan=0.0)
        dataset.published(seconds=1.5, nbytes=1_000_000, at_s=1_800_000_000.0)
        dataset.api_call(operation="GetRecords", outcome="ok", seconds=0.01)
        dataset.gap()
        dataset.gaps_open(1)
        dataset.dead_letters(2)
        dataset.dead_letters_open(2)
        dataset.columns_widened()
        dataset.numbers_as_text(3)
        dataset.rows(77)
        dataset.queue_bytes(9)
    return recorder


if __name__ == "__main__":
    sys.stdout.write(PrometheusExporter(filled()).render()[0].decode())
