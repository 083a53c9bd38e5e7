"""Queries that take the memory are stopped before the writer starves.

Owns the decision and nothing else: DuckDB has one memory limit for all, and none for a query. Knows
neither what a query asks nor what the writer applies. One thread calls `step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from accelerator.errors import AcceleratorError, OutOfMemory

WORKING_SHARE: Final = 0.7
"""Of memory_limit: what statements may hold together, beyond what DuckDB can let go."""

ENDS_WITHIN_S: Final = 0.3
"""Most queries that are stopped have given their memory back by then."""

log = structlog.get_logger(__name__)


class Memory(Protocol):
    """`accelerator.database.Database`."""

    memory_limit_bytes: int

    def working_bytes(self) -> int: ...


class Sheddable(Protocol):
    """`accelerator.query.QueryRunner`."""

    @property
    def running(self) -> int: ...

    def shed(self) -> bool: ...


class MemoryWatch:
    """Stops one query at a time, the one that has run longest, and lets it end before the next.

    is_starving   whether the writer was refused memory and waits for some. What the queries hold
                  may be less than their share then, and still more than leaves enough.
    """

    def __init__(self, memory: Memory, queries: Sheddable, is_starving: Callable[[], bool]) -> None:
        self._memory = memory
        self._queries = queries
        self._is_starving = is_starving
        self._ends_s = float("-inf")

    def step(self, now_s: float) -> bool:
        """Looks once; whether a query was stopped. `now_s`: monotonic."""
        if not self._queries.running or now_s < self._ends_s:
            return False
        if not (self._is_starving() or self._is_short()):
            return False
        self._ends_s = now_s + ENDS_WITHIN_S
        return self._queries.shed()

    def _is_short(self) -> bool:
        try:
            share = self._memory.working_bytes() / self._memory.memory_limit_bytes
        except OutOfMemory:
            return True  # not even the question fits in what is left
        except AcceleratorError as error:
            log.warning("memory could not be looked at", error=error)
            return False
        return share > WORKING_SHARE
