"""What a cell of the copy must show for one attribute of an item.

Owns a decoder of DynamoDB JSON that shares nothing with the SQL that fills the copy, and the rules
of the types in exact terms: which Python value an Arrow cell of a column holds when it is right.
Pure. Must not know rows, keys' order, or where either side came from.

Numbers never pass through a float here, except to ask the one question the rules ask: does a number
inside a list or map survive a double?
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from typing import Any, Final
from uuid import UUID

Attribute = Mapping[str, Any]
"""One attribute value as DynamoDB writes it: `{"S": "x"}`."""


@dataclass(frozen=True, slots=True)
class Column:
    """Where an attribute is shown, and as which SQL type."""

    attribute: str
    name: str
    type: str


# A number may have 38 digits; the context is wider, so that a wrong text is seen and not rounded.
_WIDE: Final = Context(prec=1000, traps=[Inexact])
_INTEGER_DIGITS: Final = 38
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MILLISECONDS: Final = 100_000_000_000
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)\Z")
_SETS: Final = frozenset({"SS", "NS", "BS"})
_NOTHING: Final = object()
_INTEGERS: Final = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}


def parse_item(text: str) -> dict[str, Attribute]:
    """The attributes of an item or key from their DynamoDB JSON text."""
    item: dict[str, Attribute] = json.loads(text)
    return item


def number(text: str) -> Decimal:
    """The exact value of a DynamoDB number in plain or exponent form.

    Raises ValueError on text that is no finite number.
    """
    try:
        value = _WIDE.create_decimal(text)
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"{text!r} is no DynamoDB number") from error
    if not value.is_finite():
        raise ValueError(f"{text!r} is no DynamoDB number")
    return value


def plain_text(value: Decimal) -> str:
    """The one text of a number as DynamoDB gives it back: no exponent, no needless zero, no -0."""
    if not value:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def of_cell(cell: Any, kind: str) -> Attribute:
    """The key attribute of type S, N or B that a cell of its column shows, in its one text."""
    if kind == "N":
        return {"N": plain_text(number(str(cell)))}
    if kind == "B":
        return {"B": base64.b64encode(cell).decode()}
    return {"S": cell}


def shows(cell: Any, attribute: Attribute | None, column_type: str) -> bool:
    """Whether a cell as `pyarrow` hands it out is what this attribute must look like in SQL.

    An absent attribute and a NULL are both SQL NULL; what tells them apart is not in the view.
    """
    if attribute is None or "NULL" in attribute:
        return cell is None
    if cell is None:
        return False
    ((kind, value),) = attribute.items()
    if column_type == "JSON":
        return _shows_json(cell, kind, value)
    if kind in _SETS:
        return _shows_set(cell, kind, value, column_type)
    try:
        if column_type.endswith("[]"):
            return _shows_list(cell, kind, value, column_type.removesuffix("[]"))
        return _is_exactly(cell, _scalar(kind, value, column_type))
    except ValueError:  # a text that a pinned column cannot take
        return False


def cell_of(attribute: Attribute | None, column_type: str) -> Any:
    """What an Arrow column that is cast to this type holds for the attribute, text by text.

    None also where no cell of the type can show it. Numbers, times and JSON are texts: a cast in
    DuckDB keeps them as they are.
    """
    if attribute is None or "NULL" in attribute:
        return None
    ((kind, value),) = attribute.items()
    if column_type == "JSON":
        return _plain_json(kind, value)
    if kind in _SETS and column_type.endswith("[]"):
        return [cell_of({kind[0]: one}, column_type.removesuffix("[]")) for one in value]
    try:
        cell = _scalar(kind, value, column_type)
    except ValueError:  # a text that a pinned column cannot take
        return None
    if cell is _NOTHING:
        return None
    if isinstance(cell, bool | bytes | float):
        return cell
    return plain_text(Decimal(cell)) if isinstance(cell, int | Decimal) else str(cell)


def _plain_json(kind: str, value: Any) -> str:
    match kind:
        case "M":
            inner = (f"{json.dumps(n)}:{_plain_json(*next(iter(v.items())))}"
                     for n, v in value.items())  # fmt: skip
            return "{" + ",".join(inner) + "}"
        case "L":
            return "[" + ",".join(_plain_json(*next(iter(v.items()))) for v in value) + "]"
        case "SS" | "NS" | "BS":
            return "[" + ",".join(_plain_json(kind[0], one) for one in value) + "]"
        case "N":
            text = plain_text(number(value))
            return text if is_json_number(number(value)) else json.dumps(text)
        case "NULL":
            return "null"
        case _:
            return json.dumps(value)


def _scalar(kind: str, value: Any, column_type: str) -> Any:
    """The cell that shows a scalar in a column of this type; `_NOTHING` when no cell can."""
    match kind, column_type:
        case ("S", "VARCHAR") | ("BOOL", "BOOLEAN"):
            return value
        case "B", "BLOB":
            return base64.b64decode(value, validate=True)
        case "N", "VARCHAR":
            return plain_text(number(value))
        case "N", "DOUBLE":
            return float(number(value))
        case "S", "UUID":
            return str(UUID(value))
        case "S", "DATE":
            return date.fromisoformat(value)
        case "S" | "N", "TIMESTAMP" | "TIMESTAMP_S" | "TIMESTAMP_MS" | "TIMESTAMPTZ" | "DATE":
            return _moment(kind, value, column_type)
        case "N", _ if column_type.removeprefix("U") in _INTEGERS:
            return _integer(number(value), column_type)
        case "N", _ if _DECIMAL.match(column_type):
            return _decimal(number(value), column_type)
        case _:
            return _NOTHING


def _moment(kind: str, value: str, column_type: str) -> Any:
    """The time of an ISO text, or of epoch seconds, or of milliseconds where seconds would be
    past the year 5138; with a zone only where the type has one."""
    if kind == "S":
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
    else:
        epoch = number(value)
        if epoch != epoch.to_integral_value():
            return _NOTHING
        epoch_ms = int(epoch) * (1 if abs(epoch) >= _FIRST_MILLISECONDS else 1000)
        moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    if column_type == "TIMESTAMPTZ":
        return moment
    plain = moment.astimezone(UTC).replace(tzinfo=None)
    return plain.date() if column_type == "DATE" else plain


def _integer(value: Decimal, column_type: str) -> Any:
    bits, is_unsigned = _INTEGERS[column_type.removeprefix("U")], column_type.startswith("U")
    least, most = (0, 2**bits) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    fits = value == value.to_integral_value() and least <= value < most
    return int(value) if fits else _NOTHING


def _decimal(value: Decimal, column_type: str) -> Any:
    precision, scale = map(int, _DECIMAL.findall(column_type)[0])
    whole, _, fraction = plain_text(abs(value)).partition(".")
    fits = len(fraction) <= scale and len(whole.lstrip("0")) <= precision - scale
    return value if fits else _NOTHING


def _is_exactly(have: Any, want: Any) -> bool:
    # Python finds True == 1 == 1.0: a type that changed is a value that changed.
    return type(have) is type(want) and bool(have == want)


def _shows_list(cell: Any, kind: str, value: Any, element_type: str) -> bool:
    """A list that is pinned to a typed one: element by element, in order."""
    if kind != "L" or not isinstance(cell, list) or len(cell) != len(value):
        return False
    return all(shows(one, other, element_type) for one, other in zip(cell, value, strict=True))


def _shows_set(cell: Any, kind: str, value: Sequence[Any], column_type: str) -> bool:
    if not column_type.endswith("[]") or not isinstance(cell, list):
        return False
    want = [_scalar(kind[0], element, column_type.removesuffix("[]")) for element in value]
    if len({type(element) for element in [*want, *cell]}) != 1:
        return False
    return sorted(cell) == sorted(want)


class _Number(str):
    """The text of a JSON number, so that no digit of it is lost before it is compared."""

    __slots__ = ()


def _shows_json(cell: Any, kind: str, value: Any) -> bool:
    try:
        return isinstance(cell, str) and _same_json(_parse_json(cell), kind, value)
    except ValueError:
        return False


def _parse_json(cell: str) -> Any:
    """Raises ValueError on text that is no JSON, or says a name twice."""
    return json.loads(
        cell,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_refuse,
        object_pairs_hook=_object,
    )


def strays(extra: str | None, attributes: Mapping[str, Attribute]) -> list[str]:
    """The names under which the `_extra` object is wrong about the attributes without a column."""
    try:
        have = {} if extra is None else _parse_json(extra)
    except ValueError:
        have = {}
    wrong = [name for name in have if name not in attributes]
    for name, attribute in attributes.items():
        ((kind, value),) = attribute.items()
        if not (_same_json(have[name], kind, value) if name in have else kind == "NULL"):
            wrong.append(name)
    return wrong


def _same_json(have: Any, kind: str, value: Any) -> bool:
    match kind:
        case "S":
            return _is_string(have) and have == value
        case "N":
            return _same_json_number(have, number(value))
        case "BOOL":
            return have is value
        case "NULL":
            return have is None
        case "B":
            return _is_string(have) and have == value
        case "L":
            return _same_json_list(have, value)
        case "M":
            return _same_json_map(have, value)
        case "SS" | "NS" | "BS":
            return _same_json_set(have, kind, value)
        case _:
            return False


def _same_json_number(have: Any, value: Decimal) -> bool:
    if not is_json_number(value):
        return _is_string(have) and bool(have == plain_text(value))
    return isinstance(have, _Number) and number(have) == value


def _same_json_set(have: Any, kind: str, value: Sequence[Any]) -> bool:
    if not isinstance(have, list) or not all(isinstance(element, str) for element in have):
        return False
    want = [_json_number(number(element)) for element in value] if kind == "NS" else value
    return sorted(map(_rank, have)) == sorted(map(_rank, want))


def _json_number(value: Decimal) -> str:
    text = plain_text(value)
    return _Number(text) if is_json_number(value) else text


def _rank(element: str) -> tuple[bool, Decimal, str]:
    """Orders JSON strings and numbers together; equal ranks are equal values."""
    if isinstance(element, _Number):
        return (True, number(element), "")
    return (False, Decimal(), element)


def _same_json_list(have: Any, value: Sequence[Attribute]) -> bool:
    if not isinstance(have, list) or len(have) != len(value):
        return False
    return all(
        _same_json(one, *next(iter(other.items()))) for one, other in zip(have, value, strict=True)
    )


def _same_json_map(have: Any, value: Mapping[str, Attribute]) -> bool:
    if not isinstance(have, dict) or have.keys() != value.keys():
        return False
    return all(_same_json(have[name], *next(iter(other.items()))) for name, other in value.items())


def is_json_number(value: Decimal) -> bool:
    """Whether a number inside a list or map is a JSON number; else it is a JSON string.

    It is one when it comes back equal from a double, or is an integer of up to 38 digits: those are
    what JSON readers keep.
    """
    if value == value.to_integral_value() and len(plain_text(abs(value))) <= _INTEGER_DIGITS:
        return True
    return Decimal(repr(float(value))) == value


def _is_string(have: Any) -> bool:
    return type(have) is str


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name twice in one object")
    return names
