"""Directed tests: each variant that looks right and is wrong, and what apply tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accelerator.batch import Batch
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import ForeignCheckpoint, PoisonRecord, ScanTicketExpired, UnknownShard
from accelerator.outcome import SnapshotState
from accelerator.spec import DatasetSpec, Poison
from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState, SnapshotSegment
from tests.dataset_builder import (
    ARN,
    begun,
    change,
    changes,
    delete,
    identity,
    item,
    open_database,
    page,
    put,
    query,
    read_items,
    sequence,
    shard,
)

ONE, TWO = {"N": "1"}, {"N": "2"}


@pytest.fixture(name="database")
def _database(tmp_path: Path):  # type: ignore[no-untyped-def]
    database = open_database(tmp_path)
    yield database
    database.close()


@pytest.fixture(name="dataset")
def _dataset(database: Database) -> Dataset:
    return begun(database)


# -- scan rows against changes ------------------------------------------------------------------


def test_scan_row_read_before_a_change_and_applied_after_it_is_dropped(
    database: Database, dataset: Dataset
) -> None:
    """No ghosts: the change passed the page while its answer was held."""
    ticket = dataset.open_scan_ticket()
    dataset.apply([changes([put(1, "a", v=TWO)])])
    applied = dataset.apply([page([item("a", v=ONE), item("b", v=ONE)], ticket=ticket)])
    assert applied.touched == 1
    assert read_items(database) == {"a": item("a", v=TWO), "b": item("b", v=ONE)}


def test_deleted_keys_are_touched(database: Database, dataset: Dataset) -> None:
    """A held scan row does not bring back an item that the stream has deleted."""
    ticket = dataset.open_scan_ticket()
    dataset.apply([changes([delete(1, "a")])])
    dataset.apply([page([item("a", v=ONE)], ticket=ticket)])
    assert read_items(database) == {}


def test_a_change_in_the_same_group_touches_whatever_its_place(
    database: Database, dataset: Dataset
) -> None:
    """Touched is tested with this group's own changes, before or behind the page."""
    ticket = dataset.open_scan_ticket()
    scanned = page([item("a", v=ONE), item("b", v=ONE)], ticket=ticket)
    dataset.apply(
        [
            changes([delete(1, "a")]),
            scanned,
            changes([put(2, "b", v=TWO)]),
        ]
    )
    assert read_items(database) == {"b": item("b", v=TWO)}


def test_a_change_before_the_ticket_does_not_touch(database: Database, dataset: Dataset) -> None:
    """A scan row requested after the change is newer, and replaces it."""
    dataset.apply([changes([put(1, "a", v=ONE)])])
    ticket = dataset.open_scan_ticket()
    applied = dataset.apply([page([item("a", v=TWO)], ticket=ticket)])
    assert (applied.touched, read_items(database)) == (0, {"a": item("a", v=TWO)})


def test_the_window_outlives_other_tickets(database: Database, dataset: Dataset) -> None:
    """Touched keys are kept while the oldest page is in flight, not until the last one is read."""
    held = dataset.open_scan_ticket()
    dataset.apply([changes([delete(1, "a")])])
    late = dataset.open_scan_ticket()
    dataset.apply([page([item("b", v=ONE)], ticket=late)])
    dataset.close_scan_ticket(late)
    dataset.apply([page([item("a", v=ONE)], ticket=held)])
    assert read_items(database) == {"b": item("b", v=ONE)}


def test_a_ticket_older_than_the_window_is_refused(dataset: Dataset) -> None:
    """Rows whose window is gone are never guessed about."""
    ticket = dataset.open_scan_ticket()
    dataset.close_scan_ticket(ticket)
    dataset.apply([changes([delete(1, "a")])])
    with pytest.raises(ScanTicketExpired):
        dataset.apply([page([item("a", v=ONE)], ticket=ticket)])


