"""A start on an empty disk: from a base in the bucket, against loading the table anew.

`python -m bench.cold_start [--rows 1000000]`. Both sides are this process alone: pages of a scan
are made in memory, and so is the bucket, so neither DynamoDB's nor S3's own time is in a figure.
What is compared is what a start costs the machine; the size of the base says what S3 has to carry,
which is little here, since the made-up items are much alike.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from accelerator.database import Database
from accelerator.segment import SegmentFile
from bench.inside import MEMORY_BYTES, Inside
from checkpoints.guard import Guard
from checkpoints.keys import PipelineKey
from checkpoints.object_store import MemoryObjectStore
from connector.clock import SystemClock
from connector.cluster.bases import publish_base
from connector.cluster.pipeline_log import PipelineLog
from connector.cluster.recovery import recover

T = TypeVar("T")

PIPELINE: Final = PipelineKey("bench", "bench", "bench")


def main() -> None:
    parser = argparse.ArgumentParser(description="A start from S3 against a fresh scan.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    store, clock = MemoryObjectStore(), SystemClock()
    with tempfile.TemporaryDirectory(prefix="dynaduck-bench-") as directory:
        first = Inside(Path(directory) / "first" / "replica.duckdb", rows=rows)
        _said("a fresh scan, applied", first.load)
        log = PipelineLog(first.database, PIPELINE, store, clock, writer="bench")
        log.load()
        log.lead(Guard(clock, epoch=1, deadline_s=clock.monotonic_s() + 3600))
        index = _said(
            "its base, published",
            lambda: publish_base(log, first.database, threading.RLock(), clock),
        )
        first.database.close()
        again = Database.open(
            Path(directory) / "again" / "replica.duckdb", memory_limit_bytes=MEMORY_BYTES
        )
        cold = PipelineLog(again, PIPELINE, store, clock, writer="cold")
        cold.load()
        _said("a start from that base", lambda: recover(cold, again))
        found = again.cursor().execute("SELECT count(*) FROM bench").fetchall()
        again.close()
        assert found == [(rows,)], found
        assert index is not None
        base = cold.segments.base(index)
        parts = SegmentFile().base_parts(base.data).parts
        packed = sum(len(store.get(part.key) or b"") for part in parts)
        print(f"{rows:,} rows, {len(parts)} pieces, {packed / 1e6:.0f} MB in the bucket")


def _said(what: str, call: Callable[[], T]) -> T:
    """Prints time by the clock, and CPU time of all threads and of children."""
    began_s, began_cpu_s = time.perf_counter(), _cpu_s()
    result = call()
    took_s, cpu_s = time.perf_counter() - began_s, _cpu_s() - began_cpu_s
    print(f"{what:24} {took_s:7.1f} s {cpu_s:7.1f} s of CPU", flush=True)
    return result


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
