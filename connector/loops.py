"""Threads that only call `step`.

Owns the supervised thread around a step function and the bell that cuts its waits short. Knows
nothing of what a step does. A step answers when it wants to be called again: a monotonic time in
seconds, or None to wait for the bell. An exception out of a step is a defect or a resource that
ran out: it is kept for the health monitor, and the step is called again after a back-off, for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from connector.clock import Clock

Step = Callable[[float], float | None]

LONGEST_WAIT_S = 1.0  # a bell that was missed costs at most this
CRASH_BACKOFF_S = (0.1, 0.5, 2.0, 5.0)

log = structlog.get_logger(__name__)


class Bell:
    """Wakes whoever waits. A ring between two waits is not lost. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._rings = 0

    @property
    def rings(self) -> int:
        return self._rings

    def ring(self) -> None:
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def wait(self, heard: int, timeout_s: float) -> int:
        """Returns at once if it rang after `heard`, else at the next ring or after `timeout_s`."""
        with self._condition:
            if self._rings == heard and timeout_s > 0:
                self._condition.wait(timeout_s)
            return self._rings


@dataclass(frozen=True, slots=True)
class Crash:
    loop: str
    error: BaseException
    in_a_row: int


class Loop:
    """One named thread that calls one step until stopped. `crash` is None while steps succeed."""

    def __init__(self, name: str, step: Step, bell: Bell, clock: Clock) -> None:
        self.name = name
        self.crash: Crash | None = None
        self._step = step
        self._bell = bell
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Asks only; `join` waits for the step in flight."""
        self._stopping.set()
        self._bell.ring()

    def join(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        heard = self._bell.rings
        while not self._stopping.is_set():
            now_s = self._clock.monotonic_s()
            try:
                due_s = self._step(now_s)
                self.crash = None
            except Exception as error:
                in_a_row = self.crash.in_a_row + 1 if self.crash else 1
                self.crash = Crash(self.name, error, in_a_row)
                log.exception("a loop failed and goes on", loop=self.name, error=error)
                due_s = now_s + CRASH_BACKOFF_S[min(in_a_row, len(CRASH_BACKOFF_S)) - 1]
                self._stopping.wait(due_s - now_s)
            wait_s = LONGEST_WAIT_S if due_s is None else due_s - self._clock.monotonic_s()
            heard = self._bell.wait(heard, min(wait_s, LONGEST_WAIT_S))
