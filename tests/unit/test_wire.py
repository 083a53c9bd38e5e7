"""The cut of a page: what is kept, and that a damaged page is never an empty one."""

from __future__ import annotations

import gzip
import json

import msgspec
import pytest

from accelerator.batch import CHANGES
from connector.aws.wire import (
    cut_item,
    cut_iterator,
    cut_records,
    cut_scan,
    cut_stream,
    cut_streams,
    cut_table,
)
from connector.errors import CorruptPage, ViewTypeUnusable
from tests.unit.wire_bodies import compact, record, records_body, scan_body, text_of

A = {"pk": {"S": "a"}, "v": {"N": "1"}}
B = {"pk": {"S": "a"}, "v": {"N": "2"}}
TTL = {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"}


def test_a_record_becomes_a_row_with_its_json_as_it_came() -> None:
    """Each column of CHANGES has its place in the record; images are the text of the wire."""
    body = records_body(
        record("INSERT", number=10**20, new=A),
        record("MODIFY", number=10**20 + 7, new=B, old=A, created=1_700_000_001.0),
        record("REMOVE", number=10**39, old=B, created=None),
    )

    page = cut_records(body, "shard-1", at_ms=77, old_images=True)

    assert page.changes.schema == CHANGES
    page.changes.validate(full=True)
    assert page.changes.to_pylist() == [
        {
            "shard_id": "shard-1",
            "sequence_number": str(10**20),
            "op": "insert",
            "created_at": 1_700_000_000_000,
            "ttl_delete": False,
            "keys": '{"pk":{"S":"a"}}',
            "image": text_of(A),
            "old_image": None,
            "event_id": f"id-{10**20}",
        },
        {
            "shard_id": "shard-1",
            "sequence_number": str(10**20 + 7),
            "op": "modify",
            "created_at": 1_700_000_001_000,
            "ttl_delete": False,
            "keys": '{"pk":{"S":"a"}}',
            "image": text_of(B),
            "old_image": text_of(A),
            "event_id": f"id-{10**20 + 7}",
        },
        {
            "shard_id": "shard-1",
            "sequence_number": str(10**39),
            "op": "remove",
            "created_at": None,
            "ttl_delete": False,
            "keys": '{"pk":{"S":"a"}}',
            "image": None,
            "old_image": text_of(B),
            "event_id": f"id-{10**39}",
        },
    ]
    assert page.next_iterator == "next"
    assert page.last_sequence_number == str(10**39)
    assert page.newest_created_ms == 1_700_000_001_000
    assert page.nbytes == page.changes.nbytes > 0
    assert page.at_ms == 77


def test_old_images_are_read_only_when_asked_for() -> None:
    """A replica without a history does not pay for old images."""
    page = cut_records(records_body(record("MODIFY", new=B, old=A)), "s", at_ms=0)

    assert page.changes["old_image"].to_pylist() == [None]


@pytest.mark.parametrize("following", [None, "next"])
def test_records_of_a_page_are_kept_whether_or_not_it_is_the_last(following: str | None) -> None:
    """A page without a next iterator closes the shard and still carries its records."""
    page = cut_records(records_body(record(new=A), following=following), "s", at_ms=0)

    assert page.changes.num_rows == 1
    assert page.next_iterator == following


def test_a_null_next_iterator_is_an_absent_one() -> None:
    """Emulators write null where AWS leaves the field out."""
    page = cut_records(b'{"NextShardIterator":null,"Records":[]}', "s", at_ms=0)

    assert page.next_iterator is None


def test_an_empty_page_has_no_last_number() -> None:
    """Empty pages on an open shard are legal and carry nothing."""
    page = cut_records(records_body(), "s", at_ms=5)

    assert page.changes.schema == CHANGES
    assert (page.changes.num_rows, page.last_sequence_number, page.newest_created_ms) == (
        0,
        None,
        None,
    )
    assert (page.next_iterator, page.nbytes, page.at_ms) == ("next", 0, 5)


@pytest.mark.situation(67)
@pytest.mark.parametrize(
    ("identity", "is_ttl"),
    [
        (TTL, True),
        ({"type": "Service", "principalId": "dynamodb.amazonaws.com"}, True),
        ({"Type": "Service", "PrincipalId": "replication.dynamodb.amazonaws.com"}, False),
        ({"Type": "AWSAccount", "PrincipalId": "dynamodb.amazonaws.com"}, False),
        ({}, False),
        (None, False),
    ],
)
def test_an_expiry_is_told_from_a_delete_by_its_identity(
    identity: dict[str, str] | None, is_ttl: bool
) -> None:
    """Only the TTL service's own deletes are marked, in either spelling of the fields."""
    page = cut_records(
        records_body(record("REMOVE", identity=identity), record("REMOVE", identity=None)),
        "s",
        at_ms=0,
    )

    assert page.changes["ttl_delete"].to_pylist() == [is_ttl, False]


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        ("1.7E9", 1_700_000_000_000),
        ("1700000000", 1_700_000_000_000),
        ("1700000000.25", 1_700_000_000_250),
    ],
)
def test_creation_times_are_read_in_every_spelling_of_a_number(seconds: str, ms: int) -> None:
    """AWS writes 1.7E9, emulators integers or fractions."""
    body = records_body(record(new=A, created=1)).replace(
        b'DateTime":1', b'DateTime":' + seconds.encode()
    )

    assert cut_records(body, "s", at_ms=0).newest_created_ms == ms


