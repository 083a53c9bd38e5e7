"""The comparison's own decoder: what a cell must show for each DynamoDB type and column type."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from connector.compare.cells import is_json_number, number, of_cell, plain_text, shows, strays

DIGITS_38 = "12345678901234567890123456789012345678"


@pytest.mark.parametrize(
    ("cell", "attribute", "column_type"),
    [
        ("", {"S": ""}, "VARCHAR"),
        ("a\x00'\"\U0001f986", {"S": "a\x00'\"\U0001f986"}, "VARCHAR"),
        (5, {"N": "5"}, "BIGINT"),
        (5, {"N": "5.0"}, "BIGINT"),
        (5, {"N": "0.5E1"}, "BIGINT"),
        (Decimal("5.00"), {"N": "5"}, "DECIMAL(38,2)"),
        (Decimal(DIGITS_38), {"N": DIGITS_38}, "DECIMAL(38,0)"),
        ("1" + "0" * 125, {"N": "1E125"}, "VARCHAR"),
        ("0." + "0" * 129 + "1", {"N": "1E-130"}, "VARCHAR"),
        ("5", {"N": "5.00"}, "VARCHAR"),
        ("0", {"N": "-0"}, "VARCHAR"),
        (0.1, {"N": "0.1"}, "DOUBLE"),
        (True, {"BOOL": True}, "BOOLEAN"),
        (b"\x00\xff", {"B": "AP8="}, "BLOB"),
        (b"", {"B": ""}, "BLOB"),
        (["b", "a"], {"SS": ["a", "b"]}, "VARCHAR[]"),
        ([2, 1], {"NS": ["1.0", "2"]}, "BIGINT[]"),
        ([Decimal("1.50")], {"NS": ["1.5"]}, "DECIMAL(38,2)[]"),
        ([b"b", b"a"], {"BS": ["YQ==", "Yg=="]}, "BLOB[]"),
        (None, {"NULL": True}, "VARCHAR"),
        (None, {"NULL": True}, "JSON"),
        (None, None, "BIGINT"),
        ("{}", {"M": {}}, "JSON"),
        ("[]", {"L": []}, "JSON"),
        ('[1, "1", null, true, "AP8="]', {"L": [
            {"N": "1"}, {"S": "1"}, {"NULL": True}, {"BOOL": True}, {"B": "AP8="},
        ]}, "JSON"),
        ('{"b":{"c":[0.1]},"a":' + DIGITS_38 + "}",
         {"M": {"a": {"N": DIGITS_38}, "b": {"M": {"c": {"L": [{"N": "0.1"}]}}}}}, "JSON"),
        ('{"x":"0.1234567890123456789"}', {"M": {"x": {"N": "0.1234567890123456789"}}}, "JSON"),
        ('["b","a"]', {"SS": ["a", "b"]}, "JSON"),
        ('[2,"0.1234567890123456789"]', {"NS": ["0.1234567890123456789", "2"]}, "JSON"),
        ('"5"', {"S": "5"}, "JSON"),
        ("5", {"N": "5"}, "JSON"),
        ("true", {"BOOL": True}, "JSON"),
    ],
)  # fmt: skip
def test_a_right_cell_is_found_right(cell: Any, attribute: Any, column_type: str) -> None:
    """What the types' rules say is what the comparison takes for equal."""
    assert shows(cell, attribute, column_type)


