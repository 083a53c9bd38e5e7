"""Streams without tables: lineage, trimming, listing, iterators."""

from __future__ import annotations

import base64
from dataclasses import replace
from itertools import pairwise

import pytest

from emulator import AwsError, LastPage, NoIterator, TableSettings
from emulator.images import HASH_SPACE, Image
from emulator.iterators import parse_iterator
from emulator.records import Change, ViewType
from emulator.shards import Shard
from emulator.streams import RecordsPage, Stream, StreamIdentity

START_S = 1_750_000_000.0
HOUR_S = 3600.0
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/t/stream/2025-06-15T15:06:40.000"


def a_stream(shards: int = 1, **settings: object) -> Stream:
    identity = StreamIdentity(
        ARN,
        "2025-06-15T15:06:40.000",
        "t",
        "id",
        "eu-west-1",
        ViewType.NEW_AND_OLD_IMAGES,
        ({"AttributeName": "pk", "KeyType": "HASH"},),
        START_S,
    )
    return Stream(identity, TableSettings().changed(shards=shards, **settings))


def change(value: int, point: int = 0, pad: int = 0) -> Change:
    image = Image(b'{"v":{"N":"%d"},"p":{"S":"%b"}}' % (value, b"x" * pad), 2 + pad)
    return Change(point, Image(b'{"pk":{"S":"k"}}', 3), None, image)


def fill(stream: Stream, count: int, now_s: float = START_S, point: int = 0) -> None:
    for value in range(count):
        stream.append(change(value, point), now_s)


def only_shard(stream: Stream) -> Shard:
    (shard,) = stream.shards.values()
    return shard


def read_to_end(stream: Stream, shard: Shard, now_s: float = START_S) -> list[RecordsPage]:
    """All pages of a closed shard, from the horizon."""
    pages = []
    position = stream.iterator(shard.shard_id, "TRIM_HORIZON", now_s)
    for _ in range(1000):
        page = stream.read(position, 1000, now_s)
        pages.append(page)
        if page.next_iterator is None:
            return pages
        position = page.next_iterator
    raise AssertionError("the shard has no end")


# Sequence numbers


