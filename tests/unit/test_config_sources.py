"""File, environment and flags: what each key, variable and flag means, and which one wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.config import Source, find_file, load, parse_flags
from connector.errors import ConfigError
from tests.unit.config_builder import REGION, loaded, refused, written

FILE = """
    datasets:
      - from: dynamodb:orders
        params: {scan_interval: 1s}
      - from: dynamodb:my-table.v2
    runtime:
      http: {port: 1001}
"""


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    """The same setting in all three places has the flag's value, and each lower one in turn."""
    path = written(tmp_path, FILE)
    env = REGION | {"DYNADUCK_HTTP__PORT": "1002"}
    config = loaded(path, env, {"http.port": "1003"})
    assert config.runtime.http.port == 1003
    assert str(config.origins["runtime.http.port"]) == "--http.port"
    config = loaded(path, env)
    assert config.runtime.http.port == 1002
    assert str(config.origins["runtime.http.port"]) == "DYNADUCK_HTTP__PORT"
    config = loaded(path)
    assert config.runtime.http.port == 1001
    assert str(config.origins["runtime.http.port"]) == "dynaduck.yaml:7"
    config = loaded()
    assert config.runtime.http.port == 8090
    assert config.origins["runtime.http.port"].source is Source.DEFAULT


def test_for_one_dataset_the_narrower_word_of_a_source_wins(tmp_path: Path) -> None:
    """Within a source the dataset's own setting wins; a higher source's wide one wins over it."""
    path = written(tmp_path, FILE)
    env = REGION | {
        "DYNADUCK_SCAN_INTERVAL": "2s",
        "DYNADUCK_DATASETS__MY_TABLE_V2__SCAN_INTERVAL": "3s",
    }
    orders, other = loaded(path, env).datasets
    assert (orders.scan_interval_s, other.scan_interval_s) == (2.0, 3.0)
    orders, other = loaded(path, env, {"scan-interval": "4s"}).datasets
    assert (orders.scan_interval_s, other.scan_interval_s) == (4.0, 4.0)


@pytest.mark.parametrize(
    "name",
    [
        "runtime.http.port",
        "--runtime.http.port",
        "runtime-http-port",
        "http.port",
        "http-port",
        "HTTP_PORT",
    ],
)
def test_a_flag_is_a_path_or_the_end_of_one(name: str) -> None:
    """Dots, dashes and underscores are one, and leading sections may be left out."""
    assert loaded(flags={name: "1234"}).runtime.http.port == 1234


@pytest.mark.parametrize(
    "variable", ["DYNADUCK_RUNTIME__HTTP__PORT", "DYNADUCK_HTTP__PORT", "DYNADUCK_HTTP_PORT"]
)
def test_a_variable_is_a_path_with_double_underscores(variable: str) -> None:
    """The prefix and the path; `__` is the dot."""
    assert loaded(env=REGION | {variable: "1234"}).runtime.http.port == 1234


@pytest.mark.parametrize(
    "name",
    [
        "datasets.orders.params.scan_interval",
        "datasets.orders.scan-interval",
        "datasets.ORDERS.scan_interval",
        "datasets.0.scan_interval",
    ],
)
def test_a_dataset_is_called_by_name_or_number(tmp_path: Path, name: str) -> None:
    """A flag reaches one dataset by its name in any case, or by its place in the file."""
    orders, other = loaded(written(tmp_path, FILE), flags={name: "7s"}).datasets
    assert (orders.scan_interval_s, other.scan_interval_s) == (7.0, 0.0)


def test_a_dataset_with_dots_in_its_name_is_called_by_it(tmp_path: Path) -> None:
    """The dots of a table's name are not taken for sections."""
    flags = {"datasets.my-table.v2.params.scan_interval": "7s"}
    orders, other = loaded(written(tmp_path, FILE), flags=flags).datasets
    assert (orders.scan_interval_s, other.scan_interval_s) == (1.0, 7.0)


def test_a_name_that_may_mean_two_settings_is_refused() -> None:
    """`--port` may be three things; the error lists their paths."""
    error = refused(flags={"port": "1"})
    for path in ("runtime.http.port", "runtime.flight.port", "runtime.quack.port"):
        assert path in error.message


