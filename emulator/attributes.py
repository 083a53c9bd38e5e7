"""Attribute values on their way in: checked, in normal form, measured.

Owns what a legal AttributeValue is and how many bytes DynamoDB counts for it. Must not know tables,
keys or requests.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from emulator.errors import AwsError, serialization, validation
from emulator.numbers import normal_number

MAX_DEPTH = 32

Attributes = dict[str, dict[str, Any]]
"""An item in DynamoDB JSON: `{"id": {"S": "a"}}`."""

_SET_WORDS = {"SS": "string", "NS": "number", "BS": "binary"}


def normalise_item(item: Attributes) -> int:
    """Puts every value of an item into normal form, in place; returns the item's size in bytes.

    Raises:
        AwsError: ValidationException or SerializationException for an illegal value.
    """
    if not isinstance(item, dict):
        raise serialization("Start of structure or map found where not expected")
    size_bytes = 0
    for name, value in item.items():
        size_bytes += len(name) if name.isascii() else len(name.encode())
        size_bytes += normalise_value(value)
    return size_bytes


def normalise_value(value: dict[str, Any], depth: int = 1) -> int:
    """Puts one value into normal form, in place; returns its size in bytes."""
    kind, content = _single(value)
    if kind == "S":
        if not isinstance(content, str):
            raise _wrong_type("S", content)
        return len(content) if content.isascii() else len(content.encode())
    if kind == "N":
        if not isinstance(content, str):
            raise _wrong_type("N", content)
        normal = normal_number(content)
        value["N"] = normal
        return number_size(normal)
    if kind == "M":
        return _normalise_map(content, depth)
    if kind == "L":
        return _normalise_list(content, depth)
    if kind == "BOOL":
        if not isinstance(content, bool):
            raise _wrong_type("BOOL", content)
        return 1
    if kind == "NULL":
        if content is not True:
            raise validation(
                "One or more parameter values were invalid: Null attribute value types must have "
                "the value of true"
            )
        return 1
    if kind == "B":
        text, size_bytes = normal_binary(content)
        value["B"] = text
        return size_bytes
    return _normalise_set(value, kind, content)


def _single(value: dict[str, Any]) -> tuple[str, Any]:
    if not isinstance(value, dict):
        raise serialization("Unexpected value type in payload")
    if len(value) != 1:
        problem = "has more than one datatypes set" if value else "is empty"
        raise validation(
            f"Supplied AttributeValue {problem}, must contain exactly one of the supported "
            "datatypes"
        )
    return next(iter(value.items()))


def _normalise_map(content: Any, depth: int) -> int:
    if not isinstance(content, dict):
        raise _wrong_type("M", content)
    _check_depth(depth)
    size_bytes = 3
    for name, member in content.items():
        size_bytes += 1 + len(name.encode()) + normalise_value(member, depth + 1)
    return size_bytes


def _normalise_list(content: Any, depth: int) -> int:
    if not isinstance(content, list):
        raise _wrong_type("L", content)
    _check_depth(depth)
    return 3 + sum(1 + normalise_value(member, depth + 1) for member in content)


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise validation(
            "Nesting Levels have exceeded supported limits: Attributes should not be nested "
            f"deeper than {MAX_DEPTH} levels"
        )


def _normalise_set(value: dict[str, Any], kind: str, content: Any) -> int:
    word = _SET_WORDS.get(kind)
    if word is None:
        raise validation(
            "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes"
        )
    if not isinstance(content, list):
        raise _wrong_type(kind, content)
    if not content:
        raise validation(
            f"One or more parameter values were invalid: An {word} set  may not be empty"
        )
    members: list[str] = []
    size_bytes = 0
    for member in content:
        if not isinstance(member, str):
            raise _wrong_type(kind, member)
        normal, member_bytes = _set_member(kind, member)
        members.append(normal)
        size_bytes += member_bytes
    if len(set(members)) != len(members):
        raise validation(
            "One or more parameter values were invalid: Input collection "
            f"[{', '.join(content)}] contains duplicates."
        )
    value[kind] = members
    return size_bytes


def _set_member(kind: str, member: str) -> tuple[str, int]:
    if kind == "NS":
        normal = normal_number(member)
        return normal, number_size(normal)
    if kind == "BS":
        return normal_binary(member)
    return member, len(member.encode())


def normal_binary(content: Any) -> tuple[str, int]:
    """A base64 text in its canonical form, and the number of bytes it stands for."""
    if isinstance(content, str):
        try:
            raw = binascii.a2b_base64(content, strict_mode=True)
        except (binascii.Error, ValueError) as error:
            raise serialization("Invalid base64 in a binary value") from error
        return base64.b64encode(raw).decode("ascii"), len(raw)
    raise _wrong_type("B", content)


def number_size(normal: str) -> int:
    """What DynamoDB counts for a number: a byte per two significant digits, and one."""
    digits = normal.lstrip("-").replace(".", "").strip("0")
    return 1 + (len(digits) + 1) // 2


def same_attributes(left: Attributes, right: Attributes) -> bool:
    """Whether two items in normal form hold equal values; sets and maps have no order."""
    return left.keys() == right.keys() and all(
        _same(value, right[name]) for name, value in left.items()
    )


def _same(left: dict[str, Any], right: dict[str, Any]) -> bool:
    if left == right:
        return True
    (kind, content), (other_kind, other) = next(iter(left.items())), next(iter(right.items()))
    if kind != other_kind:
        return False
    if kind in _SET_WORDS:
        return sorted(content) == sorted(other)
    if kind == "M":
        return same_attributes(content, other)
    if kind == "L":
        return len(content) == len(other) and all(map(_same, content, other))
    return False


def _wrong_type(kind: str, content: Any) -> AwsError:
    found = {bool: "TRUE_VALUE", int: "NUMBER_VALUE", float: "NUMBER_VALUE", str: "STRING_VALUE"}
    word = found.get(type(content), "Unexpected value")
    target = {"S": "String", "N": "String", "BOOL": "Boolean"}.get(kind, kind)
    return serialization(f"{word} cannot be converted to {target}")
