"""Bodies in memory to committed rows, without HTTP: the dataset alone, as the service calls it."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from accelerator.batch import Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.spec import DatasetSpec
from bench import data, rivals
from bench.figures import Results
from bench.server import STREAM_ARN, TABLE, TABLE_ARN
from checkpoints.positions import (
    KeyAttribute,
    Position,
    ShardCheckpoint,
    ShardState,
    SnapshotSegment,
    SourceIdentity,
)
from connector.aws.wire import cut_records, cut_scan

SHARDS: Final = 16
GROUP_PAGES: Final = 48
SCAN_GROUP_PAGES: Final = 14
MEMORY_BYTES: Final = 1_000_000_000
AT_S: Final = 1_700_000_000


class Inside:
    """A dataset of `rows` items in a file of its own."""

    def __init__(
        self, path: Path, *, rows: int, now_s: Callable[[], float] = time.perf_counter
    ) -> None:
        self._now_s = now_s
        self.database = Database.open(path, memory_limit_bytes=MEMORY_BYTES)
        self.dataset = Dataset(self.database, DatasetSpec("bench"))
        self._rows = rows
        self._shards = [
            ShardCheckpoint(f"s{n}", None, ShardState.READING, Position.trim_horizon())
            for n in range(SHARDS)
        ]
        identity = SourceIdentity(
            TABLE,
            TABLE_ARN,
            "id",
            STREAM_ARN,
            tuple(KeyAttribute(name, kind, role) for name, role, kind in data.KEY_SCHEMA),
        )
        self._generation = self.dataset.begin(
            identity,
            origin_ms=0,
            shards=self._shards,
            segments=(SnapshotSegment(0, 1),),
            shadow=False,
            positions_generation=None,
            snapshot=True,
        )

    def load(self) -> float:
        """All items, as a scan brings them; items/s of applying alone."""
        took_s = 0.0
        step = data.ITEMS_A_PAGE * SCAN_GROUP_PAGES
        for first in range(0, self._rows, step):
            group = [
                self._scanned(at, min(at + data.ITEMS_A_PAGE, self._rows))
                for at in range(first, min(first + step, self._rows), data.ITEMS_A_PAGE)
            ]
            began_s = time.perf_counter()
            self.dataset.apply(group)
            took_s += time.perf_counter() - began_s
            for batch in group:
                if batch.scan_ticket is not None:
                    self.dataset.close_scan_ticket(batch.scan_ticket)
        self.database.checkpoint()
        return self._rows / took_s

    def _scanned(self, first: int, end: int) -> Batch:
        body = b'{"Items":[' + data.scan_items(first, end) + b"]}"
        segment = SnapshotSegment(0, 1, "{}", items=end, done=end == self._rows)
        return Batch(
            cut_scan(body, at_ms=0, consistent=True).changes,
            self._generation,
            segments=(segment,),
            scan_ticket=self.dataset.open_scan_ticket(),
            fills=self._generation,
            nbytes=len(body),
        )

    def apply(self, bodies: Sequence[tuple[int, bytes]], group: int) -> float:
        """Records/s from bodies (with their shards) to committed rows, `group` pages a commit."""
        records, began_s = 0, self._now_s()
        for first in range(0, len(bodies), group):
            batches = [self._batch(shard, body) for shard, body in bodies[first : first + group]]
            records += self.dataset.apply(batches).records
        return records / (self._now_s() - began_s)

    def put(self, number: int, **attributes: dict[str, Any]) -> float:
        """One item anew with these attributes; s until it is committed."""
        image = {**data.item(number, 0, 0), **attributes}
        record = {**data.record(AT_S), "eventName": "MODIFY"}
        keys = {name: image[name] for name in ("pk", "sk")}
        record["dynamodb"] = {
            **record["dynamodb"],
            "Keys": keys,
            "NewImage": image,
            "SequenceNumber": str(10**30 + number),
        }
        body = json.dumps({"NextShardIterator": "i", "Records": [record]}, separators=(",", ":"))
        began_s = time.perf_counter()
        self.dataset.apply([self._batch(0, body.encode())])
        return time.perf_counter() - began_s

    def copied_s(self, column: str) -> float:
        """How long DuckDB takes to copy one column into a table of its own, checkpoint included."""
        cursor = self.database.writer
        began_s = time.perf_counter()
        cursor.execute(f"CREATE TABLE main.copied AS SELECT {column} FROM bench")
        self.database.checkpoint()
        took_s = time.perf_counter() - began_s
        cursor.execute("DROP TABLE main.copied")
        self.database.checkpoint()
        return took_s

    def _batch(self, shard: int, body: bytes) -> Batch:
        page = cut_records(body, f"s{shard}", at_ms=0)
        assert page.last_sequence_number is not None
        row = replace(self._shards[shard], position=Position.after(page.last_sequence_number))
        return Batch(page.changes, self._generation, shards=(row,), nbytes=page.nbytes)


def bodies(rows: int, pages: Iterable[int]) -> list[tuple[int, bytes]]:
    """The same page of every shard, page by page."""
    return [
        (
            shard,
            b'{"NextShardIterator":"i","Records":['
            + data.stream_page(
                rows=rows, shard=shard, shards=SHARDS, page=page, records=1000, seed=2, at_s=AT_S
            )
            + b"]}",
        )
        for page in pages
        for shard in range(SHARDS)
    ]


def measure(
    results: Results,
    directory: Path,
    *,
    rows: int,
    rounds: int,
    now_s: Callable[[], float] = time.perf_counter,
) -> None:
    """One page a commit against the plain loop; groups against what an append alone takes.

    now_s   `time.process_time` counts the CPU seconds of all threads instead of waiting for them
    """
    inside = Inside(directory / f"inside-{rows}.duckdb", rows=rows, now_s=now_s)
    inside.load()
    made = bodies(rows, range(3 * rounds + 1))
    inside.apply(made[:SHARDS], 1)  # warm-up
    made = made[SHARDS:]
    singles, groups = [], []
    for number in range(rounds):
        mine = made[number * 3 * SHARDS : (number + 1) * 3 * SHARDS]
        # Sequence numbers rise within a shard, so a round's pages are applied in order.
        singles.append(inside.apply(mine[:SHARDS], 1))
        groups.append(inside.apply(mine[SHARDS:], GROUP_PAGES))
    plain = rivals.plain_table(rows, path=str(directory / f"plain-inside-{rows}"))
    rival = rivals.plain_in_memory_rate([body for _, body in made[:5]], plain, now_s)
    plain.close()
    append = [_append_rate(inside, now_s) for _ in range(rounds)]
    best = sorted(append)[len(append) // 2]
    inside.database.close()
    add = results.add
    add("in memory, one page a commit", singles, "records/s", rows=rows)
    add("in memory, groups", groups, "records/s", rows=rows)
    add("plain loop in memory", rival, "records/s", rows=rows)
    add("DuckDB append alone", append, "rows/s", rows=rows)
    against = [rate / rival for rate in singles]
    add("one page a commit, in memory, against plain", against, "x", rows=rows)
    add("in memory, against append alone", [r / best for r in groups], "x", rows=rows)


def _append_rate(inside: Inside, now_s: Callable[[], float]) -> float:
    """Typed rows that are in Arrow already, appended to a table of the same columns."""
    cursor = inside.database.writer
    table = 'dynaduck."bench__rows_1"'
    typed: pa.Table = cursor.sql(f"SELECT * FROM {table} LIMIT 100000").to_arrow_table(
        batch_size=4096
    )
    cursor.execute(f"CREATE OR REPLACE TABLE main.appended AS SELECT * FROM {table} LIMIT 0")
    cursor.register("typed", typed)
    began_s = now_s()
    cursor.execute("INSERT INTO main.appended SELECT * FROM typed")
    rate = float(typed.num_rows / (now_s() - began_s))
    cursor.unregister("typed")
    cursor.execute("DROP TABLE main.appended")
    return rate


def rewrites(results: Results, directory: Path, *, rows: int) -> None:
    """Every row replaced ten times; the file then, against the file of a fresh load."""
    path = directory / f"rewrites-{rows}.duckdb"
    inside = Inside(path, rows=rows)
    inside.load()
    inside.database.checkpoint()
    fresh_bytes = path.stat().st_size
    pages = -(-rows // SHARDS // 1000)
    for number in range(10 * pages):
        inside.apply(_in_order(rows, number, pages), GROUP_PAGES)
    assert inside.dataset.row_count() == rows
    inside.database.checkpoint()
    name = "file size after ten rewrites, against a fresh load"
    results.add(name, path.stat().st_size / fresh_bytes, "x", rows=rows)
    inside.database.close()


WIDER: Final = ({"N": "0.001"}, {"N": "1E-100"}, {"S": "none"})
"""A decimal with more places, a number that only text holds, and what is no number."""


def widening(results: Results, directory: Path, *, rows: int) -> None:
    """One change widens a column of all rows; its commit, against a copy of the column."""
    inside = Inside(directory / f"widening-{rows}.duckdb", rows=rows)
    inside.load()
    ratios = []
    for number, value in enumerate(WIDER):
        copied_s = inside.copied_s("balance")
        took_s = inside.put(number, balance=value)
        ratios.append(took_s / copied_s)
        name = f"widening {number + 1} of {len(WIDER)}: commit"
        results.add(name, took_s * 1000, "ms", rows=rows)
    results.add("widening a column, against a copy of it", ratios, "x", rows=rows)
    results.add("widening a column, most memory", _peak_bytes() / 1e6, "MB", rows=rows)
    inside.database.close()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _in_order(rows: int, number: int, pages: int) -> list[tuple[int, bytes]]:
    return [
        (
            shard,
            b'{"NextShardIterator":"i","Records":['
            + data.stream_page(
                rows=rows,
                shard=shard,
                shards=SHARDS,
                page=number,
                records=1000,
                seed=3,
                at_s=AT_S,
                from_item=number % pages * 1000,
            )
            + b"]}",
        )
        for shard in range(SHARDS)
    ]
