"""Where shards begin, in which order they are read, and what is polled when."""

from __future__ import annotations

import pytest

from checkpoints.positions import Position, PositionKind, ShardState
from connector.errors import AccessDenied, IteratorExpired, Throttled, Unavailable
from connector.source import ListedShard
from connector.stream.lineage import Listing, Origin, PageRead
from connector.stream.pacing import Pacing
from connector.stream.shards import ShardGraph
from tests.builders import HOUR_MS, START_MS, listing, pages, row, sequence, shard_tree
from tests.unit.graph_driver import Driver, end

CUT = Position.at_timestamp(START_MS - 300_000)


def is_drained(driver: Driver) -> bool:
    return driver.graph.is_drained


class TestFirstStart:
    @pytest.mark.situation(9)
    @pytest.mark.situation(73)
    @pytest.mark.situation(80)
    def test_every_open_shard_is_read_from_before_the_start(self) -> None:
        """All open shards start at the cut, which lies before the start: none is missed."""
        driver = Driver()
        driver.begin("a b c")
        assert driver.take() == ["a", "b", "c"]
        assert {driver.position(shard_id) for shard_id in "abc"} == {CUT}

    def test_nothing_is_read_before_the_first_complete_listing(self) -> None:
        """Part of a listing may hide an open parent on a later page."""
        driver = Driver()
        driver.listed("a b", complete=False)
        assert driver.take() == []
        assert not driver.graph.has_begun

    def test_what_is_closed_before_the_first_scan_is_finished_at_once(self) -> None:
        """The records of a closed shard with a known child are older than the snapshot."""
        driver = Driver()
        driver.begin("a>b")
        assert driver.rows["a"].state is ShardState.FINISHED
        assert driver.take() == ["b"]
        assert driver.position("b") == CUT

    def test_a_parent_shown_open_by_an_earlier_page_is_closed_by_its_child(self) -> None:
        """The listing spans two splits: the root is shown open, its child closed, both are over."""
        driver = Driver()
        shards = [
            ListedShard("a", None, "1", None),
            ListedShard("b", "a", "1", "2"),
            ListedShard("c", "b", "1", None),
        ]
        found = Listing(tuple(shards), "ENABLED", START_MS, START_MS, is_complete=True)
        driver.keep(driver.graph.listed(found, 0.0))
        driver.commit()
        assert driver.state("a") is ShardState.FINISHED
        assert driver.take() == ["c"]

    def test_a_closed_leaf_of_the_first_listing_is_waited_for(self) -> None:
        """A finished leaf without a known child is not done: its child may not be listed yet."""
        driver = Driver()
        driver.begin("a! b")
        assert driver.state("a") is ShardState.DRAINING
        assert driver.graph.take_question(2.0) == "a"
        driver.answer("a", "a>c")
        driver.commit()
        driver.take()
        assert driver.position("c") == CUT

    def test_a_leaf_is_childless_from_the_end_of_the_first_listing_on(self) -> None:
        """It may have ended while that was read: its first page says nothing about children."""
        driver = Driver()
        driver.at_ms += 400_000
        slow = Listing(shard_tree("a! b"), "ENABLED", START_MS, driver.at_ms, True)
        driver.keep(driver.graph.listed(slow, 0.0))
        driver.listed("a! b")
        assert driver.state("a") is ShardState.DRAINING

    def test_a_child_before_its_open_parent_waits(self) -> None:
        """A parent that still shows as open is read first, though its child is listed."""
        driver = Driver()
        driver.begin("a?>b")
        assert driver.take() == ["a"]
        assert driver.state("b") is ShardState.DISCOVERED

    def test_an_open_shard_without_its_parent_needs_a_second_listing(self) -> None:
        """A parent not listed yet is not absent: it may be younger than the page it belongs on."""
        driver = Driver()
        orphans = [s for s in shard_tree("p>c") if s.shard_id == "c"]
        first = listing("a")
        driver.keep(
            driver.graph.listed(
                type(first)((*first.shards, *orphans), "ENABLED", START_MS, START_MS, True), 0.0
            )
        )
        driver.commit()
        assert driver.take() == ["a"]
        assert driver.graph.wants_listing
        driver.listed("a p>c")
        driver.commit()
        assert driver.take() == ["p"], "the parent has shown up, and goes first"

    def test_an_open_shard_whose_parent_stays_away_is_a_root(self) -> None:
        """A parent that two listings do not show was gone before the start."""
        driver = Driver()
        first = listing("a")
        orphans = tuple(s for s in shard_tree("p>c") if s.shard_id == "c")
        shown = type(first)((*first.shards, *orphans), "ENABLED", START_MS, START_MS, True)
        for _ in range(2):
            driver.keep(driver.graph.listed(shown, 0.0))
        assert driver.take() == ["a", "c"]
        assert driver.position("c") == CUT
        assert not driver.graph.wants_listing

    def test_a_first_listing_that_comes_a_day_late_is_a_gap(self) -> None:
        """Shards may have come and gone since the start: what nobody saw is said to be lost."""
        driver = Driver()
        driver.at_ms += 25 * HOUR_MS
        driver.begin("a")
        assert [(gap.shard_id, gap.cause) for gap in driver.gaps] == [("*", "retention_exceeded")]

    def test_all_is_read_where_a_gap_is_accepted(self) -> None:
        """Streaming on without a snapshot begins at the oldest record, of closed shards too."""
        driver = Driver(origin=Origin(START_MS, reads_everything=True))
        driver.begin("a>b")
        assert driver.take() == ["a"]
        assert driver.position("a") == Position.trim_horizon()

    @pytest.mark.situation(49)
    def test_without_a_scan_closed_shards_are_read_too(self) -> None:
        """A shard may have ended between the start and the listing: nothing else brings that."""
        driver = Driver(origin=Origin(START_MS, has_scan=False))
        driver.begin("a>b")
        assert driver.take() == ["a"]
        assert driver.position("a") == CUT

    def test_where_all_is_read_the_start_is_no_proof(self) -> None:
        """Older records come first, onto rows that may be younger: till then nothing is covered."""
        driver = Driver(origin=Origin(START_MS, reads_everything=True))
        driver.begin("a")
        assert driver.view("a").covered_until_ms is None
        driver.pages("a", pages(1, at_ms=START_MS - HOUR_MS))
        driver.commit()
        assert driver.view("a").covered_until_ms is None
        driver.pages("a", pages(0, 0, 0, at_ms=START_MS + 2000))
        assert driver.view("a").covered_until_ms == START_MS + 2000

    def test_positions_are_known_only_when_they_are_committed(self) -> None:
        """The scan must not start before every shard's position is durable."""
        driver = Driver()
        driver.keep(driver.graph.listed(listing("a b"), 0.0))
        assert not driver.graph.is_positioned
        driver.commit()
        assert driver.graph.is_positioned


