"""When a dataset is called Ready, what takes it back, and what a person is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accelerator.errors import DiskFull, OutOfMemory
from checkpoints.positions import Position, ShardCheckpoint, ShardState
from connector.errors import AccessDenied, Throttled, Unavailable
from connector.health import DatasetState, Facts, HealthMonitor, Limits, Loading
from connector.reasons import Reason, Trouble
from connector.stream.lineage import ShardView
from tests.builders import HOUR_MS, START_MS

NOW_S = 1000.0
DENIED = AccessDenied("not you", action="dynamodb:GetRecords")


def view(
    shard_id: str = "a",
    *,
    covered_ms: int | None = START_MS,
    state: ShardState = ShardState.READING,
    empties: int = 0,
    last_good_s: float | None = NOW_S,
    span_s: float = 1.0,
    interval_s: float = 0.5,
    is_applied: bool = True,
    is_closed: bool = False,
    error: Exception | None = None,
    since_s: float | None = None,
    parent: str | None = None,
) -> ShardView:
    """An unfinished shard that is up to date unless it is said otherwise."""
    position = Position.after("1" * 21)
    row = ShardCheckpoint(shard_id, parent, state, position, 1, covered_ms)
    return ShardView(
        shard_id,
        parent,
        state,
        position,
        row,
        1,
        0 if is_applied else 1,
        is_applied,
        covered_ms,
        empties,
        span_s,
        interval_s,
        last_good_s,
        error,
        since_s,
        is_closed,
    )


def idle(shard_id: str = "a", *, behind_s: float = 6.0, **changes: object) -> ShardView:
    """A shard that was polled empty often enough; its window is as old as windows are."""
    quiet = view(
        shard_id, covered_ms=START_MS - round(behind_s * 1000), state=ShardState.IDLE, empties=5
    )
    return replace(quiet, **changes)  # type: ignore[arg-type]


def facts(*shards: ShardView, **changes: object) -> Facts:
    """A dataset with nothing wrong."""
    return replace(Facts(START_MS, True, Loading.DONE, shards), **changes)  # type: ignore[arg-type]


def judged(*shards: ShardView, monitor: HealthMonitor | None = None, **changes: object) -> str:
    return (monitor or HealthMonitor()).judge(facts(*shards, **changes), NOW_S).state


class TestProof:
    def test_a_fresh_record_on_every_shard_is_proof(self) -> None:
        """All of it applied up to within ready_lag."""
        assert judged(view("a"), view("b", covered_ms=START_MS - 2000)) == "Ready"

    def test_one_late_shard_is_enough_to_be_late(self) -> None:
        """The table's lag is the largest of its shards'."""
        assert judged(view("a"), view("b", covered_ms=START_MS - 2001)) == "CatchingUp"

    @pytest.mark.situation(52)
    def test_a_quiet_table_becomes_ready_by_polling(self) -> None:
        """Proof comes from empty pages, not from events."""
        assert judged(idle("a"), idle("b")) == "Ready"

    @pytest.mark.parametrize(
        ("change", "value"),
        [
            ("empties", 2),
            ("idle_span_s", 0.1),
            ("is_applied", False),
            ("last_good_s", NOW_S - 2.5),
            ("last_good_s", None),
            ("last_good_ms", START_MS - 10_000),
            ("is_closed", True),
            ("state", ShardState.BACKOFF),
            ("state", ShardState.DRAINING),
        ],
    )
    def test_an_idle_shard_needs_each_part_of_its_proof(self, change: str, value: object) -> None:
        """Three empty pages, apart, all applied, lately, of a shard that is open and answers."""
        changed = replace(idle(), **{change: value})  # type: ignore[arg-type]
        assert judged(changed) == "CatchingUp"

    def test_a_slow_poll_is_proof_for_twice_its_interval(self) -> None:
        """Where scan_interval is longer than ready_lag."""
        assert judged(idle(interval_s=10.0, last_good_s=NOW_S - 19.0)) == "Ready"
        assert judged(idle(interval_s=10.0, last_good_s=NOW_S - 21.0)) == "CatchingUp"

    def test_a_shard_without_proof_is_late_by_an_unknown_time(self) -> None:
        """It follows a gap, or was just found."""
        health = HealthMonitor().judge(facts(view(covered_ms=None)), NOW_S)
        assert health.state is DatasetState.CATCHING_UP
        assert health.lag_max_ms is health.lag_sum_ms is health.covered_until_ms is None

    def test_a_waiting_child_is_late_with_its_parent(self) -> None:
        """Its lag is its parent's; without a parent there is no proof."""
        child = view("b", state=ShardState.DISCOVERED, parent="a", covered_ms=None)
        assert judged(view("a"), child) == "Ready"
        assert judged(view("a", covered_ms=START_MS - 60_000), child) == "CatchingUp"
        assert judged(view("c"), child) == "CatchingUp"

    def test_no_snapshot_no_proof(self) -> None:
        """Ready at the end of the scan is too early: the shards have to pass it."""
        assert judged(view(), loading=Loading.SCANNING) == "Snapshotting"
        assert judged(view(), loading=Loading.PASSING) == "CatchingUp"
        assert judged(view(), is_positioned=False) == "Initializing"
        assert judged(view(), aws_now_ms=None) == "Initializing"

    def test_an_open_gap_is_an_error_and_a_dead_letter_is_not(self) -> None:
        """Lost changes forbid Ready; a change that waits in dead letters is a note."""
        assert judged(view(), open_gaps=1) == "Error"
        health = HealthMonitor().judge(facts(view(), open_dead_letters=3), NOW_S)
        assert health.is_ready
        assert [reason.code for reason in health.reasons] == ["dead_letters"]


