"""One time line for both sides: the emulator's clock and the service's monotonic one.

A host that is suspended sees no time pass on its monotonic clock while AWS's goes on; that is the
only way the two come apart.
"""

from __future__ import annotations

from emulator import ManualClock

START_S = 1_750_000_000.0


class VirtualTime:
    """Moves when it is told to. `aws` is the emulator's clock."""

    def __init__(self, start_s: float = START_S) -> None:
        self.aws = ManualClock(start_s)
        self._now_s = 1000.0

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        self.aws.advance(seconds)

    def suspend_host(self, seconds: float) -> None:
        """AWS goes on, this host does not notice."""
        self.aws.advance(seconds)

    def aws_ms(self) -> float:
        return self.aws.now_s() * 1000
