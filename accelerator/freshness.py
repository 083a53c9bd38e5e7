"""How old the rows of a query are, read in the query's own transaction.

Owns the two questions every query asks of the system tables before it runs: which relations a user
may name, and what state and as-of time the datasets it names have; and what a query may demand of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

# From worst to best: an answer over several datasets carries the worst of their states.
_WORST_FIRST = (
    "Error",
    "Initializing",
    "Snapshotting",
    "CatchingUp",
    "ShuttingDown",
    "Lagging",
    "Ready",
)


@dataclass(frozen=True, slots=True)
class Freshness:
    """Of the datasets a query names, or of all when it names none.

    as_of_ms   every change before this AWS time is in the rows; None while that is not proved
    """

    state: str | None = None
    as_of_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """How fresh the rows must be, on AWS time. A query waits for it without taking a slot.

    min_as_of_ms       every change before this time must be in the rows
    max_staleness_ms   every change older than this must be in the rows
    wait_s             how long to wait for it; the query's time limit where None
    """

    min_as_of_ms: int | None = None
    max_staleness_ms: int | None = None
    wait_s: float | None = None

    @property
    def is_any(self) -> bool:
        return self.min_as_of_ms is not None or self.max_staleness_ms is not None

    def as_of_ms(self, now_ms: int | None) -> int | None:
        """The as-of time that is demanded now; None when AWS time is not known yet."""
        times = [] if self.min_as_of_ms is None else [self.min_as_of_ms]
        if self.max_staleness_ms is not None:
            if now_ms is None:
                return None
            times.append(now_ms - self.max_staleness_ms)
        return max(times, default=0)


NO_DEMAND = Demand()


def visible_relations(cursor: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
    """Views and tables of schema main, by their lower-cased names."""
    rows = cursor.execute(
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal "
        "AND database_name = current_database() UNION ALL "
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal "
        "AND database_name = current_database()"
    ).fetchall()
    return {str(name).lower(): str(name) for (name,) in rows}


def read_freshness(
    cursor: duckdb.DuckDBPyConnection,
    relations: frozenset[str],
    live: Mapping[str, Freshness] | None = None,
) -> Freshness:
    """The worst state and the smallest covered_until among the datasets.

    A finished shard holds everything that was ever in it, so only unfinished ones count; rows that
    a snapshot has not completed are proved for no time at all.

    relations   names as SQL compares them, whatever their case
    live        by dataset, what was known right before this transaction began: what was committed
                then is in its snapshot, and positions of idle shards are stored rarely
    """
    names = frozenset(name.lower() for name in relations)
    now = {name.lower(): known for name, known in (live or {}).items()}
    known = _known_live(names, now)
    if known is None:
        known = _stored(cursor, names, now)
    if not known:
        return Freshness()
    as_of = [one.as_of_ms for one in known]
    return Freshness(
        state=min((one.state or "" for one in known), key=_rank),
        as_of_ms=None if None in as_of else min(ms for ms in as_of if ms is not None),
    )


def _known_live(relations: frozenset[str], live: Mapping[str, Freshness]) -> list[Freshness] | None:
    """What is known without asking the tables, which costs more than many a query does."""
    known = [live.get(name) for name in relations] if relations else list(live.values())
    complete = [one for one in known if one is not None and one.as_of_ms is not None]
    return complete if complete and len(complete) == len(known) else None


def _stored(
    cursor: duckdb.DuckDBPyConnection, relations: frozenset[str], live: Mapping[str, Freshness]
) -> list[Freshness]:
    rows = cursor.execute(
        """
        SELECT d.dataset, d.status, min(epoch_ms(c.covered_until)),
            count(*) FILTER (c.shard_id IS NOT NULL AND c.covered_until IS NULL),
            d.snapshot_state IN ('done', 'none')
        FROM dynaduck.datasets d
        LEFT JOIN dynaduck.checkpoints c ON c.dataset = d.dataset
            AND c.generation = d.positions_generation AND c.state <> 'finished'
        WHERE len($names) = 0 OR list_contains($names, lower(d.dataset))
        GROUP BY d.dataset, d.status, d.snapshot_state
        """,
        {"names": sorted(relations)},
    ).fetchall()
    known = []
    for dataset, status, covered_ms, unproved, is_loaded in rows:
        now = live.get(str(dataset).lower(), Freshness())
        stored_ms = None if unproved or not is_loaded or covered_ms is None else int(covered_ms)
        proved = [ms for ms in (stored_ms, now.as_of_ms) if ms is not None]
        known.append(Freshness(now.state or status, max(proved, default=None)))
    return known


def _rank(state: str) -> int:
    return _WORST_FIRST.index(state) if state in _WORST_FIRST else 0