def test_the_margin_reaches_back_before_the_ticket(database: Database) -> None:
    """An eventually consistent page may miss a change applied shortly before its request."""
    now = 0.0
    begun(database)
    dataset = Dataset(database, DatasetSpec("orders"), monotonic_s=lambda: now, scan_margin_s=5.0)
    dataset.load()
    dataset.apply([changes([delete(1, "old")])])
    now = 6.0
    dataset.apply([changes([delete(2, "new")])])
    now = 8.0
    ticket = dataset.open_scan_ticket()
    dataset.apply([page([item("old", v=ONE), item("new", v=ONE)], ticket=ticket)])
    assert read_items(database) == {"old": item("old", v=ONE)}


def test_dead_lettered_keys_are_touched(database: Database, dataset: Dataset) -> None:
    """A scan row older than a change that could not be applied is not the truth either."""
    ticket = dataset.open_scan_ticket()
    dataset.apply([changes([put(1, "a", v={"X": "?"})])])
    dataset.apply([page([item("a", v=ONE)], ticket=ticket)])
    assert read_items(database) == {}


# -- exactly once --------------------------------------------------------------------------------


def test_replayed_records_are_dropped(database: Database, dataset: Dataset) -> None:
    """A record at or below the committed sequence number changes nothing again."""
    dataset.apply([changes([put(1, "a", v=ONE), put(2, "a", v=TWO)])])
    applied = dataset.apply([changes([put(1, "a", v=ONE)])])
    assert (applied.replayed, applied.wrote) == (1, False)
    assert read_items(database) == {"a": item("a", v=TWO)}


def test_the_same_page_twice_in_one_group_counts_once(database: Database, dataset: Dataset) -> None:
    """Replays inside a group are dropped too, and make no second row."""
    once = changes([put(1, "a", v=ONE), put(2, "a", v=TWO)])
    applied = dataset.apply([once, once])
    assert (applied.records, applied.replayed) == (2, 2)
    assert database.writer.execute("SELECT count(*) FROM main.orders").fetchall() == [(1,)]


def test_sequence_numbers_compare_as_integers(database: Database, dataset: Dataset) -> None:
    """21 digits are less than 40, whatever their text says."""
    short, long = "9" * 21, "1" + "0" * 39
    dataset.apply([changes([put(1, "a", v=ONE) | {"sequence_number": short}])])
    applied = dataset.apply([changes([put(2, "a", v=TWO) | {"sequence_number": long}])])
    assert applied.replayed == 0
    again = dataset.apply([changes([put(1, "a", v=ONE) | {"sequence_number": short}])])
    assert again.replayed == 1
    assert read_items(database) == {"a": item("a", v=TWO)}


def test_replays_are_known_after_a_restart(database: Database, dataset: Dataset) -> None:
    """The committed sequence number comes from the file."""
    dataset.apply([changes([put(5, "a", v=TWO)])])
    again = Dataset(database, DatasetSpec("orders"))
    again.load()
    assert again.apply([changes([put(4, "a", v=ONE), put(5, "a", v=ONE)])]).replayed == 2


def test_a_stored_position_never_goes_back(database: Database, dataset: Dataset) -> None:
    """A replayed page's older position does not reopen what is committed."""
    dataset.apply([changes([put(9, "a", v=ONE)])])
    older = ShardCheckpoint("shard-1", None, ShardState.READING, Position.after(sequence(3)))
    dataset.apply([Batch(changes([]).changes, 1, shards=(older,))])
    stored = dataset.load()
    assert stored is not None
    assert stored.shards[0].position == Position.after(sequence(9))


def test_rows_and_positions_commit_together(database: Database, dataset: Dataset) -> None:
    """A failure at the last moment leaves neither rows nor positions, and the same group works."""
    from accelerator import failpoints

    group = [changes([put(1, "a", v=ONE)])]

    def fail() -> None:
        raise RuntimeError("stopped")

    with failpoints.on("before_commit", fail), pytest.raises(RuntimeError):
        dataset.apply(group)
    stored = dataset.load()
    assert stored is not None
    assert stored.shards == (shard(),)
    assert read_items(database) == {}
    dataset.apply(group)
    assert read_items(database) == {"a": item("a", v=ONE)}


def test_an_unknown_shard_is_refused(dataset: Dataset) -> None:
    """Changes without a position could never be known as applied."""
    with pytest.raises(UnknownShard):
        dataset.apply([changes([put(1, "a", shard_id="shard-x", v=ONE)])])


