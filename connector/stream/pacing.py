"""When a shard is polled again.

Owns the trade between latency and calls. Pure: what the last answer was in, seconds out. Must not
know which shard it is, nor any clock.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from connector.retry import BACKOFF, Backoff

LONGEST_IDLE_S: Final = 30.0  # well within the 15 minutes that an iterator lives
CLOSED_DOUBLINGS: Final = 3  # a closed shard is drained, not watched
LONGEST_ASK_S: Final = 30.0
LEAST_CAUTION_S: Final = 0.05
MOST_CAUTION_S: Final = 1.0
SHARED_FROM_S: Final = 0.5
SHARED_GRAIN_S: Final = 1 / 16  # a power of two: whole and half seconds stay what they are
CAUTION_KEPT: Final = 0.9  # of it after each good page: forgotten within a few seconds


@dataclass(frozen=True, slots=True)
class Pacing:
    """A page that leaves more to read is followed at once; empty ones double the wait.

    floor_s       `scan_interval`: the least time between polls of a shard that has been drained
    idle_s        `ready_lag`: the longest wait between polls of an idle shard
    tail_s        the first wait after a page that left nothing
    hurry_s       the longest wait while a proof is waited for: three empty pages make one
    calls_per_s   what tailing may cost over all shards: with many, the waits begin longer
    draw          uniform in [0, 1), for the jitter after failures
    """

    floor_s: float = 0.0
    idle_s: float = 2.0
    tail_s: float = 0.02
    hurry_s: float = 0.25
    calls_per_s: float = 500.0
    backoff: Backoff = BACKOFF
    draw: Callable[[], float] = random.random

    @property
    def longest_s(self) -> float:
        return max(self.floor_s, min(self.idle_s, LONGEST_IDLE_S))

    def after_page(
        self, *, more: bool, empties: int, is_closed: bool, shards: int, hurries: bool = False
    ) -> float:
        """The wait after a good page; `more` says that it certainly left something to read.

        `hurries`: something waits for the proof that this shard has been read up to a time.
        """
        if more:
            return 0.0
        doublings = min(max(empties - 1, 0), CLOSED_DOUBLINGS if is_closed else 30)
        share_s = shards / self.calls_per_s
        wait_s = max(self.tail_s, share_s) * 2.0**doublings
        if hurries:
            wait_s = min(wait_s, max(self.hurry_s, share_s))
        return max(self.floor_s, min(wait_s, self.longest_s))

    def due_s(self, now_s: float, wait_s: float) -> float:
        """When the wait is over. Long ones end together, up to a sixteenth of a second later.

        All pollers wake for the shard that is due next, and all but one in vain: with 1,000 idle
        shards that is 500 times a second, unless many are due at once.
        """
        due_s = now_s + wait_s
        if wait_s < SHARED_FROM_S:
            return due_s
        return math.ceil(due_s / SHARED_GRAIN_S) * SHARED_GRAIN_S

    def caution_s(self, before_s: float, *, is_throttled: bool) -> float:
        """The least wait between polls of a shard that was throttled; it fades with good pages.

        A shard has at most two readers, of which the other may be somebody else's: polling on at
        full speed after each refusal would be refused again.
        """
        if is_throttled:
            return min(MOST_CAUTION_S, max(LEAST_CAUTION_S, 2 * before_s))
        faded_s = CAUTION_KEPT * before_s
        return faded_s if faded_s >= LEAST_CAUTION_S / 10 else 0.0

    def after_failure(self, failures: int) -> float:
        """The wait after the last of `failures` in a row, at least 1."""
        return self.backoff.delay_s(failures - 1, self.draw())

    def before_asking_again(self, asked: int) -> float:
        """The wait before a closed shard without a known child is asked about again."""
        return min(LONGEST_ASK_S, 0.5 * 2.0 ** min(asked, 10))