@pytest.mark.parametrize(
    ("text", "unknown", "nearest"),
    [
        ("runtim: {}", "runtim (dynaduck.yaml:1)", "runtime"),
        ("runtime: {htp: {port: 1}}", "runtime.htp (", "runtime.http"),
        ("runtime: {http: {prot: 1}}", "runtime.http.prot (", "runtime.http.port"),
        (
            "datasets: [{from: dynamodb:abc, params: {scan_intervall: 1s}}]",
            "datasets[0].params.scan_intervall (",
            "datasets[0].params.scan_interval",
        ),
        (
            "datasets: [{from: dynamodb:abc, scan_interval: 1s}]",
            "datasets[0].scan_interval (",
            "datasets[0].params.scan_interval",
        ),
        (
            "datasets: [{from: dynamodb:abc, acceleration: {refresh_mod: full}}]",
            "datasets[0].acceleration.refresh_mod (",
            "datasets[0].acceleration.refresh_mode",
        ),
        ("http: {port: 1}", "http (", "runtime.http"),
    ],
)
def test_an_unknown_key_names_the_nearest(
    tmp_path: Path, text: str, unknown: str, nearest: str
) -> None:
    """A key that is not known is an error with its place and the nearest known key's full path."""
    error = refused(written(tmp_path, text))
    assert error.message.startswith(unknown)
    assert nearest in error.hint


@pytest.mark.parametrize(
    ("env", "flags", "unknown", "nearest"),
    [
        ({"DYNADUCK_HTP__PORT": "1"}, {}, "DYNADUCK_HTP__PORT", "DYNADUCK_HTTP_PORT"),
        ({}, {"scan-intervall": "1s"}, "--scan-intervall", "--scan-interval"),
        ({}, {"datasets.orders.scan-intervall": "1s"}, "--datasets.orders", "--scan-interval"),
    ],
)
def test_an_unknown_variable_or_flag_names_the_nearest(
    env: dict[str, str], flags: dict[str, object], unknown: str, nearest: str
) -> None:
    """A variable with our prefix, or a flag, that is not known is an error with the nearest one."""
    error = refused(env=REGION | env, flags=flags)
    assert unknown in error.message
    assert nearest in error.hint