class TestLineage:
    @pytest.mark.situation(7)
    @pytest.mark.situation(10)
    def test_parent_before_child_when_both_are_found_together(self) -> None:
        """After a stop a parent and its child are both listed: the child waits for its turn."""
        driver = Driver([row("a", after=5, records=5)])
        driver.listed("a>b")
        assert driver.take() == ["a"]
        driver.page("a", end())
        assert driver.graph.take_question(driver.now_s) == "a"
        driver.answer("a", "a>b")
        driver.commit()
        driver.take()
        assert driver.position("b") == Position.trim_horizon()

    @pytest.mark.situation(8)
    def test_a_child_is_free_once_its_parents_end_is_committed(self) -> None:
        """Not when the parent is read to its end: its last records are not rows yet."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end(records=2, last=sequence(7)))
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b,c")
        driver.commit(1)
        assert driver.take() == [], "the last page is committed, the end is not"
        driver.commit()
        assert sorted(driver.take()) == ["b", "c"]

    def test_a_child_found_after_the_end_was_handed_over_waits_for_its_commit(self) -> None:
        """A second child that a listing shows meanwhile is no sooner free than the first."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end(records=1, last=sequence(6)))
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b")
        driver.listed("a>b,c")
        assert driver.take() == []
        driver.commit()
        assert sorted(driver.take()) == ["b", "c"]

    @pytest.mark.situation(14)
    def test_an_end_and_its_children_are_one_transaction(self) -> None:
        """A kill between the end of a shard and its children's rows would lose the children."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end())
        driver.graph.take_question(driver.now_s)
        progress = driver.answer("a", "a>b,c")
        states = {r.shard_id: r.state for r in progress.shards}
        assert states["a"] is ShardState.FINISHED
        assert states["b"] is states["c"] is ShardState.ELIGIBLE

    def test_one_child_seen_on_a_page_does_not_end_its_parent(self) -> None:
        """A split has two: only an answer that was asked for after the end tells them all."""
        driver = Driver([row("a", after=5, records=5)])
        driver.listed("a>b", complete=False)
        driver.page("a", end())
        driver.listed("a>b", complete=False)
        assert driver.state("a") is ShardState.DRAINING
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b,c")
        assert driver.state("a") is ShardState.FINISHED

    def test_a_listing_from_before_the_end_does_not_end_a_parent(self) -> None:
        """Its pages may be older than the shard's children."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end(at_ms=START_MS + 10_000))
        early = listing("a>b", at_ms=START_MS)
        driver.keep(driver.graph.listed(early, driver.now_s))
        assert driver.state("a") is ShardState.DRAINING

    @pytest.mark.situation(3)
    @pytest.mark.situation(12)
    def test_children_are_asked_for_the_moment_a_shard_ends(self) -> None:
        """The question is due at once, not at the next listing."""
        driver = Driver([row("a", after=5, records=5)])
        driver.listed("a")
        assert driver.graph.take_question(driver.now_s) is None
        driver.page("a", end())
        assert driver.graph.next_question_s() == driver.now_s

    @pytest.mark.situation(5)
    def test_a_leaf_without_children_is_asked_about_again(self) -> None:
        """A closed shard with no child is no error: it is asked again, later and later."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end())
        waits = []
        for _ in range(4):
            due_s = driver.graph.next_question_s()
            assert due_s is not None
            waits.append(due_s - driver.now_s)
            driver.now_s = due_s
            driver.graph.take_question(driver.now_s)
            driver.answer("a", "a!")
        assert waits[0] == 0
        assert waits[1:] == sorted(waits[1:])
        assert driver.state("a") is ShardState.DRAINING

    def test_a_leaf_is_finished_after_five_minutes_of_complete_listings(self) -> None:
        """Not sooner, and by AWS time."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end())
        driver.listed("a!")
        driver.pass_s(299)
        driver.listed("a!")
        assert driver.state("a") is ShardState.DRAINING
        driver.pass_s(1)
        driver.listed("a!", complete=False)
        assert driver.state("a") is ShardState.DRAINING, "part of a listing shows no absence"
        driver.listed("a!")
        assert driver.state("a") is ShardState.FINISHED

    def test_a_stream_that_is_off_is_drained_before_its_leaves_are_finished(self) -> None:
        """Nothing seems to follow. But a leaf may have a child that no listing shows yet: until
        that is out of the question it bounds what is covered.
        """
        driver = Driver([row("a", after=5, records=5), row("b", after=6, records=6)])
        driver.page("a", end())
        driver.listed("a! b", status="ENABLED")
        driver.commit()
        assert not is_drained(driver)
        before_ms = driver.graph.covered_until_ms
        assert before_ms is not None
        driver.page("b", end())
        driver.listed("a! b!", status="DISABLED")
        assert not is_drained(driver), "not before it is committed"
        driver.commit()
        assert is_drained(driver)
        driver.pass_s(299)
        driver.listed("a! b!", status="DISABLED")
        driver.commit()
        assert driver.state("a") is ShardState.DRAINING
        assert driver.graph.covered_until_ms == before_ms
        driver.pass_s(2)
        driver.listed("a! b!", status="DISABLED")
        driver.commit()
        assert driver.state("a") is driver.state("b") is ShardState.FINISHED
        assert is_drained(driver)
        assert driver.graph.covered_until_ms == before_ms, "the last sign of life"

    def test_a_child_that_shows_late_is_read_though_the_stream_is_off(self) -> None:
        """It was there all along, and so the stream is not drained."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end())
        driver.listed("a!", status="DISABLED")
        driver.commit()
        driver.listed("a! a>b!", status="DISABLED")
        driver.commit()
        assert driver.state("a") is ShardState.FINISHED
        assert not is_drained(driver)
        driver.take()
        assert driver.position("b") == Position.trim_horizon()

    def test_a_stream_on_its_way_to_disabled_is_not_over(self) -> None:
        """DISABLING says nothing about children."""
        driver = Driver([row("a", after=5, records=5)])
        driver.page("a", end())
        driver.listed("a!", status="DISABLING")
        assert driver.state("a") is ShardState.DRAINING

    def test_before_the_first_record_children_inherit_the_cut(self) -> None:
        """A lineage without a record has not begun: what is before the cut is the snapshot's."""
        driver = Driver()
        driver.begin("a")
        driver.page("a", end())
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b")
        driver.commit()
        driver.take()
        assert driver.position("b") == CUT

    def test_after_the_first_record_children_start_at_their_oldest(self) -> None:
        """From then on nothing is skipped: creation times are approximate, order is not."""
        driver = Driver()
        driver.begin("a")
        driver.pages("a", pages(3))
        driver.page("a", end())
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b")
        driver.commit()
        driver.take()
        assert driver.position("b") == Position.trim_horizon()

    def test_a_child_inherits_what_its_parent_covered(self) -> None:
        """Not the time when its end was read: the child may be as old as its last record."""
        driver = Driver([row("a", after=5, records=5, covered_ms=START_MS)])
        late_ms = START_MS + 17 * HOUR_MS
        driver.page("a", end(at_ms=late_ms))
        driver.graph.take_question(driver.now_s)
        driver.answer("a", "a>b")
        driver.commit()
        assert driver.rows["b"].covered_until_ms == START_MS

    @pytest.mark.situation(42)
    def test_a_late_root_starts_at_the_generations_start(self) -> None:
        """Never at now: what it holds since it was made would be lost."""
        driver = Driver()
        driver.begin("a")
        driver.pass_s(7200)
        driver.listed("a b")
        driver.commit()
        driver.take()
        assert driver.position("b") == CUT

    def test_a_late_root_is_proved_by_the_last_listing_without_it(self) -> None:
        """So its age is no false gap in a process that has run for days."""
        driver = Driver()
        driver.begin("a")
        driver.pass_s(48 * 3600)
        driver.listed("a")
        driver.gaps.clear()
        driver.handed_over.clear()
        driver.pass_s(600)
        driver.listed("a b")
        driver.commit()
        driver.gaps.clear()
        driver.take()
        driver.open("b")
        assert driver.gaps == []
        assert driver.rows["b"].covered_until_ms == driver.at_ms - 600_000 - 300_000

    def test_a_parent_never_seen_is_a_gap_after_five_minutes(self) -> None:
        """After the first listing, a parent neither stored nor listed came and went unread."""
        driver = Driver([row("a", after=5, records=5)])
        orphan = [s for s in shard_tree("p>c") if s.shard_id == "c"]
        for waited_s in (0, 200, 99):
            driver.pass_s(waited_s)
            found = listing("a", at_ms=driver.at_ms)
            shown = type(found)(
                (*found.shards, *orphan), "ENABLED", driver.at_ms, driver.at_ms, True
            )
            driver.keep(driver.graph.listed(shown, driver.now_s))
        assert driver.state("c") is ShardState.VERIFY
        driver.pass_s(1)
        shown = type(found)((*found.shards, *orphan), "ENABLED", driver.at_ms, driver.at_ms, True)
        driver.keep(driver.graph.listed(shown, driver.now_s))
        driver.commit()
        assert [(gap.shard_id, gap.cause) for gap in driver.gaps] == [("p", "parent_never_seen")]
        assert "c" in driver.take()
        assert driver.position("c") == Position.trim_horizon()

    def test_a_page_with_the_child_before_the_page_with_its_parent(self) -> None:
        """Pages come in any order; the child waits for the parent's page."""
        driver = Driver([row("a", after=5, records=5)])
        child = tuple(s for s in shard_tree("b>c") if s.shard_id == "c")
        found = listing("a", complete=False)
        driver.keep(
            driver.graph.listed(type(found)(child, "ENABLED", START_MS, START_MS, False), 0.0)
        )
        assert "c" not in driver.take()
        driver.listed("a>b", complete=False)
        driver.listed("a>b b>c")
        driver.commit()
        assert driver.gaps == []
        assert driver.state("c") is ShardState.DISCOVERED


