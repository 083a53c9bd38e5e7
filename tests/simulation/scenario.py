"""What a seed stands for: how the table, its stream and the service are set, and what happens when.

Only draws; carries nothing out. A scenario prints as what it is, so that a failing seed tells its
story.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from connector.config import Dataset as Settings
from connector.config.settings import InitialSnapshot, InvalidCheckpointBehavior
from emulator import LastPage, NoIterator, TableSettings
from tests.simulation.front_source import REGION
from tests.simulation.truth import TABLE

HOUR_S: Final = 3600.0


class What(StrEnum):
    """What may happen."""

    WRITES = "writes"
    SPLIT = "split"
    ROLLOVER = "rollover"
    FAULT = "fault"
    CRASH = "crash"
    CRASH_IN_COMMIT = "crash_in_commit"
    CRASH_ON_THE_WAY = "crash_on_the_way"
    COMMIT_FAULT = "commit_fault"
    EXPIRE_ITERATORS = "expire_iterators"
    EXPIRE_ITEMS = "expire_items"
    HIDE = "hide"
    SHOW_OPEN = "show_open"
    PAUSE = "pause"
    REFRESH = "refresh"
    NOTHING = "nothing"
    STOP = "stop"
    FREEZE = "freeze"
    SUSPEND = "suspend"
    DISABLE = "disable"
    RECREATE = "recreate"


USUAL: Final = {
    What.WRITES: 30,
    What.SPLIT: 6,
    What.ROLLOVER: 6,
    What.FAULT: 12,
    What.CRASH: 4,
    What.CRASH_IN_COMMIT: 4,
    What.CRASH_ON_THE_WAY: 3,
    What.COMMIT_FAULT: 5,
    What.EXPIRE_ITERATORS: 2,
    What.EXPIRE_ITEMS: 2,
    What.HIDE: 3,
    What.SHOW_OPEN: 2,
    What.PAUSE: 1,
    What.REFRESH: 3,
    What.NOTHING: 5,
}
RARE: Final = {
    What.STOP: 4,
    What.FREEZE: 2,
    What.SUSPEND: 2,
    What.DISABLE: 3,
    What.RECREATE: 3,
}
LONG: Final = frozenset({What.STOP, What.FREEZE, What.SUSPEND})
LOSSY: Final = frozenset({What.DISABLE, What.RECREATE})
HARMLESS_S: Final = 17.5 * HOUR_S
"""After LOSSY events a gap is honest, and after long ones that make up more than this together."""

LONG_S: Final = tuple(hours * HOUR_S for hours in (3, 17, 19, 25))


@dataclass(frozen=True, slots=True)
class Event:
    """`after_s` since the event before; `lasts_s` and `size` mean what the event makes of them."""

    what: What
    after_s: float
    lasts_s: float = 0.0
    size: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """interference: the chance that others run while a request is under way."""

    seed: int
    settings: Settings
    table: TableSettings
    keys: int
    has_sort_key: bool
    page_items: int
    knows_at_timestamp: bool
    interference: float
    events: tuple[Event, ...]

    def __str__(self) -> str:
        settings = self.settings
        told = [
            f"{settings.initial_snapshot.value}, {settings.invalid_checkpoint_behavior.value}",
            f"{settings.scan_segments} segments of {self.page_items}",
            f"consistent={settings.scan_consistent_read}, at_timestamp={self.knows_at_timestamp}",
            f"{self.keys} keys, interference={self.interference}",
            str(self.table),
        ]
        told += [f"  +{e.after_s:.2f} {e.what.value} {e.lasts_s:.1f} {e.size}" for e in self.events]
        return "\n".join(told)

    @property
    def may_lose(self) -> bool:
        """Whether a gap, or loading anew for one, would be honest."""
        away_s = sum(event.lasts_s for event in self.events if event.what in LONG)
        return away_s > HARMLESS_S or any(event.what in LOSSY for event in self.events)


def draw(seed: int) -> Scenario:
    rng = random.Random(f"scenario {seed}")
    consistent = rng.random() < 0.7
    settings = replace(
        Settings(name=TABLE, table=TABLE, region=REGION),
        scan_segments=rng.randint(1, 3),
        scan_consistent_read=consistent,
        ready_lag_s=2.0,
        initial_snapshot=rng.choices(list(InitialSnapshot), (7, 2, 2))[0],
        invalid_checkpoint_behavior=rng.choice(list(InvalidCheckpointBehavior)),
    )
    table = TableSettings(
        shards=rng.randint(1, 4),
        describe_page_size=rng.choice((1, 2, 3, 100)),
        max_page_records=rng.choice((1, 3, 10, 1000)),
        empty_pages=rng.choice((0, 0, 1, 2)),
        last_page=rng.choice(list(LastPage)),
        no_iterator=rng.choice(list(NoIterator)),
        rollover_every_s=rng.choice((0.0, 0.0, 4 * HOUR_S)),
        stale_reads_s=0.0 if consistent else 3.0,
    )
    return Scenario(
        seed,
        settings,
        table,
        keys=rng.randint(4, 24),
        has_sort_key=rng.random() < 0.3,
        page_items=rng.choice((1, 3, 8)),
        knows_at_timestamp=rng.random() < 0.85,
        interference=rng.choice((0.05, 0.2, 0.5)),
        events=tuple(_events(rng)),
    )


def _events(rng: random.Random) -> list[Event]:
    weights = dict(USUAL)
    if rng.random() < 0.5:
        chosen = rng.sample(list(RARE), rng.randint(1, 2))
        weights |= {what: RARE[what] for what in chosen}
    if rng.random() < 0.3:
        for what in (What.CRASH, What.CRASH_IN_COMMIT, What.CRASH_ON_THE_WAY, What.COMMIT_FAULT):
            del weights[what]
    kinds = list(weights)
    events = [
        Event(
            what,
            rng.choice((0.0, 0.05, rng.uniform(0.1, 2.0), rng.uniform(0.1, 6.0))),
            _lasting(rng, what),
            rng.randint(1, 12),
        )
        for what in rng.choices(kinds, [weights[kind] for kind in kinds], k=rng.randint(8, 30))
    ]
    # Long ones twice at most: a day is soon over.
    left = 2
    kept = []
    for event in events:
        if event.what in LONG:
            if left == 0:
                continue
            left -= 1
        kept.append(event)
    return kept


def _lasting(rng: random.Random, what: What) -> float:
    if what in LONG:
        return rng.choice(LONG_S) + rng.uniform(-600, 600)
    if what in (What.HIDE, What.SHOW_OPEN):
        return rng.uniform(1, 100)
    if what in (What.DISABLE, What.RECREATE):
        return rng.choice((0.0, 5.0, 70.0))
    if what is What.FAULT:
        return rng.choice((0.5, 3.0, 10.0, 40.0))
    return rng.uniform(0.5, 8.0)
