"""DynamoDB numbers as text: their normal form and what a column needs to hold them.

Normal form: plain decimal notation as the service returns it, no exponent, no leading plus, no
leading or trailing zeros, no negative zero. Two numbers are equal when their normal forms are.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\Z")
NORMAL = re.compile(r"(?:0|-?[1-9][0-9]*|-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9])\Z")
# RE2 text of the same, for SQL.
NORMAL_SQL = r"(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9])"
# DynamoDB itself ends at 9.99E+125 and 1E-130; beyond this a text would only cost memory.
_MAX_EXPONENT = 400
_INT64_MAX = 2**63 - 1


class NumberShape(NamedTuple):
    """Digits before and after the point of a normal form."""

    integer_digits: int
    scale: int
    fits_int64: bool


def normal_form(text: str) -> str:
    """Raises ValueError when the text is no DynamoDB number."""
    if NORMAL.match(text) and len(text) <= _MAX_EXPONENT:
        return text
    if not _NUMBER.match(text) or len(text) > _MAX_EXPONENT:
        raise ValueError(f"not a number: {text[:60]!r}")
    number = Decimal(text)
    if not number:
        return "0"
    if abs(number.adjusted()) > _MAX_EXPONENT:
        raise ValueError(f"number out of range: {text[:60]!r}")
    plain = format(number, "f")
    if "." in plain:
        plain = plain.rstrip("0").rstrip(".")
    return plain


def shape(normal: str) -> NumberShape:
    integer, _, fraction = normal.lstrip("-").partition(".")
    fits = not fraction and len(integer) <= 19 and -_INT64_MAX - 1 <= int(normal) <= _INT64_MAX
    return NumberShape(0 if integer == "0" else len(integer), len(fraction), fits)


def json_number(normal: str) -> str:
    """A normal form as a JSON value: a number where readers keep it, else a JSON string.

    Kept are integers of up to 38 digits and whatever survives a double.
    """
    if "." not in normal and len(normal.lstrip("-")) <= 38:
        return normal
    if len(normal) <= 15 or Decimal(repr(float(normal))) == Decimal(normal):
        return normal
    return f'"{normal}"'


def json_number_sql(expression: str) -> str:
    """`json_number` over a SQL text expression in normal form."""
    return (
        f"CASE WHEN {expression} NOT LIKE '%.%' AND length(ltrim({expression}, '-')) <= 38 "
        f"THEN {expression} "
        f"WHEN {_digits_sql(f'CAST(CAST({expression} AS DOUBLE) AS VARCHAR)')} = "
        f"{_digits_sql(expression)} THEN {expression} "
        f"ELSE '\"' || {expression} || '\"' END"
    )


def _digits_sql(expression: str) -> str:
    # Significant digits alone: two numbers this close are equal when these are.
    return (
        f"trim(replace(replace(regexp_replace({expression}, '[eE].*', ''), '.', ''), '-', ''), '0')"
    )


def decimal_text_sql(expression: str, scale: int) -> str:
    """A DECIMAL(38, scale) as its normal form; DuckDB itself pads to the scale."""
    if scale == 0:
        return f"CAST({expression} AS VARCHAR)"
    return f"rtrim(rtrim(CAST({expression} AS VARCHAR), '0'), '.')"
