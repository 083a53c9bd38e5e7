"""Which settings hold at once when a configuration is read again, and that a wrong one is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.config import Config
from connector.config.settings import Setting, dataset_settings, runtime_settings
from connector.errors import ConfigError
from connector.reload import ABSENT, changes, taken_over
from connector.surface.reloading import Reloading
from metrics import catalog
from metrics.recorder import Recorder
from tests.unit.config_builder import loaded, written

FIRST = """
datasets:
  - from: dynamodb:orders
    params: {scan_interval: 0s}
  - from: dynamodb:users
runtime:
  log_level: info
  http: {port: 8090, token: one-secret}
"""
OTHERS: dict[str, str] = {
    "params.scan_interval": "3s",
    "params.scan_segments": "7",
    "params.scan_max_rcu": "11",
    "params.dynamodb_replication_ready_lag": "9s",
    "params.dynamodb_replication_invalid_checkpoint_behavior": "restart",
    "acceleration.refresh_check_interval": "1h",
    "poison": "halt",
    "history.retention": "2d",
    "log_format": "json",
    "log_level": "error",
    "query.max_concurrent": "9",
    "query.timeout": "1s",
    "query.max_rows": "5",
}


def reloadable(settings: tuple[Setting, ...]) -> list[str]:
    return [setting.key for setting in settings if setting.reloads]


def test_each_reloadable_setting_is_tried_below() -> None:
    """What the catalog calls reloadable has a case in these tests."""
    assert {*reloadable(dataset_settings()), *reloadable(runtime_settings())} == OTHERS.keys()


@pytest.mark.parametrize("key", OTHERS)
def test_a_reloadable_setting_is_taken_over(key: str) -> None:
    """It is found, said to hold, and then it is what the new configuration says."""
    before, after = loaded(), loaded(flags={key: OTHERS[key]})
    (change,) = changes(before, after)
    assert change.holds
    assert change.path.endswith(key)
    assert change.before != change.after
    held = taken_over(before, after)
    assert changes(held, after) == ()
    assert changes(before, held) == (change,)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("http.port", "9999"),
        ("data_dir", "/elsewhere"),
        ("memory_limit", "2GB"),
        ("unnest_depth", "2"),
        ("where", "total > 3"),
        ("history.enabled", "true"),
        ("refresh_mode", "full"),
        ("endpoint_url", "http://127.0.0.1:1"),
    ],
)
def test_what_needs_a_restart_is_named_and_left_alone(flag: str, value: str) -> None:
    """It goes on as it was, and is named again at each later reload."""
    before, after = loaded(), loaded(flags={flag: value})
    found = changes(before, after)
    assert found
    assert not any(change.holds for change in found)
    assert taken_over(before, after) == before


def test_datasets_that_come_go_or_move_need_a_restart(tmp_path: Path) -> None:
    """A dataset is its name; another table under it is another dataset."""
    before = loaded(written(tmp_path, FIRST))
    moved = FIRST.replace("dynamodb:users", "dynamodb:people\n    name: users").replace(
        "dynamodb:orders", "dynamodb:bills"
    )
    found = changes(before, loaded(written(tmp_path, moved)))
    assert {(c.path, c.before, c.after, c.holds) for c in found} == {
        ("datasets.orders", "orders", ABSENT, False),
        ("datasets.bills", ABSENT, "bills", False),
        ("datasets.users.from", "users", "people", False),
    }


def test_a_secret_is_named_and_not_shown(tmp_path: Path) -> None:
    """A new token needs a restart; neither the old nor the new one is in what is said."""
    before = loaded(written(tmp_path, FIRST))
    (change,) = changes(before, loaded(written(tmp_path, FIRST.replace("one-sec", "other-sec"))))
    assert change.path == "runtime.http.token"
    assert "secret" not in change.before + change.after


class Running:
    """A file, and what became of it in a service that runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.recorder = Recorder()
        self.applied: list[Config] = []
        self.path = written(directory, FIRST)
        self.reloading = Reloading(
            loaded(self.path),
            lambda: loaded(self.path),
            self.check,
            self.applied.append,
            recorder=self.recorder,
            now_ms=lambda: 1_000,
        )

    def check(self, config: Config) -> None:
        if config.runtime.http.port == 13:
            raise ConfigError("Port 13 brings bad luck.", hint="Take another.")

    def reload(self, change: Callable[[str], str]) -> None:
        written(self.directory, change(self.path.read_text()))
        self.reloading.ask()
        self.reloading.step()

    def gauge(self, instrument: catalog.Instrument, **labels: str) -> float | None:
        return self.recorder.value(instrument, **labels)


def test_what_may_change_is_applied_once(tmp_path: Path) -> None:
    """One call with the whole configuration; a step that nobody asked for does nothing."""
    running = Running(tmp_path)
    running.reloading.step()
    assert running.applied == []
    running.reload(lambda text: text.replace("info", "debug"))
    running.reloading.step()
    (applied,) = running.applied
    assert applied.runtime.log_level.value == "debug"
    status = running.reloading.status
    assert (status.reloads, status.error, status.needs_restart) == (1, None, ())
    assert running.gauge(catalog.CONFIG_RELOADS, outcome="ok") == 1
    assert running.gauge(catalog.CONFIG_GOOD) == 1


def test_one_wrong_setting_changes_nothing(tmp_path: Path) -> None:
    """Not even the right ones beside it; status and metrics say why until the file is right."""
    running = Running(tmp_path)
    running.reload(lambda text: text.replace("info", "debug").replace("scan_inter", "scan_intre"))
    assert running.applied == []
    said = running.reloading.status.error
    assert said is not None
    assert "scan_intreval" in said
    assert "scan_interval" in said
    assert running.gauge(catalog.CONFIG_GOOD) == 0
    assert running.gauge(catalog.CONFIG_RELOADS, outcome="refused") == 1
    running.reload(lambda text: text.replace("scan_intre", "scan_inter"))
    assert len(running.applied) == 1
    assert running.reloading.status.error is None
    assert running.gauge(catalog.CONFIG_GOOD) == 1


def test_what_only_this_service_cannot_use_is_refused_too(tmp_path: Path) -> None:
    """The checks of a start hold for a reload."""
    running = Running(tmp_path)
    running.reload(lambda text: text.replace("8090", "13").replace("info", "debug"))
    assert running.applied == []
    assert running.reloading.status.error == "Port 13 brings bad luck. Take another."


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    """It is no reason to end, nor to forget what holds."""
    running = Running(tmp_path)
    running.path.unlink()
    running.reloading.ask()
    running.reloading.step()
    assert running.applied == []
    assert running.reloading.status.error is not None


def test_what_waits_for_a_restart_is_counted_and_named(tmp_path: Path) -> None:
    """As long as the file says it, also after a reload that changes something else."""
    running = Running(tmp_path)
    running.reload(lambda text: text.replace("8090", "8091"))
    running.reload(lambda text: text.replace("info", "debug"))
    assert running.reloading.status.needs_restart == ("runtime.http.port",)
    assert running.gauge(catalog.CONFIG_WAITING) == 1
    assert running.applied[-1].runtime.http.port == 8090
    running.reload(lambda text: text.replace("8091", "8090"))
    assert not running.reloading.status.needs_restart
