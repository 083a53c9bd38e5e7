"""Running one statement to its end.

Owns the rule that a result is fetched to its last row before the connection does anything else:
DuckDB 2.0 refuses `register` while one is open.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa


def rows(
    cursor: duckdb.DuckDBPyConnection, query: str, values: Sequence[object] = ()
) -> list[tuple[Any, ...]]:
    return cursor.execute(query, list(values)).fetchall()


def first_row(
    cursor: duckdb.DuckDBPyConnection, query: str, values: Sequence[object] = ()
) -> tuple[Any, ...] | None:
    found = rows(cursor, query, values)
    return found[0] if found else None


def count(cursor: duckdb.DuckDBPyConnection, query: str, values: Sequence[object] = ()) -> int:
    """The number that a `count(*)` query yields, or the rows that a data change touched."""
    found = first_row(cursor, query, values)
    return int(found[0]) if found and found[0] is not None else 0


# Names of prepared queries are the connection's, which several datasets share.
_NUMBERS = itertools.count(1)


class Prepared:
    """Queries of one connection that DuckDB parses and plans once, by their text.

    For small groups planning is most of a query's cost. A query sees whatever relation is
    registered under its names when it runs: DuckDB 1.5 goes on reading the relation that was there
    when the query was prepared, so there each is planned anew. At most `most` are kept, the least
    used goes first.
    """

    def __init__(self, cursor: duckdb.DuckDBPyConnection, most: int = 16) -> None:
        self._cursor = cursor
        self._most = most
        self._names: dict[str, str] = {}
        self._keeps = _sees_new_relations(cursor)

    def arrow(self, query: str, batch_rows: int) -> pa.Table:
        if not self._keeps:
            return self._cursor.sql(query).to_arrow_table(batch_size=batch_rows)
        name = self._names.pop(query, None)
        if name is None:
            if len(self._names) >= self._most:
                self._cursor.execute(f"DEALLOCATE {self._names.pop(next(iter(self._names)))}")
            name = f"dynaduck_{next(_NUMBERS)}"
            self._cursor.execute(f"PREPARE {name} AS {query}")
        self._names[query] = name
        return self._cursor.sql(f"EXECUTE {name}").to_arrow_table(batch_size=batch_rows)


def _sees_new_relations(cursor: duckdb.DuckDBPyConnection) -> bool:
    """Whether a prepared query reads a relation registered after it under the same name."""
    seen = []
    cursor.register("dynaduck_probe", pa.table({"n": [0]}))
    cursor.execute("PREPARE dynaduck_probe AS SELECT n FROM dynaduck_probe")
    for number in (1, 2):
        cursor.unregister("dynaduck_probe")
        cursor.register("dynaduck_probe", pa.table({"n": [number]}))
        found = cursor.sql("EXECUTE dynaduck_probe").to_arrow_table()
        seen.append(found.column("n")[0].as_py())
    cursor.execute("DEALLOCATE dynaduck_probe")
    cursor.unregister("dynaduck_probe")
    return seen == [1, 2]
