"""A snapshot and a shard read from the emulator over HTTP, through everything a network does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from accelerator.batch import Batch
from checkpoints.positions import Position
from connector.aws.source import AwsSettings, AwsSource
from connector.clock import SystemClock
from connector.errors import AccessDenied, CorruptPage, SourceError, Throttled, Unavailable
from connector.retry import Backoff
from connector.snapshot.scanner import Scanner, new_segments
from emulator import Emulator
from emulator.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from tests.unit.scan_table import Dataset

ITEMS = 24
ITEM_BYTES = 200_000  # five or six to a page of 1 MB
MOST_STEPS = 500

DAMAGE: dict[str, tuple[dict[str, Any], type[SourceError]]] = {
    "throttle": ({}, Throttled),
    "error": ({"code": "InternalServerError", "status": 500}, Unavailable),
    "drop": ({}, Unavailable),
    "cut": ({}, CorruptPage),
    "truncate": ({}, CorruptPage),
    "empty": ({}, CorruptPage),
    "corrupt": ({}, CorruptPage),
    "html": ({}, CorruptPage),
    "gzip": ({}, CorruptPage),
    "hang": ({}, Unavailable),
    "headers": ({"headers": {"Date": None}}, CorruptPage),
}


class NumberedItems(Dataset):
    """Counts applied items by their number."""

    def apply(self, most: int | None = None) -> None:
        queued = list(self.queued)
        self.queued.clear()
        for batch in queued:
            self._apply_one(batch)

    def _apply_one(self, batch: Batch) -> None:
        for image in batch.changes["image"].to_pylist():
            self.applied[int(msgspec.json.decode(image)["pk"]["N"])] += 1
        self.stored.update((each.segment, each) for each in batch.segments)
        assert batch.scan_ticket is not None
        self.close_scan_ticket(batch.scan_ticket)


@pytest.fixture(scope="module")
def filled() -> Iterator[Emulator]:
    with Emulator(shards=1) as aws:
        client = aws.client("dynamodb")
        client.create_table(
            TableName="orders",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "N"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        for number in range(ITEMS):
            client.put_item(
                TableName="orders",
                Item={"pk": {"N": str(number)}, "v": {"S": "é" * (ITEM_BYTES // 2)}},
            )
        yield aws


@pytest.fixture
def aws(filled: Emulator) -> Iterator[Emulator]:
    filled.calls.clear()
    yield filled
    filled.faults.clear()


@pytest.fixture
def source(aws: Emulator) -> Iterator[AwsSource]:
    made = AwsSource(
        AwsSettings(
            "orders",
            aws.region,
            ACCESS_KEY_ID,
            SECRET_ACCESS_KEY,
            endpoint_url=aws.url,
            read_timeout_s=0.5,
        )
    )
    yield made
    made.close()


def scanner_of(source: AwsSource, dataset: Dataset) -> Scanner:
    return Scanner(
        source,
        SystemClock(),
        dataset,
        dataset,
        dataset.segments(),
        generation=1,
        fills=1,
        backoff=Backoff(base_s=0.001, cap_s=0.002, floor_s=0.0),
    )


def turn(scanner: Scanner, dataset: Dataset, most: int = MOST_STEPS) -> None:
    clock = SystemClock()
    for _ in range(most):
        if scanner.done:
            return
        due_s = scanner.step(clock.monotonic_s())
        dataset.apply()
        clock.sleep(max(0.0, (due_s or 0.0) - clock.monotonic_s()))


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_snapshot_is_whole_whatever_happens_to_its_pages(
    aws: Emulator, source: AwsSource, kind: str
) -> None:
    """Each damaged page is asked for again, each whole one once, and every item is there once."""
    options, expected = DAMAGE[kind]
    fault = aws.fault(kind, operation="Scan", skip=1, count=3, **options)
    dataset = NumberedItems(new_segments(2))
    scanner = scanner_of(source, dataset)
    met: set[type[SourceError]] = set()

    for _ in range(MOST_STEPS):
        if scanner.done:
            break
        turn(scanner, dataset, 1)
        met |= {type(fault.error) for fault in scanner.faults()}

    assert dataset.applied == Counter(range(ITEMS))
    assert fault.hits == 3
    assert met == {expected}
    assert aws.calls.count("Scan") == scanner.progress().pages + 3
    assert dataset.open_tickets == 0


def test_a_resumed_snapshot_asks_for_no_page_twice(aws: Emulator, source: AwsSource) -> None:
    """Killed after each page and started again, it sends as many Scans as one run."""
    dataset = NumberedItems(new_segments(3))
    turn(scanner_of(source, dataset), dataset)
    in_one_run = aws.calls.count("Scan")
    aws.calls.clear()

    dataset = NumberedItems(new_segments(3))
    while not all(segment.done for segment in dataset.segments()):
        turn(scanner_of(source, dataset), dataset, 1)

    assert dataset.applied == Counter(range(ITEMS))
    assert aws.calls.count("Scan") == in_one_run
    asked = [
        (call.params["Segment"], str(call.params.get("ExclusiveStartKey")))
        for call in aws.calls.calls("Scan")
    ]
    assert len(set(asked)) == len(asked) == in_one_run


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_page_of_records_can_be_read_again(
    aws: Emulator, source: AwsSource, kind: str
) -> None:
    """No damage is taken for the end of the shard, and the same iterator gives the page whole."""
    options, expected = DAMAGE[kind]
    arn = source.describe_table().stream_arn
    assert arn is not None
    shard = source.describe_stream(arn).shards[0].shard_id
    iterator = source.open_iterator(arn, shard, Position.trim_horizon()).iterator
    aws.fault(kind, operation="GetRecords", count=1, **options)

    with pytest.raises(expected):
        source.get_records(shard, iterator)
    page = source.get_records(shard, iterator)

    assert page.changes.num_rows > 0
    assert page.next_iterator is not None


def test_a_denied_scan_goes_on_once_it_is_allowed(aws: Emulator, source: AwsSource) -> None:
    """The missing action is named while it lasts."""
    aws.fault("error", operation="Scan", code="AccessDeniedException", status=400, count=2)
    dataset = NumberedItems(new_segments(1))
    scanner = scanner_of(source, dataset)

    turn(scanner, dataset, 1)
    fault = scanner.fault
    turn(scanner, dataset)

    assert isinstance(fault, AccessDenied)
    assert fault.action == "dynamodb:Scan"
    assert dataset.applied == Counter(range(ITEMS))
