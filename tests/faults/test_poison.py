"""Changes that cannot be applied: set aside with all they carried, or halting their dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connector.snapshot.single_keys import Replayed
from emulator import Emulator
from metrics import catalog
from tests.faults.served import TABLE, create_table, put, served, wait_until

PINNED: dict[str, Any] = {"columns": [{"name": "v", "type": "BIGINT"}]}
"""What no number fits becomes a dead letter: the pin forbids that the column widens."""


@contextmanager
def tables(*names: str) -> Iterator[Emulator]:
    with Emulator(shards=1) as aws:
        for name in names:
            create_table(aws, name)
            put(aws, "a", v=1, table=name)
        yield aws


def put_poison(aws: Emulator, key: str) -> dict[str, Any]:
    item = {"pk": {"S": key}, "v": {"S": "not a number"}, "rest": {"N": "7"}}
    aws.client("dynamodb").put_item(TableName=TABLE, Item=item)
    return item


@pytest.mark.situation(57)
def test_one_poison_record_costs_one_record(tmp_path: Path) -> None:
    """Before it, after it and beside it all is applied; it is kept whole, told and counted."""
    with tables(TABLE) as aws, served(tmp_path / "data", aws, dataset=PINNED) as running:
        running.wait_ready()
        put(aws, "b", v=2)
        item = put_poison(aws, "bad")
        put(aws, "a", "c", v=3)
        running.wait_rows({"a": 3, "b": 2, "c": 3}).wait_ready()
        ((shard_id, number, event, record, error),) = running.query(
            "SELECT shard_id, sequence_number, event_name, record, error FROM dynaduck.dead_letters"
        )
        assert shard_id.startswith("shardId-")
        assert number.isdigit()
        assert event == "insert"
        assert json.loads(record) == {"Keys": {"pk": item["pk"]}, "NewImage": item}
        assert "pin" in error
        # Counted once the commit has been told of, which a reader of its rows may overtake.
        wait_until(lambda: running.metric(catalog.DEAD_LETTERS) == 1, "it is counted")
        wait_until(lambda: running.codes() == ["dead_letters"], "the dead letter is told of")
        assert running.state() == "Ready"


@pytest.mark.slow(10)
@pytest.mark.situation(57)
def test_a_replay_reads_the_key_anew_and_lets_the_letter_go(tmp_path: Path) -> None:
    """Unmended it stays a dead letter; once the item is mended its row is there and no letter."""
    with tables(TABLE) as aws, served(tmp_path / "data", aws, dataset=PINNED) as running:
        running.wait_ready()
        put_poison(aws, "bad")
        put(aws, "b", v=2)
        running.wait_rows({"a": 1, "b": 2}).wait_ready()
        letters = running.service.single_keys(TABLE)
        assert letters.replay() == Replayed(replayed=0, still_dead=1, kept=0)
        assert len(letters.dead_letters()) == 1
        assert running.rows() == {"a": 1, "b": 2}

        put(aws, "bad", v=9)
        running.wait_rows({"a": 1, "b": 2, "bad": 9}).wait_ready()
        assert letters.replay() == Replayed(replayed=1, still_dead=0, kept=0)
        assert letters.dead_letters() == ()
        assert running.rows() == {"a": 1, "b": 2, "bad": 9}
        wait_until(lambda: running.codes() == [], "no dead letter is told of")


@pytest.mark.slow(30)
@pytest.mark.situation(39)
def test_a_poison_record_halts_its_dataset_alone(tmp_path: Path) -> None:
    """Policy `halt`: nothing after the record is applied or checkpointed, the other table goes on;
    under `quarantine` it goes on from that very record.
    """
    halt = PINNED | {"poison": "halt"}
    with (
        tables(TABLE, "others") as aws,
        served(tmp_path / "data", aws, tables=(TABLE, "others"), dataset=halt) as running,
    ):
        running.wait_ready().wait_ready("others")
        put_poison(aws, "bad")
        running.wait_state("Error")
        assert "commit_failing" in running.codes()
        assert "quarantine" in running.says()
        put(aws, "b", v=2)
        put(aws, "b", v=2, table="others")
        running.wait_rows({"a": 1, "b": 2}, "others")
        running.wait_ready("others")
        assert running.rows() == {"a": 1}
        assert running.query("SELECT count(*) FROM dynaduck.dead_letters") == [(0,)]

        running.stop()
        running.configure(poison="quarantine")
        running.start().wait_ready().wait_rows({"a": 1, "b": 2})
        assert running.query("SELECT count(*) FROM dynaduck.dead_letters") == [(1,)]
