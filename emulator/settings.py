"""What can be set about a table and its streams, and the defaults that AWS documents.

Must not act on any of it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from emulator.errors import validation

HOUR_S = 3600.0


class LastPage(StrEnum):
    """How a closed shard ends: AWS does it either way."""

    WITH_RECORDS = "with_records"
    """The page that holds the last records has no next iterator."""
    EMPTY = "empty"
    """The last records come with a next iterator; the page after them is empty and has none."""
    MIXED = "mixed"
    """Each shard does one or the other, by its id."""


class NoIterator(StrEnum):
    """How a page says that there is no next iterator."""

    ABSENT = "absent"
    NULL = "null"


@dataclass(frozen=True, slots=True)
class TableSettings:
    """The behaviour of one table and its streams; times in seconds of the emulator's clock."""

    shards: int = 4
    """Shards that a new stream starts with."""
    retention_s: float = 24 * HOUR_S
    iterator_ttl_s: float = 15 * 60.0
    describe_page_size: int = 100
    max_page_records: int = 1000
    max_page_bytes: int = 1024 * 1024
    empty_pages: int = 0
    """Empty pages that an iterator is led through before each page with records."""
    last_page: LastPage = LastPage.WITH_RECORDS
    no_iterator: NoIterator = NoIterator.ABSENT
    rollover_every_s: float = 0.0
    """Each open shard is replaced by one child at this age; 0 is never (AWS: about 4 hours)."""
    split_every_s: float = 0.0
    """The widest open shard is split each time this has passed; 0 is never."""
    stale_reads_s: float = 0.0
    """Scan and GetItem without ConsistentRead see the table as it was so long ago."""

    def __post_init__(self) -> None:
        if self.shards < 1:
            raise validation("A stream needs at least one shard.")
        if not 1 <= self.describe_page_size <= 100:
            raise validation("describe_page_size must be between 1 and 100.")
        if not 1 <= self.max_page_records <= 1000:
            raise validation("max_page_records must be between 1 and 1000.")

    def changed(self, **changes: Any) -> TableSettings:
        """The settings with some replaced; names the known ones when one is not known."""
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise validation(f"No setting {name!r}; there are: {', '.join(known)}.")
        if "last_page" in changes:
            changes["last_page"] = LastPage(changes["last_page"])
        if "no_iterator" in changes:
            changes["no_iterator"] = NoIterator(changes["no_iterator"])
        return replace(self, **changes)
