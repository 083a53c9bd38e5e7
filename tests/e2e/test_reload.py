"""`kill -HUP`: the running command takes what may change, and says what it does not take."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator import Emulator
from tests.e2e.harness import Service, running, wait_until
from tests.e2e.test_service import create

pytestmark = pytest.mark.uses_duckdb


def reload(service: Service, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Writes the file anew, asks for it by SIGHUP, and gives what the status then says."""
    before = service.get("/v1/status")[1]["configuration"]["reloads"]
    config = json.loads(service.config_path.read_text())
    change(config)
    service.config_path.write_text(json.dumps(config))
    assert service.process is not None
    service.process.send_signal(signal.SIGHUP)

    def is_done() -> bool:
        status = service.get("/v1/status")[1]
        return bool(status) and status["configuration"]["reloads"] > before

    wait_until(is_done, what="the reload")
    told: dict[str, Any] = service.get("/v1/status")[1]
    return told


def test_sighup_takes_what_may_change_and_names_the_rest(tmp_path: Path) -> None:
    """Safe settings hold at once, others are named, and a wrong file leaves all as it was."""
    with Emulator(shards=2) as aws:
        create(aws, items=20)
        dataset = {"from": "dynamodb:orders", "params": {"dynamodb_aws_region": aws.region}}
        command = Service(tmp_path / "data", aws.url, datasets=[dataset])
        with running(command) as service:
            service.wait_ready()

            def change(config: dict[str, Any]) -> None:
                config["datasets"][0]["params"]["dynamodb_replication_ready_lag"] = "7s"
                config["runtime"]["query"] = {"max_rows": 3}
                config["runtime"]["memory_limit"] = "2GB"

            told = reload(service, change)
            assert told["configuration"]["error"] is None
            assert told["configuration"]["needs_restart"] == ["runtime.memory_limit"]
            assert told["datasets"][0]["ready_lag_ms"] == 7_000
            status, _, body = service.request("POST", "/v1/sql", "FROM orders")
            assert status != 200, body
            assert service.sql("FROM orders LIMIT 3")

            told = reload(service, lambda config: config["runtime"].update(log_levle="debug"))
            assert "log_level" in told["configuration"]["error"]
            assert told["configuration"]["needs_restart"] == ["runtime.memory_limit"]
            assert 'dynaduck_config_reloads_total{outcome="refused"} 1.0' in service.metrics()
            assert "a changed setting needs a restart" in service.log()
            assert service.is_ready()
            assert service.stop() == 0
