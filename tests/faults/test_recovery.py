"""What follows when a position cannot be read on: the recovery policy, end to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from connector.stream.discovery import Discovery
from emulator import Emulator
from tests.faults.served import (
    HOUR_S,
    Served,
    create_table,
    delete,
    put,
    recreate_table,
    served,
    switch_stream,
    wait_until,
)

RESTART = {"dynamodb_replication_invalid_checkpoint_behavior": "restart"}


@pytest.fixture(autouse=True)
def _lists_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of the emulator's clock pass within seconds: a minute between listings is too long."""
    every_s = Discovery.__init__.__kwdefaults__
    assert every_s is not None
    assert "listing_every_s" in every_s
    monkeypatch.setitem(every_s, "listing_every_s", 0.5)


OLD = {"a": 1, "b": 1}
NEW = {"b": 2, "c": 2}


@contextmanager
def a_table() -> Iterator[Emulator]:
    """A table of the rows OLD."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        put(aws, *OLD, v=1)
        yield aws


def make_new(aws: Emulator) -> None:
    """Turns the rows OLD into NEW: one goes, one changes, one comes."""
    delete(aws, "a")
    put(aws, "b", "c", v=2)


def gap_causes(running: Served) -> set[str]:
    return {cause for (cause,) in running.query("SELECT cause FROM dynaduck.gaps")}


def open_gaps(running: Served) -> int:
    found = running.query("SELECT count(*) FROM dynaduck.gaps WHERE resolution IS NULL")
    return int(found[0][0])


def happen(aws: Emulator, loss: str) -> None:
    """Makes the loss while nobody reads; the rows are NEW afterwards."""
    match loss:
        case "off for 19 h" | "off for 25 h":
            make_new(aws)
            aws.control.advance(float(loss.split()[2]) * HOUR_S)
        case "shards vanished":
            make_new(aws)
            old = [shard.shard_id for shard in aws.control.rollover("orders")]
            for shard in aws.control.shards("orders"):
                if shard.shard_id not in old:
                    aws.control.vanish("orders", shard.shard_id)
        case "stream replaced":
            switch_stream(aws, False)
            make_new(aws)
            switch_stream(aws, True)
        case "table recreated":
            recreate_table(aws)
            put(aws, *NEW, v=2)
        case _:
            raise ValueError(loss)


WHILE_OFF = {
    "off for 19 h": "checkpoint_stale",
    "off for 25 h": "checkpoint_stale",
    "shards vanished": "shard_gone",
    "stream replaced": "stream_replaced",
    "table recreated": "table_recreated",
}


@pytest.mark.situation(34)
@pytest.mark.parametrize("loss", WHILE_OFF)
def test_a_loss_while_off_halts_with_the_data_kept_until_a_refresh(
    tmp_path: Path, loss: str
) -> None:
    """Policy `error`: state Error with cause and remedy, old rows answered, a refresh mends it."""
    with a_table() as aws, served(tmp_path / "data", aws) as running:
        running.wait_ready().stop()
        happen(aws, loss)
        running.start().wait_state("Error")
        wait_until(lambda: WHILE_OFF[loss] in running.codes(), WHILE_OFF[loss])
        assert "dynaduck refresh" in running.says()
        assert running.rows() == OLD
        assert running.service.refusal is None
        assert open_gaps(running) >= 1
        assert running.reinitializations == 0

        running.kept().refresh()
        running.wait_ready().wait_rows(NEW)
        assert open_gaps(running) == 0
        put(aws, "d", v=3)
        running.wait_rows(NEW | {"d": 3})


@pytest.mark.situation(34)
@pytest.mark.situation(45)
@pytest.mark.parametrize("loss", WHILE_OFF)
def test_a_loss_while_off_loads_the_table_anew_beside_the_old_rows(
    tmp_path: Path, loss: str
) -> None:
    """Policy `restart`: the old rows are answered until one swap shows the new ones; counted."""
    with a_table() as aws, served(tmp_path / "data", aws, params=RESTART) as running:
        running.wait_ready().stop()
        happen(aws, loss)
        scan = aws.hold("Scan")
        running.start()
        scan.wait_reached()
        running.wait_state("Snapshotting")
        assert running.rows() == OLD
        assert "rebuilding" in running.codes()
        scan.release()
        seen = [OLD]

        def is_swapped() -> bool:
            rows = running.rows()
            if rows != seen[-1]:
                seen.append(rows)
            return rows == NEW

        wait_until(is_swapped, "the swap")
        assert seen == [OLD, NEW]
        running.wait_ready()
        assert running.reinitializations == 1
        assert gap_causes(running) == {WHILE_OFF[loss]}
        assert open_gaps(running) == 0


@pytest.mark.parametrize("policy", ["error", "restart"])
def test_off_for_17_hours_it_resumes(tmp_path: Path, policy: str) -> None:
    """Younger than 18 hours, a checkpoint is read on from: nothing is scanned again."""
    settings = {"dynamodb_replication_invalid_checkpoint_behavior": policy}
    with a_table() as aws, served(tmp_path / "data", aws, params=settings) as running:
        running.wait_ready().stop()
        aws.control.advance(16 * HOUR_S)
        make_new(aws)
        aws.control.rollover("orders")
        aws.control.advance(HOUR_S)
        put(aws, "d", v=3)
        scans = aws.calls.count("Scan")
        running.start().wait_ready().wait_rows(NEW | {"d": 3})
        assert aws.calls.count("Scan") == scans
        assert running.reinitializations == 0
        assert gap_causes(running) == set()


@pytest.mark.slow(30)
def test_idle_for_days_it_never_becomes_stale(tmp_path: Path) -> None:
    """Empty pages are proof too: what no write touched for three days resumes as if just read."""
    with a_table() as aws, served(tmp_path / "data", aws) as running:
        running.wait_ready()
        for day_part in range(12):
            aws.control.advance(6 * HOUR_S)
            now_ms = int(aws.clock.now_s() * 1000)
            wait_until(partial(running.kept().has_passed, now_ms), f"part {day_part} is passed")
            wait_until(partial(_is_listed, running, now_ms), f"part {day_part} is listed")
            if day_part % 3 == 2:
                aws.control.rollover("orders")
        aws.control.advance(300)  # positions are stored on a slow beat
        wait_until(partial(_is_stored, running, now_ms), "what is proved is stored")
        running.wait_ready().stop()
        aws.control.advance(17 * HOUR_S)
        put(aws, "a", v=5)
        running.start().wait_ready().wait_rows(OLD | {"a": 5})
        assert gap_causes(running) == set()


def _is_stored(running: Served, at_ms: int) -> bool:
    unfinished = "FROM dynaduck.checkpoints WHERE state <> 'finished'"
    return bool(running.query(f"SELECT min(epoch_ms(covered_until)) >= {at_ms} {unfinished}")[0][0])


def _is_listed(running: Served, at_ms: int) -> bool:
    listed_at_ms = running.kept().course.discovery.facts.listed_at_ms
    return listed_at_ms is not None and listed_at_ms >= at_ms


@pytest.mark.situation(31)
@pytest.mark.parametrize("loss", ["stream replaced", "table recreated"])
def test_a_loss_while_running_halts_and_is_mended_by_a_refresh(tmp_path: Path, loss: str) -> None:
    """Policy `error` while it runs: seen without a restart, and the service stays alive."""
    with a_table() as aws, served(tmp_path / "data", aws) as running:
        running.wait_ready()
        happen(aws, loss)
        running.wait_state("Error")
        wait_until(lambda: WHILE_OFF[loss] in running.codes(), WHILE_OFF[loss])
        assert running.query("SELECT count(*) FROM orders") != [(0,)]
        running.kept().refresh()
        running.wait_ready().wait_rows(NEW)


@pytest.mark.situation(31)
@pytest.mark.parametrize("loss", ["stream replaced", "table recreated"])
def test_a_loss_while_running_is_loaded_anew(tmp_path: Path, loss: str) -> None:
    """Policy `restart` while it runs: what the old stream still held is applied, then the swap."""
    with a_table() as aws, served(tmp_path / "data", aws, params=RESTART) as running:
        running.wait_ready()
        happen(aws, loss)
        running.wait_rows(NEW).wait_ready()
        assert running.reinitializations == 1
        assert gap_causes(running) == {WHILE_OFF[loss]}
        put(aws, "d", v=3)
        running.wait_rows(NEW | {"d": 3})


TOO_LATE = {"trimmed", "retention_exceeded"}
"""Who is told first, the reader of a shard or the listing, is a matter of milliseconds."""


def trim_while_paused(aws: Emulator, running: Served, hours: float) -> None:
    """The rows become NEW while nobody reads, and the position in each shard is trimmed."""
    running.kept().pause()
    wait_until(lambda: "paused" in running.codes(), "it is paused")
    make_new(aws)
    aws.control.advance(hours * HOUR_S)
    for shard in aws.control.shards("orders"):
        aws.control.trim("orders", shard.shard_id)
    running.kept().resume()


@pytest.mark.situation(17)
def test_a_trimmed_position_halts_with_the_data_kept(tmp_path: Path) -> None:
    """TrimmedDataAccess while it runs, policy `error`: told and recorded, mended by a refresh."""
    with a_table() as aws, served(tmp_path / "data", aws) as running:
        running.wait_ready()
        trim_while_paused(aws, running, 25)
        running.wait_state("Error")
        wait_until(lambda: TOO_LATE & set(running.codes()), "the loss is told of")
        assert "refresh" in running.says()
        assert running.rows() == OLD
        assert gap_causes(running) <= TOO_LATE
        assert gap_causes(running)
        running.kept().refresh()
        running.wait_ready().wait_rows(NEW)
        assert open_gaps(running) == 0


@pytest.mark.situation(17)
def test_a_trimmed_position_is_loaded_anew(tmp_path: Path) -> None:
    """The same under policy `restart`: by itself, counted, and the stream is followed after it."""
    with a_table() as aws, served(tmp_path / "data", aws, params=RESTART) as running:
        running.wait_ready()
        trim_while_paused(aws, running, 25)
        running.wait_rows(NEW).wait_ready()
        assert running.reinitializations >= 1
        assert gap_causes(running) <= TOO_LATE
        assert gap_causes(running)
        assert open_gaps(running) == 0
        put(aws, "d", v=3)
        running.wait_rows(NEW | {"d": 3})
