"""The reference decoder: an independent reading of the type rules, against which tests compare.

Given an attribute value in DynamoDB JSON and the SQL type its column ended up with, it says what a
query has to return. It shares no code with the accelerator and uses no SQL.
"""

from __future__ import annotations

import base64
import json
from decimal import Context, Decimal
from typing import Any

_WIDE = Context(prec=1000)


def canonical_item(item: dict[str, Any]) -> dict[str, Any]:
    """The item with numbers in one form and sets in one order: equal items compare equal."""
    return {name: _canonical(value) for name, value in item.items()}


def _canonical(value: dict[str, Any]) -> dict[str, Any]:
    [(tag, content)] = value.items()
    if tag == "N":
        return {tag: number_text(content)}
    if tag == "NS":
        return {tag: sorted(number_text(each) for each in content)}
    if tag in ("SS", "BS"):
        return {tag: sorted(content)}
    if tag == "M":
        return {tag: canonical_item(content)}
    if tag == "L":
        return {tag: [_canonical(each) for each in content]}
    return {tag: content}


def number_text(text: str) -> str:
    number = _WIDE.create_decimal(text)
    if number.is_zero():
        return "0"
    return format(number.normalize(_WIDE), "f")


def key_value(item: dict[str, Any], name: str) -> str:
    [(tag, content)] = item[name].items()
    return number_text(content) if tag == "N" else str(content)


def expected(value: dict[str, Any] | None, sql_type: str) -> Any:
    """What a column of this type holds for the value; JSON as parsed by `parse_json`."""
    if value is None or "NULL" in value:
        return None
    [(tag, content)] = value.items()
    if sql_type == "JSON":
        return _plain(value)
    if tag == "N":
        return _number(content, sql_type)
    if tag == "NS":
        return [_number(each, sql_type.removesuffix("[]")) for each in content]
    if tag == "B":
        return base64.b64decode(content)
    if tag == "BS":
        return [base64.b64decode(each) for each in content]
    return content


def _number(text: str, sql_type: str) -> Any:
    if sql_type == "BIGINT":
        return int(Decimal(text))
    if sql_type.startswith("DECIMAL"):
        return Decimal(number_text(text))
    assert sql_type == "VARCHAR", sql_type
    return number_text(text)


def _plain(value: dict[str, Any]) -> Any:
    [(tag, content)] = value.items()
    if tag == "N":
        return _json_number(content)
    if tag == "NS":
        return [_json_number(each) for each in content]
    if tag == "M":
        return {name: _plain(each) for name, each in content.items()}
    if tag == "L":
        return [_plain(each) for each in content]
    if tag == "NULL":
        return None
    return content


def _json_number(text: str) -> Any:
    exact = Decimal(number_text(text))
    is_integer = exact == exact.to_integral_value(context=_WIDE)
    if is_integer and len(str(abs(int(exact)))) <= 38:
        return exact
    if Decimal(repr(float(exact))) == exact:
        return exact
    return number_text(text)


def parse_json(text: str) -> Any:
    """Plain JSON with every number as an exact Decimal."""
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)