def test_a_setting_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Two spellings of one setting in one source contradict each other, so neither wins."""
    text = "datasets: [{from: dynamodb:abc, params: {ready_lag: 3s, replication_ready_lag: 4s}}]"
    assert "sets again what" in refused(written(tmp_path, text)).message
    env = REGION | {"DYNADUCK_HTTP__PORT": "1", "DYNADUCK_RUNTIME__HTTP__PORT": "2"}
    assert "sets again what" in refused(env=env).message


def test_a_missing_value_is_the_default(tmp_path: Path) -> None:
    """`key:` without a value, an empty section and an empty variable say nothing."""
    text = "datasets: [{from: dynamodb:abc, name: , params: }]\nruntime: {http: , tenant: }"
    config = loaded(written(tmp_path, text), REGION | {"DYNADUCK_HTTP__PORT": " "})
    assert config.datasets[0].name == "abc"
    assert config.runtime.tenant == "default"
    assert config.runtime.http.port == 8090


def test_variables_that_kubernetes_sets_are_no_settings() -> None:
    """A Service called dynaduck puts its own DYNADUCK_ variables into every pod."""
    config = loaded(
        env=REGION
        | {
            "DYNADUCK_PORT": "tcp://10.0.0.1:8090",
            "DYNADUCK_SERVICE_HOST": "10.0.0.1",
            "DYNADUCK_SERVICE_PORT": "8090",
            "DYNADUCK_SERVICE_PORT_HTTP": "8090",
            "DYNADUCK_PORT_8090_TCP": "tcp://10.0.0.1:8090",
            "DYNADUCK_PORT_8090_TCP_ADDR": "10.0.0.1",
        }
    )
    assert config.runtime.http.port == 8090
    assert "may mean" in refused(env=REGION | {"DYNADUCK_PORT": "9000"}).message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets: [", "dynaduck.yaml:1:12 is not YAML"),
        ("datasets:\n\t- from: x", "dynaduck.yaml:2:1 is not YAML"),
        ("a: 1\n---\nb: 2", "is not YAML"),
        ("- a\n- b", "holds no settings by name"),
        ("datasets: {from: x}", "datasets (dynaduck.yaml:1) is no list"),
        ("datasets: [orders]", "datasets[0] (dynaduck.yaml:1) is no dataset"),
        ("runtime: [1]", "runtime (dynaduck.yaml:1) is no value, it holds settings"),
        ("runtime: {http: 8090}", "runtime.http (dynaduck.yaml:1) is no value, it holds settings"),
        ("runtime: {tenant: a, tenant: b}", "tenant is there a second time"),
        ("runtime: {[1, 2]: b}", "a key is not a text"),
        ("runtime: &a {http: *a}", "contains itself"),
        ("runtime: {tenant: !!python/name:os.system x}", "dynaduck.yaml:1:19 is not YAML"),
    ],
)
def test_a_file_that_is_not_well_formed_says_where(tmp_path: Path, text: str, message: str) -> None:
    """Syntax, shape, repetition and recursion are errors with file and line."""
    assert message in refused(written(tmp_path, text)).message


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    """A named file must exist and be UTF-8."""
    assert "There is no configuration file" in refused(tmp_path / "none.yaml").message
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in refused(tmp_path / "binary.yaml").message


def test_anchors_and_merges_work(tmp_path: Path) -> None:
    """YAML's own means against repetition: an alias, and a merge whose keys are overridden."""
    text = """
        datasets:
          - from: dynamodb:abc
            params: &common {scan_interval: 1s, unnest_depth: 1}
          - from: dynamodb:def
            params: {<<: *common, unnest_depth: 2}
    """
    first, second = loaded(written(tmp_path, text)).datasets
    assert (first.scan_interval_s, first.unnest_depth) == (1.0, 1)
    assert (second.scan_interval_s, second.unnest_depth) == (1.0, 2)


def test_the_file_is_the_named_one_or_a_usual_one(tmp_path: Path) -> None:
    """-c wins over DYNADUCK_CONFIG, that over dynaduck.yaml, that over spicepod.yaml."""
    assert find_file(None, {}, tmp_path) is None
    (tmp_path / "spicepod.yaml").touch()
    assert find_file(None, {}, tmp_path) == tmp_path / "spicepod.yaml"
    (tmp_path / "dynaduck.yaml").touch()
    assert find_file(None, {}, tmp_path) == tmp_path / "dynaduck.yaml"
    assert find_file(None, {"DYNADUCK_CONFIG": "x.yaml"}, tmp_path) == Path("x.yaml")
    assert find_file(Path("y.yaml"), {"DYNADUCK_CONFIG": "x.yaml"}, tmp_path) == Path("y.yaml")


def test_flags_of_a_command_line() -> None:
    """A flag takes its value after a blank or =, is true without one, and repeats into a list."""
    arguments = ["--http.port", "1", "--tenant=a=b", "--flight.enabled", "--table", "x"]
    arguments += ["--table", "y", "--quack.enabled"]
    assert parse_flags(arguments) == {
        "http.port": "1",
        "tenant": "a=b",
        "flight.enabled": True,
        "table": ["x", "y"],
        "quack.enabled": True,
    }
    for stray in (["orders"], ["-x", "1"], ["--tenant", "a", "b"], ["--"]):
        with pytest.raises(ConfigError, match="is not a flag"):
            parse_flags(stray)


def test_without_any_dataset_the_error_says_how_to_give_one() -> None:
    """Nothing to do is a wrong configuration, unless the command needs no dataset."""
    with pytest.raises(ConfigError, match="There is no dataset") as caught:
        load(None, REGION, {})
    assert "--table NAME" in caught.value.hint
    assert load(None, {}, {}, datasets_wanted=False).datasets == ()
