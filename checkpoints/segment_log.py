"""The log of a pipeline in a bucket: contiguous objects, made once, each naming the one before.

Owns the rules of reading (`SegmentLog`) and of writing (`SegmentWriter`). Must not know rows, nor
how a lease is won: a writer is given a guard. The log is the truth; all rows elsewhere follow it.

A segment is committed by one create-only PUT of the next index, and by nothing else. A new leader
first puts a FENCE of its higher epoch there: an old leader's next PUT meets it and fails at the
store, whatever its clock says. One append has one index and one run of bytes until its outcome is
known: it is found by GET and compare, since a PUT that landed may answer 412 to its repetition.

    PUT     GET                     then
    200                             committed
    412,    our bytes               committed
    409,    a higher epoch          fenced
    no      nothing                 the same PUT again, until the lease's deadline
    answer  a lower epoch, or ours  while claiming: read it first; else the log is corrupt
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NoReturn, TypeVar

from checkpoints.clock import Clock
from checkpoints.commit import Committed
from checkpoints.errors import (
    AppendPending,
    BaseNeeded,
    Fenced,
    LogCorrupt,
    LogMissing,
    StoreThrottled,
    StoreUnavailable,
)
from checkpoints.guard import Guard
from checkpoints.keys import PipelineKey
from checkpoints.object_store import ObjectStore, PutOutcome
from checkpoints.progress import NO_PROGRESS, DatasetProgress, Progress, fold
from checkpoints.segment import GENESIS_SHA256, SegmentCodec, SegmentHeader, SegmentKind

P = TypeVar("P")

LIST_PAGE: Final = 1000  # the most that S3 lists at once
FULL_EVERY: Final = 100
"""Every segment whose index this divides carries the whole progress."""

RETRY_FIRST_S: Final = 0.1
RETRY_LONGEST_S: Final = 2.0
FOREVER_S: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Tip:
    """The last segment that is known: where reading goes on and what the next one must name."""

    index: int
    epoch: int
    sha256: str

    @property
    def committed(self) -> Committed:
        """Proof for the rows. Raises ValueError before the first segment."""
        if self.index == 0:
            raise ValueError("nothing is committed before the first segment")
        return Committed(self.epoch, self.index)


GENESIS: Final = Tip(0, 0, GENESIS_SHA256)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as read, its place in the chain checked."""

    header: SegmentHeader
    data: bytes

    @property
    def tip(self) -> Tip:
        """The tip once this is applied."""
        if self.header.kind is SegmentKind.BASE:
            return Tip(self.header.index, self.header.epoch, self.header.prev_sha256)
        return Tip(self.header.index, self.header.epoch, _sha256(self.data))


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log and the whole progress that holds there."""

    tip: Tip
    progress: Progress


class SegmentLog(Generic[P]):
    """Reads the log of one pipeline, and publishes bases. Needs no lease. Thread-safe.

    Every method raises StoreError subclasses beside what it names.
    """

    def __init__(
        self, store: ObjectStore, pipeline: PipelineKey, codec: SegmentCodec[P], *, writer: str
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._codec = codec
        self._writer = writer

    def after(self, tip: Tip) -> Iterator[Segment]:
        """The segments after a tip, in order, up to where the log ends now.

        Raises:
            BaseNeeded: the next segment has expired; go on from the newest base.
            LogCorrupt: a segment is missing or is no continuation of the one before.
        """
        while True:
            last_key = self._pipeline.segment_key(tip.index) if tip.index else None
            keys = self._store.list_after(self._pipeline.segments_prefix, last_key, LIST_PAGE)
            # The page is checked before any of it is read: below a gap may lie the late write of a
            # leader that slept until its index had expired and was free again.
            for index in self._contiguous(tip.index, keys):
                data = self._store.get(self._pipeline.segment_key(index))
                if data is None:
                    self._raise_missing(index)
                segment = Segment(self._linked(tip, data), data)
                yield segment
                tip = segment.tip
            if len(keys) < LIST_PAGE:
                return

    def bases(self) -> list[int]:
        """The indexes of all bases, ascending."""
        found: list[int] = []
        last_key: str | None = None
        while True:
            keys = self._store.list_after(self._pipeline.bases_prefix, last_key, LIST_PAGE)
            found += [index for key in keys if (index := self._pipeline.base_index(key))]
            if len(keys) < LIST_PAGE:
                return found
            last_key = keys[-1]

    def base(self, index: int) -> Segment:
        """A base; its `tip` is where `after` goes on. Raises LogCorrupt."""
        data = self._store.get(self._pipeline.base_key(index))
        if data is None:
            raise LogCorrupt(f"The base {index} is gone.")
        header = self._codec.header(data)
        if (
            header.pipeline != self._pipeline.pk
            or header.index != index
            or header.kind is not SegmentKind.BASE
        ):
            raise LogCorrupt(f"The object of base {index} is no base of this pipeline.")
        return Segment(header, data)

    def publish_base(
        self,
        head: Head,
        payload: P,
        *,
        newest_created_ms: int | None = None,
        at_ms: int | None = None,
    ) -> bool:
        """Makes the base of a head that was read from this log; False if there is one already.

        `payload` is the whole dataset there: a function of the log, so any node may publish it and
        it does not matter whose comes first.
        """
        header = SegmentHeader(
            pipeline=self._pipeline.pk,
            index=head.tip.index,
            epoch=head.tip.epoch,
            writer=self._writer,
            prev_sha256=head.tip.sha256,
            kind=SegmentKind.BASE,
            whole=tuple(head.progress.values()),
            newest_created_ms=newest_created_ms,
            at_ms=at_ms,
        )
        key = self._pipeline.base_key(header.index)
        outcome = self._store.put_new(key, self._codec.encode(header, payload))
        if outcome is PutOutcome.CREATED:
            return True
        if outcome is PutOutcome.EXISTS or self._store.get(key) is not None:
            return False
        raise StoreUnavailable(f"It is not known whether base {header.index} was written.")

    def head(self, *, must_exist: bool = False) -> Head:
        """Where the log ends and the progress there, from a base and at most 100 segments.

        Args:
            must_exist: the lease says that there was a log.

        Raises:
            LogMissing: there is none, though there must be.
            LogCorrupt: as `after`.
        """
        bases = self.bases()
        newest_base = bases[-1] if bases else 0
        last = self._last_index(newest_base)
        if last == 0:
            if must_exist:
                raise LogMissing("The lease says that a log exists, and there is none.")
            return Head(GENESIS, NO_PROGRESS)
        first = last - last % FULL_EVERY
        if newest_base >= max(first, 1):
            base = self.base(newest_base)
            tip, progress = base.tip, continued(NO_PROGRESS, base.header)
        elif first > 0:
            data = self._store.get(self._pipeline.segment_key(first))
            if data is None:
                self._raise_missing(first)
            header = self._checked(first, data)
            if header.whole is None:
                raise LogCorrupt(f"The segment {first} lacks the whole progress.")
            tip, progress = Segment(header, data).tip, continued(NO_PROGRESS, header)
        else:
            tip, progress = GENESIS, NO_PROGRESS
        for segment in self.after(tip):
            tip, progress = segment.tip, continued(progress, segment.header)
        return Head(tip, progress)

    def last_index(self) -> int:
        """Of the last segment that exists, 0 when there is none. Reads no object."""
        bases = self.bases()
        return self._last_index(bases[-1] if bases else 0)

    def _last_index(self, newest_base: int) -> int:
        last = newest_base
        while True:
            last_key = self._pipeline.segment_key(last) if last else None
            keys = self._store.list_after(self._pipeline.segments_prefix, last_key, LIST_PAGE)
            last = max([last, *self._indexes(keys)])
            if len(keys) < LIST_PAGE:
                return last

    def _contiguous(self, last: int, keys: Sequence[str]) -> list[int]:
        """The listed indexes, with those that were written while the listing ran."""
        found: list[int] = []
        for index in self._indexes(keys):
            for between in range(last + 1, index):
                if self._store.get(self._pipeline.segment_key(between)) is None:
                    self._raise_missing(between)
                found.append(between)
            found.append(index)
            last = index
        return found

    def _indexes(self, keys: Sequence[str]) -> list[int]:
        return [index for key in keys if (index := self._pipeline.segment_index(key))]

    def _raise_missing(self, index: int) -> NoReturn:
        bases = self.bases()
        if bases and bases[-1] >= index:
            raise BaseNeeded(f"The segment {index} has expired.", index=bases[-1])
        raise LogCorrupt(f"The segment {index} is missing, though a later one exists.")

    def _linked(self, tip: Tip, data: bytes) -> SegmentHeader:
        header = self._checked(tip.index + 1, data)
        if header.prev_sha256 != tip.sha256:
            raise LogCorrupt(f"The segment {header.index} does not continue the one before it.")
        if header.epoch < tip.epoch:
            raise LogCorrupt(
                f"The segment {header.index} is of epoch {header.epoch}, after {tip.epoch}."
            )
        return header

    def _checked(self, index: int, data: bytes) -> SegmentHeader:
        header = self._codec.header(data)
        if header.pipeline != self._pipeline.pk:
            raise LogCorrupt(f"The segment {index} belongs to pipeline {header.pipeline}.")
        if header.index != index or header.kind is SegmentKind.BASE:
            raise LogCorrupt(f"The object of segment {index} says that it is {header.index}.")
        return header

    def linked(self, tip: Tip, data: bytes) -> SegmentHeader:
        """The header of an object that continues a tip. Raises LogCorrupt when it does not."""
        return self._linked(tip, data)


class SegmentWriter(Generic[P]):
    """Appends under one lease. First `claim` until it gives a Committed, then `append`. One thread.

    Every call may raise Fenced, which is for good, and StoreError, after which `settle` goes on
    with the same segment.
    """

    def __init__(
        self,
        store: ObjectStore,
        log: SegmentLog[P],
        pipeline: PipelineKey,
        codec: SegmentCodec[P],
        clock: Clock,
        guard: Guard,
        *,
        writer: str,
        head: Head,
        patience_s: float = FOREVER_S,
    ) -> None:
        """`patience_s`: how long a call goes on without an answer, before it raises
        StoreUnavailable and leaves the rest to `settle`.
        """
        self._patience_s = patience_s
        self._store = store
        self._log = log
        self._pipeline = pipeline
        self._codec = codec
        self._clock = clock
        self._guard = guard
        self._writer = writer
        self._tip = head.tip
        self._progress = head.progress
        self._pending: tuple[SegmentHeader, bytes] | None = None
        self._is_active = False

    @property
    def is_active(self) -> bool:
        """Whether the fence is in the log, so that `append` may be called."""
        return self._is_active

    @property
    def is_in_doubt(self) -> bool:
        """Whether a segment waits for `settle` (or `claim`)."""
        return self._pending is not None

    @property
    def head(self) -> Head:
        """The last segment that is known to be committed, and the progress there."""
        return Head(self._tip, self._progress)

    def claim(self) -> Committed | Segment:
        """Puts the fence. A Segment is one that was there first: apply it, then claim again.

        Raises:
            Fenced: a higher epoch was there.
            LogCorrupt: what was there is no continuation.
        """
        if self._pending is None:
            self._prepare(SegmentKind.FENCE, None, None, ())
        return self._settle()

    def append(
        self,
        kind: SegmentKind,
        dataset: str,
        payload: P | None,
        delta: DatasetProgress,
        *,
        newest_created_ms: int | None = None,
        at_ms: int | None = None,
        event: str | None = None,
    ) -> Committed:
        """Commits a payload and the progress it brings; returns once it is durable.

        Raises:
            AppendPending: an earlier append has to be settled first.
            Fenced: it may be in the log all the same; it was not acknowledged.
            LogCorrupt: another writer of this or a lower epoch wrote here.
        """
        if not self._is_active:
            raise AppendPending("The log has to be claimed before anything is appended.")
        if self._pending is not None:
            raise AppendPending(f"The segment {self._pending[0].index} is not settled.")
        self._prepare(kind, dataset, payload, (delta,), newest_created_ms, at_ms, event)
        return self.settle()

    def settle(self) -> Committed:
        """Goes on with the append whose outcome is not known. Raises as `append` does."""
        settled = self._settle()
        if isinstance(settled, Segment):
            raise LogCorrupt("A claim is settled by claim().")
        return settled

    def _prepare(
        self,
        kind: SegmentKind,
        dataset: str | None,
        payload: P | None,
        deltas: tuple[DatasetProgress, ...],
        newest_created_ms: int | None = None,
        at_ms: int | None = None,
        event: str | None = None,
    ) -> None:
        self._guard.require(self._guard.epoch)
        index = self._tip.index + 1
        whole = fold(self._progress, deltas)
        is_repeated = kind is SegmentKind.FENCE or index % FULL_EVERY == 0
        header = SegmentHeader(
            pipeline=self._pipeline.pk,
            index=index,
            epoch=self._guard.epoch,
            writer=self._writer,
            prev_sha256=self._tip.sha256,
            kind=kind,
            dataset=dataset,
            progress=deltas,
            whole=tuple(whole.values()) if is_repeated else None,
            newest_created_ms=newest_created_ms,
            at_ms=at_ms,
            event=event,
        )
        self._pending = (header, self._codec.encode(header, payload))

    def _settle(self) -> Committed | Segment:
        if self._pending is None:
            raise AppendPending("There is nothing to settle.")
        header, data = self._pending
        found = self._put(header, data)
        self._guard.require(header.epoch)
        self._pending = None
        if found is not None:
            self._tip = found.tip
            self._progress = continued(self._progress, found.header)
            return found
        self._tip = Tip(header.index, header.epoch, _sha256(data))
        self._progress = continued(self._progress, header)
        self._is_active = True
        return self._tip.committed

    def _put(self, header: SegmentHeader, data: bytes) -> Segment | None:
        """None once our bytes are there; the segment that was there before a claim."""
        key = self._pipeline.segment_key(header.index)
        wait_s = RETRY_FIRST_S
        ends_s = self._clock.monotonic_s() + self._patience_s
        while True:
            self._guard.require(header.epoch)
            try:
                if self._store.put_new(key, data) is PutOutcome.CREATED:
                    return None
                found = self._store.get(key)
            except (StoreUnavailable, StoreThrottled):
                found = None
            if found == data:
                return None
            if found is not None:
                return self._other(header, found)
            if self._clock.monotonic_s() >= ends_s:
                raise StoreUnavailable(f"It is not known yet whether segment {header.index} is in.")
            self._clock.sleep(min(wait_s, self._guard.remaining_s()))
            wait_s = min(2 * wait_s, RETRY_LONGEST_S)

    def _other(self, ours: SegmentHeader, data: bytes) -> Segment:
        try:
            header = self._log.linked(self._tip, data)
        except LogCorrupt as corrupt:
            self._guard.fence(corrupt.message)
            raise
        if header.epoch > ours.epoch:
            self._guard.fence(f"Epoch {header.epoch} has written segment {header.index}.")
            raise Fenced(f"Epoch {header.epoch} has written segment {header.index}.")
        if ours.kind is not SegmentKind.FENCE:
            message = (
                f"Epoch {header.epoch} has written segment {header.index} under epoch {ours.epoch}."
            )
            self._guard.fence(message)
            raise LogCorrupt(message)
        return Segment(header, data)


def continued(progress: Progress, header: SegmentHeader) -> Progress:
    """The progress once a segment is applied."""
    if header.whole is not None:
        return fold(NO_PROGRESS, header.whole)
    return fold(progress, header.progress)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
