"""Task history: what the service did, as spans, for `runtime.task_history`.

Owns a bounded buffer of ended spans, their ids, and the sampling of what happens all the time. It
writes nothing by itself: the service drains it on a slow beat, in a transaction of its own, and
drops rows beyond the retention there. A full buffer loses the oldest spans and counts them; nothing
ever waits for it. Thread-safe.

Tasks, under which spans are found: `acceleration_refresh` (one load of a dataset) with
`scan_segment` and `recovery` below it; `changes_stream` (a while of following a stream) with
`poll`, `apply` and `discovery`; `sql_query`, `verify` and `dead_letter_replay` on their own.
"""

from __future__ import annotations

import json
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import pyarrow as pa

_LONGEST_TEXT = 4_000

# The columns of runtime.task_history, in its order; times are UTC.
TASK_ROWS = pa.schema(
    [
        pa.field("trace_id", pa.string()),
        pa.field("span_id", pa.string()),
        pa.field("parent_span_id", pa.string()),
        pa.field("task", pa.string()),
        pa.field("input", pa.string()),
        pa.field("captured_output", pa.string()),
        pa.field("start_time", pa.timestamp("ms")),
        pa.field("end_time", pa.timestamp("ms")),
        pa.field("execution_duration_ms", pa.float64()),
        pa.field("error_message", pa.string()),
        pa.field("labels", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class SpanContext:
    """What a child needs of its parent; ids as W3C Trace Context writes them, in hex."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Span:
    """One ended task. `start_ms` is a point in time, `duration_ms` was measured monotonically."""

    context: SpanContext
    parent_span_id: str | None
    task: str
    given: str
    output: str | None
    start_ms: int
    duration_ms: float
    error: str | None
    labels: Mapping[str, str]


@dataclass(slots=True)
class ActiveSpan:
    """A task that runs. One thread at a time writes to it; children may start from any thread."""

    context: SpanContext
    parent_span_id: str | None
    task: str
    given: str
    start_ms: int
    start_s: float
    labels: dict[str, str] = field(default_factory=dict)
    output: str | None = None
    error: str | None = None

    def fail(self, error: BaseException) -> None:
        """Ends it as failed without raising: for what is retried."""
        self.error = str(error) or type(error).__name__

    def label(self, **labels: object) -> None:
        self.labels.update({name: str(value) for name, value in labels.items()})


class TaskHistory:
    """The spans of one service.

    `now_ms` tells the time that rows are dated with, `monotonic_s` measures. `wants` limits what is
    recorded: without it all tasks are.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
        *,
        capacity: int = 5_000,
        draw: random.Random | None = None,
    ) -> None:
        self._follower: Callable[[Span], None] | None = None
        self._now_ms = now_ms
        self._monotonic_s = monotonic_s
        # Ids need no secrecy, only to differ from those of other services.
        self._draw = draw or random.SystemRandom()
        self._lock = threading.Lock()
        self._ended: deque[Span] = deque()
        self._capacity = capacity
        self._dropped = 0
        self._current: ContextVar[SpanContext | None] = ContextVar("span", default=None)

    # -- recording -------------------------------------------------------------------------------

    @contextmanager
    def span(
        self, task: str, *, given: str = "", parent: SpanContext | None = None, **labels: object
    ) -> Iterator[ActiveSpan]:
        """A task as a block. Without `parent` it belongs to the block around it, if any.

        What the block raises is recorded and raised on.
        """
        active = self.begin(task, given=given, parent=parent, **labels)
        token = self._current.set(active.context)
        try:
            yield active
        except BaseException as error:
            active.fail(error)
            raise
        finally:
            self._current.reset(token)
            self.end(active)

    def begin(
        self, task: str, *, given: str = "", parent: SpanContext | None = None, **labels: object
    ) -> ActiveSpan:
        """A task that no block can hold; `end` it, from whatever thread."""
        above = parent or self._current.get()
        trace_id = above.trace_id if above is not None else self._id(16)
        active = ActiveSpan(
            context=SpanContext(trace_id, self._id(8)),
            parent_span_id=None if above is None else above.span_id,
            task=task,
            given=_cut(given) or "",
            start_ms=self._now_ms(),
            start_s=self._monotonic_s(),
        )
        active.label(**labels)
        return active

    def end(self, active: ActiveSpan) -> None:
        duration_ms = (self._monotonic_s() - active.start_s) * 1000
        self._keep(
            Span(
                context=active.context,
                parent_span_id=active.parent_span_id,
                task=active.task,
                given=active.given,
                output=_cut(active.output),
                start_ms=active.start_ms,
                duration_ms=duration_ms,
                error=_cut(active.error),
                labels=dict(active.labels),
            )
        )

    def record(
        self,
        task: str,
        *,
        duration_s: float,
        given: str = "",
        output: str | None = None,
        error: str | None = None,
        parent: SpanContext | None = None,
        **labels: object,
    ) -> None:
        """A task that has just ended, told by whoever measured it."""
        active = self.begin(task, given=given, parent=parent, **labels)
        active.output, active.error = output, error
        active.start_ms -= int(duration_s * 1000)
        active.start_s -= duration_s
        self.end(active)

    def follow(self, follower: Callable[[Span], None] | None) -> None:
        """Hands each span to `follower` too, as it ends, in whatever thread ended it."""
        self._follower = follower

    # -- draining --------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """How many spans wait to be written."""
        with self._lock:
            return len(self._ended)

    def drain(self, most: int = 1_000) -> list[Span]:
        """Takes the oldest spans out; write them, or they are gone."""
        with self._lock:
            return [self._ended.popleft() for _ in range(min(most, len(self._ended)))]

    def taken_dropped(self) -> int:
        """How many spans were lost since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def flush(self, write: Callable[[pa.Table], None], *, most: int = 1_000) -> int:
        """Hands the oldest spans to `write` as rows of TASK_ROWS; returns how many.

        Spans whose write fails are put back: they are tried again with the next flush.
        """
        spans = self.drain(most)
        if not spans:
            return 0
        try:
            write(as_rows(spans))
        except BaseException:
            with self._lock:
                self._ended.extendleft(reversed(spans))
                self._shrink()
            raise
        return len(spans)

    def _keep(self, span: Span) -> None:
        with self._lock:
            self._ended.append(span)
            self._shrink()
        if self._follower is not None:
            self._follower(span)

    def _shrink(self) -> None:
        while len(self._ended) > self._capacity:
            self._ended.popleft()
            self._dropped += 1

    def _id(self, size: int) -> str:
        return f"{self._draw.getrandbits(8 * size) or 1:0{2 * size}x}"


class Stretch:
    """A task without an end, such as following a stream, cut into spans of `every_s`.

    A span is written when it ends, so an endless one would never be seen; the children of each
    stretch find their parent in the table once the stretch is over.
    """

    def __init__(
        self, history: TaskHistory, task: str, *, every_s: float, **labels: object
    ) -> None:
        self._history = history
        self._task = task
        self._every_s = every_s
        self._labels = labels
        self._lock = threading.Lock()
        self._active: ActiveSpan | None = None
        self._counts: dict[str, float] = {}

    def context(self, now_s: float) -> SpanContext:
        """The parent for children that start now."""
        with self._lock:
            if self._active is not None and now_s - self._active.start_s >= self._every_s:
                self._end()
            if self._active is None:
                self._active = self._history.begin(self._task)
                self._active.label(**self._labels)
            return self._active.context

    def count(self, **amounts: float) -> None:
        """Adds to what the stretch tells as its output, such as polls and records."""
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] = self._counts.get(name, 0) + amount

    def close(self) -> None:
        """Ends the stretch, if one runs. The next `context` begins another."""
        with self._lock:
            if self._active is not None:
                self._end()

    def _end(self) -> None:
        active = self._active
        if active is None:
            return
        active.output = json.dumps(self._counts, sort_keys=True) if self._counts else None
        self._history.end(active)
        self._active, self._counts = None, {}


class Sampler:
    """Which of many like tasks are recorded: what is notable, and else one in `every_s` per key.

    Keys are datasets, so their number is bounded by the configuration. Thread-safe.
    """

    def __init__(self, every_s: float, monotonic_s: Callable[[], float]) -> None:
        self._every_s = every_s
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._last_s: dict[str, float] = {}

    def wants(self, key: str, *, is_notable: bool = False) -> bool:
        now_s = self._monotonic_s()
        with self._lock:
            last_s = self._last_s.get(key)
            is_due = last_s is None or now_s - last_s >= self._every_s
            if is_due:
                self._last_s[key] = now_s
        return is_due or is_notable


def as_rows(spans: Sequence[Span]) -> pa.Table:
    """Spans as rows of runtime.task_history; labels are a JSON object."""
    return pa.table(
        {
            "trace_id": [s.context.trace_id for s in spans],
            "span_id": [s.context.span_id for s in spans],
            "parent_span_id": [s.parent_span_id for s in spans],
            "task": [s.task for s in spans],
            "input": [s.given for s in spans],
            "captured_output": [s.output for s in spans],
            "start_time": pa.array([s.start_ms for s in spans], pa.timestamp("ms")),
            "end_time": pa.array(
                [s.start_ms + round(s.duration_ms) for s in spans], pa.timestamp("ms")
            ),
            "execution_duration_ms": [s.duration_ms for s in spans],
            "error_message": [s.error for s in spans],
            "labels": [json.dumps(dict(s.labels), sort_keys=True) for s in spans],
        },
        schema=TASK_ROWS,
    )


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
