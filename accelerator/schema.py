"""The columns of a dataset and how they grow: pure values, no SQL is run here.

Owns the type ladder. A column starts at the type of the first value seen and only widens:

    NULL alone → the first real type
    BIGINT → DECIMAL(38, s) → VARCHAR      numbers, and likewise the elements of a number set
    any type + another type → JSON

`base` is the tag that a column's values have where nothing says otherwise. A value whose column
does not give it back (lists, maps, NULL, a tag other than `base`) also stands in `_raw`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from accelerator import names, pins
from accelerator.choice import PATH, Choice
from accelerator.numerals import decimal_text_sql, json_number_sql
from accelerator.sql import identifier

# Precision of every DECIMAL here: DynamoDB's 38 digits.
PRECISION = 38
NESTED_TAGS = frozenset({"L", "M"})


class Kind(StrEnum):
    """What a column holds and so its SQL type."""

    UNKNOWN = "unknown"
    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    NUMBER_TEXT = "number_text"
    BOOLEAN = "boolean"
    BINARY = "binary"
    TEXT_SET = "text_set"
    INTEGER_SET = "integer_set"
    DECIMAL_SET = "decimal_set"
    NUMBER_TEXT_SET = "number_text_set"
    BINARY_SET = "binary_set"
    JSON = "json"
    PINNED = "pinned"


_FIRST_KIND = {
    "S": Kind.TEXT,
    "N": Kind.INTEGER,
    "BOOL": Kind.BOOLEAN,
    "B": Kind.BINARY,
    "SS": Kind.TEXT_SET,
    "NS": Kind.INTEGER_SET,
    "BS": Kind.BINARY_SET,
    "L": Kind.JSON,
    "M": Kind.JSON,
    "NULL": Kind.UNKNOWN,
}
TAGS = frozenset(_FIRST_KIND)

_SQL_TYPE = {
    Kind.UNKNOWN: "VARCHAR",
    Kind.TEXT: "VARCHAR",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER_TEXT: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.BINARY: "BLOB",
    Kind.TEXT_SET: "VARCHAR[]",
    Kind.INTEGER_SET: "BIGINT[]",
    Kind.NUMBER_TEXT_SET: "VARCHAR[]",
    Kind.BINARY_SET: "BLOB[]",
    Kind.JSON: "JSON",
}

_NUMBER_LADDER = (Kind.INTEGER, Kind.DECIMAL, Kind.NUMBER_TEXT)
_NUMBER_SET_LADDER = (Kind.INTEGER_SET, Kind.DECIMAL_SET, Kind.NUMBER_TEXT_SET)


@dataclass(frozen=True, slots=True)
class Column:
    """One attribute's column. `column_id` names it in the row table, `name` in the view.

    An attribute of an unnested map is a path, joined by `choice.PATH`. `pinned` is the type that
    the configuration gives; such a column never widens.
    """

    attribute: str
    name: str
    column_id: int
    kind: Kind
    base: str
    scale: int = 0
    seen: tuple[str, ...] = ()
    widened_from: tuple[str, ...] = ()
    since_ms: int = 0
    pinned: str = ""

    @property
    def physical(self) -> str:
        return f"c{self.column_id}"

    @property
    def sql_type(self) -> str:
        if self.kind is Kind.PINNED:
            return pins.parse(self.pinned).sql_type
        if self.kind is Kind.DECIMAL:
            return f"DECIMAL({PRECISION},{self.scale})"
        if self.kind is Kind.DECIMAL_SET:
            return f"DECIMAL({PRECISION},{self.scale})[]"
        return _SQL_TYPE[self.kind]


@dataclass(slots=True)
class Seen:
    """What was seen of one attribute: tags in order, and the widest number."""

    tags: list[str] = field(default_factory=list)
    integer_digits: int = 0
    scale: int = 0
    fits_int64: bool = True

    def add_tag(self, tag: str) -> None:
        if tag not in self.tags:
            self.tags.append(tag)


@dataclass(frozen=True, slots=True)
class Plan:
    """All columns of one row table, in order of appearance.

    choice        which attributes become columns; beyond its max_columns they live in `_extra`
    is_deferred   some attribute waits in `_extra` only for memory to become a column
    """

    columns: tuple[Column, ...]
    choice: Choice
    is_deferred: bool = False

    def column(self, attribute: str) -> Column | None:
        for column in self.columns:
            if column.attribute == attribute:
                return column
        return None

    def by_attribute(self) -> dict[str, Column]:
        return {column.attribute: column for column in self.columns}


@dataclass(frozen=True, slots=True)
class Retype:
    old: Column
    new: Column


@dataclass(frozen=True, slots=True)
class Alteration:
    """What turns one plan's table into another's."""

    added: tuple[Column, ...] = ()
    retyped: tuple[Retype, ...] = ()
    restated: tuple[Column, ...] = ()

    @property
    def needs_ddl(self) -> bool:
        return bool(self.added or self.retyped)

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.retyped or self.restated)


def grow(
    plan: Plan,
    seen: Mapping[str, Seen],
    *,
    room: int,
    integer_digits: Callable[[Column], int],
    now_ms: int,
    always: frozenset[str] = frozenset(),
) -> Plan:
    """The plan that holds all of `seen`; the same object when `plan` already does.

    `room` bounds how many columns may be added now. `integer_digits` tells the digits before the
    point of the largest number a column holds. `always` are folded names whose attributes get a
    column whatever the bounds: the filter has to see them.
    """
    columns = list(plan.columns)
    index = {column.attribute: at for at, column in enumerate(columns)}
    taken = {names.fold(column.name) for column in columns}
    next_id = max((column.column_id for column in columns), default=-1) + 1
    is_deferred = plan.is_deferred
    added = 0
    for attribute, what in seen.items():
        at = index.get(attribute)
        if at is None:
            shown = attribute.replace(PATH, ".")
            if names.fold(shown) not in always:
                if len(columns) >= plan.choice.max_columns:
                    continue
                if added >= room:
                    is_deferred = True
                    continue
            name = names.column_name(shown, taken)
            columns.append(_first(attribute, name, next_id, what, now_ms))
            taken.add(names.fold(name))
            next_id += 1
            added += 1
        else:
            columns[at] = widen(columns[at], what, integer_digits, now_ms)
    grown = Plan(tuple(columns), plan.choice, is_deferred)
    return plan if grown == plan else grown


def _first(attribute: str, name: str, column_id: int, seen: Seen, now_ms: int) -> Column:
    blank = Column(attribute, name, column_id, Kind.UNKNOWN, "NULL", seen=(), since_ms=now_ms)
    column = widen(blank, seen, _no_digits, now_ms)
    return replace(column, widened_from=())


def widen(
    column: Column, seen: Seen, integer_digits: Callable[[Column], int], now_ms: int
) -> Column:
    """The narrowest column that holds `column`'s values and `seen`."""
    wide = column
    for tag in seen.tags:
        wide = _take(wide, tag, seen, integer_digits)
    known = column.seen + tuple(tag for tag in seen.tags if tag not in column.seen)
    if known == column.seen and wide == column:
        return column
    if wide.sql_type != column.sql_type and column.kind is not Kind.UNKNOWN:
        wide = replace(wide, widened_from=(*column.widened_from, column.sql_type), since_ms=now_ms)
    return replace(wide, seen=known)


