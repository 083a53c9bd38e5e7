"""Which shard is read next, from where, and which rows hold afterwards: the shard graph.

Owns the lineage of one stream in one generation of positions: discovery, order between parents and
children, iterators, the end of shards, gaps. Pure: no call, no thread, no clock. Times come in with
the answers; `now_s` is the caller's monotonic clock and only paces, AWS time decides.

The caller hands every `Progress` over to be committed, in the order in which they were returned and
before it tells the graph anything else. So returned means enqueued: an iterator that expires is
rebuilt from the last returned position, and after a restart a new graph begins from the committed
rows.

    discovered ─▶ eligible ─▶ positioning ─▶ reading / idle / backoff ─▶ draining ─▶ finished
                                └────▶ verify ────▶ gap

A child waits until its parent's `finished` is committed. A shard is `draining` from its last page
until its children are known, or it is proved to have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from checkpoints.positions import Gap, Position, PositionKind, ShardCheckpoint, ShardState
from connector.errors import IteratorExpired, ShardGone, Throttled, Trimmed
from connector.source import ListedShard
from connector.stream.agenda import Agenda
from connector.stream.coverage import HOUR_MS, Coverage, GapCause, Retention
from connector.stream.lineage import (
    Listing,
    OpenIterator,
    Origin,
    PageRead,
    Progress,
    ReadPage,
    Shard,
    ShardView,
    Work,
)
from connector.stream.pacing import Pacing

STREAM_DISABLED: Final = "DISABLED"

EVERY_SHARD: Final = "*"
"""The shard of a gap that is not one shard's."""


@dataclass(frozen=True, slots=True)
class Patience:
    """AWS times, in ms, that the graph waits before it believes in an absence, or forgets.

    absence       complete listings over this time must show no child before a leaf is finished, and
                  no parent before one is taken for lost
    listing_lag   a shard may have existed this long before a listing shows it
    memory        a finished row is kept this long: listings show shards for more than retention
    beat          positions of idle shards are written this often
    """

    absence_ms: int = 300_000
    listing_lag_ms: int = 300_000
    memory_ms: int = 72 * HOUR_MS
    beat_ms: int = 60_000


