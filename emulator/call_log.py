"""The log of the calls that came in, and counts of them.

Owns both; bounded, so that a long run does not grow. Must not know what calls do. Safe for threads.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from emulator.request import Call

_KEPT_CALLS = 50_000
# Items are not kept: a log of a million puts would hold a million items.
_LEFT_OUT = ("Item", "RequestItems", "TransactItems")


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """One call; `caller` is the access key id, `outcome` an error code or `OK`."""

    number: int
    time_s: float
    service: str
    operation: str
    table: str | None
    shard_id: str | None
    params: dict[str, Any]
    caller: str
    connection: int
    outcome: str

    def describe(self) -> dict[str, Any]:
        """The call for the control endpoint."""
        return {name: getattr(self, name) for name in self.__slots__}


class CallLog:
    """The newest calls, and the counts of all since the start or the last `clear`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: deque[LoggedCall] = deque(maxlen=_KEPT_CALLS)
        self._counts: Counter[tuple[str, str, str | None, str | None]] = Counter()
        self._number = 0

    def add(self, call: Call, time_s: float, outcome: str) -> None:
        """Logs a call that has been answered."""
        params = {name: value for name, value in call.params.items() if name not in _LEFT_OUT}
        with self._lock:
            self._number += 1
            self._counts[call.service, call.operation, call.table, call.shard_id] += 1
            self._calls.append(
                LoggedCall(
                    self._number,
                    time_s,
                    call.service,
                    call.operation,
                    call.table,
                    call.shard_id,
                    params,
                    call.caller,
                    call.connection,
                    outcome,
                )
            )

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()
            self._counts.clear()

    def count(
        self, operation: str = "*", *, table: str | None = None, shard_id: str | None = None
    ) -> int:
        """How many calls matched; never forgets, unlike `calls`."""
        with self._lock:
            return sum(
                number
                for (_, name, on_table, on_shard), number in self._counts.items()
                if fnmatchcase(name, operation)
                and table in (None, on_table)
                and shard_id in (None, on_shard)
            )

    def counts(self) -> dict[str, int]:
        """Counts by operation."""
        with self._lock:
            total: Counter[str] = Counter()
            for (_, name, _, _), number in self._counts.items():
                total[name] += number
            return dict(total)

    def calls(
        self,
        operation: str = "*",
        *,
        table: str | None = None,
        shard_id: str | None = None,
        after: int = 0,
    ) -> list[LoggedCall]:
        """The newest calls that match, oldest first, with a number above `after`."""
        with self._lock:
            return [
                call
                for call in self._calls
                if call.number > after
                and fnmatchcase(call.operation, operation)
                and table in (None, call.table)
                and shard_id in (None, call.shard_id)
            ]

    def callers(self, shard_id: str, operation: str = "GetRecords") -> set[str]:
        """The access keys that read a shard, among the newest calls."""
        return {call.caller for call in self.calls(operation, shard_id=shard_id)}
