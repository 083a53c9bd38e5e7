"""A publisher over a data file, on a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from accelerator.copies import CopyFormat
from accelerator.database import Database
from connector.publish.places import FilePlace, Place
from connector.publish.publisher import Order, Publisher, Subject
from metrics import catalog
from metrics.recorder import Recorder
from metrics.task_history import TaskHistory
from tests.doubles import FakeClock
from tests.query_builder import data_file

__all__ = ["Bench", "FilePlace", "data_file"]


@dataclass
class Bench:
    """A publisher on a clock that is moved by hand. `commits` is what the dataset has seen."""

    database: Database
    place: Place
    spill: Path
    every_s: float = 60.0
    commits: int = 0
    generation: int = 3
    errors: list[Exception | None] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)
    recorder: Recorder = field(default_factory=Recorder)

    def __post_init__(self) -> None:
        self.history = TaskHistory(lambda: 0, self.clock.monotonic_s)
        self.publisher = Publisher(
            Order("orders", self.every_s, CopyFormat.DUCKDB, "there", self.spill),
            self.place,
            Subject(
                readers=self.database,
                changes=lambda: (self.commits, self.generation),
                live=dict,
                now_ms=lambda: 1,
                fail=self.errors.append,
                reopen=lambda: None,
            ),
            self.recorder.dataset("orders"),
            self.history,
            self.clock,
            version="1",
            draw=lambda: 1.0,
            wall_s=lambda: 1_700_000_000.0,
        )

    def step(self) -> float:
        """Seconds from now to the next call."""
        return self.publisher.step(self.clock.now_s) - self.clock.now_s

    def counted(self, outcome: str) -> float | None:
        return self.recorder.value(catalog.PUBLISH_TOTAL, name="orders", outcome=outcome)
