"""The Lambda example as a function call: cold containers, a deadline, one log between them.

A cold start is a data directory that is not there. The context is a bound on real time, as
Lambda's is.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from connector.errors import AccessDenied, ConfigError, DynaduckError
from emulator import Emulator
from emulator.faults import FaultKind
from tests.conformance.emulated import a_table
from tests.dataset_builder import open_database, read_items

HANDLER = Path(__file__).parents[2] / "deploy" / "lambda" / "handler.py"
REGION = "eu-west-1"


def loaded() -> ModuleType:
    """The file as Lambda loads it: by its path, not as a part of a package."""
    spec = importlib.util.spec_from_file_location("lambda_handler", HANDLER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Context:
    """So much time is left of an invocation that begins now."""

    def __init__(self, seconds: float) -> None:
        self._ends_s = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(1000 * (self._ends_s - time.monotonic()))

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends_s


class Function:
    """The function with a table, and a bucket for its log."""

    def __init__(self, aws: Emulator, directory: Path) -> None:
        self.aws = aws
        self.data_dir = directory / "tmp"
        self._module = loaded()

    def put(self, *keys: str) -> None:
        client = self.aws.client("dynamodb")
        for key in keys:
            client.put_item(TableName="orders", Item={"pk": {"S": key}})

    def invoke(self, seconds: float = 90.0) -> dict[str, Any]:
        context = Context(seconds)
        answer: dict[str, Any] = self._module.handler({}, context)
        assert not context.is_over, "it ended before Lambda would have ended it"
        json.dumps(answer)
        return answer

    def new_container(self) -> None:
        shutil.rmtree(self.data_dir)

    def keys(self) -> set[str]:
        database = open_database(self.data_dir)
        try:
            return {item["pk"]["S"] for item in read_items(database).values()}
        finally:
            database.close()


@pytest.fixture
def function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Function]:
    with Emulator(shards=1, region=REGION) as aws:
        a_table(aws)
        aws.client("s3").create_bucket(
            Bucket="wal", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        one = Function(aws, tmp_path)
        settings = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": aws.url,
            "DYNADUCK_TABLE": "orders",
            "DYNADUCK_ENDPOINT_URL": aws.url,
            "DYNADUCK_DATA_DIR": str(one.data_dir),
            "DYNADUCK_WAL_STORAGE": "s3",
            "DYNADUCK_WAL_S3_BUCKET": "wal",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield one


@pytest.mark.slow(20)
@pytest.mark.requirement("R31")
def test_a_new_container_resumes_from_the_log(function: Function) -> None:
    """The table is scanned once; later containers, with nothing on disk, add what came since."""
    function.put("a", "b")
    assert function.invoke() == {"caught_up": True, "behind": {}}
    scans = function.aws.calls.count("Scan")
    for key in ("c", "d"):
        function.new_container()
        function.put(key)
        assert function.invoke()["caught_up"]
    assert function.keys() == {"a", "b", "c", "d"}
    assert function.aws.calls.count("Scan") == scans


@pytest.mark.slow(10)
@pytest.mark.requirement("R31")
def test_it_ends_before_the_function_must_and_goes_on_the_next_time(function: Function) -> None:
    """Half of a scan is throttled: what was read is kept, and only the rest is read later."""
    function.put(*(f"k{number}" for number in range(40)))
    function.aws.faults.add(FaultKind.THROTTLE, operation="Scan", skip=3)
    answer = function.invoke(18.0)
    assert not answer["caught_up"]
    assert list(answer["behind"]) == ["orders"]
    function.aws.faults.clear()
    function.new_container()
    function.aws.calls.clear()
    assert function.invoke()["caught_up"]
    assert len(function.keys()) == 40
    assert function.aws.calls.count("Scan") == 2, "of four segments two were kept"


def test_what_a_person_has_to_mend_fails_the_invocation(function: Function) -> None:
    """So that an alarm on errors rings: a denied action, a cluster, no time at all."""
    function.aws.policy.deny("dynamodb:DescribeTable")
    with pytest.raises(AccessDenied):
        function.invoke()
    with pytest.raises(DynaduckError, match="has 9 s left"):
        function.invoke(9.5)


def test_the_image_copies_what_is_there() -> None:
    """Each source of a COPY is in the repository, and the handler is the one tested here."""
    root = HANDLER.parents[2]
    lines = (HANDLER.parent / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert all((root / word).exists() for word in copied)
    assert str(HANDLER.relative_to(root)) in copied
    assert lines[-1] == 'CMD ["handler.handler"]'


def test_a_cluster_is_refused(function: Function, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is for those who stay."""
    monkeypatch.setenv("DYNADUCK_WAL_STORAGE", "clustered")
    monkeypatch.setenv("DYNADUCK_OFFSET_DYNAMODB_TABLE", "offsets")
    with pytest.raises(ConfigError, match="clustered"):
        function.invoke()
