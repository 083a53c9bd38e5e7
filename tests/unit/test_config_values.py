"""Single settings: what each takes, what it refuses, and what the refusal says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connector.config import (
    Dataset,
    InitialSnapshot,
    InvalidCheckpointBehavior,
    LogFormat,
    OffsetStore,
    Poison,
    RefreshMode,
    Runtime,
    Secret,
    TlsFiles,
)
from connector.config.kinds import ColumnPin
from connector.config.settings import Setting, dataset_settings, runtime_settings
from tests.unit.config_builder import loaded, refused, written

CONTRACT = """
    datasets:
      - from: dynamodb:orders
        name: orders
        params:
          dynamodb_aws_region: eu-west-1
          dynamodb_aws_access_key_id: ${secrets:AWS_ACCESS_KEY_ID}
          dynamodb_aws_secret_access_key: ${secrets:AWS_SECRET_ACCESS_KEY}
          dynamodb_aws_session_token: ${secrets:AWS_SESSION_TOKEN}
          endpoint_url: http://127.0.0.1:8000
          streams_endpoint_url: http://127.0.0.1:8001
          scan_interval: 0s
          scan_segments: auto
          scan_max_rcu: none
          scan_consistent_read: true
          unnest_depth: 0
          dynamodb_replication_ready_lag: 2s
          dynamodb_replication_initial_snapshot: auto
          dynamodb_replication_invalid_checkpoint_behavior: error
        acceleration:
          refresh_mode: changes
          refresh_check_interval: 10m
        columns: []
        max_columns: 1000
        include: []
        poison: quarantine
        history: {enabled: false, retention: 30d}
        publish: {every: none, format: parquet, to: ./copies}
    runtime:
      data_dir: ./data
      memory_limit: 1GB
      http: {host: 127.0.0.1, port: 8090, token: none, tls: off}
      flight: {enabled: false, port: 50051}
      quack: {enabled: false, port: 9494}
      query: {max_concurrent: 4, timeout: 30s, max_rows: none}
      offset_store: duckdb
      offset_dynamodb_table: none
      wal_storage: disk
      wal_s3_bucket: none
      tenant: default
      workspace: default
      pipeline: default
      cluster_id: none
