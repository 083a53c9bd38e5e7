"""Rows read anew by key: in which order things happen, and what becomes of dead letters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.outcome import StoredDataset
from accelerator.spec import DatasetSpec
from connector.errors import Unavailable
from connector.snapshot.single_keys import (
    AT_ONCE,
    PATIENCE_S,
    KeyUnreadable,
    NotFollowed,
    ReadAnew,
    Replayed,
    SingleKeys,
)
from connector.source import Source
from connector.upkeep import Upkeep
from tests.dataset_builder import begun, changes, item, open_database, put, read_items, text

PINNED = DatasetSpec("orders", pins=(("v", "BIGINT"),))
POISON = {"S": "not a number"}


@dataclass
class Course:
    positions_generation: int = 1


@dataclass
class Followed:
    """A dataset that is followed: its streams pass a time at the look number `passes_after`."""

    dataset: Dataset
    name: str = "orders"
    course: Course | None = field(default_factory=Course)
    stored: StoredDataset | None = None
    passes_after: int = 1
    asked_ms: list[int] = field(default_factory=list)
    dead_letters: int = -1
    refusal: Exception | None = None

    def has_passed(self, at_ms: int) -> bool:
        self.asked_ms.append(at_ms)
        return len(self.asked_ms) >= self.passes_after

    def count_dead_letters(self) -> None:
        self.dead_letters = self.dataset.open_dead_letters()

    def refuse_following(self) -> None:
        if self.refusal is not None:
            raise self.refusal


@dataclass
class Table:
    """What the table holds by key text; each read is answered at `at_ms`."""

    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    at_ms: int = 1_700_000_100_000
    reads: list[str] = field(default_factory=list)
    error: Exception | None = None

    def get_item(self, keys: str) -> tuple[str | None, int]:
        self.reads.append(keys)
        if self.error is not None:
            raise self.error
        found = self.items.get(keys)
        return (None if found is None else text(found)), self.at_ms


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def key(name: str) -> str:
    return text({"pk": {"S": name}})


class Bench:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.dataset = begun(database, spec=PINNED)
        self.followed = Followed(self.dataset, stored=self.dataset.load())
        self.table = Table()
        self.clock = Clock()
        self.keys = SingleKeys(
            cast("Upkeep", self.followed),
            cast("Source", self.table),
            database,
            threading.RLock(),
            self.clock,
        )

    def holds(self, name: str, **attributes: Any) -> None:
        """The table has this item."""
        self.table.items[key(name)] = item(name, **attributes)


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Iterator[Bench]:
    database = open_database(tmp_path)
    yield Bench(database)
    database.close()


def test_a_row_becomes_what_the_table_holds(bench: Bench) -> None:
    """Other, new or gone: an item that the table has no more is removed."""
    bench.dataset.apply([changes([put(1, "a", v={"N": "1"}), put(2, "gone", v={"N": "1"})])])
    bench.holds("a", v={"N": "2"})
    bench.holds("new", v={"N": "3"})

    assert bench.keys.read_anew([key("a"), key("gone"), key("new")]) == ReadAnew(3, 0)

    assert read_items(bench.database) == {
        "a": item("a", v={"N": "2"}),
        "new": item("new", v={"N": "3"}),
    }


def test_it_is_written_once_the_streams_have_passed_the_read(bench: Bench) -> None:
    """By the second after the answer's: that is cut to seconds."""
    bench.followed.passes_after = 4
    bench.holds("a", v={"N": "2"})

    bench.keys.read_anew([key("a")])

    assert bench.followed.asked_ms == [bench.table.at_ms + 1000] * 4
    assert bench.clock.now_s > 0


def test_streams_that_do_not_pass_end_it_and_nothing_is_written(bench: Bench) -> None:
    """Patience is bounded, and the ticket is given back."""
    bench.followed.passes_after = 10**9
    bench.holds("a", v={"N": "2"})

    with pytest.raises(NotFollowed, match="has not passed"):
        bench.keys.read_anew([key("a")])

    assert bench.clock.now_s == pytest.approx(PATIENCE_S, abs=1.0)
    assert read_items(bench.database) == {}
    bench.followed.passes_after = 1
    assert bench.keys.read_anew([key("a")]).read == 1


