"""What becomes of an item by configuration: pins, include, exclude, where, unnesting, history."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from accelerator import conditions, pins
from accelerator.choice import Choice, Misfit
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import BadCondition, BadSetting, OutOfMemory
from accelerator.history import History
from accelerator.rows import RowTable
from accelerator.spec import DatasetSpec
from tests.dataset_builder import (
    begun,
    changes,
    delete,
    item,
    open_database,
    put,
    query,
    read_items,
)


@pytest.fixture(name="database")
def _database(tmp_path: Path):  # type: ignore[no-untyped-def]
    database = open_database(tmp_path)
    yield database
    database.close()


def dataset_of(database: Database, **settings: Any) -> Dataset:
    return begun(database, spec=DatasetSpec("orders", **settings))


def apply_without_room(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]]
) -> None:
    """Memory allows no new column while these are applied."""
    with monkeypatch.context() as patched:
        patched.setattr(Database, "room_for_columns", lambda *_: 0)
        dataset.apply([changes(records)])


def utc(text: str) -> dt.datetime:
    """A TIMESTAMP, which SQL hands out without its zone."""
    return dt.datetime.fromisoformat(text + "+00:00").replace(tzinfo=None)


PINNED = [
    ("TIMESTAMP", {"S": "2024-05-06T07:08:09Z"}, utc("2024-05-06T07:08:09")),
    ("TIMESTAMP", {"N": "1700000000"}, utc("2023-11-14T22:13:20")),
    ("TIMESTAMP", {"N": "1700000000123"}, utc("2023-11-14T22:13:20.123")),
    ("DATE", {"S": "2024-05-06"}, dt.date(2024, 5, 6)),
    ("UUID", {"S": "00000000-0000-0000-0000-00000000000a"}, uuid.UUID(int=10)),
    ("DOUBLE", {"N": "0.1"}, 0.1),
    ("DECIMAL(10,2)", {"N": "12345.6"}, Decimal("12345.60")),
    ("BIGINT", {"N": "7"}, 7),
    ("VARCHAR", {"N": "7"}, "7"),
    ("VARCHAR", {"S": "x"}, "x"),
    ("BOOLEAN", {"BOOL": True}, True),
    ("BLOB", {"B": "AAE="}, b"\x00\x01"),
    ("BIGINT[]", {"NS": ["1", "2"]}, [1, 2]),
    ("BIGINT[]", {"L": [{"N": "1"}, {"N": "2"}]}, [1, 2]),
    ("VARCHAR[]", {"SS": ["a"]}, ["a"]),
    ("DECIMAL(38,20)[]", {"L": [{"N": "0.12345678901234567891"}]},
     [Decimal("0.12345678901234567891")]),
    ("STRUCT(a DECIMAL(38,20), b STRUCT(c VARCHAR))",
     {"M": {"a": {"N": "1.00000000000000000001"}, "b": {"M": {"c": {"S": "x"}}}}},
     {"a": Decimal("1.00000000000000000001"), "b": {"c": "x"}}),
]  # fmt: skip


@pytest.mark.parametrize(("sql_type", "value", "shown"), PINNED, ids=str)
def test_a_pinned_column_has_its_type_and_exact_value(
    database: Database, sql_type: str, value: dict[str, Any], shown: object
) -> None:
    """A pin names the type; no value passes through a double unless the pin says so."""
    dataset = dataset_of(database, pins=(("v", sql_type),))
    assert dataset.apply([changes([put(1, "a", v=value), put(2, "b")])]).dead_letters == 0
    assert query(database, "SELECT v FROM orders ORDER BY pk") == [(shown,), (None,)]
    assert read_items(database) == {"a": item("a", v=value), "b": item("b")}


MISFITS = [
    ("TIMESTAMP", {"S": "soon"}),
    ("BIGINT", {"N": "7.5"}),
    ("BIGINT", {"S": "7"}),
    ("DECIMAL(4,1)", {"N": "1.25"}),
    ("UUID", {"S": "x"}),
    ("BIGINT[]", {"L": [{"N": "1"}, {"S": "x"}]}),
    ("STRUCT(a BIGINT)", {"M": {"a": {"N": "1.5"}}}),
    ("STRUCT(a BIGINT)", {"S": "x"}),
]


@pytest.mark.parametrize(("sql_type", "value"), MISFITS, ids=str)
def test_a_misfit_is_a_dead_letter_or_null_by_policy(
    database: Database, sql_type: str, value: dict[str, Any]
) -> None:
    """A value that its pin cannot hold is never silently NULL."""
    group = [changes([put(1, "a", v=value), put(2, "b")])]
    strict = dataset_of(database, pins=(("v", sql_type),))
    assert strict.apply(group).dead_letters == 1
    assert sorted(read_items(database)) == ["b"]
    forgiving = dataset_of(database, pins=(("v", sql_type),), misfit=Misfit.NULL)
    renumbered = [changes(group[0].changes.to_pylist(), generation=2)]
    assert forgiving.apply(renumbered).dead_letters == 0
    assert query(database, "SELECT v FROM orders") == [(None,), (None,)]
    assert read_items(database)["a"] == item("a", v=value)


@pytest.mark.parametrize("text", ["", "BIGNT", "STRUCT(a)", "BIGINT[", "STRUCT(a BIGINT", "INT; x"])
def test_a_pin_that_is_no_type_is_refused(text: str) -> None:
    """The configuration is told, not the first record."""
    with pytest.raises(pins.BadPin):
        pins.parse(text)


def test_include_takes_keys_and_named_attributes_alone(database: Database) -> None:
    """Whatever else is in an item makes no column and no dead letter."""
    dataset = dataset_of(database, include=("v", "later"))
    dataset.apply([changes([put(1, "a", v={"N": "1"}, w={"S": "x"})])])
    dataset.apply([changes([put(2, "b", later={"N": "1.5"}, w={"S": "x"})])])
    shown = query(database, "SELECT pk, v, later FROM orders ORDER BY pk")
    assert shown == [("a", 1, None), ("b", None, Decimal("1.5"))]
    assert query(database, "SELECT count(*) FROM dynaduck.columns") == [(3,)]


def test_exclude_leaves_named_attributes_out(database: Database) -> None:
    """Excluded attributes are neither columns nor in _extra; keys cannot be excluded."""
    dataset = dataset_of(database, exclude=("w", "pk"))
    applied = dataset.apply([changes([put(1, "a", v={"N": "1"}, w={"X": "?"} and {"S": "x"})])])
    assert applied.dead_letters == 0
    assert read_items(database) == {"a": item("a", v={"N": "1"})}


def test_rows_that_stop_matching_where_leave(database: Database) -> None:
    """The condition is evaluated on the new image; NULL and absent columns do not match."""
    dataset = dataset_of(database, where="v > 1 AND kind = 'x'")
    dataset.apply([changes([put(1, "a", v={"N": "5"}), put(2, "b", v={"N": "0"})])])
    assert read_items(database) == {}
    x = {"S": "x"}
    dataset.apply([changes([put(3, "a", v={"N": "5"}, kind=x), put(4, "b", v={"N": "3"}, kind=x)])])
    assert sorted(read_items(database)) == ["a", "b"]
    dataset.apply([changes([put(5, "a", v={"N": "1"}, kind=x)])])
    assert sorted(read_items(database)) == ["b"]


def test_keys_that_where_drops_are_touched(database: Database) -> None:
    """A held scan row does not bring back what the filter has since dropped."""
    from tests.dataset_builder import page

    dataset = dataset_of(database, where="v > 1")
    ticket = dataset.open_scan_ticket()
    dataset.apply([changes([put(1, "a", v={"N": "0"})])])
    dataset.apply([page([item("a", v={"N": "5"})], ticket=ticket)])
    assert read_items(database) == {}


def test_a_where_that_is_no_condition_is_refused(database: Database) -> None:
    """The text is named in the error; nothing is applied."""
    dataset = dataset_of(database, where="v >")
    with pytest.raises(BadCondition):
        dataset.apply([changes([put(1, "a", v={"N": "5"})])])


WHERE_ERRORS = [
    ("CAST(v AS INTEGER) > 1", {"S": "many"}),
    ("CAST(v AS DATE) > now()", {"S": "many"}),
    ("v->>'$.a' = 'x'", {"S": "{no"}),
]


@pytest.mark.parametrize(("where", "value"), WHERE_ERRORS, ids=str)
def test_a_row_that_where_cannot_judge_is_a_dead_letter(
    database: Database, where: str, value: dict[str, Any]
) -> None:
    """It is neither kept nor dropped in silence; the others of its group are judged as ever."""
    dataset = dataset_of(database, where=f"v IS NULL OR kind = 'x' OR ({where})")
    group = [put(1, "a", v=value), put(2, "b"), put(3, "c", kind={"S": "x"})]
    assert dataset.apply([changes(group)]).dead_letters == 1
    assert sorted(read_items(database)) == ["b", "c"]
    [(key, error)] = query(database, "SELECT key, error FROM dynaduck.dead_letters")
    assert key == "a"
    assert error.startswith("where cannot be computed: ")


def test_a_condition_that_no_longer_fits_the_types_sets_rows_aside(database: Database) -> None:
    """Once the column is a list, to compare it has no meaning: all that come are dead letters."""
    dataset = dataset_of(database, where="tags LIKE 'x%'")
    tags = {"SS": ["x"]}
    assert dataset.apply([changes([put(1, "a", tags=tags), put(2, "b")])]).dead_letters == 2
    assert read_items(database) == {}


def test_where_sees_attributes_beyond_the_bounds(database: Database) -> None:
    """What the filter reads has a column whatever max_columns and memory allow."""
    dataset = dataset_of(database, where="KIND = 'x'", max_columns=1)
    x = {"S": "x"}
    dataset.apply([changes([put(1, "a", a={"N": "1"}, kind=x), put(2, "b", a={"N": "1"})])])
    assert query(database, "SELECT pk, kind, _extra FROM orders") == [("a", "x", '{"a":1}')]


BAD_SETTINGS = [
    ("where", {"where": "v >"}),
    ("where", {"where": "v > 1; DROP TABLE x"}),
    ("where", {"where": "sum(v) > 1"}),
    ("where", {"where": "v IN (SELECT 1)"}),
    ("where", {"where": "row_number() OVER () = 1"}),
    ("where", {"where": "v > ?"}),
    ("where", {"where": "no_such_function(v)"}),
    ("where", {"where": "v > 1", "exclude": ("v",)}),
    ("where", {"where": "v > 1", "include": ("w",)}),
    ("columns", {"pins": (("v", "BIGNT"),)}),
    ("columns", {"pins": (("v", "DECIMAL(39,2)"),)}),
    ("columns", {"pins": (("v", "STRUCT(a BIGINT, A DATE)"),)}),
    ("columns", {"pins": (("v", "DATE"),), "exclude": ("v",)}),
    ("columns", {"pins": (("v.w", "DATE"),), "exclude": ("v",), "unnest_depth": 1}),
    ("columns", {"pins": (("v", "DATE"),), "include": ("w",)}),
]


@pytest.mark.parametrize(("setting", "said"), BAD_SETTINGS, ids=str)
def test_settings_that_no_data_could_suit_are_refused(setting: str, said: dict[str, Any]) -> None:
    """Before anything is written, by the setting's name."""
    with pytest.raises(BadSetting) as refusal:
        conditions.check(Choice(**said))
    assert refusal.value.setting == setting


