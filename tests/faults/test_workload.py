"""The judges of the kill tests judge: each wrong copy they are there for is called wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, wait_until
from tests.faults.committed import Committed, faults_of
from tests.faults.workload import TABLE, Truth, Watcher, Workload, create_table, fill, key_of

A = ("a", 1)


def answer(*rows: tuple[str, int, int]) -> bytes:
    return json.dumps([{"pk": pk, "sk": sk, "v": v} for pk, sk, v in rows]).encode()


@pytest.fixture
def watcher(tmp_path: Path) -> Watcher:
    service = Service(tmp_path / "data", "http://127.0.0.1:9", datasets=[])
    return Watcher(service, Truth())


def judged(watcher: Watcher, *answers: bytes) -> list[str]:
    for each in answers:
        watcher.judge(each)
    return watcher.violations


def test_growing_versions_are_fine(watcher: Watcher) -> None:
    """Rows that stand still, grow, go after a delete and come back younger break nothing."""
    watcher._truth.deletes[A] = 3
    answers = [answer(("a", 1, 1)), answer(("a", 1, 2)), answer(), answer(), answer(("a", 1, 4))]
    assert judged(watcher, *answers) == []


def test_a_step_back_is_seen(watcher: Watcher) -> None:
    """An older version after a younger one is a violation."""
    (found,) = judged(watcher, answer(("a", 1, 2)), answer(("a", 1, 1)))
    assert "went back from version 2 to 1" in found


def test_a_resurrection_is_seen(watcher: Watcher) -> None:
    """A row that was gone comes back only with a later write."""
    watcher._truth.deletes[A] = 3
    (found,) = judged(watcher, answer(("a", 1, 2)), answer(), answer(("a", 1, 2)))
    assert "came back" in found


def test_a_lost_row_is_seen(watcher: Watcher) -> None:
    """A row vanishes only when something deleted it after what was seen."""
    watcher._truth.deletes[A] = 1
    (found,) = judged(watcher, answer(("a", 1, 2)), answer())
    assert "never deleted" in found


def test_two_rows_of_one_key_are_seen(watcher: Watcher) -> None:
    """One row per key, in every answer."""
    (found,) = judged(watcher, answer(("a", 1, 2), ("a", 1, 2)))
    assert "two rows" in found


@pytest.fixture
def aws() -> Iterator[Emulator]:
    """A table where a was put twice and b put and deleted, in one shard."""
    with Emulator(shards=1) as emulator:
        create_table(emulator)
        client = emulator.client("dynamodb")
        for key, version in ((("a", 1), 1), (("a", 1), 2), (("b", 1), 1)):
            item = key_of(key) | {"v": {"N": str(version)}}
            client.put_item(TableName=TABLE, Item=item)
        client.delete_item(TableName=TABLE, Key=key_of(("b", 1)))
        yield emulator


@pytest.fixture
def whole(aws: Emulator) -> Committed:
    (shard,) = aws.control.shards(TABLE)
    last = shard.records[-1].sequence_number
    return Committed({A: [2]}, {shard.shard_id: last}, {shard.shard_id: 4}, 0.0, True)


def test_a_right_file_has_no_faults(aws: Emulator, whole: Committed) -> None:
    """Rows as of the positions, or younger, are what a kill may leave."""
    assert faults_of(aws, whole) == []
    assert faults_of(aws, replace(whole, rows={A: [3]})) == []
    assert faults_of(aws, replace(whole, rows={}, positions={}, records={})) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ({A: [1]}, "version 1 of 2"),
        ({}, "no row"),
        ({A: [2, 2]}, "2 rows"),
        ({A: [2], ("b", 1): [1]}, "deleted at 1"),
    ],
)
def test_rows_behind_their_positions_are_found(
    aws: Emulator, whole: Committed, rows: dict[tuple[str, int], list[int]], fault: str
) -> None:
    """A position that is ahead of the rows is called that, and so is a second row of a key."""
    (found,) = faults_of(aws, replace(whole, rows=rows))
    assert fault in found


def test_records_applied_twice_are_found(aws: Emulator, whole: Committed) -> None:
    """No more records are counted than there are up to the position."""
    (shard_id,) = whole.records
    (found,) = faults_of(aws, replace(whole, records={shard_id: 5}))
    assert "counts 5" in found


def test_records_from_before_the_start_are_the_snapshots(aws: Emulator, whole: Committed) -> None:
    """While the snapshot runs, a position promises only what came after reading began."""
    young = replace(whole, rows={}, origin_s=aws.world.clock.now_s() + 60, snapshot_is_done=False)
    assert faults_of(aws, young) == []


def test_the_workload_writes_what_it_says() -> None:
    """Every kind of write happens, shards move, and the newest versions are there."""
    with Emulator(shards=4) as aws:
        create_table(aws)
        fill(aws, 30, pad=10)
        workload = Workload(aws, seed=1, keys=20, pause_s=0.0).start()
        kinds = ("puts", "updates", "deletes", "batches", "transactions", "splits", "rollovers")
        wait_until(
            lambda: workload.failures or all(workload.counts[kind] for kind in kinds),
            what="one write of each kind",
        )
        workload.stop()
        items = aws.client("dynamodb").scan(TableName=TABLE)["Items"]
        there = {(i["pk"]["S"], int(i["sk"]["N"])): int(i["v"]["N"]) for i in items}
        for key, version in workload.truth.versions.items():
            if workload.truth.deletes.get(key) == version:
                assert key not in there
            else:
                assert there[key] == version
        assert len([key for key in there if key[0] == "cold"]) == 30
