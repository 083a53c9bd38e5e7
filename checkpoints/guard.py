"""Permission to write durably, as one object that is asked before and after each such write.

Owns the deadline of a lease on this host and the one-way switch to fenced. Must not know how a
lease is renewed or what is written. Once fenced it stays so: a new election makes a new guard.
"""

from __future__ import annotations

import threading

from checkpoints.clock import Monotonic
from checkpoints.errors import Fenced


def deadline_after(
    deadline_s: float, *, started_s: float, replied_s: float, valid_s: float
) -> float:
    """The deadline once a renewal that was sent at `started_s` is answered at `replied_s`.

    It runs from the moment the request started, since another node may have seen the renewed row
    from then on. An answer that comes after the deadline changes nothing: what has expired stays
    so. The late answer to an older request may shorten the deadline, never lengthen it.
    """
    if replied_s >= deadline_s:
        return deadline_s
    return started_s + valid_s


class Guard:
    """Whether the holder of `epoch` may still write. Thread-safe: another thread renews."""

    def __init__(self, clock: Monotonic, *, epoch: int, deadline_s: float) -> None:
        self.epoch = epoch
        self._clock = clock
        self._lock = threading.Lock()
        self._deadline_s = deadline_s
        self._reason: str | None = None

    def require(self, epoch: int) -> None:
        """Returns if `epoch` holds the lease now.

        Raises:
            Fenced: it does not, and will not again.
        """
        with self._lock:
            if epoch != self.epoch:
                raise Fenced(f"The lease is held under epoch {self.epoch}, not {epoch}.")
            if self._reason is None and self._clock.monotonic_s() >= self._deadline_s:
                self._reason = f"The lease of epoch {self.epoch} was not renewed in time."
            if self._reason is not None:
                raise Fenced(self._reason)

    def renewed(self, *, started_s: float, replied_s: float, valid_s: float) -> None:
        """Moves the deadline after a renewal that was granted."""
        with self._lock:
            self._deadline_s = deadline_after(
                self._deadline_s, started_s=started_s, replied_s=replied_s, valid_s=valid_s
            )

    def fence(self, reason: str) -> None:
        """Ends the permission; the first reason is kept."""
        with self._lock:
            self._reason = self._reason or reason

    def is_fenced(self) -> bool:
        return self.fenced_by() is not None

    def fenced_by(self) -> str | None:
        """Why, in a sentence; None while writing is allowed."""
        try:
            self.require(self.epoch)
        except Fenced as fenced:
            return fenced.message
        return None

    def remaining_s(self) -> float:
        """How long the permission lasts without another renewal; 0 when fenced."""
        with self._lock:
            if self._reason is not None:
                return 0.0
            return max(0.0, self._deadline_s - self._clock.monotonic_s())
