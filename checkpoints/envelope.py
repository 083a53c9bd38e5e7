"""The bytes of an offset row and of a checkpoint row, and how two offsets become one.

Owns two byte formats that other programs write too, so they are fixed for good: 24 bytes for an
offset, and the layout of Rust's bincode 1 for a checkpoint envelope. Must not know where they are
kept. A value of another version, kind or length is refused: to guess at a position loses changes.

Stream sequence numbers have up to 40 digits and do not fit an offset's 64 bits: an offset counts
records and says that a shard or scan segment is finished, the position itself is in the envelope.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from checkpoints.errors import RowCorrupt

_OFFSET: Final = struct.Struct("<QQQ")
_ENVELOPE_HEAD: Final = struct.Struct("<IIIQ")
_MAX_U64: Final = 2**64 - 1

PAYLOAD_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """How far a partition got. `filesize` is a file source's and 0 here; `line` counts records."""

    filesize: int = 0
    line: int = 0
    is_closed: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.filesize <= _MAX_U64 and 0 <= self.line <= _MAX_U64):
            raise ValueError("an offset's numbers have 64 bits")

    def encode(self) -> bytes:
        return _OFFSET.pack(self.filesize, self.line, int(self.is_closed))

    @classmethod
    def decode(cls, data: bytes) -> OffsetValue:
        """Raises RowCorrupt on anything but 24 bytes that end in 0 or 1."""
        if len(data) != _OFFSET.size:
            raise RowCorrupt(f"An offset has {_OFFSET.size} bytes, this one {len(data)}.")
        filesize, line, closed = _OFFSET.unpack(data)
        if closed not in (0, 1):
            raise RowCorrupt(f"An offset is open (0) or closed (1), this one says {closed}.")
        return cls(filesize, line, closed == 1)


def merge_offsets(one: OffsetValue, other: OffsetValue) -> OffsetValue:
    """The least offset that is not behind either: closed stays closed, numbers never fall.

    Commutative, associative, idempotent.
    """
    return OffsetValue(
        max(one.filesize, other.filesize),
        max(one.line, other.line),
        one.is_closed or other.is_closed,
    )


class Authority(IntEnum):
    """Whether the payload may decide where reading goes on."""

    WAL_OWNERSHIP = 0
    ADVISORY_HINT = 1


class EnvelopeKind(IntEnum):
    SOURCE_RESUME = 0
    BOOTSTRAP_PROGRESS = 1
    BOOTSTRAP_ANCHOR = 2
    ADVISORY_PROGRESS = 3


@dataclass(frozen=True, slots=True)
class CheckpointEnvelope:
    """A payload with what it is for. The payload is opaque here."""

    authority: Authority
    kind: EnvelopeKind
    payload: bytes
    payload_version: int = PAYLOAD_VERSION

    def encode(self) -> bytes:
        head = _ENVELOPE_HEAD.pack(
            self.authority, self.kind, self.payload_version, len(self.payload)
        )
        return head + self.payload

    @classmethod
    def decode(cls, data: bytes) -> CheckpointEnvelope:
        """Raises RowCorrupt on an unknown authority, kind or version, and on any other length."""
        if len(data) < _ENVELOPE_HEAD.size:
            raise RowCorrupt(f"A checkpoint envelope of {len(data)} bytes is cut short.")
        authority, kind, version, length = _ENVELOPE_HEAD.unpack_from(data)
        if version != PAYLOAD_VERSION:
            raise RowCorrupt(
                f"The checkpoint's payload has version {version}; this program reads version "
                f"{PAYLOAD_VERSION}.",
                hint="Run the version of dynaduck that wrote it, or a newer one.",
            )
        payload = data[_ENVELOPE_HEAD.size :]
        if len(payload) != length:
            raise RowCorrupt(f"The envelope announces {length} bytes and holds {len(payload)}.")
        try:
            return cls(Authority(authority), EnvelopeKind(kind), payload, version)
        except ValueError as error:
            raise RowCorrupt(f"The checkpoint envelope is of an unknown kind: {error}.") from error
