"""One physical copy of a dataset's rows.

Owns a row table, its columns' growth, and the statements that replace rows. No primary key and no
index: `DELETE … WHERE _h IN … AND _k IN …` and INSERT cost a tenth of ON CONFLICT. `_k` is the
canonical key, `_h` its hash; one row per key is kept by replacing, never by a constraint. Begins
and ends no transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import conditions
from accelerator.choice import PATH
from accelerator.few import FEW
from accelerator.fitting import Fitted
from accelerator.names import fold
from accelerator.schema import (
    Alteration,
    Column,
    Kind,
    Plan,
    Seen,
    alteration,
    conversion_sql,
    grow,
)
from accelerator.sql import identifier
from accelerator.statements import count, first_row

_OWN_COLUMNS = "_h UBIGINT NOT NULL, _k VARCHAR NOT NULL, _raw VARCHAR, _extra JSON"

_WAITING = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("row_id", pa.int64()),
        pa.field("h", pa.uint64()),
        pa.field("k", pa.string()),
        pa.field("image", pa.string()),
        pa.field("extra", pa.string()),
    ]
)


class RowTable:
    """Rows of one generation. `plan` is what the committed table holds. Writer thread only."""

    def __init__(
        self, cursor: duckdb.DuckDBPyConnection, dataset: str, generation: int, plan: Plan
    ) -> None:
        self._cursor = cursor
        self.dataset = dataset
        self.generation = generation
        self.plan = plan
        # Whether any row has attributes without a column; the view then shows `_extra`.
        self.has_extras = False
        self._look_again = False
        self._passing = False
        self._looked_up_to = -1

    @property
    def qualified_name(self) -> str:
        return "dynaduck." + identifier(f"{self.dataset}__rows_{self.generation}")

    def create(self) -> Alteration:
        """Makes the empty table with the plan's columns; returns them all as added."""
        columns = "".join(f", {c.physical} {c.sql_type}" for c in self.plan.columns)
        self._cursor.execute(f"CREATE TABLE {self.qualified_name} ({_OWN_COLUMNS}{columns})")
        return Alteration(added=self.plan.columns)

    def drop(self) -> None:
        self._cursor.execute(f"DROP TABLE IF EXISTS {self.qualified_name}")

    def alter(self, new: Plan) -> Alteration:
        """Brings the table to the new plan's columns. All DDL comes before all DML (1.5.5)."""
        change = alteration(self.plan, new)
        for column in change.added:
            self._cursor.execute(
                f"ALTER TABLE {self.qualified_name} ADD COLUMN {column.physical} {column.sql_type}"
            )
        for retype in change.retyped:
            self._cursor.execute(
                f"ALTER TABLE {self.qualified_name} ALTER {retype.new.physical} "
                f"TYPE {retype.new.sql_type} USING {conversion_sql(retype.old, retype.new)}"
            )
        return change

    def delete(self, keys: pa.Table) -> int:
        """Removes the rows of these keys (h, k); returns how many there were."""
        # Both tests, not a join: of all forms measured this one is fastest, and exact.
        delete = f"DELETE FROM {self.qualified_name} WHERE _h IN"
        if keys.num_rows <= FEW:
            hashes = ", ".join(f"{h}::UBIGINT" for h in keys.column("h").to_pylist())
            texts = keys.column("k").to_pylist()
            asked = ", ".join("?" * len(texts))
            return count(self._cursor, f"{delete} ({hashes}) AND _k IN ({asked})", texts)
        self._cursor.register("replaced_keys", keys)
        try:
            relation = "FROM replaced_keys)"
            return count(
                self._cursor, f"{delete} (SELECT h {relation} AND _k IN (SELECT k {relation}"
            )
        finally:
            self._cursor.unregister("replaced_keys")

    def insert(self, fitted: Fitted) -> int:
        """Adds typed rows, whose keys must be absent."""
        if fitted.rows.num_rows == 0:
            return 0
        physical = [c.physical for c in fitted.plan.columns]
        target = ", ".join(["_h", "_k", *physical, "_raw", "_extra"])
        source = ", ".join(["h", "k", *physical, "_raw", "_extra"])
        self._cursor.register("fitted_rows", fitted.rows)
        try:
            return count(
                self._cursor,
                f"INSERT INTO {self.qualified_name} ({target}) SELECT {source} FROM fitted_rows",
            )
        finally:
            self._cursor.unregister("fitted_rows")

    def count(self) -> int:
        return count(self._cursor, f"SELECT count(*) FROM {self.qualified_name}")

    # ---- attributes that wait in `_extra` -------------------------------------------------

    def look_again(self) -> None:
        """Some row may hold an attribute without a column that could have one."""
        self._look_again = True

    def waiting(self, most: int) -> pa.Table:
        """The next such rows as i, rowid, h, k, image (their `_raw`) and extra; none: all done."""
        while self._look_again or self._passing:
            if not self._passing:
                self._passing, self._look_again, self._looked_up_to = True, False, -1
            found = self._next_waiting(most)
            self._passing = bool(found)
            if found:
                rows = [dict(zip(_WAITING.names, row, strict=True)) for row in found]
                return pa.Table.from_pylist(rows, schema=_WAITING)
        return _WAITING.empty_table()

    def _next_waiting(self, most: int) -> list[tuple[Any, ...]]:
        values: dict[str, object] = {"after": self._looked_up_to, "most": most}
        may_move = ""
        if len(self.plan.columns) >= self.plan.choice.max_columns:
            # Only what has got its column meanwhile.
            may_move = "AND len(list_intersect(json_keys(_extra), CAST($known AS VARCHAR[]))) > 0 "
            known = {column.attribute for column in self.plan.columns}
            if self.plan.choice.unnest_depth:
                known |= {name.replace(PATH, ".") for name in known}
            values["known"] = list(known)
        return self._cursor.execute(
            "SELECT row_number() OVER (ORDER BY row_id) - 1, * FROM (SELECT rowid AS row_id, _h, "
            f"_k, _raw, CAST(_extra AS VARCHAR) FROM {self.qualified_name} "
            f"WHERE _extra IS NOT NULL AND rowid > $after {may_move}ORDER BY rowid LIMIT $most) "
            "ORDER BY row_id",
            values,
        ).fetchall()

    def moved(self, waiting: pa.Table, fitted: Fitted) -> Fitted:
        """Of the fitted rows those that hold less in `_extra` than before."""
        before = pa.table({"i": waiting.column("i"), "before": waiting.column("extra")})
        joined = fitted.rows.select(["i", "_extra"]).join(before, "i")
        changed = joined.filter(
            pc.not_equal(pc.fill_null(joined.column("_extra"), ""), joined.column("before"))
        )
        kept = pc.is_in(fitted.rows.column("i"), changed.column("i").combine_chunks())
        return replace(fitted, rows=fitted.rows.filter(kept))

    def move(self, fitted: Fitted) -> None:
        """Fills the columns of attributes that leave `_extra`; the others are not touched."""
        told = "".join(
            f"{c.physical} = coalesce(f.{c.physical}, t.{c.physical}), "
            for c in fitted.plan.columns
            if pc.any(pc.is_valid(fitted.rows.column(c.physical))).as_py()
        )
        self._cursor.register("moved_rows", fitted.rows)
        try:
            self._cursor.execute(
                f"UPDATE {self.qualified_name} AS t SET {told}"
                "_raw = f._raw, _extra = f._extra "
                "FROM moved_rows f WHERE t._h = f.h AND t._k = f.k"
            )
        finally:
            self._cursor.unregister("moved_rows")

    def looked_at(self, waiting: pa.Table, *, is_moved: bool) -> None:
        """These rows are done with for this pass."""
        last = pc.max(waiting.column("row_id")).as_py()
        self._looked_up_to = last
        self._look_again = self._look_again or is_moved

    def finds_extras(self) -> bool:
        query = f"SELECT 1 FROM {self.qualified_name} WHERE _extra IS NOT NULL LIMIT 1"
        return first_row(self._cursor, query) is not None

    def grow(self, plan: Plan, seen: Mapping[str, Seen], *, room: int, now_ms: int) -> Plan:
        """`schema.grow` of the committed plan, with this table's own numbers."""
        return grow(
            plan,
            seen,
            room=room,
            integer_digits=self._integer_digits,
            now_ms=now_ms,
            always=self._read_by_where,
        )

    @cached_property
    def _read_by_where(self) -> frozenset[str]:
        """Folded names of the columns that `where` reads."""
        condition = self.plan.choice.where
        if condition is None:
            return frozenset()
        return frozenset(fold(name) for name in conditions.columns_of(self._cursor, condition))

    def _integer_digits(self, column: Column) -> int:
        """Of the largest number that a committed column holds; 0 where it is not committed."""
        if self.plan.column(column.attribute) is None:
            return 0
        value = identifier(column.physical)
        if column.kind in (Kind.INTEGER_SET, Kind.DECIMAL_SET):
            value = f"unnest({value})"
        return count(
            self._cursor,
            f"SELECT max(length(split_part(ltrim(CAST(v AS VARCHAR), '-'), '.', 1))) "
            f"FROM (SELECT max(x) AS hi, min(x) AS lo FROM (SELECT {value} AS x "
            f"FROM {self.qualified_name})) CROSS JOIN LATERAL (SELECT unnest([hi, lo]) AS v)",
        )

    def view_sql(self, *, with_extras: bool) -> str:
        """The users' view of this table: one column per attribute, in order of appearance."""
        columns = [f"{c.physical} AS {identifier(c.name)}" for c in self.plan.columns]
        if with_extras:
            columns.append("_extra")
        return (
            f"CREATE OR REPLACE VIEW main.{identifier(self.dataset)} AS "
            f"SELECT {', '.join(columns)} FROM {self.qualified_name}"
        )
