"""A dataset in a dict, for simulations that have no time for DuckDB.

It promises what `accelerator.dataset.Dataset` promises of generations, positions and scan rows, and
is held to that by a conformance test. It has no types, no columns and no poison. What is committed
lives on a `Disk`, which outlives the dataset as a file outlives its process.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from accelerator import failpoints, keys
from accelerator.batch import Batch, empty_changes
from accelerator.catalog import Generation
from accelerator.errors import AcceleratorError
from accelerator.outcome import Applied, SnapshotState, StoredDataset
from accelerator.progress import Progress, StagedProgress
from accelerator.spec import DatasetSpec
from accelerator.touched import KEYS, TouchedKeys
from checkpoints.positions import (
    Gap,
    KeyAttribute,
    ShardCheckpoint,
    SnapshotSegment,
    SourceIdentity,
)

Rows = dict[str, str]
"""Canonical key to the item's DynamoDB JSON."""


@dataclass(slots=True)
class Disk:
    """What is committed. Numbers are generations: of rows, segments; of positions, shards."""

    generations: dict[int, Generation] = field(default_factory=dict)
    rows: dict[int, Rows] = field(default_factory=dict)
    shards: dict[int, dict[str, ShardCheckpoint]] = field(default_factory=dict)
    segments: dict[int, dict[int, SnapshotSegment]] = field(default_factory=dict)
    gaps: list[tuple[int, Gap]] = field(default_factory=list)
    status: tuple[str, str | None] | None = None
    reopened: int = 0

    def of_role(self, role: str) -> Generation | None:
        return next((g for g in self.generations.values() if g.role == role), None)

    def live_rows(self) -> Rows:
        live = self.of_role("live")
        return {} if live is None else self.rows[live.generation]

    def drop(self, generation: int) -> None:
        del self.generations[generation], self.rows[generation]

    def forget(self, keep: Sequence[int]) -> None:
        for stored in (self.shards, self.segments):
            for number in [n for n in stored if n not in keep]:
                del stored[number]

    def take_over(self, new: Disk) -> None:
        """The commit: all of it or nothing."""
        for name in ("generations", "rows", "shards", "segments", "gaps", "status"):
            setattr(self, name, getattr(new, name))


