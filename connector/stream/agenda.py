"""Who is due next: keys with times, taken in the order in which they became due.

Owns the heap. Knows nothing of what a key stands for, nor any clock. Each call costs O(log n).
"""

from __future__ import annotations

import heapq


class Agenda:
    """Each key waits at most once; what is put later at the same time is taken later."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._puts = 0

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: str, due_s: float) -> None:
        """Makes a key wait until `due_s`, instead of whenever it waited for."""
        self._puts += 1
        self._entries[key] = (due_s, self._puts)
        heapq.heappush(self._heap, (due_s, self._puts, key))

    def drop(self, key: str) -> None:
        self._entries.pop(key, None)

    def take(self, now_s: float) -> str | None:
        """The key that has been due longest, which waits no more."""
        due_s = self.next_s
        if due_s is None or due_s > now_s:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._entries[key]
        return key

    @property
    def next_s(self) -> float | None:
        """When the first key is due, None when none waits."""
        while self._heap:
            due_s, put, key = self._heap[0]
            if self._entries.get(key) == (due_s, put):
                return due_s
            heapq.heappop(self._heap)
        return None
