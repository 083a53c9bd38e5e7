"""Leader and followers, measured from outside: failover, a follower's lag, what the log adds.

`python -m bench.cluster` runs real processes against the emulator on this machine, with the lease
as it is: a failover is watched for its whole 30 s. Prints one line of JSON for each figure. The
bucket is the emulator's, so that S3's own time to answer is not in it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from emulator import Emulator
from tests.e2e.harness import Service, wait_until

WRITES: Final = 120
EVERY_S: Final = 0.25
LOOK_EVERY_S: Final = 0.02
TABLES: Final = {"orders": {"id": "HASH"}, "offsets": {"PK": "HASH", "SK": "RANGE"}}


def quantile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Watch(threading.Thread):
    """Asks one node again and again for its largest number, and notes when each was there."""

    def __init__(self, node: Service) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._ends = threading.Event()
        self.seen: dict[int, float] = {}

    def run(self) -> None:
        newest = -1
        while not self._ends.is_set():
            rows = self._node.sql("SELECT max(n) AS n FROM orders")
            now_s, found = time.monotonic(), int(rows[0]["n"] or 0)
            for number in range(newest + 1, found + 1):
                self.seen[number] = now_s
            newest = max(newest, found)
            self._ends.wait(LOOK_EVERY_S)

    def end(self) -> None:
        self._ends.set()
        self.join(10)


def node(aws: Emulator, directory: Path, name: str, wal_storage: str) -> Service:
    params = {"dynamodb_aws_region": aws.region}
    runtime: dict[str, Any] = {"wal_storage": wal_storage}
    if wal_storage != "disk":
        runtime["wal_s3_bucket"] = "logs"
    if wal_storage == "clustered":
        runtime["offset_dynamodb_table"] = "offsets"
    dataset = {"from": "dynamodb:orders", "name": "orders", "params": params}
    return Service(directory / name, aws.url, datasets=[dataset], runtime=runtime)


@contextmanager
def world() -> Iterator[tuple[Emulator, Path, list[Service]]]:
    directory = Path(tempfile.mkdtemp(prefix="bench-cluster-"))
    started: list[Service] = []
    with Emulator(shards=2) as aws:
        client = aws.client("dynamodb")
        for table, columns in TABLES.items():
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": n, "KeyType": r} for n, r in columns.items()],
                AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in columns],
                BillingMode="PAY_PER_REQUEST",
                StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
            )
        client.put_item(TableName="orders", Item=item(0))
        aws.client("s3").create_bucket(
            Bucket="logs", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        try:
            yield aws, directory, started
        finally:
            for service in started:
                if service.is_running:
                    service.kill()
            shutil.rmtree(directory, ignore_errors=True)


def item(number: int) -> dict[str, Any]:
    return {"id": {"S": f"k{number}"}, "n": {"N": str(number)}}


def lags(aws: Emulator, nodes: list[Service]) -> tuple[dict[int, float], list[Watch]]:
    """Writes numbered items; when each was written, and who saw it when."""
    watches = [Watch(each) for each in nodes]
    for watch in watches:
        watch.start()
    client, written = aws.client("dynamodb"), {}
    for number in range(1, WRITES + 1):
        client.put_item(TableName="orders", Item=item(number))
        written[number] = time.monotonic()
        time.sleep(EVERY_S)
    wait_until(lambda: all(WRITES in watch.seen for watch in watches), 60)
    for watch in watches:
        watch.end()
    return written, watches


def tell(figure: str, values: list[float]) -> None:
    line = {
        "figure": figure,
        "p50_ms": round(1000 * quantile(values, 0.5)),
        "p99_ms": round(1000 * quantile(values, 0.99)),
        "n": len(values),
    }
    print(json.dumps(line), flush=True)


def latency(wal_storage: str) -> None:
    with world() as (aws, directory, started):
        one = node(aws, directory, "one", wal_storage)
        started.append(one.start())
        one.wait_ready()
        written, (watch,) = lags(aws, [one])
        tell(f"write to visible, {wal_storage}", [watch.seen[n] - at for n, at in written.items()])


def leads(service: Service) -> bool:
    status, document = service.get("/v1/status")
    return bool(status == 200 and document["cluster"]["role"] == "leader")


def cluster() -> None:
    with world() as (aws, directory, started):
        started += [node(aws, directory, name, "clustered").start() for name in "ab"]
        for each in started:
            each.wait_ready()
        leader = next(each for each in started if leads(each))
        follower = next(each for each in started if each is not leader)
        written, (first, second) = lags(aws, [leader, follower])
        tell("write to visible, leader", [first.seen[n] - at for n, at in written.items()])
        tell("follower behind leader", [second.seen[n] - first.seen[n] for n in written])
        leader.kill()
        began_s = time.monotonic()
        aws.client("dynamodb").put_item(TableName="orders", Item=item(WRITES + 1))
        wait_until(lambda: leads(follower), 120)
        took = {"figure": "SIGKILL to a new leader", "s": round(time.monotonic() - began_s, 1)}
        print(json.dumps(took), flush=True)
        newest = "SELECT max(n) AS n FROM orders"
        wait_until(lambda: follower.sql(newest)[0]["n"] == WRITES + 1, 60)
        took = {"figure": "SIGKILL to a later write", "s": round(time.monotonic() - began_s, 1)}
        print(json.dumps(took), flush=True)
        started.append(node(aws, directory, "c", "clustered").start())
        started[-1].wait_ready()
        began_s = time.monotonic()
        follower.stop()
        wait_until(lambda: leads(started[-1]), 120)
        took = {"figure": "SIGTERM to a new leader", "s": round(time.monotonic() - began_s, 1)}
        print(json.dumps(took), flush=True)


if __name__ == "__main__":
    for mode in sys.argv[1:] or ["disk", "s3", "cluster"]:
        cluster() if mode == "cluster" else latency(mode)
