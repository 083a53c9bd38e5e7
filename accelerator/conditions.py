"""The dataset's `where`: what it reads, whether it is a condition at all, and which rows it keeps.

Owns the rule that no row is dropped in silence: one for which the condition is false or NULL has no
row, one for which it cannot be computed is told apart from both. The condition sees the columns of
the new image under their own names; a column that is not there is NULL. Knows no tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import pins
from accelerator.choice import PATH, Choice
from accelerator.errors import FATAL, BadCondition, BadSetting
from accelerator.names import fold
from accelerator.schema import Plan
from accelerator.sql import identifier
from accelerator.statements import first_row, rows

# What a condition over one row cannot hold.
_FOREIGN = {"SUBQUERY": "a subquery", "WINDOW": "a window function", "PARAMETER": "a parameter"}


def check(choice: Choice) -> None:
    """Tries the settings on a database in memory, where nothing can be written.

    Raises:
        BadSetting: names the setting and says what is wrong with it.
    """
    with duckdb.connect(":memory:") as cursor:
        for name, sql_type in choice.pins:
            _check_pin(cursor, choice, name, sql_type)
        if choice.where is None:
            return
        try:
            names = columns_of(cursor, choice.where)
            _try_on_nothing(cursor, choice.where, names)
        except BadCondition as error:
            raise BadSetting("where", str(error), hint=error.hint) from error
    for name in names:
        if name in choice.exclude:
            raise BadSetting("where", f"It reads {name!r}, which exclude leaves out.")
        if choice.include is not None and fold(name) not in map(fold, choice.include):
            raise BadSetting("where", f"It reads {name!r}, which include does not name.")


def _check_pin(cursor: duckdb.DuckDBPyConnection, choice: Choice, name: str, sql_type: str) -> None:
    attribute = name.replace(".", PATH) if choice.unnest_depth else name
    if not choice.takes(attribute):
        raise BadSetting("columns", f"{name!r} has a type but is left out by include or exclude.")
    if sql_type.strip().upper() == "JSON":
        return
    try:
        parsed = pins.parse(sql_type).sql_type
        rows(cursor, f"SELECT CAST(NULL AS {parsed})")
    except pins.BadPin as error:
        raise BadSetting("columns", f"The type of {name!r}: {error}.") from error
    except duckdb.Error as error:
        raise BadSetting("columns", f"The type of {name!r}: {_sentence(error)}.") from error


def _try_on_nothing(
    cursor: duckdb.DuckDBPyConnection, condition: str, names: tuple[str, ...]
) -> None:
    shown = ", ".join(["NULL AS dynaduck_none", *(f"NULL AS {identifier(n)}" for n in names)])
    try:
        rows(cursor, f"SELECT {_kept_sql(condition)} FROM (SELECT {shown})")
    except (duckdb.CatalogException, duckdb.ParserException) as error:
        raise BadCondition(f"{condition!r} is no condition: {_sentence(error)}.") from error
    except duckdb.Error:
        # Whatever else DuckDB says is of NULL's type, which no column of the dataset need have.
        return


def columns_of(cursor: duckdb.DuckDBPyConnection, condition: str) -> tuple[str, ...]:
    """Names of the columns that a condition reads, without regard to case.

    Raises:
        BadCondition: the text is no condition over one row.
    """
    query = f"SELECT 1 FROM rows_of_the_dataset WHERE ({condition})"
    found = first_row(cursor, "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [query])
    tree: dict[str, Any] = json.loads(found[0]) if found else {"error": True}
    if tree.get("error") or len(tree.get("statements", [])) != 1:
        message = tree.get("error_message", "it is more than one statement")
        raise BadCondition(f"{condition!r} is no condition: {message}.")
    aggregates = {name for (name,) in rows(cursor, _AGGREGATES)}
    names: dict[str, str] = {}
    for node in _nodes(tree["statements"]):
        kind = str(node.get("class"))
        function = str(node.get("function_name", "")).lower()
        foreign = _FOREIGN.get(kind) or (function in aggregates and f"the aggregate {function}")
        if foreign:
            raise BadCondition(f"{condition!r} holds {foreign}, which one row cannot answer.")
        if kind == "COLUMN_REF":
            name = str(node["column_names"][0])
            names.setdefault(fold(name), name)
    return tuple(names.values())


_AGGREGATES = (
    "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate' "
    "EXCEPT SELECT function_name FROM duckdb_functions() WHERE function_type <> 'aggregate'"
)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, list):
        for each in tree:
            yield from _nodes(each)
    elif isinstance(tree, dict):
        yield tree
        for each in tree.values():
            yield from _nodes(each)


class Filter:
    """One plan's condition. Writer thread only; make it anew when the plan has grown."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, plan: Plan, condition: str) -> None:
        self._cursor = cursor
        self._condition = condition
        known = {fold(column.name) for column in plan.columns}
        shown = ["i", *(f"CAST({c.physical} AS {c.sql_type}) AS {identifier(c.name)}"
                        for c in plan.columns)]  # fmt: skip
        shown += [
            f"NULL AS {identifier(n)}"
            for n in columns_of(cursor, condition)
            if fold(n) not in known
        ]
        self._source = f"(SELECT {', '.join(shown)} FROM filtered_rows)"

    def split(self, typed: pa.Table) -> tuple[pa.Table, dict[int, str]]:
        """The rows that are kept, and by row number why the condition could not be computed."""
        if typed.num_rows == 0:
            return typed, {}
        self._cursor.register("filtered_rows", typed)
        try:
            answers, reason = self._answers()
        finally:
            self._cursor.unregister("filtered_rows")
        kept = answers.filter(pc.equal(answers.column("kept"), 1)).column("i")
        unknown = answers.filter(pc.is_null(answers.column("kept"))).column("i")
        rest = typed.filter(pc.is_in(typed.column("i"), kept.combine_chunks()))
        return rest, dict.fromkeys(unknown.to_pylist(), f"where cannot be computed: {reason}")

    def _answers(self) -> tuple[pa.Table, str]:
        """(i, kept) with kept 1, 0 or, where it cannot be computed, NULL; and DuckDB's reason."""
        try:
            return self._ask(_kept_sql(self._condition)), ""
        except FATAL:
            raise
        except duckdb.Error as error:
            reason = _sentence(error)
        try:
            return self._ask(f"TRY({_kept_sql(self._condition)})"), reason
        except FATAL:
            raise
        except duckdb.Error as error:
            # It does not even fit the columns' types as they are by now.
            return self._ask("CAST(NULL AS INTEGER)"), _sentence(error)

    def _ask(self, kept: str) -> pa.Table:
        return self._cursor.sql(f"SELECT i, {kept} AS kept FROM {self._source}").to_arrow_table()


def _kept_sql(condition: str) -> str:
    return f"CASE WHEN ({condition}) THEN 1 ELSE 0 END"


def _sentence(error: duckdb.Error) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")
