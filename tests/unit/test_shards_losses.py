"""What a shard proves, what counts as lost, and what is kept over a restart."""

from __future__ import annotations

import pytest

from checkpoints.positions import Position, PositionKind, ShardState
from connector.errors import IteratorExpired, ShardGone, Trimmed
from connector.source import ListedShard
from connector.stream.coverage import Coverage, Retention
from connector.stream.lineage import DONE, Listing, PageRead
from tests.builders import HOUR_MS, START_MS, pages, row, sequence
from tests.unit.graph_driver import Driver, end

OLD_MS = START_MS - 24 * HOUR_MS


class TestCoverage:
    def test_it_is_the_newest_creation_time_read(self) -> None:
        """Records cover their shard up to the youngest of them."""
        coverage = Coverage(100)
        coverage.records(5000, 9000)
        assert coverage.until_ms == 5000

    def test_it_never_falls(self) -> None:
        """Creation times are approximate: a younger record may say an older time."""
        coverage = Coverage(5000)
        coverage.records(4000, 9000)
        assert coverage.until_ms == 5000

    def test_a_record_from_the_future_covers_no_more_than_its_page(self) -> None:
        """A creation time after the page's Date is not believed."""
        coverage = Coverage(100)
        coverage.records(99_000, 9000)
        assert coverage.until_ms == 9000

    def test_one_empty_page_is_not_the_tip(self) -> None:
        """Empty pages in the middle of sparse data are legal: it takes three."""
        coverage = Coverage(100)
        coverage.empty(1000, is_closed=False)
        coverage.empty(2000, is_closed=False)
        assert (coverage.until_ms, coverage.is_proved_idle) == (100, False)
        coverage.empty(3000, is_closed=False)
        assert (coverage.until_ms, coverage.is_proved_idle) == (1000, True)

    def test_the_window_slides(self) -> None:
        """The oldest of the last three counts."""
        coverage = Coverage(100)
        for at_ms in (1000, 2000, 3000, 4000, 5000):
            coverage.empty(at_ms, is_closed=False)
        assert coverage.until_ms == 3000

    def test_a_record_empties_the_window(self) -> None:
        """What was empty before it proves nothing any more."""
        coverage = Coverage(100)
        coverage.empty(1000, is_closed=False)
        coverage.empty(2000, is_closed=False)
        coverage.records(None, 2500)
        coverage.empty(3000, is_closed=False)
        assert (coverage.until_ms, coverage.empties) == (100, 1)

    def test_empty_pages_of_a_closed_shard_prove_nothing(self) -> None:
        """Its children have changes of the same time that nobody has read."""
        coverage = Coverage(100)
        for at_ms in (1000, 2000, 3000):
            coverage.empty(at_ms, is_closed=True)
        assert coverage.until_ms == 100

    def test_an_iterator_opened_anew_walks_the_empty_stretch_again(self) -> None:
        """Its first empty pages may lie before what the old one had reached."""
        driver = Driver([row("a", after=5, records=5)])
        driver.pages("a", pages(0, 0, at_ms=START_MS + 60_000))
        driver.fail("a", IteratorExpired("too old"))
        driver.pages("a", pages(0, at_ms=START_MS + 90_000))
        assert driver.view("a").covered_until_ms == START_MS
        assert driver.view("a").empties == 1

    def test_after_a_long_hole_the_shard_is_proved_idle_anew(self) -> None:
        """One empty page after half a minute of failures is one page, however many came before."""
        driver = Driver([row("a", after=5, records=5)])
        driver.pages("a", pages(0, 0, 0, 0))
        assert driver.view("a").empties == 4
        driver.pass_s(30)
        driver.pages("a", pages(0, at_ms=driver.at_ms))
        assert (driver.view("a").empties, driver.view("a").idle_span_s) == (1, 0.0)
        driver.pages("a", pages(0, 0, at_ms=driver.at_ms))
        assert driver.view("a").empties == 3

    def test_what_waits_to_be_applied_covers_nothing(self) -> None:
        """Proof is on the applied side."""
        driver = Driver([row("a", after=5, records=5)])
        driver.pages("a", pages(2, at_ms=START_MS + 60_000))
        assert driver.view("a").covered_until_ms == START_MS
        assert driver.view("a").unapplied == 2
        driver.commit()
        assert driver.view("a").covered_until_ms == START_MS + 60_000
        assert driver.view("a").is_applied

    def test_all_shards_count_in_what_is_covered(self) -> None:
        """The oldest of them; a shard without proof leaves none."""
        driver = Driver([row("a", covered_ms=START_MS), row("b", covered_ms=START_MS + 5000)])
        assert driver.graph.covered_until_ms == START_MS
        assert not driver.graph.has_passed(START_MS + 1)
        assert driver.graph.has_passed(START_MS)
        driver = Driver([row("a"), row("b", covered_ms=None)])
        assert driver.graph.covered_until_ms is None
        assert not driver.graph.has_passed(0)

    def test_a_child_that_waits_has_not_passed(self) -> None:
        """A parent covered beyond a time does not speak for a child that nobody reads yet."""
        driver = Driver([row("a", covered_ms=START_MS + HOUR_MS)])
        driver.listed("a?>b")
        assert not driver.graph.has_passed(START_MS)

    def test_a_leaf_that_is_waited_for_has_not_passed(self) -> None:
        """A finished leaf without a known child is not done."""
        driver = Driver([row("a", after=5, records=5, covered_ms=START_MS)])
        driver.page("a", end(at_ms=START_MS + 60_000))
        driver.commit()
        assert not driver.graph.has_passed(START_MS + 1)


