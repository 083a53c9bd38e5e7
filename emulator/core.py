"""The emulated AWS without any socket: tables, streams and their reading as plain Python.

Owns the account, its regions, the registry of streams, and the one lock under which everything
happens: a write and its record are one step, and no two writes to a key can pass each other. A
deterministic simulation drives a `World` on a `ManualClock` and a seed; the HTTP server is another
user of the same object. Must not know HTTP or faults.
"""

from __future__ import annotations

import copy
import random
import re
import threading
import uuid
from dataclasses import dataclass
from typing import Any

from moto.core.exceptions import JsonRESTError

from emulator.backend import Backend
from emulator.clock import Clock, SystemClock, stream_label
from emulator.errors import not_found, validation
from emulator.images import hash_point
from emulator.iterators import parse_iterator
from emulator.records import ViewType
from emulator.settings import TableSettings
from emulator.shards import Shard
from emulator.streams import RecordsPage, Stream, StreamIdentity
from emulator.tables import Table

DEFAULT_ACCOUNT_ID = "123456789012"
DEFAULT_REGION = "us-east-1"

_STREAM_ARN = re.compile(r"arn:[\w-]+:dynamodb:[\w-]+:\d+:table/[\w.-]+/stream/[\w:.-]+")


@dataclass(frozen=True, slots=True)
class ScanPage:
    """One page of a Scan: items in DynamoDB JSON, and the key to go on from."""

    items: list[dict[str, Any]]
    last_evaluated_key: dict[str, Any] | None


