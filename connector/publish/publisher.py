"""When a dataset's copy is made anew, and what is told of it.

Owns the schedule of one dataset's copies: at each interval one if anything changed, tried again
with a back-off when it failed. Must not know what is in a copy, nor how it reaches its place. One
thread calls `step`; `stop` may come from any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from accelerator.copies import Circumstances, CopyFormat, CopyMaker, Written
from accelerator.errors import AcceleratorError, DatabaseInvalidated, QueryInterrupted
from accelerator.freshness import Freshness
from accelerator.query import Readers
from connector.clock import Clock
from connector.errors import CopyFailed
from connector.publish.places import Place, clear_spill
from connector.retry import Backoff
from metrics.recorder import DatasetRecorder
from metrics.task_history import TaskHistory

LOOK_EVERY_S: Final = 1.0  # until there are rows to copy
BACKOFF: Final = Backoff(base_s=2.0, cap_s=300.0, floor_s=1.0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for. `target` is for people; `spill` a directory for this dataset alone."""

    dataset: str
    every_s: float
    format: CopyFormat
    target: str
    spill: Path


@dataclass(frozen=True, slots=True)
class Subject:
    """The dataset as the publisher sees it.

    changes   a number that grows with every commit of rows, and its load, negative before there is
              one: equal means unchanged
    fail      takes the error that lasts, None once a copy was made
    """

    readers: Readers
    changes: Callable[[], tuple[int, int]]
    live: Callable[[], Mapping[str, Freshness]]
    now_ms: Callable[[], int | None]
    fail: Callable[[Exception | None], None]
    reopen: Callable[[], None]


@dataclass(slots=True)
class _State:
    published: tuple[int, int] | None = None
    failures: int = 0
    due_s: float = float("-inf")
    maker: CopyMaker | None = None
    is_stopped: bool = field(default=False)


class Publisher:
    """The copies of one dataset."""

    def __init__(
        self,
        order: Order,
        place: Place,
        subject: Subject,
        recorder: DatasetRecorder,
        history: TaskHistory,
        clock: Clock,
        *,
        version: str,
        draw: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._order = order
        self._place = place
        self._subject = subject
        self._recorder = recorder
        self._history = history
        self._clock = clock
        self._version = version
        self._draw = draw
        self._wall_s = wall_s
        self._state = _State()

    def stop(self) -> None:
        """Gives up the copy that is being made; the published one stays."""
        self._state.is_stopped = True
        maker = self._state.maker
        if maker is not None:
            maker.stop()

    def step(self, now_s: float) -> float:
        """Makes a copy when one is due; when to be called again."""
        state = self._state
        if now_s < state.due_s or state.is_stopped:
            return max(state.due_s, now_s + LOOK_EVERY_S) if state.is_stopped else state.due_s
        changes = self._subject.changes()
        if changes[1] < 0:
            state.due_s = now_s + LOOK_EVERY_S
            return state.due_s
        if changes == state.published:
            self._recorder.publish_skipped(at_s=self._wall_s())
            state.due_s = now_s + self._order.every_s
            return state.due_s
        try:
            written = self._make()
        except (AcceleratorError, CopyFailed) as error:
            state.due_s = self._failed(error, now_s)
            return state.due_s
        if written is None:
            state.due_s = now_s + LOOK_EVERY_S
            return state.due_s
        took_s = self._clock.monotonic_s() - now_s
        state.published = changes
        state.failures = 0
        self._subject.fail(None)
        self._told(written, took_s)
        # At least as long a rest as the copy took: a large table must not be copied all the time.
        state.due_s = now_s + max(self._order.every_s, 2 * took_s)
        return state.due_s

    def _make(self) -> Written | None:
        order, state, subject = self._order, self._state, self._subject
        maker = CopyMaker(subject.readers, order.dataset)
        state.maker = maker
        if state.is_stopped:
            maker.stop()
        try:
            self._place.prepare()
            around = Circumstances(
                live=subject.live(),
                now_ms=subject.now_ms(),
                version=self._version,
                spill=order.spill,
            )
            written = maker.write(self._place.staging, order.format, around)
            if written is not None:
                self._place.put(lambda: state.is_stopped)
            return written
        finally:
            state.maker = None
            self._place.clear()
            clear_spill(order.spill)

    def _failed(self, error: AcceleratorError | CopyFailed, now_s: float) -> float:
        state, order = self._state, self._order
        if state.is_stopped and isinstance(error, QueryInterrupted | CopyFailed):
            return now_s + LOOK_EVERY_S
        wait_s = BACKOFF.delay_s(state.failures, self._draw())
        state.failures += 1
        self._subject.fail(error)
        self._recorder.publish_failed()
        self._history.record(
            "publish",
            duration_s=self._clock.monotonic_s() - now_s,
            given=order.target,
            error=str(error),
            dataset=order.dataset,
        )
        log.warning(
            "a copy could not be published and is tried again",
            dataset=order.dataset,
            to=order.target,
            error=str(error),
            hint=error.hint,
            wait_s=round(wait_s, 1),
        )
        if isinstance(error, DatabaseInvalidated):
            self._subject.reopen()
        return self._clock.monotonic_s() + wait_s

    def _told(self, written: Written, took_s: float) -> None:
        order = self._order
        self._recorder.published(seconds=took_s, nbytes=written.nbytes, at_s=self._wall_s())
        self._history.record(
            "publish",
            duration_s=took_s,
            given=order.target,
            output=json.dumps({"rows": written.rows, "bytes": written.nbytes}),
            dataset=order.dataset,
            format=order.format.value,
        )
        log.info(
            "a copy was published",
            dataset=order.dataset,
            to=order.target,
            rows=written.rows,
            bytes=written.nbytes,
            seconds=round(took_s, 3),
        )
