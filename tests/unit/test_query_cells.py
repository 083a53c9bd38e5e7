"""Every type as text and as JSON, from DuckDB's own values: exact, and readable again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator.cells import encode_json, json_cells, shape_of, text_cells
from accelerator.query import QueryRunner
from accelerator.query_errors import QueryFailed
from accelerator.results import encoder_for, unique_names
from tests.query_builder import data_file, runner


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryRunner]:
    with data_file(tmp_path_factory.mktemp("cells")) as database, runner(database) as (opened, _):
        yield opened


def rendered(queries: QueryRunner, sql: str, parameters: Any = None) -> list[tuple[str, Any]]:
    """Each row's first column as (JSON text, CSV text)."""
    with queries.open(sql, parameters) as query:
        query.start()
        shape = shape_of("x", query.column_types[0])
        pairs: list[tuple[str, Any]] = []
        for batch in query.batches():
            column = batch.column(0)
            as_json = [encode_json(cell).decode() for cell in json_cells(column, shape)]
            pairs += zip(as_json, text_cells(column, shape), strict=True)
    return pairs


# What a value looks like in JSON; in CSV it is the same, a string without its quotes.
VALUES = {
    "true": "true",
    "1::TINYINT": "1",
    "(-9223372036854775808)::BIGINT": "-9223372036854775808",
    "18446744073709551615::UBIGINT": "18446744073709551615",
    "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
    "sum(9007199254740993::BIGINT)": "9007199254740993",
    "1.50::DECIMAL(10, 2)": "1.50",
    "0::DECIMAL(38, 10)": "0.0000000000",
    "'1e-37'::DECIMAL(38, 37)": "0.0000000000000000000000000000000000001",
    "'-12345678901234567890123456789012345678'::DECIMAL(38, 0)": (
        "-12345678901234567890123456789012345678"
    ),
    "0.1::DOUBLE": "0.1",
    "0.1::FLOAT": "0.1",
    "1e300::DOUBLE": "1e300",
    "'nan'::DOUBLE": '"NaN"',
    "'inf'::DOUBLE": '"Infinity"',
    "'-inf'::FLOAT": '"-Infinity"',
    "'a\"b'": '"a\\"b"',
    "'ü🦆'": '"ü🦆"',
    "chr(0)": '"\\u0000"',
    "'\\x00\\xFF'::BLOB": '"AP8="',
    "'x'::ENUM('x', 'y')": '"x"',
    "'00000000-0000-0000-0000-000000000001'::UUID": '"00000000-0000-0000-0000-000000000001"',
    """'{"a": 1.10, "b": 12345678901234567890}'::JSON""": (
        '{"a": 1.10, "b": 12345678901234567890}'
    ),
    "DATE '2026-01-02'": '"2026-01-02"',
    "DATE '0044-03-15 (BC)'": '"-000043-03-15"',
    "DATE '5000000-12-31'": '"+5000000-12-31"',
    "DATE 'infinity'": '"infinity"',
    "DATE '-infinity'": '"-infinity"',
    "TIMESTAMP '2026-01-02 03:04:05'": '"2026-01-02T03:04:05"',
    "TIMESTAMP '2026-01-02 03:04:05.678'": '"2026-01-02T03:04:05.678"',
    "TIMESTAMP '1969-12-31 23:59:59.999999'": '"1969-12-31T23:59:59.999999"',
    "TIMESTAMP_NS '2026-01-02 03:04:05.000000001'": '"2026-01-02T03:04:05.000000001"',
    "TIMESTAMP_S '2026-01-02 03:04:05'": '"2026-01-02T03:04:05"',
    "TIMESTAMPTZ '2026-01-02 03:04:05+02'": '"2026-01-02T01:04:05Z"',
    "TIMESTAMP 'infinity'": '"infinity"',
    "TIMESTAMPTZ '-infinity'": '"-infinity"',
    "TIMESTAMP '290000-01-01 00:00:00'": '"+290000-01-01T00:00:00"',
    "TIME '23:59:59.5'": '"23:59:59.5"',
    "TIME '24:00:00'": '"24:00:00"',
    "INTERVAL '0 day'": '"PT0S"',
    "INTERVAL '14 months 3 days 01:02:03.5'": '"P1Y2M3DT1H2M3.5S"',
    "INTERVAL '-14 months -3 days -1 hours'": '"P-1Y-2M-3DT-1H"',
    "[1, NULL, 3]": "[1,null,3]",
    "[]::INTEGER[]": "[]",
    "[[1.10], []]::DECIMAL(4, 2)[][]": "[[1.10],[]]",
    "array_value(1, 2)": "[1,2]",
    "{'a': 1, 'b': NULL, 'c': {'d': 'x'}}": '{"a":1,"b":null,"c":{"d":"x"}}',
    "{'j': '{\"n\": 1.0}'::JSON}": '{"j":{"n": 1.0}}',
    "[TIMESTAMP '2026-01-02']": '["2026-01-02T00:00:00"]',
    "['a'::BLOB]": '["YQ=="]',
    "MAP {'k': 1, 'l': NULL}": '{"k":1,"l":null}',
    "MAP {1: 'a'}": '{"1":"a"}',
    "MAP {}": "{}",
    "union_value(n := 5)": "5",
    "['nan'::DOUBLE, 1]": '["NaN",1.0]',
    "NULL": "null",
    "NULL::DECIMAL(4, 2)": "null",
    "NULL::STRUCT(a INTEGER)": "null",
    "NULL::INTEGER[]": "null",
    "NULL::INTEGER[2]": "null",
    "NULL::MAP(VARCHAR, INTEGER)": "null",
    "NULL::TIMESTAMP": "null",
    "NULL::JSON": "null",
    "NULL::ENUM('x')": "null",
    "NULL::UNION(n INTEGER)": "null",
}


