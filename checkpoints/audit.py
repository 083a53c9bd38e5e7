"""Whether a log holds: every object read once, everything that is wrong with it named.

Owns the walk through all segments and bases of a pipeline and the rules that a reader relies on:
contiguous indexes, the chain of hashes, epochs that never fall, headers that say what their key
says, progress that follows from the segments before. `SegmentLog` stops at the first fault; this
goes on. Must not know how payloads are encoded: `look` is told of each and raises LogCorrupt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoints.errors import LogCorrupt
from checkpoints.keys import PipelineKey
from checkpoints.object_store import ObjectStore
from checkpoints.progress import NO_PROGRESS, Progress
from checkpoints.segment import GENESIS_SHA256, SegmentCodec, SegmentHeader, SegmentKind
from checkpoints.segment_log import LIST_PAGE, continued

Look = Callable[[SegmentHeader, bytes], None]
"""Whether the payload can be read. Raises LogCorrupt, StoreError."""

OnRead = Callable[[int, int], None]
"""Objects read so far, and how many there are."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one object, or with its absence, in a sentence."""

    key: str
    sentence: str


@dataclass(slots=True)
class Audit:
    """What was found. `restorable_from`: from this index on, each point up to the end can be had
    again; None when none can.
    """

    segments: int = 0
    first: int | None = None
    last: int | None = None
    epoch: int | None = None
    nbytes: int = 0
    bases: list[int] = field(default_factory=list)
    restorable_from: int | None = None
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.faults


@dataclass(frozen=True, slots=True)
class _Link:
    """What the next segment has to fit: None of the progress where its beginning is not known."""

    index: int
    sha256: str | None
    epoch: int
    progress: Progress | None


