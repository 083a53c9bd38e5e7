"""What makes a dataset: its table, name, region and credentials; Spice's files; secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.config import InvalidCheckpointBehavior, Secret
from connector.config.spice import IGNORED_DATASET_KEYS
from connector.errors import ConfigError
from tests.unit.config_builder import REGION, loaded, refused, written

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/orders"


@pytest.mark.parametrize(
    ("arn", "region"),
    [
        (ARN, "eu-central-1"),
        ("arn:aws-cn:dynamodb:cn-north-1:123456789012:table/orders", "cn-north-1"),
        ("arn:aws-us-gov:dynamodb:us-gov-west-1:123456789012:table/orders", "us-gov-west-1"),
    ],
)
@pytest.mark.parametrize("prefix", ["dynamodb:", "dynamodb://", "dynamodb/", ""])
@pytest.mark.situation(6)
def test_an_arn_of_any_partition_names_table_and_region(
    tmp_path: Path, arn: str, region: str, prefix: str
) -> None:
    """A table's ARN of AWS, China or GovCloud gives the table, the account and the region."""
    path = written(tmp_path, f"datasets: [{{from: '{prefix}{arn}'}}]")
    (dataset,) = loaded(path, {"AWS_REGION": "us-east-1"}).datasets
    assert (dataset.name, dataset.table, dataset.table_arn) == ("orders", "orders", arn)
    assert (dataset.region, dataset.account_id) == (region, "123456789012")


@pytest.mark.parametrize(
    "source",
    [
        "dynamodb:",
        "dynamodb:ab",
        "dynamodb:a b c",
        "dynamodb:orders;drop",
        "postgres:orders",
        "orders",
        f"{ARN}/stream/2026-01-01T00:00:00.000",
        "arn:aws:s3:::bucket",
        "dynamodb:arn:aws:dynamodb:eu-central-1:1:table/orders",
    ],
)
def test_what_names_no_table_is_refused(tmp_path: Path, source: str) -> None:
    """Another source, no table, a name DynamoDB does not allow, and a stream's ARN are errors."""
    error = refused(written(tmp_path, f"datasets: [{{from: '{source}'}}]"))
    assert "dynamodb:TABLE, or a table's ARN, is wanted" in error.message


@pytest.mark.parametrize("prefix", ["dynamodb:", "dynamodb://", "dynamodb/"])
def test_a_table_stands_behind_the_connectors_name(tmp_path: Path, prefix: str) -> None:
    """The delimiters that Spice takes between connector and table all do."""
    text = f"kind: Spicepod\ndatasets: [{{from: '{prefix}orders.v2'}}]"
    (dataset,) = loaded(written(tmp_path, text)).datasets
    assert (dataset.name, dataset.table, dataset.table_arn) == ("orders.v2", "orders.v2", None)


def test_a_dataset_without_a_source_is_refused(tmp_path: Path) -> None:
    """`from` is a must."""
    error = refused(written(tmp_path, "datasets: [{name: orders}, {params: {}}]"))
    assert "datasets.orders has no `from`" in error.message
    assert "datasets[1] has no `from`" in error.message


@pytest.mark.parametrize("name", ['a"b', "a b", "a;b", "a'b", "-a", ".a", "ä", "a/b"])
def test_a_name_must_do_as_a_view(tmp_path: Path, name: str) -> None:
    """Names with quotes, blanks, slashes or other letters are refused; they become SQL and URLs."""
    text = f"datasets: [{{from: dynamodb:orders, name: {name!r}}}]"
    assert "a name of letters" in refused(written(tmp_path, text)).message


def test_two_datasets_of_one_name_are_refused(tmp_path: Path) -> None:
    """DuckDB's names do not differ by case, so Orders and orders are the same view."""
    text = "datasets: [{from: dynamodb:orders}, {from: dynamodb:other, name: Orders}]"
    assert "Two datasets are called Orders" in refused(written(tmp_path, text)).message


def test_one_table_may_have_two_datasets(tmp_path: Path) -> None:
    """Two views of one table, with different filters, are fine."""
    text = """
        datasets:
          - {from: dynamodb:orders, name: open_orders, where: "state = 'open'"}
          - {from: dynamodb:orders, name: closed_orders, where: "state = 'closed'"}
    """
    assert [d.table for d in loaded(written(tmp_path, text)).datasets] == ["orders", "orders"]


