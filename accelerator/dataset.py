"""A dataset: one DynamoDB table's rows, queryable as the view `main."NAME"`.

Owns the transaction in which rows, positions, scan progress, gaps and dead letters commit together,
the generations (the live rows, and a shadow while they are loaded anew) and what is remembered of
them. Knows no stream, no scanner and no clock but the one it is given. One writer thread calls
everything but `open_scan_ticket` and `close_scan_ticket`, which any thread may call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from accelerator import failpoints
from accelerator.batch import CHANGES, Batch
from accelerator.catalog import Catalog, Generation
from accelerator.database import Database
from accelerator.dead_letters import DeadLetter, DeadLetters
from accelerator.errors import AcceleratorError, ForeignCheckpoint, OutOfMemory, PoisonRecord
from accelerator.fitting import Fitted, Fitter
from accelerator.group import Group
from accelerator.history import History, HistoryTable
from accelerator.outcome import Applied, SnapshotState, StoredDataset
from accelerator.progress import Progress, StagedProgress
from accelerator.rows import RowTable
from accelerator.schema import Alteration, Plan, Seen, initial
from accelerator.spec import DatasetSpec, Poison
from accelerator.sql import identifier
from accelerator.statements import Prepared
from accelerator.touched import KEYS, TouchedKeys
from checkpoints.positions import (
    Gap,
    ShardCheckpoint,
    SnapshotSegment,
    SourceIdentity,
)
from checkpoints.store import DuckDBCheckpointStore, PositionsKey

PROMOTED_ROWS: Final = 20_000


@dataclass(slots=True)
class _Load:
    """A generation with its row table."""

    generation: Generation
    table: RowTable


@dataclass(slots=True)
class _Work:
    """What a group does to one load: `fitted` replaces, `keys` is all that is removed first."""

    load: _Load
    fitted: Fitted
    keys: pa.Table


def _host_ms() -> int:
    return int(time.time() * 1000)


class Dataset:
    """`now_ms` stamps rows of the system tables, no more; `monotonic_s` times scan margins.

    row_commits   how many commits changed the live rows or the shadow's; any thread may read it
    """

    def __init__(
        self,
        database: Database,
        spec: DatasetSpec,
        *,
        now_ms: Callable[[], int | None] = _host_ms,
        monotonic_s: Callable[[], float] = time.monotonic,
        scan_margin_s: float = 0.0,
    ) -> None:
        self._database = database
        self.spec = spec
        self._now = now_ms
        self._touched = TouchedKeys(monotonic_s, scan_margin_s)
        self._reopened = database.reopened
        self._live: _Load | None = None
        self._shadow: _Load | None = None
        self._progress = Progress()
        self._history = self._open_history()
        self._prepared = Prepared(database.writer)
        self._promoted_rows = PROMOTED_ROWS
        self.row_commits = 0

    # ---- what is stored -------------------------------------------------------------------

    def load(self) -> StoredDataset | None:
        """Reads what is stored and makes it what `apply` goes on from; None when nothing is.

        Call it once at start and again after `Database.reopen`.

        Raises:
            ForeignCheckpoint: it belongs to another table, region or account.
        """
        if self._reopened != self._database.reopened:
            # The transaction that was under way may be committed all the same. Its changes would
            # be replays when they are tried again, and no longer stand against a scan row.
            self._reopened = self._database.reopened
            self._touched.expire()
        with self._database.translated():
            cursor = self._database.writer
            catalog = Catalog(cursor, self.spec.name)
            store = DuckDBCheckpointStore(cursor)
            loads = {g.role: self._open_load(catalog, g) for g in catalog.generations()}
            self._live, self._shadow = loads.get("live"), loads.get("shadow")
            self._history = self._open_history()
            self._prepared = Prepared(cursor)
            if self._live is None:
                self._progress = Progress()
                return None
            self._refuse_foreign(self._live.generation.identity)
            newest = self._newest().generation
            shards = store.load_shards(self.spec.name, newest.positions_generation)
            segments = store.load_segments(self.spec.name, newest.generation)
            self._progress = Progress(shards, segments)
            status, reason = catalog.status() or ("Initializing", None)
            live = self._live.generation
            return StoredDataset(
                identity=newest.identity,
                generation=live.generation,
                positions_generation=newest.positions_generation,
                shards=shards,
                segments=segments,
                snapshot_state=newest.snapshot_state,
                snapshot_started_at_ms=newest.snapshot_started_at_ms,
                scan_ended_at_ms=newest.scan_ended_at_ms,
                origin_ms=newest.origin_ms,
                status=status,
                status_reason=reason,
                open_gaps=store.open_gaps(self.spec.name),
                fingerprint=newest.fingerprint,
                shadow_generation=self._shadow.generation.generation if self._shadow else None,
                is_frozen=live.is_frozen,
                live_snapshot_state=live.snapshot_state,
                live_identity=live.identity,
                live_fingerprint=live.fingerprint,
                live_started_at_ms=live.snapshot_started_at_ms,
                positions_gaps=store.open_gaps(self.spec.name, newest.positions_generation),
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
        """Starts a generation of rows and returns its number, all in one transaction.

        shadow                 True loads it beside the live rows until `swap`; False replaces
                               them at once, also in the view
        positions_generation   the live positions' number: every change goes to both (`shards` is
                               then not used). None: `shards` begin a set of positions of its own,
                               numbered like the generation; live rows beside it are frozen
        snapshot               False: no scan will fill it
        above                  the number is above this one too, which a file that is gone had
        gaps                   what is lost already as it begins
        fingerprint            of the settings to load under, where they are another process's
        """
        if self._live is not None:
            _refuse_other(self._live.generation.identity, identity)
        catalog = Catalog(self._database.writer, self.spec.name)
        number = max(_next_number(catalog), above + 1)
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
        now_ms = self._now_ms()
        plan = initial([(k.name, k.type) for k in identity.key_schema], generation.choice, now_ms)
        table = RowTable(self._database.writer, self.spec.name, number, plan)
        frozen = None
        with self._database.transaction() as cursor:
            change = table.create()
            for old in self._replaced_by(shadow):
                old.table.drop()
            if not shadow:
                cursor.execute(table.view_sql(with_extras=False))
            for old in self._replaced_by(shadow):
                catalog.drop_generation(old.generation.generation)
                catalog.drop_columns(old.generation.generation)
            catalog.save_generation(generation)
            catalog.save_columns(number, change)
            if self._live is None:
                catalog.save_status("Initializing", None, now_ms=now_ms)
            store = DuckDBCheckpointStore(cursor)
            if positions_generation is None:
                key = PositionsKey(self.spec.name, number, identity.stream_arn)
                store.save_shards(key, shards, now_ms=now_ms)
                if shadow and self._live is not None and not self._live.generation.is_frozen:
                    frozen = replace(self._live.generation, is_frozen=True)
                    catalog.save_generation(frozen)
            store.save_segments(self.spec.name, number, segments, now_ms=now_ms)
            store.record_gaps(self.spec.name, number, gaps)
            kept = [generation]
            if shadow and self._live is not None:
                kept.append(self._live.generation)
            store.forget(
                self.spec.name,
                keep=[n for g in kept for n in (g.generation, g.positions_generation)],
            )
        if frozen is not None and self._live is not None:
            self._live.generation = frozen
        load = _Load(generation, table)
        if shadow:
            self._shadow = load
        else:
            self._live, self._shadow = load, None
        own = shards if positions_generation is None else self._progress.shards.values()
        self._progress = Progress(own, segments)
        return number

    def reposition(self, identity: SourceIdentity, *, origin_ms: int) -> int:
        """Begins a new set of positions for the live rows, which stay as they are; its number.

        What happened between the old positions and the new ones is not in the rows: the caller
        records that as a gap.
        """
        live = self._live
        if live is None:
            raise AcceleratorError(f"Dataset {self.spec.name} was not begun.")
        _refuse_other(live.generation.identity, identity)
        if self._shadow is not None:
            self.drop_shadow()
        catalog = Catalog(self._database.writer, self.spec.name)
        new = replace(
            live.generation,
            positions_generation=_next_number(catalog),
            identity=identity,
            origin_ms=origin_ms,
            snapshot_state=SnapshotState.NONE.value,
            is_frozen=False,
        )
        with self._database.transaction() as cursor:
            catalog.save_generation(new)
            DuckDBCheckpointStore(cursor).forget(self.spec.name, keep=[new.positions_generation])
        live.generation = new
        self._progress = Progress()
        return new.positions_generation

    # ---- applying -------------------------------------------------------------------------

    def apply(self, batches: Sequence[Batch]) -> Applied:
        """Applies a group whole, in one transaction, exactly once.

        Per key the last change wins; scan rows count only where no change has passed them. A group
        that changes nothing writes nothing. After an error nothing of it is committed and the same
        group may be applied again.

        Raises:
            PoisonRecord: under the policy `halt`.
            UnknownShard, ScanTicketExpired: the batch is wrong; it must not be repeated as it is.
            OutOfMemory, DiskFull: rolled back, try again later.
            DatabaseInvalidated: reopen the database, `load` again, resume from its positions.
        """
        started = time.perf_counter()
        applied = Applied(commit_number=self._touched.commit_number)
        if self._live is None:
            raise AcceleratorError(f"Dataset {self.spec.name} was not begun.")
        mine = [batch for batch in batches if self._is_read(batch)]
        applied.foreign = len(batches) - len(mine)
        applied.nbytes = sum(batch.nbytes for batch in mine)
        progress = self._progress.stage()
        with self._database.translated():
            schema = self._newest().generation.identity.key_schema
            group = Group(self._database.writer, schema, self._prepared)
            for batch in mine:
                group.add(batch, progress.admit(batch))
            applied.replayed = progress.replayed
            applied.records, applied.scanned = group.records, group.scanned
            try:
                self._apply_group(group, mine, progress, applied)
            finally:
                group.close()
        applied.duration_s = time.perf_counter() - started
        return applied

    def settled_changes(self, batches: Sequence[Batch]) -> Batch | None:
        """What is new of the stream batches, as one batch; None when nothing is.

        A copy that holds what this one holds gets from it what this one gets from `batches`.

        Raises:
            UnknownShard: as `apply`.
        """
        mine = [batch for batch in batches if not batch.is_scan and self._is_read(batch)]
        progress = self._progress.stage()
        changes = pa.concat_tables([CHANGES.empty_table(), *(progress.admit(b) for b in mine)])
        gaps = tuple(gap for batch in mine for gap in batch.gaps)
        shards, segments = progress.changed_shards(), progress.changed_segments()
        if not (changes.num_rows or shards or segments or gaps):
            return None
        generation = self._newest().generation.positions_generation
        return Batch(changes, generation, shards, segments, gaps, nbytes=changes.nbytes)

    def settled_scans(self, batches: Sequence[Batch], ticket: int) -> list[Batch]:
        """The scan rows that no change has passed, under a ticket that no commit is later than.

        Raises:
            ScanTicketExpired: as `apply`.
        """
        mine = [batch for batch in batches if batch.is_scan and self._is_read(batch)]
        settled = []
        for fills in dict.fromkeys(batch.fills for batch in mine):
            of_one = [batch for batch in mine if batch.fills == fills]
            progress = self._progress.stage()
            with self._database.translated():
                schema = self._newest().generation.identity.key_schema
                group = Group(self._database.writer, schema, self._prepared)
                for batch in of_one:
                    group.add(batch, progress.admit(batch))
                try:
                    group.last_changes()
                    group.scan_rows(self._touched.since)
                    rows = group.unpassed_scans()
                finally:
                    group.close()
            segments = progress.changed_segments()
            if rows.num_rows or segments:
                generation = of_one[0].generation
                settled.append(
                    Batch(
                        rows,
                        generation,
                        segments=segments,
                        scan_ticket=ticket,
                        fills=fills,
                        nbytes=rows.nbytes,
                    )
                )
        return settled

    def shard_rows(self) -> tuple[ShardCheckpoint, ...]:
        """The committed positions that are read."""
        return tuple(self._progress.shards.values())

    def next_generation(self, above: int = 0) -> int:
        """The number that `begin` or `reposition` would give."""
        return max(_next_number(Catalog(self._database.writer, self.spec.name)), above + 1)

    def drop_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Removes exactly these; how many there were."""
        return DeadLetters(self._database, self.spec.name).drop(letters)

    def _is_read(self, batch: Batch) -> bool:
        newest = self._newest().generation
        fills_newest = batch.fills is None or batch.fills == newest.generation
        return batch.generation == newest.positions_generation and fills_newest

    def _apply_group(
        self, group: Group, batches: Sequence[Batch], progress: StagedProgress, applied: Applied
    ) -> None:
        works = self._fit(group, applied)
        gaps = [gap for batch in batches for gap in batch.gaps]
        if group.poison and self.spec.poison is Poison.HALT:
            number, error = next(iter(group.poison.items()))
            record = group.record(number)
            raise PoisonRecord(record["shard_id"], record["sequence_number"], error)
        failpoints.hit("after_plan")
        changed = any(work.keys.num_rows or work.fitted.rows.num_rows for work in works)
        if not (
            changed
            or gaps
            or group.poison
            or progress.changed_shards()
            or progress.changed_segments()
        ):
            return
        with self._database.transaction() as cursor:
            alterations = [self._alter(work) for work in works]
            if self._history is not None:
                self._history.create()
                self._history.append(group.changes())
            for work, change in zip(works, alterations, strict=True):
                self._write(work)
                Catalog(cursor, self.spec.name).save_columns(
                    work.load.generation.generation, change
                )
            self._save_progress(cursor, progress, gaps)
            self._save_dead_letters(cursor, group)
            failpoints.hit("before_commit")
        failpoints.hit("after_commit")
        progress.commit()
        for work in works:
            work.load.table.plan = work.fitted.plan
        applied.commit_number = self._touched.committed(group.touched_keys())
        applied.wrote = True
        applied.dead_letters = len(group.poison)
        applied.numbers_as_text = max(work.fitted.numbers_as_text for work in works)
        self.row_commits += changed
        self._report_columns(works, alterations, applied)

    def _fit(self, group: Group, applied: Applied) -> list[_Work]:
        """Typed rows for every load that the group reaches; poison found on the way is set aside
        and the key's change before it counts instead."""
        newest = self._newest()
        feeds = [load for load in (self._live, self._shadow) if load and self._is_fed(load)]
        while True:
            poison = len(group.poison)
            changes = group.last_changes()
            scans = group.scan_rows(self._touched.since)
            works = []
            for load in feeds:
                takes_scan = load is (newest if group.fills_snapshot else self._live)
                fitter = Fitter(
                    self._database.writer,
                    partial(group.source, with_scan=takes_scan),
                    group.image,
                    self._prepared,
                    group.few(with_scan=takes_scan),
                )
                fitted = fitter.fit(load.table.plan, self._grower(load))
                group.poison.update(fitted.poison)
                removed = pa.concat_tables([changes, scans]) if takes_scan else changes
                works.append(_Work(load, fitted, removed))
            if len(group.poison) == poison:
                break
        applied.touched = group.passed
        applied.operations = group.operations()
        return works

    def _is_fed(self, load: _Load) -> bool:
        positions = self._newest().generation.positions_generation
        return load.generation.positions_generation == positions and not load.generation.is_frozen

    def _grower(self, load: _Load) -> Callable[[Plan, Mapping[str, Seen]], Plan]:
        rows: list[int] = []

        def grow(plan: Plan, seen: Mapping[str, Seen]) -> Plan:
            if not rows:
                rows.append(load.table.count())
            room = self._database.room_for_columns(rows[0])
            return load.table.grow(plan, seen, room=room, now_ms=self._now_ms())

        return grow

    def _alter(self, work: _Work) -> Alteration:
        """All DDL, the view's with it."""
        table = work.load.table
        had_extras = table.has_extras
        change = table.alter(work.fitted.plan)
        extras = bool(pc.any(pc.is_valid(work.fitted.rows.column("_extra"))).as_py())
        if work.load is self._live and (change.needs_ddl or (extras and not had_extras)):
            shown = RowTable(
                self._database.writer, self.spec.name, table.generation, work.fitted.plan
            )
            self._database.writer.execute(shown.view_sql(with_extras=extras or had_extras))
        table.has_extras = had_extras or extras
        if extras and len(work.fitted.plan.columns) < work.fitted.plan.choice.max_columns:
            table.look_again()
        if change.added:
            self._database.columns_added(len(change.added), table.count())
        return change

    def _write(self, work: _Work) -> None:
        if work.keys.num_rows:
            work.load.table.delete(work.keys)
        work.load.table.insert(work.fitted)

    def _save_progress(
        self, cursor: duckdb.DuckDBPyConnection, progress: StagedProgress, gaps: Sequence[Gap]
    ) -> None:
        newest = self._newest().generation
        store = DuckDBCheckpointStore(cursor)
        now_ms = self._now_ms()
        key = PositionsKey(self.spec.name, newest.positions_generation, newest.identity.stream_arn)
        store.save_shards(key, progress.changed_shards(), now_ms=now_ms)
        store.save_segments(
            self.spec.name, newest.generation, progress.changed_segments(), now_ms=now_ms
        )
        store.record_gaps(self.spec.name, newest.positions_generation, gaps)

    def _save_dead_letters(self, cursor: duckdb.DuckDBPyConnection, group: Group) -> None:
        for number, error in group.poison.items():
            record = group.record(number)
            cursor.execute(
                "INSERT INTO dynaduck.dead_letters VALUES "
                "(?, ?, ?, ?, ?, ?, epoch_ms(CAST(? AS BIGINT)), ?, ?)",
                [
                    self.spec.name,
                    record["shard_id"],
                    record["sequence_number"],
                    record["op"],
                    _record_text(record),
                    error,
                    self._now_ms(),
                    group.key_text(number),
                    self._newest().generation.positions_generation,
                ],
            )

    def _report_columns(
        self, works: Sequence[_Work], alterations: Sequence[Alteration], applied: Applied
    ) -> None:
        for work, change in zip(works, alterations, strict=True):
            if work.load is self._live:
                applied.columns_added = tuple(c.attribute for c in change.added)
                applied.columns_widened = tuple(r.new.attribute for r in change.retyped)
        # DuckDB itself cannot replay a log that holds a widening: leave it there no longer than
        # need be. Refused while it cannot; then the next one takes it along.
        if self._database.wants_checkpoint or any(change.retyped for change in alterations):
            self._database.checkpoint()

    def promote(self, *, max_rows: int = PROMOTED_ROWS) -> int:
        """Gives attributes that wait in `_extra` for memory their columns; rows looked at.

        Call it when quiet, until it returns 0: each call is at most one transaction over at most
        `max_rows` rows, and over fewer after one that memory did not allow. Attributes beyond
        max_columns stay where they are.

        Raises:
            OutOfMemory: rolled back; the next call is for fewer rows.
        """
        looked_at = 0
        rows = min(max_rows, self._promoted_rows)
        try:
            with self._database.translated():
                for load in (self._live, self._shadow):
                    if load is not None:
                        looked_at += self._promote(load, rows)
        except OutOfMemory:
            self._promoted_rows = max(1, rows // 8)
            raise
        self._promoted_rows = min(PROMOTED_ROWS, 2 * self._promoted_rows)
        return looked_at

    def _promote(self, load: _Load, max_rows: int) -> int:
        cursor, table = self._database.writer, load.table
        waiting = table.waiting(max_rows)
        if waiting.num_rows == 0:
            return 0
        cursor.register("waiting_rows", waiting)
        try:
            # What `_raw` holds is an item too: that of the attributes that are to move, and of
            # those whose columns are read from there. The other columns stay as they are.
            images = waiting.column("image")
            fitter = Fitter(
                cursor, lambda: "waiting_rows", lambda n: images[n].as_py(), self._prepared
            )
            fitted = fitter.fit(table.plan, self._grower(load), is_whole=False)
        finally:
            cursor.unregister("waiting_rows")
        moved = table.moved(waiting, fitted)
        if moved.rows.num_rows:
            work = _Work(load, moved, KEYS.empty_table())
            with self._database.transaction() as transaction:
                change = self._alter(work)
                table.move(moved)
                number = load.generation.generation
                Catalog(transaction, self.spec.name).save_columns(number, change)
            table.plan = fitted.plan
            self.row_commits += 1
            self._database.checkpoint()
        table.looked_at(waiting, is_moved=moved.rows.num_rows > 0)
        return len(images)

    # ---- scan tickets ---------------------------------------------------------------------

    def open_scan_ticket(self) -> int:
        """Take one before a Scan request is sent; its rows carry it. Any thread."""
        return self._touched.open()

    def close_scan_ticket(self, ticket: int) -> None:
        """Give it back once the page is applied, or given up. Any thread."""
        self._touched.close(ticket)

    # ---- marks ----------------------------------------------------------------------------

    def persist(self, shards: Sequence[ShardCheckpoint]) -> None:
        """Stores positions without rows: the slow beat. Writes only what changed."""
        positions = self._newest().generation.positions_generation
        batch = Batch(CHANGES.empty_table(), positions, shards=tuple(shards))
        self.apply([batch])

    def forget_shards(self, shard_ids: Sequence[str]) -> None:
        """Drops the rows of shards that are finished for good and no longer listed."""
        positions = self._newest().generation.positions_generation
        with self._database.transaction() as cursor:
            store = DuckDBCheckpointStore(cursor)
            store.forget_shards(self.spec.name, positions, shard_ids)
        for shard_id in shard_ids:
            self._progress.shards.pop(shard_id, None)

    def mark_snapshot(
        self,
        state: SnapshotState,
        *,
        started_at_ms: int | None = None,
        scan_ended_at_ms: int | None = None,
    ) -> None:
        """Sets the state of the generation being loaded; times given as None stay."""
        load = self._newest()
        new = replace(
            load.generation,
            snapshot_state=state.value,
            snapshot_started_at_ms=started_at_ms or load.generation.snapshot_started_at_ms,
            scan_ended_at_ms=scan_ended_at_ms or load.generation.scan_ended_at_ms,
        )
        if new == load.generation:
            return
        with self._database.transaction() as cursor:
            Catalog(cursor, self.spec.name).save_generation(new)
        load.generation = new

    def mark_status(self, status: str, reason: str | None = None) -> None:
        """Stores what dynaduck.datasets says; writes only a change."""
        with self._database.translated():
            if Catalog(self._database.writer, self.spec.name).status() == (status, reason):
                return
        with self._database.transaction() as cursor:
            Catalog(cursor, self.spec.name).save_status(status, reason, now_ms=self._now_ms())

    def resolve_gaps(self, resolution: str) -> None:
        with self._database.transaction() as cursor:
            DuckDBCheckpointStore(cursor).resolve_gaps(self.spec.name, resolution)

    def freeze(self) -> None:
        """No change reaches the live rows any more; they stay queryable."""
        if self._live is None or self._live.generation.is_frozen:
            return
        frozen = replace(self._live.generation, is_frozen=True)
        with self._database.transaction() as cursor:
            Catalog(cursor, self.spec.name).save_generation(frozen)
        self._live.generation = frozen

    def swap(self, *, resolve_gaps: str | None = None, scan_ended_at_ms: int | None = None) -> None:
        """Makes the shadow the live rows, in one transaction; readers see either, no error.

        Its snapshot is done by that: there is no state in which it is done and waits for the swap.
        `resolve_gaps` closes the open gaps with this resolution in the same transaction.
        """
        if self._shadow is None or self._live is None:
            raise AcceleratorError(f"Dataset {self.spec.name} has no shadow to swap in.")
        shadow = self._shadow.generation
        live = replace(
            shadow,
            role="live",
            snapshot_state=SnapshotState.DONE.value,
            scan_ended_at_ms=scan_ended_at_ms or shadow.scan_ended_at_ms,
        )
        old = self._live
        with self._database.transaction() as cursor:
            cursor.execute(self._shadow.table.view_sql(with_extras=self._shadow.table.has_extras))
            old.table.drop()
            failpoints.hit("mid_swap")
            catalog = Catalog(cursor, self.spec.name)
            catalog.drop_generation(old.generation.generation)
            catalog.drop_columns(old.generation.generation)
            catalog.save_generation(live)
            store = DuckDBCheckpointStore(cursor)
            store.forget(self.spec.name, keep=[live.generation, live.positions_generation])
            if resolve_gaps is not None:
                store.resolve_gaps(self.spec.name, resolve_gaps)
        self._live, self._shadow = _Load(live, self._shadow.table), None

    def drop_shadow(self) -> None:
        """Gives up the load beside the live rows, with its own positions if it had any."""
        if self._shadow is None or self._live is None:
            return
        shadow, live = self._shadow, self._live.generation
        with self._database.transaction() as cursor:
            shadow.table.drop()
            catalog = Catalog(cursor, self.spec.name)
            catalog.drop_generation(shadow.generation.generation)
            catalog.drop_columns(shadow.generation.generation)
            store = DuckDBCheckpointStore(cursor)
            store.forget(self.spec.name, keep=[live.generation, live.positions_generation])
            shards = store.load_shards(self.spec.name, live.positions_generation)
            segments = store.load_segments(self.spec.name, live.generation)
        self._shadow = None
        self._progress = Progress(shards, segments)

    def open_dead_letters(self) -> int:
        """How many changes are set aside."""
        return DeadLetters(self._database, self.spec.name).count()

    def row_count(self) -> int:
        """Rows of the live generation, by the committed table."""
        if self._live is None:
            return 0
        with self._database.translated():
            return self._live.table.count()

    # ---- inside ---------------------------------------------------------------------------

    def _newest(self) -> _Load:
        newest = self._shadow or self._live
        if newest is None:
            raise AcceleratorError(f"Dataset {self.spec.name} was not begun.")
        return newest

    def _replaced_by(self, shadow: bool) -> list[_Load]:
        replaced = [self._shadow] if shadow else [self._live, self._shadow]
        return [load for load in replaced if load is not None]

    def _open_load(self, catalog: Catalog, generation: Generation) -> _Load:
        plan = catalog.plan(generation.generation, generation.choice)
        table = RowTable(self._database.writer, self.spec.name, generation.generation, plan)
        table.has_extras = table.finds_extras()
        if table.has_extras:
            table.look_again()
        return _Load(generation, table)

    def adjust(self, *, poison: Poison, history: History | None) -> None:
        """What may change while it runs. The writer, or whoever holds its lock.

        A history is not begun or ended by it: that takes other reads of the stream.
        """
        if (history is None) != (self.spec.history is None):
            raise ValueError("a history begins and ends with the dataset")
        self.spec = replace(self.spec, poison=poison, history=history)
        self._history = self._open_history()

    def _open_history(self) -> HistoryTable | None:
        if self.spec.history is None:
            return None
        return HistoryTable(self._database.writer, self.spec.name, self.spec.history)

    def _refuse_foreign(self, stored: SourceIdentity) -> None:
        region, account = _place(stored.table_arn)
        for said, is_stored, what in (
            (self.spec.table_name, stored.table_name, "table"),
            (self.spec.region, region, "region"),
            (self.spec.account, account, "account"),
        ):
            if said is not None and is_stored is not None and said != is_stored:
                raise ForeignCheckpoint(
                    f"Dataset {self.spec.name} is stored for {what} {is_stored}, not {said}."
                )

    def _now_ms(self) -> int:
        now = self._now()
        return _host_ms() if now is None else now


def _next_number(catalog: Catalog) -> int:
    """Above every number in use, of rows or of positions: neither is ever taken for another."""
    used = [n for g in catalog.generations() for n in (g.generation, g.positions_generation)]
    return 1 + max(used, default=0)


def _refuse_other(stored: SourceIdentity, given: SourceIdentity) -> None:
    here = (stored.table_name, *_place(stored.table_arn))
    there = (given.table_name, *_place(given.table_arn))
    if here != there:
        raise ForeignCheckpoint(
            f"The stored rows belong to table {stored.table_arn}, not {given.table_arn}."
        )


def _place(arn: str) -> tuple[str | None, str | None]:
    parts = arn.split(":")
    return (parts[3] or None, parts[4] or None) if len(parts) >= 6 else (None, None)


def _record_text(record: Mapping[str, str | None]) -> str:
    members = [("Keys", record["keys"]), ("NewImage", record["image"])]
    return "{" + ",".join(f'"{name}":{text}' for name, text in members if text is not None) + "}"


def view_name(dataset: str) -> str:
    return f"main.{identifier(dataset)}"