class TestHysteresis:
    def ready(self) -> HealthMonitor:
        monitor = HealthMonitor(Limits())
        assert judged(view(), monitor=monitor) == "Ready"
        return monitor

    @pytest.mark.situation(53)
    def test_a_hot_table_flaps_not(self) -> None:
        """Ready is given at ready_lag and kept up to unready_lag."""
        monitor = self.ready()
        for second, lag_ms in enumerate([1000, 2500, 6000, 1900, 7900] * 20):
            late = view(covered_ms=START_MS - lag_ms)
            assert monitor.judge(facts(late), NOW_S + second).is_ready

    def test_a_table_that_was_never_ready_is_catching_up(self) -> None:
        """Loading for the first time and lagging are two states."""
        late = view(covered_ms=START_MS - 60_000)
        assert judged(late) == "CatchingUp"
        monitor = self.ready()
        monitor.judge(facts(late), NOW_S)
        assert monitor.judge(facts(late), NOW_S + 3).state is DatasetState.LAGGING

    def test_lag_has_to_last_before_ready_is_taken_back(self) -> None:
        """One slow answer is no state."""
        monitor = self.ready()
        late = facts(view(covered_ms=START_MS - 9000))
        assert monitor.judge(late, NOW_S).is_ready
        assert monitor.judge(facts(view()), NOW_S + 1).is_ready
        assert monitor.judge(late, NOW_S + 2).is_ready
        assert monitor.judge(late, NOW_S + 2.9).is_ready
        assert not monitor.judge(late, NOW_S + 3.0).is_ready

    @pytest.mark.parametrize(("host_s", "aws_s"), [(3600.0, 3600.0), (0.5, 3600.0), (3600.0, 0.0)])
    def test_who_was_stopped_for_an_hour_has_been_late_for_one(
        self, host_s: float, aws_s: float
    ) -> None:
        """No grace on waking up: a frozen process, a suspended host, an AWS that did not answer."""
        monitor = self.ready()
        now_ms = START_MS + round(aws_s * 1000)
        late = facts(view(covered_ms=START_MS - 9000), aws_now_ms=now_ms)
        assert not monitor.judge(late, NOW_S + host_s).is_ready

    def test_ready_comes_back_at_ready_lag_only(self) -> None:
        """Between the two bounds it stays as it is."""
        monitor = self.ready()
        late = facts(view(covered_ms=START_MS - 9000))
        monitor.judge(late, NOW_S)
        assert not monitor.judge(late, NOW_S + 3).is_ready
        assert not monitor.judge(facts(view(covered_ms=START_MS - 3000)), NOW_S + 4).is_ready
        assert monitor.judge(facts(view(covered_ms=START_MS - 2000)), NOW_S + 5).is_ready

    @pytest.mark.parametrize(
        ("change", "value", "code"),
        [
            ("commit_error", OSError("disk full"), "commit_failing"),
            ("failed_loops", ("poller-1",), "loop_failed"),
            ("is_paused", True, "paused"),
            ("rebuild_cause", "changes were trimmed", "rebuilding"),
            ("open_gaps", 1, "gap_open"),
            ("is_stopping", True, "stopping"),
            ("halted", Reason("trimmed", "It is.", "Refresh."), "trimmed"),
        ],
    )
    def test_what_is_broken_takes_ready_back_at_once(
        self, change: str, value: object, code: str
    ) -> None:
        """No proof outweighs it, and its reason says so."""
        health = self.ready().judge(facts(view(), **{change: value}), NOW_S)
        assert not health.is_ready
        assert code in [reason.code for reason in health.reasons]


