"""The items of a table, in the order in which a Scan meets them.

Owns lookup by key, the scan order (hash of the partition key, then sort key) and its segments. Must
not know attributes, streams or requests. Not safe for threads: the caller holds a lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any

from emulator.images import HASH_SPACE, Image, hash_point

# Each bucket is a sorted list of its own, so that an insert moves few entries: at 1M partitions a
# bucket holds about 250.
_BUCKET_BITS = 12
_BUCKETS = 1 << _BUCKET_BITS

ItemKey = tuple[bytes, Any] | tuple[bytes]
"""The digest of the partition key and, where the table has one, the position of the sort key."""


class ItemStore:
    """Images by key; every walk is in scan order and resumes at a key in logarithmic time."""

    def __init__(self) -> None:
        self._images: dict[ItemKey, Image] = {}
        self._buckets: list[list[ItemKey]] = [[] for _ in range(_BUCKETS)]

    def __len__(self) -> int:
        return len(self._images)

    def get(self, key: ItemKey) -> Image | None:
        return self._images.get(key)

    def put(self, key: ItemKey, image: Image) -> Image | None:
        """Stores an image; returns the one that it replaced."""
        old = self._images.get(key)
        if old is None:
            insort(self._bucket(key), key)
        self._images[key] = image
        return old

    def remove(self, key: ItemKey) -> Image | None:
        """Removes an image; returns it."""
        old = self._images.pop(key, None)
        if old is not None:
            bucket = self._bucket(key)
            del bucket[bisect_left(bucket, key)]
        return old

    def walk(
        self, after: ItemKey | None = None, segment: int = 0, total_segments: int = 1
    ) -> Iterator[tuple[ItemKey, Image]]:
        """The items of a segment in scan order, from the one after a key."""
        low, high = segment_bounds(segment, total_segments)
        images = self._images
        start = low if after is None else max(low, hash_point(after[0]))
        shift = 64 - _BUCKET_BITS
        for number in range(start >> shift, ((high - 1) >> shift) + 1):
            bucket = self._buckets[number]
            position = 0
            if bucket and after is not None and number == start >> shift:
                position = bisect_right(bucket, after)
            for key in bucket[position:] if position else bucket:
                if total_segments > 1 and not low <= hash_point(key[0]) < high:
                    continue
                yield key, images[key]

    def partition(self, digest: bytes) -> Iterator[tuple[ItemKey, Image]]:
        """The items of one partition key, by sort key."""
        bucket = self._bucket((digest,))
        for key in bucket[bisect_left(bucket, (digest,)) :]:
            if key[0] != digest:
                return
            yield key, self._images[key]

    def _bucket(self, key: ItemKey) -> list[ItemKey]:
        return self._buckets[hash_point(key[0]) >> (64 - _BUCKET_BITS)]


def segment_bounds(segment: int, total_segments: int) -> tuple[int, int]:
    """The hash points of a scan segment: from the first, up to but without the second."""
    return (
        HASH_SPACE * segment // total_segments,
        HASH_SPACE * (segment + 1) // total_segments,
    )