def test_finishing_a_shard_and_creating_its_children_is_one_commit(
    database: Database, dataset: Dataset
) -> None:
    """The last page, the parent's end and the children's rows stand or fall together."""
    end = ShardCheckpoint(
        "shard-1", None, ShardState.FINISHED, Position.shard_end(sequence(1)), covered_until_ms=7
    )
    child = shard("shard-2", parent="shard-1", state=ShardState.ELIGIBLE)
    dataset.apply([changes([put(1, "a", v=ONE)], shards=[end, child])])
    stored = dataset.load()
    assert stored is not None
    assert [s.state for s in stored.shards] == [ShardState.FINISHED, ShardState.ELIGIBLE]
    assert stored.shards[0].position == Position.shard_end(sequence(1))
    assert stored.shards[0].records == 1
    assert stored.shards[1] == child


def test_a_group_that_changes_nothing_writes_nothing(dataset: Dataset) -> None:
    """Idle costs nothing: no empty transaction."""
    applied = dataset.apply([changes([], shards=[shard()])])
    assert (applied.wrote, applied.commit_number) == (False, 0)
    assert not dataset.apply([]).wrote


def test_batches_of_another_generation_are_dropped(dataset: Dataset, database: Database) -> None:
    """What was read for a set of positions that is gone does not reach the rows."""
    applied = dataset.apply([changes([put(1, "a", v=ONE)], generation=7)])
    assert (applied.foreign, applied.wrote, read_items(database)) == (1, False, {})


# -- order ---------------------------------------------------------------------------------------


def test_the_last_change_per_key_wins(database: Database, dataset: Dataset) -> None:
    """A key met many times in a group ends as its last change says; also put after delete."""
    dataset.apply(
        [
            changes([put(1, "a", v=ONE), delete(2, "a"), put(3, "b", v=ONE)]),
            changes([put(4, "a", v=TWO), delete(5, "b")]),
        ]
    )
    assert read_items(database) == {"a": item("a", v=TWO)}


def test_an_attribute_that_leaves_an_item_becomes_null(
    database: Database, dataset: Dataset
) -> None:
    """MODIFY replaces the whole row."""
    dataset.apply([changes([put(1, "a", v=ONE, w=ONE)])])
    dataset.apply([changes([put(2, "a", w=TWO)])])
    assert query(database, "SELECT v, w FROM orders") == [(None, 2)]


def test_number_keys_are_compared_by_value(database: Database) -> None:
    """1, 1.0 and 1e0 are one key."""
    from checkpoints.positions import KeyAttribute

    dataset = begun(database, schema=(KeyAttribute("n", "N", "HASH"),))
    for number, text in enumerate(["1", "1.0", "1e0", "0.5", "1E+2"], start=1):
        key = {"n": {"N": text}}
        dataset.apply([changes([change(number, "modify", key, key)])])
    assert query(database, "SELECT CAST(n AS VARCHAR) FROM orders ORDER BY n") == [
        ("0.5",),
        ("1.0",),
        ("100.0",),
    ]
    dataset.apply([changes([change(9, "remove", {"n": {"N": "1.00"}})])])
    assert dataset.row_count() == 2


# -- poison --------------------------------------------------------------------------------------

POISON = [
    '{"pk":{"S":"bad"}',
    '{"pk":{"S":"bad"},"v":{"X":"1"}}',
    '{"pk":{"S":"bad"},"v":{"N":"seven"}}',
    '{"pk":{"S":"bad"},"v":{"B":"***"}}',
    '{"pk":{"S":"bad"},"v":{"M":{"deep":{"L":[{"Q":"1"}]}}}}',
    '{"pk":{"S":"bad"},"v":"bare"}',
    '{"pk":{"S":"bad"},"v":{"S":"\\ud800"}}',
    "[]",
    "null",
]


