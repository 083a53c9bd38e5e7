"""The doctor against the emulator: each set-up that is broken is told apart, and told its fix."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from connector.config import Config, load
from connector.examine.doctor import examine, run_doctor
from connector.examine.findings import Finding, Verdict
from connector.examine.iam_policy import actions, policy
from connector.examine.premises import Running
from connector.examine.reachability import Reach, Step, reach
from connector.service import Service
from connector.sync import sync_once
from emulator import Emulator

REGION = "eu-west-1"
HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys that any emulator takes, and none of the machine's own settings."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def aws() -> Iterator[Emulator]:
    with Emulator(shards=2, region=REGION) as emulator:
        create(emulator, "orders")
        yield emulator


def create(aws: Emulator, name: str, view: str | None = "NEW_AND_OLD_IMAGES", **more: Any) -> None:
    stream = {"StreamEnabled": True, "StreamViewType": view} if view else {"StreamEnabled": False}
    aws.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        StreamSpecification=stream,
        **({"BillingMode": "PAY_PER_REQUEST"} | more),
    )


def config_of(aws: Emulator, tmp_path: Path, *tables: str, **settings: Any) -> Config:
    env = {
        "AWS_REGION": REGION,
        "DYNADUCK_ENDPOINT_URL": aws.url,
        "DYNADUCK_DATA_DIR": str(tmp_path / "data"),
        "DYNADUCK_HTTP__PORT": "0",
    }
    return load(None, env, {"table": list(tables or ("orders",)), **settings})


def found(config: Config, **how: Any) -> dict[str, Finding]:
    """The worst finding of each check."""
    order = [Verdict.FAILED, Verdict.NOTE, Verdict.NOT_CHECKED, Verdict.OK]
    worst: dict[str, Finding] = {}
    for finding in examine(config, sleep=lambda _: None, **how):
        known = worst.get(finding.check)
        if known is None or order.index(finding.verdict) < order.index(known.verdict):
            worst[finding.check] = finding
    return worst


def failed(findings: dict[str, Finding]) -> set[str]:
    return {check for check, each in findings.items() if each.verdict is Verdict.FAILED}


def test_a_set_up_that_works_passes_every_check(aws: Emulator, tmp_path: Path) -> None:
    """Nothing fails, nothing is left unchecked, and the exit status is 0."""
    out = io.StringIO()
    assert run_doctor(config_of(aws, tmp_path), out) == 0
    assert "FAILED" not in out.getvalue()
    assert "not checked" not in out.getvalue()
    assert "none failed" in out.getvalue()


def test_it_costs_one_call_of_each_kind(aws: Emulator, tmp_path: Path) -> None:
    """What an examination asks of AWS is bounded: no table is read."""
    found(config_of(aws, tmp_path))
    for operation in ("DescribeTable", "DescribeStream", "GetRecords", "Scan", "GetItem"):
        assert aws.calls.count(operation) == 1, operation
    assert aws.calls.calls("Scan")[0].params["TotalSegments"] == 1_000_000


def test_the_json_form_says_the_same(aws: Emulator, tmp_path: Path) -> None:
    """Each check with its verdict, sentence and fix; `ok` is what the exit status says."""
    create(aws, "quiet", view=None)
    out = io.StringIO()
    assert run_doctor(config_of(aws, tmp_path, "quiet"), out, as_json=True) == 5
    document = json.loads(out.getvalue())
    assert document["ok"] is False
    stream = next(check for check in document["checks"] if check["check"] == "stream")
    assert stream["subject"] == "quiet"
    assert stream["verdict"] == "failed"
    assert "update-table" in stream["fix"]


def test_a_terminal_gets_tables_with_every_fix(aws: Emulator, tmp_path: Path) -> None:
    """The form for people holds the same sentences as the plain one."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    create(aws, "quiet", view=None)
    out = Terminal()
    assert run_doctor(config_of(aws, tmp_path, "quiet"), out) == 5
    assert "update-table" in out.getvalue()
    assert "FAILED" in out.getvalue()


