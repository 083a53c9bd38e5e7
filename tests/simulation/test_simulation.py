"""The whole service on seeds: whatever befalls it, no promise is broken at any step.

A failing seed prints itself and its story. To see it again:
`pytest tests/simulation/test_simulation.py --seed N` (and `--on-duckdb` where it says so).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.scenario import draw
from tests.simulation.simulation import Outcome, run_seed
from tests.simulation.truth import Violation

CHUNK = 25
FEW = 300
DUCKDB_SEEDS = range(8)
MANY = 3000
MANY_ON_DUCKDB = range(8, 100)


def walk(seeds: range, *, on_duckdb: bool = False) -> list[Outcome]:
    outcomes = []
    for seed in seeds:
        try:
            outcomes.append(run_seed(seed, on_duckdb=on_duckdb))
        except Violation as violation:
            again = f"pytest tests/simulation/test_simulation.py --seed {seed}"
            again += " --on-duckdb" if on_duckdb else ""
            pytest.fail(f"{violation}\nTo see it again: {again}", pytrace=False)
    return outcomes


def chunks(first: int, end: int) -> list[range]:
    return [range(seed, min(seed + CHUNK, end)) for seed in range(first, end, CHUNK)]


@pytest.mark.parametrize("seeds", chunks(0, FEW), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_no_seed_breaks_a_promise(seeds: range, request: pytest.FixtureRequest) -> None:
    """Writers, lineage, faults, crashes and long stops: the copy is right, Ready tells no lie."""
    if request.config.getoption("--seed") is None:
        walk(seeds)


@pytest.mark.slow(4)
@pytest.mark.parametrize("seed", DUCKDB_SEEDS)
def test_nor_on_a_real_file(seed: int, request: pytest.FixtureRequest) -> None:
    """The same on DuckDB: a crash goes on with the file and the log as they were."""
    if request.config.getoption("--seed") is None:
        walk(range(seed, seed + 1), on_duckdb=True)


def test_the_seed_that_is_asked_for(request: pytest.FixtureRequest) -> None:
    """`--seed N` runs one seed and tells its story; without it a seed is shown to be repeatable."""
    seed = request.config.getoption("--seed")
    on_duckdb = bool(request.config.getoption("--on-duckdb"))
    if seed is not None:
        print(draw(seed))
        print(run_seed(seed, on_duckdb=on_duckdb, is_told=True))
        return
    assert run_seed(4).digest == run_seed(4).digest


def test_the_seeds_meet_what_they_are_for() -> None:
    """A simulation in which nothing happens proves nothing."""
    met: Counter[str] = Counter()
    for outcome in walk(range(FEW, FEW + 25)):
        met.update({str(what): count for what, count in outcome.events.items()})
        met["gap or loss"] += outcome.halted + outcome.reinitialized
        met["lives"] += outcome.lives
        met["changes"] += outcome.changes
    missing = {"crash", "crash_in_commit", "fault", "split", "rollover", "stop", "disable"} - set(
        met
    )
    assert not missing
    assert met["gap or loss"] >= 1
    assert met["lives"] > 30
    assert met["changes"] > 1000


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seeds", chunks(FEW, MANY), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_thousands_of_seeds(seeds: range) -> None:
    """The same for as long as patience lasts."""
    walk(seeds)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", MANY_ON_DUCKDB)
def test_many_seeds_on_a_real_file(seed: int) -> None:
    """And on DuckDB."""
    walk(range(seed, seed + 1), on_duckdb=True)