@pytest.mark.parametrize(
    ("cell", "attribute", "column_type"),
    [
        (None, {"S": ""}, "VARCHAR"),
        ("", None, "VARCHAR"),
        ("", {"NULL": True}, "VARCHAR"),
        ("5", {"N": "5"}, "BIGINT"),
        (True, {"N": "1"}, "BIGINT"),
        (1, {"BOOL": True}, "BOOLEAN"),
        (5, {"N": "5.5"}, "BIGINT"),
        (Decimal("5.50"), {"N": "5.51"}, "DECIMAL(38,2)"),
        ("5.00", {"N": "5"}, "VARCHAR"),
        ("1E+125", {"N": "1E125"}, "VARCHAR"),
        ("5", {"S": "5"}, "BIGINT"),
        ("AP8=", {"B": "AP8="}, "BLOB"),
        (["a"], {"SS": ["a", "b"]}, "VARCHAR[]"),
        (["a", "a", "b"], {"SS": ["a", "b"]}, "VARCHAR[]"),
        (["1"], {"NS": ["1"]}, "BIGINT[]"),
        ([None], {"NS": ["1"]}, "BIGINT[]"),
        ([True], {"NS": ["1"]}, "BIGINT[]"),
        ('["1"]', {"L": [{"N": "1"}]}, "JSON"),
        ("[1]", {"L": [{"S": "1"}]}, "JSON"),
        ("[1]", {"L": [{"BOOL": True}]}, "JSON"),
        ("[1,2]", {"L": [{"N": "2"}, {"N": "1"}]}, "JSON"),
        ("[0.1234567890123456789]", {"L": [{"N": "0.1234567890123456789"}]}, "JSON"),
        ('["1E-7"]', {"L": [{"N": "0.0000001"}]}, "JSON"),
        ('{"a":1,"a":1}', {"M": {"a": {"N": "1"}}}, "JSON"),
        ('{"a":1,"b":2}', {"M": {"a": {"N": "1"}}}, "JSON"),
        ("{}", {"M": {"a": {"NULL": True}}}, "JSON"),
        ("[NaN]", {"L": [{"N": "1"}]}, "JSON"),
        ("[", {"L": []}, "JSON"),
        ({}, {"M": {}}, "JSON"),
        ("null", {"NULL": True}, "JSON"),
        ("5", {"S": "5"}, "JSON"),
        ('"5"', {"N": "5"}, "JSON"),
    ],
)
def test_a_wrong_cell_is_found_wrong(cell: Any, attribute: Any, column_type: str) -> None:
    """A changed type, digit, order or length is a difference, however alike it prints."""
    assert not shows(cell, attribute, column_type)


@pytest.mark.parametrize(
    ("text", "is_number"),
    [
        ("0.1", True),
        ("0.30000000000000004", True),
        (DIGITS_38, True),
        (DIGITS_38 + "0", False),
        ("1E125", True),
        ("1.2345678901234567891", False),
        ("9" * 38 + "E87", False),
    ],
)
def test_nested_numbers_are_json_numbers_only_where_readers_keep_them(
    text: str, is_number: bool
) -> None:
    """A double keeps it, or it is an integer of up to 38 digits; all else is a JSON string."""
    assert is_json_number(number(text)) is is_number


@pytest.mark.parametrize("text", ["", "NaN", "Infinity", "1e", "x"])
def test_no_number_is_said(text: str) -> None:
    """What DynamoDB cannot have written raises, it is never taken for a value."""
    with pytest.raises(ValueError, match="no DynamoDB number"):
        number(text)


def test_a_number_has_one_text() -> None:
    """Equal numbers have equal texts, in plain decimal."""
    assert {plain_text(number(t)) for t in ("1", "1.0", "1e0", "+1", "0.1E1")} == {"1"}
    assert {plain_text(number(t)) for t in ("0", "-0", "0.00", "0E5")} == {"0"}
    assert plain_text(number("-1.50E2")) == "-150"


def test_a_key_cell_turns_back_into_its_attribute() -> None:
    """A key that is read from any column type its number can be in is the same key."""
    assert of_cell("x", "S") == {"S": "x"}
    assert of_cell(b"\x00\xff", "B") == {"B": "AP8="}
    assert of_cell(5, "N") == of_cell(Decimal("5.00"), "N") == of_cell("5", "N") == {"N": "5"}


def test_attributes_without_a_column_are_looked_for_in_extra() -> None:
    """Each one is there with its value, and nothing else is."""
    attributes = {"a": {"N": "1"}, "b": {"S": "x"}}
    assert strays('{"b":"x","a":1}', attributes) == []
    assert strays('{"b":"x"}', attributes) == ["a"]
    assert strays('{"b":"y","a":1,"c":2}', attributes) == ["c", "b"]
    assert strays(None, attributes) == ["a", "b"]
    assert strays(None, {}) == []
    assert strays(None, {"n": {"NULL": True}}) == []