TYPED: dict[str, Any] = {
    "s": {"S": "x"}, "n": {"N": "1"}, "b": {"BOOL": True}, "z": {"NULL": True}, "y": {"B": "AA=="},
    "ss": {"SS": ["a"]}, "ns": {"NS": ["1"]}, "m": {"M": {}}, "j": {"S": "x"},
}  # fmt: skip
MISTAGGED = [
    '{"S":5}', '{"S":true}', '{"S":null}', '{"S":["a"]}', '{"S":"a","N":"1"}', '{"N":"1","S":"a"}',
    '{"N":1}', '{"BOOL":"true"}', '{"BOOL":1}', '{"NULL":"true"}', '{"NULL":1}', '{"NULL":false}',
    '{"SS":"a"}', '{"SS":[1]}', '{"SS":[null]}', '{"SS":["a"],"S":"x"}', '{"NS":[1]}', "{}",
    '{"S":"a","X":1}', '{"M":{"a":{"S":5}}}', '{"L":[{"S":"a","N":"1"}]}', '{"S":"\\ud800"}',
    '{"N": 1}', '{"S":"\\n","N":"1"}',
]  # fmt: skip


@pytest.mark.parametrize("value", MISTAGGED)
def test_content_that_is_not_what_its_tag_says_is_set_aside(database: Database, value: str) -> None:
    """In a column of every type, and in one that is new: DuckDB would cast it, or not look."""
    pins = (("p", "VARCHAR"), ("q", "BIGINT[]"), ("r", "STRUCT(a VARCHAR)"))
    dataset = begun(database, spec=DatasetSpec("orders", pins=pins))
    dataset.apply([changes([put(1, "g", **TYPED), put(2, "h", j=ONE)])])
    images = [
        change(3 + n, "modify", {"pk": {"S": name}}, f'{{"pk":{{"S":"{name}"}},"{name}":{value}}}')
        for n, name in enumerate([*TYPED, "p", "q", "r", "new"])
    ]
    assert dataset.apply([changes(images)]).dead_letters == len(images)
    assert sorted(read_items(database)) == ["g", "h"]


@pytest.mark.parametrize("image", POISON)
def test_one_bad_record_is_set_aside_and_the_rest_applied(
    database: Database, dataset: Dataset, image: str
) -> None:
    """Exactly the record that cannot be applied becomes a dead letter, with its raw JSON."""
    bad = change(2, "modify", {"pk": {"S": "bad"}}, image)
    applied = dataset.apply([changes([put(1, "a", v=ONE), bad, put(3, "b", v=TWO)])])
    assert applied.dead_letters == 1
    assert sorted(read_items(database)) == ["a", "b"]
    [(number, record)] = query(
        database, "SELECT sequence_number, record FROM dynaduck.dead_letters"
    )
    assert number == sequence(2)
    assert image in record


def test_halt_raises_and_commits_nothing(database: Database) -> None:
    """Under the policy halt a poison record stops the dataset before it."""
    dataset = begun(database, spec=DatasetSpec("orders", poison=Poison.HALT))
    with pytest.raises(PoisonRecord) as caught:
        dataset.apply([changes([put(1, "a", v=ONE), put(2, "b", v={"X": "1"})])])
    assert caught.value.sequence_number == sequence(2)
    assert read_items(database) == {}


def test_poison_gives_way_to_the_change_before_it(database: Database, dataset: Dataset) -> None:
    """The rows do not depend on how records were grouped: the last readable change counts."""
    dataset.apply([changes([put(1, "a", v=ONE), put(2, "a", v={"X": "1"})])])
    assert read_items(database) == {"a": item("a", v=ONE)}


# -- generations ---------------------------------------------------------------------------------


def refresh(dataset: Dataset, *, positions_generation: int | None) -> int:
    return dataset.begin(
        identity(),
        origin_ms=2,
        shards=[shard("shard-9")],
        segments=[SnapshotSegment(0, 1)],
        shadow=True,
        positions_generation=positions_generation,
        snapshot=True,
    )


def test_a_refresh_feeds_old_rows_and_shadow_from_one_set_of_positions(
    database: Database, dataset: Dataset
) -> None:
    """Each change goes to both; scan rows to the shadow alone; the swap shows the shadow."""
    dataset.apply([changes([put(1, "gone", v=ONE)])])
    refresh(dataset, positions_generation=1)
    dataset.apply([changes([put(2, "a", v=TWO)])])
    assert sorted(read_items(database)) == ["a", "gone"]
    ticket = dataset.open_scan_ticket()
    dataset.apply([page([item("b", v=ONE)], ticket=ticket, fills=2)])
    assert sorted(read_items(database)) == ["a", "gone"]
    dataset.swap()
    assert read_items(database) == {"a": item("a", v=TWO), "b": item("b", v=ONE)}


