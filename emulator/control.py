"""The levers of a world: what AWS does by itself in hours, done at once and on request.

Owns splitting, rolling over, trimming, vanishing, listing lag, expiry and the clock. A table's name
stands for its current stream; an ARN names any stream. Must not know HTTP or faults. Safe for
threads.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from emulator.core import DEFAULT_REGION, World
from emulator.errors import validation
from emulator.shards import Shard


class Control:
    """The levers of one world, in one region."""

    def __init__(self, world: World, region: str = DEFAULT_REGION) -> None:
        self._world = world
        self._region = region

    # Lineage

    def shards(self, stream: str) -> list[Shard]:
        """The shards of a stream that exist, oldest first."""
        with self._world.lock:
            return list(self._world.stream(stream, self._region).shards.values())

    def open_shards(self, stream: str) -> list[Shard]:
        """The shards that take writes now, by key range."""
        with self._world.lock:
            return self._world.stream(stream, self._region).open_shards()

    def shard_of(self, table: str, key: dict[str, Any]) -> Shard:
        """The open shard that a write to this key goes to."""
        with self._world.lock:
            return self._world.shard_of(table, key, self._region)

    def split(self, stream: str, shard_id: str | None = None) -> tuple[Shard, Shard]:
        """Splits an open shard in two, the widest one if none is named."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            return found.split(shard_id or found.widest().shard_id, self._now_s())

    def rollover(self, stream: str, shard_id: str | None = None) -> list[Shard]:
        """Replaces an open shard by one child, or every open shard if none is named."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            ids = [shard_id] if shard_id else [shard.shard_id for shard in found.open_shards()]
            return [found.rollover(name, self._now_s()) for name in ids]

    # Loss

    def trim(self, stream: str, shard_id: str | None = None, count: int | None = None) -> int:
        """Drops the oldest `count` records of a shard or of all, everything if no count; counts."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            shards = [found.shard(shard_id)] if shard_id else list(found.shards.values())
            return sum(
                shard.trim_count(len(shard.records) if count is None else count) for shard in shards
            )

    def vanish(self, stream: str, shard_id: str) -> None:
        """Removes a closed shard, its records and its place in the listing."""
        with self._world.lock:
            self._world.stream(stream, self._region).vanish(shard_id)

    def expire_iterators(self, stream: str | None = None) -> None:
        """Makes every iterator handed out so far an expired one, of one stream or of all."""
        with self._world.lock:
            if stream is not None:
                self._world.stream(stream, self._region).generation += 1
                return
            for found in self._world.streams.values():
                found.generation += 1

    # Listing lag

    def hide(self, stream: str, shard_id: str) -> None:
        """Leaves a shard out of DescribeStream, though it can be read."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            found.hidden.add(found.shard(shard_id).shard_id)

    def show_open(self, stream: str, shard_id: str) -> None:
        """Lists a closed shard without its ending, as a listing that lags does."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            found.shown_open.add(found.shard(shard_id).shard_id)

    def show_all(self, stream: str) -> None:
        """Ends the lag of the listing."""
        with self._world.lock:
            found = self._world.stream(stream, self._region)
            found.hidden.clear()
            found.shown_open.clear()

    # Tables, settings and time

    def expire_ttl(self, table: str) -> int:
        """Deletes the items whose time to live is over, as the TTL service; counts them."""
        return self._world.expire_ttl(table, self._region)

    def configure(self, table: str | None = None, **settings: Any) -> None:
        """Changes stream settings of one table or of all; see `TableSettings`."""
        self._world.configure(table, **settings)

    def advance(self, seconds: float) -> float:
        """Moves the clock forward; returns the new time, in seconds since the epoch."""
        if seconds < 0:
            raise validation("The clock advances; it is not set back by a negative number.")
        self._world.clock.advance(seconds)
        return self._now_s()

    def state(self) -> dict[str, Any]:
        """Tables, streams and shards as they are, for a person to look at."""
        with self._world.lock:
            return {
                "now": self._now_s(),
                "tables": [
                    {
                        "name": table.name,
                        "region": table.region_name,
                        "table_id": table.table_id,
                        "items": len(table.store),
                        "stream": table.stream.identity.arn if table.stream else None,
                        "settings": asdict(self._world.settings_of(table.name)),
                    }
                    for table in self._world.tables()
                ],
                "streams": [
                    {
                        "arn": arn,
                        "enabled": stream.is_enabled,
                        "records": stream.emitted,
                        "shards": [describe_shard(shard) for shard in stream.shards.values()],
                    }
                    for arn, stream in self._world.streams.items()
                ],
            }

    def _now_s(self) -> float:
        return self._world.clock.now_s()


def describe_shard(shard: Shard) -> dict[str, Any]:
    """A shard with what DescribeStream does not tell."""
    return shard.describe() | {
        "Open": shard.is_open,
        "Records": len(shard.records),
        "Trimmed": shard.trimmed,
        "LastSequenceNumber": str(shard.last_sequence),
    }
