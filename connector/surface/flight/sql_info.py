"""GetSqlInfo: what this server is and what its SQL can do, as numbers that drivers know.

Owns the facts and the union in which they travel.

Source: https://arrow.apache.org/docs/format/FlightSql.html (SqlInfo)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

_TEXT, _BOOL, _INT, _MASK, _TEXTS, _MAP = range(6)
_MEMBERS = (
    ("string_value", pa.string()),
    ("bool_value", pa.bool_()),
    ("bigint_value", pa.int64()),
    ("int32_bitmask", pa.int32()),
    ("string_list", pa.list_(pa.string())),
    ("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
)


class Mask(int):
    """A set of bits, which drivers tell from a number."""


# By number: text, bool and int travel as what they are.
_NO = {
    10: False,  # bulk ingestion
    11: False,  # ingestion in a transaction
    500: False,  # DDL: catalogs, schemas, tables
    501: False,
    502: False,
    536: False,  # SELECT FOR UPDATE
    537: False,  # stored procedures
    556: False,  # the largest row counts its blobs
    563: False,  # transactions
    565: False,  # DDL commits; is ignored in transactions
    566: False,
    572: False,  # batch updates
    573: False,  # savepoints
    575: False,  # locators update a copy
    576: False,  # stored functions by call syntax
}
_YES = {
    3: True,  # read only
    4: True,  # SQL
    9: True,  # cancel
    506: True,  # all listed tables can be selected from
    515: True,  # column aliases
    516: True,  # NULL plus a value is NULL
    518: True,  # correlation names
    520: True,  # expressions in ORDER BY
    521: True,  # ORDER BY what is not selected
    523: True,  # LIKE … ESCAPE
    524: True,  # columns that are never null
    532: True,  # the catalog's name comes first
    539: True,  # correlated subqueries
    574: True,  # named parameters
}
_FUNCTIONS = {
    509: ["abs", "ceil", "floor", "greatest", "least", "mod", "power", "round", "sqrt", "truncate"],
    510: ["concat", "length", "lower", "replace", "substring", "trim", "upper"],
    511: ["coalesce", "ifnull", "nullif"],
    512: ["current_date", "date_diff", "date_part", "date_trunc", "extract", "strftime"],
}
_SQL = {
    5: False,  # Substrait
    8: Mask(0),  # no transactions
    503: 1,  # names do not tell cases apart
    504: '"',
    505: 1,
    507: 3,  # NULLs come last
    508: ["anti", "asof", "exclude", "pivot", "qualify", "semi", "summarize", "unpivot"],
    513: "\\",
    514: "",
    517: {},  # conversions by CONVERT
    519: False,  # correlation names may be like a table's
    522: Mask(0b11),  # GROUP BY: unrelated columns, beyond the select list
    525: Mask(0b111),  # grammar: minimum, core, extended
    526: Mask(0b1),  # entry level of SQL-92
    527: Mask(0b110),  # outer joins: limited, full
    528: Mask(0b110),
    529: "schema",
    530: "procedure",
    531: "catalog",
    533: Mask(0),
    534: Mask(0),
    535: Mask(0),
    538: Mask(0b1111),  # subqueries: comparisons, EXISTS, IN, quantified
    540: Mask(0b11),  # UNION, UNION ALL
    562: 0,
    564: Mask(0),
    567: Mask(0b10),  # results are read forward
    568: Mask(0),
    569: Mask(0b10),  # and read only
    570: Mask(0),
    571: Mask(0),
}
# Largest lengths and counts; 0 says that there is no limit, or none that is known.
_LIMITS = dict.fromkeys([*range(541, 556), *range(557, 562)], 0) | {557: 256 * 1024, 558: 1}
FACTS: dict[int, Any] = _NO | _YES | _FUNCTIONS | _SQL | _LIMITS


def facts(version: str, timeout_s: float) -> Mapping[int, Any]:
    """All there is to tell; `timeout_s` ends a statement."""
    about = {0: "dynaduck", 1: version, 2: pa.__version__, 101: 0}
    return FACTS | about | {100: min(int(timeout_s * 1000), 2**31 - 1)}


def sql_info_table(facts: Mapping[int, Any], wanted: Iterable[int]) -> pa.Table:
    """Columns info_name and value; every fact when none is named, unknown ones left out."""
    asked = set(wanted)
    chosen = [number for number in sorted(facts) if not asked or number in asked]
    members: list[list[Any]] = [[] for _ in _MEMBERS]
    kinds, offsets = [], []
    for number in chosen:
        kind = _kind(facts[number])
        kinds.append(kind)
        offsets.append(len(members[kind]))
        value = facts[number]
        members[kind].append(list(value.items()) if isinstance(value, dict) else value)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(held, kind) for held, (_, kind) in zip(members, _MEMBERS, strict=True)],
        [name for name, _ in _MEMBERS],
    )
    schema = pa.schema(
        [
            pa.field("info_name", pa.uint32(), nullable=False),
            pa.field("value", values.type, nullable=False),
        ]
    )
    return pa.Table.from_arrays([pa.array(chosen, pa.uint32()), values], schema=schema)


def _kind(value: Any) -> int:
    match value:
        case bool():
            return _BOOL
        case Mask():
            return _MASK
        case int():
            return _INT
        case str():
            return _TEXT
        case list():
            return _TEXTS
        case _:
            return _MAP
