"""Offset and checkpoint rows: an index of what is committed, for those who do not read the log.

Owns the row's attributes, the fence (wal_epoch, wal_commit_index, payload_sha256) and the
conditional write against it. Must not know the log or what the payloads say. A row proves nothing:
deleting any of them loses nothing, and `updated_at` is written for people and never read.

A row with a younger (epoch, index) stays as it is. With the same one it must hold the same bytes.
With an older one it is replaced: offsets by their merge, whose hash is the row's, checkpoints by
the new envelope.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from checkpoints.commit import Committed
from checkpoints.envelope import CheckpointEnvelope, OffsetValue, merge_offsets
from checkpoints.errors import RowCorrupt, StoreThrottled
from checkpoints.keys import (
    CHECKPOINT_PREFIX,
    OFFSET_PREFIX,
    CheckpointKey,
    OffsetKey,
    PipelineKey,
)
from checkpoints.kv import ABSENT, Item, ItemStore

Stamp = Callable[[], str]

# Only a writer that is about to be fenced competes for a row, so a handful of turns is plenty.
MAX_TURNS: Final = 8


def utc_stamp() -> str:
    """The host's time of day, which decides nothing."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Published(StrEnum):
    """WRITTEN, SAME (it was there already), or SUPERSEDED (a younger commit's row stands)."""

    WRITTEN = "written"
    SAME = "same"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class Row:
    """A row as stored, checked against its own hash."""

    payload: bytes
    committed: Committed
    payload_sha256: str


@dataclass(frozen=True, slots=True)
class Index:
    """All rows of a pipeline, decoded. `newest` is the youngest commit that a row read shows."""

    offsets: Mapping[OffsetKey, OffsetValue]
    checkpoints: Mapping[CheckpointKey, CheckpointEnvelope]
    newest: Committed | None = field(default=None, compare=False)


Merge = Callable[[bytes, bytes], bytes]
"""(what is stored, what is new) to what is written."""


class OffsetStore:
    """The rows of one pipeline. Thread-safe if its items are."""

    def __init__(
        self, items: ItemStore, pipeline: PipelineKey, *, stamp: Stamp = utc_stamp
    ) -> None:
        self._items = items
        self._pk = pipeline.pk
        self._stamp = stamp

    def publish_offset(self, committed: Committed, key: OffsetKey, value: OffsetValue) -> Published:
        """Merges an offset into its row.

        Raises:
            RowCorrupt: the row holds other bytes under the same commit, or is no row.
            StoreError: it may be written or not; publishing again is safe.
        """
        return self._publish(committed, key.sk, value.encode(), _merge_offset_bytes)

    def publish_checkpoint(
        self, committed: Committed, key: CheckpointKey, envelope: CheckpointEnvelope
    ) -> Published:
        """Replaces a checkpoint's row. Raises as `publish_offset` does."""
        return self._publish(committed, key.sk, envelope.encode(), _replace_bytes)

    def publish(self, committed: Committed, index: Index) -> dict[str, Published]:
        """Publishes every row of an index; the outcome by sort key. Raises as `publish_offset`.

        With the whole index of a fence segment this is the reconciliation of a promotion: from
        then on the rows refuse every older epoch.
        """
        outcomes: dict[str, Published] = {}
        for offset_key, value in index.offsets.items():
            outcomes[offset_key.sk] = self.publish_offset(committed, offset_key, value)
        for checkpoint_key, envelope in index.checkpoints.items():
            outcomes[checkpoint_key.sk] = self.publish_checkpoint(
                committed, checkpoint_key, envelope
            )
        return outcomes

    def offset(self, key: OffsetKey) -> OffsetValue | None:
        """Raises RowCorrupt, StoreError."""
        row = self.row(key.sk)
        return None if row is None else OffsetValue.decode(row.payload)

    def checkpoint(self, key: CheckpointKey) -> CheckpointEnvelope | None:
        """Raises RowCorrupt, StoreError."""
        row = self.row(key.sk)
        return None if row is None else CheckpointEnvelope.decode(row.payload)

    def row(self, sk: str) -> Row | None:
        """A row with its fence. Raises RowCorrupt, StoreError."""
        item = self._items.get(self._pk, sk)
        return None if item is None else _row_of(sk, item)

    def index(self) -> Index:
        """All rows of the pipeline, by Query. Raises RowCorrupt, StoreError."""
        offsets, checkpoints = self._rows(OFFSET_PREFIX), self._rows(CHECKPOINT_PREFIX)
        return Index(
            {OffsetKey.of_sk(sk): OffsetValue.decode(row.payload) for sk, row in offsets.items()},
            {
                CheckpointKey.of_sk(sk): CheckpointEnvelope.decode(row.payload)
                for sk, row in checkpoints.items()
            },
            max((row.committed for row in (offsets | checkpoints).values()), default=None),
        )

    def _rows(self, prefix: str) -> dict[str, Row]:
        return {sk: _row_of(sk, item) for sk, item in self._items.query(self._pk, prefix)}

    def _publish(self, committed: Committed, sk: str, payload: bytes, merge: Merge) -> Published:
        for _ in range(MAX_TURNS):
            prior = self.row(sk)
            if prior is None:
                item = self._item_of(committed, payload)
                if self._items.put(self._pk, sk, item, ABSENT):
                    return Published.WRITTEN
                continue
            if prior.committed > committed:
                return Published.SUPERSEDED
            merged = merge(prior.payload, payload)
            if prior.committed == committed:
                if _sha256(merged) != prior.payload_sha256:
                    raise RowCorrupt(
                        f"The row {sk} holds other bytes than this commit gives it "
                        f"(epoch {committed.epoch}, index {committed.index})."
                    )
                return Published.SAME
            if self._items.put(self._pk, sk, self._item_of(committed, merged), _fence_of(prior)):
                return Published.WRITTEN
        raise StoreThrottled(f"The row {sk} changed {MAX_TURNS} times while it was written.")

    def _item_of(self, committed: Committed, payload: bytes) -> Item:
        return {
            "payload_b64": b64encode(payload).decode("ascii"),
            "wal_epoch": committed.epoch,
            "wal_commit_index": committed.index,
            "payload_sha256": _sha256(payload),
            "updated_at": self._stamp(),
        }


def _fence_of(row: Row) -> Item:
    return {
        "wal_epoch": row.committed.epoch,
        "wal_commit_index": row.committed.index,
        "payload_sha256": row.payload_sha256,
    }


def _row_of(sk: str, item: Item) -> Row:
    text, sha256 = item.get("payload_b64"), item.get("payload_sha256")
    epoch, index = item.get("wal_epoch"), item.get("wal_commit_index")
    if (
        not isinstance(text, str)
        or not isinstance(sha256, str)
        or type(epoch) is not int
        or type(index) is not int
    ):
        raise RowCorrupt(f"The row {sk} lacks an attribute, or has one of another type.")
    try:
        payload = b64decode(text, validate=True)
    except Base64Error as error:
        raise RowCorrupt(f"The payload of row {sk} is not Base64.") from error
    if _sha256(payload) != sha256:
        raise RowCorrupt(f"The payload of row {sk} does not have the hash that stands beside it.")
    return Row(payload, Committed(epoch, index), sha256)


def _merge_offset_bytes(prior: bytes, new: bytes) -> bytes:
    return merge_offsets(OffsetValue.decode(prior), OffsetValue.decode(new)).encode()


def _replace_bytes(_prior: bytes, new: bytes) -> bytes:
    return new


def _sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()
