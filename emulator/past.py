"""What a table held a moment ago: for reads that are only eventually consistent.

Owns the images that newer writes have replaced, for as long as a read may still see them. Must not
know requests. Not safe for threads: the caller holds a lock.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from emulator.images import Image, hash_point
from emulator.storage import ItemKey, ItemStore, segment_bounds

_WRITTEN = attrgetter("written_s")


@dataclass(frozen=True, slots=True)
class Replaced:
    """The image that a write replaced; None where there was none."""

    written_s: float
    key: ItemKey
    image: Image | None


class Past:
    """The replaced images of one table, oldest first."""

    def __init__(self) -> None:
        self._replaced: deque[Replaced] = deque()

    def __len__(self) -> int:
        return len(self._replaced)

    def remember(self, key: ItemKey, old: Image | None, now_s: float, kept_s: float) -> None:
        """Keeps what a write replaced, for `kept_s` seconds."""
        while self._replaced and self._replaced[0].written_s < now_s - kept_s:
            self._replaced.popleft()
        if kept_s > 0:
            self._replaced.append(Replaced(now_s, key, old))

    def since(self, time_s: float) -> dict[ItemKey, Image | None]:
        """The keys written after a time, and what each held at that time."""
        first = bisect_left(self._replaced, time_s, key=_WRITTEN)
        held: dict[ItemKey, Image | None] = {}
        for number in range(first, len(self._replaced)):
            entry = self._replaced[number]
            held.setdefault(entry.key, entry.image)
        return held


def walk_as_of(
    store: ItemStore,
    held: dict[ItemKey, Image | None],
    after: ItemKey | None,
    segment: int,
    total_segments: int,
) -> Iterator[tuple[ItemKey, Image]]:
    """A walk over a table as it was when it held these images, in scan order."""
    low, high = segment_bounds(segment, total_segments)
    unchanged = (
        entry for entry in store.walk(after, segment, total_segments) if entry[0] not in held
    )
    changed = [
        (key, image)
        for key, image in held.items()
        if image is not None and low <= hash_point(key[0]) < high and (after is None or key > after)
    ]
    changed.sort(key=_key)
    return heapq.merge(unchanged, changed, key=_key)


def _key(entry: tuple[ItemKey, Image]) -> ItemKey:
    return entry[0]