def test_sequence_numbers_have_21_to_40_digits_gaps_and_only_grow() -> None:
    """Numbers grow within a shard, with gaps, and have the length that AWS documents."""
    stream = a_stream(shards=8)
    for point in range(0, HASH_SPACE, HASH_SPACE // 8):
        fill(stream, 50, point=point)
    gaps = set()
    for shard in stream.shards.values():
        numbers = [record.sequence_number for record in shard.records]
        assert len(numbers) == 50
        assert shard.starting < numbers[0]
        assert numbers == sorted(set(numbers))
        assert all(21 <= len(str(number)) <= 40 for number in [shard.starting, *numbers])
        gaps |= {after - before for before, after in pairwise(numbers)}
    assert len(gaps) > 100


def test_text_order_of_sequence_numbers_is_wrong_somewhere() -> None:
    """A reader that compares numbers as text meets a shard where that goes wrong."""
    stream = a_stream(shards=1)
    fill(stream, 100)
    texts = [str(record.sequence_number) for record in only_shard(stream).records]
    assert texts != sorted(texts)


def test_numbers_of_a_child_stand_above_those_of_its_parent() -> None:
    """Along a lineage numbers grow; the end of a shard is above its records and has none."""
    stream = a_stream()
    fill(stream, 5)
    parent = only_shard(stream)
    (child,) = [stream.rollover(parent.shard_id, START_S)]
    fill(stream, 5)
    assert parent.ending is not None
    assert parent.records[-1].sequence_number < parent.ending < child.starting
    assert child.starting < child.records[0].sequence_number


# Lineage


def test_a_split_gives_each_half_to_a_child_and_closes_the_parent() -> None:
    """After a split each key goes to exactly one child, and the parent takes nothing."""
    stream = a_stream(shards=2)
    low, high = stream.open_shards()
    left, right = stream.split(low.shard_id, START_S)
    assert not low.is_open
    assert {left.parent_id, right.parent_id} == {low.shard_id}
    assert [shard.shard_id for shard in stream.open_shards()] == [
        left.shard_id,
        right.shard_id,
        high.shard_id,
    ]
    assert stream.shard_of(0) is left
    assert stream.shard_of(HASH_SPACE // 4 - 1) is left
    assert stream.shard_of(HASH_SPACE // 4) is right
    assert stream.shard_of(HASH_SPACE // 2) is high
    assert stream.shard_of(HASH_SPACE - 1) is high


def test_a_closed_shard_is_not_split_again() -> None:
    """Only open shards have children."""
    stream = a_stream()
    parent = only_shard(stream)
    stream.split(parent.shard_id, START_S)
    for lever in (stream.split, stream.rollover):
        with pytest.raises(AwsError, match="closed already"):
            lever(parent.shard_id, START_S)


def test_rollovers_and_splits_come_by_schedule() -> None:
    """Each open shard is replaced at its age; the widest is split each period."""
    stream = a_stream(shards=2, rollover_every_s=4 * HOUR_S)
    stream.tick(START_S + 4 * HOUR_S - 1)
    assert len(stream.shards) == 2
    stream.tick(START_S + 8 * HOUR_S)
    assert len(stream.shards) == 6
    assert len(stream.open_shards()) == 2
    assert {shard.created_s for shard in stream.open_shards()} == {START_S + 8 * HOUR_S}

    splitting = a_stream(shards=1, split_every_s=HOUR_S)
    splitting.tick(START_S + 3 * HOUR_S)
    assert len(splitting.open_shards()) == 4


def test_a_schedule_that_slept_for_years_wakes_at_once() -> None:
    """A jump of the clock makes only the generations that can still be read."""
    stream = a_stream(shards=2, rollover_every_s=HOUR_S)
    stream.tick(START_S + 10 * 365 * 24 * HOUR_S)
    assert len(stream.open_shards()) == 2
    assert len(stream.shards) < 2 * 30


def test_shard_ids_have_the_documented_length_and_are_unique() -> None:
    """Ids are 28 to 65 characters, also when many shards are born in one millisecond."""
    stream = a_stream(shards=500)
    assert len(stream.shards) == 500
    assert all(28 <= len(shard_id) <= 65 for shard_id in stream.shards)


# Trimming


def test_records_age_out_and_their_shards_after_them() -> None:
    """Records go at the retention, closed shards when they closed before it, open ones never."""
    stream = a_stream()
    fill(stream, 3, START_S)
    old = only_shard(stream)
    young = stream.rollover(old.shard_id, START_S + HOUR_S)
    fill(stream, 2, START_S + HOUR_S)
    stream.tick(START_S + 24 * HOUR_S + 1)
    assert (len(old.records), old.trimmed) == (0, 3)
    assert old.shard_id in stream.shards
    stream.tick(START_S + 25 * HOUR_S + 2)
    assert list(stream.shards) == [young.shard_id]
    assert (len(young.records), young.is_open) == (0, True)
    assert young.parent_id == old.shard_id


def test_a_shorter_retention_trims_at_once() -> None:
    """Tests shorten the retention instead of waiting a day."""
    stream = a_stream()
    fill(stream, 3, START_S)
    stream.configure(replace(stream.settings, retention_s=10.0), START_S + 11)
    assert only_shard(stream).trimmed == 3


def test_a_trimmed_position_is_refused_where_aws_refuses_it() -> None:
    """By number: TrimmedDataAccess. TRIM_HORIZON and AT_TIMESTAMP never report a trim."""
    stream = a_stream()
    fill(stream, 4)
    shard = only_shard(stream)
    numbers = [str(record.sequence_number) for record in shard.records]
    held = stream.iterator(shard.shard_id, "TRIM_HORIZON", START_S)
    shard.trim_count(2)
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        with pytest.raises(AwsError) as caught:
            stream.iterator(shard.shard_id, kind, START_S, sequence_number=numbers[1])
        assert caught.value.code == "TrimmedDataAccessException"
    with pytest.raises(AwsError) as caught:
        stream.read(held, 10, START_S)
    assert caught.value.code == "TrimmedDataAccessException"
    for kind, when in (("TRIM_HORIZON", None), ("AT_TIMESTAMP", START_S - HOUR_S)):
        position = stream.iterator(shard.shard_id, kind, START_S, timestamp_s=when)
        page = stream.read(position, 10, START_S)
        assert [str(record.sequence_number) for record in page.records] == numbers[2:]
    position = stream.iterator(
        shard.shard_id, "AT_SEQUENCE_NUMBER", START_S, sequence_number=numbers[2]
    )
    assert len(stream.read(position, 10, START_S).records) == 2


def test_a_vanished_shard_is_not_found() -> None:
    """A shard that vanished is gone from the listing and for every call that names it."""
    stream = a_stream()
    fill(stream, 1)
    parent = only_shard(stream)
    held = stream.iterator(parent.shard_id, "TRIM_HORIZON", START_S)
    with pytest.raises(AwsError, match="is open"):
        stream.vanish(parent.shard_id)
    child = stream.rollover(parent.shard_id, START_S)
    stream.vanish(parent.shard_id)
    for call in (
        lambda: stream.iterator(parent.shard_id, "TRIM_HORIZON", START_S),
        lambda: stream.read(held, 10, START_S),
    ):
        with pytest.raises(AwsError) as caught:
            call()
        assert caught.value.code == "ResourceNotFoundException"
    (listed,) = stream.describe()["Shards"]
    assert listed["ShardId"] == child.shard_id
    assert listed["ParentShardId"] == parent.shard_id


# Reading


def test_each_kind_of_iterator_stands_where_it_says() -> None:
    """TRIM_HORIZON, LATEST, AT and AFTER a number, AT a time."""
    stream = a_stream()
    for second in range(5):
        stream.append(change(second), START_S + second + 0.5)
    shard = only_shard(stream)
    now_s = START_S + 10
    third = str(shard.records[2].sequence_number)

    def index(kind: str, number: str | None = None, when: float | None = None) -> int:
        return stream.iterator(
            shard.shard_id, kind, now_s, sequence_number=number, timestamp_s=when
        ).index

    assert index("TRIM_HORIZON") == 0
    assert index("LATEST") == 5
    assert index("AT_SEQUENCE_NUMBER", third) == 2
    assert index("AFTER_SEQUENCE_NUMBER", third) == 3
    assert index("AT_SEQUENCE_NUMBER", str(int(third) + 1)) == 3
    assert index("AFTER_SEQUENCE_NUMBER", str(int(third) - 1)) == 2
    assert index("AT_SEQUENCE_NUMBER", str(shard.starting)) == 0
    assert index("AT_TIMESTAMP", when=START_S - 1) == 0
    assert index("AT_TIMESTAMP", when=START_S + 2.5) == 2
    assert index("AT_TIMESTAMP", when=START_S + 2.6) == 3
    assert index("AT_TIMESTAMP", when=now_s) == 5


@pytest.mark.parametrize(
    ("kind", "number", "when"),
    [
        ("AT_TIMESTAMP", None, START_S + 0.001),
        ("AT_TIMESTAMP", None, None),
        ("AT_SEQUENCE_NUMBER", None, None),
        ("AT_SEQUENCE_NUMBER", "12345", None),
        ("AFTER_SEQUENCE_NUMBER", "1" * 41, None),
        ("AFTER_SEQUENCE_NUMBER", "a" * 25, None),
        ("SINCE_FOREVER", None, None),
    ],
)
def test_an_iterator_without_sense_is_refused(
    kind: str, number: str | None, when: float | None
) -> None:
    """A time in the future, a missing or malformed number and an unknown kind: Validation."""
    stream = a_stream()
    with pytest.raises(AwsError) as caught:
        stream.iterator(
            only_shard(stream).shard_id, kind, START_S, sequence_number=number, timestamp_s=when
        )
    assert caught.value.code == "ValidationException"


def test_pages_end_at_the_limit_at_1000_records_and_at_1_mb() -> None:
    """Limit, 1,000 records and 1 MB each end a page; one record always fits."""
    stream = a_stream()
    fill(stream, 2500)
    shard = only_shard(stream)
    position = stream.iterator(shard.shard_id, "TRIM_HORIZON", START_S)
    assert len(stream.read(position, 7, START_S).records) == 7
    assert len(stream.read(position, 1000, START_S).records) == 1000

    heavy = a_stream()
    for value in range(8):
        heavy.append(change(value, pad=300_000), START_S)
    pages = []
    following = heavy.iterator(only_shard(heavy).shard_id, "TRIM_HORIZON", START_S)
    for _ in range(3):
        page = heavy.read(following, 1000, START_S)
        pages.append(page)
        assert sum(record.length_bytes for record in page.records) <= 1024 * 1024
        assert page.next_iterator is not None
        following = page.next_iterator
    assert [len(page.records) for page in pages] == [3, 3, 2]

    small = a_stream(max_page_bytes=10)
    fill(small, 2)
    first = small.read(
        small.iterator(only_shard(small).shard_id, "TRIM_HORIZON", START_S), 1000, START_S
    )
    assert len(first.records) == 1


def test_an_open_shard_has_no_end() -> None:
    """At the tip of an open shard the page is empty and there is a next iterator."""
    stream = a_stream()
    shard = only_shard(stream)
    position = stream.iterator(shard.shard_id, "TRIM_HORIZON", START_S)
    for _ in range(5):
        page = stream.read(position, 1000, START_S)
        assert page.records == ()
        assert page.next_iterator is not None
        position = page.next_iterator
    fill(stream, 1)
    assert len(stream.read(position, 1000, START_S).records) == 1


@pytest.mark.parametrize(
    ("style", "sizes"), [(LastPage.WITH_RECORDS, [3]), (LastPage.EMPTY, [3, 0])]
)
def test_a_closed_shard_ends_either_with_its_last_records_or_after_them(
    style: LastPage, sizes: list[int]
) -> None:
    """Both of the ways in which AWS ends a shard can be asked for; no record is lost in either."""
    stream = a_stream(last_page=style)
    fill(stream, 3)
    shard = only_shard(stream)
    stream.rollover(shard.shard_id, START_S)
    assert [len(page.records) for page in read_to_end(stream, shard)] == sizes


def test_mixed_endings_come_in_both_ways() -> None:
    """Under `mixed` some shards end with records and some after them."""
    stream = a_stream(shards=40, last_page="mixed")
    for shard in stream.open_shards():
        stream.append(change(1, shard.low), START_S)
        stream.rollover(shard.shard_id, START_S)
    closed = [shard for shard in stream.shards.values() if not shard.is_open]
    assert {len(read_to_end(stream, shard)) for shard in closed} == {1, 2}


def test_a_closed_shard_without_records_ends_at_once() -> None:
    """An idle shard that closes gives one empty page without a next iterator."""
    stream = a_stream(no_iterator="null")
    shard = only_shard(stream)
    stream.rollover(shard.shard_id, START_S)
    (page,) = read_to_end(stream, shard)
    assert page.records == ()
    assert page.no_iterator is NoIterator.NULL


def test_empty_pages_come_before_records_and_lose_none() -> None:
    """Real shards answer empty pages between sparse records; their number can be set."""
    stream = a_stream(empty_pages=3)
    fill(stream, 2)
    shard = only_shard(stream)
    stream.rollover(shard.shard_id, START_S)
    assert [len(page.records) for page in read_to_end(stream, shard)] == [0, 0, 0, 2]


def test_iterators_expire_after_15_minutes_or_at_once() -> None:
    """An iterator is good for 15 minutes, a page's next one for 15 minutes more."""
    stream = a_stream()
    shard = only_shard(stream)
    first = stream.iterator(shard.shard_id, "TRIM_HORIZON", START_S)
    second = stream.read(first, 10, START_S + 900).next_iterator
    assert second is not None
    with pytest.raises(AwsError) as caught:
        stream.read(first, 10, START_S + 900.1)
    assert caught.value.code == "ExpiredIteratorException"
    stream.read(second, 10, START_S + 1800)
    stream.generation += 1
    with pytest.raises(AwsError) as caught:
        stream.read(second, 10, START_S + 1800)
    assert caught.value.code == "ExpiredIteratorException"


def test_a_token_that_was_not_handed_out_is_refused() -> None:
    """Damaged and foreign tokens are a ValidationException, not a crash."""
    stream = a_stream()
    token = stream.iterator(only_shard(stream).shard_id, "LATEST", START_S).token()
    assert token.startswith(ARN + "|1|")
    assert parse_iterator(token).index == 0
    arn, version, encoded = token.split("|")
    raw = base64.b64decode(encoded)
    forged = base64.b64encode(raw[:4] + raw[4:].replace(b"|0|", b"|9|", 1)).decode()
    assert forged != encoded
    with pytest.raises(AwsError):
        parse_iterator(f"{arn}|{version}|{forged}")
    for wrong in ("", "a|b", "a|1|b", token[:-8], token[:-3] + "AAA", token + "A", "a|1|####"):
        with pytest.raises(AwsError) as caught:
            parse_iterator(wrong)
        assert caught.value.code == "ValidationException"


# Listing


def test_the_listing_is_paged_and_the_pages_meet_every_shard_once() -> None:
    """Only a page without LastEvaluatedShardId is the last one; the page size can be set."""
    stream = a_stream(shards=250)
    for size, limit, pages in ((100, None, 3), (100, 40, 7), (9, 100, 28)):
        stream.configure(replace(stream.settings, describe_page_size=size), START_S)
        met: list[str] = []
        after: str | None = None
        count = 0
        while count < 100:
            count += 1
            description = stream.describe(limit=limit, start_after=after)
            met += [shard["ShardId"] for shard in description["Shards"]]
            after = description.get("LastEvaluatedShardId")
            if after is None:
                break
        assert count == pages
        assert sorted(met) == sorted(stream.shards)
        assert len(set(met)) == 250


def test_child_shards_are_listed_by_parent() -> None:
    """CHILD_SHARDS gives the direct children only; an unknown shard is not found."""
    stream = a_stream(shards=2)
    low, _ = stream.open_shards()
    left, right = stream.split(low.shard_id, START_S)
    stream.rollover(left.shard_id, START_S)
    children = stream.describe(children_of=low.shard_id)["Shards"]
    assert {shard["ShardId"] for shard in children} == {left.shard_id, right.shard_id}
    assert stream.describe(children_of=right.shard_id)["Shards"] == []
    with pytest.raises(AwsError) as caught:
        stream.describe(children_of="shardId-00000000000000000000-00000000")
    assert caught.value.code == "ResourceNotFoundException"


def test_the_listing_can_lag() -> None:
    """A child can be missing, and a closed parent can look open, though both can be read."""
    stream = a_stream()
    parent = only_shard(stream)
    child = stream.rollover(parent.shard_id, START_S)
    stream.hidden.add(child.shard_id)
    stream.shown_open.add(parent.shard_id)
    (listed,) = stream.describe()["Shards"]
    assert listed["ShardId"] == parent.shard_id
    assert "EndingSequenceNumber" not in listed["SequenceNumberRange"]
    assert stream.iterator(child.shard_id, "TRIM_HORIZON", START_S).index == 0


def test_a_disabled_stream_is_closed_and_still_readable() -> None:
    """Disabling closes every shard; what was written can be read to its end."""
    stream = a_stream(shards=2)
    fill(stream, 3)
    stream.disable(START_S + 1)
    description = stream.describe()
    assert description["StreamStatus"] == "DISABLED"
    assert all(
        "EndingSequenceNumber" in shard["SequenceNumberRange"] for shard in description["Shards"]
    )
    records = [
        record
        for shard in list(stream.shards.values())
        for page in read_to_end(stream, shard, START_S + 1)
        for record in page.records
    ]
    assert len(records) == 3


def test_times_within_a_shard_do_not_go_back_with_the_clock() -> None:
    """A clock that is set back disorders nothing."""
    stream = a_stream()
    stream.append(change(1), START_S + 100)
    stream.append(change(2), START_S + 50)
    assert [record.created_s for record in only_shard(stream).records] == [START_S + 100] * 2
