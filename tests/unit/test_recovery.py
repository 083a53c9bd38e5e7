"""What follows at start and after a loss: resume, load anew, wait for a person, or refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from checkpoints.positions import Gap, KeyAttribute, ShardState, SourceIdentity
from connector.config.settings import InitialSnapshot, InvalidCheckpointBehavior
from connector.recovery import (
    SENTENCES,
    Cause,
    Drain,
    FirstStart,
    Halt,
    Policy,
    Refresh,
    RefreshCause,
    Refuse,
    Reinitialize,
    Resume,
    Stored,
    StreamOnly,
    Wait,
    covered_until_ms,
    decide_gaps,
    decide_start,
    decide_stream,
)
from connector.source import TableDescription
from connector.stream.coverage import GapCause
from connector.stream.discovery import StreamFacts
from tests.builders import HOUR_MS, START_MS, row

KEY = (KeyAttribute("pk", "S", "HASH"),)
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
STREAM = f"{ARN}/stream/2026-01-01T00:00:00.000"
OTHER_STREAM = f"{ARN}/stream/2026-02-02T00:00:00.000"
ERROR = Policy()
RESTART = Policy(invalid_checkpoint=InvalidCheckpointBehavior.RESTART)
ALWAYS = Policy(initial_snapshot=InitialSnapshot.ALWAYS)
DISABLED = Policy(initial_snapshot=InitialSnapshot.DISABLED)
DISABLED_RESTART = replace(RESTART, initial_snapshot=InitialSnapshot.DISABLED)
TABLE = TableDescription(
    table_name="orders",
    table_arn=ARN,
    table_id="id-1",
    table_status="ACTIVE",
    key_schema=KEY,
    stream_arn=STREAM,
    stream_enabled=True,
    stream_view_type="NEW_AND_OLD_IMAGES",
    item_count=0,
    table_size_bytes=0,
    billing_mode=None,
    read_capacity_units=None,
    at_ms=START_MS,
)
OFF = replace(TABLE, stream_enabled=False)


def stored(hours: float = 1, **changes: object) -> Stored:
    """A whole copy whose oldest shard is covered until so many hours ago."""
    shards = (
        row("a", after=1, covered_ms=START_MS),
        row("b", after=1, covered_ms=START_MS - round(hours * HOUR_MS)),
        row("c", ShardState.FINISHED, covered_ms=START_MS - 90 * HOUR_MS),
        row("d", ShardState.DISCOVERED, parent="b", covered_ms=None),
    )
    whole = Stored(TABLE.identity(), 1, shards, is_loaded=True, fingerprint="f")
    return replace(whole, **changes)  # type: ignore[arg-type]


def start(
    found: Stored | None, table: TableDescription = TABLE, policy: Policy = ERROR, print_: str = "f"
) -> object:
    return decide_start(found, table, policy, print_, START_MS)


def gap(cause: str = "trimmed") -> Gap:
    return Gap("a", None, cause, START_MS)


class TestFirst:
    def test_without_a_checkpoint_a_snapshot_is_taken(self) -> None:
        """auto and always alike."""
        assert start(None) == FirstStart()
        assert start(None, policy=ALWAYS) == FirstStart()

    @pytest.mark.situation(49)
    def test_a_snapshot_that_is_not_wanted_is_not_taken(self) -> None:
        """disabled streams changes only, from the start on: no cause, so no gap."""
        assert start(None, policy=DISABLED) == StreamOnly()

    @pytest.mark.parametrize(
        ("table", "code"),
        [
            (OFF, "stream_disabled"),
            (replace(TABLE, stream_arn=None), "stream_disabled"),
            (replace(TABLE, stream_view_type="KEYS_ONLY"), "view_type_unusable"),
            (replace(TABLE, stream_view_type="OLD_IMAGE"), "view_type_unusable"),
        ],
    )
    def test_a_stream_that_cannot_feed_a_copy_refuses_the_first_start(
        self, table: TableDescription, code: str
    ) -> None:
        """A person must mend it, and nothing would be lost by saying so at once."""
        decision = start(None, table)
        assert isinstance(decision, Refuse)
        assert decision.error.code == code
        assert decision.error.hint

    @pytest.mark.parametrize(
        "arn",
        [
            ARN.replace("eu-west-1", "us-east-1"),
            ARN.replace("123456789012", "210987654321"),
            ARN.replace("orders", "payments"),
        ],
    )
    def test_a_checkpoint_of_another_table_region_or_account_refuses(self, arn: str) -> None:
        """Its rows are not this table's."""
        identity = SourceIdentity(arn.rsplit("/", 1)[1], arn, "id-9", None, KEY)
        decision = start(stored(identity=identity))
        assert isinstance(decision, Refuse)
        assert decision.error.exit_status == 2
        assert arn in decision.error.message

    @pytest.mark.situation(6)
    def test_any_partition_will_do(self) -> None:
        """China's and the government's ARNs have the same parts."""
        for partition in ("aws-cn", "aws-us-gov"):
            table = replace(TABLE, table_arn=ARN.replace("aws", partition, 1))
            assert start(stored(identity=table.identity()), table) == Resume(scans=False)


