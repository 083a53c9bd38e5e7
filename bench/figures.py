"""What a run of the benchmarks found: figures with their targets, as a table and as JSON.

Owns the targets. Knows nothing of how a figure was measured.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """`at_least` or at most: `reach` is asked for, `stretch` is hoped for."""

    reach: float
    stretch: float
    at_least: bool = True

    def holds(self, value: float) -> str:
        sign = 1 if self.at_least else -1
        if sign * value >= sign * self.stretch:
            return "stretch"
        return "reach" if sign * value >= sign * self.reach else "miss"

    def text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.reach:g} / {self.stretch:g}"


def _at_most(reach: float, stretch: float) -> Target:
    return Target(reach, stretch, at_least=False)


# By name, for tables of about 1M rows and of 10M. Where there is one, it holds for both.
TARGETS: Final[dict[str, tuple[Target, ...]]] = {
    "whole path, 16 shards, against plain": (Target(50, 80), Target(120, 200)),
    "whole path, 1 shard, against plain": (Target(22, 35), Target(45, 80)),
    "one page a commit, in memory, against plain": (Target(12, 20), Target(16, 40)),
    "whole path, 16 shards, against its floor": (Target(0.28, 0.5),),
    "in memory, against append alone": (Target(0.33, 0.5), Target(0.28, 0.45)),
    "snapshot, 8 segments, against boto3 Scan": (Target(25, 40),),
    "snapshot rate, last tenth against first": (Target(0.9, 1.0),),
    "write to visible, p50": (_at_most(60, 30), _at_most(120, 60)),
    "write to visible, p99": (_at_most(250, 120), _at_most(400, 200)),
    "start to Ready with a checkpoint": (_at_most(3, 1),),
    "resident memory, 16 shards flat out": (_at_most(1.5, 1.0),),
    "idle, 16 shards: CPU of one core": (_at_most(3, 1),),
    "idle, 16 shards: commits per minute": (_at_most(2, 1),),
    "idle, 16 shards: GetRecords per shard and minute": (_at_most(60, 30),),
    "file size after ten rewrites, against a fresh load": (_at_most(2.2, 1.3),),
    "query p95 under 50,000 records/s, against idle": (_at_most(3, 2),),
    "idle, 1,000 shards: CPU of one core": (_at_most(50, 35),),
    "idle, 1,000 shards: threads against 16": (_at_most(1, 1),),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One result: the median of its rounds. `rows` is the size of the table it was measured on."""

    name: str
    rounds: tuple[float, ...]
    unit: str
    rows: int

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def target(self) -> Target | None:
        targets = TARGETS.get(self.name)
        if targets is None:
            return None
        return targets[-1] if self.rows >= 5_000_000 else targets[0]

    @property
    def verdict(self) -> str:
        return "" if self.target is None else self.target.holds(self.value)

    def as_json(self) -> dict[str, Any]:
        target = self.target
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "rows": self.rows,
            "rounds": list(self.rounds),
            "target": None if target is None else target.text(),
            "pass": None if target is None else self.verdict != "miss",
            "verdict": self.verdict,
        }


@dataclass(slots=True)
class Results:
    """Figures as they come, and the circumstances."""

    figures: list[Figure] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    loads: list[float] = field(default_factory=list)

    def add(self, name: str, rounds: float | Sequence[float], unit: str, *, rows: int) -> Figure:
        values = (rounds,) if isinstance(rounds, int | float) else tuple(rounds)
        figure = Figure(name, values, unit, rows)
        self.figures.append(figure)
        self.loads.append(os.getloadavg()[0])
        Console(stderr=True).print(f"{_size(rows):>6} {name}: {_text(figure.value)} {unit}")
        return figure

    def rate(self, name: str, rows: int) -> float:
        """The value of a figure that was measured before."""
        return next(f.value for f in self.figures if f.name == name and f.rows == rows)

    @property
    def passes(self) -> bool:
        return all(figure.verdict != "miss" for figure in self.figures)

    def table(self) -> Table:
        table = Table("figure", "rows", "value", "spread", "target", "", title=self.circumstances())
        for figure in self.figures:
            spread = ""
            if len(figure.rounds) > 1:
                spread = f"{_text(min(figure.rounds))} to {_text(max(figure.rounds))}"
            target = figure.target
            table.add_row(
                figure.name,
                _size(figure.rows),
                f"{_text(figure.value)} {figure.unit}",
                spread,
                "" if target is None else target.text(),
                figure.verdict,
            )
        return table

    def circumstances(self) -> str:
        loads = f"load average {min(self.loads):.1f} to {max(self.loads):.1f}" if self.loads else ""
        return (
            f"{os.cpu_count()} cores, {loads}, Python {platform.python_version()}, "
            f"duckdb {version('duckdb')}"
        )

    def write(self, path: Path) -> None:
        document = {
            "circumstances": self.circumstances(),
            "figures": [figure.as_json() for figure in self.figures],
            "samples": self.samples,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _size(rows: int) -> str:
    return f"{rows // 1_000_000}M" if rows >= 1_000_000 else f"{rows // 1000}k"
