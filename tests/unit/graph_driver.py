"""A shard graph under the hand of a directed test: every answer is given by name.

Owns the bookkeeping that tests would repeat: what is in flight, what was handed over, what is
committed. Time stands still unless a test moves it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState
from connector.errors import SourceError
from connector.stream.coverage import Retention
from connector.stream.lineage import (
    OpenIterator,
    Origin,
    PageRead,
    Progress,
    ReadPage,
    ShardView,
    Work,
)
from connector.stream.pacing import Pacing
from connector.stream.shards import Patience, ShardGraph
from tests.builders import START_MS, listing, shard_tree


class Driver:
    """`rows` is what a store holds after `commit`; `handed_over` is what waits before it."""

    def __init__(
        self,
        rows: Iterable[ShardCheckpoint] = (),
        *,
        origin: Origin | None = None,
        pacing: Pacing | None = None,
        patience: Patience | None = None,
        retention: Retention | None = None,
    ) -> None:
        self.now_s = 0.0
        self.at_ms = START_MS
        self.origin = origin or Origin(START_MS)
        self.rows = {row.shard_id: row for row in rows}
        self.gaps: list[Gap] = []
        self.handed_over: deque[Progress] = deque()
        self.work: dict[str, Work] = {}
        self.graph = ShardGraph(
            self.origin,
            self.rows.values(),
            pacing=pacing or Pacing(draw=lambda: 0.5),
            patience=patience,
            retention=retention,
        )

    def restarted(self) -> Driver:
        """Another process over what is committed."""
        return Driver(self.rows.values(), origin=self.origin)

    def keep(self, progress: Progress) -> Progress:
        if progress:
            self.handed_over.append(progress)
        return progress

    def begin(self, tree: str) -> Progress:
        """The first complete listing, committed."""
        progress = self.keep(self.graph.listed(listing(tree, at_ms=self.at_ms), self.now_s))
        self.commit()
        return progress

    def listed(self, tree: str, *, status: str = "ENABLED", complete: bool = True) -> Progress:
        found = listing(tree, at_ms=self.at_ms, status=status, complete=complete)
        return self.keep(self.graph.listed(found, self.now_s))

    def take(self) -> list[str]:
        """Every shard that is due, in the order in which it is taken."""
        taken = []
        while (work := self.graph.take(self.now_s)) is not None:
            self.work[work.shard_id] = work
            taken.append(work.shard_id)
        return taken

    def position(self, shard_id: str) -> Position:
        """Where the iterator that is asked for now would be opened."""
        work = self.work[shard_id]
        assert isinstance(work, OpenIterator)
        return work.position

    def open(self, shard_id: str) -> Progress:
        if shard_id not in self.work:
            self.take()
        assert isinstance(self.work.pop(shard_id), OpenIterator)
        return self.keep(
            self.graph.opened(shard_id, f"iterator-{shard_id}", self.at_ms, self.now_s)
        )

    def page(self, shard_id: str, page: PageRead) -> Progress:
        """A page of a shard, which is opened first where it has to be; time goes on until it is."""
        self._await(shard_id)
        if isinstance(self.work[shard_id], OpenIterator):
            self.open(shard_id)
            self._await(shard_id)
        assert isinstance(self.work.pop(shard_id), ReadPage)
        self.at_ms = max(self.at_ms, page.at_ms)
        return self.keep(self.graph.page_read(shard_id, page, self.now_s))

    def pages(self, shard_id: str, pages: Iterable[PageRead]) -> list[Progress]:
        return [self.page(shard_id, page) for page in pages]

    def fail(self, shard_id: str, error: SourceError) -> Progress:
        self._await(shard_id)
        del self.work[shard_id]
        return self.keep(self.graph.failed(shard_id, error, self.now_s))

    def answer(self, shard_id: str, tree: str) -> Progress:
        """The answer to a question about the children of a shard."""
        children = [s for s in shard_tree(tree) if s.parent_shard_id == shard_id]
        return self.keep(self.graph.children_listed(shard_id, children, self.at_ms, self.now_s))

    def commit(self, most: int = 1000) -> None:
        for _ in range(min(most, len(self.handed_over))):
            progress = self.handed_over.popleft()
            self.rows.update((row.shard_id, row) for row in progress.shards)
            self.gaps.extend(progress.gaps)
            self.graph.committed(progress.shards, self.now_s)

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.at_ms += round(seconds * 1000)

    def due_s(self, shard_id: str) -> float:
        """When a shard that waits is polled next."""
        return self.graph._polls._entries[shard_id][0]

    def view(self, shard_id: str) -> ShardView:
        return next(v for v in self.graph.views(finished=True) if v.shard_id == shard_id)

    def state(self, shard_id: str) -> ShardState:
        return self.view(shard_id).state

    def _await(self, shard_id: str) -> None:
        self.take()
        while shard_id not in self.work:
            due_s = self.graph.next_due_s()
            assert due_s is not None, f"{shard_id} waits for news"
            self.now_s = max(self.now_s, due_s)
            self.take()


def end(*, records: int = 0, last: str | None = None, at_ms: int = START_MS) -> PageRead:
    """The last page of a closed shard."""
    return PageRead(records, None, last, at_ms if records else None, at_ms)