class LogAudit:
    """Of one pipeline. Reads only. For one use."""

    def __init__(
        self,
        store: ObjectStore,
        pipeline: PipelineKey,
        codec: SegmentCodec[Any],
        *,
        look: Look = lambda _header, _data: None,
        on_read: OnRead = lambda _done, _all: None,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._codec = codec
        self._look = look
        self._on_read = on_read
        self._hashes: dict[int, str] = {}
        self._last_fault = 0
        self._faulty_bases: set[int] = set()
        self._audit = Audit()

    def run(self) -> Audit:
        """Reads the whole log once. Raises StoreError when an object cannot be fetched."""
        audit = self._audit
        audit.bases = sorted(self._indexes(self._pipeline.bases_prefix, self._pipeline.base_index))
        indexes = sorted(
            self._indexes(self._pipeline.segments_prefix, self._pipeline.segment_index)
        )
        objects = len(indexes) + len(audit.bases)
        bases = set(audit.bases)
        link: _Link | None = None
        for done, index in enumerate(indexes, 1):
            if link is None:
                link = self._beginning(index)
            self._missing(link.index + 1, index)
            link = self._segment(index, link)
            if index not in bases:
                del self._hashes[index]
            self._on_read(done, objects)
        audit.segments = len(indexes)
        audit.first, audit.last = (indexes[0], indexes[-1]) if indexes else (None, None)
        audit.epoch = None if link is None else link.epoch
        for done, index in enumerate(audit.bases, len(indexes) + 1):
            self._base(index)
            self._on_read(done, objects)
        self._judge_beginning()
        return audit

    def _indexes(self, prefix: str, index_of: Callable[[str], int | None]) -> Iterator[int]:
        last_key: str | None = None
        while True:
            keys = self._store.list_after(prefix, last_key, LIST_PAGE)
            for key in keys:
                index = index_of(key)
                if index is None:
                    self._fault(key, "Its name is none of a segment or a base.")
                else:
                    yield index
            if len(keys) < LIST_PAGE:
                return
            last_key = keys[-1]

    def _beginning(self, first: int) -> _Link:
        if first == 1:
            return _Link(0, GENESIS_SHA256, 0, NO_PROGRESS)
        return _Link(first - 1, None, 0, None)

    def _missing(self, wanted: int, found: int) -> None:
        if wanted == found:
            return
        last = found - 1
        which = f"Segment {wanted} is" if wanted == last else f"Segments {wanted} to {last} are"
        self._fault(self._pipeline.segment_key(wanted), f"{which} missing below {found}.")
        self._last_fault = max(self._last_fault, last)

    def _segment(self, index: int, before: _Link) -> _Link:
        key = self._pipeline.segment_key(index)
        data = self._store.get(key)
        if data is None:
            self._fault(key, "It was listed, and is gone.")
            return _Link(index, None, before.epoch, None)
        sha256 = self._hashes[index] = hashlib.sha256(data).hexdigest()
        self._audit.nbytes += len(data)
        try:
            header = self._codec.header(data)
            self._look(header, data)
        except LogCorrupt as corrupt:
            self._fault(key, corrupt.message)
            return _Link(index, sha256, before.epoch, None)
        is_next = before.index == index - 1
        for wrong in self._wrongs(header, index, before, is_next=is_next):
            self._fault(key, wrong)
        known = before.progress if is_next else None
        return _Link(
            index, sha256, max(before.epoch, header.epoch), self._progress(key, header, known)
        )

    def _wrongs(
        self, header: SegmentHeader, index: int, before: _Link, *, is_next: bool
    ) -> Iterator[str]:
        if header.pipeline != self._pipeline.pk:
            yield f"It belongs to pipeline {header.pipeline}."
        if header.index != index or header.kind is SegmentKind.BASE:
            yield f"It says that it is {header.kind.value} {header.index}."
        if header.epoch < before.epoch:
            yield f"Its epoch is {header.epoch}, after {before.epoch}."
        if is_next and before.sha256 is not None and header.prev_sha256 != before.sha256:
            yield "It does not name the hash of the segment before it."

    def _progress(self, key: str, header: SegmentHeader, known: Progress | None) -> Progress | None:
        """The progress after it; the whole that it may repeat must not contradict the rest."""
        if header.whole is None:
            return None if known is None else continued(known, header)
        whole = continued(NO_PROGRESS, header)
        if known is not None:
            followed = continued(known, replace(header, whole=None))
            for name in sorted(_contradictions(followed, whole)):
                self._fault(key, f"The positions of {name} that it repeats are not the segments'.")
        return whole

    def _base(self, index: int) -> None:
        key = self._pipeline.base_key(index)
        data = self._store.get(key)
        if data is None:
            self._fault(key, "It was listed, and is gone.")
            return
        self._audit.nbytes += len(data)
        try:
            header = self._codec.header(data)
            self._look(header, data)
        except LogCorrupt as corrupt:
            self._fault(key, corrupt.message)
            return
        if header.pipeline != self._pipeline.pk:
            self._fault(key, f"It belongs to pipeline {header.pipeline}.")
        if header.index != index or header.kind is not SegmentKind.BASE:
            self._fault(key, f"It says that it is {header.kind.value} {header.index}.")
        if self._hashes.get(index, header.prev_sha256) != header.prev_sha256:
            self._fault(key, "It is not a base of the segment that has its index.")

    def _judge_beginning(self) -> None:
        """Replay begins with the first segment or with a base, and gets past no fault."""
        audit = self._audit
        first = audit.first
        reaching = [] if first is None else [at for at in audit.bases if at >= first - 1]
        if first is not None and first > 1 and not reaching:
            self._fault(
                self._pipeline.segment_key(first),
                f"Segments before {first} are gone, and no base takes their place.",
            )
        sound = [index for index in audit.bases if index not in self._faulty_bases]
        beginnings = ([1] if first == 1 else []) + sound
        least = 1 if first is None else max(first - 1, self._last_fault, 1)
        audit.restorable_from = next((at for at in beginnings if at >= least), None)

    def _fault(self, key: str, sentence: str) -> None:
        self._audit.faults.append(Fault(key, sentence))
        self._last_fault = max(self._last_fault, self._pipeline.segment_index(key) or 0)
        if (base := self._pipeline.base_index(key)) is not None:
            self._faulty_bases.add(base)


def _contradictions(followed: Progress, whole: Progress) -> set[str]:
    """Datasets of which the two say another position of one shard, in one set of positions."""
    found = set()
    for name, one in followed.items():
        other = whole.get(name)
        if other is None or other.generation != one.generation:
            continue  # a set of positions that was given up is not in the whole any more
        positions = {shard.shard_id: shard.position for shard in other.shards}
        if any(positions.get(s.shard_id, s.position) != s.position for s in one.shards):
            found.add(name)
    return found