def test_secrets_are_masked(aws: Emulator, tmp_path: Path) -> None:
    """A secret that finds its way into a sentence does not come out."""
    env = {
        "AWS_REGION": REGION,
        "DYNADUCK_ENDPOINT_URL": "http://127.0.0.1:1/hidden-in-a-path",
        "DYNADUCK_DYNAMODB_AWS_ACCESS_KEY_ID": "key",
        "DYNADUCK_DYNAMODB_AWS_SECRET_ACCESS_KEY": "hidden-in-a-path",
        "DYNADUCK_DATA_DIR": str(tmp_path),
    }
    out = io.StringIO()
    run_doctor(load(None, env, {"table": ["orders"]}), out)
    assert "127.0.0.1:1" in out.getvalue()
    assert "hidden-in-a-path" not in out.getvalue()


# The stream


def test_a_stream_that_is_off(aws: Emulator, tmp_path: Path) -> None:
    """The fix is the command that turns it on, for this table and region."""
    create(aws, "quiet", view=None)
    findings = found(config_of(aws, tmp_path, "quiet"))
    assert failed(findings) == {"stream"}
    assert re.search(
        r"update-table --region eu-west-1 --table-name quiet --stream-specification "
        r"StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES",
        findings["stream"].fix,
    )
    assert "refresh_mode: full" in findings["stream"].fix


def test_a_table_without_a_stream_passes_in_full_mode(aws: Emulator, tmp_path: Path) -> None:
    """What is copied by scans needs no stream, and none is looked for."""
    create(aws, "quiet", view=None)
    findings = found(config_of(aws, tmp_path, "quiet", refresh_mode="full"))
    assert failed(findings) == set()
    assert "stream" not in findings
    assert aws.calls.count("DescribeStream") == 0


@pytest.mark.parametrize("view", ["KEYS_ONLY", "OLD_IMAGE"])
def test_a_view_type_without_new_images(aws: Emulator, tmp_path: Path, view: str) -> None:
    """It cannot be changed, so the fix turns the stream off and on."""
    create(aws, "keys", view=view)
    findings = found(config_of(aws, tmp_path, "keys"))
    assert failed(findings) == {"stream"}
    assert view in findings["stream"].sentence
    assert "StreamEnabled=false, then" in findings["stream"].fix


def test_a_missing_table(aws: Emulator, tmp_path: Path) -> None:
    """The name and the region are what to look at."""
    findings = found(config_of(aws, tmp_path, "ordres"))
    assert "ordres" in findings["table"].sentence
    assert REGION in findings["table"].fix


# Permissions


@pytest.mark.parametrize(
    ("action", "resource"),
    [
        ("dynamodb:DescribeTable", "table/orders;"),
        ("dynamodb:Scan", "table/orders;"),
        ("dynamodb:DescribeStream", "table/orders/stream/\\*;"),
        ("dynamodb:GetShardIterator", "table/orders/stream/\\*;"),
        ("dynamodb:GetRecords", "table/orders/stream/\\*;"),
    ],
)
def test_an_action_that_is_not_allowed(
    aws: Emulator, tmp_path: Path, action: str, resource: str
) -> None:
    """The action and the resource of the missing statement are named."""
    config = config_of(aws, tmp_path)
    aws.policy.allow_only((actions(policy(config)) | {"sts:GetCallerIdentity"}) - {action})
    findings = found(config)
    check = action.partition(":")[2].replace("DescribeTable", "table")
    assert failed(findings) == {check}
    assert re.search(
        f"Allow {action} on arn:aws:dynamodb:{REGION}:.*:{resource}", findings[check].fix
    )


def test_every_missing_action_is_told_at_once(aws: Emulator, tmp_path: Path) -> None:
    """One look finds them all: nobody adds one action after the other."""
    aws.policy.allow_only(["sts:GetCallerIdentity"])
    findings = found(config_of(aws, tmp_path))
    actions_failed = {"table", "Scan", "DescribeStream", "GetShardIterator", "GetRecords"}
    assert failed(findings) == actions_failed


def test_missing_actions_are_told_also_where_there_is_no_stream(
    aws: Emulator, tmp_path: Path
) -> None:
    """Turning the stream on and allowing to read it is one trip, not two."""
    create(aws, "quiet", view=None)
    aws.policy.allow_only(["sts:GetCallerIdentity", "dynamodb:DescribeTable", "dynamodb:Scan"])
    findings = found(config_of(aws, tmp_path, "quiet"))
    assert failed(findings) == {"stream", "DescribeStream", "GetShardIterator", "GetRecords"}
    assert "table/quiet/stream/*" in findings["GetRecords"].fix


def test_an_explicit_deny_is_told_apart(aws: Emulator, tmp_path: Path) -> None:
    """Another Allow would not help, so none is advised."""
    aws.policy.deny("dynamodb:Scan")
    findings = found(config_of(aws, tmp_path))
    assert "lift that Deny" in findings["Scan"].fix


