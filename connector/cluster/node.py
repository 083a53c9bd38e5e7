"""One process's part in a pipeline: it recovers, follows, and leads while it has the right to.

Owns the order of these, and nothing of how each is done. `step` is one loop's; others ask `view`
and `may_read`. Readers of the stream run only while `may_read` says so, which is all that keeps a
follower from the stream.

    RECOVERING ──▶ FOLLOWER ──a right──▶ ELECTED ──fence, rows, initialized──▶ LEADER
                      ▲                     │                                    │
                      └──────── fenced ─────┴──────────── fenced ────────────────┘  (clustered)
                                                              FENCED ◀───────────┘  (s3)
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from accelerator.database import Database
from accelerator.errors import AcceleratorError, DatabaseInvalidated, LogRefused
from checkpoints.clock import Clock
from checkpoints.errors import CheckpointError, Fenced, LogMissing
from checkpoints.guard import Guard
from connector.cluster.bases import BASE_RULE, BaseRule, publish_base
from connector.cluster.members import LeaderSeen
from connector.cluster.pipeline_log import PipelineLog
from connector.cluster.recovery import recover, replay
from connector.cluster.right import Right
from connector.cluster.view import SILENT_AFTER_S, NodeView, Role
from connector.reasons import Trouble
from connector.retry import BACKOFF

FOLLOW_EVERY_S: Final = 1.0
"""One listing each: 2.6 million a month, 13 dollars, for half a second of lag."""
LEADER_LOOKS_S: Final = 0.25
BASE_LOOKS_S: Final = 10.0
TRIES_TO_CLAIM: Final = 5

log_lines = structlog.get_logger(__name__)


class Rows(Protocol):
    """A dataset as the node sees it: what has to look again, or to let go."""

    def stand_by(self) -> None:
        """Ends all reading and drops what is queued: another node reads on."""

    def look(self) -> None:
        """What is stored is another now."""


class Node:
    """`right` says when this process may write. `is_alone`: no other node is expected to."""

    def __init__(
        self,
        node: str,
        log: PipelineLog,
        database: Database,
        writing: threading.RLock,
        clock: Clock,
        right: Right,
        *,
        is_alone: bool,
        reopen: Callable[[], None],
        base_rule: BaseRule = BASE_RULE,
        silent_after_s: float = SILENT_AFTER_S,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.node = node
        self.log = log
        self.role = Role.RECOVERING
        self.rows: list[Rows] = []
        self.leader_seen = LeaderSeen()
        self._database = database
        self._writing = writing
        self._clock = clock
        self._right = right
        self._is_alone = is_alone
        self._reopen = reopen
        self._base_rule = base_rule
        self._silent_after_s = silent_after_s
        self._draw = draw
        self._guard: Guard | None = None
        self._ask_due_s = float("-inf")
        self._looked_at_s: float | None = None
        self._failures = 0
        self._trouble: Trouble | None = None
        self._base_index = 0
        self._base_due_s = float("-inf")
        self._base_bytes = 0
        self._wants_base = False
        self._is_stopping = False

    # Any thread

    @property
    def may_read(self) -> bool:
        """Whether the stream and the table may be read."""
        return self.role is Role.LEADER and self.log.may_read

    def view(self) -> NodeView:
        now_s, seen = self._clock.monotonic_s(), self.leader_seen
        looked_s = self._looked_at_s
        tip = self.log.tip
        return NodeView(
            node=self.node,
            mode="s3" if self._is_alone else "clustered",
            role=self.role,
            epoch=self.log.epoch or tip.epoch,
            applied_index=tip.index,
            head_index=tip.index,
            looked_s=None if looked_s is None else now_s - looked_s,
            leader=self.node if self.role is Role.LEADER else seen.node,
            leader_age_s=None if seen.since_s is None else now_s - seen.since_s,
            leader_lag_ms=seen.lag_ms,
            is_paused=self.role is Role.LEADER and not self.log.may_read,
            trouble=self._trouble,
            poll_s=FOLLOW_EVERY_S,
            silent_after_s=self._silent_after_s,
        )

    def stop(self) -> None:
        """The step in flight ends soon."""
        self._is_stopping = True

    # The node's loop

    def step(self, now_s: float) -> float | None:
        """One turn of whatever the role asks for; when to call again."""
        if self._is_stopping:
            return None
        try:
            due_s = self._turn(now_s)
        except Fenced as error:
            self._let_go(error.message)
            return self._clock.monotonic_s()
        except (CheckpointError, AcceleratorError) as error:
            return self._failed(error, now_s)
        self._failures, self._trouble = 0, None
        return due_s

    def leave(self) -> None:
        """Gives the right back, on the way out. Raises StoreError."""
        with self._writing:
            self.log.follow()
        self._right.give_back()

    def _turn(self, now_s: float) -> float:
        match self.role:
            case Role.RECOVERING:
                # Rows that were here before their log: others need a base to begin from.
                self._wants_base = self._wants_base or (
                    self.log.has_rows and not self.log.segments.bases()
                )
                recover(
                    self.log, self._database, self._writing, is_stopping=lambda: self._is_stopping
                )
                self._looked()
                self._look_again()
                self.role = Role.FOLLOWER
                return now_s
            case Role.FOLLOWER:
                return self._follow(now_s)
            case Role.ELECTED:
                self._take_over()
                return now_s
            case Role.LEADER:
                return self._lead(now_s)
            case Role.FENCED:
                return now_s + 60.0

    def _follow(self, now_s: float) -> float:
        self._replay()
        if now_s >= self._ask_due_s:
            asked = self._right.ask(self.log.tip)
            if isinstance(asked, Guard):
                log_lines.info("elected", node=self.node, epoch=asked.epoch)
                self._guard, self.role = asked, Role.ELECTED
                return now_s
            self._ask_due_s = asked
        self._publish_base_when_due(now_s, self._base_rule)
        return min(max(self._ask_due_s, now_s), now_s + FOLLOW_EVERY_S)

    def _replay(self) -> None:
        events, reopened = self.log.events, self._database.reopened
        replay(self.log, self._database, self._writing, is_stopping=lambda: self._is_stopping)
        if (events, reopened) != (self.log.events, self._database.reopened):
            self._look_again()
        self._looked()

    def _take_over(self) -> None:
        """Applies the log to its head, fences it, brings the rows of the table to it; then reads.

        Nothing of the source is asked before all of it is done.
        """
        guard = self._guard
        if guard is None:
            self.role = Role.FOLLOWER
            return
        self._replay()
        with self._writing:
            if self.log.tip.index == 0 and self._right.must_have_log():
                raise LogMissing("The lease says that a log exists, and there is none.")
            guard = self._claim(guard)
            self.log.reconcile()
        self._right.confirm()
        self._guard = guard
        self._look_again()
        if self._wants_base and self._publish_base(self._clock.monotonic_s()) is None:
            raise LogRefused("The first base of the log could not be made yet.", hint="Wait.")
        self._wants_base = False
        self.role = Role.LEADER
        log_lines.info("leading", node=self.node, epoch=guard.epoch, index=self.log.tip.index)

    def _claim(self, guard: Guard) -> Guard:
        """Under the lease the epoch is its own; alone it is one above whatever is met."""
        for _ in range(TRIES_TO_CLAIM):
            try:
                self.log.lead(guard)
                if self.log.tip.epoch <= guard.epoch:
                    return guard
            except Fenced:
                if not self._is_alone:
                    raise
                self.log.follow()
                replay(self.log, self._database, self._writing)
            again = self._right.ask(self.log.tip)
            if not isinstance(again, Guard):
                break
            guard = self._guard = again
        raise Fenced("Others write to this log again and again.")

    def _lead(self, now_s: float) -> float:
        guard = self._guard
        fenced_by = None if guard is None else guard.fenced_by()
        if guard is None or fenced_by is not None:
            raise Fenced(fenced_by or "The right to write is gone.")
        if self.log.is_blocked and self._writing.acquire(blocking=False):
            try:
                self.log.finish()
            finally:
                self._writing.release()
        self._looked()
        # A follower takes it off the leader where there is one: its turn comes at twice as much.
        rule = self._base_rule
        if not self._is_alone:
            rule = BaseRule(2 * rule.segments, 2 * rule.segment_bytes)
        self._publish_base_when_due(now_s, rule)
        return now_s + LEADER_LOOKS_S

    def _let_go(self, why: str) -> None:
        log_lines.warning("fenced", node=self.node, epoch=self.log.epoch, why=why)
        if self._guard is not None:
            self._guard.fence(why)
        self._guard = None
        self.role = Role.FENCED if self._is_alone else Role.FOLLOWER
        for rows in self.rows:
            rows.stand_by()
        with self._writing:
            self.log.follow()
        self._look_again()

    def _failed(self, error: Exception, now_s: float) -> float:
        guard = self._guard
        if guard is not None and guard.is_fenced():
            self._let_go(str(error))
            return self._clock.monotonic_s()
        if isinstance(error, DatabaseInvalidated):
            self._reopen()
        since_s = now_s if self._trouble is None else self._trouble.since_s
        self._trouble = Trouble.of(error, since_s)
        wait_s = BACKOFF.delay_s(self._failures, self._draw())
        self._failures += 1
        log_lines.warning(
            "a step of the node failed and is tried again",
            role=self.role.value,
            error=str(error),
            hint=getattr(error, "hint", ""),
            wait_s=round(wait_s, 3),
        )
        return self._clock.monotonic_s() + wait_s

    def _looked(self) -> None:
        self._looked_at_s = self._clock.monotonic_s()

    def _look_again(self) -> None:
        for rows in self.rows:
            rows.look()

    # Bases

    def _publish_base_when_due(self, now_s: float, rule: BaseRule) -> None:
        log = self.log
        grown = log.applied_bytes - self._base_bytes
        if log.tip.index - self._base_index < rule.segments and grown < rule.segment_bytes:
            return
        if now_s < self._base_due_s:
            return
        self._base_due_s = now_s + BASE_LOOKS_S
        bases = log.segments.bases()
        newest = bases[-1] if bases else 0
        if log.tip.index - newest < rule.segments and newest > self._base_index:
            self._base_index, self._base_bytes = newest, log.applied_bytes
            return
        self._publish_base(now_s)

    def _publish_base(self, now_s: float) -> int | None:
        index = publish_base(self.log, self._database, self._writing, self._clock)
        if index is not None:
            self._base_index, self._base_bytes = index, self.log.applied_bytes
        self._base_due_s = now_s + BASE_LOOKS_S
        return index
