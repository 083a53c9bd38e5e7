"""Real processes that share a log: killed, put to sleep and woken, told to go, cut off.

Each node has an access key of its own, by which the emulator tells who read which shard. The lease
is watched for three seconds instead of thirty (`quick_cluster`): there is no setting for it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from accelerator.segment import SegmentFile
from checkpoints.keys import PipelineKey
from checkpoints.segment_log import GENESIS, SegmentLog
from connector.aws.stores import S3ObjectStore, StoreSettings, store_client
from emulator import Emulator
from tests.e2e.harness import REPOSITORY, Service, dynaduck, wait_until

OBSERVE_S = 3.0
BUCKET, OFFSETS, TABLE = "logs", "offsets", "orders"
PIPELINE = PipelineKey("default", "default", "default")
KEYS = 40
# What a node asks of AWS while it follows: the log and the offset table, and nothing else.
FOLLOWING = {"GetObject", "PutObject", "ListObjectsV2", "GetItem", "PutItem", "UpdateItem"} | {
    "Query",
    "DeleteItem",
    "ListObjects",
}


class Node(Service):
    """One process of the cluster, under a key and with a disk of its own."""

    def __init__(self, aws: Emulator, directory: Path, name: str, wal_storage: str) -> None:
        super().__init__(
            directory / name,
            aws.url,
            datasets=[
                {
                    "from": f"dynamodb:{TABLE}",
                    "name": TABLE,
                    "params": {"dynamodb_aws_region": aws.region},
                }
            ],
            runtime={
                "wal_storage": wal_storage,
                "wal_s3_bucket": BUCKET,
                **({"offset_dynamodb_table": OFFSETS} if wal_storage == "clustered" else {}),
            },
            env={"AWS_ACCESS_KEY_ID": f"NODE{name.upper()}"},
        )
        self.name = name
        self.key = f"NODE{name.upper()}"

    def start(self, **env: str) -> Node:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.e2e.quick_cluster",
                    "run",
                    "-c",
                    str(self.config_path),
                    "--log-format",
                    "json",
                ],
                stdout=log,
                stderr=log,
                env=self._env | {"TEST_OBSERVE_S": str(OBSERVE_S)} | env,
                cwd=REPOSITORY,
            )
        return self

    def standing(self) -> dict[str, Any]:
        """This node as it says itself; empty while it does not answer."""
        status, document = self.get("/v1/status")
        return document["cluster"] if status == 200 else {}

    def leads(self) -> bool:
        return self.is_running and self.standing().get("role") == "leader"

    def items(self) -> dict[str, int]:
        rows = self.sql(f"SELECT id, n FROM {TABLE}")
        found = {row["id"]: row["n"] for row in rows}
        assert len(found) == len(rows), "a key is there twice"
        return found


class Writer(threading.Thread):
    """Changes the table all the while; `items` is what it holds once the writer has stopped."""

    def __init__(self, aws: Emulator) -> None:
        super().__init__(daemon=True)
        self._client = aws.client("dynamodb")
        self._ends = threading.Event()
        self.items: dict[str, int] = {}
        self.writes = 0

    def run(self) -> None:
        while not self._ends.is_set():
            self.write()
            self._ends.wait(0.05)

    def write(self) -> None:
        self.writes += 1
        key = f"k{self.writes * 7 % KEYS}"
        if self.writes % 9 == 0:
            self._client.delete_item(TableName=TABLE, Key={"id": {"S": key}})
            self.items.pop(key, None)
        else:
            item = {"id": {"S": key}, "n": {"N": str(self.writes)}}
            self._client.put_item(TableName=TABLE, Item=item)
            self.items[key] = self.writes

    def end(self) -> None:
        self._ends.set()
        self.join(30)


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2) as emulator:
        client = emulator.client("dynamodb")
        for table, columns in ((TABLE, {"id": "HASH"}), (OFFSETS, {"PK": "HASH", "SK": "RANGE"})):
            client.create_table(
                TableName=table,
                KeySchema=[{"AttributeName": n, "KeyType": r} for n, r in columns.items()],
                AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in columns],
                BillingMode="PAY_PER_REQUEST",
                StreamSpecification={
                    "StreamEnabled": True,
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
            )
        emulator.client("s3").create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
        yield emulator


@contextmanager
def nodes(aws: Emulator, directory: Path, *names: str) -> Iterator[list[Node]]:
    """Started, the first of them as leader; none outlives the block."""
    made = [Node(aws, directory, name, "clustered") for name in names]
    try:
        yield made
    finally:
        for node in made:
            if node.is_running:
                assert node.process is not None
                node.process.send_signal(signal.SIGCONT)
                node.kill()


def leader_of(made: list[Node], *, but: Node | None = None) -> Node:
    found: list[Node] = []

    def is_there() -> bool:
        found[:] = [node for node in made if node is not but and node.leads()]
        return bool(found)

    logs = {node.name: node for node in made}
    wait_until(is_there, 60, f"one of {sorted(logs)} leads")
    return found[0]


def log_of(aws: Emulator) -> SegmentLog[Any]:
    settings = StoreSettings(aws.region, "test", "test", s3_endpoint_url=aws.url)
    store = S3ObjectStore(store_client("s3", settings), BUCKET)
    return SegmentLog(store, PIPELINE, SegmentFile(), writer="test")


def shards_read(aws: Emulator) -> dict[str, list[tuple[float, str]]]:
    """Who read each shard when, by the emulator."""
    reads: dict[str, list[tuple[float, str]]] = {}
    for call in aws.calls.calls("GetRecords"):
        reads.setdefault(str(call.shard_id), []).append((call.time_s, call.caller))
    return reads


def holds(node: Node, writer: Writer) -> bool:
    return node.items() == writer.items


def assert_whole(aws: Emulator, made: list[Node], writer: Writer) -> None:
    """Nothing lost, nothing twice: on every node, and in the log that all of them followed."""
    for node in made:
        if node.is_running:
            node.wait_ready()
            wait_until(partial(holds, node, writer), 60, f"{node.name} equals")
    file = SegmentFile()
    seen: Counter[str] = Counter()
    for segment in log_of(aws).after(GENESIS):  # raises where the chain is broken
        batch = file.batch(segment.header, segment.data)
        if batch is not None and not batch.is_scan:
            seen.update(batch.changes.column("event_id").to_pylist())
    assert set(seen.values()) == {1}, "a change is in the log twice"


def assert_few_readers(aws: Emulator) -> None:
    """Never more than two processes on a shard within any second."""
    for reads in shards_read(aws).values():
        for at_s, _ in reads:
            near = {caller for other_s, caller in reads if 0 <= other_s - at_s < 1.0}
            assert len(near) <= 2, near


def killed(leader: Node) -> Callable[[], None]:
    leader.kill()
    return lambda: None


def put_to_sleep(leader: Node) -> Callable[[], None]:
    """Stopped where it stands; the answer wakes it, when another leads."""
    assert leader.process is not None
    process = leader.process
    process.send_signal(signal.SIGSTOP)

    def wake() -> None:
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: leader.standing().get("role") == "follower", 60, "it follows")

    return wake


def told_to_go(leader: Node) -> Callable[[], None]:
    assert leader.stop() == 0
    return lambda: None


def fail_over(made: list[Node], how: Callable[[Node], Callable[[], None]]) -> Node:
    """One change of leaders; the old one is started again if it has ended."""
    old = leader_of(made)
    epoch = old.standing()["epoch"]
    afterwards = how(old)
    new = leader_of(made, but=old)
    assert new.standing()["epoch"] > epoch
    afterwards()
    return old


@pytest.mark.slow(20)
@pytest.mark.timeout(400)
@pytest.mark.requirement("R34")
def test_three_nodes_pass_a_pipeline_on_and_lose_nothing(aws: Emulator, tmp_path: Path) -> None:
    """Killed, asleep, sent away, all while the table changes: every change once, two readers.

    And a follower asks nothing of the table and its stream.
    """
    writer = Writer(aws)
    writer.write()
    with nodes(aws, tmp_path, "a", "b", "c") as made:
        for node in made:
            node.start()
        for node in made:
            node.wait_ready()
        for node in made:
            asked = {call.operation for call in aws.calls.calls("*") if call.caller == node.key}
            assert node.leads() or asked <= FOLLOWING
        writer.start()
        for how in (killed, put_to_sleep, told_to_go):
            fail_over(made, how)
        writer.end()
        assert_whole(aws, made, writer)
        assert_few_readers(aws)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_fifty_failovers_lose_nothing(aws: Emulator, tmp_path: Path) -> None:
    """As above, over and over."""
    writer = Writer(aws)
    writer.write()
    with nodes(aws, tmp_path, "a", "b", "c") as made:
        for node in made:
            node.start()
        for node in made:
            node.wait_ready()
        writer.start()
        for number in range(50):
            old = fail_over(made, (killed, put_to_sleep, told_to_go)[number % 3])
            if not old.is_running:
                old.start()
        writer.end()
        assert_whole(aws, made, writer)
        assert_few_readers(aws)


@pytest.mark.slow(20)
@pytest.mark.timeout(400)
@pytest.mark.requirement("R31")
def test_sync_once_goes_on_from_the_bucket_on_one_empty_disk_after_the_other(
    aws: Emulator, tmp_path: Path
) -> None:
    """Each run finds nothing but the log, and ends with 0 only once it holds all there was."""
    writer = Writer(aws)
    for _ in range(30):
        writer.write()

    def sync(name: str, **env: str) -> Any:
        config = Node(aws, tmp_path, name, "s3").config_path
        return dynaduck("sync", "--once", "-c", str(config), env=env)

    # The first dies right after it put a segment, before its own rows had it.
    assert sync("first", DYNADUCK_FAILPOINT="after_segment:kill:4").returncode == -signal.SIGKILL
    for _ in range(30):
        writer.write()
    assert sync("second").returncode == 0
    began = len(aws.calls.calls("Scan"))
    for _ in range(10):
        writer.write()
    third = sync("third")
    assert third.returncode == 0, third.stderr
    assert len(aws.calls.calls("Scan")) == began, "the table was scanned again"
    with duckdb.connect(tmp_path / "third" / "replica.duckdb", read_only=True) as file:
        found = dict(file.execute(f"SELECT id, n FROM {TABLE}").fetchall())
    assert found == writer.items
    assert_whole(aws, [], writer)


@pytest.mark.requirement("R31")
def test_sync_once_is_refused_in_a_cluster(aws: Emulator, tmp_path: Path) -> None:
    """A lease is for those who stay: exit status 2, and the lease is not asked for."""
    config = Node(aws, tmp_path, "a", "clustered").config_path
    refused = dynaduck("sync", "--once", "-c", str(config))
    assert refused.returncode == 2
    assert "clustered" in refused.stderr
    assert aws.calls.count(table=OFFSETS) == 1  # its creation


@pytest.mark.soak
@pytest.mark.requirement("R28")
def test_a_leader_without_the_offset_table_reads_no_further(aws: Emulator, tmp_path: Path) -> None:
    """What it committed stands; no record is read until its rows could be written, by anybody."""
    writer = Writer(aws)
    writer.write()
    with nodes(aws, tmp_path, "a") as (node,):
        node.start().wait_ready()
        fault = aws.fault("error", operation="PutItem", table=OFFSETS, code="InternalServerError")
        writer.write()
        wait_until(lambda: node.standing().get("is_paused"), 30, "it is paused")
        time.sleep(0.5)  # what was on its way has been answered
        mark = aws.calls.count("GetRecords")
        writer.write()
        time.sleep(1.5)
        assert aws.calls.count("GetRecords") == mark
        aws.faults.remove(fault)
        wait_until(lambda: node.items() == writer.items, 30, "it goes on")
        assert_whole(aws, [node], writer)
