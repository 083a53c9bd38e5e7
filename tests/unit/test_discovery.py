"""The caller of DescribeStream: its budget, its patience, and what it sees of the whole stream."""

from __future__ import annotations

from collections import Counter

import pytest

from connector.errors import AccessDenied, Throttled, Unavailable
from connector.stream.discovery import StreamFacts
from tests.builders import START_MS
from tests.model_stream import ModelStream
from tests.reading import Reading


class TestListing:
    @pytest.mark.situation(1)
    @pytest.mark.situation(2)
    def test_every_page_is_read(self) -> None:
        """Only an empty LastEvaluatedShardId ends a listing: the 101st shard counts, too."""
        stream = ModelStream(roots=250)
        reading = Reading(stream)
        reading.run(10)
        for shard_id in ("s001", "s101", "s250"):
            stream.write(shard_id)
        reading.run(5)
        assert sorted(reading.applied) == [0, 1, 2]
        assert reading.discovery.facts.shards_listed == 250

    @pytest.mark.situation(16)
    @pytest.mark.situation(55)
    def test_a_listing_that_is_throttled_goes_on_where_it_was(self) -> None:
        """Pages count as they come: 684 shards are found though every other call fails."""
        stream = ModelStream(roots=684)
        reading = Reading(stream)
        for _ in range(3):
            reading.run(1.1)
            stream.fail("describe_stream", Throttled("rate exceeded"))
        reading.run(30)
        assert reading.discovery.facts.listings == 1
        assert Counter(stream.calls)["describe_stream"] == 7 + 3
        assert len(reading.reader.views()) == 684

    @pytest.mark.situation(16)
    def test_progress_shows_before_the_first_listing_is_whole(self) -> None:
        """A stream that is slow to list is not a stream that is silent."""
        stream = ModelStream(roots=300)
        reading = Reading(stream)
        reading.run(0.6)
        assert 0 < reading.discovery.facts.shards_listed < 300
        assert reading.discovery.facts.listings == 0

    def test_shards_on_an_early_page_are_read_before_the_listing_ends(self) -> None:
        """Partial progress counts once a first listing is known."""
        stream = ModelStream(roots=2, listing_page=1)
        reading = Reading(stream)
        reading.run(3)
        root = stream.add_shard(None)
        stream.write(root.shard_id)
        stream.fail("describe_stream", *[Throttled("slow")] * 3)
        reading.run(75)
        assert reading.applied == [0]

    @pytest.mark.situation(25)
    @pytest.mark.situation(55)
    def test_two_calls_a_second_at_most(self) -> None:
        """Whatever there is to ask: AWS allows ten to all who look at the account's streams."""
        stream = ModelStream(roots=40, listing_page=1)
        reading = Reading(stream)
        reading.run(10)
        calls = Counter(stream.calls)
        assert calls["describe_stream"] + calls["children_of"] <= 21

    def test_a_full_listing_comes_each_minute(self) -> None:
        """And no more often while nothing has happened."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(605)
        assert Counter(stream.calls)["describe_stream"] == 11

    def test_a_long_listing_takes_a_tenth_of_the_time(self) -> None:
        """With 100 pages it comes every 500 s, and not every minute."""
        stream = ModelStream(roots=100, listing_page=1)
        reading = Reading(stream)
        reading.run(540)
        assert reading.discovery.facts.listings == 1
        reading.run(60)
        assert reading.discovery.facts.listings == 2

    def test_many_ends_at_once_are_answered_by_one_listing(self) -> None:
        """A change of capacity mode ends all shards, and a question for each takes minutes."""
        stream = ModelStream(roots=150)
        reading = Reading(stream)
        reading.run(10)
        before = Counter(stream.calls)
        for shard in list(stream.open_shards()):
            (child,) = stream.close(shard.shard_id, 1)
            stream.write(child.shard_id)
        reading.run(12)
        calls = Counter(stream.calls) - before
        assert len(reading.applied) == 150
        assert calls["children_of"] < 10
        assert calls["describe_stream"] < 10

    def test_a_filter_that_is_ignored_does_no_harm(self) -> None:
        """An endpoint that does not know CHILD_SHARDS answers with all shards."""
        stream = ModelStream(roots=2)
        reading = Reading(stream)
        reading.run(5)
        describe = stream.describe_stream

        def unfiltered(arn: str, **options: str | None) -> object:
            options.pop("children_of", None)
            return describe(arn, **options)

        stream.describe_stream = unfiltered  # type: ignore[method-assign,assignment]
        (child,) = stream.close("s001", 1)
        stream.write(child.shard_id)
        reading.run(5)
        assert reading.applied == [0]
        assert reading.state("s001") == "finished"

    def test_children_on_a_second_page_are_found(self) -> None:
        """The answer to a question has pages, too."""
        stream = ModelStream(roots=1, listing_page=1)
        reading = Reading(stream)
        reading.run(5)
        for child in stream.close("s001", 2):
            stream.write(child.shard_id)
        reading.run(5)
        assert sorted(reading.applied) == [0, 1]

    def test_a_cursor_that_is_refused_is_given_up(self) -> None:
        """The shard it stands on may be gone: the listing begins again."""
        stream = ModelStream(roots=4, listing_page=1)
        reading = Reading(stream)
        reading.run(0.6)
        stream.vanish("s002")
        reading.run(10)
        assert reading.watcher.failures["request_refused"] == 1
        assert reading.discovery.facts.listings == 1
        assert len(reading.reader.views()) == 3

    def test_a_question_about_a_shard_that_is_gone_is_answered_by_a_listing(self) -> None:
        """Its children may be listed though it is not."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        (child,) = stream.close("s001", 1)
        stream.write(child.shard_id)
        reading.discovery._next_call_s = reading.clock.now_s + 3
        reading.run(2.5)
        assert reading.state("s001") == "draining"
        stream.vanish("s001")
        reading.run(10)
        assert reading.applied == [0]
        assert not reading.gaps


