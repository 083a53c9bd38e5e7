"""The column-wise unwrapping against the reference decoder, value by value."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerator import items
from accelerator.plain import plain_column
from tests import oracle
from tests.properties.test_dataset_types import VALUES


def text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def unwrapped(values: list[Any], *, cut: int = 0) -> list[Any]:
    column = pa.array([None if value is None else text(value) for value in values], pa.string())
    plain = plain_column(pa.chunked_array([column.slice(cut)])).to_pylist()
    return [None if each is None else oracle.parse_json(each) for each in plain]


def expected(values: list[Any]) -> list[Any]:
    return [oracle.expected(value, "JSON") for value in values]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.none(), VALUES), max_size=12), st.integers(0, 3))
def test_any_column_is_unwrapped_exactly(values: list[Any], cut: int) -> None:
    """Every value equals what the reference says, wherever the chunk was cut."""
    assert unwrapped(values, cut=cut) == expected(values[cut:])


TRICKY = [
    {"M": {"M": {"M": {"M": {"S": "x"}}}}},
    {"M": {"M": {"S": "x"}}},
    {"M": {"a": {"S": "1"}, "M": {"M": {}}}},
    {"M": {"S": {"N": "1"}, "N": {"S": "}"}}},
    {"M": {"NULL": {"NULL": True}, "BOOL": {"BOOL": False}}},
    {"L": []},
    {"M": {}},
    {"L": [{"L": []}, {"M": {}}, {"NULL": True}]},
    {"S": '"}}]{\\"'},
    {"S": "\\"},
    {"M": {'k"\\': {"S": '\\\\"'}, "{": {"S": "}"}, '{"S":"': {"S": '{"N":"5"}'}}},
    {"L": [{"NS": ["1", "2.50"]}, {"SS": ["}", "{"]}, {"BS": ["AA=="]}]},
    {"L": [{"N": n} for n in ("0", "-1", "-0", "-0.5", "007", "1.0", "1e3", "0.10", "12.5")]},
    {"L": [{"N": "9" * 38}, {"N": "9" * 39}, {"N": "0." + "1" * 15}, {"N": "0." + "1" * 20}]},
    {"L": [{"N": "1234567890.12345"}, {"N": "12345678901234.5678"}, {"N": "-1234567890.12345"}]},
    {"NULL": True},
    {"BOOL": True},
    {"N": "5"},
    {"B": "AA=="},
    {"M": {"": {"S": ""}}},
]


@pytest.mark.parametrize("value", TRICKY, ids=str)
def test_shapes_that_look_like_others(value: Any) -> None:
    """Keys named like tags, braces in strings, escapes at the end, numbers at the edge."""
    assert unwrapped([value]) == expected([value])


def test_tricky_values_do_not_disturb_their_neighbours() -> None:
    """What is read one by one is put back in its own place."""
    assert unwrapped(TRICKY * 2) == expected(TRICKY * 2)


@pytest.mark.parametrize(
    "bad",
    [
        '{"X":"1"}',
        '{"L":["x"]}',
        '{"M":{"a":"x"}}',
        '{"S":"x","N":"1"}',
        '{"M":{"a":{"N":"seven"}}}',
        '{"L":[{"B":1}]}',
        '{"M":{"a":{"S":"x","N":"1"}}}',
    ],
)
def test_what_is_no_value_is_refused(bad: str) -> None:
    """A wrong tag or a bare value is never unwrapped as if it were right."""
    with pytest.raises(items.Unreadable):
        plain_column(pa.chunked_array([pa.array(['{"S":"fine"}', bad])]))
