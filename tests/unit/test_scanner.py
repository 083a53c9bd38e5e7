"""The scanner on a fake clock: every item once, whatever fails and whenever it is killed."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpoints.positions import SnapshotSegment
from connector.clock import AwsTime
from connector.errors import (
    AccessDenied,
    CorruptPage,
    SourceError,
    TableNotFound,
    Throttled,
    Unavailable,
)
from connector.retry import Backoff
from connector.snapshot.capacity import ReadCapacity
from connector.snapshot.scanner import Scanner, new_segments, segments_for
from connector.source import ScanPage, TableDescription
from tests.unit.scan_table import BEGAN_MS, Dataset, StillClock, Table

MOST_STEPS = 5_000


class Bench:
    """A scanner over a table, turned by hand."""

    def __init__(
        self,
        *,
        items: int = 40,
        total: int = 4,
        max_rcu: float | None = None,
        consistent: bool = True,
        **table: object,
    ) -> None:
        self.clock = StillClock()
        self.table = Table(self.clock, items, **table)  # type: ignore[arg-type]
        self.dataset = Dataset(new_segments(total))
        self.capacity = ReadCapacity(max_rcu)
        self.consistent = consistent
        self.scanner = self.started()

    def started(self) -> Scanner:
        return Scanner(
            self.table,
            self.clock,
            self.dataset,
            self.dataset,
            self.dataset.segments(),
            generation=7,
            fills=7,
            consistent=self.consistent,
            capacity=self.capacity,
            backoff=Backoff(base_s=1.0, cap_s=8.0),
            draw=lambda: 0.5,
        )

    def restart(self) -> None:
        """What is queued is lost with the process; what is applied stays."""
        self.dataset.queued.clear()
        self.dataset.open.clear()
        self.scanner = self.started()

    def turn(self, most: int = MOST_STEPS, *, apply: bool = True) -> None:
        """Steps until done, jumping to when each next step is due."""
        for _ in range(most):
            if self.scanner.done:
                return
            due_s = self.scanner.step(self.clock.now_s)
            if apply:
                self.dataset.apply()
            if due_s is not None:
                self.clock.now_s = max(self.clock.now_s, due_s)
        if most == MOST_STEPS:
            raise AssertionError("the scanner does not come to an end")


@pytest.mark.parametrize("total", [1, 4, 50])
@pytest.mark.parametrize("empties", [0, 2])
def test_every_item_is_read_once(total: int, empties: int) -> None:
    """All segments to their ends, through empty pages that carry a key."""
    bench = Bench(items=40, total=total, empties=empties)

    bench.turn()

    assert bench.dataset.applied == Counter(range(40))
    assert all(segment.done for segment in bench.dataset.segments())
    assert sum(segment.items for segment in bench.dataset.segments()) == 40
    assert bench.dataset.open_tickets == 0


def test_a_page_and_its_progress_are_one_batch() -> None:
    """The batch says where its segment stands once it is applied, in its generation."""
    bench = Bench(items=10, total=2)

    bench.scanner.step(bench.clock.now_s)

    (batch,) = bench.dataset.queued
    assert batch.generation == 7
    assert batch.segments == (SnapshotSegment(0, 2, "[3, 0]", items=3, done=False),)
    assert batch.nbytes == 300
    assert batch.is_scan


def test_a_finished_scan_asks_nothing_more() -> None:
    """After the end, and after a restart at the end, no request is sent."""
    bench = Bench()
    bench.turn()
    sent = len(bench.table.requests)

    assert bench.scanner.step(bench.clock.now_s) is None
    bench.restart()
    assert bench.scanner.done
    assert bench.scanner.step(bench.clock.now_s) is None
    assert bench.scanner.ended_at_ms is None
    assert len(bench.table.requests) == sent


@pytest.mark.situation(36)
@given(
    kills=st.lists(st.integers(1, 6), max_size=12),
    applied=st.lists(st.integers(0, 3), max_size=12),
    total=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_killed_anywhere_it_goes_on_from_what_was_applied(
    kills: list[int], applied: list[int], total: int
) -> None:
    """No finished page is requested again, and no item is lost, however often it is killed."""
    bench = Bench(items=30, total=total)
    for steps, batches in zip(kills, itertools.cycle(applied or [1]), strict=False):
        bench.turn(steps, apply=False)
        bench.dataset.apply(batches)
        stored = {each.segment: each for each in bench.dataset.segments()}
        bench.restart()
        bench.table.requests.clear()
        bench.turn(total, apply=False)
        first = {request.segment: request for request in reversed(bench.table.requests)}
        assert all(
            request.start_key == stored[number].last_evaluated_key and not stored[number].done
            for number, request in first.items()
        )
        bench.restart()
    bench.turn()

    assert bench.dataset.applied == Counter(range(30))


@pytest.mark.situation(78)
def test_a_resumed_scan_keeps_its_number_of_segments() -> None:
    """Keys of another cut of the table would be applied to other ranges: they are refused."""
    other, lacking = Bench(total=2), Bench(total=2)
    other.dataset.stored[1] = replace(other.dataset.stored[1], total_segments=3)
    del lacking.dataset.stored[1]

    for bench in (other, lacking):
        with pytest.raises(ValueError, match="segment"):
            bench.restart()


def test_segments_take_turns() -> None:
    """The segment that has waited longest is next, so all advance together."""
    bench = Bench(items=1000, total=4)

    bench.turn(40)

    assert [request.segment for request in bench.table.requests] == [0, 1, 2, 3] * 10


def test_a_ticket_is_opened_for_each_request_right_before_it() -> None:
    """A retry gets a ticket of its own: keys changed before it was sent are in what it reads."""
    bench = Bench(items=10, total=1)
    bench.table.faults.append(Throttled("slow"))
    opened: list[tuple[int, int]] = []
    scan, open_ticket = bench.table.scan, bench.dataset.open_scan_ticket

    def watched_open() -> int:
        bench.dataset.commits += 10
        ticket = open_ticket()
        opened.append((ticket, len(bench.table.requests)))
        return ticket

    def watched_scan(*args: object, **options: object) -> ScanPage:
        assert bench.dataset.open_tickets == len(bench.dataset.queued) + 1
        return scan(*args, **options)  # type: ignore[arg-type]

    bench.dataset.open_scan_ticket = watched_open  # type: ignore[method-assign]
    bench.table.scan = watched_scan  # type: ignore[method-assign]
    bench.turn(3, apply=False)

    assert opened == [(10, 0), (20, 1), (30, 2)]
    assert [batch.scan_ticket for batch in bench.dataset.queued] == [20, 30]
    assert bench.dataset.open == Counter({20: 1, 30: 1})


@pytest.mark.parametrize("error", [Throttled("t"), Unavailable("u"), CorruptPage("c")])
def test_a_failed_page_is_asked_for_again_and_nothing_is_marked(error: SourceError) -> None:
    """Failures back off for ever, longer each time up to the cap, and are counted and shown."""
    bench = Bench(items=3, total=1)
    bench.table.faults.extend([error] * 6)

    waits = []
    for _ in range(6):
        now_s = bench.clock.now_s
        due_s = bench.scanner.step(now_s)
        assert due_s is not None
        waits.append(due_s - now_s)
        bench.clock.now_s = due_s

    assert waits == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert bench.dataset.queued == type(bench.dataset.queued)()
    assert bench.dataset.open_tickets == 0
    (fault,) = bench.scanner.faults()
    assert (fault.segment, fault.error, fault.attempts) == (0, error, 6)
    assert bench.scanner.progress().failures == 6
    assert bench.scanner.fault is None

    bench.turn()
    assert bench.dataset.applied == Counter(range(3))
    assert bench.scanner.faults() == ()


def test_a_success_begins_the_back_off_anew() -> None:
    """Only failures in a row lengthen the wait."""
    bench = Bench(items=10, total=1)
    bench.table.faults.extend([Throttled("t"), Throttled("t"), None, Throttled("t")])

    bench.turn(4)

    assert [fault.attempts for fault in bench.scanner.faults()] == [1]


@pytest.mark.parametrize("error", [AccessDenied("no", action="dynamodb:Scan"), TableNotFound("no")])
def test_what_a_person_must_mend_is_shown_and_still_tried(error: SourceError) -> None:
    """A denied Scan is state Error while it lasts, and goes on by itself once it is allowed."""
    bench = Bench(items=10, total=2)
    bench.table.faults.append(error)

    bench.scanner.step(bench.clock.now_s)
    shown = bench.scanner.fault
    bench.turn()

    assert shown is error
    assert bench.scanner.fault is None
    assert bench.dataset.applied == Counter(range(10))


def test_one_segments_trouble_slows_only_that_segment() -> None:
    """The others are read meanwhile."""
    bench = Bench(items=40, total=4)
    bench.table.faults.append(Throttled("t"))

    bench.turn(12)

    assert bench.clock.now_s == 100.0
    assert [request.segment for request in bench.table.requests[:8]] == [0, 1, 2, 3, 1, 2, 3, 1]


def test_a_defect_is_raised_and_loses_no_segment() -> None:
    """An error that is not the source's is for the supervisor; the page is asked for again."""
    bench = Bench(items=10, total=1)
    bench.table.faults.append(RuntimeError("a defect"))  # type: ignore[arg-type]

    with pytest.raises(RuntimeError, match="a defect"):
        bench.scanner.step(bench.clock.now_s)
    assert bench.dataset.open_tickets == 0

    bench.turn()
    assert bench.dataset.applied == Counter(range(10))


