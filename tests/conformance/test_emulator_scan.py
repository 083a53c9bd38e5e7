"""Scan, Query and the other reads over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from emulator import Emulator, ManualClock
from tests.conformance.emulated import a_table


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """A fresh emulator on a clock that stands still."""
    with Emulator(clock=ManualClock()) as emulator:
        yield emulator


def fill(aws: Emulator, count: int, pad: int = 0) -> None:
    dynamodb = aws.client("dynamodb")
    for start in range(0, count, 25):
        dynamodb.batch_write_item(
            RequestItems={
                "orders": [
                    {
                        "PutRequest": {
                            "Item": {
                                "pk": {"S": f"key-{number}"},
                                "n": {"N": str(number)},
                                "pad": {"S": "x" * pad},
                            }
                        }
                    }
                    for number in range(start, min(start + 25, count))
                ]
            }
        )


def pages(aws: Emulator, **params: Any) -> list[dict[str, Any]]:
    dynamodb = aws.client("dynamodb")
    found: list[dict[str, Any]] = []
    while True:
        page = dynamodb.scan(TableName="orders", **params)
        found.append(page)
        if "LastEvaluatedKey" not in page:
            return found
        params["ExclusiveStartKey"] = page["LastEvaluatedKey"]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [item["pk"]["S"] for page in found for item in page["Items"]]


@pytest.mark.parametrize("segments", [1, 3, 16])
@pytest.mark.parametrize("limit", [None, 7])
def test_segments_and_pages_meet_every_item_once(
    aws: Emulator, segments: int, limit: int | None
) -> None:
    """All segments of any count together are the table, whatever the page size."""
    a_table(aws)
    fill(aws, 100)
    limits: dict[str, Any] = {"Limit": limit} if limit else {}
    met = [
        name
        for segment in range(segments)
        for name in names(pages(aws, Segment=segment, TotalSegments=segments, **limits))
    ]
    assert sorted(met) == sorted(f"key-{number}" for number in range(100))


def test_a_page_ends_at_1_mb(aws: Emulator) -> None:
    """Pages end with the item that passes 1 MB; their consumed capacity follows their size."""
    a_table(aws)
    fill(aws, 60, pad=40_000)
    found = pages(aws, ConsistentRead=True, ReturnConsumedCapacity="TOTAL")
    assert len(names(found)) == 60
    assert [len(page["Items"]) for page in found] == [27, 27, 6]
    assert [page["ConsumedCapacity"]["CapacityUnits"] for page in found] == [264.0, 264.0, 59.0]
    half = aws.client("dynamodb").scan(TableName="orders", ReturnConsumedCapacity="TOTAL")
    assert half["ConsumedCapacity"]["CapacityUnits"] == 132.0


def test_a_filter_takes_items_from_pages_and_not_from_the_scan(aws: Emulator) -> None:
    """Limit and the 1 MB count what was scanned; a page may be empty and have a next one."""
    a_table(aws)
    fill(aws, 50)
    found = pages(
        aws,
        Limit=10,
        FilterExpression="n = :n",
        ExpressionAttributeValues={":n": {"N": "7.0"}},
        ReturnConsumedCapacity="TOTAL",
    )
    assert names(found) == ["key-7"]
    assert [page["ScannedCount"] for page in found] == [10, 10, 10, 10, 10, 0]
    assert sum(page["Count"] for page in found) == 1
    assert any(not page["Items"] and "LastEvaluatedKey" in page for page in found)


def test_projections_and_counts(aws: Emulator) -> None:
    """A projection shows what it names, at depth too; COUNT shows no items."""
    a_table(aws)
    aws.client("dynamodb").put_item(
        TableName="orders",
        Item={
            "pk": {"S": "a"},
            "m": {"M": {"x": {"B": b"\xff"}, "y": {"N": "1"}}},
            "l": {"L": [{"S": "0"}, {"M": {"k": {"S": "1"}}}, {"S": "2"}]},
        },
    )
    (page,) = pages(aws, ProjectionExpression="m.x, l[2], l[1].k, missing.deep")
    assert page["Items"] == [
        {
            "m": {"M": {"x": {"B": b"\xff"}}},
            "l": {"L": [{"M": {"k": {"S": "1"}}}, {"S": "2"}]},
        }
    ]
    (counted,) = pages(aws, Select="COUNT")
    assert counted["Count"] == 1
    assert "Items" not in counted


def test_a_query_reads_one_partition_in_order(aws: Emulator) -> None:
    """Sort keys order by value, in both directions, by page."""
    a_table(aws, keys="pk:S,sk:N")
    dynamodb = aws.client("dynamodb")
    for partition in ("a", "b"):
        for number in ("10", "9", "-1", "0.5"):
            dynamodb.put_item(
                TableName="orders", Item={"pk": {"S": partition}, "sk": {"N": number}}
            )

    def query(**more: Any) -> list[str]:
        met: list[str] = []
        while True:
            page = dynamodb.query(
                TableName="orders",
                KeyConditionExpression="pk = :p AND sk > :s",
                ExpressionAttributeValues={":p": {"S": "a"}, ":s": {"N": "-1"}},
                Limit=2,
                **more,
            )
            met += [item["sk"]["N"] for item in page["Items"]]
            if "LastEvaluatedKey" not in page:
                return met
            more["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    assert query() == ["0.5", "9", "10"]
    assert query(ScanIndexForward=False) == ["10", "9", "0.5"]


def test_an_index_is_written_and_read(aws: Emulator) -> None:
    """A table with a global index takes the same writes; the index answers Query and Scan."""
    dynamodb = aws.client("dynamodb")
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "city", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-city",
                "KeySchema": [{"AttributeName": "city", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    dynamodb.put_item(
        TableName="orders", Item={"pk": {"S": "a"}, "city": {"S": "Oslo"}, "v": {"N": "1.0"}}
    )
    dynamodb.put_item(TableName="orders", Item={"pk": {"S": "b"}})
    one = dynamodb.query(
        TableName="orders",
        KeyConditionExpression="pk = :p",
        ExpressionAttributeValues={":p": {"S": "b"}},
    )
    assert one["Items"] == [{"pk": {"S": "b"}}]
    found = dynamodb.query(
        TableName="orders",
        IndexName="by-city",
        KeyConditionExpression="city = :c",
        ExpressionAttributeValues={":c": {"S": "Oslo"}},
    )
    assert found["Items"] == [{"pk": {"S": "a"}, "city": {"S": "Oslo"}}]
    assert dynamodb.scan(TableName="orders", IndexName="by-city")["Count"] == 1


def test_gets_of_one_and_of_many(aws: Emulator) -> None:
    """GetItem, BatchGetItem and TransactGetItems read the same items."""
    a_table(aws)
    fill(aws, 3)
    dynamodb = aws.client("dynamodb")
    keys = [{"pk": {"S": f"key-{number}"}} for number in (0, 2, 9)]
    one = dynamodb.get_item(TableName="orders", Key=keys[1], ConsistentRead=True)["Item"]
    assert one["n"] == {"N": "2"}
    assert "Item" not in dynamodb.get_item(TableName="orders", Key=keys[2])
    many = dynamodb.batch_get_item(RequestItems={"orders": {"Keys": keys}})["Responses"]["orders"]
    assert sorted(item["n"]["N"] for item in many) == ["0", "2"]
    answers = dynamodb.transact_get_items(
        TransactItems=[{"Get": {"TableName": "orders", "Key": key}} for key in keys]
    )["Responses"]
    assert [answer.get("Item", {}).get("n") for answer in answers] == [
        {"N": "0"},
        {"N": "2"},
        None,
    ]
