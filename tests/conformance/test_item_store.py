"""What every ItemStore does, in memory and on DynamoDB."""

from __future__ import annotations

import pytest

from checkpoints.kv import ABSENT, Item, ItemStore

ROW: Item = {"owner": "a", "epoch": 3, "released": False}


def test_an_item_comes_back_with_its_types(items: ItemStore) -> None:
    """Texts, integers and booleans read back as what they were; a missing item is None."""
    assert items.get("p", "s") is None
    assert items.put("p", "s", ROW, ABSENT)
    assert items.get("p", "s") == ROW


def test_only_one_writer_creates(items: ItemStore) -> None:
    """A put that expects nothing fails when there is an item, and changes nothing."""
    items.put("p", "s", ROW, ABSENT)
    assert not items.put("p", "s", {"owner": "b"}, ABSENT)
    assert items.get("p", "s") == ROW


def test_a_put_replaces_the_whole_item_it_expects(items: ItemStore) -> None:
    """A put under the right expectation leaves nothing of the old item."""
    items.put("p", "s", ROW, ABSENT)
    assert items.put("p", "s", {"owner": "b"}, {"epoch": 3, "owner": "a"})
    assert items.get("p", "s") == {"owner": "b"}


@pytest.mark.parametrize(
    "expected",
    [
        {"epoch": 4},
        {"epoch": "3"},
        {"epoch": 3, "owner": "b"},
        {"absent": 1},
        {"epoch": True},
    ],
)
def test_a_wrong_expectation_changes_nothing(items: ItemStore, expected: Item) -> None:
    """Every expected attribute has to be there, equal in value and in type."""
    items.put("p", "s", ROW, ABSENT)
    assert not items.put("p", "s", {"owner": "b"}, expected)
    assert items.update("p", "s", {"owner": "b"}, expected) is None
    assert not items.delete("p", "s", expected)
    assert items.get("p", "s") == ROW


def test_an_expectation_of_a_missing_item_never_creates_it(items: ItemStore) -> None:
    """Put, update and delete with expected values do nothing without the item."""
    assert not items.put("p", "s", ROW, {"epoch": 3})
    assert items.update("p", "s", {"owner": "b"}, {"epoch": 3}, increment="epoch") is None
    assert not items.delete("p", "s", {"epoch": 3})
    assert items.get("p", "s") is None


def test_an_update_keeps_the_rest_and_counts(items: ItemStore) -> None:
    """An update sets what it names, adds 1 where asked, and answers with the new item."""
    items.put("p", "s", ROW, ABSENT)
    expected: Item = {"owner": "b", "epoch": 4, "released": False}
    assert items.update("p", "s", {"owner": "b"}, {"epoch": 3}, increment="epoch") == expected
    assert items.get("p", "s") == expected
    assert items.update("p", "s", {}, {"epoch": 4}, increment="epoch") == {**expected, "epoch": 5}


def test_update_and_delete_insist_on_an_expectation(items: ItemStore) -> None:
    """A blind update or delete is refused: it could not lose a race it should lose."""
    with pytest.raises(ValueError, match="expect"):
        items.update("p", "s", {"owner": "b"}, {})
    with pytest.raises(ValueError, match="expect"):
        items.delete("p", "s", {})


def test_a_query_stays_in_its_partition_and_prefix(items: ItemStore) -> None:
    """A query gives one partition's items whose sort key begins so, in order, on any many pages."""
    for number in range(12):
        items.put("p", f"node#{number:02d}", {"n": number, "pad": "x" * 100_000}, ABSENT)
    items.put("p", "lease", ROW, ABSENT)
    items.put("q", "node#99", ROW, ABSENT)
    found = items.query("p", "node#")
    assert [(sk, item["n"]) for sk, item in found] == [(f"node#{n:02d}", n) for n in range(12)]


def test_a_delete_removes_what_it_expects(items: ItemStore) -> None:
    """A delete under the right expectation removes the item."""
    items.put("p", "s", ROW, ABSENT)
    assert items.delete("p", "s", {"epoch": 3})
    assert items.get("p", "s") is None
