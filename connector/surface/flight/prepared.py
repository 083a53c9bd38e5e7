"""Prepared statements: what a client has named, and the parameters it bound last.

Owns the handles. They hold text and values, nothing of DuckDB: each execution is a query of its
own, judged anew. The oldest give way when there are too many.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

MOST_STATEMENTS = 1_000
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """`names` are those of its parameters, `bound` their values as an Arrow stream."""

    sql: str
    names: tuple[str, ...] = ()
    bound: bytes = b""

    @property
    def size(self) -> int:
        return len(self.sql) + len(self.bound)


class PreparedStatements:
    """Thread-safe. A handle is a secret of its client, and dies with the service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[bytes, Prepared] = OrderedDict()

    def add(self, prepared: Prepared) -> bytes:
        """The new handle."""
        handle = secrets.token_bytes(16)
        with self._lock:
            self._held[handle] = prepared
            self._make_room()
        return handle

    def get(self, handle: bytes) -> Prepared | None:
        with self._lock:
            found = self._held.get(handle)
            if found is not None:
                self._held.move_to_end(handle)
            return found

    def bind(self, handle: bytes, bound: bytes) -> bool:
        """Whether the handle is known."""
        with self._lock:
            found = self._held.get(handle)
            if found is not None:
                self._held[handle] = replace(found, bound=bound)
                self._held.move_to_end(handle)
                self._make_room()
            return found is not None

    def remove(self, handle: bytes) -> None:
        with self._lock:
            self._held.pop(handle, None)

    def __len__(self) -> int:
        return len(self._held)

    def _make_room(self) -> None:
        size = sum(prepared.size for prepared in self._held.values())
        while len(self._held) > MOST_STATEMENTS or (size > MOST_BYTES and len(self._held) > 1):
            _, dropped = self._held.popitem(last=False)
            size -= dropped.size
