"""What one call of apply brings, numbered, with the last change of each key.

Owns the collapse: which change of a key counts, which scan rows no change has passed, and what is
poison. Writes nothing. Writer thread only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import items, keys
from accelerator.batch import CHANGES, Batch
from accelerator.few import FEW, FewRow
from accelerator.fitting import BATCH_ROWS
from accelerator.statements import Prepared
from accelerator.touched import KEYS
from checkpoints.positions import KeyAttribute


class Group:
    """The changes and scan rows of one call, numbered in arrival order.

    Rows get a number `i`; everything else refers to them by it. `poison` maps it to a reason.
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        schema: Sequence[KeyAttribute],
        prepared: Prepared,
    ) -> None:
        self._cursor = cursor
        self._schema = schema
        self._prepared = prepared
        self._changes: list[pa.Table] = []
        self._scans: list[tuple[int, pa.Table]] = []
        self._all: list[tuple[int, pa.Table]] = []
        self._next = 0
        self._keyed: pa.Table = _KEYED.empty_table()
        self._scan_keyed: pa.Table = _KEYED.empty_table()
        self._has_keys = False
        self._registered: set[str] = set()
        self._last: pa.Table = _KEYED.empty_table()
        self._scan_last: pa.Table = _KEYED.empty_table()
        self._scan_fresh: pa.Table = _KEYED.empty_table()
        self.poison: dict[int, str] = {}
        self.fills_snapshot = False
        self.records = 0
        self.scanned = 0
        self.passed = 0

    def add(self, batch: Batch, changes: pa.Table) -> None:
        if batch.fills is not None:
            self.fills_snapshot = True
        if changes.num_rows == 0:
            return
        numbers = pa.array(range(self._next, self._next + changes.num_rows), pa.int64())
        numbered = _renumbered(changes, numbers)
        self._all.append((self._next, numbered))
        self._next += changes.num_rows
        if batch.scan_ticket is not None:
            self._scans.append((batch.scan_ticket, numbered))
            self.scanned += changes.num_rows
        else:
            self._changes.append(numbered)
            self.records += changes.num_rows

    def changes(self) -> pa.Table:
        """All stream records, of schema CHANGES."""
        if not self._changes:
            return CHANGES.empty_table()
        return pa.concat_tables(self._changes).drop_columns(["i"])

    def last_changes(self) -> pa.Table:
        """Keys (h, k) of all that `source` then yields: the last readable change of each.

        A key whose only changes are poison keeps its row: they are set aside, and told.
        """
        if not self._has_keys:
            self._keyed = self._with_keys("changed", self._changes)
            self._scan_keyed = self._with_keys("scanned", [table for _, table in self._scans])
            self._has_keys = True
        self._last = self._last_per_key(self._keyed)
        return self._last.select(["h", "k"]).cast(KEYS)

    def touched_keys(self) -> pa.Table:
        """Keys of all changes, whatever became of them."""
        if not self.poison:
            # One row per key already.
            return self._last.select(["h", "k"])
        keyed = self._keyed.filter(pc.is_valid(self._keyed.column("k")))
        return keyed.select(["h", "k"]).group_by(["h", "k"]).aggregate([]).cast(KEYS)

    def scan_rows(self, since: Callable[[int], pa.Table]) -> pa.Table:
        """Keys of the scan rows that no change has passed, this group's own among them."""
        if self._scan_keyed.num_rows == 0:
            self._scan_last = self._scan_keyed.select(["i", "h", "k"])
            return KEYS.empty_table()
        own = self.touched_keys()
        kept = []
        for ticket, table in self._scans:
            first = table.column("i")[0].as_py()
            rows = self._scan_keyed.filter(
                pc.and_(
                    pc.greater_equal(self._scan_keyed.column("i"), first),
                    pc.less(self._scan_keyed.column("i"), first + table.num_rows),
                )
            )
            passed = pa.concat_tables([since(ticket), own])
            if passed.num_rows:
                rows = rows.filter(
                    pc.invert(pc.is_in(rows.column("k"), passed.column("k").combine_chunks()))
                )
            kept.append(rows)
        fresh = self._scan_fresh = pa.concat_tables(kept)
        self.passed = self._scan_keyed.num_rows - fresh.num_rows
        self._scan_last = self._last_per_key(fresh)
        return self._scan_last.select(["h", "k"]).cast(KEYS)

    def unpassed_scans(self) -> pa.Table:
        """The scan rows that no change has passed, and those without a readable key, of schema
        CHANGES; after `scan_rows`.
        """
        if not self._scans:
            return CHANGES.empty_table()
        rows = pa.concat_tables([table for _, table in self._scans])
        kept = pa.concat_arrays(
            [
                self._scan_fresh.column("i").combine_chunks(),
                pa.array(list(self.poison), pa.int64()),
            ]
        )
        return rows.filter(pc.is_in(rows.column("i"), kept)).drop_columns(["i"])

    def few(self, *, with_scan: bool) -> list[FewRow] | None:
        """The rows of `source`, where the group is small; else None."""
        if self._next > FEW:
            return None
        found = []
        for i, h, k in zip(*self._chosen(with_scan).to_pydict().values(), strict=True):
            record = self._few_records[i]
            if record["op"] != "remove":
                found.append(FewRow(i, h, k, record["image"]))
        return found

    @cached_property
    def _few_records(self) -> list[dict[str, Any]]:
        """Of a small group, by number."""
        wanted = ["op", "keys", "image"]
        return [row for _, table in self._all for row in table.select(wanted).to_pylist()]

    def _chosen(self, with_scan: bool) -> pa.Table:
        return pa.concat_tables([self._last, self._scan_last]) if with_scan else self._last

    def source(self, *, with_scan: bool) -> str:
        """The name of a relation (i, h, k, image) of the rows to write."""
        chosen = self._chosen(with_scan)
        tables = self._changes + ([t for _, t in self._scans] if with_scan else [])
        rows = pa.concat_tables(tables) if tables else _NUMBERED.empty_table()
        self._register("group_rows", rows.select(["i", "op", "image"]))
        self._register("group_last", chosen)
        return (
            "(SELECT r.i, l.h, l.k, r.image FROM group_rows r JOIN group_last l ON l.i = r.i "
            "WHERE r.op <> 'remove')"
        )

    def close(self) -> None:
        for name in self._registered:
            self._cursor.unregister(name)

    def _register(self, name: str, table: pa.Table) -> None:
        self._cursor.register(name, table)
        self._registered.add(name)

    def operations(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        if self._changes and self._last.num_rows:
            ops = pa.concat_tables(self._changes).select(["i", "op"])
            chosen = ops.filter(pc.is_in(ops.column("i"), self._last.column("i").combine_chunks()))
            for each in pc.value_counts(chosen.column("op")).to_pylist():
                counts[each["values"]] += each["counts"]
        if self._scan_last.num_rows:
            counts["snapshot"] += self._scan_last.num_rows
        return counts

    def image(self, number: int) -> str | None:
        return self.record(number)["image"]

    def record(self, number: int) -> dict[str, str | None]:
        for first, table in reversed(self._all):
            if first <= number:
                row: dict[str, str | None] = table.slice(number - first, 1).to_pylist()[0]
                return row
        raise KeyError(number)

    def key_text(self, number: int) -> str | None:
        for keyed in (self._keyed, self._scan_keyed):
            found = keyed.filter(pc.equal(keyed.column("i"), number))
            if found.num_rows:
                key: str | None = found.column("k")[0].as_py()
                return key
        return None

    def _with_keys(self, what: str, tables: Sequence[pa.Table]) -> pa.Table:
        """i, h, k of every row; k is null where the record has no readable key (it is poison)."""
        if not tables:
            return _KEYED.empty_table()
        rows = pa.concat_tables(tables)
        document = "keys" if what == "changed" else "image"
        # An item that a snapshot of single keys found absent has its keys only.
        read = rows.column(document)
        if what == "scanned":
            read = pc.coalesce(read, rows.column("keys"))
        if rows.num_rows <= FEW:
            return self._keys_in_python(
                zip(rows.column("i").to_pylist(), read.to_pylist(), strict=True)
            )
        self._register("group_keys", pa.table({"i": rows.column("i"), document: read}))
        query = (
            f"SELECT i, {keys.hash_sql('k')} AS h, k FROM "
            f"(SELECT i, {keys.key_sql(document, self._schema)} AS k FROM group_keys)"
        )
        try:
            keyed = self._prepared.arrow(query, BATCH_ROWS)
        except duckdb.InvalidInputException:
            guarded = query.replace(
                "FROM group_keys)",
                f"FROM (SELECT i, CASE WHEN json_valid({document}) "
                f"THEN {document} END AS {document} FROM group_keys))",
            )
            keyed = self._cursor.sql(guarded).to_arrow_table()
        keyed = keyed.cast(_KEYED)
        unkeyed = keyed.filter(pc.is_null(keyed.column("k"))).column("i").to_pylist()
        if unkeyed:
            rest = keyed.filter(pc.is_valid(keyed.column("k")))
            texts = [(n, self.record(n)[document] or self.record(n)["keys"]) for n in unkeyed]
            keyed = pa.concat_tables([rest, self._keys_in_python(texts)])
        return keyed

    def _keys_in_python(self, numbered: Iterable[tuple[int, str | None]]) -> pa.Table:
        numbers: list[int] = []
        found: list[str | None] = []
        for number, text in numbered:
            numbers.append(number)
            try:
                if text is None:
                    raise items.Unreadable("the record has no keys")
                found.append(keys.key_of(items.read(text), self._schema))
            except items.Unreadable as error:
                self.poison[number] = str(error)
                found.append(None)
        hashes = [None if key is None else keys.hash_of(key) for key in found]
        return pa.table({"i": numbers, "h": hashes, "k": found}, schema=_KEYED)

    def _last_per_key(self, keyed: pa.Table) -> pa.Table:
        if self.poison:
            bad = pa.array(list(self.poison), pa.int64())
            keyed = keyed.filter(pc.invert(pc.is_in(keyed.column("i"), bad)))
        if keyed.num_rows == 0:
            return keyed
        if pc.count_distinct(keyed.column("h")).as_py() == keyed.num_rows:
            return keyed
        last = keyed.group_by(["h", "k"]).aggregate([("i", "max")])
        return last.rename_columns({"i_max": "i"}).select(["i", "h", "k"]).cast(_KEYED)


_KEYED = pa.schema([pa.field("i", pa.int64()), *KEYS])
_NUMBERED = pa.schema([pa.field("i", pa.int64()), *CHANGES])


def _renumbered(changes: pa.Table, numbers: pa.Array) -> pa.Table:
    return changes.add_column(0, "i", numbers)
