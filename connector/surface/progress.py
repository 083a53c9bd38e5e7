"""Progress of long work on a person's screen, or in lines where there is no screen.

Owns the drawing. It is shown what `status` knows, and asks for nothing; `show` may be called as
often as one likes. A terminal gets bars, anything else a line when there is something new to say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from connector.surface.status import DatasetStatus, SnapshotStatus

_LINE_EVERY_S = 10.0
_LINE_EVERY_RATIO = 0.1


class ProgressDisplay(Protocol):
    """One caller's thread uses it. `close` leaves the screen as text, and is idempotent."""

    def show(self, datasets: Sequence[DatasetStatus]) -> None: ...

    def close(self) -> None: ...


def progress_display(
    monotonic_s: Callable[[], float], stream: TextIO | None = None
) -> ProgressDisplay:
    """Bars on a terminal, lines elsewhere."""
    out = sys.stderr if stream is None else stream
    if out.isatty():
        return Bars(Console(file=out))
    return Lines(out, monotonic_s)


class Bars:
    """One bar per dataset whose snapshot runs, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.fields[name]}", style="bold"),
            BarColumn(),
            TextColumn("{task.fields[said]}"),
            console=console,
            transient=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._is_started = False

    def show(self, datasets: Sequence[DatasetStatus]) -> None:
        for dataset in datasets:
            snapshot = dataset.snapshot
            if snapshot is None or (snapshot.ended_at_ms and dataset.name not in self._tasks):
                continue
            if not self._is_started:
                self._progress.start()
                self._is_started = True
            if dataset.name not in self._tasks:
                self._tasks[dataset.name] = self._progress.add_task(
                    "", total=1.0, name=dataset.name, said=""
                )
            self._progress.update(
                self._tasks[dataset.name],
                completed=_ratio(snapshot),
                total=None if snapshot.ratio is None and not snapshot.ended_at_ms else 1.0,
                said=describe(snapshot),
            )

    def close(self) -> None:
        if self._is_started:
            self._progress.stop()
            self._is_started = False


class Lines:
    """A line at the start, at each tenth or each ten seconds, and at the end."""

    def __init__(self, out: TextIO, monotonic_s: Callable[[], float]) -> None:
        self._out = out
        self._monotonic_s = monotonic_s
        self._said: dict[str, tuple[float, float, bool]] = {}

    def show(self, datasets: Sequence[DatasetStatus]) -> None:
        now_s = self._monotonic_s()
        for dataset in datasets:
            snapshot = dataset.snapshot
            if snapshot is None:
                continue
            ratio, is_over = _ratio(snapshot), snapshot.ended_at_ms is not None
            before = self._said.get(dataset.name)
            if before is None and is_over:
                continue
            if before is not None and not _is_news(before, now_s, ratio, is_over):
                continue
            self._said[dataset.name] = (now_s, ratio, is_over)
            print(f"snapshot of {dataset.name}: {describe(snapshot)}", file=self._out, flush=True)

    def close(self) -> None:
        self._said.clear()


def _is_news(before: tuple[float, float, bool], now_s: float, ratio: float, is_over: bool) -> bool:
    at_s, said_ratio, was_over = before
    if was_over or is_over:
        return was_over != is_over
    return now_s - at_s >= _LINE_EVERY_S or ratio - said_ratio >= _LINE_EVERY_RATIO


def describe(snapshot: SnapshotStatus) -> str:
    """`42 % · 1,234 items · 3,000/s · 0:12 left`; what is not known is left out."""
    parts = []
    if snapshot.ended_at_ms is not None:
        parts.append("done")
    elif snapshot.ratio is not None:
        parts.append(f"{int(snapshot.ratio * 100)} %")
    parts.append(f"{snapshot.items:,} items")
    if snapshot.ended_at_ms is None:
        if snapshot.items_per_s is not None:
            parts.append(f"{snapshot.items_per_s:,.0f}/s")
        if snapshot.eta_s is not None:
            parts.append(f"{_clock(snapshot.eta_s)} left")
    return " · ".join(parts)


def _ratio(snapshot: SnapshotStatus) -> float:
    if snapshot.ended_at_ms is not None:
        return 1.0
    return min(max(snapshot.ratio or 0.0, 0.0), 1.0)


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
