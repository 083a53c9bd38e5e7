"""Many clients on mixed surfaces while changes are applied: `python -m bench load`.

Owns the load run: each client asks one query every two seconds, on its own surface, for as long as
the canned stream shows so many changes a second. What it is held to: no error but the documented
limits, a lag that does not grow, memory that stays flat. Knows nothing of how queries are served.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.product import Product, free_port
from bench.server import Canned

SHARDS: Final = 16
RECORDS_A_PAGE: Final = 100
ASK_EVERY_S: Final = 2.0
LOOK_EVERY_S: Final = 0.5
QUERIES: Final = (
    "SELECT count(*) AS n FROM bench",
    "SELECT active, count(*) AS n, avg(balance) AS b FROM bench GROUP BY active",
    "SELECT * FROM bench LIMIT 20",
    "SELECT max(balance) AS most FROM bench WHERE active",
    "SELECT shard_id, state, covered_until FROM dynaduck.checkpoints",
)
LIMITS: Final = frozenset({"busy", "timeout", "out_of_memory"})
"""What a service at its limits may answer: docs/sql.md."""

Ask = Callable[[str], str]
"""Runs one query to its last row; `ok`, or the code of what became of it."""


@dataclass(slots=True)
class Seen:
    """What the clients met. Thread-safe through its lock."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, surface: str, outcome: str, seconds: float) -> None:
        with self.lock:
            self.outcomes[surface, outcome] += 1
            if outcome == "ok":
                self.seconds.append(seconds)


@dataclass(frozen=True, slots=True)
class Report:
    """The run. Lags in seconds of changes not yet visible; memory in bytes.

    cpu_s   of the service: on a busy machine nearer to the truth than the time an answer took
    """

    clients: int
    ran_s: float
    changes_per_s: float
    outcomes: dict[tuple[str, str], int]
    p50_ms: float
    p95_ms: float
    lags_s: tuple[float, ...]
    rss_bytes: tuple[int, ...]
    load_average: float
    cpu_s: float

    @property
    def unexpected(self) -> dict[tuple[str, str], int]:
        """Errors that are no documented limit."""
        return {k: n for k, n in self.outcomes.items() if k[1] != "ok" and k[1] not in LIMITS}

    @property
    def lag_growth_s(self) -> float:
        """The last quarter's median lag less the first's: what grows has no bound."""
        return _quarter(self.lags_s, last=True) - _quarter(self.lags_s, last=False)

    @property
    def memory_growth(self) -> float:
        """The last quarter's median memory over the second's; the first still fills caches."""
        half = self.rss_bytes[len(self.rss_bytes) // 4 :]
        return _quarter(half, last=True) / max(1.0, _quarter(half, last=False))

    def text(self) -> str:
        lines = [
            (f"{self.clients} clients, one query each every {ASK_EVERY_S:g} s, {self.ran_s:.0f} s, "
            f"{self.changes_per_s:,.0f} changes/s; load average {self.load_average:.1f}"),
            *(f"  {surface:6} {outcome:14} {n:,}"
              for (surface, outcome), n in sorted(self.outcomes.items())),
            f"  the service used {self.cpu_s / self.ran_s:.2f} cores",
            f"  answered in {self.p50_ms:,.0f} ms p50, {self.p95_ms:,.0f} ms p95",
            (f"  lag {statistics.median(self.lags_s):.2f} s median, {max(self.lags_s):.2f} s most, "
            f"{self.lag_growth_s:+.2f} s from the first quarter to the last"),
            f"  memory {max(self.rss_bytes) / 1e6:,.0f} MB most, x {self.memory_growth:.2f}",
        ]  # fmt: skip
        return "\n".join(lines)


def run(
    directory: Path,
    *,
    clients: int,
    seconds: float,
    changes_per_s: int,
    rows: int,
    flight: bool,
    max_concurrent: int | None = None,
) -> Report:
    """Loads the table, then lets clients and changes begin together."""
    rate = changes_per_s / RECORDS_A_PAGE / SHARDS
    flight_port = free_port() if flight else None
    runtime: dict[str, Any] = {}
    if flight:
        runtime["flight"] = {"enabled": True, "port": flight_port}
    if max_concurrent is not None:
        runtime["query"] = {"max_concurrent": max_concurrent}
    server = Canned(rows=rows, shards=SHARDS)
    product = Product(directory / "load", server.url, runtime=runtime)
    with server, product:
        server.prepare(shards=SHARDS, pages=int(rate * seconds) + 1, records=RECORDS_A_PAGE)
        product.wait(lambda: product.counts(rows), 600, every_s=0.2)
        product.wait_ready()
        seen, is_over = Seen(), threading.Event()
        threads = [
            threading.Thread(
                target=_client, args=(surface, ask, seen, is_over, number), daemon=True
            )
            for number in range(clients)
            for surface, ask in [_surface(number, product.port, flight_port)]
        ]
        cpu_s = product.cpu_s()
        began_s = server.drip(shards=SHARDS, pages_per_s=rate)
        for thread in threads:
            thread.start()
        lags, memory = _watch(product, began_s, seconds, changes_per_s)
        is_over.set()
        for thread in threads:
            thread.join(60)
        ran_s = time.monotonic() - began_s
        cpu_s = product.cpu_s() - cpu_s
        product.stop()
    quantiles = statistics.quantiles(seen.seconds, n=20) if len(seen.seconds) > 1 else [0.0] * 19
    return Report(
        clients, ran_s, changes_per_s, dict(seen.outcomes), 1000 * quantiles[9],
        1000 * quantiles[18], tuple(lags), tuple(memory), os.getloadavg()[0], cpu_s,
    )  # fmt: skip


def _watch(
    product: Product, began_s: float, seconds: float, changes_per_s: int
) -> tuple[list[float], list[int]]:
    """Lag and memory, until the time is over; the status takes no slot of a query."""
    lags: list[float] = []
    memory: list[int] = []
    while (passed_s := time.monotonic() - began_s) < seconds:
        status, found = product.get("/v1/status")
        if status == 200:
            shards = found["datasets"][0]["shards"]
            visible_s = sum(int(shard["records"]) for shard in shards) / changes_per_s
            lags.append(max(0.0, passed_s - visible_s))
        memory.append(product.rss_bytes)
        time.sleep(LOOK_EVERY_S)
    return lags, memory


def _client(surface: str, ask: Ask, seen: Seen, is_over: threading.Event, number: int) -> None:
    """One query every two seconds, begun somewhere within the first two."""
    draw = random.Random(number)
    due_s = time.monotonic() + draw.random() * ASK_EVERY_S
    while not is_over.wait(max(0.0, due_s - time.monotonic())):
        began_s = time.monotonic()
        outcome = ask(draw.choice(QUERIES))
        seen.add(surface, outcome, time.monotonic() - began_s)
        due_s = max(due_s + ASK_EVERY_S, time.monotonic())


def _surface(number: int, port: int, flight_port: int | None) -> tuple[str, Ask]:
    """Clients take the surfaces in turn."""
    kinds = ["json", "csv", "arrow"] + (["flight"] if flight_port is not None else [])
    kind = kinds[number % len(kinds)]
    if kind == "flight" and flight_port is not None:
        return kind, _over_flight(flight_port)
    return kind, _over_http(port, _MEDIA[kind])


_MEDIA: Final = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}


