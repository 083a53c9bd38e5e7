"""Values of a result as text and as JSON, exactly.

Owns one rule per type, by DuckDB's type where Arrow's does not tell enough. Numbers never pass
through a float that was none: DECIMAL and HUGEINT keep every digit.

| type | JSON |
| --- | --- |
| BOOLEAN, integers, HUGEINT, DECIMAL | number with all digits |
| FLOAT, DOUBLE | shortest number that reads back equal; "NaN", "Infinity", "-Infinity" as strings |
| VARCHAR, UUID, ENUM | string |
| JSON | the stored text itself, unquoted |
| BLOB | base64 string |
| DATE, TIME, TIMESTAMP | ISO 8601 string; TIMESTAMPTZ in UTC with Z; "infinity", "-infinity" |
| INTERVAL | ISO 8601 duration string |
| LIST, ARRAY | array |
| STRUCT | object |
| MAP | object whose keys are text |
| UNION | the value |

UHUGEINT, BIT, BIGNUM, TIMETZ, VARIANT and GEOMETRY do not survive the way through Arrow; a query
that selects one is refused with the hint to cast it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from accelerator.query_errors import QueryFailed

_LOSSY = frozenset({"uhugeint", "bit", "bignum", "varint", "time with time zone", "variant"})
_LOSSY_TEXT = ("UHUGEINT", "BIT", "BIGNUM", "TIME WITH TIME ZONE", "VARIANT", "GEOMETRY")

_US_PER_DAY = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_INFINITE_US = 2**63 - 1
_INFINITE_DAY = 2**31 - 1
_UNIT_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rendering of a column depends on. `children` follow Arrow's order."""

    is_json: bool = False
    children: tuple[Shape, ...] = ()


def shape_of(column: str, kind: Any) -> Shape:
    """The shape of a DuckDB type.

    Raises:
        QueryFailed: the type cannot be carried exactly
    """
    name = str(kind)
    if kind.id in _LOSSY or name in _LOSSY_TEXT:
        raise QueryFailed(
            f"Column {column!r} is a {name}, which no result format carries exactly.",
            hint=f'Select CAST("{column}" AS VARCHAR) in its place.',
        )
    if kind.id in ("list", "array", "struct", "map"):
        parts = [child for label, child in kind.children if (kind.id, label) != ("array", "size")]
        return Shape(children=tuple(shape_of(column, child) for child in parts))
    if kind.id == "union":
        parts = [child for _, child in kind.children[1:]]
        return Shape(children=tuple(shape_of(column, child) for child in parts))
    return Shape(is_json=name == "JSON")


def json_cells(array: pa.Array, shape: Shape) -> list[Any]:
    """The values of a column as objects that `encode_json` renders by the table above."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return list(array.dictionary_decode().to_pylist())
    if pa.types.is_null(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return list(array.to_pylist())
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_decimal(kind):
        return [None if text is None else msgspec.Raw(text.encode()) for text in _decimals(array)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values = array.to_pylist()
        return (
            [v if v is None else msgspec.Raw(v.encode()) for v in values]
            if shape.is_json
            else values
        )
    if pa.types.is_nested(kind):
        return _nested(array, shape)
    return list(_texts(array))


def text_cells(array: pa.Array, shape: Shape) -> list[str | None]:
    """The values of a column as text, for CSV: as in JSON, without the quotes around strings."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return list(_decimals(array))
    if pa.types.is_nested(kind):
        cells = _nested(array, shape)
        return [None if cell is None else encode_json(cell).decode() for cell in cells]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return list(array.to_pylist())
    if pa.types.is_boolean(kind):
        return [None if v is None else str(v).lower() for v in array.to_pylist()]
    cells = json_cells(array, shape)
    return [
        cell if cell is None or isinstance(cell, str) else encode_json(cell).decode()
        for cell in cells
    ]


_encoder = msgspec.json.Encoder()


def encode_json(value: Any) -> bytes:
    return _encoder.encode(value)


def _floats(array: pa.Array) -> list[Any]:
    values = array.to_pylist()
    if pa.types.is_float32(array.type):
        # A 32-bit float printed as 64-bit shows digits that it does not have.
        texts = array.cast(pa.string()).to_pylist()
        values = [v if t is None else float(t) for v, t in zip(values, texts, strict=True)]
    finite = pc.all(pc.is_finite(array), min_count=0).as_py()
    if finite:
        return list(values)
    return [_special(v) for v in values]


def _special(value: float | None) -> float | str | None:
    if value is None or value - value == 0:
        return value
    if value != value:
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _decimals(array: pa.Array) -> Iterator[str | None]:
    for value in array.to_pylist():
        yield None if value is None else f"{value:f}"