class TestGaps:
    @pytest.mark.situation(34)
    @pytest.mark.parametrize("after", [5, None])
    def test_opening_a_shard_after_a_day_is_a_gap_whatever_the_api_says(
        self, after: int | None
    ) -> None:
        """TRIM_HORIZON and AT_TIMESTAMP never report a trim: error codes alone miss the loss."""
        driver = Driver([row("a", after=after, records=5, covered_ms=OLD_MS)])
        progress = driver.open("a")
        assert [(gap.shard_id, gap.cause) for gap in progress.gaps] == [("a", "retention_exceeded")]
        assert progress.gaps[0].from_sequence_number == (sequence(5) if after else None)

    def test_a_gap_is_told_once(self) -> None:
        """After it nothing is proved until it is read again; opening again is no new gap."""
        driver = Driver([row("a", after=5, records=5, covered_ms=OLD_MS)])
        driver.open("a")
        driver.commit()
        driver.take()
        driver.fail("a", ShardGone("for a moment"))
        driver.pass_s(1)
        driver.listed("a")
        driver.pass_s(60)
        assert not driver.open("a").gaps
        assert len(driver.gaps) == 1
        assert driver.view("a").covered_until_ms is None

    def test_seventeen_hours_are_no_gap(self) -> None:
        """Within retention nothing can be lost."""
        driver = Driver([row("a", after=5, covered_ms=START_MS - 17 * HOUR_MS)])
        assert not driver.open("a").gaps

    def test_the_margin_lies_before_the_day(self) -> None:
        """An iterator may be used up to 15 minutes after it was opened."""
        retention = Retention()
        limit_ms = retention.window_ms - retention.margin_ms
        assert retention.margin_ms > 15 * 60_000
        assert not retention.may_have_lost(0, limit_ms)
        assert retention.may_have_lost(0, limit_ms + 1)
        assert not retention.may_have_lost(None, 10 * limit_ms)

    def test_a_trimmed_position_within_a_day_is_no_gap(self) -> None:
        """An idle shard's last record is trimmed though nothing is lost: go on with the oldest."""
        driver = Driver([row("a", after=5, records=5, covered_ms=START_MS - HOUR_MS)])
        driver.take()
        driver.fail("a", Trimmed("too old"))
        driver.now_s += 60
        driver.take()
        assert driver.position("a") == Position.trim_horizon()
        assert not driver.open("a").gaps
        assert driver.view("a").position.sequence_number == sequence(5), "the lineage has begun"

    @pytest.mark.situation(82)
    @pytest.mark.situation(83)
    def test_a_trimmed_position_after_a_day_is_a_gap(self) -> None:
        """Reading on from the oldest record is never silent."""
        driver = Driver([row("a", after=5, records=5, covered_ms=OLD_MS)])
        driver.take()
        driver.fail("a", Trimmed("too old"))
        driver.now_s += 60
        progress = driver.open("a")
        assert [(gap.cause, gap.from_sequence_number) for gap in progress.gaps] == [
            ("trimmed", sequence(5))
        ]

    @pytest.mark.situation(11)
    @pytest.mark.situation(29)
    def test_a_shard_that_is_gone_is_verified_and_then_a_gap(self) -> None:
        """Not retried for ever, and not believed before a complete listing agrees."""
        driver = Driver([row("a", after=5, records=5), row("b")])
        driver.take()
        driver.fail("a", ShardGone("no such shard"))
        assert driver.state("a") is ShardState.VERIFY
        assert driver.graph.wants_listing
        driver.listed("b", complete=False)
        assert driver.state("a") is ShardState.VERIFY
        driver.listed("b")
        assert driver.state("a") is ShardState.GAP
        driver.commit()
        assert [(gap.shard_id, gap.cause) for gap in driver.gaps] == [("a", "shard_gone")]
        assert not driver.graph.wants_listing

    def test_a_listing_from_before_the_refusal_does_not_count(self) -> None:
        """It may be older than what the refusal tells."""
        driver = Driver([row("a", after=5, records=5), row("b")])
        driver.pages("b", pages(0, at_ms=START_MS + 10_000))
        driver.fail("a", ShardGone("no such shard"))
        before = Listing((), "ENABLED", START_MS, START_MS + 11_000, True)
        driver.keep(driver.graph.listed(before, driver.now_s))
        assert driver.state("a") is ShardState.VERIFY

    def test_a_shard_that_is_listed_after_all_is_tried_again(self) -> None:
        """A refusal alone is no loss."""
        driver = Driver([row("a", after=5, records=5)])
        driver.take()
        driver.fail("a", ShardGone("no such shard"))
        driver.listed("a")
        driver.now_s += 60
        assert driver.take() == ["a"]
        assert not driver.gaps

    @pytest.mark.situation(15)
    def test_a_shard_gone_at_restore_stops_nothing_else(self) -> None:
        """The others are read on, and so are its children."""
        driver = Driver([row("a", after=5, records=5), row("b")])
        driver.listed("b a>c", complete=False)
        driver.open("a")
        driver.take()
        driver.fail("a", ShardGone("no such shard"))
        found = Listing(
            (
                ListedShard("b", None, "1" * 21, None),
                ListedShard("c", "a", "1" * 21, None),
            ),
            "ENABLED",
            START_MS,
            START_MS,
            True,
        )
        driver.keep(driver.graph.listed(found, driver.now_s))
        driver.commit()
        assert driver.state("a") is ShardState.GAP
        driver.take()
        assert driver.position("c") == Position.trim_horizon()
        driver.pages("b", pages(1))

    def test_a_shard_that_was_read_to_its_end_is_retired(self) -> None:
        """Its number has reached the end that a listing gave, compared as integers."""
        driver = Driver([row("a", after=5, records=5)])
        number = int(sequence(5))
        closed = ListedShard("a", None, "1" * 21, str(number).zfill(40))
        driver.keep(
            driver.graph.listed(Listing((closed,), "ENABLED", START_MS, START_MS, False), 0.0)
        )
        driver.take()
        driver.fail("a", ShardGone("no such shard"))
        driver.keep(driver.graph.listed(Listing((), "DISABLED", START_MS, START_MS, True), 0.0))
        driver.listed("", status="DISABLED")
        driver.commit()
        assert driver.state("a") is ShardState.DRAINING
        driver.pass_s(300)
        driver.listed("", status="DISABLED")
        driver.commit()
        assert driver.state("a") is ShardState.FINISHED
        assert not driver.gaps

    def test_a_leaf_that_waited_a_day_for_its_child_is_a_gap(self) -> None:
        """The child may have come and gone while the service was down."""
        driver = Driver([row("a", ShardState.DRAINING, after=5, covered_ms=OLD_MS)])
        driver.listed("a!")
        driver.pass_s(300)
        driver.listed("a!")
        driver.commit()
        assert driver.state("a") is ShardState.FINISHED
        assert [(gap.shard_id, gap.cause) for gap in driver.gaps] == [("a", "retention_exceeded")]

    def test_a_day_without_a_complete_listing_is_a_gap(self) -> None:
        """Roots may have come and gone while shards were read and DescribeStream was denied."""
        driver = Driver([row("a")])
        driver.listed("a")
        driver.pass_s(25 * 3600)
        driver.listed("a")
        driver.commit()
        assert [(gap.shard_id, gap.cause) for gap in driver.gaps] == [("*", "retention_exceeded")]