def test_the_newest_creation_time_need_not_be_the_last() -> None:
    """Creation times are approximate and not in order."""
    body = records_body(
        record(new=A, created=20), record(new=A, created=10), record(new=A, created=None)
    )

    assert cut_records(body, "s", at_ms=0).newest_created_ms == 20_000


@pytest.mark.parametrize("indent", [None, 2])
def test_whitespace_between_values_is_taken_out_and_none_within_them(indent: int | None) -> None:
    """Pages of emulators that pretty-print give the same rows as AWS's."""
    image = {"pk": {"S": 'a , "b" : c\n\t'}, "l": {"L": [{"N": "1"}, {"NULL": True}]}}
    page = {"Records": [record(new=image, keys={"pk": image["pk"]})], "NextShardIterator": "n"}
    loose = json.dumps(page, indent=indent).encode() + b"\n"

    spaced = cut_records(loose, "s", at_ms=0).changes.to_pylist()

    tight = json.dumps(page, separators=(",", ":")).encode()
    assert spaced == cut_records(tight, "s", at_ms=0).changes.to_pylist()
    assert spaced[0]["image"] == json.dumps(image, separators=(",", ":"))


def test_escapes_in_an_image_stay_as_they_came() -> None:
    """What a JSON escape means is decided once, in SQL."""
    body = records_body(record(new={"pk": {"S": "X"}})).replace(
        b'"X"', rb'"\u00e9\ud83d\ude00\/\n"'
    )

    assert cut_records(body, "s", at_ms=0).changes["image"].to_pylist() == [
        '{"pk":{"S":"' + r"\u00e9\ud83d\ude00\/\n" + '"}}'
    ]


@pytest.mark.parametrize("name", ["INSERT", "MODIFY"])
@pytest.mark.parametrize("image", [{}, {"NewImage": None}])
def test_a_write_without_its_new_image_says_that_the_view_type_is_wrong(
    name: str, image: dict[str, None]
) -> None:
    """A KEYS_ONLY or OLD_IMAGE stream cannot feed a replica, and the error says what can."""
    made = record(name)
    made["dynamodb"].update(image)

    with pytest.raises(ViewTypeUnusable, match="NEW_IMAGE") as caught:
        cut_records(records_body(record(new=A), made), "s", at_ms=0)
    assert "NEW_AND_OLD_IMAGES" in caught.value.hint


def _without(field: str) -> bytes:
    made = record(new=A)
    (made if field in made else made["dynamodb"]).pop(field)
    return records_body(record(new=A), made)