class MemoryDataset:
    """The writer's calls of a Dataset. One thread."""

    def __init__(
        self,
        disk: Disk,
        spec: DatasetSpec,
        *,
        monotonic_s: Callable[[], float],
        scan_margin_s: float = 0.0,
    ) -> None:
        self.spec = spec
        self._disk = disk
        self._touched = TouchedKeys(monotonic_s, scan_margin_s)
        self._reopened = disk.reopened
        self._live: Generation | None = None
        self._shadow: Generation | None = None
        self._progress = Progress()

    # What is stored

    def load(self) -> StoredDataset | None:
        disk = self._disk
        if self._reopened != disk.reopened:
            self._reopened = disk.reopened
            self._touched.expire()
        self._live, self._shadow = disk.of_role("live"), disk.of_role("shadow")
        if self._live is None:
            self._progress = Progress()
            return None
        live, newest = self._live, self._newest()
        positions = newest.positions_generation
        shards = tuple(row for _, row in sorted(disk.shards.get(positions, {}).items()))
        segments = tuple(s for _, s in sorted(disk.segments.get(newest.generation, {}).items()))
        self._progress = Progress(shards, segments)
        status, reason = disk.status or ("Initializing", None)
        return StoredDataset(
            identity=newest.identity,
            generation=live.generation,
            positions_generation=positions,
            shards=shards,
            segments=segments,
            snapshot_state=newest.snapshot_state,
            snapshot_started_at_ms=newest.snapshot_started_at_ms,
            scan_ended_at_ms=newest.scan_ended_at_ms,
            origin_ms=newest.origin_ms,
            status=status,
            status_reason=reason,
            open_gaps=self._open_gaps(None),
            fingerprint=newest.fingerprint,
            shadow_generation=None if self._shadow is None else self._shadow.generation,
            is_frozen=live.is_frozen,
            live_snapshot_state=live.snapshot_state,
            live_started_at_ms=live.snapshot_started_at_ms,
            live_identity=live.identity,
            live_fingerprint=live.fingerprint,
            positions_gaps=self._open_gaps(positions),
        )

    def begin(
        self,
        identity: SourceIdentity,
        *,
        origin_ms: int | None,
        shards: Sequence[ShardCheckpoint],
        segments: Sequence[SnapshotSegment],
        shadow: bool,
        positions_generation: int | None,
        snapshot: bool,
        above: int = 0,
        gaps: Sequence[Gap] = (),
        fingerprint: str | None = None,
    ) -> int:
        number = max(self._next_number(), above + 1)
        generation = Generation(
            dataset=self.spec.name,
            generation=number,
            role="shadow" if shadow else "live",
            positions_generation=number if positions_generation is None else positions_generation,
            identity=identity,
            snapshot_state=(SnapshotState.RUNNING if snapshot else SnapshotState.NONE).value,
            origin_ms=origin_ms,
            snapshot_started_at_ms=origin_ms if snapshot else None,
            fingerprint=fingerprint or self.spec.fingerprint,
        )
        new = copy.copy(self._disk)
        new.generations, new.rows = dict(new.generations), dict(new.rows)
        new.shards, new.segments = dict(new.shards), dict(new.segments)
        replaced = [self._shadow] if shadow else [self._live, self._shadow]
        for old in replaced:
            if old is not None:
                new.drop(old.generation)
        new.generations[number], new.rows[number] = generation, {}
        if self._live is None:
            new.status = ("Initializing", None)
        live = self._live
        if positions_generation is None:
            new.shards[number] = {row.shard_id: row for row in shards}
            if shadow and live is not None:
                live = replace(live, is_frozen=True)
                new.generations[live.generation] = live
        new.segments[number] = {segment.segment: segment for segment in segments}
        new.gaps = [*new.gaps, *((number, gap) for gap in gaps)]
        kept = [generation] if not shadow or live is None else [generation, live]
        new.forget([n for g in kept for n in (g.generation, g.positions_generation)])
        self._disk.take_over(new)
        if shadow:
            self._live, self._shadow = live, generation
        else:
            self._live, self._shadow = generation, None
        own = shards if positions_generation is None else self._progress.shards.values()
        self._progress = Progress(own, segments)
        return number

    def reposition(self, identity: SourceIdentity, *, origin_ms: int) -> int:
        if self._shadow is not None:
            self.drop_shadow()
        new = replace(
            self._begun(),
            positions_generation=self._next_number(),
            identity=identity,
            origin_ms=origin_ms,
            snapshot_state=SnapshotState.NONE.value,
            is_frozen=False,
        )
        self._save(new)
        self._disk.forget([new.positions_generation])
        self._live = new
        self._progress = Progress()
        return new.positions_generation

    # Applying

    def apply(self, batches: Sequence[Batch]) -> Applied:
        applied = Applied(commit_number=self._touched.commit_number)
        newest = self._newest()
        mine = [
            batch
            for batch in batches
            if batch.generation == newest.positions_generation
            and batch.fills in (None, newest.generation)
        ]
        applied.foreign = len(batches) - len(mine)
        applied.nbytes = sum(batch.nbytes for batch in mine)
        progress = self._progress.stage()
        changes: dict[str, tuple[str, str | None]] = {}
        scans: list[tuple[int, dict[str, str]]] = []
        fills = any(batch.fills is not None for batch in mine)
        schema = newest.identity.key_schema
        for batch in mine:
            admitted = progress.admit(batch).to_pylist()
            if batch.scan_ticket is not None:
                if admitted:
                    rows = {_key(each["image"], schema): each["image"] for each in admitted}
                    scans.append((batch.scan_ticket, rows))
                    applied.scanned += len(admitted)
                continue
            applied.records += len(admitted)
            for each in admitted:
                changes[_key(each["keys"], schema)] = (each["op"], each["image"])
        applied.replayed = progress.replayed
        fresh = self._fresh(scans, changes, applied)
        gaps = [gap for batch in mine for gap in batch.gaps]
        failpoints.hit("after_plan")
        new = self._after(changes, fresh, newest if fills else self._begun())
        is_changed = changes or fresh or gaps
        if not (is_changed or progress.changed_shards() or progress.changed_segments()):
            return applied
        self._stage(new, progress, gaps)
        failpoints.hit("before_commit")
        self._disk.take_over(new)
        failpoints.hit("after_commit")
        progress.commit()
        touched = pa.table(
            {"h": [keys.hash_of(key) for key in changes], "k": list(changes)}, schema=KEYS
        )
        applied.commit_number = self._touched.committed(touched)
        applied.wrote = True
        applied.operations = Counter(op for op, _ in changes.values())
        if fresh:
            applied.operations["snapshot"] += len(fresh)
        return applied

    def _fresh(
        self,
        scans: list[tuple[int, Rows]],
        changes: dict[str, tuple[str, str | None]],
        told: Applied,
    ) -> Rows:
        """The scan rows that no change has passed, the group's own among them."""
        fresh: Rows = {}
        for ticket, rows in scans:
            passed = set(self._touched.since(ticket).column("k").to_pylist()) | changes.keys()
            told.touched += len(rows.keys() & passed)
            fresh.update((key, image) for key, image in rows.items() if key not in passed)
        return fresh

    def _after(
        self, changes: dict[str, tuple[str, str | None]], fresh: Rows, takes_scan: Generation
    ) -> Disk:
        new = copy.copy(self._disk)
        new.rows = dict(new.rows)
        positions = self._newest().positions_generation
        for load in (self._live, self._shadow):
            if load is None or load.is_frozen or load.positions_generation != positions:
                continue
            rows = dict(new.rows[load.generation])
            for key, (_, image) in changes.items():
                if image is None:
                    rows.pop(key, None)
                else:
                    rows[key] = image
            if load.generation == takes_scan.generation:
                rows.update(fresh)
            new.rows[load.generation] = rows
        return new

    def _stage(self, new: Disk, progress: StagedProgress, gaps: Sequence[Gap]) -> None:
        newest = self._newest()
        shards = {row.shard_id: row for row in progress.changed_shards()}
        segments = {each.segment: each for each in progress.changed_segments()}
        positions = newest.positions_generation
        new.shards = {**new.shards, positions: {**new.shards.get(positions, {}), **shards}}
        number = newest.generation
        new.segments = {**new.segments, number: {**new.segments.get(number, {}), **segments}}
        new.gaps = [*new.gaps, *((positions, gap) for gap in gaps)]

    def open_scan_ticket(self) -> int:
        return self._touched.open()

    def close_scan_ticket(self, ticket: int) -> None:
        self._touched.close(ticket)

    # Marks

    def persist(self, shards: Sequence[ShardCheckpoint]) -> None:
        positions = self._newest().positions_generation
        self.apply([Batch(empty_changes(), positions, shards=tuple(shards))])

    def forget_shards(self, shard_ids: Sequence[str]) -> None:
        positions = self._newest().positions_generation
        kept = self._disk.shards.get(positions, {})
        self._disk.shards[positions] = {i: s for i, s in kept.items() if i not in shard_ids}
        for shard_id in shard_ids:
            self._progress.shards.pop(shard_id, None)

    def mark_snapshot(
        self,
        state: SnapshotState,
        *,
        started_at_ms: int | None = None,
        scan_ended_at_ms: int | None = None,
    ) -> None:
        newest = self._newest()
        new = replace(
            newest,
            snapshot_state=state.value,
            snapshot_started_at_ms=started_at_ms or newest.snapshot_started_at_ms,
            scan_ended_at_ms=scan_ended_at_ms or newest.scan_ended_at_ms,
        )
        self._save(new)
        if self._shadow is not None:
            self._shadow = new
        else:
            self._live = new

    def mark_status(self, status: str, reason: str | None = None) -> None:
        self._disk.status = (status, reason)

    def resolve_gaps(self, resolution: str) -> None:
        self._disk.gaps = [
            (number, gap if gap.resolution else replace(gap, resolution=resolution))
            for number, gap in self._disk.gaps
        ]

    def swap(self, *, resolve_gaps: str | None = None, scan_ended_at_ms: int | None = None) -> None:
        if self._shadow is None or self._live is None:
            raise AcceleratorError(f"Dataset {self.spec.name} has no shadow to swap in.")
        failpoints.hit("mid_swap")
        live = replace(
            self._shadow,
            role="live",
            snapshot_state=SnapshotState.DONE.value,
            scan_ended_at_ms=scan_ended_at_ms or self._shadow.scan_ended_at_ms,
        )
        self._disk.drop(self._live.generation)
        self._save(live)
        self._disk.forget([live.generation, live.positions_generation])
        if resolve_gaps is not None:
            self.resolve_gaps(resolve_gaps)
        self._live, self._shadow = live, None

    def drop_shadow(self) -> None:
        if self._shadow is None or self._live is None:
            return
        live = self._live
        self._disk.drop(self._shadow.generation)
        self._disk.forget([live.generation, live.positions_generation])
        self._shadow = None
        self._progress = Progress(
            self._disk.shards.get(live.positions_generation, {}).values(),
            self._disk.segments.get(live.generation, {}).values(),
        )

    def open_dead_letters(self) -> int:
        return 0

    def row_count(self) -> int:
        return 0 if self._live is None else len(self._disk.rows[self._live.generation])

    # Inside

    def _begun(self) -> Generation:
        if self._live is None:
            raise AcceleratorError(f"Dataset {self.spec.name} was not begun.")
        return self._live

    def _newest(self) -> Generation:
        return self._shadow or self._begun()

    def _next_number(self) -> int:
        used = self._disk.generations.values()
        numbers = [n for g in used for n in (g.generation, g.positions_generation)]
        return 1 + max(numbers, default=0)

    def _save(self, generation: Generation) -> None:
        self._disk.generations = {**self._disk.generations, generation.generation: generation}

    def _open_gaps(self, positions: int | None) -> tuple[Gap, ...]:
        gaps = [
            gap
            for number, gap in self._disk.gaps
            if gap.resolution is None and positions in (None, number)
        ]
        return tuple(sorted(gaps, key=lambda gap: (gap.detected_at_ms, gap.shard_id)))


def _key(text: str, schema: tuple[KeyAttribute, ...]) -> str:
    return keys.key_of(json.loads(text), schema)
