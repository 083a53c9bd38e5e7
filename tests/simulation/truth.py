"""What was written, when, and where in the stream it went: the model that a copy is held against.

Every write that changes an item gives it the next version of the whole world. A key's history is
the list of what it held; a row of the copy stands for one entry of it, its absence for any entry
that is a delete. Knows nothing of the service.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from accelerator import keys
from checkpoints.positions import KeyAttribute
from emulator import World
from emulator.images import Image
from emulator.records import Change, Record
from emulator.streams import Stream
from emulator.tables import Table

TABLE: Final = "items"
VERSION: Final = "v"


class Violation(BaseException):
    """A promise was broken. No handler of the service may swallow it."""


@dataclass(slots=True)
class History:
    """What a key held: versions (None: nothing) and since when, in AWS ms. Begins with nothing."""

    versions: list[int | None] = field(default_factory=lambda: [None])
    since_ms: list[float] = field(default_factory=lambda: [float("-inf")])

    def before(self, at_ms: float) -> int:
        """The index of what it held right before a time."""
        return bisect_left(self.since_ms, at_ms) - 1

    def first_from(self, version: int | None, least: int) -> int | None:
        """The first entry from `least` on that shows this version; None: there is none."""
        for index in range(max(least, 0), len(self.versions)):
            if self.versions[index] == version:
                return index
        return None


@dataclass(frozen=True, slots=True)
class Written:
    """A record of a stream: which entry of which key's history it tells of."""

    sequence_number: int
    created_ms: float
    key: str
    index: int

    @property
    def created_second_ms(self) -> int:
        """As the stream tells it: rounded down to the second."""
        return int(self.created_ms // 1000) * 1000


class Truth:
    """All histories, and the records of every shard of every stream, trimmed ones too."""

    def __init__(self, schema: Sequence[KeyAttribute]) -> None:
        self.schema = tuple(schema)
        self.histories: dict[str, History] = {}
        self.records: dict[str, list[Written]] = {}
        self.parents: dict[str, str | None] = {}
        self.version = 0

    def next_version(self) -> int:
        self.version += 1
        return self.version

    def watch(self, world: World, table: Table) -> None:
        """Sees every write to a table from here on, whichever operation makes it."""
        write: Callable[..., Image | None] = table.write

        def watched(key: Any, attributes: Any, image: Any = None, **options: Any) -> Image | None:
            old = table.store.get(key)
            result = write(key, attributes, image, **options)
            new = table.store.get(key)
            if new is not old and (new is None or old is None or new.raw != old.raw):
                shown = (new or old).attributes() if new or old else {}  # type: ignore[union-attr]
                self._changed(table, shown, new, world.now_s() * 1000)
            return result

        table.write = watched  # type: ignore[method-assign]

    def watch_stream(self, stream: Stream) -> None:
        append: Callable[[Change, float], Record] = stream.append

        def watched(change: Change, now_s: float) -> Record:
            record = append(change, now_s)
            shard = stream.shard_of(change.point)
            key = keys.key_of(json.loads(change.keys.raw), self.schema)
            # The write that this record tells of becomes the next entry.
            index = len(self.histories.setdefault(key, History()).versions)
            written = Written(record.sequence_number, record.created_s * 1000, key, index)
            self.records.setdefault(shard.shard_id, []).append(written)
            return record

        stream.append = watched  # type: ignore[method-assign]

    def emptied(self, at_ms: float) -> None:
        """The table was deleted: every key holds nothing."""
        for history in self.histories.values():
            if history.versions[-1] is not None:
                history.versions.append(None)
                history.since_ms.append(at_ms)

    def _changed(self, table: Table, shown: Any, new: Image | None, at_ms: float) -> None:
        key = keys.key_of({n: shown[n] for n in table.keys.names}, self.schema)
        history = self.histories.setdefault(key, History())
        history.versions.append(None if new is None else int(new.attributes()[VERSION]["N"]))
        history.since_ms.append(at_ms)


@lru_cache(maxsize=65536)
def version_of(image: str) -> int:
    return int(json.loads(image)[VERSION]["N"])


def versions_of(rows: Mapping[str, str]) -> dict[str, int]:
    return {key: version_of(image) for key, image in rows.items()}


class WatchedWorld(World):
    """A world whose streams tell the truth about what was appended to them."""

    truth: Truth | None = None

    def open_stream(self, table: Table, view: str) -> Stream:
        stream = super().open_stream(table, view)
        if self.truth is not None:
            self.truth.watch_stream(stream)
        return stream
