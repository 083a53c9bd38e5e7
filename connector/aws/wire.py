"""From the bytes of an AWS answer to Arrow, without looking inside an image.

Owns the shape of the answers and the one rule that keeps a damaged answer from being taken for an
empty one: a page without its list of records is an error, never an end. Pure: bytes in, values out.
Must not know botocore, HTTP, or what an attribute value means: keys and images leave as the very
text that came, JSON escapes and all.

A page becomes one Arrow table: msgspec walks the body once and notes where each image lies (`Raw`);
the pieces are then joined into one buffer per column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter
from struct import pack
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Raw, Struct

from accelerator.batch import CHANGES, empty_changes
from checkpoints.positions import KeyAttribute
from connector.errors import CorruptPage, ViewTypeUnusable
from connector.source import ListedShard, RecordsPage, ScanPage, StreamPage, TableDescription

TTL_PRINCIPAL: Final = "dynamodb.amazonaws.com"
"""Who deletes an expired item: userIdentity {Type: Service, PrincipalId: this}.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html"""

_OPS: Final = {"INSERT": "insert", "MODIFY": "modify", "REMOVE": "remove"}
_ABSENT: Final = Raw(b"")
_NULL: Final = b"null"
_BRACE: Final = ord("{")
_NO_CHANGES: Final = empty_changes()


class _Identity(Struct, gc=False):
    # Streams answer with capitals, Lambda events and some emulators without.
    PrincipalId: str | None = None
    Type: str | None = None
    principalId: str | None = None
    type: str | None = None

    @property
    def is_ttl(self) -> bool:
        principal = self.PrincipalId or self.principalId
        return (self.Type or self.type) == "Service" and principal == TTL_PRINCIPAL


class _Change(Struct, gc=False):
    SequenceNumber: str
    Keys: Raw
    NewImage: Raw = _ABSENT
    ApproximateCreationDateTime: float | None = None


class _ChangeWithOld(Struct, gc=False):
    SequenceNumber: str
    Keys: Raw
    NewImage: Raw = _ABSENT
    ApproximateCreationDateTime: float | None = None
    OldImage: Raw = _ABSENT


class _Record(Struct, gc=False):
    dynamodb: _Change
    eventName: str
    eventID: str | None = None
    userIdentity: _Identity | None = None


class _RecordWithOld(Struct, gc=False):
    dynamodb: _ChangeWithOld
    eventName: str
    eventID: str | None = None
    userIdentity: _Identity | None = None


class _Records(Struct, gc=False):
    Records: list[_Record]
    NextShardIterator: str | None = None


class _RecordsWithOld(Struct, gc=False):
    Records: list[_RecordWithOld]
    NextShardIterator: str | None = None


class _Capacity(Struct, gc=False):
    CapacityUnits: float | None = None


class _Scan(Struct, gc=False):
    Items: list[Raw]
    Count: int | None = None
    LastEvaluatedKey: Raw = _ABSENT
    ConsumedCapacity: _Capacity | None = None


class _Item(Struct, gc=False):
    Item: Raw = _ABSENT


class _Iterator(Struct, gc=False):
    ShardIterator: str


class _SequenceRange(Struct, gc=False):
    StartingSequenceNumber: str | None = None
    EndingSequenceNumber: str | None = None


class _Shard(Struct, gc=False):
    ShardId: str
    ParentShardId: str | None = None
    SequenceNumberRange: _SequenceRange | None = None


class _Stream(Struct, gc=False):
    StreamArn: str
    StreamStatus: str
    Shards: list[_Shard]
    StreamViewType: str | None = None
    LastEvaluatedShardId: str | None = None


class _DescribedStream(Struct, gc=False):
    StreamDescription: _Stream


class _KeyElement(Struct, gc=False):
    AttributeName: str
    KeyType: str


class _AttributeDefinition(Struct, gc=False):
    AttributeName: str
    AttributeType: str


class _StreamSpecification(Struct, gc=False):
    StreamEnabled: bool = False
    StreamViewType: str | None = None


class _BillingMode(Struct, gc=False):
    BillingMode: str | None = None


class _Throughput(Struct, gc=False):
    ReadCapacityUnits: int | None = None


class _Table(Struct, gc=False):
    TableName: str
    TableArn: str
    TableStatus: str
    KeySchema: list[_KeyElement]
    AttributeDefinitions: list[_AttributeDefinition]
    TableId: str | None = None
    CreationDateTime: float | None = None
    LatestStreamArn: str | None = None
    StreamSpecification: _StreamSpecification | None = None
    ItemCount: int = 0
    TableSizeBytes: int = 0
    BillingModeSummary: _BillingMode | None = None
    ProvisionedThroughput: _Throughput | None = None


class _DescribedTable(Struct, gc=False):
    Table: _Table


class _ListedStream(Struct, gc=False):
    StreamArn: str
    TableName: str | None = None


class _ListedStreams(Struct, gc=False):
    Streams: list[_ListedStream]
    LastEvaluatedStreamArn: str | None = None


_records_decoder: Final = msgspec.json.Decoder(_Records)
_records_with_old_decoder: Final = msgspec.json.Decoder(_RecordsWithOld)
_scan_decoder: Final = msgspec.json.Decoder(_Scan)
_item_decoder: Final = msgspec.json.Decoder(_Item)
_iterator_decoder: Final = msgspec.json.Decoder(_Iterator)
_stream_decoder: Final = msgspec.json.Decoder(_DescribedStream)
_streams_decoder: Final = msgspec.json.Decoder(_ListedStreams)
_table_decoder: Final = msgspec.json.Decoder(_DescribedTable)


def cut_records(body: bytes, shard_id: str, *, at_ms: int, old_images: bool = False) -> RecordsPage:
    """The page a GetRecords body holds, records in arrival order.

    Raises:
        CorruptPage: the body is not one whole page.
        ViewTypeUnusable: a written item comes without its new image.
    """
    decoder = _records_with_old_decoder if old_images else _records_decoder
    page = _whole(decoder, body, "GetRecords")
    records = page.Records
    if records and not _is_compact((records[0].dynamodb.Keys, records[-1].dynamodb.Keys)):
        page = _whole(decoder, msgspec.json.format(body, indent=-1), "GetRecords")
        records = page.Records
    if page.NextShardIterator == "":
        raise CorruptPage("GetRecords answered with an empty NextShardIterator")
    if not records:
        return RecordsPage(_NO_CHANGES, page.NextShardIterator, None, None, 0, at_ms)
    changes = [record.dynamodb for record in records]
    sequence_numbers = _sequence_numbers(changes)
    created, newest_created_ms = _created_ms(changes)
    ops, is_remove = _ops(records)
    count = len(records)
    columns = [
        pa.repeat(pa.scalar(shard_id, pa.string()), count),
        pa.array(sequence_numbers, pa.string()),
        ops,
        created,
        _ttl_deletes(records),
        _objects([change.Keys for change in changes], None, "Keys"),
        _new_images(changes, is_remove, shard_id),
        _old_images(changes) if old_images else pa.nulls(count, pa.string()),
        pa.array([record.eventID for record in records], pa.string()),
    ]
    return RecordsPage(
        pa.Table.from_arrays(columns, schema=CHANGES),
        page.NextShardIterator,
        sequence_numbers[-1],
        newest_created_ms,
        sum(column.nbytes for column in columns),
        at_ms,
    )


def cut_scan(body: bytes, *, at_ms: int, consistent: bool) -> ScanPage:
    """The page a Scan body holds; each item is the image of a row with op `snapshot`.

    Raises:
        CorruptPage: the body is not one whole page.
    """
    page = _whole(_scan_decoder, body, "Scan")
    items = page.Items
    if items and not _is_compact((items[0], items[-1])):
        page = _whole(_scan_decoder, msgspec.json.format(body, indent=-1), "Scan")
        items = page.Items
    count = len(items)
    if page.Count is not None and page.Count != count:
        raise CorruptPage(f"Scan counts {page.Count} items and carries {count}")
    consumed = page.ConsumedCapacity.CapacityUnits if page.ConsumedCapacity else None
    if consumed is None:
        consumed = estimated_rcu(len(body), consistent=consistent)
    last_evaluated_key = _last_evaluated_key(page)
    if not items:
        return ScanPage(_NO_CHANGES, last_evaluated_key, consumed, 0, at_ms)
    columns = _scan_columns(items)
    table = pa.Table.from_arrays(columns, schema=CHANGES)
    nbytes = sum(column.nbytes for column in columns)
    return ScanPage(table, last_evaluated_key, consumed, nbytes, at_ms)


def estimated_rcu(page_bytes: int, *, consistent: bool) -> float:
    """What a page costs where the service does not say: 1 unit per 4 KB, half when not consistent.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    units = float(max(1, -(-page_bytes // 4096)))
    return units if consistent else units / 2


def cut_item(body: bytes) -> str | None:
    """The item of a GetItem body as DynamoDB JSON, None when there is none. Raises CorruptPage."""
    item: Raw = _whole(_item_decoder, body, "GetItem").Item
    if _is_absent(item):
        return None
    return msgspec.json.format(bytes(item), indent=-1).decode()


def cut_iterator(body: bytes) -> str:
    """The iterator of a GetShardIterator body. Raises CorruptPage."""
    iterator: str = _whole(_iterator_decoder, body, "GetShardIterator").ShardIterator
    if not iterator:
        raise CorruptPage("GetShardIterator answered with an empty ShardIterator")
    return iterator


def cut_stream(body: bytes, *, at_ms: int) -> StreamPage:
    """One page of a DescribeStream body. Raises CorruptPage."""
    stream: _Stream = _whole(_stream_decoder, body, "DescribeStream").StreamDescription
    return StreamPage(
        stream.StreamArn,
        stream.StreamStatus,
        stream.StreamViewType,
        tuple(_listed_shard(shard) for shard in stream.Shards),
        stream.LastEvaluatedShardId or None,
        at_ms,
    )


def cut_table(body: bytes, *, at_ms: int) -> TableDescription:
    """The table of a DescribeTable body. Raises CorruptPage.

    An emulator that gives tables no id gets one made of the creation time, so that a table which
    was made again under the same name is still another one.
    """
    table: _Table = _whole(_table_decoder, body, "DescribeTable").Table
    types = {each.AttributeName: each.AttributeType for each in table.AttributeDefinitions}
    missing = [key.AttributeName for key in table.KeySchema if key.AttributeName not in types]
    if missing or not table.KeySchema:
        raise CorruptPage("DescribeTable answered without the types of the key attributes")
    specification = table.StreamSpecification
    return TableDescription(
        table_name=table.TableName,
        table_arn=table.TableArn,
        table_id=table.TableId or f"created:{table.CreationDateTime or 0}",
        table_status=table.TableStatus,
        key_schema=tuple(
            KeyAttribute(key.AttributeName, types[key.AttributeName], key.KeyType)
            for key in table.KeySchema
        ),
        stream_arn=table.LatestStreamArn,
        stream_enabled=specification is not None and specification.StreamEnabled,
        stream_view_type=specification.StreamViewType if specification else None,
        item_count=table.ItemCount,
        table_size_bytes=table.TableSizeBytes,
        billing_mode=table.BillingModeSummary.BillingMode if table.BillingModeSummary else None,
        read_capacity_units=(
            table.ProvisionedThroughput.ReadCapacityUnits if table.ProvisionedThroughput else None
        ),
        at_ms=at_ms,
    )


def cut_streams(body: bytes) -> tuple[tuple[str, ...], str | None]:
    """The stream ARNs of a ListStreams body, and where its next page starts. Raises CorruptPage."""
    page: _ListedStreams = _whole(_streams_decoder, body, "ListStreams")
    return tuple(stream.StreamArn for stream in page.Streams), page.LastEvaluatedStreamArn or None


def _whole(decoder: msgspec.json.Decoder[Any], body: bytes, operation: str) -> Any:
    # msgspec skips over a Raw without checking its UTF-8, and DuckDB refuses a table with one bad
    # byte: without this check one record would poison a whole page.
    try:
        if not body.isascii():
            body.decode()
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptPage(
            f"{operation} answered with {len(body)} bytes that are not a whole page: {error}"
        ) from error


def _is_compact(samples: tuple[Raw, Raw]) -> bool:
    # A serialiser writes whitespace everywhere or nowhere (AWS: nowhere), so the first and the
    # last record speak for the page; looking at every byte would double the cost of the cut.
    return all(len(msgspec.json.format(bytes(raw), indent=-1)) == len(raw) for raw in samples)


def _sequence_numbers(changes: Sequence[_Change | _ChangeWithOld]) -> list[str]:
    numbers = [change.SequenceNumber for change in changes]
    # Of bytes, isdigit takes ASCII digits only, and is several times faster than of text.
    if not ("".join(numbers).encode().isdigit() and all(numbers)):
        raise CorruptPage("a record's SequenceNumber is not a decimal number")
    return numbers


def _created_ms(changes: Sequence[_Change | _ChangeWithOld]) -> tuple[pa.Array, int | None]:
    """The column `created_at`, and its greatest value."""
    seconds = [change.ApproximateCreationDateTime for change in changes]
    # A page spans few distinct seconds, so each is converted once.
    ms: dict[float | None, int | None] = {None: None}
    try:
        ms |= {at: round(at * 1000) for at in set(seconds) if at is not None}
        column = pa.array([ms[at] for at in seconds], pa.int64())
    except (OverflowError, pa.ArrowInvalid) as error:
        raise CorruptPage(f"a record's ApproximateCreationDateTime is no time: {error}") from error
    return column, max((at for at in ms.values() if at is not None), default=None)


def _ops(records: Sequence[_Record | _RecordWithOld]) -> tuple[pa.Array, list[bool] | None]:
    """The column `op`, and per record whether it is a remove; None when none is."""
    names = [record.eventName for record in records]
    distinct = set(names)
    if unknown := distinct - _OPS.keys():
        raise CorruptPage(f"a record's eventName is {min(unknown)!r}, not INSERT, MODIFY or REMOVE")
    if len(distinct) == 1:
        ops = pa.repeat(pa.scalar(_OPS[names[0]], pa.string()), len(names))
    else:
        ops = pa.array([_OPS[name] for name in names], pa.string())
    return ops, [name == "REMOVE" for name in names] if "REMOVE" in distinct else None


def _ttl_deletes(records: Sequence[_Record | _RecordWithOld]) -> pa.Array:
    identities = [record.userIdentity for record in records]
    if identities.count(None) == len(identities):
        return pa.repeat(pa.scalar(False), len(identities))
    return pa.array([identity is not None and identity.is_ttl for identity in identities])


def _new_images(
    changes: Sequence[_Change | _ChangeWithOld], is_remove: list[bool] | None, shard_id: str
) -> pa.Array:
    images = [change.NewImage for change in changes]
    written = images
    if is_remove is not None:
        written = [image for image, gone in zip(images, is_remove, strict=True) if not gone]
    if min(map(len, written), default=9) <= len(_NULL) and any(map(_is_absent, written)):
        raise ViewTypeUnusable(
            f"a record of {shard_id} has no new image: the stream's view type must be NEW_IMAGE "
            "or NEW_AND_OLD_IMAGES"
        )
    return _objects(images, is_remove, "NewImage")


def _old_images(changes: Sequence[Any]) -> pa.Array:
    images = [change.OldImage for change in changes]
    is_null = [_is_absent(image) for image in images]
    return _objects(images, is_null if any(is_null) else None, "OldImage")


def _is_absent(text: Raw) -> bool:
    return len(text) == 0 or bytes(text) == _NULL


def _objects(texts: Sequence[Raw], is_null: list[bool] | None, name: str) -> pa.Array:
    """A string column of JSON objects, made without a Python object for each text."""
    count = len(texts)
    offsets = list(accumulate(map(len, texts), initial=0))
    # The brace past the end lets one pass check how every text begins, the last one too.
    joined = b"".join((*texts, b"{"))
    if set(itemgetter(*offsets)(joined)) != {_BRACE}:
        _check_objects(texts, is_null, name)
    validity = None
    if is_null is not None:
        # The values buffer of a boolean array is laid out like a validity bitmap.
        validity = pa.array([not null for null in is_null], pa.bool_()).buffers()[1]
    buffers = [validity, pa.py_buffer(pack(f"{count + 1}i", *offsets)), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _check_objects(texts: Sequence[Raw], is_null: list[bool] | None, name: str) -> None:
    for text, null in zip(texts, is_null or [False] * len(texts), strict=True):
        if not null and bytes(text)[:1] != b"{":
            raise CorruptPage(f"{name} of a record is not a JSON object")


def _scan_columns(items: Sequence[Raw]) -> list[pa.Array]:
    count = len(items)
    texts = pa.nulls(count, pa.string())
    return [
        texts,
        texts,
        pa.repeat(pa.scalar("snapshot", pa.string()), count),
        pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(False), count),
        texts,
        _objects(items, None, "an item"),
        texts,
        texts,
    ]


def _last_evaluated_key(page: _Scan) -> str | None:
    if _is_absent(page.LastEvaluatedKey):
        return None
    text = bytes(page.LastEvaluatedKey)
    # An empty key would restart the segment at its beginning, for ever.
    if not re.match(rb'\{\s*"', text):
        raise CorruptPage("Scan answered with an empty LastEvaluatedKey")
    return msgspec.json.format(text, indent=-1).decode()


def _listed_shard(shard: _Shard) -> ListedShard:
    numbers = shard.SequenceNumberRange or _SequenceRange()
    return ListedShard(
        shard.ShardId,
        shard.ParentShardId or None,
        numbers.StartingSequenceNumber,
        numbers.EndingSequenceNumber,
    )