def test_single_reads_are_optional(aws: Emulator, tmp_path: Path) -> None:
    """Without GetItem the service works; it is a note."""
    config = config_of(aws, tmp_path)
    aws.policy.allow_only(actions(policy(config)) | {"sts:GetCallerIdentity"})
    findings = found(config)
    assert failed(findings) == set()
    assert findings["GetItem"].verdict is Verdict.NOTE


def test_scan_is_not_tried_where_it_is_not_needed(aws: Emulator, tmp_path: Path) -> None:
    """A stream without a snapshot needs no Scan, and a policy without it passes."""
    config = config_of(aws, tmp_path, dynamodb_replication_initial_snapshot="disabled")
    aws.policy.allow_only(actions(policy(config)))
    assert failed(found(config)) == set()
    assert aws.calls.count("Scan") == 0


@pytest.mark.parametrize("code", ["AccessDeniedException", "KMSAccessDeniedException"])
def test_a_key_that_is_refused(aws: Emulator, tmp_path: Path, code: str) -> None:
    """A denial of KMS is not taken for one of DynamoDB."""
    message = (
        "User: arn:aws:iam::123456789012:user/x is not authorized to perform: kms:Decrypt on "
        "resource: arn:aws:kms:eu-west-1:123456789012:key/abc"
    )
    aws.fault("error", operation="Scan", code=code, message=message, status=400)
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"kms"}
    assert "key/abc" in findings["kms"].sentence
    assert "kms:Decrypt" in findings["kms"].fix


# Credentials and clock


