"""Items as the emulator keeps them: the encoded JSON once, shared by the table and its stream.

Owns the encoded form of an item, its key, and the order of keys. Must not know tables or streams.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from emulator.attributes import Attributes

_ATTRIBUTES = msgspec.json.Decoder(dict[str, dict[str, Any]])

SortKey = tuple[bytes, ...] | tuple[bytes, Any]
"""Where an item stands in a table: the hash of its partition key, then its sort key."""


@dataclass(frozen=True, slots=True)
class Image:
    """One state of one item: its compact JSON, and the size that DynamoDB counts for it."""

    raw: bytes
    size_bytes: int

    def attributes(self) -> Attributes:
        """A fresh copy that the caller may change."""
        return _ATTRIBUTES.decode(self.raw)


def encode_image(attributes: Attributes, size_bytes: int) -> Image:
    """The image of an item that is in normal form already."""
    return Image(msgspec.json.encode(attributes), size_bytes)


def partition_digest(value: dict[str, Any]) -> bytes:
    """Where a partition key in normal form falls: 16 bytes, spread evenly, the same everywhere."""
    ((kind, content),) = value.items()
    return hashlib.md5(f"{kind}:{content}".encode(), usedforsecurity=False).digest()


def range_position(value: dict[str, Any]) -> Any:
    """A sort key in normal form as something that compares as DynamoDB compares it.

    Numbers compare by value, text by its UTF-8 bytes, binary by unsigned bytes.
    """
    ((kind, content),) = value.items()
    if kind == "N":
        return Decimal(content)
    if kind == "B":
        return b64decode(content)
    return content.encode()


def hash_point(digest: bytes) -> int:
    """The 64-bit point of a digest, by which shards and scan segments divide a table."""
    return int.from_bytes(digest[:8], "big")


HASH_SPACE = 1 << 64