class World:
    """One AWS account. The same seed and the same calls give the same ids and numbers."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        seed: int = 0,
        settings: TableSettings | None = None,
        table_settings: dict[str, TableSettings] | None = None,
        account_id: str = DEFAULT_ACCOUNT_ID,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.account_id = account_id
        self.settings = settings or TableSettings()
        self.table_settings = dict(table_settings or {})
        self.streams: dict[str, Stream] = {}
        self._seed = seed
        self._rng = random.Random(seed)
        self._backends: dict[str, Backend] = {}

    # Regions and tables

    def backend(self, region: str = DEFAULT_REGION) -> Backend:
        """DynamoDB of a region, made at its first use."""
        with self.lock:
            backend = self._backends.get(region)
            if backend is None:
                backend = Backend(region, self.account_id, self)
                self._backends[region] = backend
            return backend

    def table(self, name: str, region: str = DEFAULT_REGION) -> Table:
        """A table by name or ARN.

        Raises:
            AwsError: ResourceNotFoundException.
        """
        try:
            return self.backend(region).get_table(name)
        except JsonRESTError as error:
            raise not_found(f"Requested resource not found: Table: {name} not found") from error

    def tables(self) -> list[Table]:
        """The tables of all regions."""
        with self.lock:
            return [
                table for backend in self._backends.values() for table in backend.tables.values()
            ]

    def now_s(self) -> float:
        """The time of the world's clock."""
        return self.clock.now_s()

    def new_table_id(self) -> str:
        """An id that no table has had."""
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def open_stream(self, table: Table, view: str) -> Stream:
        """A new stream for a table, under a label that none has had.

        Raises:
            AwsError: ValidationException for an unknown view type.
        """
        if view not in ViewType.__members__:
            raise validation(
                f"1 validation error detected: Value '{view}' at "
                "'streamSpecification.streamViewType' failed to satisfy constraint: Member must "
                f"satisfy enum value set: [{', '.join(ViewType)}]"
            )
        now_s = self.clock.now_s()
        label_s = now_s
        while f"{table.table_arn}/stream/{stream_label(label_s)}" in self.streams:
            label_s += 0.001
        label = stream_label(label_s)
        identity = StreamIdentity(
            arn=f"{table.table_arn}/stream/{label}",
            label=label,
            table_name=table.name,
            table_id=table.table_id,
            region=table.region_name,
            view=ViewType(view),
            key_schema=tuple(table.schema),
            created_s=now_s,
        )
        stream = Stream(identity, self.settings_of(table.name), self._seed)
        self.streams[identity.arn] = stream
        return stream

    # Streams

    def settings_of(self, table_name: str) -> TableSettings:
        """The settings in force for a table."""
        return self.table_settings.get(table_name, self.settings)

    def configure(self, table_name: str | None = None, **changes: Any) -> None:
        """Changes settings of one table or of all, for those that exist and for later ones.

        `shards` counts for streams that are made from then on.
        """
        with self.lock:
            now_s = self.clock.now_s()
            if table_name is None:
                self.settings = self.settings.changed(**changes)
                for name, kept in self.table_settings.items():
                    self.table_settings[name] = kept.changed(**changes)
            else:
                self.table_settings[table_name] = self.settings_of(table_name).changed(**changes)
            for stream in list(self.streams.values()):
                stream.configure(self.settings_of(stream.identity.table_name), now_s)

    def stream(self, name: str, region: str = DEFAULT_REGION) -> Stream:
        """A stream by its ARN, or the current one of a table by the table's name.

        Raises:
            AwsError: ResourceNotFoundException.
        """
        with self.lock:
            if name.startswith("arn:"):
                return self._by_arn(name)
            current = self.table(name, region).stream
            if current is None:
                raise not_found(f"Requested resource not found: Table {name} has no stream")
            current.tick(self.now_s())
            return current

    def _by_arn(self, arn: str) -> Stream:
        if not _STREAM_ARN.fullmatch(arn):
            raise validation("Invalid StreamArn")
        self._forget_old_streams()
        found = self.streams.get(arn)
        if found is None:
            raise not_found(f"Requested resource not found: Stream: {arn} not found")
        found.tick(self.now_s())
        return found

    def _forget_old_streams(self) -> None:
        now_s = self.clock.now_s()
        gone = [
            arn
            for arn, stream in self.streams.items()
            if stream.disabled_s is not None
            and stream.disabled_s + stream.settings.retention_s < now_s
        ]
        for arn in gone:
            del self.streams[arn]

    def list_streams(
        self,
        *,
        region: str = DEFAULT_REGION,
        table_name: str | None = None,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> dict[str, Any]:
        """The streams of a region by ARN, disabled ones included."""
        with self.lock:
            self._forget_old_streams()
            arns = sorted(
                arn
                for arn, stream in self.streams.items()
                if stream.identity.region == region
                and table_name in (None, stream.identity.table_name)
                and (start_after is None or arn > start_after)
            )
            page = arns[: min(limit or 100, 100)]
            shown: dict[str, Any] = {
                "Streams": [
                    {
                        "StreamArn": arn,
                        "TableName": self.streams[arn].identity.table_name,
                        "StreamLabel": self.streams[arn].identity.label,
                    }
                    for arn in page
                ]
            }
            if len(arns) > len(page):
                shown["LastEvaluatedStreamArn"] = page[-1]
            return shown

    def describe_stream(
        self,
        stream_arn: str,
        *,
        limit: int | None = None,
        start_after: str | None = None,
        children_of: str | None = None,
    ) -> dict[str, Any]:
        """A stream's description with one page of its shards."""
        with self.lock:
            return self._by_arn(stream_arn).describe(
                limit=limit, start_after=start_after, children_of=children_of
            )

    def get_shard_iterator(
        self,
        stream_arn: str,
        shard_id: str,
        kind: str,
        *,
        sequence_number: str | None = None,
        timestamp_s: float | None = None,
    ) -> str:
        """An iterator's token."""
        with self.lock:
            return (
                self._by_arn(stream_arn)
                .iterator(
                    shard_id,
                    kind,
                    self.clock.now_s(),
                    sequence_number=sequence_number,
                    timestamp_s=timestamp_s,
                )
                .token()
            )

    def get_records(self, token: str, limit: int = 1000) -> RecordsPage:
        """The page behind an iterator's token."""
        position = parse_iterator(token)
        with self.lock:
            stream = self._by_arn(position.stream_arn)
            return stream.read(position, limit, self.clock.now_s())

    def shard_of(self, table_name: str, key: dict[str, Any], region: str = DEFAULT_REGION) -> Shard:
        """The open shard that a write to this key goes to."""
        with self.lock:
            place = self.table(table_name, region).keys.place(copy.deepcopy(key))
            return self.stream(table_name, region).shard_of(hash_point(place[0]))

    # Items

    def create_table(
        self,
        name: str,
        keys: str = "pk:S",
        *,
        view: str | None = "NEW_AND_OLD_IMAGES",
        region: str = DEFAULT_REGION,
    ) -> Table:
        """A table from a short form of its key schema: `pk:S` or `pk:S,sk:N`."""
        columns = [column.split(":") for column in keys.split(",")]
        with self.lock:
            return self.backend(region).create_table(
                name,
                schema=[
                    {"AttributeName": column, "KeyType": role}
                    for (column, _), role in zip(columns, ("HASH", "RANGE"), strict=False)
                ],
                attr=[{"AttributeName": column, "AttributeType": kind} for column, kind in columns],
                billing_mode="PAY_PER_REQUEST",
                streams={"StreamEnabled": True, "StreamViewType": view} if view else None,
            )

    def put(self, table_name: str, item: dict[str, Any], region: str = DEFAULT_REGION) -> None:
        """Puts an item in DynamoDB JSON."""
        with self.lock:
            table = self.table(table_name, region)
            copied = copy.deepcopy(item)
            table.write(table.keys.place(copied), copied)

    def delete(self, table_name: str, key: dict[str, Any], region: str = DEFAULT_REGION) -> None:
        """Deletes an item by its key in DynamoDB JSON."""
        with self.lock:
            table = self.table(table_name, region)
            table.write(table.keys.exact_place(copy.deepcopy(key)), None)

    def scan(
        self,
        table_name: str,
        *,
        limit: int | None = None,
        start_after: dict[str, Any] | None = None,
        segment: int = 0,
        total_segments: int = 1,
        region: str = DEFAULT_REGION,
    ) -> ScanPage:
        """One page of a segment, at most 1 MB of it."""
        with self.lock:
            images, last_key = self.table(table_name, region).scan_page(
                limit, copy.deepcopy(start_after), (segment, total_segments)
            )
        return ScanPage([image.attributes() for image in images], last_key)

    def items(self, table_name: str, region: str = DEFAULT_REGION) -> list[dict[str, Any]]:
        """Every item of a table, as it stands now."""
        with self.lock:
            return [image.attributes() for _, image in self.table(table_name, region).store.walk()]

    def expire_ttl(self, table_name: str, region: str = DEFAULT_REGION) -> int:
        """Deletes the items whose TTL attribute is in the past, as the TTL service; counts them."""
        with self.lock:
            table = self.table(table_name, region)
            name = table.ttl.get("AttributeName")
            if name is None or table.ttl.get("TimeToLiveStatus") != "ENABLED":
                raise validation(f"Time to live is not enabled on table {table_name}.")
            now_s = self.clock.now_s()
            expired = [
                key
                for key, image in table.store.walk()
                if _expires_before(image.attributes().get(name), now_s)
            ]
            for key in expired:
                table.write(key, None, is_expiry=True)
            return len(expired)


def _expires_before(value: dict[str, Any] | None, now_s: float) -> bool:
    # DynamoDB ignores a TTL more than five years back, which is taken for a mistake.
    five_years_s = 5 * 365 * 86400.0
    if value is None or "N" not in value:
        return False
    expires_s = float(value["N"])
    return now_s - five_years_s < expires_s < now_s
