"""The emulator without sockets, as a simulation on virtual time drives it."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from emulator import Front, ManualClock, World

A = {"pk": {"S": "a"}}


def a_front(seed: int = 0) -> Front:
    world = World(clock=ManualClock(), seed=seed)
    world.create_table("orders", "pk:S")
    return Front(world)


def answer(front: Front, operation: str, **params: Any) -> Any:
    reply = front.call(operation, params)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def test_a_call_gives_the_bytes_that_the_wire_would_carry() -> None:
    """Body, CRC, Date and status are those of the HTTP answer."""
    front = a_front()
    assert front.call("PutItem", {"TableName": "orders", "Item": A}).body == b"{}"
    reply = front.call("Scan", {"TableName": "orders"})
    assert reply.body == b'{"Count":1,"ScannedCount":1,"Items":[{"pk":{"S":"a"}}]}'
    assert reply.headers["x-amz-crc32"] == str(zlib.crc32(reply.body))
    assert reply.headers["Date"] == "Sun, 15 Jun 2025 15:06:40 GMT"
    failed = front.call("Scan", {"TableName": "nothing"})
    assert (failed.status, failed.outcome) == (400, "ResourceNotFoundException")


def test_parameters_of_the_caller_are_not_changed() -> None:
    """Normalising works on a copy."""
    front = a_front()
    item = A | {"n": {"N": "1.0"}}
    front.call("PutItem", {"TableName": "orders", "Item": item})
    assert item["n"] == {"N": "1.0"}


def test_faults_are_written_in_the_reply_and_cost_no_time() -> None:
    """Latency and broken connections are for the caller to play out on its own clock."""
    front = a_front()
    front.faults.add("latency", seconds=3600.0, count=1)
    front.faults.add("drop", operation="PutItem", when="after", count=1)
    reply = front.call("PutItem", {"TableName": "orders", "Item": A})
    assert reply.is_dropped
    assert len(front.world.items("orders")) == 1
    front.faults.add("hang", keep=0.5, count=1)
    reply = front.call("Scan", {"TableName": "orders"})
    assert (reply.sent_bytes, reply.hangs) == (len(reply.body) // 2, True)
    front.faults.add("latency", seconds=2.5, count=1)
    assert front.call("Scan", {"TableName": "orders"}).delay_s == 2.5


def test_time_passes_only_when_the_clock_is_moved() -> None:
    """A whole life of a stream in no time: written, rolled over, read, expired, trimmed."""
    front = a_front()
    clock = front.world.clock
    arn = front.world.stream("orders").identity.arn
    front.world.put("orders", A)
    shard = front.world.shard_of("orders", A)
    token = front.world.get_shard_iterator(arn, shard.shard_id, "TRIM_HORIZON")
    assert len(front.world.get_records(token).records) == 1
    clock.advance(16 * 60)
    reply = front.call("GetRecords", {"ShardIterator": token})
    assert reply.outcome == "ExpiredIteratorException"
    front.control.rollover("orders")
    clock.advance(24 * 3600)
    token = front.world.get_shard_iterator(arn, shard.shard_id, "TRIM_HORIZON")
    assert answer(front, "GetRecords", ShardIterator=token) == {"Records": []}
    clock.advance(3600)
    assert shard.shard_id not in front.world.stream("orders").shards


def test_the_plain_python_calls_read_what_the_api_reads() -> None:
    """put, delete, scan and items are the operations without their JSON."""
    front = a_front()
    for number in range(10):
        front.world.put("orders", {"pk": {"S": str(number)}, "n": {"N": f"{number}.0"}})
    front.world.delete("orders", {"pk": {"S": "3"}})
    met: list[dict[str, Any]] = []
    for segment in range(3):
        start: dict[str, Any] | None = None
        while True:
            page = front.world.scan(
                "orders", limit=2, start_after=start, segment=segment, total_segments=3
            )
            met += page.items
            start = page.last_evaluated_key
            if start is None:
                break
    assert len(met) == 9
    assert sorted(met, key=str) == sorted(front.world.items("orders"), key=str)
    assert {"pk": {"S": "4"}, "n": {"N": "4"}} in met
    page_of_records = [
        record.to_dict()["eventName"]
        for shard in front.control.shards("orders")
        for record in shard.records
    ]
    assert sorted(page_of_records) == ["INSERT"] * 10 + ["REMOVE"]


def test_the_same_seed_and_calls_give_the_same_bytes() -> None:
    """A simulation that failed can be run again from its seed."""

    def run(seed: int) -> list[bytes]:
        front = a_front(seed)
        bodies = []
        for number in range(30):
            front.call("PutItem", {"TableName": "orders", "Item": {"pk": {"S": str(number)}}})
            if number % 10 == 5:
                front.control.split("orders")
        for shard in front.control.shards("orders"):
            token = front.world.get_shard_iterator(
                front.world.stream("orders").identity.arn, shard.shard_id, "TRIM_HORIZON"
            )
            bodies.append(front.call("GetRecords", {"ShardIterator": token}).body)
        bodies.append(front.call("DescribeTable", {"TableName": "orders"}).body)
        return bodies

    assert run(1) == run(1)
    assert run(1) != run(2)


# Reads that are only eventually consistent


def stale_front(stale_reads_s: float) -> Front:
    front = a_front()
    for name in ("changed", "deleted", "kept"):
        front.world.put("orders", {"pk": {"S": name}, "v": {"N": "1"}})
    front.control.advance(10)
    front.control.configure(stale_reads_s=stale_reads_s)
    front.world.put("orders", {"pk": {"S": "changed"}, "v": {"N": "2"}})
    front.world.delete("orders", {"pk": {"S": "deleted"}})
    front.world.put("orders", {"pk": {"S": "new"}, "v": {"N": "1"}})
    return front


def values(front: Front, **params: Any) -> dict[str, str]:
    """What a scan sees, over pages of one item and two segments."""
    seen: dict[str, str] = {}
    for segment in range(2):
        more: dict[str, Any] = {}
        while True:
            page = answer(
                front,
                "Scan",
                TableName="orders",
                Limit=1,
                Segment=segment,
                TotalSegments=2,
                **params,
                **more,
            )
            for item in page["Items"]:
                assert item["pk"]["S"] not in seen
                seen[item["pk"]["S"]] = item["v"]["N"]
            if "LastEvaluatedKey" not in page:
                break
            more = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    return seen


OLD = {"changed": "1", "deleted": "1", "kept": "1"}
NEW = {"changed": "2", "kept": "1", "new": "1"}


def test_a_read_without_consistency_can_see_the_past() -> None:
    """With `stale_reads_s` set, Scan and GetItem see the table of so many seconds ago."""
    front = stale_front(5.0)
    assert values(front) == OLD
    assert values(front, FilterExpression="attribute_exists(pk)") == OLD
    assert values(front, ConsistentRead=True) == NEW
    key = {"pk": {"S": "deleted"}}
    assert "Item" in answer(front, "GetItem", TableName="orders", Key=key)
    assert answer(front, "GetItem", TableName="orders", Key=key, ConsistentRead=True) == {}
    front.control.advance(4.9)
    assert values(front) == OLD
    front.control.advance(0.2)
    assert values(front) == NEW


def test_a_read_of_the_past_skips_every_newer_write() -> None:
    """A key written several times within the lag shows what it held before the first of them."""
    front = stale_front(5.0)
    for value in ("3", "4"):
        front.control.advance(1)
        front.world.put("orders", {"pk": {"S": "changed"}, "v": {"N": value}})
    assert values(front) == OLD
    front.control.advance(3.5)
    assert values(front) == NEW
    front.control.advance(1)
    assert values(front) == NEW | {"changed": "3"}


def test_by_default_reads_see_the_present() -> None:
    """Staleness is asked for, and memory for it is spent only then."""
    assert values(stale_front(0.0)) == NEW


def test_the_past_is_forgotten_when_no_read_can_see_it() -> None:
    """Replaced images are kept for the set time and no longer."""
    front = stale_front(5.0)
    table = front.world.table("orders")
    for _ in range(20):
        front.control.advance(3)
        front.world.put("orders", {"pk": {"S": "kept"}, "v": {"N": str(front.world.now_s())}})
    assert len(table.past) <= 3


@pytest.mark.parametrize("operation", ["PutItem", "Scan", "GetRecords", "MakeCoffee"])
def test_a_call_without_parameters_is_answered(operation: str) -> None:
    """No call raises; each has a reply."""
    assert a_front().call(operation, {}).status == 400
