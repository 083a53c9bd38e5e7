"""Rows back to the DynamoDB items they came from.

Owns the inverse of the decoder: what verify, repair and promotion compare and copy. It uses a
reader's cursor and reads plan and rows in one transaction, so it may run beside the writer. Numbers
come back in normal form, sets in stored order.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from accelerator import items
from accelerator.catalog import Catalog, Generation
from accelerator.choice import PATH
from accelerator.numerals import normal_form
from accelerator.rows import RowTable
from accelerator.schema import Column, Kind, Plan

# Rows turned into Python objects at a time.
_ROWS = 2_048


class ItemReader:
    """Reads items of a dataset's live rows. Belongs to the thread that owns `cursor`."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, dataset: str) -> None:
        self._cursor = cursor
        self._dataset = dataset

    def items_of(self, keys: Sequence[str]) -> dict[str, str]:
        """Canonical key to item (compact DynamoDB JSON), for those of `keys` that are there."""
        self._cursor.register("wanted_keys", pa.table({"k": pa.array(keys, pa.string())}))
        try:
            condition = (
                "WHERE _h IN (SELECT md5_number_lower(k) FROM wanted_keys) "
                "AND _k IN (SELECT k FROM wanted_keys)"
            )
            return dict(self._items(condition))
        finally:
            self._cursor.unregister("wanted_keys")

    def all_items(self) -> Iterator[tuple[str, str]]:
        """Every row as (canonical key, item), in no order, of one moment."""
        yield from self._items("")

    def _items(self, condition: str) -> Iterator[tuple[str, str]]:
        self._cursor.execute("BEGIN TRANSACTION")
        try:
            live = self._live()
            if live is None:
                return
            plan = Catalog(self._cursor, self._dataset).plan(live.generation, live.choice)
            yield from read_rows(self._cursor, self._table(live, plan), condition)
        finally:
            self._cursor.execute("ROLLBACK")

    def _live(self) -> Generation | None:
        for generation in Catalog(self._cursor, self._dataset).generations():
            if generation.role == "live":
                return generation
        return None

    def _table(self, generation: Generation, plan: Plan) -> RowTable:
        return RowTable(self._cursor, self._dataset, generation.generation, plan)


def read_rows(
    cursor: duckdb.DuckDBPyConnection, table: RowTable, condition: str
) -> Iterator[tuple[str, str]]:
    """(canonical key, item) of the rows under a WHERE clause."""
    physical = "".join(f", {_readable(column)}" for column in table.plan.columns)
    result = cursor.execute(f"SELECT _k, _raw{physical} FROM {table.qualified_name} {condition}")
    while found := result.fetchmany(_ROWS):
        for key, raw, *values in found:
            yield key, items.write(_item(table.plan, raw, values))


def _readable(column: Column) -> str:
    # As text where Python's own types would be slower or less exact.
    if column.kind is Kind.JSON:
        return f"CAST({column.physical} AS VARCHAR)"
    if column.kind is Kind.PINNED:
        # Its values stand in `_raw` as they came.
        return "NULL"
    return column.physical


def _item(plan: Plan, raw: str | None, values: Sequence[Any]) -> dict[str, items.Attribute]:
    kept: dict[str, items.Attribute] = {} if raw is None else items.read(raw)
    item = {}
    for column, value in zip(plan.columns, values, strict=True):
        if column.attribute in kept:
            item[column.attribute] = kept.pop(column.attribute)
        elif value is not None:
            item[column.attribute] = {column.base: _content(column, value)}
    item.update(kept)
    if plan.choice.unnest_depth:
        # The map that a path comes from stands in `_raw` as a whole.
        return {name: value for name, value in item.items() if PATH not in name}
    return item


def _content(column: Column, value: Any) -> Any:
    match column.kind:
        case Kind.INTEGER | Kind.DECIMAL:
            return normal_form(str(value))
        case Kind.INTEGER_SET | Kind.DECIMAL_SET:
            return [normal_form(str(each)) for each in value]
        case Kind.BINARY:
            return base64.b64encode(value).decode()
        case Kind.BINARY_SET:
            return [base64.b64encode(each).decode() for each in value]
        case Kind.JSON:
            return _from_plain(column.base, value)
        case _:
            return value


def _from_plain(base: str, text: str) -> Any:
    """The content of a value of the column's first type, which JSON gives back unambiguously."""
    if base == "N":
        return text.strip('"')
    if base == "NS":
        return [str(each) for each in json.loads(text, parse_int=str, parse_float=str)]
    return json.loads(text)