class TestPolling:
    @pytest.mark.situation(22)
    @pytest.mark.situation(23)
    def test_a_page_that_leaves_more_is_followed_at_once(self) -> None:
        """No sleep while pages are full, whatever scan_interval says."""
        driver = Driver([row("a")], pacing=Pacing(floor_s=5.0))
        more = PageRead(1000, "i", sequence(9), START_MS, START_MS, more=True)
        driver.page("a", more)
        assert driver.graph.next_due_s() == driver.now_s

    def test_scan_interval_is_the_floor_between_other_polls(self) -> None:
        """A drained shard is not polled sooner."""
        driver = Driver([row("a")], pacing=Pacing(floor_s=5.0))
        for page in pages(3, 0, 0):
            driver.page("a", page)
            assert driver.graph.next_due_s() == driver.now_s + 5.0

    @pytest.mark.situation(24)
    @pytest.mark.situation(75)
    def test_empty_pages_stretch_the_wait_up_to_ready_lag(self) -> None:
        """An idle shard costs 30 calls a minute at ready_lag 2 s; a busy one is polled closely."""
        driver = Driver([row("a")], pacing=Pacing(idle_s=2.0))
        waits = []
        for page in pages(*[0] * 12):
            driver.page("a", page)
            waits.append(driver.view("a").interval_s)
        assert waits == sorted(waits)
        assert waits[0] < 0.05
        assert waits[-1] == pytest.approx(2.0)
        driver.pages("a", pages(1))
        assert driver.view("a").interval_s < 0.05

    @pytest.mark.situation(13)
    def test_a_hot_shard_does_not_starve_the_others(self) -> None:
        """What has been due longest goes first: a full page puts its shard behind the rest."""
        driver = Driver([row("a"), row("b"), row("c")])
        order = []
        for shard_id in "abc":
            driver.open(shard_id)
        for _ in range(6):
            work = driver.graph.take(driver.now_s)
            assert work is not None
            order.append(work.shard_id)
            more = PageRead(1000, "i", sequence(9), START_MS, START_MS, more=True)
            driver.work.pop(work.shard_id, None)
            driver.graph.page_read(work.shard_id, more, driver.now_s)
        assert sorted(order[:3]) == sorted(order[3:]) == ["a", "b", "c"]

    def test_ten_thousand_shards_take_turns(self) -> None:
        """Everyone is opened once before anyone is read, and read once before anyone is again."""
        driver = Driver()
        count = 10_000
        driver.begin(" ".join(f"s{number}" for number in range(count)))
        first = driver.take()
        for shard_id in first:
            driver.open(shard_id)
        second = driver.take()
        assert len(set(first)) == len(set(second)) == count
        for shard_id in second:
            page = PageRead(0, "i", None, None, START_MS)
            driver.work.pop(shard_id)
            driver.graph.page_read(shard_id, page, driver.now_s)
        assert driver.take() == []
        driver.now_s += 2.0
        assert len(driver.take()) == count

    def test_a_shard_is_with_one_poller_at_a_time(self) -> None:
        """So its pages are handed over in order."""
        driver = Driver([row("a")])
        assert driver.take() == ["a"]
        driver.now_s += 1000
        assert driver.take() == []

    def test_an_answer_that_nobody_asked_for_is_refused(self) -> None:
        """It would be applied out of order."""
        graph = ShardGraph(Origin(START_MS), [row("a")])
        with pytest.raises(ValueError, match="not asked"):
            graph.opened("a", "i", START_MS, 0.0)

    @pytest.mark.situation(79)
    @pytest.mark.parametrize(
        "error",
        [
            Throttled("slow down"),
            Unavailable("no route"),
            AccessDenied("not you", action="dynamodb:GetRecords"),
        ],
    )
    def test_errors_slow_their_shard_alone_and_never_end_it(self, error: Throttled) -> None:
        """Each failure doubles the wait up to a cap; the others are polled as before."""
        driver = Driver([row("a"), row("b")])
        driver.open("a")
        driver.open("b")
        waits = []
        for _ in range(12):
            driver.fail("a", error)
            waits.append(driver.due_s("a") - driver.now_s)
        assert waits[:4] == sorted(waits[:4])
        assert max(waits) <= 20.0
        assert driver.state("a") is ShardState.BACKOFF
        assert driver.view("b").error is None
        driver.pages("a", pages(1))
        assert driver.view("a").error is None

    @pytest.mark.situation(25)
    def test_a_throttled_shard_is_polled_slower_for_a_while(self) -> None:
        """Somebody else may read it, too: full speed after each refusal is refused again."""
        driver = Driver([row("a")])
        driver.open("a")
        for _ in range(3):
            driver.fail("a", Throttled("two readers already"))
        waits = []
        for number in range(60):
            full = PageRead(1000, "i", sequence(number), START_MS, START_MS, more=True)
            driver.page("a", full)
            waits.append(driver.view("a").interval_s)
        assert waits[0] == pytest.approx(0.18)
        assert waits == sorted(waits, reverse=True)
        assert waits[-1] == 0.0

    def test_many_shards_begin_with_longer_waits(self) -> None:
        """What tailing costs is bounded over all shards, so that a thousand do not eat the host."""
        few, many = Pacing(), Pacing()
        assert few.after_page(more=False, empties=1, is_closed=False, shards=4) == 0.02
        assert many.after_page(more=False, empties=1, is_closed=False, shards=500) == 1.0

    def test_a_closed_shard_is_drained_not_watched(self) -> None:
        """Empty pages on the way to a known end do not stretch the wait to ready_lag."""
        pacing = Pacing(idle_s=30.0)
        assert pacing.after_page(more=False, empties=20, is_closed=True, shards=1) < 0.2


