"""The threads of the real process, as the kernel counts them, under few and very many shards."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.product import Product
from bench.server import Canned


def _threads(data_dir: Path, shards: int) -> int:
    with Canned(rows=1_000, shards=shards) as server, Product(data_dir, server.url) as product:
        product.wait(lambda: product.get("/health")[0] == 200, 60)
        product.wait_ready(90)
        rows = product.sql("SELECT count(*) AS n FROM dynaduck.checkpoints")
        assert rows[0]["n"] == shards
        # Queries bring threads of the HTTP server's pool; the service's own are its loops.
        names = [
            (task / "comm").read_text().strip()
            for task in Path(f"/proc/{product.pid}/task").iterdir()
        ]
        of_pool = sum(name.startswith(("AnyIO", "asyncio")) for name in names)
        threads = product.threads - of_pool
        product.stop()
    return threads


@pytest.mark.slow(20)
def test_1000_idle_shards_cost_the_same_threads_as_16(tmp_path: Path) -> None:
    """Pollers take shards by turns, so the number of threads depends on the settings alone."""
    assert _threads(tmp_path / "many", 1000) == _threads(tmp_path / "few", 16)
