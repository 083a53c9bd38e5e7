"""From item texts to typed rows that are exact, growing the plan where it must.

Owns the loop between the SQL decoder, which is fast and says which rows did not come through
unchanged, and `items`, which is slow and exact. Rows that SQL takes never become Python objects.
Changes no table: the plan it returns is carried out by the caller, all DDL before all DML.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import items
from accelerator.choice import PATH, Choice
from accelerator.conditions import Filter
from accelerator.decode import decode_sql
from accelerator.errors import FATAL
from accelerator.few import FewRow, decode_few
from accelerator.plain import Tally, plain_column, plain_text
from accelerator.schema import Kind, Plan, Seen
from accelerator.statements import Prepared

# Unfit rows looked at before the plan is tried again: new attributes mostly show in the first few.
SAMPLE_ROWS = 1_000

# Rows per Arrow batch: DuckDB reads batches in parallel, so one large batch would use one core.
BATCH_ROWS = 4_096

SOURCE = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("h", pa.uint64()),
        pa.field("k", pa.string()),
        pa.field("image", pa.string()),
        pa.field("spare", pa.string()),
        pa.field("extra", pa.string()),
    ]
)

# PATH as JSON writes it.
_PATH_JSON = "\\u001f"

Grow = Callable[[Plan, Mapping[str, Seen]], Plan]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Typed rows under `plan`: i, h, k, the plan's columns, _raw, _extra.

    poison            row number to the reason why its item cannot be read; such rows are not in
                      `rows`
    numbers_as_text   numbers inside JSON that are JSON strings, since a double would change them
    """

    plan: Plan
    rows: pa.Table
    poison: dict[int, str]
    numbers_as_text: int = 0


