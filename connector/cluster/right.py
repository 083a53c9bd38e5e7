"""The right to write to a log: by a lease where nodes compete, else by the fence alone.

Owns the two ways to get a guard and to give it back. Must not know what is written under it.
"""

from __future__ import annotations

from typing import Protocol

from checkpoints.clock import Monotonic
from checkpoints.guard import Guard
from checkpoints.lease import Candidate, HeldLease, LeaseStore, LeaseTimes
from checkpoints.segment_log import Tip

ALWAYS_S = float("inf")


class Right(Protocol):
    """Thread-safe where two threads are named."""

    def ask(self, tip: Tip) -> Guard | float:
        """A guard, or when to ask again (monotonic seconds). The node's thread."""

    def must_have_log(self) -> bool:
        """Whether the guard in hand says that a log exists."""

    def confirm(self) -> None:
        """The log is claimed: from here on one must exist. Raises Fenced, StoreError."""

    def keep(self, now_s: float) -> float | None:
        """Renews what is held; when to call again. A thread of its own."""

    def give_back(self) -> None:
        """So that another node need not wait. Raises StoreError."""


class FenceRight:
    """wal_storage s3: whoever starts writes, under the epoch after the log's last.

    A process that wrote before meets the fence at its next segment and stops.
    """

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock

    def ask(self, tip: Tip) -> Guard | float:
        return Guard(self._clock, epoch=tip.epoch + 1, deadline_s=ALWAYS_S)

    def must_have_log(self) -> bool:
        return False

    def confirm(self) -> None:
        return None

    def keep(self, now_s: float) -> float | None:  # noqa: ARG002
        return None

    def give_back(self) -> None:
        return None


class LeaseRight:
    """wal_storage clustered: the lease in the offset table."""

    def __init__(self, leases: LeaseStore, node: str, clock: Monotonic, times: LeaseTimes) -> None:
        self._leases = leases
        self._node = node
        self._clock = clock
        self._times = times
        self._candidate = Candidate(leases, node, clock, times)
        self._held: HeldLease | None = None

    def ask(self, tip: Tip) -> Guard | float:  # noqa: ARG002
        held = self._held
        if held is not None and not held.guard.is_fenced():
            return held.guard
        if held is not None:
            self._held = None
            self._candidate = Candidate(self._leases, self._node, self._clock, self._times)
        found = self._candidate.step()
        if not isinstance(found, HeldLease):
            return found
        self._held = found
        return found.guard

    def must_have_log(self) -> bool:
        return self._held is not None and self._held.row.is_initialized

    def confirm(self) -> None:
        if self._held is not None and not self._held.row.is_initialized:
            self._held.mark_initialized()

    def keep(self, now_s: float) -> float | None:
        held = self._held
        if held is None:
            return now_s + self._times.retry_s
        due_s = held.step()
        return now_s + self._times.retry_s if due_s is None else due_s

    def give_back(self) -> None:
        held, self._held = self._held, None
        if held is not None and not held.guard.is_fenced():
            held.release()
