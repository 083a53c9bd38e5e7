"""The disk is gone and the offset rows are there: what a start makes of them, in each mode.

Each start is a whole service of this process, over an emulator; `lose_disk` deletes its directory.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from accelerator.stored import stored_progress
from checkpoints.keys import CheckpointKey, PipelineKey
from checkpoints.offsets import OffsetStore
from checkpoints.progress import DatasetProgress, progress_of
from connector.config import load
from connector.errors import OffsetTableUnusable
from connector.service import Service
from connector.storage import offset_items
from connector.sync import Synced, sync_once
from emulator import Emulator
from tests.conformance.emulated import a_table
from tests.dataset_builder import open_database, query, read_items

REGION = "eu-west-1"
PIPELINE = PipelineKey("default", "default", "default")


class Copy:
    """One copy of the table `orders`, with rows in the table `offsets`."""

    def __init__(self, aws: Emulator, directory: Path, snapshot: str, runtime: Any) -> None:
        self.aws = aws
        self.data_dir = directory / "data"
        params = {
            "dynamodb_aws_region": REGION,
            "dynamodb_aws_access_key_id": "test",
            "dynamodb_aws_secret_access_key": "test",
            "endpoint_url": aws.url,
            "dynamodb_replication_initial_snapshot": snapshot,
        }
        document = {
            "datasets": [{"from": "dynamodb:orders", "params": params}],
            "runtime": {
                "data_dir": str(self.data_dir),
                "memory_limit": "400MB",
                "offset_store": "dynamodb",
                "offset_dynamodb_table": "offsets",
                **runtime,
            },
        }
        file = directory / "dynaduck.yaml"
        file.write_text(json.dumps(document))
        self.config = load(file, {}, {})

    def put(self, *keys: str) -> None:
        for key in keys:
            self.aws.client("dynamodb").put_item(TableName="orders", Item={"pk": {"S": key}})

    def sync(self) -> Synced:
        return sync_once(Service(self.config), deadline_s=90)

    def lose_disk(self) -> None:
        shutil.rmtree(self.data_dir)

    def rows(self) -> DatasetProgress | None:
        return progress_of(OffsetStore(offset_items(self.config), PIPELINE).index()).get("orders")

    def look(self) -> tuple[set[str], DatasetProgress | None, list[tuple[Any, ...]]]:
        """Keys, progress and gaps that the file holds."""
        database = open_database(self.data_dir)
        try:
            keys = {item["pk"]["S"] for item in read_items(database).values()}
            gaps = query(database, "SELECT cause, resolution FROM dynaduck.gaps")
            return keys, stored_progress(database, "orders"), gaps
        finally:
            database.close()


@pytest.fixture
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copy]:
    """By (initial_snapshot, runtime settings)."""
    snapshot, runtime = request.param
    with Emulator(shards=1, region=REGION) as aws:
        a_table(aws)
        aws.client("dynamodb").create_table(
            TableName="offsets",
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")
            ],
            KeySchema=[
                {"AttributeName": "PK", "KeyType": "HASH"},
                {"AttributeName": "SK", "KeyType": "RANGE"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        aws.client("s3").create_bucket(
            Bucket="wal", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield Copy(aws, tmp_path, snapshot, runtime)


def over(snapshot: str, **runtime: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("copy", [(snapshot, runtime)], indirect=True, ids=[snapshot])


@pytest.mark.requirement("R26")
@over("auto")
def test_where_a_snapshot_is_wanted_positions_alone_make_no_copy(copy: Copy) -> None:
    """Everything is read anew, under a generation above the rows', so that none of these mix."""
    copy.put("a", "b")
    assert copy.sync().is_caught_up
    keys, before, _ = copy.look()
    assert (keys, before) == ({"a", "b"}, copy.rows())
    copy.lose_disk()
    copy.put("c")
    assert copy.sync().is_caught_up
    keys, after, gaps = copy.look()
    assert keys == {"a", "b", "c"}
    assert gaps == []
    assert before is not None
    assert after is not None
    assert after.generation > before.generation
    assert copy.rows() == after


@pytest.mark.slow(10)
@pytest.mark.requirement("R26")
@over("disabled")
def test_where_changes_are_all_no_later_change_is_lost_with_the_disk(copy: Copy) -> None:
    """It goes on where the rows say, and a resolved gap says what the file held is gone."""
    assert copy.sync().is_caught_up
    copy.put("a")
    assert copy.sync().is_caught_up
    copy.lose_disk()
    copy.put("b")
    assert copy.sync().is_caught_up
    keys, progress, gaps = copy.look()
    assert keys == {"b"}, "what was written while there was no disk came by the stream"
    assert gaps == [("disk_lost", "accepted: initial_snapshot is disabled")]
    assert progress == copy.rows()


@pytest.mark.requirement("R26")
@over("disabled")
def test_an_empty_disk_waits_for_the_rows_and_a_full_one_does_not(copy: Copy) -> None:
    """Denied, a first start ends with a remedy; with a file the copy goes on without the table."""
    copy.aws.policy.deny("dynamodb:Query")
    refusal = copy.sync().refusal
    assert isinstance(refusal, OffsetTableUnusable)
    assert "dynamodb:Query" in refusal.hint
    copy.aws.policy.allow_all()
    assert copy.sync().is_caught_up
    copy.aws.policy.deny("dynamodb:Query")
    copy.put("a")
    assert copy.sync().is_caught_up
    assert copy.look()[0] == {"a"}


@pytest.mark.requirement("R26")
@pytest.mark.requirement("R7")
@over("auto", wal_storage="s3", wal_s3_bucket="wal")
def test_where_there_is_a_log_its_positions_win_over_the_rows(copy: Copy) -> None:
    """A row that claims to be far ahead of the log takes no change away."""
    copy.put("a", "b")
    assert copy.sync().is_caught_up
    rows = copy.rows()
    assert rows is not None
    items = offset_items(copy.config)
    for shard in rows.shards:
        logical = f"orders/g{rows.generation}/shard/{shard.shard_id}"
        _claim(copy, items, CheckpointKey(logical).sk)
    copy.lose_disk()
    copy.put("c")
    assert copy.sync().is_caught_up
    assert copy.look()[0] == {"a", "b", "c"}


def _claim(copy: Copy, items: Any, sk: str) -> None:
    """The row says that reading is beyond every sequence number there is."""
    row = dict(items.get(PIPELINE.pk, sk) or {})
    envelope = OffsetStore(items, PIPELINE).row(sk)
    assert envelope is not None
    head, payload = envelope.payload[:12], json.loads(envelope.payload[20:])
    text = json.dumps(payload | {"sequence_number": "9" * 38}).encode()
    data = head + len(text).to_bytes(8, "little") + text
    claimed = row | {
        "payload_b64": b64encode(data).decode(),
        "payload_sha256": sha256(data).hexdigest(),
    }
    assert items.put(PIPELINE.pk, sk, claimed, row)