GOOD_SETTINGS: list[dict[str, Any]] = [
    {},
    {"where": "v > 1 AND kind = 'x' OR \"a.b\" IS NULL"},
    {"where": "len(tags) > 1 AND list_contains(tags, 'x') AND lower(kind) LIKE 'x%'"},
    {"where": "doc->>'$.a' = 'x' AND CAST(v AS INTEGER) = 1 AND v[1] = 2"},
    {"where": "list_contains(list_transform(tags, lambda t: upper(t)), 'X')"},
    {"where": "V > 1", "include": ("v",)},
    {"pins": (("v", "json"), ("w.x", "STRUCT(a BIGINT, b DATE)[]")), "unnest_depth": 1},
]


@pytest.mark.parametrize("said", GOOD_SETTINGS, ids=str)
def test_settings_that_some_data_suits_are_taken(said: dict[str, Any]) -> None:
    """Whatever the types of the columns turn out to be."""
    conditions.check(Choice(**said))


def test_maps_become_columns_down_to_the_depth(database: Database) -> None:
    """`a.b` columns hold the members; deeper maps stay JSON; the item reads back whole."""
    dataset = dataset_of(database, unnest_depth=1)
    nested = {"M": {"b": {"N": "1"}, "c": {"M": {"d": {"S": "x"}}}}}
    items = {
        "1": item("1", a=nested),
        "2": item("2", a={"M": {}}),
        "3": item("3", a={"S": "plain"}),
        "4": item("4", a={"M": {"b": {"S": "two"}}}),
        "5": item("5", a={"NULL": True}),
        "6": item("6", a={"M": {"b": {"N": "9"}}}),
    }
    for number, (pk, image) in enumerate(items.items(), start=1):
        attributes = {name: value for name, value in image.items() if name != "pk"}
        assert dataset.apply([changes([put(number, pk, **attributes)])]).dead_letters == 0
    shown = query(database, 'SELECT "a.b", "a.c" FROM orders ORDER BY pk')
    nothing = (None, None)
    assert shown == [("1", '{"d":"x"}'), nothing, nothing, ('"two"', None), nothing, ("9", None)]
    assert read_items(database) == items