BROKEN_RECORDS = {
    "nothing": b"",
    "an empty object": b"{}",
    "no Records": b'{"NextShardIterator":"x"}',
    "Records are null": b'{"Records":null,"NextShardIterator":"x"}',
    "a list": b"[]",
    "a page of a proxy": b"<!DOCTYPE html><html><body>Please sign in</body></html>",
    "gzip": gzip.compress(records_body(record(new=A))),
    "cut in the middle": records_body(record(new=A), record(new=A))[:-40],
    "cut by one byte": records_body(record(new=A))[:-1],
    "two pages in one": records_body() + records_body(),
    "a byte that is no UTF-8": records_body(record(new=A)).replace(b'"1"', b'"\xff"'),
    "a cut character": records_body(record(new=A)).replace(b'"1"', b'"\xe2\x82"'),
    "no number": _without("SequenceNumber"),
    "no keys": _without("Keys"),
    "no name": _without("eventName"),
    "no change": _without("dynamodb"),
    "a name unheard of": records_body(record("TRUNCATE", new=A)),
    "a number that is none": records_body(record(number="12x", new=A)),
    "an empty number": records_body(record(new=A), record(number="", new=A)),
    "a number in other digits": records_body(record(number="١٢", new=A)),
    "a number as a number": records_body(record(new=A))
    .replace(b'r":"1', b'r":1')
    .replace(b'0","Size', b'0,"Size'),
    "keys that are no object": records_body(record(new=A)).replace(
        b'{"pk":{"S":"a"}},"Seq', b'7,"Seq'
    ),
    "an image that is no object": records_body(record(new=A)).replace(compact(A), b'["x"]'),
    "a time beyond time": records_body(record(new=A, created=1e300)),
    "an empty iterator": records_body(following=""),
}


@pytest.mark.parametrize("name", BROKEN_RECORDS)
def test_a_page_that_is_not_whole_is_an_error_and_never_an_end(name: str) -> None:
    """A damaged GetRecords answer must not read as an empty page or as the end of the shard."""
    with pytest.raises(CorruptPage):
        cut_records(BROKEN_RECORDS[name], "s", at_ms=0, old_images=True)


def test_every_shorter_body_is_corrupt() -> None:
    """However much of a page arrives, only all of it counts."""
    body = records_body(record("MODIFY", new=B, old=A, identity=TTL), record("REMOVE", old=A))

    for length in range(len(body)):
        with pytest.raises(CorruptPage):
            cut_records(body[:length], "s", at_ms=0, old_images=True)


def test_a_scanned_item_becomes_a_snapshot_row() -> None:
    """Scan rows carry the image alone: the key is in it, and there is no shard."""
    body = scan_body(A, B, last={"pk": {"S": "a"}}, ConsumedCapacity={"CapacityUnits": 2.5})

    page = cut_scan(body, at_ms=9, consistent=True)

    assert page.changes.schema == CHANGES
    page.changes.validate(full=True)
    nothing = dict.fromkeys(CHANGES.names)
    row = {**nothing, "op": "snapshot", "ttl_delete": False}
    assert page.changes.to_pylist() == [{**row, "image": text_of(A)}, {**row, "image": text_of(B)}]
    assert page.last_evaluated_key == '{"pk":{"S":"a"}}'
    assert (page.consumed_rcu, page.at_ms) == (2.5, 9)
    assert page.nbytes == page.changes.nbytes


def test_an_empty_scan_page_with_a_key_goes_on() -> None:
    """An empty page is no end while it names a key."""
    page = cut_scan(scan_body(last={"pk": {"B": "AAE="}}), at_ms=0, consistent=True)

    assert page.changes.num_rows == 0
    assert page.changes.schema == CHANGES
    assert page.last_evaluated_key == '{"pk":{"B":"AAE="}}'


@pytest.mark.parametrize("body", [scan_body(A), scan_body(A, LastEvaluatedKey=None)])
def test_a_scan_page_without_a_key_ends_its_segment(body: bytes) -> None:
    """The end is a whole page that names no key."""
    assert cut_scan(body, at_ms=0, consistent=True).last_evaluated_key is None


