"""A shard graph, the stream it reads, and the truth about both.

Owns the moves that a history is made of, and what must hold after each of them. Works on the graph
alone: answers come when the history says so, commits lag behind, a restart keeps what is committed.
The applier here drops nothing, so a record that the graph reads twice is applied twice and found.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from checkpoints.positions import Gap, PositionKind, ShardCheckpoint, ShardState
from connector.errors import IteratorExpired, RequestRefused, ShardGone, SourceError, Unavailable
from connector.source import ListedShard
from connector.stream.coverage import Retention
from connector.stream.lineage import (
    Listing,
    OpenIterator,
    Origin,
    PageRead,
    Progress,
    ReadPage,
    Work,
)
from connector.stream.pacing import Pacing
from connector.stream.shards import EVERY_SHARD, Patience, ShardGraph
from tests.builders import HOUR_MS, sequence
from tests.model_stream import ModelRecord, ModelStream

PATIENCE = Patience(absence_ms=20_000, listing_lag_ms=60_000, memory_ms=72 * HOUR_MS)
RETENTION = Retention()


@dataclass(frozen=True, slots=True)
class Waiting:
    """What was handed over in one piece: rows and gaps, with the records of one page."""

    progress: Progress
    records: tuple[ModelRecord, ...]


@dataclass(slots=True)
class Cursor:
    """A listing that has come to its page after `after`."""

    began_ms: int
    shards: list[ListedShard]
    after: str | None


class ShardWorld:
    """`written` of the stream is the truth; `applied` is what a dataset would hold."""

    def __init__(self, stream: ModelStream, *, reads_everything: bool = False) -> None:
        self.stream = stream
        self.now_s = 0.0
        self.origin = Origin(stream.date_ms, reads_everything=reads_everything)
        self.stored: dict[str, ShardCheckpoint] = {}
        self.gaps: list[Gap] = []
        self.applied: list[ModelRecord] = []
        self.shard_of: dict[int, str] = {}
        self.missing: dict[int, ModelRecord] = {}
        self.times_applied: Counter[int] = Counter()
        self.parent_of: dict[str, str | None] = {}
        self.settled: frozenset[str] = frozenset()
        self.late_roots: set[str] = set()
        self.forgotten: set[str] = set()
        self.may_lose = False
        self.restart(0.0)

    # Moves of the world

    def write(self, shard_id: str, count: int = 1) -> None:
        for _ in range(count):
            self.note(self.stream.write(shard_id), shard_id)

    def note(self, record: ModelRecord, shard_id: str) -> None:
        """A record that the graph has to deliver, unless it is older than the cut."""
        self.shard_of[record.number] = shard_id
        if self.origin.reads_everything or record.created_ms >= self.origin.cut_ms:
            self.missing[record.number] = record

    def open_ids(self) -> list[str]:
        return [shard.shard_id for shard in self.stream.open_shards()]

    def split(
        self, shard_id: str, children: int, *, hidden_ms: int = 0, shown_open: bool = False
    ) -> None:
        """Closes a shard for its children, of which the last open one has some."""
        if len(self.open_ids()) == 1:
            children = max(children, 1)
        shard = self.stream.shards[shard_id]
        # A shard shows no earlier than its parent.
        hidden_ms = max(hidden_ms, shard.hidden_until_ms - self.stream.now_ms)
        self.stream.close(shard_id, children, hidden_ms=hidden_ms)
        shard.shown_open = shown_open
        self._note_lineage()

    def settle_shown(self) -> None:
        """Listings catch up with the truth."""
        for shard in self.stream.shards.values():
            shard.shown_open = False

    def add_root(self) -> None:
        self.late_roots.add(self.stream.add_shard(None).shard_id)
        self._note_lineage()

    def vanish(self, shard_id: str) -> None:
        self.may_lose = True
        self.stream.vanish(shard_id)

    def pass_ms(self, elapsed_ms: int) -> None:
        self.now_s += elapsed_ms / 1000
        if elapsed_ms > HOUR_MS:
            self.may_lose = True
        self.stream.pass_ms(elapsed_ms)

    def jump_host_clock(self, seconds: float) -> None:
        """The host's idea of time leaps; nothing has happened in the world."""
        self.now_s += seconds

    # Moves of the loops

    def restart(self, now_s: float) -> None:
        """A kill: only what is committed is left. The new process counts time from anywhere."""
        self.now_s = now_s
        self.graph = ShardGraph(
            self.origin,
            self.stored.values(),
            pacing=Pacing(draw=lambda: 0.5),
            retention=RETENTION,
            patience=PATIENCE,
            now_s=now_s,
        )
        self.queue: deque[Waiting] = deque()
        self.taken: list[Work] = []
        self.cursor: Cursor | None = None
        self.idle_at: dict[str, float] = {}

    def take(self) -> bool:
        work = self.graph.take(self.now_s)
        if work is None:
            return False
        assert all(work.shard_id != other.shard_id for other in self.taken), "one reader a shard"
        assert self.idle_at.get(work.shard_id) != self.now_s, "an idle shard is polled at once"
        if isinstance(work, OpenIterator):
            self._check_start(work)
        self.taken.append(work)
        return True

    def answer(self, index: int = 0, fault: SourceError | None = None) -> None:
        """One request in flight comes back, from the stream as it is now, or with `fault`."""
        work = self.taken.pop(index)
        records: tuple[ModelRecord, ...] = ()
        self.idle_at[work.shard_id] = self.now_s
        try:
            if fault is not None:
                raise fault
            if isinstance(work, OpenIterator):
                opened = self.stream.open_iterator(
                    self.stream.stream_arn, work.shard_id, work.position
                )
                del self.idle_at[work.shard_id]
                progress = self.graph.opened(
                    work.shard_id, opened.iterator, opened.at_ms, self.now_s
                )
            else:
                read, records = self._read(work)
                if read.records + read.skipped:
                    del self.idle_at[work.shard_id]
                progress = self.graph.page_read(work.shard_id, read, self.now_s)
        except SourceError as error:
            progress = self.graph.failed(work.shard_id, error, self.now_s)
        self._hand_over(progress, records)

    def list_page(self) -> None:
        """One page of the listing in progress, or the first of a new one."""
        self._note_lineage()
        if self.cursor is None:
            self.cursor = Cursor(self.stream.date_ms, [], None)
        cursor = self.cursor
        try:
            page = self.stream.describe_stream(self.stream.stream_arn, start_shard_id=cursor.after)
        except RequestRefused:
            self.cursor = None
            return
        cursor.shards.extend(page.shards)
        cursor.after = page.last_evaluated_shard_id
        is_complete = cursor.after is None
        if is_complete:
            self.cursor = None
        shards = tuple(cursor.shards) if is_complete else page.shards
        if is_complete and not self.graph.has_begun and not self.origin.reads_everything:
            # An earlier page may show a parent open whose child a later page shows to be over.
            parents = {shard.parent_shard_id for shard in shards}
            closed = [s for s in shards if s.is_closed or s.shard_id in parents]
            over = {shard.parent_shard_id for shard in closed}
            self.settled = frozenset(
                shard.shard_id for shard in shards if shard.is_closed or shard.shard_id in over
            )
            for number in list(self.missing):
                if self.shard_of[number] in self.settled:
                    del self.missing[number]
        listing = Listing(shards, page.stream_status, cursor.began_ms, page.at_ms, is_complete)
        self._hand_over(self.graph.listed(listing, self.now_s))

    def ask(self, fault: bool = False) -> bool:
        shard_id = self.graph.take_question(self.now_s)
        if shard_id is None:
            return False
        if fault:
            self.graph.question_failed(shard_id, self.now_s)
            return True
        listed = [shard for shard in self.stream.listed() if shard.parent_shard_id == shard_id]
        progress = self.graph.children_listed(shard_id, listed, self.stream.date_ms, self.now_s)
        self._hand_over(progress)
        return True

    def commit(self, most: int = 1_000_000) -> None:
        """The oldest of what was handed over becomes durable."""
        for _ in range(min(most, len(self.queue))):
            waiting = self.queue.popleft()
            for record in waiting.records:
                self._check_order(record)
                self.applied.append(record)
                self.times_applied[record.number] += 1
                assert self.times_applied[record.number] == 1, f"applied twice: {record}"
                self.missing.pop(record.number, None)
            self.stored.update((row.shard_id, row) for row in waiting.progress.shards)
            self.gaps.extend(waiting.progress.gaps)
            self.graph.committed(waiting.progress.shards, self.now_s)

    def beat(self) -> None:
        self._hand_over(self.graph.beat(self.stream.date_ms))

    def collect(self) -> None:
        """Deletes the rows that nobody needs any more."""
        for shard_id in self.graph.forgettable():
            assert shard_id not in self.stream.shards, "a listed shard is forgotten"
            del self.stored[shard_id]
            self.forgotten.add(shard_id)
            self.graph.forget((shard_id,))

    # What must hold

    def check(self) -> None:
        """After every move."""
        self._check_coverage()

    def finish(self, seconds: int = 150) -> None:
        """Lets the loops run undisturbed, then demands that every record is accounted for."""
        for shard in self.stream.shards.values():
            shard.sparse = 0
        self.settle_shown()
        for second in range(seconds):
            if second % 5 == 0:
                self.list_page()
                while self.cursor is not None:
                    self.list_page()
            steps = 0
            while self.taken or self.take():
                self.answer()
                steps += 1
                assert steps < 2_000, "a busy loop"
            while self.ask():
                pass
            self.commit()
            self.check()
            if second > 60 and not self.missing:
                break
            self.pass_ms(1000)
        self._check_complete()

    def _check_complete(self) -> None:
        missing = list(self.missing.values())
        lost = {gap.shard_id for gap in self.gaps}
        unreported = [
            record
            for record in missing
            if EVERY_SHARD not in lost and not self._kin(self.shard_of[record.number]) & lost
        ]
        if lost:  # a root that came and went unseen leaves no trace of its own
            unreported = [r for r in unreported if not self._was_late(self.shard_of[r.number])]
        assert not unreported, f"neither applied nor in a gap: {unreported[:5]}"
        known = {view.shard_id for view in self.graph.views(finished=True)} | self.forgotten
        assert set(self.stream.shards) <= known, "a shard is forgotten"
        if not self.may_lose:
            assert not self.gaps, f"a gap without a loss: {self.gaps}"
            assert not missing, f"missing without a loss: {missing[:5]}"
        waiting = [v for v in self.graph.views() if v.state is ShardState.DRAINING]
        assert not waiting, f"leaves are waited for without end: {waiting}"

    def _check_start(self, work: OpenIterator) -> None:
        """A child starts after its parent's last record is applied, and nobody starts at now."""
        if work.position.kind is PositionKind.AT_TIMESTAMP:
            assert work.position.timestamp_ms == self.origin.cut_ms
        parent = self.parent_of.get(work.shard_id)
        if parent is not None and parent in self.stream.shards:
            assert not self._unapplied(parent), f"{work.shard_id} starts before {parent} is applied"

    def _check_order(self, record: ModelRecord) -> None:
        shard_id = self.shard_of[record.number]
        older = [r for r in self._unapplied(shard_id) if r.sequence < record.sequence]
        assert not older, f"{record} is applied before {older}"
        assert record.created_ms >= self.origin.cut_ms or self.origin.reads_everything
        parent = self.parent_of.get(shard_id)
        if parent is not None and parent in self.stream.shards:
            assert not self._unapplied(parent), f"{record} is applied before its parent's end"

    def _check_coverage(self) -> None:
        """`covered_until` is true: of each shard, and of all, unless a gap says otherwise."""
        # What is older than the start is in the snapshot, or said to be lost.
        missing = [r for r in self.missing.values() if r.created_ms >= self.origin.at_ms]
        lost = {gap.shard_id for gap in self.gaps}
        lost |= {gap.shard_id for waiting in self.queue for gap in waiting.progress.gaps}
        by_shard: dict[str, int] = {}
        for record in missing:
            shard_id = self.shard_of[record.number]
            oldest_ms = by_shard.get(shard_id, record.created_ms)
            by_shard[shard_id] = min(oldest_ms, record.created_ms)
        for view in self.graph.views():
            if self._was_late(view.shard_id):
                continue  # what a root held before it was listed, nobody could know
            oldest = by_shard.get(view.shard_id)
            if oldest is not None and view.covered_until_ms is not None and not self.may_lose:
                assert view.covered_until_ms <= oldest, f"{view} claims what is missing"
        covered_ms = self.graph.covered_until_ms
        if covered_ms is None or self.may_lose or lost:
            return
        for shard_id, oldest in by_shard.items():
            if not self._was_late(shard_id):
                assert covered_ms <= oldest, f"all is covered until {covered_ms}, not {shard_id}"

    def _unapplied(self, shard_id: str) -> list[ModelRecord]:
        shard = self.stream.shards.get(shard_id)
        records = shard.records if shard else []
        return [record for record in records if record.number in self.missing]

    def _kin(self, shard_id: str) -> set[str]:
        """All shards of the same tree."""
        root = self._root(shard_id)
        return {other for other in self.parent_of if self._root(other) == root} | {shard_id}

    def _was_late(self, shard_id: str) -> bool:
        return self._root(shard_id) in self.late_roots

    def _root(self, shard_id: str) -> str:
        parent = self.parent_of.get(shard_id)
        return shard_id if parent is None else self._root(parent)

    def _note_lineage(self) -> None:
        for shard in self.stream.shards.values():
            self.parent_of.setdefault(shard.shard_id, shard.parent_id)

    def _read(self, work: ReadPage) -> tuple[PageRead, tuple[ModelRecord, ...]]:
        arrived, next_iterator = self.stream.page(work.shard_id, work.iterator)
        kept = list(arrived)
        while kept and work.skip_before_ms is not None and kept[0].created_ms < work.skip_before_ms:
            kept.pop(0)
        read = PageRead(
            len(kept),
            next_iterator,
            sequence(kept[-1].sequence) if kept else None,
            max(r.created_ms for r in kept) // 1000 * 1000 if kept else None,
            self.stream.date_ms,
            skipped=len(arrived) - len(kept),
            more=len(arrived) >= self.stream.page_records,
        )
        return read, tuple(kept)

    def _hand_over(self, progress: Progress, records: tuple[ModelRecord, ...] = ()) -> None:
        if progress or records:
            self.queue.append(Waiting(progress, records))


def faults() -> list[SourceError]:
    """Errors that any request may meet at any time. That data is trimmed is never said falsely."""
    return [
        Unavailable("half open"),
        IteratorExpired("expired"),
        ShardGone("gone, it says"),
    ]