@pytest.mark.parametrize("breaks", ["offer", "open_scan_ticket"])
def test_a_sink_that_fails_loses_no_page(breaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not handed on is read again, and its ticket is given back."""
    bench = Bench(items=10, total=1)
    with monkeypatch.context() as patch:
        patch.setattr(bench.dataset, breaks, _fail)
        with pytest.raises(OSError, match="closed"):
            bench.scanner.step(bench.clock.now_s)
    assert bench.dataset.open_tickets == 0

    bench.turn()
    assert bench.dataset.applied == Counter(range(10))


def _fail(*_: object) -> None:
    raise OSError("closed")


def test_a_full_sink_is_waited_for() -> None:
    """No page is requested that there is no room for, and no step spins."""
    bench = Bench()
    bench.dataset.is_full = True

    due_s = bench.scanner.step(bench.clock.now_s)

    assert bench.table.requests == []
    assert bench.dataset.open_tickets == 0
    assert due_s is not None
    assert due_s > bench.clock.now_s
    bench.dataset.is_full = False
    bench.turn()
    assert bench.dataset.applied == Counter(range(40))


def test_the_end_is_after_the_last_answer_in_aws_time() -> None:
    """A Date header is cut to the second, so the end is a second after the youngest one."""
    bench = Bench(items=20, total=2, page_s=0.4)
    before = bench.scanner.ended_at_ms
    bench.turn()

    last_answer_ms = BEGAN_MS + int(bench.clock.now_s * 1000)
    assert before is None
    assert bench.scanner.ended_at_ms is not None
    assert last_answer_ms <= bench.scanner.ended_at_ms <= last_answer_ms + 1000


def test_the_end_is_not_there_while_a_page_is_under_way() -> None:
    """Done means that no other caller may still bring rows."""
    bench = Bench(items=4, total=1)
    seen: list[tuple[bool, int | None]] = []
    scan = bench.table.scan

    def watched(*args: object, **options: object) -> ScanPage:
        seen.append((bench.scanner.done, bench.scanner.ended_at_ms))
        return scan(*args, **options)  # type: ignore[arg-type]

    bench.table.scan = watched  # type: ignore[method-assign]
    bench.turn()

    assert seen == [(False, None)] * 2
    assert bench.scanner.done


@pytest.mark.parametrize("max_rcu", [10.0, 100.0])
def test_the_limit_is_kept_and_used(max_rcu: float) -> None:
    """Over any stretch of time the pages cost the rate, and never more than a page beyond it."""
    page_rcu = 50.0
    bench = Bench(items=300, total=4, max_rcu=max_rcu, page_rcu=page_rcu, page_s=0.01)
    began_s = bench.clock.now_s

    bench.turn()

    spent = 0.0
    for request in bench.table.requests:
        assert spent <= max_rcu * (request.at_s - began_s) + page_rcu + 1e-6
        spent += page_rcu
    first_guess = 128.0
    least_s = (spent - page_rcu) / max_rcu
    assert (
        least_s <= bench.clock.now_s - began_s <= least_s + (first_guess - page_rcu) / max_rcu + 1
    )
    assert bench.scanner.progress().consumed_rcu == spent


@pytest.mark.parametrize(
    ("error", "waits"),
    [(Throttled("t"), False), (Unavailable("u"), True), (CorruptPage("c"), True)],
)
def test_an_answer_that_was_lost_is_paid_for_and_a_refusal_is_not(
    error: SourceError, waits: bool
) -> None:
    """A page that AWS read and the network ate has cost its capacity."""
    bench = Bench(items=10, total=2, max_rcu=1.0)
    bench.table.faults.append(error)

    bench.scanner.step(bench.clock.now_s)
    bench.scanner.step(bench.clock.now_s)

    assert len(bench.table.requests) == (1 if waits else 2)


def test_limited_segments_share_the_rate_evenly() -> None:
    """Under a limit no segment runs ahead of another by more than a page."""
    bench = Bench(items=3000, total=5, max_rcu=10.0, page_rcu=10.0)

    bench.turn(500)

    turns = Counter(request.segment for request in bench.table.requests)
    assert max(turns.values()) - min(turns.values()) <= 1


@pytest.mark.parametrize("consistent", [True, False])
def test_pages_are_read_as_consistently_as_asked(consistent: bool) -> None:
    """The setting reaches every request, the first as well as those that go on."""
    bench = Bench(items=20, total=2, consistent=consistent)

    bench.turn()

    assert {request.consistent for request in bench.table.requests} == {consistent}
    assert bench.dataset.applied == Counter(range(20))


def test_progress_counts_the_whole_snapshot() -> None:
    """Items of earlier runs count, and the rate is that of the last seconds."""
    bench = Bench(items=120, total=4, page_s=1.0)
    bench.turn(20)
    bench.restart()
    bench.turn(12)

    progress = bench.scanner.progress()

    assert progress.items == 96
    assert (progress.pages, progress.nbytes, progress.failures) == (12, 3600, 0)
    assert progress.segments_done == 0
    assert progress.segments == bench.dataset.segments()
    assert progress.items_per_s == pytest.approx(3.0, rel=0.15)
    bench.clock.now_s += 60
    assert bench.scanner.progress().items_per_s == 0


def test_aws_time_is_learnt_from_every_page() -> None:
    """The Date of a page is as good as that of any other call."""
    bench = Bench(items=3, total=1)
    aws_time = AwsTime(bench.clock)
    scanner = Scanner(
        bench.table,
        bench.clock,
        bench.dataset,
        bench.dataset,
        bench.dataset.segments(),
        generation=1,
        fills=1,
        aws_time=aws_time,
    )

    scanner.step(bench.clock.now_s)

    assert aws_time.now_ms() == BEGAN_MS + 100_000


def test_threads_share_a_scan_without_sharing_a_segment() -> None:
    """Each page belongs to one caller, and a segment's pages are handed on in order."""
    bench = Bench(items=600, total=6)
    lock, busy, order = threading.Lock(), set[int](), dict[int, list[int]]()
    scan = bench.table.scan

    def watched(segment: int, *args: object, **options: object) -> ScanPage:
        with lock:
            assert segment not in busy
            busy.add(segment)
        page = scan(segment, *args, **options)  # type: ignore[arg-type]
        with lock:
            busy.discard(segment)
        return page

    def offer(batch: object) -> None:
        (segment,) = batch.segments  # type: ignore[attr-defined]
        with lock:
            order.setdefault(segment.segment, []).append(segment.items)
            bench.dataset.queued.append(batch)  # type: ignore[arg-type]

    bench.table.scan = watched  # type: ignore[method-assign]
    bench.dataset.offer = offer  # type: ignore[method-assign]
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not bench.scanner.done:
                bench.scanner.step(bench.clock.now_s)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert failed == []
    assert all(items == sorted(items) for items in order.values())
    bench.dataset.apply()
    assert bench.dataset.applied == Counter(range(600))


def _table(items: int, size_bytes: int) -> TableDescription:
    return TableDescription(
        "t", "arn", "id", "ACTIVE", (), None, False, None, items, size_bytes, None, None, 0
    )


@pytest.mark.parametrize(
    ("items", "size_bytes", "segments"),
    [
        (0, 0, 4),
        (100, 10_000, 4),
        (1_000_000, 100_000_000, 5),
        (1_000, 2_000_000_000, 15),
        (10**9, 10**12, 64),
    ],
)
def test_the_number_of_segments_follows_the_size(
    items: int, size_bytes: int, segments: int
) -> None:
    """One per 128 MB or 200,000 items; 4 at least, as both figures may be hours old; 64 at most."""
    assert segments_for(_table(items, size_bytes)) == segments