def test_the_shortcut_makes_datasets_and_repeats_none(tmp_path: Path) -> None:
    """--table adds the tables that the file does not have; a name or an ARN."""
    path = written(tmp_path, "datasets: [{from: dynamodb:orders, name: o}]")
    config = loaded(path, flags={"table": ["orders", "users", ARN.replace("orders", "items")]})
    assert [(d.name, d.table, d.region) for d in config.datasets] == [
        ("o", "orders", "eu-west-1"),
        ("users", "users", "eu-west-1"),
        ("items", "items", "eu-central-1"),
    ]
    assert "dynamodb:TABLE" in refused(flags={"table": "a b"}).message


def test_the_environment_alone_can_make_datasets() -> None:
    """Tables by name, the whole list as YAML, and a dataset built from single variables."""
    env = REGION | {
        "DYNADUCK_TABLES": "orders, users",
        "DYNADUCK_DATASETS": "[{from: dynamodb:items, params: {scan_interval: 3s}}]",
        "DYNADUCK_DATASETS__EVENTS__FROM": "dynamodb:events-2",
        "DYNADUCK_DATASETS__EVENTS__NAME": "events",
    }
    config = loaded(env=env, flags={"table": None})
    assert [d.name for d in config.datasets] == ["items", "events", "orders", "users"]
    assert config.datasets[0].scan_interval_s == 3.0
    assert (
        "no dataset nope" in refused(env=REGION | {"DYNADUCK_DATASETS__NOPE__WHERE": "x"}).message
    )


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-2"}, "us-east-1"),
        ({"AWS_DEFAULT_REGION": "us-east-2"}, "us-east-2"),
        ({"PROFILES": "1"}, "ap-south-1"),
        ({"PROFILES": "1", "AWS_PROFILE": "work"}, "ap-south-2"),
        ({"PROFILES": "1", "AWS_REGION": "us-east-1"}, "us-east-1"),
    ],
)
def test_the_region_follows_the_environment_or_the_profile(
    tmp_path: Path, env: dict[str, str], expected: str
) -> None:
    """AWS_REGION, then AWS_DEFAULT_REGION, then the profile of the AWS configuration."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(
        "[default]\nregion = ap-south-1\n[profile work]\nregion = ap-south-2\n"
    )
    if env.pop("PROFILES", None):
        env = env | {"HOME": str(tmp_path)}
    (dataset,) = loaded(env=env).datasets
    assert dataset.region == expected


def test_a_missing_region_names_the_setting(tmp_path: Path) -> None:
    """With no region anywhere the error names the setting and the variable."""
    error = refused(env={"HOME": str(tmp_path)})
    assert "datasets.orders.params.dynamodb_aws_region is not set" in error.message
    assert "AWS_REGION" in error.hint
    assert "is wanted" in refused(env={"AWS_REGION": "evil.example/"}).message


def test_a_region_that_contradicts_the_arn_is_refused() -> None:
    """A table lives in one region."""
    error = refused(flags={"table": ARN, "region": "eu-west-1"})
    assert "is eu-west-1 while the table's ARN says eu-central-1" in error.message


@pytest.mark.parametrize(
    ("params", "missing"),
    [
        ("dynamodb_aws_access_key_id: AKIDEXAMPLE", "dynamodb_aws_secret_access_key"),
        ("dynamodb_aws_secret_access_key: abcdefgh", "dynamodb_aws_access_key_id"),
        (
            "dynamodb_aws_session_token: abcdefgh",
            "dynamodb_aws_access_key_id and dynamodb_aws_secret_access_key",
        ),
    ],
)
def test_half_a_key_is_refused(tmp_path: Path, params: str, missing: str) -> None:
    """Explicit keys need both parts; the error names what is missing, never what is there."""
    text = f"datasets: [{{from: dynamodb:orders, params: {{{params}}}}}]"
    error = refused(written(tmp_path, text))
    assert error.message.endswith(f"without {missing}.")
    assert "abcdefgh" not in error.message


def test_the_streams_follow_the_endpoint() -> None:
    """One endpoint serves both, unless the streams have their own."""
    (dataset,) = loaded(flags={"endpoint-url": "http://127.0.0.1:8000"}).datasets
    assert dataset.streams_endpoint_url == "http://127.0.0.1:8000"
    (dataset,) = loaded(flags={"streams-endpoint-url": "http://127.0.0.1:1"}).datasets
    assert (dataset.endpoint_url, dataset.streams_endpoint_url) == (None, "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"include": "a", "exclude": "b"}, "has both include and exclude"),
        ({"publish.every": "1m"}, "publish.to is not set"),
    ],
)
def test_settings_that_need_or_exclude_each_other(flags: dict[str, object], message: str) -> None:
    """Rules between settings of one dataset name both."""
    assert message in refused(flags=flags).message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("error", InvalidCheckpointBehavior.ERROR),
        ("ready_after_load", InvalidCheckpointBehavior.RESTART),
        ("ready_before_load", InvalidCheckpointBehavior.RESTART),
        ("restart", InvalidCheckpointBehavior.RESTART),
    ],
)
def test_the_deprecated_alias_maps_its_values(
    tmp_path: Path, value: str, expected: InvalidCheckpointBehavior
) -> None:
    """The old name takes its old words too, and warns once."""
    text = f"""
        datasets:
          - from: dynamodb:orders
            params: {{lag_exceeds_shard_retention_behavior: {value}}}
    """
    config = loaded(written(tmp_path, text))
    assert config.datasets[0].invalid_checkpoint_behavior is expected
    (warning,) = config.warnings
    assert "lag_exceeds_shard_retention_behavior (dynaduck.yaml:4) is deprecated" in warning
    assert "dynamodb_replication_invalid_checkpoint_behavior" in warning
    assert warning.endswith(": restart.") == value.startswith("ready_")


def test_the_old_words_belong_to_the_old_name() -> None:
    """The new name does not take ready_after_load."""
    flags = {"dynamodb_replication_invalid_checkpoint_behavior": "ready_after_load"}
    assert "error or restart is wanted" in refused(flags=flags).message


def test_ready_lag_is_a_deprecated_alias() -> None:
    """ready_lag sets dynamodb_replication_ready_lag and warns once."""
    config = loaded(flags={"ready_lag": "3s"})
    assert config.datasets[0].ready_lag_s == 3.0
    (warning,) = config.warnings
    assert "ready_lag (--ready_lag) is deprecated" in warning


@pytest.mark.parametrize("key", ["dynamodb_scan_interval", "scan_interval"])
@pytest.mark.parametrize("region", ["dynamodb_aws_region", "aws_region", "region"])
def test_params_have_the_prefix_or_not(tmp_path: Path, key: str, region: str) -> None:
    """Parameters are taken with and without dynamodb_, without a warning."""
    text = f"datasets: [{{from: dynamodb:orders, params: {{{key}: 1s, {region}: eu-west-3}}}}]"
    config = loaded(written(tmp_path, text), env={})
    assert (config.datasets[0].scan_interval_s, config.datasets[0].region) == (1.0, "eu-west-3")
    assert config.warnings == ()


SPICEPOD = """
    version: v1
    kind: Spicepod
    name: shop
    secrets:
      - {from: env, name: env}
    runtime:
      telemetry: {enabled: false}
    views:
      - {name: v, sql: select 1}
    datasets:
      - from: postgres:public.customers
        name: customers
      - from: dynamodb:orders
        name: orders
        description: What was ordered.
        time_column: at
        dependsOn: [customers]
        params:
          dynamodb_aws_region: eu-west-1
          dynamodb_aws_auth: key
          dynamodb_aws_access_key_id: ${ secrets:aws_access_key_id }
          dynamodb_aws_secret_access_key: ${ secrets:aws_secret_access_key }
          schema_infer_max_records: 10
          scan_interval: 100ms
        columns:
          - {name: total, description: In cents., type: bigint}
          - {name: note, embeddings: [{from: e5}]}
        acceleration:
          enabled: true
          engine: duckdb
          mode: file
          refresh_mode: changes
          retention_check_enabled: false
          indexes: {total: enabled}