def test_pins_reach_into_unnested_maps(database: Database) -> None:
    """A pin may name a path."""
    dataset = dataset_of(database, unnest_depth=1, pins=(("a.when", "DATE"),))
    dataset.apply([changes([put(1, "a", a={"M": {"when": {"S": "2024-05-06"}}})])])
    assert query(database, 'SELECT "a.when" FROM orders') == [(dt.date(2024, 5, 6),)]


def test_history_keeps_every_change_with_its_time_and_cause(database: Database) -> None:
    """Also those that collapse into one row, and deletes by expiry told apart."""
    dataset = dataset_of(database, history=History(retention_ms=86_400_000))
    gone = delete(3, "a") | {"ttl_delete": True, "old_image": '{"pk":{"S":"a"}}'}
    dataset.apply([changes([put(1, "a", v={"N": "1"}), put(2, "a", v={"N": "2"}), gone])])
    shown = query(
        database, "SELECT op, ttl_delete, old_image FROM orders_history ORDER BY sequence_number"
    )
    assert shown == [
        ("modify", False, None), ("modify", False, None), ("remove", True, '{"pk":{"S":"a"}}'),
    ]  # fmt: skip
    assert read_items(database) == {}


def test_history_forgets_what_is_past_the_retention(database: Database) -> None:
    """Counted back from the newest change, by the records' own time."""
    dataset = dataset_of(database, history=History(retention_ms=1_000))
    dataset.apply([changes([put(1, "a")])])
    later = put(2, "a") | {"created_at": 1_700_000_005_000}
    dataset.apply([changes([later])])
    assert query(database, "SELECT count(*) FROM orders_history") == [(1,)]