class TestFacts:
    def test_errors_last_until_an_answer(self) -> None:
        """With the time of the first, so that health can tell a moment from a state."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        denied = AccessDenied("no", action="dynamodb:DescribeStream")
        stream.fail("describe_stream", denied, denied, denied)
        since_s = reading.clock.now_s
        while reading.discovery.facts.error is None:
            reading.run(1)
        first_s = reading.discovery.facts.error_since_s
        assert first_s is not None
        assert first_s >= since_s
        reading.run(0.6)
        assert reading.discovery.facts.error_since_s == first_s
        reading.run(60)
        assert reading.discovery.facts.error is None

    @pytest.mark.situation(31)
    @pytest.mark.situation(30)
    def test_a_stream_turned_off_and_on_is_seen_while_running(self) -> None:
        """LatestStreamArn names another stream: a checkpoint of the old one would stay silent."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        assert not reading.discovery.facts.is_stream_replaced
        identity = stream.identity()
        old_arn, stream.stream_arn = stream.stream_arn, "arn:aws:dynamodb:x:1:table/t/stream/2"
        reading.run(61)
        facts = reading.discovery.facts
        assert facts.is_stream_replaced
        assert not facts.is_table_recreated
        assert facts.identity == identity
        assert facts.identity.stream_arn == old_arn

    def test_a_status_that_changes_makes_it_look_at_the_table(self) -> None:
        """Not a minute later."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        stream.disable()
        before = Counter(stream.calls)
        reading.run(5)
        assert (Counter(stream.calls) - before)["describe_table"] == 1
        assert reading.discovery.facts.is_stream_disabled
        assert reading.reader.is_drained

    def test_a_table_made_again_is_seen_by_its_id(self) -> None:
        """The name is the same; all else is another table."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        stream.table_id, stream.stream_arn = "table-2", "arn:2"
        reading.run(61)
        facts = reading.discovery.facts
        assert facts.is_table_recreated
        assert not facts.is_stream_replaced, "that is the smaller word for it"

    def test_a_table_that_is_gone_is_waited_for(self) -> None:
        """It is shown, asked about again, and no loss while it may come back."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        stream.is_table_there = False
        reading.run(61)
        assert reading.discovery.facts.is_table_gone
        stream.is_table_there = True
        reading.run(61)
        assert not reading.discovery.facts.is_table_gone

    def test_a_stream_that_is_gone_is_told_apart_from_a_shard(self) -> None:
        """Every shard is refused then: the stream itself says so, and the table is looked at."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        stream.is_stream_there = False
        stream.shards.clear()
        reading.run(10)
        assert reading.discovery.facts.is_stream_gone
        assert reading.state("s001") == "verify"
        assert not reading.gaps

    def test_a_network_that_is_down_is_no_loss(self) -> None:
        """An hour without an answer leaves all as it was."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(5)
        dark = [Unavailable("no route")] * 4000
        for method in ("describe_stream", "describe_table", "get_records", "open_iterator"):
            stream.fail(method, *dark)
        stream.write("s001")
        reading.run(3600)
        facts = reading.discovery.facts
        assert [facts.is_stream_gone, facts.is_table_gone, facts.is_stream_replaced] == [False] * 3
        stream.faults.clear()
        reading.run(60)
        assert reading.applied == [0]
        assert not reading.gaps

    def test_nothing_is_said_before_anything_is_seen(self) -> None:
        """Facts begin empty."""
        facts = StreamFacts(ModelStream(now_ms=START_MS).identity())
        assert not facts.is_stream_disabled
        assert not facts.is_stream_replaced
        assert not facts.is_table_recreated
