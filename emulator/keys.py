"""The key of a table: which attributes it is, and the place of an item by them.

Owns the checks of key values and their limits. Must not know storage or requests.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emulator.attributes import Attributes, normalise_value
from emulator.errors import validation
from emulator.images import partition_digest, range_position
from emulator.storage import ItemKey

MAX_HASH_KEY_BYTES = 2048
MAX_RANGE_KEY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class KeySchema:
    """The names and types of a table's key attributes."""

    hash_name: str
    hash_kind: str
    range_name: str | None = None
    range_kind: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.hash_name,) if self.range_name is None else (self.hash_name, self.range_name)

    def of(self, attributes: Attributes) -> Attributes:
        """The key attributes alone."""
        return {name: attributes[name] for name in self.names}

    def place(self, attributes: Attributes) -> ItemKey:
        """The place of an item by its attributes; puts the key values into normal form.

        Raises:
            AwsError: ValidationException when a key value is missing, empty or of another type.
        """
        value, size_bytes = _key_value(attributes, self.hash_name, self.hash_kind)
        if size_bytes > MAX_HASH_KEY_BYTES:
            raise validation(
                "One or more parameter values were invalid: Size of hashkey has exceeded the "
                f"maximum size limit of{MAX_HASH_KEY_BYTES} bytes"
            )
        if self.range_name is None or self.range_kind is None:
            return (partition_digest(value),)
        range_value, size_bytes = _key_value(attributes, self.range_name, self.range_kind)
        if size_bytes > MAX_RANGE_KEY_BYTES:
            raise validation(
                "One or more parameter values were invalid: Aggregated size of all range keys has "
                f"exceeded the size limit of {MAX_RANGE_KEY_BYTES} bytes"
            )
        return partition_digest(value), range_position(range_value)

    def exact_place(self, attributes: Attributes) -> ItemKey:
        """The place that a `Key` parameter names: the key attributes, and nothing else."""
        if attributes.keys() != set(self.names):
            raise validation("The provided key element does not match the schema")
        for name, kind in ((self.hash_name, self.hash_kind), (self.range_name, self.range_kind)):
            if name is not None and next(iter(attributes[name]), None) != kind:
                raise validation("The provided key element does not match the schema")
        return self.place(attributes)


def _key_value(attributes: Attributes, name: str, kind: str) -> tuple[dict[str, Any], int]:
    value = attributes.get(name)
    if value is None:
        raise validation(
            f"One or more parameter values were invalid: Missing the key {name} in the item"
        )
    size_bytes = normalise_value(value)
    actual = next(iter(value))
    if actual != kind:
        raise validation(
            f"One or more parameter values were invalid: Type mismatch for key {name} "
            f"expected: {kind} actual: {actual}"
        )
    if not value[kind]:
        word = "binary" if kind == "B" else "string"
        raise validation(
            "One or more parameter values are not valid. The AttributeValue for a key attribute "
            f"cannot contain an empty {word} value. Key: {name}"
        )
    return value, size_bytes
