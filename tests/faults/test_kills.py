"""SIGKILL at any moment loses nothing, repeats nothing, and brings nothing back.

Writers change a table of many shards that split and roll over, while the real service snapshots and
follows it and is killed again and again. After each kill the file is read as it was left; after
each run source and copy are compared item by item. `SEED` replays a run's writes and its plan of
kills (not the machine's timing): DYNADUCK_TEST_SEED=… pytest tests/faults/test_kills.py.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from checkpoints.positions import KeyAttribute
from connector.aws import AwsSettings, AwsSource
from connector.client import Address, ServiceClient
from connector.clock import SystemClock
from connector.replica import HttpAsk, SqlReplica
from connector.verify import Report, Verification
from emulator import Emulator
from tests.e2e.harness import Service, wait_until
from tests.faults import committed
from tests.faults.workload import TABLE, Watcher, Workload, create_table, fill

SHARDS = 8
COLD_ITEMS = 2500
KILLS = 7
SEEDS = (101, 102, 103)
SOAK_SEEDS = tuple(range(1000, 1025))
SOAK_KILLS = 20
SCHEMA = (KeyAttribute("pk", "S", "HASH"), KeyAttribute("sk", "N", "RANGE"))


def seeds(default: tuple[int, ...]) -> tuple[int, ...]:
    given = os.environ.get("DYNADUCK_TEST_SEED")
    return (int(given),) if given else default


@dataclass(slots=True)
class Run:
    """One table, one service that is killed, and what was seen of it."""

    aws: Emulator
    service: Service
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def kill_at(self, phase: str, delay_s: float) -> None:
        """Kills after a delay from here, and reads what is left."""
        time.sleep(delay_s)
        self.service.kill()
        self.kills[phase] += 1
        left = committed.read_file(self.service.data_dir)
        if left is not None:
            self.faults += committed.faults_of(self.aws, left)

    def compare(self) -> Report:
        source = AwsSource(
            AwsSettings(
                TABLE,
                region="eu-west-1",
                access_key_id="test",
                secret_access_key="test",
                endpoint_url=self.aws.url,
            )
        )
        replica = SqlReplica(
            TABLE, SCHEMA, HttpAsk(ServiceClient(Address.of_url(self.service.url)))
        )
        return Verification(source, replica, SCHEMA, SystemClock()).run()


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=SHARDS, region="eu-west-1") as emulator:
        create_table(emulator)
        fill(emulator, COLD_ITEMS)
        yield emulator


def service_of(aws: Emulator, tmp_path: Path) -> Service:
    return Service(
        tmp_path / "data",
        aws.url,
        datasets=[
            {
                "from": f"dynamodb:{TABLE}",
                "name": TABLE,
                # About five seconds for the snapshot, so that kills can fall into it.
                "params": {"scan_max_rcu": 200},
            }
        ],
    )


def drive(aws: Emulator, tmp_path: Path, seed: int, kills: int) -> Run:
    rng = random.Random(seed)
    run = Run(aws, service_of(aws, tmp_path), seed)
    workload = Workload(aws, seed).start()
    watcher = Watcher(run.service, workload.truth).start()
    try:
        for number in range(kills):
            run.service.start()
            if number < kills // 3:
                wait_until(lambda: run.service.get("/health")[0] == 200, what="it answers")
                run.kill_at("snapshot", rng.uniform(0.0, 2.0))
            elif rng.random() < 0.25:
                run.kill_at("start", rng.uniform(0.3, 2.0))
            else:
                run.service.wait_ready()
                run.kill_at("stream", rng.uniform(0.0, 1.5))
        run.service.start().wait_ready()
        wait_until(lambda: watcher.was_ready, what="the watcher saw it ready")
        time.sleep(rng.uniform(0.5, 1.5))
        workload.stop()
        report = run.compare()
    finally:
        watcher.stop()
        workload_is_done(workload)
        if run.service.is_running:
            run.service.kill()
    told = f"seed {seed}, {dict(run.kills)}, {dict(workload.counts)}, {watcher.answers} answers"
    print(told)
    assert run.faults == [], told
    assert watcher.violations == [], told
    assert report.differences == [], told
    assert report.exit_status == 0, f"{told}: {report.sentence()}"
    assert report.moving == [], told
    assert watcher.answers > 0, told
    assert sum(run.kills.values()) == kills
    assert workload.counts["splits"], told
    assert workload.counts["rollovers"], told
    return run


def workload_is_done(workload: Workload) -> None:
    """Ends the writers of a run that failed, without hiding how it failed."""
    try:
        workload.stop()
    except Exception as error:  # noqa: BLE001 - the run's own error is on its way
        print(f"a writer failed: {error!r}")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_kills_at_random_moments_leave_source_and_copy_equal(
    aws: Emulator, tmp_path: Path, seed: int
) -> None:
    """Killed in snapshot, stream and start, the copy ends equal and never steps back once Ready."""
    run = drive(aws, tmp_path, seed, KILLS)
    assert run.kills["snapshot"]
    assert run.kills["stream"]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_five_hundred_kills(aws: Emulator, tmp_path: Path, seed: int) -> None:
    """The same for as long as patience lasts: 25 tables, 20 kills each."""
    drive(aws, tmp_path, seed, SOAK_KILLS)
