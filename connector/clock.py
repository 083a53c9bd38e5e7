"""Time as the service may see it.

Two clocks, never mixed. The host's monotonic clock paces loops and back-off. AWS time, learnt from
the `Date` header of responses and carried forward by the monotonic clock, decides everything that
compares with record times or retention. The host's wall clock decides nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start, never going back."""

    def sleep(self, seconds: float) -> None:
        """Returns after `seconds`, or earlier when the clock is woken or stopped."""


class SystemClock:
    """The host's monotonic clock. `wake` cuts every sleep short; thread-safe."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def wake(self) -> None:
        self._woken.set()


class AwsTime:
    """AWS time in ms, estimated between responses. Thread-safe; never goes back.

    The `Date` header has whole seconds and was true when the answer left, so the estimate lags
    the real AWS time by up to a second plus the way: it never claims a time not yet reached.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._date_ms: int | None = None
        self._seen_s = 0.0
        self._floor_ms = 0

    def observe(self, date_ms: int) -> None:
        with self._lock:
            elapsed_ms = int((self._clock.monotonic_s() - self._seen_s) * 1000)
            if self._date_ms is None or date_ms > self._date_ms + elapsed_ms:
                self._date_ms, self._seen_s = date_ms, self._clock.monotonic_s()

    def now_ms(self) -> int | None:
        """None before the first response."""
        with self._lock:
            if self._date_ms is None:
                return None
            elapsed_ms = int((self._clock.monotonic_s() - self._seen_s) * 1000)
            self._floor_ms = max(self._floor_ms, self._date_ms + elapsed_ms)
            return self._floor_ms
