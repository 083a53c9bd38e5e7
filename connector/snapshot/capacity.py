"""How fast the snapshot may spend read capacity.

Owns one account of read capacity units that fills at `scan_max_rcu` a second. A Scan page tells
its price only afterwards, so a request reserves what pages cost lately and settles the difference
when it is answered; the next request waits while the account is in debt. Over any stretch of time
the spending is therefore at most the rate times that stretch, plus `BURST_S` of it, plus what the
pages in flight cost more than was expected.

One account serves all segments of a table: who asks next is the scanner's business. Thread-safe;
time is the caller's monotonic clock.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

BURST_S: Final = 1.0  # unspent capacity is kept for this long, as a pause must not become a flood
FIRST_PAGE_RCU: Final = 128.0  # 1 MB read eventually consistent; a consistent page costs twice that
NOTHING_RCU: Final = 1e-6  # what rounding leaves of a debt that has been paid
SMOOTHING: Final = 0.2  # weight of the newest page in what a page is expected to cost


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to send one request, with the units reserved for it."""

    reserved_rcu: float


class ReadCapacity:
    """`max_rcu` units a second; None for no limit."""

    def __init__(self, max_rcu: float | None) -> None:
        if max_rcu is not None and not 0 < max_rcu < float("inf"):
            raise ValueError(f"a read capacity limit of {max_rcu} units a second is no limit")
        self._max_rcu = max_rcu
        self._lock = threading.Lock()
        self._balance_rcu = 0.0
        self._filled_at_s: float | None = None
        self._expected_rcu = FIRST_PAGE_RCU
        self._consumed_rcu = 0.0

    @property
    def consumed_rcu(self) -> float:
        """All units that answered requests have cost so far."""
        return self._consumed_rcu

    def limit(self, max_rcu: float | None) -> None:
        """Another rate from here on; what was spent under the old one is not held against it."""
        with self._lock:
            self._max_rcu = max_rcu
            self._balance_rcu = max(0.0, self._balance_rcu)

    def ask(self, now_s: float) -> Grant | float:
        """A Grant to send one request now, or the time at which to ask again."""
        with self._lock:
            if self._max_rcu is None:
                return Grant(0.0)
            self._fill(now_s, self._max_rcu)
            if self._balance_rcu < -NOTHING_RCU:
                return now_s - self._balance_rcu / self._max_rcu
            self._balance_rcu -= self._expected_rcu
            return Grant(self._expected_rcu)

    def settle(self, grant: Grant, consumed_rcu: float) -> None:
        """Every grant is settled once; 0 for a request that was refused before it read anything."""
        with self._lock:
            self._consumed_rcu += consumed_rcu
            self._balance_rcu += grant.reserved_rcu - consumed_rcu
            if consumed_rcu > 0:
                self._expected_rcu += SMOOTHING * (consumed_rcu - self._expected_rcu)

    def _fill(self, now_s: float, max_rcu: float) -> None:
        filled_at_s = now_s if self._filled_at_s is None else self._filled_at_s
        # Threads bring their own reading of the clock: an older one fills nothing, twice nothing.
        self._filled_at_s = max(now_s, filled_at_s)
        gained_rcu = (self._filled_at_s - filled_at_s) * max_rcu
        self._balance_rcu = min(self._balance_rcu + gained_rcu, max_rcu * BURST_S)
