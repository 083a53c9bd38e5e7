"""The JSON body of a query: its SQL and typed parameters.

    {"sql": "select * from orders where total > $min", "parameters": {"min": 12.50}}
    {"sql": "select ?, ?", "parameters": ["a", {"type": "TIMESTAMP", "value": "2026-01-02"}]}

JSON numbers keep their digits: 12.50 is DECIMAL(4,2), not a double. Whatever JSON has no value for
is given as {"type": DuckDB type, "value": text}.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import msgspec

from accelerator.query_errors import QueryFailed

_MOST_PARAMETERS = 10_000
_MOST_DIGITS = 38


class _Statement(msgspec.Struct, forbid_unknown_fields=True):
    sql: str
    parameters: list[Any] | dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Statement, float_hook=Decimal)


def decode_parameters(body: bytes) -> tuple[str, list[Any] | dict[str, Any] | None]:
    """The SQL, and the parameters as values that DuckDB binds.

    Raises:
        QueryFailed: the body is not such an object
    """
    try:
        statement = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise QueryFailed(
            f"The body is not a query: {error}",
            hint='Send the SQL as text/plain, or JSON {"sql": "…", "parameters": […]}.',
        ) from error
    given = statement.parameters
    if given is None or not given:
        return statement.sql, None
    if len(given) > _MOST_PARAMETERS:
        raise QueryFailed(f"There are more than {_MOST_PARAMETERS} parameters.")
    if isinstance(given, dict):
        return statement.sql, {name: _value(item) for name, item in given.items()}
    return statement.sql, [_value(item) for item in given]


def _value(item: Any) -> Any:
    if isinstance(item, Decimal):
        return _number(item)
    if isinstance(item, list):
        return [_value(each) for each in item]
    if not isinstance(item, dict):
        return item
    if set(item) != {"type", "value"} or not isinstance(item["type"], str):
        raise QueryFailed(
            'A parameter that is an object has the keys "type" and "value".',
            hint='{"type": "TIMESTAMP", "value": "2026-01-02 03:04:05"}',
        )
    try:
        # The text is cast by DuckDB when the query runs, so its errors show there.
        return duckdb.Value(item["value"], duckdb.sqltype(item["type"]))
    except duckdb.Error as error:
        raise QueryFailed(f"There is no type {item['type'][:80]!r}.") from error


def _number(number: Decimal) -> Any:
    """DECIMAL where it holds all digits, DOUBLE where the number was written as one."""
    _, digits, exponent = number.as_tuple()
    is_decimal = isinstance(exponent, int) and -_MOST_DIGITS <= exponent <= 0
    if is_decimal and len(digits) <= _MOST_DIGITS:
        return number
    return float(number)
