"""A reader and a discovery on virtual time over a model stream, with an applier of one line.

Owns the turning of time: steps are called when they are due and time jumps between them, so a day
of polling takes a moment. `applied` is what a dataset would have, `rows` what would be stored.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable

from accelerator.batch import Batch
from checkpoints.positions import Gap, ShardCheckpoint
from connector.clock import AwsTime
from connector.retry import Backoff
from connector.stream.coverage import Retention
from connector.stream.discovery import Discovery
from connector.stream.lineage import Origin
from connector.stream.pacing import Pacing
from connector.stream.reader import StreamReader
from connector.stream.shards import Patience, ShardGraph
from tests.model_stream import ModelStream


class FakeClock:
    """A monotonic clock that stands still until it is moved."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class MemorySink:
    """Takes batches until it is told to be full."""

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.is_full = False
        self.fault: Exception | None = None

    def has_room(self) -> bool:
        return not self.is_full

    def offer(self, batch: Batch) -> None:
        if self.fault is not None:
            raise self.fault
        self.batches.append(batch)


class Watcher:
    """Counts what a reader tells its observer."""

    def __init__(self) -> None:
        self.pages = 0
        self.records = 0
        self.failures: Counter[str] = Counter()
        self.gaps: list[Gap] = []

    def page_read(self, shard_id: str, records: int, nbytes: int, /) -> None:
        self.pages += 1
        self.records += records

    def call_failed(self, shard_id: str | None, error: Exception, /) -> None:
        self.failures[getattr(error, "code", type(error).__name__)] += 1

    def gap_found(self, gap: Gap, /) -> None:
        self.gaps.append(gap)


class Reading:
    """`restart` keeps what is stored and loses all else, as a kill does."""

    def __init__(
        self,
        stream: ModelStream,
        *,
        origin: Origin | None = None,
        rows: Iterable[ShardCheckpoint] = (),
        pacing: Pacing | None = None,
        patience: Patience | None = None,
        listing_every_s: float = 60.0,
    ) -> None:
        self.stream = stream
        self.clock = FakeClock()
        self.origin = origin or Origin(stream.date_ms)
        self.pacing = pacing or Pacing(draw=lambda: 0.5)
        self.patience = patience or Patience()
        self.listing_every_s = listing_every_s
        self.rows = {row.shard_id: row for row in rows}
        self.gaps: list[Gap] = []
        self.applied: list[int] = []
        self.commits = 0
        self.watcher = Watcher()
        self.is_applying = True
        self.restart()

    def restart(self) -> None:
        self.has_news = False
        self.sink = MemorySink()
        self.aws_time = AwsTime(self.clock)
        self.graph = ShardGraph(
            self.origin,
            self.rows.values(),
            pacing=self.pacing,
            retention=Retention(self.stream.retention_ms, self.stream.retention_ms // 48),
            patience=self.patience,
            now_s=self.clock.now_s,
        )
        self.reader = StreamReader(
            self.stream,
            self.clock,
            self.aws_time,
            self.sink,
            self.graph,
            stream_arn=self.stream.stream_arn,
            generation=1,
            observer=self.watcher,
            on_news=self.ring,
        )
        self.discovery = Discovery(
            self.stream,
            self.clock,
            self.aws_time,
            self.reader,
            self.stream.identity(),
            observer=self.watcher,
            backoff=Backoff(),
            draw=lambda: 0.5,
            listing_every_s=self.listing_every_s,
        )

    def ring(self) -> None:
        """Wakes every loop."""
        self.has_news = True

    def apply(self, most: int | None = None) -> None:
        """Commits what waits, oldest first."""
        while self.sink.batches and most != 0:
            batch = self.sink.batches.popleft()
            self.applied.extend(numbers(batch))
            self.rows.update((row.shard_id, row) for row in batch.shards)
            self.gaps.extend(batch.gaps)
            self.commits += 1
            self.reader.committed(batch.shards)
            most = None if most is None else most - 1

    def run(self, seconds: float, *, most_steps: int = 200_000) -> int:
        """Lets that much time pass, and every step that is due within it; returns the steps."""
        end_s = self.clock.now_s + seconds
        steps = 0
        while True:
            self.has_news = False
            dues = [self.discovery.step(self.clock.now_s), self.reader.step(self.clock.now_s)]
            if self.is_applying:
                self.apply()
            steps += 1
            if steps > most_steps:
                raise AssertionError(f"a busy loop: {steps} steps in {seconds} s")
            due_s = min((due for due in dues if due is not None), default=end_s)
            if self.has_news:
                continue
            if self.clock.now_s >= end_s:
                return steps
            self.pass_s(max(0.0, min(due_s, end_s) - self.clock.now_s))

    def pass_s(self, seconds: float) -> None:
        """Time for the host and for AWS, without a step."""
        self.clock.now_s += seconds
        self.stream.pass_ms(round(seconds * 1000))

    def state(self, shard_id: str) -> str:
        return next(v.state for v in self.reader.views(finished=True) if v.shard_id == shard_id)


def numbers(batch: Batch) -> list[int]:
    """The model's record numbers in a batch."""
    return [int(json.loads(image)["v"]["N"]) for image in batch.changes["image"].to_pylist()]
