"""`dynaduck segments`, `restore` and `cluster status` as a person and a program see them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from checkpoints.kv import MemoryItemStore
from checkpoints.lease import Candidate, HeldLease, LeaseStore
from checkpoints.membership import Member, Membership
from checkpoints.object_store import MemoryObjectStore
from connector.cli import app, cluster, restore, segments
from tests.doubles import PIPELINE, FakeClock
from tests.unit.test_restore import START_MS, keys_in, leader

CLUSTER = "acme/prod/orders"


class Shell:
    """The commands over stores in memory; a log of six segments with a base at 5."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.objects, self.items, self.directory = MemoryObjectStore(), MemoryItemStore(), directory
        # Else the log would go to a stream that is closed with the command.
        monkeypatch.setattr("connector.logs.configure_logs", lambda *_, **__: None)
        for module in (segments, restore, cluster):
            monkeypatch.setattr(module, "log_objects", lambda _: self.objects)
        monkeypatch.setattr(cluster, "offset_items", lambda _: self.items)
        for name, value in {
            "TENANT": "acme",
            "WORKSPACE": "prod",
            "PIPELINE": "orders",
            "WAL_S3_BUCKET": "wal",
        }.items():
            monkeypatch.setenv(f"DYNADUCK_{name}", value)
        monkeypatch.chdir(directory)

    def write(self) -> None:
        with leader(self.directory, self.objects) as node:
            node.write(1, "c")
            node.write(2, "d")
            node.base()
            node.write(3, "e")

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, monkeypatch)


def test_a_pipeline_without_a_log_is_said_to_have_none(shell: Shell) -> None:
    """By each command, in a sentence; nothing is broken by it, and nothing restored."""
    for words in (["segments", "list"], ["segments", "verify"]):
        outcome = shell(*words)
        assert outcome.exit_code == 0
        assert "has no log in this bucket" in outcome.output
    refused = shell("restore", "new.duckdb")
    assert refused.exit_code == 1
    assert "has no log in this bucket" in refused.output


def test_the_list_shows_the_newest_and_counts_all(shell: Shell) -> None:
    """A line for each, what it holds and when it was appended; --last says how many."""
    shell.write()
    shown = shell("segments", "list", "--last", "2").output
    assert "2 of 6 segments, 1 to 6; 1 base, the newest at 5" in shown
    assert "2023-11-14T22:13:26.000Z" in shown
    assert shown.count("changes ") == 3  # the column's name, and two rows
    document = json.loads(shell("segments", "list", "--last", "0", "--json").output)
    kinds = [row["kind"] for row in document["segments"]]
    assert kinds == ["fence", "event", "snapshot", "changes", "changes", "changes"]
    assert [row["changes"] for row in document["segments"]] == [0, 0, 2, 1, 1, 1]
    assert (document["of"], document["bases"]) == (6, [5])


def test_a_damaged_segment_is_listed_as_one(shell: Shell) -> None:
    """The list goes on behind it."""
    shell.write()
    shell.objects.expire(PIPELINE.segment_key(5))
    shell.objects.put_new(PIPELINE.segment_key(5), b"nonsense")
    outcome = shell("segments", "list")
    assert outcome.exit_code == 0
    assert "no Parquet file" in outcome.output


def test_verify_names_each_fault_and_where_a_restore_can_begin(shell: Shell) -> None:
    """Exit status 0 for a log that holds, 5 for one that does not."""
    shell.write()
    sound = shell("segments", "verify")
    assert sound.exit_code == 0
    assert "The log holds. 6 segments (1 to 6, epoch 1), 1 base" in sound.output
    assert "restored to any segment from 1 on" in sound.output
    shell.objects.expire(PIPELINE.segment_key(4))
    broken = shell("segments", "verify")
    assert broken.exit_code == 5
    assert "Segment 4 is missing below 5." in broken.output
    assert "The log is broken: 1 fault." in broken.output
    assert "restored to any segment from 5 on" in broken.output
    document = json.loads(shell("segments", "verify", "--json").output)
    assert (document["whole"], document["restorable_from"]) == (False, 5)
    assert [fault["fault"] for fault in document["faults"]] == ["Segment 4 is missing below 5."]


