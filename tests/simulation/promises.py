"""What a copy promises, held against the truth after every commit and every verdict.

Per key the copy shows one entry of the key's history. Once the dataset has been Ready that entry
only moves forward; it is never older than `covered_until` says; and Ready itself allows no more
than a few seconds. Positions promise that their records are in the rows, each counted once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from accelerator.outcome import SnapshotState
from checkpoints.positions import PositionKind, ShardState
from connector.course import _origin
from connector.health import Health
from tests.simulation.copies import Copy
from tests.simulation.truth import History, Truth, Violation
from tests.simulation.virtual_time import VirtualTime

READY_SLACK_MS: Final = 13_500.0
"""Ready is kept up to four times ready_lag (8 s) and 2 s more; times are cut to seconds on both
sides, and the verdict is up to half a second old."""

ALWAYS: Final = float("-inf")


class Promises:
    """`promised_from_ms`: changes before it may be missing, where no snapshot was wanted."""

    def __init__(self, truth: Truth, copy: Copy, time: VirtualTime) -> None:
        self.was_ready = False
        self.promised_from_ms = ALWAYS
        self.ready_at: list[float] = []
        self.verdicts = 0
        self.looks = 0
        self._truth = truth
        self._copy = copy
        self._time = time
        self._seen: dict[str, int] = {}
        self._without_scan: set[int] = set()

    # What the service did

    def written(self, call: str, named: Mapping[str, Any]) -> None:
        if call == "begin" and not named["shadow"]:
            self._start_over(ALWAYS if named["snapshot"] else named["origin_ms"])
            if not named["snapshot"]:
                self._begun_without_scan()
        elif call == "reposition":
            self._start_over(self._time.aws_ms())
            self._begun_without_scan()
        elif call == "swap":
            self.promised_from_ms = ALWAYS
        if call in ("apply", "swap", "begin"):
            self.look()

    def _start_over(self, promised_from_ms: float) -> None:
        """The rows are another load's, or older records are read onto them."""
        self.was_ready = False
        self._seen.clear()
        self.promised_from_ms = promised_from_ms

    def _begun_without_scan(self) -> None:
        stored = self._copy.stored()
        if stored is not None:
            self._without_scan.add(stored.positions_generation)

    # What the copy shows

    def look(self) -> None:
        """Nothing unknown is shown; once Ready, no row has gone back in time."""
        self.looks += 1
        rows = self._copy.versions()
        unknown = rows.keys() - self._truth.histories.keys()
        if unknown:
            raise Violation(f"rows of keys that were never written: {sorted(unknown)}")
        for key, history in self._truth.histories.items():
            least = self._seen.get(key, 0) if self.was_ready else 0
            index = history.first_from(rows.get(key), least)
            if index is None:
                raise Violation(
                    f"{key} shows version {rows.get(key)}, which is none of its versions"
                    f" {history.versions} from number {least} on"
                )
            self._seen[key] = index

    def judged(self, health: Health, aws_now_ms: int | None) -> None:
        """`aws_now_ms`: as the service knows it, which a suspended host cannot know better."""
        self.verdicts += 1
        if health.covered_until_ms is not None:
            self._holds_until(health.covered_until_ms, f"covered_until ({health.state.value})")
        if not health.is_ready:
            return
        stored = self._copy.stored()
        if stored is None or stored.open_gaps:
            raise Violation("Ready with an open gap, or with nothing stored")
        if stored.live_snapshot_state in (SnapshotState.RUNNING, SnapshotState.SCANNED):
            raise Violation(f"Ready while the snapshot is {stored.live_snapshot_state}")
        if stored.is_frozen:
            raise Violation("Ready while the rows are frozen")
        self.was_ready = True
        self.ready_at.append(self._time.monotonic_s())
        self._holds_until((aws_now_ms or 0) - READY_SLACK_MS, "Ready")

    def _holds_until(self, at_ms: float, what: str) -> None:
        rows = self._copy.versions()
        for key, history in self._truth.histories.items():
            due = self._due(history, at_ms)
            if due is not None and history.first_from(rows.get(key), due) is None:
                raise Violation(
                    f"{what} promises all before {at_ms:.0f}, but {key} shows version"
                    f" {rows.get(key)}, older than {history.versions[due]} of"
                    f" {history.since_ms[due]:.0f}; now {self._time.aws_ms():.0f}"
                )

    def _due(self, history: History, at_ms: float) -> int | None:
        index = history.before(at_ms)
        is_promised = history.since_ms[index] >= self.promised_from_ms
        return index if is_promised else None

    # Positions

    def positions_hold(self) -> None:
        """What is committed belongs together: each record counts once, none is ahead of its row."""
        stored, rows = self._copy.stored(), self._copy.newest_versions()
        if stored is None or stored.positions_gaps or stored.origin_ms is None:
            return
        origin = _origin(stored, stored.origin_ms)
        is_whole = stored.snapshot_state == SnapshotState.DONE
        is_shared = stored.shadow_generation is None or not stored.is_frozen
        if stored.live_snapshot_state == SnapshotState.NONE and is_shared:
            self._without_scan.add(stored.positions_generation)
        is_rest = stored.positions_generation in self._without_scan
        promised: dict[str, int] = {}
        for row in stored.shards:
            number = row.position.sequence_number
            if number is None:
                continue
            read = [
                each
                for each in self._truth.records.get(row.shard_id, [])
                if each.sequence_number <= int(number)
            ]
            young = [each for each in read if each.created_second_ms >= origin.cut_ms]
            youngest = [each for each in young if each.created_second_ms >= origin.at_ms]
            # Where all that was left was read, part of it may have been trimmed before. And rows
            # that began without a scan, so without a margin, may have been refreshed by one since.
            counts = {len(read), len(young), len(youngest)}
            if row.records not in counts and not (is_rest and row.records < len(read)):
                raise Violation(
                    f"{row.shard_id} counts {row.records} records up to {number}; it had"
                    f" {len(read)}, {len(young)} of them since the start"
                )
            for each in read if is_whole else young:
                promised[each.key] = max(each.index, promised.get(each.key, 0))
        for key, index in promised.items() if rows is not None else ():
            shown = None if rows is None else rows.get(key)
            if self._truth.histories[key].first_from(shown, index) is None:
                raise Violation(
                    f"positions are ahead of rows: {key} shows {shown}, entry {index} of"
                    f" {self._truth.histories[key].versions} is promised"
                )

    def child_may_start(self, shard_id: str, parent_id: str | None) -> None:
        """Every record of the parent is committed, or its loss is."""
        if parent_id is None:
            return
        stored = self._copy.stored()
        rows = {} if stored is None else {row.shard_id: row for row in stored.shards}
        parent = rows.get(parent_id)
        records = self._truth.records.get(parent_id, [])
        if parent is None or parent.state is ShardState.GAP or not records:
            return
        if parent.position.kind is not PositionKind.SHARD_END:
            raise Violation(f"{shard_id} is opened while its parent is {parent.state.value}")
        number = parent.position.sequence_number
        if number is not None and int(number) < records[-1].sequence_number:
            raise Violation(f"{shard_id} is opened before its parent's last record is committed")

    # The end

    def equal(self, source: Mapping[str, dict[str, Any]]) -> list[str]:
        """Where source and copy differ, of what is promised."""
        rows = self._copy.items()
        found = []
        for key in sorted(source.keys() | rows.keys()):
            history = self._truth.histories[key]
            if history.since_ms[-1] < self.promised_from_ms:
                continue
            if source.get(key) != rows.get(key):
                found.append(f"{key}: source {source.get(key)}, copy {rows.get(key)}")
        return found
