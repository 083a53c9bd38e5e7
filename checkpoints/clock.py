"""Time as permission may see it: how much has passed on this host, and nothing else.

No protocol here compares clocks of two hosts, and none reads the time of day.
"""

from __future__ import annotations

from typing import Protocol


class Monotonic(Protocol):
    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start, never going back; they pass while we are stopped."""


class Clock(Monotonic, Protocol):
    def sleep(self, seconds: float) -> None:
        """Returns after `seconds`, or earlier when woken."""