def test_no_credentials(aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is said once; the hosts are tried all the same."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"credentials"}
    assert "dynamodb_aws_access_key_id" in findings["credentials"].fix
    assert findings["dynamodb host"].verdict is Verdict.OK
    assert findings["DescribeStream"].verdict is Verdict.NOT_CHECKED


def test_an_identity_that_cannot_be_asked_for_is_no_failure(aws: Emulator, tmp_path: Path) -> None:
    """A private subnet may not reach STS; the calls that matter decide."""
    aws.fault("drop", operation="sts:GetCallerIdentity")
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == set()
    assert findings["credentials"].verdict is Verdict.NOTE


@pytest.mark.parametrize(
    ("off_s", "verdict"),
    [
        (0.0, Verdict.OK),
        (-25.0, Verdict.OK),
        (40.0, Verdict.NOTE),
        (-310.0, Verdict.FAILED),
        (310.0, Verdict.FAILED),
    ],
)
def test_the_clock(aws: Emulator, tmp_path: Path, off_s: float, verdict: Verdict) -> None:
    """It is compared with the Date of AWS's answers; five minutes off is refused."""
    findings = found(config_of(aws, tmp_path), wall_s=lambda: aws.clock.now_s() + off_s)
    assert findings["clock"].verdict is verdict
    if verdict is Verdict.FAILED:
        assert "5 minutes" in findings["clock"].fix
        assert ("behind" if off_s < 0 else "ahead") in findings["clock"].sentence


def test_a_wrong_clock_shows_without_valid_credentials(aws: Emulator, tmp_path: Path) -> None:
    """Where every signature is refused for its time, the clock is what the fix is about."""
    aws.fault("error", code="InvalidSignatureException", message="Signature expired", status=400)
    findings = found(config_of(aws, tmp_path), wall_s=lambda: aws.clock.now_s() - HOUR_S)
    assert "clock" in failed(findings)
    assert "clock" in findings["credentials"].fix


# The way there


def test_streams_that_cannot_be_reached_while_the_table_can(aws: Emulator, tmp_path: Path) -> None:
    """A gateway endpoint serves no streams: an interface endpoint is the fix."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        findings = found(config_of(aws, tmp_path, streams_endpoint_url=url))
    assert failed(findings) == {"DescribeStream", "streams host"}
    assert "com.amazonaws.eu-west-1.dynamodb-streams" in findings["streams host"].fix
    assert findings["dynamodb host"].verdict is Verdict.OK
    assert findings["GetRecords"].verdict is Verdict.NOT_CHECKED


def test_the_account_host_is_told_and_tried(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stream calls go to the account's own host: it is the one that is shown and reached."""
    monkeypatch.setattr(
        "connector.aws.source.AwsSource.hosts",
        {
            "dynamodb": "123456789012.ddb.eu-west-1.amazonaws.com",
            "dynamodbstreams": "123456789012.streams-ddb.eu-west-1.amazonaws.com",
        },
    )
    monkeypatch.setattr("connector.examine.doctor.aws_of", _through(aws))
    config = load(
        None,
        {"AWS_REGION": REGION, "DYNADUCK_DATA_DIR": str(tmp_path), "DYNADUCK_HTTP__PORT": "0"},
        {"table": ["orders"]},
    )
    tried: list[str] = []

    def reach_host(url: str) -> Reach:
        tried.append(url)
        is_streams = "streams" in url
        return Reach(url, failed_at=Step.DNS if is_streams else None, error="unknown name")

    findings = found(config, reach_host=reach_host)
    assert tried == [
        "https://123456789012.ddb.eu-west-1.amazonaws.com",
        "https://123456789012.streams-ddb.eu-west-1.amazonaws.com",
    ]
    assert failed(findings) == {"streams host"}
    assert "AWS_ACCOUNT_ID_ENDPOINT_MODE=disabled" in findings["streams host"].fix


def _through(aws: Emulator) -> Any:
    from dataclasses import replace

    from connector.service import aws_of

    return lambda settings: replace(
        aws_of(settings), endpoint_url=aws.url, streams_endpoint_url=aws.url
    )


def test_a_name_that_does_not_resolve() -> None:
    """The first step that fails is the one that is named."""
    assert reach("http://no-such-host.invalid").failed_at is Step.DNS


def test_a_port_that_nobody_listens_on() -> None:
    """The name resolves, the connection is refused."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert reach(f"http://127.0.0.1:{closed.getsockname()[1]}").failed_at is Step.TCP


def test_a_host_that_speaks_no_tls(aws: Emulator) -> None:
    """Plain HTTP behind an https address fails at TLS."""
    https = aws.url.replace("http://", "https://")
    assert reach(https, timeout_s=0.2).failed_at is Step.TLS


def test_a_proxy_is_named_and_not_circumvented(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy a host that is tried alone tells nothing; its password is not shown."""
    monkeypatch.setenv("https_proxy", "http://user:password@proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    tried = reach("https://dynamodb.eu-west-1.amazonaws.com")
    assert (tried.proxy, tried.is_reached) == ("proxy.example:3128", False)


# Capacity and readers


def test_a_scan_that_is_throttled(aws: Emulator, tmp_path: Path) -> None:
    """The three ways out are named."""
    aws.fault("throttle", operation="Scan")
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"Scan"}
    for way in ("on-demand", "raise its read capacity", "scan_max_rcu"):
        assert way in findings["Scan"].fix


def test_a_provisioned_table_whose_scan_has_no_limit(aws: Emulator, tmp_path: Path) -> None:
    """A snapshot may take all of what the application needs: a note, gone with scan_max_rcu."""
    create(
        aws,
        "slow",
        BillingMode="PROVISIONED",
        ProvisionedThroughput={"ReadCapacityUnits": 50, "WriteCapacityUnits": 5},
    )
    assert found(config_of(aws, tmp_path, "slow"))["capacity"].verdict is Verdict.NOTE
    limited = found(config_of(aws, tmp_path, "slow", scan_max_rcu="10"))
    assert limited["capacity"].verdict is Verdict.OK


@pytest.mark.parametrize("count", [1, 3])
def test_others_that_read_the_stream(aws: Emulator, tmp_path: Path, count: int) -> None:
    """Throttled at two calls a second: somebody else is there."""
    aws.fault("throttle", operation="GetRecords", count=count)
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"readers"}
    assert "Lambda" in findings["readers"].fix


# What is stored


TABLES = ("kept", "trimmed", "remade", "switched")


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Emulator, Path]]:
    """Tables that one run has copied, so that each has a checkpoint; a test may break its own."""
    directory = tmp_path_factory.mktemp("worn")
    with pytest.MonkeyPatch.context() as patch, Emulator(shards=2, region=REGION) as emulator:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        for name in TABLES:
            create(emulator, name)
        assert sync_once(Service(stored_config(emulator, directory)), deadline_s=60).is_caught_up
        yield emulator, directory


def stored_config(aws: Emulator, directory: Path, **settings: Any) -> Config:
    return config_of(aws, directory, *TABLES, **settings)