class TestAge:
    def test_seventeen_hours_resume(self) -> None:
        """A stop well within retention is none of anyone's business."""
        assert start(stored(hours=17)) == Resume(scans=False)
        assert start(stored(hours=18)) == Resume(scans=False)

    @pytest.mark.situation(34)
    @pytest.mark.parametrize("hours", [18.01, 19, 25, 100])
    def test_nineteen_hours_and_a_day_take_the_recovery_path(self, hours: float) -> None:
        """Near the end of retention the race against trimming is not run."""
        assert start(stored(hours=hours)) == Halt(Cause.CHECKPOINT_STALE)
        assert start(stored(hours=hours), policy=RESTART) == Reinitialize(Cause.CHECKPOINT_STALE)

    def test_the_oldest_unfinished_shard_counts(self) -> None:
        """Not the newest, not a finished one, and not one that waits for its parent."""
        assert covered_until_ms(stored(hours=5).shards) == START_MS - 5 * HOUR_MS

    def test_where_all_are_finished_the_last_of_them_counts(self) -> None:
        """A stream that was drained and turned off is covered until then."""
        ended = [row("a", ShardState.FINISHED), row("b", ShardState.FINISHED, covered_ms=5)]
        assert covered_until_ms(ended) == START_MS
        assert covered_until_ms([]) is None

    def test_a_copy_without_positions_yet_is_not_stale(self) -> None:
        """Killed between its start and the first listing, it goes on."""
        assert start(stored(shards=(), is_loaded=False)) == Resume(scans=True)

    def test_the_limit_shrinks_with_retention(self) -> None:
        """For tests with an emulated retention of minutes."""
        policy = replace(ERROR, stale_after_ms=60_000)
        assert start(stored(hours=0.1), policy=policy) == Halt(Cause.CHECKPOINT_STALE)


class TestIdentity:
    def test_a_table_made_again_under_its_name(self) -> None:
        """A new TableId: the old rows are another table's, whatever the age."""
        again = replace(TABLE, table_id="id-2", stream_arn=OTHER_STREAM)
        assert start(stored(), again) == Halt(Cause.TABLE_RECREATED)
        assert start(stored(), again, RESTART) == Reinitialize(Cause.TABLE_RECREATED)
        assert start(stored(), again, DISABLED_RESTART) == StreamOnly(
            Cause.TABLE_RECREATED, clears=True
        )

    @pytest.mark.situation(30)
    def test_a_replaced_stream_is_drained_first(self) -> None:
        """The old one stays readable for a day; what it has leads up to the break."""
        moved = replace(TABLE, stream_arn=OTHER_STREAM)
        for policy in (ERROR, RESTART):
            assert start(stored(), moved, policy) == Drain(STREAM)

    def test_a_replaced_stream_after_a_long_stop_is_not_drained(self) -> None:
        """Its records are gone, or going."""
        moved = replace(TABLE, stream_arn=OTHER_STREAM)
        assert start(stored(hours=25), moved, RESTART) == Reinitialize(Cause.CHECKPOINT_STALE)

    def test_a_stream_that_is_off_is_read_to_its_end(self) -> None:
        """LatestStreamArn stays; the stream may come back as another, and that is seen then."""
        assert start(stored(), OFF) == Resume(scans=False)

    def test_what_cannot_be_loaded_anew_waits(self) -> None:
        """Under restart a loss with the stream off waits for a person, the data kept."""
        decision = start(stored(hours=25), OFF, RESTART)
        assert isinstance(decision, Wait)
        assert decision.error.code == "stream_disabled"


