"""docs/types.md: every example on the page is applied and read back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelerator.database import Database
from accelerator.spec import DatasetSpec
from tests import oracle
from tests.dataset_builder import begun, changes, item, open_database, put, query, read_items

PAGE = (Path(__file__).parents[2] / "docs" / "types.md").read_text(encoding="utf-8")
COLUMNS = "| values of the attribute, in order | column type | what SELECT shows |"
PINS = "| pin | values of the attribute, in order | what SELECT shows |"
MISFITS = "| pin | value that it cannot hold |"
NAMES = "| attributes of an item, in order | columns |"


def rows_under(header: str) -> list[list[list[str | None]]]:
    """The cells of all tables with this header; each cell is its code spans, NULL as None."""
    found = []
    for table in PAGE.split(header + "\n")[1:]:
        for line in table.split("\n")[1:]:
            if not line.startswith("|"):
                break
            found.append([_spans(cell) for cell in line.strip("|").split(" | ")])
    assert found, header
    return found


def _spans(cell: str) -> list[str | None]:
    return [
        None if span == "NULL" else span.strip("`") for span in re.findall(r"`[^`]*`|NULL", cell)
    ]


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> Iterator[Database]:
    database = open_database(tmp_path)
    yield database
    database.close()


def show(database: Database) -> list[str | None]:
    return [row[0] for row in query(database, "SELECT CAST(v AS VARCHAR) FROM orders ORDER BY pk")]


def apply_each(database: Database, spec: DatasetSpec, values: list[str | None]) -> int:
    """One commit per value; how many became dead letters. What is applied must read back equal."""
    dataset = begun(database, spec=spec)
    dead = 0
    items = {}
    for number, text in enumerate(values, start=1):
        value = json.loads(text or "")
        key = f"k{number}"
        items[key] = item(key, v=value)
        dead += dataset.apply([changes([put(number, key, v=value)])]).dead_letters
    found = {key: oracle.canonical_item(each) for key, each in read_items(database).items()}
    if not dead:
        assert found == {key: oracle.canonical_item(each) for key, each in items.items()}
    return dead


@pytest.mark.parametrize("row", rows_under(COLUMNS), ids=str)
def test_a_column_has_the_type_and_the_values_on_the_page(
    database: Database, row: list[list[str | None]]
) -> None:
    """The narrowest type that holds all; and the item as a whole reads back equal."""
    values, sql_type, shown = row
    assert apply_each(database, DatasetSpec("orders"), values) == 0
    types = query(database, "SELECT type FROM dynaduck.columns WHERE attribute = 'v'")
    assert [types[0][0]] == sql_type
    assert show(database) == shown


@pytest.mark.parametrize("row", rows_under(PINS), ids=str)
def test_a_pin_shows_what_the_page_says(database: Database, row: list[list[str | None]]) -> None:
    """The pinned type holds the value exactly."""
    [pin], values, shown = row
    spec = DatasetSpec("orders", pins=(("v", pin or ""),))
    assert apply_each(database, spec, values) == 0
    assert show(database) == shown


@pytest.mark.parametrize("row", rows_under(MISFITS), ids=str)
def test_a_misfit_on_the_page_is_a_dead_letter(
    database: Database, row: list[list[str | None]]
) -> None:
    """The default policy."""
    [pin], values = row
    assert apply_each(database, DatasetSpec("orders", pins=(("v", pin or ""),)), values) == 1


@pytest.mark.parametrize("row", rows_under(NAMES), ids=str)
def test_names_become_the_columns_on_the_page(
    database: Database, row: list[list[str | None]]
) -> None:
    """Suffixes too: they are stable, so they can be printed."""
    attributes, columns = row
    values: dict[str, Any] = {name or "": {"N": "1"} for name in attributes}
    begun(database).apply([changes([put(1, "k", **values)])])
    found = query(
        database, "SELECT column_name FROM dynaduck.columns WHERE attribute <> 'pk'"
    )  # in order of appearance
    assert [name for (name,) in found] == columns
