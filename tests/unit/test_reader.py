"""Pollers over one graph: what is handed over, in which order, and what no error can stop."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

import pytest

from accelerator.batch import CHANGES
from checkpoints.positions import PositionKind, ShardState
from connector.errors import AccessDenied, CorruptPage, IteratorExpired, Throttled, Unavailable
from connector.stream.lineage import Origin
from tests.builders import HOUR_MS, START_MS, row, shard_tree
from tests.model_stream import ModelStream
from tests.reading import Reading, numbers


class TestBatches:
    def test_a_page_and_its_position_are_one_batch(self) -> None:
        """All of it commits, or none."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.is_applying = False
        reading.run(1)
        reading.apply()
        for _ in range(3):
            stream.write("s001")
        reading.run(1)
        (batch,) = [b for b in reading.sink.batches if b.changes.num_rows]
        assert batch.changes.schema == CHANGES
        assert [r.shard_id for r in batch.shards] == ["s001"]
        assert batch.shards[0].position.kind is PositionKind.AFTER_SEQUENCE_NUMBER
        assert batch.shards[0].records == 3
        assert batch.generation == 1
        assert batch.nbytes > 0

    def test_idle_shards_hand_over_next_to_nothing(self) -> None:
        """No empty transactions: one batch a minute carries what got covered."""
        reading = Reading(ModelStream(roots=16))
        reading.run(10)
        before = reading.commits
        reading.run(600)
        assert reading.commits - before <= 10

    @pytest.mark.situation(24)
    @pytest.mark.situation(75)
    def test_idle_shards_cost_thirty_calls_a_minute(self) -> None:
        """At ready_lag 2 s, whatever their number."""
        stream = ModelStream(roots=16)
        reading = Reading(stream)
        reading.run(30)
        before = Counter(stream.calls)
        reading.run(60)
        calls = Counter(stream.calls) - before
        assert calls["get_records"] / 16 == pytest.approx(30, abs=1)

    def test_what_is_older_than_the_cut_is_dropped_at_the_front_only(self) -> None:
        """Where AT_TIMESTAMP is not known, the prefix of a lineage is skipped; nothing after it."""
        stream = ModelStream(knows_timestamps=False)
        for _ in range(5):
            stream.write("s001")
        stream.pass_ms(HOUR_MS)
        reading = Reading(stream)
        young = stream.write("s001")
        assert stream.page_records > 6, "all on one page"
        # Creation times are approximate: an older one behind a younger one is no prefix.
        stream.shards["s001"].records.append(stream.written[0])
        reading.run(1)
        assert reading.applied == [young.number, 0]

    def test_a_full_sink_stops_reading_and_loses_nothing(self) -> None:
        """Back-pressure: no request is made whose answer has no room."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(1)
        reading.sink.is_full = True
        reading.pass_s(5)
        stream.write("s001")
        calls = len(stream.calls)
        due_s = reading.reader.step(reading.clock.now_s)
        assert due_s is not None
        assert len(stream.calls) == calls
        reading.sink.is_full = False
        reading.run(1)
        assert reading.applied == [0]

    @pytest.mark.situation(26)
    def test_iterators_that_expire_under_back_pressure_are_rebuilt(self) -> None:
        """After twenty minutes of a full queue reading goes on where the queue ends."""
        stream = ModelStream(page_records=2)
        reading = Reading(stream)
        reading.run(1)
        for _ in range(3):
            stream.write("s001")
        reading.is_applying = False
        reading.run(1)
        reading.sink.is_full = True
        reading.pass_s(1200)
        for _ in range(3):
            stream.write("s001")
        reading.sink.is_full = False
        reading.run(5)
        reading.apply()
        assert reading.applied == list(range(6))
        assert reading.watcher.failures["iterator_expired"] == 1

    @pytest.mark.situation(2)
    @pytest.mark.situation(48)
    def test_a_kill_at_any_commit_loses_and_repeats_nothing(self) -> None:
        """What was read and not committed is read again, by splits and rollovers too."""
        stream = ModelStream(roots=2, page_records=3)
        reading = Reading(stream)
        reading.run(1)
        for turn in range(40):
            for shard in stream.open_shards():
                for _ in range(4):
                    stream.write(shard.shard_id)
            if turn % 5 == 0:
                stream.close(stream.open_shards()[turn % 2].shard_id, 1 + turn % 2)
            reading.is_applying = False
            reading.run(1.5)
            reading.apply(turn % 3)
            reading.restart()
        reading.is_applying = True
        reading.run(30)
        assert sorted(reading.applied) == list(range(len(stream.written)))


class TestErrors:
    @pytest.mark.situation(57)
    @pytest.mark.situation(51)
    @pytest.mark.situation(79)
    def test_every_error_of_the_source_is_counted_shown_and_tried_again(self) -> None:
        """Access that is denied for a moment ends no shard."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(1)
        errors = [
            Throttled("slow down"),
            Unavailable("no route"),
            CorruptPage("cut short"),
            IteratorExpired("old"),
            AccessDenied("not you", action="dynamodb:GetRecords"),
        ]
        stream.fail("get_records", *errors)
        written = stream.write("s001")
        due_s = reading.reader.step(reading.clock.now_s) or 0.0
        reading.pass_s(max(0.0, due_s - reading.clock.now_s) + 2)
        reading.reader.step(reading.clock.now_s)
        (view,) = reading.reader.views()
        assert view.state is ShardState.BACKOFF
        assert isinstance(view.error, Throttled)
        assert view.error_since_s == reading.clock.now_s
        reading.run(30)
        assert reading.applied == [written.number]
        assert sum(reading.watcher.failures.values()) == len(errors)
        assert reading.reader.views()[0].error is None

    def test_one_shards_trouble_slows_only_that_shard(self) -> None:
        """The others are read as if nothing had happened."""
        stream = ModelStream(roots=2)
        reading = Reading(stream)
        reading.run(1)
        stream.fail("s001", *[Unavailable("half open")] * 100)
        for _ in range(5):
            stream.write("s002")
            reading.run(2)
        assert len(reading.applied) == 5
        covered = {v.shard_id: v.covered_until_ms for v in reading.reader.views()}
        assert (covered["s001"] or 0) < (covered["s002"] or 0)

    @pytest.mark.situation(56)
    def test_a_defect_is_raised_and_its_shard_goes_on_later(self) -> None:
        """It reaches the supervisor, and it is not an answer that ends anything."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(1)
        reading.pass_s(5)
        stream.fail("get_records", RuntimeError("a defect"))
        with pytest.raises(RuntimeError, match="a defect"):
            reading.reader.step(reading.clock.now_s)
        assert reading.reader.fault is None
        written = stream.write("s001")
        reading.pass_s(30)
        reading.run(5)
        assert reading.applied == [written.number]

    def test_nothing_is_read_on_after_a_hand_over_failed(self) -> None:
        """What is enqueued is uncertain then: a new reader begins from the committed rows."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(1)
        written = stream.write("s001")
        reading.pass_s(5)
        reading.sink.fault = MemoryError("no room for a batch")
        with pytest.raises(MemoryError):
            reading.reader.step(reading.clock.now_s)
        assert isinstance(reading.reader.fault, MemoryError)
        with pytest.raises(MemoryError):
            reading.reader.step(reading.clock.now_s + 60)
        reading.restart()
        reading.run(2)
        assert reading.applied == [written.number]

    def test_a_gap_is_told_to_the_observer_and_to_the_rows(self) -> None:
        """Never by a log line alone."""
        stream = ModelStream(now_ms=START_MS + 30 * HOUR_MS)
        old = row("s001", after=5, covered_ms=START_MS)
        reading = Reading(stream, origin=Origin(START_MS), rows=[old])
        reading.run(1)
        assert [gap.cause for gap in reading.gaps] == ["retention_exceeded"]
        assert reading.watcher.gaps == reading.gaps