class TestGaps:
    @pytest.mark.situation(29)
    @pytest.mark.situation(82)
    @pytest.mark.parametrize("cause", list(GapCause))
    def test_every_gap_the_graph_reports_has_a_way_on(self, cause: GapCause) -> None:
        """An explicit policy, never the same error at each poll."""
        found = [gap(cause.value)]
        assert decide_gaps(found, TABLE, ERROR, is_loaded=True) == Halt(Cause(cause.value))
        assert decide_gaps(found, TABLE, RESTART, is_loaded=True) == Reinitialize(
            Cause(cause.value)
        )
        assert decide_gaps(found, TABLE, DISABLED_RESTART, is_loaded=True) == StreamOnly(
            Cause(cause.value)
        )
        assert isinstance(decide_gaps(found, OFF, RESTART, is_loaded=True), Wait)
        assert decide_gaps([], TABLE, ERROR, is_loaded=True) is None

    def test_a_gap_that_is_open_at_start_is_still_one(self) -> None:
        """Starting again forgets nothing; a changed policy takes effect."""
        lossy = stored(open_gaps=(gap(),))
        assert start(lossy) == Halt(Cause.TRIMMED)
        assert start(lossy, policy=RESTART) == Reinitialize(Cause.TRIMMED)

    def test_rows_that_no_snapshot_completed_are_no_base_to_stream_onto(self) -> None:
        """Though snapshots are disabled by now."""
        assert decide_gaps([gap()], TABLE, DISABLED_RESTART, is_loaded=False) == Reinitialize(
            Cause.TRIMMED
        )

    def test_a_gap_during_the_first_snapshot_begins_a_new_generation(self) -> None:
        """Its segments are not reused: what was scanned may miss what was lost."""
        half = stored(is_loaded=False, open_gaps=(gap(),))
        assert start(half) == Halt(Cause.TRIMMED)
        assert start(half, policy=RESTART) == Reinitialize(Cause.TRIMMED, resumes=False)

    def test_halting_names_the_remedy(self) -> None:
        """Data kept, state Error, and what to do."""
        for cause in Cause:
            reason = Halt(cause).reason
            assert reason.code == cause.value
            assert SENTENCES[cause] in reason.sentence
            assert "dynaduck refresh" in reason.remedy
            assert Reinitialize(cause).sentence == SENTENCES[cause]


class TestSnapshots:
    def test_an_unfinished_snapshot_is_resumed(self) -> None:
        """From its stored segments."""
        half = stored(is_loaded=False)
        assert start(half) == Resume(scans=True)
        assert start(half, policy=ALWAYS) == Resume(scans=True)
        assert start(half, policy=DISABLED) == Resume(scans=True)

    def test_always_loads_anew_at_every_start(self) -> None:
        """Beside the data; an unfinished one of those goes on."""
        assert start(stored(), policy=ALWAYS) == Refresh(RefreshCause.ALWAYS, resumes=False)
        shadow = stored(generation=2, is_loaded=False)
        assert start(stored(shadow=shadow), policy=ALWAYS) == Refresh(
            RefreshCause.ALWAYS, resumes=True
        )

    def test_changed_settings_load_anew(self) -> None:
        """Pins, filters and depth shape rows: the old ones were made under others."""
        assert start(stored(), print_="g") == Refresh(RefreshCause.SETTINGS_CHANGED, resumes=False)
        shadow = stored(generation=2, is_loaded=False, fingerprint="g")
        assert start(stored(shadow=shadow), print_="g") == Refresh(
            RefreshCause.SETTINGS_CHANGED, resumes=True
        )
        older = replace(shadow, fingerprint="f")
        assert start(stored(shadow=older), print_="g") == Refresh(
            RefreshCause.SETTINGS_CHANGED, resumes=False
        )

    def test_half_a_snapshot_under_other_settings_is_loaded_anew(self) -> None:
        """It would mix two shapes of rows."""
        assert start(stored(is_loaded=False), print_="g") == Refresh(
            RefreshCause.SETTINGS_CHANGED, resumes=False
        )

    def test_a_refresh_by_hand_goes_on_after_a_restart(self) -> None:
        """Its shadow is there, and unbroken."""
        shadow = stored(generation=2, is_loaded=False)
        assert start(stored(shadow=shadow)) == Refresh(RefreshCause.BY_HAND, resumes=True)

    def test_a_rebuild_goes_on_after_a_restart(self) -> None:
        """Whatever the policy is by now: somebody has asked for it."""
        shadow = stored(generation=2, is_loaded=False)
        lossy = stored(hours=30, open_gaps=(gap(),), shadow=shadow)
        for policy in (ERROR, RESTART):
            assert start(lossy, policy=policy) == Reinitialize(Cause.TRIMMED, resumes=True)

    def test_a_rebuild_that_is_stale_itself_begins_again(self) -> None:
        """A gap starts a new generation, of a shadow too."""
        shadow = stored(hours=19, generation=2, is_loaded=False)
        lossy = stored(hours=30, open_gaps=(gap(),), shadow=shadow)
        assert start(lossy, policy=RESTART) == Reinitialize(Cause.TRIMMED, resumes=False)
        assert start(lossy) == Halt(Cause.TRIMMED)

    def test_a_rebuild_from_the_new_stream_needs_no_draining(self) -> None:
        """The old stream's part was over when the rebuild began."""
        moved = replace(TABLE, stream_arn=OTHER_STREAM)
        shadow = stored(identity=moved.identity(), generation=2, is_loaded=False)
        assert start(stored(shadow=shadow), moved, RESTART) == Reinitialize(
            Cause.STREAM_REPLACED, resumes=True
        )


