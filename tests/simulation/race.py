"""A service under the hand of a directed test: who moves next is said line by line.

The table, its writers and the real DuckDB file are there; nothing runs by itself. `while_held` puts
a move between the reading of a Scan page and its arrival: the page is held while the stream passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkpoints.positions import KeyAttribute
from connector.config import Dataset as Settings
from connector.replication import Replication
from emulator import Front, TableSettings
from tests.simulation.copies import DuckDBCopy
from tests.simulation.front_source import REGION, FrontSource
from tests.simulation.promises import Promises
from tests.simulation.service import SimulatedService
from tests.simulation.truth import TABLE, Truth, WatchedWorld
from tests.simulation.virtual_time import VirtualTime

Move = Callable[[], object]


def settings_of(**changes: Any) -> Settings:
    """One segment, so that pages come in order."""
    given = {"scan_segments": 1, **changes}
    return replace(Settings(name=TABLE, table=TABLE, region=REGION), **given)


class Race:
    """`keeps_all`: every item is wanted, so that the promises can be held against the table.

    `put` and `delete` write; `read`, `scan`, `apply`, `control` and `is_ready` let one loop step.
    """

    def __init__(
        self,
        directory: Path,
        settings: Settings | None = None,
        *,
        keeps_all: bool = True,
        **table: Any,
    ) -> None:
        self.keeps_all = keeps_all
        self.time = VirtualTime()
        self.truth = Truth((KeyAttribute("pk", "S", "HASH"),))
        self.world = WatchedWorld(
            clock=self.time.aws, seed=1, settings=TableSettings(**{"shards": 1, **table})
        )
        self.world.truth = self.truth
        self.front = Front(self.world, REGION)
        self.settings = settings or settings_of()
        self.copy = DuckDBCopy(directory)
        self.promises = Promises(self.truth, self.copy, self.time)
        self.page_items = 100
        self._held: list[Move] = []
        self._table()
        self.start()

    def start(self) -> None:
        """A process begins."""
        self.source = FrontSource(
            self.front,
            TABLE,
            self.time,
            on_the_way=self._on_the_way,
            page_items=self.page_items,
        )
        self.service = SimulatedService(
            self.settings,
            self.source,
            self.copy,
            self.time,
            random.Random(0),
            strike=lambda _call: None,
            written=self._written,
            judged=self._judged,
        )
        self.replication = self.service.replication

    def kill(self) -> None:
        """Only file and log are left."""
        self.copy.crash()
        self.start()

    def close(self) -> None:
        self.copy.close()
        self.front.close()

    # The table

    def put(self, key: str, **attributes: Any) -> int:
        """The version that was written."""
        version = self.truth.next_version()
        item = {"pk": {"S": key}, "v": {"N": str(version)}, **attributes}
        self.world.put(TABLE, item, REGION)
        return version

    def delete(self, key: str) -> None:
        self.world.delete(TABLE, {"pk": {"S": key}}, REGION)

    def recreate(self) -> None:
        """Another table under the name."""
        self.front.call("DeleteTable", {"TableName": TABLE}, caller="owner")
        self.truth.emptied(self.time.aws_ms())
        self._table()

    def _table(self) -> None:
        table = self.world.create_table(TABLE, "pk:S", region=REGION)
        self.truth.watch(self.world, table)

    # The service

    def while_held(self, *moves: Move) -> None:
        """Made once, when the next page or item has been read and has not arrived."""
        self._held = list(moves)

    def pass_s(self, seconds: float) -> None:
        self.time.advance(seconds)

    def control(self, times: int = 8) -> None:
        for _ in range(times):
            self.replication.control(self.time.monotonic_s())
            self.pass_s(0.6)

    def follow(self) -> None:
        """Until the shards have committed positions: a scan may begin."""
        for _ in range(20):
            self.control(1)
            self.apply()
            course = self.replication.course
            if course is not None and course.reader.is_positioned:
                return
        raise AssertionError("no positions")

    def read(self, times: int = 20) -> None:
        """Pollers read what is due, and leave it in the queue."""
        for _ in range(times):
            self.replication.poll(self.time.monotonic_s())
            self.pass_s(0.05)

    def scan(self, times: int = 20) -> None:
        """Scanners read what is left, and leave it in the queue."""
        for _ in range(times):
            self.replication.scan(self.time.monotonic_s())

    def apply(self, times: int = 20) -> None:
        for _ in range(times):
            self.service.applier.step(self.time.monotonic_s())

    def stream_passes(self) -> None:
        """Everything that was written so far is read and applied."""
        self.read()
        self.apply()

    def is_ready(self) -> bool:
        self.service._judge(self.time.monotonic_s())
        return self.replication.health.is_ready

    def settle(self, *, generation: int | None = None) -> None:
        """All loops in turn, until the copy is Ready, and serves this generation of rows."""
        for _ in range(400):
            self.control(1)
            self.read(2)
            self.scan(2)
            self.apply(2)
            stored = self.copy.stored()
            is_served = stored is not None and generation in (None, stored.generation)
            if self.is_ready() and is_served:
                return
        raise AssertionError(f"not Ready: {self.replication.health}")

    def rows(self) -> dict[str, int]:
        """Version by key; two rows of one key are an error."""
        return self.copy.versions()

    def _written(self, call: str, named: dict[str, object]) -> None:
        if self.keeps_all:
            self.promises.written(call, named)

    def _judged(self, replication: Replication) -> None:
        if self.keeps_all:
            self.promises.judged(replication.health, replication._around.aws_time.now_ms())

    def _on_the_way(self, operation: str, is_answer: bool) -> None:
        # The first contact scans, too: a share of the table, before anything is followed.
        is_followed = self.replication.course is not None
        if operation in ("Scan", "GetItem") and is_answer and is_followed:
            moves, self._held = self._held, []
            for move in moves:
                move()
