"""The stream tells the table's whole story, whatever is done to either."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import Front, ManualClock, TableSettings, World

KEYS = 6

_STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, KEYS - 1), st.integers(0, 3)),
    st.tuples(st.just("update"), st.integers(0, KEYS - 1), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.integers(0, KEYS - 1), st.just(0)),
    st.tuples(st.just("transact"), st.integers(0, KEYS - 2), st.integers(0, 3)),
    st.tuples(st.just("refused"), st.integers(0, KEYS - 1), st.integers(0, 3)),
    st.tuples(st.just("split"), st.just(0), st.just(0)),
    st.tuples(st.just("rollover"), st.just(0), st.just(0)),
    st.tuples(st.just("advance"), st.just(0), st.integers(1, 500)),
)


def key(number: int) -> dict[str, Any]:
    return {"pk": {"N": str(number)}}


def take(front: Front, step: tuple[str, int, int]) -> None:
    """Carries out one step through the API or a lever."""
    name, number, value = step
    put = {"TableName": "t", "Item": {"pk": {"N": f"{number}.0"}, "v": {"N": str(value)}}}
    if name == "put":
        front.call("PutItem", put)
    elif name == "update":
        front.call(
            "UpdateItem",
            {
                "TableName": "t",
                "Key": key(number),
                "UpdateExpression": "SET w = :w REMOVE v",
                "ExpressionAttributeValues": {":w": {"NS": [str(value), "9"]}},
            },
        )
    elif name == "delete":
        front.call("DeleteItem", {"TableName": "t", "Key": key(number)})
    elif name == "transact":
        front.call(
            "TransactWriteItems",
            {
                "TransactItems": [
                    {"Put": put},
                    {"Delete": {"TableName": "t", "Key": key(number + 1)}},
                ]
            },
        )
    elif name == "refused":
        reply = front.call("PutItem", put | {"ConditionExpression": "attribute_exists(nothing)"})
        assert reply.outcome == "ConditionalCheckFailedException"
    elif name == "split":
        front.control.split("t")
    elif name == "rollover":
        front.control.rollover("t", front.control.open_shards("t")[0].shard_id)
    else:
        front.control.advance(value)


def read_shard(front: Front, arn: str, shard_id: str) -> list[dict[str, Any]]:
    """Every record of a shard, until the tip or the end says so."""
    params: dict[str, Any] = {
        "StreamArn": arn,
        "ShardId": shard_id,
        "ShardIteratorType": "TRIM_HORIZON",
    }
    token = json.loads(front.call("GetShardIterator", params).body)["ShardIterator"]
    records: list[dict[str, Any]] = []
    empty = 0
    while token is not None and empty < 3:
        page = json.loads(front.call("GetRecords", {"ShardIterator": token, "Limit": 2}).body)
        records += page["Records"]
        empty = 0 if page["Records"] else empty + 1
        token = page.get("NextShardIterator")
    return records


@given(
    steps=st.lists(_STEPS, max_size=60),
    shards=st.integers(1, 5),
    seed=st.integers(0, 1000),
    last_page=st.sampled_from(["with_records", "empty", "mixed"]),
    empty_pages=st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_replaying_the_shards_in_lineage_order_gives_the_table(
    steps: list[tuple[str, int, int]], shards: int, seed: int, last_page: str, empty_pages: int
) -> None:
    """Parents before children, each change once, old images chain, numbers grow, end equal."""
    world = World(
        clock=ManualClock(),
        seed=seed,
        settings=TableSettings().changed(
            shards=shards, last_page=last_page, empty_pages=empty_pages, describe_page_size=2
        ),
    )
    world.create_table("t", "pk:N")
    front = Front(world)
    for step in steps:
        take(front, step)
    arn = world.stream("t").identity.arn
    listed: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        described = json.loads(front.call("DescribeStream", {"StreamArn": arn} | after).body)
        listed += described["StreamDescription"]["Shards"]
        last = described["StreamDescription"].get("LastEvaluatedShardId")
        if last is None:
            break
        after = {"ExclusiveStartShardId": last}

    replica: dict[str, Any] = {}
    newest: dict[str, int] = {}
    events: set[str] = set()
    waiting = {shard["ShardId"]: shard for shard in listed}
    while waiting:
        ready = [name for name, s in waiting.items() if s.get("ParentShardId") not in waiting]
        assert ready
        for shard_id in ready:
            del waiting[shard_id]
            for record in read_shard(front, arn, shard_id):
                body = record["dynamodb"]
                name = body["Keys"]["pk"]["N"]
                assert body.get("OldImage") == replica.get(name)
                assert body.get("OldImage") != body.get("NewImage")
                assert int(body["SequenceNumber"]) > newest.get(name, 0)
                assert record["eventID"] not in events
                newest[name] = int(body["SequenceNumber"])
                events.add(record["eventID"])
                if "NewImage" in body:
                    replica[name] = body["NewImage"]
                else:
                    del replica[name]
    assert replica == {item["pk"]["N"]: item for item in world.items("t")}
