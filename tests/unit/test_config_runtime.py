"""Rules between settings of the runtime: who may reach it, and where the log and offsets are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from connector.config import OffsetStore, Source, WalStorage
from connector.config import runtime as runtime_rules
from connector.config.settings import runtime_settings
from connector.config.storage_rules import StorageAsked, choose_storage
from connector.errors import ConfigError
from tests.unit.config_builder import REGION, loaded, refused, written

OFF_LOOPBACK = ["0.0.0.0", "::", "10.0.0.1", "example.com"]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "[::1]", "localhost"])
def test_on_loopback_neither_token_nor_tls_is_needed(host: str) -> None:
    """Nobody else can reach a loopback address."""
    assert loaded(flags={"http.host": host}).runtime.http.token is None


@pytest.mark.parametrize("host", OFF_LOOPBACK)
def test_off_loopback_a_token_and_a_word_on_tls_are_a_must(host: str) -> None:
    """Off loopback a token is needed, and a certificate unless `tls: off` was said."""
    flags: dict[str, object] = {"http.host": host}
    error = refused(flags=flags)
    assert "runtime.http.token is not set" in error.message
    assert "runtime.http.tls is not set" in error.message
    flags["http.token"] = "abcdefgh"
    assert refused(flags=flags).message.startswith("runtime.http.tls is not set")
    assert loaded(flags=flags | {"http.tls": "off"}).runtime.http.tls is None
    tls = loaded(flags=flags | {"http.tls": "{cert: c, key: k}"}).runtime.http.tls
    assert tls is not None
    assert tls.cert == Path("c")


def test_yaml_reads_off_as_false_and_it_still_means_off(tmp_path: Path) -> None:
    """A bare `off` is a boolean in YAML 1.1."""
    text = """
        datasets: [{from: dynamodb:orders}]
        runtime: {http: {host: 0.0.0.0, token: abcdefgh, tls: off}}
    """
    assert loaded(written(tmp_path, text)).runtime.http.tls is None


def test_two_listeners_need_two_ports() -> None:
    """The same port twice is an error while both listen; 0 never clashes."""
    flags: dict[str, object] = {"flight.port": 8090}
    assert not loaded(flags=flags).runtime.flight.enabled
    error = refused(flags=flags | {"flight.enabled": True})
    assert error.message == "runtime.flight.port and runtime.http.port are both 8090."
    loaded(flags={"http.port": 0, "flight.enabled": True, "flight.port": 0})


def asked(**changes: Any) -> StorageAsked:
    """Settings of which only those in question are said."""
    said: dict[str, Any] = {
        "store": None,
        "wal_storage": WalStorage.DISK,
        "table": None,
        "wal_bucket": None,
        "bucket": None,
        "catalog_table": None,
    }
    return StorageAsked(**(said | changes))


DUCKDB, DYNAMODB = OffsetStore.DUCKDB, OffsetStore.DYNAMODB
S3, CLUSTERED = WalStorage.S3, WalStorage.CLUSTERED


@pytest.mark.parametrize(
    ("said", "store", "bucket"),
    [
        pytest.param({}, DUCKDB, None, marks=pytest.mark.requirement("R1")),
        ({"store": DUCKDB}, DUCKDB, None),
        ({"store": DYNAMODB, "table": "t"}, DYNAMODB, None),
        pytest.param(
            {"wal_storage": CLUSTERED, "table": "t", "bucket": "b"},
            DYNAMODB,
            "b",
            marks=pytest.mark.requirement("R2"),
        ),
        (
            {"wal_storage": CLUSTERED, "store": DYNAMODB, "table": "t", "bucket": "b"},
            DYNAMODB,
            "b",
        ),
        pytest.param(
            {"wal_storage": S3, "bucket": "b"}, DUCKDB, "b", marks=pytest.mark.requirement("R5")
        ),
        pytest.param(
            {"wal_storage": S3, "bucket": "b", "wal_bucket": "w"},
            DUCKDB,
            "w",
            marks=pytest.mark.requirement("R5"),
        ),
    ],
)
def test_which_store_and_bucket_hold(
    said: dict[str, Any], store: OffsetStore, bucket: str | None
) -> None:
    """Clustered selects dynamodb, and the log's bucket is its own or else the common one."""
    chosen = choose_storage(asked(**said), lambda: True)
    assert (chosen.store, chosen.wal_bucket) == (store, bucket)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        pytest.param(
            {"wal_storage": CLUSTERED, "store": DUCKDB, "table": "t", "bucket": "b"},
            "runtime.offset_store is duckdb while runtime.wal_storage is clustered",
            marks=pytest.mark.requirement("R2"),
        ),
        pytest.param(
            {"store": DYNAMODB},
            "runtime.offset_dynamodb_table is not set while runtime.offset_store is dynamodb",
            marks=pytest.mark.requirement("R3"),
        ),
        pytest.param(
            {"wal_storage": CLUSTERED, "bucket": "b"},
            "runtime.offset_dynamodb_table is not set while runtime.wal_storage is clustered",
            marks=pytest.mark.requirement("R3"),
        ),
        ({"wal_storage": S3}, "runtime.wal_s3_bucket is not set while runtime.wal_storage is s3"),
        (
            {"wal_storage": CLUSTERED, "table": "t"},
            "runtime.wal_s3_bucket is not set while runtime.wal_storage is clustered",
        ),
        pytest.param(
            {"store": DYNAMODB, "table": "t", "catalog_table": "t"},
            "runtime.catalog_table and runtime.offset_dynamodb_table are both t",
            marks=pytest.mark.requirement("R33"),
        ),
    ],
)
def test_contradictions_fail_at_start(said: dict[str, Any], message: str) -> None:
    """What cannot hold together is an error that names both settings."""
    with pytest.raises(ConfigError) as caught:
        choose_storage(asked(**said), lambda: True)
    assert caught.value.message.startswith(message)
    assert caught.value.hint