def test_a_loose_scan_page_is_made_compact() -> None:
    """Items and key lose the whitespace that only emulators write."""
    body = json.dumps(json.loads(scan_body(A, last={"pk": {"S": "a b"}})), indent=1).encode()

    page = cut_scan(body, at_ms=0, consistent=True)

    assert page.changes["image"].to_pylist() == [text_of(A)]
    assert page.last_evaluated_key == '{"pk":{"S":"a b"}}'


@pytest.mark.parametrize(("consistent", "units"), [(True, 3.0), (False, 1.5)])
def test_a_page_that_does_not_say_its_price_is_charged_by_its_size(
    consistent: bool, units: float
) -> None:
    """An emulator without ConsumedCapacity cannot switch the limit off."""
    body = scan_body({"pk": {"S": "x" * 9000}})

    assert cut_scan(body, at_ms=0, consistent=consistent).consumed_rcu == units


BROKEN_SCANS = {
    "nothing": b"",
    "an empty object": b"{}",
    "no Items": b'{"Count":0,"ScannedCount":0}',
    "a page of a proxy": b"<html></html>",
    "cut in the middle": scan_body(A, B)[:-30],
    "fewer items than counted": scan_body(A, Count=2),
    "an item that is no object": scan_body(A).replace(compact(A), b"1"),
    "an empty key": scan_body(A, last={}),
    "a key that is no object": scan_body(A, LastEvaluatedKey=[1]),
    "a byte that is no UTF-8": scan_body(A).replace(b'"1"', b'"\xc0"'),
}


@pytest.mark.parametrize("name", BROKEN_SCANS)
def test_a_scan_page_that_is_not_whole_is_an_error_and_never_an_end(name: str) -> None:
    """A damaged Scan answer must not end a segment, nor restart it."""
    with pytest.raises(CorruptPage):
        cut_scan(BROKEN_SCANS[name], at_ms=0, consistent=True)


def test_an_item_is_its_compact_text_or_none() -> None:
    """GetItem of an absent key answers without Item."""
    assert cut_item(b'{"Item":{"pk": {"S":"a b"}}}') == '{"pk":{"S":"a b"}}'
    assert cut_item(b"{}") is None
    assert cut_item(b'{"Item":null}') is None


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"Item":', b"[]"])
def test_an_item_that_cannot_be_read_is_not_absent(body: bytes) -> None:
    """A damaged GetItem answer must not look like a deleted item."""
    with pytest.raises(CorruptPage):
        cut_item(body)


def test_an_iterator_is_text_and_never_empty() -> None:
    """An empty iterator would be sent back and refused for ever."""
    assert cut_iterator(b'{"ShardIterator":"it"}') == "it"
    for body in (b"{}", b'{"ShardIterator":""}', b'{"ShardIterator":null}'):
        with pytest.raises(CorruptPage):
            cut_iterator(body)


def _shard(shard_id: str, parent: str | None, first: str, last: str | None) -> dict[str, object]:
    numbers = {"StartingSequenceNumber": first}
    if last is not None:
        numbers["EndingSequenceNumber"] = last
    made: dict[str, object] = {"ShardId": shard_id, "SequenceNumberRange": numbers}
    return made if parent is None else {**made, "ParentShardId": parent}


def test_a_listing_page_names_its_shards_and_where_it_goes_on() -> None:
    """Shards keep their parents and bounds; an ending number means closed."""
    body = compact(
        {
            "StreamDescription": {
                "StreamArn": "arn",
                "StreamStatus": "ENABLED",
                "StreamViewType": "NEW_IMAGE",
                "LastEvaluatedShardId": "s2",
                "Shards": [
                    _shard("s1", None, "1", "9"),
                    _shard("s2", "s1", "10", None),
                ],
            }
        }
    )

    page = cut_stream(body, at_ms=3)

    assert [shard.is_closed for shard in page.shards] == [True, False]
    assert [shard.parent_shard_id for shard in page.shards] == [None, "s1"]
    assert (page.stream_status, page.last_evaluated_shard_id, page.at_ms) == ("ENABLED", "s2", 3)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"StreamDescription":{"StreamArn":"a","StreamStatus":"ENABLED"}}', b"<html>"],
)
def test_a_listing_without_its_shards_is_corrupt(body: bytes) -> None:
    """An empty listing would make every shard look trimmed away."""
    with pytest.raises(CorruptPage):
        cut_stream(body, at_ms=0)


