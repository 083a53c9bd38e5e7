"""Several datasets of one table: each is given every record once, in order, with shared calls."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.positions import Position
from connector.errors import IteratorExpired, SourceError, Throttled
from connector.source import OpenedIterator, RecordsPage, ScanPage, StreamPage, TableDescription
from connector.stream.sharing import KEPT_S, SharedReads, SharedSource
from tests.builders import changes
from tests.doubles import FakeClock

STREAM, SHARD, PAGE = "arn:stream", "shard-1", 3


class OneShard:
    """A shard of numbered records; each iterator is a place, and a name of its own."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.records: list[int] = []
        self.is_closed = False
        self.calls = 0
        self.next_error: SourceError | None = None
        self.on_read: Callable[[], object] = lambda: None
        self._places: dict[str, tuple[int, float]] = {}

    def at_ms(self) -> int:
        return int(self.clock.now_s) * 1000

    def write(self) -> None:
        self.records.append(len(self.records) + 1)

    def iterator(self, place: int) -> str:
        name = f"iterator-{len(self._places)}-at-{place}"
        self._places[name] = (place, self.clock.now_s)
        return name

    def open_iterator(self, stream_arn: str, shard_id: str, position: Position) -> OpenedIterator:
        assert (stream_arn, shard_id) == (STREAM, SHARD)
        self._raise()
        return OpenedIterator(self.iterator(int(position.sequence_number or 0)), self.at_ms())

    def get_records(self, shard_id: str, iterator: str, *, old_images: bool = False) -> RecordsPage:
        assert (shard_id, old_images) == (SHARD, False)
        self.calls += 1
        self.on_read()
        self._raise()
        place, made_s = self._places[iterator]
        if self.clock.now_s - made_s > 900:
            raise IteratorExpired("an iterator lives for fifteen minutes")
        found = self.records[place : place + PAGE]
        after = place + len(found)
        is_end = self.is_closed and after == len(self.records)
        rows = [
            {"sequence_number": str(n), "shard_id": SHARD, "op": "insert", "ttl_delete": False}
            for n in found
        ]
        return RecordsPage(
            changes(*rows),
            None if is_end else self.iterator(after),
            str(found[-1]) if found else None,
            self.at_ms() if found else None,
            100 * len(found),
            self.at_ms(),
        )

    def _raise(self) -> None:
        error, self.next_error = self.next_error, None
        if error is not None:
            raise error

    def describe_table(self) -> TableDescription:
        raise NotImplementedError

    def describe_stream(
        self, stream_arn: str, *, start_shard_id: str | None = None, children_of: str | None = None
    ) -> StreamPage:
        raise NotImplementedError

    def scan(
        self, segment: int, total_segments: int, start_key: str | None, *, consistent: bool
    ) -> ScanPage:
        raise NotImplementedError

    def get_item(self, keys: str) -> tuple[str | None, int]:
        raise NotImplementedError


class Member:
    """One dataset's reader: takes pages as a shard graph does, and keeps what it was given."""

    def __init__(self, source: SharedSource | OneShard) -> None:
        self.source = source
        self.given: list[int] = []
        self.covered_ms = 0
        self.is_done = False
        self._iterator: str | None = None

    def poll(self) -> None:
        if self.is_done:
            return
        try:
            self._poll()
        except Throttled:
            return
        except SourceError:
            self._iterator = None

    def _poll(self) -> None:
        if self._iterator is None:
            position = (
                Position.after(str(self.given[-1])) if self.given else Position.trim_horizon()
            )
            self._iterator = self.source.open_iterator(STREAM, SHARD, position).iterator
            return
        page = self.source.get_records(SHARD, self._iterator)
        self.given += [int(n) for n in page.changes.column("sequence_number").to_pylist()]
        if page.changes.num_rows == 0:
            self.covered_ms = max(self.covered_ms, page.at_ms)
        self._iterator, self.is_done = page.next_iterator, page.next_iterator is None


def room(members: int) -> tuple[OneShard, list[Member], FakeClock]:
    clock = FakeClock()
    shard = OneShard(clock)
    reads = SharedReads(clock.monotonic_s)
    return shard, [Member(reads.member(shard)) for _ in range(members)], clock