def test_a_choice_is_stored_with_its_rows_and_comes_back(database: Database) -> None:
    """The text holds all of it: equal texts mean equal choices."""
    choice = Choice(9, ("a",), ("b",), "v > 1", 2, (("x", "DATE"),), Misfit.NULL)
    assert Choice.from_text(choice.text()) == choice
    assert len({choice.text(), Choice().text(), Choice(where="TRUE").text()}) == 3


def test_attributes_beyond_max_columns_stay_reachable_in_extra(database: Database) -> None:
    """Counted as columns are, the rest is plain JSON in `_extra`, and reads back exactly."""
    dataset = dataset_of(database, max_columns=2)
    first = item("a", v={"N": "1"}, w={"S": "x"}, z={"M": {"q": {"N": "1.5"}}})
    rest = {name: value for name, value in first.items() if name != "pk"}
    dataset.apply([changes([put(1, "a", **rest), put(2, "b", v={"N": "2"})])])
    shown = query(database, "SELECT pk, v, _extra FROM orders ORDER BY pk")
    assert shown == [("a", 1, '{"w":"x","z":{"q":1.5}}'), ("b", 2, None)]
    assert read_items(database) == {"a": first, "b": item("b", v={"N": "2"})}


ODD_NAMES: dict[str, Any] = {
    ".": {"S": "\\u001f"},
    "\x1f": {"S": "\x1f"},
    "a\x1fb": {"N": "1"},
    "a.b": {"S": "\\\x1f"},
    "c\x1fd": {"N": "2"},
}


