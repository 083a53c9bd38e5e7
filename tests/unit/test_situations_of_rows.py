"""Public reports whose rule lives in the dataset: order, checkpoints, values, columns.

Numbers are those of docs/situations.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Context, Decimal, Inexact
from pathlib import Path
from typing import Any

import pytest

from accelerator import failpoints
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import ForeignCheckpoint
from accelerator.history import History
from accelerator.spec import DatasetSpec
from checkpoints.positions import Position
from tests.dataset_builder import (
    ARN,
    begun,
    change,
    changes,
    delete,
    item,
    open_database,
    page,
    put,
    query,
    read_items,
    sequence,
    shard,
)


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path)
    yield database
    database.close()


@pytest.fixture(name="dataset")
def _dataset(database: Database) -> Dataset:
    return begun(database)


def column_type(database: Database, name: str) -> str:
    found = query(
        database,
        "SELECT data_type FROM duckdb_columns() WHERE table_name = 'orders' AND column_name = ?",
        name,
    )
    return str(found[0][0])


@pytest.mark.situation(37)
def test_two_datasets_with_the_same_shard_ids_keep_their_own_positions(database: Database) -> None:
    """A position belongs to a dataset: its neighbour in the same file cannot overwrite it."""
    orders, copies = begun(database), begun(database, spec=DatasetSpec("copies"))
    for dataset, number in ((orders, 5), (copies, 9)):
        at = replace(shard(), position=Position.after(sequence(number)))
        dataset.apply([changes([put(number, "a")], shards=[at])])
    found = query(database, "SELECT dataset, sequence_number FROM dynaduck.checkpoints ORDER BY 1")
    assert found == [("copies", sequence(9)), ("orders", sequence(5))]


@pytest.mark.situation(35)
@pytest.mark.situation(36)
@pytest.mark.situation(48)
def test_a_position_is_never_ahead_of_the_rows(database: Database, dataset: Dataset) -> None:
    """What a commit that failed had read is neither in the rows nor in the checkpoint."""
    at = replace(shard(), position=Position.after(sequence(1)))
    group = [changes([put(1, "a", v={"N": "1"})], shards=[at])]

    def refuse() -> None:
        raise RuntimeError("the commit fails")

    with failpoints.on("before_commit", refuse), pytest.raises(RuntimeError):
        dataset.apply(group)
    assert read_items(database) == {}
    assert query(database, "SELECT sequence_number FROM dynaduck.checkpoints") == [(None,)]
    dataset.apply(group)
    assert read_items(database) == {"a": item("a", v={"N": "1"})}
    assert query(database, "SELECT sequence_number FROM dynaduck.checkpoints") == [(sequence(1),)]


@pytest.mark.situation(41)
def test_the_stream_wins_over_a_page_that_was_read_before(
    database: Database, dataset: Dataset
) -> None:
    """An old row of the scan overrides no newer one, and brings no deleted one back."""
    ticket = dataset.open_scan_ticket()
    dataset.apply([changes([put(1, "changed", v={"N": "2"}), delete(2, "deleted")])])
    images = [item(key, v={"N": "1"}) for key in ("changed", "deleted", "cold")]
    dataset.apply([page(images, ticket=ticket)])
    assert read_items(database) == {
        "changed": item("changed", v={"N": "2"}),
        "cold": item("cold", v={"N": "1"}),
    }


@pytest.mark.situation(44)
def test_a_group_with_one_key_many_times_ends_in_its_last_change(
    database: Database, dataset: Dataset
) -> None:
    """Put, delete and put of one key in one group: one row, the last; a last delete, none."""
    dataset.apply([changes([put(1, "a", v={"N": "0"}), put(2, "b", v={"N": "0"})])])
    dataset.apply(
        [
            changes([put(3, "a", v={"N": "1"}), delete(4, "a"), put(5, "b", v={"N": "1"})]),
            changes([put(6, "a", v={"N": "2"}), delete(7, "b")]),
        ]
    )
    assert read_items(database) == {"a": item("a", v={"N": "2"})}


@pytest.mark.situation(46)
def test_a_file_shipped_from_another_account_is_refused(database: Database) -> None:
    """Its positions are another stream's: region and account are held against the ARN."""
    begun(database)
    mine = DatasetSpec("orders")
    for wrong, said in (
        (replace(mine, region="us-east-1"), "us-east-1"),
        (replace(mine, account="999999999999"), "999999999999"),
        (replace(mine, table_name="others"), "others"),
    ):
        with pytest.raises(ForeignCheckpoint, match=said):
            Dataset(database, wrong).load()
    region, account = ARN.split(":")[3:5]
    right = DatasetSpec("orders", table_name="orders", region=region, account=account)
    assert Dataset(database, right).load() is not None


@pytest.mark.situation(47)
def test_sequence_numbers_are_numbers(database: Database, dataset: Dataset) -> None:
    """One digit more is later, though as text it sorts before."""
    short, long = "9" * 21, "1" + "0" * 21
    keys, old, new = {"pk": {"S": "a"}}, item("a", v={"N": "1"}), item("a", v={"N": "2"})
    older = change(1, "modify", keys, old, sequence_number=short)
    newer = change(2, "modify", keys, new, sequence_number=long)
    at = replace(shard(), position=Position.after(long))
    dataset.apply([changes([older, newer], shards=[at])])
    assert query(database, "SELECT sequence_number FROM dynaduck.checkpoints") == [(long,)]
    assert dataset.apply([changes([older])]).replayed == 1
    assert read_items(database) == {"a": new}