def of_stored(worn: tuple[Emulator, Path], name: str, **settings: Any) -> Finding:
    """What is found of one table's checkpoint."""
    config = stored_config(*worn, **settings)
    return next(
        finding
        for finding in examine(config, sleep=lambda _: None)
        if (finding.subject, finding.check) == (name, "checkpoint")
    )


def test_a_checkpoint_that_can_be_resumed(worn: tuple[Emulator, Path]) -> None:
    """It passes, and the data file is left as it was."""
    file = stored_config(*worn).runtime.replica_file
    before = file.read_bytes()
    finding = of_stored(worn, "kept")
    assert finding.verdict is Verdict.OK
    assert "can be resumed" in finding.sentence
    assert file.read_bytes() == before


def test_a_checkpoint_older_than_18_hours(worn: tuple[Emulator, Path], tmp_path: Path) -> None:
    """Stuck in Error after a restart: the fix is `refresh`, or the setting that does it."""
    aws, directory = worn
    shutil.copytree(directory / "data", tmp_path / "data")
    with duckdb.connect(str(tmp_path / "data" / "replica.duckdb")) as old:
        old.execute(
            "UPDATE dynaduck.checkpoints SET covered_until = covered_until - INTERVAL 19 HOUR"
        )
    finding = of_stored((aws, tmp_path), "kept")
    assert finding.verdict is Verdict.FAILED
    assert "18 hours" in finding.sentence
    assert "dynaduck refresh" in finding.fix
    assert "invalid_checkpoint_behavior" in finding.fix

    restart = {"dynamodb_replication_invalid_checkpoint_behavior": "restart"}
    assert of_stored((aws, tmp_path), "kept", **restart).verdict is Verdict.NOTE


def test_a_checkpoint_whose_records_are_trimmed(worn: tuple[Emulator, Path]) -> None:
    """Young, and yet AWS refuses what it points to: the positions themselves are tried."""
    refused = worn[0].fault(
        "error",
        operation="GetShardIterator",
        table="trimmed",
        code="TrimmedDataAccessException",
        message="beyond the trim horizon",
        status=400,
        skip=1,
    )
    try:
        finding = of_stored(worn, "trimmed")
    finally:
        worn[0].faults.remove(refused)
    assert finding.verdict is Verdict.FAILED
    assert "Trimmed" in finding.sentence
    assert "dynaduck refresh" in finding.fix


def test_a_table_that_was_made_anew(worn: tuple[Emulator, Path]) -> None:
    """Same name, another table: its positions are nobody's."""
    worn[0].client("dynamodb").delete_table(TableName="remade")
    create(worn[0], "remade")
    finding = of_stored(worn, "remade")
    assert finding.verdict is Verdict.FAILED
    assert "deleted and made again" in finding.sentence


def test_a_checkpoint_of_another_table(worn: tuple[Emulator, Path], tmp_path: Path) -> None:
    """A data directory that belongs to another table is refused, as at start."""
    path = tmp_path / "dynaduck.yaml"
    path.write_text("datasets: [{from: dynamodb:switched, name: kept}]")
    env = {
        "AWS_REGION": REGION,
        "DYNADUCK_ENDPOINT_URL": worn[0].url,
        "DYNADUCK_DATA_DIR": str(worn[1] / "data"),
        "DYNADUCK_HTTP__PORT": "0",
    }
    findings = found(load(path, env, {}))
    assert failed(findings) == {"checkpoint"}
    assert "data_dir" in findings["checkpoint"].fix


# The host


