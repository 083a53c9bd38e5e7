"""What is read and not yet applied: two bounded queues of batches for one dataset.

Stream batches and scan batches wait apart, so that a snapshot never holds up the stream: the
applier takes all stream batches first. Bounds are in bytes. An empty queue takes a batch of any
size, so that one huge page cannot block for ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from accelerator.batch import Batch

EMPTY_BATCH_BYTES = 512  # positions alone are not free either


class BatchQueue:
    """A bounded FIFO between readers and the applier. Thread-safe; `offer` never blocks.

    Producers ask `has_room` before they read, so a queue holds at most its bound and one page for
    each poller.
    """

    def __init__(self, bound_bytes: int, on_offer: Callable[[], None]) -> None:
        self._bound_bytes = bound_bytes
        self._on_offer = on_offer
        self._lock = threading.Lock()
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._drop: Callable[[Batch], None] | None = None

    def has_room(self) -> bool:
        return self._bytes < self._bound_bytes

    def offer(self, batch: Batch) -> None:
        with self._lock:
            drop = self._drop
            if drop is None:
                self._batches.append(batch)
                self._bytes += batch.nbytes + EMPTY_BATCH_BYTES
        if drop is None:
            self._on_offer()
        else:
            drop(batch)

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        """The oldest batches, at least one if there is any, up to about `most_bytes`."""
        taken: list[Batch] = []
        taken_bytes = 0
        with self._lock:
            while self._batches and len(taken) < most_batches:
                size = self._batches[0].nbytes + EMPTY_BATCH_BYTES
                if taken and taken_bytes + size > most_bytes:
                    break
                taken.append(self._batches.popleft())
                taken_bytes += size
            self._bytes -= taken_bytes
        return taken

    def abandon(self, drop: Callable[[Batch], None]) -> None:
        """Hands what is queued, and whatever a producer in flight still offers, to `drop`."""
        with self._lock:
            dropped = list(self._batches)
            self._batches.clear()
            self._bytes = 0
            self._drop = drop
        for batch in dropped:
            drop(batch)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def nbytes(self) -> int:
        return self._bytes
