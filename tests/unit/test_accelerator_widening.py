"""The widening ladder and the names of columns, over committed rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from accelerator.database import Database
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


def n(text: str) -> dict[str, str]:
    return {"N": text}


LADDER: list[tuple[list[dict[str, Any]], str, list[object]]] = [
    ([n("1"), n("2.5")], "DECIMAL(38,1)", [Decimal("1.0"), Decimal("2.5")]),
    ([n("9223372036854775807"), n("0." + "1" * 20)], "VARCHAR",
     ["9223372036854775807", "0." + "1" * 20]),
    ([n("1" * 30 + ".5"), n("0." + "1" * 9)], "VARCHAR", ["1" * 30 + ".5", "0." + "1" * 9]),
    ([n("5.5"), n("9223372036854775808")], "DECIMAL(38,1)",
     [Decimal("5.5"), Decimal("9223372036854775808")]),
    ([n("1.50"), n("1E-100")], "VARCHAR", ["1.5", "0." + "0" * 99 + "1"]),
    ([{"NULL": True}, n("7")], "BIGINT", [None, 7]),
    ([{"S": "x"}, {"NULL": True}], "VARCHAR", ["x", None]),
    ([{"S": 'q"'}, n("1")], "JSON", ['"q\\""', "1"]),
    ([n("0.12345678901234567890"), {"BOOL": True}], "JSON",
     ['"0.1234567890123456789"', "true"]),
    ([n("0.1"), {"S": "x"}], "JSON", ["0.1", '"x"']),
    ([{"B": "AAE="}, {"M": {}}], "JSON", ['"AAE="', "{}"]),
    ([{"NS": ["1", "2"]}, {"NS": ["2.5"]}], "DECIMAL(38,1)[]",
     [[Decimal("1.0"), Decimal("2.0")], [Decimal("2.5")]]),
    ([{"NS": ["1.5"]}, {"L": [n("1")]}], "JSON", ["[1.5]", "[1]"]),
    ([{"SS": ["a"]}, {"S": "a"}], "JSON", ['["a"]', '"a"']),
]  # fmt: skip


@pytest.mark.parametrize(("values", "sql_type", "shown"), LADDER, ids=str)
def test_a_column_widens_and_old_rows_read_back_equal(
    database: Database, values: list[dict[str, Any]], sql_type: str, shown: list[object]
) -> None:
    """One commit per value: the type is the narrowest that holds all, nothing is lost."""
    dataset = begun(database)
    for number, value in enumerate(values, start=1):
        dataset.apply([changes([put(number, f"k{number}", v=value)])])
    assert query(database, "SELECT type FROM dynaduck.columns WHERE attribute = 'v'") == [
        (sql_type,)
    ]
    column = "CAST(v AS VARCHAR)" if sql_type == "JSON" else "v"
    assert [row[0] for row in query(database, f"SELECT {column} FROM orders ORDER BY pk")] == shown
    found = read_items(database)
    for number, value in enumerate(values, start=1):
        [(tag, content)] = value.items()
        normal = {"1.50": "1.5", "1E-100": "0." + "0" * 99 + "1"}.get(str(content), content)
        if tag == "N":
            normal = str(normal).rstrip("0") if "." in str(normal) else normal
        assert found[f"k{number}"] == item(f"k{number}", v={tag: normal})


@pytest.mark.parametrize("long", [n("7" * 38), {"NS": ["7" * 38]}], ids=["number", "set"])
def test_a_value_that_is_gone_stops_no_widening(database: Database, long: dict[str, Any]) -> None:
    """DuckDB converts deleted rows as well, whose numbers need not fit the new type."""
    wanted = Decimal("1.5")
    short: dict[str, Any] = n("1.5")
    if "NS" in long:
        short = {"NS": ["1.5"]}
    dataset = begun(database)
    dataset.apply([changes([put(1, "a", v=long), put(2, "b", v=long)])])
    dataset.apply([changes([put(3, "a", v={"NULL": True}), delete(4, "b")])])
    assert dataset.apply([changes([put(5, "b", v=short)])]).columns_widened == ("v",)
    shown = [wanted] if "NS" in long else wanted
    assert query(database, "SELECT pk, v FROM orders ORDER BY pk") == [("a", None), ("b", shown)]


def test_a_widening_is_told(database: Database) -> None:
    """By apply's answer and by dynaduck.columns."""
    dataset = begun(database)
    dataset.apply([changes([put(1, "a", v=n("1"))])])
    assert dataset.apply([changes([put(2, "b", v={"S": "x"})])]).columns_widened == ("v",)
    told = query(
        database, "SELECT seen_types, widened_from FROM dynaduck.columns WHERE attribute = 'v'"
    )
    assert told == [(["N", "S"], ["BIGINT"])]


def test_names_that_sql_cannot_tell_apart_get_stable_suffixes(database: Database) -> None:
    """The first keeps its name, the second's suffix depends on its name alone."""
    shown = []
    for _ in range(2):
        dataset = begun(database)
        generation = dataset.load()
        assert generation is not None
        names: dict[str, Any] = {"Id": n("1"), "id": n("2"), "_raw": n("3"), 'a"b.c': n("4")}
        names |= {"select": n("5"), "x" * 300: n("6")}
        dataset.apply([changes([put(1, "k", **names)], generation=generation.generation)])
        columns = query(database, "SELECT attribute, column_name FROM dynaduck.columns")
        by_attribute = dict(columns)
        assert by_attribute["Id"] == "Id"
        assert by_attribute["id"].startswith("id_")
        assert by_attribute["_raw"].startswith("_raw_")
        assert by_attribute['a"b.c'] == 'a"b.c'
        assert len(by_attribute["x" * 300]) <= 255
        assert read_items(database) == {"k": item("k", **names)}
        shown.append(columns)
    assert shown[0] == shown[1]


def test_numbers_that_json_holds_as_text_are_counted(database: Database) -> None:
    """A reader of JSON would round them, so they are strings; that is said, not hidden."""
    dataset = begun(database)
    long = n("0.1234567890123456789")
    doc = {"M": {"a": long, "b": {"L": [long, n("1.5"), {"NS": ["1", "1" * 39, "1.5"]}]}}}
    applied = dataset.apply([changes([put(1, "k", v=doc, w=long), put(2, "l", v=n("1.5"))])])
    assert applied.numbers_as_text == 3
