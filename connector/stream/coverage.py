"""How far, in AWS time, one shard's changes are known to be read, and what that proves.

Owns the sliding window of empty pages and the retention rule. Must not know positions, lineage or
any clock: every time here is a `Date` header or a record's creation time, in ms.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PROOF_PAGES: Final = 3
"""Empty pages in a row that stand for the tip: one alone is legal in the middle of sparse data."""

HOUR_MS: Final = 3_600_000


class GapCause(StrEnum):
    """Why changes could not be read: the stable codes of `dynaduck.gaps.cause`."""

    RETENTION_EXCEEDED = "retention_exceeded"
    TRIMMED = "trimmed"
    SHARD_GONE = "shard_gone"
    PARENT_NEVER_SEEN = "parent_never_seen"


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a stream keeps a record: 24 hours, after which it may go at any time.

    The margin is longer than an iterator lives (15 minutes), so that none is used after the rule
    would have forbidden to open it.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
    """

    window_ms: int = 24 * HOUR_MS
    margin_ms: int = HOUR_MS // 2

    def may_have_lost(self, covered_until_ms: int | None, at_ms: int) -> bool:
        """Whether a change after `covered_until_ms` may be gone; where that is None, none is."""
        if covered_until_ms is None:
            return False
        return at_ms - covered_until_ms > self.window_ms - self.margin_ms

    def headroom_ms(self, covered_until_ms: int, at_ms: int) -> int:
        return self.window_ms - (at_ms - covered_until_ms)


class Coverage:
    """The AWS time before which every change of one shard has been read; `until_ms` never falls.

    It is the later of the newest creation time read and the oldest of the last `PROOF_PAGES` empty
    pages since. None means that nothing is proved: the shard follows a gap.
    """

    __slots__ = ("_empty_ms", "empties", "until_ms")

    def __init__(self, until_ms: int | None) -> None:
        self.until_ms = until_ms
        self.empties = 0
        self._empty_ms: deque[int] = deque(maxlen=PROOF_PAGES)

    @property
    def is_proved_idle(self) -> bool:
        return self.empties >= PROOF_PAGES

    def records(self, newest_created_ms: int | None, at_ms: int) -> None:
        """A page with records: the tip, if it was reached, is left again."""
        self.empties = 0
        self._empty_ms.clear()
        if newest_created_ms is not None:
            self._raise(min(newest_created_ms, at_ms))

    def empty(self, at_ms: int, *, is_closed: bool) -> None:
        """An empty page. Of a closed shard it proves nothing about its children's changes."""
        self.empties += 1
        self._empty_ms.append(at_ms)
        if len(self._empty_ms) == PROOF_PAGES and not is_closed:
            self._raise(self._empty_ms[0])

    def reopened(self) -> None:
        """Another iterator walks the same empty stretch again: its pages are counted anew."""
        self.empties = 0
        self._empty_ms.clear()

    def lose(self) -> None:
        """Changes were lost: nothing before now is proved any more."""
        self.until_ms = None
        self.reopened()

    def _raise(self, until_ms: int) -> None:
        if self.until_ms is None or until_ms > self.until_ms:
            self.until_ms = until_ms