@pytest.mark.requirement("R6")
def test_without_the_extra_a_dynamodb_store_is_refused() -> None:
    """The error says what to install; the default store needs nothing."""
    with pytest.raises(ConfigError, match="not installed") as caught:
        choose_storage(asked(store=DYNAMODB, table="t"), lambda: False)
    assert "dynaduck[cluster]" in caught.value.hint
    assert choose_storage(asked(), lambda: False).store is DUCKDB


@pytest.mark.requirement("R6")
def test_the_extra_is_looked_for_by_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of the extra that is not there refuses the start, whatever else is."""
    flags = {"offset-store": "dynamodb", "offset-dynamodb-table": "offsets"}
    assert loaded(flags=flags).runtime.offset_store is DYNAMODB
    for missing in ("no_such_package", "no_such_package.inside"):
        monkeypatch.setattr(runtime_rules, "CLUSTER_MODULES", ("json", missing))
        assert "not installed" in refused(flags=flags).message


@pytest.mark.requirement("R4")
@pytest.mark.parametrize("source", ["file", "environment", "flag", "foreign", "foreign file"])
def test_the_storage_may_be_said_in_any_source(tmp_path: Path, source: str) -> None:
    """File, variable and flag agree, and so do the other product's variables and file."""
    said = {"wal_storage": "s3", "wal_s3_bucket": "acme-wal", "tenant": "acme"}
    block = ", ".join(f"{key}: {value}" for key, value in said.items())
    env = dict(REGION)
    path, flags = None, {}
    if source == "file":
        path = written(tmp_path, f"datasets: [{{from: dynamodb:orders}}]\nruntime: {{{block}}}")
    elif source == "foreign file":
        path = written(tmp_path, f"datasets: [{{from: dynamodb:orders}}]\nskippr: {{{block}}}")
    elif source == "environment":
        env |= {f"DYNADUCK_{key.upper()}": value for key, value in said.items()}
    elif source == "foreign":
        env |= {"WAL_STORAGE": "s3", "SKIPPR_WAL_S3_BUCKET": "acme-wal", "SKIPPR_TENANT": "acme"}
    else:
        flags = dict(said)
    runtime = loaded(path, env, flags).runtime
    assert (runtime.wal_storage, runtime.wal_s3_bucket) == (S3, "acme-wal")
    assert runtime.tenant == "acme"


@pytest.mark.requirement("R4")
@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ({"WAL_STORAGE": "raft"}, {}),
        ({"DYNADUCK_WAL_STORAGE": "raft"}, {}),
        ({}, {"wal-storage": "raft"}),
    ],
)
def test_an_unknown_storage_fails(env: dict[str, str], flags: dict[str, object]) -> None:
    """Another word than disk, s3 or clustered fails whoever says it."""
    assert "disk, s3 or clustered is wanted" in refused(env=REGION | env, flags=flags).message