def test_a_data_directory_that_cannot_be_written(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the directory should be, or a refusal of the system."""
    (tmp_path / "data").write_text("a file")
    assert failed(found(config_of(aws, tmp_path))) >= {"data_dir"}
    (tmp_path / "data").unlink()

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("connector.examine.premises.tempfile.TemporaryFile", refuse)
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"data_dir"}
    assert "Permission denied" in findings["data_dir"].sentence
    assert "runtime.data_dir" in findings["data_dir"].fix


def test_a_data_file_that_is_no_database(aws: Emulator, tmp_path: Path) -> None:
    """Damaged is not held and not absent."""
    config = config_of(aws, tmp_path)
    config.runtime.data_dir.mkdir()
    config.runtime.replica_file.write_bytes(b"no database" * 1000)
    findings = found(config)
    assert "data file" in failed(findings)
    assert "Move the file away" in findings["data file"].fix


def test_a_data_file_that_another_process_holds(aws: Emulator, tmp_path: Path) -> None:
    """The number of that process is what an operator needs."""
    config = config_of(aws, tmp_path)
    config.runtime.data_dir.mkdir()
    code = (
        "import sys, duckdb; c = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(config.runtime.replica_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        findings = found(config)
        holder.communicate(b"\n")
    assert failed(findings) == {"data file"}
    assert str(holder.pid) in findings["data file"].sentence
    assert findings["checkpoint"].verdict is Verdict.NOT_CHECKED


METRICS = """
dataset_dynamodb_retention_headroom_seconds{name="orders"} 7200.0
dataset_dynamodb_retention_headroom_seconds{name="others"} 80000.0
dataset_dynamodb_api_calls_total{name="orders",operation="GetRecords",outcome="ok"} 90.0
dataset_dynamodb_api_calls_total{name="orders",operation="GetRecords",outcome="throttled"} 10.0
dataset_dynamodb_api_calls_total{name="others",operation="GetRecords",outcome="ok"} 5.0
dataset_dynamodb_api_calls_total{name="orders",operation="Scan",outcome="throttled"} 70.0
"""


def test_a_running_service_tells_of_itself(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that are throttled for it, and how soon it loses changes, are failures to mend."""
    running = Running(METRICS)
    assert running.throttled_reads("orders") == 0.1
    assert running.throttled_reads("others") == 0.0
    assert running.throttled_reads("absent") is None
    assert running.headroom_s("orders") == 7200
    monkeypatch.setattr("connector.examine.premises.running_service", lambda _: running)
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"readers", "checkpoint"}
    assert "10%" in findings["readers"].sentence
    assert "2.0 h" in findings["checkpoint"].sentence


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('dataset_dynamodb_gaps_open{name="orders"} 2.0', "2 gaps are open"),
        ('dataset_dynamodb_state{name="orders",state="Error"} 1.0', "state Error"),
    ],
)
def test_a_running_service_that_waits_for_a_person_is_no_pass(
    aws: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, words: str
) -> None:
    """However much time is left before a loss: what is lost already is named, and its remedy."""
    headroom = 'dataset_dynamodb_retention_headroom_seconds{name="orders"} 86400.0'
    running = Running(f"{headroom}\n{said}\n")
    monkeypatch.setattr("connector.examine.premises.running_service", lambda _: running)
    findings = found(config_of(aws, tmp_path))
    assert failed(findings) == {"checkpoint"}
    assert words in findings["checkpoint"].sentence
    assert "dynaduck refresh orders" in findings["checkpoint"].fix


def test_a_port_that_is_taken(aws: Emulator, tmp_path: Path) -> None:
    """The port and its setting are named."""
    port = aws.url.rpartition(":")[2]
    findings = found(config_of(aws, tmp_path, **{"http.port": port}))
    assert failed(findings) == {"port"}
    assert port in findings["port"].sentence
    assert "runtime.http.port" in findings["port"].fix


def test_the_examination_is_quick_where_nothing_answers(tmp_path: Path) -> None:
    """Without any network each host is tried once, and what depends on it is not tried at all."""
    env = {
        "AWS_REGION": REGION,
        "DYNADUCK_ENDPOINT_URL": "http://127.0.0.1:1",
        "DYNADUCK_DATA_DIR": str(tmp_path),
        "DYNADUCK_HTTP__PORT": "0",
    }
    tried: list[str] = []

    def refuse(url: str) -> Reach:
        tried.append(url)
        return Reach(url, "127.0.0.1", Step.TCP, "refused")

    findings = found(load(None, env, {"table": ["orders"]}), reach_host=refuse)
    assert len(tried) == 2
    assert failed(findings) >= {"table", "dynamodb host", "streams host"}
    assert findings["clock"].verdict is Verdict.NOT_CHECKED


def test_what_flight_needs_is_looked_at(aws: Emulator, tmp_path: Path) -> None:
    """Where it is asked for, a file that is none is said before the service is started."""
    assert "flight" not in found(config_of(aws, tmp_path))
    flags: dict[str, Any] = {"flight.enabled": True, "flight.port": 0}
    assert found(config_of(aws, tmp_path, **flags))["flight"].verdict is Verdict.OK
    findings = found(config_of(aws, tmp_path, **flags | {"flight.client_ca": "none.pem"}))
    assert failed(findings) == {"flight"}
    assert "runtime.http.tls" in findings["flight"].fix