def _nested(array: pa.Array, shape: Shape) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        columns = [json_cells(array.field(i), _child(shape, i)) for i in range(kind.num_fields)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _where_valid(array, rows or [{}] * len(array))
    if pa.types.is_map(kind):
        keys = text_cells(array.keys, _child(shape, 0))
        items = json_cells(array.items, _child(shape, 1))
        pairs = list(zip(keys, items, strict=True))
        return _where_valid(array, [dict(pairs[a:b]) for a, b in _spans(array)])
    if pa.types.is_union(kind):
        return [_union_value(array, i) for i in range(len(array))]
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        items = json_cells(
            array.values.slice(array.offset * size, len(array) * size), _child(shape, 0)
        )
        return _where_valid(array, [items[i * size : (i + 1) * size] for i in range(len(array))])
    items = json_cells(array.values, _child(shape, 0))
    return _where_valid(array, [items[a:b] for a, b in _spans(array)])


def _child(shape: Shape, index: int) -> Shape:
    return shape.children[index] if index < len(shape.children) else Shape()


def _union_value(array: pa.Array, index: int) -> Any:
    value = array[index].value
    return (
        None
        if value is None or not value.is_valid
        else json_cells(pa.array([value.as_py()], value.type), Shape())[0]
    )


def _spans(array: pa.Array) -> Iterator[tuple[int, int]]:
    return pairwise(array.offsets.to_pylist())


def _where_valid(array: pa.Array, values: list[Any]) -> list[Any]:
    if array.null_count == 0:
        return values
    valid = array.is_valid().to_pylist()
    return [value if ok else None for value, ok in zip(values, valid, strict=True)]


def _texts(array: pa.Array) -> Iterator[str | None]:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return (v if v is None else base64.b64encode(v).decode() for v in array.to_pylist())
    if pa.types.is_date(kind):
        return (v if v is None else _date(v) for v in array.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        per_s, zone = _UNIT_PER_S[kind.unit], "Z" if kind.tz else ""
        ticks = array.cast(pa.int64()).to_pylist()
        return (v if v is None else _timestamp(v, per_s, zone) for v in ticks)
    if pa.types.is_time(kind):
        per_s = _UNIT_PER_S[kind.unit]
        ticks = array.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).to_pylist()
        return (v if v is None else _time(v, per_s) for v in ticks)
    if pa.types.is_interval(kind):
        return (v if v is None else _duration(*v) for v in array.to_pylist())
    return (v if v is None else str(v) for v in array.to_pylist())


def _date(day: int) -> str:
    """Any day DuckDB has: its years go far beyond what datetime can hold."""
    if abs(day) >= _INFINITE_DAY:
        return "infinity" if day > 0 else "-infinity"
    # Days to civil date in the proleptic Gregorian calendar, in eras of 400 years from March 1.
    shifted = day + 719_468
    era, of_era = divmod(shifted, 146_097)
    year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    day_of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_index = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month_index + 2) // 5 + 1
    month = month_index + 3 if month_index < 10 else month_index - 9
    year = year_of_era + era * 400 + (month <= 2)
    text = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+07d}"
    return f"{text}-{month:02d}-{day_of_month:02d}"


def _timestamp(ticks: int, per_s: int, zone: str) -> str:
    if abs(ticks) >= _INFINITE_US:
        return "infinity" if ticks > 0 else "-infinity"
    day, of_day = divmod(ticks, 86_400 * per_s)
    return f"{_date(day)}T{_time(of_day, per_s)}{zone}"


def _time(ticks: int, per_s: int) -> str:
    seconds, fraction = divmod(ticks, per_s)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02d}:{minute:02d}:{second:02d}"
    if not fraction:
        return text
    digits = len(str(per_s)) - 1
    return f"{text}.{fraction:0{digits}d}".rstrip("0")


def _duration(months: int, days: int, nanoseconds: int) -> str:
    """ISO 8601; each part has a sign of its own, as DuckDB's intervals do."""
    years = int(months / 12)
    date = _parts((years, "Y"), (months - 12 * years, "M"), (days, "D"))
    sign = "-" if nanoseconds < 0 else ""
    seconds, fraction = divmod(abs(nanoseconds), 10**9)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    clock = "".join(
        f"{sign}{part}" for part in (_parts((hours, "H")), _parts((minute, "M"))) if part
    )
    if second or fraction:
        tail = f".{fraction:09d}".rstrip("0") if fraction else ""
        clock += f"{sign}{second}{tail}S"
    if clock:
        return f"P{date}T{clock}"
    return f"P{date}" if date else "PT0S"


def _parts(*amounts: tuple[int, str]) -> str:
    return "".join(f"{amount}{unit}" for amount, unit in amounts if amount)