def test_after_a_gap_the_old_rows_are_frozen_until_the_swap(
    database: Database, dataset: Dataset
) -> None:
    """The shadow has its own positions; batches of the old ones no longer count."""
    dataset.apply([changes([put(1, "a", v=ONE)])])
    number = refresh(dataset, positions_generation=None)
    applied = dataset.apply([changes([put(2, "a", v=TWO)])])
    assert applied.foreign == 1
    dataset.apply([changes([put(3, "b", "shard-9", v=TWO)], generation=number)])
    assert read_items(database) == {"a": item("a", v=ONE)}
    stored = dataset.load()
    assert stored is not None
    assert (stored.is_frozen, stored.positions_generation) == (True, number)
    dataset.swap(resolve_gaps="reloaded")
    assert read_items(database) == {"b": item("b", v=TWO)}
    stored = dataset.load()
    assert stored is not None
    assert [s.shard_id for s in stored.shards] == ["shard-9"]


def test_what_is_swapped_in_is_done_by_that(database: Database, dataset: Dataset) -> None:
    """Done and waiting for the swap is no state: a kill between the two would last for ever."""
    refresh(dataset, positions_generation=None)
    dataset.mark_snapshot(SnapshotState.SCANNED, scan_ended_at_ms=7000)
    dataset.swap()
    stored = dataset.load()
    assert stored is not None
    assert (stored.live_snapshot_state, stored.scan_ended_at_ms) == (SnapshotState.DONE, 7000)


def test_a_swap_is_all_or_nothing(database: Database, dataset: Dataset) -> None:
    """A failure inside the swap leaves the old rows in the view and the shadow beside them."""
    from accelerator import failpoints

    dataset.apply([changes([put(1, "a", v=ONE)])])
    refresh(dataset, positions_generation=1)

    def fail() -> None:
        raise RuntimeError("stopped")

    with failpoints.on("mid_swap", fail), pytest.raises(RuntimeError):
        dataset.swap()
    assert read_items(database) == {"a": item("a", v=ONE)}
    stored = dataset.load()
    assert stored is not None
    assert stored.shadow_generation == 2


def test_readers_see_no_error_while_a_shadow_is_swapped_in(
    database: Database, dataset: Dataset
) -> None:
    """A reader's transaction that began before the swap reads the old rows to its end."""
    dataset.apply([changes([put(1, "a", v=ONE)])])
    refresh(dataset, positions_generation=1)
    reader = database.cursor()
    reader.execute("BEGIN TRANSACTION")
    assert reader.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    dataset.swap()
    assert reader.execute("SELECT count(*) FROM orders").fetchall() == [(1,)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM orders").fetchall() == [(0,)]


def test_dropping_the_shadow_returns_to_the_live_rows(database: Database, dataset: Dataset) -> None:
    """Live rows fed by their own positions go on as if nothing had been."""
    refresh(dataset, positions_generation=1)
    dataset.drop_shadow()
    dataset.apply([changes([put(1, "a", v=ONE)])])
    assert read_items(database) == {"a": item("a", v=ONE)}
    assert query(
        database, "SELECT count(*) FROM duckdb_tables() WHERE table_name LIKE 'orders_%'"
    ) == [(1,)]


def test_a_gap_in_the_first_snapshot_starts_over(database: Database, dataset: Dataset) -> None:
    """A new generation in place: no row, position or segment of the old one is left."""
    ticket = dataset.open_scan_ticket()
    dataset.apply([page([item("a", v=ONE)], ticket=ticket, last_key="{}")])
    number = dataset.begin(
        identity(),
        origin_ms=3,
        shards=[shard("shard-2")],
        segments=[SnapshotSegment(0, 4)],
        shadow=False,
        positions_generation=None,
        snapshot=True,
    )
    stored = dataset.load()
    assert stored is not None
    assert (stored.generation, stored.positions_generation) == (number, number)
    assert stored.segments == (SnapshotSegment(0, 4),)
    assert read_items(database) == {}
    assert query(database, "SELECT DISTINCT generation FROM dynaduck.checkpoints") == [(number,)]


# -- what is stored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        DatasetSpec("orders", table_name="invoices"),
        DatasetSpec("orders", region="us-east-1"),
        DatasetSpec("orders", account="999999999999"),
    ],
)
def test_a_foreign_checkpoint_is_refused(
    database: Database, dataset: Dataset, spec: DatasetSpec
) -> None:
    """Positions of another table, region or account are never taken for ours."""
    with pytest.raises(ForeignCheckpoint):
        Dataset(database, spec).load()