def test_every_name_is_itself_in_extra(database: Database) -> None:
    """Also one that holds what joins the paths of unnested maps, where no map is unnested."""
    dataset = dataset_of(database, max_columns=1)
    dataset.apply([changes([put(1, "a", **ODD_NAMES)])])
    [(extra,)] = query(database, "SELECT CAST(_extra AS VARCHAR) FROM orders")
    assert json.loads(extra) == {
        ".": "\\u001f",
        "\x1f": "\x1f",
        "a\x1fb": 1,
        "a.b": "\\\x1f",
        "c\x1fd": 2,
    }
    assert read_items(database) == {"a": item("a", **ODD_NAMES)}


def test_every_name_is_promoted_to_its_own_column(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `_raw` and `_extra` held of it is the column's then."""
    dataset = dataset_of(database)
    apply_without_room(dataset, monkeypatch, [put(1, "a", **ODD_NAMES)])
    while dataset.promote():
        pass
    names = dict(query(database, "SELECT attribute, column_name FROM dynaduck.columns"))
    assert len(set(names.values())) == 6
    [row] = query(database, "SELECT * FROM orders")
    assert sorted(map(str, row)) == sorted(["a", "\\u001f", "\x1f", "1", "2", "\\\x1f", "None"])
    assert read_items(database) == {"a": item("a", **ODD_NAMES)}


def test_paths_in_extra_are_dotted_and_values_stay(database: Database) -> None:
    """A path gives way to an attribute that is called so itself."""
    dataset = dataset_of(database, unnest_depth=1, max_columns=1)
    maps: dict[str, Any] = {
        "m": {"M": {"a": {"S": "x\x1f\\u001f"}, "b": {"N": "2"}}}, "m.b": {"N": "3"}
    }  # fmt: skip
    applied = dataset.apply([changes([put(1, "a", **maps)])])
    assert applied.dead_letters == 0
    [(extra,)] = query(database, "SELECT CAST(_extra AS VARCHAR) FROM orders")
    assert json.loads(extra) == {"m.a": "x\x1f\\u001f", "m\x1fb": 2, "m.b": 3}
    assert read_items(database) == {"a": item("a", **maps)}


def test_a_name_that_would_be_taken_for_a_path_is_a_dead_letter(database: Database) -> None:
    """Under unnest_depth alone; nothing would tell it from the member of a map."""
    dataset = dataset_of(database, unnest_depth=1)
    maps: dict[str, Any] = {"m": {"M": {"a": {"N": "1"}}}, "m\x1fa": {"N": "2"}}
    applied = dataset.apply([changes([put(1, "a", **maps), put(2, "b", v={"N": "1"})])])
    assert applied.dead_letters == 1
    [(error,)] = query(database, "SELECT error FROM dynaduck.dead_letters")
    assert "U+001F" in error
    assert query(database, "SELECT pk FROM orders") == [("b",)]


def test_columns_over_the_memory_budget_wait_in_extra_and_are_promoted(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New attributes beyond what memory allows wait in `_extra`, and get columns when quiet."""
    dataset = dataset_of(database)
    wide: dict[str, Any] = {f"a{n}": {"N": str(n)} for n in range(5)}
    with monkeypatch.context() as patched:
        patched.setattr(database, "room_for_columns", lambda rows: 2)
        applied = dataset.apply([changes([put(1, "a", **wide), put(2, "b", a4={"S": "x"})])])
        assert len(applied.columns_added) == 2
        assert applied.dead_letters == 0
        assert query(database, "SELECT count(*) FROM orders WHERE _extra IS NOT NULL") == [(2,)]
        assert dataset.promote() == 2
        assert query(database, "SELECT count(*) FROM dynaduck.columns") == [(5,)]
    again = Dataset(database, DatasetSpec("orders"))
    again.load()
    assert again.promote() == 2
    assert again.promote() == 0
    assert query(database, "SELECT pk, a0, a3, CAST(a4 AS VARCHAR) FROM orders ORDER BY pk") == [
        ("a", 0, 3, "4"), ("b", None, None, '"x"'),
    ]  # fmt: skip
    assert read_items(database) == {"a": item("a", **wide), "b": item("b", a4={"S": "x"})}


def test_every_row_that_waits_is_promoted_a_part_at_a_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those whose attribute has got its column meanwhile; where judges nobody again."""
    dataset = dataset_of(database, where="a0 IS NOT NULL")
    wide: dict[str, Any] = {f"a{n}": {"M": {"x": {"N": str(n)}}} for n in range(4)} | {
        "n": {"N": "1.5"}
    }
    apply_without_room(dataset, monkeypatch, [put(n, f"k{n}", **wide) for n in range(1, 8)])
    assert query(database, "SELECT count(*) FROM orders WHERE _extra IS NOT NULL") == [(7,)]
    looked_at: list[int] = []
    while not looked_at or looked_at[-1]:
        looked_at.append(dataset.promote(max_rows=3))
    assert sum(looked_at) >= 7
    assert query(database, "SELECT DISTINCT n, CAST(a3 AS VARCHAR), _extra FROM orders") == [
        (Decimal("1.5"), '{"x":3}', None)
    ]  # fmt: skip
    assert read_items(database) == {f"k{n}": item(f"k{n}", **wide) for n in range(1, 8)}


def test_rows_that_memory_does_not_allow_to_promote_are_promoted_in_smaller_parts(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attribute does not wait for ever because all rows at once are too many."""
    dataset = dataset_of(database)
    apply_without_room(dataset, monkeypatch, [put(n, f"k{n}", a={"N": "1"}) for n in range(1, 8)])
    waiting, asked = RowTable.waiting, []

    def short(table: RowTable, max_rows: int) -> pa.Table:
        asked.append(max_rows)
        if max_rows > 2_000:
            raise duckdb.OutOfMemoryException("failed to allocate data of size 16.0 MiB")
        return waiting(table, max_rows)

    monkeypatch.setattr(RowTable, "waiting", short)
    for _ in range(2):
        with pytest.raises(OutOfMemory):
            dataset.promote()
    while dataset.promote():
        pass
    assert asked[:3] == [20_000, 2_500, 312]
    assert query(database, "SELECT count(a), count(_extra) FROM orders") == [(7, 0)]


def test_attributes_beyond_max_columns_are_looked_at_once(database: Database) -> None:
    """They stay where they are, and being quiet costs nothing."""
    dataset = dataset_of(database, max_columns=2)
    dataset.apply([changes([put(1, "a", v={"N": "1"}, w={"S": "x"})])])
    assert dataset.promote() == 0
    assert read_items(database) == {"a": item("a", v={"N": "1"}, w={"S": "x"})}


def test_a_thousand_attributes_are_a_thousand_columns(database: Database) -> None:
    """As many as max_columns allows by itself; the others of a larger item are in _extra."""
    dataset = dataset_of(database)
    wide: dict[str, Any] = {f"a{n}": {"S": str(n)} for n in range(1_010)}
    assert dataset.apply([changes([put(1, "k", **wide)])]).dead_letters == 0
    assert query(database, "SELECT count(*) FROM dynaduck.columns") == [(1_000,)]
    assert query(database, "SELECT a0, a998, len(json_keys(_extra)) FROM orders") == [
        ("0", "998", 11),
    ]  # fmt: skip
    assert read_items(database) == {"k": item("k", **wide)}


def test_a_name_with_a_nul_has_its_column(database: Database) -> None:
    """DuckDB 1.5 ends a statement at NUL; the name is listed, the value is exact."""
    dataset = dataset_of(database)
    odd: dict[str, Any] = {"a\0b": {"M": {"x\0": {"N": "1"}}}, "\0": {"NULL": True}}
    dataset.apply([changes([put(1, "k", **odd)])])
    assert read_items(database) == {"k": item("k", **odd)}