def _table(**changes: object) -> bytes:
    table = {
        "TableName": "orders",
        "TableArn": "arn:aws-cn:dynamodb:cn-north-1:1:table/orders",
        "TableId": "id-1",
        "TableStatus": "ACTIVE",
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        "AttributeDefinitions": [
            {"AttributeName": "other", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "N"},
            {"AttributeName": "pk", "AttributeType": "B"},
        ],
        "CreationDateTime": 1.7e9,
        "ItemCount": 5,
        "TableSizeBytes": 100,
        "ProvisionedThroughput": {"ReadCapacityUnits": 7},
        "BillingModeSummary": {"BillingMode": "PROVISIONED"},
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
        "LatestStreamArn": "stream-arn",
        **changes,
    }
    return compact({"Table": {name: value for name, value in table.items() if value is not None}})


def test_a_table_says_its_keys_their_types_and_its_stream() -> None:
    """Key attributes come in the order of the schema with the type of their definition."""
    table = cut_table(_table(), at_ms=4)

    assert [(key.name, key.type, key.role) for key in table.key_schema] == [
        ("pk", "B", "HASH"),
        ("sk", "N", "RANGE"),
    ]
    assert (table.stream_enabled, table.stream_view_type, table.stream_arn) == (
        True,
        "NEW_IMAGE",
        "stream-arn",
    )
    assert (table.item_count, table.table_size_bytes, table.read_capacity_units) == (5, 100, 7)
    assert (table.billing_mode, table.at_ms) == ("PROVISIONED", 4)


def test_a_disabled_stream_keeps_its_arn_and_is_not_enabled() -> None:
    """LatestStreamArn stays after the stream is off: it is no sign that there is one."""
    table = cut_table(_table(StreamSpecification=None), at_ms=0)

    assert (table.stream_enabled, table.stream_arn) == (False, "stream-arn")


def test_a_table_without_an_id_is_told_apart_by_its_creation() -> None:
    """A table made again under its name is another table, also on an emulator without ids."""
    ids = {cut_table(_table(TableId=None, CreationDateTime=at), at_ms=0).table_id for at in (1, 2)}

    assert len(ids) == 2


@pytest.mark.parametrize("body", [b"{}", _table(KeySchema=[]), _table(AttributeDefinitions=[])])
def test_a_table_without_its_key_is_corrupt(body: bytes) -> None:
    """Nothing can be stored under a key that is not known."""
    with pytest.raises(CorruptPage):
        cut_table(body, at_ms=0)


def test_a_list_of_streams_goes_on_where_it_says() -> None:
    """ListStreams is paged."""
    body = compact(
        {"Streams": [{"StreamArn": "a"}, {"StreamArn": "b"}], "LastEvaluatedStreamArn": "b"}
    )

    assert cut_streams(body) == (("a", "b"), "b")
    assert cut_streams(b'{"Streams":[]}') == ((), None)
    with pytest.raises(CorruptPage):
        cut_streams(b"{}")


def test_deep_nesting_does_not_break_the_cut() -> None:
    """DynamoDB nests to 32 levels; a body that nests without end is corrupt, no crash."""
    deep: dict[str, object] = {"S": "x"}
    for _ in range(32):
        deep = {"L": [{"M": {"k": deep}}]}

    page = cut_records(records_body(record(new={"pk": deep})), "s", at_ms=0)

    assert msgspec.json.decode(page.changes["image"].to_pylist()[0]) == {"pk": deep}
    with pytest.raises(CorruptPage):
        cut_scan(b'{"Items":[' + b'{"a":' * 200_000, at_ms=0, consistent=True)
