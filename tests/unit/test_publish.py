"""When copies are made, and how the published one is replaced."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from accelerator.database import Database
from connector.aws.copies import CopyBucket
from connector.aws.stores import StoreSettings
from connector.errors import CopyFailed
from connector.publish.places import FilePlace
from connector.publish.publisher import LOOK_EVERY_S
from emulator import Emulator
from metrics import catalog
from tests.publish_builder import Bench
from tests.query_builder import data_file
from tests.unit.config_builder import loaded, refused, written

REGION = "eu-west-1"
MiB = 2**20


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with data_file(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def bench(database: Database, tmp_path: Path) -> Bench:
    return Bench(database, FilePlace(tmp_path / "out" / "orders.duckdb"), tmp_path / "spill")


def rows_of(path: Path) -> int:
    with duckdb.connect(str(path), read_only=True) as reader:
        found = reader.execute("SELECT count(*) FROM orders").fetchall()
    return int(found[0][0])


def test_a_copy_is_made_at_each_interval_if_something_changed(bench: Bench, tmp_path: Path) -> None:
    """At once after the start, then only where rows or their load are others."""
    file = tmp_path / "out" / "orders.duckdb"
    assert bench.step() == 60
    first = file.stat().st_ino
    bench.clock.advance(30)
    assert bench.step() == 30, "not due yet"
    bench.clock.advance(30)
    assert bench.step() == 60
    assert file.stat().st_ino == first, "nothing had changed"
    bench.commits += 1
    bench.clock.advance(60)
    bench.step()
    second = file.stat().st_ino
    bench.generation += 1
    bench.clock.advance(60)
    bench.step()
    assert len({first, second, file.stat().st_ino}) >= 2
    assert (bench.counted("published"), bench.counted("skipped")) == (3, 1)
    assert bench.recorder.value(catalog.PUBLISH_BYTES, name="orders") == file.stat().st_size
    assert bench.recorder.value(catalog.PUBLISH_LAST_SUCCESS, name="orders") == 1_700_000_000
    assert bench.history.pending == 3, "a span for each copy that was made"


def test_rows_that_are_not_whole_are_waited_for(bench: Bench, tmp_path: Path) -> None:
    """No copy, no failure: the snapshot is looked at again soon."""
    with bench.database.transaction() as cursor:
        cursor.execute("UPDATE dynaduck.generations SET snapshot_state = 'running'")
    assert bench.step() == LOOK_EVERY_S
    assert not list((tmp_path / "out").iterdir())
    assert bench.errors == []


class Unreachable:
    """A place that cannot be written to, until it can."""

    def __init__(self, place: FilePlace, failures: int) -> None:
        self.staging = place.staging
        self._place = place
        self._failures = failures

    def prepare(self) -> None:
        self._place.prepare()

    def put(self, is_stopped: Any) -> None:
        if self._failures:
            self._failures -= 1
            raise CopyFailed("S3 is away.")
        self._place.put(is_stopped)

    def clear(self) -> None:
        self._place.clear()


def test_what_failed_is_told_and_tried_again(database: Database, tmp_path: Path) -> None:
    """With a growing back-off, for ever; the error goes when a copy was made."""
    place = Unreachable(FilePlace(tmp_path / "out" / "orders.duckdb"), failures=3)
    bench = Bench(database, place, tmp_path / "spill")
    waits = []
    for _ in range(3):
        waits.append(bench.step())
        assert isinstance(bench.errors[-1], CopyFailed)
        assert not list((tmp_path / "out").iterdir()), "nothing unfinished stays"
        bench.clock.advance(waits[-1])
    assert waits == [2, 4, 8]
    assert bench.step() == 60
    assert bench.errors[-1] is None
    assert (bench.counted("failed"), bench.counted("published")) == (3, 1)
    assert rows_of(tmp_path / "out" / "orders.duckdb") == 1_000


def test_a_stopped_publisher_makes_no_more(bench: Bench, tmp_path: Path) -> None:
    """The published copy stays; an end is no failure."""
    bench.step()
    bench.publisher.stop()
    bench.commits += 1
    bench.clock.advance(600)
    bench.step()
    assert bench.counted("published") == 1
    assert bench.errors == [None]
    assert rows_of(tmp_path / "out" / "orders.duckdb") == 1_000


def test_who_has_the_old_copy_open_keeps_it(bench: Bench, tmp_path: Path) -> None:
    """A rename: the old file lives until its last reader closes it, the name is the new one's."""
    file = tmp_path / "out" / "orders.duckdb"
    bench.step()
    file.chmod(0o640)
    before = file.read_bytes()
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with bench.database.transaction() as cursor:
            cursor.execute('DELETE FROM dynaduck."orders__rows" WHERE id < 500')
        bench.commits += 1
        bench.clock.advance(60)
        bench.step()
        assert os.fstat(descriptor).st_nlink == 0, "the old file has no name any more"
        assert os.pread(descriptor, len(before) + 1, 0) == before
    finally:
        os.close(descriptor)
    assert rows_of(file) == 500
    assert stat.S_IMODE(file.stat().st_mode) == 0o640, "as somebody had set it"


_KILLED = """
import sys
from pathlib import Path
import tests.publish_builder as t
with t.data_file(Path(sys.argv[1]) / "data") as database:
    place = t.FilePlace(Path(sys.argv[1]) / "out" / "orders.duckdb")
    bench = t.Bench(database, place, Path(sys.argv[1]) / "spill")
    bench.step()
    with database.transaction() as cursor:
        cursor.execute('DELETE FROM dynaduck."orders__rows" WHERE id < 500')
    bench.commits += 1
    bench.clock.advance(60)
    bench.step()
"""


