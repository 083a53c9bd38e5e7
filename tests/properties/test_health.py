"""The health monitor in ten thousand random histories: never Ready without proof, never unready
with it."""

from __future__ import annotations

import random

from checkpoints.positions import Position, ShardCheckpoint, ShardState
from connector.errors import AccessDenied, Throttled
from connector.health import DatasetState, Facts, Health, HealthMonitor, Limits, Loading
from connector.reasons import Reason, Trouble
from connector.stream.coverage import PROOF_PAGES
from connector.stream.lineage import ShardView
from tests.builders import START_MS

HISTORIES = 10_000
STEPS = 12
LIMITS = Limits(2.0, 8.0, 2.0)
POSITION = Position.after("1" * 21)
ROW = ShardCheckpoint("s", None, ShardState.IDLE, POSITION, 1, START_MS)
DENIED = AccessDenied("not you", action="dynamodb:GetRecords")
HALTED = Reason("trimmed", "Lost.", "Refresh.")
OUTAGE = Trouble("throttled", "Slow.", "Wait.", 0.0)
STATES = list(set(ShardState) - {ShardState.FINISHED})


def random_view(rng: random.Random, number: int, now_s: float, now_ms: int) -> ShardView:
    """Mostly what a healthy shard shows, with something off now and then."""
    is_late = rng.random() < 0.1
    covered_ms = now_ms - rng.choice([0, 500, 1999, 2001, 5000, 60_000] if is_late else [0, 900])
    state = rng.choice([ShardState.IDLE, ShardState.IDLE, ShardState.READING])
    if rng.random() < 0.05:
        state = rng.choice(STATES)
    error = rng.choice([DENIED, Throttled("slow")]) if rng.random() < 0.05 else None
    return ShardView(
        f"s{number}",
        rng.choice([None, "s0", "elsewhere"]),
        state,
        POSITION,
        ROW,
        1,
        0,
        rng.random() < 0.95,
        None if rng.random() < 0.01 else covered_ms,
        rng.choice([0, 2, 3, 9]),
        rng.choice([0.0, 0.3, 5.0]),
        rng.choice([0.02, 2.0, 10.0]),
        None if rng.random() < 0.01 else now_s - rng.choice([0.0, 1.0, 3.9, 30.0]),
        error,
        None if error is None else now_s - rng.choice([0.0, 1.9, 2.0, 60.0]),
        rng.random() < 0.05,
    )


def random_facts(rng: random.Random, now_s: float, now_ms: int) -> Facts:
    def rarely(yes: object, no: object) -> object:
        return yes if rng.random() < 0.03 else no

    has_stream = bool(rarely(False, True))
    count = rng.randint(0, 3) if has_stream else 0
    shards = tuple(random_view(rng, n, now_s, now_ms) for n in range(count))
    return Facts(
        rarely(None, now_ms),  # type: ignore[arg-type]
        rng.random() < 0.97,
        rng.choice([Loading.DONE] * 30 + list(Loading)),
        shards,
        open_gaps=rarely(1, 0),  # type: ignore[arg-type]
        open_dead_letters=rng.randint(0, 1),
        rebuild_cause=rarely("a loss", None),  # type: ignore[arg-type]
        commit_error=rarely(OSError("full"), None),  # type: ignore[arg-type]
        failed_loops=rarely(("poller",), ()),  # type: ignore[arg-type]
        halted=rarely(HALTED, None),  # type: ignore[arg-type]
        troubles=rarely((OUTAGE,), ()),  # type: ignore[arg-type]
        has_stream=has_stream,
        copy_error=rarely(OSError("no bucket"), None),  # type: ignore[arg-type]
        is_paused=bool(rarely(True, False)),
        is_stopping=bool(rarely(True, False)),
    )


def is_sound(facts: Facts) -> bool:
    """Nothing forbids Ready, lag aside. Written anew, from the contract and not from the code."""
    return (
        facts.aws_now_ms is not None
        and facts.is_positioned
        and facts.loading is Loading.DONE
        and not facts.open_gaps
        and facts.rebuild_cause is None
        and facts.halted is None
        and facts.commit_error is None
        and not facts.failed_loops
        and not facts.is_paused
        and not facts.is_stopping
    )


def worst_lag_s(facts: Facts, now_s: float) -> float:
    """Of all shards; infinite where one has no proof, or where there is none to have it."""
    worst = 0.0 if facts.shards or not facts.has_stream else float("inf")
    for view in facts.shards:
        if view.state is ShardState.DISCOVERED:
            has_parent = any(other.shard_id == view.parent_shard_id for other in facts.shards)
            lag_s = 0.0 if has_parent else float("inf")
        elif (
            view.state is ShardState.IDLE
            and not view.is_closed
            and view.is_applied
            and view.empties >= PROOF_PAGES
            and view.idle_span_s >= 0.25
            and view.last_good_s is not None
            and now_s - view.last_good_s <= max(2.0, 2 * view.interval_s)
        ):
            lag_s = 0.0
        elif view.covered_until_ms is None or facts.aws_now_ms is None:
            lag_s = float("inf")
        else:
            lag_s = (facts.aws_now_ms - view.covered_until_ms) / 1000
        worst = max(worst, lag_s)
    return worst


def denied_for_s(facts: Facts, now_s: float) -> float:
    """Since when a shard has been refused in a way that a person must mend; -1: none is."""
    since = [now_s - (view.error_since_s or 0.0) for view in facts.shards if view.error is DENIED]
    return max(since, default=-1.0)


def check(facts: Facts, health: Health, was_ready: bool, late_s: float, now_s: float) -> None:
    lag_s, denied_s = worst_lag_s(facts, now_s), denied_for_s(facts, now_s)
    if health.is_ready:
        assert is_sound(facts), f"Ready without ground: {facts}"
        assert denied_s < LIMITS.unready_after_s
        if was_ready:
            assert lag_s <= LIMITS.unready_lag_s or late_s < LIMITS.unready_after_s
        else:
            assert lag_s <= LIMITS.ready_lag_s, f"Ready {lag_s} s behind: {facts}"
            assert denied_s < 0
    else:
        has_proof = is_sound(facts) and lag_s <= LIMITS.ready_lag_s and denied_s < 0
        assert not has_proof, f"not Ready with proof: {facts}"
        assert any(reason.blocks for reason in health.reasons), f"no reason: {facts}"
    if facts.is_stopping:
        assert health.state is DatasetState.SHUTTING_DOWN
    elif facts.open_gaps and facts.rebuild_cause is None:
        assert health.state is DatasetState.ERROR


def test_ready_is_true_exactly_with_proof() -> None:
    """Given at ready_lag only, kept up to unready_lag or a moment beyond it, never withheld."""
    seen = set()
    for seed in range(HISTORIES):
        rng = random.Random(seed)
        monitor = HealthMonitor(LIMITS)
        now_s, now_ms = 100.0, START_MS
        was_ready = False
        late_since_s: float | None = None
        for _ in range(STEPS):
            step_s = rng.choice([0.5, 1.0, 2.5])
            now_s, now_ms = now_s + step_s, now_ms + round(1000 * step_s)
            facts = random_facts(rng, now_s, now_ms)
            health = monitor.judge(facts, now_s)
            if not was_ready or worst_lag_s(facts, now_s) <= LIMITS.unready_lag_s:
                late_since_s = None
            elif late_since_s is None:
                late_since_s = now_s
            late_s = 0.0 if late_since_s is None else now_s - late_since_s
            check(facts, health, was_ready, late_s, now_s)
            was_ready = health.is_ready
            seen.add(health.state)
    assert seen == set(DatasetState)