def test_nothing_is_written_where_nothing_is_followed_any_more(bench: Bench) -> None:
    """Reading may have stopped while the streams were waited for."""
    bench.followed.course = None
    with pytest.raises(NotFollowed):
        bench.keys.read_anew([key("a")])
    bench.followed.stored = None
    with pytest.raises(NotFollowed, match="no rows"):
        bench.keys.read_anew([key("a")])


def test_a_change_since_the_read_wins(bench: Bench) -> None:
    """What the stream brought after the ticket was taken is younger than the item."""
    bench.holds("a", v={"N": "1"})
    has_passed = bench.followed.has_passed

    def passing(at_ms: int) -> bool:
        bench.dataset.apply([changes([put(9, "a", v={"N": "9"})])])
        return has_passed(at_ms)

    bench.followed.has_passed = passing  # type: ignore[method-assign]
    bench.keys.read_anew([key("a")])

    assert read_items(bench.database) == {"a": item("a", v={"N": "9"})}


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "7", "[]", "null", "{", '{"pk":"a"}', '{"pk":{"N":"1"}}', '{"id":{"S":"a"}}'),
        *('{"pk":{"S":"a"},"sk":{"S":"b"}}', '{"pk":{"S":"a","N":"1"}}'),
    ],
)
def test_a_text_that_is_no_key_of_the_table_is_refused_before_any_read(
    bench: Bench, wrong: str
) -> None:
    """One wrong key among right ones: none is read."""
    with pytest.raises(KeyUnreadable):
        bench.keys.read_anew([key("a"), wrong])
    assert bench.table.reads == []


def test_many_keys_are_read_in_parts(bench: Bench) -> None:
    """Each part waits for the streams once, so that no read is old when it is written."""
    names = [key(f"k{n}") for n in range(AT_ONCE + 1)]
    assert bench.keys.read_anew(names).read == len(names)
    assert bench.table.reads == names
    assert len(bench.followed.asked_ms) == 2


def test_a_table_that_cannot_be_read_is_the_callers_error(bench: Bench) -> None:
    """Rows and letters stay as they are."""
    bench.dataset.apply([changes([put(1, "bad", v=POISON)])])
    bench.table.error = Unavailable("GetItem: the connection was closed")
    with pytest.raises(Unavailable):
        bench.keys.replay()
    assert len(bench.keys.dead_letters()) == 1


def test_a_letter_goes_once_its_key_is_right(bench: Bench) -> None:
    """Two letters of one key are one read."""
    bench.dataset.apply([changes([put(1, "bad", v=POISON), put(2, "bad", v=POISON)])])
    assert len(bench.keys.dead_letters()) == 2
    bench.holds("bad", v={"N": "5"})

    assert bench.keys.replay() == Replayed(replayed=2, still_dead=0, kept=0)

    assert bench.table.reads == [key("bad")]
    assert bench.followed.dead_letters == 0
    assert read_items(bench.database) == {"bad": item("bad", v={"N": "5"})}


def test_a_letter_whose_item_is_still_wrong_is_replaced_by_a_new_one(bench: Bench) -> None:
    """It is never lost on the way."""
    bench.dataset.apply([changes([put(1, "bad", v=POISON)])])
    bench.holds("bad", v={"S": "other text"})

    assert bench.keys.replay() == Replayed(replayed=0, still_dead=1, kept=0)

    (letter,) = bench.keys.dead_letters()
    assert "other text" in letter.record
    assert bench.followed.dead_letters == 1


def test_a_letter_without_a_readable_key_is_kept_until_it_is_dropped(bench: Bench) -> None:
    """Nobody can say which row it was meant for."""
    unreadable = put(1, "a") | {"keys": '{"pk":{"S":', "image": '{"pk":{"S":'}
    bench.dataset.apply([changes([unreadable])])

    assert bench.keys.replay() == Replayed(replayed=0, still_dead=0, kept=1)
    assert len(bench.keys.dead_letters()) == 1
    assert bench.keys.drop() == 1
    assert bench.keys.dead_letters() == ()
    assert bench.followed.dead_letters == 0


def test_who_may_not_write_drops_nothing(bench: Bench) -> None:
    """A follower's letters are the leader's."""
    bench.dataset.apply([changes([put(1, "bad", v=POISON)])])
    bench.followed.refusal = NotFollowed("only the leader does this")
    with pytest.raises(NotFollowed):
        bench.keys.drop()
    assert len(bench.keys.dead_letters()) == 1
