"""Running one statement to its end.

Owns the rule that a result is fetched to its last row before the connection does anything else:
DuckDB 2.0 refuses `register` while one is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb


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
