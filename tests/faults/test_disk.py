"""The disk: full, read-only, damaged, or written by something newer."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from accelerator import catalog, failpoints
from accelerator.database import Database
from accelerator.dataset import Dataset
from accelerator.errors import (
    DirectoryUnwritable,
    DiskFull,
    FileDamaged,
    FileTooNew,
    translate,
)
from accelerator.spec import DatasetSpec
from checkpoints.store import DuckDBCheckpointStore
from connector.cli import app
from emulator import Emulator
from tests.dataset_builder import begun, changes, open_database, put, query, read_items
from tests.faults.served import TABLE, create_table, served, wait_until
from tests.faults.served import put as put_items

NOBODY = 65534


@contextmanager
def files_end_at(size_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond: the kernel refuses, as a quota or a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(aws: Emulator, keys: list[str], pad: int) -> None:
    client = aws.client("dynamodb")
    for start in range(0, len(keys), 25):
        requests = [
            {"PutRequest": {"Item": {"pk": {"S": k}, "v": {"N": "1"}, "pad": {"S": _noise(pad)}}}}
            for k in keys[start : start + 25]
        ]
        client.batch_write_item(RequestItems={TABLE: requests})


def _noise(size: int) -> str:
    return os.urandom(size // 2).hex()


def test_a_full_disk_is_an_error_until_there_is_room_again(tmp_path: Path) -> None:
    """State Error with the remedy, old rows answered; all of it by itself once there is room."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        fill(aws, [f"old{n}" for n in range(100)], 40_000)  # so that the log is larger than logs
        with served(tmp_path / "data", aws) as running:
            running.wait_ready()
            database = running.service.database
            before = running.rows()
            largest = max(database.wal_bytes(), database.file_bytes())
            assert largest > 1_000_000
            with files_end_at(largest + 50_000):
                fill(aws, [f"new{n}" for n in range(100)], 40_000)
                running.wait_state("Error")
                assert "commit_failing" in running.codes()
                assert "Free disk space" in running.says()
                assert running.rows() == before
            running.wait_ready().wait_rows(before | {f"new{n}": 1 for n in range(100)})
            assert database.reopened == 0
            running.stop()
            running.start().wait_ready()
            assert len(running.rows()) == 200


@pytest.mark.parametrize("failed", ["commit", "checkpoint"])
def test_what_a_full_disk_refused_is_whole_after_a_crash(tmp_path: Path, failed: str) -> None:
    """Rows and positions of the refused transaction are absent, later ones are there."""
    database = open_database(tmp_path)
    dataset = begun(database)
    dataset.apply([changes([put(n, f"k{n}", pad={"S": _noise(20_000)}) for n in range(1, 100)])])
    largest = max(database.wal_bytes(), database.file_bytes())
    rows = [put(n, f"k{n}", pad={"S": _noise(20_000)}) for n in range(100, 200)]
    with files_end_at(largest + 10_000 if failed == "commit" else 300_000):
        act = (
            database.checkpoint
            if failed == "checkpoint"
            else partial(dataset.apply, [changes(rows)])
        )
        with pytest.raises(DiskFull):
            act()
    if database.is_invalidated():
        database.reopen()
        dataset.load()
    dataset.apply([changes(rows)])
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("replica.duckdb", "replica.duckdb.wal"):
        if (tmp_path / name).exists():
            shutil.copy(tmp_path / name, crashed / name)
    database.close()
    found = open_database(crashed)
    assert len(read_items(found)) == 199
    assert query(found, "SELECT sum(records) FROM dynaduck.checkpoints") == [(199,)]
    found.close()


@pytest.mark.parametrize(
    "said",
    [
        'Failed to commit: Could not write file "x": No space left on device',
        'Failed to commit: Could not write file "x": File too large',
        "IO Error: Disk quota exceeded",
    ],
)
def test_every_way_in_which_a_system_says_full_is_told_as_full(said: str) -> None:
    """Whatever DuckDB's class for it is: at a commit it is that of transactions."""
    assert isinstance(translate(duckdb.TransactionException(said), "x"), DiskFull)


