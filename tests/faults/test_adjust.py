"""Settings that change under way mend what they are for, without a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connector.config import InvalidCheckpointBehavior, Poison
from emulator import Emulator
from tests.faults.served import HOUR_S, Served, create_table, delete, put, served

pytestmark = pytest.mark.uses_duckdb


def adjust(running: Served, **attributes: Any) -> None:
    """The one dataset by other values."""
    config = running.service.config
    (dataset,) = config.datasets
    running.service.adjust(replace(config, datasets=(replace(dataset, **attributes),)))


def test_restart_that_is_said_while_halted_loads_the_table_anew(tmp_path: Path) -> None:
    """The remedy of a lost position can be set in a running service: it decides again."""
    with Emulator(shards=2) as aws:
        create_table(aws)
        put(aws, "a", "b", v=1)
        with served(tmp_path / "data", aws) as running:
            running.wait_ready().stop()
            delete(aws, "a")
            aws.control.advance(25 * HOUR_S)
            running.start().wait_state("Error")
            adjust(running, poison=Poison.HALT)
            adjust(running, invalid_checkpoint_behavior=InvalidCheckpointBehavior.RESTART)
            running.wait_ready().wait_rows({"b": 1})
            assert running.reinitializations == 1
            assert running.kept().dataset.spec.poison.value == "halt"