NUMBERS = {
    "2**53 + 1": "9007199254740993",
    "38 digits": "12345678901234567890123456789012345678",
    "38 digits, a fraction": "1234567890.1234567890123456789012345678",
    "no float": "0.1",
    "the smallest": "1E-130",
    "the largest": "9.9999999999999999999999999999999999999E+125",
}


@pytest.mark.situation(61)
@pytest.mark.situation(62)
@pytest.mark.situation(81)
def test_no_digit_of_a_number_is_lost(database: Database, dataset: Dataset) -> None:
    """One by one, and all in one column, numbers come back with each of their digits."""
    rows = [put(n, name, v={"N": text}) for n, (name, text) in enumerate(NUMBERS.items(), 1)]
    for row in rows:
        dataset.apply([changes([row])])
    back = {key: found["v"]["N"] for key, found in read_items(database).items()}
    assert {key: _exact(text) for key, text in back.items()} == {
        key: _exact(text) for key, text in NUMBERS.items()
    }


def _exact(text: str) -> tuple[int, int]:
    """Digits and exponent, so that forms of one number are equal and roundings are not."""
    exact = Context(prec=60, traps=[Inexact]).create_decimal(Decimal(text))
    sign, digits, exponent = exact.normalize(Context(prec=60)).as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    return (-number if sign else number), exponent


@pytest.mark.situation(63)
def test_an_attribute_that_appears_late_is_a_column_at_once(
    database: Database, dataset: Dataset
) -> None:
    """Seen first in the stream, it is queried like all others; older rows have NULL."""
    dataset.apply([page([item("old")], ticket=dataset.open_scan_ticket(), done=True)])
    dataset.apply([changes([put(1, "new", late={"N": "7"})])])
    assert query(database, "SELECT pk, late FROM orders ORDER BY pk") == [("new", 7), ("old", None)]


@pytest.mark.situation(64)
def test_types_come_from_every_row_or_from_a_pin(database: Database) -> None:
    """No sample decides: the last of many rows may bring a column or another type."""
    dataset = begun(database, spec=DatasetSpec("orders", pins=(("pinned", "DOUBLE"),)))
    rows = [put(n, f"k{n}", v={"N": "1"}, pinned={"N": "1"}) for n in range(1, 2000)]
    rows.append(put(2000, "last", v={"S": "a text"}, only={"BOOL": True}, pinned={"N": "0.5"}))
    dataset.apply([changes(rows)])
    assert query(database, "SELECT \"only\" FROM orders WHERE pk = 'last'") == [(True,)]
    assert column_type(database, "pinned") == "DOUBLE"
    back = read_items(database)
    assert back["last"]["v"] == {"S": "a text"}
    assert back["k1"]["v"] == {"N": "1"}


@pytest.mark.situation(65)
def test_nulls_inside_maps_and_lists_are_kept(database: Database, dataset: Dataset) -> None:
    """A null member is neither an error nor an absent one."""
    value = {"M": {"none": {"NULL": True}, "list": {"L": [{"NULL": True}, {"N": "1"}]}}}
    dataset.apply([changes([put(1, "a", v=value)])])
    assert read_items(database)["a"]["v"] == value
    ((shown,),) = query(database, "SELECT CAST(v AS VARCHAR) FROM orders")
    assert json.loads(shown) == {"none": None, "list": [None, 1]}


@pytest.mark.situation(66)
def test_numbers_compare_as_numbers_and_texts_as_texts(
    database: Database, dataset: Dataset
) -> None:
    """A filter written for one type meets that type: 9 is less than 10, and '10' less than '9'."""
    rows = [put(n, text, n={"N": text}, s={"S": text}) for n, text in enumerate(("9", "10"), 1)]
    dataset.apply([changes(rows)])
    assert query(database, "SELECT pk FROM orders WHERE n > 9") == [("10",)]
    assert query(database, "SELECT pk FROM orders WHERE s > '10'") == [("9",)]


def with_history(database: Database) -> Dataset:
    return begun(database, spec=DatasetSpec("orders", history=History(3_600_000)))


def removal(number: int, pk: str, *, ttl: bool, **old: Any) -> dict[str, Any]:
    image = json.dumps(item(pk, **old))
    return delete(number, pk) | {"ttl_delete": ttl, "old_image": image}


@pytest.mark.situation(68)
def test_a_delete_still_tells_what_it_deleted(database: Database) -> None:
    """Its record has keys only; with a history the old image stands beside it."""
    dataset = with_history(database)
    dataset.apply([changes([removal(1, "a", ttl=False, tenant={"S": "t1"})])])
    ((op, old),) = query(database, "SELECT op, old_image FROM orders_history")
    assert (op, json.loads(old)) == ("remove", item("a", tenant={"S": "t1"}))


@pytest.mark.situation(69)
def test_expiry_and_deletion_both_remove_and_stay_apart(database: Database) -> None:
    """Who deleted is a flag of the change: no delete is left out because of it."""
    dataset = with_history(database)
    dataset.apply([changes([put(1, "expired"), put(2, "deleted"), put(3, "kept")])])
    dataset.apply([changes([removal(4, "expired", ttl=True), removal(5, "deleted", ttl=False)])])
    assert read_items(database) == {"kept": item("kept")}
    found = query(
        database, "SELECT keys, ttl_delete FROM orders_history WHERE op = 'remove' ORDER BY 2"
    )
    assert [(json.loads(keys)["pk"]["S"], ttl) for keys, ttl in found] == [
        ("deleted", False),
        ("expired", True),
    ]
