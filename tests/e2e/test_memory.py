"""The memory of the real process, as the kernel counts it, while it copies and follows a table."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from bench.product import Product
from bench.server import Canned

MOST_BYTES: Final = 600_000_000
SHARDS: Final = 4
RECORDS_A_PAGE: Final = 25
PAGES_PER_S: Final = 10  # of each shard: 1,000 changes/s in all
ITEM_BYTES: Final = 375


def _peak_bytes(data_dir: Path, rows: int, memory_limit: str = "1GB") -> int:
    """The most memory held from the start until the snapshot is passed, under a steady stream."""
    with Canned(rows=rows, shards=SHARDS) as server:
        server.prepare(shards=SHARDS, pages=600, records=RECORDS_A_PAGE)
        product = Product(
            data_dir, server.url, params={"scan_interval": "0s"}, memory_limit=memory_limit
        )
        with product:
            product.wait(lambda: product.get("/health")[0] == 200, 60)
            server.drip(shards=SHARDS, pages_per_s=PAGES_PER_S)
            product.wait(lambda: product.counts(rows), 100)
            product.wait_ready(60)
            assert product.committed_records() >= 1000
            peak_bytes = product.peak_rss_bytes
            product.stop()
    return peak_bytes


@pytest.mark.slow(50)
@pytest.mark.timeout(400)
def test_memory_stays_under_600_mb_and_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """A snapshot under 1,000 changes/s: with the default memory_limit it stays below 600 MB. With
    a small one, which is filled by either table, four times the rows take no more than noise: less
    than what they are on the wire.
    """
    small, large = 100_000, 400_000
    assert _peak_bytes(tmp_path / "default", large) < MOST_BYTES
    of_small = _peak_bytes(tmp_path / "small", small, "192MB")
    of_large = _peak_bytes(tmp_path / "large", large, "192MB")
    assert of_large - of_small < (large - small) * ITEM_BYTES