"""
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEXAMPLE",
}


def test_the_contracts_example_means_the_defaults(tmp_path: Path) -> None:
    """The documented file, which spells out every default, loads as the defaults do."""
    config = loaded(written(tmp_path, CONTRACT), KEYS)
    assert config.runtime == Runtime()
    assert config.datasets == (
        Dataset(
            name="orders",
            table="orders",
            region="eu-west-1",
            access_key_id=Secret("AKIDEXAMPLE"),
            secret_access_key=Secret("wJalrXUtnFEMI"),
            session_token=Secret("FwoGZXIvYXdzEXAMPLE"),
            endpoint_url="http://127.0.0.1:8000",
            streams_endpoint_url="http://127.0.0.1:8001",
            publish=config.datasets[0].publish,
        ),
    )
    assert config.warnings == ()


ACCEPTED: list[tuple[str, Any, str, Any]] = [
    ("endpoint_url", "http://127.0.0.1:8000/", "endpoint_url", "http://127.0.0.1:8000"),
    ("scan_interval", "250ms", "scan_interval_s", 0.25),
    ("scan_segments", "auto", "scan_segments", None),
    ("scan_segments", "16", "scan_segments", 16),
    ("scan_max_rcu", "none", "scan_max_rcu", None),
    ("scan_max_rcu", 500, "scan_max_rcu", 500),
    ("scan_consistent_read", "off", "scan_consistent_read", False),
    ("unnest_depth", "2", "unnest_depth", 2),
    ("dynamodb_replication_ready_lag", "2s", "ready_lag_s", 2.0),
    ("dynamodb_replication_ready_lag", "1m", "ready_lag_s", 60.0),
    (
        "dynamodb_replication_initial_snapshot",
        "DISABLED",
        "initial_snapshot",
        InitialSnapshot.DISABLED,
    ),
    (
        "dynamodb_replication_invalid_checkpoint_behavior",
        "restart",
        "invalid_checkpoint_behavior",
        InvalidCheckpointBehavior.RESTART,
    ),
    ("refresh_mode", "full", "refresh_mode", RefreshMode.FULL),
    ("refresh_check_interval", "1h", "refresh_check_interval_s", 3600.0),
    ("columns", "[{name: total, type: double}]", "columns", (ColumnPin("total", "DOUBLE"),)),
    ("max_columns", "50", "max_columns", 50),
    ("include", "a,b", "include", ("a", "b")),
    ("exclude", '["a, b", c]', "exclude", ("a, b", "c")),
    ("where", "status = 'open'", "where", "status = 'open'"),
    ("poison", "halt", "poison", Poison.HALT),
]


@pytest.mark.parametrize(("flag", "value", "attribute", "expected"), ACCEPTED)
def test_a_datasets_setting_becomes_its_value(
    flag: str, value: object, attribute: str, expected: object
) -> None:
    """The text of a flag becomes the typed value of every dataset."""
    assert getattr(loaded(flags={flag: value}).datasets[0], attribute) == expected


ACCEPTED_RUNTIME: list[tuple[str, Any, str, Any]] = [
    ("data_dir", "/var/lib/dynaduck", "data_dir", Path("/var/lib/dynaduck")),
    ("memory_limit", "400MB", "memory_limit_bytes", 400_000_000),
    ("log_format", "json", "log_format", LogFormat.JSON),
    ("http.port", "0", "http.port", 0),
    ("http.tls", "{cert: c.pem, key: k.pem}", "http.tls", TlsFiles(Path("c.pem"), Path("k.pem"))),
    ("http.token", "none", "http.token", None),
    ("flight.enabled", True, "flight.enabled", True),
    ("query.timeout", "1500ms", "query.timeout_s", 1.5),
    ("query.max_rows", "10000", "query.max_rows", 10_000),
    ("offset_store", "sled", "offset_store", OffsetStore.DUCKDB),
    ("tenant", 7, "tenant", "7"),
]


@pytest.mark.parametrize(("flag", "value", "attribute", "expected"), ACCEPTED_RUNTIME)
def test_a_runtime_setting_becomes_its_value(
    flag: str, value: object, attribute: str, expected: object
) -> None:
    """The text of a flag becomes the typed value of the runtime."""
    found: object = loaded(flags={flag: value}).runtime
    for part in attribute.split("."):
        found = getattr(found, part)
    assert found == expected


REFUSED = [
    ("scan_interval", "5", "a duration such as 0s, 250ms, 2s, 10m or 18h is wanted"),
    ("scan_interval", "-1s", "a duration"),
    ("scan_segments", "0", "a whole number from 1 to 1000000, or auto, is wanted"),
    ("scan_segments", "many", "or auto, is wanted"),
    ("scan_max_rcu", "1.5", "a whole number of at least 1, or none, is wanted"),
    ("scan_consistent_read", "maybe", "true or false is wanted"),
    ("unnest_depth", "33", "a whole number from 0 to 32 is wanted"),
    ("ready_lag", "1999ms", "a duration of at least 2s"),
    ("replication_initial_snapshot", "never", "auto, disabled or always is wanted"),
    ("replication_invalid_checkpoint_behavior", "retry", "error or restart is wanted"),
    ("refresh_mode", "append", "changes or full is wanted"),
    ("refresh_check_interval", "0s", "a duration of at least 1s"),
    ("columns", "[{type: DOUBLE}]", "a list of columns"),
    ("columns", "[{name: a, type: INT}, {name: a, type: INT}]", "a list of columns"),
    ("columns", "[{name: a", "a list of columns"),
    ("include", "a,a", "a list of attributes is wanted"),
    ("max_columns", "0", "a whole number from 1 to 10000 is wanted"),
    ("poison", "drop", "quarantine or halt is wanted"),
    ("endpoint_url", "127.0.0.1:8000", "an http or https URL without credentials"),
    ("endpoint_url", "http://me:secret@127.0.0.1", "an http or https URL without credentials"),
    ("endpoint_url", "http://127.0.0.1:99999", "an http or https URL without credentials"),
    ("region", "Europe (Ireland)", "an AWS region such as eu-west-1 is wanted"),
    ("publish.format", "csv", "parquet is wanted"),
    ("memory_limit", "1", "a size of at least 64MB"),
    ("memory_limit", "1MB", "a size of at least 64MB"),
    ("http.port", "65536", "a whole number from 0 to 65535 is wanted"),
    ("http.port", "http", "a whole number from 0 to 65535 is wanted"),
    ("http.tls", "{cert: c.pem}", "{cert: FILE, key: FILE}, or off, is wanted"),
    ("query.max_concurrent", "0", "a whole number from 1 to 1024 is wanted"),
    ("wal_storage", "tape", "disk, s3 or clustered is wanted"),
    ("offset_store", "redis", "duckdb or dynamodb is wanted"),
    ("pipeline", "a#b", "a name of letters, digits, '.', '_' or '-' is wanted"),
    ("tenant", "a/b", "a name of letters"),
    ("data_dir", "", "a path is wanted"),
]


@pytest.mark.parametrize(("flag", "value", "wanted"), REFUSED)
def test_a_wrong_value_names_setting_value_and_form(flag: str, value: str, wanted: str) -> None:
    """The error has the full path, what was written, where, and what is accepted."""
    error = refused(flags={flag: value})
    assert error.exit_status == 2
    assert wanted in error.message
    assert f'is "{value}" (--{flag})' in error.message
    path = error.message.split(" is ")[0]
    assert path.startswith(("runtime.", "datasets.orders."))
    assert path.rpartition(".")[2].endswith(flag.rpartition(".")[2])


def test_a_number_without_unit_in_yaml_is_no_duration(tmp_path: Path) -> None:
    """YAML's own numbers are no durations either: 5 what?"""
    path = written(tmp_path, "datasets: [{from: dynamodb:orders, params: {scan_interval: 5}}]")
    error = refused(path)
    assert "datasets.orders.params.scan_interval is 5 (dynaduck.yaml:1)" in error.message