class Fitter:
    """Reads rows of one relation (i, h, k, image). Writer thread only.

    source   names the relation; called once, when SQL has to read it
    few      the same rows, where they are few
    """

    def __init__(
        self,
        cursor: duckdb.DuckDBPyConnection,
        source: Callable[[], str],
        image_of: Callable[[int], str | None],
        prepared: Prepared,
        few: Sequence[FewRow] | None = None,
    ) -> None:
        self._cursor = cursor
        self._prepared = prepared
        self._source_of = source
        self._image_of = image_of
        self._few = few
        self._unreadable: set[int] = set()
        self._poison: dict[int, str] = {}
        self._choice = Choice()
        self._tally = Tally()

    def fit(self, base: Plan, grow: Grow, *, is_whole: bool = True) -> Fitted:
        """`grow` returns `base` grown by what was seen, or `base` itself where that holds it.

        is_whole   the items have all their attributes, so that `where` can judge them
        """
        self._choice = base.choice
        short = None if self._few is None else decode_few(base, self._few)
        if short is not None:
            plan, rows = base, short.rows
            self._tally.numbers_as_text += short.numbers_as_text
        else:
            plan, rows = self._decode_growing(base, grow)
        if plan.choice.where is not None and is_whole:
            rows, unknown = Filter(self._cursor, plan, plan.choice.where).split(rows)
            self._poison.update(unknown)
        return Fitted(plan, rows, self._poison, self._tally.numbers_as_text)

    @cached_property
    def _source(self) -> str:
        return self._source_of()

    def _decode_growing(self, base: Plan, grow: Grow) -> tuple[Plan, pa.Table]:
        plan = base
        decoded, unfit = self._decode(plan)
        read: dict[int, dict[str, items.Attribute]] = {}
        seen: dict[str, Seen] = {}
        sample = SAMPLE_ROWS
        while unread := [n for n in unfit if n not in read and n not in self._poison]:
            fresh = self._read(unread[:sample])
            read.update(fresh)
            for item in fresh.values():
                flat = items.unnested(item, self._choice.unnest_depth)
                for attribute, value in flat.items():
                    items.observe(seen, attribute, value)
            # Always from `base`: growth by steps would take the headroom of a trial plan's
            # DECIMAL for digits in use.
            grown = grow(base, seen)
            if grown != plan:
                plan = grown
                decoded, unfit = self._decode(plan)
            sample *= 4
        parts = [self._unwrapped(plan, decoded)]
        rewrite = {n: read[n] for n in unfit if n in read}
        if rewrite:
            parts.append(self._rewritten(plan, rewrite))
        rows = pa.concat_tables(parts)
        if self._poison:
            bad = pa.array(list(self._poison), pa.int64())
            rows = rows.filter(pc.invert(pc.is_in(rows.column("i"), bad)))
        return plan, rows

    def _decode(self, plan: Plan) -> tuple[pa.Table, list[int]]:
        """Rows that fit, and the numbers of those that do not."""
        try:
            decoded = self._run(plan)
        except FATAL:
            raise
        except duckdb.Error:
            self._unreadable.update(self._find_unreadable(plan))
            decoded = self._run(plan)
        unfit = decoded.column("unfit")
        numbers = list(self._unreadable)
        if pc.any(unfit).as_py():
            numbers += decoded.filter(unfit).column("i").to_pylist()
            decoded = decoded.filter(pc.invert(unfit))
        return decoded.drop_columns(["unfit"]), numbers

    def _run(self, plan: Plan, only: Sequence[int] | None = None) -> pa.Table:
        relation = (
            "(SELECT i, h, k, image, CAST(NULL AS VARCHAR) AS spare, "
            f"CAST(NULL AS VARCHAR) AS extra FROM {self._source})"
        )
        held_back = self._unreadable | self._poison.keys()
        if only is not None:
            self._cursor.register("chosen", pa.table({"i": pa.array(only, pa.int64())}))
            relation = f"(SELECT * FROM {relation} WHERE i IN (SELECT i FROM chosen))"
        elif held_back:
            self._cursor.register(
                "chosen", pa.table({"i": pa.array(sorted(held_back), pa.int64())})
            )
            relation = f"(SELECT * FROM {relation} WHERE i NOT IN (SELECT i FROM chosen))"
        else:
            return self._prepared.arrow(decode_sql(plan, relation), BATCH_ROWS)
        try:
            return _arrow(self._cursor, decode_sql(plan, relation))
        finally:
            self._cursor.unregister("chosen")

    def _find_unreadable(self, plan: Plan) -> list[int]:
        """Rows that DuckDB refuses: by its JSON parser, or else by halving."""
        found: list[int] = []
        try:
            rows = self._cursor.execute(
                f"SELECT i FROM {self._source} WHERE NOT coalesce(json_valid(image), FALSE)"
            ).fetchall()
            found = [row[0] for row in rows if row[0] not in self._unreadable]
        except FATAL:
            raise
        except duckdb.Error:
            found = []
        if found:
            return found
        numbers = self._cursor.execute(f"SELECT i FROM {self._source}").fetchall()
        held_back = self._unreadable | self._poison.keys()
        return self._halve(plan, [row[0] for row in numbers if row[0] not in held_back])

    def _halve(self, plan: Plan, numbers: list[int]) -> list[int]:
        try:
            self._run(plan, only=numbers)
        except FATAL:
            raise
        except duckdb.Error:
            if len(numbers) == 1:
                return numbers
            middle = len(numbers) // 2
            return self._halve(plan, numbers[:middle]) + self._halve(plan, numbers[middle:])
        return []

    def _read(self, numbers: Sequence[int]) -> dict[int, dict[str, items.Attribute]]:
        read = {}
        for number in numbers:
            image = self._image_of(number)
            try:
                if image is None:
                    raise items.Unreadable("the record has no new image")
                item = items.read(image)
                if self._choice.unnest_depth and _PATH_JSON in image.lower():
                    items.refuse_paths(item)
                read[number] = {n: v for n, v in item.items() if self._choice.takes(n)}
            except items.Unreadable as error:
                self._poison[number] = str(error)
        return read

    def _rewritten(self, plan: Plan, read: Mapping[int, dict[str, items.Attribute]]) -> pa.Table:
        """The rows of items that Python had to read, decoded from their canonical texts."""
        planned = plan.by_attribute()
        has_paths = plan.choice.unnest_depth > 0
        images, spares, extras = [], [], []
        for item in read.values():
            flat = items.unnested(item, plan.choice.unnest_depth)
            extra = {name: value for name, value in flat.items() if name not in planned}
            spare = {name: value for name, value in item.items() if name not in flat}
            spare |= {n: v for n, v in extra.items() if not (has_paths and PATH in n)}
            images.append(items.write({n: v for n, v in flat.items() if n in planned}))
            spares.append(items.write(spare)[1:-1] if spare else None)
            if has_paths:
                extra = _dotted(extra)
            extras.append(items.plain_object(extra) if extra else None)
        numbers = pa.array(list(read), pa.int64())
        texts = pa.table(
            {
                "i": numbers,
                "image": pa.array(images, pa.string()),
                "spare": pa.array(spares, pa.string()),
                "extra": pa.array(extras, pa.string()),
            }
        )
        self._cursor.register("rewritten", texts)
        try:
            relation = (
                "(SELECT r.i, o.h, o.k, r.image, r.spare, r.extra "
                f"FROM rewritten r JOIN {self._source} o ON o.i = r.i)"
            )
            decoded = _arrow(self._cursor, decode_sql(plan, relation))
        finally:
            self._cursor.unregister("rewritten")
        for number in decoded.filter(decoded.column("unfit")).column("i").to_pylist():
            self._poison[number] = "a value does not fit its column's pin"
        return self._unwrapped(plan, decoded.drop_columns(["unfit"]))

    def _unwrapped(self, plan: Plan, decoded: pa.Table) -> pa.Table:
        for column in plan.columns:
            if column.kind is Kind.JSON:
                at = decoded.schema.get_field_index(column.physical)
                plain = self._plain(decoded.column(at), decoded.column("i"), self._tally)
                decoded = decoded.set_column(at, column.physical, plain)
            elif column.kind is Kind.PINNED:
                tagged = f"x{column.column_id}"
                self._plain(decoded.column(tagged), decoded.column("i"), Tally())
                decoded = decoded.drop_columns([tagged])
        return decoded

    def _plain(
        self, tagged: pa.ChunkedArray, numbers: pa.ChunkedArray, tally: Tally
    ) -> pa.ChunkedArray:
        try:
            return plain_column(tagged, tally)
        except items.Unreadable:
            return self._plain_one_by_one(tagged, numbers, tally)

    def _plain_one_by_one(
        self, tagged: pa.ChunkedArray, numbers: pa.ChunkedArray, tally: Tally
    ) -> pa.ChunkedArray:
        plain: list[str | None] = []
        for text, number in zip(tagged.to_pylist(), numbers.to_pylist(), strict=True):
            try:
                plain.append(None if text is None else plain_text(text, tally))
            except items.Unreadable as error:
                self._poison[number] = str(error)
                plain.append(None)
        return pa.chunked_array([pa.array(plain, pa.string())])


def _dotted(extra: dict[str, items.Attribute]) -> dict[str, items.Attribute]:
    """Paths written `a.b`, but for one that another attribute is called already."""
    shown: dict[str, items.Attribute] = {}
    for name, value in extra.items():
        dotted = name.replace(PATH, ".")
        shown[name if dotted in extra or dotted in shown else dotted] = value
    return shown


def _arrow(cursor: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return cursor.sql(query).to_arrow_table(batch_size=BATCH_ROWS)
