"""The way to AWS: gone, slow, throttled, refused. It is tried for ever, and said meanwhile."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector import service as service_module
from connector.aws.source import AwsSettings
from connector.retry import BACKOFF
from emulator import Emulator
from metrics import catalog
from tests.faults.served import HOUR_S, TABLE, Served, create_table, put, served, wait_until

RETRY_SOON_S = 1.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cap of the back-off is 20 s; tests do not wait that long after the trouble is over."""
    monkeypatch.setattr(type(BACKOFF), "ceiling_s", lambda self, attempt: RETRY_SOON_S)


@contextmanager
def a_running_service(tmp_path: Path, **settings: Any) -> Iterator[tuple[Emulator, Served]]:
    with Emulator(shards=3) as aws:
        create_table(aws)
        put(aws, "a", v=1)
        with served(tmp_path / "data", aws, **settings) as running:
            running.wait_ready()
            yield aws, running


TROUBLES: dict[str, tuple[dict[str, Any], str]] = {
    "dropped connections": ({"kind": "drop"}, "unavailable"),
    "throttling on every call": ({"kind": "throttle"}, "throttled"),
    "a captive portal": ({"kind": "html"}, "corrupt_page"),
    "expired credentials": (
        {"kind": "error", "code": "ExpiredTokenException", "status": 400},
        "credentials_invalid",
    ),
    "denied access": (
        {"kind": "error", "code": "AccessDeniedException", "status": 400},
        "access_denied",
    ),
}


@pytest.mark.slow(20)
@pytest.mark.situation(51)
@pytest.mark.situation(55)
@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_every_call_takes_ready_and_gives_it_back(
    tmp_path: Path, trouble: str
) -> None:
    """Ready is revoked with the reason, rows are answered, errors are counted, writes wait in the
    stream; once it is over all of them are applied, without a gap and without a restart.
    """
    fault, code = TROUBLES[trouble]
    with a_running_service(tmp_path) as (aws, running):
        errors = running.metric(catalog.ERRORS_TRANSIENT)
        placed = [aws.fault(**fault, operation=name) for name in ("Get*", "Describe*", "Scan")]
        aws.control.advance(HOUR_S)
        put(aws, "a", "b", v=2)
        wait_until(lambda: running.state() != "Ready" and code in running.codes(), code)
        assert running.rows() == {"a": 1}
        if code in ("credentials_invalid", "access_denied"):
            running.wait_state("Error")
        assert sum(rule.hits for rule in placed) > 2
        assert running.metric(catalog.ERRORS_TRANSIENT) > errors
        aws.faults.clear()
        running.wait_rows({"a": 2, "b": 2}).wait_ready()
        assert running.query("SELECT count(*) FROM dynaduck.gaps") == [(0,)]


@pytest.mark.situation(51)
def test_one_refusal_among_good_answers_changes_nothing(tmp_path: Path) -> None:
    """A transient AccessDenied is retried; a dataset that is Ready stays so."""
    with a_running_service(tmp_path) as (aws, running):
        denied = aws.fault("error", operation="GetRecords", code="AccessDeniedException", count=1)
        states = set()

        def is_struck() -> bool:
            states.add(running.state())
            return denied.hits == 1

        wait_until(is_struck, "the refusal")
        put(aws, "b", v=2)
        running.wait_rows({"a": 1, "b": 2})
        assert states | {running.state()} == {"Ready"}


@pytest.mark.situation(13)
@pytest.mark.situation(79)
def test_one_shards_trouble_slows_only_that_shard(tmp_path: Path) -> None:
    """The other shards' changes are applied while its own wait, and it says which shard it is."""
    with a_running_service(tmp_path) as (aws, running):
        by_shard: dict[str, str] = {}
        for n in range(50):
            key = f"k{n}"
            by_shard.setdefault(aws.control.shard_of(TABLE, {"pk": {"S": key}}).shard_id, key)
        assert len(by_shard) == 3
        (struck, waiting), *others = by_shard.items()
        aws.fault("throttle", operation="GetRecords", shard=struck)
        put(aws, *by_shard.values(), v=2)
        running.wait_rows({"a": 1} | {key: 2 for _, key in others})
        wait_until(lambda: struck in running.says(), "the shard is named")
        aws.faults.clear()
        running.wait_rows({"a": 1, waiting: 2} | {key: 2 for _, key in others}).wait_ready()