def test_our_variable_wins_over_the_other_products() -> None:
    """Where both are set, ours holds."""
    env = REGION | {"SKIPPR_TENANT": "theirs", "DYNADUCK_TENANT": "ours"}
    assert loaded(env=env).runtime.tenant == "ours"


@pytest.mark.requirement("R2")
def test_clustered_selects_the_store_and_shows_why() -> None:
    """The derived store is in the configuration, with what it follows from."""
    env = REGION | {
        "WAL_STORAGE": "clustered",
        "SKIPPR_OFFSET_DYNAMODB_TABLE": "offsets",
        "SKIPPR_S3_BUCKET": "acme",
    }
    config = loaded(env=env)
    assert config.runtime.offset_store is DYNAMODB
    assert config.runtime.wal_s3_bucket == "acme"
    origin = config.origins["runtime.offset_store"]
    assert (origin.source, origin.place) == (Source.DERIVED, "runtime.wal_storage")
    refusal = refused(env=env | {"SKIPPR_OFFSET_STORE": "sled"})
    assert "runtime.offset_store is duckdb" in refusal.message


@pytest.mark.requirement("R35")
def test_there_is_no_setting_for_what_the_protocol_fixes() -> None:
    """No knob for lease time, quorum, time to live, peers, namespaces or a second table."""
    about_the_cluster = {
        setting.key
        for setting in runtime_settings()
        if any(word in setting.key for word in ("offset", "wal_", "cluster", "lease", "quorum"))
        or any(word in setting.key for word in ("ttl", "peer", "namespace", "member", "heartbeat"))
    }
    assert about_the_cluster == {
        "offset_store",
        "offset_dynamodb_table",
        "wal_storage",
        "wal_s3_bucket",
        "cluster_id",
    }


ALIASES = [
    ("SKIPPR_OFFSET_STORE", "sled", "offset_store", DUCKDB),
    ("SKIPPR_OFFSET_DYNAMODB_TABLE", "console-offsets", "offset_dynamodb_table", "console-offsets"),
    ("WAL_STORAGE", "s3", "wal_storage", S3),
    ("SKIPPR_WAL_STORAGE", "s3", "wal_storage", S3),
    ("SKIPPR_WAL_S3_BUCKET", "acme-wal", "wal_s3_bucket", "acme-wal"),
    ("SKIPPR_S3_BUCKET", "acme", "s3_bucket", "acme"),
    ("SKIPPR_TENANT", "acme", "tenant", "acme"),
    ("SKIPPR_WORKSPACE", "prod", "workspace", "prod"),
    ("SKIPPR_PIPELINE", "google_analytics", "pipeline", "google_analytics"),
    ("SKIPPR_CLUSTER_ID", "c-1", "cluster_id", "c-1"),
    ("SKIPPR_DATA_DIR", "/var/lib/skippr", "data_dir", Path("/var/lib/skippr")),
]


@pytest.mark.requirement("R1")
@pytest.mark.requirement("R4")
@pytest.mark.parametrize(("variable", "text", "attribute", "value"), ALIASES)
def test_each_variable_of_the_other_product_is_ours_too(
    variable: str, text: str, attribute: str, value: object
) -> None:
    """It sets what its name says, and the origin that is shown names the variable."""
    # A log needs a bucket, whoever names it.
    bucket = {} if attribute.endswith("bucket") else {"DYNADUCK_WAL_S3_BUCKET": "log"}
    config = loaded(env=REGION | bucket | {variable: text})
    assert getattr(config.runtime, attribute) == value
    origin = config.origins[f"runtime.{attribute}"]
    assert (origin.source, origin.place) == (Source.ENVIRONMENT, variable)


def test_no_variable_of_the_other_product_is_left_without_a_test() -> None:
    """The settings' list of foreign variables and the table above are the same."""
    known = {name for setting in runtime_settings() for name in setting.environment}
    assert known == {variable for variable, *_ in ALIASES}


@pytest.mark.requirement("R1")
def test_another_store_than_ours_or_dynamodb_fails() -> None:
    """`sled` is the embedded store by the name it has there; anything else is refused."""
    for env in ({"SKIPPR_OFFSET_STORE": "redis"}, {"DYNADUCK_OFFSET_STORE": "redis"}):
        assert "duckdb or dynamodb" in refused(env=REGION | env).message
