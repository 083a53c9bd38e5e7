"""The one writer: takes what the readers queued and makes it rows.

Owns the group commit. A group is all that one dataset has queued when its turn comes, stream
batches before scan batches: small and quick when the stream is quiet, large when it is behind. A
group that fails stays in hand and is tried again until it commits, so a full disk or a query that
exhausted the memory delays changes and loses none. Knows no AWS and no shards.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from accelerator.batch import Batch
from accelerator.errors import (
    AcceleratorError,
    DatabaseClosed,
    DatabaseInvalidated,
    OutOfMemory,
)
from accelerator.outcome import Applied
from connector.clock import Clock
from connector.retry import BACKOFF, Backoff

GROUP_BYTES: Final = 64 * 1024 * 1024
GROUP_BATCHES: Final = 64

MEMORY_PER_BYTE: Final = 25
"""What applying holds for each byte of a group, where its attributes are not columns yet: from 12
to 27 for texts of 3 kB to 180 kB, a tenth of it being the rows themselves."""

MEMORY_BACKOFF: Final = Backoff(cap_s=1.0)
"""While the writer waits for memory queries are stopped, so it must not wait long."""

log = structlog.get_logger(__name__)


class Lane(Protocol):
    """One dataset as the applier sees it: where groups come from and where they go."""

    name: str

    def take(self, most_bytes: int, most_batches: int) -> list[Batch]:
        """The next batches in the order they must be applied; empty when there is nothing."""

    def apply(self, group: Sequence[Batch]) -> Applied:
        """One transaction. Raises AcceleratorError; nothing of the group is applied then."""

    def committed(self, group: Sequence[Batch], applied: Applied) -> None: ...

    def refused(self, group: Sequence[Batch], error: AcceleratorError) -> bool:
        """Told of every refusal. True: the group is not to be tried again; it will be read anew."""


def group_bytes_within(memory_limit_bytes: int) -> int:
    """How large a group may be so that it fits in the memory of the database at the first try."""
    return min(GROUP_BYTES, memory_limit_bytes // MEMORY_PER_BYTE)


@dataclass(slots=True)
class Held:
    """Batches in hand: not applied yet, or refused and waiting for the next try.

    `most` is how many go into one transaction; it halves when memory runs out.
    """

    batches: list[Batch]
    most: int
    attempts: int = 0
    due_s: float = 0.0
    error: AcceleratorError | None = None


@dataclass(frozen=True, slots=True)
class ApplyFault:
    lane: str
    error: AcceleratorError
    attempts: int


class Applier:
    """Applies the lanes' groups in turn. `step` belongs to the writer thread.

    writing   the lock of the writer: whoever else writes to the file (begin, swap, beat) holds it
    reopen    called under the lock after DuckDB invalidated the database
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        writing: threading.RLock,
        reopen: Callable[[], None],
        clock: Clock,
        *,
        backoff: Backoff = BACKOFF,
        draw: Callable[[], float] = random.random,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._lanes = list(lanes)
        self._writing = writing
        self._reopen = reopen
        self._clock = clock
        self._backoff = backoff
        self._draw = draw
        self._group_bytes = group_bytes
        self._held: dict[str, Held] = {}

    def faults(self) -> tuple[ApplyFault, ...]:
        """What is being tried again, for the health monitor."""
        return tuple(
            ApplyFault(lane, held.error, held.attempts)
            for lane, held in list(self._held.items())
            if held.error is not None
        )

    @property
    def is_starving(self) -> bool:
        """Whether a group waits for memory."""
        return any(isinstance(fault.error, OutOfMemory) for fault in self.faults())

    def holds(self, lane: str) -> bool:
        """Whether a group of this lane is taken from its queue and not committed yet."""
        return lane in self._held

    def step(self, now_s: float) -> float | None:
        """One group of each lane that has one; when to call again. None: when something comes."""
        next_due_s: float | None = None
        for lane in self._lanes:
            due_s = self._serve(lane, now_s)
            if due_s is not None and (next_due_s is None or due_s < next_due_s):
                next_due_s = due_s
        return next_due_s

    def _serve(self, lane: Lane, now_s: float) -> float | None:
        held = self._held.get(lane.name)
        if held is not None and held.due_s > now_s:
            return held.due_s
        with self._writing:
            if held is None:
                batches = lane.take(self._group_bytes, GROUP_BATCHES)
                if not batches:
                    return None
                held = self._held[lane.name] = Held(batches, len(batches))
            group = held.batches[: held.most]
            try:
                applied = lane.apply(group)
            except (DatabaseInvalidated, DatabaseClosed) as error:
                return self._refused(lane, held, self._reopened(error))
            except AcceleratorError as error:
                return self._refused(lane, held, error)
            lane.committed(group, applied)
            del held.batches[: held.most]
            held.attempts, held.error = 0, None
            if not held.batches:
                del self._held[lane.name]
        return now_s

    def _reopened(self, error: AcceleratorError) -> AcceleratorError:
        """Opens the file again; what stands in the way of that says more than that it is needed."""
        try:
            self._reopen()
        except AcceleratorError as obstacle:
            return obstacle
        return error

    def _refused(self, lane: Lane, held: Held, error: AcceleratorError) -> float:
        if lane.refused(held.batches, error):
            del self._held[lane.name]
            return self._clock.monotonic_s()
        held.attempts += 1
        held.error = error
        backoff = self._backoff
        if isinstance(error, OutOfMemory):
            held.most = max(1, held.most // 2)
            backoff = MEMORY_BACKOFF
        wait_s = backoff.delay_s(held.attempts - 1, self._draw())
        held.due_s = self._clock.monotonic_s() + wait_s
        log.warning(
            "a group was not applied and is tried again",
            dataset=lane.name,
            error=str(error),
            hint=error.hint,
            attempts=held.attempts,
            wait_s=round(wait_s, 3),
        )
        return held.due_s
