"""The real service over canned pages: rates from HTTP to committed, memory, starts, latency.

Owns the order of one session over one table: load it, then start the service again for every
round, since a service that starts finds all shards due at once. Knows no rival's code but calls.
"""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Final

from bench import rivals
from bench.figures import Results
from bench.product import Product
from bench.server import Canned, shard_id

SHARDS: Final = 16
SEGMENTS: Final = 8
QUERY: Final = "SELECT active, count(*) AS n, avg(balance) AS b FROM bench GROUP BY active"
APPLIED_PER_S: Final = 50_000
WRITES_PER_S: Final = 100
WRITING_SHARDS: Final = 4


class Session:
    """One table of `rows` items, loaded once; each method is one section of the results."""

    def __init__(self, results: Results, directory: Path, *, rows: int, rounds: int) -> None:
        self._results = results
        self._rows = rows
        self._rounds = rounds
        self._pages = 6 * rounds if rows < 5_000_000 else 12 * rounds
        self._server = Canned(rows=rows, shards=SHARDS)
        self._product = Product(
            directory / f"whole-{rows}",
            self._server.url,
            params={"scan_segments": SEGMENTS, "scan_interval": "0s"},
        )
        self._shown = [0] * SHARDS
        self._directory = directory

    def run(self) -> None:
        with self._server:
            self._server.prepare(shards=SHARDS, pages=2 * self._pages)
            try:
                self._snapshot()
                self._stream()
                self._queries()
            finally:
                self._product.__exit__(None, None, None)

    # Sections

    def _snapshot(self) -> None:
        rows, product = self._rows, self._product
        applied: list[tuple[float, int]] = []
        product.start()

        def is_loaded() -> bool:
            status, rows_now = product.ask("SELECT count(*) AS n FROM bench")
            found = int(rows_now[0]["n"]) if status == 200 else 0
            if not applied or found > applied[-1][1]:
                applied.append((time.monotonic(), found))
            return found >= rows

        product.wait(is_loaded, 3600, every_s=0.05)
        told = self._server.told()
        rate = rows / (applied[-1][0] - told["first_s"])
        ready_s = product.wait_ready() - applied[-1][0]
        self._results.add("snapshot, 8 segments", rate, "items/s", rows=rows)
        self._results.add("snapshot committed to Ready", ready_s, "s", rows=rows)
        self._results.samples[f"snapshot of {rows}"] = [
            value for at_s, count in applied for value in (at_s - applied[0][0], count)
        ]
        first, last = _tenth(applied, rows, 0), _tenth(applied, rows, 9)
        if first and last:
            name = "snapshot rate, last tenth against first"
            self._results.add(name, last / first, "x", rows=rows)
        rival = rivals.scan_rate(self._server.url, 6)
        self._results.add("boto3 Scan, TypeDeserializer, append", rival, "items/s", rows=rows)
        self._results.add("snapshot, 8 segments, against boto3 Scan", rate / rival, "x", rows=rows)
        product.stop()

    def _stream(self) -> None:
        many, peaks = [], []
        for _ in range(self._rounds):
            rate, peak_bytes = self._round(SHARDS, self._pages // self._rounds)
            many.append(rate)
            peaks.append(peak_bytes / 1e9)
        one = [self._round(1, self._pages // self._rounds)[0] for _ in range(self._rounds)]
        plain = rivals.plain_table(self._rows, path=str(self._directory / f"plain-{self._rows}"))
        rival = rivals.plain_rate(self._server.url, plain, 5)
        by_rows = rivals.executemany_rate(self._server.url, plain, 400)
        plain.close()
        floor = rivals.floor_rate(self._server.url, SHARDS, 3)
        rows, add = self._rows, self._results.add
        add("whole path, 16 shards", many, "records/s", rows=rows)
        add("whole path, 1 shard", one, "records/s", rows=rows)
        add("plain loop", rival, "records/s", rows=rows)
        add("plain loop, executemany", by_rows, "records/s", rows=rows)
        add("floor: read, cut, drop", floor, "records/s", rows=rows)
        against = [rate / rival for rate in many]
        add("whole path, 16 shards, against plain", against, "x", rows=rows)
        add("whole path, 1 shard, against plain", [r / rival for r in one], "x", rows=rows)
        add("whole path, 16 shards, against its floor", [r / floor for r in many], "x", rows=rows)
        add("resident memory, 16 shards flat out", peaks, "GB", rows=rows)

    def _round(self, shards: int, pages: int) -> tuple[float, int]:
        """Records/s, from the first page served to the last record committed; peak memory."""
        product = self._product
        records = 1000 * shards * pages
        want = 1000 * sum(self._shown) + records
        self._release(shards, pages)
        self._server.told()
        product.start()
        done_s = product.wait(lambda: self._has_committed(want), 600)
        told = self._server.told()
        peak_bytes = product.peak_rss_bytes
        product.stop()
        return records / (done_s - told["first_s"]), peak_bytes

    def _queries(self) -> None:
        """Starts quiet, then latency of single writes, then queries beside 50,000 records/s."""
        product, server, rows = self._product, self._server, self._rows
        starts = []
        for _ in range(self._rounds):
            began_s = time.monotonic()
            product.start()
            starts.append(product.wait_ready() - began_s)
            if len(starts) < self._rounds:
                product.stop()
        self._results.add("start to Ready with a checkpoint", starts, "s", rows=rows)
        quiet = self._query_times(40)
        pages = 2 * self._pages - min(self._shown)
        server.drip(shards=SHARDS, pages_per_s=APPLIED_PER_S / 1000 / SHARDS)
        took_s = pages * 1000 * SHARDS / APPLIED_PER_S
        busy = self._query_times(10_000, for_s=max(2.0, took_s - 1))
        product.stop()
        ratio = _quantile(busy, 0.95) / _quantile(quiet, 0.95)
        self._results.add("query p95, idle", 1000 * _quantile(quiet, 0.95), "ms", rows=rows)
        name = "query p95 under 50,000 records/s, against idle"
        self._results.add(name, ratio, "x", rows=rows)

    def _query_times(self, most: int, for_s: float = 60.0) -> list[float]:
        taken: list[float] = []
        end_s = time.monotonic() + for_s
        while len(taken) < most and time.monotonic() < end_s:
            began_s = time.perf_counter()
            self._product.sql(QUERY)
            taken.append(time.perf_counter() - began_s)
        return taken

    def _release(self, shards: int, pages: int) -> None:
        self._server.release(shards=shards, pages=pages)
        for shard in range(shards):
            self._shown[shard] += pages

    def _has_committed(self, records: int) -> bool:
        status, rows = self._product.ask("SELECT sum(records) AS n FROM dynaduck.checkpoints")
        return status == 200 and int(rows[0]["n"] or 0) >= records


def latency(results: Results, directory: Path, *, rows: int, seconds: float) -> None:
    """Single writes, 100/s over four shards, each timed from the moment the server shows it."""
    pages = int(seconds * WRITES_PER_S / WRITING_SHARDS)
    server = Canned(rows=rows, shards=WRITING_SHARDS)
    product = Product(directory / f"late-{rows}", server.url, params={"scan_interval": "0s"})
    with server, product:
        server.prepare(shards=WRITING_SHARDS, pages=pages, records=1)
        _wait_served(product)
        product.wait_ready(3600)
        rate = WRITES_PER_S / WRITING_SHARDS
        began_s = server.drip(shards=WRITING_SHARDS, pages_per_s=rate)
        late: list[float] = []
        seen = dict.fromkeys(map(shard_id, range(WRITING_SHARDS)), 0)
        while min(seen.values()) < pages and time.monotonic() - began_s < 3 * seconds + 10:
            counts = product.sql("SELECT shard_id, records FROM dynaduck.checkpoints")
            now_s = time.monotonic()
            for row in counts:
                numbers = range(seen[row["shard_id"]], int(row["records"]))
                late.extend(now_s - began_s - (number + 1) / rate for number in numbers)
                seen[row["shard_id"]] = int(row["records"])
        product.stop()
    ms = [1000 * value for value in late[WRITES_PER_S // 2 :]]
    results.samples[f"write to visible at {rows}"] = sorted(ms)
    results.add("write to visible, p50", _quantile(ms, 0.5), "ms", rows=rows)
    results.add("write to visible, p99", _quantile(ms, 0.99), "ms", rows=rows)


def idle(results: Results, directory: Path, *, seconds: float) -> None:
    """What following a quiet table costs, with 16 shards and with 1,000."""
    threads = {}
    for shards in (16, 1000):
        server = Canned(rows=1_000, shards=shards)
        product = Product(directory / f"idle-{shards}", server.url)
        with server, product:
            _wait_served(product)
            product.wait_ready(120)
            _settle(product)
            server.told()
            cpu_s, began_s, commits = product.cpu_s(), time.monotonic(), product.commits()
            threading.Event().wait(seconds)
            passed_s = time.monotonic() - began_s
            cpu = 100 * (product.cpu_s() - cpu_s) / passed_s
            calls = server.told()["calls"].get("GetRecords", 0)
            commits = product.commits() - commits
            threads[shards] = product.threads
            product.stop()
        name = f"idle, {shards:,} shards: "
        results.add(name + "CPU of one core", cpu, "%", rows=1000)
        per_minute = 60 / passed_s
        each = calls / shards * per_minute
        results.add(name + "GetRecords per shard and minute", each, "", rows=1000)
        results.add(name + "commits per minute", commits * per_minute, "", rows=1000)
    ratio = threads[1000] / threads[16]
    results.add("idle, 1,000 shards: threads against 16", ratio, "x", rows=1000)


def _wait_served(product: Product) -> None:
    product.wait(lambda: product.get("/health")[0] == 200, 60)


def _settle(product: Product) -> None:
    """Until every shard is polled as rarely as it ever will be: two beats of ready_lag."""
    threading.Event().wait(6.0)
    product.wait_ready(60)


def _tenth(applied: list[tuple[float, int]], rows: int, number: int) -> float:
    """Rows a second between two tenths of the rows, by what was seen committed."""
    low, high = rows * number / 10, rows * (number + 1) / 10
    return (high - low) / max(1e-9, _when(applied, high) - _when(applied, low))


def _when(applied: list[tuple[float, int]], count: float) -> float:
    before = applied[0]
    for at in applied:
        if at[1] >= count:
            share = (count - before[1]) / max(1, at[1] - before[1])
            return before[0] + share * (at[0] - before[0])
        before = at
    return applied[-1][0]


def _quantile(values: list[float], share: float) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=200, method="inclusive")[round(200 * share) - 1]
