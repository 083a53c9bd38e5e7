"""What of a dataset's work becomes spans of `runtime.task_history`.

Owns which event is which task, under which parent, and what is sampled: loads and losses always,
pages and polls now and then, failed calls always. Keeps nothing itself: spans wait in
`metrics.task_history` until the service writes them. Thread-safe.

    acceleration_refresh    one load, from its begin to its swap
      ├─ scan_segment       a segment read to its end
      ├─ scan_page          sampled
      ├─ recovery           why it had to be
      └─ apply              a group with scan rows
    changes_stream          a minute of following the stream
      ├─ poll, discovery    sampled
      └─ apply              a group of changes
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Final

from accelerator.batch import Batch
from accelerator.outcome import Applied
from metrics.task_history import ActiveSpan, Sampler, Stretch, TaskHistory

STRETCH_S: Final = 60.0
SAMPLE_EVERY_S: Final = 30.0
TASK_OF_CALL: Final = {
    "GetRecords": "poll",
    "GetShardIterator": "poll",
    "DescribeStream": "discovery",
    "Scan": "scan_page",
}


class Journal:
    """The journal of one dataset."""

    def __init__(
        self, history: TaskHistory, dataset: str, monotonic_s: Callable[[], float]
    ) -> None:
        self._history = history
        self._dataset = dataset
        self._monotonic_s = monotonic_s
        self._stream = Stretch(history, "changes_stream", every_s=STRETCH_S, dataset=dataset)
        self._sampler = Sampler(SAMPLE_EVERY_S, monotonic_s)
        self._lock = threading.Lock()
        self._load: ActiveSpan | None = None

    def load_begins(self, why: str) -> None:
        """A scan of the whole table begins, or goes on after a restart."""
        with self._lock:
            given_up, self._load = (
                self._load,
                self._history.begin("acceleration_refresh", given=why, dataset=self._dataset),
            )
        if given_up is not None:
            given_up.output = "given up for another"
            self._history.end(given_up)

    def load_ends(self, items: int) -> None:
        with self._lock:
            ended, self._load = self._load, None
        if ended is not None:
            ended.output = json.dumps({"items": items})
            self._history.end(ended)

    def loss(self, cause: str, sentence: str) -> None:
        """A set of positions is given up."""
        self._history.record(
            "recovery", duration_s=0.0, given=cause, output=sentence, dataset=self._dataset
        )

    def called(self, operation: str, outcome: str, took_s: float) -> None:
        """One call of AWS; most are only counted."""
        task = TASK_OF_CALL.get(operation)
        if task is None:
            return
        self._stream.count(**{operation: 1})
        if not self._sampler.wants(task, is_notable=outcome != "ok"):
            return
        load = self._load
        is_scan = operation == "Scan" and load is not None
        parent = load.context if is_scan and load else self._stream.context(self._monotonic_s())
        self._history.record(
            task,
            duration_s=took_s,
            given=operation,
            error=None if outcome == "ok" else outcome,
            parent=parent,
            dataset=self._dataset,
        )

    def applied(self, group: Sequence[Batch], applied: Applied) -> None:
        """One transaction, and the segments that ended in it."""
        load = self._load
        scans = [batch for batch in group if batch.is_scan]
        in_load = bool(scans) and load is not None
        parent = load.context if in_load and load else self._stream.context(self._monotonic_s())
        self._stream.count(records=applied.records, commits=1)
        if applied.wrote and self._sampler.wants("apply", is_notable=applied.dead_letters > 0):
            self._history.record(
                "apply",
                duration_s=applied.duration_s,
                given=f"{len(group)} batches",
                output=json.dumps(dict(applied.operations), sort_keys=True),
                parent=parent,
                dataset=self._dataset,
                commit=applied.commit_number,
            )
        for segment in (segment for batch in scans for segment in batch.segments if segment.done):
            self._history.record(
                "scan_segment",
                duration_s=0.0 if load is None else self._monotonic_s() - load.start_s,
                given=f"{segment.segment} of {segment.total_segments}",
                output=json.dumps({"items": segment.items}),
                parent=parent,
                dataset=self._dataset,
            )

    def close(self) -> None:
        """Ends what is open, so that it can be written."""
        self._stream.close()
        with self._lock:
            open_load, self._load = self._load, None
        if open_load is not None:
            open_load.output = "interrupted; it goes on at the next start"
            self._history.end(open_load)
