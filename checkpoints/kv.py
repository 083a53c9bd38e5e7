"""The few item operations that leases, membership and offset rows need of a table.

Owns the ItemStore protocol and its implementation in memory. The real one is DynamoDB, outside of
this package. Must not know what the items mean. Every read is strongly consistent; every write is
conditional on exact values, so that two writers cannot both believe they won. There is no scan.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final, Protocol

Scalar = str | int | bool
Item = Mapping[str, Scalar]
"""The attributes of an item without its key."""

Expected = Mapping[str, Scalar]
"""Attribute values that must hold; `ABSENT` asks that there is no such item at all."""

ABSENT: Final[Expected] = {}


class ItemStore(Protocol):
    """A table with a text partition key and a text sort key. Thread-safe.

    Every method raises StoreError subclasses, never a foreign exception. After StoreUnavailable a
    write may have happened: read again before believing either. None of them retries.
    """

    def get(self, pk: str, sk: str) -> Item | None:
        """The item as of now, None if there is none."""

    def put(self, pk: str, sk: str, item: Item, expected: Expected) -> bool:
        """Replaces the whole item; False, and nothing changed, when it is not as expected."""

    def update(
        self,
        pk: str,
        sk: str,
        changes: Item,
        expected: Expected,
        *,
        increment: str | None = None,
    ) -> Item | None:
        """Sets some attributes and adds 1 to one; the new item, or None when not as expected.

        `expected` is not ABSENT: an update never creates an item.
        """

    def delete(self, pk: str, sk: str, expected: Expected) -> bool:
        """Deletes the item; False, and nothing changed, when it is not as expected."""

    def query(self, pk: str, sk_prefix: str) -> list[tuple[str, Item]]:
        """All items of one partition whose sort key begins so, by sort key."""


class MemoryItemStore:
    """Items in a dict: for tests, and the model that the real store is compared with."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], dict[str, Scalar]] = {}
        self._lock = threading.Lock()

    def get(self, pk: str, sk: str) -> Item | None:
        with self._lock:
            found = self._items.get((pk, sk))
            return None if found is None else dict(found)

    def put(self, pk: str, sk: str, item: Item, expected: Expected) -> bool:
        with self._lock:
            if not self._holds(pk, sk, expected):
                return False
            self._items[pk, sk] = dict(item)
            return True

    def update(
        self,
        pk: str,
        sk: str,
        changes: Item,
        expected: Expected,
        *,
        increment: str | None = None,
    ) -> Item | None:
        if not expected:
            raise ValueError("an update needs values to expect")
        with self._lock:
            if not self._holds(pk, sk, expected):
                return None
            item = self._items[pk, sk]
            item.update(changes)
            if increment is not None:
                item[increment] = int(item.get(increment, 0)) + 1
            return dict(item)

    def delete(self, pk: str, sk: str, expected: Expected) -> bool:
        if not expected:
            raise ValueError("a delete needs values to expect")
        with self._lock:
            if not self._holds(pk, sk, expected):
                return False
            del self._items[pk, sk]
            return True

    def query(self, pk: str, sk_prefix: str) -> list[tuple[str, Item]]:
        with self._lock:
            return [
                (sk, dict(item))
                for (item_pk, sk), item in sorted(self._items.items())
                if item_pk == pk and sk.startswith(sk_prefix)
            ]

    def _holds(self, pk: str, sk: str, expected: Expected) -> bool:
        item = self._items.get((pk, sk))
        if not expected:
            return item is None
        return item is not None and all(
            name in item and _same(item[name], value) for name, value in expected.items()
        )


def _same(one: Scalar, other: Scalar) -> bool:
    # In Python True == 1; in DynamoDB a boolean and a number are never equal.
    return type(one) is type(other) and one == other