class TestThreads:
    @pytest.mark.situation(17)
    @pytest.mark.situation(35)
    def test_many_pollers_keep_each_shard_in_order_and_read_it_once(self) -> None:
        """One owner of the shards' state: pollers race, pages do not."""
        stream = ModelStream(roots=5, page_records=7)
        reading = Reading(stream)
        reading.run(1)
        for number in range(2000):
            stream.write(f"s{number % 5 + 1:03d}")
        lock = threading.Lock()
        page = stream.page

        def locked_page(shard_id: str, iterator: str) -> object:
            with lock:
                return page(shard_id, iterator)

        stream.page = locked_page  # type: ignore[method-assign,assignment]
        reading.pass_s(10)

        def poll() -> None:
            for _ in range(400):
                reading.reader.step(reading.clock.now_s)

        threads = [threading.Thread(target=poll) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        by_shard = defaultdict(list)
        for batch in reading.sink.batches:
            if batch.changes.num_rows:
                by_shard[batch.changes["shard_id"][0].as_py()].extend(numbers(batch))
        assert sum(len(got) for got in by_shard.values()) == 2000
        for shard_id, got in by_shard.items():
            assert got == [r.number for r in stream.shards[shard_id].records]

    def test_a_shard_that_comes_free_wakes_idle_pollers(self) -> None:
        """The child of a shard that ended is read at once, not at the next tick."""
        reading = Reading(ModelStream(), rows=[row("a", ShardState.DRAINING, after=5)])
        child = tuple(s for s in shard_tree("a>b") if s.parent_shard_id)
        reading.reader.children_listed("a", child, START_MS)
        reading.has_news = False
        reading.apply()
        assert reading.has_news


class TestRotation:
    @pytest.mark.situation(12)
    @pytest.mark.situation(25)
    def test_a_rollover_is_followed_within_two_polls(self) -> None:
        """The child's first record is a row soon after the parent's end was met."""
        stream = ModelStream()
        reading = Reading(stream)
        reading.run(10)
        (child,) = stream.close("s001", 1)
        stream.write(child.shard_id)
        reading.run(3)
        assert reading.applied == [0]
        assert Counter(stream.calls)["children_of"] == 1

    def test_a_year_of_rollovers_keeps_few_rows(self) -> None:
        """Finished shards are forgotten, so the store does not grow with time."""
        stream = ModelStream()
        reading = Reading(stream, listing_every_s=3600)
        reading.run(1)
        for _ in range(60):
            stream.write(stream.open_shards()[0].shard_id)
            stream.close(stream.open_shards()[0].shard_id, 1)
            reading.run(5)
            reading.pass_s(4 * 3600)
            reading.run(5)
            forgettable = reading.reader.forgettable()
            for shard_id in forgettable:
                del reading.rows[shard_id]
            reading.reader.forget(forgettable)
        assert len(reading.applied) == 60
        assert not reading.gaps
        assert len(reading.rows) < 26