"""


def test_a_spicepod_loads_as_it_is(tmp_path: Path) -> None:
    """A spicepod's DynamoDB datasets load; each key without a meaning here is one warning."""
    env = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "abcdefgh"}
    config = loaded(written(tmp_path, SPICEPOD), env)
    (dataset,) = config.datasets
    assert (dataset.name, dataset.region, dataset.scan_interval_s) == ("orders", "eu-west-1", 0.1)
    assert dataset.secret_access_key == Secret("abcdefgh")
    assert [(pin.name, pin.type) for pin in dataset.columns] == [("total", "BIGINT")]
    named = sorted(warning.split(" ")[0] for warning in config.warnings)
    assert named == sorted(
        [
            "secrets",
            "runtime.telemetry",
            "views",
            "datasets[0]",
            "datasets[1].description",
            "datasets[1].time_column",
            "datasets[1].dependsOn",
            "datasets[1].params.dynamodb_aws_auth",
            "datasets[1].params.schema_infer_max_records",
            "datasets[1].acceleration.enabled",
            "datasets[1].acceleration.engine",
            "datasets[1].acceleration.mode",
            "datasets[1].acceleration.retention_check_enabled",
            "datasets[1].acceleration.indexes",
        ]
    )


@pytest.mark.parametrize("key", sorted(IGNORED_DATASET_KEYS))
def test_every_key_of_spice_is_ignored_in_a_dataset_block(tmp_path: Path, key: str) -> None:
    """A dataset block copied out of a spicepod into our file loads too, with one warning a key."""
    *section, name = key.split(".")
    entry = f"{name}: x" if not section else f"{section[0]}: {{{name}: x}}"
    config = loaded(written(tmp_path, f"datasets: [{{from: dynamodb:orders, {entry}}}]"))
    (warning,) = config.warnings
    assert warning.startswith(f"datasets[0].{key} (dynaduck.yaml:1) ")