def _no_digits(_: Column) -> int:
    return 0


def _take(column: Column, tag: str, seen: Seen, integer_digits: Callable[[Column], int]) -> Column:
    if tag == "NULL" or column.kind in (Kind.JSON, Kind.PINNED):
        return column
    if column.kind is Kind.UNKNOWN:
        column, integer_digits = replace(column, kind=_FIRST_KIND[tag], base=tag), _no_digits
    elif column.base != tag:
        return replace(column, kind=Kind.JSON, scale=0)
    if tag == "N":
        return _widen_number(column, _NUMBER_LADDER, seen, integer_digits)
    if tag == "NS":
        return _widen_number(column, _NUMBER_SET_LADDER, seen, integer_digits)
    return column


def _widen_number(
    column: Column,
    ladder: tuple[Kind, Kind, Kind],
    seen: Seen,
    integer_digits: Callable[[Column], int],
) -> Column:
    whole, decimal, text = ladder
    if column.kind is text or (column.kind is whole and seen.fits_int64 and not seen.scale):
        return column
    scale = max(column.scale, seen.scale)
    if column.kind is decimal and scale == column.scale:
        digits = seen.integer_digits
    else:
        digits = max(seen.integer_digits, integer_digits(column))
    # One digit at least before the point: DECIMAL(38, 38) is written without its leading zero.
    if max(digits, 1) + scale <= PRECISION:
        return replace(column, kind=decimal, scale=scale)
    return replace(column, kind=text, scale=0)


