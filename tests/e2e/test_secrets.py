"""No secret of the configuration is in anything that the service says, to anyone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, dynaduck, running, wait_until
from tests.e2e.test_cli_errors import REGION, create_table

TOKEN = "tok-9f8e7d6c5b4a39281706"
ACCESS = "AKIDZZSECRETZZACCESS"
SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYzzSECRETzz"
SESSION = "FwoGZXIvYXdzEBzzSESSIONzz"
WRONG = "guessed-0123456789abcdef"
HIDDEN = (TOKEN, SECRET, SESSION, WRONG)

ANSWERS = (
    ("GET", "/", None),
    ("GET", "/health", None),
    ("GET", "/metrics", None),
    ("GET", "/v1/ready", None),
    ("GET", "/v1/status", None),
    ("GET", "/v1/datasets", None),
    ("GET", "/v1/datasets/orders/dead-letters", None),
    ("POST", "/v1/datasets/nothing/pause", None),
    ("POST", "/v1/sql", "SELECT * FROM runtime.task_history"),
    ("POST", "/v1/sql", "SELECT * FROM dynaduck.datasets"),
    ("POST", "/v1/sql", "SELECT * FROM duckdb_settings()"),
    ("POST", "/v1/sql", "SELECT * FROM duckdb_secrets()"),
    ("POST", "/v1/sql", "SELECT getenv('DYNADUCK_HTTP_TOKEN')"),
    ("POST", "/v1/sql", "SELECT nothing"),
    ("DELETE", "/v1/status", None),
    ("GET", "/nowhere", None),
)


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=1, region=REGION) as emulator:
        create_table(emulator, "orders")
        emulator.client("dynamodb", region_name=REGION).put_item(
            TableName="orders", Item={"pk": {"S": "a"}}
        )
        yield emulator


@pytest.mark.slow(10)
def test_no_answer_log_or_copy_has_a_secret(aws: Emulator, tmp_path: Path) -> None:
    """Whatever is asked, with the right token, a wrong one and none; while all is well, and while
    AWS denies; nor what the commands print, nor a published copy."""
    published = {"every": "1s", "format": "duckdb", "to": str(tmp_path / "out")}
    run = Service(
        tmp_path / "data",
        aws.url,
        datasets=[
            {
                "from": "dynamodb:orders",
                "publish": published,
                "params": {
                    "dynamodb_aws_access_key_id": ACCESS,
                    "dynamodb_aws_secret_access_key": "${secrets:HIDDEN_KEY}",
                    "dynamodb_aws_session_token": "${secrets:HIDDEN_SESSION}",
                },
            }
        ],
        runtime={},
        env={"HIDDEN_KEY": SECRET, "HIDDEN_SESSION": SESSION, "DYNADUCK_HTTP_TOKEN": TOKEN},
    )
    said: list[tuple[str, str]] = []

    def ask_all() -> None:
        for token in (TOKEN, WRONG, None):
            for method, path, body in ANSWERS:
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                status, answered, text = run.request(method, path, body, headers=headers)
                said.append((f"{method} {path} {status}", f"{answered}\n{text!r}"))

    with running(run):
        run.wait_ready()
        wait_until((tmp_path / "out" / "orders.duckdb").exists, 60, "a copy")
        ask_all()
        aws.policy.deny("dynamodb:GetRecords", "dynamodb:DescribeStream")
        wait_until(lambda: b"access_denied" in run.request("GET", "/v1/ready")[2], 60, "denied")
        ask_all()
        run.stop()
    env = {"HIDDEN_KEY": SECRET, "HIDDEN_SESSION": SESSION, "DYNADUCK_HTTP_TOKEN": TOKEN}
    shown = dynaduck("config", "show", "-c", str(run.config_path), "--json", env=env)
    assert json.loads(shown.stdout), shown.stderr
    said.append(("config show", shown.stdout + shown.stderr))
    said.append(("log", run.log()))
    copied = (tmp_path / "out" / "orders.duckdb").read_bytes()
    said.append(("copy", copied.decode("latin-1")))
    assert any("401" in what for what, _ in said), "the token is asked for"
    assert any("/v1/sql 200" in what for what, _ in said), "and opens"
    for what, text in said:
        for secret in HIDDEN:
            assert secret not in text, f"{what} says {secret}"