@pytest.mark.parametrize("value", VALUES)
def test_values_keep_every_digit(queries: QueryRunner, value: str) -> None:
    """The text of a value is the value: in JSON and in CSV, by itself and among NULLs."""
    as_json = VALUES[value]
    back = json.loads(as_json)
    as_text = back if isinstance(back, str | None) else as_json
    one, none = (as_json, as_text), ("null", None)
    assert rendered(queries, f"SELECT {value} AS x") == [one]
    among = f"""
        WITH v AS MATERIALIZED (SELECT {value} AS x)
        SELECT x FROM range(5) t(i) LEFT JOIN v ON i % 2 = 0 ORDER BY i
    """
    assert rendered(queries, among) == [one, none, one, none, one]


@pytest.mark.parametrize("kind", ["UHUGEINT", "BIT", "BIGNUM", "TIMETZ"])
def test_what_arrow_would_change_is_refused(queries: QueryRunner, kind: str) -> None:
    """2^128-1 would come out as -1: rather an error, also deep inside."""
    for sql in (f"NULL::{kind}", f"NULL::{kind}[]", f"NULL::STRUCT(a {kind})"):
        with queries.open(f"SELECT {sql} AS x") as query:
            query.start()
            with pytest.raises(QueryFailed, match="exactly"):
                shape_of("x", query.column_types[0])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.none(),
            st.decimals(
                allow_nan=False,
                allow_infinity=False,
                places=9,
                min_value=-(10**20),
                max_value=10**20,
            ),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_decimals_read_back_equal(queries: QueryRunner, values: list[Decimal | None]) -> None:
    """Whatever DECIMALs are in a column, a JSON reader with exact numbers gets them back."""
    pairs = rendered(queries, "SELECT unnest($1::DECIMAL(38, 9)[]) AS x", [values])
    assert [json.loads(text, parse_float=Decimal) for text, _ in pairs] == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=20))
def test_texts_read_back_equal(queries: QueryRunner, values: list[str | None]) -> None:
    """Every string that DuckDB holds comes back, control characters and all."""
    pairs = rendered(queries, "SELECT unnest($1::VARCHAR[]) AS x", [values])
    assert [json.loads(text) for text, _ in pairs] == values
    assert [text for _, text in pairs] == values


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_doubles_read_back_equal(queries: QueryRunner, values: list[float]) -> None:
    """The shortest text of a double is that double again."""
    pairs = rendered(queries, "SELECT unnest($1::DOUBLE[]) AS x", [values])
    for value, (text, _) in zip(values, pairs, strict=True):
        back = json.loads(text)
        assert repr(float(back)) == repr(value)


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=-(2**62), max_value=2**62))
def test_points_in_time_read_back_equal(queries: QueryRunner, microseconds: int) -> None:
    """DuckDB reads the text of a timestamp, of any year that it has, as the same timestamp."""
    sql = "SELECT make_timestamp($1) AS x"
    [(text, _)] = rendered(queries, sql, [microseconds])
    shown = json.loads(text)
    # DuckDB writes years before the first in its own way, and later ones without the sign.
    if shown.startswith("-"):
        year, rest = shown[1:].split("-", 1)
        day, clock = rest.split("T")
        shown = f"{int(year) + 1:04d}-{day} (BC) {clock}"
    shown = shown.lstrip("+0") if shown.startswith("+") else shown
    [(back, _)] = rendered(queries, "SELECT epoch_us($1::TIMESTAMP) AS x", [shown])
    assert int(back) == microseconds


def test_names_are_made_unique() -> None:
    """Repeated names get a suffix that no other column has."""
    assert unique_names(["a", "a", "a_1", "A", "a"]) == ["a", "a_1", "a_1_1", "A", "a_2"]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("text/csv", "text/csv; charset=utf-8"),
        ("text/*", "text/csv; charset=utf-8"),
        ("text/csv;q=0.1, application/x-ndjson;q=0.9", "application/x-ndjson"),
        ("application/json;q=0, text/csv", "text/csv; charset=utf-8"),
        ("image/png, application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("TEXT/CSV", "text/csv; charset=utf-8"),
        ("text/csv;q=nonsense, application/json", "application/json"),
    ],
)
def test_the_preferred_format_is_taken(accept: str, content_type: str) -> None:
    """Quality values decide, then the order; wildcards fall back to JSON."""
    encoder = encoder_for(accept)
    assert encoder is not None
    assert encoder.content_type == content_type


def test_no_format_fits() -> None:
    """An Accept header that names only foreign types gets none."""
    assert encoder_for("image/png") is None
    assert encoder_for("application/json;q=0, image/png") is None