def alteration(old: Plan, new: Plan) -> Alteration:
    before = {column.column_id: column for column in old.columns}
    added, retyped, restated = [], [], []
    for column in new.columns:
        was = before.get(column.column_id)
        if was is None:
            added.append(column)
        elif was.sql_type != column.sql_type:
            retyped.append(Retype(was, column))
        elif was != column:
            restated.append(column)
    return Alteration(tuple(added), tuple(retyped), tuple(restated))


def conversion_sql(old: Column, new: Column) -> str:
    """The expression over the old column that holds the same values in the new type."""
    value = identifier(old.physical)
    if old.kind is Kind.UNKNOWN:
        return f"CAST(NULL AS {new.sql_type})"
    if new.kind is Kind.JSON:
        return f"CAST({_json_sql(old, value)} AS JSON)"
    if new.kind is Kind.NUMBER_TEXT:
        return _number_text_sql(old, value)
    if new.kind is Kind.NUMBER_TEXT_SET:
        return f"list_transform({value}, lambda x: {_number_text_sql(old, 'x')})"
    # DuckDB converts rows that are deleted too, until a checkpoint drops them, and a number among
    # those may not fit. That all others do, `grow` has made sure.
    return f"TRY_CAST({value} AS {new.sql_type})"


def _number_text_sql(old: Column, value: str) -> str:
    if old.kind in (Kind.DECIMAL, Kind.DECIMAL_SET):
        return decimal_text_sql(value, old.scale)
    return f"CAST({value} AS VARCHAR)"


def _json_sql(old: Column, value: str) -> str:
    match old.kind:
        case Kind.TEXT | Kind.TEXT_SET:
            return f"to_json({value})"
        case Kind.BOOLEAN:
            return f"CAST({value} AS VARCHAR)"
        case Kind.BINARY:
            return f"'\"' || to_base64({value}) || '\"'"
        case Kind.BINARY_SET:
            return f"to_json(list_transform({value}, lambda x: to_base64(x)))"
        case Kind.INTEGER | Kind.DECIMAL | Kind.NUMBER_TEXT:
            return json_number_sql(_number_text_sql(old, value))
        case Kind.INTEGER_SET | Kind.DECIMAL_SET | Kind.NUMBER_TEXT_SET:
            element = json_number_sql(_number_text_sql(old, "x"))
            joined = f"array_to_string(list_transform({value}, lambda x: {element}), ',')"
            return f"CASE WHEN {value} IS NOT NULL THEN '[' || {joined} || ']' END"
        case Kind.JSON | Kind.UNKNOWN | Kind.PINNED:
            return value


def initial(keys: Iterable[tuple[str, str]], choice: Choice, now_ms: int) -> Plan:
    """The plan of an empty table: its key attributes, given as (name, S, N or B), and its pins."""
    pinned = {
        name.replace(".", PATH) if choice.unnest_depth else name: t for name, t in choice.pins
    }
    columns: list[Column] = []
    taken: set[str] = set()
    tags = dict(keys)
    for attribute in [*tags, *(name for name in pinned if name not in tags)]:
        name = names.column_name(attribute.replace(PATH, "."), taken)
        taken.add(names.fold(name))
        seen = Seen(tags=[tags[attribute]] if attribute in tags else [])
        if attribute in pinned:
            columns.append(_pinned(attribute, name, len(columns), pinned[attribute], now_ms))
        else:
            columns.append(_first(attribute, name, len(columns), seen, now_ms))
    return Plan(tuple(columns), choice)


def _pinned(attribute: str, name: str, column_id: int, sql_type: str, now_ms: int) -> Column:
    if sql_type.strip().upper() == "JSON":
        return Column(attribute, name, column_id, Kind.JSON, "NULL", since_ms=now_ms, pinned="JSON")
    parsed = pins.parse(sql_type).sql_type
    return Column(attribute, name, column_id, Kind.PINNED, "NULL", since_ms=now_ms, pinned=parsed)
