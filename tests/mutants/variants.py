"""Each variant as a replacement of text, with the tests that have to catch it.

A variant is what a reasonable person might write. Its old text has to stand in the code exactly
once: a rewrite that moves it is noticed by a test, not by a variant that no longer does anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RACES: Final = "tests/simulation/test_races.py"
DATASET: Final = "tests/unit/test_accelerator_dataset.py"
SHARDS: Final = "tests/unit/test_shards.py"
LOSSES: Final = "tests/unit/test_shards_losses.py"
READER: Final = "tests/unit/test_reader.py"
WIRE: Final = "tests/unit/test_wire.py"
SEEDS: Final = "tests/simulation/test_simulation.py::test_no_seed_breaks_a_promise"


@dataclass(frozen=True, slots=True)
class Change:
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Variant:
    """`tests`: pytest ids, each of which may catch it; the first is the one made for it."""

    name: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]


def _variant(name: str, path: str, old: str, new: str, *tests: str) -> Variant:
    return Variant(name, (Change(path, old, new),), tests)


VARIANTS: Final = (
    _variant(
        "no touched window",
        "accelerator/touched.py",
        "tables = [commit.keys for commit in self._commits if commit.number > ticket]",
        "tables: list[pa.Table] = []",
        f"{RACES}::test_a_page_read_before_a_change_and_arriving_after_it_is_dropped",
        DATASET,
    ),
    Variant(
        "deletes not touched",
        (
            Change(
                "accelerator/dataset.py",
                "applied.commit_number = self._touched.committed(group.touched_keys())",
                "applied.commit_number = self._touched.committed(_written_keys(works))",
            ),
            Change(
                "accelerator/dataset.py",
                "def view_name(dataset: str) -> str:",
                "def _written_keys(works: Sequence[_Work]) -> pa.Table:\n"
                '    return works[0].fitted.rows.select(["h", "k"]).cast(KEYS)\n\n\n'
                "def view_name(dataset: str) -> str:",
            ),
        ),
        (f"{RACES}::test_a_page_does_not_bring_a_deleted_item_back", DATASET),
    ),
    Variant(
        "rows that where drops not touched",
        (
            Change(
                "accelerator/dataset.py",
                "applied.commit_number = self._touched.committed(group.touched_keys())",
                "applied.commit_number = self._touched.committed(self._kept(group, works))",
            ),
            Change(
                "accelerator/dataset.py",
                "    def _is_fed(self, load: _Load) -> bool:",
                "    def _kept(self, group: Group, works: Sequence[_Work]) -> pa.Table:\n"
                "        touched = group.touched_keys()\n"
                "        name = works[0].load.table.qualified_name\n"
                "        found = self._database.writer.execute(f'SELECT _k FROM {name}')\n"
                "        rows = found.fetchall()\n"
                "        kept = pa.array([row[0] for row in rows], pa.string())\n"
                "        return touched.filter(pc.is_in(touched.column('k'), kept))\n\n"
                "    def _is_fed(self, load: _Load) -> bool:",
            ),
        ),
        (f"{RACES}::test_a_page_does_not_bring_back_what_where_has_dropped",),
    ),
    _variant(
        "touched tested as of before the group",
        "accelerator/group.py",
        "passed = pa.concat_tables([since(ticket), own])",
        "passed = since(ticket) if own is not None else own",
        f"{RACES}::test_a_change_counts_from_within_its_own_group",
        DATASET,
    ),
    Variant(
        "touched dropped when the last page is read",
        (
            Change(
                "connector/snapshot/scanner.py",
                "            self._busy.discard(segment.segment)\n            if not after.done:\n",
                "            self._busy.discard(segment.segment)\n"
                "            if after.done:\n"
                "                self._tickets.close_scan_ticket(ticket)\n"
                "            if not after.done:\n",
            ),
            Change(
                "accelerator/touched.py",
                "            if ticket < self._floor:\n",
                "            if ticket < 0:\n",
            ),
        ),
        (f"{RACES}::test_the_last_page_is_tested_though_nothing_is_left_to_read",),
    ),
    Variant(
        "collapse over scan rows and changes together",
        (
            Change(
                "accelerator/group.py",
                "passed = pa.concat_tables([since(ticket), own])",
                "passed = since(ticket) if own is not None else own",
            ),
            Change(
                "accelerator/group.py",
                "        return pa.concat_tables([self._last, self._scan_last]) if with_scan "
                "else self._last\n",
                "        both = pa.concat_tables([self._last, self._scan_last])\n"
                "        return self._last_per_key(both) if with_scan else self._last\n",
            ),
        ),
        (f"{RACES}::test_a_change_counts_from_within_its_own_group", DATASET),
    ),
    Variant(
        "LastEvaluatedKey stored at read",
        (
            Change(
                "connector/snapshot/scanner.py",
                "            self._sink.offer(batch)\n",
                "            self._sink.offer(replace(batch, changes=page.changes.slice(0, 0)))\n"
                "            self._sink.offer(replace(batch, segments=()))\n",
            ),
        ),
        (f"{RACES}::test_progress_of_the_scan_is_committed_with_its_rows",),
    ),
    _variant(
        "position stored at read",
        "connector/stream/reader.py",
        "        if progress or changes is not None:\n            self._sink.offer(\n",
        "        if progress and changes is not None:\n"
        "            self._sink.offer(\n"
        "                Batch(empty_changes(), self.generation, shards=progress.shards)\n"
        "            )\n"
        "        if progress or changes is not None:\n            self._sink.offer(\n",
        f"{RACES}::test_positions_are_committed_with_their_rows",
        READER,
    ),
    Variant(
        "child before the parent's last record is applied",
        (
            Change(
                "connector/stream/lineage.py",
                "return self.is_done and self.committed is not None "
                "and self.committed.state in DONE",
                "return self.is_done",
            ),
            Change(
                "connector/stream/shards.py",
                "                self._inherit(child, shard)\n"
                "                self._hand_over(child, ShardState.ELIGIBLE)\n\n"
                "    def _inherit",
                "                self._inherit(child, shard)\n"
                "                self._hand_over(child, ShardState.ELIGIBLE)\n"
                "                self._make_eligible(child, 0.0)\n\n"
                "    def _inherit",
            ),
        ),
        (
            f"{SHARDS}::TestLineage::test_a_child_is_free_once_its_parents_end_is_committed",
            f"{SEEDS}[0-24]",
        ),
    ),
    _variant(
        "a parent not listed yet taken for absent",
        "connector/stream/shards.py",
        "                shard.suspect_since_ms = listing.at_ms\n"
        "                self._orphans[shard.shard_id] = shard\n",
        "                self._make_eligible(shard, now_s)\n",
        f"{SHARDS}::TestFirstStart::test_an_open_shard_without_its_parent_needs_a_second_listing",
    ),
    _variant(
        "last page with null iterator dropped",
        "connector/stream/reader.py",
        "            changes = _without_prefix(page.changes, work.skip_before_ms)\n",
        "            changes = _without_prefix(page.changes, work.skip_before_ms)\n"
        "            if page.next_iterator is None:\n"
        "                changes = changes.slice(0, 0)\n",
        f"{SEEDS}[0-24]",
        READER,
    ),
    Variant(
        "truncated body taken for the shard's end",
        (
            Change(
                "connector/aws/source.py",
                '    encoding = headers.get("content-encoding")\n',
                '    if operation == "GetRecords":\n'
                "        return\n"
                '    encoding = headers.get("content-encoding")\n',
            ),
            Change(
                "connector/aws/wire.py",
                '    page = _whole(decoder, body, "GetRecords")\n    records = page.Records\n',
                "    try:\n"
                '        page = _whole(decoder, body, "GetRecords")\n'
                "    except CorruptPage:\n"
                "        page = decoder.decode(b'{\"Records\":[]}')\n"
                "    records = page.Records\n",
            ),
        ),
        (f"{WIRE}::test_a_page_that_is_not_whole_is_an_error_and_never_an_end", f"{SEEDS}[0-24]"),
    ),
    Variant(
        "TotalSegments changed at resume",
        (
            Change(
                "connector/course.py",
                "            stored.segments,\n            generation=self.positions_generation,\n",
                "            _recut(stored.segments, around.settings.scan_segments),\n"
                "            generation=self.positions_generation,\n",
            ),
            Change(
                "connector/course.py",
                "def _origin(stored: StoredDataset, at_ms: int) -> Origin:",
                "def _recut(segments, total):\n"
                "    from checkpoints.positions import SnapshotSegment\n"
                "    from dataclasses import replace\n\n"
                "    kept = [replace(each, total_segments=total) for each in segments]\n"
                "    return (kept + [SnapshotSegment(n, total) for n in range(len(kept), total)])"
                "[:total]\n\n\n"
                "def _origin(stored: StoredDataset, at_ms: int) -> Origin:",
            ),
        ),
        (f"{RACES}::test_a_resumed_scan_keeps_its_segments",),
    ),
    _variant(
        "iterator rebuilt from the applied position while pages are queued",
        "connector/stream/shards.py",
        "        if isinstance(error, IteratorExpired):\n            shard.iterator = None\n",
        "        if isinstance(error, IteratorExpired):\n"
        "            shard.iterator = None\n"
        "            if shard.committed is not None:\n"
        "                shard.position = shard.committed.position\n",
        f"{SHARDS}::TestIterators::test_an_expired_iterator_is_rebuilt_after_what_is_enqueued",
        READER,
    ),
    _variant(
        "iterator rebuilt from TRIM_HORIZON",
        "connector/stream/shards.py",
        "        if isinstance(error, IteratorExpired):\n            shard.iterator = None\n",
        "        if isinstance(error, IteratorExpired):\n"
        "            shard.iterator = None\n"
        "            shard.position = Position.trim_horizon()\n",
        f"{SHARDS}::TestIterators::test_an_expired_iterator_is_rebuilt_after_what_is_enqueued",
        READER,
    ),
    _variant(
        "skipping old records one by one",
        "connector/stream/reader.py",
        "    first = pc.index(is_younger, True).as_py()\n"
        "    return changes.slice(first if first >= 0 else changes.num_rows)\n",
        "    return changes.filter(is_younger)\n",
        f"{READER}::TestBatches::test_what_is_older_than_the_cut_is_dropped_at_the_front_only",
    ),
    _variant(
        "the host's clock as start",
        "connector/replication.py",
        "                table.identity(),\n"
        "                origin_ms=table.at_ms,\n"
        "                shards=(),\n"
        "                segments=self._segments(table) if scans else (),\n",
        "                table.identity(),\n"
        '                origin_ms=int(__import__("time").time() * 1000),\n'
        "                shards=(),\n"
        "                segments=self._segments(table) if scans else (),\n",
        f"{SEEDS}[0-24]",
    ),
    _variant(
        "a late root at now",
        "connector/stream/shards.py",
        "            shard.coverage = Coverage(self._unseen_before_ms())\n",
        "            shard.coverage = Coverage(self._unseen_before_ms())\n"
        "            shard.position = Position.at_timestamp(self._aws_ms)\n",
        f"{SHARDS}::TestLineage::test_a_late_root_starts_at_the_generations_start",
    ),
    _variant(
        "a gap that keeps the scan's progress",
        "connector/replication.py",
        "                segments=self._segments(table),\n"
        "                shadow=True,\n"
        "                positions_generation=None,\n",
        "                segments=(self.stored.segments if self.stored else ()) or"
        " self._segments(table),\n"
        "                shadow=True,\n"
        "                positions_generation=None,\n",
        f"{RACES}::test_a_gap_in_the_snapshot_starts_it_over",
    ),
    _variant(
        "swap at scan end, and Ready",
        "connector/replication.py",
        "            and course.reader.has_passed(course.scan_end_ms)\n",
        "",
        f"{RACES}::test_a_shadow_is_swapped_in_when_its_streams_have_passed",
        f"{RACES}::test_ready_waits_until_the_stream_has_passed_the_scan",
    ),
    _variant(
        "Ready when the shards passed the scan's start",
        "connector/replication.py",
        "self.dataset.mark_snapshot(SnapshotState.SCANNED, scan_ended_at_ms=ended_ms)",
        "self.dataset.mark_snapshot(\n"
        "                SnapshotState.SCANNED, scan_ended_at_ms=stored.snapshot_started_at_ms\n"
        "            )",
        f"{RACES}::test_the_end_of_the_scan_is_passed_and_not_its_start",
        f"{SEEDS}[0-24]",
    ),
    Variant(
        "one empty page as the tip",
        (
            Change(
                "connector/stream/coverage.py", "PROOF_PAGES: Final = 3", "PROOF_PAGES: Final = 1"
            ),
            Change(
                "connector/health.py", "PROOF_SPAN_S: Final = 0.25", "PROOF_SPAN_S: Final = 0.0"
            ),
        ),
        (f"{LOSSES}::TestCoverage::test_one_empty_page_is_not_the_tip", f"{SEEDS}[0-24]"),
    ),
    _variant(
        "a finished leaf without a known child as done",
        "connector/stream/shards.py",
        "            if shard.children:\n"
        "                self._finish(shard)\n"
        "            else:\n"
        "                self._ask(shard, now_s + self._pacing.before_asking_again(shard.asked))\n"
        "        return self._progress()\n\n"
        "    def question_failed",
        "            self._finish(shard)\n"
        "        return self._progress()\n\n"
        "    def question_failed",
        f"{SHARDS}::TestLineage::test_a_leaf_without_children_is_asked_about_again",
        f"{SEEDS}[0-24]",
    ),
    _variant(
        "blind repair: not tested against what was touched",
        "connector/snapshot/single_keys.py",
        "                    scan_ticket=ticket,\n",
        "                    scan_ticket=dataset.open_scan_ticket(),\n",
        f"{RACES}::test_a_key_read_anew_yields_to_a_change_since",
    ),
    _variant(
        "blind repair: not after the streams have passed",
        "connector/snapshot/single_keys.py",
        "            self._await_passing(read_at_ms + SAME_SECOND_MS)\n",
        "",
        f"{RACES}::test_a_key_read_anew_waits_for_the_streams",
    ),
    _variant(
        "error codes alone after a long stop: opening a shard",
        "connector/stream/coverage.py",
        "        return at_ms - covered_until_ms > self.window_ms - self.margin_ms\n",
        "        return False\n",
        f"{RACES}::test_a_process_that_slept_for_a_day_says_that_changes_are_lost",
        LOSSES,
    ),
    _variant(
        "error codes alone after a long stop: starting",
        "connector/recovery.py",
        "    if covered_ms is not None and now_ms - covered_ms > policy.stale_after_ms:\n",
        "    if covered_ms is not None and now_ms < covered_ms:\n",
        f"{RACES}::test_after_nineteen_hours_the_path_of_recovery_is_taken",
        "tests/unit/test_recovery.py",
    ),
    # What the simulation found in this code itself.
    _variant(
        "a shadow done before it is swapped in",
        "connector/replication.py",
        "            else:\n                self.dataset.swap(\n",
        "            else:\n"
        "                self.dataset.mark_snapshot(SnapshotState.DONE)\n"
        "                self.dataset.swap(\n",
        f"{RACES}::test_a_kill_before_the_swap_leads_to_the_swap",
    ),
    _variant(
        "tickets outlive a reopened file",
        "accelerator/dataset.py",
        "            self._touched.expire()\n",
        "",
        f"{RACES}::test_a_commit_that_was_reported_as_failed_does_not_open_the_window",
    ),
    _variant(
        "a refresh that scans at once",
        "connector/course.py",
        "        self._fillable_s = None\n        self._scans =",
        "        self._scans =",
        f"{RACES}::test_a_refresh_waits_until_reads_show_what_was_applied_before_it",
    ),
    _variant(
        "a file that gave up reopened by the applier alone",
        "connector/upkeep.py",
        "        if isinstance(error, DatabaseInvalidated):\n            self._around.reopen()\n",
        "",
        f"{RACES}::test_a_file_that_gave_up_while_nothing_is_queued_is_reopened",
    ),
    _variant(
        "a suspended host: empty pages of before as proof",
        "connector/stream/lineage.py",
        "            or at_ms - self.last_good_ms > 1000 * stale_s + CLOCKS_APART_MS\n",
        "",
        f"{RACES}::test_a_suspended_host_proves_anew_that_a_shard_is_idle",
    ),
    _variant(
        "a suspended host: a good poll of before as lately",
        "connector/health.py",
        "since_ms > 1000 * stale_s + CLOCKS_APART_MS",
        "since_ms < 0",
        f"{RACES}::test_a_suspended_host_proves_anew_that_a_shard_is_idle",
        "tests/unit/test_health.py",
    ),
    _variant(
        "idle shards polled without back-off",
        "connector/stream/pacing.py",
        "max(self.tail_s, share_s) * 2.0**doublings",
        "max(self.tail_s, share_s) * 1.0**doublings",
        f"{SEEDS}[0-24]",
        "tests/unit/test_pacing.py",
    ),
    _variant(
        "closed shards taken as read where nothing is scanned",
        "connector/stream/lineage.py",
        "        return self.has_scan and not self.reads_everything\n",
        "        return not self.reads_everything\n",
        f"{SHARDS}::TestFirstStart::test_without_a_scan_closed_shards_are_read_too",
    ),
)