HALF_OPEN: dict[str, dict[str, Any]] = {
    "no answer at all": {"kind": "latency", "seconds": 30.0},
    "half of an answer": {"kind": "hang"},
}


@pytest.mark.slow(20)
@pytest.mark.parametrize("trouble", HALF_OPEN)
def test_a_connection_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """A read time-out ends each call, also one whose body began: no poller waits for ever."""
    _shorten_time_outs(monkeypatch)
    with a_running_service(tmp_path) as (aws, running):
        rules = [aws.fault(**HALF_OPEN[trouble], operation=name) for name in ("Get*", "Describe*")]
        put(aws, "b", v=2)
        wait_until(lambda: running.state() != "Ready", "Ready is revoked")
        wait_until(lambda: "unavailable" in running.codes(), "it is told")
        assert sum(rule.hits for rule in rules) > 0
        aws.faults.clear()
        running.wait_rows({"a": 1, "b": 2}).wait_ready()


def _shorten_time_outs(monkeypatch: pytest.MonkeyPatch) -> None:
    build = service_module.aws_of

    def shortened(settings: Any) -> AwsSettings:
        return replace(build(settings), read_timeout_s=0.5, connect_timeout_s=0.5)

    monkeypatch.setattr(service_module, "aws_of", shortened)


def test_slow_answers_are_only_slow(tmp_path: Path) -> None:
    """Each answer takes a third of a second: all is applied, nothing is called an error."""
    with a_running_service(tmp_path) as (aws, running):
        errors = running.metric(catalog.ERRORS_TRANSIENT)
        aws.fault("latency", seconds=0.3)
        put(aws, "a", "b", "c", v=2)
        running.wait_rows({"a": 2, "b": 2, "c": 2}).wait_ready()
        assert running.metric(catalog.ERRORS_TRANSIENT) == errors


@pytest.mark.slow(20)
def test_a_name_that_does_not_resolve_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS fails for every new connection: the reason names the host; it heals by itself."""
    with a_running_service(tmp_path) as (aws, running):
        broken = [True]
        resolve: Callable[..., Any] = socket.getaddrinfo

        def fails(host: Any, *arguments: Any, **options: Any) -> Any:
            if broken and host == "127.0.0.1":
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return resolve(host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", fails)
        aws.fault("drop")  # open connections would go on, names or not
        wait_until(lambda: running.state() != "Ready", "Ready is revoked")
        wait_until(lambda: "unavailable" in running.codes(), "it is told")
        aws.faults.clear()
        broken.clear()
        put(aws, "b", v=2)
        running.wait_rows({"a": 1, "b": 2}).wait_ready()


@pytest.mark.slow(10)
def test_keys_that_rotate_are_found_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old key expires; the next one lies in the credentials file by then and is used."""
    file = tmp_path / "credentials"

    def write(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    write("FIRST")
    none = {"dynamodb_aws_access_key_id": None, "dynamodb_aws_secret_access_key": None}
    with a_running_service(tmp_path, params=none) as (aws, running):
        assert {call.caller for call in aws.calls.calls() if call.operation == "GetRecords"} == {
            "FIRST"
        }
        aws.fault("error", code="ExpiredTokenException", caller="FIRST")
        running.wait_state("Error")
        write("SECOND")
        put(aws, "b", v=2)
        running.wait_rows({"a": 1, "b": 2}).wait_ready()


def test_a_first_start_waits_for_a_network_that_is_not_there_yet(tmp_path: Path) -> None:
    """A machine that boots has no network for a while: that refuses no start."""
    with Emulator(shards=1) as aws:
        create_table(aws)
        put(aws, "a", v=1)
        cut = aws.fault("drop", operation="DescribeTable")
        with served(tmp_path / "data", aws) as running:
            wait_until(lambda: cut.hits >= 3, "it is tried again")
            assert running.service.refusal is None
            aws.faults.clear()
            running.wait_ready().wait_rows({"a": 1})