class TestIterators:
    @pytest.mark.situation(26)
    @pytest.mark.situation(27)
    @pytest.mark.situation(48)
    def test_an_expired_iterator_is_rebuilt_after_what_is_enqueued(self) -> None:
        """Not after what is applied, or the queued pages would come twice."""
        driver = Driver([row("a", after=5, records=5)])
        driver.pages("a", pages(3, 2, first=6))
        driver.fail("a", IteratorExpired("too old"))
        driver.now_s += 60
        driver.take()
        assert driver.view("a").committed == row("a", after=5, records=5)
        assert driver.position("a") == Position.after(sequence(10))

    @pytest.mark.situation(48)
    @pytest.mark.situation(38)
    def test_a_restart_goes_on_after_what_is_committed(self) -> None:
        """What was queued is read again; each page moves the position, not each shard."""
        driver = Driver([row("a", after=5, records=5)])
        driver.pages("a", pages(3, 2, first=6))
        driver.commit(1)
        after = driver.restarted()
        after.take()
        assert after.position("a") == Position.after(sequence(8))

    @pytest.mark.situation(21)
    @pytest.mark.situation(43)
    def test_an_idle_shard_has_a_position_too(self) -> None:
        """Without a record it is rebuilt where it began, never at LATEST."""
        driver = Driver()
        driver.begin("a")
        driver.pages("a", pages(0, 0))
        driver.fail("a", IteratorExpired("too old"))
        driver.now_s += 60
        driver.take()
        assert driver.position("a") == CUT
        after = driver.restarted()
        after.take()
        assert after.position("a") == CUT

    @pytest.mark.situation(28)
    def test_iterators_that_expire_all_at_once_are_spread_out(self) -> None:
        """A jitter keeps a thousand shards from opening in the same instant."""
        draws = iter([0.1, 0.5, 0.9])
        driver = Driver([row("a"), row("b"), row("c")], pacing=Pacing(draw=lambda: next(draws)))
        for shard_id in "abc":
            driver.open(shard_id)
        for shard_id in "abc":
            driver.fail(shard_id, IteratorExpired("too old"))
        dues = {driver.due_s(shard_id) for shard_id in "abc"}
        assert len(dues) == 3
        assert max(dues) <= driver.now_s + 1.0

    def test_no_position_is_ever_the_latest(self) -> None:
        """There is no word for it: a record from before the first look would be lost."""
        assert "LATEST" not in {kind.value for kind in PositionKind}

    def test_a_prefix_is_skipped_only_until_the_first_younger_record(self) -> None:
        """The cut holds for a shard while its position is still a time, and for no other."""
        driver = Driver()
        driver.begin("a")
        driver.open("a")
        work = driver.graph.take(driver.now_s)
        assert work is not None
        assert getattr(work, "skip_before_ms") == START_MS - 300_000  # noqa: B009
        skipped = PageRead(0, "i", None, None, START_MS, skipped=7)
        driver.work.pop("a", None)
        driver.graph.page_read("a", skipped, driver.now_s)
        driver.pages("a", pages(2))
        driver.now_s += 1
        work = driver.graph.take(driver.now_s)
        assert getattr(work, "skip_before_ms") is None  # noqa: B009
