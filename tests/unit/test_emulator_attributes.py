"""Attribute values on their way in: checked, normalised, measured."""

from __future__ import annotations

from typing import Any

import pytest

from emulator import AwsError
from emulator.attributes import normalise_item, normalise_value, same_attributes


def test_numbers_are_normalised_at_every_depth() -> None:
    """Lists, maps and sets hold numbers in normal form too."""
    item: dict[str, dict[str, Any]] = {
        "top": {"N": "1.0"},
        "deep": {"M": {"list": {"L": [{"N": "1E+2"}, {"M": {"x": {"N": "-0"}}}]}}},
        "set": {"NS": ["2.50", "03"]},
    }
    normalise_item(item)
    assert item == {
        "top": {"N": "1"},
        "deep": {"M": {"list": {"L": [{"N": "100"}, {"M": {"x": {"N": "0"}}}]}}},
        "set": {"NS": ["2.5", "3"]},
    }


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ({}, "ValidationException", "is empty"),
        ({"S": "a", "N": "1"}, "ValidationException", "more than one datatypes"),
        ({"X": "a"}, "ValidationException", "is empty"),
        ({"NULL": False}, "ValidationException", "must have the value of true"),
        ({"SS": []}, "ValidationException", "may not be empty"),
        ({"SS": ["a", "a"]}, "ValidationException", "contains duplicates"),
        ({"NS": ["1", "1.0"]}, "ValidationException", "contains duplicates"),
        ({"BS": ["YQ==", "YQ=="]}, "ValidationException", "contains duplicates"),
        ({"S": 1}, "SerializationException", "NUMBER_VALUE cannot be converted to String"),
        ({"N": 1}, "SerializationException", "NUMBER_VALUE cannot be converted to String"),
        ({"BOOL": "true"}, "SerializationException", "STRING_VALUE cannot be converted"),
        ({"B": "not base64!"}, "SerializationException", "base64"),
        ({"L": {}}, "SerializationException", "converted to L"),
        ({"M": []}, "SerializationException", "converted to M"),
        ({"SS": "a"}, "SerializationException", "converted to SS"),
        ({"SS": [1]}, "SerializationException", "NUMBER_VALUE"),
        ("a", "SerializationException", "Unexpected value type"),
    ],
)
def test_an_illegal_value_is_refused(value: Any, code: str, message: str) -> None:
    """Each shape that DynamoDB refuses is refused with the code it uses."""
    with pytest.raises(AwsError, match=message) as caught:
        normalise_value(value)
    assert caught.value.code == code


def test_values_that_look_wrong_and_are_legal_pass() -> None:
    """Empty text, empty binary, an empty list and an empty map are legal values."""
    item: dict[str, dict[str, Any]] = {
        "s": {"S": ""},
        "b": {"B": ""},
        "l": {"L": []},
        "m": {"M": {}},
        "n": {"NULL": True},
    }
    assert normalise_item(item) == 5 + 0 + 0 + 3 + 3 + 1


def test_nesting_ends_at_32_levels() -> None:
    """31 containers around a scalar are legal, one more is not."""

    def nested(levels: int) -> dict[str, Any]:
        value: dict[str, Any] = {"S": "x"}
        for _ in range(levels):
            value = {"L": [value]}
        return value

    normalise_value(nested(31))
    with pytest.raises(AwsError, match="Nesting Levels"):
        normalise_value(nested(32))


def test_sizes_follow_the_documented_rule() -> None:
    """Names and text count UTF-8 bytes, numbers half their digits and one, containers 3 and 1."""
    assert normalise_item({"né": {"S": "ü"}}) == 3 + 2
    assert normalise_item({"n": {"N": "12345"}}) == 1 + 4
    assert normalise_item({"b": {"B": "YWJj"}}) == 1 + 3
    assert normalise_item({"l": {"L": [{"BOOL": True}, {"S": "ab"}]}}) == 1 + 3 + 2 + 3
    assert normalise_item({"m": {"M": {"k": {"S": "ab"}}}}) == 1 + 3 + 1 + 1 + 2


def test_sets_and_maps_compare_without_order_and_lists_with_it() -> None:
    """Whether a write changes nothing is a question of values, not of the order on the wire."""
    assert same_attributes({"a": {"SS": ["x", "y"]}}, {"a": {"SS": ["y", "x"]}})
    assert same_attributes(
        {"a": {"M": {"p": {"NS": ["1", "2"]}, "q": {"S": ""}}}},
        {"a": {"M": {"q": {"S": ""}, "p": {"NS": ["2", "1"]}}}},
    )
    assert not same_attributes({"a": {"L": [{"S": "x"}, {"S": "y"}]}}, {"a": {"L": [{"S": "y"}]}})
    assert not same_attributes({"a": {"S": "1"}}, {"a": {"N": "1"}})
    assert not same_attributes({"a": {"S": "1"}}, {"a": {"S": "1"}, "b": {"S": "1"}})
