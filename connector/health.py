"""Whether a dataset may be called Ready, and if not, why: the health monitor.

Owns the states and the hysteresis between them. Pure: facts and times in, a verdict out; the only
memory is whether Ready was given, and when its proof was last there. Must not know where the
facts come from, and changes nothing.

Ready needs proof: the snapshot is done, no gap is open, and every unfinished shard is applied up to
within `ready_lag`, or was polled empty often enough and lately. Once given it is taken back at once
by what is broken, and after `unready_after` by what is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeGuard

from checkpoints.positions import ShardState
from connector import reasons
from connector.reasons import Reason, Trouble
from connector.stream.coverage import PROOF_PAGES, Retention
from connector.stream.lineage import CLOCKS_APART_MS, ShardView

PROOF_SPAN_S: Final = 0.25
"""The empty pages that prove a shard idle lie this far apart: three within a blink are one look."""

LOW_HEADROOM_MS: Final = 6 * 3_600_000


class DatasetState(StrEnum):
    INITIALIZING = "Initializing"
    SNAPSHOTTING = "Snapshotting"
    CATCHING_UP = "CatchingUp"
    READY = "Ready"
    LAGGING = "Lagging"
    ERROR = "Error"
    SHUTTING_DOWN = "ShuttingDown"


class Loading(StrEnum):
    """How far the snapshot of the data that is served has come.

    SCANNING   some of its pages are not applied yet
    PASSING    all are; some shard is not applied up to the end of the scan
    DONE       all shards have passed it, or no snapshot is wanted
    """

    SCANNING = "scanning"
    PASSING = "passing"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the verdict rests on.

    aws_now_ms       AWS time, None before the first answer
    is_positioned    the positions that readers began from are committed
    shards           the unfinished shards
    troubles         errors that last and strike more than one shard: discovery, scanner, store
    halted           why reading was stopped: an invalid checkpoint under policy `error`
    rebuild_cause    the data served is frozen while a new snapshot is taken, because of this
    is_refreshing    a new snapshot is taken while the data served is kept fresh
    commit_error     the newest commit failed
    copy_error       the newest copy could not be published
    failed_loops     names of loops that are down
    has_stream       False: the rows come from scans alone, so there is nothing to lag behind
    notes            reasons from around the dataset that Ready may live with
    """

    aws_now_ms: int | None
    is_positioned: bool
    loading: Loading
    shards: Sequence[ShardView] = ()
    open_gaps: int = 0
    open_dead_letters: int = 0
    troubles: tuple[Trouble, ...] = ()
    halted: Reason | None = None
    rebuild_cause: str | None = None
    is_refreshing: bool = False
    commit_error: Exception | None = None
    copy_error: Exception | None = None
    failed_loops: tuple[str, ...] = ()
    has_stream: bool = True
    is_paused: bool = False
    is_stopping: bool = False
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict. Lags are None while a shard has no proof at all.

    covered_until_ms   AWS time before which every change is in the rows that are served
    headroom_ms        how much longer the shard that is furthest behind keeps what is unread
    """

    state: DatasetState
    reasons: tuple[Reason, ...]
    lag_max_ms: int | None
    lag_sum_ms: int | None
    headroom_ms: int | None
    covered_until_ms: int | None
    shards_active: int
    shard_lags_ms: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def is_ready(self) -> bool:
        return self.state is DatasetState.READY


@dataclass(frozen=True, slots=True)
class Limits:
    """Ready is given at `ready_lag` and kept up to `unready_lag`, beyond it for `unready_after`.

    An idle shard that is polled each 2 s is covered up to 6 s ago once its proof has aged: so the
    second bound is several times the first.
    """

    ready_lag_s: float = 2.0
    unready_lag_s: float = 8.0
    unready_after_s: float = 2.0

    @classmethod
    def of(cls, ready_lag_s: float) -> Limits:
        return cls(ready_lag_s, 4 * ready_lag_s, ready_lag_s)


class HealthMonitor:
    """One dataset's health. One thread calls `judge`, about once a second.

    limits   may be set to others at any time; the next verdict goes by them
    """

    def __init__(self, limits: Limits | None = None, retention: Retention | None = None) -> None:
        self.limits = limits or Limits()
        self._retention = retention or Retention()
        self._is_ready = False
        self._has_been_ready = False
        self._kept: tuple[float, int | None] = (0.0, None)

    def judge(self, facts: Facts, now_s: float) -> Health:
        """The state that these facts allow. O(shards)."""
        lags = self._lags_ms(facts, now_s)
        # A stream without an open shard is off: what is written now is nowhere.
        is_known = not facts.has_stream or (bool(lags) and None not in lags)
        known = [lag_ms for lag_ms in lags if lag_ms is not None]
        most_ms = max(known, default=0) if is_known else None
        headroom_ms = self._headroom_ms(facts)
        if facts.rebuild_cause is not None or facts.loading is not Loading.DONE:
            self._has_been_ready = False
        errors, passing = self._troubles(facts, now_s)
        blocking = [*errors, *self._broken(facts)]
        # Who is halted waits for a person: that nothing is read is no second reason.
        late = [] if facts.halted is not None else self._late(facts, most_ms)
        if self._is_ready:
            self._is_ready = not blocking and self._is_kept(most_ms, facts.aws_now_ms, now_s)
        else:
            blocking += [trouble.reason(blocks=True) for trouble in passing if trouble.needs_person]
            self._is_ready = not blocking and not late
            self._kept = (now_s, facts.aws_now_ms)
        self._has_been_ready |= self._is_ready
        told = [] if self._is_ready else [*blocking, *late]
        told += [t.reason(blocks=False) for t in passing if self._lasts(t, now_s)]
        told += self._notes(facts, headroom_ms)
        return Health(
            self._state(facts, bool(errors)),
            tuple(told),
            most_ms,
            sum(known) if is_known else None,
            headroom_ms,
            _covered_until_ms(facts),
            len(facts.shards),
            dict(zip((view.shard_id for view in facts.shards), lags, strict=True)),
        )

    def _state(self, facts: Facts, has_errors: bool) -> DatasetState:
        if facts.is_stopping:
            return DatasetState.SHUTTING_DOWN
        if has_errors:
            return DatasetState.ERROR
        if facts.rebuild_cause is not None:
            return DatasetState.SNAPSHOTTING
        if not facts.is_positioned or facts.aws_now_ms is None:
            return DatasetState.INITIALIZING
        if facts.loading is Loading.SCANNING:
            return DatasetState.SNAPSHOTTING
        if self._is_ready:
            return DatasetState.READY
        return DatasetState.LAGGING if self._has_been_ready else DatasetState.CATCHING_UP

    # Proof

    def _is_kept(self, most_ms: int | None, aws_now_ms: int | None, now_s: float) -> bool:
        """Whether Ready stays: not too late, or not for long.

        It has been late since the last verdict that it was not: a process or a host that was
        stopped for hours has been late for hours, whichever of the two clocks tells.
        """
        if most_ms is not None and most_ms <= self.limits.unready_lag_s * 1000:
            self._kept = (now_s, aws_now_ms)
            return True
        kept_s, kept_ms = self._kept
        late_s = now_s - kept_s
        if aws_now_ms is not None and kept_ms is not None:
            late_s = max(late_s, (aws_now_ms - kept_ms) / 1000)
        return late_s < self.limits.unready_after_s

    def _lags_ms(self, facts: Facts, now_s: float) -> list[int | None]:
        known = {view.shard_id for view in facts.shards}
        return [self._lag_ms(view, facts.aws_now_ms, known, now_s) for view in facts.shards]

    def _lag_ms(
        self, view: ShardView, aws_now_ms: int | None, known: set[str], now_s: float
    ) -> int | None:
        if view.state is ShardState.DISCOVERED:
            # Its changes are younger than its parent's end, so the parent's lag stands for both.
            return 0 if view.parent_shard_id in known else None
        if self._is_idle(view, aws_now_ms, now_s):
            return 0
        if view.covered_until_ms is None or aws_now_ms is None:
            return None
        return max(0, aws_now_ms - view.covered_until_ms)

    def _is_idle(self, view: ShardView, aws_now_ms: int | None, now_s: float) -> bool:
        """Caught up without records: all applied, empty often enough, and polled lately.

        Lately by both clocks: a host that was suspended has not seen the hours pass.
        """
        if view.state is not ShardState.IDLE or view.is_closed or not view.is_applied:
            return False
        if view.empties < PROOF_PAGES or view.idle_span_s < PROOF_SPAN_S:
            return False
        stale_s = max(self.limits.ready_lag_s, 2 * view.interval_s)
        if aws_now_ms is not None and view.last_good_ms is not None:
            since_ms = aws_now_ms - view.last_good_ms
            if since_ms > 1000 * stale_s + CLOCKS_APART_MS:
                return False
        return view.last_good_s is not None and now_s - view.last_good_s <= stale_s

    def _headroom_ms(self, facts: Facts) -> int | None:
        if facts.aws_now_ms is None:
            return None
        covered = [v.covered_until_ms for v in facts.shards if v.covered_until_ms is not None]
        return self._retention.headroom_ms(min(covered, default=facts.aws_now_ms), facts.aws_now_ms)

    # Reasons

    def _lasts(self, trouble: Trouble, now_s: float) -> bool:
        return now_s - trouble.since_s >= self.limits.unready_after_s

    def _troubles(self, facts: Facts, now_s: float) -> tuple[list[Reason], list[Trouble]]:
        """What makes state Error, and the troubles that do not, or not yet.

        A single refusal among good answers is no error: it has to last as long as lag does.
        """
        errors = [] if facts.halted is None else [facts.halted]
        if facts.open_gaps and facts.rebuild_cause is None:
            errors.append(reasons.gap_open(facts.open_gaps))
        if _needs_person(facts.commit_error):
            errors.append(reasons.commit_failing(facts.commit_error))
        passing = []
        for trouble in (*facts.troubles, *reasons.shard_troubles(facts.shards)):
            if trouble.needs_person and self._lasts(trouble, now_s):
                errors.append(trouble.reason(blocks=True))
            else:
                passing.append(trouble)
        return errors, passing

    def _broken(self, facts: Facts) -> list[Reason]:
        """What forbids Ready at once."""
        broken = []
        if facts.is_stopping:
            broken.append(reasons.stopping())
        if facts.is_paused:
            broken.append(reasons.paused())
        if facts.commit_error is not None and not _needs_person(facts.commit_error):
            broken.append(reasons.commit_failing(facts.commit_error))
        if facts.failed_loops:
            broken.append(reasons.loop_failed(facts.failed_loops))
        if facts.rebuild_cause is not None:
            broken.append(reasons.rebuilding(facts.rebuild_cause))
        elif facts.halted is not None:
            pass
        elif not facts.is_positioned or facts.aws_now_ms is None:
            broken.append(reasons.starting())
        elif facts.loading is Loading.SCANNING:
            broken.append(reasons.snapshot_running())
        elif facts.loading is Loading.PASSING:
            broken.append(reasons.snapshot_passing())
        return broken

    def _late(self, facts: Facts, most_ms: int | None) -> list[Reason]:
        limit_s = self.limits.ready_lag_s
        if most_ms is not None and most_ms <= limit_s * 1000:
            return []
        waiting = [v.shard_id for v in facts.shards if v.state is ShardState.DRAINING]
        return [reasons.late(most_ms, limit_s, waiting, again=self._has_been_ready)]

    def _notes(self, facts: Facts, headroom_ms: int | None) -> list[Reason]:
        notes = list(facts.notes)
        if facts.open_dead_letters:
            notes.append(reasons.dead_letters(facts.open_dead_letters))
        if facts.copy_error is not None:
            notes.append(reasons.publish_failing(facts.copy_error))
        if facts.is_refreshing:
            notes.append(reasons.refreshing())
        # Six hours of the 24 that AWS keeps; a quarter where retention is shorter.
        low_ms = min(LOW_HEADROOM_MS, self._retention.window_ms // 4)
        if headroom_ms is not None and headroom_ms < low_ms:
            notes.append(reasons.retention_low(headroom_ms))
        return notes


def _needs_person(error: Exception | None) -> TypeGuard[Exception]:
    return bool(getattr(error, "needs_person", False))


def _covered_until_ms(facts: Facts) -> int | None:
    """Of the rows that are served: those of an unfinished snapshot, frozen ones, and those that
    miss something, have none. The shards may be read far beyond what such rows hold.
    """
    is_whole = facts.loading is Loading.DONE and not facts.open_gaps
    if not facts.is_positioned or not is_whole or facts.rebuild_cause:
        return None
    shard_ids = {view.shard_id for view in facts.shards}
    # A child waits for its parent, whose coverage stands for both; one not seen stands for none.
    covered = [
        view.covered_until_ms
        for view in facts.shards
        if view.state is not ShardState.DISCOVERED or view.parent_shard_id not in shard_ids
    ]
    known = [ms for ms in covered if ms is not None]
    return min(known) if known and len(known) == len(covered) else None
