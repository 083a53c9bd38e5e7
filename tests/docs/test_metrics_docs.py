"""The metrics page is what the catalog says."""

from __future__ import annotations

from pathlib import Path

from metrics.reference import metrics_page

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_the_metrics_page_is_generated_from_the_catalog() -> None:
    """docs/metrics.md holds exactly the catalog; write it with `python -m metrics.reference`."""
    assert PAGE.read_text(encoding="utf-8") == metrics_page()
