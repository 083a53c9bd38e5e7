"""Scan against stream, directed: a page is held while the stream passes, and nobody writes after.

Random runs miss these, since a later write heals the error. Each test ends with the table as it is,
one row per key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from accelerator import failpoints
from accelerator.errors import DatabaseInvalidated
from connector.config.settings import InvalidCheckpointBehavior
from connector.snapshot.single_keys import SingleKeys
from tests.simulation.race import Race, settings_of
from tests.simulation.service import Crash
from tests.simulation.truth import VERSION

Make = Callable[..., Race]


@pytest.fixture
def race(tmp_path: Path) -> Iterator[Make]:
    made: list[Race] = []

    def make(**options: object) -> Race:
        made.append(Race(tmp_path / str(len(made)), **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def one_at_a_time() -> Iterator[None]:
    """Every batch is a transaction of its own."""
    with mock.patch("connector.applier.GROUP_BATCHES", 1):
        yield


def ends_equal(run: Race) -> None:
    """What is queued is applied, nobody writes any more, and the copy is the table."""
    run.apply()
    run.settle()
    source = {item["pk"]["S"]: int(item[VERSION]["N"]) for item in run.world.items("items")}
    assert run.rows() == source


def test_a_page_read_before_a_change_and_arriving_after_it_is_dropped(race: Make) -> None:
    """The change is committed while the page is under way."""
    run = race()
    run.put("a")
    run.follow()
    run.while_held(lambda: run.put("a"), run.stream_passes)
    run.scan()
    ends_equal(run)


def test_a_page_does_not_bring_a_deleted_item_back(race: Make) -> None:
    """Deletes count as changes."""
    run = race()
    run.put("a")
    run.follow()
    run.while_held(lambda: run.delete("a"), run.stream_passes)
    run.scan()
    ends_equal(run)
    assert run.rows() == {}


def test_a_page_does_not_bring_back_what_where_has_dropped(race: Make) -> None:
    """A change to what `where` does not keep removes the row, and counts as a change."""
    run = race(settings=settings_of(where="v < 2"), keeps_all=False)
    run.put("a")
    run.follow()
    run.while_held(lambda: run.put("a"), run.stream_passes)
    run.scan()
    run.apply()
    run.settle()
    assert run.rows() == {}


@pytest.mark.parametrize("change", ["put", "delete"])
def test_a_change_counts_from_within_its_own_group(race: Make, change: str) -> None:
    """Page and change are applied in one transaction: the change wins, and there is one row."""
    run = race()
    run.put("a")
    run.put("b")
    run.follow()
    run.while_held(lambda: run.put("a") if change == "put" else run.delete("a"), run.read)
    run.scan()
    ends_equal(run)


@pytest.mark.usefixtures("one_at_a_time")
def test_the_last_page_is_tested_though_nothing_is_left_to_read(race: Make) -> None:
    """The scan is over, its last page waits; a change comes and is applied before it."""
    run = race()
    run.put("a")
    run.follow()
    run.scan()
    run.put("a")
    run.read()
    run.apply(1)
    ends_equal(run)


@pytest.mark.usefixtures("one_at_a_time")
def test_progress_of_the_scan_is_committed_with_its_rows(race: Make) -> None:
    """A kill after any commit: what counts as scanned is in the rows, and no page is read twice."""
    run = race()
    for number in range(6):
        run.put(f"k{number}")
    run.page_items = 1
    run.start()
    run.follow()
    for _ in range(12):
        run.scan(1)
        run.apply(1)
        stored = run.copy.stored()
        assert stored is not None
        assert sum(segment.items for segment in stored.segments) == len(run.rows())
        run.kill()
        run.follow()
    scans = run.front.calls.count("Scan")
    run.settle()
    assert len(run.rows()) == 6
    assert scans <= 20


@pytest.mark.usefixtures("one_at_a_time")
def test_positions_are_committed_with_their_rows(race: Make) -> None:
    """A kill after any commit: every record up to a position is in the rows, each counted once."""
    run = race(max_page_records=1)
    run.follow()
    run.scan()
    run.apply()
    for number in range(5):
        run.put(f"k{number}")
    for _ in range(8):
        run.read(2)
        run.apply(1)
        run.kill()
        run.promises.positions_hold()
        run.follow()
    ends_equal(run)


def test_a_resumed_scan_keeps_its_segments(race: Make) -> None:
    """A stored key means nothing under another number of segments."""
    run = race(settings=settings_of(scan_segments=2))
    for number in range(60):  # so that some lie between a third and a half of the hash's range
        run.put(f"k{number}")
    run.pass_s(600)  # beyond the margin: only the scan brings these
    run.page_items = 1
    run.start()
    run.follow()
    run.scan(5)
    run.apply()
    run.settings = settings_of(scan_segments=3)
    run.page_items = 100
    run.kill()
    run.settle()
    assert len(run.rows()) == 60


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_ready_waits_until_the_stream_has_passed_the_scan(race: Make, seconds: float) -> None:
    """Older events are replayed over younger scan rows: Ready would show time going back."""
    run = race(max_page_records=1)
    for _ in range(5):
        run.put("a")
    run.pass_s(seconds)
    run.follow()
    run.scan()
    run.apply()
    assert run.rows() == {"a": 5}
    run.control(2)
    assert not run.is_ready()
    for _ in range(8):
        run.read(2)
        run.apply()
        run.control(1)
        run.is_ready()  # the promises are held at every verdict
    ends_equal(run)


def test_the_end_of_the_scan_is_passed_and_not_its_start(race: Make) -> None:
    """An idle shard is proved for seconds: what a page shows of them is replayed from before."""
    run = race(max_page_records=1)
    run.put("a")
    run.follow()
    run.read(30)
    run.apply()
    run.put("a")
    run.put("a")
    run.scan()
    run.apply()
    assert run.rows() == {"a": 3}
    run.control(2)
    assert not run.is_ready()
    ends_equal(run)


def test_a_shadow_is_swapped_in_when_its_streams_have_passed(race: Make) -> None:
    """Once Ready, no row goes back: not by a swap either."""
    restart = settings_of(invalid_checkpoint_behavior=InvalidCheckpointBehavior.RESTART)
    run = race(settings=restart, max_page_records=1)
    run.put("a")
    run.settle()
    run.recreate()
    for _ in range(4):
        run.put("a")
    run.pass_s(61)
    for _ in range(60):
        run.control(1)
        run.scan(2)
        run.apply()
        if run.replication.course is not None and run.replication.course.scan_end_ms is not None:
            break
    run.apply()
    run.control(2)
    shown = run.rows()
    assert shown == {"a": 1}, "the old rows are served until the swap"
    ends_equal(run)


def test_a_gap_in_the_snapshot_starts_it_over(race: Make) -> None:
    """The progress of a scan whose positions have a gap is worth nothing."""
    restart = settings_of(invalid_checkpoint_behavior=InvalidCheckpointBehavior.RESTART)
    run = race(settings=restart)
    for number in range(6):
        run.put(f"k{number}")
    run.page_items = 1
    run.start()
    run.follow()
    run.scan(3)
    run.apply()
    run.recreate()
    for number in range(3, 9):
        run.put(f"k{number}")
    run.pass_s(600)  # beyond the margin: only the scan brings these
    ends_equal(run)


def test_after_nineteen_hours_the_path_of_recovery_is_taken(race: Make) -> None:
    """Codes alone would not tell: AWS answers, and what was trimmed is not missed."""
    restart = settings_of(invalid_checkpoint_behavior=InvalidCheckpointBehavior.RESTART)
    run = race(settings=restart)
    run.put("a")
    run.settle()
    run.pass_s(17 * 3600)
    run.kill()
    run.settle()
    stored = run.copy.stored()
    assert stored is not None
    assert stored.generation == 1, "17 hours are resumed"
    run.delete("a")
    run.pass_s(19 * 3600)
    run.kill()
    run.settle()
    stored = run.copy.stored()
    assert stored is not None
    assert stored.generation > 1, "19 hours are not"
    ends_equal(run)


def test_a_process_that_slept_for_a_day_says_that_changes_are_lost(race: Make) -> None:
    """Iterators opened anew after 25 hours answer as if nothing had been trimmed."""
    run = race()
    run.put("a")
    run.settle()
    run.delete("a")
    run.pass_s(25 * 3600)
    run.put("b")
    for _ in range(40):
        run.control(1)
        run.read(2)
        run.apply()
    assert not run.is_ready()
    stored = run.copy.stored()
    assert stored is not None
    assert [gap.cause for gap in stored.open_gaps] != []
    assert run.rows()["a"] == 1, "what was lost stays as it was, and is not served as right"


@pytest.mark.parametrize("seconds", [600, 17 * 3600])
def test_a_suspended_host_proves_anew_that_a_shard_is_idle(race: Make, seconds: int) -> None:
    """The monotonic clock has stood still: an empty page of before and two of now are no proof,
    nor is a good page of before once another answer has told the time.
    """
    run = race(empty_pages=2)
    run.put("a")
    run.settle()
    run.read(60)
    assert run.is_ready()
    run.put("a")
    run.time.suspend_host(seconds)
    course = run.replication.course
    assert course is not None
    if seconds > 3600:  # all iterators have expired, so that no page of now comes first
        course.discovery.look_at_table_now()
        run.control(1)
        run.is_ready()  # the promises are held at every verdict
    for _ in range(120):
        run.read(1)
        run.apply(1)
        run.is_ready()
    ends_equal(run)


def test_a_refresh_waits_until_reads_show_what_was_applied_before_it(race: Make) -> None:
    """A change of a second ago is in the old rows alone, and an eventual page may still miss it."""
    run = race(settings=settings_of(scan_consistent_read=False), stale_reads_s=4.5)
    run.put("a")
    run.settle()
    run.put("b")
    while "b" not in run.rows():
        run.read(1)
        run.apply(1)
    run.replication.refresh()
    run.control(1)
    run.scan()
    run.settle(generation=2)
    ends_equal(run)


def test_a_commit_that_was_reported_as_failed_does_not_open_the_window(race: Make) -> None:
    """DuckDB may give up right after the commit: the group is tried again, its changes are replays,
    and the page beside them must still not win."""
    run = race()
    run.put("a")
    run.follow()
    run.while_held(lambda: run.put("a"), run.read)
    run.scan()
    failing = iter([DatabaseInvalidated("DuckDB invalidated the open database.")])

    def fail() -> None:
        for error in failing:
            raise error

    with failpoints.on("after_commit", fail):
        run.apply()
    run.pass_s(30)
    ends_equal(run)


def test_a_kill_before_the_swap_leads_to_the_swap(race: Make) -> None:
    """There is no state from which a loaded shadow is never swapped in."""
    restart = settings_of(invalid_checkpoint_behavior=InvalidCheckpointBehavior.RESTART)
    run = race(settings=restart)
    run.put("a")
    run.settle()
    run.recreate()
    run.put("b")
    run.pass_s(61)
    with failpoints.on("mid_swap", _killed), pytest.raises(Crash):
        run.settle()
    run.kill()
    ends_equal(run)


def test_a_file_that_gave_up_while_nothing_is_queued_is_reopened(race: Make) -> None:
    """A query may kill DuckDB before the first group is applied: control meets it, and says so."""
    run = race()
    run.put("a")
    run.service.fallible.is_invalid = True
    ends_equal(run)


def single_keys(run: Race) -> SingleKeys:
    """Its waits let all loops of the service run."""
    clock = mock.Mock(wraps=run.time)
    clock.sleep = lambda _seconds: run.stream_passes()
    return SingleKeys(run.replication, run.source, run.copy._database, run.service.writing, clock)


def test_a_key_read_anew_yields_to_a_change_since(race: Make) -> None:
    """The item is read, then changed and the stream passes, and only then would it be written."""
    run = race()
    run.put("a")
    run.settle()
    run.while_held(lambda: run.put("a"), run.stream_passes)
    single_keys(run).read_anew(['{"pk":{"S":"a"}}'])
    ends_equal(run)


def test_a_key_read_anew_waits_for_the_streams(race: Make) -> None:
    """Older changes of the key are still on their way: written at once, it would be undone once."""
    run = race(max_page_records=1)
    run.put("a")
    run.settle()
    for _ in range(3):
        run.put("a")
    single_keys(run).read_anew(['{"pk":{"S":"a"}}'])
    for _ in range(60):
        run.read(1)
        run.apply()  # the promises are held at every commit
    ends_equal(run)


def _killed() -> None:
    raise Crash