def test_verify_reads_the_pieces_of_a_base(shell: Shell) -> None:
    """One that is gone, and one that is another, is a fault of the base."""
    shell.write()
    prefix = f"{PIPELINE.bases_prefix}parts/{5:020d}-leader/"
    (piece,) = shell.objects.list_after(prefix, None, 10)
    shell.objects.expire(piece)
    gone = shell("segments", "verify")
    assert gone.exit_code == 5
    assert f"Its piece {piece} is gone." in gone.output
    shell.objects.put_new(piece, b"another")
    assert "is another than it says" in shell("segments", "verify").output


def test_a_restore_says_where_it_stands(shell: Shell) -> None:
    """Segment, time, base and rows; a second one into the same file is refused."""
    shell.write()
    outcome = shell("restore", "--to", "2023-11-14T22:13:25Z", "new.duckdb")
    assert outcome.exit_code == 0
    assert "new.duckdb stands at segment 5, appended 2023-11-14T22:13:25.000Z" in outcome.output
    assert "orders: 4 rows" in outcome.output
    assert "orders was still being loaded then" in outcome.output, "no log here ends its snapshot"
    assert keys_in(shell.directory / "new.duckdb") == {"a", "b", "c", "d"}
    again = shell("restore", "new.duckdb")
    assert again.exit_code == 2
    assert "is there already" in again.output


class TestClusterStatus:
    def test_nobody_has_ever_led(self, shell: Shell) -> None:
        """Exit status 4, and why."""
        outcome = shell("cluster", "status")
        assert outcome.exit_code == 4
        assert "There is no lease" in outcome.output
        assert "The log is empty." in outcome.output

    def test_leader_followers_and_the_head_of_the_log(self, shell: Shell) -> None:
        """Each with its own row; how far one is behind is counted from the log."""
        shell.write()
        clock = FakeClock()
        held = Candidate(LeaseStore(shell.items, PIPELINE), "n-1", clock).step()
        assert isinstance(held, HeldLease)
        members = Membership(shell.items, CLUSTER, clock)
        members.announce(Member("n-1", PIPELINE.pk, "10.0.0.1:50051", "leader", True, 1, 6, 0))
        members.announce(Member("n-2", PIPELINE.pk, "", "follower", False, 0, 4, 1200))
        members.announce(Member("n-3", "acme#prod#others"))
        outcome = shell("cluster", "status")
        assert outcome.exit_code == 0
        assert "n-1 leads, epoch 1 (heartbeat 0)." in outcome.output
        assert "segment 6 of epoch 1" in outcome.output
        assert "newest base at 5" in outcome.output
        document = json.loads(shell("cluster", "status", "--json", "--positions").output)
        behind = {m["node"]: m["segments_behind"] for m in document["members"]}
        assert behind == {"n-1": 0, "n-2": 2}
        assert document["log"]["index"] == 6
        assert document["log"]["at_ms"] == START_MS + 6000
        assert document["positions"]["orders"][0]["records"] == 3
        assert document["lease"]["renewed"] is None
        assert held.release()
        released = shell("cluster", "status")
        assert released.exit_code == 4
        assert "n-1 has released epoch 1" in released.output

    def test_a_sign_of_life_is_waited_for_where_it_is_asked_for(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Seen, the leader renews; a look shorter than the lease's own proves nothing."""
        clock = FakeClock()
        held = Candidate(LeaseStore(shell.items, PIPELINE), "n-1", clock).step()
        assert isinstance(held, HeldLease)
        monkeypatch.setattr("time.monotonic", clock.monotonic_s)
        monkeypatch.setattr("time.sleep", clock.sleep)
        silent = json.loads(shell("cluster", "status", "--observe", "5s", "--json").output)
        assert silent["lease"]["renewed"] is None
        dead = shell("cluster", "status", "--observe", "40s")
        assert dead.exit_code == 4
        assert "gave no sign of life" in dead.output
        clock.on_sleep = lambda: LeaseStore(shell.items, PIPELINE).renew("n-1", 1)
        alive = shell("cluster", "status", "--observe", "40s")
        assert alive.exit_code == 0
        assert "n-1 leads, epoch 1, and renews." in alive.output

    def test_a_lease_that_is_none_is_an_error(self, shell: Shell) -> None:
        """Exit status 1 with the remedy, no traceback."""
        shell.items.put(PIPELINE.pk, "lease", {"owner_node": 7}, {})
        outcome = shell("cluster", "status")
        assert outcome.exit_code == 1
        assert "The lease item is not one" in outcome.output