def test_begin_for_another_table_is_refused(dataset: Dataset) -> None:
    """Rows of one table are never replaced by another's under the same dataset."""
    with pytest.raises(ForeignCheckpoint):
        dataset.begin(
            identity(table="t2", arn=ARN + "2"),
            origin_ms=1,
            shards=(),
            segments=(),
            shadow=True,
            positions_generation=None,
            snapshot=True,
        )


def test_marks_gaps_and_status_survive_a_restart(database: Database, dataset: Dataset) -> None:
    """All that load tells was written by somebody before."""
    gap = Gap("shard-1", sequence(4), "trimmed", 5_000)
    dataset.apply([Batch(changes([]).changes, 1, gaps=(gap,))])
    dataset.mark_snapshot(SnapshotState.SCANNED, scan_ended_at_ms=9_000)
    dataset.mark_status("Error", "gap: re-bootstrap needed")
    stored = Dataset(database, DatasetSpec("orders")).load()
    assert stored is not None
    assert stored.open_gaps == (gap,)
    assert (stored.snapshot_state, stored.scan_ended_at_ms) == ("scanned", 9_000)
    assert (stored.status, stored.status_reason) == ("Error", "gap: re-bootstrap needed")
    dataset.resolve_gaps("reloaded")
    stored = dataset.load()
    assert stored is not None
    assert stored.open_gaps == ()


def test_persist_writes_positions_without_rows(database: Database, dataset: Dataset) -> None:
    """The slow beat stores covered_until; the same again writes nothing."""
    row = ShardCheckpoint("shard-1", None, ShardState.IDLE, Position.trim_horizon(), 0, 4_000)
    dataset.persist([row])
    stored = dataset.load()
    assert stored is not None
    assert stored.shards == (row,)


def test_hashes_of_another_duckdb_are_made_anew_at_open(
    database: Database, dataset: Dataset
) -> None:
    """Rows whose stored hash means nothing any more would never be found, and be there twice."""
    dataset.apply([changes([put(1, "a", v={"N": "1"})])])
    database.writer.execute('UPDATE dynaduck."orders__rows_1" SET _h = _h + 1')
    database.writer.execute("UPDATE dynaduck.file_format SET hash_probe = 1")
    database.reopen()
    again = Dataset(database, DatasetSpec("orders"))
    again.load()
    again.apply([changes([put(2, "a", v={"N": "2"})])])
    assert read_items(database) == {"a": item("a", v={"N": "2"})}
    database.reopen()
    assert query(database, "SELECT hash_probe <> 1 FROM dynaduck.file_format") == [(True,)]


def test_datasets_of_one_file_do_not_meet(database: Database, dataset: Dataset) -> None:
    """They share the writer's connection, and what is named on it."""
    other = begun(database, spec=DatasetSpec("people"))
    for number in range(1, 4):
        dataset.apply([changes([put(number, f"o{number}", v={"N": str(number)})])])
        other.apply([changes([put(number, f"p{number}", name={"S": str(number)})])])
    assert query(database, "SELECT pk, v FROM orders ORDER BY pk") == [
        ("o1", 1), ("o2", 2), ("o3", 3),
    ]  # fmt: skip
    assert query(database, "SELECT pk, name FROM people ORDER BY pk") == [
        ("p1", "1"), ("p2", "2"), ("p3", "3"),
    ]  # fmt: skip