class ShardGraph:
    """The shards of one stream. One caller at a time; every step costs O(log n) in their number.

    Built from the committed rows, or from none: then the first complete listing begins the
    generation, and nothing is read before it.
    """

    def __init__(
        self,
        origin: Origin,
        rows: Iterable[ShardCheckpoint] = (),
        *,
        pacing: Pacing | None = None,
        retention: Retention | None = None,
        patience: Patience | None = None,
        now_s: float = 0.0,
    ) -> None:
        self._origin = origin
        self._pacing = pacing or Pacing()
        self._retention = retention or Retention()
        self._patience = patience or Patience()
        self._shards: dict[str, Shard] = {}
        self._unfinished: dict[str, Shard] = {}
        self._suspects: dict[str, Shard] = {}
        self._orphans: dict[str, Shard] = {}
        self._polls = Agenda()
        self._questions = Agenda()
        self._rows: dict[str, ShardCheckpoint] = {}
        self._gaps: list[Gap] = []
        self._aws_ms = origin.at_ms
        self._beat_ms: int | None = None
        self._hurry_until_ms: int | None = None
        self._listed: frozenset[str] | None = None
        self._listed_until_ms: int | None = None
        self._stream_status: str | None = None
        self._resume(rows, now_s)
        self._is_positioned = bool(self._shards)

    # What to do

    def take(self, now_s: float) -> Work | None:
        """The shard that has been due longest; it is busy until its answer is told."""
        shard_id = self._polls.take(now_s)
        if shard_id is None:
            return None
        shard = self._shards[shard_id]
        shard.is_busy = True
        if shard.iterator is not None:
            return ReadPage(shard.shard_id, shard.iterator, shard.position.timestamp_ms)
        shard.state = ShardState.POSITIONING
        if shard.position.kind is PositionKind.TRIM_HORIZON:
            return OpenIterator(shard.shard_id, Position.trim_horizon())
        return OpenIterator(shard.shard_id, shard.position)

    def next_due_s(self) -> float | None:
        """When `take` next has something; None while every shard is busy or waits for news."""
        return self._polls.next_s

    def take_question(self, now_s: float) -> str | None:
        """A closed shard to ask the children of; it is not asked again until that is answered."""
        shard_id = self._questions.take(now_s)
        if shard_id is not None:
            self._shards[shard_id].asked += 1
        return shard_id

    def next_question_s(self) -> float | None:
        return self._questions.next_s

    @property
    def open_questions(self) -> int:
        return len(self._questions)

    @property
    def wants_listing(self) -> bool:
        """A complete listing is needed now: nothing is known yet, or a shard seems to be gone."""
        return self._listed is None or bool(self._suspects) or self._has_unconfirmed_roots

    # What the stream answered

    def listed(self, listing: Listing, now_s: float) -> Progress:
        """A page of a listing, or a whole one, which has to include its pages' shards again."""
        self._saw(listing.at_ms)
        self._stream_status = listing.stream_status
        if not self._shards:
            if listing.is_complete and listing.shards:
                self._begin(listing, now_s)
                self._remember(listing)
            return self._progress()
        self._learn(listing.shards, now_s)
        if listing.is_complete:
            self._missed_listings(self._listed_until_ms, listing)
            self._settle_orphans(listing, now_s)
            self._settle_suspects(listing, now_s)
            self._settle_ended(listing, now_s)
            self._remember(listing)
        return self._progress()

    def children_listed(
        self, shard_id: str, shards: Sequence[ListedShard], at_ms: int, now_s: float
    ) -> Progress:
        """The answer to a question: all shards that name `shard_id` as their parent."""
        self._saw(at_ms)
        self._learn(shards, now_s)
        shard = self._shards.get(shard_id)
        if shard is not None and shard.state is ShardState.DRAINING:
            if shard.children:
                self._finish(shard)
            else:
                self._ask(shard, now_s + self._pacing.before_asking_again(shard.asked))
        return self._progress()

    def question_failed(self, shard_id: str, now_s: float) -> None:
        """No answer; it is asked again after a while."""
        shard = self._shards.get(shard_id)
        if shard is not None and shard.state is ShardState.DRAINING:
            self._ask(shard, now_s + self._pacing.before_asking_again(shard.asked))

    def opened(self, shard_id: str, iterator: str, at_ms: int, now_s: float) -> Progress:
        """An iterator at the position that was asked for. What lies before it may be lost unsaid.

        TRIM_HORIZON and AT_TIMESTAMP never report a trim, so the age of what was covered decides.
        """
        shard = self._returned(shard_id)
        self._saw(at_ms)
        shard.reopened(iterator)
        if self._retention.may_have_lost(shard.coverage.until_ms, at_ms):
            cause = GapCause.TRIMMED if shard.was_trimmed else GapCause.RETENTION_EXCEEDED
            self._lose(shard, cause, shard.shard_id, shard.position.sequence_number)
            self._hand_over(shard)
        shard.was_trimmed = False
        self._wait(shard, now_s)
        return self._progress()

    def page_read(self, shard_id: str, page: PageRead, now_s: float) -> Progress:
        """A whole page: its records first, then what its next iterator says."""
        shard = self._returned(shard_id)
        self._saw(page.at_ms)
        is_empty = page.records + page.skipped == 0
        stale_s = max(self._pacing.idle_s, 2 * shard.interval_s)
        shard.good_page(now_s, page.at_ms, is_empty=is_empty, stale_s=stale_s)
        shard.iterator = page.next_iterator
        if not is_empty:
            shard.coverage.records(page.newest_created_ms, page.at_ms)
        elif page.next_iterator is not None:
            shard.coverage.empty(page.at_ms, is_closed=shard.is_closed)
        if page.records:
            if page.last_sequence_number is None:
                raise ValueError("a page with records without a sequence number")
            shard.records += page.records
            shard.position = Position.after(page.last_sequence_number)
        if page.next_iterator is None:
            self._drain(shard, now_s, page.at_ms)
        else:
            shard.state = ShardState.IDLE if is_empty else ShardState.READING
            if page.records:
                self._hand_over(shard)
            shard.caution_s = self._pacing.caution_s(shard.caution_s, is_throttled=False)
            wait_s = self._pacing.after_page(
                more=page.more and not is_empty,
                empties=shard.coverage.empties,
                is_closed=shard.is_closed,
                shards=len(self._unfinished),
                hurries=self._hurries(shard),
            )
            shard.interval_s = max(wait_s, shard.caution_s)
            self._wait(shard, self._pacing.due_s(now_s, shard.interval_s))
        return self._progress()

    def failed(self, shard_id: str, error: Exception, now_s: float) -> Progress:
        """Opening or reading failed: every error is tried again, slowing this shard alone."""
        shard = self._returned(shard_id)
        shard.failures += 1
        shard.state = ShardState.BACKOFF
        if shard.error_since_s is None:
            shard.error_since_s = now_s
        shard.error = error
        if isinstance(error, Throttled):
            shard.caution_s = self._pacing.caution_s(shard.caution_s, is_throttled=True)
        if isinstance(error, IteratorExpired):
            shard.iterator = None
        elif isinstance(error, Trimmed):
            self._restart_from_trim_horizon(shard)
        elif isinstance(error, ShardGone):
            shard.iterator = None
            shard.state = ShardState.VERIFY
            shard.suspect_since_ms = self._aws_ms
            self._suspects[shard_id] = shard
            self._hand_over(shard)
            return self._progress()
        self._wait(shard, now_s + self._pacing.after_failure(shard.failures))
        return self._progress()

    # What was committed, and what time brings

    def committed(self, rows: Iterable[ShardCheckpoint], now_s: float) -> bool:
        """Rows that are durable now, in the order of hand-over. True: a shard came free."""
        came_free = False
        for row in rows:
            shard = self._shards.get(row.shard_id)
            if shard is None:
                continue
            shard.committed = row
            if shard.is_done_for_good:
                self._unfinished.pop(shard.shard_id, None)
                came_free |= self._free_children(shard, now_s)
        if not self._is_positioned and self.has_begun:
            waiting = self._unfinished.values()
            self._is_positioned = all(shard.committed is not None for shard in waiting)
        return came_free

    def hurry(self, until_ms: int, now_s: float) -> None:
        """Polls idle shards soon and often until they are covered up to this AWS time."""
        self._hurry_until_ms = until_ms
        if self._pacing.floor_s > self._pacing.hurry_s:
            return  # that often is not wanted
        for shard in self._unfinished.values():
            if shard.state is ShardState.IDLE and not shard.is_busy and self._hurries(shard):
                self._wait(shard, now_s)

    def pace(self, pacing: Pacing, now_s: float) -> None:
        """Another pace from here on: nobody waits out what the old one had in mind."""
        self._pacing = pacing
        for shard in self._unfinished.values():
            if shard.state in (ShardState.IDLE, ShardState.READING) and not shard.is_busy:
                self._wait(shard, now_s)

    def _hurries(self, shard: Shard) -> bool:
        covered_ms = shard.coverage.until_ms
        if covered_ms is None or self._hurry_until_ms is None:
            return False
        return covered_ms < self._hurry_until_ms or covered_ms <= (shard.proves_after_ms or 0)

    def beat(self, at_ms: int) -> Progress:
        """Rows of the shards that got further without a record; often none. Call it freely."""
        if self._beat_ms is None:
            self._beat_ms = at_ms
        if at_ms - self._beat_ms < self._patience.beat_ms:
            return Progress()
        self._beat_ms = at_ms
        for shard in self._unfinished.values():
            known = shard.handed_over
            if known is not None and known.covered_until_ms != shard.coverage.until_ms:
                self._hand_over(shard)
        return self._progress()

    def forgettable(self) -> tuple[str, ...]:
        """Finished shards whose rows may be deleted; `forget` them once that is committed."""
        if self._listed is None:
            return ()
        return tuple(
            shard.shard_id
            for shard in self._shards.values()
            if shard.is_done_for_good and self._is_forgettable(shard)
        )

    def forget(self, shard_ids: Collection[str]) -> None:
        for shard_id in shard_ids:
            shard = self._shards.pop(shard_id, None)
            parent = self._shards.get(shard.parent_id or "") if shard else None
            if parent is not None:
                parent.children.remove(shard_id)

    # What stands

    @property
    def has_begun(self) -> bool:
        """The first complete listing is known: every shard that existed then has a row."""
        return bool(self._shards)

    @property
    def is_positioned(self) -> bool:
        """That is committed: a Scan that starts now misses nothing."""
        return self._is_positioned

    @property
    def is_drained(self) -> bool:
        """A disabled stream that has been read to its end, as far as listings show it.

        A leaf stays unfinished for as long as it may have a child that none shows yet.
        """
        return (
            self._stream_status == STREAM_DISABLED
            and self._listed is not None
            and self.has_begun
            and all(shard.seems_last for shard in self._unfinished.values())
        )

    @property
    def covered_until_ms(self) -> int | None:
        """AWS time before which every change is in the rows; None while one shard has no proof.

        A stream without a shard to read proves nothing beyond its last sign of life.
        """
        if not self._unfinished:
            alive = (shard.coverage.until_ms for shard in self._shards.values())
            return max((ms for ms in alive if ms is not None), default=None)
        least: int | None = None
        for shard in self._unfinished.values():
            if shard.state is ShardState.DISCOVERED:
                continue
            covered_ms = shard.applied_until_ms
            if covered_ms is None:
                return None
            least = covered_ms if least is None else min(least, covered_ms)
        return least

    def has_passed(self, at_ms: int) -> bool:
        """Every shard is applied beyond `at_ms`, or finished."""
        if not self.has_begun:
            return False
        for shard in self._unfinished.values():
            covered_ms = shard.applied_until_ms
            if covered_ms is None or covered_ms < at_ms:
                return False
        return True

    def views(self, *, finished: bool = False) -> list[ShardView]:
        shards = self._shards if finished else self._unfinished
        return [shard.view() for shard in shards.values()]

    def __len__(self) -> int:
        return len(self._shards)

    # Beginning

    def _resume(self, rows: Iterable[ShardCheckpoint], now_s: float) -> None:
        for row in rows:
            self._add(Shard.stored(row))
        for shard in self._shards.values():
            parent = self._shards.get(shard.parent_id or "")
            if parent is not None:
                self._adopt(parent, shard)
        for shard in list(self._shards.values()):
            self._resume_shard(shard, now_s)

    def _resume_shard(self, shard: Shard, now_s: float) -> None:
        parent = self._shards.get(shard.parent_id or "")
        match shard.state:
            case ShardState.FINISHED | ShardState.GAP:
                self._unfinished.pop(shard.shard_id)
            case ShardState.DRAINING:
                shard.is_closed = True
                self._ask(shard, now_s)
            case ShardState.DISCOVERED | ShardState.VERIFY if parent is None and shard.parent_id:
                self._orphans[shard.shard_id] = shard
            case ShardState.DISCOVERED:
                if parent is not None and not parent.is_done:
                    return
                if parent is not None:
                    self._inherit(shard, parent)
                self._make_eligible(shard, now_s)
            case (
                ShardState.ELIGIBLE
                | ShardState.POSITIONING
                | ShardState.READING
                | ShardState.IDLE
                | ShardState.BACKOFF
                | ShardState.VERIFY
            ):
                self._make_eligible(shard, now_s)
            case _:
                assert_never(shard.state)

    def _begin(self, listing: Listing, now_s: float) -> None:
        """The first complete listing: what is closed in it was written before the first Scan, if
        there will be one.

        But a closed shard without a child may have one that no listing shows yet. An open shard
        without its parent may be younger than the page that the parent belongs on, so that another
        listing has to confirm it. And when listing failed for longer than records are kept, shards
        may have come and gone since the start.
        """
        is_late = self._missed_listings(self._origin.at_ms, listing)
        covered_ms = None if is_late else self._origin.at_ms
        for entry in listing.shards:
            shard = self._add(self._new(entry))
            shard.coverage = Coverage(covered_ms)
        for shard in self._shards.values():
            parent = self._shards.get(shard.parent_id or "")
            if parent is not None:
                self._adopt(parent, shard)
        for entry in listing.shards:
            shard = self._shards[entry.shard_id]
            # A page from before two splits may show a parent open whose child a later page shows
            # closed: what is over ends from the root on, or a child would be ahead of its parent.
            has_ended = entry.is_closed or self._has_closed_child(shard)
            if has_ended and self._origin.takes_closed_as_read:
                shard.position = Position.shard_end()
                shard.state = ShardState.FINISHED if shard.children else ShardState.DRAINING
        for shard in list(self._shards.values()):
            parent = self._shards.get(shard.parent_id or "")
            if shard.state is ShardState.DRAINING:
                shard.drained_ms = listing.at_ms
                self._ask(shard, now_s)
            elif shard.is_done:
                pass
            elif parent is None and shard.parent_id is not None:
                shard.suspect_since_ms = listing.at_ms
                self._orphans[shard.shard_id] = shard
            elif parent is None or parent.is_done:
                self._make_eligible(shard, now_s)
            self._hand_over(shard)
        self._settle_ended(listing, now_s)

    def _has_closed_child(self, shard: Shard) -> bool:
        return any(self._shards[child_id].is_closed for child_id in shard.children)

    # Learning

    def _learn(self, entries: Iterable[ListedShard], now_s: float) -> None:
        fresh: list[Shard] = []
        for entry in entries:
            shard = self._shards.get(entry.shard_id)
            if shard is None:
                fresh.append(self._add(self._new(entry)))
            elif entry.is_closed:
                shard.is_closed = True
                shard.ending = entry.ending_sequence_number
        if fresh:
            # An older orphan's parent may be among them.
            for shard in [*fresh, *self._orphans.values()]:
                self._place(shard, now_s)

    def _place(self, shard: Shard, now_s: float) -> None:
        """Where a new shard begins. Never now, never LATEST: it may hold records already."""
        if shard.parent_id is None:
            shard.coverage = Coverage(self._unseen_before_ms())
            self._make_eligible(shard, now_s)
            self._hand_over(shard)
            return
        parent = self._shards.get(shard.parent_id)
        if parent is None:
            self._orphans[shard.shard_id] = shard
            return
        self._orphans.pop(shard.shard_id, None)
        shard.state = ShardState.DISCOVERED
        self._adopt(parent, shard)
        if parent.is_done:
            self._inherit(shard, parent)
            self._hand_over(shard, ShardState.ELIGIBLE)
            if parent.is_done_for_good:
                self._make_eligible(shard, now_s)
            return
        self._hand_over(shard)

    def _unseen_before_ms(self) -> int:
        """A root that is found late held nothing when a listing, or this process, last looked."""
        if self._listed_until_ms is not None:
            seen_ms = self._listed_until_ms
        else:
            unfinished = [shard.coverage.until_ms for shard in self._unfinished.values()]
            seen_ms = min((ms for ms in unfinished if ms is not None), default=self._origin.at_ms)
        return max(self._origin.at_ms, seen_ms - self._patience.listing_lag_ms)

    @property
    def _has_unconfirmed_roots(self) -> bool:
        return any(shard.coverage.until_ms is not None for shard in self._orphans.values())

    def _settle_orphans(self, listing: Listing, now_s: float) -> None:
        """A parent that stays neither stored nor listed: gone before the start, or unseen since."""
        for shard in list(self._orphans.values()):
            if shard.coverage.until_ms is not None:
                if listing.began_ms >= shard.suspect_since_ms:
                    del self._orphans[shard.shard_id]
                    self._make_eligible(shard, now_s)
            elif shard.state is not ShardState.VERIFY:
                shard.state = ShardState.VERIFY
                shard.suspect_since_ms = listing.began_ms
                self._hand_over(shard)
            elif listing.began_ms - shard.suspect_since_ms >= self._patience.absence_ms:
                del self._orphans[shard.shard_id]
                shard.position = Position.trim_horizon()
                self._lose(shard, GapCause.PARENT_NEVER_SEEN, shard.parent_id or "", None)
                self._make_eligible(shard, now_s)
                self._hand_over(shard)

    def _settle_suspects(self, listing: Listing, now_s: float) -> None:
        """A shard that seemed gone: listed after all, or read to its end, or a gap."""
        listed = {entry.shard_id for entry in listing.shards}
        for shard in list(self._suspects.values()):
            if listing.began_ms < shard.suspect_since_ms:
                continue
            del self._suspects[shard.shard_id]
            if shard.shard_id in listed:
                shard.state = ShardState.BACKOFF
                self._wait(shard, now_s + self._pacing.after_failure(max(1, shard.failures)))
            elif shard.has_read_all:
                self._drain(shard, now_s, listing.at_ms)
            else:
                self._give_up(shard)

    def _settle_ended(self, listing: Listing, now_s: float) -> None:
        """A whole listing shows the children of what ended before it, or that there are none."""
        for shard in list(self._unfinished.values()):
            if shard.state is not ShardState.DRAINING or listing.began_ms < shard.drained_ms:
                continue
            if shard.children:
                self._finish(shard)
                continue
            if shard.childless_since_ms is None:
                shard.childless_since_ms = listing.began_ms
            if listing.began_ms - shard.childless_since_ms >= self._patience.absence_ms:
                self._finish_leaf(shard)
            else:
                shard.asked += 1
                self._ask(shard, now_s + self._pacing.before_asking_again(shard.asked))

    def _missed_listings(self, last_ms: int | None, listing: Listing) -> bool:
        """Whether a shard may have come and gone unseen since `last_ms`; that is a gap."""
        if not self._retention.may_have_lost(last_ms, listing.at_ms):
            return False
        cause = GapCause.RETENTION_EXCEEDED
        self._gaps.append(Gap(EVERY_SHARD, None, cause.value, listing.at_ms))
        return True

    def _remember(self, listing: Listing) -> None:
        self._listed = frozenset(entry.shard_id for entry in listing.shards)
        self._listed_until_ms = listing.began_ms
        for shard in self._shards.values():
            if shard.shard_id in self._listed:
                shard.unlisted_since_ms = None
            elif shard.unlisted_since_ms is None:
                shard.unlisted_since_ms = listing.at_ms

    # Ends and gaps

    def _drain(self, shard: Shard, now_s: float, at_ms: int) -> None:
        """Nothing is left to read; its children are asked for even if one is known already."""
        shard.position = Position.shard_end(shard.position.sequence_number)
        shard.state = ShardState.DRAINING
        shard.is_closed = True
        shard.iterator = None
        shard.drained_ms = at_ms
        self._ask(shard, now_s)
        self._hand_over(shard)

    def _finish(self, shard: Shard) -> None:
        """The end of a shard and its children's rows: one Progress, so one transaction.

        Only an answer that was asked for after the end may lead here: one child seen on some page
        is not all of them, and after a restart nobody would look for the other.
        """
        shard.state = ShardState.FINISHED
        self._questions.drop(shard.shard_id)
        self._hand_over(shard)
        self._hand_over_children(shard)

    def _finish_leaf(self, shard: Shard) -> None:
        """No child is there. After a long stop that may be because it came and went unread."""
        if self._retention.may_have_lost(shard.coverage.until_ms, self._aws_ms):
            cause = GapCause.RETENTION_EXCEEDED
            self._lose(shard, cause, shard.shard_id, shard.position.sequence_number)
        self._finish(shard)

    def _give_up(self, shard: Shard) -> None:
        shard.state = ShardState.GAP
        self._lose(shard, GapCause.SHARD_GONE, shard.shard_id, shard.position.sequence_number)
        self._hand_over(shard)
        self._hand_over_children(shard)

    def _hand_over_children(self, shard: Shard) -> None:
        for child_id in shard.children:
            child = self._shards[child_id]
            if child.state is ShardState.DISCOVERED:
                self._inherit(child, shard)
                self._hand_over(child, ShardState.ELIGIBLE)

    def _inherit(self, child: Shard, parent: Shard) -> None:
        """Before a lineage's first record the start in time holds; from then on all is read."""
        child.position = Position.trim_horizon() if parent.has_record else self._origin.position
        child.coverage = Coverage(parent.coverage.until_ms)

    def _free_children(self, shard: Shard, now_s: float) -> bool:
        came_free = False
        for child_id in shard.children:
            child = self._shards[child_id]
            if child.state is ShardState.DISCOVERED:
                self._make_eligible(child, now_s)
                came_free = True
        return came_free

    def _restart_from_trim_horizon(self, shard: Shard) -> None:
        """Records up to the position are trimmed, so all that is left is younger: none is repeated.

        Whether some were lost is for `opened` to say. The number is kept: the lineage has begun.
        """
        shard.iterator = None
        shard.was_trimmed = True
        if shard.position.kind is PositionKind.AFTER_SEQUENCE_NUMBER:
            shard.position = Position(
                PositionKind.TRIM_HORIZON, sequence_number=shard.position.sequence_number
            )

    def _lose(self, shard: Shard, cause: GapCause, lost_id: str, after: str | None) -> None:
        shard.coverage.lose()
        self._gaps.append(Gap(lost_id, after, cause.value, self._aws_ms))

    # Small things

    def _new(self, entry: ListedShard) -> Shard:
        return Shard(
            entry.shard_id,
            entry.parent_shard_id,
            ShardState.DISCOVERED,
            self._origin.position,
            Coverage(None),
            is_closed=entry.is_closed,
            ending=entry.ending_sequence_number,
        )

    def _add(self, shard: Shard) -> Shard:
        if self._origin.reads_everything:
            # Older records come first, onto rows that may be younger.
            shard.proves_after_ms = self._origin.at_ms
        self._shards[shard.shard_id] = shard
        self._unfinished[shard.shard_id] = shard
        return shard

    def _adopt(self, parent: Shard, child: Shard) -> None:
        parent.is_closed = True
        if child.shard_id not in parent.children:
            parent.children.append(child.shard_id)

    def _make_eligible(self, shard: Shard, now_s: float) -> None:
        shard.state = ShardState.ELIGIBLE
        self._wait(shard, now_s)

    def _wait(self, shard: Shard, due_s: float) -> None:
        self._polls.put(shard.shard_id, due_s)

    def _ask(self, shard: Shard, due_s: float) -> None:
        self._questions.put(shard.shard_id, due_s)

    def _returned(self, shard_id: str) -> Shard:
        shard = self._shards[shard_id]
        if not shard.is_busy:
            raise ValueError(f"an answer for shard {shard_id}, which was not asked")
        shard.is_busy = False
        return shard

    def _saw(self, at_ms: int) -> None:
        self._aws_ms = max(self._aws_ms, at_ms)

    def _is_forgettable(self, shard: Shard) -> bool:
        """Listings show it no more, for long enough. Its children's rows stand on their own."""
        last_ms = shard.coverage.until_ms or shard.unlisted_since_ms
        if shard.unlisted_since_ms is None or last_ms is None:
            return False
        return self._aws_ms - last_ms >= self._patience.memory_ms

    def _hand_over(self, shard: Shard, state: ShardState | None = None) -> None:
        row = shard.row(state)
        shard.handed_over = row
        self._rows[shard.shard_id] = row

    def _progress(self) -> Progress:
        if not self._rows and not self._gaps:
            return Progress()
        progress = Progress(tuple(self._rows.values()), tuple(self._gaps))
        self._rows = {}
        self._gaps = []
        return progress
