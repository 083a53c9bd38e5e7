"""The dict that most seeds stand on does what the real dataset does, call by call.

Both get the same random calls; what they answer, what is stored and what is served is compared
after each.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelerator.batch import Batch
from accelerator.dataset import Dataset
from accelerator.errors import ScanTicketExpired, UnknownShard
from accelerator.outcome import Applied, SnapshotState
from accelerator.spec import DatasetSpec
from checkpoints.positions import Gap, Position, ShardCheckpoint, ShardState, SnapshotSegment
from tests.dataset_builder import (
    PK,
    changes,
    delete,
    identity,
    item,
    put,
    scan_row,
    sequence,
    table,
)
from tests.doubles import FakeClock
from tests.simulation.copies import Copy, DuckDBCopy, MemoryCopy

KEYS = [f"k{number}" for number in range(8)]
SHARDS = ("shard-1", "shard-2")
STEPS = 40


class Pair:
    """A real dataset and a dict, called alike."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self.rng = rng
        self.clock = FakeClock()
        self.copies: tuple[Copy, Copy] = (DuckDBCopy(directory), MemoryCopy())
        self.margin_s = rng.choice((0.0, 5.0))
        self.number = 0
        self.tickets: list[int] = []
        self.open()

    def open(self) -> None:
        spec = DatasetSpec("orders")
        self.datasets = tuple(c.open(spec, self.clock, self.margin_s) for c in self.copies)
        self.tickets = []
        self.both("load")

    def both(self, call: str, *values: Any, **named: Any) -> Any:
        """What both answer, which has to be the same."""
        answers = [_answer(dataset, call, values, named) for dataset in self.datasets]
        real, memory = answers
        if isinstance(real, Applied) and isinstance(memory, Applied):
            real, memory = _comparable(real), _comparable(memory)
        assert memory == real, (call, named)
        return answers[0]

    def compare(self) -> None:
        real, memory = self.copies
        assert memory.stored() == real.stored()
        assert memory.items() == real.items()

    def begin(self, *, shadow: bool, shared: bool) -> None:
        stored = self.copies[0].stored()
        positions = stored.positions_generation if shared and stored is not None else None
        self.both(
            "begin",
            identity(PK),
            origin_ms=1_700_000_000_000,
            shards=[_row(shard) for shard in SHARDS],
            segments=[SnapshotSegment(0, 1)],
            shadow=shadow,
            positions_generation=positions,
            snapshot=self.rng.random() < 0.8,
        )

    def group(self) -> list[Batch]:
        return [self.batch() for _ in range(self.rng.randint(1, 3))]

    def batch(self) -> Batch:
        stored = self.copies[0].stored()
        assert stored is not None
        generation = stored.positions_generation + (self.rng.random() < 0.05)
        if self.tickets and self.rng.random() < 0.4:
            page = [item(key, v=self.value()) for key in self.rng.sample(KEYS, 3)]
            progress = SnapshotSegment(0, 1, '{"pk":{"S":"k3"}}', 3, self.rng.random() < 0.2)
            return Batch(
                table([scan_row(image) for image in page]),
                generation,
                segments=(progress,),
                scan_ticket=self.rng.choice(self.tickets),
                fills=stored.shadow_generation or stored.generation,
            )
        shard = self.rng.choice(SHARDS)
        rows = [self.change(shard) for _ in range(self.rng.randint(0, 3))]
        after = replace(_row(shard), position=Position.after(sequence(self.number)))
        gap = Gap(shard, None, "trimmed", 1000 + self.number)
        return replace(
            changes(rows, generation=generation, shards=[after] if rows else ()),
            gaps=(gap,) if self.rng.random() < 0.05 else (),
        )

    def change(self, shard: str) -> dict[str, Any]:
        if self.rng.random() < 0.1:
            self.number -= self.rng.randint(0, 2)  # a record that was read before
        self.number += 1
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.3:
            return delete(self.number, key, shard)
        return put(self.number, key, shard, v=self.value())

    def value(self) -> dict[str, str]:
        return self.rng.choice([{"N": str(self.rng.randint(0, 99))}, {"S": "text"}])


def _row(shard: str) -> ShardCheckpoint:
    return ShardCheckpoint(shard, None, ShardState.READING, Position.trim_horizon())


def _answer(dataset: Dataset, call: str, values: Sequence[Any], named: dict[str, Any]) -> Any:
    try:
        return getattr(dataset, call)(*values, **named)
    except (UnknownShard, ScanTicketExpired) as error:
        return type(error)


def _comparable(applied: Applied) -> Applied:
    """Without what a dict does not have: time, columns."""
    return replace(applied, duration_s=0.0, columns_added=(), columns_widened=())


def _step(pair: Pair) -> None:
    rng = pair.rng
    stored = pair.copies[0].stored()
    assert stored is not None
    pair.clock.advance(rng.uniform(0.0, 3.0))
    chosen = rng.random()
    if chosen < 0.6:
        pair.both("apply", pair.group())
    elif chosen < 0.72:
        pair.tickets.append(pair.both("open_scan_ticket"))
    elif chosen < 0.78 and pair.tickets:
        pair.both("close_scan_ticket", pair.tickets.pop(0))
    elif chosen < 0.82:
        state = rng.choice(list(SnapshotState))
        pair.both("mark_snapshot", state, scan_ended_at_ms=rng.choice((None, 5000)))
    elif chosen < 0.86 and not stored.is_frozen:
        pair.begin(shadow=True, shared=rng.random() < 0.6)
    elif chosen < 0.89 and stored.shadow_generation is not None:
        pair.both("swap", resolve_gaps=rng.choice((None, "reloaded")))
    elif chosen < 0.91:
        pair.both("drop_shadow")
    elif chosen < 0.93:
        pair.both("resolve_gaps", "accepted")
    elif chosen < 0.94:
        pair.both("reposition", identity(PK), origin_ms=2000)
    elif chosen < 0.95:
        pair.both("forget_shards", [rng.choice(SHARDS)])
    elif chosen < 0.96:
        pair.begin(shadow=False, shared=False)
    elif chosen < 0.98:
        for copy in pair.copies:
            copy.reopen()
        pair.both("load")
    else:
        for copy in pair.copies:
            copy.crash()
        pair.open()


@pytest.mark.parametrize("seed", range(3))
def test_both_answer_store_and_serve_the_same(tmp_path: Path, seed: int) -> None:
    """Groups of changes and pages, shadows, swaps, gaps, replays and restarts, in any order."""
    pair = Pair(tmp_path, random.Random(seed))
    try:
        pair.begin(shadow=False, shared=False)
        for _ in range(STEPS):
            _step(pair)
            pair.compare()
    finally:
        for copy in pair.copies:
            copy.close()