@pytest.mark.parametrize("key", ["schema_infer_max_records", "time_format"])
def test_a_key_that_was_set_on_purpose_is_told_what_holds_instead(tmp_path: Path, key: str) -> None:
    """Not only that it is ignored: what it did elsewhere needs no setting here, and why."""
    entry = f"params: {{{key}: 100}}"
    config = loaded(written(tmp_path, f"datasets: [{{from: dynamodb:orders, {entry}}}]"))
    (warning,) = config.warnings
    assert " is accepted and changes nothing: " in warning


def test_no_dataset_may_have_the_name_of_anothers_history(tmp_path: Path) -> None:
    """Both would be one table; SQL does not tell their case apart."""
    text = """
        datasets:
          - {from: dynamodb:orders, history: {enabled: true}}
          - {from: dynamodb:other, name: ORDERS_history}
    """
    assert "history of orders" in refused(written(tmp_path, text)).message
    loaded(written(tmp_path, text.replace("true", "false")))


def test_a_struct_keeps_the_case_of_its_fields(tmp_path: Path) -> None:
    """They are names of attributes."""
    text = """
        datasets:
          - from: dynamodb:orders
            columns: [{name: doc, type: "struct(Id bigint)"}, {name: n, type: "decimal(9,2)"}]
    """
    (dataset,) = loaded(written(tmp_path, text)).datasets
    assert [pin.type for pin in dataset.columns] == ["struct(Id bigint)", "DECIMAL(9,2)"]


def test_a_misspelt_key_in_a_spicepod_is_still_an_error(tmp_path: Path) -> None:
    """Being a spicepod forgives Spice's keys, not typing errors in a dataset."""
    text = "kind: Spicepod\ndatasets: [{from: dynamodb:orders, params: {scan_intervall: 1s}}]"
    assert "scan_intervall" in refused(written(tmp_path, text)).message


def test_references_are_replaced_inside_texts(tmp_path: Path) -> None:
    """A reference may be a part of a value, also of a table's name; $${ stands for itself."""
    text = """
        datasets:
          - from: dynamodb:orders-${env:STAGE}
            where: note = '$${x}'
            include: ["${env:STAGE}", b]
    """
    (dataset,) = loaded(written(tmp_path, text), REGION | {"STAGE": "prod"}).datasets
    assert (dataset.name, dataset.table) == ("orders-prod", "orders-prod")
    assert dataset.where == "note = '${x}'"
    assert dataset.include == ("prod", "b")


SECRET_FILE = """
    datasets:
      - from: dynamodb:orders
    runtime:
      secrets_dir: {directory}
      http: {{token: "${{secrets:{name}}}"}}
"""


