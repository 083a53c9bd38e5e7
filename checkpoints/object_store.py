"""What the segment log needs of a bucket: create-only writes, whole reads, ordered listings.

Owns the ObjectStore protocol and its implementation in memory. The real one is S3, outside of this
package. Must not know what the objects are. Nothing here overwrites or deletes: retention is the
bucket's lifecycle rule.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from typing import Protocol


class PutOutcome(StrEnum):
    """What is known after a create-only write.

    CREATED   the object is there, and it is ours
    EXISTS    an object was there; it may be ours all the same, if an earlier attempt landed
    CONFLICT  another write of this key was in progress (S3's 409): nothing is known
    UNKNOWN   no usable answer: it may be there, not be there, or still arrive
    """

    CREATED = "created"
    EXISTS = "exists"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class ObjectStore(Protocol):
    """One bucket. Thread-safe. Raises StoreError subclasses, never a foreign exception.

    None of the methods retries: a second attempt that is not seen would turn CREATED into EXISTS.
    """

    def put_new(self, key: str, data: bytes) -> PutOutcome:
        """Creates the object if there is none of this key.

        Raises:
            StoreThrottled, StoreDenied, StoreRefused: the object was definitely not written.
        """

    def get(self, key: str) -> bytes | None:
        """The whole object, None if there is none."""

    def list_after(self, prefix: str, start_after: str | None, limit: int) -> list[str]:
        """The first keys after `start_after` that lie directly below `prefix`, in byte order.

        `prefix` ends in '/'; keys with a further '/' are left out. At most `limit`, up to 1,000;
        fewer means that there are no more.
        """


class MemoryObjectStore:
    """Objects in a dict, as strongly consistent as S3."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def put_new(self, key: str, data: bytes) -> PutOutcome:
        with self._lock:
            if key in self._objects:
                return PutOutcome.EXISTS
            self._objects[key] = data
            return PutOutcome.CREATED

    def get(self, key: str) -> bytes | None:
        with self._lock:
            return self._objects.get(key)

    def list_after(self, prefix: str, start_after: str | None, limit: int) -> list[str]:
        with self._lock:
            keys = sorted(
                key
                for key in self._objects
                if key.startswith(prefix)
                and "/" not in key[len(prefix) :]
                and (start_after is None or key > start_after)
            )
        return keys[:limit]

    def expire(self, key: str) -> None:
        """Removes an object, as a lifecycle rule does."""
        with self._lock:
            self._objects.pop(key, None)