class TestEnds:
    @pytest.mark.situation(18)
    @pytest.mark.situation(19)
    @pytest.mark.situation(77)
    def test_the_last_pages_records_come_first_its_end_second(self) -> None:
        """A page with records and no next iterator is applied, and then its shard is over."""
        driver = Driver([row("a", after=5, records=5)])
        progress = driver.page("a", end(records=2, last=sequence(7)))
        (last,) = progress.shards
        assert (last.records, last.position) == (7, Position.shard_end(sequence(7)))
        assert last.state is ShardState.DRAINING

    @pytest.mark.situation(4)
    @pytest.mark.situation(20)
    def test_an_empty_last_page_ends_a_shard(self) -> None:
        """A null iterator alone means closed and read."""
        driver = Driver([row("a", after=5, records=5)])
        (last,) = driver.page("a", end()).shards
        assert last.position == Position.shard_end(sequence(5))
        assert driver.take() == []

    @pytest.mark.situation(32)
    @pytest.mark.situation(40)
    def test_nothing_else_ends_a_shard(self) -> None:
        """Not an end in a listing, not empty pages, not a restart in the middle."""
        driver = Driver([row("a", after=5, records=5)])
        driver.listed("a!")
        driver.pages("a", pages(0, 0, 0, 0, 1, 0))
        driver.commit()
        assert driver.rows["a"].state is ShardState.READING
        after = driver.restarted()
        after.listed("a!")
        assert after.take() == ["a"]