def test_everything_wrong_is_said_at_once() -> None:
    """Two wrong settings are two lines, so that one run of the command is enough."""
    error = refused(flags={"scan_segments": "0", "poison": "drop", "http.port": "x"})
    assert error.message.startswith("3 settings are wrong:")
    assert len([line for line in error.message.splitlines() if line.startswith("- ")]) == 3


@pytest.mark.parametrize(
    "setting",
    [*dataset_settings(), *runtime_settings()],
    ids=lambda setting: setting.key,
)
def test_every_default_shows_as_itself(setting: Setting) -> None:
    """A default as documented parses, and its value shows as text that parses to it again."""
    if setting.default is None:
        return
    value = setting.kind.read(setting.default)
    assert setting.kind.read(setting.kind.show(value)) == value


def test_the_repr_of_a_configuration_has_no_secret(tmp_path: Path) -> None:
    """Neither the configuration nor a dataset shows a secret when printed."""
    config = loaded(written(tmp_path, CONTRACT), KEYS)
    for text in (repr(config), str(config.datasets), repr(config.datasets[0].access_key_id)):
        assert not any(secret in text for secret in KEYS.values())
    assert config.datasets[0].secret_access_key == Secret("wJalrXUtnFEMI")


def test_the_replicas_file_is_not_named_like_a_schema() -> None:
    """A file dynaduck.duckdb would make every name dynaduck.x ambiguous."""
    runtime = loaded(flags={"data_dir": "d"}).runtime
    assert runtime.replica_file == Path("d/replica.duckdb")
