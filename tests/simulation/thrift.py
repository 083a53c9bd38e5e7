"""What calls may cost: no loop asks again and again for what it has just been told.

Owns the bound. A call is in vain when it was refused, or its answer brought no record, no item and
nothing that was not known. Pages that bring something are as many as the table and its stream hold,
and so need no bound of their own. Times are virtual; one log belongs to one process.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import Final

from tests.simulation.truth import Violation

WINDOW_S: Final = 60.0

MOST_IN_VAIN: Final = {
    # An idle shard is polled every quarter of a second while a proof is waited for, and after each
    # page that brought records seven times within the second; refusals wait a tenth at first.
    "GetRecords": 1_000,
    "GetShardIterator": 120,
    # Two a second, and the further pages of a question.
    "DescribeStream": 200,
    "DescribeTable": 60,
    "Scan": 120,
}
"""By operation: of one subject within a window."""


class CallLog:
    """Calls in vain by operation and subject, of the last window."""

    def __init__(self) -> None:
        self.most: Counter[str] = Counter()
        self._in_vain: dict[tuple[str, str], deque[float]] = defaultdict(deque)

    def in_vain(self, operation: str, subject: str, now_s: float) -> None:
        """Raises Violation when there were too many of them."""
        times = self._in_vain[operation, subject]
        times.append(now_s)
        while times[0] <= now_s - WINDOW_S:
            times.popleft()
        self.most[operation] = max(self.most[operation], len(times))
        if len(times) > MOST_IN_VAIN.get(operation, MOST_IN_VAIN["DescribeTable"]):
            raise Violation(
                f"{len(times)} calls of {operation} for {subject or 'the table'} within"
                f" {WINDOW_S:.0f} s brought nothing"
            )