def _over_http(port: int, media_type: str) -> Ask:
    def ask(query: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/sql", query.encode(), {"Accept": media_type})
            with connection.getresponse() as answer:
                body = answer.read()
                return "ok" if answer.status == 200 else str(json.loads(body)["error"]["code"])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            return type(error).__name__
        finally:
            connection.close()

    return ask


def _over_flight(port: int) -> Ask:
    from adbc_driver_flightsql import dbapi

    def ask(query: str) -> str:
        try:
            with (
                dbapi.connect(f"grpc://127.0.0.1:{port}", autocommit=True) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(query)
                cursor.fetch_arrow_table()
            return "ok"
        except dbapi.Error as error:
            words = str(error).lower()
            return next((code for code in sorted(LIMITS) if code in words), str(error)[:80])

    return ask


def _quarter(values: Sequence[float], *, last: bool) -> float:
    size = max(1, len(values) // 4)
    return statistics.median(values[-size:] if last else values[:size])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench load", description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--changes", type=int, default=5_000, help="a second")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--flight", action="store_true", help="a quarter of them over Flight SQL")
    parser.add_argument("--max-concurrent", type=int, help="runtime.query.max_concurrent")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dynaduck-load-") as directory:
        report = run(
            Path(directory),
            clients=chosen.clients,
            seconds=chosen.seconds,
            changes_per_s=chosen.changes,
            rows=chosen.rows,
            flight=chosen.flight,
            max_concurrent=chosen.max_concurrent,
        )
    sys.stdout.write(report.text() + "\n")
    return 1 if report.unexpected else 0
