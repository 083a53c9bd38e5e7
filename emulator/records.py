"""Stream records: built once as bytes, so that a page is a join.

Owns the wire form of a record and what each view type shows. Must not know shards or iterators.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from emulator.clock import epoch_number
from emulator.images import Image


class ViewType(StrEnum):
    """What a stream shows of each change."""

    KEYS_ONLY = "KEYS_ONLY"
    NEW_IMAGE = "NEW_IMAGE"
    OLD_IMAGE = "OLD_IMAGE"
    NEW_AND_OLD_IMAGES = "NEW_AND_OLD_IMAGES"

    @property
    def shows_new(self) -> bool:
        return self in (ViewType.NEW_IMAGE, ViewType.NEW_AND_OLD_IMAGES)

    @property
    def shows_old(self) -> bool:
        return self in (ViewType.OLD_IMAGE, ViewType.NEW_AND_OLD_IMAGES)


TTL_IDENTITY = b',"userIdentity":{"PrincipalId":"dynamodb.amazonaws.com","Type":"Service"}'


# Parts that many records have in common are one object each: they are most of a small record.
_TAILS = {
    (view, is_expiry): b',"StreamViewType":"%b"}%b}'
    % (view.value.encode(), TTL_IDENTITY if is_expiry else b"")
    for view in ViewType
    for is_expiry in (False, True)
}


@lru_cache(maxsize=4096)
def _head(event_name: str, region: str, created_s: int) -> bytes:
    return (
        b'","eventName":"%b","eventVersion":"1.1","eventSource":"aws:dynamodb","awsRegion":"%b",'
        b'"dynamodb":{"ApproximateCreationDateTime":%b,"Keys":'
        % (event_name.encode(), region.encode(), epoch_number(created_s))
    )


@dataclass(frozen=True, slots=True)
class Change:
    """One write to one item; `keys` is the key's encoded JSON, `point` its place in hash space."""

    point: int
    keys: Image
    old: Image | None
    new: Image | None
    is_expiry: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a shard, and the bytes it has on the wire."""

    sequence_number: int
    created_s: float
    parts: tuple[bytes, ...]
    length_bytes: int

    def encoded(self) -> bytes:
        return b"".join(self.parts)

    def to_dict(self) -> dict[str, Any]:
        """The record as boto3's low-level client names its fields, values undecoded."""
        decoded: dict[str, Any] = msgspec.json.decode(self.encoded())
        return decoded


def build_record(
    change: Change,
    view: ViewType,
    *,
    sequence_number: int,
    created_s: float,
    event_id: str,
    region: str,
) -> Record:
    """The record of a change as a stream of this view type shows it."""
    if change.old is None:
        name = "INSERT"
    elif change.new is None:
        name = "REMOVE"
    else:
        name = "MODIFY"
    new = change.new if view.shows_new else None
    old = change.old if view.shows_old else None
    size_bytes = change.keys.size_bytes
    parts: list[bytes] = [
        b'{"eventID":"',
        event_id.encode(),
        _head(name, region, int(created_s)),
        change.keys.raw,
    ]
    if new is not None:
        parts += (b',"NewImage":', new.raw)
        size_bytes += new.size_bytes
    if old is not None:
        parts += (b',"OldImage":', old.raw)
        size_bytes += old.size_bytes
    parts += (
        b',"SequenceNumber":"%d","SizeBytes":%d' % (sequence_number, size_bytes),
        _TAILS[view, change.is_expiry],
    )
    return Record(sequence_number, created_s, tuple(parts), sum(map(len, parts)))
