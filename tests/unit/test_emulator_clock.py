"""The emulator's times as they are shown."""

from __future__ import annotations

import json

import pytest

from emulator import Front, ManualClock, SystemClock, World
from emulator.clock import epoch_number, http_date, stream_label


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (1_750_000_000.0, b"1.75E9"),
        (1_750_000_001.0, b"1.750000001E9"),
        (1_750_000_000.25, b"1.75000000025E9"),
        (1_749_999_999.9999, b"1.75E9"),
        (1_000_000_000.0, b"1.0E9"),
        (5.0, b"5.0E0"),
    ],
)
def test_times_are_numbers_with_a_decimal_exponent(seconds: float, shown: bytes) -> None:
    """As DynamoDB writes them: milliseconds, and no zeros that say nothing."""
    assert epoch_number(seconds) == shown
    assert json.loads(shown) == round(seconds, 3)


def test_the_wire_carries_times_in_that_form() -> None:
    """Tables, streams and records; a reader that expects an integer goes wrong at once."""
    front = Front(World(clock=ManualClock(1_750_000_000.5)))
    front.world.create_table("t")
    front.world.put("t", {"pk": {"S": "a"}})
    arn = front.world.stream("t").identity.arn
    described = front.call("DescribeStream", {"StreamArn": arn}).body
    assert b'"CreationRequestDateTime":1.7500000005E9' in described
    assert (
        b'"CreationDateTime":1.7500000005E9' in front.call("DescribeTable", {"TableName": "t"}).body
    )
    shard = front.world.shard_of("t", {"pk": {"S": "a"}})
    token = front.world.get_shard_iterator(arn, shard.shard_id, "TRIM_HORIZON")
    page = front.call("GetRecords", {"ShardIterator": token}).body
    assert b'"ApproximateCreationDateTime":1.75E9,' in page


def test_dates_and_labels() -> None:
    """The Date header is in whole seconds of GMT, a label in milliseconds of UTC."""
    assert http_date(1_750_000_000.999) == "Sun, 15 Jun 2025 15:06:40 GMT"
    assert stream_label(1_750_000_000.291) == "2025-06-15T15:06:40.291"


def test_clocks_move_only_as_they_say() -> None:
    """The manual clock stands until moved, either way; the system's runs and can be advanced."""
    manual = ManualClock(100.0)
    manual.advance(5)
    assert manual.now_s() == 105.0
    manual.set(1.0)
    assert manual.now_s() == 1.0
    plain, ahead = SystemClock(), SystemClock()
    ahead.advance(3600)
    assert 3599 < ahead.now_s() - plain.now_s() < 3660
