"""What clients ask before they query: the columns of a result, and of each dataset's key."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import duckdb

_END = r"[;\s]+\Z"


def columns_only(sql: str) -> str:
    """A statement with the columns of this one and no rows; its text is judged like any other."""
    return f"SELECT * FROM ({re.sub(_END, '', sql)}\n) LIMIT 0"


def key_columns(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, tuple[str, ...]]:
    """By dataset, the columns of its key: the partition key's first, then the sort key's."""
    schemas = cursor.execute(
        "SELECT dataset, generation, key_schema FROM dynaduck.generations WHERE role = 'live'"
    ).fetchall()
    named = {
        (dataset, generation, attribute): str(column)
        for dataset, generation, attribute, column in cursor.execute(
            "SELECT dataset, generation, attribute, column_name FROM dynaduck.column_rows"
        ).fetchall()
    }
    found = {}
    for dataset, generation, text in schemas:
        keys = sorted(json.loads(text), key=lambda key: str(key[2]) != "HASH")
        found[str(dataset)] = tuple(
            named[dataset, generation, name]
            for name, *_ in keys
            if (dataset, generation, name) in named
        )
    return found