@given(
    seed=st.integers(0, 2**32), members=st.integers(1, 4), bound=st.sampled_from([0, 500, 10**7])
)
@settings(max_examples=100, deadline=None)
def test_each_is_given_every_record_once_and_in_order(seed: int, members: int, bound: int) -> None:
    """Whatever is kept or forgotten, fails, expires, or falls behind; and none is ahead of time."""
    draw = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.stream.sharing.MOST_BYTES", bound)
        shard, readers, clock = room(members)
        written_ms: dict[int, int] = {}
        for _ in range(150):
            match draw.randrange(12):
                case 0 | 1 | 2:
                    shard.write()
                    written_ms[shard.records[-1]] = shard.at_ms()
                case 3:
                    clock.advance(draw.choice([0.1, 0.6, 2.0, KEPT_S + 6, 1000.0]))
                case 4:
                    shard.next_error = draw.choice([Throttled("slow"), IteratorExpired("old")])
                case _:
                    reader = draw.choice(readers)
                    reader.poll()
                    missed = [
                        n
                        for n, at_ms in written_ms.items()
                        if at_ms < reader.covered_ms and n not in reader.given
                    ]
                    assert not missed
        shard.is_closed = True
        for _ in range(200):
            for reader in readers:
                reader.poll()
            clock.advance(0.2)
    for reader in readers:
        assert reader.given == shard.records
        assert reader.is_done


def polled(shard: OneShard, readers: list[Member], clock: FakeClock, rounds: int) -> int:
    """How many calls that many rounds cost, in which each polls once, half a second apart."""
    before = shard.calls
    for _ in range(rounds):
        for reader in readers:
            reader.poll()
            clock.advance(0.5 / len(readers))
    return shard.calls - before


def test_an_idle_shard_costs_one_readers_calls() -> None:
    """Three datasets poll an idle shard as often as one would."""
    shard, readers, clock = room(3)
    polled(shard, readers, clock, 2)
    assert polled(shard, readers, clock, 100) <= 102


def test_a_busy_shard_costs_one_readers_calls() -> None:
    """Every page is read once for all."""
    shard, readers, clock = room(2)
    for _ in range(3000):
        shard.write()
    polled(shard, readers, clock, 1)
    assert polled(shard, readers, clock, 990) <= 992
    assert readers[0].given == readers[1].given


def test_who_stood_elsewhere_joins_at_the_next_record() -> None:
    """Two that resume from different positions read apart until both have seen one record."""
    shard, readers, clock = room(2)
    shard.write()
    readers[0].given = [1]  # resumes after the first record; the other from the start
    polled(shard, readers, clock, 3)
    apart = polled(shard, readers, clock, 20)
    assert apart >= 38
    shard.write()
    polled(shard, readers, clock, 4)
    assert polled(shard, readers, clock, 20) <= 22
    assert [reader.given for reader in readers] == [[1, 2], [1, 2]]


def test_a_page_keeps_the_time_of_its_answer() -> None:
    """What was read a while ago proves nothing of now."""
    shard, readers, clock = room(2)
    for reader in readers:
        reader.poll()
    readers[0].poll()
    read_ms = readers[0].covered_ms
    clock.advance(0.9)
    readers[1].poll()
    assert readers[1].covered_ms == read_ms
    assert shard.calls == 1


def test_an_old_empty_page_is_read_again() -> None:
    """After a second an empty page is news to nobody: the shard is asked."""
    shard, readers, clock = room(2)
    for reader in readers:
        reader.poll()
    readers[0].poll()
    clock.advance(1.5)
    shard.write()
    readers[1].poll()
    assert readers[1].given == [1]


def test_who_wants_a_page_that_is_being_read_waits_for_it() -> None:
    """Two pollers at once make one call, and both get its answer."""
    shard, readers, _ = room(2)
    shard.write()
    for reader in readers:
        reader.poll()
    reached, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go_on.wait(30)

    shard.on_read = hold
    threads = [threading.Thread(target=reader.poll) for reader in readers]
    threads[0].start()
    assert reached.wait(30)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert shard.calls == 1
    assert [reader.given for reader in readers] == [[1], [1]]


def test_memory_is_bounded_while_one_does_not_read() -> None:
    """A paused dataset holds no pages for ever, and the others go on level."""
    clock = FakeClock()
    shard = OneShard(clock)
    reads = SharedReads(clock.monotonic_s)
    readers = [Member(reads.member(shard)) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.stream.sharing.MOST_BYTES", 3_000)
        for _ in range(1500):
            shard.write()
        cost = polled(shard, readers[:2], clock, 400)
        assert cost <= 402
        assert reads.nbytes <= 3_000
        clock.advance(2 * KEPT_S)
        readers[0].poll()
        assert reads.nbytes <= 300