class TestTrouble:
    @pytest.mark.situation(51)
    def test_a_denied_shard_is_an_error_once_it_lasts(self) -> None:
        """A moment's AccessDenied is neither an error nor Ready for who was not."""
        monitor = HealthMonitor()
        denied = idle(error=DENIED, error_since_s=NOW_S)
        health = monitor.judge(facts(denied), NOW_S)
        assert health.state is DatasetState.CATCHING_UP
        assert health.reasons, "and it says why"
        health = monitor.judge(facts(denied), NOW_S + 2)
        assert health.state is DatasetState.ERROR
        assert "dynamodb:GetRecords" in health.reasons[0].remedy

    @pytest.mark.situation(51)
    def test_a_denied_shard_takes_ready_back(self) -> None:
        """Within seconds, though its rows are still fresh."""
        monitor = HealthMonitor()
        assert monitor.judge(facts(idle()), NOW_S).is_ready
        denied = facts(idle(error=DENIED, error_since_s=NOW_S))
        assert monitor.judge(denied, NOW_S + 1).is_ready
        assert monitor.judge(denied, NOW_S + 2).state is DatasetState.ERROR

    def test_a_throttled_shard_is_told_and_late(self) -> None:
        """It is no error: waiting mends it. Its lag grows with the time it cannot be read."""
        slow = view(
            error=Throttled("slow down"), since_s=NOW_S - 30, state=ShardState.BACKOFF,
            covered_ms=START_MS - 30_000,
        )  # fmt: skip
        health = HealthMonitor().judge(facts(slow, view("b")), NOW_S)
        assert health.state is DatasetState.CATCHING_UP
        assert [reason.code for reason in health.reasons] == ["catching_up", "throttled"]
        assert "Shard a" in health.reasons[1].sentence

    def test_many_shards_in_the_same_trouble_are_one_reason(self) -> None:
        """A thousand sentences help nobody."""
        error = Unavailable("no route")
        down = [view(f"s{n}", error=error, since_s=NOW_S - 9) for n in range(1000)]
        health = HealthMonitor().judge(facts(*down), NOW_S)
        assert [reason.code for reason in health.reasons] == ["unavailable"]
        assert "999 more" in health.reasons[0].sentence

    def test_a_discovery_that_is_denied_is_an_error(self) -> None:
        """The next end of a shard would be the end of the copy."""
        trouble = Trouble.of(DENIED, NOW_S - 60, where="Listing shards")
        health = HealthMonitor().judge(facts(view(), troubles=(trouble,)), NOW_S)
        assert health.state is DatasetState.ERROR
        assert health.reasons[0].sentence.startswith("Listing shards")

    @pytest.mark.situation(5)
    @pytest.mark.situation(74)
    def test_a_leaf_that_waits_for_its_child_is_named(self) -> None:
        """It is a normal shape for a while: no error, and a reason only once it makes late."""
        leaf = view("a", state=ShardState.DRAINING, covered_ms=START_MS - 1000)
        assert judged(leaf) == "Ready"
        late = view("a", state=ShardState.DRAINING, covered_ms=START_MS - 30_000)
        health = HealthMonitor().judge(facts(late), NOW_S)
        assert health.state is DatasetState.CATCHING_UP
        assert "Shard a ended" in health.reasons[0].sentence


