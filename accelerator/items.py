"""One item read in Python: the exact, slow way for what the SQL path cannot take as it stands.

Owns the check that a text is a DynamoDB item and its rewriting into the form that SQL decodes:
compact, numbers in normal form, base64 canonical. Every rule of refusal is here. Knows no columns.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

import msgspec

from accelerator.choice import PATH
from accelerator.numerals import json_number, normal_form, shape
from accelerator.schema import Seen

Attribute = dict[str, Any]

# DynamoDB nests 32 levels; far above it only Python's stack is at risk.
_MAX_DEPTH = 200
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class Unreadable(ValueError):
    """The text is no DynamoDB item; the message says why and where."""


def read(text: str) -> dict[str, Attribute]:
    """Attribute name to its tagged value, in canonical form.

    Raises:
        Unreadable: bad JSON, an unknown type tag, a number or base64 text that is none.
    """
    try:
        item = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable(f"bad JSON: {error}") from error
    if not isinstance(item, dict):
        raise Unreadable("an item is a JSON object")
    return {name: _canonical(value, name, 0) for name, value in item.items()}


def read_value(text: str) -> Attribute:
    """One tagged value in canonical form. Raises Unreadable."""
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Unreadable(f"bad JSON: {error}") from error
    return _canonical(value, "value", 0)


def write(item: dict[str, Attribute]) -> str:
    """Compact DynamoDB JSON."""
    return _encode(item).decode()


def plain_json(value: Attribute) -> str:
    """The value without type tags, as JSON text; numbers by the rule of `numerals.json_number`."""
    return _encode(_plain(value)).decode()


def observe(seen: dict[str, Seen], attribute: str, value: Attribute) -> None:
    """Adds a canonical value to what was seen of its attribute."""
    what = seen.get(attribute)
    if what is None:
        what = seen[attribute] = Seen()
    tag, content = _only(value)
    what.add_tag(tag)
    if tag == "N":
        _observe_number(what, content)
    elif tag == "NS":
        for number in content:
            _observe_number(what, number)


def _observe_number(seen: Seen, number: str) -> None:
    integer_digits, scale, fits_int64 = shape(number)
    seen.integer_digits = max(seen.integer_digits, integer_digits)
    seen.scale = max(seen.scale, scale)
    seen.fits_int64 = seen.fits_int64 and (fits_int64 or scale > 0)


def _only(value: Attribute) -> tuple[str, Any]:
    return next(iter(value.items()))


def _canonical(value: object, where: str, depth: int) -> Attribute:
    if not isinstance(value, dict) or len(value) != 1:
        raise Unreadable(f"{where[:80]!r} is not one typed value")
    if depth > _MAX_DEPTH:
        raise Unreadable(f"{where[:80]!r} is nested too deep")
    tag, content = _only(value)
    if tag == "M" and isinstance(content, dict):
        return {tag: {name: _canonical(v, name, depth + 1) for name, v in content.items()}}
    if tag == "L" and isinstance(content, list):
        return {tag: [_canonical(v, where, depth + 1) for v in content]}
    reader = _SCALARS.get(tag)
    if reader is None:
        raise Unreadable(f"{where[:80]!r} has the unknown type {tag[:20]!r}")
    try:
        return {tag: reader(content)}
    except (ValueError, TypeError) as error:
        raise Unreadable(f"{where[:80]!r} of type {tag}: {error}") from error


def _text(content: object) -> str:
    if not isinstance(content, str):
        raise TypeError("not a string")
    return content


def _number(content: object) -> str:
    return normal_form(_text(content))


def _binary(content: object) -> str:
    try:
        return base64.b64encode(base64.b64decode(_text(content), validate=True)).decode()
    except binascii.Error as error:
        raise ValueError(f"bad base64: {error}") from error


def _boolean(content: object) -> bool:
    if not isinstance(content, bool):
        raise TypeError("not a boolean")
    return content


def _null(content: object) -> bool:
    if content is not True:
        raise TypeError("NULL is always true")
    return True


def _set_of(element: Callable[[object], str]) -> Callable[[object], list[str]]:
    def read_set(content: object) -> list[str]:
        if not isinstance(content, list):
            raise TypeError("not a list")
        return [element(each) for each in content]

    return read_set


_SCALARS: dict[str, Callable[[object], Any]] = {
    "S": _text,
    "N": _number,
    "B": _binary,
    "BOOL": _boolean,
    "NULL": _null,
    "SS": _set_of(_text),
    "NS": _set_of(_number),
    "BS": _set_of(_binary),
}


def _plain(value: Attribute) -> Any:
    tag, content = _only(value)
    match tag:
        case "M":
            return {name: _plain(each) for name, each in content.items()}
        case "L":
            return [_plain(each) for each in content]
        case "N":
            return msgspec.Raw(json_number(content).encode())
        case "NS":
            return [msgspec.Raw(json_number(each).encode()) for each in content]
        case "NULL":
            return None
        case _:
            return content


def count_numbers_as_text(value: Attribute) -> int:
    """How many numbers in it `plain_json` writes as strings."""
    tag, content = _only(value)
    match tag:
        case "M":
            return sum(map(count_numbers_as_text, content.values()))
        case "L":
            return sum(map(count_numbers_as_text, content))
        case "N":
            return int(json_number(content) != content)
        case "NS":
            return sum(json_number(each) != each for each in content)
        case _:
            return 0


def plain_object(item: dict[str, Attribute]) -> str:
    """Several attributes as one plain JSON object."""
    return _encode({name: _plain(value) for name, value in item.items()}).decode()


def refuse_paths(item: dict[str, Attribute]) -> None:
    """Raises Unreadable for a name that holds what joins the paths of unnested maps."""
    for name, value in item.items():
        if PATH in name:
            raise Unreadable(
                f"the attribute {name!r} has the character U+001F in its name, which unnest_depth "
                "keeps for itself"
            )
        if "M" in value:
            refuse_paths(value["M"])


def unnested(item: dict[str, Attribute], depth: int) -> dict[str, Attribute]:
    """The item with its maps, down to `depth`, replaced by their members under paths.

    An empty map stays as it is.
    """
    if depth == 0:
        return item
    flat: dict[str, Attribute] = {}
    for name, value in item.items():
        members = value.get("M")
        if not members:
            flat[name] = value
            continue
        for inner, content in unnested(members, depth - 1).items():
            flat[f"{name}{PATH}{inner}"] = content
    return flat