def token(tmp_path: Path, name: str, env: dict[str, str], asked: dict[str, str]) -> str | None:
    """The token of a file that takes it from a secret; `asked` is what AWS would answer."""
    text = SECRET_FILE.format(directory=tmp_path / "secrets", name=name)
    config = loaded(written(tmp_path, text), REGION | env, secrets_manager=asked.get)
    secret = config.runtime.http.token
    return secret.reveal() if secret else None


def test_a_secret_is_looked_for_in_order(tmp_path: Path) -> None:
    """The environment first, then files, then AWS Secrets Manager."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "systemd").mkdir()
    asked = {"api_token": "from-aws"}
    systemd = {"CREDENTIALS_DIRECTORY": str(tmp_path / "systemd")}
    assert token(tmp_path, "api_token", systemd, asked) == "from-aws"
    (tmp_path / "systemd" / "api_token").write_text("from-systemd")
    assert token(tmp_path, "api_token", systemd, asked) == "from-systemd"
    (tmp_path / "secrets" / "api_token").write_text("from-file\n")
    assert token(tmp_path, "api_token", systemd, asked) == "from-file"
    assert token(tmp_path, "api_token", {"API_TOKEN": "from-upper"}, asked) == "from-upper"
    assert token(tmp_path, "api_token", {"api_token": "from-env"}, asked) == "from-env"


def test_a_secret_may_be_one_text_of_a_json_object(tmp_path: Path) -> None:
    """NAME#KEY takes a member, as secrets in AWS are often JSON."""
    asked = {"prod/dynaduck": '{"token": "abcdefgh"}'}
    assert token(tmp_path, "prod/dynaduck#token", {}, asked) == "abcdefgh"
    with pytest.raises(ConfigError, match="no JSON object with a text 'other'") as caught:
        token(tmp_path, "prod/dynaduck#other", {}, asked)
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "..", "nothing", "a b"])
def test_a_secret_that_is_not_there_is_an_error(tmp_path: Path, name: str) -> None:
    """The error names the reference; a name cannot leave the directory."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secret").write_text("outside")
    with pytest.raises(ConfigError, match=r"runtime\.http\.token .*secret"):
        token(tmp_path, name, {}, {})


def test_secrets_show_nowhere(tmp_path: Path) -> None:
    """Not in what is shown, nor in a masked log line, also where a plain setting holds one."""
    text = """
        datasets:
          - from: dynamodb:orders
            params: {endpoint_url: "http://${secrets:HOST}:8000"}
        runtime:
          http: {token: "${secrets:TOKEN}"}
    """
    env = REGION | {"HOST": "hidden.example", "TOKEN": "abcdefgh"}
    config = loaded(written(tmp_path, text), env)
    shown = {setting.path: setting.value for setting in config.shown}
    assert shown["datasets.orders.params.endpoint_url"] == "http://***:8000"
    assert shown["runtime.http.token"] == "***"
    assert config.mask("Bearer abcdefgh to hidden.example") == "Bearer *** to ***"
    assert "hidden" not in repr(config)


def test_a_wrong_value_from_a_secret_shows_the_reference(tmp_path: Path) -> None:
    """An error about a value shows what was written, not what it stood for."""
    text = "datasets: [{from: dynamodb:orders, params: {endpoint_url: '${secrets:HOST}'}}]"
    error = refused(written(tmp_path, text), REGION | {"HOST": "hidden.example"})
    assert "${secrets:HOST}" in error.message
    assert "hidden" not in f"{error.message}{error.hint}{error.__cause__}{error.__context__}"


def test_a_wrong_secret_does_not_show(tmp_path: Path) -> None:
    """A secret that is no text is refused without a look at it."""
    text = "datasets: [{from: dynamodb:orders}]\nruntime: {http: {token: [abcdefgh]}}"
    error = refused(written(tmp_path, text))
    assert "runtime.http.token is *** (dynaduck.yaml:2)" in error.message
    assert "abcdefgh" not in error.message


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("${env:NOT_SET}", "the environment variable NOT_SET is not set"),
        ("${vault:x}", "there is no store 'vault'"),
    ],
)
def test_other_references_are_errors(reference: str, message: str) -> None:
    """A variable that is not set and a store that is not known are errors, never empty texts."""
    assert message in refused(flags={"where": reference}).message
