"""The load run of `python -m bench load`, in its short form."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import load


@pytest.mark.soak
def test_clients_on_mixed_surfaces_while_changes_are_applied(tmp_path: Path) -> None:
    """Nothing but the documented limits is answered, most is answered, and what is behind or held
    in memory does not grow with time."""
    report = load.run(
        tmp_path, clients=60, seconds=25, changes_per_s=2_000, rows=20_000, flight=True
    )
    assert report.unexpected == {}, report.text()
    surfaces = {surface for (surface, outcome) in report.outcomes if outcome == "ok"}
    assert surfaces == {"json", "csv", "arrow", "flight"}, report.text()
    assert report.lag_growth_s < 10, report.text()
    assert report.memory_growth < 1.5, report.text()