class TestMemory:
    def test_idle_positions_are_written_rarely_and_never_for_nothing(self) -> None:
        """The slow beat: once a minute, and only the shards that got further."""
        driver = Driver([row("a", after=5), row("b", after=5)])
        assert not driver.graph.beat(START_MS)
        driver.pages("a", pages(0, 0, 0, at_ms=START_MS + 50_000))
        assert not driver.graph.beat(START_MS + 59_000)
        progress = driver.graph.beat(START_MS + 60_000)
        assert [(r.shard_id, r.covered_until_ms) for r in progress.shards] == [
            ("a", START_MS + 50_000)
        ]
        assert not driver.graph.beat(START_MS + 61_000)
        assert not driver.graph.beat(START_MS + 180_000), "nothing got further"

    @pytest.mark.situation(76)
    def test_a_page_writes_one_row(self) -> None:
        """Not the whole map of shards."""
        driver = Driver([row(name) for name in "abcdef"])
        for progress in driver.pages("a", pages(3, 1)):
            assert [r.shard_id for r in progress.shards] in ([], ["a"])

    @pytest.mark.situation(33)
    def test_finished_rows_are_kept_while_they_are_listed(self) -> None:
        """A listing shows shards for longer than a day; forgetting one would read it again."""
        driver = Driver([row("a", ShardState.FINISHED, after=5), row("b", parent="a", after=9)])
        driver.pass_s(80 * 3600)
        assert driver.graph.forgettable() == (), "no listing yet"
        driver.listed("a>b")
        assert driver.graph.forgettable() == ()
        driver.listed("b")
        assert driver.graph.forgettable() == ("a",)
        driver.graph.forget(["a"])
        assert len(driver.graph) == 1

    @pytest.mark.situation(33)
    def test_finished_rows_are_kept_for_two_days_after_retention(self) -> None:
        """However soon the listing drops them."""
        driver = Driver([row("a", ShardState.FINISHED, after=5), row("b", after=9)])
        driver.pass_s(71 * 3600)
        driver.listed("b")
        assert driver.graph.forgettable() == ()
        driver.pass_s(3600)
        driver.listed("b")
        assert driver.graph.forgettable() == ("a",)

    @pytest.mark.parametrize("state", sorted(set(ShardState) - DONE - {ShardState.DRAINING}))
    def test_a_kill_in_any_state_leads_on_to_reading(self, state: ShardState) -> None:
        """Every state that is not an end is only a way back to the position."""
        driver = Driver([row("a", state, after=5, records=5)])
        assert driver.take() == ["a"]
        assert driver.position("a") == Position.after(sequence(5))

    @pytest.mark.parametrize("state", [ShardState.FINISHED, ShardState.GAP])
    def test_what_is_over_stays_over(self, state: ShardState) -> None:
        """Listings show finished shards for a day and more."""
        driver = Driver([row("a", state, after=5, records=5), row("b", parent="a")])
        driver.listed("a>b")
        assert driver.take() == ["b"]
        assert driver.graph.take_question(1000.0) is None

    def test_a_kill_before_the_children_were_known_asks_for_them_again(self) -> None:
        """A shard that was read to its end has nothing left but its children."""
        driver = Driver([row("a", ShardState.DRAINING, after=5, records=5)])
        assert driver.take() == []
        assert driver.graph.take_question(driver.now_s) == "a"

    def test_a_stored_child_whose_parent_is_finished_starts(self) -> None:
        """Whatever its row said when the process was killed."""
        driver = Driver(
            [
                row("a", ShardState.FINISHED, after=5, records=5),
                row("b", ShardState.DISCOVERED, parent="a", covered_ms=None),
            ]
        )
        assert driver.take() == ["b"]
        assert driver.position("b").kind is PositionKind.TRIM_HORIZON
        assert driver.view("b").covered_until_ms == START_MS

    def test_the_host_clock_decides_nothing(self) -> None:
        """A day's leap of the monotonic clock makes no gap and proves nothing."""
        driver = Driver([row("a", after=5, records=5)])
        driver.now_s += 86_400.0 * 3
        assert not driver.open("a").gaps
        page = PageRead(0, "i", None, None, START_MS)
        driver.page("a", page)
        assert driver.view("a").covered_until_ms == START_MS
