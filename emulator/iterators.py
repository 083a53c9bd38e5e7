"""Shard iterators: a position and its age in an opaque token.

Owns the token's form. Must not know whether the position still exists.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from dataclasses import dataclass

from emulator.errors import validation


@dataclass(frozen=True, slots=True)
class ShardIterator:
    """A place in a shard: the index of the next record, and how many empty pages came since."""

    stream_arn: str
    shard_id: str
    index: int
    issued_s: float
    generation: int
    empty_pages: int = 0

    def token(self) -> str:
        """The iterator as the API hands it out: `ARN|1|base64`."""
        payload = (
            f"{self.shard_id}|{self.index}|{self.issued_s!r}|{self.generation}|{self.empty_pages}"
        ).encode()
        check = zlib.crc32(payload).to_bytes(4, "big")
        return f"{self.stream_arn}|1|{base64.b64encode(check + payload).decode('ascii')}"


def parse_iterator(token: str) -> ShardIterator:
    """The iterator behind a token.

    Raises:
        AwsError: ValidationException for a token that this emulator did not hand out.
    """
    try:
        arn, _, encoded = token.split("|")
        raw = base64.b64decode(encoded, validate=True)
        check, payload = raw[:4], raw[4:]
        if zlib.crc32(payload).to_bytes(4, "big") != check:
            raise ValueError("checksum")
        shard_id, index, issued_s, generation, empty_pages = payload.decode().split("|")
        return ShardIterator(
            arn, shard_id, int(index), float(issued_s), int(generation), int(empty_pages)
        )
    except (ValueError, binascii.Error) as error:
        raise validation("Invalid ShardIterator") from error