class TestFigures:
    @pytest.mark.situation(54)
    def test_lag_is_on_the_applied_side_and_over_all_shards(self) -> None:
        """The largest for people, the sum for the metric of that name; idle shards lag not."""
        shards = (
            view("a", covered_ms=START_MS - 3000),
            view("b", covered_ms=START_MS - 500),
            idle("c"),
        )
        health = HealthMonitor().judge(facts(*shards), NOW_S)
        assert (health.lag_max_ms, health.lag_sum_ms) == (3000, 3500)
        assert health.covered_until_ms == START_MS - 6000
        assert health.shards_active == 3

    @pytest.mark.situation(58)
    def test_active_shards_are_counted_from_those_that_are(self) -> None:
        """No counter that could leak: none left, none shown."""
        health = HealthMonitor().judge(facts(), NOW_S)
        assert health.shards_active == 0

    def test_without_an_unfinished_shard_nothing_is_proved(self) -> None:
        """A stream that is off and read to its end: what is written now is nowhere."""
        health = HealthMonitor().judge(facts(), NOW_S)
        assert not health.is_ready
        assert health.lag_max_ms is health.covered_until_ms is None

    def test_a_child_counts_by_its_parent_or_it_proves_nothing(self) -> None:
        """A parent that is not known has nobody who stands for its child."""
        child = view("b", state=ShardState.DISCOVERED, covered_ms=None)
        waiting = replace(child, parent_shard_id="a")
        health = HealthMonitor().judge(facts(idle("a"), waiting), NOW_S)
        assert health.covered_until_ms == START_MS - 6000
        orphan = replace(child, parent_shard_id="never seen")
        assert HealthMonitor().judge(facts(idle("a"), orphan), NOW_S).covered_until_ms is None

    @pytest.mark.parametrize("loading", [Loading.SCANNING, Loading.PASSING])
    def test_unfinished_rows_are_covered_until_no_time(self, loading: Loading) -> None:
        """The shards may be read beyond what a snapshot under way has brought."""
        health = HealthMonitor().judge(facts(idle(), loading=loading), NOW_S)
        assert health.covered_until_ms is None

    def test_rows_that_miss_something_are_covered_until_no_time(self) -> None:
        """What follows a gap may be read, and what was lost is still not in the rows."""
        assert HealthMonitor().judge(facts(idle(), open_gaps=1), NOW_S).covered_until_ms is None

    def test_frozen_rows_are_covered_until_no_time(self) -> None:
        """While the table is loaded anew the shards are those of the shadow."""
        health = HealthMonitor().judge(facts(idle(), rebuild_cause="a gap"), NOW_S)
        assert health.covered_until_ms is None

    def test_headroom_is_what_the_stream_still_keeps(self) -> None:
        """Under six hours it is told, whatever the state."""
        behind = view(covered_ms=START_MS - 20 * HOUR_MS)
        health = HealthMonitor().judge(facts(behind), NOW_S)
        assert health.headroom_ms == 4 * HOUR_MS
        assert "retention_low" in [reason.code for reason in health.reasons]
        assert "240 minutes" in health.reasons[-1].sentence

    def test_a_commit_that_waiting_will_not_mend_is_an_error(self) -> None:
        """A full disk or a record that halts is state Error; memory that ran out is not."""
        by_a_person = HealthMonitor().judge(
            facts(view(), commit_error=DiskFull("No space left.")), NOW_S
        )
        assert by_a_person.state is DatasetState.ERROR
        assert [reason.code for reason in by_a_person.reasons] == ["commit_failing"]
        by_itself = HealthMonitor().judge(
            facts(view(), commit_error=OutOfMemory("Out of memory.")), NOW_S
        )
        assert by_itself.state is not DatasetState.ERROR
        assert not by_itself.is_ready

    def test_every_state_that_is_not_ready_says_why_and_what_to_do(self) -> None:
        """Each reason is a code, a sentence and a remedy."""
        for changed in (
            facts(view(), is_positioned=False),
            facts(view(), loading=Loading.SCANNING),
            facts(view(), loading=Loading.PASSING),
            facts(view(covered_ms=None)),
            facts(view(), open_gaps=2),
            facts(view(), is_paused=True),
            facts(view(), is_stopping=True),
            facts(view(), commit_error=RuntimeError("it broke")),
        ):
            health = HealthMonitor().judge(changed, NOW_S)
            assert not health.is_ready
            assert any(reason.blocks for reason in health.reasons)
            for reason in health.reasons:
                assert reason.code
                assert reason.sentence.endswith((".", "broke"))
                assert reason.remedy
