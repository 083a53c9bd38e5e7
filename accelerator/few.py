"""A few items to typed columns, in Python: the short way for small groups.

DuckDB plans a query at every run, and planning the decoder's costs as much as decoding a hundred
items. Owns the same answer for plain cases: canonical items that the plan holds as it stands. All
else it declines, whole, and SQL decides. Grows no plan, finds no poison.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa

from accelerator import items
from accelerator.numerals import shape
from accelerator.schema import NESTED_TAGS, PRECISION, Column, Kind, Plan

# About where both ways cost the same.
FEW: Final = 64


class FewRow(NamedTuple):
    """One row of the relation that the SQL decoder reads."""

    i: int
    h: int
    k: str
    image: str | None


class FewRows(NamedTuple):
    """`rows` as `fitting.Fitted` has them, and its count of numbers as text."""

    rows: pa.Table
    numbers_as_text: int


class _Declined(Exception):
    """Not a plain case."""


def decode_few(plan: Plan, given: Sequence[FewRow]) -> FewRows | None:
    """None where SQL has to look."""
    choice = plan.choice
    if choice.include is not None or choice.exclude or choice.unnest_depth or choice.pins:
        return None
    places = {column.attribute: at for at, column in enumerate(plan.columns)}
    values: list[list[Any]] = [[None] * len(given) for _ in plan.columns]
    raws: list[str | None] = []
    numbers_as_text = 0
    try:
        for row, each in enumerate(given):
            item = _canonical_item(each.image)
            members: list[tuple[int, str]] = []
            for attribute, value in item.items():
                at = places.get(attribute)
                if at is None:
                    raise _Declined
                column = plan.columns[at]
                values[at][row] = _value(column, value)
                if column.kind is Kind.JSON:
                    numbers_as_text += items.count_numbers_as_text(value)
                if _stands_in_raw(column, value):
                    members.append((at, items.write({attribute: value})[1:-1]))
            raws.append(
                "{" + ",".join(text for _, text in sorted(members)) + "}" if members else None
            )
    except _Declined:
        return None
    columns: dict[str, pa.Array] = {
        "i": pa.array([each.i for each in given], pa.int64()),
        "h": pa.array([each.h for each in given], pa.uint64()),
        "k": pa.array([each.k for each in given], pa.string()),
    }
    for column, of_column in zip(plan.columns, values, strict=True):
        columns[column.physical] = pa.array(of_column, _arrow_type(column))
    columns["_raw"] = pa.array(raws, pa.string())
    columns["_extra"] = pa.nulls(len(given), pa.string())
    return FewRows(pa.table(columns), numbers_as_text)


def _canonical_item(image: str | None) -> dict[str, items.Attribute]:
    """Where the text is the one way to write its item, nothing about it needs a second look."""
    if image is None or "\\" in image:
        raise _Declined
    try:
        item = items.read(image)
    except items.Unreadable:
        raise _Declined from None
    if not item or items.write(item) != image:
        raise _Declined
    return item


def _stands_in_raw(column: Column, value: items.Attribute) -> bool:
    if column.kind is Kind.JSON:
        return column.base in NESTED_TAGS or column.base not in value
    return "NULL" in value


def _value(column: Column, value: items.Attribute) -> Any:
    ((tag, content),) = value.items()
    if column.kind is Kind.JSON:
        if tag == "NULL":
            return None
        if tag not in column.seen:
            raise _Declined
        return items.plain_json(value)
    if tag == "NULL":
        if tag not in column.seen:
            raise _Declined
        return None
    if tag != _TAG.get(column.kind):
        raise _Declined
    match column.kind:
        case Kind.INTEGER:
            return _integer(content)
        case Kind.DECIMAL:
            return _decimal(content, column.scale)
        case Kind.BINARY:
            return base64.b64decode(content)
        case Kind.INTEGER_SET:
            return [_integer(each) for each in content]
        case Kind.DECIMAL_SET:
            return [_decimal(each, column.scale) for each in content]
        case Kind.BINARY_SET:
            return [base64.b64decode(each) for each in content]
        case _:
            return content


def _integer(text: str) -> int:
    form = shape(text)
    if form.scale or not form.fits_int64:
        raise _Declined
    return int(text)


def _decimal(text: str, scale: int) -> Decimal:
    form = shape(text)
    if form.scale > scale or form.integer_digits > PRECISION - scale:
        raise _Declined
    return Decimal(text)


def _arrow_type(column: Column) -> pa.DataType:
    match column.kind:
        case Kind.DECIMAL:
            return pa.decimal128(PRECISION, column.scale)
        case Kind.DECIMAL_SET:
            return pa.list_(pa.field("l", pa.decimal128(PRECISION, column.scale)))
        case kind:
            return _ARROW.get(kind, pa.string())


_TAG: Final = {
    Kind.TEXT: "S",
    Kind.INTEGER: "N",
    Kind.DECIMAL: "N",
    Kind.NUMBER_TEXT: "N",
    Kind.BOOLEAN: "BOOL",
    Kind.BINARY: "B",
    Kind.TEXT_SET: "SS",
    Kind.INTEGER_SET: "NS",
    Kind.DECIMAL_SET: "NS",
    Kind.NUMBER_TEXT_SET: "NS",
    Kind.BINARY_SET: "BS",
}

_ARROW: Final = {
    Kind.INTEGER: pa.int64(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.BINARY: pa.binary(),
    Kind.TEXT_SET: pa.list_(pa.field("l", pa.string())),
    Kind.INTEGER_SET: pa.list_(pa.field("l", pa.int64())),
    Kind.NUMBER_TEXT_SET: pa.list_(pa.field("l", pa.string())),
    Kind.BINARY_SET: pa.list_(pa.field("l", pa.binary())),
}
