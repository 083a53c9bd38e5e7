"""What a person sees of a snapshot."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from connector.health import DatasetState
from connector.surface.progress import Bars, Lines, describe, progress_display
from connector.surface.status import DatasetStatus, SnapshotStatus


def at(ratio: float, items: int = 0, *, ended: bool = False) -> DatasetStatus:
    snapshot = SnapshotStatus("running", items=items, ratio=ratio, ended_at_ms=1 if ended else None)
    return DatasetStatus("orders", "orders", DatasetState.SNAPSHOTTING, snapshot=snapshot)


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_lines_come_when_there_is_news() -> None:
    """Without a terminal: a line at the start, at each tenth or ten seconds, and one at the end."""
    out, clock = io.StringIO(), Clock()
    lines = Lines(out, clock)
    for ratio, now_s in ((0.0, 0.0), (0.01, 0.1), (0.05, 0.2), (0.11, 0.3), (0.12, 10.4)):
        clock.now_s = now_s
        lines.show([at(ratio, int(ratio * 1000))])
    clock.now_s = 11.0
    for _ in range(3):
        lines.show([at(1.0, 1000, ended=True)])
    assert out.getvalue().splitlines() == [
        "snapshot of orders: 0 % · 0 items",
        "snapshot of orders: 11 % · 110 items",
        "snapshot of orders: 12 % · 120 items",
        "snapshot of orders: done · 1,000 items",
    ]


def test_a_snapshot_that_ended_before_is_no_news() -> None:
    """After a restart the finished snapshot of last week is not told again."""
    out = io.StringIO()
    Lines(out, Clock()).show([at(1.0, 1000, ended=True)])
    assert out.getvalue() == ""


def test_a_new_snapshot_after_the_last_is_told() -> None:
    """A refresh starts again at zero, and is shown again."""
    out = io.StringIO()
    lines = Lines(out, Clock())
    lines.show([at(0.5, 5)])
    lines.show([at(1.0, 10, ended=True)])
    lines.show([at(0.0, 0)])
    assert len(out.getvalue().splitlines()) == 3


def test_a_terminal_gets_bars() -> None:
    """On a terminal the bar moves in place and names the dataset, the share and the items."""
    out = io.StringIO()
    bars = Bars(Console(file=out, force_terminal=True, width=100, color_system=None))
    bars.show([at(0.0)])
    bars.show([at(0.42, 1234)])
    bars.show([at(1.0, 2000, ended=True)])
    bars.close()
    bars.close()
    assert "orders" in out.getvalue()
    assert "done · 2,000 items" in out.getvalue()


def test_the_display_fits_the_stream() -> None:
    """Lines where output is redirected."""
    assert isinstance(progress_display(Clock(), io.StringIO()), Lines)


def test_what_is_not_known_is_left_out() -> None:
    """No rate and no time left are invented."""
    snapshot = SnapshotStatus("running", items=1234)
    assert describe(snapshot) == "1,234 items"
    known = replace(snapshot, ratio=0.4242, items_per_s=3000.4, eta_s=3723.9)
    assert describe(known) == "42 % · 1,234 items · 3,000/s · 1:02:03 left"