class TestStream:
    FACTS = StreamFacts(TABLE.identity(), TABLE, "ENABLED")

    def decide(
        self, facts: StreamFacts, policy: Policy = RESTART, *, is_drained: bool = False
    ) -> object:
        return decide_stream(facts, policy, is_drained=is_drained, is_loaded=True)

    def test_a_stream_in_order_is_read_on(self) -> None:
        """Nothing follows from good facts, nor from none."""
        assert self.decide(self.FACTS) is None
        assert self.decide(StreamFacts(TABLE.identity())) is None

    @pytest.mark.situation(31)
    def test_a_stream_replaced_while_running(self) -> None:
        """Drained first; then what lies between the two is lost, by either policy."""
        facts = replace(self.FACTS, table=replace(TABLE, stream_arn=OTHER_STREAM))
        assert self.decide(facts) == Drain(STREAM)
        assert self.decide(facts, is_drained=True) == Reinitialize(Cause.STREAM_REPLACED)
        assert self.decide(facts, ERROR, is_drained=True) == Halt(Cause.STREAM_REPLACED)
        gone = replace(facts, is_stream_gone=True)
        assert self.decide(gone) == Reinitialize(Cause.STREAM_REPLACED)

    def test_a_stream_turned_off_is_waited_for(self) -> None:
        """What it still has is read; its error is shown; it is no loss yet."""
        facts = replace(self.FACTS, table=OFF, stream_status="DISABLED")
        assert self.decide(facts, is_drained=True) is None

    def test_a_table_made_again_while_running(self) -> None:
        """The old stream is not drained: its rows are another table's."""
        facts = replace(self.FACTS, table=replace(TABLE, table_id="id-2"))
        assert self.decide(facts) == Reinitialize(Cause.TABLE_RECREATED)

    def test_a_table_that_is_gone_is_waited_for(self) -> None:
        """It may be made again; until then the data is served."""
        facts = replace(self.FACTS, is_table_gone=True, is_stream_gone=True)
        assert self.decide(facts) is None

    def test_a_stream_that_is_gone_is_a_loss(self) -> None:
        """The table says that it still has it, AWS does not know it."""
        facts = replace(self.FACTS, is_stream_gone=True)
        assert self.decide(facts) == Reinitialize(Cause.STREAM_GONE)
        assert self.decide(facts, ERROR) == Halt(Cause.STREAM_GONE)

    def test_a_stream_that_is_off_and_gone_waits_under_restart(self) -> None:
        """There is nothing to load from: the remedy is to turn it on."""
        facts = replace(self.FACTS, table=OFF, is_stream_gone=True)
        assert isinstance(self.decide(facts), Wait)
