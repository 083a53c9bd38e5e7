"""Public reports that show in a whole service only. Numbers are those of docs/situations.md."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest

from accelerator.errors import AcceleratorError
from connector import course
from emulator import Emulator
from tests.faults.served import HOUR_S, TABLE, Served, create_table, delete, put, served, wait_until


@pytest.mark.situation(46)
def test_a_shipped_file_that_is_too_old_is_not_resumed(tmp_path: Path) -> None:
    """A copy of a data file starts elsewhere: its age is its positions', not the copy's."""
    with Emulator(shards=1) as aws:
        create_table(aws)
        put(aws, "a", v=1)
        with served(tmp_path / "first", aws) as running:
            running.wait_ready()
        put(aws, "a", v=2)
        aws.control.advance(19 * HOUR_S)
        shutil.copytree(tmp_path / "first", tmp_path / "second")
        with served(tmp_path / "second", aws) as running:
            running.wait_state("Error")
            assert "checkpoint_stale" in running.codes(), running.says()


@pytest.mark.situation(50)
@pytest.mark.situation(49)
def test_a_snapshot_that_takes_longer_than_retention_loses_nothing(tmp_path: Path) -> None:
    """While the scan stands still for 30 hours the stream is drained; then the scan goes on."""
    with Emulator(shards=1) as aws:
        create_table(aws)
        expected = {f"k{n}": 0 for n in range(30)}
        put(aws, *expected, v=0)
        stuck = aws.fault("throttle", operation="Scan", skip=1)  # the first look is let through
        with served(tmp_path / "data", aws) as running:
            wait_until(lambda: stuck.hits, "the scan stands still")
            for part in range(5):
                put(aws, f"k{part}", f"new{part}", v=part + 1)
                delete(aws, f"k{part + 10}")
                expected |= {f"k{part}": part + 1, f"new{part}": part + 1}
                del expected[f"k{part + 10}"]
                fresh = f"SELECT v FROM orders WHERE pk = 'new{part}'"
                wait_until(partial(_yields, running, fresh, part + 1), "the stream is drained")
                aws.control.advance(6 * HOUR_S)
            aws.faults.clear()
            running.wait_ready().wait_rows(expected)
            assert running.query("SELECT count(*) FROM dynaduck.gaps") == [(0,)]


def _yields(running: Served, query: str, value: int) -> bool:
    try:
        return running.query(query) == [(value,)]
    except AcceleratorError:
        return False  # the first item has not made the column yet


@pytest.mark.situation(59)
@pytest.mark.situation(40)
def test_a_stop_in_the_middle_of_work_is_in_order(tmp_path: Path) -> None:
    """Readers end before the queues, the queues before the file: no error, and it resumes whole."""
    with Emulator(shards=4) as aws:
        create_table(aws)
        expected = {f"k{n}": 0 for n in range(200)}
        put(aws, *expected)
        for round_number in range(3):
            with served(tmp_path / "data", aws) as running:
                service = running.service
                wait_until(lambda: running.kept().stored is not None, "it has begun")
                put(aws, *(f"k{n}" for n in range(40)), v=round_number + 1)
                assert service.stop()
                assert [loop.name for loop in service._loops() if loop.crash is not None] == []
        expected |= {f"k{n}": 3 for n in range(40)}
        with served(tmp_path / "data", aws) as running:
            running.wait_ready().wait_rows(expected)


@pytest.mark.situation(60)
def test_what_is_read_and_not_applied_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that stands still stops the scan after its queue is full, not the host's memory."""
    bound_bytes = 100_000
    monkeypatch.setattr(course, "SCAN_QUEUE_BYTES", bound_bytes)
    with Emulator(shards=1, max_page_bytes=50_000) as aws:
        create_table(aws)
        client = aws.client("dynamodb")
        for n in range(60):
            client.put_item(
                TableName=TABLE,
                Item={"pk": {"S": f"k{n}"}, "v": {"N": "0"}, "pad": {"S": "x" * 300_000}},
            )
        aws.hold("Scan", skip=1).release()
        with served(tmp_path / "data", aws) as running:
            wait_until(lambda: aws.calls.count("Scan") >= 2, "the scan has begun")
            with running.service.writing:
                began = aws.calls.count("Scan")
                kept = running.kept()
                wait_until(lambda: kept.queued_bytes >= bound_bytes, "the queue is full")
                scans = aws.calls.count("Scan")
                polls = aws.calls.count("GetRecords")
                wait_until(lambda: aws.calls.count("GetRecords") > polls, "the stream is read on")
                assert aws.calls.count("Scan") - scans <= 4  # those in flight: one per thread
                # Of sixty pages, two fill the queue and each of four threads has one in flight.
                assert scans - began <= 8, "the queue is not what stops it"
            running.wait_ready()
            assert running.query("SELECT count(*) FROM orders") == [(60,)]


@pytest.mark.situation(70)
@pytest.mark.situation(67)
def test_expiry_comes_as_the_service_of_expiry(tmp_path: Path) -> None:
    """The emulator's TTL deletes carry the identity that AWS gives them, end to end."""
    history = {"history": {"enabled": True, "retention": "1h"}}
    with Emulator(shards=1) as aws:
        create_table(aws)
        client = aws.client("dynamodb")
        client.update_time_to_live(
            TableName=TABLE, TimeToLiveSpecification={"Enabled": True, "AttributeName": "ends"}
        )
        ends = {"N": str(int(aws.clock.now_s()) + 5)}
        client.put_item(TableName=TABLE, Item={"pk": {"S": "a"}, "v": {"N": "1"}, "ends": ends})
        put(aws, "b", "c", v=1)
        with served(tmp_path / "data", aws, dataset=history) as running:
            running.wait_ready()
            aws.control.advance(10)
            assert aws.control.expire_ttl(TABLE) == 1
            delete(aws, "b")
            running.wait_rows({"c": 1})
            found = running.query(
                "SELECT keys, ttl_delete, old_image FROM orders_history WHERE op = 'remove'"
            )
            assert {json.loads(keys)["pk"]["S"]: ttl for keys, ttl, _ in found} == {
                "a": True,
                "b": False,
            }
            assert all("pk" in json.loads(old) for *_, old in found)


@pytest.mark.situation(71)
@pytest.mark.situation(72)
def test_it_follows_the_stream_and_needs_nothing_in_aws_but_to_read(tmp_path: Path) -> None:
    """Changes come without a scan; checkpoints lie in the data file, in nobody's account."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        put(aws, "a", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready()
            scans = aws.calls.count("Scan")
            aws.calls.clear()
            put(aws, "a", "b", v=2)
            running.wait_rows({"a": 2, "b": 2})
            assert aws.calls.count("Scan") == 0
            assert scans > 0
            running.stop()
            running.start().wait_ready()
        asked = set(aws.calls.counts()) - {"PutItem"}
        assert asked <= {"DescribeTable", "DescribeStream", "GetShardIterator", "GetRecords"}