def refused(tmp_path: Path, data_dir: Path) -> str:
    """What `dynaduck run` says when it ends with status 2 before anything is asked of AWS."""
    arguments = ["run", "--table", "orders", "--runtime.data_dir", str(data_dir)]
    environment = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "x"}
    outcome = CliRunner().invoke(app, arguments, env=environment | {"AWS_SECRET_ACCESS_KEY": "x"})
    assert outcome.exit_code == 2, outcome.output
    return outcome.stderr


@pytest.fixture(name="unwritable")
def _unwritable() -> Iterator[Path]:
    """A directory that this process may not write, also when it is run by root."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    directory.chmod(0o755)
    data_dir = directory / "data"
    data_dir.mkdir(mode=0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield data_dir
    finally:
        if is_root:
            os.seteuid(0)
        data_dir.chmod(0o755)
        shutil.rmtree(directory)


def test_a_directory_that_cannot_be_written_is_named(unwritable: Path) -> None:
    """With the remedy, and no other process is blamed."""
    with pytest.raises(DirectoryUnwritable, match=str(unwritable)) as caught:
        Database.open(unwritable / "replica.duckdb", memory_limit_bytes=2**27)
    assert "runtime.data_dir" in caught.value.hint


def test_a_directory_that_can_be_written_again_serves_what_it_held(tmp_path: Path) -> None:
    """The cause goes, and nothing else has to be done: all that was committed is there."""
    database = open_database(tmp_path)
    begun(database).apply([changes([put(1, "a", v={"N": "1"})])])
    database.close()
    is_writable = os.access
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: path != tmp_path)
        with pytest.raises(DirectoryUnwritable):
            open_database(tmp_path)
    assert os.access is is_writable
    found = open_database(tmp_path)
    assert len(read_items(found)) == 1
    found.close()


def test_a_data_directory_below_a_file_ends_the_start(tmp_path: Path) -> None:
    """Exit status 2, one sentence and the remedy."""
    (tmp_path / "file").write_text("no directory")
    said = refused(tmp_path, tmp_path / "file" / "data")
    assert "cannot be made" in said
    assert "runtime.data_dir" in said


def damaged(tmp_path: Path, where: str) -> Path:
    """A data directory whose file or log has other bytes somewhere."""
    database = open_database(tmp_path)
    dataset = begun(database)
    dataset.apply([changes([put(n, f"k{n}", pad={"S": _noise(400)}) for n in range(1, 500)])])
    database.checkpoint()
    dataset.apply([changes([put(n, f"k{n}") for n in range(500, 600)])])
    dataset.apply([changes([put(n, f"k{n}") for n in range(600, 700)])])
    copy = tmp_path / "damaged"
    copy.mkdir()
    for name in ("replica.duckdb", "replica.duckdb.wal"):
        shutil.copy(tmp_path / name, copy / name)
    database.close()
    path = copy / ("replica.duckdb.wal" if where == "log" else "replica.duckdb")
    size = path.stat().st_size
    if where == "no database":
        path.write_bytes(b"something else")
    else:
        with path.open("r+b") as file:
            file.seek({"log": size // 2, "headers": 4096, "rows": 0}[where] + 8)
            file.write(b"\x55" * (2 * 4096 if where == "headers" else 64))
    return copy


@pytest.mark.parametrize("where", ["no database", "headers", "log"])
def test_a_damaged_file_ends_the_start(tmp_path: Path, where: str) -> None:
    """Exit status 2: said to be damaged, with what to do; the file is left as it is."""
    data_dir = damaged(tmp_path, where)
    before = (data_dir / "replica.duckdb").read_bytes()
    said = refused(tmp_path, data_dir)
    assert "damaged" in said or "cannot be read" in said
    assert "Move the file away" in said
    assert (data_dir / "replica.duckdb").read_bytes() == before


def test_damage_that_shows_late_is_told_as_damage(tmp_path: Path) -> None:
    """Pages are checked when they are read: then it is a damaged file, not a failed statement."""
    said = "Corrupt database file: computed checksum 1 does not match stored checksum 2"
    assert isinstance(translate(duckdb.IOException(said), "x"), FileDamaged)
    assert isinstance(translate(duckdb.Error(said), "x"), FileDamaged)


def test_a_file_of_a_later_format_ends_the_start(tmp_path: Path) -> None:
    """Exit status 2: an older dynaduck does not guess what a newer one wrote."""
    database = open_database(tmp_path / "data")
    database.writer.execute("UPDATE dynaduck.file_format SET version = ?", [catalog.FORMAT + 1])
    database.close()
    said = refused(tmp_path, tmp_path / "data")
    assert f"format {catalog.FORMAT + 1}" in said
    assert "newer dynaduck" in said
    with pytest.raises(FileTooNew):
        open_database(tmp_path / "data")


@pytest.mark.parametrize(
    "said",
    [
        "IO Error: Trying to read a database file with version number 999, but we can only read 68",
        "IO Error: The database file was created with a newer version of DuckDB.",
    ],
)
def test_a_file_of_a_later_duckdb_is_told_as_too_new(said: str) -> None:
    """And not as damaged: the remedy is another dynaduck, and never to throw the file away."""
    error = translate(duckdb.IOException(said), "x")
    assert isinstance(error, FileTooNew)
    assert "newer dynaduck" in error.hint


@pytest.mark.situation(43)
def test_a_checkpoint_that_cannot_be_read_is_not_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it is tried again; nothing begins anew, nothing is scanned, nothing is lost."""
    with Emulator(shards=1) as aws:
        create_table(aws)
        put_items(aws, "a", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready().stop()
            put_items(aws, "b", v=2)
            scans = aws.calls.count("Scan")
            load = DuckDBCheckpointStore.load_shards
            failures = 4

            def failing(store: DuckDBCheckpointStore, *arguments: object) -> object:
                nonlocal failures
                if failures:
                    failures -= 1
                    raise duckdb.IOException("Could not read from file: Input/output error")
                return load(store, *arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(DuckDBCheckpointStore, "load_shards", failing)
            running.start()
            wait_until(lambda: failures == 0, "it is tried again")
            assert running.service.refusal is None
            running.wait_ready().wait_rows({"a": 1, "b": 2})
            assert aws.calls.count("Scan") == scans
            ((generation,),) = running.query("SELECT DISTINCT generation FROM dynaduck.checkpoints")
            assert generation == 1


def test_an_empty_store_is_a_first_start(tmp_path: Path) -> None:
    """The other side: what is read and holds nothing is no checkpoint."""
    database = open_database(tmp_path)
    assert Dataset(database, DatasetSpec("orders")).load() is None
    database.close()


def test_a_file_that_could_not_be_reopened_is_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB gives up while the disk is in trouble: opening is tried until it works, then all is
    applied. The first opening fails, the second opens and cannot read what is stored.
    """
    with Emulator(shards=1) as aws:
        create_table(aws)
        put_items(aws, "a", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready()
            service, connect = running.service, duckdb.connect
            load = DuckDBCheckpointStore.load_shards
            failures = ["open", "load"]

            def connecting(*arguments: Any, **options: Any) -> object:
                if failures[:1] == ["open"]:
                    failures.pop(0)
                    raise duckdb.IOException("Could not write file: No space left on device")
                return connect(*arguments, **options)

            def loading(store: DuckDBCheckpointStore, *arguments: object) -> object:
                if failures[:1] == ["load"]:
                    failures.pop(0)
                    raise duckdb.IOException("Could not read from file: Input/output error")
                return load(store, *arguments)  # type: ignore[arg-type]

            gives_up = ["once"]

            def give_up() -> None:
                if gives_up:
                    gives_up.pop()
                    service.database.writer.close()
                    raise duckdb.FatalException("database has been invalidated because of an error")

            monkeypatch.setattr(duckdb, "connect", connecting)
            monkeypatch.setattr(DuckDBCheckpointStore, "load_shards", loading)
            with failpoints.on("before_commit", give_up):
                put_items(aws, "b", v=2)
                running.wait_rows({"a": 1, "b": 2}).wait_ready()
            assert (failures, gives_up) == ([], [])
            assert service.database.reopened == 1
