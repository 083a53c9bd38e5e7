"""What the settings make of an item before it is a row: attributes chosen, maps unnested, filtered.

Owns the comparison's own reading of `include`, `exclude`, `unnest_depth` and `where`, apart from
the accelerator's. A condition is put to a DuckDB of its own, over cells made by `cells`.
Must not know the copy or the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from connector.compare.cells import Attribute, Column, cell_of

_JOINS_PATHS: Final = "."


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of one dataset that decide what its rows hold.

    keys          the key attributes: taken whatever is included or excluded
    include       None takes all
    null_misfits  a value that does not fit its pinned column is NULL there
    """

    keys: frozenset[str] = frozenset()
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    unnest_depth: int = 0
    where: str | None = None
    null_misfits: bool = False

    def of(self, item: Mapping[str, Attribute]) -> dict[str, Attribute]:
        """The attributes that become columns, by the names that `dynaduck.columns` gives them."""
        return unnested(
            {name: value for name, value in item.items() if self._takes(name)}, self.unnest_depth
        )

    def _takes(self, name: str) -> bool:
        if name in self.keys:
            return True
        return name not in self.exclude and (self.include is None or name in self.include)


def unnested(item: Mapping[str, Attribute], depth: int) -> dict[str, Attribute]:
    """Maps down to `depth` replaced by their members, `a.b`; an empty map stays."""
    flat: dict[str, Attribute] = {}
    for name, value in item.items():
        members = value.get("M") if depth > 0 else None
        if not members:
            flat[name] = value
            continue
        for inner, content in unnested(members, depth - 1).items():
            flat[f"{name}{_JOINS_PATHS}{inner}"] = content
    return flat


class Condition:
    """A `where`: which items have a row. One thread."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._connection = duckdb.connect(":memory:", config={"threads": 1})

    def keeps(
        self, items: Sequence[Mapping[str, Attribute]], columns: Sequence[Column]
    ) -> list[bool]:
        """For each shaped item whether the condition is true of it; NULL and errors are not."""
        cells: dict[str, Any] = {"__n": list(range(len(items)))}
        casts = ["__n"]
        for column in columns:
            values = [cell_of(item.get(column.attribute), column.type) for item in items]
            cells[column.name] = pa.array(values, _arrow_type(column.type))
            name = '"' + column.name.replace('"', '""') + '"'
            casts.append(f"CAST({name} AS {column.type}) AS {name}")
        self._connection.register("cells", pa.table(cells))
        try:
            found = self._connection.execute(
                f"SELECT __n FROM (SELECT {', '.join(casts)} FROM cells)"  # noqa: S608 - operator's
                f" WHERE TRY({self._where})"
            ).fetchall()
        finally:
            self._connection.unregister("cells")
        kept = {number for (number,) in found}
        return [number in kept for number in range(len(items))]


def _arrow_type(column_type: str) -> pa.DataType:
    """What carries the cells to DuckDB without loss; texts are cast there."""
    if column_type.endswith("[]"):
        return pa.list_(_arrow_type(column_type.removesuffix("[]")))
    return {"BLOB": pa.binary(), "BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}.get(
        column_type, pa.string()
    )