@pytest.mark.parametrize("at", ["copy_rows", "copy_written"])
def test_a_kill_in_the_middle_leaves_the_old_copy_whole(tmp_path: Path, at: str) -> None:
    """SIGKILL while rows are written, and before the rename; the next process clears up."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        env=dict(os.environ) | {"DYNADUCK_FAILPOINT": f"{at}:kill:2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    file = tmp_path / "out" / "orders.duckdb"
    assert len(list(file.parent.iterdir())) > 1, "something unfinished is left"
    assert rows_of(file) == 1_000
    with data_file(tmp_path / "more") as database:
        Bench(database, FilePlace(file), tmp_path / "spill").step()
    assert rows_of(file) == 1_000
    assert [path.name for path in file.parent.iterdir()] == ["orders.duckdb"]


def test_a_directory_that_cannot_be_made_is_named(database: Database, tmp_path: Path) -> None:
    """The error has the path and what to look at."""
    (tmp_path / "out").write_text("a file")
    bench = Bench(database, FilePlace(tmp_path / "out" / "orders.duckdb"), tmp_path / "spill")
    bench.step()
    failed = bench.errors[-1]
    assert isinstance(failed, CopyFailed)
    assert "out/orders.duckdb" in failed.message
    assert failed.hint


# -- S3


@pytest.fixture(scope="module")
def aws() -> Iterator[Emulator]:
    with Emulator(region=REGION) as emulator:
        emulator.client("s3", region_name=REGION).create_bucket(
            Bucket="copies", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield emulator


def bucket(aws: Emulator, part_bytes: int = 5 * MiB) -> CopyBucket:
    settings = StoreSettings(
        REGION, access_key_id="a", secret_access_key="b", s3_endpoint_url=aws.url
    )
    return CopyBucket(settings, part_bytes=part_bytes)


def stored(aws: Emulator, key: str) -> bytes:
    body: bytes = (
        aws.client("s3", region_name=REGION).get_object(Bucket="copies", Key=key)["Body"].read()
    )
    return body


@pytest.mark.parametrize("nbytes", [0, 1_000, 5 * MiB, 12 * MiB + 7])
def test_an_object_is_the_file_byte_by_byte(aws: Emulator, tmp_path: Path, nbytes: int) -> None:
    """In one piece, or in parts where it is larger than one."""
    file = tmp_path / "copy"
    file.write_bytes(os.urandom(nbytes))
    bucket(aws).put(file, "copies", "daily/orders.parquet")
    assert stored(aws, "daily/orders.parquet") == file.read_bytes()


def test_an_upload_that_ends_early_leaves_the_object_and_no_parts(
    aws: Emulator, tmp_path: Path
) -> None:
    """The old object stays, and what was sent of the new one is aborted."""
    file = tmp_path / "copy"
    file.write_bytes(b"old")
    bucket(aws).put(file, "copies", "kept")
    file.write_bytes(os.urandom(12 * MiB))
    asked = iter([False, True])
    with pytest.raises(CopyFailed):
        bucket(aws).put(file, "copies", "kept", is_stopped=lambda: next(asked))
    assert stored(aws, "kept") == b"old"
    uploads = aws.client("s3", region_name=REGION).list_multipart_uploads(Bucket="copies")
    assert uploads.get("Uploads", []) == []


def test_a_refusal_of_s3_says_what_to_do(aws: Emulator, tmp_path: Path) -> None:
    """A missing bucket, a missing permission."""
    file = tmp_path / "copy"
    file.write_bytes(b"new")
    with pytest.raises(CopyFailed, match="NoSuchBucket") as missing:
        bucket(aws).put(file, "no-such-bucket", "k")
    assert "Make the bucket" in missing.value.hint
    aws.policy.deny("s3:PutObject")
    try:
        with pytest.raises(CopyFailed) as denied:
            bucket(aws).put(file, "copies", "k")
    finally:
        aws.policy.allow_all()
    assert "s3:PutObject" in denied.value.hint


# -- settings


def config_text(*published: str) -> str:
    lines = [f"  - {{from: 'dynamodb:table{n}', publish: {p}}}" for n, p in enumerate(published)]
    return "datasets:\n" + "\n".join(lines)


@pytest.mark.parametrize(
    ("publish", "says"),
    [
        ("{every: 1m, to: copies/x.duckdb}", "does not end like a file of the format parquet"),
        ("{every: 1m, to: 's3:///key'}", "names no bucket"),
        ("{every: 1m, to: 'https://x/y'}", "neither a path nor an s3://"),
        ("{every: 1m, format: duckdb, to: copies/dynaduck.db}", "hide its own schema"),
        ("{every: 1m, format: duckdb, to: data/replica.duckdb}", "the data file of the service"),
        ("{every: 1m}", "publish.to is not set"),
    ],
)
def test_a_place_that_cannot_work_is_refused(tmp_path: Path, publish: str, says: str) -> None:
    """At start, with the reason, and not at the first copy."""
    assert says in str(refused(written(tmp_path, config_text(publish))))


def test_two_datasets_need_two_files(tmp_path: Path) -> None:
    """One directory for both is fine, one file is not."""
    one = "{every: 1m, to: copies/a.parquet}"
    assert "too" in str(refused(written(tmp_path, config_text(one, one))))
    both = "{every: 1m, to: copies}"
    assert len(loaded(written(tmp_path, config_text(both, both))).datasets) == 2
